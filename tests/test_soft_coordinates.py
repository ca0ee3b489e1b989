"""Soft coordinates of every kind: the words of soft=, exact states with everything soft, rings, and what is refused."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import butane
import numpy as np
import openmm
import pytest
from random_trees import Beads
from real_structures import DATA, load
from scipy.optimize import least_squares

import peptidyn as ptd
from peptidyn.core.atoms import Atoms
from peptidyn.core.errors import ArgumentError, ModelError, SelectionError, StepError
from peptidyn.model.soft import WORDS

INPUTS = os.environ.get("PEPTIDYN_INPUTS")


def tree_of(structure, soft):
    return ptd.build_tree(structure, soft=soft)


def motions(tree):
    return Counter(c.motion for c in tree.coordinates)


def names_of(structure, atoms):
    return tuple(str(structure.atoms.name[a]) for a in atoms)


def atom_of(structure, residue_name, name, which=0):
    """Return the atom of this name in the first (or a later) residue of this name."""
    found = [
        residue[name]
        for residue, label in zip(structure.atoms.residue_atoms, structure.atoms.residue_name, strict=True)
        if label == residue_name
    ]
    return found[which]


# ---------------------------------------------------------------------------- everything soft is exact


def test_everything_soft_is_every_conformation(structure_file):
    """3 n - 6 coordinates per molecule (1 for two atoms), and any positions are a state, to 1e-12 nm."""
    structure = load(structure_file)
    tree = tree_of(structure, "all")
    size = np.bincount(tree.molecule[tree.atom_link], minlength=tree.n_molecules)
    coordinates = np.bincount(tree.molecule[tree.coordinate >= 0], minlength=tree.n_molecules)
    assert np.array_equal(coordinates, np.maximum(3 * size - 6, size - 1))
    assert tree.n_dof == 3 * tree.n_atoms
    rng = np.random.default_rng(0)
    for deviation in (0.002, 0.01):
        x = structure.positions + rng.normal(scale=deviation, size=structure.positions.shape)
        fit = tree.fit(x)
        assert fit.max_misfit < 1e-12
        assert np.abs(tree.positions(fit.state) - x).max() < 1e-12 * max(1.0, np.abs(x).max())


@pytest.mark.parametrize(
    ("soft", "root"),
    [(word, 0) for word in ("torsions", "angles", "heavy", "hydrogens", "bonds", "phases", "rings", "all")]
    + [(words, -1) for words in ("heavy", "torsions angles", "torsions bends", "chi; bends in name CB")],
)
def test_coordinates_are_what_their_atoms_measure(soft, root):
    """Dihedral, angle or distance of the atoms of every coordinate is its value; states go there and back.

    Seen from the end of the chain the first atom of a chi is none that the others hang on: angles may move it.
    """
    structure = load(DATA / "all20.pdb")
    tree = ptd.build_tree(structure, soft=soft, root=range(structure.n_atoms)[root])
    rng = np.random.default_rng(1)
    q = tree.q_reference.copy()
    q[tree.torsion_index] = rng.uniform(-np.pi, np.pi, tree.n_torsions)
    for places in (tree.bend_index, tree.phase_index):
        q[places] += rng.uniform(-0.1, 0.1, len(places))
    q[tree.stretch_index] *= rng.uniform(0.9, 1.1, tree.n_stretches)
    state = tree.reference.replace(q=q)
    x = tree.positions(state)
    for c, value in zip(tree.coordinates, q, strict=True):
        if c.motion == "stretch":
            assert np.linalg.norm(x[c.atoms[0]] - x[c.atoms[1]]) == pytest.approx(value, abs=1e-12)
        elif c.motion == "bend":
            u, v = x[c.atoms[0]] - x[c.atoms[1]], x[c.atoms[2]] - x[c.atoms[1]]
            assert np.arctan2(np.linalg.norm(np.cross(u, v)), u @ v) == pytest.approx(value, abs=1e-10)
        else:
            u, v, w = np.diff(x[list(c.atoms)], axis=0)
            found = np.arctan2(np.linalg.norm(v) * u @ np.cross(v, w), np.cross(u, v) @ np.cross(v, w))
            assert abs(np.angle(np.exp(1j * (found - value)))) < 1e-10, c
    back = tree.state(x)
    assert np.abs(np.exp(1j * back.q) - np.exp(1j * q)).max() < 1e-9
    assert np.abs(tree.positions(back) - x).max() < 1e-10


# ---------------------------------------------------------------------------- words, parts and selections


def test_the_heavy_atoms_of_capped_alanine_have_15_coordinates():
    structure = load(DATA / "ala1.pdb")
    tree = tree_of(structure, "heavy")
    assert motions(tree) == {"torsion": 4, "bend": 8, "phase": 3}
    hydrogen = structure.atoms.element == "H"
    assert not any(hydrogen[list(c.atoms)].any() for c in tree.coordinates)
    assert sorted(c.kind for c in tree.torsions) == ["omega", "omega", "phi", "psi"]


def test_words_add_up_to_everything():
    """Nothing is soft twice, and rings stay whole without a word of their own."""
    structure = load(DATA / "all20.pdb")
    parts = {word: motions(tree_of(structure, word)) for word in ("torsions", "heavy", "hydrogens", "bonds", "all")}
    assert set(parts["torsions"]) == {"torsion"} and set(parts["bonds"]) == {"stretch"}
    assert set(parts["hydrogens"]) == {"torsion", "bend", "phase"}
    mixed = motions(tree_of(structure, "heavy hydrogens bonds"))
    assert mixed == parts["heavy"] + parts["hydrogens"] + parts["bonds"]
    assert mixed.total() < parts["all"].total()
    assert motions(tree_of(structure, "bends phases omega torsions")) == parts["heavy"]
    assert not motions(tree_of(structure, "none"))


def test_every_word_builds_a_tree():
    structure = load(DATA / "all20.pdb")
    assert {word for word in WORDS if not tree_of(structure, word).n_coordinates} == {
        "none",
        "amide",
        "carboxyl",
        "rotor",
    }


def test_parts_are_soft_within_their_selections():
    structure = load(DATA / "all20.pdb")
    base, everything = tree_of(structure, "phi psi chi"), tree_of(structure, "all")
    tree = tree_of(structure, "phi psi chi; all in residue 10 to 14")
    inside = {i for i, name in enumerate(structure.atoms.residue_id) if 10 <= int(name) <= 14}
    assert {c.residue for c in tree.coordinates if c.motion != "torsion"} == inside
    # inside: as many as with everything soft, but for the joint to the part that is rigid
    inner = [c for c in tree.coordinates if set(structure.atoms.residue[list(c.atoms)]) <= inside]
    wanted = [c for c in everything.coordinates if set(structure.atoms.residue[list(c.atoms)]) <= inside]
    assert motions(tree)["stretch"] == sum(c.residue in inside for c in everything.coordinates if c.motion == "stretch")
    assert len(inner) >= len(wanted)
    # outside: the torsions that were soft anyway, each measured by the same atoms
    key = lambda c: (c.kind, c.residue)  # noqa: E731
    outside = {key(c): c.atoms for c in tree.torsions if c.residue not in inside}
    assert outside == {key(c): c.atoms for c in base.torsions if c.residue not in inside}
    rng = np.random.default_rng(3)
    x = structure.positions.copy()
    chosen = structure.select("residue 11 to 13")
    x[chosen] += rng.normal(scale=0.005, size=(len(chosen), 3))
    assert np.abs(tree.positions(tree.state(x)) - x).max() < 1e-12
    assert tree.n_coordinates < everything.n_coordinates


def test_parts_can_be_given_as_a_list():
    structure = load(DATA / "ala10-helix.pdb")
    text = tree_of(structure, "phi psi; bonds in residue 3 to 4")
    listed = tree_of(structure, ["phi psi", "bonds in residue 3 to 4"])
    assert text.coordinates == listed.coordinates and text.n_stretches > 0


@pytest.mark.parametrize(
    ("soft", "error", "phrase"),
    [
        ("phi psy", ArgumentError, "psy"),
        ("phi; all in", ArgumentError, "names no selection"),
        ("phi; all in residue 990 to 999", SelectionError, "990"),
    ],
)
def test_soft_that_means_nothing_is_refused(soft, error, phrase):
    with pytest.raises(error, match=phrase):
        tree_of(load(DATA / "ala3.pdb"), soft)


TEXTBOOK = {"phi": ("C", "N", "CA", "C"), "psi": ("N", "CA", "C", "N"), "omega": ("CA", "C", "N", "CA")}


@pytest.mark.parametrize("soft", ["phi psi chi omega", "heavy", "heavy rings", "all"])
def test_torsions_keep_their_textbook_atoms(soft):
    structure = load(DATA / "all20.pdb")
    tree = tree_of(structure, soft)
    kinds = Counter(c.kind for c in tree.torsions)
    amino = [i for i, name in enumerate(structure.atoms.residue_name) if name not in ("ACE", "NME", "NH2")]
    for c in tree.torsions:
        if c.kind in TEXTBOOK and c.residue in amino[:-1] and c.residue + 1 in amino:
            assert names_of(structure, c.atoms) == TEXTBOOK[c.kind], c
        if c.kind == "chi1":
            first, *rest = names_of(structure, c.atoms)
            assert first == "N" and rest[:2] == ["CA", "CB"] and rest[2] in ("CG", "CG1", "OG", "OG1", "SG"), c
    proline_moves = "rings" in soft or soft == "all"
    assert kinds["phi"] == len(amino) - (not proline_moves) and kinds["psi"] == len(amino)


def test_backbone_torsions_have_the_values_of_the_rigid_model():
    """phi, psi, omega and chi mean the same at every softness."""
    structure = load(DATA / "all20.pdb")
    rigid, flexible = tree_of(structure, "phi psi chi omega"), tree_of(structure, "all")
    key = lambda c: (c.kind, c.residue)  # noqa: E731
    values = dict(zip(map(key, flexible.torsions), flexible.reference.torsions, strict=True))
    for c, value in zip(rigid.torsions, rigid.reference.torsions, strict=True):
        if c.kind != "rotor":
            assert values[key(c)] == pytest.approx(value, abs=1e-12), c


# ---------------------------------------------------------------------------- rings


RINGS = {
    "PRO": ("N", "CA", "CB", "CG", "CD"),
    "PHE": ("CG", "CD1", "CD2", "CE1", "CE2", "CZ"),
    "HIS": ("CG", "ND1", "CD2", "CE1", "NE2"),
    "TRP": ("CG", "CD1", "CD2", "NE1", "CE2", "CE3", "CZ2", "CZ3", "CH2"),
}


@pytest.mark.parametrize("soft", ["phi psi chi", "heavy hydrogens bonds", "heavy rings", "all"])
@pytest.mark.parametrize("name", RINGS)
def test_rings_are_rigid_unless_they_are_asked_for(name, soft):
    """Only proline puckers with "rings"; aromatic rings move with "all" alone."""
    structure = load(DATA / "all20.pdb")
    tree = tree_of(structure, soft)
    ring = [atom_of(structure, name, a) for a in RINGS[name]]
    moves = soft == "all" or ("rings" in soft and name == "PRO")
    cuts = [bond for bond in tree.cut_bonds.tolist() if set(bond) <= set(ring)]
    assert len(cuts) == ((2 if name == "TRP" else 1) if moves else 0)
    links = set(tree.atom_link[ring].tolist())
    assert len(links) == (len(ring) if moves else 1)


def test_prolines_phi_is_soft_with_rings():
    structure = load(DATA / "all20.pdb")
    residue = int(np.flatnonzero(structure.atoms.residue_name == "PRO")[0])
    without, with_rings = tree_of(structure, "phi psi"), tree_of(structure, "phi psi rings")
    assert [b.why for b in without.hard_bonds if structure.atoms.residue[b.atoms[0]] == residue and b.kind == "phi"]
    phi = [c for c in with_rings.torsions if c.residue == residue and c.kind == "phi"]
    assert [names_of(structure, c.atoms) for c in phi] == [TEXTBOOK["phi"]]
    assert not [b for b in with_rings.hard_bonds if b.kind == "phi"]
    # the pucker: torsions about all ring bonds of the tree
    ring = {atom_of(structure, "PRO", a) for a in RINGS["PRO"]}
    about = {tuple(sorted(c.atoms[1:3])) for c in with_rings.torsions if set(c.atoms[1:3]) <= ring}
    assert len(about) >= 3


def test_disulfides_are_held_by_the_force_field(further_structure):
    structure = load(further_structure("bpti.pdb"))
    for soft in ("phi psi chi", "heavy", "all"):
        tree = tree_of(structure, soft)
        sulfur = [b for b in tree.cut_bonds.tolist() if names_of(structure, b) == ("SG", "SG")]
        assert len(sulfur) == 3 and tree.n_molecules == 1
    assert tree.n_coordinates == 3 * structure.n_atoms - 6


@cache
def cyclic_peptide():
    """Return cyclo-(Ala)6: a chain whose torsions are turned until its ends meet, with a bond between them."""
    chain = ptd.build_peptide("AAAAAA", phi=-70, psi=100, caps=False)
    ends = {"OXT", "H2", "H3"}
    chain = chain.subset(np.flatnonzero([name not in ends for name in chain.atoms.name]))
    first, last = chain.atoms.residue_atoms[0], chain.atoms.residue_atoms[5]
    tree = ptd.build_tree(chain, soft="phi psi")
    pairs = np.array(
        [(first["N"], last["C"]), (first["CA"], last["C"]), (first["N"], last["CA"]), (first["N"], last["O"])]
    )

    def miss(torsions):
        x = tree.positions(tree.reference.replace(torsions=torsions))
        return np.linalg.norm(x[pairs[:, 0]] - x[pairs[:, 1]], axis=1) - np.array([0.1335, 0.2435, 0.2435, 0.225])

    rng = np.random.default_rng(0)
    for _ in range(20):
        closed = least_squares(miss, tree.reference.torsions + rng.normal(scale=0.5, size=tree.n_torsions))
        if np.abs(closed.fun).max() < 1e-4:
            break
    assert np.abs(closed.fun).max() < 1e-4, "the ends do not meet"
    bonds = np.concatenate([chain.atoms.bonds, [sorted((first["N"], last["C"]))]])
    order = np.append(chain.atoms.bond_order, 1.0)
    ranked = np.lexsort((bonds[:, 1], bonds[:, 0]))
    atoms = replace(chain.atoms, bonds=bonds[ranked], bond_order=order[ranked])
    return Beads(atoms, tree.positions(tree.reference.replace(torsions=closed.x)), chain.masses)


@pytest.mark.parametrize("soft", ["phi psi", "heavy", "all"])
def test_a_macrocycle_is_cut_at_one_bond(soft):
    """A head-to-tail peptide moves: no ring of 18 atoms is a rigid body, whatever is soft."""
    structure = cyclic_peptide()
    tree = tree_of(structure, soft)
    assert tree.n_molecules == 1 and len(tree.cut_bonds) == 1
    i, j = tree.cut_bonds[0]
    assert structure.atoms.residue[i] != structure.atoms.residue[j] or soft == "all"
    backbone = [r[name] for r in structure.atoms.residue_atoms for name in ("N", "CA", "C")]
    assert {i, j} <= set(backbone)
    kinds = Counter(c.kind for c in tree.torsions)
    # a bond that is cut has no torsion; the phi beside a cut peptide bond is there, measured by its hydrogen
    assert kinds["phi"] == 6 - (soft == "all" and names_of(structure, (i, j)) == ("N", "CA")) and kinds["psi"] >= 5
    assert len(set(tree.atom_link[backbone].tolist())) > 10
    if soft == "all":
        assert tree.n_coordinates == 3 * structure.atoms.n_atoms - 6
        x = structure.positions + np.random.default_rng(1).normal(scale=0.005, size=structure.positions.shape)
        assert np.abs(tree.positions(tree.state(x)) - x).max() < 1e-12


@pytest.mark.skipif(not INPUTS, reason="PEPTIDYN_INPUTS names no folder with further inputs")
def test_a_cyclic_peptide_with_a_disulfide():
    """The trypsin inhibitor of sunflowers: closed head to tail and by a disulfide, three prolines."""
    structure = ptd.load_structure(Path(INPUTS) / "cyclic-sfti1.pdb")
    tree = tree_of(structure, "phi psi chi")
    names = sorted(names_of(structure, bond) for bond in tree.cut_bonds)
    assert names == [("N", "C"), ("SG", "SG")]
    # 14 residues, three of them proline; nothing hangs on the first N, which has no hydrogen here and is cut off
    assert Counter(c.kind for c in tree.torsions)["phi"] == 10
    everything = tree_of(structure, "all")
    assert everything.n_coordinates == 3 * structure.n_atoms - 6
    assert len(everything.cut_bonds) == 2 + 3 + 1  # prolines and the phenylalanine
    x = structure.positions + np.random.default_rng(1).normal(scale=0.005, size=structure.positions.shape)
    assert np.abs(everything.positions(everything.state(x)) - x).max() < 1e-12
    rings = tree_of(structure, "rings")
    assert len(rings.cut_bonds) == 2 + 3


# ---------------------------------------------------------------------------- what is refused


def propionitrile():
    """Return CH3-CH2-C#N, whose last three atoms lie on one line."""
    names = ["C1", "H11", "H12", "H13", "C2", "H21", "H22", "C3", "N4"]
    x = np.array(
        [
            (0.0, 0.0, 0.0), (-0.063, 0.089, 0.0), (-0.036, -0.051, 0.089), (-0.036, -0.051, -0.089),
            (0.153, 0.0, 0.0), (0.19, 0.051, 0.089), (0.19, 0.051, -0.089), (0.204, -0.137, 0.0),
            (0.204 + 0.116 * 0.051 / 0.1463, -0.137 - 0.116 * 0.137 / 0.1463, 0.0),
        ]
    )  # fmt: skip
    atoms = Atoms(
        name=np.array(names), element=np.array([name[0] for name in names]), residue=np.zeros(9, dtype=np.int64),
        residue_name=np.array(["PCN"]), residue_id=np.array(["1"]), residue_chain=np.zeros(1, dtype=np.int64),
        chain_id=np.array(["A"]),
        bonds=np.array([(0, 1), (0, 2), (0, 3), (0, 4), (4, 5), (4, 6), (4, 7), (7, 8)]), bond_order=np.ones(8),
    )  # fmt: skip
    return Beads(atoms, x, np.array([12.0, 1, 1, 1, 12, 1, 1, 12, 14]))


@pytest.mark.parametrize("soft", ["all", "heavy", "bends"])
def test_a_linear_group_cannot_be_soft(soft):
    with pytest.raises(ModelError, match="linear") as error:
        tree_of(propionitrile(), soft)
    assert all(name in str(error.value) for name in ("C2", "C3", "N4", "PCN"))


def test_a_linear_group_is_no_obstacle_where_it_stays_rigid():
    for soft in ("methyl", "hydrogens bonds"):
        assert tree_of(propionitrile(), soft).n_coordinates > 0


@pytest.mark.parametrize(
    ("value", "phrase"), [(-0.1, "is -0.1"), (np.nan, "is nan"), (np.inf, "is inf"), (-np.inf, "is -inf")]
)
def test_inertias_must_be_finite_and_not_negative(value, phrase):
    tree = tree_of(load(DATA / "ala1.pdb"), "all")
    inertia = np.zeros(tree.n_coordinates)
    inertia[[11, 30]] = value
    with pytest.raises(ArgumentError, match=phrase) as error:
        tree.with_joint_inertia(inertia)
    assert str(tree.coordinates[11]) in str(error.value)
    with pytest.raises(ArgumentError, match=phrase):
        ptd.TorsionLangevinIntegrator(tree, 300, 1, 0.002, metric=inertia)


@pytest.mark.parametrize("shape", [(), (59,), (61,), (60, 1), (1, 60)])
def test_inertias_of_another_tree_are_refused(shape):
    tree = tree_of(load(DATA / "ala1.pdb"), "all")
    for make in (tree.with_joint_inertia, lambda a: ptd.TorsionGHMCIntegrator(tree, 300, 1, 0.002, metric=a)):
        with pytest.raises(ArgumentError, match=r"expected \(60,\), one entry per soft coordinate of this tree"):
            make(np.ones(shape))


def test_a_word_that_is_no_metric_is_refused():
    tree = tree_of(load(DATA / "ala1.pdb"), "all")
    with pytest.raises(ArgumentError, match=r"'heavy', expected 'physical', 'auto' or an array"):
        ptd.TorsionLangevinIntegrator(tree, 300, 1, 0.002, metric="heavy")


def flexible_butane():
    """Return (tree, system) of butane with everything soft."""
    system = butane.make_system()
    x = butane.make_tree().positions(butane.make_tree().reference)
    structure = ptd.Structure.from_openmm(butane.make_topology(), system, x)
    return ptd.build_tree(structure, soft="all"), system


def thrown(integrator_class, motion, **options):
    """Return an integrator with one coordinate of butane thrown out of its range, and that coordinate."""
    tree, system = flexible_butane()
    h = 0.002
    integrator = integrator_class(tree, 300, 0.0, h, seed=1, **options)
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(tree.positions(tree.reference))
    integrator.bind(context)
    place = {"bend": tree.bend_index, "stretch": tree.stretch_index}[motion][0]
    # a large inertia makes the coordinate keep its speed, whatever it is coupled to
    inertia = np.zeros(tree.n_coordinates)
    inertia[place] = 1e4
    integrator.set_joint_inertia(inertia)
    momenta = np.zeros(tree.n_dof)
    far = {"bend": np.pi - tree.q_reference[place] + 0.2, "stretch": -tree.q_reference[place] - 0.02}[motion]
    momenta[tree.coordinate_dof[place]] = inertia[place] * far / h
    integrator.set_motion(tree.reference, momenta)
    return integrator, context, tree.coordinates[place]


@pytest.mark.parametrize("motion", ["bend", "stretch"])
def test_ghmc_rejects_a_step_out_of_the_range_of_a_coordinate(motion):
    integrator, context, _ = thrown(ptd.TorsionGHMCIntegrator, motion)
    before, momenta = integrator.motion()
    x = context.getState(positions=True).getPositions(asNumpy=True)._value.copy()
    integrator.step(1)
    after, reversed_momenta = integrator.motion()
    assert integrator.counters == {"proposed": 1, "accepted": 0, "fallbacks": 0}
    assert np.array_equal(after.q, before.q) and np.allclose(reversed_momenta, -momenta, rtol=1e-9)
    assert np.abs(context.getState(positions=True).getPositions(asNumpy=True)._value - x).max() < 1e-12
    integrator.step(1)  # back from where it came: inside the range


@pytest.mark.parametrize(("motion", "phrase"), [("bend", "0 or 180 degrees"), ("stretch", "zero length")])
def test_langevin_reports_a_step_out_of_the_range_of_a_coordinate(motion, phrase):
    integrator, context, coordinate = thrown(ptd.TorsionLangevinIntegrator, motion)
    before, _ = integrator.motion()
    with pytest.raises(StepError, match=phrase) as error:
        integrator.step(5)
    assert str(coordinate) in str(error.value) and "step 0" in str(error.value)
    assert np.array_equal(integrator.motion()[0].q, before.q) and context.getStepCount() == 0

"""What may turn, bond by bond: orders and lengths of bonds, amides, rings, disulfides, selections."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from random_trees import Beads

import peptidyn as ptd
from peptidyn.core.atoms import Atoms
from peptidyn.core.errors import ArgumentError
from peptidyn.core.points import dihedral, place
from peptidyn.model.soft import DEFAULT_SOFT, WORDS, SoftPart, parse_parts, parse_soft


def molecule(elements, bonds, positions, orders=None, residues=None):
    """Return a molecule from elements, bonds (i, j) and positions in nm; order 0 is not known."""
    n = len(elements)
    residue = np.zeros(n, dtype=np.int64) if residues is None else np.array(residues)
    count = int(residue.max()) + 1
    atoms = Atoms(
        name=np.array([f"{e}{i}" for i, e in enumerate(elements)]),
        element=np.array(list(elements)),
        residue=residue,
        residue_name=np.array(["LIG"] * count),
        residue_id=np.array([str(r + 1) for r in range(count)]),
        residue_chain=np.zeros(count, dtype=np.int64),
        chain_id=np.array(["A"]),
        bonds=np.array(sorted(bonds), dtype=np.int64),
        bond_order=np.zeros(len(bonds)) if orders is None else np.array(orders, dtype=float),
    )
    masses = np.array([{"C": 12.0, "N": 14.0, "O": 16.0, "S": 32.0, "H": 1.0}[e] for e in elements])
    return Beads(atoms, np.array(positions, dtype=float), masses)


def chain(elements, length=0.15, orders=None, residues=None, middle=None):
    """Return atoms in a row with angles of 110 degrees and torsions of 60; the middle bond may have its own length."""
    x = [np.zeros(3), np.array([length, 0.0, 0.0])]
    x.append(x[1] + length * np.array([np.cos(1.2), np.sin(1.2), 0.0]))
    for _ in elements[3:]:
        x.append(place(*x[-3:], length, 1.92, 1.05))
    if middle is not None:  # of four atoms
        shift = (middle - length) * (x[2] - x[1]) / length
        x[2], x[3] = x[2] + shift, x[3] + shift
    bonds = [(i, i + 1) for i in range(len(elements) - 1)]
    return molecule(elements, bonds, x, orders, residues)


def kinds(structure, soft="rotor"):
    return [c.kind for c in ptd.build_tree(structure, soft=soft).coordinates]


@pytest.mark.parametrize(("order", "turns"), [(1.0, True), (1.5, False), (2.0, False), (3.0, False)])
def test_only_single_bonds_turn(order, turns):
    """1.5 is aromatic, or an amide as some files write it."""
    assert kinds(chain("CCCC", orders=[1.0, order, 1.0])) == (["rotor"] if turns else [])


@pytest.mark.parametrize(("length", "turns"), [(0.153, True), (0.143, True), (0.140, False), (0.133, False)])
def test_without_orders_short_bonds_are_double(length, turns):
    assert kinds(chain("CCCC", middle=length)) == (["rotor"] if turns else [])


def test_short_bonds_of_tetrahedral_atoms_are_single():
    """C-C-C-C whose second atom carries two more."""
    x = chain("CCCC", middle=0.137).positions
    bonds, places = [(0, 1), (1, 2), (2, 3), (1, 4), (1, 5)], [x[1] + [0.0, -0.05, z] for z in (0.14, -0.14)]
    assert kinds(molecule("C" * 6, bonds, [*x, *places])) == ["rotor"]


def test_amides_turn_with_omega_only():
    """C-C(=O)-N-C, and the same with its nitrogen before its carbon."""
    x = chain("CCNC").positions
    structure = molecule("CCNCO", [(0, 1), (1, 2), (1, 4), (2, 3)], [*x, x[1] + [0.0, -0.05, 0.11]], [1, 1, 2, 1])
    assert kinds(structure, "rotor") == [] and kinds(structure, "omega") == ["amide"]
    bonds = [(0, 1), (1, 2), (2, 3), (2, 4)]
    structure = molecule("CNCCO", bonds, [*x[::-1], x[1] + [0.0, -0.05, 0.11]], [1, 1, 1, 2])
    assert kinds(structure, "rotor") == [] and kinds(structure, "omega") == ["amide"]


def test_methyl_and_polar_rotors_are_told_apart():
    """CH3 on a chain, and OH on another one."""
    for end, word, other in (("C", "methyl", "polar"), ("O", "polar", "methyl")):
        structure = chain(["N", "C", end, "H"], length=0.15)
        assert kinds(structure, word) == [word] and kinds(structure, other) == []


def ring(elements, radius_of=0.15, pucker=0.0, tail=True, residues=None):
    """Return a ring with a tail of two atoms, regular but for every other atom being `pucker` out of the plane."""
    n = len(elements)
    angle = 2 * np.pi * np.arange(n) / n
    radius = radius_of / (2 * np.sin(np.pi / n))
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle), pucker * (-1.0) ** np.arange(n)], axis=1)
    bonds = [tuple(sorted((i, (i + 1) % n))) for i in range(n)]
    return molecule(list(elements), bonds, x, residues=residues)


@pytest.mark.parametrize(("n", "cut"), [(5, 0), (6, 0), (8, 0), (9, 1), (12, 1)])
def test_rings_of_more_than_eight_atoms_are_cut(n, cut):
    tree = ptd.build_tree(ring("C" * n, pucker=0.03), soft="rotor")
    assert len(tree.cut_bonds) == cut and (tree.n_torsions > 0) == (cut > 0)


def test_soft_rings_open_where_they_can_pucker():
    """With three bonds per atom a flat ring is aromatic; a puckered one is not."""
    for pucker, cut in ((0.0, 0), (0.02, 1)):
        assert len(ptd.build_tree(ring("C" * 6, pucker=pucker), soft="rings").cut_bonds) == cut


def test_one_tetrahedral_atom_is_enough_to_pucker():
    """A flat ring of six atoms, of which one carries two more."""
    flat = ring("C" * 6)
    bonds = [*map(tuple, flat.atoms.bonds.tolist()), (0, 6), (0, 7)]
    positions = [*flat.positions, *(flat.positions[0] + [0.08, 0.0, z] for z in (0.12, -0.12))]
    assert len(ptd.build_tree(molecule("C" * 8, bonds, positions), soft="rings").cut_bonds) == 1


def test_a_torsion_is_measured_by_an_atom_that_no_phase_moves():
    """The bond 1-2 ends in a flat ring, at an atom that carries atom 3 too: 3 has a phase, and the ring measures."""
    flat = ring("C" * 5).positions
    out = flat[0] / np.linalg.norm(flat[0])
    x = [flat[0] + 0.15 * out + [0.0, 0.0, 0.1] + [0.1, 0.0, 0.1], flat[0] + 0.1 * out + [0.0, 0.0, 0.11]]
    x += [flat[0], flat[0] + 0.1 * out - [0.0, 0.0, 0.11], *flat[1:]]
    bonds = [(0, 1), (1, 2), (2, 3), (2, 4), (4, 5), (5, 6), (6, 7), (2, 7)]
    tree = ptd.build_tree(molecule("C" * 8, bonds, x), soft="rotor phases", root=0)
    assert [c.motion for c in tree.coordinates].count("phase") == 1
    moved = tree.reference.replace(q=tree.q_reference + [0.3, 0.2])
    assert np.abs(tree.state(tree.positions(moved)).q - moved.q).max() < 1e-9


def test_soft_rings_are_soft_at_their_own_bonds_alone():
    """Of the five bonds in the ring of proline one is cut and four are soft, and no others of the peptide."""
    tree = ptd.build_tree(ptd.build_peptide("APA"), "rings")
    bonds = [{str(tree.atoms.name[a]) for a in c.atoms} for c in tree.coordinates if c.motion == "stretch"]
    bonds.append({str(tree.atoms.name[a]) for a in tree.cut_bonds[0]})
    assert len(bonds) == 5 and set().union(*bonds) == {"N", "CA", "CB", "CG", "CD"}


def test_fused_rings_stay_rigid():
    """Two puckered six-membered rings that share the bond 0-1; with another bond between them each could pucker."""
    x = [(0.0, 0.075), (0.0, -0.075), (0.13, -0.15), (0.26, -0.075), (0.26, 0.075), (0.13, 0.15)]
    positions = [(u, v, 0.03 * (-1) ** i) for i, (u, v) in enumerate([*x, *((-u, v) for u, v in x[2:])])]
    one, other = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)], [(1, 6), (6, 7), (7, 8), (8, 9), (0, 9)]
    assert len(ptd.build_tree(molecule("C" * 10, one + other, positions), soft="rings").cut_bonds) == 0
    assert len(ptd.build_tree(molecule("C" * 10, one + other[1:-1], positions), soft="rings").cut_bonds) == 1


def test_macrocycles_keep_the_small_rings_they_run_through():
    """Twelve atoms on a circle, of which 10, 11 and 0 are in a ring of five."""
    angle = 2 * np.pi * np.arange(12) / 12
    circle = [(0.29 * np.cos(a), 0.29 * np.sin(a), 0.0) for a in angle]
    small = [(0, 11), (10, 11), (10, 13), (12, 13), (0, 12)]
    bonds = [*((i, i + 1) for i in range(10)), *small]
    positions = [*circle, (0.38, 0.0, 0.12), (0.30, -0.26, 0.12)]
    tree = ptd.build_tree(molecule("C" * 14, bonds, positions))
    assert tree.cut_bonds.tolist() == [[9, 10]]


@pytest.mark.parametrize(("residues", "cut"), [((0, 0, 0, 1, 1, 1), [[2, 3]]), ((0,) * 6, [])])
def test_disulfides_between_residues_are_cut(residues, cut):
    """A ring C-C-S-S-C-C: the bond S-S is left out of the tree if it joins two residues."""
    tree = ptd.build_tree(ring("CCSSCC", radius_of=0.18, pucker=0.03, residues=residues), soft="rotor")
    assert tree.cut_bonds.tolist() == cut
    assert (tree.n_torsions > 0) == bool(cut)


CHIS = ["chi1", "chi2", "chi3", "chi4", "chi5"]
BENDS = ["N-CA-C", "CA-C-N", "C-N-CA"]
TORSIONS = ["phi", "psi", "carboxyl", "rotor", *CHIS]
KINDS = {
    **{kind: [kind] for kind in ("phi", "methyl", "polar", "amide", "carboxyl", "rotor", *CHIS, *BENDS)},
    "psi": ["psi", "carboxyl"],
    "omega": ["omega", "amide"],
    "chi": ["rotor", *CHIS],
    "torsions": TORSIONS,
    "angles": BENDS,
    "bends": ["angle", *BENDS],
    "phases": ["phase"],
    "heavy": [*TORSIONS, *BENDS, "omega", "amide", "angle", "phase"],
    "hydrogens": ["methyl", "polar", "angle-H", "phase-H"],
    "bonds": ["bond", "bond-H"],
    "rings": ["ring"],
    "all": [*TORSIONS, *BENDS, "omega", "amide", "methyl", "polar", "angle", "phase", "angle-H", "phase-H", "bond",
            "bond-H", "ring", "stiff"],
    "none": [],
}  # fmt: skip


def test_words_stand_for_their_kinds():
    assert {word: sorted(parse_soft(word)) for word in WORDS} == {word: sorted(kinds) for word, kinds in KINDS.items()}
    assert parse_soft("torsions") == parse_soft("phi psi chi") == parse_soft(DEFAULT_SOFT)
    assert parse_soft("heavy bonds hydrogens rings") == parse_soft("all") - {"stiff"}


def test_words_are_written_in_any_case_and_with_commas():
    assert parse_soft("PHI,psi , n-ca-c") == {"phi", "psi", "carboxyl", "N-CA-C"}
    assert parse_soft(["phi", "bonds in resid 1"]) == {"phi", "bond", "bond-H"} and parse_soft("") == frozenset()
    assert parse_parts("phi in resid 1 to 2 ; omega") == (
        SoftPart(frozenset({"phi"}), "resid 1 to 2"),
        SoftPart(frozenset({"omega", "amide"})),
    )
    with pytest.raises(ArgumentError, match=r"the part 'all in' of soft names no selection after 'in'"):
        parse_parts("phi; all in")


def test_every_part_has_a_selection_of_its_own(dipeptide):
    """A part without one means all atoms, whatever stands before it; two parts may ask for the same."""

    def found(soft):
        return sorted((c.kind, c.residue) for c in ptd.build_tree(dipeptide, soft).torsions)

    everywhere = [("phi", 1), ("phi", 2)]
    assert found("phi") == everywhere and found("phi in resid 1") == everywhere[:1]
    assert found("omega in resid 1; phi") == everywhere
    assert found("phi in resid 2; phi in resid 1") == everywhere
    assert found("phi in resid 2; psi in resid 1 to 2") == [("phi", 2), ("psi", 1), ("psi", 2)]


@pytest.fixture(scope="module")
def dipeptide():
    return ptd.build_peptide("AA", phi=-75, psi=60)


def test_backbone_torsions_are_those_that_a_peptide_is_built_with(dipeptide):
    tree = ptd.build_tree(dipeptide, "phi psi omega")
    for value, c in zip(np.rad2deg(tree.reference.torsions), tree.torsions, strict=True):
        expected = {"phi": -75.0, "psi": 60.0, "omega": 180.0}[c.kind]
        assert abs((value - expected + 180) % 360 - 180) < 1e-6, c
        names = [str(tree.atoms.name[a]) for a in c.atoms]
        assert c.residue == tree.atoms.residue[c.atoms[1]]  # omega belongs to the residue of its carbon
        assert c.kind == "omega" or names == {"phi": ["C", "N", "CA", "C"], "psi": ["N", "CA", "C", "N"]}[c.kind]
        assert value == pytest.approx(np.rad2deg(dihedral(*dipeptide.positions[list(c.atoms)])), abs=1e-9)


def test_backbone_angles_are_those_of_their_names(dipeptide):
    tree = ptd.build_tree(dipeptide, "phi psi angles")
    assert {c.kind for c in tree.bends} == {"N-CA-C", "CA-C-N", "C-N-CA"}
    for c in tree.bends:
        assert "-".join(str(tree.atoms.name[a]) for a in c.atoms) == c.kind
    # everything beyond an opened angle moves, and the angle is what its three atoms enclose
    moved = tree.reference.replace(bends=tree.reference.bends + 0.05)
    assert np.abs(tree.state(tree.positions(moved)).bends - moved.bends).max() < 1e-9


def test_a_bond_is_soft_where_both_of_its_atoms_are_selected(dipeptide):
    """omega of the first residue leads to the second: it is not within the first."""
    assert kinds(dipeptide, "omega in resid 1") == []
    assert kinds(dipeptide, "omega in resid 1 to 2") == ["omega"]


def test_rigid_selections_do_not_turn(dipeptide):
    free = ptd.build_tree(dipeptide, "phi psi")
    held = ptd.build_tree(dipeptide, "phi psi", rigid="resid 1")
    assert free.n_torsions == 4 and {c.residue for c in held.torsions} == {2}
    reasons = {bond.why for bond in held.hard_bonds if bond.kind in ("phi", "psi")}
    assert reasons == {"inside a rigid selection"}


def test_unknown_orders_are_not_single(dipeptide):
    """The same molecule with and without orders has the same rotors."""
    bare = Beads(
        replace(dipeptide.atoms, bond_order=np.zeros_like(dipeptide.atoms.bond_order)),
        dipeptide.positions,
        dipeptide.masses,
    )
    assert kinds(bare, "phi psi omega methyl") == kinds(dipeptide, "phi psi omega methyl")


CHI_ATOMS = {
    "R": ["N CA CB CG", "CA CB CG CD", "CB CG CD NE", "CG CD NE CZ", "CD NE CZ NH1"],
    "N": ["N CA CB CG", "CA CB CG OD1"],
    "I": ["N CA CB CG1", "CA CB CG1 CD1"],
    "K": ["N CA CB CG", "CA CB CG CD", "CB CG CD CE", "CG CD CE NZ"],
    "M": ["N CA CB CG", "CA CB CG SD", "CB CG SD CE"],
    "F": ["N CA CB CG", "CA CB CG CD1"],
    "T": ["N CA CB OG1"],
    "V": ["N CA CB CG1"],
    "A": [],
}
"""By IUPAC; the delta carbon of isoleucine is written as PDB files do."""


def chis_of(structure, soft="chi"):
    """Return (kind, names of atoms) of all side-chain torsions, residue by residue."""
    torsions = sorted(ptd.build_tree(structure, soft).torsions, key=lambda c: (c.residue, c.kind))
    names = structure.atoms.name
    return [(c.kind, " ".join(str(names[a]) for a in c.atoms)) for c in torsions]


@pytest.fixture(scope="module")
def side_chains():
    return ptd.build_peptide("".join(CHI_ATOMS), phi=-75, psi=60)


def test_side_chain_torsions_have_the_atoms_of_iupac(side_chains):
    assert chis_of(side_chains) == [
        (f"chi{i}", atoms) for chis in CHI_ATOMS.values() for i, atoms in enumerate(chis, 1)
    ]


def test_side_chains_of_unknown_residues_are_named_by_their_depth():
    """Lysine, threonine and others under another name have the same torsions: bonds are counted from CA.

    Of OG1 and CG2 the first measures chi1: the lower branch counts, not the name.
    """
    known = ptd.build_peptide("AKFVMT", phi=-75, psi=60)
    atoms = known.atoms
    other = np.where(np.isin(atoms.residue_name, ["LYS", "PHE", "VAL", "MET", "THR"]), "XAA", atoms.residue_name)
    renamed = Beads(replace(atoms, residue_name=other), known.positions, known.masses)
    assert chis_of(renamed) == chis_of(known) and len(chis_of(known)) == 4 + 2 + 1 + 3 + 1
    assert kinds(renamed, "methyl polar") == kinds(known, "methyl polar")


def test_an_amide_is_a_carbon_with_a_terminal_oxygen():
    """C-C(-O-C)-N-C turns: its oxygen goes on. C-C(=O)-C-C turns as well: no nitrogen."""
    x = chain("CCNC").positions
    aside = x[1] + [0.0, -0.05, 0.13]
    ether = molecule(
        "CCNCOC", [(0, 1), (1, 2), (1, 4), (2, 3), (4, 5)], [*x, aside, aside + [0.0, -0.14, 0.0]], [1.0] * 5
    )
    assert "amide" not in kinds(ether, "rotor omega") and len(kinds(ether, "rotor")) == 2
    ketone = molecule("CCCCO", [(0, 1), (1, 2), (1, 4), (2, 3)], [*x, aside], [1, 1, 2, 1])
    assert kinds(ketone, "rotor omega") == ["rotor"]


def test_a_rotor_between_residues_belongs_to_the_first():
    for residues, owner in (((0, 0, 1, 1), 0), ((1, 1, 0, 0), 0)):
        (rotor,) = ptd.build_tree(chain("CCCC", residues=residues), soft="rotor").torsions
        assert rotor.residue == owner and rotor.atoms == (0, 1, 2, 3)


@pytest.mark.parametrize("soft", ["phi psi omega methyl", "all"])
@pytest.mark.parametrize("root", [0, -1])
def test_torsions_are_named_along_the_chain_from_either_end(dipeptide, soft, root):
    """phi is C-N-CA-C and psi N-CA-C-N, wherever the tree begins."""
    tree = ptd.build_tree(dipeptide, soft, root=root % dipeptide.n_atoms)
    names = dipeptide.atoms.name
    for kind, bond in (("phi", ["N", "CA"]), ("psi", ["CA", "C"])):
        found = [[str(names[a]) for a in c.atoms[1:3]] for c in tree.torsions if c.kind == kind]
        assert found == [bond] * 2


def test_bonds_to_terminal_atoms_are_no_bonds_that_could_turn():
    tree = ptd.build_tree(ptd.build_peptide("AK"), soft="phi")
    ends = np.bincount(tree.atoms.bonds.ravel()) == 1
    assert tree.hard_bonds and not any(ends[list(bond.atoms)].any() for bond in tree.hard_bonds)

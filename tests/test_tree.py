"""The tree model on real structures: round trips, rigidity, sharing, special cases."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from random_trees import beads, random_state, random_tree
from real_structures import DATA, WATER_BOX, all_paths, load

from peptidyn.core.errors import ArgumentError, ModelError, SelectionError
from peptidyn.core.geometry import bond_angle, dihedral
from peptidyn.core.residues import is_amino_acid
from peptidyn.io.peptides import build_peptide
from peptidyn.io.readers import load_structure
from peptidyn.model.build import build_tree
from peptidyn.model.graph import bridges, components

EVERYTHING = "phi psi chi omega methyl polar angles"

paths = pytest.mark.parametrize("path", all_paths(), ids=lambda p: p.name)


@paths
@pytest.mark.parametrize("soft", ["phi psi chi", EVERYTHING, "none"])
def test_positions_to_state_and_back(path, soft):
    structure = load(path)
    tree = build_tree(structure, soft)
    assert np.abs(tree.positions(tree.reference) - structure.positions).max() < 1e-12
    state = tree.state(structure.positions)
    assert np.abs(tree.positions(state) - structure.positions).max() < 1e-10
    moved = random_state(tree, np.random.default_rng(3))
    x = tree.positions(moved)
    again = tree.state(x)
    assert np.abs(tree.positions(again) - x).max() < 1e-10
    assert np.abs(np.angle(np.exp(1j * (again.q - moved.q)))).max(initial=0.0) < 1e-9


@paths
def test_topological_order_and_counts(path):
    tree = build_tree(load(path))
    assert (tree.parent < np.arange(tree.n_links)).all()
    assert tree.n_links == tree.n_molecules + tree.n_coordinates
    assert tree.n_bodies == tree.n_links  # no bends: no massless links
    assert tree.link_mass.sum() == pytest.approx(tree.masses.sum(), rel=1e-12)
    sizes = np.bincount(tree.molecule[tree.atom_link])
    assert tree.n_dof == tree.n_coordinates + 3 * (sizes == 1).sum() + 6 * (sizes > 1).sum()
    assert sorted(c.dof for c in tree.coordinates) == sorted(tree.coordinate_dof.tolist())


RING_DIHEDRALS = {
    "PRO": [("N", "CA", "CB", "CG"), ("CA", "CB", "CG", "CD")],
    "PHE": [("CG", "CD1", "CE1", "CZ")],
    "TYR": [("CG", "CD1", "CE1", "CZ")],
    "HIS": [("CG", "ND1", "CE1", "NE2")],
    "TRP": [("CD1", "NE1", "CE2", "CZ2"), ("CG", "CD2", "CE2", "NE1")],
}


def _hard_geometry(structure):
    """Return index arrays of all bonds, all angles, all omegas, all ring dihedrals and all C-alpha centres."""
    atoms = structure.atoms
    near = atoms.neighbours
    disulfide = (atoms.element[atoms.bonds] == "S").all(axis=1)
    bonds = atoms.bonds[~disulfide]
    linked = {tuple(b) for b in atoms.bonds[disulfide].tolist()}
    angles = [
        (i, j, k)
        for j in range(atoms.n_atoms)
        for n, i in enumerate(near[j])
        for k in near[j][n + 1 :]
        if not ({tuple(sorted((i, j))), tuple(sorted((j, k)))} & linked)
    ]
    centres, omegas = [], []
    for r in range(atoms.n_residues):
        if not is_amino_acid(atoms, r):
            continue
        table = atoms.residue_atoms[r]
        if "CB" in table:
            centres.append((table["N"], table["C"], table["CB"], table["CA"]))
        for n in near[table["C"]]:
            if atoms.residue[n] != r and atoms.name[n] == "N":
                after = atoms.residue_atoms[atoms.residue[n]]
                if "CA" in after:
                    omegas.append((table["CA"], table["C"], n, after["CA"]))
    rings = [
        tuple(table[n] for n in names)
        for table, name in zip(atoms.residue_atoms, atoms.residue_name.tolist(), strict=True)
        for names in RING_DIHEDRALS.get(name, ())
        if all(n in table for n in names)
    ]
    return bonds, np.array(angles), *(np.array(quads, dtype=int).reshape(-1, 4) for quads in (omegas, rings, centres))


def _lengths(x, bonds):
    return np.linalg.norm(x[bonds[:, 0]] - x[bonds[:, 1]], axis=1)


def _cosines(x, angles):
    u, v = x[angles[:, 0]] - x[angles[:, 1]], x[angles[:, 2]] - x[angles[:, 1]]
    return (u * v).sum(axis=1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)


def _unit_dihedrals(x, quads):
    b1, b2, b3 = (x[quads[:, i + 1]] - x[quads[:, i]] for i in range(3))
    n1, n2 = np.cross(b1, b2), np.cross(b2, b3)
    length = np.linalg.norm(b2, axis=1)
    angle = np.arctan2(length * (b1 * n2).sum(axis=1), (n1 * n2).sum(axis=1))
    return np.exp(1j * angle)


def _volumes(x, centres):
    a, b, c = (x[centres[:, i]] - x[centres[:, 3]] for i in range(3))
    return np.einsum("ij,ij->i", np.cross(a, b), c)


@paths
def test_a_thousand_random_settings_keep_the_hard_geometry(path):
    structure = load(path)
    tree = build_tree(structure)
    bonds, angles, omegas, rings, centres = _hard_geometry(structure)

    def measure(x):
        dihedrals = _unit_dihedrals(x, omegas), _unit_dihedrals(x, rings)
        return _lengths(x, bonds), _cosines(x, angles), *dihedrals, _volumes(x, centres)

    expected = measure(structure.positions)
    rng = np.random.default_rng(11)
    for _ in range(1000):
        state = tree.reference.replace(torsions=rng.uniform(-np.pi, np.pi, tree.n_torsions))
        for before, after in zip(expected, measure(tree.positions(state)), strict=True):
            assert np.abs(after - before).max(initial=0.0) < 1e-9


@paths
def test_torsions_agree_with_mdtraj(path):
    import mdtraj

    structure = load(path)
    trajectory = structure.to_mdtraj()
    measured = {}
    for name in ("phi", "psi", "chi1", "chi2", "chi3", "chi4", "chi5"):
        indices, values = getattr(mdtraj, f"compute_{name}")(trajectory)
        measured.update({tuple(i): (name, v) for i, v in zip(indices.tolist(), values[0].tolist(), strict=True)})
    tree = build_tree(structure)
    for torsion, value in zip(tree.torsions, tree.reference.torsions, strict=True):
        if torsion.atoms not in measured:
            continue
        name, theirs = measured[torsion.atoms]
        assert torsion.kind == name
        assert abs(np.angle(np.exp(1j * (value - theirs)))) < 2e-4, torsion
    ours = {t.atoms: t.kind for t in tree.torsions}
    bonded = {tuple(b) for b in structure.atoms.bonds.tolist()}
    in_ring = {b.atoms for b in tree.hard_bonds if b.why == "in a ring"}
    for quad, (name, _) in measured.items():
        pairs = [tuple(sorted(quad[i : i + 2])) for i in range(3)]
        if not all(pair in bonded for pair in pairs):
            continue  # MDTraj joins residues across chain breaks
        proline = structure.atoms.residue_name[structure.atoms.residue[quad[1]]] == "PRO"
        ring = pairs[1] in in_ring or (proline and name != "psi")
        assert quad in ours or ring, (name, quad)


@paths
def test_velocities_are_derivatives_of_positions(path):
    tree = build_tree(load(path), EVERYTHING)
    rng = np.random.default_rng(5)
    state = random_state(tree, rng)
    v = rng.normal(size=tree.n_dof)
    h = 1e-5
    numeric = (tree.positions(_advance(tree, state, v, h)) - tree.positions(_advance(tree, state, v, -h))) / (2 * h)
    velocities = tree.velocities(state, v)
    assert np.abs(numeric - velocities).max() < 1e-6 * np.abs(velocities).max()


def _advance(tree, state, v, h):
    """Move along the flow of constant generalised velocities for a short time h (base by the exponential map)."""
    q = state.q + h * v[tree.coordinate_dof]
    position = state.base_position.copy()
    rotation = state.base_rotation.copy()
    for m in range(tree.n_molecules):
        start = tree.molecule_dof[m]
        size = tree.molecule_dof[m + 1] - start - (tree.molecule_link[m + 1] - tree.molecule_link[m] - 1)
        if size == 3:
            position[m] += h * v[start : start + 3]
        else:
            w = v[start : start + 3]
            angle = np.linalg.norm(w) * h
            turn = np.concatenate([[np.cos(angle / 2)], np.sin(angle / 2) * w / np.linalg.norm(w)])
            rotation[m] = _quaternion_product(turn, rotation[m])
            position[m] += h * v[start + 3 : start + 6]
    return state.replace(q=q, base_position=position, base_rotation=rotation)


def _quaternion_product(a, b):
    w = a[0] * b[0] - a[1:] @ b[1:]
    return np.concatenate([[w], a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])])


@pytest.mark.parametrize("kind", ["serial", "branched", "star", "forest"])
@pytest.mark.parametrize("base", ["free", "fixed"])
def test_projection_is_the_transpose_of_the_velocity_map(kind, base):
    tree = random_tree(kind, 40, seed=2, base=base)
    rng = np.random.default_rng(0)
    state = random_state(tree, rng)
    v, F = rng.normal(size=tree.n_dof), rng.normal(size=(tree.n_atoms, 3))
    power = (F * tree.velocities(state, v)).sum()
    assert power == pytest.approx(v @ tree.generalized_forces(state, F), rel=1e-12, abs=1e-12)


def test_momenta_and_centre_of_mass():
    tree = random_tree("branched", 30, seed=4)
    rng = np.random.default_rng(1)
    state = random_state(tree, rng)
    v = rng.normal(size=tree.n_dof)
    x, dx = tree.positions(state), tree.velocities(state, v)
    m = tree.masses
    assert tree.center_of_mass(state) == pytest.approx((m[:, None] * x).sum(0) / m.sum(), rel=1e-13)
    assert tree.linear_momentum(state, v) == pytest.approx((m[:, None] * dx).sum(0), rel=1e-13)
    assert tree.angular_momentum(state, v) == pytest.approx((m[:, None] * np.cross(x, dx)).sum(0), rel=1e-13)
    # the base components of the momentum are the totals about the base origin
    p = tree.momenta(state, v)
    about_base = (m[:, None] * np.cross(x - state.base_position[0], dx)).sum(0)
    assert p[:3] == pytest.approx(about_base, rel=1e-11)
    assert p[3:6] == pytest.approx(tree.linear_momentum(state, v), rel=1e-12)


def test_same_call_same_bits_and_inputs_unchanged():
    tree = build_tree(load(DATA / "all20.pdb"), EVERYTHING)
    rng = np.random.default_rng(0)
    state = random_state(tree, rng)
    v, F = rng.normal(size=tree.n_dof), rng.normal(size=(tree.n_atoms, 3))
    kept = state.q.copy(), v.copy(), F.copy()
    for call in (
        lambda: tree.positions(state),
        lambda: tree.velocities(state, v),
        lambda: tree.generalized_forces(state, F),
        lambda: tree.fit(tree.positions(state)).state.q,
    ):
        assert np.array_equal(call(), call())
    assert np.array_equal(kept[0], state.q) and np.array_equal(kept[1], v) and np.array_equal(kept[2], F)


def test_trees_and_states_stay_frozen_through_pickle():
    tree = build_tree(build_peptide("AG"))
    state = pickle.loads(pickle.dumps(tree.reference))
    assert np.array_equal(state.tree.positions(state), tree.positions(tree.reference))
    for array in (state.q, state.base_rotation, state.tree.parent, state.tree.link_arrays[1]):
        assert not array.flags.writeable


def test_arrays_of_a_tree_are_alike_in_all_processes():
    """Compiled code for arrays that can be written is another one, and takes half a minute to make."""
    tree = build_tree(build_peptide("AG"), soft="phi psi chi angles")
    asked = ("torsion_index", "phase_index", "bend_index", "stretch_index", "measure", "coordinate_atoms",
             "coordinate_dof", "virtual_sites")  # fmt: skip
    early = pickle.loads(pickle.dumps(tree))
    for name in asked:
        getattr(tree, name), getattr(early, name)
    late = pickle.loads(pickle.dumps(tree))
    moved = tree.with_geometry(tree.positions(tree.reference))
    for other in (early, late, moved):
        for name in asked:
            assert not getattr(tree, name).flags.writeable and not getattr(other, name).flags.writeable
        for one, array in zip(tree.unit_members, other.unit_members, strict=True):
            assert one.flags.writeable == array.flags.writeable


def test_states_and_models_are_frozen():
    tree = build_tree(load(DATA / "ala3.pdb"))
    with pytest.raises(ValueError):
        tree.reference.q[0] = 1.0
    with pytest.raises(ValueError):
        tree.axis[0] = 1.0
    before = tree.reference.torsions.copy()
    tree.reference.torsions[0] = 99.0  # a copy
    assert np.array_equal(tree.reference.torsions, before)


# ---------------------------------------------------------------------------- what is soft


TEXTBOOK = {
    # residue: phi, psi, chi, methyl, polar (NH3+, NH2, OH, SH) of a residue inside a chain at pH 7
    "ALA": (1, 1, 0, 1, 0), "ARG": (1, 1, 5, 0, 2), "ASN": (1, 1, 2, 0, 1), "ASP": (1, 1, 2, 0, 0),
    "CYS": (1, 1, 1, 0, 1), "GLN": (1, 1, 3, 0, 1), "GLU": (1, 1, 3, 0, 0), "GLY": (1, 1, 0, 0, 0),
    "HIS": (1, 1, 2, 0, 0), "ILE": (1, 1, 2, 2, 0), "LEU": (1, 1, 2, 2, 0), "LYS": (1, 1, 4, 0, 1),
    "MET": (1, 1, 3, 1, 0), "PHE": (1, 1, 2, 0, 0), "PRO": (0, 1, 0, 0, 0), "SER": (1, 1, 1, 0, 1),
    "THR": (1, 1, 1, 1, 1), "TRP": (1, 1, 2, 0, 0), "TYR": (1, 1, 2, 0, 1), "VAL": (1, 1, 1, 2, 0),
}  # fmt: skip


def test_textbook_counts_of_all_twenty():
    structure = load(DATA / "all20.pdb")
    tree = build_tree(structure, "phi psi chi methyl polar")
    counts = {name: [0] * 5 for name in TEXTBOOK}
    columns = {"phi": 0, "psi": 1, "methyl": 3, "polar": 4}
    for torsion in tree.torsions:
        if torsion.residue_name in counts:
            counts[torsion.residue_name][columns.get(torsion.kind, 2)] += 1
    assert {name: tuple(row) for name, row in counts.items()} == TEXTBOOK


def test_default_soft_set_leaves_out_hydrogen_rotors_and_omega():
    tree = build_tree(load(DATA / "all20.pdb"))
    expected = sum(phi + psi + chi for phi, psi, chi, _, _ in TEXTBOOK.values())
    assert tree.n_torsions == expected
    hard = {(b.kind, b.why) for b in tree.hard_bonds}
    assert ("omega", "not asked for") in hard and ("phi", "in a ring") in hard


def test_uncapped_ends():
    tree = build_tree(build_peptide("AGA", caps=False), "phi psi polar")
    kinds = [(t.kind, t.residue) for t in tree.torsions]
    assert ("polar", 0) in kinds and ("phi", 0) not in kinds  # NH3+
    assert ("carboxyl", 2) in kinds and ("psi", 2) not in kinds


def test_bends_have_their_own_coordinates():
    structure = load(DATA / "ala3.pdb")
    tree = build_tree(structure, "phi psi angles")
    assert tree.n_bends == 3 * 3
    state = tree.reference
    for bend, value in zip(tree.bends, state.bends, strict=True):
        assert value == pytest.approx(bond_angle(*structure.positions[list(bend.atoms)]), abs=1e-12)
    changed = state.replace(bends=state.bends + 0.05, torsions=state.torsions + 0.3)
    x = tree.positions(changed)
    for bend, value in zip(tree.bends, changed.bends, strict=True):
        assert bond_angle(*x[list(bend.atoms)]) == pytest.approx(value, abs=1e-12)
    for torsion, value in zip(tree.torsions, changed.torsions, strict=True):
        assert np.exp(1j * dihedral(*x[list(torsion.atoms)])) == pytest.approx(np.exp(1j * value), abs=1e-12)
    one = build_tree(structure, "phi psi N-CA-C")
    assert one.n_bends == 3 and {b.kind for b in one.bends} == {"N-CA-C"}


def test_proline_bend_in_its_ring_stays_hard():
    tree = build_tree(build_peptide("APA"), "phi psi angles")
    assert [(b.kind, b.why) for b in tree.hard_bonds if b.kind == "C-N-CA"] == [("C-N-CA", "in a ring")]


def test_disulfides_are_cut_and_reported():
    structure = load(DATA / "all20.pdb")
    assert len(build_tree(structure).cut_bonds) == 0
    for path in all_paths():
        if path.stem == "bpti":
            tree = build_tree(load(path))
            assert len(tree.cut_bonds) == 3
            assert (tree.atoms.name[tree.cut_bonds] == "SG").all()
            assert tree.n_links == tree.n_molecules + tree.n_coordinates


def test_water_box_has_one_body_per_water():
    structure = load_structure(WATER_BOX)
    tree = build_tree(structure)
    assert tree.n_bodies == tree.n_molecules == structure.n_residues
    assert tree.n_dof == 6 * structure.n_residues
    assert {tree.unit(0).kind, tree.unit(tree.n_links - 1).kind} == {"water"}


def test_rigid_selection_becomes_one_body():
    structure = load(DATA / "ala10-helix.pdb")
    tree = build_tree(structure, rigid="resid 3 to 6")
    inside = structure.select("resid 3 to 6")
    assert len(np.unique(tree.atom_link[inside])) == 1
    free = build_tree(structure)
    assert free.n_torsions - tree.n_torsions == 8  # four phi and four psi, minus those at the ends that stay
    assert ("phi", "inside a rigid selection") in {(b.kind, b.why) for b in tree.hard_bonds}
    both = build_tree(structure, rigid=["resid 1 to 2", "resid 7 to 8"])
    assert len(np.unique(both.atom_link[structure.select("resid 1 to 2")])) == 1
    assert len(np.unique(both.atom_link[structure.select("resid 7 to 8")])) == 1
    indices = build_tree(structure, rigid=inside)
    assert indices.n_torsions == tree.n_torsions


def test_rigid_selection_may_join_molecules():
    structure = load(all_paths()[0])
    water = load_structure(WATER_BOX)
    tree = build_tree(water, rigid="resid 0 to 3")
    assert tree.n_molecules == water.n_residues - 3
    assert structure is not None


@pytest.mark.parametrize("site", [0, 6], ids=["first", "last"])
@pytest.mark.parametrize("bonded", [False, True])
def test_a_virtual_site_stands_anywhere(site, bonded):
    """The tree grows from an atom with mass, by bonds between such: what is soft without the site is soft with it."""
    parents = [-1, 0, 1, 2, 3, 3]
    bare = build_tree(beads(parents, np.random.default_rng(1)), "all")
    real = [i for i in range(7) if i != site]
    numbers = [-1 if i == site else parents[real.index(i)] for i in range(7)]
    numbers = [up if up < 0 else real[up] for up in numbers]
    chain, at = beads(numbers, np.random.default_rng(1)), real[2]
    if bonded:
        bonds = np.array([*chain.atoms.bonds.tolist(), sorted((at, site))])
        chain = replace(chain, atoms=replace(chain.atoms, bonds=bonds, bond_order=np.ones(len(bonds))))
    masses = np.where(np.arange(7) == site, 0.0, chain.masses)
    tree = build_tree(replace(chain, masses=masses, virtual_sites={site: (at,)}), "all")
    assert tree.n_molecules == 1 and tree.n_dof == 3 * 6
    atoms = sorted(tuple(real.index(a) for a in c.atoms) for c in tree.coordinates)
    assert atoms == sorted(c.atoms for c in bare.coordinates)
    with pytest.raises(ModelError, match="virtual sites have none"):
        build_tree(replace(chain, virtual_sites={site: (at,)}), "all")


def test_rigid_selections_stay_apart():
    """Two of them, neither of which holds the first atom, are two bodies."""
    structure = build_peptide("A" * 8)
    tree = build_tree(structure, rigid=["resid 2 to 3", "resid 5 to 6"])
    one, other = (tree.atom_link[structure.select(f"{s} and name CA")] for s in ("resid 2 to 3", "resid 5 to 6"))
    assert len(set(one)) == len(set(other)) == 1 and len({tree.atom_link[0], one[0], other[0]}) == 3


def test_bridges_are_the_edges_whose_loss_divides_a_graph():
    """Edges listed twice are none: a bond between two atoms of a rigid selection. Paths by powers of the matrix."""

    def pieces(n, edges):
        near = np.eye(n)
        near[edges[:, 0], edges[:, 1]] = near[edges[:, 1], edges[:, 0]] = 1.0
        return np.unique((np.linalg.matrix_power(near, n) > 0).argmax(axis=1), return_inverse=True)[1]

    assert bridges(3, np.array([[0, 1], [1, 0], [1, 2]])).tolist() == [False, False, True]
    rng = np.random.default_rng(0)
    for _ in range(40):
        n = int(rng.integers(2, 10))
        edges = np.array([rng.choice(n, 2, replace=False) for _ in range(n)])
        assert np.array_equal(components(n, edges), pieces(n, edges))
        without = [pieces(n, np.delete(edges, e, axis=0)).max() for e in range(n)]
        assert np.array_equal(bridges(n, edges), without > pieces(n, edges).max())


def test_peptide_planes_are_named():
    tree = build_tree(load(DATA / "ala3.pdb"))
    planes = [u for u in tree.units if u.kind == "peptide plane"]
    assert len(planes) == 4
    inner = planes[1]
    names = sorted(tree.atoms.name[np.concatenate([inner.atoms, inner.shared])].tolist())
    assert names == ["C", "CA", "CA", "H", "N", "O"]
    assert "ALA" in inner.name and "peptide plane" in inner.name


@paths
def test_every_inertia_is_invertible(path):
    tree = build_tree(load(path), "phi psi chi methyl polar")
    for unit in tree.units:
        if len(unit.atoms) + len(unit.shared) > 1:
            moments = np.linalg.eigvalsh(unit.inertia)
            assert moments[0] > 1e-4 * moments[-1], unit.name


def test_new_geometry_and_masses_keep_the_topology():
    structure = load(DATA / "all20.pdb")
    tree = build_tree(structure, EVERYTHING)
    rng = np.random.default_rng(7)
    x = structure.positions + rng.normal(scale=1e-3, size=structure.positions.shape)
    moved = tree.with_geometry(x)
    rebuilt = build_tree(structure.with_positions(x), EVERYTHING)
    for name in ("parent", "axis", "origin", "local", "q_reference", "link_inertia"):
        assert np.array_equal(getattr(moved, name), getattr(rebuilt, name)), name
    heavy = structure.masses * rng.uniform(0.5, 2.0, structure.n_atoms)
    expected = build_tree(structure.with_masses(heavy), EVERYTHING)
    assert np.allclose(tree.with_masses(heavy).link_inertia, expected.link_inertia, atol=1e-12)
    assert tree.fingerprint != moved.fingerprint
    assert tree.fingerprint == build_tree(structure, EVERYTHING).fingerprint
    prints = {tree.with_joint_inertia(np.full(tree.n_coordinates, a)).fingerprint for a in (0.0, 0.0, 1e-3, 1e-3, 2e-3)}
    assert len(prints) == 3 and tree.fingerprint in prints


def test_the_jacobian_is_that_of_angles_and_bonds():
    tree = build_tree(load(DATA / "ala1.pdb"), "all")
    q = np.stack([tree.q_reference, tree.q_reference + 0.01])
    angles, bonds = q[:, tree.bend_index], q[:, tree.stretch_index]
    expected = np.log(np.prod(np.sin(angles), axis=1)) + 2 * np.log(np.prod(bonds, axis=1))
    assert tree.n_bends and tree.n_stretches
    assert tree.log_jacobian(q) == pytest.approx(expected, rel=1e-12)


# ---------------------------------------------------------------------------- bad input


def test_bad_soft_word():
    with pytest.raises(ArgumentError, match=r"unknown soft coordinate 'phy'; did you mean 'phi'\?"):
        build_tree(load(DATA / "ala1.pdb"), "phy psi")


def test_selection_that_matches_nothing():
    with pytest.raises(SelectionError, match="resname XYZ"):
        build_tree(load(DATA / "ala1.pdb"), rigid="resname XYZ")


def test_bad_base_and_root():
    with pytest.raises(ArgumentError, match="'free' or 'fixed'"):
        build_tree(load(DATA / "ala1.pdb"), base="floating")
    with pytest.raises(ArgumentError, match="root is 99"):
        build_tree(load(DATA / "ala1.pdb"), root=99)


def test_zero_mass_names_the_atom():
    structure = load(DATA / "ala1.pdb")
    masses = structure.masses.copy()
    masses[3] = 0.0
    label = structure.atoms.label(3)
    with pytest.raises(ModelError, match=label):
        build_tree(structure.with_masses(masses))


def test_coinciding_bonded_atoms_are_named():
    structure = load(DATA / "ala1.pdb")
    x = structure.positions.copy()
    i, j = structure.atoms.bonds[4].tolist()
    x[j] = x[i]
    with pytest.raises(ModelError, match="coincide") as caught:
        build_tree(structure.with_positions(x))
    assert structure.atoms.label(i) in str(caught.value) and structure.atoms.label(j) in str(caught.value)


def test_collinear_backbone_is_named():
    structure = load(DATA / "ala3.pdb")
    table = structure.atoms.residue_atoms[2]
    x = structure.positions.copy()
    x[table["C"]] = x[table["CA"]] + (x[table["CA"]] - x[table["N"]])
    with pytest.raises(ModelError, match=r"(?s)residue ALA 3, atom CA.*one line"):
        build_tree(structure.with_positions(x))


def test_deformed_positions_name_the_unit():
    structure = load(DATA / "ala3.pdb")
    tree = build_tree(structure)
    x = structure.positions.copy()
    oxygen = structure.atoms.residue_atoms[2]["O"]
    x[oxygen] += 0.05
    with pytest.raises(ModelError, match="peptide plane ALA 3 - ALA 4"):
        tree.state(x)
    fit = tree.fit(x)
    assert fit.max_misfit > 0.02 and tree.unit(fit.worst_link).kind == "peptide plane"


def test_one_coordinate_that_is_no_number_names_the_atom():
    tree = build_tree(build_peptide("A"))
    x = tree.positions(tree.reference)
    x[8, 1] = np.nan
    with pytest.raises(ArgumentError, match=f"not finite numbers at {re.escape(tree.atoms.labels([8]))}$"):
        tree.fit(x)


def test_states_check_their_parts():
    tree = build_tree(load(DATA / "ala3.pdb"))
    with pytest.raises(ArgumentError, match=r"torsions has shape \(2,\), expected \(6,\)"):
        tree.reference.replace(torsions=[0.0, 0.0])
    with pytest.raises(ArgumentError, match="not finite"):
        tree.reference.replace(torsions=[np.nan] * 6)
    for value in (np.nan, np.inf):  # one of many
        with pytest.raises(ArgumentError, match="not finite"):
            tree.reference.replace(torsions=[0.0] * 5 + [value])
    with pytest.raises(ArgumentError, match="unit quaternion"):
        tree.reference.replace(base_rotation=[[2.0, 0, 0, 0]])
    with pytest.raises(ArgumentError, match=r"velocities has shape \(3,\), expected \(12,\)"):
        tree.velocities(tree.reference, np.zeros(3))


def test_pdb_and_mmcif_of_one_entry_give_the_same_tree():
    pairs = {}
    for path in all_paths():
        pairs.setdefault(path.stem, []).append(path)
    for paths_of_entry in pairs.values():
        if {p.suffix for p in paths_of_entry} != {".pdb", ".cif"}:
            continue
        first, second = (build_tree(load_structure(p)) for p in paths_of_entry)
        assert np.array_equal(first.parent, second.parent) and np.array_equal(first.atom_link, second.atom_link)
        assert [str(c) for c in first.coordinates] == [str(c) for c in second.coordinates]
        assert np.abs(first.q_reference - second.q_reference).max() < 1e-9
        assert first.masses == pytest.approx(second.masses)


def test_a_loop_between_two_parts_of_a_rigid_selection_stays_soft():
    structure = build_peptide("A" * 12)
    tree = build_tree(structure, rigid="resid 1 to 4 or resid 8 to 11")
    anchors = structure.select("resid 1 to 4 or resid 8 to 11")
    assert len(set(tree.atom_link[anchors])) == 1
    assert {c.residue for c in tree.torsions if c.kind in ("phi", "psi")} >= {5, 6, 7}
    ((i, j),) = tree.cut_bonds.tolist()
    assert {structure.atoms.name[i], structure.atoms.name[j]} == {"C", "N"}
    state = tree.reference.replace(torsions=tree.reference.torsions + 0.1)
    moved = np.linalg.norm(tree.positions(state) - structure.positions, axis=1)
    assert moved[structure.select("resid 6")].min() > 1e-3
    short = build_tree(structure, rigid="name CA and resid 1 to 4")  # three bonds from one atom to the next
    assert len(set(short.atom_link[structure.select("resid 2 to 3 and backbone")])) == 1 and not len(short.cut_bonds)

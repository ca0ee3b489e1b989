"""What is measured in frames, on a helix and a strand that were built, and by hand."""

from __future__ import annotations

import mdtraj
import numpy as np
import pytest

import peptidyn as ptd
from peptidyn.analysis.conformations import Conformations, nearest_well

HELIX, STRAND = (ptd.build_peptide("A" * 8, phi=phi, psi=psi) for phi, psi in ((-57, -47), (-139, 135)))


@pytest.fixture(scope="module")
def both():
    """Two frames: the helix, and a strand; distances are taken from the helix."""
    x = np.stack([HELIX.positions, STRAND.positions])
    return Conformations(mdtraj.Trajectory(x, HELIX.to_mdtraj().topology), HELIX.positions)


def test_helix_and_strand(both):
    assert both.averages["helix content"].values.tolist() == [1.0, 0.0]
    assert len(both.residues) == 8 and both.name(both.residues[0]) == "ALA 2"
    assert set(both.secondary[0, 2:-2]) == {"H"} and "H" not in both.secondary[1]
    assert both.basins.mean.tolist() == [[0.5, 0.5, 0.0]] * 8


def test_rmsd_by_the_method_of_kabsch(both):
    rmsd = both.averages["RMSD"].values
    assert rmsd[0] == pytest.approx(0, abs=1e-3)
    a, b = HELIX.positions[both.backbone], STRAND.positions[both.backbone]
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    u, s, vt = np.linalg.svd(a.T @ b)
    s[-1] *= np.sign(np.linalg.det(u @ vt))
    assert rmsd[1] == pytest.approx(np.sqrt(((a**2).sum() + (b**2).sum() - 2 * s.sum()) / len(a)), rel=1e-4)


def test_hydrogen_bonds_of_a_helix(both):
    pairs, present = both.bonds
    atom = both.frames.topology.atom
    seen = {tuple(atom(a).residue.index for a in pairs[i]) for i in np.flatnonzero(present[0])}
    assert {(i, i - 4) for i in range(4, 10)} <= seen
    assert not present[1].any() and present[0].sum() == both.averages["hydrogen bonds"].values[0]


def test_wells():
    assert nearest_well(np.array([50, 179, -170, -90]), "chi1").tolist() == [0, 1, 1, 2]
    assert nearest_well(np.array([-70, 60, 150]), "phi").tolist() == [0, 1, 1]


def test_molecules_without_a_backbone():
    top = mdtraj.Topology()
    residue = top.add_residue("BUT", top.add_chain())
    for i in range(4):
        top.add_atom(f"C{i}", mdtraj.element.carbon, residue)
    x = np.random.default_rng(0).normal(size=(3, 4, 3))
    found = Conformations(mdtraj.Trajectory(x, top), x[0])
    assert found.residues == [] and found.basins is None and found.secondary.shape == (3, 0)
    assert found.backbone.tolist() == [0, 1, 2, 3] and found.bonds[1].shape == (3, 0)
    assert list(found.averages) == ["radius of gyration", "RMSD"]


# ---------------------------------------------------------------------------- what is left out


def pieces(*residues):
    """A topology of residues, given by name, number and their atoms; every residue is a chain of its own."""
    top = mdtraj.Topology()
    for name, number, atoms in residues:
        residue = top.add_residue(name, top.add_chain(), resSeq=number)
        for atom in atoms.split():
            element = "Ca" if (name, atom) == ("CA", "CA") else atom[0]
            top.add_atom(atom, mdtraj.element.get_by_symbol(element), residue)
    return top


def test_only_whole_backbones_count():
    """Calcium, a ligand with an N, and an alanine without its O are no residues with a backbone."""
    top = pieces(
        ("CA", 1, "CA"),
        ("LIG", 2, "N C1 H1"),
        ("ALA", 7, "N CA C O CB"),
        ("ALA", 8, "N CA C CB"),
        ("GLY", 9, "O C CA N"),
    )
    found = Conformations(mdtraj.Trajectory(np.zeros((1, top.n_atoms, 3)), top), np.zeros((top.n_atoms, 3)))
    assert found.residues == [2, 4] and [found.name(r) for r in found.residues] == ["ALA 7", "GLY 9"]
    names = [(str(top.atom(i).residue), top.atom(i).name) for i in found.backbone]
    assert names == [("ALA7", "N"), ("ALA7", "CA"), ("ALA7", "C"), ("GLY9", "C"), ("GLY9", "CA"), ("GLY9", "N")]


def test_heavy_atoms_stand_in_for_a_backbone_and_all_atoms_for_them():
    for atoms, chosen in (("C1 H1 O1 H2", [0, 2]), ("H1 H2", [0, 1])):
        top = pieces(("LIG", 1, atoms))
        found = Conformations(mdtraj.Trajectory(np.zeros((1, top.n_atoms, 3)), top), np.zeros((top.n_atoms, 3)))
        assert found.backbone.tolist() == chosen


def test_side_chains_do_not_count_in_the_rmsd():
    x = np.stack([HELIX.positions, HELIX.positions])
    top = HELIX.to_mdtraj().topology
    others = [a.index for a in top.atoms if a.name not in ("N", "CA", "C") or not a.residue.is_protein]
    x[1, others] += np.random.default_rng(1).normal(size=(len(others), 3))
    found = Conformations(mdtraj.Trajectory(x, top), HELIX.positions).rmsd
    assert found.values == pytest.approx([0.0, 0.0], abs=1e-3) and (found.name, found.unit) == ("RMSD", "nm")


def test_letters_are_those_of_the_residues_with_a_backbone(both):
    """The caps before and behind have letters of their own in MDTraj's table."""
    whole = mdtraj.compute_dssp(both.frames, simplified=True)
    assert whole.shape[1] == 10 and both.secondary.tolist() == whole[:, 1:9].tolist()


def with_box(frames, length):
    boxed = frames.slice(range(len(frames)))
    boxed.unitcell_lengths = np.full((len(frames), 3), length)
    boxed.unitcell_angles = np.full((len(frames), 3), 90.0)
    return boxed


def test_a_box_changes_nothing(both):
    """Molecules are whole: in a box smaller than the molecule the nearest images would be others."""
    boxed = Conformations(with_box(both.frames, 0.9), both.reference)
    assert np.array_equal(boxed.bonds[0], both.bonds[0]) and np.array_equal(boxed.bonds[1], both.bonds[1])
    for name, one in both.averages.items():
        assert boxed.averages[name].values == pytest.approx(one.values, abs=1e-6), name
    assert np.array_equal(boxed.basins.values, both.basins.values)


@pytest.mark.parametrize("hydrogens", ["H1 H2", "H1"])
def test_bonds_of_one_donor_count_once_and_water_does_not(hydrogens):
    """N-H...O: both hydrogens of an ammonia point to one O. A molecule of water beside it binds nothing."""
    top = mdtraj.Topology()
    n = hydrogens.count("H")
    ligand = top.add_residue("LIG", top.add_chain())
    donor = top.add_atom("N1", mdtraj.element.nitrogen, ligand)
    for name in hydrogens.split():
        top.add_bond(donor, top.add_atom(name, mdtraj.element.hydrogen, ligand))
    other = top.add_residue("ACC", top.add_chain())
    carbon, oxygen = (
        top.add_atom(name, element, other)
        for name, element in (("C1", mdtraj.element.carbon), ("O1", mdtraj.element.oxygen))
    )
    top.add_bond(carbon, oxygen)
    water = top.add_residue("HOH", top.add_chain())
    o, h = (
        top.add_atom(name, element, water)
        for name, element in (("O", mdtraj.element.oxygen), ("H1", mdtraj.element.hydrogen))
    )
    top.add_bond(o, h)
    near = [
        [0, 0, 0],
        *[[0.098, 0.02 * s, 0] for s in (1, -1)[:n]],
        [0.40, 0, 0],
        [0.28, 0, 0],
        [-0.28, 0, 0],
        [-0.18, 0, 0],
    ]
    far = [*near[: 1 + n], [9.40, 0, 0], [9.28, 0, 0], *near[-2:]]
    found = Conformations(mdtraj.Trajectory(np.array([near, far, near]), top), np.array(near))
    pairs, present = found.bonds
    assert pairs.tolist() == [[0, 2 + n]] and present.tolist() == [[True], [False], [True]]


def test_averages_have_their_order_and_names(both):
    assert list(both.averages) == [
        "helix content", "hydrogen bonds", "radius of gyration", "end-to-end distance", "RMSD"
    ]  # fmt: skip
    assert all(one.name == name for name, one in both.averages.items())


def test_nearest_wells_lie_across_the_seam():
    assert nearest_well(np.array([175.0, -175.0, 0.0, 60.0]), "omega").tolist() == [0, 0, 1, 1]
    assert nearest_well(np.array([-160.0, 100.0, 40.0, 0.0, -140.0]), "psi").tolist() == [1, 1, 0, 0, 1]

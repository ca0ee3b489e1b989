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

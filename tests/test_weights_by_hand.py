"""Fixman weights of a few frames by hand, and what correlated frames are worth."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from correlated_samples import autoregressive
from random_trees import beads, random_state

import peptidyn as ptd
from peptidyn.core.errors import TrajectoryError
from peptidyn.metric.fixman_weights import FixmanWeights
from peptidyn.model.trajectory_states import open_trajectory


def weights_of(energy, kT=2.0, misfit=None):
    n = len(energy)
    energy, index = np.asarray(energy, dtype=float), np.arange(n)
    return FixmanWeights(
        index=index, time=index * 1.0, log_det=2.0 * energy / kT, energy=energy,
        misfit=np.zeros(n) if misfit is None else misfit, worst_unit="unit", torsions=np.zeros((n, 1)),
        temperature=kT / 0.00831446, tolerance=5e-3, kT=kT,
    )  # fmt: skip


def test_weights_are_boltzmann_factors_of_minus_u_f():
    """Energies 0 and 2 ln 3 with kT = 2: weights 3 to 1, and inverse weights 1 to 3."""
    found = weights_of([0.0, 2.0 * np.log(3.0)])
    assert found.weights == pytest.approx([0.75, 0.25]) and found.inverse_weights == pytest.approx([0.25, 0.75])
    assert found.effective_sample_size == pytest.approx(1.0 / (0.75**2 + 0.25**2))
    assert found.average([1.0, 5.0])[0] == pytest.approx(2.0)
    assert found.average([1.0, 5.0], inverse=True)[0] == pytest.approx(4.0)
    density, _, edges = found.histogram([0.5, 1.5], bins=2, limits=(0.0, 2.0))
    assert density == pytest.approx([0.75, 0.25]) and edges == pytest.approx([0.0, 1.0, 2.0])
    density, _, _ = found.histogram([0.5, 1.5], bins=2, limits=(0.0, 2.0), inverse=True)
    assert density == pytest.approx([0.25, 0.75])


def test_correlated_frames_count_less():
    """AR(1) with rho = 0.9 has g = 19; the weights are nearly equal, so that 8000 frames are worth 421."""
    n, rho = 8000, 0.9
    found = weights_of(1e-3 * autoregressive(n, rho, np.random.default_rng(5)))
    assert found.effective_sample_size == pytest.approx(n, rel=1e-3)
    assert found.independent_samples == pytest.approx(n * (1 - rho) / (1 + rho), rel=0.25)


def test_deformed_frames_are_those_beyond_the_tolerance():
    assert weights_of([0.0, 0.0], misfit=np.array([4e-3, 6e-3])).deformed.tolist() == [False, True]


def test_energies_of_frames_are_those_of_the_dense_matrix():
    """U_F = (kT / 2) ln det M of two frames of a chain of four beads."""
    tree = ptd.bead_chain(4, 0.15, 1.9, [12.0, 3.0, 7.0, 5.0], torsion=1.0)
    states = [tree.reference.replace(torsions=[f]) for f in (0.3, 2.0)]
    found = ptd.fixman_weights(tree, np.array([tree.positions(s) for s in states]), 300)
    log_det = [np.linalg.slogdet(ptd.mass_matrix(tree, s))[1] for s in states]
    assert found.log_det == pytest.approx(log_det, abs=1e-6)
    assert found.energy == pytest.approx(0.5 * found.kT * np.array(log_det), abs=1e-6)
    assert found.kT == pytest.approx(2.494339, rel=1e-5) and found.torsions[:, 0] == pytest.approx([0.3, 2.0], abs=1e-6)


def test_the_worst_unit_is_that_of_all_frames():
    """Frames are read by the hundred: the last unit is deformed in the first hundred, and the first, less, later."""
    tree = ptd.build_tree(ptd.build_peptide("AA"), "phi psi")
    frames = np.tile(tree.positions(tree.reference), (102, 1, 1))
    beta = [int(np.flatnonzero((tree.atoms.residue == r) & (tree.atoms.name == "CB"))[0]) for r in (1, 2)]
    frames[3, beta[1]] += 0.03
    frames[101, beta[0]] += 0.02
    first, last = (tree.unit(int(tree.atom_link[a])).name for a in beta)
    assert first != last
    for order, worst in ((slice(None), last), (slice(None, None, -1), last)):
        assert ptd.fixman_weights(tree, frames[order], 300).worst_unit == worst
    assert ptd.fixman_weights(tree, frames[50:], 300).worst_unit == first


def test_the_summary_says_range_sizes_and_deformed_frames():
    """Energies 2 ln 3 and 2 with kT = 2: a range of ln 3 kT around the mean ln 3 + 1."""
    found = weights_of([2.0, 2.0 + 2.0 * np.log(3.0)], misfit=np.array([1e-3, 2e-3])).summary()
    assert "2 frames" in found and "U_F 3.099 kJ/mol" in found
    assert "deviation 0.549 kT, range 1.099 kT" in found and "sample size 1.6 of 2 frames; 1.6 with" in found
    assert "rigid within 0.005 nm (worst 2.0e-03 nm)" in found
    deformed = weights_of([0.0, 0.0, 0.0], misfit=np.array([6e-3, 9e-3, 1e-3])).summary()
    assert (
        "in 2 frames a rigid unit is deformed by more than 0.005 nm, most in frame 1: the unit by 9.00e-03" in deformed
    )


@pytest.fixture(scope="module")
def bent():
    """A chain of five atoms with two torsions and three angles, and 130 frames, every tenth of them deformed."""
    tree = ptd.build_tree(beads([-1, 0, 1, 2, 3], np.random.default_rng(0)), "rotor bends")
    rng = np.random.default_rng(1)
    frames = np.array([tree.positions(random_state(tree, rng)) for _ in range(130)])
    frames[::10, 4] += 0.01 * (frames[::10, 4] - frames[::10, 3])  # a bond of 0.15 nm, longer by a hundredth
    return tree, frames


def test_arrays_are_read_in_pieces_without_losing_their_place(bent):
    """Numbers and times of frames beyond the first hundred; torsions, not angles; the misfit of units, not the RMSD."""
    tree, frames = bent
    found = ptd.fixman_weights(tree, frames, 300)
    fits = [tree.fit(x) for x in frames]
    assert found.index.tolist() == list(range(130)) == found.time.tolist() and len(found) == 130
    assert found.torsions == pytest.approx(np.array([fit.state.torsions for fit in fits]), abs=1e-12)
    assert tree.n_torsions == 2 and tree.n_bends == 3 and found.torsions.shape == (130, 2)
    assert found.misfit == pytest.approx([fit.max_misfit for fit in fits], abs=1e-15)
    assert np.flatnonzero(found.misfit > 1e-4).tolist() == list(range(0, 130, 10))
    timed = ptd.fixman_weights(tree, SimpleNamespace(xyz=frames, time=0.5 * np.arange(130) + 7.0), 300)
    assert timed.time.tolist() == (0.5 * np.arange(130) + 7.0).tolist() and timed.index.tolist() == list(range(130))
    assert np.array_equal(timed.energy, found.energy)
    assert repr(found) == f"<FixmanWeights: 130 frames (effective {found.effective_sample_size:.1f}), 300 K>"


def test_the_tolerance_is_the_callers(bent):
    tree, frames = bent
    for tolerance, deformed in ((5e-3, 0), (1e-4, 13)):
        found = ptd.fixman_weights(tree, frames, 300, tolerance=tolerance)
        assert found.tolerance == tolerance and found.deformed.sum() == deformed
    assert ptd.fixman_weights(tree, frames, 300).tolerance == 5e-3


def test_no_frames_have_no_weights(bent):
    tree, frames = bent
    with pytest.raises(TrajectoryError, match="the trajectory holds no frames"):
        ptd.fixman_weights(tree, frames[:0], 300)
    with pytest.raises(TrajectoryError, match=r"has shape \(130, 4, 3\), expected \(n_frames, 5, 3\)"):
        ptd.fixman_weights(tree, frames[:, 1:], 300)


def test_files_are_read_with_their_topology_stride_and_times(tmp_path):
    """A file, one whose atoms are those of another file, and a reader that takes every second frame."""
    structure = ptd.build_peptide("A")
    tree = ptd.build_tree(structure)
    rng, path = np.random.default_rng(0), tmp_path / "t.xtc"
    frames = structure.to_mdtraj()
    frames.xyz = np.array([tree.positions(random_state(tree, rng)) for _ in range(5)])
    frames.time = 2.0 * np.arange(5) + 3.0
    frames.save(str(path))
    found = ptd.fixman_weights(tree, path, 300)
    assert found.time.tolist() == [3.0, 5.0, 7.0, 9.0, 11.0] and found.index.tolist() == [0, 1, 2, 3, 4]
    few = ptd.fixman_weights(tree, open_trajectory(tree, path, chunk=2, stride=2), 300)
    assert few.index.tolist() == [0, 2, 4] and few.time.tolist() == [3.0, 7.0, 11.0]
    assert few.energy == pytest.approx(found.energy[::2], rel=1e-12)
    with pytest.raises(TrajectoryError, match="there is no topology file"):
        ptd.fixman_weights(tree, path, 300, top=tmp_path / "none.pdb")

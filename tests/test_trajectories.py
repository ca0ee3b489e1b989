"""Trajectories of every format as streams of states."""

from __future__ import annotations

import mdtraj
import numpy as np
import pytest
from random_trees import random_state
from real_structures import DATA, VILLIN_IN_WATER, extra_paths, load

from peptidyn.core.errors import ArgumentError, SelectionError, TrajectoryError
from peptidyn.io.peptides import build_peptide
from peptidyn.model.build import build_tree
from peptidyn.model.fitting import FrameFits
from peptidyn.model.trajectory_states import FrameChunk, open_trajectory


@pytest.fixture(scope="module")
def peptide():
    structure = load(DATA / "ala3.pdb")
    return structure, build_tree(structure, "phi psi methyl")


@pytest.fixture(scope="module")
def frames(peptide):
    """Thirty exactly rigid frames with random torsions and poses, and their states."""
    _, tree = peptide
    rng = np.random.default_rng(0)
    states = [random_state(tree, rng) for _ in range(30)]
    return np.stack([tree.positions(s) for s in states]), states


def as_mdtraj(structure, xyz, box=None):
    trajectory = mdtraj.Trajectory(xyz.astype(np.float32), mdtraj.Topology.from_openmm(structure.topology))
    trajectory.time = 0.5 * np.arange(len(xyz))
    if box is not None:
        trajectory.unitcell_vectors = np.broadcast_to(box, (len(xyz), 3, 3)).astype(np.float32)
    return trajectory


# deviations allowed by the precision of each format, nm
@pytest.mark.parametrize(
    ("name", "precision"),
    [("t.xtc", 1e-3), ("t.dcd", 1e-6), ("t.trr", 1e-6), ("t.h5", 1e-6), ("t.pdb", 1e-3), ("t.pdb.gz", 1e-3)],
)
@pytest.mark.parametrize("chunk", [7, 1000])
def test_formats(tmp_path, peptide, frames, name, precision, chunk):
    structure, tree = peptide
    xyz, states = frames
    path = tmp_path / name
    as_mdtraj(structure, xyz).save(str(path))
    found = list(open_trajectory(tree, path, chunk=chunk))
    assert [f.index for f in found] == list(range(30))
    for frame, state, x in zip(found, states, xyz, strict=True):
        assert frame.misfit < 2 * precision
        assert frame.rebuilt_rmsd < 10 * precision
        difference = np.abs(np.angle(np.exp(1j * (frame.state.torsions - state.torsions))))
        assert difference.max() < 30 * precision  # a hydrogen sits 0.1 nm from its axis
        assert np.abs(tree.positions(frame.state) - x).max() < 30 * precision
    if name.endswith(("xtc", "dcd", "trr", "h5")):
        assert open_trajectory(tree, path).n_frames == 30
    if name.endswith(("xtc", "trr", "h5")):
        assert [f.time for f in found] == pytest.approx(0.5 * np.arange(30))


def test_exactly_rigid_frames_come_back_exactly(peptide, frames):
    _, tree = peptide
    xyz, states = frames
    for x, state in zip(xyz, states, strict=True):
        fit = tree.fit(x)
        assert np.abs(np.angle(np.exp(1j * (fit.state.q - state.q)))).max() < 1e-9
        assert fit.rebuilt_rmsd < 1e-10


def test_stride_and_chunks(tmp_path, peptide, frames):
    structure, tree = peptide
    path = tmp_path / "t.dcd"
    as_mdtraj(structure, frames[0]).save(str(path))
    reader = open_trajectory(tree, path, stride=4, chunk=3)
    assert [f.index for f in reader] == [0, 4, 8, 12, 16, 20, 24, 28]
    assert reader.n_frames == 8
    assert [len(c) for c in reader.chunks()] == [3, 3, 2]
    assert next(iter(reader.chunks())).torsions.shape == (3, tree.n_torsions)


def test_molecules_broken_by_the_box_are_made_whole(tmp_path, peptide, frames):
    structure, tree = peptide
    xyz, _ = frames
    box = np.array([[2.0, 0, 0], [0.3, 2.1, 0], [0.2, -0.4, 1.9]])
    fraction = xyz @ np.linalg.inv(box)
    wrapped = (fraction - np.floor(fraction)) @ box
    assert np.abs(wrapped - xyz).max() > 0.5
    path = tmp_path / "t.dcd"
    as_mdtraj(structure, wrapped, box).save(str(path))
    for frame in open_trajectory(tree, path):
        assert frame.misfit < 1e-5
    boxless = tmp_path / "boxless.xtc"
    as_mdtraj(structure, wrapped).save(str(boxless))
    with pytest.raises(TrajectoryError, match="no box"):
        list(open_trajectory(tree, boxless))


def test_part_of_a_solvated_trajectory(tmp_path):
    structure = load(VILLIN_IN_WATER)
    tree = build_tree(structure.subset("protein"))
    trajectory = structure.to_mdtraj()
    path = tmp_path / "t.xtc"
    mdtraj.join([trajectory, trajectory]).save(str(path))
    topology = tmp_path / "top.pdb"
    trajectory.save(str(topology))
    found = list(open_trajectory(tree, path, top=topology, atoms="protein"))
    assert len(found) == 2
    assert found[1].misfit < 2e-3
    with pytest.raises(TrajectoryError, match="give atoms= to choose"):
        open_trajectory(tree, path, top=topology)


def test_deformed_frames_report_the_unit(peptide):
    structure, tree = peptide
    x = structure.positions.copy()
    x[structure.atoms.residue_atoms[2]["O"]] += [0.0, 0.0, 0.04]
    fit = tree.fit(x)
    assert fit.max_misfit > 0.01
    assert "peptide plane ALA 3 - ALA 4" in tree.unit(fit.worst_link).name


def test_models_of_an_ensemble_have_their_own_dihedrals():
    for path in extra_paths():
        if path.name != "1vii-3frames.pdb":
            continue
        tree = build_tree(load(path))
        found = list(open_trajectory(tree, path))
        assert len(found) == 3
        trajectory = mdtraj.load(str(path))
        quads = [t.atoms for t in tree.torsions]
        expected = mdtraj.compute_dihedrals(trajectory, quads)
        for frame, row in zip(found, expected, strict=True):
            assert np.abs(np.angle(np.exp(1j * (frame.state.torsions - row)))).max() < 1e-3
        assert found[0].misfit < 1e-9


def test_memory_stays_flat(tmp_path, peptide, frames):
    """Twenty times the frames must not take more memory: peak of traced allocations, first chunk aside."""
    import tracemalloc

    structure, tree = peptide
    peaks = []
    for repeats in (5, 100):
        path = tmp_path / f"t{repeats}.dcd"
        as_mdtraj(structure, np.concatenate([frames[0]] * repeats)).save(str(path))
        tracemalloc.start()
        for chunk in open_trajectory(tree, path, chunk=50).chunks():
            assert chunk.fits.misfit.max() < 1e-5
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0] + 200_000


def test_bad_input(tmp_path, peptide, frames):
    structure, tree = peptide
    with pytest.raises(TrajectoryError, match="there is no trajectory file"):
        open_trajectory(tree, tmp_path / "missing.xtc")
    empty = tmp_path / "empty.xtc"
    empty.write_bytes(b"")
    with pytest.raises(TrajectoryError, match="is empty"):
        open_trajectory(tree, empty)
    junk = tmp_path / "junk.xtc"
    junk.write_bytes(bytes(range(256)) * 20)
    with pytest.raises(TrajectoryError, match="cannot read"):
        list(open_trajectory(tree, junk))
    unknown = tmp_path / "t.foo"
    unknown.write_text("hello")
    with pytest.raises(TrajectoryError, match="cannot read"):
        list(open_trajectory(tree, unknown))
    path = tmp_path / "t.dcd"
    as_mdtraj(structure, frames[0]).save(str(path))
    other = build_tree(load(DATA / "ala10-helix.pdb"))
    with pytest.raises(TrajectoryError, match=r"(cannot read|holds)"):
        list(open_trajectory(other, path))
    with pytest.raises(TrajectoryError, match="there is no topology file"):
        open_trajectory(tree, path, top=tmp_path / "none.pdb")
    with pytest.raises(SelectionError, match="matches no atom"):
        open_trajectory(tree, path, atoms="resname XYZ")
    with pytest.raises(ArgumentError, match="stride is 0"):
        open_trajectory(tree, path, stride=0)
    broken = frames[0].copy()
    broken[3, 5] = np.nan
    nan = tmp_path / "nan.dcd"
    as_mdtraj(structure, broken).save(str(nan))
    with pytest.raises(TrajectoryError, match=r"frame 3 .*not finite"):
        list(open_trajectory(tree, nan))


def test_frames_of_a_chunk_are_its_rows():
    """Every array is read by frame and by its own name; torsions are those of the state, without the angles."""
    tree = build_tree(build_peptide("AA"), "phi psi angles")
    rng = np.random.default_rng(0)
    states = [random_state(tree, rng) for _ in range(2)]
    fits = FrameFits(
        q=np.array([s.q for s in states]), base_position=np.array([s.base_position for s in states]),
        base_rotation=np.array([s.base_rotation for s in states]), misfit=np.array([1.0, 2.0]),
        worst_link=np.array([3, 4]), rebuilt_rmsd=np.array([5.0, 6.0]),
    )  # fmt: skip
    chunk = FrameChunk(tree, np.array([7, 9]), np.array([0.5, 1.5]), fits)
    found = list(chunk.frames())
    rows = [(f.index, f.time, f.misfit, f.worst_link, f.rebuilt_rmsd) for f in found]
    assert rows == [(7, 0.5, 1.0, 3, 5.0), (9, 1.5, 2.0, 4, 6.0)]
    for frame, state, torsions in zip(found, states, chunk.torsions, strict=True):
        assert np.array_equal(torsions, state.torsions) and tree.n_bends > 0
        for name in ("q", "base_position", "base_rotation"):
            assert np.array_equal(getattr(frame.state, name), getattr(state, name))

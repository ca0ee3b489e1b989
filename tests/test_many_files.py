"""Torsions, weights and histograms of many trajectory files, against the torsions that the files were made with."""

from __future__ import annotations

import mdtraj
import numpy as np
import pytest

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError
from peptidyn.runs import parallel_weights
from peptidyn.runs.parallel_weights import FileResults, histogram_files, measure_files, weigh_files
from peptidyn.sampling.backends import SerialBackend

TREE = ptd.bead_chain(5, 0.15, 1.9, 12.0)
"""Two torsions."""

COUNTS = (250, 1, 3)
"""Frames of the files; 100 are read at a time."""


@pytest.fixture(scope="module")
def torsions():
    rng = np.random.default_rng(1)
    return [rng.uniform(-np.pi, np.pi, (n, 2)) for n in COUNTS]


@pytest.fixture(scope="module")
def files(tmp_path_factory, torsions):
    folder, topology = tmp_path_factory.mktemp("files"), mdtraj.Topology()
    residue = topology.add_residue("X", topology.add_chain())
    for i in range(5):
        topology.add_atom(f"C{i}", mdtraj.element.carbon, residue)
    paths = []
    for name, values in zip("abc", torsions, strict=True):
        states = [TREE.reference.replace(q=q) for q in values]
        frames = mdtraj.Trajectory([TREE.positions(state) for state in states], topology)
        frames.save_dcd(str(folder / f"{name}.dcd"))
        paths.append(folder / f"{name}.dcd")
    frames.save_pdb(str(folder / "top.pdb"))
    return paths


def turned(a, b):
    """The largest difference of angles."""
    return np.abs(np.angle(np.exp(1j * (np.asarray(a) - b)))).max()


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("top", [None, "top.pdb"])
def test_torsions_of_every_file(files, torsions, stride, top):
    found = measure_files(TREE, files, stride=stride, top=None if top is None else files[0].with_name(top))
    assert found.files == files and found.failures == {} and len(found.good) == 3
    for one, wanted in zip(found.values, torsions, strict=True):
        assert one.shape == wanted[::stride].shape and turned(one, wanted[::stride]) < 1e-4


def test_files_that_fail_are_listed_with_the_reason(files, torsions, monkeypatch):
    monkeypatch.chdir(files[0].parent)
    (files[0].parent / "bad.dcd").write_bytes(b"nothing")
    found = measure_files(TREE, ["missing.dcd", "a.dcd", "bad.dcd", "b.dcd"])
    here = files[0].parent.resolve()
    assert found.files == [here / name for name in ("missing.dcd", "a.dcd", "bad.dcd", "b.dcd")]
    assert set(found.failures) == {here / "missing.dcd", here / "bad.dcd"}
    assert "missing.dcd" in found.failures[here / "missing.dcd"]
    assert found.values[0] is None is found.values[2]
    assert [len(one) for one in found.good] == [250, 1] and turned(found.values[1], torsions[0]) < 1e-4


def test_results_of_nothing_and_errors_without_words(files):
    class Silent(SerialBackend):
        def start(self, function, tasks, shared=None):
            return lambda: [KeyError(), ValueError("why"), np.empty(0)]

    found = measure_files(TREE, files, backend=Silent())
    assert found.failures == {files[0]: "KeyError", files[1]: "why"}
    assert found.values[:2] == [None, None] and len(found.good) == 1
    assert FileResults([], [0, None, [], 1], {}).good == [0, [], 1]
    for function in (measure_files, histogram_files, lambda tree, paths: weigh_files(tree, paths, 300.0)):
        with pytest.raises(ArgumentError, match="no files to analyse"):
            function(TREE, [])


@pytest.mark.parametrize("temperature", [300, 450.0])
def test_weights_of_every_file(files, torsions, temperature):
    """U_F = (kT/2) ln det M, of which files with more frames have no other share."""
    found = weigh_files(TREE, files, temperature)
    for one, values in zip(found.values, torsions, strict=True):
        log_det = [np.linalg.slogdet(ptd.mass_matrix(TREE, TREE.reference.replace(q=q)))[1] for q in values[:20]]
        assert one.energy[:20] == pytest.approx(0.5 * one.kT * np.array(log_det), abs=1e-4)
        assert one.temperature == temperature and one.weights.sum() == pytest.approx(1.0) and len(one) == len(values)


@pytest.mark.parametrize(("bins", "stride"), [(12, 1), (36, 2), (1, 1), (7, 100)])
def test_histograms_count_all_frames_of_all_files(files, torsions, bins, stride):
    density, edges, results = histogram_files(TREE, files, bins, stride=stride)
    assert edges == pytest.approx(np.linspace(-np.pi, np.pi, bins + 1))
    every = np.concatenate([values[::stride] for values in torsions])
    for column, found in enumerate(density):
        assert found == pytest.approx(np.histogram(every[:, column], edges, density=True)[0], abs=1e-9)
    assert [counts.sum(axis=1).tolist() for counts in results.good] == [[len(v[::stride])] * 2 for v in torsions]
    assert histogram_files(TREE, files)[0].shape == (2, 36)


def test_histograms_of_one_frame_and_of_none(files, torsions, tmp_path):
    density, edges, _ = histogram_files(TREE, files[1:2], 8)
    for column, found in enumerate(density):
        place = np.digitize(torsions[1][0, column], edges) - 1
        assert np.flatnonzero(found).tolist() == [place] and found[place] == pytest.approx(8 / (2 * np.pi))
    density, _, results = histogram_files(TREE, [tmp_path / "missing.dcd"], 8)
    assert not density.any() and density.shape == (2, 8) and results.good == []
    with pytest.raises(ArgumentError, match="bins is 0, expected 1 or more"):
        histogram_files(TREE, files, 0)


def test_a_topology_that_cannot_be_read_fails_all_files(files):
    """So that what is given is not what is guessed."""
    wrong = {"top": str(files[0].with_name("none.pdb"))}
    for found in (
        measure_files(TREE, files, **wrong), weigh_files(TREE, files, 300.0, **wrong),
        histogram_files(TREE, files, **wrong)[2],
    ):  # fmt: skip
        assert found.good == [] and set(found.failures) == set(files)


def test_files_go_to_the_backend_that_is_asked_for(files, monkeypatch):
    """Each is one task; the tree is shared, and the backend closed at the end."""
    seen = []

    class Engine(SerialBackend):
        def run(self, function, tasks, shared=None):
            seen.append((tasks, shared))
            return super().run(function, tasks, shared)

        def close(self):
            seen.append("closed")

    monkeypatch.setattr(parallel_weights, "make_backend", lambda *asked: (seen.append(asked), Engine())[1])
    options = {"top": None, "backend": "threads", "workers": 3}
    measure_files(TREE, files, stride=2, **options)
    weigh_files(TREE, files, 310, **options)
    histogram_files(TREE, files, 9, stride=3, **options)
    for begin, rest in ((0, (None, 2)), (3, (310.0, None)), (6, (None, 3, 9))):
        asked, (tasks, shared), closed = seen[begin : begin + 3]
        assert asked == ("threads", 3) and shared is TREE and closed == "closed"
        assert tasks == [(str(file), *rest) for file in files]

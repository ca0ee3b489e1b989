"""Many runs and many files: one table, failures listed, the same answer on every backend."""

from __future__ import annotations

import csv
import shutil

import numpy as np
import pytest
from real_structures import DATA

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError
from peptidyn.runs.parallel_weights import histogram_files, measure_files, weigh_files

SHORT = {"steps": 20, "report": "5", "equilibrate": "0ps", "solvent": "vacuum", "platform": "Reference"}


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble")
    return ptd.run_ensemble([1, 2], {"file": str(DATA / "ala1.pdb"), **SHORT}, folder=folder)


def test_seeds_make_different_runs_and_one_table(ensemble):
    assert not ensemble.failures and [row["seed"] for row in ensemble.rows] == [1, 2]
    assert (ensemble.column("frames") == 4).all()
    energy = ensemble.column("potential_kJ_per_mol")
    assert np.isfinite(energy).all() and energy[0] != energy[1]
    with open(ensemble.folder / "ensemble.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["done", "done"]
    assert float(rows[1]["potential_kJ_per_mol"]) == energy[1]


def test_seeds_that_are_given_win_over_that_of_the_settings(tmp_path):
    """Otherwise all runs would be the same one; files without seeds of their own take the one of the settings."""

    class Recorder:
        def run(self, function, tasks, shared=None):
            self.seeds = [given["seed"] for _, given, _ in tasks]
            return [{} for _ in tasks]

        def close(self):
            return

    for items, seeds in (([5, 6], [5, 6]), (["a.pdb", "b.pdb"], [9, 9])):
        recorder = Recorder()
        result = ptd.run_ensemble(items, {"seed": 9}, folder=tmp_path, backend=recorder)
        assert recorder.seeds == [row["seed"] for row in result.rows] == seeds


def test_failures_are_listed_and_not_fatal(tmp_path):
    bad = tmp_path / "bad.pdb"
    bad.write_text("nothing\n")
    result = ptd.run_ensemble([bad, DATA / "ala1.pdb"], SHORT, folder=tmp_path / "out", backend="threads", workers=2)
    assert [row["status"] for row in result.rows] == ["failed", "done"]
    assert [row["seed"] for row in result.rows] == [0, 1]
    assert len(result.failures) == 1 and result.failures[0]["error"]
    assert np.isnan(result.column("frames")[0]) and result.column("frames")[1] == 4


def test_an_ensemble_that_was_interrupted_goes_on(ensemble, tmp_path):
    folder = tmp_path / "again"
    shutil.copytree(ensemble.folder, folder)
    shutil.rmtree(folder / "run-001")  # the second run had not begun
    result = ptd.run_ensemble([1, 2], {"file": str(DATA / "ala1.pdb"), **SHORT}, folder=folder)
    assert np.array_equal(result.column("potential_kJ_per_mol"), ensemble.column("potential_kJ_per_mol"))


def test_bad_ensembles_are_refused():
    with pytest.raises(ArgumentError, match="nothing to run"):
        ptd.run_ensemble([])
    with pytest.raises(ArgumentError, match="did you mean"):
        ptd.run_ensemble([1], {"temprature": 300})


def test_files_are_analysed_in_parallel_as_one_by_one(ensemble, tmp_path):
    files = [ensemble.folder / f"run-{i:03d}" / "trajectory.dcd" for i in range(2)]
    top = str(ensemble.folder / "run-000" / "topology.pdb")
    reference = ptd.load_structure(top)
    tree = ptd.build_tree(reference, "phi psi")
    alone = [ptd.fixman_weights(tree, file, 300, top=top) for file in files]
    for backend in ("serial", "threads"):
        found = weigh_files(tree, files, 300, top=top, backend=backend, workers=2)
        assert all(np.array_equal(a.energy, b.energy) for a, b in zip(alone, found.values, strict=True))
    torsions = measure_files(tree, [*files, tmp_path / "missing.dcd"], top=top)
    assert [t.shape for t in torsions.good] == [(4, 2), (4, 2)] and len(torsions.failures) == 1
    with np.load(ensemble.folder / "run-000" / "torsions.npz") as stored:
        kinds = stored["torsion_kind"].tolist()
        for column, coordinate in enumerate(tree.torsions):
            change = torsions.values[0][:, column] - stored["torsions"][:, kinds.index(coordinate.kind)]
            assert np.abs(np.angle(np.exp(1j * change))).max() < 1e-3
    every = measure_files(tree, files, top=top, stride=2).values
    assert all(np.array_equal(a, b[::2]) for a, b in zip(every, torsions.good, strict=True))
    cold = weigh_files(tree, files, 200, top=top).values
    assert all(np.allclose(c.energy, 2 / 3 * a.energy) for c, a in zip(cold, alone, strict=True))
    density, edges, counts = histogram_files(tree, files, 12, top=top)
    assert np.allclose(density.sum(axis=1) * (edges[1] - edges[0]), 1) and sum(c.sum() for c in counts.good) == 16


@pytest.mark.slow
def test_processes_run_ensembles_and_analysis_too(ensemble, tmp_path):
    result = ptd.run_ensemble(
        [1, 2], {"file": str(DATA / "ala1.pdb"), **SHORT}, folder=tmp_path, backend="processes", workers=2
    )
    assert np.array_equal(result.column("potential_kJ_per_mol"), ensemble.column("potential_kJ_per_mol"))
    tree = ptd.build_tree(ptd.load_structure(tmp_path / "run-000" / "topology.pdb"), "phi psi")
    files = [tmp_path / f"run-{i:03d}" / "trajectory.dcd" for i in range(2)]
    one, two = (histogram_files(tree, files, backend=b, workers=2)[0] for b in ("serial", "processes"))
    assert np.array_equal(one, two)

"""`run_ensemble` call by call: what every run is given, where it writes, when it goes on, and the table of all."""

from __future__ import annotations

import csv
import os
from types import SimpleNamespace

import numpy as np
import pytest

from peptidyn.core.errors import ArgumentError
from peptidyn.runs import many_runs
from peptidyn.runs.many_runs import COLUMNS, EnsembleResult, run_ensemble
from peptidyn.runs.settings import RunSettings
from peptidyn.sampling.backends import SerialBackend


@pytest.fixture
def runs(monkeypatch):
    """What every run was given; those of seed 13 fail, and of seed 14 without a word."""
    asked = []

    def run(**given):
        asked.append(given)
        if given.get("seed") in (13, 14):
            raise RuntimeError(*["atoms overlap"][: 14 - given["seed"]])
        return SimpleNamespace(summary={"frames": len(asked), "temperature_K": 301.5, "atoms": 22})

    monkeypatch.setattr(many_runs, "run", run)
    return asked


def given(runs):
    """The settings of the runs, without what all of them have."""
    return [{k: v for k, v in run.items() if k not in ("folder", "progress", "say")} for run in runs]


def test_every_seed_is_a_run_in_a_folder_of_its_own(runs, tmp_path, monkeypatch):
    """Numbers of NumPy are seeds as well; file and folder are those of the folder where this was asked."""
    monkeypatch.chdir(tmp_path)
    result = run_ensemble([7, np.int64(5)], {"file": "x.pdb", "steps": 3, "seed": 99}, folder="many")
    new = {"file": str(tmp_path / "x.pdb"), "steps": 3, "resume": False, "overwrite": True}
    assert given(runs) == [{**new, "seed": 7}, {**new, "seed": 5}]
    folders = [str(tmp_path / "many" / f"run-{i:03d}") for i in range(2)]
    assert [run["folder"] for run in runs] == folders and result.folder == tmp_path / "many"
    assert not any(run["progress"] or run["say"]("text") for run in runs)
    wanted = {"file": str(tmp_path / "x.pdb"), "status": "done", "temperature_K": 301.5, "error": None, "time_ps": None}
    for i, row in enumerate(result.rows):
        assert tuple(row) == COLUMNS and {name: row[name] for name in wanted} == wanted
        assert (row["run"], row["seed"], row["frames"], row["folder"]) == (i, (7, 5)[i], i + 1, folders[i])
    run_ensemble([7], {"steps": 3}, folder="other")
    assert given(runs)[-1] == {"steps": 3, "seed": 7, "resume": False, "overwrite": True}  # the peptide that is built


def test_every_file_is_a_run_with_a_seed_of_its_own(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = ["a.pdb", tmp_path / "b.pdb"]
    run_ensemble(files, {"file": "x.pdb"}, folder=tmp_path)
    run_ensemble(files, {"seed": 9}, folder=tmp_path)
    found = [(run["file"], run["seed"]) for run in given(runs)]
    paths = [str(tmp_path / name) for name in ("a.pdb", "b.pdb")]
    assert found == [*zip(paths, (0, 1), strict=True), *zip(paths, (9, 9), strict=True)]


def test_a_run_with_a_checkpoint_goes_on_with_its_own_settings(runs, tmp_path):
    (tmp_path / "run-001").mkdir()
    (tmp_path / "run-001" / "checkpoint.npz").write_bytes(b"")
    (tmp_path / "run-002").mkdir()  # one that had not begun is replaced
    run_ensemble([1, 2, 3], {"steps": 3}, folder=tmp_path)
    new = {"steps": 3, "resume": False, "overwrite": True}
    assert given(runs) == [{**new, "seed": 1}, {"resume": True, "overwrite": False}, {**new, "seed": 3}]


def test_the_table_lists_runs_that_failed(runs, tmp_path):
    result = run_ensemble([1, 13, 14], folder=tmp_path / "a" / "b")
    assert [row["status"] for row in result.rows] == ["done", "failed", "failed"]
    assert [row["error"] for row in result.rows] == [None, "atoms overlap", "RuntimeError"]
    assert result.failures == result.rows[1:]
    assert result.column("frames") == pytest.approx([1.0, np.nan, np.nan], nan_ok=True)
    assert result.column("seed").tolist() == [1.0, 13.0, 14.0] and result.column("run").tolist() == [0.0, 1.0, 2.0]
    with open(tmp_path / "a" / "b" / "ensemble.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert tuple(rows[0]) == COLUMNS and len(rows) == 4
    values = [dict(zip(COLUMNS, row, strict=True)) for row in rows[1:]]
    assert [row["error"] for row in values] == ["", "atoms overlap", "RuntimeError"]
    assert [row["temperature_K"] for row in values] == ["301.5", "", ""]
    assert os.path.basename(values[2]["folder"]) == "run-002"
    with pytest.raises(ArgumentError, match="no column 'energy'; it has run, file, seed"):
        result.column("energy")
    assert EnsembleResult(tmp_path, []).column("frames").shape == (0,)


def test_settings_may_be_an_object(runs, tmp_path):
    """Of which what differs from the defaults counts, so that time and steps do not meet."""
    run_ensemble([3], RunSettings(steps=5, temperature=310.0, rigid=("resid 1",), relax=False), folder=tmp_path)
    assert given(runs) == [
        {"steps": 5, "temperature": 310.0, "rigid": ("resid 1",), "relax": False, "seed": 3, "resume": False,
         "overwrite": True}
    ]  # fmt: skip


def test_what_is_wrong_for_all_runs_is_refused_at_once(runs, tmp_path):
    for items, settings, phrase in (
        ([], {}, "nothing to run"),
        ([1], {"temprature": 300}, "did you mean temperature"),
        ([1], {"temperature": -3.0}, "temperature is -3"),
    ):
        with pytest.raises(ArgumentError, match=phrase):
            run_ensemble(items, settings, folder=tmp_path / "x")
    assert not runs and not (tmp_path / "x").exists()


@pytest.mark.parametrize("client", [None, "a client"])
def test_runs_go_to_the_backend_that_is_asked_for(runs, tmp_path, monkeypatch, client):
    """A client comes before the name of a backend, which is closed at the end."""
    seen = []

    class Engine(SerialBackend):
        def close(self):
            seen.append("closed")

    monkeypatch.setattr(many_runs, "make_backend", lambda *asked: (seen.append(asked), Engine())[1])
    run_ensemble([1, 2], folder=tmp_path, client=client, backend="threads", workers=3)
    assert seen == [(client or "threads", 3), "closed"] and len(runs) == 2

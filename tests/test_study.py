"""`Study`: a grid of settings, its table on disk, and what is computed when it is started again."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from peptidyn.core.errors import ArgumentError
from peptidyn.runs.study import Study


class Counted:
    """A function that notes what it is called with."""

    def __init__(self):
        self.calls = []

    def __call__(self, n, kind):
        self.calls.append((n, kind))
        return {"square": n * n, "name": f"{kind}{n}"}


def lines(file):
    with open(file, newline="", encoding="utf-8") as table:
        return list(csv.reader(table))


def test_all_combinations_are_computed_with_the_last_setting_fastest(tmp_path):
    function = Counted()
    study = Study(tmp_path / "x.csv", n=[2, 3], kind=["a", "b"])
    assert not study.rows and not (tmp_path / "x.csv").exists()
    assert study.run(function) is study
    assert function.calls == [(2, "a"), (2, "b"), (3, "a"), (3, "b")]
    assert study.rows[1] == {"n": 2, "kind": "b", "square": 4, "name": "b2"}
    assert lines(tmp_path / "x.csv") == [
        ["n", "kind", "square", "name"], ["2", "a", "4", "a2"], ["2", "b", "4", "b2"], ["3", "a", "9", "a3"],
        ["3", "b", "9", "b3"],
    ]  # fmt: skip


def test_a_column_holds_the_rows_that_meet_all_conditions(tmp_path):
    study = Study(tmp_path / "x.csv", n=[2, 3, 4], kind=["a", "b"]).run(Counted())
    assert study.column("square").tolist() == [4, 4, 9, 9, 16, 16]
    assert study.column("square", kind="b").tolist() == [4, 9, 16]
    assert study.column("name", kind="b", n=3).tolist() == ["b3"]
    assert study.column("n", kind="a").tolist() == [2, 3, 4]
    assert study.column("name", kind="b", n=5).tolist() == []
    with pytest.raises(ArgumentError, match="fixman is not a setting of this study; it has n, kind"):
        study.column("square", fixman=True)
    with pytest.raises(ArgumentError, match="no column 'cube'; there are n, kind, square, name"):
        study.column("cube")


def test_only_what_is_missing_is_computed_again(tmp_path):
    """Rows come in the order of the new grid; those that left it stay in the file."""
    Study(tmp_path / "x.csv", n=[3, 2], kind=["a"]).run(Counted())
    function = Counted()
    study = Study(tmp_path / "x.csv", n=[1, 2], kind=["b", "a"])
    assert [(row["n"], row["kind"]) for row in study.rows] == [(2, "a")]
    study.run(function)
    assert function.calls == [(1, "b"), (1, "a"), (2, "b")]
    assert study.column("name").tolist() == ["b1", "a1", "b2", "a2"]
    assert [row[:2] for row in lines(tmp_path / "x.csv")[1:]] == [
        ["3", "a"], ["2", "a"], ["1", "b"], ["1", "a"], ["2", "b"],
    ]  # fmt: skip


def test_rows_before_one_that_fails_are_on_disk(tmp_path):
    def fail_at_three(n):
        if n == 3:
            raise RuntimeError
        return {"square": n * n}

    with pytest.raises(RuntimeError):
        Study(tmp_path / "x.csv", n=[1, 2, 3]).run(fail_at_three)
    assert lines(tmp_path / "x.csv") == [["n", "square"], ["1", "1"], ["2", "4"]]


def test_values_come_back_from_the_file_as_they_were(tmp_path):
    """Whole numbers, numbers, truth values and text; those of NumPy are written as Python's own."""
    results = {"whole": np.int64(7), "part": np.float64(0.1), "yes": True, "no": np.bool_(False), "text": "a, b"}
    made = Study(tmp_path / "x.csv", fixman=[True, False]).run(lambda fixman: results)
    read = Study(tmp_path / "x.csv", fixman=[True, False])
    wanted = {"whole": 7, "part": 0.1, "yes": True, "no": False, "text": "a, b"}
    assert made.rows == read.rows == [{"fixman": True, **wanted}, {"fixman": False, **wanted}]
    for study in (made, read):
        assert [type(value) for value in study.rows[0].values()] == [bool, int, float, bool, bool, str]
    assert lines(tmp_path / "x.csv")[1] == ["True", "7", "0.1", "True", "False", "a, b"]
    assert read.column("part", fixman=False).tolist() == [0.1]


@pytest.mark.parametrize("grid", [{}, {"n": []}, {"n": [1], "kind": []}])
def test_a_study_needs_settings_with_values(tmp_path, grid):
    with pytest.raises(ArgumentError, match="at least one setting"):
        Study(tmp_path / "x.csv", **grid)


def test_tables_of_other_studies_are_refused(tmp_path):
    file = tmp_path / "x.csv"
    Study(file, n=[1], kind=["a"]).run(Counted())
    for grid in ({"kind": ["a"], "n": [1]}, {"m": [1]}, {"n": [1], "square": [1]}):
        with pytest.raises(ArgumentError, match="is a table of n, kind, square, name, and this study begins with"):
            Study(file, **grid)
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ArgumentError, match="is a table of nothing"):
        Study(tmp_path / "empty.csv", n=[1])


def test_results_go_to_the_columns_of_their_names(tmp_path):
    """In whichever order a function gives them, and in the file as well."""
    file = tmp_path / "x.csv"
    study = Study(file, n=[1, 2]).run(lambda n: {"a": 1, "b": 20} if n == 1 else {"b": 10, "a": 2})
    for known in (study, Study(file, n=[1, 2])):
        assert known.column("a").tolist() == [1, 2] and known.column("b").tolist() == [20, 10]
    assert file.read_text().splitlines() == ["n,a,b", "1,1,20", "2,2,10"]


def test_results_with_other_names_are_refused(tmp_path):
    """Other columns than the rows before have, or the name of a setting."""
    study = Study(tmp_path / "x.csv", n=[1, 2])
    study.run(lambda n: {"square": n} if n == 1 else {"square": 4}).run(lambda n: {})  # nothing is missing
    more = Study(tmp_path / "x.csv", n=[1, 2, 3])
    for results in ({"cube": 27}, {"square": 9, "cube": 27}, {}):
        with pytest.raises(ArgumentError, match="hold square; give the study another file"):
            more.run(lambda n, results=results: results)
    with pytest.raises(ArgumentError, match="the function returned n and the rows"):
        Study(tmp_path / "y.csv", n=[1]).run(lambda n: {"n": n})
    assert not (tmp_path / "y.csv").exists() and len(lines(tmp_path / "x.csv")) == 3

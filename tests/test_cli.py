"""The command line as a user meets it: output, exit status, errors, nothing half-written."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import mdtraj
import numpy as np
import pytest
from real_structures import DATA, extra_paths
from structure_files import without_hydrogens

from peptidyn import __version__
from peptidyn.cli import main
from peptidyn.io.readers import load_structure


def run(capsys, *arguments):
    """Return exit status, standard output and standard error of a command."""
    try:
        status = main([str(a) for a in arguments])
    except SystemExit as exit_:
        status = exit_.code
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_inspect_text(capsys):
    status, out, err = run(capsys, "inspect", DATA / "all20.pdb", "--frames")
    assert status == 0 and err == ""
    for phrase in ("all20.pdb", "rigid bodies", "degrees of freedom", "19 phi", "omega", "in a ring", "gamma"):
        assert phrase in out


def test_inspect_and_fixman_take_all_words_of_soft(capsys):
    status, out, _ = run(capsys, "inspect", DATA / "ala3.pdb", "--soft", "phi psi chi; all in resid 2")
    assert status == 0
    for phrase in ("soft phases", "soft bond angles", "soft bond lengths"):
        assert phrase in out
    status, out, _ = run(capsys, "inspect", DATA / "ala3.pdb", "--json", "--soft", "all")
    assert json.loads(out)["degrees_of_freedom"]["total"] == 3 * 42
    for soft in ("heavy", "all"):
        status, out, _ = run(capsys, "fixman", "--map", DATA / "ala1.pdb", "--residue", "2", "--soft", soft)
        assert status == 0 and "U_F spans" in out


def test_inspect_json(capsys):
    status, out, _ = run(capsys, "inspect", DATA / "ala3.pdb", "--json", "--frames", "--soft", "phi psi angles")
    report = json.loads(out)
    assert status == 0
    assert report["torsions"] == {"phi": 3, "psi": 3}
    assert report["bends"] == {"N-CA-C": 3, "CA-C-N": 3, "C-N-CA": 3}
    assert report["degrees_of_freedom"]["total"] == 6 + 6 + 9
    assert len(report["soft_coordinates"]) == 15
    assert report["frames"] and report["rigid_units"]


def test_inspect_rigid_and_fixed(capsys):
    status, out, _ = run(capsys, "inspect", DATA / "ala10-helix.pdb", "--rigid", "resid 2 to 9", "--base", "fixed")
    assert status == 0
    assert "inside a rigid selection" in out and "with a fixed base" in out


def test_build_takes_all_angles(capsys, tmp_path):
    path = tmp_path / "built.pdb"
    assert run(capsys, "build", "AAA", "--phi=-70,-80,-90", "--psi", "40", "--omega=170,160,150", "-o", path)[0] == 0
    built = mdtraj.load(str(path))
    expected = {"phi": [-70, -80, -90], "psi": [40, 40, 40], "omega": [170, 160]}  # the third is that of the cap
    for angle, degrees in expected.items():
        found = np.rad2deg(getattr(mdtraj, f"compute_{angle}")(built)[1][0])
        assert found == pytest.approx(degrees, abs=0.1), angle


def test_inspect_gz(capsys, tmp_path):
    path = tmp_path / "x.pdb.gz"
    path.write_bytes(gzip.compress((DATA / "ala3.pdb").read_bytes()))
    assert run(capsys, "inspect", path)[0] == 0


def test_inspect_adds_hydrogens_for_the_ph(capsys, tmp_path):
    """The side chain of aspartate takes a proton at pH 2: the capped residue then has 25 atoms instead of 24."""
    path, heavy = tmp_path / "built.pdb", tmp_path / "heavy.pdb"
    assert run(capsys, "build", "D", "-q", "-o", path)[0] == 0
    heavy.write_text("\n".join([*without_hydrogens(path), "END", ""]))
    atoms = {}
    for options in ((), ("--pH", 7), ("--pH", 2)):
        status, out, _ = run(capsys, "inspect", heavy, "--add-hydrogens", *options, "--json")
        assert status == 0
        atoms[options] = json.loads(out)["atoms"]
    assert atoms == {(): 24, ("--pH", 7): 24, ("--pH", 2): 25}


def test_build(capsys, tmp_path):
    path = tmp_path / "helix.pdb"
    status, out, err = run(capsys, "build", "ACDE", "--phi", "-60", "--psi=-45,-40,-50,-47", "-o", path)
    assert status == 0 and err == "" and "ACE" not in err
    assert str(path) in out
    assert load_structure(path).n_residues == 6
    status, _, err = run(capsys, "build", "ACDE", "-o", path)
    assert status == 2 and "--overwrite" in err
    assert run(capsys, "build", "ACDE", "-o", path, "--overwrite", "--no-caps")[0] == 0
    assert load_structure(path).n_residues == 4


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["build", "AXB", "-o", "new.pdb"], "X"),
        (["build", "", "-o", "new.pdb"], "sequence"),
        (["build", "AAA", "--phi", "abc", "-o", "new.pdb"], "--phi is 'abc'"),
        (["build", "AAA", "--phi", "1,2", "-o", "new.pdb"], "phi"),
        (["build", "AAA", "-o", "nowhere/new.pdb"], "does not exist"),
        (["build", "AAA", "-o", "new.xyz"], "xyz"),
        (["inspect", "missing.pdb"], "missing.pdb"),
        (["inspect", "ala3.pdb", "--soft", "foo"], "unknown soft coordinate 'foo'"),
        (["inspect", "ala3.pdb", "--rigid", "resname XYZ"], "matches no atom"),
        (["inspect", "ala3.pdb", "--rigid", "((("], "cannot read the selection"),
        (["inspect", "ala3.pdb", "--model", "7"], "model"),
    ],
)
def test_errors_are_one_sentence_and_status_2(capsys, tmp_path, monkeypatch, arguments, phrase):
    (tmp_path / "ala3.pdb").write_bytes((DATA / "ala3.pdb").read_bytes())
    monkeypatch.chdir(tmp_path)
    before = sorted(p.name for p in tmp_path.iterdir())
    status, out, err = run(capsys, *arguments)
    assert status == 2
    assert out == ""
    assert err.startswith("peptidyn: ") and err.count("\n") == 1
    assert phrase in err
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def _without_atom(text: str, name: str, residue: int) -> str:
    return "\n".join(
        line for line in text.splitlines()
        if not (line.startswith(("ATOM", "HETATM")) and line[12:16].strip() == name and int(line[22:26]) == residue)
    )  # fmt: skip


def _with_nan(text: str) -> str:
    lines = text.splitlines()
    n = next(i for i, line in enumerate(lines) if line.startswith("ATOM"))
    lines[n] = lines[n][:30] + "     nan     nan     nan" + lines[n][54:]
    return "\n".join(lines)


BAD_FILES = {
    "empty.pdb": lambda text: "",
    "junk.pdb": lambda text: bytes(range(256)) * 40,
    "empty.cif": lambda text: "",
    "junk.cif": lambda text: bytes(range(256)) * 40,
    "no-ca.pdb": lambda text: _without_atom(text, "CA", 3),
    "nan.pdb": _with_nan,
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files(capsys, tmp_path, name):
    content = BAD_FILES[name]((DATA / "ala3.pdb").read_text())
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    status, out, err = run(capsys, "inspect", path)
    assert status == 2 and out == ""
    assert err.startswith("peptidyn: ") and err.count("\n") == 1
    if name == "no-ca.pdb":
        assert "residue ALA 3" in err and "CA" in err


def test_truncated_mmcif(capsys, tmp_path):
    for path in extra_paths():
        if path.suffix == ".cif":
            cut = tmp_path / "cut.cif"
            text = path.read_text()
            start = text.index("ATOM ")
            cut.write_text(text[: start + 3000])
            status, _, err = run(capsys, "inspect", cut)
            assert status == 2 and err.count("\n") == 1


def test_version_and_help(capsys):
    assert run(capsys, "--version")[1].strip() == f"peptidyn {__version__}"
    status, out, _ = run(capsys, "--help")
    assert status == 0 and "inspect" in out and "examples:" in out
    assert run(capsys, "nonsense")[0] == 2
    assert run(capsys)[0] == 2


def test_module_and_broken_pipe():
    process = subprocess.run(
        f"{sys.executable} -m peptidyn inspect {DATA / 'all20.pdb'} --json | head -n 1",
        shell=True, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False,
    )  # fmt: skip
    assert process.returncode == 0 and process.stdout.strip() == "{" and process.stderr == ""


def test_json_numbers_are_those_of_the_library(capsys):
    from peptidyn.model.build import build_tree

    tree = build_tree(load_structure(DATA / "all20.pdb"))
    report = json.loads(run(capsys, "inspect", DATA / "all20.pdb", "--json")[1])
    degrees = [c["degrees"] for c in report["soft_coordinates"]]
    assert degrees == pytest.approx(np.rad2deg(tree.reference.q), abs=1e-5)

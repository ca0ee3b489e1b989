"""Bad input ends in one sentence that says what to do, from the command line as in Python, never in a traceback."""

from __future__ import annotations

import bz2
import json
import re
import shutil

import mdtraj
import numpy as np
import pytest
from openmm import app
from real_structures import DATA

import peptidyn as ptd
from peptidyn.cli import main
from peptidyn.core.errors import ArgumentError, ModelError, SelectionError, StructureError
from peptidyn.io.topology import bonds_of, copy_topology

pytestmark = pytest.mark.usefixtures("blank_pictures")

ALA1 = DATA / "ala1.pdb"
SHORT = ["--steps", "4", "--report", "2", "--equilibrate", "0ps", "--no-relax", "--solvent", "vacuum", "-q"]


def refused(capsys, *arguments):
    """Run a command that must end with status 2 and one line."""
    try:
        status = main([str(a) for a in arguments])
    except SystemExit as end:  # argparse
        status = end.code
    err = capsys.readouterr().err
    assert status == 2 and "Traceback" not in err
    return err


# ---------------------------------------------------------------------------- paths and files


def test_paths_may_have_any_letters(capsys, tmp_path):
    """A run, its weights and its report in a folder whose name MDTraj's compiled readers cannot open."""
    folder = tmp_path / "Läufe" / "α-helix 螺旋"
    assert main(["run", str(ALA1), *SHORT, "--trajectory", "xtc", "-o", str(folder)]) == 0
    other = shutil.copy(folder / "trajectory.xtc", tmp_path / "x.xtc")
    mdtraj.load(other, top=folder / "topology.pdb").save_dcd(tmp_path / "x.dcd")
    shutil.move(tmp_path / "x.dcd", folder / "ä.dcd")
    weights = folder / "gewichte-ü.csv"
    for name, top in (("trajectory.xtc", "topology.pdb"), ("ä.dcd", "topology.cif")):
        files = [str(folder / name), "--top", str(folder / top), "-o", str(weights), "--overwrite"]
        assert main(["fixman", *files, "-T", "300", "-q"]) == 0
        assert len(weights.read_text().splitlines()) == 1 + 2
        tree = ptd.build_tree(ptd.load_structure(folder / top))
        assert ptd.open_trajectory(tree, folder / name).n_frames == 2
    assert main(["report", str(folder), "-q"]) == 0 and (folder / "report.html").stat().st_size > 1e5


def test_bzip2_beside_gzip(capsys, tmp_path):
    file = tmp_path / "Ala1.pdb.bz2"
    file.write_bytes(bz2.compress(ALA1.read_bytes()))
    assert np.array_equal(ptd.load_structure(file).positions, ptd.load_structure(ALA1).positions)
    assert main(["fixman", str(file), "--top", str(ALA1), "-T", "300"]) == 0
    assert ptd.run(
        file, steps=1, folder=tmp_path / "x", relax=False, say=lambda _: None, progress=False
    ).folder.exists()
    file.write_bytes(bz2.compress(ALA1.read_bytes())[:-20])
    with pytest.raises(StructureError, match=r"cannot unpack Ala1\.pdb\.bz2.*not bzip2"):
        ptd.load_structure(file)


def test_a_model_is_chosen(capsys, tmp_path):
    structure = ptd.load_structure(ALA1)
    lines = [line for line in ALA1.read_text().splitlines() if line.startswith(("ATOM", "HETATM"))]
    moved = [f"{line[:30]}{float(line[30:38]) + 5:8.3f}{line[38:]}" for line in lines]
    file = tmp_path / "two.pdb"
    file.write_text("\n".join(["MODEL        1", *lines, "ENDMDL", "MODEL        2", *moved, "ENDMDL", "END"]) + "\n")
    assert main(["run", str(file), *SHORT, "--model", "1", "-o", str(tmp_path / "x")]) == 0
    assert json.loads((tmp_path / "x" / "summary.json").read_text())["settings"]["model"] == 1
    simulated = ptd.load_structure(tmp_path / "x" / "topology.cif")
    assert np.abs(simulated.positions - structure.positions - [0.5, 0, 0]).max() < 1e-9
    assert "has no model 2: it holds 2 models" in refused(capsys, "run", file, "--model", "2", "-o", tmp_path / "y")
    assert "model is -1, expected 0 or more" in refused(capsys, "run", file, "--model=-1", "-o", tmp_path / "y")


def test_residue_names_too_long_for_pdb(capsys, tmp_path):
    """mmCIF holds them; a run, its weights and its report do not need a PDB file."""
    structure = ptd.load_structure(ALA1)
    topology = copy_topology(structure.topology, bonds_of(structure.topology), residue_names={1: "ALANI"})
    file = tmp_path / "long.cif"
    ptd.Structure.from_openmm(topology, None, structure.positions).write(file)
    folder = tmp_path / "x"
    assert main(["run", str(file), *SHORT, "-o", str(folder)]) == 0
    assert ptd.load_structure(folder / "topology.cif").atoms.residue_name[1] == "ALANI"
    assert not (folder / "topology.pdb").exists()
    options = ["--top", str(folder / "topology.cif"), "-T", "300", "-q"]
    assert main(["fixman", str(folder / "trajectory.dcd"), *options]) == 0
    assert main(["report", str(folder), "-q"]) == 0
    assert "ALANI" in (folder / "report.html").read_text()


# ---------------------------------------------------------------------------- force fields


@pytest.mark.parametrize(
    ("files", "phrase"),
    [
        ("tip3p.xml,nosuch.xml", "Could not locate file .*give the path of a file that exists"),
        ("ambr14", "did you mean amber14"),
        ("amber14/tip3p.xml,tip3p.xml", "multiple definitions.*exclude each other"),
        ("tip3p.xml,BAD", "'nope' is not defined.*exclude each other"),
        ("tip3p.xml,FOLDER", "cannot load the force field.*directory"),
        ("tip3p.xml,HALF", "cannot load the force field"),
    ],
)
def test_force_fields_that_cannot_be_loaded(capsys, tmp_path, files, phrase):
    bad, half = tmp_path / "bad.xml", tmp_path / "half.xml"
    bad.write_text(
        "<ForceField><Residues><Residue name='X'><Atom name='C' type='nope'/></Residue></Residues></ForceField>"
    )
    half.write_text("<ForceField><Residues>")
    for word, path in (("BAD", bad), ("FOLDER", tmp_path), ("HALF", half)):
        files = files.replace(word, str(path))
    err = refused(capsys, "run", ALA1, "--forcefield", files, "-o", tmp_path / "out")
    assert re.search(phrase, err) and err.count("\n") == 1 and not (tmp_path / "out").exists()


def test_missing_side_chain_atoms_are_named(tmp_path):
    lines = (DATA / "all20.pdb").read_text().splitlines(keepends=True)
    file = tmp_path / "x.pdb"
    file.write_text("".join(x for x in lines if (x[17:20], x[12:16].strip()) not in {("TRP", "CH2"), ("TRP", "HH2")}))
    structure = ptd.load_structure(file)
    with pytest.raises(ModelError, match=r"residue TRP 20 lacks CH2.*add_hydrogens=True") as error:
        ptd.make_system(structure.topology)
    assert ".xml" not in str(error.value)
    assert ptd.make_system(ptd.load_structure(file, add_hydrogens=True).topology)


# ---------------------------------------------------------------------------- arguments


@pytest.mark.parametrize("given", ["x.pdb", ALA1, app.PDBFile(str(ALA1)), None])
def test_trees_are_built_of_structures(given):
    with pytest.raises(ArgumentError, match=rf"given a {type(given).__name__}, expected a Structure.*load_structure"):
        ptd.build_tree(given)


def test_integrators_need_trees_and_simulations_a_topology():
    structure = ptd.load_structure(ALA1)
    with pytest.raises(ArgumentError, match=r"given a Structure, expected a TreeModel.*build_tree\(structure\)"):
        ptd.TorsionVerletIntegrator(structure, 0.001)
    integrator = ptd.TorsionVerletIntegrator(ptd.build_tree(structure), 0.001)
    system = ptd.make_system(structure.topology, solvent="vacuum")
    with pytest.raises(ArgumentError, match=r"topology is a Structure.*structure\.topology"):
        ptd.TorsionSimulation(structure, system, integrator, "Reference")


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (("run", "--tiem", "1ps"), "unrecognized argument --tiem; did you mean --time?\n"),
        (("inspect", str(ALA1), "more"), "unrecognized argument more\n"),
        (("run", "x.prmtop", str(ALA1)), f"unrecognized argument {ALA1}; did you mean --coordinates {ALA1}?\n"),
        (("run", "--timesetp=2"), "unrecognized argument --timesetp=2; did you mean --timestep?"),
        (("exchange", "--replcas", "4"), "did you mean --replicas?"),
        (("inspect", str(ALA1), "--sofd", "phi"), "did you mean --soft?"),
        (("inspect", str(ALA1), "--zzz"), "unrecognized argument --zzz\n"),
    ],
)
def test_a_mistyped_flag(capsys, arguments, phrase):
    err = refused(capsys, *arguments)
    assert phrase in err and f"peptidyn {arguments[0]}: error:" in err


@pytest.mark.parametrize(
    ("selection", "phrase"),
    [
        ("resid 1 to", "'to' is not a number"),
        ("resid 1 5 to 9", "'to' is not a number"),
        ("resid first", "'first' is not a number"),
        ("chainid A", "'A' is not a number"),
        ("name CA resid 1", "'resid' is not a name"),
        ("name CA andd resid 1", "'resid' is not a name"),
        ("resname ALA 1", "'1' is not a name"),
        ("name", "a keyword lacks its value"),
        ("protein and not resid", "a keyword lacks its value"),
    ],
)
def test_selections_that_mdtraj_takes_by_accident(capsys, tmp_path, selection, phrase):
    structure = ptd.load_structure(ALA1)
    assert len(structure.to_mdtraj().topology.select(selection)) >= 0  # MDTraj does not mind
    with pytest.raises(SelectionError, match=f"cannot read the selection .*: {phrase}"):
        structure.select(selection)
    assert phrase in refused(capsys, "inspect", ALA1, "--rigid", selection)


@pytest.mark.parametrize(
    ("selection", "n"),
    [
        ("resid 1 to 1", 10), ("name CA CB", 2), ("name 'CA'", 1), ("all", 22), ("not water", 22), ("mass > 5", 10),
        ("protein and (name CA or resid 0 1) and not name HA", 15), ("name =~ 'C.*'", 6), ("rescode A", 10),
    ],
)  # fmt: skip
def test_selections_that_are_right(selection, n):
    assert len(ptd.load_structure(ALA1).select(selection)) == n

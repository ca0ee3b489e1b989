"""What `peptidyn run` makes of a file before it simulates: waters, boxes, ions, molecules it cannot describe."""

from __future__ import annotations

import json
import re
from functools import cache

import mdtraj
import numpy as np
import pytest
from real_structures import DATA, OPENMM_DATA

import peptidyn as ptd
from peptidyn.cli import main
from peptidyn.core.errors import ArgumentError
from peptidyn.core.units import plain_array
from peptidyn.io.topology import bonds_of, copy_topology
from peptidyn.runs import preparation
from peptidyn.runs.preparation import find_waters, prepare_structure
from peptidyn.runs.settings import RunSettings

pytestmark = pytest.mark.usefixtures("blank_pictures")

ALA1 = DATA / "ala1.pdb"


@cache
def solvated():
    return prepare_structure(RunSettings(file=str(ALA1), solvent="tip3p", padding=0.8))


def note(structure, kind):
    (found,) = structure.notes_of(kind)
    return found.text


def test_a_box_of_water_is_added():
    settings = {"file": str(ALA1), "solvent": "tip3p", "padding": 0.7, "ions": 0.5, "cutoff": 0.8, "seed": 3}
    once, again = (prepare_structure(RunSettings(**settings)) for _ in range(2))
    side = plain_array(once.topology.getPeriodicBoxVectors())[0, 0]
    peptide = ptd.load_structure(ALA1)
    spread = np.linalg.norm(peptide.positions - peptide.positions.mean(axis=0), axis=1).max()
    assert side == pytest.approx(2 * spread + 1.4, abs=0.1)
    names = once.atoms.residue_name
    waters, ions = int((names == "HOH").sum()), int(np.isin(names, ["NA", "CL"]).sum())
    assert waters + ions == pytest.approx(33 * side**3, rel=0.1) and ions == 2 * round(0.5 * waters / 55.4)
    assert f"{waters} waters and {ions} ions added" in note(once, "solvent")
    assert np.array_equal(once.positions, again.positions)  # ions are placed by the seed
    assert np.allclose(np.diff(once.positions[:22], axis=0), np.diff(peptide.positions, axis=0))


def test_ends_of_a_chosen_piece_of_chain_are_completed(villin):
    """Residues 44 to 50 of a chain that begins at 41: all atoms stay where they are, and three are added."""
    whole, piece = ptd.load_structure(villin), prepare_structure(RunSettings(file=str(villin), select="resid 3 to 9"))
    chosen = whole.subset("resid 3 to 9")
    assert not piece.missing and piece.n_atoms == chosen.n_atoms + 3
    ends = piece.atoms.residue_atoms[0].keys(), piece.atoms.residue_atoms[-1].keys()
    assert ends[0] >= {"H", "H2", "H3"} and ends[1] >= {"O", "OXT"}
    kept = [piece.atoms.residue_atoms[chosen.atoms.residue[i]][chosen.atoms.name[i]] for i in range(chosen.n_atoms)]
    assert np.abs(piece.positions[kept] - chosen.positions).max() < 1e-9
    assert "2 bonds to atoms left out cut" in note(piece, "cut")
    assert "atom OXT" in " ".join(n.text for n in piece.notes_of("completed"))


def test_a_disulfide_that_a_selection_cuts_becomes_a_thiol(further_structure):
    """Of the six cysteines of BPTI, 5 and 14 lose their partners."""
    piece = prepare_structure(RunSettings(file=str(further_structure("bpti.pdb")), select="resid 0 to 19"))
    cysteines = piece.atoms.residue_name == "CYS"
    assert ["HG" in atoms for atoms, is_one in zip(piece.atoms.residue_atoms, cysteines, strict=True) if is_one] == [
        True
    ] * 2


def test_a_choice_of_single_atoms_is_not_completed(villin):
    heavy = prepare_structure(RunSettings(file=str(villin), select="not element H"))
    assert heavy.missing and "H" not in heavy.atoms.element


@pytest.mark.slow
def test_a_full_box_is_used_and_a_crystal_is_not():
    file = str(OPENMM_DATA / "test.pdb")  # villin in water
    own = prepare_structure(RunSettings(file=file, solvent="tip3p"))
    assert "the box of the file is used" in note(own, "solvent")
    assert own.n_atoms == ptd.load_structure(file).n_atoms
    dry = prepare_structure(RunSettings(file=file, solvent="tip3p", select="protein", padding=0.3))
    assert "added in a cubic box" in note(dry, "solvent") and "of the file kept" not in note(dry, "solvent")


@pytest.mark.parametrize(
    ("side", "phrase"), [(None, "no periodic box"), (9.0, r"would be 0\.0\d+ g"), (1.9, r"would be 1\.9")]
)
def test_water_without_a_usable_box_is_refused(capsys, tmp_path, side, phrase):
    """A solvated file whose box was lost, or is another one's, is not solvated once more."""
    wet = solvated()
    topology = copy_topology(wet.topology, bonds_of(wet.topology))
    topology.setPeriodicBoxVectors(None if side is None else np.diag([side] * 3))
    file = tmp_path / "x.cif"
    ptd.Structure.from_openmm(topology, None, wet.positions).write(file)
    assert main(["run", str(file), "--solvent", "tip3p", "-o", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert "waters and" in err and re.search(phrase, err) and "CRYST1" in err and err.count("\n") == 1
    assert "--select 'not water'" in err and "--padding 1.0" in err and not (tmp_path / "out").exists()


def test_crystal_waters_stay_in_the_new_box(tmp_path):
    """A crystal's waters are few, and its cell holds less than its symmetry puts there."""
    waters = [
        f"HETATM{90 + k:5d}  O   HOH B{k:4d}    {3 + 4 * k:8.3f}   9.000   9.000  1.00  0.00           O"
        for k in (1, 2)
    ]
    atoms = [line for line in ALA1.read_text().splitlines() if line.startswith(("ATOM", "HETATM"))]
    cell = "CRYST1   60.000   60.000   60.000  90.00  90.00  90.00 P 21 21 21    4"
    (tmp_path / "x.pdb").write_text("\n".join([cell, *atoms, *waters, "END"]) + "\n")
    kept = prepare_structure(RunSettings(file=str(tmp_path / "x.pdb"), solvent="tip3p", cutoff=0.8))
    assert "2 waters of the file kept" in note(kept, "solvent")


def test_chain_ends_of_a_selection_are_completed_for_the_ph(tmp_path):
    """Three residues out of five have new ends; their aspartate has a proton more at pH 2."""
    file = tmp_path / "x.pdb"
    ptd.build_peptide("AADAA").write(file)
    parts = [RunSettings(file=str(file), solvent="vacuum", select="resid 3 to 5", pH=pH) for pH in (2.0, 7.0)]
    acid, neutral = (prepare_structure(part).atoms.name.tolist() for part in parts)
    assert [name for name in acid if name not in neutral] == ["HD2"] and len(acid) == len(neutral) + 1


def test_the_settings_of_a_file_are_passed_on(monkeypatch):
    """Its model and the pH of its hydrogens; solvent, cutoff and the other files of a prmtop."""
    asked = []

    def record(*arguments, **options):
        asked.append((arguments, options))
        raise InterruptedError

    monkeypatch.setattr(preparation, "load_structure", record)
    monkeypatch.setattr(preparation, "load_system", record)
    given = {"coordinates": "x.rst7", "parameters": ("x.par",), "include": "y", "solvent": "gbn2", "cutoff": 1.3}
    for settings in (RunSettings(file="x.pdb", model=2, pH=4.5), RunSettings(file="x.prmtop", **given)):
        with pytest.raises(InterruptedError):
            prepare_structure(settings)
    pdb, prmtop = asked
    assert pdb == (("x.pdb",), {"model": 2, "add_hydrogens": None, "pH": 4.5})
    assert prmtop == (
        ("x.prmtop", "x.rst7"), {"parameters": ("x.par",), "include": "y", "solvent": "gbn2", "cutoff": 1.3}
    )  # fmt: skip


@pytest.mark.parametrize(("pressure", "side"), [(None, 1.62), (1.0, 1.8)])
def test_a_new_box_is_wider_than_twice_the_cutoff(pressure, side):
    """One that may become smaller has a little more."""
    settings = RunSettings(file=str(ALA1), solvent="tip3p", padding=0.05, cutoff=0.8, pressure=pressure, seed=1)
    box = plain_array(prepare_structure(settings).topology.getPeriodicBoxVectors())
    assert np.abs(box - side * np.eye(3)).max() < 1e-9


def test_refusals():
    with pytest.raises(ArgumentError, match="belong to a box of water"):
        RunSettings(solvent="obc2", padding=1.0)
    with pytest.raises(ArgumentError, match="has no water 'opc3'"):
        prepare_structure(RunSettings(file=str(ALA1), solvent="opc3", forcefield="charmm36"))


@pytest.mark.parametrize("solvent", ["obc2", "tip3p"])
def test_a_ligand_without_parameters_leaves_no_folder(capsys, tmp_path, solvent):
    ligand = "HETATM   40  C1  LIG B   7       9.000   9.000   9.000  1.00  0.00           C\n"
    text = [line for line in ALA1.read_text().splitlines(keepends=True) if not line.startswith("END")]
    (tmp_path / "x.pdb").write_text("".join(text) + ligand + "END\n")
    assert main(["run", str(tmp_path / "x.pdb"), "--solvent", solvent, "-o", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert "no parameters for chain B, residue LIG 7" in err and "--select protein" in err and err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_explicit_water_from_the_command_line(capsys, tmp_path):
    """Waters are rigid, with the geometry of their model, in every frame; the run goes on from its checkpoint."""
    folder = tmp_path / "x"
    options = ["--solvent", "tip3p", "--padding", "0.4", "--cutoff", "0.8", "--equilibrate", "20fs", "--report", "5"]
    assert main(["run", str(ALA1), *options, "--steps", "10", "--trajectory", "xtc", "-o", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "waters and 0 ions added in a cubic box" in out and "4 fs" in out and "torsion terms lie inside" in out
    assert main(["run", "--resume", "--steps", "20", "-q", "-o", str(folder)]) == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["frames"] == 4 and summary["complete"]
    trajectory = mdtraj.load(folder / "trajectory.xtc", top=folder / "topology.pdb")
    assert trajectory.n_frames == 4 and trajectory.time.tolist() == pytest.approx([0.02, 0.04, 0.06, 0.08])
    structure = ptd.load_structure(folder / "topology.pdb")
    water = np.flatnonzero(find_waters(structure))
    assert len(water) > 300
    oxygen = water[structure.atoms.element[water] == "O"]
    arms = mdtraj.compute_distances(trajectory, np.stack([oxygen, oxygen + 1], axis=1), periodic=False)
    assert np.abs(arms - 0.09572).max() < 2e-3  # XTC holds 0.001 nm per coordinate

"""The folder of a run: one parse and one Mover, what is read again, and what is removed."""

from __future__ import annotations

import numpy as np
import openmm
import pytest
from butane_exchange import make
from real_structures import DATA, OPENMM_DATA

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, CheckpointError
from peptidyn.core.sealed_files import extent_of_bytes
from peptidyn.engine import checkpoints
from peptidyn.engine.systems import make_system
from peptidyn.engine.torsion_reporter import rows_of_table
from peptidyn.integrators.mover import Mover
from peptidyn.io import readers
from peptidyn.runs.exchange_run import ExchangeRun
from peptidyn.runs.preparation import prepare_structure
from peptidyn.runs.run_folder import RunFolder, _checksum_of_inputs
from peptidyn.runs.settings import RunSettings, resolve_settings

QUICK = {"solvent": "vacuum", "platform": "Reference", "seed": 5, "equilibrate": "40fs", "report": 5, "progress": False}


@pytest.fixture
def counts(monkeypatch):
    """How often a structure file was parsed and a Mover made."""
    found = {"parsed": 0, "movers": 0}
    read, make_mover = readers._read, Mover.__init__

    def counted_read(*arguments):
        found["parsed"] += 1
        return read(*arguments)

    def counted_mover(self, *arguments):
        found["movers"] += 1
        make_mover(self, *arguments)

    monkeypatch.setattr(readers, "_read", counted_read)
    monkeypatch.setattr(Mover, "__init__", counted_mover)
    return found


def quiet(text):
    """Print nothing."""


@pytest.mark.parametrize("bare", [False, True], ids=["all atoms", "missing hydrogens"])
@pytest.mark.parametrize("options", [{}, {"hydrogen_mass": 3.0}, {"relax": False}], ids=["plain", "mass", "raw"])
def test_a_run_parses_once_and_makes_one_mover(tmp_path, counts, bare, options):
    file = DATA / "ala1.pdb"
    if bare:
        ptd.load_structure(file).subset("not element H").write(tmp_path / "bare.pdb")
        file = tmp_path / "bare.pdb"
    counts.update(parsed=0)
    result = ptd.run(file, steps=10, folder=tmp_path / "x", say=quiet, **QUICK, **options)
    assert result.summary["frames"] == 2 and counts == {"parsed": 1, "movers": 1}
    again = ptd.run(folder=tmp_path / "x", resume=True, steps=20, progress=False, say=quiet)
    assert again.summary["frames"] == 4 and counts == {"parsed": 2, "movers": 2}


# ---------------------------------------------------------------------------- what a resumed run reads


def prepared(file, **settings):
    return prepare_structure(resolve_settings({**({"file": str(file)} if file else {}), "seed": 3, **settings}))


STRUCTURES = {
    "built": (None, {}),
    "all amino acids": (DATA / "all20.pdb", {}),
    "protein of a box": (OPENMM_DATA / "test.pdb", {"select": "protein"}),
    "water added": (DATA / "ala1.pdb", {"solvent": "tip3p", "padding": 0.5, "cutoff": 0.6, "ions": 0.3}),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_resumed_run_has_the_same_atoms_and_forces(tmp_path, name):
    file, settings = STRUCTURES[name]
    structure = prepared(file, **settings)
    folder = RunFolder(tmp_path)
    folder.write_structure(structure)
    box = structure.topology.getPeriodicBoxVectors()
    if box is not None:  # a checkpoint has it to the last bit
        checkpoints.write(folder.checkpoint, checkpoints.SIMULATION, {}, {"box": np.array([v._value for v in box])})
    read = folder.read_structure()
    for field in ("name", "element", "residue", "residue_name", "residue_id", "residue_chain", "chain_id", "bonds"):
        assert np.array_equal(getattr(read.atoms, field), getattr(structure.atoms, field)), field
    assert np.array_equal(read.masses, structure.masses)
    assert np.abs(read.positions - structure.positions).max() < 1e-13
    solvent = settings.get("solvent", "vacuum")
    systems = [make_system(s.topology, solvent, cutoff=settings.get("cutoff", 1.0)) for s in (structure, read)]
    assert len({openmm.XmlSerializer.serialize(system) for system in systems}) == 1


def test_the_tree_of_a_folder_has_the_geometry_of_the_run(tmp_path):
    ptd.run(DATA / "ala1.pdb", steps=10, folder=tmp_path / "x", hydrogen_mass=3.0, say=quiet, **QUICK)
    folder = RunFolder(tmp_path / "x")
    assert folder.ending == "finished" and folder.n_frames == 2 and folder.q.shape == (2, folder.tree.n_coordinates)
    reference = folder.tree.positions(folder.tree.reference)
    assert np.abs(reference - folder.read_geometry()).max() < 1e-12
    assert np.abs(reference - folder.structure.positions).max() > 1e-3  # which was relaxed
    assert folder.tree.masses.min() == pytest.approx(3.0)


# ---------------------------------------------------------------------------- what is refused, and what is removed


def test_messages_speak_of_arguments(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    for arguments, phrase in (
        ({"folder": tmp_path}, r"folder=, continue the run in it with resume=True, or replace it with overwrite=True"),
        ({"resume": True}, r"resume=True needs folder="),
        ({"resume": True, "overwrite": True, "folder": tmp_path}, r"resume=True .* overwrite=True"),
        ({"temprature": 300}, "did you mean temperature"),
        ({"temperature": "hot"}, "temperature in the call is 'hot', expected a number"),
        ({"steps": 5, "time": "1ps"}, "both time and steps"),
    ):
        with pytest.raises(ArgumentError, match=phrase):
            ptd.run(DATA / "ala1.pdb", say=quiet, **{**QUICK, **arguments})
    with pytest.raises(ArgumentError, match="did you mean replicas"):
        ptd.exchange(DATA / "ala1.pdb", replica=4)


def test_an_exchange_run_is_replaced_by_a_run(tmp_path):
    """Nothing of it stays that would be taken for a part of the new run; other files do."""
    where = {"folder": tmp_path / "x", "progress": False, "say": quiet, "platform": "Reference", "solvent": "vacuum"}
    small = {"replicas": 2, "tmin": 300, "tmax": 330, "iterations": 2, "interval": 10, "warm_up": 0, "seed": 1}
    result = ptd.exchange(DATA / "ala1.pdb", **where, **small)
    assert result.summary["iterations"] == 2 and not result.interrupted
    assert len(ExchangeRun(tmp_path / "x").walk) == 2
    (tmp_path / "x" / "notes.txt").write_text("mine")
    (tmp_path / "x" / ".checkpoint.npz.abc").write_text("half of a file that a killed run was writing")
    ptd.run(DATA / "ala1.pdb", steps=5, overwrite=True, **{**QUICK, **where})
    assert {path.name for path in (tmp_path / "x").iterdir() if path.is_file()} == {
        "topology.cif", "topology.pdb", "run.toml", "trajectory.dcd", "log.csv", "torsions.npz", "checkpoint.npz",
        "checkpoint-previous.npz", "summary.json", "notes.txt", "lock",
    }  # fmt: skip
    assert not list((tmp_path / "x").glob("replica-*/*"))


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_exchange_checkpoint_is_one_sentence(tmp_path, share):
    with make(tmp_path) as exchange:
        exchange.run(1)
    file = tmp_path / "checkpoint.npz"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(
        CheckpointError, match=r"checkpoint\.npz is damaged.* copy checkpoint-previous\.npz to checkpoint\.npz"
    ):
        make(tmp_path, resume=True)


def test_settings_are_written_and_read(tmp_path):
    folder = RunFolder(tmp_path)
    settings = resolve_settings({"file": 'a "quoted" \\ näme.pdb', "rigid": ["resid 1 to 3"], "soft": "phi", "seed": 1})
    folder.write_settings(settings)
    assert folder.read_settings(RunSettings()) == settings


def test_the_table_of_a_killed_run_ends_at_its_checkpoint(tmp_path):
    """Frames that no checkpoint vouches for are not shown, as `--resume` will drop them."""
    folder = tmp_path / "x"
    ptd.run(DATA / "ala1.pdb", steps=20, folder=folder, say=quiet, **QUICK)
    whole = RunFolder(folder).table
    about, arrays = checkpoints.read(folder / "checkpoint.npz")
    rows = rows_of_table("x", whole, RunFolder(folder).tree)
    about["extra"]["files"]["torsions.npz.rows"] = list(extent_of_bytes(rows[:3].tobytes()))
    about["extra"]["frames"] = 3
    checkpoints.write(folder / "checkpoint.npz", checkpoints.SIMULATION, about, arrays)
    run = RunFolder(folder)
    assert len(whole["step"]) == 4 and run.table["step"].tolist() == [5, 10, 15] and run.n_frames == 3
    assert np.array_equal(run.table["torsions"], whole["torsions"][:3]) and len(run.q) == 3
    assert np.array_equal(run.table["torsion_kind"], whole["torsion_kind"])


def test_every_file_with_parameters_counts(tmp_path):
    files = [tmp_path / name for name in ("a.prmtop", "b.par")]
    for file in files:
        file.write_text("as it was")
    settings = RunSettings(file=str(files[0]), parameters=(str(files[1]),), solvent="vacuum")
    before = _checksum_of_inputs(settings)
    for file in files:
        file.write_text("changed")
        assert _checksum_of_inputs(settings) != before
        file.write_text("as it was")
    assert _checksum_of_inputs(settings) == before


OTHER = {
    "file": "y.pdb", "seed": 2, "temperature": 310.0, "friction": 2.0, "timestep": 3.0, "preset": "angles",
    "metric": "auto", "hydrogen_mass": 2.0, "solvent": "vacuum", "forcefield": "amber19", "cutoff": 1.5,
    "ensemble": "ghmc", "pivots": 3, "fixman": False, "report": "2ps", "equilibrate": "1ps", "relax": False,
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_only_length_platform_and_threads_change_when_a_run_goes_on(tmp_path, name):
    folder = RunFolder(tmp_path)
    folder.write_settings(RunSettings(file="x.pdb", seed=1, steps=10))
    may = {"steps": 20, "platform": "CPU", "threads": 2}
    found = folder.settings_to_resume(RunSettings(), may)
    assert {key: getattr(found, key) for key in may} == may and found.seed == 1
    with pytest.raises(ArgumentError, match=rf"{name} was .* and is {OTHER[name]} now"):
        folder.settings_to_resume(RunSettings(), {**may, name: OTHER[name]})

"""What other programs prepare: prmtop, psf and top files, ParmEd and Interchange objects, ligands with templates."""

from __future__ import annotations

import os
from pathlib import Path

import mdtraj
import numpy as np
import openmm
import parmed
import pytest
from openmm import app, unit
from real_structures import DATA

import peptidyn as ptd
from peptidyn.cli import main
from peptidyn.core.errors import ArgumentError, ModelError, StructureError
from peptidyn.core.units import plain_array
from peptidyn.engine import checkpoints
from peptidyn.runs import model as run_model
from peptidyn.runs.exchange_run import ExchangeRun
from peptidyn.runs.model import make_model
from peptidyn.runs.preparation import prepare_structure
from peptidyn.runs.run import find_place
from peptidyn.runs.settings import RunSettings

pytestmark = pytest.mark.usefixtures("blank_pictures")

INPUTS = os.environ.get("PEPTIDYN_INPUTS")


def energy(system, positions):
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(positions)
    return context.getState(energy=True).getPotentialEnergy()._value


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with ala3 as AMBER, CHARMM and GROMACS files, written by ParmEd."""
    place = tmp_path_factory.mktemp("inputs")
    structure = ptd.load_structure(DATA / "ala3.pdb")
    system = app.ForceField("amber14-all.xml").createSystem(structure.topology, constraints=None)
    made = parmed.openmm.load_topology(structure.topology, system, 10.0 * structure.positions)
    made.save(str(place / "without_radii.prmtop"))
    parmed.tools.changeRadii(made, "mbondi2").execute()
    for name in ("ala3.prmtop", "ala3.inpcrd", "ala3.top", "ala3.gro", "ala3.psf", "coordinates.pdb"):
        made.save(str(place / name))
    charmm = parmed.charmm.CharmmParameterSet.from_structure(made)
    charmm.write(top=str(place / "ala3.rtf"), par=str(place / "ala3.par"))
    return place


def by_openmm(folder: Path, kind: str):
    """Return System and positions of the same files, read by OpenMM alone."""
    if kind == "prmtop":
        coordinates = app.AmberInpcrdFile(str(folder / "ala3.inpcrd"))
        return app.AmberPrmtopFile(str(folder / "ala3.prmtop")).createSystem(), coordinates.positions
    if kind == "top":
        return app.GromacsTopFile(str(folder / "ala3.top")).createSystem(), app.GromacsGroFile(
            str(folder / "ala3.gro")
        ).positions  # fmt: skip
    parameters = app.CharmmParameterSet(str(folder / "ala3.rtf"), str(folder / "ala3.par"))
    psf = app.CharmmPsfFile(str(folder / "ala3.psf"))
    return psf.createSystem(parameters), app.PDBFile(str(folder / "coordinates.pdb")).positions


def arguments(folder: Path, kind: str):
    if kind == "psf":
        return (folder / "ala3.psf", folder / "coordinates.pdb"), {
            "parameters": [folder / "ala3.rtf", folder / "ala3.par"]
        }
    return (folder / f"ala3.{kind}",), {}


STOCK = """
from openmm import *
from openmm.app import *
from openmm.unit import *

{load}
system = {create}nonbondedMethod=NoCutoff, constraints=HBonds)
integrator = LangevinMiddleIntegrator(300*kelvin, 1/picosecond, 0.002*picoseconds)
simulation = Simulation(topology, system, integrator)
simulation.context.setPositions(positions)
simulation.minimizeEnergy(maxIterations=5)
simulation.reporters.append(DCDReporter('output.dcd', 2))
simulation.reporters.append(StateDataReporter('output.csv', 2, step=True, potentialEnergy=True, temperature=True))
simulation.step(4)
"""
LOADED = {
    "pdb": "field, read = ForceField('amber14-all.xml'), PDBFile('coordinates.pdb')",
    "prmtop": "made, read = AmberPrmtopFile('ala3.prmtop'), AmberInpcrdFile('ala3.inpcrd')",
    "psf": "made, read = CharmmPsfFile('ala3.psf'), PDBFile('coordinates.pdb')",
    "top": "made, read = GromacsTopFile('ala3.top'), GromacsGroFile('ala3.gro')",
}
CREATED = {
    "pdb": "field.createSystem(topology, ",
    "psf": "made.createSystem(CharmmParameterSet('ala3.rtf', 'ala3.par'), ",
}
CHANGES = {
    "integrator = LangevinMiddleIntegrator(": "integrator = ptd.TorsionLangevinIntegrator(ptd.build_tree("
    "ptd.Structure.from_openmm(topology, system, positions)), ",
    "simulation = Simulation(": "simulation = ptd.TorsionSimulation(",
}


@pytest.mark.parametrize("kind", LOADED)
def test_stock_scripts_run_in_torsion_space_with_two_changed_lines(folder, kind, tmp_path, monkeypatch):
    """A script for OpenMM alone, as people have it, and the same with another integrator and Simulation."""
    for file in folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    load = LOADED[kind] + f"; topology, positions = {'read' if kind == 'pdb' else 'made'}.topology, read.positions"
    stock = STOCK.format(load=load, create=CREATED.get(kind, "made.createSystem("))
    ours = stock
    for old, new in CHANGES.items():
        assert stock.count(old) == 1
        ours = ours.replace(old, new)
    assert sum(a != b for a, b in zip(stock.splitlines(), ours.splitlines(), strict=True)) == 2
    frames = {}
    for name, script in (("stock", stock), ("ours", "import peptidyn as ptd" + ours)):
        found: dict = {}
        exec(script, found)
        assert found["simulation"].currentStep == 4 and len(Path("output.csv").read_text().splitlines()) == 3
        assert Path("output.dcd").stat().st_size > 0
        frames[name] = np.array(found["simulation"].context.getState(positions=True).getPositions(asNumpy=True)._value)
    tree, reference = found["integrator"].tree, found["positions"]
    assert np.abs(tree.state(frames["ours"]).torsions - tree.reference.torsions).max() > 1e-4
    i, j = tree.atoms.bonds.T
    before, after = (np.linalg.norm(x[i] - x[j], axis=1) for x in (plain_array(reference), frames["ours"]))
    assert np.abs(before - after).max() < 1e-9


@pytest.mark.parametrize("kind", ["prmtop", "psf", "top"])
def test_energies_are_those_of_openmm_and_dynamics_runs(folder, kind):
    files, options = arguments(folder, kind)
    loaded = ptd.load_system(*files, **options)
    system, positions = by_openmm(folder, kind)
    assert energy(loaded.system, loaded.positions) == pytest.approx(energy(system, positions), rel=1e-6)
    tree = ptd.build_tree(loaded.structure)
    assert {c.kind for c in tree.torsions} == {"phi", "psi"} and tree.n_torsions == 6
    integrator = ptd.TorsionLangevinIntegrator(tree, 300, 1.0, 0.002, seed=1)
    simulation = ptd.TorsionSimulation(loaded.topology, loaded.system, integrator, "Reference")
    simulation.minimize_torsions(max_iterations=5)
    simulation.step(5)


def test_implicit_solvent_has_the_radii_of_the_file(folder):
    loaded = ptd.load_system(folder / "ala3.prmtop", solvent="obc2")
    system = app.AmberPrmtopFile(str(folder / "ala3.prmtop")).createSystem(implicitSolvent=app.OBC2)
    assert energy(loaded.system, loaded.positions) == pytest.approx(energy(system, loaded.positions), rel=1e-6)
    with pytest.raises(ModelError, match="no radii"):
        ptd.load_system(folder / "without_radii.prmtop", folder / "ala3.inpcrd", solvent="obc2")


def test_a_cutoff_and_two_stages_for_large_prmtop_files(folder, monkeypatch):
    """A cutoff holds in implicit solvent too; the first stage of a relaxation has the file's own parameters."""
    settings = RunSettings(file=str(folder / "ala3.prmtop"), solvent="obc2", platform="Reference", cutoff=1.2)
    model = make_model(settings, prepare_structure(settings))
    options = {"nonbondedMethod": app.CutoffNonPeriodic, "nonbondedCutoff": 1.2 * unit.nanometer}
    stock = app.AmberPrmtopFile(str(folder / "ala3.prmtop")).createSystem(implicitSolvent=app.OBC2, **options)
    for force in stock.getForces():
        if isinstance(force, openmm.NonbondedForce):
            force.setReactionFieldDielectric(1.0)
    x = model.structure.positions
    assert energy(model.system, x) == pytest.approx(energy(stock, x), rel=1e-6)
    monkeypatch.setattr(run_model, "LARGE", 10)
    said: list[str] = []
    run_model.find_reference_geometry(model, said.append, False)
    assert len(said) == 2 and "near atoms only" in said[0]


def test_parmed_structures_and_interchange_objects(folder):
    made = parmed.load_file(str(folder / "ala3.prmtop"), str(folder / "ala3.inpcrd"))
    loaded = ptd.load_system(made)
    expected = energy(made.createSystem(), made.positions)
    assert energy(loaded.system, loaded.positions) == pytest.approx(expected, rel=1e-6)
    recipe = ptd.Structure.from_openmm(made.topology, made.createSystem(), made.positions)
    assert ptd.build_tree(recipe).n_torsions == 6

    class Length:
        """A quantity of pint, as far as it is used."""

        def m_as(self, name):
            assert name == "nanometer"
            return loaded.positions

    class Interchange:
        """The calls of OpenFF's class of this name."""

        positions = Length()

        def to_openmm(self):
            return loaded.system

        def to_openmm_topology(self):
            return loaded.topology

    again = ptd.load_system(Interchange())
    assert np.array_equal(again.positions, loaded.positions) and again.system is loaded.system


def test_boxes_of_water(tmp_path):
    """A prmtop with TIP3P in a box is simulated with PME; implicit solvent and too small boxes are refused."""
    field = app.ForceField("amber14/tip3p.xml")
    modeller = app.Modeller(app.Topology(), [])
    modeller.addSolvent(field, boxSize=openmm.Vec3(1.9, 1.9, 1.9) * unit.nanometer)
    system = field.createSystem(modeller.topology, nonbondedMethod=app.PME, nonbondedCutoff=0.9, rigidWater=False)
    made = parmed.openmm.load_topology(modeller.topology, system, modeller.positions)
    made.save(str(tmp_path / "water.prmtop"))
    made.save(str(tmp_path / "water.rst7"))
    loaded = ptd.load_system(tmp_path / "water.prmtop", cutoff=0.9)
    assert loaded.system.usesPeriodicBoundaryConditions()
    assert loaded.system.getNumConstraints() >= 2 * modeller.topology.getNumResidues()
    stock = app.AmberPrmtopFile(
        str(tmp_path / "water.prmtop"),
        periodicBoxVectors=app.AmberInpcrdFile(str(tmp_path / "water.rst7")).boxVectors,
    ).createSystem(nonbondedMethod=app.PME, nonbondedCutoff=0.9)
    assert energy(loaded.system, loaded.positions) == pytest.approx(energy(stock, loaded.positions), rel=1e-6)
    with pytest.raises(ArgumentError, match="solvent='explicit'"):
        ptd.load_system(tmp_path / "water.prmtop", solvent="obc2")
    with pytest.raises(ModelError, match="smaller cutoff="):
        ptd.load_system(tmp_path / "water.prmtop")
    assert main(["inspect", str(tmp_path / "water.prmtop"), "-q"]) == 0  # forces are not needed for that


def test_options_of_files_are_those_that_are_asked_for(folder):
    """The cutoff, the implicit solvent by its name, and no reaction field, in vacuum neither."""
    small, large = (ptd.load_system(folder / "ala3.prmtop", solvent="gbn2", cutoff=cutoff) for cutoff in (0.9, 1.2))
    stock = app.AmberPrmtopFile(str(folder / "ala3.prmtop"))
    for loaded, cutoff in ((small, 0.9), (large, 1.2)):
        options = {"nonbondedMethod": app.CutoffNonPeriodic, "nonbondedCutoff": cutoff * unit.nanometer}
        expected = stock.createSystem(implicitSolvent=app.GBn2, **options)
        for system in (loaded.system, expected):
            (force,) = (f for f in system.getForces() if isinstance(f, openmm.NonbondedForce))
            assert force.getCutoffDistance()._value == pytest.approx(cutoff)
            force.setReactionFieldDielectric(1.0)
        x = loaded.positions
        assert energy(loaded.system, x) == pytest.approx(energy(expected, x), rel=1e-6)
    dry = ptd.load_system(folder / "ala3.prmtop", solvent="vacuum", cutoff=0.9)
    (force,) = (f for f in dry.system.getForces() if isinstance(f, openmm.NonbondedForce))
    assert force.getReactionFieldDielectric() == 1.0


def test_a_start_brings_its_box(tmp_path):
    """Volumes change at constant pressure: forces are those of the box where the run starts, not of the file's box."""
    field = app.ForceField("amber14/tip3p.xml")
    modeller = app.Modeller(app.Topology(), [])
    modeller.addSolvent(field, boxSize=openmm.Vec3(1.2, 1.2, 1.2) * unit.nanometer)
    system = field.createSystem(modeller.topology, nonbondedMethod=app.PME, nonbondedCutoff=0.5, rigidWater=False)
    made = parmed.openmm.load_topology(modeller.topology, system, modeller.positions)
    for name in ("water.prmtop", "water.rst7"):
        made.save(str(tmp_path / name))
    x = np.array(modeller.positions.value_in_unit(unit.nanometer), dtype=np.float32)
    frame = mdtraj.Trajectory(
        x[None], mdtraj.Topology.from_openmm(modeller.topology), None, [[1.25] * 3], [[90.0] * 3]
    )  # fmt: skip
    frame.save_dcd(str(tmp_path / "frame.dcd"))
    common = {"solvent": "explicit", "cutoff": 0.5, "relax": False, "platform": "Reference"}
    file = str(tmp_path / "water.prmtop")

    def side(start):
        given = {} if Path(start).is_dir() else {"file": file}
        settings = find_place(RunSettings(), None, None, "x", False, False, {"start": start, **common, **given})[0]
        model = make_model(settings, prepare_structure(settings))
        boxes = [model.system.getDefaultPeriodicBoxVectors(), model.structure.topology.getPeriodicBoxVectors()]
        sides = [np.array([vector._value for vector in box]).diagonal() for box in boxes]
        assert np.array_equal(*sides)
        return sides[0]

    assert side(tmp_path / "frame.dcd") == pytest.approx([1.25] * 3, rel=1e-6)
    folder = tmp_path / "run"
    ptd.run(file, folder=folder, steps=1, report="1", equilibrate="0ps", progress=False, say=lambda _: None, **common)
    assert side(folder) == pytest.approx([1.2] * 3, rel=1e-6)
    about, arrays = checkpoints.read(folder / "checkpoint.npz")
    checkpoints.write(folder / "checkpoint.npz", "simulation", about, {**arrays, "box": 1.3 * np.eye(3)})
    assert side(folder) == pytest.approx([1.3] * 3)


def test_what_cannot_be_loaded_is_named(folder, tmp_path):
    with pytest.raises(StructureError, match="no such file"):
        ptd.load_system("absent.prmtop")
    with pytest.raises(ArgumentError, match="needs its CHARMM parameter files"):
        ptd.load_system(folder / "ala3.psf", folder / "coordinates.pdb")
    with pytest.raises(ArgumentError, match="belongs to CHARMM"):
        ptd.load_system(folder / "ala3.prmtop", parameters="x.par")
    with pytest.raises(ArgumentError, match="belongs to GROMACS"):
        ptd.load_system(folder / "ala3.prmtop", include="x")
    with pytest.raises(ArgumentError, match=r"load_structure\(\)"):
        ptd.load_system(DATA / "ala1.pdb")
    with pytest.raises(ArgumentError, match=r"Structure.from_openmm\(\)"):
        ptd.load_system(object())
    with pytest.raises(StructureError, match=r"22 positions and .* 42 atoms"):
        ptd.load_system(folder / "ala3.prmtop", DATA / "ala1.pdb")
    (tmp_path / "alone.prmtop").write_text("%VERSION\n")
    with pytest.raises(StructureError, match=r"no alone.inpcrd or alone.rst7.* beside it; give coordinates="):
        ptd.load_system(tmp_path / "alone.prmtop")
    with pytest.raises(StructureError, match=r"OpenMM cannot read alone\.prmtop"):
        ptd.load_system(tmp_path / "alone.prmtop", folder / "ala3.inpcrd")
    (tmp_path / "x.top").write_text('#include "nowhere.ff/forcefield.itp"\n')
    with pytest.raises(StructureError, match="include="):
        ptd.load_system(tmp_path / "x.top", folder / "ala3.gro")


def test_commands_take_parameter_files(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["inspect", "ala3.prmtop"]) == 0
    assert "3 phi, 3 psi" in capsys.readouterr().out
    psf = ["--coordinates", "coordinates.pdb", "--parameters", "ala3.rtf", "ala3.par"]
    assert main(["inspect", "ala3.psf", *psf]) == 0
    out = tmp_path / "out"
    run = ["run", "ala3.prmtop", "-o", str(out), "--platform", "Reference", "--report", "5", "--seed", "1", "-q"]
    assert main([*run, "--steps", "10", "--equilibrate", "20fs"]) == 0
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-o", str(out), "--resume", "--steps", "20", "-q"]) == 0
    assert main(["report", str(out)]) == 0
    weights = ["fixman", str(out / "trajectory.dcd"), "--top", str(folder / "ala3.prmtop"), "-T", "300", "-q"]
    capsys.readouterr()
    assert main(weights) == 0
    assert "4 frames" in capsys.readouterr().out
    assert main(["run", str(folder / "ala3.prmtop"), "--solvent", "tip3p", "-o", str(tmp_path / "no")]) == 2
    assert "expected one of explicit, vacuum" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["prmtop", "psf", "top"])
def test_exchange_takes_parameter_files(folder, tmp_path, kind):
    """Replicas have the energies that OpenMM finds for their frames with the same files; runs resume from anywhere."""
    (file, *coordinates), options = arguments(folder, kind)
    more = ["--coordinates", str(coordinates[0])] if coordinates else []
    more += ["--parameters", *map(str, options["parameters"])] if options else []
    out = tmp_path / "out"
    sizes = ["--replicas", "2", "--tmax", "300", "--iterations", "2", "--interval", "4", "--warm-up", "0"]
    where = ["--solvent", "vacuum", "--platform", "Reference", "--workers", "1", "--seed", "1", "-q", "-o", str(out)]
    assert main(["exchange", str(file), *more, *sizes, *where]) == 0
    assert main(["exchange", "--resume", "--iterations", "4", "--workers", "1", "-q", "-o", str(out)]) == 0
    run = ExchangeRun(out)
    assert run.n_frames == 4
    system, _ = by_openmm(folder, kind)
    for replica in range(2):
        frames = run.frames(np.array([(replica, frame) for frame in range(4)])).xyz.astype(np.float64)
        expected = [energy(system, x) for x in frames]
        assert run.rows["potential"][replica] == pytest.approx(expected, abs=0.05)  # frames in single precision
    assert main(["report", str(out)]) == 0
    assert main(["extract", str(out), "-o", str(tmp_path / "cold.dcd"), "-q"]) == 0


def test_ligands_by_files_and_by_template_generators():
    """A residue that no force field knows: the error names it and both ways, and both ways work."""
    xml = """<ForceField><AtomTypes><Type name="L-Ar" class="Ar" element="Ar" mass="39.948"/></AtomTypes>
    <Residues><Residue name="LIG"><Atom name="AR" type="L-Ar" charge="0.0"/></Residue></Residues>
    <NonbondedForce coulomb14scale="0.8333333333333334" lj14scale="0.5"><UseAttributeFromResidue name="charge"/>
    <Atom type="L-Ar" sigma="0.34" epsilon="1.0"/></NonbondedForce></ForceField>"""
    structure = ptd.load_structure(DATA / "ala1.pdb")
    topology = app.Modeller(structure.topology, structure.positions * unit.nanometer).topology
    residue = topology.addResidue("LIG", topology.addChain("L"), "7")
    topology.addAtom("AR", app.element.argon, residue)
    with pytest.raises(ModelError, match=r"for chain L, residue LIG 7 .*ligand.xml.*generators="):
        ptd.make_system(topology, "vacuum")
    asked = []

    def generator(field, residue):
        from io import StringIO

        asked.append(residue.name)
        field.loadFile(StringIO(xml))
        return True

    assert ptd.make_system(topology, "vacuum", generators=[generator]).getNumParticles() == 23
    assert asked == ["LIG"]


@pytest.mark.skipif(not INPUTS, reason="PEPTIDYN_INPUTS names no folder")
def test_inputs_of_other_programs():
    """Files of AmberTools and CHARMM: the energy equals OpenMM's own, and four-site water runs."""
    inputs = Path(INPUTS)
    loaded = ptd.load_system(inputs / "alanine-dipeptide-implicit.prmtop")
    stock = app.AmberPrmtopFile(str(inputs / "alanine-dipeptide-implicit.prmtop")).createSystem()
    assert energy(loaded.system, loaded.positions) == pytest.approx(energy(stock, loaded.positions), rel=1e-6)
    files = [inputs / "charmm22.rtf", inputs / "charmm22.par"]
    loaded = ptd.load_system(inputs / "ala_ala_ala.psf", parameters=files)
    parameters = app.CharmmParameterSet(*map(str, files))
    stock = app.CharmmPsfFile(str(inputs / "ala_ala_ala.psf")).createSystem(parameters)
    assert energy(loaded.system, loaded.positions) == pytest.approx(energy(stock, loaded.positions), rel=1e-6)
    loaded = ptd.load_system(inputs / "peptide_with_tip4p.prmtop", cutoff=0.5)
    tree = ptd.build_tree(loaded.structure)
    assert len(tree.virtual_sites) == 15
    integrator = ptd.TorsionLangevinIntegrator(tree, 300, 1.0, 0.001, seed=1)
    simulation = ptd.TorsionSimulation(loaded.topology, loaded.system, integrator, "Reference")
    simulation.minimize_torsions(max_iterations=5)
    simulation.step(3)


@pytest.mark.skipif(not INPUTS, reason="PEPTIDYN_INPUTS names no folder")
@pytest.mark.slow
def test_runs_and_replicas_of_a_prmtop_with_four_site_water(tmp_path):
    """Sites are carried into the frames, and read back for reports and when a run goes on."""
    file = str(Path(INPUTS) / "peptide_with_tip4p.prmtop")
    water = ["--solvent", "explicit", "--cutoff", "0.5", "--seed", "1", "-q", "--timestep", "1"]
    one, ladder = tmp_path / "one", tmp_path / "ladder"
    assert main(["run", file, *water, "--steps", "4", "--report", "2", "--equilibrate", "2fs", "-o", str(one)]) == 0
    assert main(["run", "--resume", "--steps", "6", "-q", "-o", str(one)]) == 0
    assert main(["report", str(one), "-q"]) == 0
    sizes = ["--replicas", "2", "--tmax", "290", "--iterations", "2", "--interval", "2", "--warm-up", "0"]
    assert main(["exchange", file, *water, *sizes, "--workers", "1", "-o", str(ladder)]) == 0
    run = ExchangeRun(ladder)
    assert len(run.structure.virtual_sites) == 15 and run.frames(run.places(0)).n_atoms == run.structure.n_atoms
    assert main(["report", str(ladder), "-q"]) == 0

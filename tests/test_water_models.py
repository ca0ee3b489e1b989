"""Water with a virtual site, from the name of the solvent to frames, resumed runs and replicas."""

from __future__ import annotations

from functools import cache

import mdtraj
import numpy as np
import openmm
import pytest
from openmm import app, unit
from real_structures import DATA

import peptidyn as ptd
from peptidyn.cli import main
from peptidyn.core.errors import ModelError
from peptidyn.engine.systems import _WATER_FILES, FORCE_FIELDS, FOUR_SITES
from peptidyn.runs.exchange_run import ExchangeRun
from peptidyn.runs.preparation import prepare_structure
from peptidyn.runs.run_folder import RunFolder
from peptidyn.runs.settings import RunSettings

ARMS = {"tip4pew": 0.0125, "tip4pfb": 0.010527, "tip4p2005": 0.01546, "opc": 0.01594}
"""Distance of the site from oxygen (nm) as the papers give it."""

OPC = np.array([0.7045587810585758, 0.1477206094707121, 0.1477206094707121])
"""Weights of O, H, H in the position of OPC's site."""


@cache
def three_site_box() -> app.Modeller:
    modeller = app.Modeller(app.Topology(), [])
    modeller.addSolvent(app.ForceField("tip3p.xml"), boxSize=openmm.Vec3(1.15, 1.15, 1.15) * unit.nanometer)
    return modeller


@pytest.fixture
def water_file(tmp_path):
    """A box full of water of three sites, as a PDB file."""
    file = tmp_path / "water.pdb"
    box = three_site_box()
    with file.open("w") as stream:
        app.PDBFile.writeFile(box.topology, box.positions, stream)
    return file


def at_rest(system, x):
    """Return the energy (kJ/mol) and positions with constraints and sites in place."""
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(x)
    context.applyConstraints(1e-10)
    context.computeVirtualSites()
    state = context.getState(energy=True, positions=True)
    return state.getPotentialEnergy()._value, state.getPositions(asNumpy=True)._value


@pytest.mark.parametrize(
    ("field", "solvent"),
    [
        ("amber14", "tip4pew"),
        ("amber14", "tip4pfb"),
        ("amber19", "opc"),
        pytest.param("charmm36", "tip4p2005", marks=pytest.mark.slow),
    ],
)
def test_a_box_of_three_sites_gets_the_fourth(water_file, field, solvent):
    """The energy is that of a System that OpenMM makes alone, and the site is where the paper puts it."""
    structure = prepare_structure(RunSettings(file=str(water_file), solvent=solvent, forcefield=field))
    n = three_site_box().topology.getNumResidues()
    assert structure.atoms.element.tolist() == ["O", "H", "H", ""] * n and len(structure.virtual_sites) == n
    system = ptd.make_system(structure.topology, solvent, field, cutoff=0.5, rigid_water=True)
    placed = ptd.Structure.from_openmm(structure.topology, system, structure.positions)
    assert list(placed.virtual_sites) == list(range(3, 4 * n, 4)) and (placed.masses[3::4] == 0).all()
    protein = [FORCE_FIELDS[field]] if field == "charmm36" else []  # whose Lennard-Jones terms are one force for all
    stock_field = app.ForceField(*protein, _WATER_FILES[field][solvent])
    stock = app.Modeller(three_site_box().topology, three_site_box().positions)
    stock.addExtraParticles(stock_field)
    own = stock_field.createSystem(stock.topology, nonbondedMethod=app.PME, nonbondedCutoff=0.5, rigidWater=True)
    found, x = at_rest(system, placed.positions)
    assert found == pytest.approx(at_rest(own, x)[0], rel=1e-6) and -60 < found / n < 0
    assert np.linalg.norm(x[3::4] - x[0::4], axis=1) == pytest.approx(ARMS[solvent], abs=2e-5)


def test_waters_without_the_site_are_named():
    box = three_site_box()
    with pytest.raises(ModelError, match=r"virtual site in chain 1, residue HOH 1; .*addExtraParticles"):
        ptd.make_system(box.topology, "opc", cutoff=0.5)


def test_a_box_is_as_wide_as_two_cutoffs_and_waters_have_no_constraints_unless_asked():
    box = three_site_box()  # 1.15 nm wide
    with pytest.raises(ModelError, match=r"1\.15 nm wide, less than twice the cutoff of 0\.6 nm"):
        ptd.make_system(box.topology, "tip3p", cutoff=0.6)
    n = box.topology.getNumResidues()
    for rigid in (False, True):
        system = ptd.make_system(box.topology, "tip3p", cutoff=0.55, rigid_water=rigid)
        assert system.getNumConstraints() == (3 * n if rigid else 0)
        (force,) = (f for f in system.getForces() if isinstance(f, openmm.NonbondedForce))
        assert force.getCutoffDistance()._value == 0.55


def test_every_word_has_a_file():
    assert set(_WATER_FILES) == set(FORCE_FIELDS)
    for field, waters in _WATER_FILES.items():
        for name, file in waters.items():
            (water,) = (t for t in app.ForceField(file)._templates.values() if len(t.atoms) > 2)
            sites = sum(atom.element is None for atom in water.atoms)
            assert (len(water.atoms), sites) == ((4, 1) if name in FOUR_SITES else (3, 0)), (field, name)


def check_sites(frames, n):
    """Sites of OPC are where its three atoms put them, in frames (n_frames, 4 n, 3) in single precision."""
    atoms = frames.reshape(len(frames), n, 4, 3)
    assert np.abs(np.einsum("k,fnkx->fnx", OPC, atoms[:, :, :3]) - atoms[:, :, 3]).max() < 1e-6
    assert np.linalg.norm(atoms[:, :, 1] - atoms[:, :, 0], axis=2) == pytest.approx(0.0872433, abs=1e-5)


@pytest.mark.slow
def test_runs_resume_and_start_again(water_file, tmp_path):
    """Frames hold the sites; a run continues from them; from the last frame another water model goes on."""
    folder = tmp_path / "opc"
    quick = ["--equilibrate", "8fs", "--report", "2", "-q", "--platform", "CPU"]
    assert (
        main(["run", str(water_file), "--solvent", "opc", "--cutoff", "0.5", "--steps", "4", "-o", str(folder), *quick])
        == 0
    )
    assert main(["run", "--resume", "--steps", "8", "-q", "-o", str(folder)]) == 0
    trajectory = mdtraj.load(folder / "trajectory.dcd", top=folder / "topology.pdb")
    n = trajectory.n_atoms // 4
    assert trajectory.n_frames == 4 and n == three_site_box().topology.getNumResidues()
    check_sites(trajectory.xyz, n)
    assert len(RunFolder(folder).tree.virtual_sites) == n
    structure = prepare_structure(RunSettings(file=str(folder / "topology.cif"), solvent="tip3p"))
    assert structure.n_atoms == 3 * n
    other = ["run", "--from", str(folder), "--solvent", "tip3p", "--steps", "2", "-o", str(tmp_path / "tip3p"), *quick]
    assert main(other) == 0
    assert mdtraj.load(tmp_path / "tip3p" / "trajectory.dcd", top=tmp_path / "tip3p" / "topology.pdb").n_atoms == 3 * n


@pytest.mark.slow
def test_replicas(water_file, tmp_path):
    folder = tmp_path / "ladder"
    length = ["--replicas", "2", "--tmax", "290", "--iterations", "2", "--interval", "2", "--warm-up", "0"]
    options = ["--solvent", "opc", "--cutoff", "0.5", "--workers", "1", "-q", "-o", str(folder)]
    assert main(["exchange", str(water_file), *length, *options]) == 0
    assert main(["exchange", "--resume", "--iterations", "3", "--workers", "1", "-q", "-o", str(folder)]) == 0
    run = ExchangeRun(folder)
    n = run.structure.n_residues
    assert run.n_frames == 3 and run.structure.n_atoms == 4 * n
    check_sites(run.frames(run.places(0)).xyz, n)


def test_a_peptide_in_new_water(tmp_path):
    settings = RunSettings(file=str(DATA / "ala1.pdb"), solvent="tip4pew", padding=0.1, cutoff=0.5, seed=1)
    structure = prepare_structure(settings)
    waters = structure.n_residues - 3
    assert waters > 5 and structure.n_atoms == 22 + 4 * waters and len(structure.virtual_sites) == waters
    kept = ptd.load_structure(DATA / "ala1.pdb")
    assert np.allclose(np.diff(structure.positions[:22], axis=0), np.diff(kept.positions, axis=0))

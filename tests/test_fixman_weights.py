"""Fixman weights: trajectories of rigid chains, weighted from end to end."""

from __future__ import annotations

import csv

import numpy as np
import openmm
import pytest
from openmm import app, unit
from random_trees import random_state
from real_structures import DATA, load
from scipy.stats import chi2

import peptidyn as ptd
from peptidyn.cli import main
from peptidyn.core.errors import ArgumentError, TrajectoryError
from peptidyn.core.statistics import weighted_average, weighted_histogram


def bead_positions(torsions):
    """Return positions (n, 6, 3) of chains of six beads, bonds 0.15 nm, angles 110 degrees, for torsions (n, 3)."""
    n = len(torsions)
    angle, length = np.deg2rad(110), 0.15
    x = np.zeros((n, 6, 3))
    x[:, 1, 0] = length
    x[:, 2] = x[:, 1] + length * np.array([-np.cos(angle), np.sin(angle), 0.0])
    for i in range(3, 6):
        along = (x[:, i - 1] - x[:, i - 2]) / length
        normal = np.cross(x[:, i - 2] - x[:, i - 3], along)
        normal /= np.linalg.norm(normal, axis=1, keepdims=True)
        side = np.cross(normal, along)
        t = torsions[:, i - 3, None]
        x[:, i] = x[:, i - 1] + length * (
            -np.cos(angle) * along + np.sin(angle) * (np.cos(t) * side + np.sin(t) * normal)
        )
    return x


def log_root_det(x, mass):
    """Return ln sqrt(det M) of chains of six beads from their positions alone: M = J^T m J with a free base."""
    n = len(x)
    J = np.zeros((n, 6, 3, 9))
    for i, e in enumerate(np.eye(3)):
        J[:, :, i, i] = 1.0
        J[:, :, :, 3 + i] = np.cross(e, x)
    for k in range(3):
        axis = x[:, k + 2] - x[:, k + 1]
        axis /= np.linalg.norm(axis, axis=1, keepdims=True)
        J[:, k + 3 :, :, 6 + k] = np.cross(axis[:, None], x[:, k + 3 :] - x[:, None, k + 2])
    J = J.reshape(n, 18, 9)
    return 0.5 * np.linalg.slogdet(mass * np.einsum("nik,nil->nkl", J, J))[1]


def rigid_sample(n: int, rng: np.random.Generator):
    """Return n independent force-free conformations as rigid dynamics without U_F samples them: ~ sqrt(det M)."""
    torsions = rng.uniform(-np.pi, np.pi, (4 * n, 3))
    x = bead_positions(torsions)
    log_density = log_root_det(x, 12.0)
    keep = np.flatnonzero(np.log(rng.uniform(size=4 * n)) < log_density - log_density.max())[:n]
    assert len(keep) == n
    return x[keep]


def flatness(torsions, weights, bins=12):
    """Return chi-square of flat torsion marginals in units of the error bars, and the degrees of freedom."""
    total = 0.0
    for column in torsions.T:
        density, error, _ = weighted_histogram(column, weights, bins, (-np.pi, np.pi))
        total += float((((density - 1 / (2 * np.pi)) / error) ** 2).sum())
    return total * (bins - 1) / bins, torsions.shape[1] * (bins - 1)


@pytest.mark.slow
def test_force_free_chain_becomes_flat():
    """Without weights the marginals follow sqrt(det M) and are not flat; with them they are. False-alarm rate 1e-4."""
    frames = rigid_sample(40000, np.random.default_rng(1))
    tree = ptd.bead_chain(6, 0.15, np.deg2rad(110), 12.0, torsion=1.2)
    result = ptd.fixman_weights(tree, frames, 300)
    assert not result.deformed.any() and result.misfit.max() < 1e-12
    biased, dof = flatness(result.torsions, np.ones(len(result)))
    corrected, _ = flatness(result.torsions, result.weights)
    assert biased > 3 * chi2.isf(1e-4, dof)
    assert corrected < chi2.isf(1e-4, dof)
    # the inverse weights of a flat sample would restore the bias; here they double it
    doubled, _ = flatness(result.torsions, result.inverse_weights)
    assert doubled > biased


def constrained_alanine(folder, steps=400):
    """Run capped alanine with all bonds and the angles of hydrogens constrained by OpenMM; return its files.

    OpenMM's constraint solver does not converge when all angles are constrained, so its HAngles is as far as it goes.
    """
    structure = load(DATA / "ala1.pdb")
    system = app.ForceField("amber14-all.xml").createSystem(structure.topology, constraints=app.HAngles)
    x = structure.positions
    integrator = openmm.LangevinMiddleIntegrator(300, 1.0, 0.001)
    integrator.setRandomNumberSeed(1)
    simulation = app.Simulation(structure.topology, system, integrator, openmm.Platform.getPlatformByName("Reference"))
    simulation.context.setPositions(x)
    simulation.context.applyConstraints(1e-8)
    simulation.context.setVelocitiesToTemperature(300, 1)
    trajectory = folder / "run.dcd"
    simulation.reporters.append(app.DCDReporter(str(trajectory), 10))
    simulation.step(steps)
    topology = folder / "start.pdb"
    topology.write_bytes((DATA / "ala1.pdb").read_bytes())
    return topology, trajectory


def test_constrained_openmm_trajectory_through_the_command_line(tmp_path, capsys):
    topology, trajectory = constrained_alanine(tmp_path)
    table = tmp_path / "weights.csv"
    arguments = ["fixman", trajectory, "--top", topology, "-T", "300", "--soft", "phi psi omega methyl"]
    assert main([*map(str, arguments), "-o", str(table), "--plot", "-q"]) == 0
    out = capsys.readouterr().out
    assert "40 frames at 300 K" in out and "effective sample size" in out
    rows = list(csv.DictReader(table.open()))
    assert len(rows) == 40
    weights = np.array([float(r["weight"]) for r in rows])
    assert weights.sum() == pytest.approx(1.0) and (weights > 0).all()
    energy = np.array([float(r["U_F_kJ_per_mol"]) for r in rows])
    kT = 0.00831446261815324 * 300
    assert np.log(weights[0] / weights[5]) == pytest.approx(-(energy[0] - energy[5]) / kT, rel=1e-9)
    assert (tmp_path / "weights.png").stat().st_size > 10000
    # the same again is refused, and changes nothing
    assert main([*map(str, arguments), "-o", str(table)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    # the angles of heavy atoms were free in that run, which is reported, not hidden
    assert "warning: in" in out and "deformed by more than 0.005 nm" in out
    assert any(row["deformed"] == "1" for row in rows)
    assert main([*map(str, arguments), "--tolerance", "0.1", "-q"]) == 0
    assert "all frames are rigid within 0.1 nm" in capsys.readouterr().out


def test_map_through_the_command_line(tmp_path, capsys):
    table = tmp_path / "map.csv"
    arguments = ["fixman", "--map", str(DATA / "ala1.pdb"), "--residue", "2", "-o", str(table), "--plot"]
    assert main(arguments) == 0
    assert "spans 0.4" in capsys.readouterr().out
    rows = list(csv.DictReader(table.open()))
    assert len(rows) == 72 * 72
    assert (tmp_path / "map.png").stat().st_size > 20000


def test_weights_of_exactly_rigid_frames():
    tree = ptd.build_tree(load(DATA / "ala3.pdb"))
    rng = np.random.default_rng(0)
    states = [random_state(tree, rng) for _ in range(250)]
    frames = np.stack([tree.positions(s) for s in states])
    result = ptd.fixman_weights(tree, frames, 300 * unit.kelvin)
    potential = ptd.FixmanPotential(tree, 300)
    assert result.energy == pytest.approx([potential.energy(s) for s in states], abs=1e-9)
    assert result.weights.sum() == pytest.approx(1.0)
    w = np.exp(-(result.energy - result.energy.min()) / potential.kT)
    assert result.weights == pytest.approx(w / w.sum(), rel=1e-12)
    assert 1 < result.effective_sample_size <= 250
    mean, error = result.average(np.cos(result.torsions))
    assert mean.shape == error.shape == (tree.n_torsions,)


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["fixman"], "either a trajectory"),
        (["fixman", "t.dcd"], "--top"),
        (["fixman", "t.dcd", "--top", "ala1.pdb", "-T", "-3"], "temperature"),
        (["fixman", "t.dcd", "--top", "ala10.pdb", "-T", "300"], "t.dcd"),
        (["fixman", "t.dcd", "--top", "ala1.pdb", "-T", "300", "--select", "resname XYZ"], "matches no atom"),
        (["fixman", "--map", "ala1.pdb"], "--residue"),
        (["fixman", "--map", "ala1.pdb", "--residue", "77"], "residue 77"),
        (["fixman", "t.dcd", "--top", "ala1.pdb", "-T", "300", "-o", "no/where.csv"], "does not exist"),
    ],
)
def test_bad_input(tmp_path, monkeypatch, capsys, arguments, phrase):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ala1.pdb").write_bytes((DATA / "ala1.pdb").read_bytes())
    (tmp_path / "ala10.pdb").write_bytes((DATA / "ala10-helix.pdb").read_bytes())
    load(DATA / "ala1.pdb").to_mdtraj().save("t.dcd")
    before = sorted(p.name for p in tmp_path.iterdir())
    assert main([*arguments, "-q"] if arguments[0] == "fixman" else arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and phrase in captured.err
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_bad_arguments():
    tree = ptd.build_tree(load(DATA / "ala1.pdb"))
    with pytest.raises(TrajectoryError, match="expected"):
        ptd.fixman_weights(tree, np.zeros((3, 5, 3)), 300)
    with pytest.raises(ArgumentError, match="tolerance"):
        ptd.fixman_weights(tree, np.zeros((3, 22, 3)), 300, tolerance=0)
    with pytest.raises(ArgumentError, match="one per frame"):
        weighted_average(np.zeros(3), np.zeros(4))


def test_positions_that_are_not_numbers_are_refused():
    tree = ptd.bead_chain(4, 0.15, np.deg2rad(110), 12.0)
    frames = np.tile(tree.positions(tree.reference), (3, 1, 1))
    frames[1, 2, 0] = np.nan
    with pytest.raises(TrajectoryError, match="frame 1 of the trajectory"):
        ptd.fixman_weights(tree, frames, 300)

"""Rings that move: macrocycles, disulfides and prolines with everything soft, at the step of the preset.

Rings are cut at one bond, which the force field alone holds: its length must have the mean and the width that the
force field gives it. A harmonic bond of curvature k has the width sqrt(kT / k).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import mdtraj
import numpy as np
import openmm
import pytest
from openmm import app, unit
from scipy.linalg import eigh
from scipy.optimize import least_squares

import peptidyn as ptd
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.stiffness import measure_stiffness
from peptidyn.runs.model import make_model
from peptidyn.runs.presets import PRESETS
from peptidyn.runs.settings import ExchangeSettings, RunSettings

STEP = 1e-3 * PRESETS["flexible"].langevin
STEPS, EVERY = 1000, 5


def closed_peptide(sequence, caps, drop, pairs, soft):
    """Return a relaxed peptide with a bond between the first two atoms of `pairs`, and its System.

    Torsions are turned until all pairs have their distances (nm), before the bond is made; `drop` names the atoms that
    the bond replaces. Atoms are given by residue, counted from 0, and name.
    """
    chain = ptd.build_peptide(sequence, phi=-70, psi=100, caps=caps)
    modeller = app.Modeller(chain.topology, chain.positions * unit.nanometer)
    modeller.delete([a for a in modeller.topology.atoms() if (a.residue.index, a.name) in drop])
    topology = modeller.topology
    place = {(a.residue.index, a.name): a for a in topology.atoms()}
    positions = np.array(modeller.positions.value_in_unit(unit.nanometer))
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, None, positions), soft=soft)
    first, second = ([place[pair[k]].index for pair in pairs] for k in (0, 1))
    wanted = np.array([pair[2] for pair in pairs])

    def turned(turns):
        return tree.positions(tree.reference.replace(torsions=tree.reference.torsions + turns))

    def miss(turns):
        x = turned(turns)
        return np.append(30.0 * (np.linalg.norm(x[first] - x[second], axis=1) - wanted), 0.02 * turns)

    rng = np.random.default_rng(0)
    fits = [least_squares(miss, rng.normal(scale=0.3, size=tree.n_torsions)) for _ in range(5)]
    best = min(fits, key=lambda fit: fit.cost)
    topology.addBond(place[pairs[0][0]], place[pairs[0][1]])
    return relaxed(topology, turned(best.x))


def relaxed(topology, positions):
    system = ptd.make_system(topology, "obc2")
    context = openmm.Context(
        system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("CPU"), {"Threads": "1"}
    )
    context.setPositions(positions)
    openmm.LocalEnergyMinimizer.minimize(context, 10.0, 2000)
    x = context.getState(positions=True).getPositions(asNumpy=True)
    return ptd.Structure.from_openmm(topology, system, x), system


@cache
def cyclic_alanine():
    """Cyclo-(Ala)6, with a planar amide where the ring is closed."""
    pairs = [
        ((0, "N"), (5, "C"), 0.1335), ((0, "CA"), (5, "C"), 0.2435), ((0, "N"), (5, "CA"), 0.2435),
        ((0, "N"), (5, "O"), 0.225), ((0, "CA"), (5, "CA"), 0.38),
    ]  # fmt: skip
    return closed_peptide("AAAAAA", False, {(0, "H2"), (0, "H3"), (5, "OXT")}, pairs, "phi psi")


@cache
def oxytocin():
    pairs = [((1, "SG"), (6, "SG"), 0.205), ((1, "CB"), (6, "SG"), 0.305), ((1, "SG"), (6, "CB"), 0.305)]
    return closed_peptide("CYIQNCPLG", True, {(1, "HG"), (6, "HG")}, pairs, "phi psi chi")


@cache
def prolines():
    structure = ptd.build_peptide("APPGPA")
    return relaxed(structure.topology, structure.positions)


def simulate(structure, system, temperature, steps, timestep=STEP):
    """Return the tree and the positions (n_frames, n_atoms, 3) of a run with everything soft, one fifth left out."""
    tree = ptd.build_tree(structure, soft=PRESETS["flexible"].soft)
    integrator = ptd.TorsionLangevinIntegrator(tree, temperature, 1.0, timestep, seed=1, metric="auto")
    simulation = ptd.TorsionSimulation(structure.topology, system, integrator, "CPU", {"Threads": "1"})
    simulation.set_velocities_to_temperature(temperature)
    simulation.step(steps // 5)
    frames = []
    for _ in range(steps // EVERY):
        simulation.step(EVERY)
        frames.append(np.array(simulation.context.getState(positions=True).getPositions(asNumpy=True)._value))
    return tree, np.array(frames)


def dihedrals(structure, frames, atoms):
    """Return dihedral angles (n_frames, n), rad, of atoms (n, 4)."""
    return mdtraj.compute_dihedrals(mdtraj.Trajectory(frames, structure.to_mdtraj().topology), atoms)


def harmonic_bonds(system):
    (force,) = [f for f in system.getForces() if isinstance(f, openmm.HarmonicBondForce)]
    terms = [force.getBondParameters(i) for i in range(force.getNumBonds())]
    return {tuple(sorted(term[:2])): (term[2]._value, term[3]._value) for term in terms}


@pytest.mark.parametrize(("make", "cut"), [(cyclic_alanine, 1), (oxytocin, 3), (prolines, 3)])
def test_rings_move_and_their_closing_bonds_are_those_of_the_force_field(make, cut):
    """200 frames of 1,000 steps, thermal at 1/ps: means within 60% of a width, widths within 30%.

    A bond that hung on its joints alone, or was kept rigid, would be off by its whole width.
    """
    structure, system = make()
    tree, frames = simulate(structure, system, 300.0, STEPS)
    assert len(tree.cut_bonds) == cut and tree.n_dof == 3 * structure.n_atoms
    bonds = harmonic_bonds(system)
    for i, j in tree.cut_bonds.tolist():
        length, k = bonds[tuple(sorted((i, j)))]
        width = np.sqrt(BOLTZMANN * 300.0 / k)
        r = np.linalg.norm(frames[:, i] - frames[:, j], axis=1)
        assert abs(r.mean() - length) < 0.6 * width
        assert r.std() == pytest.approx(width, rel=0.3)
    atoms = structure.atoms.residue_atoms
    for residue, names in enumerate(atoms[:-1]):
        if {"N", "CA", "C"} <= set(names) and "N" in atoms[residue + 1]:
            four = [names["N"], names["CA"], names["C"], atoms[residue + 1]["N"]]
            psi = dihedrals(structure, frames, [four])[:, 0]
            assert np.std(np.angle(np.exp(1j * (psi - psi[0])))) > np.deg2rad(2.0)


@pytest.mark.parametrize(("make", "step", "stopped"), [(cyclic_alanine, 0.002, True), (oxytocin, 0.004, False)])
def test_loops_slow_nothing_down_at_short_steps(make, step, stopped):
    """Masses keep the bond that closes a loop slow enough; at long steps inertias do, and a note says what they stop.

    With a bound on the couplings of the loop alone torsions of its backbone would weigh 10 to 1,000 Da nm^2 at 4 fs.
    """
    structure, system = make()
    tree = ptd.build_tree(structure, soft=PRESETS["angles"].soft)
    backbone = [i for i, c in enumerate(tree.coordinates) if c.kind in ("phi", "psi")]
    assert not ptd.joint_inertia(tree, system, step)[backbone].any()
    K = np.zeros((tree.n_dof, tree.n_dof))
    K[np.ix_(tree.coordinate_dof, tree.coordinate_dof)] = measure_stiffness(tree, system).toarray()
    for h in (step, STEP):
        slowed = tree.with_joint_inertia(ptd.joint_inertia(tree, system, h))
        fastest = eigh(K, ptd.mass_matrix(slowed, slowed.reference), eigvals_only=True)[-1]
        assert fastest < 1.05 * (2.0 * np.pi / (8.0 * h)) ** 2
        integrator = ptd.TorsionLangevinIntegrator(tree, 300, 1.0, h, metric="auto")
        ptd.TorsionSimulation(structure.topology, system, integrator, "Reference")
        assert any("all but stop" in note for note in integrator.notes) == (stopped and h == STEP)


@pytest.mark.parametrize("make", [cyclic_alanine, oxytocin, prolines])
@pytest.mark.parametrize("kind", [RunSettings(seed=1, preset="flexible"), ExchangeSettings(seed=1, preset="angles")])
def test_the_default_step_is_the_largest_at_which_loops_move(make, kind):
    """The default is 16 and 24 fs, or a half or a quarter of that; a step that is given stays."""
    structure, _ = make()
    model = make_model(kind, structure)
    tree, usual = model.tree, 1e3 * kind.timestep_ps
    period = 8.0 if isinstance(kind, RunSettings) else 7.5 * tree.n_coordinates ** (1.0 / 6.0)

    def stopped(step):
        inertia = ptd.joint_inertia(tree, model.system, 1e-3 * step, steps_per_period=period)
        return inertia[tree.torsion_index].max() > 100.0

    step = usual  # prolines are small rings
    if make is not prolines:
        step = next((step for step in (usual, usual / 2) if not stopped(step)), usual / 4)
    assert model.settings.timestep == step and model.settings == replace(kind, timestep=step)
    assert [f"is {step:g} fs, because at {usual:g} fs" in note for note in model.notes] == [True] * (step < usual)
    given = make_model(replace(kind, timestep=usual), structure)
    assert given.settings.timestep == usual and not given.notes


@pytest.mark.slow
def test_the_pucker_of_proline_changes_sign():
    """At 600 K all prolines visit chi1 above and below zero: the ring is not a rigid body."""
    structure, system = prolines()
    _, frames = simulate(structure, system, 600.0, 10 * STEPS, 0.5 * STEP)  # atoms collide harder
    puckers = [
        [names[name] for name in ("N", "CA", "CB", "CG")]
        for names, label in zip(structure.atoms.residue_atoms, structure.atoms.residue_name, strict=True)
        if label == "PRO"
    ]
    chi = np.rad2deg(dihedrals(structure, frames, puckers))
    assert len(puckers) == 3 and (chi.max(axis=0) > 15.0).all() and (chi.min(axis=0) < -15.0).all()


def test_a_loop_moves_between_frozen_anchors_that_stay_one_body():
    """The two parts of one rigid selection keep all their distances, and the closing bond its length within 10%."""
    peptide = ptd.build_peptide("A" * 12)
    structure, system = relaxed(peptide.topology, peptide.positions)
    tree = ptd.build_tree(structure, "phi psi", rigid="resid 1 to 4 or resid 8 to 11")
    ((i, j),) = tree.cut_bonds
    integrator = ptd.TorsionLangevinIntegrator(tree, 300, 1.0, 0.001, seed=1)
    simulation = ptd.TorsionSimulation(structure.topology, system, integrator, "Reference")
    simulation.set_velocities_to_temperature(300)
    anchors = np.flatnonzero(np.isin(tree.atoms.residue, [*range(1, 5), *range(8, 12)]))
    before = structure.positions[anchors]
    loop = [t for t in range(tree.n_torsions) if 4 <= tree.atoms.residue[tree.torsions[t].atoms[1]] <= 7]
    start, moved, lengths = integrator.motion()[0].torsions[loop], 0.0, []
    for _ in range(20):
        simulation.step(10)
        x = np.array(simulation.context.getState(positions=True).getPositions(asNumpy=True)._value)
        moved = np.maximum(moved, np.abs(integrator.motion()[0].torsions[loop] - start))
        lengths.append(np.linalg.norm(x[i] - x[j]))
    assert len(loop) >= 6 and (moved > 0.005).all()
    apart = [np.linalg.norm(y[:, None] - y[None], axis=2) for y in (before, x[anchors])]
    assert np.abs(apart[0] - apart[1]).max() < 1e-9
    length, _ = harmonic_bonds(system)[min(i, j), max(i, j)]
    assert np.abs(np.array(lengths) / length - 1.0).max() < 0.1

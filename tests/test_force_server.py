"""Steps with forces through OpenMM's C functions are those with forces through Python, to the last bit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import openmm
import pytest
from random_trees import random_state

import peptidyn as ptd
from peptidyn.core.errors import StepError
from peptidyn.engine import force_server
from peptidyn.engine.force_server import ForceServer, can_serve
from peptidyn.integrators.mover import Mover
from peptidyn.kernels.foreign import ask_forces
from peptidyn.kernels.lanes import KIND
from peptidyn.sampling.moves import TorsionalLangevin
from peptidyn.sampling.walker import Walker

pytestmark = pytest.mark.skipif(KIND != "vector", reason="plain kernels ask for forces from Python only")

PLATFORM = openmm.Platform.getPlatformByName("Reference")


@pytest.fixture(scope="module")
def alanine() -> tuple[Any, Any]:
    """Capped alanine with everything soft: its tree and System."""
    structure = ptd.build_peptide("A")
    system = ptd.make_system(structure.topology)
    return ptd.build_tree(ptd.Structure.from_openmm(structure.topology, system, structure.positions), "all"), system


def start(alanine: tuple[Any, Any], kind: str, served: bool = True) -> tuple[Any, Any]:
    """Return an integrator and its Context, with thermal momenta."""
    tree, system = alanine
    if kind == "verlet":
        integrator: Any = ptd.TorsionVerletIntegrator(tree, 0.012, seed=4, metric="auto")
    else:
        integrator = ptd.TorsionLangevinIntegrator(tree, 300, 1.0, 0.016, seed=4, metric="auto")
    context = openmm.Context(system, integrator, PLATFORM)
    context.setPositions(tree.positions(tree.reference))
    integrator.set_velocities_to_temperature(300)
    assert integrator._server is not None
    if not served:
        integrator._server = None
    return integrator, context


def motion(context: Any) -> np.ndarray:
    state = context.getState(positions=True, velocities=True)
    return np.array([state.getPositions(asNumpy=True)._value, state.getVelocities(asNumpy=True)._value])


def test_forces_are_those_of_the_context(alanine):
    tree, system = alanine
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), PLATFORM)
    context.setPositions(tree.positions(tree.reference))
    server = ForceServer(context)
    x, force = tree.positions(tree.reference) + 0.001, np.empty((tree.n_atoms, 3))
    for groups in (-1, 1 << 3, -1):
        server.set_groups(groups)
        assert ask_forces(server.calls, x, force)
        context.setPositions(x)
        wanted = context.getState(forces=True, groups=groups).getForces(asNumpy=True)._value
        assert np.array_equal(force, wanted)


@pytest.mark.parametrize("kind", ["langevin", "verlet"])
def test_steps_are_those_of_python(alanine, kind, monkeypatch):
    monkeypatch.setattr("peptidyn.engine.torsion_integrator.CYCLES", 7)
    (served, one), (asked, other) = start(alanine, kind), start(alanine, kind, served=False)
    for steps in (1, 2, 23):
        served.step(steps)
        asked.step(steps)
        assert np.array_equal(motion(one), motion(other))
        assert served.rng.bit_generator.state == asked.rng.bit_generator.state
        assert one.getStepCount() == other.getStepCount() and one.getTime() == other.getTime()
        assert served.potential_energy() == asked.potential_energy()
        assert np.array_equal(served.mover.iterations, asked.mover.iterations) and served.solver_iterations > 0


def test_drifts_that_fell_back_are_counted(alanine, monkeypatch):
    from peptidyn.kernels import cycles

    integrator, _context = start(alanine, "langevin")
    integrator.step(2)
    usual, before = cycles.run_cycles, integrator.drift_fallbacks

    def two_more(*arguments: Any) -> Any:
        result = usual(*arguments)
        integrator.mover.cycles[1] += 2
        return result

    monkeypatch.setattr(cycles, "run_cycles", two_more)
    integrator.step(5)
    assert integrator.drift_fallbacks == before + 2


def test_steps_whose_drift_fell_back_are_counted_one_by_one(monkeypatch):
    """Five beads without forces at 25 times thermal speed: more than three of thirty steps need Anderson's method."""
    monkeypatch.setattr("peptidyn.engine.torsion_integrator.CYCLES", 11)
    tree = ptd.bead_chain(5, 0.15, 1.9, [12.0, 3.0, 7.0, 1.0, 5.0], torsion=[1.0, 2.0]).with_joint_inertia([0.05, 0.1])
    rng, system, counts = np.random.default_rng(15), openmm.System(), []
    for mass in tree.masses:
        system.addParticle(mass)
    mover = Mover(tree, random_state(tree, rng))
    mover.thermalise(0.0, 25.0**2 * 2.5, rng)
    for served in (True, False):
        integrator = ptd.TorsionVerletIntegrator(tree, 0.004)
        context = openmm.Context(system, integrator, PLATFORM)
        integrator.bind(context)
        integrator.set_motion(mover.state, mover.momentum)
        assert integrator._server is not None
        if not served:
            integrator._server = None
        integrator.step(30)
        assert context.getStepCount() == 30
        counts.append(integrator.drift_fallbacks)
    assert counts[0] == counts[1] and 3 < counts[0] < 30


def test_force_groups_count(alanine):
    for force in alanine[1].getForces():
        force.setForceGroup(2 if isinstance(force, openmm.NonbondedForce) else 1)
    moved = []
    for served in (True, False):
        integrator, context = start(alanine, "langevin", served)
        integrator.setIntegrationForceGroups({2})
        integrator.step(5)
        moved.append(motion(context))
    for force in alanine[1].getForces():
        force.setForceGroup(0)
    everything, context = start(alanine, "langevin")
    everything.step(5)
    assert np.array_equal(*moved)
    assert not np.allclose(moved[0], motion(context), atol=1e-6)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_loses_no_more_than_a_step(alanine, when, monkeypatch):
    monkeypatch.setattr("peptidyn.engine.torsion_integrator.CYCLES", 6)
    from peptidyn.kernels import cycles

    usual, calls = cycles.run_cycles, []

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2 and when == "before":
            raise KeyboardInterrupt
        result = usual(*arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return result

    (broken, one), (whole, other) = start(alanine, "langevin"), start(alanine, "langevin")
    monkeypatch.setattr(cycles, "run_cycles", interrupted)
    with pytest.raises(KeyboardInterrupt):
        broken.step(30)
    monkeypatch.setattr(cycles, "run_cycles", usual)
    assert one.getStepCount() == (6 if when == "before" else 12)
    assert one.getTime()._value == pytest.approx(0.016 * one.getStepCount(), rel=1e-12)
    broken.step(30 - one.getStepCount())
    whole.step(30)
    np.testing.assert_allclose(motion(one), motion(other), rtol=0, atol=1e-8)
    assert broken.rng.bit_generator.state == whole.rng.bit_generator.state


def test_a_step_that_fails_is_reported_as_from_python(alanine):
    messages = []
    for served in (True, False):
        integrator, context = start(alanine, "langevin", served)
        context.setVelocities(40.0 * motion(context)[1])
        with pytest.raises(StepError) as error:
            integrator.step(20_000)
        messages.append(str(error.value))
        assert np.isfinite(motion(context)).all()
    assert messages[0] == messages[1]


def test_a_drift_that_fails_ends_the_cycles(alanine):
    """With thousandfold momenta not even the first of three is made."""
    integrator, _context = start(alanine, "verlet")
    mover = integrator.lend_mover()
    mover.momentum *= 1000.0
    before = mover.save()
    mover.mark()
    mover.note_drift(0.012)
    integrator._server.set_groups(-1)
    assert mover.run_cycles(([], []), np.empty((3, 0)), integrator._server.calls) == 0
    assert mover.cycles[0] == 1
    mover.undo()
    assert all(np.array_equal(a, b) for a, b in zip(mover.save(), before, strict=True))


@pytest.mark.parametrize("cycles", [1, 3])
def test_forces_that_are_not_finite_end_the_cycles(alanine, cycles):
    """The last one as well: a cycle without forces at its end is not made."""
    tree, system = alanine
    force = openmm.CustomExternalForce("strength*x")
    force.addGlobalParameter("strength", 0.0)
    force.addParticle(0)
    system = openmm.XmlSerializer.clone(system)
    system.addForce(force)
    integrator, context = start((tree, system), "verlet")
    mover = integrator.lend_mover()
    integrator._server.set_groups(-1)
    for strength, made in ((0.0, cycles), (np.nan, 0)):
        context.setParameter("strength", strength)
        mover.mark()
        mover.note_drift(0.012)
        assert mover.run_cycles(([], []), np.empty((cycles, 0)), integrator._server.calls) == made
        mover.undo()


def test_atoms_that_are_nowhere_are_not_asked_about(alanine):
    tree, system = alanine
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("CPU"))
    context.setPositions(tree.positions(tree.reference))
    server, force = ForceServer(context), np.empty((tree.n_atoms, 3))
    for bad in (np.nan, np.inf, -1e30, 1.1e6, -1.1e6):
        for place in ((3, 1), (0, 0), (-1, 2)):
            x = tree.positions(tree.reference)
            x[place] = bad
            assert not ask_forces(server.calls, x, force)
    far = tree.positions(tree.reference) + 9e3  # a molecule that has drifted far away is none of these
    assert ask_forces(server.calls, far, force) and np.abs(force).max() > 1.0
    x = tree.positions(tree.reference)
    x[3, 1] = x[4, 1]
    x[3] = x[4]  # two atoms in one place
    assert not ask_forces(server.calls, x, force) or np.isfinite(force).all()


def test_forces_that_may_raise_are_asked_from_python(alanine, monkeypatch):
    tree, system = alanine
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), PLATFORM)
    assert can_serve(context)
    with_python = openmm.XmlSerializer.clone(system)
    with_python.addForce(ptd.FixmanForce(tree, 300))
    assert not can_serve(openmm.Context(with_python, openmm.VerletIntegrator(0.001), PLATFORM))
    monkeypatch.setattr(force_server, "_library", lambda: None)
    assert not can_serve(context)


def test_threads_do_not_meet(alanine):
    alone = []
    for _ in range(2):
        integrator, context = start(alanine, "langevin")
        integrator.step(120)
        alone.append(motion(context))
    assert np.array_equal(*alone)
    made = [start(alanine, "langevin") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: one[0].step(120), made))
    for _, context in made:
        assert np.array_equal(motion(context), alone[0])


@pytest.mark.parametrize("steps", [1, 8])
def test_langevin_replicas_take_the_steps_of_python(alanine, steps):
    ends = []
    for served in (True, False):
        walker = Walker(*alanine, 300, platform="Reference", metric="auto", timestep=0.016, seed=9)
        if not served:
            walker.server = None
        assert (walker.server is not None) == served
        move = TorsionalLangevin(0.016, steps)
        assert all(move.apply(walker) for _ in range(3))
        ends.append((walker.positions(), walker.mover.momentum.copy(), walker.energy(), move.force_calls))
        assert move.force_calls >= 3 * steps
    for one, other in zip(*ends, strict=True):
        assert np.array_equal(one, other)

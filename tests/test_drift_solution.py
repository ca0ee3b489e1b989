"""The drift's equations at large steps: what solves them, what is counted, and when a run stops."""

from __future__ import annotations

import numpy as np
import openmm
import pytest
from random_trees import random_state, random_tree
from scipy.optimize import root
from scipy.spatial.transform import Rotation

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, StepError
from peptidyn.integrators.mover import Mover
from peptidyn.kernels.motions import DRIFT_ITERATIONS

KT = 2.5


def fast(tree, seed, factor):
    """Return a mover with `factor` times thermal momenta."""
    rng = np.random.default_rng(seed)
    mover = Mover(tree, random_state(tree, rng))
    mover.thermalise(0.0, factor**2 * KT, rng)
    mover.flush()
    return mover


def residual(tree, state, momentum, h, y):
    """J(q0)^T m (x(q1) - x(q0)) / h + a (q1 - q0) / h - p0 for the displacement y: rotation vector, shift, dq."""
    turn = Rotation.from_rotvec(y[:3]) * Rotation.from_quat(state.base_rotation[0][[1, 2, 3, 0]])
    moved = state.replace(
        q=state.q + y[6:], base_position=state.base_position + y[3:6], base_rotation=turn.as_quat()[[3, 0, 1, 2]][None]
    )
    push = tree.masses[:, None] * (tree.positions(moved) - tree.positions(state)) / h
    out = tree.generalized_forces(state, push) - momentum
    out[tree.coordinate_dof] += tree.joint_inertia * y[6:] / h
    return out, moved


def find_by_newton(tree, state, momentum, h):
    """Return the solution that grows out of h = 0, followed with an independent solver; None where it ends."""
    rate = np.linalg.solve(ptd.mass_matrix(tree, state), momentum)
    scale = np.sqrt(np.diag(ptd.mass_matrix(tree, state)))
    y, done = np.zeros(tree.n_dof), 0.0
    for part in np.linspace(0.05, 1.0, 20):
        guess = y * part / done if done else part * h * rate
        found = root(lambda z, part=part: residual(tree, state, momentum, part * h, z)[0] / scale, guess, tol=1e-12)
        if not found.success:
            return None
        y, done = found.x, part
    return residual(tree, state, momentum, h, y)[1]


def test_drifts_are_solved_to_the_last_digits():
    """The residual of the equations after a drift, relative to the momenta; 1e-5 rad would leave 1e-3 of them."""
    for tree in (random_tree("serial", 10, seed=1), random_tree("branched", 9, seed=4, soft="all", inertia=True)):
        mover = fast(tree, 0, 1.0)
        state, p, h = mover.state, mover.momentum.copy(), 0.002
        assert mover.drift(h)
        end = mover.state
        push = tree.masses[:, None] * (tree.positions(end) - tree.positions(state)) / h
        joints = np.zeros(tree.n_dof)
        joints[tree.coordinate_dof] = tree.joint_inertia * (end.q - state.q) / h
        assert np.abs(tree.generalized_forces(state, push) + joints - p).max() < 1e-9 * np.abs(p).max()
        assert np.abs(tree.generalized_forces(end, push) + joints - mover.momentum).max() < 1e-9 * np.abs(p).max()


FAST, STEP = 20.0, 0.004
"""Times thermal speed, and ps: about half of such drifts of the chain below are easy."""


@pytest.fixture(scope="module")
def chain():
    return ptd.bead_chain(6, 0.15, 1.9, [12.0, 3.0, 7.0, 12.0, 1.0, 5.0], torsion=[1.0, 2.0, -1.0])


@pytest.fixture(scope="module")
def drifts(chain):
    """(state and momenta before, mover after, whether it converged) of thirty drifts."""
    made = []
    for seed in range(30):
        mover = fast(chain, seed, FAST)
        before = mover.state, mover.momentum.copy()
        made.append((*before, mover, mover.drift(STEP)))
    return made


def seeds_of(drifts, wanted):
    """Return the numbers of drifts with an outcome: "usual", "anderson" or "failed"."""
    outcome = ["failed" if not done else ("anderson" if mover.fallbacks else "usual") for _, _, mover, done in drifts]
    return [seed for seed, name in enumerate(outcome) if name == wanted]


def test_what_the_usual_iterations_do_not_solve_is_solved_and_counted(chain, drifts):
    """Anderson's method finds solutions of the same equations; a drift that fails leaves everything as it was."""
    assert len(seeds_of(drifts, "anderson")) >= 3 and len(seeds_of(drifts, "failed")) >= 1
    for state, p, mover, done in drifts:
        if not done:
            assert mover.fallbacks == 0 and (mover.iterations == -1).all()
            assert np.array_equal(mover.q, state.q) and np.array_equal(mover.momentum, p)
            continue
        assert mover.fallbacks == (mover.iterations[0] > DRIFT_ITERATIONS)
        push = chain.masses[:, None] * (chain.positions(mover.state) - chain.positions(state)) / STEP
        assert np.abs(chain.generalized_forces(state, push) - p).max() < 1e-9 * np.abs(p).max()
        assert np.abs(chain.generalized_forces(mover.state, push) - mover.momentum).max() < 1e-9 * np.abs(p).max()


def test_drifts_fail_only_where_no_solution_is_near(chain, drifts):
    """Followed from h = 0 by another solver, the solution ends before h, or lies more than a radian away."""
    for seed in seeds_of(drifts, "failed"):
        state, p, _, _ = drifts[seed]
        found = find_by_newton(chain, state, p, STEP)
        assert found is None or np.abs(found.q - state.q).max() > 1.0


def test_a_failure_is_noticed_where_molecules_are_moved_side_by_side(chain, drifts, monkeypatch):
    """With one molecule the two ways of making moves give the same."""
    monkeypatch.setattr("peptidyn.integrators.mover.MANY_MOLECULES", 1)
    for state, momentum, mover, converged in drifts:
        again = Mover(chain, state)
        again.momentum = momentum
        assert again.drift(STEP) is converged
        if converged:
            assert np.array_equal(again.q, mover.q)
    assert {converged for *_, converged in drifts} == {True, False}


def test_the_other_solver_finds_what_the_drift_finds(chain, drifts):
    for seed in (*seeds_of(drifts, "usual")[:2], *seeds_of(drifts, "anderson")[:2]):
        state, p, mover, _ = drifts[seed]
        assert np.abs(find_by_newton(chain, state, p, STEP).q - mover.q).max() < 1e-7


# ---------------------------------------------------------------------------- integrators


def bound(integrator):
    """Return a Context of beads without forces for the integrator."""
    system = openmm.System()
    for mass in integrator.tree.masses:
        system.addParticle(mass)
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))
    integrator.bind(context)
    return context


def make(kind, chain):
    """Return an integrator without U_F and almost without friction, whose step has the drift of `STEP`."""
    if kind == "nve":
        return ptd.TorsionVerletIntegrator(chain, STEP)
    if kind == "langevin":  # two drifts, of half a step each
        return ptd.TorsionLangevinIntegrator(chain, 300, 1e-12, 2 * STEP, fixman=False, seed=1)
    return ptd.TorsionGHMCIntegrator(chain, 300, 1e-12, STEP, fixman=False, seed=1)


@pytest.mark.parametrize("kind", ["nve", "ghmc"])
def test_integrators_count_and_go_on(chain, drifts, kind):
    state, p, _, _ = drifts[seeds_of(drifts, "anderson")[0]]
    integrator = make(kind, chain)
    context = bound(integrator)
    integrator.set_motion(state, p)
    assert integrator.drift_fallbacks == 0
    integrator.step(1)
    assert context.getStepCount() == 1
    assert integrator.drift_fallbacks >= 1 and integrator.counters["fallbacks"] == integrator.drift_fallbacks
    other = make(kind, chain)
    other.counters = integrator.counters
    assert other.drift_fallbacks == integrator.drift_fallbacks


@pytest.mark.parametrize("kind", ["nve", "ghmc"])
def test_a_step_that_is_undone_is_not_counted(chain, drifts, kind):
    state, p, _, _ = drifts[seeds_of(drifts, "anderson")[0]]
    integrator = make(kind, chain)
    context = bound(integrator)
    integrator.set_motion(state, p)
    forces, calls = integrator._stepper.forces, []

    def interrupted(mover, want_energy):
        calls.append(mover.fallbacks)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return forces(mover, want_energy)

    integrator._stepper.forces = interrupted
    with pytest.raises(KeyboardInterrupt):
        integrator.step(1)
    assert calls[1] >= 1 and integrator.drift_fallbacks == 0 and context.getStepCount() == 0


@pytest.mark.parametrize("kind", ["nve", "langevin", "ghmc"])
def test_without_a_solution_ghmc_rejects_and_the_others_stop(chain, drifts, kind):
    state, p, _, _ = drifts[seeds_of(drifts, "failed")[0]]
    integrator = make(kind, chain)
    context = bound(integrator)
    integrator.set_motion(state, p)
    x = context.getState(positions=True).getPositions(asNumpy=True)._value
    if kind == "ghmc":
        integrator.step(1)
        assert integrator.acceptance == 0.0 and context.getStepCount() == 1
        assert np.abs(integrator.motion()[1] + p).max() < 1e-4 * np.abs(p).max()  # flipped
    else:
        with pytest.raises(StepError, match="the step is too large"):
            integrator.step(1)
        assert context.getStepCount() == 0
    assert np.array_equal(context.getState(positions=True).getPositions(asNumpy=True)._value, x)


def test_counters_that_an_integrator_does_not_have_are_refused(chain):
    with pytest.raises(ArgumentError, match="counts no proposed"):
        make("langevin", chain).counters = {"proposed": 3}

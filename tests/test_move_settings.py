"""Settings of moves, walkers, steppers and movers: what each changes, what is refused, and what is counted."""

from __future__ import annotations

import copy
import math
import pickle

import butane
import numpy as np
import openmm
import pytest
from random_trees import beads, random_state
from scripted_random import Script

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, ModelError, SolverError
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.kinetic_metric import joint_inertia, metropolis_steps
from peptidyn.integrators.mover import MANY_MOLECULES, Mover
from peptidyn.integrators.splitting import parse_splitting
from peptidyn.integrators.stepper import MetropolisStepper, Stepper
from peptidyn.model.build import build_tree
from peptidyn.sampling.walker import Walker

T, KT = 600.0, BOLTZMANN * 600.0


def make_walker(torsion=1.3, **options):
    tree = butane.make_tree()
    x = tree.positions(tree.reference.replace(torsions=[torsion]))
    options = {"platform": "Reference", "seed": 1, **options}
    return Walker(tree, butane.make_system(), T, positions=x, **options)


def free_chain(n=6, **options):
    """A walker on a chain of n beads without forces: three torsions for six."""
    tree, system = ptd.bead_chain(n, 0.15, 1.9, 12.0), openmm.System()
    for mass in tree.masses:
        system.addParticle(mass)
    return Walker(tree, system, 300.0, **{"platform": "Reference", "seed": 2, **options})


# ---------------------------------------------------------------------------- moves


@pytest.mark.parametrize(
    "make",
    [
        lambda: ptd.TorsionMove(turn=0.0), lambda: ptd.TorsionMove(turn=math.inf), lambda: ptd.TorsionMove(target=0.0),
        lambda: ptd.TorsionMove(target=1.0), lambda: ptd.TorsionMove(count=0), lambda: ptd.CartesianHMC(math.nan),
        lambda: ptd.CartesianHMC(jitter=1.0), lambda: ptd.CartesianHMC(jitter=-0.1), lambda: ptd.CartesianHMC(steps=0),
        lambda: ptd.TorsionalHMC(friction=-1.0), lambda: ptd.TorsionalHMC(friction=math.nan),
        lambda: ptd.TorsionalLangevin(friction=-0.1), lambda: ptd.PivotMove(tries=0),
    ],
)  # fmt: skip
def test_settings_that_are_refused(make):
    with pytest.raises(ArgumentError, match="expected"):
        make()


def test_settings_are_those_that_were_given():
    hmc = {"move": "TorsionalHMC", "step": 0.003, "steps": 7}
    assert ptd.TorsionalHMC(0.003, 7, friction=2.0, jitter=0.1).settings == {**hmc, "friction": 2.0, "jitter": 0.1}
    assert ptd.TorsionalHMC(0.003, 7).settings == {**hmc, "friction": None, "jitter": 0.2}
    assert ptd.TorsionalLangevin(0.003, 7).settings == {**hmc, "move": "TorsionalLangevin", "friction": 1.0}
    assert ptd.CartesianHMC(0.003, 7).settings == {**hmc, "move": "CartesianHMC", "jitter": 0.2}
    turn = ptd.TorsionMove("phi", turn=90.0, count=2, tries=3, target=0.3)
    assert turn.settings == {"move": "TorsionMove", "step": math.pi / 2, "kinds": ("phi",), "count": 2, "tries": 3}
    pivot = ptd.PivotMove(turn=90.0, tries=3)
    assert pivot.settings == {**turn.settings, "move": "PivotMove", "kinds": ("phi", "psi"), "count": 1}
    assert (turn.target, pivot.target, ptd.PivotMove(target=0.2).target) == (0.3, 0.1, 0.2)
    assert (ptd.TorsionalHMC(target=0.7).target, ptd.CartesianHMC(target=0.6).target) == (0.7, 0.6)
    assert (turn.largest, pivot.step, ptd.CartesianHMC().largest) == (math.pi, math.pi / 2, math.inf)
    assert ptd.TorsionMove(["phi", "chi1"]).kinds == ("phi", "chi1") and ptd.TorsionMove().kinds is None


def test_a_trajectory_has_one_step_at_least():
    move = ptd.CartesianHMC(0.001, 1, jitter=0.9)
    assert [move._draw_steps(Script((), (), [p])) for p in (0.0, 0.999)] == [1, 2]


def test_counters_count_until_they_are_reset():
    walker, move = free_chain(), ptd.TorsionMove(tries=2)
    assert math.isnan(move.acceptance)
    for _ in range(3):
        assert move.apply(walker)
    assert (move.proposed, move.accepted, move.acceptance) == (6, 6, 1.0)
    assert move.force_calls == walker.force_calls == 7  # one for the start
    first = move.seconds
    assert 0.0 < first < 30.0
    move.apply(walker)
    assert move.seconds > first
    move.reset()
    assert (move.proposed, move.accepted, move.force_calls, move.seconds) == (0, 0, 0, 0.0)


def test_trajectories_count_their_forces():
    walker = make_walker()
    walker.energy()
    for move, steps in (
        (ptd.CartesianHMC(0.001, 5, jitter=0.0), 5 + 2),
        (ptd.TorsionalHMC(0.001, 5, jitter=0.0), 5 + 1),
    ):
        move.apply(walker)
        assert move.force_calls == steps
    again = walker.force_calls
    assert move.apply(walker) and walker.force_calls == again + 5  # the last forces are kept
    assert walker.energy() == pytest.approx(walker.last_potential)


def test_moves_go_to_other_processes_without_their_walker():
    walker, move = make_walker(), ptd.TorsionalHMC(0.004, 3, friction=2.0)
    move.apply(walker)
    turn = ptd.TorsionMove(turn=40)
    turn.apply(walker)
    for one in (move, turn):
        sent = pickle.loads(pickle.dumps(one))
        assert sent._walker is None and sent.settings == one.settings and sent.proposed == 1
        other = make_walker()
        sent.apply(other)
        assert sent._walker is other


def test_one_move_serves_two_walkers():
    """Nothing of the first walker is left: choices of torsions, forces, momenta."""
    for kind in (lambda: ptd.TorsionMove(turn=20), lambda: ptd.TorsionalHMC(0.01, 2, friction=1.0)):
        move, alone = kind(), kind()
        chain, long = free_chain(5), free_chain(9)
        move.apply(chain)
        other = free_chain(9)
        for _ in range(3):
            assert move.apply(long) == alone.apply(other)
        assert np.array_equal(long.q, other.q)


def test_more_torsions_than_there_are():
    """Five of three turn at once: all, each by its own angle; one of one, too."""
    walker = free_chain()
    before = walker.q
    assert ptd.TorsionMove(count=5, turn=20).apply(walker)
    assert len(set(np.round(walker.q - before, 9))) == 3 and (walker.q != before).all()
    walker = free_chain(4)
    before = walker.q
    assert ptd.TorsionMove(count=5, turn=20).apply(walker) and walker.q[0] != before[0]


def test_hybrid_monte_carlo_is_ghmc_of_its_steps():
    """With the friction of the move and the number of steps that is drawn, by a stepper of its own."""
    normals = np.random.default_rng(3).standard_normal((3, 7))
    walker, move = make_walker(), ptd.TorsionalHMC(0.004, 4, friction=9.0, jitter=0.5)
    walker.rng = Script(normals, [0.0], [0.999])  # new momenta, two halves of the thermostat; six steps
    assert move.apply(walker) and move.force_calls == 1 + 6
    other = make_walker()
    script = Script(normals, [0.0])
    stepper = MetropolisStepper(other.mover, other.torsional_forces, 0.004, KT, 9.0, script, steps=6)
    stepper.draw_momenta()
    stepper.step()
    for a, b in zip(walker.mover.save(), other.mover.save(), strict=True):
        assert np.abs(a - b).max() < 1e-12
    assert len(walker.rng.uniforms) == len(script.uniforms)


@pytest.mark.parametrize("error", [openmm.OpenMMException("NaN"), SolverError("singular")])
def test_langevin_goes_back_from_numbers_that_are_not_finite(error, monkeypatch):
    walker, move = make_walker(), ptd.TorsionalLangevin(0.01, 2, friction=5.0)
    q, energy = walker.q, walker.energy()

    def fail(walker, stepper):
        stepper.step()
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(move, "_make_steps", fail)
        assert move.apply(walker) is False
    assert np.array_equal(walker.q, q) and walker.energy() == energy and (move.proposed, move.accepted) == (1, 0)

    def wild(walker, stepper):
        walker.mover.momentum = np.full(7, np.nan)
        return True

    with monkeypatch.context() as patched:
        patched.setattr(move, "_make_steps", wild)
        assert move.apply(walker) is False
    assert np.isfinite(walker.mover.momentum).all() and np.array_equal(walker.q, q)
    assert move.apply(walker)


def test_a_cartesian_trajectory_that_leaves_the_range_of_numbers_is_refused():
    walker = make_walker()
    x, energy = walker.positions(), walker.energy()
    assert ptd.CartesianHMC(50.0, 40).apply(walker) is False
    assert np.array_equal(walker.positions(), x) and walker.energy() == energy
    assert ptd.CartesianHMC(0.0005, 3).apply(walker)


def test_systems_that_cartesian_moves_cannot_treat():
    for spoil in (
        lambda s: s.addConstraint(0, 1, 0.1),
        lambda s: s.setVirtualSite(3, openmm.TwoParticleAverageSite(0, 1, 0.5, 0.5)),
    ):
        system = butane.make_system()
        spoil(system)
        with pytest.raises(ModelError, match="moves every atom"):
            ptd.GibbsSampler([ptd.CartesianHMC()], butane.make_tree(), system, T)


# ---------------------------------------------------------------------------- walkers


def test_a_walker_has_the_metric_of_its_start():
    """Joint inertias for the step, at the geometry, temperature and masses that are given."""
    structure = ptd.build_peptide("G")
    system = ptd.make_system(structure.topology, "vacuum")
    structure = ptd.Structure.from_openmm(structure.topology, system, structure.positions)
    tree = ptd.build_tree(structure, "all")
    x = structure.positions + 0.004 * np.random.default_rng(1).normal(size=structure.positions.shape)
    walker = Walker(tree, system, 450.0, positions=x, metric="auto", timestep=0.01, platform="Reference")
    start = tree.with_geometry(x)
    wanted = joint_inertia(start, system, 0.01, steps_per_period=metropolis_steps(start), temperature=450.0)
    assert walker.tree.joint_inertia == pytest.approx(wanted) and np.abs(walker.positions() - x).max() < 1e-12
    elsewhere = joint_inertia(tree, system, 0.01, steps_per_period=metropolis_steps(start), temperature=450.0)
    assert np.abs(elsewhere - wanted).max() > 1e-3
    with pytest.raises((ArgumentError, ModelError)):  # torsions are too fast for the step where it is so hot
        Walker(tree, system, 1e7, positions=x, metric="auto", timestep=0.01, platform="Reference")
    given = 0.1 + np.arange(tree.n_coordinates)
    walker = Walker(tree.with_joint_inertia(given), system, 450.0, platform="Reference")
    assert np.array_equal(walker.tree.joint_inertia, given)  # those of the tree, unless a metric is named
    physical = Walker(tree.with_joint_inertia(given), system, 450.0, metric="physical", platform="Reference")
    assert not physical.tree.joint_inertia.any()


def test_walkers_differ_by_their_seed():
    assert make_walker(seed=5).rng.random() == np.random.default_rng(5).random() != make_walker(seed=6).rng.random()


def test_positions_that_are_given_away_are_copies():
    walker = make_walker()
    for _ in range(2):
        x = walker.positions()
        walker.positions()[:] = 0.0
        assert np.array_equal(walker.positions(), x) and x.any()
        walker.set_positions(x + 0.01)  # then they are Cartesian
    walker.q[:] = 9.0
    assert walker.q[0] == pytest.approx(1.3)


@pytest.mark.parametrize("x", [np.zeros((3, 3)), np.zeros((4, 2)), np.array([[math.nan, 0, 0], *np.eye(3).tolist()])])
def test_positions_that_are_refused(x):
    walker = make_walker()
    before = walker.positions()
    with pytest.raises((ArgumentError, ModelError)):
        walker.set_positions(x)
    assert np.array_equal(walker.positions(), before)


def test_a_new_place_has_a_new_energy():
    walker = make_walker()
    old, version, calls = walker.energy(), walker.version, walker.force_calls
    assert walker.energy() == old and walker.force_calls == calls
    x = walker.positions()
    x[3] += 0.01
    walker.set_positions(x)
    assert walker.version > version and walker.energy() == pytest.approx(walker.energy_at(x)) != pytest.approx(old)
    assert walker.force_calls == calls + 2
    walker.set_positions(x, 12.5)  # an energy that is known is not computed
    assert walker.energy() == 12.5 and walker.force_calls == calls + 2


def test_a_checkpoint_is_whole_after_a_cartesian_step():
    """Also before a torsional move asks for the tree; and what it holds is not changed by going on."""
    walker = make_walker()
    x = walker.positions() + 0.003 * np.random.default_rng(1).normal(size=(4, 3))
    walker.set_positions(x)
    saved = walker.checkpoint()
    kept = copy.deepcopy(saved)
    for _ in range(5):
        ptd.TorsionMove().apply(walker)
        ptd.CartesianHMC(0.002, 3).apply(walker)
    assert all(np.array_equal(saved[name], kept[name]) for name in saved if name != "rng")
    walker.set_positions(walker.positions() + 0.01)  # a place that no torsional move has seen
    walker.restore(saved)
    assert np.abs(walker.positions() - x).max() < 1e-12 and walker.energy() == pytest.approx(walker.energy_at(x))
    again = walker.checkpoint()
    assert all(np.array_equal(again[name], saved[name]) for name in saved if name != "rng")


# ---------------------------------------------------------------------------- steppers and splittings


@pytest.mark.parametrize(
    ("word", "repeats"),
    [("BAB", True), ("BAOAB", True), ("BOAOB", False), ("OBABO", False), ("ABA", False), ("BABAB", False),
     ("ABOBA", False), ("BBABB", False), ("BAAB", True)],
)  # fmt: skip
def test_which_steps_ask_for_forces_once_at_their_end(word, repeats):
    chain = ptd.bead_chain(4, 0.15, 1.9, 12.0)
    rng = np.random.default_rng(1)
    assert Stepper(Mover(chain), None, 0.01, word, KT, 1.0, rng).repeats is repeats
    assert not MetropolisStepper(Mover(chain), None, 0.01, KT, 1.0, rng).repeats


def test_a_thermostat_needs_a_temperature_and_random_numbers():
    mover, rng = Mover(ptd.bead_chain(4, 0.15, 1.9, 12.0)), np.random.default_rng(1)
    for kT, given in ((0.0, rng), (KT, None), (math.nan, rng)):
        with pytest.raises(ArgumentError, match="needs kT > 0 and a random generator"):
            Stepper(mover, None, 0.01, "BAOAB", kT, 1.0, given)
    assert Stepper(mover, None, 0.01, "BAB").moves == parse_splitting("BAB")


def test_words_of_splittings():
    assert parse_splitting(" baoab\n") == [("B", 0.5), ("A", 0.5), ("O", 1.0), ("A", 0.5), ("B", 0.5)]
    for word in ("", "BAX", "BA", "AOA", "BOB", "O", "A", "B"):
        with pytest.raises(ArgumentError):
            parse_splitting(word)


def harmonic(mover, want_energy):
    """V = 400 (q - 1)^2 for all torsions."""
    torque = np.zeros(mover.tree.n_dof)
    torque[mover.tree.coordinate_dof] = -800.0 * (mover.q - 1.0)
    return 400.0 * float(((mover.q - 1.0) ** 2).sum()), torque


def test_energies_are_computed_where_they_are_asked_for():
    """Kicks need forces alone; whoever asks for the energy then has it computed, once."""
    tree, calls = ptd.bead_chain(5, 0.15, 1.9, 12.0, torsion=[1.0, 2.0]), []

    def forces(mover, want_energy):
        calls.append(want_energy)
        energy, torque = harmonic(mover, want_energy)
        return (energy if want_energy else math.nan), torque

    mover = Mover(tree)
    mover.thermalise(0.0, KT, np.random.default_rng(1))
    stepper = Stepper(mover, forces, 0.004)
    assert stepper.step() and stepper.step() and calls == [False] * 3
    for _ in range(2):
        assert stepper.potential_energy() == pytest.approx(harmonic(mover, True)[0])
    assert calls == [False] * 3 + [True]
    assert stepper.step() and calls == [False] * 3 + [True, False]  # its forces were those of the first kick
    stepper.forget()
    assert stepper.potential_energy() == pytest.approx(harmonic(mover, True)[0])


def test_momenta_are_drawn_where_the_half_step_cannot_be_made():
    """They are those of the heat bath then; the place stays, and forces are asked for anew."""
    tree = ptd.bead_chain(6, 0.15, 1.9, [12.0, 3.0, 7.0, 12.0, 8.0, 5.0], torsion=[1.0, 2.0, -1.0])
    normals = 200.0 * np.random.default_rng(1).standard_normal(tree.n_dof)
    mover, hand = Mover(tree), Mover(tree)
    stepper = Stepper(mover, harmonic, 0.2, "BAOAB", KT, 1.0, Script([normals]))
    stepper.draw_momenta()
    hand.thermalise(0.0, KT, Script([normals]))
    assert not hand.drift(0.1, stepper.tolerance)
    for a, b in zip(mover.save(), hand.save(), strict=True):
        assert np.array_equal(a, b)
    assert stepper._torque is None


def test_a_splitting_that_ends_with_a_drift_goes_back_if_that_fails():
    tree = ptd.bead_chain(6, 0.15, 1.9, [12.0, 3.0, 7.0, 12.0, 8.0, 5.0], torsion=[1.0, 2.0, -1.0])
    mover = Mover(tree)
    mover.thermalise(0.0, 4e4 * KT, np.random.default_rng(2))
    before = mover.save()
    stepper = Stepper(mover, harmonic, 0.2, "ABA")
    assert stepper.step() is False
    assert all(np.array_equal(a, b) for a, b in zip(mover.save(), before, strict=True))
    late = Stepper(Mover(tree), lambda mover, want: (0.0, np.full(tree.n_dof, 1e6)), 0.2, "ABA")
    start = late.mover.save()
    assert late.step() is False  # at rest the first drift goes well, and the last does not
    assert all(np.array_equal(a, b) for a, b in zip(late.mover.save(), start, strict=True))


def test_drifts_are_solved_to_the_tolerance_of_the_stepper():
    """A tolerance of 0.01 rad leaves other ends than 1e-13 does; with the default they are the latter."""
    tree = ptd.bead_chain(6, 0.15, 1.9, 12.0, torsion=[1.0, 2.0, -1.0])
    ends = []
    for options in ({}, {"tolerance": 1e-13}, {"tolerance": 1e-2}):
        mover = Mover(tree)
        mover.thermalise(0.0, KT, np.random.default_rng(4))
        assert Stepper(mover, harmonic, 0.004, **options).step()
        ends.append(mover.q.copy())
    assert np.array_equal(ends[0], ends[1]) and 1e-12 < np.abs(ends[2] - ends[0]).max() < 1e-2


# ---------------------------------------------------------------------------- movers


@pytest.mark.parametrize("keep", [-0.1, 1.1, math.nan])
def test_a_thermostat_keeps_a_part_of_the_momenta(keep):
    mover = Mover(ptd.bead_chain(4, 0.15, 1.9, 12.0))
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        mover.thermalise(keep, KT, np.random.default_rng(1))


def test_momenta_and_states_are_those_that_were_given():
    tree = ptd.bead_chain(5, 0.15, 1.9, 12.0)
    p, state = np.arange(1.0, tree.n_dof + 1), random_state(tree, np.random.default_rng(1))
    mover = Mover(tree, state, p)
    assert np.array_equal(mover.momentum, p) and np.array_equal(mover.state.q, state.q)
    mover.note_drift(0.001)
    other = Mover(tree, state, p)
    assert other.drift(0.001)
    for name in ("q", "base_position", "base_rotation"):
        assert np.array_equal(getattr(mover.state, name), getattr(other, name))
    with pytest.raises(ArgumentError, match="momenta"):
        Mover(tree, state, p[1:])


def test_what_a_mover_returns_is_kept():
    """Later moves do not change it; `place` alone gives the array that they change."""
    tree = ptd.bead_chain(5, 0.15, 1.9, 12.0)
    rng = np.random.default_rng(3)
    mover = Mover(tree, random_state(tree, rng), rng.normal(size=tree.n_dof))
    forces = rng.normal(size=(tree.n_atoms, 3))
    found = [
        mover.positions(),
        mover.velocities(),
        mover.atom_velocities(),
        mover.project(forces),
        mover.fixman_torque(),
    ]
    found += list(mover.save())
    kept = copy.deepcopy(found)
    mover.set_state(random_state(tree, rng))
    mover.momentum = rng.normal(size=tree.n_dof)
    mover.positions(), mover.velocities(), mover.atom_velocities(), mover.project(2.0 * forces), mover.fixman_torque()
    assert all(np.array_equal(a, b) for a, b in zip(found, kept, strict=True))
    assert mover.place() is mover.place() and np.array_equal(mover.forces, 2.0 * forces)


def test_u_f_of_several_molecules_is_the_sum():
    """With bends and stretches: ln(det M / J^2) / 2 of the dense matrix, one block for each molecule."""
    rng = np.random.default_rng(4)
    tree = build_tree(beads([-1, 0, 1, -1, 3, 4, -1], rng), soft="all")
    state = random_state(tree, rng)
    expected = 0.5 * np.linalg.slogdet(ptd.mass_matrix(tree, state))[1] - tree.log_jacobian(state.q)
    assert tree.n_molecules == 3 and abs(tree.log_jacobian(state.q)) > 1.0
    assert Mover(tree, state).fixman_energy() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("n", [3, MANY_MOLECULES])
@pytest.mark.parametrize(("q", "change"), [(0.05, -0.1), (np.pi - 0.05, 0.1)])
def test_one_molecule_that_leaves_its_range_fails_the_drift_of_all(n, q, change):
    """An angle closes beyond 0, or opens beyond 180 degrees, in the last molecule of a few or of many."""
    tree = build_tree(beads([-1] * (n - 1) + [-1, n - 1, n], np.random.default_rng(1)), soft="all")
    tree = tree.with_joint_inertia(np.full(tree.n_coordinates, 1e3))
    place = int(tree.bend_index[-1])
    values = tree.q_reference.copy()
    values[place] = q
    mover = Mover(tree, tree.reference.replace(q=values))
    momentum = np.zeros(tree.n_dof)
    momentum[tree.coordinate_dof[place]] = 1e3 * change / 0.01
    momentum[3] = 1.0  # the first one, a point, moves on
    mover.momentum = momentum
    before = mover.save()
    assert tree.n_molecules == n and not mover.drift(0.01)
    assert mover.out_of_range == place and (mover.iterations < 0).tolist() == [False] * (n - 1) + [True]
    assert all(np.array_equal(a, b) for a, b in zip(mover.save(), before, strict=True))
    mover.momentum = 0.3 * momentum
    assert mover.drift(0.01) and (mover.iterations >= 0).all()
    assert mover.q[place] == pytest.approx(q + 0.3 * change, rel=0.02)


def test_programs_are_not_kept_without_end(monkeypatch):
    monkeypatch.setattr("peptidyn.integrators.mover.KEPT_PROGRAMS", 3)
    tree = ptd.bead_chain(4, 0.15, 1.9, 12.0)
    mover, torque = Mover(tree), np.arange(1.0, tree.n_dof + 1)
    for i in range(10):
        mover.kick(torque, float(i))
        mover.flush()
        assert len(mover._programs) <= 3
    assert mover.momentum == pytest.approx(45.0 * torque)

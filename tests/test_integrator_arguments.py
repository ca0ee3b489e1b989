"""What torsion integrators are made with, copied with, and asked for from outside, on butane."""

from __future__ import annotations

import copy
import pickle

import butane
import numpy as np
import openmm
import pytest
from openmm import app, unit

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, ModelError, StepError
from peptidyn.core.units import BOLTZMANN
from peptidyn.integrators.mover import Mover

REFERENCE = openmm.Platform.getPlatformByName("Reference")
KINDS = {
    "nve": lambda tree, T=310.0, gamma=2.0, h=0.002, **options: ptd.TorsionVerletIntegrator(
        tree, h, **{"temperature": T, **options}
    ),
    "langevin": lambda tree, T=310.0, gamma=2.0, h=0.002, **options: ptd.TorsionLangevinIntegrator(
        tree, T, gamma, h, **options
    ),
    "ghmc": lambda tree, T=310.0, gamma=2.0, h=0.002, **options: ptd.TorsionGHMCIntegrator(
        tree, T, gamma, h, **options
    ),
}
WARM = ("langevin", "ghmc")


def tree_of(q=1.1, soft="rotor"):
    chain = butane.make_tree()
    x = chain.positions(chain.reference.replace(torsions=[q]))
    return ptd.build_tree(ptd.Structure.from_openmm(butane.make_topology(), butane.make_system(), x), soft)


def simulate(integrator, system=None):
    system = butane.make_system() if system is None else system
    return ptd.TorsionSimulation(butane.make_topology(), system, integrator, "Reference")


def chain_with_hydrogen():
    """Return a chain of three carbons and a hydrogen: topology, System and tree."""
    topology, system = app.Topology(), openmm.System()
    residue = topology.addResidue("X", topology.addChain("A"))
    atoms = [topology.addAtom(n, app.Element.getBySymbol(n[0]), residue) for n in ("C1", "C2", "C3", "H1")]
    bonds = openmm.HarmonicBondForce()
    for i in range(3):
        topology.addBond(atoms[i], atoms[i + 1])
        bonds.addBond(i, i + 1, butane.BOND, 1000.0)
    for mass in (12.0, 12.0, 12.0, 1.0):
        system.addParticle(mass)
    system.addForce(bonds)
    chain = butane.make_tree()
    x = chain.positions(chain.reference.replace(torsions=[1.1]))
    return topology, system, ptd.build_tree(ptd.Structure.from_openmm(topology, system, x), "rotor")


# ---------------------------------------------------------------------------- arguments


@pytest.mark.parametrize("kind", KINDS)
def test_settings_are_those_that_were_given(kind):
    tree = tree_of()
    make = KINDS[kind]
    for fixman in (True, False):
        integrator = make(tree, T=290.0, gamma=3.5, h=0.003, fixman=fixman)
        settings = integrator.settings
        assert settings["kind"] == type(integrator).__name__ and settings["timestep"] == 0.003
        assert settings["fixman"] is integrator.fixman is fixman
        assert settings["kT"] == (pytest.approx(BOLTZMANN * 290.0) if fixman else 0.0)
        assert set(settings) == {"kind", "timestep", "fixman", "kT"} | (
            {"temperature", "friction"} if kind in WARM else set()
        )
        if kind in WARM:
            assert (settings["temperature"], settings["friction"]) == (290.0, 3.5)
            assert (
                integrator.getTemperature() == 290.0 * unit.kelvin and integrator.getFriction() == 3.5 / unit.picosecond
            )
    assert make(tree).fixman is (kind in WARM)  # by default where there is a heat bath
    simulation = simulate(make(tree, T=290.0, fixman=True))
    potential = ptd.FixmanPotential(tree, 290.0)
    assert simulation.integrator.fixman_energy() == pytest.approx(potential.energy(tree.reference), rel=1e-9)
    assert simulate(make(tree, fixman=False)).integrator.fixman_energy() == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_fixes_the_random_numbers(kind):
    first = [KINDS[kind](tree_of(), seed=seed).rng.random() for seed in (4, 4, 5)]
    assert first[0] == first[1] == np.random.default_rng(np.random.SeedSequence(4)).random() != first[2]
    assert KINDS[kind](tree_of()).rng.random() != KINDS[kind](tree_of()).rng.random()


@pytest.mark.parametrize("seed", [0, 1])
def test_velocities_of_a_seed_have_a_generator_of_their_own(seed):
    """Zero is a seed as any other; the random numbers of the dynamics are not used up."""
    simulation = simulate(KINDS["langevin"](tree_of(), seed=3))
    drawn = []
    for given in (seed, seed, seed + 1):
        simulation.integrator.set_velocities_to_temperature(300, given)
        drawn.append(simulation.integrator.motion()[1].tolist())
    assert drawn[0] == drawn[1] != drawn[2]
    assert simulation.integrator.rng.random() == KINDS["langevin"](tree_of(), seed=3).rng.random()


@pytest.mark.parametrize("kind", KINDS)
def test_hydrogen_masses_are_moved_and_the_system_keeps_its_own(kind):
    topology, system, tree = chain_with_hydrogen()
    integrator = KINDS[kind](tree, hydrogen_mass=3.0)
    assert integrator.tree.masses.tolist() == [12.0, 12.0, 10.0, 3.0]
    copies = [integrator, copy.copy(integrator), pickle.loads(pickle.dumps(integrator))]
    for one in copies:
        simulation = ptd.TorsionSimulation(topology, system, one, "Reference")
        assert one.tree.masses.tolist() == [12.0, 12.0, 10.0, 3.0]
        v = np.arange(12.0).reshape(4, 3) / 10.0
        simulation.context.setVelocities(v)
        assert one.motion()[1] == pytest.approx(one.mover.project(one.tree.masses[:, None] * v), rel=1e-9)
    assert KINDS[kind](tree).tree.masses.tolist() == [12.0, 12.0, 12.0, 1.0]


@pytest.mark.parametrize("kind", KINDS)
def test_metrics_of_all_kinds(kind):
    """That of the tree unless another one is given; none; an array; or the one for the step."""
    tree, make = tree_of().with_joint_inertia([0.5]), KINDS[kind]
    assert make(tree).tree.joint_inertia.tolist() == [0.5] and make(tree).metric is None
    assert make(tree, metric="physical").tree.joint_inertia.tolist() == [0.0]
    assert make(tree, metric=[0.25]).tree.joint_inertia.tolist() == [0.25]
    soft = tree_of(soft="all")
    simulation = simulate(make(soft, h=0.01, metric="auto"))
    steps = ptd.joint_inertia(soft, butane.make_system(), 0.01, temperature=310.0, steps_per_period=(
        7.5 * 6 ** (1 / 6) if kind == "ghmc" else 8.0
    ))  # fmt: skip
    assert simulation.tree.joint_inertia == pytest.approx(steps, rel=1e-9) and steps.any()
    with pytest.raises(ArgumentError, match="metric is 'quick'"):
        make(tree, metric="quick")


@pytest.mark.parametrize("kind", WARM)
def test_settings_that_mean_nothing_are_refused(kind):
    make, tree = KINDS[kind], tree_of()
    for h in (0.0, -0.002, np.nan):
        with pytest.raises(ArgumentError, match="the time step is"):
            make(tree, h=h)
    for friction in (-1.0, np.inf, np.nan):
        with pytest.raises(ArgumentError, match="the friction is"):
            make(tree, gamma=friction)
        with pytest.raises(ArgumentError, match="the friction is"):
            make(tree).setFriction(friction)
    for T in (-1.0, np.inf, np.nan):
        with pytest.raises(ArgumentError, match="temperature"):
            make(tree, T=T)
        with pytest.raises(ArgumentError, match="temperature"):
            make(tree).setTemperature(T)
    assert make(tree, gamma=0.0).getFriction()._value == 0.0


def test_thermal_steps_are_solved_further_than_they_are_noisy():
    """And have the friction and the temperature of the integrator."""
    langevin, ghmc = (KINDS[kind](tree_of())._stepper for kind in WARM)
    assert langevin.tolerance <= 1e-6
    for stepper in (langevin, ghmc):
        assert stepper.friction == 2.0 and stepper.kT == pytest.approx(BOLTZMANN * 310.0)


# ---------------------------------------------------------------------------- counters and copies


def test_counters_are_set_and_read():
    ghmc, langevin = KINDS["ghmc"](tree_of()), KINDS["langevin"](tree_of())
    values = {"proposed": 7, "accepted": 5, "fallbacks": 2}
    ghmc.counters = values
    assert ghmc.counters == values and ghmc.acceptance == pytest.approx(5 / 7) and ghmc.drift_fallbacks == 2
    ghmc.counters = {"proposed": 1, "accepted": 0}
    assert ghmc.drift_fallbacks == 0
    langevin.counters = {"fallbacks": 3}
    assert langevin.counters == {"fallbacks": 3} and langevin.drift_fallbacks == 3
    langevin.counters = {}
    assert langevin.counters == {"fallbacks": 0}
    with pytest.raises(ArgumentError, match="TorsionLangevinIntegrator counts no proposed, accepted"):
        langevin.counters = values
    langevin.mover.iterations[:] = [4]
    assert langevin.solver_iterations == 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_has_all_that_its_original_has(kind):
    original = KINDS[kind](tree_of(), T=290.0, gamma=3.5, h=0.003, fixman=kind == "nve", seed=2)
    original.rng.random(5)
    original.setConstraintTolerance(3e-4)
    original.setRandomNumberSeed(17)
    original.setIntegrationForceGroups(5)
    if kind in WARM:
        original.setTemperature(280.0)
        original.setFriction(4.0)
    for one in (copy.copy(original), copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
        assert type(one) is type(original) and one is not original and one.settings == original.settings
        assert one.getConstraintTolerance() == 3e-4 and one.getRandomNumberSeed() == 17
        assert one.getIntegrationForceGroups() == 5 and one.rng.bit_generator.state == original.rng.bit_generator.state
        assert one.rng is not original.rng and one.metric is None


@pytest.mark.parametrize("bound", [True, False])
def test_a_copy_of_an_automatic_metric_has_it_for_the_same_step(bound):
    """Chosen already, or still to be chosen; steps beyond it are refused, smaller ones are not."""
    original = KINDS["langevin"](tree_of(soft="all"), h=0.008, metric="auto")
    if bound:
        simulation = simulate(original)
        simulation.integrator.setStepSize(0.004)
    one = copy.copy(original)
    assert one.tree.joint_inertia.any() == bound and one.metric == "auto"
    again = simulate(one)
    assert one.tree.joint_inertia == pytest.approx(
        ptd.joint_inertia(tree_of(soft="all"), again.system, 0.008, temperature=310.0)
    )
    for h, fits in ((0.008, True), (0.004, True), (0.00801, False)):
        one.setStepSize(h)
        if fits:
            one.step(1)
        else:
            with pytest.raises(
                ArgumentError, match=r"chosen for steps of 8 fs .* new integrator for steps of 8\.01 fs"
            ):
                one.step(1)


# ---------------------------------------------------------------------------- what is asked for from outside


ASKED = {
    "kinetic_energy": lambda one: one.kinetic_energy(),
    "temperature": lambda one: one.computeSystemTemperature()._value,
    "fixman_energy": lambda one: one.fixman_energy(),
    "potential_energy": lambda one: one.potential_energy(),
    "total_energy": lambda one: one.total_energy(),
    "momenta": lambda one: one.motion()[1].tolist(),
    "coordinates": lambda one: one.motion()[0].q.tolist(),
    "lent": lambda one: one.lend_mover().q.tolist(),
    "positions after velocities were drawn": lambda one: (
        one.set_velocities_to_temperature(300, 1),
        one.mover.q.tolist(),
    )[1],
}


@pytest.mark.parametrize("name", ASKED)
def test_the_context_is_read_whatever_is_asked_for(name):
    """Positions and velocities that were set after the last step count at once."""
    tree = tree_of()
    moved, fresh = (simulate(KINDS["langevin"](tree, seed=1)) for _ in range(2))
    moved.set_velocities_to_temperature(300)
    moved.step(2)
    moved.integrator.total_energy()
    there = Mover(tree, tree.reference.replace(torsions=[2.5]), np.linspace(1.0, 2.0, tree.n_dof))
    before = ASKED[name](moved.integrator) if "drawn" not in name else None
    for simulation in (moved, fresh):
        simulation.context.setPositions(there.positions())
        simulation.context.setVelocities(there.atom_velocities())
    found = ASKED[name](moved.integrator)
    assert found == pytest.approx(ASKED[name](fresh.integrator), rel=1e-9) and found != before


def test_velocities_alone_are_read_too():
    simulation = simulate(KINDS["langevin"](tree_of(), seed=1))
    simulation.step(2)
    q = simulation.integrator.motion()[0].q
    momenta = np.linspace(-1.0, 1.0, simulation.tree.n_dof)
    there = Mover(simulation.tree, simulation.integrator.motion()[0], momenta)
    simulation.context.setVelocities(there.atom_velocities())
    assert simulation.integrator.kinetic_energy() == pytest.approx(there.kinetic_energy(), rel=1e-9)
    assert np.array_equal(simulation.integrator.motion()[0].q, q)  # bit for bit: positions were not read again


def test_new_joint_inertias_are_for_good_and_stop_the_motion():
    """The configuration, what was counted and later Contexts stay."""
    integrator = KINDS["langevin"](tree_of(), h=0.002, metric="auto", seed=1)
    simulation = simulate(integrator)
    simulation.set_velocities_to_temperature(300)
    simulation.step(3)
    integrator.counters = {"fallbacks": 4}
    q = integrator.motion()[0].q
    integrator.set_joint_inertia([0.75])
    assert integrator.mover.q == pytest.approx(q, abs=0) and not integrator.mover.momentum.any()
    assert integrator.mover is integrator._stepper.mover and integrator.counters == {"fallbacks": 4}
    integrator.bind(simulation.context)
    assert integrator.tree.joint_inertia.tolist() == [0.75]
    early = KINDS["langevin"](tree_of(soft="all"), h=0.01, metric="auto")
    early.set_joint_inertia(np.full(6, 0.5))
    assert simulate(early).tree.joint_inertia.tolist() == [0.5] * 6


@pytest.mark.parametrize(("fixman", "said"), [(True, False), (False, True)])
def test_notes_say_what_joint_inertias_do(fixman, said):
    tree = tree_of(soft="all")
    inertia = np.zeros(tree.n_coordinates)
    inertia[tree.torsion_index[0]], inertia[tree.stretch_index[0]] = 200.0, 1.0
    integrator = KINDS["langevin"](tree, fixman=fixman, metric=inertia)
    simulate(integrator)
    first, second = integrator.notes
    assert first.startswith("2 of 6 soft coordinates have joint inertias")
    assert first.endswith("without the Fixman potential the distribution depends on the inertias") == said
    assert second.startswith("joint inertias all but stop 1 of 1 torsions")
    plain = KINDS["langevin"](tree)
    simulate(plain)
    assert plain.notes == []


def test_a_new_geometry_replaces_the_notes_on_the_old_one():
    """Notes on other things stay."""
    system = butane.make_system()
    system.addConstraint(0, 1, butane.BOND + 0.002)
    system.addForce(openmm.CMMotionRemover())
    integrator = KINDS["langevin"](tree_of())
    simulation = simulate(integrator, system)
    assert len(integrator.notes) == 2 and "differ from 1 of 1" in integrator.notes[0]
    x = simulation.tree.positions(simulation.tree.reference)
    longer = x.copy()
    longer[0] += 0.002 * (x[0] - x[1]) / butane.BOND
    simulation.use_geometry(longer)
    assert len(integrator.notes) == 1 and "CMMotionRemover" in integrator.notes[0]
    simulation.use_geometry(x)
    assert len(integrator.notes) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_motion_is_put_where_the_clock_stands(kind):
    simulation = simulate(KINDS[kind](tree_of(), seed=1))
    simulation.step(3)
    simulation.step(2)
    assert simulation.context.getTime()._value == pytest.approx(0.01, abs=1e-12) and simulation.currentStep == 5
    state = simulation.tree.reference.replace(torsions=[0.4])
    momenta = np.linspace(0.1, 0.2, simulation.tree.n_dof)
    simulation.integrator.set_motion(state, momenta)
    assert simulation.context.getTime()._value == pytest.approx(0.01, abs=1e-12) and simulation.currentStep == 5
    found = simulation.context.getState(positions=True, velocities=True)
    hand = Mover(simulation.tree, state, momenta)
    assert np.allclose(found.getPositions(asNumpy=True)._value, hand.positions(), atol=1e-12)
    assert np.allclose(found.getVelocities(asNumpy=True)._value, hand.atom_velocities(), atol=1e-12)
    simulation.step(0)
    assert simulation.currentStep == 5 and np.array_equal(simulation.integrator.motion()[1], momenta)
    with pytest.raises(ArgumentError, match="momenta"):
        simulation.integrator.set_motion(state, momenta[:-1])


@pytest.mark.parametrize("compiled", [True, False])
def test_a_step_that_fails_is_counted_from_where_the_call_began(compiled):
    """Forces end at a wall that butane falls towards; whatever was finished is in the Context."""
    system = butane.make_system()
    field = openmm.CustomExternalForce("sqrt(edge-x)-400*x")
    field.addGlobalParameter("edge", 0.5)
    for i in range(4):
        field.addParticle(i, [])
    system.addForce(field)
    integrator = KINDS["nve"](tree_of(), h=0.002)
    simulation = simulate(integrator, system)
    simulation.step(4)
    if not compiled:
        integrator._server = None
    with pytest.raises(StepError) as caught:
        simulation.step(1000)
    step = simulation.context.getStepCount()
    assert step > 10 and simulation.context.getTime()._value == pytest.approx(0.002 * step, abs=1e-9)
    assert f"step {step} at {0.002 * step:.4f} ps could not be made; the forces are not finite" in str(caught.value)


def test_integrators_find_their_own_context_among_several():
    """In simulations of OpenMM, which tell an integrator nothing."""
    made = []
    for q in (0.5, 1.5, 2.5):
        tree = tree_of(q)
        integrator = KINDS["nve"](tree)
        simulation = app.Simulation(butane.make_topology(), butane.make_system(), integrator, REFERENCE)
        simulation.context.setPositions(tree.positions(tree.reference))
        made.append((q, simulation))
    for q, simulation in reversed(made):
        assert simulation.integrator.motion()[0].q == pytest.approx([q], abs=1e-9)
    del made[1], simulation
    with pytest.raises(ModelError, match="not bound to a Context"):
        KINDS["nve"](tree_of()).motion()


def test_a_context_without_positions_is_said():
    simulation = app.Simulation(butane.make_topology(), butane.make_system(), KINDS["nve"](tree_of()), REFERENCE)
    for ask in (simulation.integrator.kinetic_energy, lambda: simulation.step(1)):
        with pytest.raises(ModelError, match=r"no positions yet; give them first: context\.setPositions"):
            ask()

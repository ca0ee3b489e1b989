"""How long a run will take: which runs are measured, what is told, and what is timed."""

from __future__ import annotations

from types import SimpleNamespace

import openmm
import pytest
from real_structures import DATA

import peptidyn as ptd
from peptidyn.runs import estimates
from peptidyn.runs.estimates import _time, describe_times, measure_force, measure_motion
from peptidyn.runs.settings import ExchangeSettings, RunSettings


@pytest.fixture
def measured(monkeypatch):
    """Seconds of a force and of a motion that a test may set, and how often they were measured."""
    found = SimpleNamespace(force=0.5, motion=0.25, calls=0)

    def force(model):
        found.calls += 1
        return found.force

    monkeypatch.setattr(estimates, "measure_force", force)
    monkeypatch.setattr(estimates, "measure_motion", lambda model: found.motion)
    return found


def model_of(n_atoms=1000, **settings):
    size = SimpleNamespace(n_atoms=n_atoms)
    return SimpleNamespace(settings=RunSettings(**settings), tree=size, structure=size)


@pytest.mark.parametrize(
    ("relax", "steps", "worth"), [(True, 8999, False), (True, 9000, True), (False, 9999, False), (False, 10_000, True)]
)
def test_runs_are_measured_from_ten_million_atoms_times_forces_on(measured, relax, steps, worth):
    """1000 atoms, 1000 forces of a relaxation, and the steps of two stages."""
    told = describe_times(model_of(relax=relax), {"first": 1000, "second": steps - 1000})
    assert (told is not None) == worth == (measured.calls > 0)


def test_each_stage_is_told(measured):
    """A relaxation makes forces, at most 1000 of them or 60 in large systems, and other stages whole steps."""
    stages = {"minimising": 0, "equilibrating": 40, "simulating": 20_000}
    assert describe_times(model_of(), stages) == (
        "expected on this machine: relaxing up to 8 min, equilibrating 30 s, simulating 4.2 hours (750 ms per step)"
    )
    assert describe_times(model_of(relax=False), stages) == (
        "expected on this machine: equilibrating 30 s, simulating 4.2 hours (750 ms per step)"
    )
    assert "relaxing up to 30 s" in describe_times(model_of(5000), stages)


@pytest.mark.parametrize(("motion", "each"), [(0.5, "1 s"), (0.75, "1.25 s"), (0.4375, "938 ms"), (-0.4996, "0.4 ms")])
def test_the_time_of_a_step(measured, motion, each):
    measured.motion = motion
    assert describe_times(model_of(), {"simulating": 200_000}).endswith(f"({each} per step)")


@pytest.mark.parametrize(("force", "told"), [(0.0019, False), (0.0021, True)])
def test_times_are_told_from_a_minute_on(measured, force, told):
    """10,000 steps of three forces each, or of none."""
    measured.force, measured.motion = force, 2.0 * force
    assert (describe_times(model_of(relax=False), {"a": 5000, "b": 5000}) is not None) == told


@pytest.mark.parametrize(("cost", "calls"), [(0.055, 4), (0.06, 4), (0.5, 1), (0.001, 20)])
def test_calls_are_timed_for_a_fifth_of_a_second_after_a_first_one(monkeypatch, cost, calls):
    """The first one, which may compile or warm up, takes ten seconds and does not count."""
    clock = SimpleNamespace(now=100.0, made=0)

    def work():
        clock.now += cost if clock.made else 10.0
        clock.made += 1

    monkeypatch.setattr(estimates, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    assert _time(work) == pytest.approx(cost, rel=1e-6)
    assert clock.made == 1 + calls


@pytest.fixture
def timed(monkeypatch):
    """What is timed is done once, and takes a second."""

    def once(work):
        work()
        return 1.0

    monkeypatch.setattr(estimates, "_time", once)


@pytest.mark.parametrize("platform", [None, "Reference"])
def test_forces_are_timed_on_the_platform_of_the_run(monkeypatch, timed, platform):
    made = []

    class Context:
        def __init__(self, system, integrator, *where):
            self.where, self.asked, self.x = (system, *where), [], []
            made.append(self)

        def setPositions(self, x):
            self.x.append(x)

        def getState(self, **what):
            self.asked.append(what)
            return SimpleNamespace(getPositions=lambda asNumpy: "where it is")

    monkeypatch.setattr(openmm, "Context", Context)
    monkeypatch.setattr(estimates, "find_run_platform", lambda settings, n: (settings.platform, None))
    model = SimpleNamespace(
        settings=RunSettings(platform=platform), system="system", tree=SimpleNamespace(n_atoms=3),
        structure=SimpleNamespace(positions="positions"),
    )  # fmt: skip
    assert measure_force(model) == 1.0
    (context,) = made
    assert context.where == (("system",) if platform is None else ("system", platform))
    assert context.x == ["positions", "where it is"] and context.asked == [{"positions": True}, {"forces": True}]


@pytest.mark.parametrize(
    ("settings", "soft"),
    [(RunSettings(preset="heavy", ensemble="ghmc", temperature=400.0, time="9ns"), None),
     (ExchangeSettings(preset="heavy", timestep=7.0), "heavy"), (ExchangeSettings(), "phi psi chi")],
)  # fmt: skip
def test_a_motion_is_one_step_without_forces_and_inertias(monkeypatch, timed, settings, soft):
    structure = ptd.load_structure(DATA / "ala1.pdb")
    system = openmm.System()
    for mass in structure.masses:
        system.addParticle(mass)
    system.addForce(openmm.CustomExternalForce("x"))
    tree, made = ptd.build_tree(structure), []

    class Simulation:
        def __init__(self, topology, free, integrator, platform, properties):
            made.extend([free, platform, properties])

        def set_velocities_to_temperature(self, temperature):
            made.append(temperature)

        def step(self, count):
            made.append(count)

    def integrator(settings, tree):
        made.append(settings)

    monkeypatch.setattr(estimates, "TorsionSimulation", Simulation)
    monkeypatch.setattr(estimates, "make_integrator", integrator)
    monkeypatch.setattr(estimates, "find_run_platform", lambda settings, n: ("a platform", {"Threads": str(n)}))
    model = SimpleNamespace(settings=settings, system=system, tree=tree, structure=structure)
    assert measure_motion(model) == 1.0
    used, free, platform, properties, temperature, count = made
    assert (platform, properties, count) == ("a platform", {"Threads": "22"}, 1)
    assert free.getNumForces() == 0 and [free.getParticleMass(i)._value for i in range(22)] == structure.masses.tolist()
    assert (used.metric, used.timestep, used.steps, used.time, used.seed) == ("physical", 1.0, 1, None, 0)
    assert temperature == used.temperature == (400.0 if soft is None else 300.0)
    assert used.soft == soft and used.ensemble == ("ghmc" if soft is None else "langevin")

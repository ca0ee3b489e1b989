"""What does a step cost beside its force call? Drifts, Python, OpenMM's own step, and growth with size.

    python benchmarks/step_cost.py [--repeats N] [-o FOLDER]
    PEPTIDYN_STRUCTURES=FOLDER python benchmarks/step_cost.py     # with 5dfr-minimized.pdb from there

drift    the two half drifts of a Langevin step (BAOAB) at 24 fs with everything soft, per soft coordinate
Python   what a step takes outside compiled code, in calls of 500 steps
ratio    a Langevin step with everything soft beside a step of OpenMM's LangevinMiddle at 4 fs with HBonds constraints
         and hydrogens of 3 Da, on 1 and 2 threads of the CPU platform; with one thread both keep to one core, as
         runs of small molecules do
growth   a step without its force call (forces are zero, U_F is on) of capped polyalanines with everything soft, from
         about 300 to 10,000 coordinates; the exponent is that of a power fitted to all sizes

Momenta are thermal. Drifts and steps without force calls start from the same state again and again. Times are minima
over interleaved rounds; ratios are those of wall times and, for a busy machine, of the CPU times of the process.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openmm

import harness
import peptidyn as ptd
from harness import Report, Task, cell, table
from molecules import constrained_system, context, relax
from peptidyn.core.one_core import OneCore
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.systems import make_system
from peptidyn.integrators.mover import Mover
from peptidyn.integrators.stepper import THERMAL_TOLERANCE, Stepper
from peptidyn.kernels import cycles, motions

T, FRICTION, TIMESTEP = 300.0, 1.0, 0.024
PEER_STEP, HYDROGEN = 0.004, 3.0
STEPS, LONG = 100, 500
"""Time steps per call, and per call when Python is timed."""

MOLECULES = {"capped alanine": 1, "capped Ala10": 10}
THREADS = (1, 2)
RESIDUES = (9, 30, 100, 330)
"""Lengths of the chains whose steps are compared."""

FLEXIBLE, PEER, FORCE_CALL = "everything soft", "LangevinMiddle", "force call"
GOALS = {"drift": 1.2, "python": 40.0, "capped alanine": 1.5, "capped Ala10": 1.7, "exponent": 0.1}
"""Microseconds per coordinate, microseconds, ratios, and the distance of the exponent from 1."""


class Peptide:
    """Capped polyalanine in OBC2 with everything soft, relaxed."""

    def __init__(self, residues: int):
        built = ptd.build_peptide("A" * residues)
        self.topology, self.system = built.topology, make_system(built.topology, "obc2")
        self.positions = relax(context(self.system), built.positions)
        self.tree = ptd.build_tree(ptd.Structure.from_openmm(self.topology, self.system, self.positions), soft="all")

    def flexible(self, threads: int) -> Any:
        """Return a Langevin integrator with a metric for its step, bound to its Context and thermal."""
        integrator = ptd.TorsionLangevinIntegrator(self.tree, T, FRICTION, TIMESTEP, seed=1, metric="auto")
        integrator.kept = context(self.system, integrator, "CPU", {"Threads": str(threads)})
        integrator.kept.setPositions(self.positions)
        integrator.set_velocities_to_temperature(T)
        integrator.step(400)
        return integrator

    def peer(self, threads: int) -> Any:
        """Return OpenMM's LangevinMiddle with its Context: HBonds constraints, repartitioned hydrogens."""
        integrator = openmm.LangevinMiddleIntegrator(T, FRICTION, PEER_STEP)
        integrator.setRandomNumberSeed(1)
        system = constrained_system(self.topology, self.system, HYDROGEN)
        integrator.kept = context(system, integrator, "CPU", {"Threads": str(threads)})
        integrator.kept.setPositions(self.positions)
        integrator.kept.setVelocitiesToTemperature(T, 1)
        integrator.step(400)
        return integrator

    def force_call(self, threads: int) -> Task:
        """Return a task that asks for forces as steps do."""
        bare = context(self.system, None, "CPU", {"Threads": str(threads)})
        places = [np.ascontiguousarray(self.positions + shift) for shift in (0.0, 1e-3)]

        def task() -> None:
            for i in range(STEPS):
                bare.setPositions(places[i % 2])
                bare.getState(forces=True)

        return task


# ---------------------------------------------------------------------------- parts of a step


def drifts(mover: Mover) -> Task:
    """Return a task with the two half drifts of a step, from where the mover is."""
    saved = mover.save()

    def task() -> None:
        mover.restore(saved)
        for _ in range(2):
            mover.note_drift(0.5 * TIMESTEP, THERMAL_TOLERANCE)
        if not mover.flush():
            raise RuntimeError("a drift did not converge")

    return task


def bare_step(tree: ptd.TreeModel) -> tuple[Task, Mover]:
    """Return a task with a Langevin step whose force call costs nothing, and what it moves.

    It goes from the reference with thermal momenta.
    """
    mover, rng, kT = Mover(tree), np.random.default_rng(1), BOLTZMANN * T
    mover.thermalise(0.0, kT, rng)
    saved, none = mover.save(), np.zeros((tree.n_atoms, 3))
    stepper = Stepper(
        mover, lambda moved, _: (0.0, moved.load_forces(none, kT)), TIMESTEP, "BAOAB", kT, FRICTION, rng,
        THERMAL_TOLERANCE,
    )  # fmt: skip

    def task() -> None:
        mover.restore(saved)
        stepper.forget()
        if not stepper.step():
            raise RuntimeError("a drift did not converge")

    return task, mover


def python_seconds(integrator: Any, calls: int) -> float:
    """Return seconds per step outside compiled code: the least over calls of `LONG` steps, in CPU time."""
    inside = [0.0]

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            begin = time.process_time()
            try:
                return function(*arguments)
            finally:
                inside[0] += time.process_time() - begin

        return call

    kept = motions.run_range, cycles.run_cycles
    motions.run_range, cycles.run_cycles = map(timed, kept)
    try:
        outside = []
        for _ in range(calls):
            inside[0], begin = 0.0, time.process_time()
            integrator.step(LONG)
            outside.append(time.process_time() - begin - inside[0])
    finally:
        motions.run_range, cycles.run_cycles = kept
    return min(outside) / LONG


# ---------------------------------------------------------------------------- measuring


def on_cores(threads: int, task: Task) -> Task:
    """Return a task that keeps to one core if OpenMM has one thread, as runs of small molecules do."""

    def run() -> object:
        with OneCore(threads == 1):
            return task()

    return run


def measure_peptide(residues: int, repeats: int) -> dict[str, Any]:
    """Time a molecule: drifts, Python, and steps beside OpenMM's own."""
    peptide = Peptide(residues)
    tasks: dict[tuple[str, int], Task] = {}
    for threads in THREADS:
        flexible, peer = peptide.flexible(threads), peptide.peer(threads)
        tasks[FLEXIBLE, threads] = on_cores(threads, lambda one=flexible: one.step(STEPS))
        tasks[PEER, threads] = on_cores(threads, lambda one=peer: one.step(STEPS))
        tasks[FORCE_CALL, threads] = on_cores(threads, peptide.force_call(threads))
    moved = peptide.flexible(1)
    tasks["drifts", 0] = drifts(moved.mover)
    harness.first_calls(tasks)
    found = harness.interleave(tasks, repeats, time.process_time)
    steps = [
        {"threads": threads, **{name: [found[name, threads].wall / STEPS, found[name, threads].cpu / STEPS]
                                for name in (FLEXIBLE, PEER, FORCE_CALL)}}
        for threads in THREADS
    ]  # fmt: skip
    fresh = peptide.flexible(1)
    return {
        "coordinates": peptide.tree.n_coordinates,
        "drift_per_coordinate": found["drifts", 0].cpu / peptide.tree.n_coordinates,
        "python": python_seconds(fresh, max(2, repeats // 4)),
        "steps": steps,
    }


def large_trees() -> dict[str, ptd.TreeModel]:
    """Return the trees whose steps are compared, with everything soft and a metric for the step."""
    structures = {f"Ala{n}": ptd.build_peptide("A" * n) for n in RESIDUES}
    file = Path(os.environ.get("PEPTIDYN_STRUCTURES", "")) / "5dfr-minimized.pdb"
    if file.is_file():
        structures["5dfr"] = ptd.load_structure(file)
    trees = {}
    for name, structure in structures.items():
        tree = ptd.build_tree(structure, soft="all")
        system = make_system(structure.topology, "vacuum")
        trees[name] = tree.with_joint_inertia(ptd.joint_inertia(tree, system, TIMESTEP))
    return trees


def measure_growth(repeats: int) -> dict[str, Any]:
    """Time steps without force calls over sizes."""
    trees = large_trees()
    made = {name: bare_step(tree) for name, tree in trees.items()}
    tasks = {name: task for name, (task, _) in made.items()}
    harness.first_calls(tasks)
    seconds = {name: t.cpu for name, t in harness.interleave(tasks, repeats).items()}
    chains = [name for name in trees if name != "5dfr"]
    n, t = (np.log([values[name] for name in chains]) for values in (
        {name: tree.n_coordinates for name, tree in trees.items()}, seconds,
    ))  # fmt: skip
    return {
        "coordinates": {name: tree.n_coordinates for name, tree in trees.items()},
        "seconds": seconds,
        "iterations": {name: int(mover.iterations.max()) for name, (_, mover) in made.items()},
        "exponent": float(np.polyfit(n, t, 1)[0]) if len(chains) > 1 else None,
    }


def measure(repeats: int = 60) -> dict[str, Any]:
    """Time everything; see the top of this file."""
    found = {name: measure_peptide(residues, repeats) for name, residues in MOLECULES.items()}
    return {"molecules": found, "growth": measure_growth(repeats)}


def tables(report: Report) -> str:
    """Return the report as text for people."""
    costs, steps = [], []
    for name, one in report["molecules"].items():
        costs.append([
            name, one["coordinates"], cell(one["drift_per_coordinate"], 2, 1e6), f"at most {GOALS['drift']:g}",
            cell(one["python"], 1, 1e6), f"at most {GOALS['python']:g}",
        ])  # fmt: skip
        for row in one["steps"]:
            wall, cpu = (row[FLEXIBLE][k] / row[PEER][k] for k in (0, 1))
            steps.append([
                name, row["threads"], *(cell(row[k][0], 0, 1e6) for k in (FLEXIBLE, PEER, FORCE_CALL)),
                cell(wall, 2), cell(cpu, 2), f"at most {GOALS[name]:g}" if name in GOALS else "",
            ])  # fmt: skip
    growth = report["growth"]
    sizes = [
        [name, n, cell(growth["seconds"][name], 2, 1e3), cell(growth["seconds"][name] / n, 2, 1e6)]
        + [growth["iterations"][name]]
        for name, n in growth["coordinates"].items()
    ]
    exponent = cell(growth["exponent"], 2)
    return "\n\n".join([
        f"Parts of a Langevin step of {1e3 * TIMESTEP:g} fs with everything soft, µs, {report['repeats']} rounds",
        table(["", "coordinates", "two drifts, per coordinate", "goal", "Python", "goal"], costs),
        f"A step beside OpenMM's LangevinMiddle of {1e3 * PEER_STEP:g} fs, µs of wall time",
        table(["", "threads", FLEXIBLE, PEER, FORCE_CALL, "ratio, wall", "ratio, CPU", "goal"], steps),
        "A step without its force call, CPU time",
        table(["", "coordinates", "ms", "µs per coordinate", "iterations of the last drift"], sizes),
        f"growth exponent of the chains: {exponent}; goal: 1 ± {GOALS['exponent']:g}",
    ])  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    return harness.run(harness.parser(__file__, __doc__, repeats=60), arguments, measure, tables)


if __name__ == "__main__":
    sys.exit(main())

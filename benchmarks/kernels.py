"""How do the kernels of the dynamics grow with the chain, and what is a time step made of?

    python benchmarks/kernels.py [--sizes N,N,...] [--repeats N] [-o FOLDER]

Forward dynamics, ln det M and its gradient are measured for one state (one compiled call) and per state of a batch, and
a whole Langevin step with the Fixman torque less its force call. The System has no forces, so that the force call costs
next to nothing. Everything runs on one thread.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openmm

import harness
from engines import ForwardDynamics
from harness import Report, Task, cell
from molecules import POLYALANINE, context, polyalanine
from peptidyn.analysis.plots import new_figure, save_figure
from peptidyn.engine.force_server import ForceServer
from peptidyn.engine.torsion_integrators import TorsionLangevinIntegrator
from peptidyn.kernels.foreign import ask_forces
from peptidyn.metric.fixman_potential import FixmanPotential

SIZES = (300, 1000, 3000)
STATES = 64
"""States of a batch."""

STEPS = 20
"""Time steps per call."""

TEMPERATURE, FRICTION, TIMESTEP = 300.0, 1.0, 0.008

DYNAMICS, VALUE, BOTH, STEP = "forward dynamics", "ln det M", "ln det M and gradient", "Langevin step, no force call"
BATCH, FORCE_CALL = ", batch", "force call"
GROWTH, STEP_RATIO = 12.0, 15.0
"""Goals: time of the last size over that of the first, per decade; a step in units of one forward dynamics."""


def measure(sizes: Sequence[int] = SIZES, repeats: int = 7) -> dict[str, Any]:
    """Time the kernels on polyalanine chains; CPU seconds per state or step."""
    tasks: dict[tuple[str, int], Task] = {}
    integrators = []
    for n in sizes:
        made, integrator = _tasks(n)
        integrators.append(integrator)
        tasks |= {(name, n): task for name, task in made.items()}
    harness.first_calls(tasks)
    timings = harness.on_threads(1, lambda: harness.interleave(tasks, repeats))
    seconds = {
        name + batch: [timings[name + batch, n].cpu / (STATES if batch else 1) for n in sizes]
        for name in (DYNAMICS, VALUE, BOTH)
        for batch in ("", BATCH)
    }
    # CPU time of the calling thread: OpenMM computes on a thread of its own
    seconds[STEP] = [(timings[STEP, n].cpu - timings[FORCE_CALL, n].cpu) / STEPS for n in sizes]
    return {
        "states": STATES,
        "seconds": seconds,
        "growth": {name: harness.growth_exponent(sizes, row) for name, row in seconds.items()},
        "step_ratio": [a / b for a, b in zip(seconds[STEP], seconds[DYNAMICS], strict=True)],
        "drift_iterations": [integrator.solver_iterations for integrator in integrators],
    }


def _tasks(n: int) -> tuple[dict[str, Task], TorsionLangevinIntegrator]:
    tree, state = polyalanine(n)
    rng = np.random.default_rng(5)
    q = state.q + 0.1 * rng.standard_normal((STATES, tree.n_coordinates))
    v, tau = rng.standard_normal((2, STATES, tree.n_dof))
    dynamics, potential = ForwardDynamics(tree, state), FixmanPotential(tree, TEMPERATURE)
    system = openmm.System()
    for mass in tree.masses:
        system.addParticle(mass)
    integrator = TorsionLangevinIntegrator(tree, TEMPERATURE, FRICTION, TIMESTEP, seed=1)
    moving, bare = (context(system, kind, "CPU", {"Threads": "1"}) for kind in (integrator, None))
    positions = tree.positions(state)
    moving.setPositions(positions)
    integrator.set_velocities_to_temperature(TEMPERATURE)

    def steps() -> object:
        integrator.step(STEPS)
        return moving  # which must live as long as its integrator

    server, force = ForceServer(bare), np.empty((tree.n_atoms, 3))

    def force_call() -> object:
        for _ in range(STEPS):
            ask_forces(server.calls, positions, force)
        return bare

    return {
        DYNAMICS: lambda: dynamics.one(q[0], v[0], tau[0]),
        VALUE: lambda: potential.energies(q[:1]),
        BOTH: lambda: potential.energies_and_torques(q[:1]),
        DYNAMICS + BATCH: lambda: dynamics.many(q, v, tau),
        VALUE + BATCH: lambda: potential.energies(q),
        BOTH + BATCH: lambda: potential.energies_and_torques(q),
        STEP: steps,
        FORCE_CALL: force_call,
    }, integrator


def tables(report: Report) -> str:
    """Return the report as text for people."""
    sizes = report["sizes"]
    head = ["µs, torsions:", *(f"{n:,d}" for n in sizes), "growth", f"{sizes[-1]:,d} / {sizes[0]:,d}"]
    rows = [
        [name, *(cell(t, 1, 1e6) for t in row), cell(report["growth"][name], 2), cell(row[-1] / row[0], 2)]
        for name, row in report["seconds"].items()
    ]
    ratios = ", ".join(f"{r:.1f} at {n:,d}" for n, r in zip(sizes, report["step_ratio"], strict=True))
    return "\n\n".join([
        f"{POLYALANINE}; one thread, {report['repeats']} interleaved rounds, CPU time per state (minimum); "
        f"batches of {report['states']} states",
        harness.table(head, rows),
        f"goal of the last column: at most {GROWTH ** np.log10(sizes[-1] / sizes[0]):.3g}\n"
        f"a step without its force call / forward dynamics: {ratios}; goal: at most {STEP_RATIO:g}\n"
        f"steps of {1000 * TIMESTEP:g} fs, iterations of the last drift: {report['drift_iterations']}",
    ])  # fmt: skip


def draw(report: Report, path: Path) -> None:
    """Draw the time per torsion of every kernel against the length of the chain."""
    figure, axes = new_figure(figsize=(7.5, 4.2))
    sizes = np.array(report["sizes"])
    for name, row in report["seconds"].items():
        axes.plot(sizes, 1e9 * np.array(row) / sizes, "o--" if name.endswith(BATCH) else "o-", label=name)
    axes.set(xscale="log", yscale="log", xlabel="torsions", ylabel="CPU time per torsion (ns)")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, path)


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__, repeats=7)
    harness.add_sizes(script, SIZES)
    return harness.run(script, arguments, measure, tables, draw)


if __name__ == "__main__":
    sys.exit(main())

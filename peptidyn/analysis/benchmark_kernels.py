"""`peptidyn bench kernels`: how the kernels of the dynamics grow with the chain, and what a step is made of.

Forward dynamics, ln det M and its gradient are measured for one state (one compiled call) and per state of a batch, and
a whole Langevin step with the Fixman torque less its force call. The System has no forces, so that the force call costs
next to nothing. Everything runs on one thread.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from peptidyn.analysis.benchmarks import (
    Task,
    check_sizes,
    first_calls,
    format_machine,
    growth_exponent,
    interleave,
    load,
    machine,
    on_threads,
    polyalanine,
)
from peptidyn.analysis.forward_dynamics import ForwardDynamics
from peptidyn.analysis.plots import new_figure, save_figure
from peptidyn.core.progress import Progress
from peptidyn.engine.torsion_integrators import TorsionLangevinIntegrator
from peptidyn.metric.fixman_potential import FixmanPotential

SIZES = (300, 1000, 3000)
STATES = 64
"""States of a batch."""

STEPS = 20
"""Time steps per call."""

TEMPERATURE, FRICTION, TIMESTEP = 300.0, 1.0, 0.008

DYNAMICS, VALUE, BOTH, STEP = "forward dynamics", "ln det M", "ln det M and gradient", "Langevin step, no force call"
BATCH = ", batch"
GROWTH, STEP_RATIO = 12.0, 15.0
"""Goals: time of the last size over that of the first, per decade; a step in units of one forward dynamics."""


def measure_kernels(sizes: Sequence[int] = SIZES, rounds: int = 7, progress: bool = False) -> dict[str, Any]:
    """Time the kernels on polyalanine chains; see the top of this file.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of torsions.
    rounds : int
        Interleaved rounds.
    progress : bool
        Show progress on standard error.

    Returns
    -------
    dict
        Ready for JSON; CPU seconds per state or step.
    """
    chosen = check_sizes(sizes)
    before = load()
    tasks: dict[tuple[str, int], Task] = {}
    integrators = {}
    for n in chosen:
        made, integrators[n] = _tasks(n)
        tasks |= {(name, n): task for name, task in made.items()}
    with Progress(rounds * len(tasks), "bench kernels", unit="turns", enabled=progress) as bar:
        first_calls(tasks)
        timings = on_threads(1, lambda: interleave(tasks, rounds, bar))
    seconds: dict[str, list[float]] = {
        name + batch: [timings[name + batch, n].cpu / (STATES if batch else 1) for n in chosen]
        for name in (DYNAMICS, VALUE, BOTH)
        for batch in ("", BATCH)
    }
    # CPU time of the calling thread: OpenMM computes on a thread of its own
    seconds[STEP] = [(timings[STEP, n].cpu - timings["force call", n].cpu) / STEPS for n in chosen]
    return {
        "benchmark": "kernels",
        "molecule": "capped polyalanine, soft phi and psi, free base",
        "machine": machine(),
        "rounds": rounds,
        "states": STATES,
        "sizes": chosen,
        "seconds": seconds,
        "growth": {name: growth_exponent(chosen, row) for name, row in seconds.items()},
        "step_ratio": [a / b for a, b in zip(seconds[STEP], seconds[DYNAMICS], strict=True)],
        "drift_iterations": [integrators[n].solver_iterations for n in chosen],
        "load": [before, load()],
    }


def _tasks(n: int) -> tuple[dict[str, Task], TorsionLangevinIntegrator]:
    import openmm

    tree, state = polyalanine(n)
    rng = np.random.default_rng(5)
    q = state.q + 0.1 * rng.standard_normal((STATES, tree.n_coordinates))
    v, tau = rng.standard_normal((2, STATES, tree.n_dof))
    dynamics, potential = ForwardDynamics(tree, state), FixmanPotential(tree, TEMPERATURE)

    system = openmm.System()
    for mass in tree.masses:
        system.addParticle(mass)
    platform = openmm.Platform.getPlatformByName("CPU")
    integrator = TorsionLangevinIntegrator(tree, TEMPERATURE, FRICTION, TIMESTEP, seed=1)
    context = openmm.Context(system, integrator, platform, {"Threads": "1"})
    positions = tree.positions(state)
    context.setPositions(positions)
    integrator.set_velocities_to_temperature(TEMPERATURE)
    bare = openmm.Context(system, openmm.VerletIntegrator(0.001), platform, {"Threads": "1"})

    def steps() -> object:
        integrator.step(STEPS)
        return context  # which must live as long as its integrator

    def force_call() -> object:
        for _ in range(STEPS):
            bare.setPositions(positions)
            bare.getState(forces=True)
        return bare

    return {
        DYNAMICS: lambda: dynamics.one(q[0], v[0], tau[0]),
        VALUE: lambda: potential.energies(q[:1]),
        BOTH: lambda: potential.energies_and_torques(q[:1]),
        DYNAMICS + BATCH: lambda: dynamics.many(q, v, tau),
        VALUE + BATCH: lambda: potential.energies(q),
        BOTH + BATCH: lambda: potential.energies_and_torques(q),
        STEP: steps,
        "force call": force_call,
    }, integrator


# ---------------------------------------------------------------------------- text and picture


def format_kernels(report: Mapping[str, Any]) -> str:
    """Return the report as text for people."""
    sizes = report["sizes"]
    decades = np.log10(sizes[-1] / sizes[0])
    lines = [
        f"Kernels on polyalanine, one thread, {report['rounds']} interleaved rounds, CPU us per state (minimum); "
        f"batches of {report['states']} states",
        "",
        f"{'torsions':32}"
        + "".join(f"{n:>10,d}" for n in sizes)
        + (f"{'growth':>10}{f'{sizes[-1]} / {sizes[0]}':>14}" if decades else ""),
    ]
    for name, row in report["seconds"].items():
        text = f"{name:32}" + "".join(f"{1e6 * t:10.1f}" for t in row)
        if decades:
            exponent = report["growth"][name]
            text += f"{'-' if exponent is None else f'{exponent:.2f}':>10}{row[-1] / row[0]:14.2f}"
        lines.append(text)
    if decades:
        lines.append(f"goal of the last column: at most {GROWTH**decades:.3g}")
    ratios = ", ".join(f"{r:.1f} at {n:,d}" for n, r in zip(sizes, report["step_ratio"], strict=True))
    iterations = ", ".join(map(str, report["drift_iterations"]))
    lines += ["", f"a step without its force call / forward dynamics: {ratios}   goal <= {STEP_RATIO:g}"]
    lines.append(f"steps of {1000 * TIMESTEP:g} fs, iterations of the last drift: {iterations}")
    return "\n".join([*lines, "", *format_machine(report)])


def plot_kernels(report: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Draw the time per torsion of every kernel against the length of the chain."""
    figure, axes = new_figure(figsize=(7.5, 4.2))
    sizes = np.array(report["sizes"])
    for name, row in report["seconds"].items():
        axes.plot(sizes, 1e9 * np.array(row) / sizes, "o--" if name.endswith(BATCH) else "o-", label=name)
    axes.set(xscale="log", yscale="log", xlabel="torsions", ylabel="CPU time per torsion (ns)")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, path)

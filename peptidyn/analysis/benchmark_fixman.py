"""`peptidyn bench fixman`: the cost of the Fixman potential beside forward dynamics and dense algebra, and of weights.

Kernels are compared on one thread in batches of states, so that the cost of a call from Python is spread over the batch
on both sides; calls for one state are listed beside them. The trajectory goes through `fixman_weights` from a file.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from peptidyn.analysis.benchmarks import (
    Task,
    check_sizes,
    first_calls,
    format_machine,
    interleave,
    load,
    machine,
    on_threads,
    polyalanine,
)
from peptidyn.analysis.forward_dynamics import ForwardDynamics
from peptidyn.core.errors import ArgumentError
from peptidyn.core.progress import Progress
from peptidyn.metric.fixman_potential import FixmanPotential
from peptidyn.metric.fixman_weights import fixman_weights
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.articulated import ArticulatedSolver
from peptidyn.solvers.dense import mass_matrix

SIZES = (1000,)
FRAMES = 10_000
STATES = 128
"""States of a batch."""

TEMPERATURE = 300.0
PEPTIDE_TORSIONS = 40  # a 20-residue peptide

VALUE, BOTH, DYNAMICS = "value", "value + gradient", "forward dynamics"
DENSE, SLOGDET = "numpy: M from atoms, slogdet", "numpy: slogdet, M given"
_GOALS = {
    "value + gradient / value": ("<=", 2.2),
    "value / forward dynamics": ("<=", 0.8),
    "numpy, M from atoms / value": (">=", 100.0),
    "numpy, M given / value": ("", 0.0),
}


def measure_fixman(
    sizes: Sequence[int] = SIZES, rounds: int = 7, frames: int = FRAMES, progress: bool = False
) -> dict[str, Any]:
    """Time the Fixman potential on polyalanine chains, and the weights of a trajectory of a 20-residue peptide.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of torsions.
    rounds : int
        Interleaved rounds.
    frames : int
        Length of the trajectory; it is compared with one of a tenth of the length.
    progress : bool
        Show progress on standard error.

    Returns
    -------
    dict
        Ready for JSON; times in seconds per state, memory in bytes.
    """
    chosen = check_sizes(sizes)
    if frames < 10:
        raise ArgumentError(f"the number of frames is {frames}, expected at least 10")
    before = load()
    # first, because the peak of resident memory never falls: dense algebra would hide what the trajectory needs
    trajectory = _measure_trajectory(frames, rounds)
    return {
        "benchmark": "fixman",
        "molecule": "capped polyalanine, soft phi and psi, free base",
        "machine": machine(),
        "rounds": rounds,
        "states": STATES,
        "potential": [_measure_potential(n, rounds, progress) for n in chosen],
        "trajectory": trajectory,
        "load": [before, load()],
    }


# ---------------------------------------------------------------------------- potential


def _measure_potential(n: int, rounds: int, progress: bool) -> dict[str, Any]:
    tree, state = polyalanine(n)
    rng = np.random.default_rng(3)
    q = state.q + 0.1 * rng.standard_normal((STATES, tree.n_coordinates))
    v, tau = rng.standard_normal((2, STATES, tree.n_dof))
    potential, dynamics, solver = FixmanPotential(tree, TEMPERATURE), ForwardDynamics(tree, state), ArticulatedSolver()
    M = mass_matrix(tree, state)
    batch: dict[str, Task] = {
        VALUE: lambda: potential.energies(q),
        BOTH: lambda: potential.energies_and_torques(q),
        DYNAMICS: lambda: dynamics.many(q, v, tau),
    }
    single: dict[str, Task] = {
        VALUE: lambda: potential.energy(state),
        BOTH: lambda: potential.energy_and_torque(state),
        DYNAMICS: lambda: solver.accelerations(tree, state, v[0], tau[0]),
        SLOGDET: lambda: np.linalg.slogdet(M),
        DENSE: lambda: np.linalg.slogdet(mass_matrix(tree, state)),
    }
    tasks = {("batch", name): task for name, task in batch.items()}
    tasks |= {("single", name): task for name, task in single.items()}
    threaded = {name: batch[name] for name in (VALUE, BOTH)}
    first_calls(tasks)
    with Progress(rounds * (len(tasks) + len(threaded)), "bench fixman", unit="turns", enabled=progress) as bar:
        threads = on_threads(1, lambda: interleave(tasks, rounds, bar))
        on_all = interleave(threaded, rounds, bar, time.process_time)
    per_state = {name: threads["batch", name].cpu / STATES for name in batch}
    alone = {name: threads["single", name].cpu for name in single}
    return {
        "n": n,
        "batch": per_state,
        "single": alone,
        "all_threads": {name: {"wall": t.wall / STATES, "cpu": t.cpu / STATES} for name, t in on_all.items()},
        "ratios": {
            "value + gradient / value": per_state[BOTH] / per_state[VALUE],
            "value / forward dynamics": per_state[VALUE] / per_state[DYNAMICS],
            "numpy, M from atoms / value": alone[DENSE] / alone[VALUE],
            "numpy, M given / value": alone[SLOGDET] / alone[VALUE],
        },
        "log_det_difference": _difference(potential, tree, state),
    }


def _difference(potential: FixmanPotential, tree: TreeModel, state: State) -> float:
    """Return the relative difference of ln det M between the potential and numpy."""
    dense = float(np.linalg.slogdet(mass_matrix(tree, state))[1])
    return float(abs(potential.log_metric(state.q[None])[0] - dense) / abs(dense))


# ---------------------------------------------------------------------------- trajectory


def _measure_trajectory(frames: int, rounds: int) -> dict[str, Any]:
    """Time one pass over trajectories of `frames` and a tenth as many frames, and measure the memory they need."""
    tree, state = polyalanine(PEPTIDE_TORSIONS)
    lengths = (frames // 10, frames)
    with TemporaryDirectory() as folder:
        files = {n: Path(folder) / f"{n}.xtc" for n in lengths}
        for n, path in files.items():
            write_trajectory(tree, state, n, path)
        fixman_weights(tree, files[lengths[0]], TEMPERATURE)
        resident = _peak_resident()
        passes = {n: _pass(tree, path) for n, path in files.items()}
        growth = None if resident is None else (_peak_resident() or 0) - resident
        traced = {n: _traced_peak(tree, path) for n, path in files.items()}
    potential = FixmanPotential(tree, TEMPERATURE)
    q = np.repeat(state.q[None], STATES, axis=0)
    tasks: dict[str, Task] = {
        "dense": lambda: np.linalg.slogdet(mass_matrix(tree, state)),
        "O(n)": lambda: potential.log_metric(q),
    }
    first_calls(tasks)
    timings = on_threads(1, lambda: interleave(tasks, rounds))
    return {
        "residues": PEPTIDE_TORSIONS // 2,
        "atoms": tree.n_atoms,
        "frames": list(lengths),
        "wall": [passes[n][0] for n in lengths],
        "cpu": [passes[n][1] for n in lengths],
        "result_bytes": [passes[n][2] for n in lengths],
        "traced_peak_bytes": [traced[n] for n in lengths],
        "resident_growth_bytes": growth,
        "log_det_per_frame": timings["O(n)"].cpu / STATES,
        "dense_per_frame": timings["dense"].cpu,
    }


def write_trajectory(tree: TreeModel, state: State, n_frames: int, path: Path) -> None:
    """Write an xtc file of frames with torsions 0.3 rad about those of `state`, normally distributed."""
    from mdtraj.formats import XTCTrajectoryFile

    rng = np.random.default_rng(4)
    with XTCTrajectoryFile(str(path), "w") as file:
        for frame in range(n_frames):
            torsions = state.torsions + 0.3 * rng.standard_normal(tree.n_torsions)
            x = tree.positions(state.replace(torsions=torsions)).astype(np.float32)
            file.write(x[None], time=np.array([frame], dtype=np.float32), step=np.array([frame], dtype=np.int32))


def _pass(tree: TreeModel, path: Path) -> tuple[float, float, int]:
    """Return wall seconds and CPU seconds (all threads) of one pass, and the bytes of its results."""
    wall, cpu = time.perf_counter(), time.process_time()
    weights = fixman_weights(tree, path, TEMPERATURE)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return wall, cpu, sum(value.nbytes for value in vars(weights).values() if isinstance(value, np.ndarray))


def _traced_peak(tree: TreeModel, path: Path) -> int:
    """Return the peak of the memory, in bytes, that Python and NumPy allocated during one pass."""
    tracemalloc.start()
    try:
        fixman_weights(tree, path, TEMPERATURE)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _peak_resident() -> int | None:
    """Return the peak of resident memory of this process in bytes, or None where the system does not tell."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# ---------------------------------------------------------------------------- text


def format_fixman(report: Mapping[str, Any]) -> str:
    """Return the report as text for people."""
    lines = [f"{report['molecule']}; {report['rounds']} interleaved rounds"]
    for part in report["potential"]:
        lines += ["", f"ln det M and its gradient, {part['n']:,d} torsions; CPU time per state on one thread, us"]
        lines.append(f"{'':32}{'batch of ' + str(report['states']):>14}{'one state':>14}")
        for name in (VALUE, BOTH, DYNAMICS, SLOGDET, DENSE):
            batch = f"{1e6 * part['batch'][name]:14.1f}" if name in part["batch"] else f"{'-':>14}"
            lines.append(f"{name:32}{batch}{1e6 * part['single'][name]:14.1f}")
        for name, t in part["all_threads"].items():
            lines.append(
                f"{name + ', all threads':32}{1e6 * t['wall']:14.1f} wall, {1e6 * t['cpu']:.1f} CPU of all threads"
            )
        lines.append("")
        for name, ratio in part["ratios"].items():
            sign, goal = _GOALS[name]
            lines.append(f"{name:32}{ratio:14.2f}" + (f"   goal {sign} {goal:g}" if sign else ""))
        lines.append(f"{'ln det M against numpy':32}{part['log_det_difference']:14.0e}   relative")
    return "\n".join([*lines, "", *_format_trajectory(report["trajectory"]), "", *format_machine(report)])


def _format_trajectory(t: Mapping[str, Any]) -> list[str]:
    lines = [
        f"fixman_weights over xtc files of a {t['residues']}-residue peptide ({t['atoms']} atoms), all threads",
        f"{'frames':>10}{'wall s':>10}{'CPU s':>10}{'frames/s':>12}{'results MB':>12}{'peak MB':>10}",
    ]
    for n, wall, cpu, result, peak in zip(
        t["frames"], t["wall"], t["cpu"], t["result_bytes"], t["traced_peak_bytes"], strict=True
    ):
        lines.append(f"{n:>10,d}{wall:>10.2f}{cpu:>10.2f}{n / wall:>12,.0f}{result / 1e6:>12.2f}{peak / 1e6:>10.2f}")
    lines.append("peak: of what Python and NumPy allocate (tracemalloc), results and their joining included")
    if t["resident_growth_bytes"] is not None:
        grown = t["resident_growth_bytes"] / 1e6
        lines.append(f"resident memory of the process grew by {grown:.1f} MB during both passes")
    fast, slow = t["log_det_per_frame"], t["dense_per_frame"]
    lines.append(
        f"ln det M alone, one thread: {1e6 * fast:.1f} us per frame; numpy, M from atoms: {1e6 * slow:.0f} us; "
        f"ratio {fast / slow:.4f}"
    )
    return lines

"""What do the Fixman potential and the weights of a trajectory cost, beside forward dynamics and dense algebra?

    python benchmarks/fixman.py [--sizes N,N,...] [--frames N] [--repeats N] [-o FOLDER]

Kernels are compared on one thread in batches of states, so that the cost of a call from Python is spread over the batch
on both sides; calls for one state are listed beside them. The trajectory, of a 20-residue peptide, goes through
`fixman_weights` from a file, and so does one of a tenth of its length.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import harness  # before NumPy, so that BLAS runs on one thread

# isort: split
import numpy as np

from engines import ForwardDynamics
from harness import Report, Task, cell, interleave
from molecules import POLYALANINE, polyalanine
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
DENSE, SLOGDET = "NumPy: M from the atoms, slogdet", "NumPy: slogdet, M given"
_GOALS = {
    "value + gradient / value": "at most 2.2",
    "value / forward dynamics": "at most 0.8",
    "NumPy, M from the atoms / value": "at least 100",
    "NumPy, M given / value": "",
}


def measure(sizes: Sequence[int] = SIZES, repeats: int = 7, frames: int = FRAMES) -> dict[str, Any]:
    """Time potential and weights; seconds per state, memory in bytes."""
    # first, because the peak of resident memory never falls: dense algebra would hide what the trajectory needs
    trajectory = _measure_trajectory(frames, repeats)
    return {"states": STATES, "trajectory": trajectory, "potential": [_measure_potential(n, repeats) for n in sizes]}


def _measure_potential(n: int, repeats: int) -> dict[str, Any]:
    tree, state = polyalanine(n)
    rng = np.random.default_rng(3)
    q = state.q + 0.1 * rng.standard_normal((STATES, tree.n_coordinates))
    v, tau = rng.standard_normal((2, STATES, tree.n_dof))
    potential, dynamics, solver = FixmanPotential(tree, TEMPERATURE), ForwardDynamics(tree, state), ArticulatedSolver()
    M = mass_matrix(tree, state)
    tasks: dict[tuple[str, str], Task] = {
        ("batch", VALUE): lambda: potential.energies(q),
        ("batch", BOTH): lambda: potential.energies_and_torques(q),
        ("batch", DYNAMICS): lambda: dynamics.many(q, v, tau),
        ("single", VALUE): lambda: potential.energy(state),
        ("single", BOTH): lambda: potential.energy_and_torque(state),
        ("single", DYNAMICS): lambda: solver.accelerations(tree, state, v[0], tau[0]),
        ("single", SLOGDET): lambda: np.linalg.slogdet(M),
        ("single", DENSE): lambda: np.linalg.slogdet(mass_matrix(tree, state)),
    }
    harness.first_calls(tasks)
    timings = harness.on_threads(1, lambda: interleave(tasks, repeats))
    threaded = interleave({name: tasks["batch", name] for name in (VALUE, BOTH)}, repeats, time.process_time)
    batch = {name: t.cpu / STATES for (kind, name), t in timings.items() if kind == "batch"}
    single = {name: t.cpu for (kind, name), t in timings.items() if kind == "single"}
    exact = float(np.linalg.slogdet(M)[1])
    ratios = (
        batch[BOTH] / batch[VALUE],
        batch[VALUE] / batch[DYNAMICS],
        single[DENSE] / single[VALUE],
        single[SLOGDET] / single[VALUE],
    )
    return {
        "n": n,
        "batch": batch,
        "single": single,
        "all_threads": {name: {"wall": t.wall / STATES, "cpu": t.cpu / STATES} for name, t in threaded.items()},
        "ratios": dict(zip(_GOALS, ratios, strict=True)),
        "log_det_difference": float(abs(potential.log_metric(state.q[None])[0] - exact) / abs(exact)),
    }


def _measure_trajectory(frames: int, repeats: int) -> dict[str, Any]:
    """Time one pass over trajectories of `frames` and a tenth as many frames, and measure the memory they need."""
    tree, state = polyalanine(PEPTIDE_TORSIONS)
    lengths = (frames // 10, frames)
    with TemporaryDirectory() as folder:
        files = [Path(folder) / f"{n}.xtc" for n in lengths]
        for n, path in zip(lengths, files, strict=True):
            write_trajectory(tree, state, n, path)
        fixman_weights(tree, files[0], TEMPERATURE)
        resident = _peak_resident()
        wall, cpu, results = zip(*(_pass(tree, path) for path in files), strict=True)
        growth = None if resident is None else (_peak_resident() or 0) - resident
        traced = [_traced_peak(tree, path) for path in files]
    potential = FixmanPotential(tree, TEMPERATURE)
    q = np.repeat(state.q[None], STATES, axis=0)
    tasks: dict[str, Task] = {
        "dense": lambda: np.linalg.slogdet(mass_matrix(tree, state)),
        "O(n)": lambda: potential.log_metric(q),
    }
    harness.first_calls(tasks)
    timings = harness.on_threads(1, lambda: interleave(tasks, repeats))
    return {
        "residues": PEPTIDE_TORSIONS // 2,
        "atoms": tree.n_atoms,
        "frames": list(lengths),
        "wall": wall,
        "cpu": cpu,
        "result_bytes": results,
        "traced_peak_bytes": traced,
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


def tables(report: Report) -> str:
    """Return the report as text for people."""
    parts = [f"{POLYALANINE}; {report['repeats']} interleaved rounds; CPU time on one thread unless said"]
    for part in report["potential"]:
        rows = [
            [name, cell(part["batch"].get(name), 1, 1e6), cell(one, 1, 1e6)] for name, one in part["single"].items()
        ]
        for name, t in part["all_threads"].items():
            rows += [[f"{name}, all threads, {clock}", cell(t[clock], 1, 1e6), "-"] for clock in ("wall", "cpu")]
        parts += [
            f"ln det M and its gradient, {part['n']:,d} torsions",
            harness.table(["µs per state", f"batch of {report['states']} states", "one state, public call"], rows),
            harness.table(
                ["ratio", "measured", "goal"],
                [[name, cell(ratio, 2), _GOALS[name]] for name, ratio in part["ratios"].items()],
            ),
            f"ln det M differs from NumPy's by {part['log_det_difference']:.0e} relative",
        ]
    return "\n\n".join([*parts, *_trajectory_tables(report["trajectory"])])


def _trajectory_tables(t: Report) -> list[str]:
    columns = [t[key] for key in ("frames", "wall", "cpu", "result_bytes", "traced_peak_bytes")]
    rows = [
        [f"{n:,d}", cell(wall, 2), cell(cpu, 2), cell(n / wall, 0), cell(result, 2, 1e-6), cell(peak, 2, 1e-6)]
        for n, wall, cpu, result, peak in zip(*columns, strict=True)
    ]
    fast, slow = t["log_det_per_frame"], t["dense_per_frame"]
    return [
        f"fixman_weights over xtc files of a {t['residues']}-residue peptide ({t['atoms']} atoms), all threads",
        harness.table(["frames", "wall, s", "CPU, s", "frames/s", "results, MB", "peak of memory, MB"], rows),
        "peak: of what Python and NumPy allocate (tracemalloc), results and their joining included\n"
        f"resident memory of the process grew by {cell(t['resident_growth_bytes'], 1, 1e-6)} MB during both passes\n"
        f"ln det M alone, one thread: {1e6 * fast:.1f} µs per frame; NumPy, M from the atoms: {1e6 * slow:.0f} µs; "
        f"ratio {fast / slow:.4f}",
    ]


def _frames(text: str) -> int:
    if (frames := int(text)) < 10:
        raise argparse.ArgumentTypeError(f"{frames} is less than 10")
    return frames


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__, repeats=7)
    harness.add_sizes(script, SIZES)
    script.add_argument("--frames", type=_frames, default=FRAMES, metavar="N", help=f"default: {FRAMES}")
    return harness.run(script, arguments, measure, tables)


if __name__ == "__main__":
    sys.exit(main())

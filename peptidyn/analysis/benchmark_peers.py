"""`peptidyn bench peers`: forward dynamics beside Pinocchio and MuJoCo, on the same trees with the same numbers.

`kernels` is the same on our side as their calls: one call, scratch made once. `accelerations` is the public method,
which checks its arguments. Batches are 64 states: ours in one call on one or two threads, theirs in a Python loop.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
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
    polyalanine,
)
from peptidyn.analysis.forward_dynamics import ForwardDynamics
from peptidyn.analysis.peer_models import MujocoModel, PinocchioModel
from peptidyn.analysis.plots import new_figure, save_figure
from peptidyn.core.errors import ArgumentError, MissingDependencyError
from peptidyn.core.progress import Progress
from peptidyn.io.peptides import build_peptide
from peptidyn.io.readers import load_structure
from peptidyn.model.build import build_tree
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.articulated import ArticulatedSolver

SIZES = (100, 300)
LARGEST = PinocchioModel.LARGEST
STATES = 64
"""States of a batch."""

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
KERNELS, PUBLIC = "peptidyn kernels", "peptidyn accelerations"
WORLD, LOCAL, MUJOCO = "pinocchio.aba WORLD", "pinocchio.aba LOCAL", "mujoco.mj_forward"


def measure_peers(
    sizes: Sequence[int] = SIZES,
    rounds: int = 7,
    progress: bool = False,
    structure: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Time forward dynamics of peptidyn, Pinocchio and MuJoCo on polyalanine chains and a protein with side chains.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of torsions of the chains, at most `LARGEST`.
    rounds : int
        Interleaved rounds.
    progress : bool
        Show progress on standard error.
    structure : path, optional
        The protein: its first residues, as many as Pinocchio can hold; default a peptide of all twenty amino acids.

    Returns
    -------
    dict
        Ready for JSON; times in seconds, of batches per state. Ratios are to the faster of Pinocchio's conventions.
    """
    chosen = check_sizes(sizes)
    if chosen[-1] > LARGEST:
        raise ArgumentError(
            f"a size is {chosen[-1]}, expected at most {LARGEST} torsions: Pinocchio takes 32 n^3 bytes of memory"
        )
    peers: dict[str, Any] = {}
    missing = []
    for name, model in (("Pinocchio", PinocchioModel), ("MuJoCo", MujocoModel)):
        try:
            model(*polyalanine(2))
            peers[name] = model
        except MissingDependencyError as error:
            missing.append(f"{name} left out: {error}")
    if not peers:
        raise MissingDependencyError("no other engine is installed; install one with: pip install pin mujoco")
    before = load()
    trees = [(f"polyalanine, {n} torsions", *polyalanine(n)) for n in chosen]
    trees.append(_protein(structure, chosen[-1]))
    rows = [_measure(title, tree, state, peers, rounds, progress) for title, tree, state in trees]
    return {
        "benchmark": "peers",
        "molecule": "capped polyalanine with soft phi and psi, and a protein with phi, psi and chi; free base",
        "machine": machine(),
        "rounds": rounds,
        "states": STATES,
        "missing": missing,
        "rows": rows,
        "load": [before, load()],
    }


def _protein(path: str | os.PathLike[str] | None, largest: int) -> tuple[str, TreeModel, State]:
    """Return title, tree and a state of a protein with side chains and at most `largest` torsions."""
    if path is None:
        title, n = "peptide of all amino acids", largest // 3
        whole = build_peptide((RESIDUES * (n // 20 + 1))[:n])
    else:
        whole = load_structure(path).subset("protein")
        title = f"{os.path.basename(os.fspath(path))}, first residues"
    n = len(whole.atoms.residue_name)
    tree = build_tree(whole, "phi psi chi")
    while tree.n_torsions > largest:
        n = min(n - 1, n * largest // tree.n_torsions)
        tree = build_tree(whole.subset(np.flatnonzero(whole.atoms.residue < n)), "phi psi chi")
    if tree.n_molecules > 1:
        raise ArgumentError(f"{path} holds {tree.n_molecules} chains or molecules; give one with a single chain")
    noise = 0.1 * np.random.default_rng(1).standard_normal(tree.n_torsions)
    state = tree.reference.replace(torsions=tree.reference.torsions + noise)
    return f"{title}, {tree.n_torsions} torsions", tree, state


def _measure(
    title: str, tree: TreeModel, state: State, peers: Mapping[str, Any], rounds: int, progress: bool
) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    v, tau = rng.standard_normal((2, STATES, tree.n_dof))
    q = np.repeat(state.q[None], STATES, axis=0)
    q[1:] += 0.05 * rng.standard_normal((STATES - 1, tree.n_coordinates))
    dynamics, solver = ForwardDynamics(tree, state), ArticulatedSolver()
    models = {name: model(tree, state) for name, model in peers.items()}
    ours = dynamics.one(q[0], v[0], tau[0])
    tasks: dict[str, Task] = {
        KERNELS: lambda: dynamics.one(q[0], v[0], tau[0]),
        PUBLIC: lambda: solver.accelerations(tree, state, v[0], tau[0]),
    }
    loop: Callable[[], object] | None = None
    if "Pinocchio" in models:
        pinocchio = models["Pinocchio"]
        tasks |= {name: pinocchio.call(q[0], v[0], tau[0], name.split()[-1]) for name in (WORLD, LOCAL)}
        calls = [pinocchio.call(*parts, "WORLD") for parts in zip(q, v, tau, strict=True)]
        loop = lambda: [call() for call in calls]  # noqa: E731
    if "MuJoCo" in models:
        tasks[MUJOCO] = models["MuJoCo"].call(q[0], v[0], tau[0])
    first_calls(tasks)
    with Progress(rounds * (len(tasks) + 3), f"bench peers, {title}", unit="turns", enabled=progress) as bar:
        timings = interleave(tasks, rounds, bar)
        batch = _measure_batch(lambda: dynamics.many(q, v, tau), loop, rounds, bar)
    theirs = [timings[name].cpu for name in (WORLD, LOCAL) if name in timings]
    row: dict[str, Any] = {
        "title": title,
        "n": tree.n_torsions,
        "cpu": {name: t.cpu for name, t in timings.items()},
        "wall": {name: t.wall for name, t in timings.items()},
        "batch": batch,
        "difference": {
            name: float(np.linalg.norm(ours - other) / np.linalg.norm(other))
            for name, model in models.items()
            for other in [model.accelerations(q[0], v[0], tau[0])]
        },
    }
    if theirs:
        row["kernels_ratio"] = timings[KERNELS].cpu / min(theirs)
        row["accelerations_ratio"] = timings[PUBLIC].cpu / min(theirs)
        row["batch_ratio"] = batch["one thread"]["cpu"] / batch["loop"]["cpu"]
        row["batch_ratio_two_threads"] = batch["two threads"]["wall"] / batch["loop"]["wall"]
    if MUJOCO in timings:
        row["mujoco_ratio"] = timings[KERNELS].cpu / timings[MUJOCO].cpu
    return row


def _measure_batch(many: Task, loop: Task | None, rounds: int, bar: Progress) -> dict[str, dict[str, float]]:
    """Return wall and CPU seconds (of all threads) per state of a batch."""
    import numba

    usual = numba.get_num_threads()

    def on(n: int) -> Task:
        def task() -> object:
            numba.set_num_threads(min(n, usual))
            return many()

        return task

    tasks: dict[str, Task] = {"one thread": on(1), "two threads": on(2)}
    if loop is not None:
        tasks["loop"] = loop
    first_calls(tasks)
    try:
        timings = interleave(tasks, rounds, bar)
        return {
            name: {"wall": timings[name].wall / STATES, "cpu": _cpu_time(task) / STATES} for name, task in tasks.items()
        }
    finally:
        numba.set_num_threads(usual)


def _cpu_time(task: Task, calls: int = 20) -> float:
    """Return the CPU seconds of all threads per call, the mean of many: the clock of other threads lags behind."""
    start = time.process_time()
    for _ in range(calls):
        task()
    return (time.process_time() - start) / calls


# ---------------------------------------------------------------------------- text and picture

_RATIOS = {
    "kernels_ratio": ("kernels / faster pinocchio.aba", "0.45"),
    "accelerations_ratio": ("accelerations / faster pinocchio.aba", ""),
    "mujoco_ratio": ("kernels / mj_forward", ""),
    "batch_ratio": ("batch, one thread / loop, CPU", "0.35"),
    "batch_ratio_two_threads": ("batch, two threads / loop, wall", "0.20"),
}


def format_peers(report: Mapping[str, Any]) -> str:
    """Return the report as text for people."""
    rows = report["rows"]
    lines = [f"{report['molecule']}; {report['rounds']} interleaved rounds", *report["missing"], ""]
    lines += [f"({i + 1}) {row['title']}" for i, row in enumerate(rows)]
    lines += ["", "Forward dynamics of one state; CPU time of the calling thread, minimum, us"]
    lines.append(f"{'':40}" + "".join(f"{f'({i + 1})':>10}" for i in range(len(rows))))
    lines += [f"{name:40}" + "".join(f"{1e6 * row['cpu'][name]:>10.1f}" for row in rows) for name in rows[0]["cpu"]]
    lines += ["", f"Batch of {report['states']} states; per state, minimum, us; CPU is that of all threads"]
    for name in rows[0]["batch"]:
        title = "Python loop over pinocchio.aba WORLD" if name == "loop" else f"peptidyn, {name}"
        for clock in ("wall", "cpu"):
            values = "".join(f"{1e6 * row['batch'][name][clock]:>10.2f}" for row in rows)
            lines.append(f"{f'{title}, {clock}':40}" + values)
    lines += ["", f"{'Ratios':40}" + "".join(f"{f'({i + 1})':>10}" for i in range(len(rows)))]
    for key, (title, goal) in _RATIOS.items():
        if key in rows[0]:
            note = f"   goal <= {goal}" if goal else ""
            lines.append(f"{title:40}" + "".join(f"{row[key]:>10.3f}" for row in rows) + note)
    for name in rows[0]["difference"]:
        values = "".join(f"{row['difference'][name]:>10.0e}" for row in rows)
        lines.append(f"{f'relative difference from {name}':40}" + values)
    return "\n".join([*lines, "", *format_machine(report)])


def plot_peers(report: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Draw the time per state of every engine as bars, one group per molecule."""
    rows = report["rows"]
    series = {name: [row["cpu"][name] for row in rows] for name in rows[0]["cpu"]}
    series["peptidyn, batch of 64, per state"] = [row["batch"]["one thread"]["cpu"] for row in rows]
    figure, axes = new_figure(figsize=(8.4, 4.4))
    width = 0.84 / len(series)
    colours = ("#1f4e79", "#5b8db8", "#c8781e", "#e0b07a", "#7a7a7a", "#2e8b57")
    for i, (name, seconds) in enumerate(series.items()):
        places = np.arange(len(rows)) + (i - 0.5 * (len(series) - 1)) * width
        bars = axes.bar(places, 1e6 * np.array(seconds), width, label=name, color=colours[i % len(colours)])
        axes.bar_label(bars, fmt="%.0f", fontsize=7)
    axes.set_xticks(range(len(rows)), [row["title"].replace(", ", "\n") for row in rows], fontsize=8)
    axes.set(ylabel="time per state (µs)", yscale="log", title="Forward dynamics on one thread")
    axes.legend(frameon=False, fontsize=8)
    save_figure(figure, path)

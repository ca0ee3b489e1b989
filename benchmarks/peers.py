"""How fast is forward dynamics beside Pinocchio and MuJoCo, on the same trees with the same numbers?

    python benchmarks/peers.py [--sizes N,N,...] [--structure FILE] [--repeats N] [-o FOLDER]

Needs one of them at least: pip install pin mujoco. The molecules are polyalanine chains and a protein with side chains:
the first residues of FILE, as many as Pinocchio can hold, or a peptide of all amino acids. "peptidyn kernels" is the
same on our side as their calls: one call, scratch made once; "peptidyn accelerations" is the public method, which
checks its arguments. Batches are 64 states: ours in one call on one or two threads, theirs in a Python loop.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import harness
from engines import ForwardDynamics, MujocoModel, PinocchioModel
from harness import Report, Task, cell, on_threads
from molecules import off_reference, polyalanine
from peptidyn.analysis.plots import new_figure, save_figure
from peptidyn.core.errors import ArgumentError, MissingDependencyError
from peptidyn.io.peptides import build_peptide
from peptidyn.io.readers import load_structure
from peptidyn.model.build import build_tree
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.articulated import ArticulatedSolver

SIZES = (100, 300)
STATES = 64
"""States of a batch."""

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
ENGINES = {"Pinocchio": PinocchioModel, "MuJoCo": MujocoModel}
KERNELS, PUBLIC = "peptidyn kernels", "peptidyn accelerations"
WORLD, LOCAL, MUJOCO = "pinocchio.aba WORLD", "pinocchio.aba LOCAL", "mujoco.mj_forward"
ONE, TWO, LOOP = "peptidyn, one thread", "peptidyn, two threads", "Python loop over pinocchio.aba WORLD"
_GOALS = {
    "kernels / faster pinocchio.aba": "at most 0.45",
    "accelerations / faster pinocchio.aba": "",
    "kernels / mj_forward": "",
    "batch, one thread / loop, CPU": "at most 0.35",
    "batch, two threads / loop, wall": "at most 0.20",
}


def measure(sizes: Sequence[int] = SIZES, repeats: int = 7, structure: str | None = None) -> dict[str, Any]:
    """Time forward dynamics of all engines that are installed; seconds, of batches per state."""
    if max(sizes) > PinocchioModel.LARGEST:
        raise ArgumentError(
            f"a size is {max(sizes)}, expected at most {PinocchioModel.LARGEST} torsions: "
            "Pinocchio takes 32 n^3 bytes of memory"
        )
    installed, missing = {}, []
    for name, engine in ENGINES.items():
        try:
            engine(*polyalanine(2))
            installed[name] = engine
        except MissingDependencyError as error:
            missing.append(f"{name} left out: {error}")
    if not installed:
        raise MissingDependencyError("no other engine is installed; install one with: pip install pin mujoco")
    trees = [(f"polyalanine, {n} torsions", *polyalanine(n)) for n in sizes]
    trees.append(_protein(structure, max(sizes)))
    return {"states": STATES, "missing": missing, "rows": [_measure(*tree, installed, repeats) for tree in trees]}


def _protein(path: str | None, largest: int) -> tuple[str, TreeModel, State]:
    """Return title, tree and a state of a protein with side chains and at most `largest` torsions."""
    if path is None:
        title, n = "peptide of all amino acids", largest // 3
        whole = build_peptide((RESIDUES * (n // 20 + 1))[:n])
    else:
        title, whole = f"{Path(path).name}, first residues", load_structure(path).subset("protein")
    n = len(whole.atoms.residue_name)
    tree = build_tree(whole, "phi psi chi")
    while tree.n_torsions > largest:
        n = min(n - 1, n * largest // tree.n_torsions)
        tree = build_tree(whole.subset(np.flatnonzero(whole.atoms.residue < n)), "phi psi chi")
    if tree.n_molecules > 1:
        raise ArgumentError(f"{path} holds {tree.n_molecules} chains or molecules; give one with a single chain")
    return f"{title}, {tree.n_torsions} torsions", tree, off_reference(tree)


def _measure(title: str, tree: TreeModel, state: State, engines: Mapping[str, Any], repeats: int) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    v, tau = rng.standard_normal((2, STATES, tree.n_dof))
    q = np.repeat(state.q[None], STATES, axis=0)
    q[1:] += 0.05 * rng.standard_normal((STATES - 1, tree.n_coordinates))
    dynamics, solver = ForwardDynamics(tree, state), ArticulatedSolver()
    models = {name: engine(tree, state) for name, engine in engines.items()}
    first = q[0], v[0], tau[0]
    single: dict[str, Task] = {
        KERNELS: lambda: dynamics.one(*first),
        PUBLIC: lambda: solver.accelerations(tree, state, v[0], tau[0]),
    }
    batch: dict[str, Task] = {
        ONE: lambda: on_threads(1, lambda: dynamics.many(q, v, tau)),
        TWO: lambda: on_threads(2, lambda: dynamics.many(q, v, tau)),
    }
    if "Pinocchio" in models:
        pinocchio = models["Pinocchio"]
        single |= {name: pinocchio.call(*first, name.split()[-1]) for name in (WORLD, LOCAL)}
        calls = [pinocchio.call(*parts, "WORLD") for parts in zip(q, v, tau, strict=True)]
        batch[LOOP] = lambda: [call() for call in calls]
    if "MuJoCo" in models:
        single[MUJOCO] = models["MuJoCo"].call(*first)
    harness.first_calls(single | batch)
    timings = harness.interleave(single, repeats)
    batches = {
        name: {"wall": t.wall / STATES, "cpu": _cpu_time(batch[name]) / STATES}
        for name, t in harness.interleave(batch, repeats).items()
    }
    cpu = {name: t.cpu for name, t in timings.items()}
    ours = dynamics.one(*first)
    theirs = {name: model.accelerations(*first) for name, model in models.items()}
    return {
        "title": title,
        "n": tree.n_torsions,
        "cpu": cpu,
        "wall": {name: t.wall for name, t in timings.items()},
        "batch": batches,
        "ratios": _ratios(cpu, batches),
        "difference": {name: float(np.linalg.norm(ours - a) / np.linalg.norm(a)) for name, a in theirs.items()},
    }


def _cpu_time(task: Task, calls: int = 20) -> float:
    """Return the CPU seconds of all threads per call, the mean of many: the clock of other threads lags behind."""
    start = time.process_time()
    for _ in range(calls):
        task()
    return (time.process_time() - start) / calls


def _ratios(cpu: Mapping[str, float], batch: Mapping[str, Mapping[str, float]]) -> dict[str, float | None]:
    """Return the ratios of `_GOALS` to the faster of Pinocchio's conventions; None where an engine is missing."""
    aba, loop = min((cpu[name] for name in (WORLD, LOCAL) if name in cpu), default=None), batch.get(LOOP)
    values = (
        None if aba is None else cpu[KERNELS] / aba,
        None if aba is None else cpu[PUBLIC] / aba,
        None if MUJOCO not in cpu else cpu[KERNELS] / cpu[MUJOCO],
        None if loop is None else batch[ONE]["cpu"] / loop["cpu"],
        None if loop is None else batch[TWO]["wall"] / loop["wall"],
    )
    return dict(zip(_GOALS, values, strict=True))


def tables(report: Report) -> str:
    """Return the report as text for people."""
    rows = report["rows"]
    titles = [row["title"] for row in rows]
    one = [[name, *(cell(row["cpu"][name], 1, 1e6) for row in rows)] for name in rows[0]["cpu"]]
    many = [
        [f"{name}, {clock}", *(cell(row["batch"][name][clock], 2, 1e6) for row in rows)]
        for name in rows[0]["batch"]
        for clock in ("wall", "cpu")
    ]
    ratios = [[name, *(cell(row["ratios"][name], 3) for row in rows), goal] for name, goal in _GOALS.items()]
    ratios += [
        [f"relative difference from {name}", *(f"{row['difference'][name]:.0e}" for row in rows), ""]
        for name in rows[0]["difference"]
    ]
    return "\n\n".join([
        f"Forward dynamics; {report['repeats']} interleaved rounds, minimum", *report["missing"],
        "One state, CPU time of the calling thread", harness.table(["µs", *titles], one),
        f"Batch of {report['states']} states, per state; CPU of all threads", harness.table(["µs", *titles], many),
        harness.table(["ratio", *titles, "goal"], ratios),
    ])  # fmt: skip


def draw(report: Report, path: Path) -> None:
    """Draw the time per state of every engine as bars, one group per molecule."""
    rows = report["rows"]
    series = {name: [row["cpu"][name] for row in rows] for name in rows[0]["cpu"]}
    series[f"peptidyn, batch of {STATES}, per state"] = [row["batch"][ONE]["cpu"] for row in rows]
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


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__, repeats=7)
    harness.add_sizes(script, SIZES)
    script.add_argument("--structure", metavar="FILE", help="a protein, in place of a peptide of all amino acids")
    return harness.run(script, arguments, measure, tables, draw)


if __name__ == "__main__":
    sys.exit(main())

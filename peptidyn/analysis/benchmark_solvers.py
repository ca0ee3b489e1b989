"""`peptidyn bench solvers`: how the cost of every solver grows with the number of torsions.

The picture corresponds to Fig. 3 of Lee, Wang & Chirikjian (2007) and Fig. 2 of Lee & Chirikjian (2005): time of M^-1 b
against the number of links, direct inversion dashed and O(n) methods solid. Two rows stand for direct inversion:
`dense`, the oracle of the registry, which decomposes the Jacobian of all atoms and is made for accuracy, and LAPACK's
Cholesky factor and solve of an M that is given, the least that any dense method has to do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from peptidyn.analysis.benchmarks import (
    Task,
    Timing,
    check_sizes,
    first_calls,
    format_machine,
    growth_exponent,
    interleave,
    load,
    machine,
    polyalanine,
)
from peptidyn.analysis.plots import new_figure, save_figure
from peptidyn.core.progress import Progress
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.protocol import Solver, get_solver, list_solvers
from peptidyn.solvers.spatial_dynamics import ALGORITHMS

SIZES = (30, 100, 300, 1000, 3000)
DENSE = "dense"
CHOLESKY = "Cholesky, M given"
DIRECT = (DENSE, CHOLESKY)

DENSE_LIMIT = 1000
"""Torsions up to which `dense` takes part: at 3,000 its Jacobian alone needs 1 GB, and a call tens of seconds."""

SMALLEST = 2
"""Torsions of the chain whose time stands for the fixed cost of a call: checks, allocations, calls of kernels."""

SOLVE, DYNAMICS = "solve", "forward_dynamics"
_TITLES = {
    SOLVE: "M^-1 b: factor and one right-hand side",
    DYNAMICS: "Forward dynamics: accelerations with velocity terms",
}
_TaskKey = tuple[str, str, int]  # quantity, method, torsions


def measure_solvers(
    sizes: Sequence[int] = SIZES, rounds: int = 7, dense_limit: int = DENSE_LIMIT, progress: bool = False
) -> dict[str, Any]:
    """Time every solver of the registry on polyalanine chains.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of torsions.
    rounds : int
        Interleaved rounds.
    dense_limit : int
        Largest number of torsions for `dense`.
    progress : bool
        Show progress on standard error.

    Returns
    -------
    dict
        Ready for JSON; times in seconds. ``report["solve"][name]`` and ``report["forward_dynamics"][name]`` hold ``n``,
        ``cpu``, ``wall``, ``median``, ``calls`` and ``first_call`` per size, the fixed cost of a call, the time per
        torsion, and the growth exponents with and without the fixed cost.
    """
    chosen = check_sizes(sizes)
    before = load()
    chains = {n: polyalanine(n) for n in sorted({SMALLEST, *chosen})}
    tasks: dict[_TaskKey, Task] = {}
    for n, (tree, state) in chains.items():
        tasks |= _tasks(tree, state, n <= dense_limit)
    first = first_calls(tasks)
    with Progress(rounds * len(tasks), "bench solvers", unit="turns", enabled=progress) as bar:
        timings = interleave(tasks, rounds, bar)
    report: dict[str, Any] = {
        "benchmark": "solvers",
        "molecule": "capped polyalanine, soft phi and psi, free base",
        "machine": machine(),
        "load": [before, load()],
        "rounds": rounds,
        "dense_limit": dense_limit,
        "sizes": chosen,
        "log_det_spread": [_log_det_spread(*chains[n]) for n in chosen],
    }
    for quantity in (SOLVE, DYNAMICS):
        names = dict.fromkeys(name for what, name, _ in tasks if what == quantity)
        report[quantity] = {name: _row(quantity, name, timings, first, chosen) for name in names}
    for row in report[SOLVE].values():
        row["dense_ratio"] = _ratio(report[SOLVE][DENSE], row)
        row["cholesky_ratio"] = _ratio(report[SOLVE][CHOLESKY], row)
    return report


def _tasks(tree: TreeModel, state: State, with_dense: bool) -> dict[_TaskKey, Task]:
    rng = np.random.default_rng(2)
    b, v, tau = rng.standard_normal((3, tree.n_dof))
    n = tree.n_torsions
    tasks: dict[_TaskKey, Task] = {}
    for name in list_solvers():
        if name != DENSE or with_dense:
            tasks[SOLVE, name, n] = _solve_task(get_solver(name), tree, state, b)
    M = given_mass_matrix(tree, state)
    tasks[SOLVE, CHOLESKY, n] = lambda: cho_solve(cho_factor(M, lower=True), b)
    for name in _dynamics_names():
        tasks[DYNAMICS, name, n] = _dynamics_task(get_solver(name), tree, state, v, tau)
    return tasks


def _dynamics_names() -> list[str]:
    """Return the O(n) solvers, each of the algorithms of `spatial-operator` by itself."""
    several = {"spatial-operator": [f"spatial-operator:{algorithm}" for algorithm in ALGORITHMS]}
    return [choice for name in list_solvers() if name != DENSE for choice in several.get(name, [name])]


def _solve_task(solver: Solver, tree: TreeModel, state: State, b: np.ndarray) -> Task:
    return lambda: solver.solve(tree, state, b)


def _dynamics_task(solver: Solver, tree: TreeModel, state: State, v: np.ndarray, tau: np.ndarray) -> Task:
    return lambda: solver.accelerations(tree, state, v, tau)


def given_mass_matrix(tree: TreeModel, state: State) -> np.ndarray:
    """Return M column by column, as the momenta of unit velocities; O(n^2), where `mass_matrix` is O(n^3)."""
    return np.array([tree.momenta(state, unit) for unit in np.eye(tree.n_dof)])


def _log_det_spread(tree: TreeModel, state: State) -> float:
    """Return the relative difference between the largest and the smallest ln det M of the O(n) solvers."""
    values = [get_solver(name).log_det(tree, state) for name in list_solvers() if name != DENSE]
    return float((max(values) - min(values)) / max(abs(x) for x in values))


def _row(
    quantity: str,
    name: str,
    timings: Mapping[_TaskKey, Timing],
    first: Mapping[_TaskKey, float],
    sizes: Sequence[int],
) -> dict[str, Any]:
    done = [n for n in sizes if (quantity, name, n) in timings]
    taken = [timings[quantity, name, n] for n in done]
    fixed = timings[quantity, name, SMALLEST]
    cpu = np.array([t.cpu for t in taken])
    return {
        "n": done,
        "cpu": cpu.tolist(),
        "wall": [t.wall for t in taken],
        "median": [t.median for t in taken],
        "calls": [t.calls for t in taken],
        "first_call": [first[quantity, name, n] for n in done],
        "first_call_ever": first[quantity, name, SMALLEST],
        "fixed": fixed.cpu,
        "per_torsion": (cpu[-1] - fixed.cpu) / (done[-1] - SMALLEST) if done and done[-1] > SMALLEST else None,
        "exponent": growth_exponent(done, cpu.tolist()),
        "exponent_beyond_fixed": growth_exponent(done, (cpu - fixed.cpu).tolist()),
    }


def _ratio(slow: Mapping[str, Any], row: Mapping[str, Any]) -> float | None:
    """Return how many times longer `slow` takes at the largest size that both have."""
    both = set(slow["n"]) & set(row["n"])
    if not both:
        return None
    n = max(both)
    return slow["cpu"][slow["n"].index(n)] / row["cpu"][row["n"].index(n)]


# ---------------------------------------------------------------------------- text


def format_solvers(report: Mapping[str, Any]) -> str:
    """Return the report as text for people."""
    dense_sizes = report[SOLVE][DENSE]["n"]
    lines = [f"{report['molecule']}; {report['rounds']} interleaved rounds"]
    for quantity, title in _TITLES.items():
        lines += ["", f"{title}; CPU time of the calling thread, minimum, ms"]
        head = "".join(f"{n:>10,d}" for n in report["sizes"])
        ratios = f"{'dense/it':>10}{'Chol./it':>10}" if quantity == SOLVE else ""
        lines.append(f"{'torsions':22}{head}{'fixed us':>10}{'us/tors.':>10}{'growth':>8}{'net':>7}{ratios}")
        for name, row in report[quantity].items():
            times = dict(zip(row["n"], row["cpu"], strict=True))
            cells = "".join(_cell(times.get(n), 1e3, 10, 3) for n in report["sizes"])
            cells += _cell(row["fixed"], 1e6, 10, 1)
            cells += _cell(None if name in DIRECT else row["per_torsion"], 1e6, 10, 3)
            cells += _cell(row["exponent"], 1, 8, 2)
            cells += _cell(None if name in DIRECT else row["exponent_beyond_fixed"], 1, 7, 2)
            if quantity == SOLVE:
                cells += _cell(row["dense_ratio"], 1, 10, 1) + _cell(row["cholesky_ratio"], 1, 10, 2)
            lines.append(f"{name:22}{cells}")
    lines += [
        "",
        f"fixed    time of a chain of {SMALLEST} torsions: checks, allocations and calls, not yet algebra",
        "growth   exponent over the last decade of sizes; net: the same without the fixed cost",
        f"dense    decomposes the Jacobian of all atoms; run up to {report['dense_limit']:,d} torsions only"
        + (f"; dense/it is at {dense_sizes[-1]:,d} torsions" if dense_sizes else ""),
        "Chol.    LAPACK's Cholesky factor and solve of an M that is given; Chol./it is at the largest size",
        f"ln det M of all O(n) solvers agrees to {max(report['log_det_spread']):.0e} relative at every size",
        "",
        "First call, s: of all (compiles, or loads compiled code), and on the longest chain (makes plans for a tree)",
    ]
    for name, row in report[SOLVE].items():
        if name != CHOLESKY and row["n"]:
            lines.append(f"  {name:20}{row['first_call_ever']:10.3f}{row['first_call'][-1]:10.3f}")
    lines += ["", f"wall / CPU, largest over all rows: {_contention(report):.2f} (1 on a quiet machine)"]
    return "\n".join([*lines, *format_machine(report)])


def _cell(value: float | None, scale: float, width: int, digits: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value * scale:>{width},.{digits}f}"


def _contention(report: Mapping[str, Any]) -> float:
    """Return the largest ratio of wall to CPU minima of the methods that run on one thread."""
    return max(
        wall / cpu
        for quantity in (SOLVE, DYNAMICS)
        for name, row in report[quantity].items()
        if name not in DIRECT
        for wall, cpu in zip(row["wall"], row["cpu"], strict=True)
    )


# ---------------------------------------------------------------------------- picture

_COLOURS = ("#000000", "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7")  # Okabe & Ito
_MARKERS = "osD^vP<>*X"
_LEGEND = """dashed: direct inversion
solid: O($n$) methods
exponents: last decade of $n$,
fixed cost of a call taken off
"""


def plot_solvers(report: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Draw time of M^-1 b against the number of torsions: direct inversion dashed, O(n) methods solid."""
    figure, axes = new_figure(figsize=(8.2, 5.2))
    rows = {name: row for name, row in report[SOLVE].items() if row["n"]}
    methods = [name for name in rows if name not in DIRECT]
    # slowest first, so that the legend reads as the curves do
    order = [*(name for name in DIRECT if name in rows), *sorted(methods, key=lambda name: -rows[name]["cpu"][-1])]
    for name in order:
        row = rows[name]
        place = DIRECT.index(name) if name in DIRECT else methods.index(name)
        style: dict[str, Any] = (
            {"color": "#555555", "linestyle": "--", "marker": "sx"[place], "markerfacecolor": "white"}
            if name in DIRECT
            else {"color": _COLOURS[place % len(_COLOURS)], "linestyle": "-", "marker": _MARKERS[place % len(_MARKERS)]}
        )
        exponent = row["exponent"] if name in DIRECT else row["exponent_beyond_fixed"]
        label = name if exponent is None else f"{name}  ($n^{{{exponent:.2f}}}$)"
        axes.plot(row["n"], 1e3 * np.array(row["cpu"]), label=label, linewidth=1.6, markersize=6, **style)
    axes.set(
        xscale="log", yscale="log", xlabel="number of torsions $n$", ylabel="time of $M^{-1}b$ (ms)",
        title=f"Mass-matrix solvers on {report['molecule'].split(',')[0]}",
    )  # fmt: skip
    axes.set_xticks(report["sizes"], [f"{n:,d}" for n in report["sizes"]])
    axes.minorticks_off()
    axes.grid(True, color="#dddddd", linewidth=0.6)
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9,
        title=_LEGEND, title_fontsize=9, alignment="left",
    )  # fmt: skip
    save_figure(figure, path)

"""How does the cost of every solver grow with the number of torsions?

    python benchmarks/solvers.py [--sizes N,N,...] [--repeats N] [-o FOLDER]

Polyalanine chains; M^-1 b and forward dynamics through the public calls. The picture corresponds to Fig. 3 of Lee, Wang
& Chirikjian (2007) and Fig. 2 of Lee & Chirikjian (2005): time of M^-1 b against the number of links, direct inversion
dashed and O(n) methods solid. Two rows stand for direct inversion: `dense`, the oracle of the registry, which
decomposes the Jacobian of all atoms and is made for accuracy, and LAPACK's Cholesky factor and solve of an M that is
given, the least that any dense method has to do.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import harness  # before NumPy, so that BLAS runs on one thread

# isort: split
import numpy as np
from scipy.linalg import cho_factor, cho_solve

from harness import Report, Task, Timing, cell, growth_exponent
from molecules import POLYALANINE, polyalanine
from peptidyn.analysis.plots import new_figure, save_figure
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.protocol import get_solver, list_solvers
from peptidyn.solvers.spatial_dynamics import ALGORITHMS

SIZES = (30, 100, 300, 1000, 3000)
DENSE, CHOLESKY = DIRECT = ("dense", "Cholesky, M given")

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


def measure(sizes: Sequence[int] = SIZES, repeats: int = 7) -> dict[str, Any]:
    """Time every solver of the registry on polyalanine chains.

    Returns
    -------
    dict
        Times in seconds. ``report["solve"][name]`` and ``report["forward_dynamics"][name]`` hold ``n``, ``cpu``,
        ``wall``, ``median``, ``calls`` and ``first_call`` per size, the fixed cost of a call, the time per torsion, and
        the growth exponents with and without the fixed cost.
    """
    chains = {n: polyalanine(n) for n in sorted({SMALLEST, *sizes})}
    tasks: dict[_TaskKey, Task] = {}
    for tree, state in chains.values():
        tasks |= _tasks(tree, state)
    first = harness.first_calls(tasks)
    timings = harness.interleave(tasks, repeats)
    report: dict[str, Any] = {"log_det_spread": [_log_det_spread(*chains[n]) for n in sizes]}
    for quantity in _TITLES:
        names = dict.fromkeys(name for what, name, _ in tasks if what == quantity)
        report[quantity] = {name: _row(quantity, name, timings, first, sizes) for name in names}
    for row in report[SOLVE].values():
        row["dense_ratio"], row["cholesky_ratio"] = (_ratio(report[SOLVE][slow], row) for slow in DIRECT)
    return report


def _tasks(tree: TreeModel, state: State) -> dict[_TaskKey, Task]:
    b, v, tau = np.random.default_rng(2).standard_normal((3, tree.n_dof))
    n = tree.n_torsions
    tasks: dict[_TaskKey, Task] = {}
    for name in list_solvers():
        if name != DENSE or n <= DENSE_LIMIT:
            tasks[SOLVE, name, n] = partial(get_solver(name).solve, tree, state, b)
    M = given_mass_matrix(tree, state)
    tasks[SOLVE, CHOLESKY, n] = lambda: cho_solve(cho_factor(M, lower=True), b)
    for name in _dynamics_names():
        tasks[DYNAMICS, name, n] = partial(get_solver(name).accelerations, tree, state, v, tau)
    return tasks


def _dynamics_names() -> list[str]:
    """Return the O(n) solvers, each of the algorithms of `spatial-operator` by itself."""
    several = {"spatial-operator": [f"spatial-operator:{algorithm}" for algorithm in ALGORITHMS]}
    return [choice for name in list_solvers() if name != DENSE for choice in several.get(name, [name])]


def given_mass_matrix(tree: TreeModel, state: State) -> np.ndarray:
    """Return M column by column, as the momenta of unit velocities; O(n^2), where `mass_matrix` is O(n^3)."""
    return np.array([tree.momenta(state, unit) for unit in np.eye(tree.n_dof)])


def _log_det_spread(tree: TreeModel, state: State) -> float:
    """Return the relative difference between the largest and the smallest ln det M of the O(n) solvers."""
    values = [get_solver(name).log_det(tree, state) for name in list_solvers() if name != DENSE]
    return float((max(values) - min(values)) / max(abs(x) for x in values))


def _row(
    quantity: str, name: str, timings: Mapping[_TaskKey, Timing], first: Mapping[_TaskKey, float], sizes: Sequence[int]
) -> dict[str, Any]:
    done = [n for n in sizes if (quantity, name, n) in timings]
    taken = [timings[quantity, name, n] for n in done]
    fixed = timings[quantity, name, SMALLEST].cpu
    cpu = np.array([t.cpu for t in taken])
    return {
        "n": done,
        "cpu": cpu.tolist(),
        "wall": [t.wall for t in taken],
        "median": [t.median for t in taken],
        "calls": [t.calls for t in taken],
        "first_call": [first[quantity, name, n] for n in done],
        "first_call_ever": first[quantity, name, SMALLEST],
        "fixed": fixed,
        "per_torsion": (cpu[-1] - fixed) / (done[-1] - SMALLEST) if done and done[-1] > SMALLEST else None,
        "exponent": growth_exponent(done, cpu.tolist()),
        "exponent_beyond_fixed": growth_exponent(done, (cpu - fixed).tolist()),
    }


def _ratio(slow: Mapping[str, Any], row: Mapping[str, Any]) -> float | None:
    """Return how many times longer `slow` takes at the largest size that both have."""
    n = max(set(slow["n"]) & set(row["n"]), default=None)
    return None if n is None else slow["cpu"][slow["n"].index(n)] / row["cpu"][row["n"].index(n)]


def tables(report: Report) -> str:
    """Return the report as text for people."""
    sizes = report["sizes"]
    parts = [f"{POLYALANINE}; {report['repeats']} interleaved rounds; CPU time of the calling thread, minimum"]
    for quantity, title in _TITLES.items():
        ratios = ["dense / it", "Cholesky / it"] if quantity == SOLVE else []
        head = ["ms, torsions:", *(f"{n:,d}" for n in sizes), "fixed, µs", "µs per torsion", "growth", "net", *ratios]
        rows = []
        for name, row in report[quantity].items():
            times = dict(zip(row["n"], row["cpu"], strict=True))
            per, net = (None if name in DIRECT else row[key] for key in ("per_torsion", "exponent_beyond_fixed"))
            rows.append([name, *(cell(times.get(n), 3, 1e3) for n in sizes), cell(row["fixed"], 1, 1e6)])
            rows[-1] += [cell(per, 3, 1e6), cell(row["exponent"], 2), cell(net, 2)]
            if ratios:
                rows[-1] += [cell(row["dense_ratio"]), cell(row["cholesky_ratio"], 2)]
        parts += [title, harness.table(head, rows)]
    first = [
        [name, cell(row["first_call_ever"], 3), cell(row["first_call"][-1], 3)]
        for name, row in report[SOLVE].items()
        if name != CHOLESKY and row["n"]
    ]
    parts += [
        f"fixed: time of a chain of {SMALLEST} torsions: checks, allocations and calls, not yet algebra\n"
        "growth: exponent over the last decade of sizes; net: the same without the fixed cost\n"
        f"dense: decomposes the Jacobian of all atoms, up to {DENSE_LIMIT:,d} torsions only\n"
        "Cholesky: LAPACK's factor and solve of an M that is given; ratios are at the largest size of both\n"
        f"ln det M of all O(n) solvers agrees to {max(report['log_det_spread']):.0e} relative at every size",
        harness.table(["first call, s", "of all (compiles or loads)", "on the longest chain"], first),
        f"wall / CPU, largest over all rows: {_contention(report):.2f} (1 on a quiet machine)",
    ]
    return "\n\n".join(parts)


def _contention(report: Report) -> float:
    """Return the largest ratio of wall to CPU minima of the methods that run on one thread."""
    return max(
        wall / cpu
        for quantity in _TITLES
        for name, row in report[quantity].items()
        if name not in DIRECT
        for wall, cpu in zip(row["wall"], row["cpu"], strict=True)
    )


_COLOURS = ("#000000", "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7")  # Okabe & Ito
_MARKERS = "osD^vP<>*X"
_LEGEND = """dashed: direct inversion
solid: O($n$) methods
exponents: last decade of $n$,
fixed cost of a call taken off
"""


def draw(report: Report, path: Path) -> None:
    """Draw time of M^-1 b against the number of torsions: direct inversion dashed, O(n) methods solid."""
    figure, axes = new_figure(figsize=(8.2, 5.2))
    rows = {name: row for name, row in report[SOLVE].items() if row["n"]}
    methods = [name for name in rows if name not in DIRECT]
    # slowest first, so that the legend reads as the curves do
    order = [*(name for name in DIRECT if name in rows), *sorted(methods, key=lambda name: -rows[name]["cpu"][-1])]
    for name in order:
        row = rows[name]
        if name in DIRECT:
            look = {"color": "#555555", "linestyle": "--", "marker": "sx"[DIRECT.index(name)], "mfc": "white"}
        else:
            i = methods.index(name)
            look = {"color": _COLOURS[i % len(_COLOURS)], "linestyle": "-", "marker": _MARKERS[i % len(_MARKERS)]}
        exponent = row["exponent"] if name in DIRECT else row["exponent_beyond_fixed"]
        label = name if exponent is None else f"{name}  ($n^{{{exponent:.2f}}}$)"
        axes.plot(row["n"], 1e3 * np.array(row["cpu"]), label=label, linewidth=1.6, markersize=6, **look)
    axes.set(
        xscale="log", yscale="log", xlabel="number of torsions $n$", ylabel="time of $M^{-1}b$ (ms)",
        title=f"Mass-matrix solvers on {POLYALANINE.split(',')[0]}",
    )  # fmt: skip
    axes.set_xticks(report["sizes"], [f"{n:,d}" for n in report["sizes"]])
    axes.minorticks_off()
    axes.grid(True, color="#dddddd", linewidth=0.6)
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9,
        title=_LEGEND, title_fontsize=9, alignment="left",
    )  # fmt: skip
    save_figure(figure, path)


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__, repeats=7)
    harness.add_sizes(script, SIZES)
    return harness.run(script, arguments, measure, tables, draw)


if __name__ == "__main__":
    sys.exit(main())

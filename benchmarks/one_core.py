"""How much faster are small molecules on one core? A step on one core, on any core, and on two threads.

    python benchmarks/one_core.py [--sizes N,N,...] [--repeats N] [-o FOLDER]

Langevin steps (BAOAB with U_F) of capped polyalanines of several lengths in OBC2, rigid (phi and psi soft) and with
everything soft, on OpenMM's CPU platform: with one thread that is kept on the core of the caller, with one thread that
may run on any core, and with two threads. Wall time, medians over interleaved rounds; the machine should be idle.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import harness
import peptidyn as ptd
from harness import Report, cell, table
from molecules import context, relax
from peptidyn.core.one_core import FEW_ATOMS, OneCore
from peptidyn.core.progress import Progress
from peptidyn.engine.systems import make_system

WAYS = {"one thread, one core": 1, "one thread": 1, "two threads": 2}
PINNED = next(iter(WAYS))
SOFT = {"torsions": ("phi psi", "physical"), "flexible": ("all", "auto")}
SECONDS = 0.3
"""About how long a turn takes."""


def make_integrators(residues: int, preset: str) -> dict[str, Any]:
    """Return the integrators of all ways, each bound to its Context and thermal."""
    peptide = ptd.build_peptide("A" * residues)
    system = make_system(peptide.topology, "obc2")
    positions = relax(context(system, platform="CPU"), peptide.positions)
    soft, metric = SOFT[preset]
    tree = ptd.build_tree(ptd.Structure.from_openmm(peptide.topology, system, positions), soft=soft)
    made = {}
    for way, threads in WAYS.items():
        integrator: Any = ptd.TorsionLangevinIntegrator(tree, 300.0, 1.0, 0.008, seed=1, metric=metric)
        integrator.kept = context(system, integrator, "CPU", {"Threads": str(threads)})
        integrator.kept.setPositions(positions)
        integrator.set_velocities_to_temperature(300.0)
        integrator.step(20)
        made[way] = integrator
    return made


def time_ways(integrators: dict[str, Any], repeats: int) -> dict[str, float]:
    """Return the median wall time of a step in every way, s."""
    taken: dict[str, list[float]] = {way: [] for way in integrators}
    count = 5
    for turn in range(repeats + 1):
        for way, integrator in integrators.items():
            with OneCore(way == PINNED):
                begin = time.perf_counter()
                integrator.step(count)
                taken[way].append((time.perf_counter() - begin) / count)
        if turn == 0:  # which tells how many steps a turn shall have
            count = max(5, int(SECONDS / taken[PINNED].pop()))
            taken = {way: [] for way in integrators}
    return {way: float(np.median(values)) for way, values in taken.items()}


def measure(sizes: Sequence[int], repeats: int) -> dict[str, Any]:
    """Time every length and preset."""
    rows = []
    with Progress(len(sizes) * len(SOFT), "measuring", "molecules") as bar:
        for n in sizes:
            for preset in SOFT:
                integrators = make_integrators(n, preset)
                atoms = next(iter(integrators.values())).tree.n_atoms
                rows.append({"residues": n, "atoms": atoms, "preset": preset, **time_ways(integrators, repeats)})
                bar.advance(1)
    return {"rows": rows, "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()}


def tables(report: Report) -> str:
    """Return the report as text for people."""
    rows = [
        [f"Ala{row['residues']}", row["atoms"], row["preset"], *(cell(row[way], 0, 1e6) for way in WAYS)]
        + [cell(min(row[way] for way in WAYS if way != PINNED) / row[PINNED], 2)]
        for row in report["rows"]
    ]
    return "\n\n".join([
        f"A Langevin step on {report['cores']} cores, µs of wall time",
        table(["", "atoms", "preset", *WAYS, "faster of the others / one core"], rows),
        f"runs keep molecules of up to {FEW_ATOMS} atoms on one core",
    ])  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__, repeats=9)
    script.add_argument(
        "--sizes", type=lambda text: [harness.positive(n) for n in text.split(",")], default=[1, 3, 10, 20, 30, 50],
        metavar="N,N,...", help="residues of the chains (default: 1,3,10,20,30,50)",
    )  # fmt: skip
    return harness.run(script, arguments, measure, tables)


if __name__ == "__main__":
    sys.exit(main())

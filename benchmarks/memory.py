"""How much memory per atom does a solvated peptide need: structure, tree, and the arrays of the dynamics?

    python benchmarks/memory.py [--boxes NM,NM,...] [-o FOLDER]

The default boxes hold about 10,000 and 100,000 atoms. A capped decaalanine is put into water by OpenMM's Modeller.
Bytes are those that Python and NumPy allocate (tracemalloc), kept and at the peak of each stage; OpenMM's own System
and Context are not counted.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import openmm
from openmm import app, unit

import harness
import peptidyn
from harness import Report, cell
from peptidyn.integrators.mover import Mover

BOXES = (4.65, 10.05)
"""Edges of the boxes, nm."""


def measure(boxes: Sequence[float] = BOXES) -> dict[str, Any]:
    """Measure every box; seconds, and bytes per atom that are kept and that are needed at the peak, by stage."""
    return {"systems": [measure_box(box) for box in boxes]}


def measure_box(box: float) -> dict[str, Any]:
    """Return what the peptide needs in a cubic box of water with this edge (nm)."""
    peptide = peptidyn.build_peptide("AAAAAAAAAA")
    modeller = app.Modeller(peptide.topology, peptide.positions * unit.nanometer)
    field = app.ForceField("amber14-all.xml", "amber14/tip3p.xml")
    modeller.addSolvent(field, boxSize=openmm.Vec3(box, box, box) * unit.nanometer)
    topology = modeller.topology
    positions = np.array(modeller.positions.value_in_unit(unit.nanometer))
    system = field.createSystem(topology, nonbondedMethod=app.PME, rigidWater=False)
    n = len(positions)
    rows: dict[str, tuple[float, float, float]] = {}

    def stage(what: str, work: Callable[[], Any]) -> Any:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        begin = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - begin
        kept, peak = tracemalloc.get_traced_memory()
        rows[what] = (seconds, (kept - before) / n, (peak - before) / n)
        return result

    def dynamics() -> Mover:
        mover = Mover(tree)
        mover.thermalise(0.0, 2.5, np.random.default_rng(1))
        mover.drift(0.004)
        mover.fixman_torque()
        return mover

    tree = peptidyn.build_tree(peptide)
    dynamics()  # kernels are loaded before anything is counted
    tracemalloc.start()
    structure = stage("structure", lambda: peptidyn.Structure.from_openmm(topology, system, positions))
    tree = stage("tree", lambda: peptidyn.build_tree(structure))
    kept = [structure, tree, stage("dynamics", dynamics)]
    tracemalloc.stop()
    seconds, held, peak = np.array(list(rows.values())).T
    rows["all"] = (seconds.sum(), held.sum(), (np.cumsum(held) - held + peak).max())
    del kept
    return {"atoms": n, "molecules": tree.n_molecules, "dof": tree.n_dof, "stages": rows}


def tables(report: Report) -> str:
    """Return the report as text for people."""
    parts = []
    for one in report["systems"]:
        rows = [
            [what, cell(seconds, 2), cell(kept, 0), cell(peak, 0)]
            for what, (seconds, kept, peak) in one["stages"].items()
        ]
        parts += [
            f"{one['atoms']:,d} atoms, {one['molecules']:,d} molecules, {one['dof']:,d} degrees of freedom",
            harness.table(["", "seconds", "bytes per atom, kept", "at the peak"], rows),
        ]
    return "\n\n".join(parts)


def _boxes(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__)
    script.add_argument(
        "--boxes", type=_boxes, default=list(BOXES), metavar="NM,NM,...", help="edges of the cubic boxes of water"
    )
    return harness.run(script, arguments, measure, tables)


if __name__ == "__main__":
    sys.exit(main())

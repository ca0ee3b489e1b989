"""What does the first run cost: imports, and compilation of the kernels, with an empty and with a filled cache?

    python benchmarks/cold_start.py [--repeats N] [-o FOLDER]

Child processes share one fresh cache folder: the first imports, the second compiles everything, the others (--repeats)
find it compiled; of these the quickest counts, and the median of their starts is printed. "start, to here" is the sum
of the rows before it, all that a simulation needs; the solvers come after it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import harness
from harness import Report, cell

_START = "start, to here"

_IMPORT = """
import json, time
wall, cpu = time.perf_counter(), time.process_time()
import peptidyn
print(json.dumps({"import peptidyn": [time.perf_counter() - wall, time.process_time() - cpu]}))
"""

_FIRST_CALLS = """
import json, time
seconds, last = {}, (time.perf_counter(), time.process_time())
def took(what):
    global last
    now = time.perf_counter(), time.process_time()
    seconds[what], last = [now[0] - last[0], now[1] - last[1]], now
import numba, numpy as np, scipy.linalg, openmm.app, Bio.PDB.PICIO
took("import numpy, scipy, numba, openmm, biopython")
from numba.core.registry import cpu_target
cpu_target.typing_context.refresh(), cpu_target.target_context.refresh()
took("numba gets ready for any compiled function")
import peptidyn
structure = peptidyn.build_peptide("AAAAAAAAAA")
took("build a peptide")
tree = peptidyn.build_tree(structure)
state = tree.state(structure.positions)
took("build its tree, fit a state")
system = peptidyn.make_system(structure.topology, "vacuum")
took("forces of OpenMM")
integrator = peptidyn.TorsionLangevinIntegrator(tree, 300.0, 1.0, 0.004, seed=1)
simulation = peptidyn.TorsionSimulation(structure.topology, system, integrator, "Reference")
simulation.step(10)
took("ten Langevin steps")
seconds["start, to here"] = [sum(column) for column in zip(*seconds.values())]
b = np.ones(tree.n_dof)
for name in peptidyn.list_solvers():
    solver = peptidyn.get_solver(name)
    solver.solve(tree, state, b), solver.log_det(tree, state), solver.accelerations(tree, state, b, b)
    took(f"solver {name}")
from peptidyn.metric.fixman_potential import FixmanPotential
FixmanPotential(tree, 300.0).energy_and_torque(state)
took("Fixman energy and torque")
print(json.dumps(seconds))
"""


def child(code: str, cache: str) -> dict[str, list[float]]:
    """Return the wall and CPU seconds that a child process with this cache folder prints."""
    root = str(Path(__file__).resolve().parents[1])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def measure(repeats: int = 7) -> dict[str, Any]:
    """Start processes; wall and CPU seconds by what is done for the first time."""
    with tempfile.TemporaryDirectory() as cache:
        alone = child(_IMPORT, cache)
        cold = child(_FIRST_CALLS, cache)
        starts = sorted((child(_FIRST_CALLS, cache) for _ in range(repeats)), key=lambda one: one[_START][0])
    return {"empty": alone | cold, "filled": alone | starts[0], "starts": [one[_START][0] for one in starts]}


def tables(report: Report) -> str:
    """Return the report as text for people."""
    rows = [
        [what, *(cell(t, 2) for t in (*seconds, *report["filled"][what]))] for what, seconds in report["empty"].items()
    ]
    head = ["first call, s", "empty cache, wall", "CPU", "filled cache, wall", "CPU"]
    starts = report["starts"]
    return harness.table(head, rows) + (
        f"\n\nmedian of {len(starts)} starts with a filled cache: {np.median(starts):.2f} s wall"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    return harness.run(harness.parser(__file__, __doc__, repeats=7), arguments, measure, tables)


if __name__ == "__main__":
    sys.exit(main())

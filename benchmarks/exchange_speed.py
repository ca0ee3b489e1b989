"""How well does replica exchange use the cores of a machine?

    python benchmarks/exchange_speed.py [--workers 2] [--repeats 5] [-o FOLDER]

Eight replicas of capped Ala10 in implicit solvent (CPU platform, one thread each) with files, one after the other in
one process that is kept on one core, and on several processes; torsional HMC of the preset `torsions` and Langevin
dynamics of `flexible`, 100 steps between exchanges. Rounds of ten iterations take turns, after two that start workers
and do not count.

wall       seconds per iteration, the smallest of all rounds
CPU        seconds of stretches and driver per iteration, in that round
cores      CPU time per wall time
busy       part of the time in which a worker has a stretch to run; on a busy machine this is the number to look at,
           since what else runs there stretches both
relative   wall time relative to that of one process
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import harness
import peptidyn as ptd
from harness import Report, cell, table
from peptidyn.core.one_core import OneCore
from peptidyn.core.progress import Progress
from peptidyn.sampling.backends import make_backend

REPLICAS, ITERATIONS = 8, 10
MODELS = {"torsions, GHMC 8 fs": ("phi psi chi", "physical"), "flexible, Langevin 16 fs": ("all", "auto")}


def timed(recipe: Any, function: Callable[..., Any], task: tuple[Any, ...]) -> tuple[Any, float, float]:
    """Return what the function returns, and the wall and CPU seconds that passed in this process, OpenMM's included."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = function(recipe, *task)
    return result, time.perf_counter() - wall, time.process_time() - cpu


class TimedBackend:
    """A backend that adds up what its tasks take."""

    def __init__(self, kind: str, workers: int):
        self.inner = make_backend(kind, workers)
        self.wall = self.cpu = 0.0

    def start(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], shared: Any) -> Callable[[], list]:
        wait = self.inner.start(timed, [(function, task) for task in tasks], shared)

        def collect() -> list[Any]:
            outcomes = wait()
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome
                self.wall += outcome[1]
                self.cpu += outcome[2]
            return [outcome[0] for outcome in outcomes]

        return collect

    def run(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], shared: Any) -> list[Any]:
        return self.start(function, tasks, shared)()

    def close(self) -> None:
        self.inner.close()


def make_exchange(model: str, backend: TimedBackend, folder: Path) -> ptd.ReplicaExchange:
    """Return replicas of capped Ala10."""
    soft, metric = MODELS[model]
    structure = ptd.build_peptide("A" * 10)
    system = ptd.make_system(structure.topology, solvent="obc2")
    structure = ptd.Structure.from_openmm(structure.topology, system, structure.positions)
    move = ptd.TorsionalLangevin(0.016, 10) if metric == "auto" else ptd.TorsionalHMC(0.008, 10, friction=1.0)
    return ptd.ReplicaExchange(
        ptd.build_tree(structure, soft), system, ptd.geometric_temperatures(280, 500, REPLICAS), moves=[move],
        sweeps=10, metric=metric, platform="CPU", properties={"Threads": "1"}, seed=1, backend=backend, folder=folder,
        topology=structure.topology,
    )  # fmt: skip


def measure(workers: int, repeats: int, iterations: int = ITERATIONS) -> dict[str, Any]:
    """Return wall seconds per iteration, cores in use and busy workers of every model and backend."""
    kinds = {"one process": ("serial", 1), f"{workers} processes": ("processes", workers)}
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as place, Progress(len(MODELS) * repeats, "measuring", unit="rounds") as bar:
        for model in MODELS:
            backends = {label: TimedBackend(*kind) for label, kind in kinds.items()}
            runs = {label: make_exchange(model, b, Path(place) / f"{model} {label}") for label, b in backends.items()}
            rounds: dict[str, list[tuple[float, float, float]]] = {label: [] for label in kinds}
            for run in runs.values():
                run.run(2)
            for _ in range(repeats):
                for label, run in runs.items():
                    rounds[label].append(_round(run, backends[label], kinds[label], iterations))
                bar.advance(1)
            for run in runs.values():
                run.close()
            found[model] = {label: min(taken) for label, taken in rounds.items()}
    return {"iterations": iterations, "models": found}


def _round(
    run: ptd.ReplicaExchange, backend: TimedBackend, kind: tuple[str, int], iterations: int
) -> tuple[float, float, float]:
    """Return wall seconds per iteration, cores in use, and the part of the time in which workers were busy."""
    backend.wall = backend.cpu = 0.0
    wall, cpu = time.perf_counter(), time.process_time()
    with OneCore(kind[0] == "serial", others_wait=True):  # as `peptidyn exchange` runs it; the pool has no work
        run.run(run.iterations + iterations)
    wall = time.perf_counter() - wall
    cpu = time.process_time() - cpu + (backend.cpu if kind[0] == "processes" else 0.0)
    return wall / iterations, cpu / wall, backend.wall / (kind[1] * wall)


def tables(report: Report) -> str:
    """Return one table."""
    rows = []
    for model, kinds in report["models"].items():
        one = kinds["one process"][0]
        rows += [
            [
                f"{model}: {label}",
                cell(1e3 * wall, 0),
                cell(1e3 * wall * cores, 0),
                cell(cores, 2),
                cell(busy, 2),
                cell(wall / one, 2),
            ]
            for label, (wall, cores, busy) in kinds.items()
        ]
    about = f"{REPLICAS} replicas of capped Ala10, 100 steps between exchanges, {report['workers']} workers:"
    return f"{about}\n\n{table(['replicas', 'wall, ms', 'CPU, ms', 'cores', 'busy', 'relative'], rows)}"


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__, repeats=5)
    script.add_argument("--workers", type=harness.positive, default=2, metavar="N", help="default: 2")
    script.add_argument("--iterations", type=harness.positive, default=ITERATIONS, help=f"default: {ITERATIONS}")
    return harness.run(script, arguments, measure, tables)


if __name__ == "__main__":
    sys.exit(main())

"""Does a long flexible run end, grow, or heat up? 10^6 Langevin steps of capped alanine with everything soft.

    python benchmarks/endurance.py [FILE] [--steps N] [--preset NAME] [-o FOLDER]        # a few minutes

The molecule (default data/ala1.pdb) is in OBC2 on the Reference platform at 300 K, friction 1/ps, with the soft
coordinates, metric and time step of the preset (default flexible). It starts from its minimum; the first tenth of the
run is not averaged. Reported are the steps that were made, what stopped the run if something did, the memory of the
process after every tenth of the run, the drifts that needed Anderson's method, and the configurational temperature (see
`benchmarks/kinetic_metric.py`) with its standard error from ten blocks. Nothing but sums is kept, so memory that grows
is the package's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import harness
import peptidyn as ptd
from harness import Report, cell, table
from kinetic_metric import temperature_terms
from molecules import context, relax
from peptidyn.core.errors import StepError
from peptidyn.core.progress import Progress
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.systems import make_system
from peptidyn.runs.presets import PRESETS

T, FRICTION, SEED = 300.0, 1.0, 1
BETWEEN = 20
"""Steps between two frames."""

PARTS, BLOCKS = 10, 10
"""Parts after which the memory is read, and blocks of frames for the error."""


def prepare(file: str | None, preset: str) -> Any:
    """Return a bound Langevin integrator of the preset; its Context is its attribute `kept`."""
    structure = ptd.load_structure(file or Path(__file__).parents[1] / "data" / "ala1.pdb")
    system = make_system(structure.topology, "obc2")
    positions = relax(context(system), structure.positions)
    chosen = PRESETS[preset]
    tree = ptd.build_tree(ptd.Structure.from_openmm(structure.topology, system, positions), soft=chosen.soft)
    integrator = ptd.TorsionLangevinIntegrator(
        tree, T, FRICTION, 1e-3 * chosen.langevin, seed=SEED, metric=chosen.metric
    )
    integrator.kept = context(system, integrator)  # the Context must live as long as the integrator
    integrator.kept.setPositions(positions)
    integrator.set_velocities_to_temperature(T)
    return integrator


def measure(steps: int = 1_000_000, file: str | None = None, preset: str = "flexible") -> dict[str, Any]:
    """Run; return what is said at the top of this file."""
    integrator = prepare(file, preset)
    tree, rounds = integrator.tree, steps // BETWEEN
    sums = np.full((rounds, 2), np.nan)  # written to at once: pages of zeros would count when they are first used
    sizes, stopped, made = [], None, 0
    begin = time.process_time()
    with Progress(rounds, "endurance", "frames") as bar:
        for frame in range(rounds):
            try:
                integrator.step(BETWEEN)
            except StepError as error:
                stopped = str(error)
                break
            made += BETWEEN
            forces = integrator.kept.getState(forces=True).getForces(asNumpy=True)._value
            state = integrator.mover.state
            torque = tree.generalized_forces(state, forces)[tree.coordinate_dof]
            above, below = temperature_terms(tree, state.q[None], torque[None])
            sums[frame] = above.sum(), below.sum()
            if (frame + 1) * PARTS // rounds > frame * PARTS // rounds:
                sizes.append(resident())
            bar.advance(1)
    return {
        "coordinates": tree.n_coordinates, "step_fs": PRESETS[preset].langevin, "steps_made": made, "stopped": stopped,
        "memory_MB": sizes, "fallbacks": integrator.drift_fallbacks, "cpu_seconds": time.process_time() - begin,
        "temperature": temperature(sums[rounds // 10 : made // BETWEEN]),
    }  # fmt: skip


def temperature(sums: np.ndarray) -> tuple[float, float] | None:
    """Return the configurational temperature (K) and its standard error from both sums of every frame (n, 2)."""
    if len(sums) < 2 * BLOCKS:
        return None
    above, below = sums.mean(axis=0)
    blocks = np.array([(part[:, 0] - above / below * part[:, 1]).mean() for part in np.array_split(sums, BLOCKS)])
    error = blocks.std(ddof=1) / np.sqrt(BLOCKS) / below
    return float(above / below / BOLTZMANN), float(error / BOLTZMANN)


def resident() -> float | None:
    """Return the memory that this process holds now, MB; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    import resource

    return pages * resource.getpagesize() / 1e6


def tables(report: Report) -> str:
    """Return the report as text for people."""
    found = report["temperature"]
    kelvin = "-" if found is None else f"{found[0]:.1f} ± {found[1]:.1f} K ({100 * (found[0] / T - 1):+.2f}%)"
    sizes = report["memory_MB"]
    rows = [
        ["soft coordinates", report["coordinates"]],
        ["time step", f"{report['step_fs']:g} fs"],
        ["steps made", f"{report['steps_made']:,}"],
        ["stopped by", report["stopped"] or "nothing"],
        ["drifts by Anderson's method", report["fallbacks"]],
        ["configurational temperature", kelvin],
        ["memory after every tenth, MB", ", ".join(cell(size, 1) for size in sizes)],
        ["CPU time per step", f"{1e6 * report['cpu_seconds'] / max(1, report['steps_made']):.0f} us"],
    ]
    return table(["what", "seen"], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__)
    script.add_argument("file", metavar="FILE", nargs="?", help="structure with hydrogens (default: capped alanine)")
    script.add_argument(
        "--steps", type=harness.positive, default=1_000_000, metavar="N", help="time steps (default: 1000000)"
    )
    script.add_argument("--preset", choices=tuple(PRESETS), default="flexible", help="model (default: flexible)")
    return harness.run(script, arguments, measure, tables)


if __name__ == "__main__":
    sys.exit(main())

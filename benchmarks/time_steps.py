"""How large may the time step be? Energy drift (NVE) and GHMC acceptance over step sizes and soft sets.

    python benchmarks/time_steps.py --steps 4,8 --preset angles -o FOLDER   # capped decaalanine
    python benchmarks/time_steps.py data/ala1.pdb --soft "phi psi methyl" --steps 4,8
    python benchmarks/time_steps.py 1l2y.pdb --steps 8,9,10,12 --trajectories 4

The structure is prepared as by `peptidyn run` (hydrogens, relaxed geometry, native OBC2) and warmed up at 300 K: 5 ps
before the first trajectory, 2 ps between one and the next. Every row starts from the same states. The drift is the
slope of the total energy over --time, averaged over trajectories; its error is the larger of two: that of the fits,
with the correlation of the residuals counted, and the scatter of the slopes. The tables of docs/timestep.md are made by
this script.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

import harness
from harness import Report, cell
from peptidyn.core.errors import StepError
from peptidyn.core.progress import Progress
from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.simulation import TorsionSimulation
from peptidyn.engine.torsion_integrators import TorsionGHMCIntegrator, TorsionVerletIntegrator
from peptidyn.runs.model import RunModel, make_model
from peptidyn.runs.preparation import prepare_structure
from peptidyn.runs.settings import parse_time, resolve_settings

TEMPERATURE = 300.0
WARM_UP, APART = 5.0, 2.0
"""ps of warm-up before the first trajectory, and between the starts of two."""

SAMPLE = 5
"""Steps between two energies of a drift measurement."""

LIMIT = 0.01
"""kT per degree of freedom per ns: the drift below which a step size passes."""


def measure(steps: Sequence[float], time: str, trajectories: int, proposals: int, **settings: Any) -> dict[str, Any]:
    """Measure drift and acceptance at every step (fs).

    Parameters
    ----------
    steps : sequence of float
    time : str
        Length of every drift measurement.
    trajectories : int
        For every drift.
    proposals : int
        For every acceptance rate.
    **settings
        Those of `peptidyn run`; None stands for the default.
    """
    length = parse_time("--time", time)
    resolved = resolve_settings({name: value for name, value in settings.items() if value is not None})
    model = make_model(resolved, prepare_structure(resolved))
    geometry, starts = warm_up(model, trajectories)
    rows = []
    with Progress(len(steps), "time steps", "steps") as bar:
        for step in steps:
            begin = perf_counter()
            drift = drift_row(model, geometry, starts, 1e-3 * step, length)
            rate = None if drift is None else acceptance(model, geometry, starts[0], 1e-3 * step, proposals)
            rows.append({"step": step, "drift": drift, "acceptance": rate, "seconds": perf_counter() - begin})
            bar.advance(1)
    return {"tree": str(model.tree), "soft": resolved.soft_words, "n_dof": model.tree.n_dof, "rows": rows}


def tables(report: Report) -> str:
    """Return the report as text for people."""
    kT = BOLTZMANN * TEMPERATURE * report["n_dof"]
    passed, rows = 0.0, []
    for row in report["rows"]:
        if row["drift"] is None:
            rows.append([f"{row['step']:g}", "not stable", *"----"])
            continue
        slope, error, spread = row["drift"]
        if abs(slope) / kT < LIMIT:
            passed = max(passed, row["step"])
        drifts = [f"{slope:+.2f} ± {error:.2f}", f"{slope / kT:+.4f} ± {error / kT:.4f}"]
        rows.append([f"{row['step']:g}", *drifts, cell(spread, 2), cell(row["acceptance"], 3), cell(row["seconds"], 0)])
    units = ["step (fs)", "drift (kJ/mol/ns)", "drift (kT/dof/ns)", "energy spread (kJ/mol)"]
    return (
        f"{report['tree']}, soft: {report['soft']}\n\n{harness.table([*units, 'GHMC acceptance', 'seconds'], rows)}\n\n"
        f"largest step here with a drift below {LIMIT} kT per degree of freedom per ns: {passed:g} fs"
    )


def warm_up(model: RunModel, count: int) -> tuple[np.ndarray, list[object]]:
    """Return the relaxed reference geometry and `count` Context states at 300 K."""
    simulation = model.simulation()
    simulation.relax_geometry(max_iterations=1000)
    geometry = simulation.reference_geometry
    assert geometry is not None
    simulation.minimize_torsions(10.0, 200)
    simulation.set_velocities_to_temperature(TEMPERATURE)
    simulation.integrator.setStepSize(0.002)
    states = []
    for i in range(count):
        simulation.step(round((APART if i else WARM_UP) / 0.002))
        states.append(simulation.context.getState(positions=True, velocities=True))
    return geometry, states


def _simulation(model: RunModel, geometry: np.ndarray, start: object, integrator: object) -> TorsionSimulation:
    system, topology = model.system, model.structure.topology
    simulation = TorsionSimulation(topology, system, integrator, "CPU", {"Threads": str(model.settings.threads)})
    simulation.use_geometry(geometry)
    simulation.context.setState(start)
    return simulation


def drift_row(
    model: RunModel, geometry: np.ndarray, starts: list[object], timestep: float, length: float
) -> tuple[float, float, float] | None:
    """Return slope and error (kJ/mol/ns) and spread (kJ/mol) of the total energy; None if a step failed."""
    rows = []
    for start in starts:
        try:
            energies = total_energies(model, geometry, start, timestep, length)
        except StepError:
            return None
        time_ns = 1e-3 * timestep * SAMPLE * np.arange(len(energies))
        slope, level = np.polyfit(time_ns, energies, 1)
        rest = energies - level - slope * time_ns
        error = rest.std() * np.sqrt(12 * statistical_inefficiency(rest) / len(rest)) / time_ns[-1]
        rows.append((slope, error, rest.std()))
    slopes, errors, spreads = np.array(rows).T
    error = np.sqrt((errors**2).sum()) / len(rows)
    if len(rows) > 2:
        error = max(error, slopes.std(ddof=1) / np.sqrt(len(rows)))
    return float(slopes.mean()), float(error), float(spreads.mean())


def total_energies(model: RunModel, geometry: np.ndarray, start: object, timestep: float, length: float) -> np.ndarray:
    """Return the total energy (kJ/mol) after every `SAMPLE` steps at constant energy."""
    tree = model.tree.with_geometry(geometry)
    integrator = TorsionVerletIntegrator(tree, timestep, hydrogen_mass=model.settings.hydrogen_mass)
    simulation = _simulation(model, geometry, start, integrator)
    energies = np.empty(round(length / timestep / SAMPLE))
    for i in range(len(energies)):
        simulation.step(SAMPLE)
        energies[i] = integrator.total_energy()
    return energies


def acceptance(model: RunModel, geometry: np.ndarray, start: object, timestep: float, proposals: int) -> float:
    """Return the acceptance rate of GHMC (one step per proposal, friction 1/ps, with U_F)."""
    tree = model.tree.with_geometry(geometry)
    integrator = TorsionGHMCIntegrator(
        tree, TEMPERATURE, 1.0, timestep, seed=2, hydrogen_mass=model.settings.hydrogen_mass
    )
    simulation = _simulation(model, geometry, start, integrator)
    simulation.step(proposals)
    return integrator.acceptance


def _steps(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__)
    script.add_argument("file", metavar="FILE", nargs="?", help="structure (default: capped decaalanine)")
    script.add_argument("--steps", type=_steps, default=[4.0, 8.0], metavar="FS,FS,...", help="default: 4,8")
    script.add_argument("--preset", metavar="NAME", help="torsions (default) or angles")
    script.add_argument("--soft", metavar="WORDS", help="soft coordinates, instead of --preset")
    script.add_argument("--hydrogen-mass", type=float, metavar="DA", help="repartition masses")
    script.add_argument("--time", default="200ps", help="length of every drift measurement (default: 200ps)")
    script.add_argument(
        "--trajectories", type=harness.positive, default=1, metavar="N", help="for every drift (default: 1)"
    )
    script.add_argument("--proposals", type=int, default=4000, help="for every acceptance rate (default: 4000)")
    script.add_argument("--threads", type=int, default=2, help="of the CPU platform (default: 2)")
    script.add_argument("--seed", type=int, default=1)
    return harness.run(script, arguments, measure, tables)


if __name__ == "__main__":
    sys.exit(main())

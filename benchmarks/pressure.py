"""Is the density at constant pressure that of OpenMM's own dynamics, in water and around a peptide?

    python benchmarks/pressure.py [--boxes water,peptide] [--sides NM,NM,...] [--cutoff NM] [--time PS] [--seed N]
                                  [-o FOLDER]

TIP3P-FB water, and capped trialanine in it, at 300 K and 1 bar with PME: torsion Langevin dynamics at 4 fs and OpenMM's
LangevinMiddle at 2 fs, each with a MonteCarloBarostat that tries a move every 0.1 ps. The first tenth of every run is
left out. The compressibility is var(V) / (<V> kT). Errors are standard errors with correlations.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import openmm
from openmm import app, unit

import harness
import peptidyn
from harness import Report, cell
from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.barostat import BAR

TEMPERATURE, PRESSURE = 300.0, 1.0
TORSION_STEP, CARTESIAN_STEP = 0.004, 0.002
EVERY = 0.1
"""Time between volume moves and between densities, ps."""

BOXES = ("water", "peptide")


def measure(
    boxes: Sequence[str] = BOXES, sides: Sequence[float] = (2.4,), cutoff: float = 0.9, time: float = 200.0,
    seed: int = 1,
) -> dict[str, Any]:  # fmt: skip
    """Run water boxes of these sides (nm), without and with a peptide, for a time (ps) with both programs."""
    rows = [
        {"box": box, "side": side, "by": by, **_density(box, side, cutoff, by, time, seed)}
        for side in sides
        for box in boxes
        for by in ("torsions", "OpenMM")
    ]
    return {"temperature": TEMPERATURE, "pressure": PRESSURE, "cutoff": cutoff, "time_ps": time, "rows": rows}


def _box(box: str, side: float, cutoff: float, step: float) -> tuple[Any, Any, np.ndarray]:
    field = app.ForceField("amber14-all.xml", "amber14/tip3pfb.xml")
    modeller = app.Modeller(app.Topology(), [])
    if box == "peptide":
        chain = peptidyn.build_peptide("AAA")
        modeller = app.Modeller(chain.topology, chain.positions * unit.nanometer)
    modeller.addSolvent(field, boxSize=openmm.Vec3(side, side, side) * unit.nanometer)
    system = field.createSystem(
        modeller.topology, nonbondedMethod=app.PME, nonbondedCutoff=cutoff, constraints=app.HBonds
    )
    system.addForce(openmm.MonteCarloBarostat(PRESSURE, TEMPERATURE, round(EVERY / step)))
    return modeller.topology, system, np.array(modeller.positions.value_in_unit(unit.nanometer))


def _density(box: str, side: float, cutoff: float, by: str, length: float, seed: int) -> dict[str, float]:
    """Return what `_moments` finds, and the speed in ns/day."""
    step = TORSION_STEP if by == "torsions" else CARTESIAN_STEP
    topology, system, x = _box(box, side, cutoff, step)
    relaxed = _relaxed(system, x)
    if by == "torsions":
        tree = peptidyn.build_tree(peptidyn.Structure.from_openmm(topology, system, relaxed))
        integrator = peptidyn.TorsionLangevinIntegrator(tree, TEMPERATURE, 2.0, step, seed=seed)
        simulation = peptidyn.TorsionSimulation(topology, system, integrator)
        simulation.set_velocities_to_temperature(TEMPERATURE)
    else:
        integrator = openmm.LangevinMiddleIntegrator(TEMPERATURE, 2.0, step)
        integrator.setRandomNumberSeed(seed)
        simulation = app.Simulation(topology, system, integrator)
        simulation.context.setPositions(relaxed)
        simulation.context.setVelocitiesToTemperature(TEMPERATURE, seed)
    mass = sum(system.getParticleMass(i)._value for i in range(system.getNumParticles()))
    begin, found = time.perf_counter(), []
    for _ in range(round(length / EVERY)):
        simulation.step(round(EVERY / step))
        found.append(simulation.context.getState().getPeriodicBoxVolume()._value)
    seconds = time.perf_counter() - begin
    volumes = np.array(found[len(found) // 10 :])
    return {**_moments(volumes, mass), "ns_per_day": 86.4 * length / seconds}


def _moments(volumes: np.ndarray, mass: float) -> dict[str, float]:
    """Return the mean density and its fluctuation, g/cm^3, and the compressibility, 1e-5/bar, each with its error."""
    density = 1.66053907e-3 * mass / volumes
    mean, error = _mean(density)
    variance, error_of_variance = _mean((density - mean) ** 2)
    fluctuation = math.sqrt(variance)
    square, error_of_square = _mean((volumes - volumes.mean()) ** 2)
    scale = 1e5 * BAR / (volumes.mean() * BOLTZMANN * TEMPERATURE)
    return {
        "density": mean, "density_error": error,
        "fluctuation": fluctuation, "fluctuation_error": 0.5 * error_of_variance / fluctuation,
        "compressibility": scale * square, "compressibility_error": scale * error_of_square,
        "independent": len(density) / statistical_inefficiency(density),
    }  # fmt: skip


def _mean(values: np.ndarray) -> tuple[float, float]:
    """Return the mean of correlated values and its standard error."""
    error = float(values.std()) * math.sqrt(statistical_inefficiency(values) / len(values))
    return float(values.mean()), error


def _relaxed(system: Any, x: np.ndarray) -> np.ndarray:
    context = openmm.Context(system, openmm.VerletIntegrator(0.001))
    context.setPositions(x)
    openmm.LocalEnergyMinimizer.minimize(context, 10.0, 200)
    return np.array(context.getState(positions=True).getPositions(asNumpy=True)._value)


def tables(report: Report) -> str:
    """Return the results as a table."""
    rows = [
        [
            f"{one['side']:g} nm" + (", Ala3" if one["box"] == "peptide" else ""),
            one["by"],
            *(f"{one[name]:.{n}f} ({one[f'{name}_error']:.{n}f})" for name, n in _COLUMNS.items()),
            cell(one["independent"], 0),
            cell(one["ns_per_day"], 2),
        ]
        for one in report["rows"]
    ]
    names = ["density, g/cm3 (error)", "fluctuation (error)", "compressibility, 1e-5/bar (error)"]
    return harness.table(["box", "dynamics", *names, "independent volumes", "ns/day"], rows)


_COLUMNS = {"density": 4, "fluctuation": 4, "compressibility": 1}
"""What the table shows, with digits."""


def _sides(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _boxes(text: str) -> list[str]:
    boxes = text.split(",")
    if not set(boxes) <= set(BOXES):
        raise argparse.ArgumentTypeError(f"boxes are {text}, expected some of {', '.join(BOXES)}")
    return boxes


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__)
    script.add_argument("--boxes", type=_boxes, default=BOXES, metavar="NAME,...", help="water, peptide (default: all)")
    script.add_argument("--cutoff", type=float, default=0.9, metavar="NM", help="of PME's direct space (default: 0.9)")
    script.add_argument(
        "--sides", type=_sides, default=[2.4], metavar="NM,NM,...", help="of the cubic boxes (default: 2.4)"
    )
    script.add_argument("--time", type=float, default=200.0, metavar="PS", help="of every run (default: 200)")
    script.add_argument("--seed", type=int, default=1, metavar="N", help="of the random numbers (default: 1)")
    return harness.run(script, arguments, measure, tables)


if __name__ == "__main__":
    sys.exit(main())

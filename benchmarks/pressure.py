"""Is the density at constant pressure that of OpenMM's own dynamics, in water and around a peptide?

    python benchmarks/pressure.py [--sides NM,NM,...] [--time PS] [--seed N] [-o FOLDER]

TIP3P-FB water, and capped trialanine in it, at 300 K and 1 bar with PME: torsion Langevin dynamics at 4 fs and OpenMM's
LangevinMiddle at 2 fs, each with a MonteCarloBarostat every 25 steps. The first fifth of every run is left out. Errors
are standard errors with correlations.
"""

from __future__ import annotations

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

TEMPERATURE, PRESSURE, CUTOFF = 300.0, 1.0, 0.9
TORSION_STEP, CARTESIAN_STEP = 0.004, 0.002
EVERY = 0.1
"""Time between densities, ps."""


def measure(sides: Sequence[float] = (2.4,), time: float = 200.0, seed: int = 1) -> dict[str, Any]:
    """Run water boxes of these sides (nm), without and with a peptide, for a time (ps) with both programs."""
    rows = [
        {"peptide": peptide, "side": side, "by": by, **_density(peptide, side, by, time, seed)}
        for side in sides
        for peptide in (False, True)
        for by in ("torsions", "OpenMM")
    ]
    return {"temperature": TEMPERATURE, "pressure": PRESSURE, "time_ps": time, "rows": rows}


def _box(peptide: bool, side: float) -> tuple[Any, Any, np.ndarray]:
    field = app.ForceField("amber14-all.xml", "amber14/tip3pfb.xml")
    modeller = app.Modeller(app.Topology(), [])
    if peptide:
        chain = peptidyn.build_peptide("AAA")
        modeller = app.Modeller(chain.topology, chain.positions * unit.nanometer)
    modeller.addSolvent(field, boxSize=openmm.Vec3(side, side, side) * unit.nanometer)
    system = field.createSystem(
        modeller.topology, nonbondedMethod=app.PME, nonbondedCutoff=CUTOFF, constraints=app.HBonds
    )
    system.addForce(openmm.MonteCarloBarostat(PRESSURE, TEMPERATURE, 25))
    return modeller.topology, system, np.array(modeller.positions.value_in_unit(unit.nanometer))


def _density(peptide: bool, side: float, by: str, length: float, seed: int) -> dict[str, float]:
    """Return mean density and its fluctuation, g/cm^3, with the error of the mean, and the speed in ns/day."""
    topology, system, x = _box(peptide, side)
    if by == "torsions":
        relaxed = _relaxed(system, x)
        tree = peptidyn.build_tree(peptidyn.Structure.from_openmm(topology, system, relaxed))
        step = TORSION_STEP
        integrator = peptidyn.TorsionLangevinIntegrator(tree, TEMPERATURE, 2.0, step, seed=seed)
        simulation = peptidyn.TorsionSimulation(topology, system, integrator)
        simulation.set_velocities_to_temperature(TEMPERATURE)
    else:
        step = CARTESIAN_STEP
        integrator = openmm.LangevinMiddleIntegrator(TEMPERATURE, 2.0, step)
        integrator.setRandomNumberSeed(seed)
        simulation = app.Simulation(topology, system, integrator)
        simulation.context.setPositions(_relaxed(system, x))
        simulation.context.setVelocitiesToTemperature(TEMPERATURE, seed)
    mass = sum(system.getParticleMass(i)._value for i in range(system.getNumParticles()))
    begin, found = time.perf_counter(), []
    for _ in range(round(length / EVERY)):
        simulation.step(round(EVERY / step))
        found.append(1.66053907e-3 * mass / simulation.context.getState().getPeriodicBoxVolume()._value)
    seconds = time.perf_counter() - begin
    values = np.array(found[len(found) // 5 :])
    error = float(values.std()) * math.sqrt(statistical_inefficiency(values) / len(values))
    speed = 86.4 * length / seconds
    return {"density": float(values.mean()), "error": error, "fluctuation": float(values.std()), "ns_per_day": speed}


def _relaxed(system: Any, x: np.ndarray) -> np.ndarray:
    context = openmm.Context(system, openmm.VerletIntegrator(0.001))
    context.setPositions(x)
    openmm.LocalEnergyMinimizer.minimize(context, 10.0, 200)
    return np.array(context.getState(positions=True).getPositions(asNumpy=True)._value)


def tables(report: Report) -> str:
    """Return the results as a table."""
    rows = [
        [
            f"{one['side']:g} nm" + (", Ala3" if one["peptide"] else ""),
            one["by"],
            f"{one['density']:.4f} ({one['error']:.4f})",
            cell(one["fluctuation"], 4),
            cell(one["ns_per_day"], 2),
        ]
        for one in report["rows"]
    ]
    return harness.table(["box", "dynamics", "density, g/cm3 (error)", "fluctuation", "ns/day"], rows)


def _sides(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__)
    script.add_argument(
        "--sides", type=_sides, default=[2.4], metavar="NM,NM,...", help="of the cubic boxes (default: 2.4)"
    )
    script.add_argument("--time", type=float, default=200.0, metavar="PS", help="of every run (default: 200)")
    script.add_argument("--seed", type=int, default=1, metavar="N", help="of the random numbers (default: 1)")
    return harness.run(script, arguments, measure, tables)


if __name__ == "__main__":
    sys.exit(main())

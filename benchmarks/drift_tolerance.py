"""How exactly must a drift be solved? Drift of the energy at constant energy, over the tolerance of the drifts.

    python benchmarks/drift_tolerance.py [--steps N] [--trajectories N] [-o FOLDER]

Capped alanine in OBC2 with everything soft and the joint inertias of a 24 fs step, from thermal momenta at 300 K, at
constant energy with steps of 12 fs, which are as long as the half drifts of a Langevin step. All tolerances start from
the same momenta, so that differences between rows are what the tolerance does.

drift        slope of the total energy (U_F included), mean over trajectories with its standard error
difference   from the row above all others, which is solved to rounding; paired, trajectory by trajectory
heat bath    the energy that Langevin dynamics with a friction of 1/ps exchanges with the bath: n kT friction
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import harness
import peptidyn as ptd
from harness import Report, table
from molecules import context, relax
from peptidyn.core.progress import Progress
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.systems import make_system
from peptidyn.integrators.mover import DRIFT_TOLERANCE, Mover
from peptidyn.integrators.stepper import Stepper

TOLERANCES = (DRIFT_TOLERANCE, 1e-9, 1e-7, 1e-6, 1e-5)
METRIC_STEP, STEP, EVERY = 0.024, 0.012, 50
"""ps, ps, and steps between two energies."""

KT, FRICTION = BOLTZMANN * 300.0, 1.0


def make_molecule() -> tuple[ptd.TreeModel, Any]:
    """Return the tree with its joint inertias, and a Context for forces."""
    peptide = ptd.build_peptide("A")
    system = make_system(peptide.topology, "obc2")
    place = context(system)
    relaxed = ptd.Structure.from_openmm(peptide.topology, system, relax(place, peptide.positions))
    tree = ptd.build_tree(relaxed, soft="all")
    return tree.with_joint_inertia(ptd.joint_inertia(tree, system, METRIC_STEP)), place


def energy_drift(tree: ptd.TreeModel, place: Any, tolerance: float, steps: int, seed: int) -> tuple[float, float]:
    """Return the slope of the total energy, kJ/mol/ps, and the mean number of iterations of a drift."""

    def forces(mover: Mover, want_energy: bool) -> tuple[float, np.ndarray]:
        place.setPositions(mover.place())
        state = place.getState(forces=True, energy=want_energy)
        torque = mover.load_forces(np.array(state.getForces(asNumpy=True)._value), KT)
        if not want_energy:
            return math.nan, torque
        return state.getPotentialEnergy()._value + KT * mover.fixman_energy(), torque

    mover = Mover(tree)
    mover.thermalise(0.0, KT, np.random.default_rng(seed))
    stepper = Stepper(mover, forces, STEP, "BAB", tolerance=tolerance)
    energies, iterations = [], 0
    for step in range(steps + 1):
        if step % EVERY == 0:
            energies.append(stepper.potential_energy() + mover.kinetic_energy())
        if not stepper.step():
            raise RuntimeError("a drift did not converge")
        iterations += int(mover.iterations.max())
    return float(np.polyfit(np.arange(len(energies)) * EVERY * STEP, energies, 1)[0]), iterations / (steps + 1)


def measure(steps: int, trajectories: int) -> dict[str, Any]:
    """Run all tolerances from the same momenta."""
    tree, place = make_molecule()
    rows = []
    with Progress(len(TOLERANCES) * trajectories, "drift tolerance", "trajectories") as bar:
        for tolerance in TOLERANCES:
            found = []
            for seed in range(trajectories):
                found.append(energy_drift(tree, place, tolerance, steps, seed))
                bar.advance(1)
            rows.append({
                "tolerance": tolerance, "drifts": [one[0] for one in found],
                "iterations": float(np.mean([one[1] for one in found])),
            })  # fmt: skip
    return {"rows": rows, "steps": steps, "heat_bath": tree.n_dof * KT * FRICTION}


def tables(report: Report) -> str:
    """Return the report as text for people."""
    exact = np.array(report["rows"][0]["drifts"])
    rows = []
    for row in report["rows"]:
        drifts = np.array(row["drifts"])
        change = drifts - exact
        error, apart = (np.std(x, ddof=1) / math.sqrt(len(x)) if len(x) > 1 else math.nan for x in (drifts, change))
        rows.append([
            f"{row['tolerance']:g}", f"{row['iterations']:.1f}", f"{drifts.mean():+.4f} ± {error:.4f}",
            f"{change.mean():+.4f} ± {apart:.4f}",
        ])  # fmt: skip
    ps = report["steps"] * STEP
    return "\n\n".join([
        f"Drift of the energy over the tolerance of drifts, {len(exact)} trajectories of {ps:g} ps each, kJ/mol/ps",
        table(["tolerance (nm or rad)", "iterations", "drift", "difference"], rows),
        f"heat bath: {report['heat_bath']:.0f} kJ/mol/ps",
    ])  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__)
    script.add_argument("--steps", type=harness.positive, default=3000, help="of a trajectory (default: 3000)")
    script.add_argument("--trajectories", type=harness.positive, default=8, help="for every tolerance (default: 8)")
    return harness.run(script, arguments, measure, tables)


if __name__ == "__main__":
    sys.exit(main())

"""How high is the barrier between the left (phi < 0) and right (phi > 0) side of capped alanine, by what is soft?

    python benchmarks/backbone_barrier.py [--step DEGREES] [-o FOLDER]

Rigid geometry; soft backbone angles N-CA-C, CA-C-N, C-N-CA; soft omega too; everything relaxed. The potential energy
(amber14, OBC2) is computed on a grid of phi and psi, with all other soft coordinates minimised at every point. The
barrier is the lowest maximum over all paths of neighbouring grid points from the minimum with phi < 0 to the minimum of
the right-handed well (20 < phi < 120), above the lowest energy of the same map. Hard coordinates have the values of
data/ala1.pdb relaxed in Cartesian coordinates, which is the alpha-R minimum.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openmm

import harness
import peptidyn as ptd
from harness import Report, cell
from molecules import context, positions_of
from peptidyn.core.progress import Progress
from peptidyn.engine.minimisation import minimise, minimise_cartesian
from peptidyn.engine.systems import make_system
from peptidyn.integrators.mover import Mover

ALANINE = Path(__file__).parents[1] / "data" / "ala1.pdb"
STIFF = 1e5
"""kJ/mol: what holds phi and psi while everything else relaxes."""


class Alanine:
    """Capped alanine in OBC2, double precision, at any phi and psi.

    Parameters
    ----------
    step : float
        Degrees between grid points.
    """

    def __init__(self, step: float = 15.0):
        self.grid = np.arange(-180.0, 180.0, step)
        structure = ptd.load_structure(ALANINE)
        self.topology, self.system = structure.topology, make_system(structure.topology, "obc2")
        self.context = context(self.system)
        self.context.setPositions(structure.positions)
        minimise_cartesian(self.context, 0.01)
        self.structure = ptd.Structure.from_openmm(self.topology, self.system, positions_of(self.context))
        self.tree = ptd.build_tree(self.structure, "phi psi")

    def positions(self, phi: float, psi: float) -> np.ndarray:
        """Return positions (n_atoms, 3), nm, with the relaxed hard geometry at phi and psi (degrees)."""
        angle = {"phi": phi, "psi": psi}
        q = np.deg2rad([angle[torsion.kind] for torsion in self.tree.torsions])
        return self.tree.positions(self.tree.reference.replace(torsions=q))

    def map(self, soft: str) -> np.ndarray:
        """Return energies (n_phi, n_psi), kJ/mol, with the coordinates `soft` minimised at every point."""
        tree = ptd.build_tree(self.structure, soft)

        def forces(mover: Mover) -> tuple[float, np.ndarray]:
            x = mover.positions()
            self.context.setPositions(x)
            state = self.context.getState(energy=True, forces=True)
            force = np.ascontiguousarray(state.getForces(asNumpy=True)._value)
            return state.getPotentialEnergy()._value, mover.project(force)

        def energy(phi: float, psi: float) -> float:
            return minimise(Mover(tree.with_geometry(self.positions(phi, psi))), forces, 0.5, 300).energy

        return np.array([[energy(phi, psi) for psi in self.grid] for phi in self.grid])

    def relaxed_map(self) -> np.ndarray:
        """Return energies (n_phi, n_psi), kJ/mol, with everything but phi and psi minimised in Cartesian space."""
        system = make_system(self.topology, "obc2")
        hold = openmm.CustomTorsionForce(f"{STIFF}*(1-cos(theta-target))")
        hold.addPerTorsionParameter("target")
        for torsion in self.tree.torsions:
            hold.addTorsion(*torsion.atoms, [0.0])
        hold.setForceGroup(1)
        system.addForce(hold)
        held = context(system)

        def energy(phi: float, psi: float) -> float:
            angle = {"phi": phi, "psi": psi}
            for i, torsion in enumerate(self.tree.torsions):
                hold.setTorsionParameters(i, *torsion.atoms, [np.deg2rad(angle[torsion.kind])])
            hold.updateParametersInContext(held)
            held.setPositions(self.positions(phi, psi))
            minimise_cartesian(held, 0.5, 500)
            return held.getState(energy=True, groups={0}).getPotentialEnergy()._value

        return np.array([[energy(phi, psi) for psi in self.grid] for phi in self.grid])

    def barrier(self, energies: np.ndarray) -> tuple[float, float, float]:
        """Return the barrier (kJ/mol) of a map and where it is: phi and psi (degrees)."""
        right = (self.grid > 20) & (self.grid < 120)
        start, end = (_lowest(energies, rows) for rows in (self.grid < 0, right))
        saddle = _lowest_pass(energies, start, end)
        return float(energies[saddle] - energies.min()), float(self.grid[saddle[0]]), float(self.grid[saddle[1]])


def _lowest(energies: np.ndarray, rows: np.ndarray) -> tuple[int, int]:
    i, j = np.unravel_index(np.where(rows[:, None], energies, np.inf).argmin(), energies.shape)
    return int(i), int(j)


def _lowest_pass(energies: np.ndarray, start: tuple[int, int], end: tuple[int, int]) -> tuple[int, int]:
    """Return the highest point of the path from start to end whose highest point is lowest; the map is periodic."""
    n, m = energies.shape
    queue, seen = [(energies[start], start, start)], set()
    while queue:
        height, here, top = heapq.heappop(queue)
        if here == end:
            return top
        if here in seen:
            continue
        seen.add(here)
        for di, dj in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            there = ((here[0] + di) % n, (here[1] + dj) % m)
            if energies[there] > height:
                heapq.heappush(queue, (energies[there], there, there))
            else:
                heapq.heappush(queue, (height, there, top))
    raise AssertionError("a periodic map is connected")


MODELS = {
    "rigid geometry": lambda alanine: alanine.map("methyl"),
    "soft backbone angles": lambda alanine: alanine.map("methyl N-CA-C CA-C-N C-N-CA"),
    "soft backbone angles and omega": lambda alanine: alanine.map("methyl omega N-CA-C CA-C-N C-N-CA"),
    "everything relaxed": lambda alanine: alanine.relaxed_map(),
}


def measure(step: float = 15.0) -> dict[str, Any]:
    """Return barrier (kJ/mol), phi and psi (degrees) by model, with `step` degrees between grid points."""
    alanine = Alanine(step)
    with Progress(len(MODELS), "barriers", "models") as bar:
        found = {}
        for name, make in MODELS.items():
            found[name] = alanine.barrier(make(alanine))
            bar.advance(1, name)
    return {"barriers": found}


def tables(report: Report) -> str:
    """Return the report as text for people."""
    rows = [[name, cell(height), f"{phi:g}, {psi:g}"] for name, (height, phi, psi) in report["barriers"].items()]
    return harness.table(["model", "barrier (kJ/mol)", "at phi, psi"], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__)
    script.add_argument("--step", type=float, default=15.0, metavar="DEG", help="grid spacing (default: 15)")
    return harness.run(script, arguments, measure, tables)


if __name__ == "__main__":
    sys.exit(main())

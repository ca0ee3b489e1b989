"""U_F over a phi/psi grid: the Ramachandran map of the mass-metric bias."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import map_coordinates

from peptidyn.core.errors import ArgumentError
from peptidyn.metric.fixman_potential import FixmanPotential
from peptidyn.model.tree import TreeModel

BASINS = {
    "αR": (-63.0, -43.0),
    "PII": (-75.0, 145.0),
    "β": (-135.0, 135.0),
    "αL": (57.0, 47.0),
}
"""Standard backbone conformations (phi, psi) in degrees."""


@dataclass(frozen=True, eq=False)
class FixmanMap:
    """U_F of one residue's phi and psi, everything else as in the reference.

    Attributes
    ----------
    phi, psi : (n,)
        Grid, degrees.
    energy : (n, n)
        U_F / kT relative to its minimum, ``energy[i, j]`` at ``phi[i], psi[j]``; it does not depend on temperature.
    residue : str
        Label of the residue.
    """

    phi: np.ndarray
    psi: np.ndarray
    energy: np.ndarray
    residue: str

    @property
    def range(self) -> float:
        """Largest minus smallest U_F, kT."""
        return float(np.ptp(self.energy))

    def at(self, phi: float, psi: float) -> float:
        """Return U_F / kT at (phi, psi) in degrees, interpolated linearly on the periodic grid."""
        place = [[(angle + 180.0) / 360.0 * len(self.phi)] for angle in (phi, psi)]
        return float(map_coordinates(self.energy, place, order=1, mode="grid-wrap")[0])

    def rows(self) -> list[tuple[float, float, float]]:
        """Return (phi, psi, U_F) for every grid point, degrees and kT."""
        phi, psi = np.meshgrid(self.phi, self.psi, indexing="ij")
        return list(zip(phi.ravel().tolist(), psi.ravel().tolist(), self.energy.ravel().tolist(), strict=True))


def fixman_map(tree: TreeModel, residue: str | int, chain: str | None = None, points: int = 72) -> FixmanMap:
    """Return U_F over the phi and psi of one residue.

    Parameters
    ----------
    tree : TreeModel
        Its phi and psi of that residue must be soft.
    residue : str or int
        Residue number as in the file (with insertion code, if any).
    chain : str, optional
        Needed when several chains have that residue.
    points : int
        Grid points per axis.
    """
    if points < 2:
        raise ArgumentError(f"points is {points}, expected at least 2 grid points per axis")
    phi, psi, label = _backbone_pair(tree, str(residue), chain)
    grid = np.linspace(-180.0, 180.0, points, endpoint=False)
    q = np.repeat(tree.q_reference[None], points * points, axis=0)
    q[:, phi] = np.repeat(np.deg2rad(grid), points)
    q[:, psi] = np.tile(np.deg2rad(grid), points)
    metric = FixmanPotential(tree, 300.0).log_metric(q)  # in kT the temperature drops out
    energy = 0.5 * metric.reshape(points, points)
    return FixmanMap(grid, grid.copy(), energy - energy.min(), label)


def _backbone_pair(tree: TreeModel, residue: str, chain: str | None) -> tuple[int, int, str]:
    """Return the places of phi and psi of a residue in q, and its label."""
    found: dict[int, dict[str, int]] = {}
    for place, c in enumerate(tree.coordinates):
        if c.kind in ("phi", "psi") and c.residue_id == residue and chain in (None, c.chain.strip()):
            found.setdefault(c.residue, {})[c.kind] = place
    complete = {r: pair for r, pair in found.items() if len(pair) == 2}
    where = f"residue {residue}" + (f" of chain {chain}" if chain else "")
    if not complete:
        have = sorted(found[next(iter(found))]) if found else []
        missing = f"only {have[0]} is soft" if have else "it is not there, or neither is soft"
        raise ArgumentError(
            f"a map needs phi and psi of {where}, but {missing}; choose another residue (see 'peptidyn inspect')"
        )
    if len(complete) > 1:
        chains = sorted({tree.coordinates[pair["phi"]].chain for pair in complete.values()})
        raise ArgumentError(f"several chains have a {where} ({', '.join(chains)}); name the chain")
    index, pair = next(iter(complete.items()))
    return pair["phi"], pair["psi"], tree.atoms.residue_label(index)

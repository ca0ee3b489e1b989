"""How often torsions go from one well to another."""

from __future__ import annotations

from typing import Any

import numpy as np

THREEFOLD = ((60.0, 30.0), (180.0, 30.0), (-60.0, 30.0))
CORES: dict[str, tuple[tuple[float, float], ...]] = {
    "phi": ((-100.0, 60.0), (60.0, 30.0)),
    "psi": ((-40.0, 40.0), (150.0, 50.0)),
    "omega": ((180.0, 60.0), (0.0, 60.0)),
}
"""Cores of the wells by kind of torsion: centre and half width, degrees. Other kinds have three wells, as chi."""


def well_of(degrees: Any, kind: str) -> np.ndarray:
    """Return the well that each frame belongs to; a frame between two cores stays in the well it came from.

    Parameters
    ----------
    degrees : (n_frames,)
    kind : str
        As in `Coordinate.kind`: phi, psi, omega, chi1, ...

    Returns
    -------
    (n_frames,) int
        Index into the cores of the kind; -1 before the first core was reached.
    """
    angle = np.asarray(degrees, dtype=np.float64)
    well = np.full(angle.shape, -1)
    for index, (centre, width) in enumerate(CORES.get(kind, THREEFOLD)):
        inside = np.abs((angle - centre + 180.0) % 360.0 - 180.0) <= width
        well[inside] = index
    # carry the last core forward through the frames between cores
    last = np.maximum.accumulate(np.where(well >= 0, np.arange(len(well)), 0))
    return well[last]


def count_transitions(degrees: Any, kind: str) -> int:
    """Return how often a torsion (n_frames,), degrees, entered the core of another well than the last one."""
    well = well_of(degrees, kind)
    well = well[well >= 0]
    return int((np.diff(well) != 0).sum())

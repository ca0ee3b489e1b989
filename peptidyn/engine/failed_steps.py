"""Why a time step could not be made, and what to try."""

from __future__ import annotations

import numpy as np

from peptidyn.integrators.mover import Mover
from peptidyn.model.kinematics import STRETCH


def explain_failed_step(mover: Mover, forces: np.ndarray, timestep: float) -> str:
    """Return why a step (ps) from where the mover is failed; `forces` (n_atoms, 3), kJ/mol/nm, are the last ones."""
    tree, fs = mover.tree, 1000 * timestep
    if not (tree.n_coordinates and np.isfinite(forces.sum()) and np.isfinite(mover.momentum).all()):
        return "the forces are not finite numbers: atoms may overlap; minimise first"
    rate = np.abs(mover.velocities()[tree.coordinate_dof])
    if mover.out_of_range >= 0:
        coordinate = tree.coordinates[mover.out_of_range]
        limit = "0 or 180 degrees" if coordinate.motion == "bend" else "zero length"
        return (
            f"{coordinate} would reach {limit} in one step of {fs:g} fs, where coordinates end; try a smaller step, or "
            "make that coordinate hard"
        )
    turning = np.where(tree.measure == STRETCH, 0.0, rate)
    fastest, turn = tree.coordinates[int(turning.argmax())], np.rad2deg(turning.max() * timestep)
    return (
        f"the step is too large: {fastest} would turn {turn:.0f} degrees in one step of {fs:g} fs; try "
        f"{fs * min(0.5, 20.0 / turn):.1f} fs, or leave that rotor out of soft="
    )

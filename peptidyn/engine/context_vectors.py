"""Positions, velocities and forces of an OpenMM State as plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import openmm

_CALLS = {
    openmm.State.Positions: "getPositions",
    openmm.State.Velocities: "getVelocities",
    openmm.State.Forces: "getForces",
}


def read_vectors(state: Any, kind: int, out: np.ndarray) -> np.ndarray:
    """Write positions, velocities or forces of an OpenMM State into `out` (n_atoms, 3), and return it.

    The public calls make a Quantity, which takes longer than the projection of the forces; what they call does not.
    """
    if hasattr(state, "_getVectorAsNumpy"):
        state._getVectorAsNumpy(kind, out)
    else:
        out[:] = getattr(state, _CALLS[kind])(asNumpy=True)._value
    return out


def read_forces(state: Any, out: np.ndarray, sites: np.ndarray) -> np.ndarray:
    """Write the forces of an OpenMM State into `out` (n_atoms, 3), kJ/mol/nm, and return it.

    OpenMM adds the forces on virtual `sites` to the atoms that place them, and reports them at the sites too; here
    those are zero.
    """
    read_vectors(state, openmm.State.Forces, out)
    if len(sites):
        out[sites] = 0.0
    return out

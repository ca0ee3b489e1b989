"""The Fixman potential as an OpenMM force, for stock integrators with constraints.

The generalised torque tau = -dU_F/dq becomes Cartesian forces F = m J M^-1 tau, which satisfy J^T F = tau, push every
atom along an allowed motion, and add neither net force nor net torque.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from peptidyn.core.errors import MissingDependencyError, ModelError
from peptidyn.metric.fixman_potential import FixmanPotential
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.protocol import get_solver

DEFORMATION = 5e-3
"""Deviation (nm) of a rigid unit beyond which the constraints of the simulation are not those of the tree."""


class FixmanComputation:
    """What OpenMM calls for energy and forces. Picklable, so that the force survives XML serialisation.

    Positions from the context need not be rigid to the last digit (constraint tolerance, single precision): soft
    coordinates are measured from them.
    """

    def __init__(self, tree: TreeModel, temperature: Any):
        self.tree = tree
        self.potential = FixmanPotential(tree, temperature)
        self._solver = "articulated"

    def __call__(self, state: Any) -> tuple[float, np.ndarray]:
        positions = np.array(state.getPositions(asNumpy=True)._value, dtype=np.float64)
        return self.energy_and_forces(positions)

    def energy_and_forces(self, positions: np.ndarray) -> tuple[float, np.ndarray]:
        """Return U_F (kJ/mol) and forces (n_atoms, 3), kJ/mol/nm, at positions (n_atoms, 3), nm."""
        tree = self.tree
        fit = tree.fit(positions)
        if fit.max_misfit > DEFORMATION:
            raise ModelError(
                f"FixmanForce: the rigid {tree.unit(fit.worst_link).name} is deformed by {fit.max_misfit:.1e} nm; the "
                "System must hold the constraints of the tree (bonds and angles of every rigid unit)"
            )
        energy, torque = self.potential.energy_and_torque(fit.state)
        motion = get_solver(self._solver).solve(tree, fit.state, torque)
        return energy, tree.masses[:, None] * tree.velocities(fit.state, motion)


def FixmanForce(tree: TreeModel, temperature: Any) -> Any:  # named like the classes of openmm that it stands beside
    """Return an openmm Force with the energy U_F and forces F, J^T F = -dU_F/dq.

    Add it to a System whose constraints are those of `tree`; the atoms of the System must be those of the tree, in
    order. The energy appears in the State. Serialisation with XmlSerializer works and needs peptidyn to be importable
    where it is read back, because OpenMM stores the computation by pickle.

    Parameters
    ----------
    tree : TreeModel
    temperature : float or Quantity
        K.

    Returns
    -------
    openmm.PythonForce
    """
    import openmm

    if not hasattr(openmm, "PythonForce"):
        raise MissingDependencyError(
            f"FixmanForce needs an OpenMM with PythonForce; this is {openmm.__version__}: upgrade openmm"
        )
    force = openmm.PythonForce(FixmanComputation(tree, temperature))
    force.setName("FixmanForce")
    return force

"""Energy minimisation in soft coordinates: L-BFGS over base poses, torsions and bends. Hard coordinates stay.

The variables are displacements from the start: for every free base a rotation vector and a translation, for a point a
translation, then the soft coordinates; the same order as generalised forces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from peptidyn.errors import ArgumentError, ModelError
from peptidyn.integrators.mover import Mover
from peptidyn.model.kinematics import FREE, POINT
from peptidyn.model.state import State

HOPELESS = 1e30
"""Stands for an energy (kJ/mol) that is no finite number, so that a line search turns back from overlapping atoms."""


@dataclass(frozen=True)
class Minimum:
    """Outcome of a minimisation.

    Attributes
    ----------
    state : State
    energy, start_energy : float
        kJ/mol.
    gradient : float
        Largest component of the gradient left, kJ/mol/rad or kJ/mol/nm.
    iterations : int
    converged : bool
        Whether `gradient` is below the tolerance.
    """

    state: State
    energy: float
    start_energy: float
    gradient: float
    iterations: int
    converged: bool


def minimise(
    mover: Mover,
    forces: Callable[[Mover], tuple[float, np.ndarray]],
    tolerance: float = 1.0,
    max_iterations: int = 0,
) -> Minimum:
    """Minimise the energy from the mover's configuration, and leave the mover at the minimum.

    Parameters
    ----------
    mover : Mover
    forces : callable
        mover -> energy (kJ/mol) and generalised forces (n_dof,) at its configuration.
    tolerance : float
        Largest component of the gradient at which to stop, kJ/mol/rad (translations: kJ/mol/nm).
    max_iterations : int
        0 means as many as it takes.
    """
    if not tolerance > 0:
        raise ArgumentError(f"the tolerance is {tolerance:g}, expected a positive gradient in kJ/mol/rad")
    if max_iterations < 0:
        raise ArgumentError(f"max_iterations is {max_iterations}, expected 0 (no limit) or more")
    start = mover.state
    chart = _Chart(start)
    start_energy, torque = forces(mover)
    if not np.isfinite(start_energy) or not np.isfinite(torque).all():
        raise ModelError("the energy to minimise is no finite number: atoms coincide; repair the structure first")
    if not chart.n:
        return Minimum(start, start_energy, start_energy, 0.0, 0, True)

    def evaluate(z: np.ndarray) -> tuple[float, np.ndarray]:
        mover.set_state(chart.state(z))
        energy, torque = forces(mover)
        if not np.isfinite(energy) or not np.isfinite(torque).all():
            return HOPELESS, np.zeros(chart.n)
        return energy, chart.pull_back(z, -torque)

    found = minimize(
        evaluate,
        np.zeros(chart.n),
        jac=True,
        method="L-BFGS-B",
        options={
            "gtol": tolerance,
            "ftol": 1e-14,
            "maxcor": 20,
            "maxiter": max_iterations or 1_000_000,
            "maxfun": 10_000_000,
        },
    )
    state = chart.state(found.x)
    mover.set_state(state)
    gradient = float(np.abs(found.jac).max())
    return Minimum(state, float(found.fun), start_energy, gradient, int(found.nit), gradient <= tolerance)


class _Chart:
    """Displacements (n,) from a state, and what they do to gradients."""

    def __init__(self, start: State):
        tree = start.tree
        self.start = start
        self.n = tree.n_dof
        roots = np.flatnonzero(tree.parent < 0)
        joint, dof = tree.joint[roots], tree.dof[roots]
        self.turning = np.flatnonzero(joint == FREE)
        self.moving = np.flatnonzero((joint == FREE) | (joint == POINT))
        first = dof[self.moving] + np.where(joint[self.moving] == FREE, 3, 0)
        self.angles = dof[self.turning][:, None] + np.arange(3)
        self.shifts = first[:, None] + np.arange(3)

    def state(self, z: np.ndarray) -> State:
        """Return the start displaced by z."""
        position, rotation = self.start.base_position.copy(), self.start.base_rotation.copy()
        position[self.moving] += z[self.shifts]
        rotation[self.turning] = _turned(z[self.angles], rotation[self.turning])
        q = self.start.q + z[self.start.tree.coordinate_dof]
        return State.make(self.start.tree, q, position, rotation)

    def pull_back(self, z: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Turn a gradient over rates (angular velocities) into one over z: J^T g, J = d(angle turned)/d(vector)."""
        out = gradient.copy()
        for rows in self.angles:
            out[rows] = _left_jacobian(z[rows]).T @ gradient[rows]
        return out


def _turned(vector: np.ndarray, quaternion: np.ndarray) -> np.ndarray:
    """Turn quaternions (n, 4) by rotation vectors (n, 3), world axes."""
    angle = np.linalg.norm(vector, axis=1, keepdims=True)
    w0 = np.cos(0.5 * angle)
    u0 = 0.5 * np.sinc(0.5 * angle / np.pi) * vector
    w1, u1 = quaternion[:, :1], quaternion[:, 1:]
    w = w0 * w1 - (u0 * u1).sum(axis=1, keepdims=True)
    u = w0 * u1 + w1 * u0 + np.cross(u0, u1)
    product = np.concatenate([w, u], axis=1)
    return product / np.linalg.norm(product, axis=1, keepdims=True)


def _left_jacobian(v: np.ndarray) -> np.ndarray:
    """J with (world angular velocity) = J (rate of the rotation vector v)."""
    angle = float(np.linalg.norm(v))
    cross = np.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])
    if angle < 1e-4:
        return np.eye(3) + 0.5 * cross + cross @ cross / 6.0
    return (
        np.eye(3)
        + (1.0 - np.cos(angle)) / angle**2 * cross
        + (angle - np.sin(angle)) / angle**3 * (cross @ cross)
    )  # fmt: skip

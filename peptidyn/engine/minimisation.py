"""Energy minimisation: in soft coordinates (L-BFGS over base poses, torsions and bends), and in Cartesian ones.

In soft coordinates the variables are displacements from the start: for every free base a rotation vector and a
translation, for a point a translation, then the soft coordinates; the same order as generalised forces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import openmm

from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.integrators.mover import Mover
from peptidyn.model.kinematics import FREE, POINT
from peptidyn.model.state import State

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

HOPELESS = 1e30
"""Stands for an energy (kJ/mol) that is not finite, so that a line search turns back from overlapping atoms."""

FIRST_STEPS = (1.0, 0.1, 0.01, 0.001)
"""Lengths of the first step (rad, nm). The next one is tried if the gradient is not small in the end: a first step that
puts atoms on top of each other leads the line search to steps of no length, and L-BFGS takes that for a minimum."""

Watch = Callable[[float], None]
"""Receives the energy, kJ/mol, after every iteration of a minimisation."""


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
    watch: Watch | None = None,
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
    watch : callable, optional
        Called after every iteration with the energy, kJ/mol.
    """
    if not tolerance > 0:
        raise ArgumentError(f"the tolerance is {tolerance:g}, expected a positive gradient in kJ/mol/rad")
    if max_iterations < 0:
        raise ArgumentError(f"max_iterations is {max_iterations}, expected 0 (no limit) or more")
    start = mover.state
    chart = _Chart(start)
    start_energy, torque = forces(mover)
    if not np.isfinite(start_energy) or not np.isfinite(torque).all():
        raise ModelError("the energy to minimise is not a finite number: atoms coincide; repair the structure first")
    if not chart.n:
        return Minimum(start, start_energy, start_energy, 0.0, 0, True)

    def evaluate(z: np.ndarray) -> tuple[float, np.ndarray]:
        mover.set_state(chart.state(z))
        energy, torque = forces(mover)
        if not np.isfinite(energy) or not np.isfinite(torque).all():
            return HOPELESS, np.zeros(chart.n)
        return energy, chart.pull_back(z, -torque)

    z, energy, gradient, iterations = _descend(evaluate, chart.n, tolerance, max_iterations or 1_000_000, watch)
    state = chart.state(z)
    mover.set_state(state)
    return Minimum(state, energy, start_energy, gradient, iterations, gradient <= tolerance)


def _descend(
    evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]],
    n: int,
    tolerance: float,
    limit: int,
    watch: Watch | None,
) -> tuple[np.ndarray, float, float, int]:
    """Return where L-BFGS gets from zeros (n,), the energy and the largest slope there, and its iterations."""
    from scipy.optimize import minimize  # takes a tenth of a second, which a run that does not minimise saves

    def scaled(y: np.ndarray) -> tuple[float, np.ndarray]:
        energy, slope = evaluate(length * y)
        return energy, length * slope

    def report(intermediate_result: OptimizeResult) -> None:
        if watch is not None:
            watch(float(intermediate_result.fun))

    z, iterations = np.zeros(n), 0
    for length in FIRST_STEPS:
        found = minimize(
            scaled,
            z / length,
            jac=True,
            method="L-BFGS-B",
            callback=report,
            options=dict(gtol=length * tolerance, ftol=1e-14, maxcor=20, maxiter=limit - iterations, maxfun=10_000_000),
        )
        z, iterations = length * found.x, iterations + int(found.nit)
        gradient = float(np.abs(found.jac).max()) / length
        if gradient <= tolerance or iterations >= limit:
            break
    return z, float(found.fun), gradient, iterations


def minimise_cartesian(context: Any, tolerance: float, max_iterations: int = 0, watch: Watch | None = None) -> float:
    """Minimise the energy of a Context over all Cartesian coordinates; return it, kJ/mol.

    Parameters
    ----------
    context : openmm.Context
    tolerance : float
        Root mean square force at which to stop, kJ/mol/nm.
    max_iterations : int
        0 means as many as it takes.
    watch : callable, optional
        Called after every iteration with the energy, kJ/mol. What it raises (KeyboardInterrupt) stops the minimiser.
    """
    reporter = _Watcher(watch) if watch is not None else None
    openmm.LocalEnergyMinimizer.minimize(context, tolerance, max_iterations, reporter)
    if reporter is not None and reporter.raised is not None:
        raise reporter.raised
    return context.getState(energy=True).getPotentialEnergy()._value


class _Watcher(openmm.MinimizationReporter):
    """Passes energies on. Exceptions must not cross OpenMM's C++ frames, so they are kept and raised afterwards."""

    def __init__(self, watch: Watch):
        super().__init__()
        self.watch = watch
        self.raised: BaseException | None = None

    def report(self, iteration: int, x: Any, gradient: Any, about: Any) -> bool:
        """Tell the energy; return True to stop."""
        try:
            self.watch(about["system energy"])
        except BaseException as error:
            self.raised = error
        return self.raised is not None


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
        from scipy.spatial.transform import Rotation  # scipy.optimize has imported it

        position, rotation = self.start.base_position.copy(), self.start.base_rotation.copy()
        position[self.moving] += z[self.shifts]
        turned = Rotation.from_rotvec(z[self.angles]) * Rotation.from_quat(rotation[self.turning], scalar_first=True)
        rotation[self.turning] = turned.as_quat(scalar_first=True)
        q = self.start.q + z[self.start.tree.coordinate_dof]
        return State.make(self.start.tree, q, position, rotation)

    def pull_back(self, z: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Turn a gradient over rates (angular velocities) into one over z: J^T g, J = d(angle turned)/d(vector)."""
        out = gradient.copy()
        out[self.angles] = np.einsum("nij,ni->nj", _left_jacobians(z[self.angles]), gradient[self.angles])
        return out


def _left_jacobians(v: np.ndarray) -> np.ndarray:
    """J (n, 3, 3) with (world angular velocity) = J (rate of the rotation vector), for rotation vectors v (n, 3)."""
    angle = np.linalg.norm(v, axis=1)[:, None, None]
    cross = np.zeros((len(v), 3, 3))
    cross[:, 2, 1], cross[:, 0, 2], cross[:, 1, 0] = v.T
    cross -= cross.transpose(0, 2, 1)
    half = np.sinc(0.5 * angle / np.pi)  # (1 - cos a) / a^2 = sinc^2(a/2) / 2, without cancellation
    small = angle < 1e-2
    safe = np.where(small, 1.0, angle)
    third = np.where(small, (1.0 - angle**2 / 20.0 + angle**4 / 840.0) / 6.0, (safe - np.sin(safe)) / safe**3)
    return np.eye(3) + 0.5 * half**2 * cross + third * (cross @ cross)

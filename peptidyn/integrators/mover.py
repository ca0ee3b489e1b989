"""`Mover`: a forest in motion, with the three moves that integrators are made of.

It holds positions and canonical momenta as plain arrays and moves them in place, with all scratch space allocated once.
Kick B changes momenta, drift A moves positions and momenta along the free motion, O mixes in thermal momenta.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from peptidyn.errors import ArgumentError
from peptidyn.integrators import drift_kernels as kernels
from peptidyn.model.kinematics import gather_wrenches, place_atoms, project_wrenches, world_axes
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers import articulated_kernels as articulated
from peptidyn.solvers.protocol import raise_singular

DRIFT_TOLERANCE = 1e-13
"""The drift is solved until its last correction is smaller than this (nm or rad)."""

DRIFT_ITERATIONS = 60
"""More iterations than this mean that the step is too large."""


MANY_MOLECULES = 64
"""From this number on, molecules are moved on all cores."""


class Mover:
    """Configuration and momenta of a tree, moved in place.

    Parameters
    ----------
    tree : TreeModel
    state : State, optional
        Where to start; default the reference.
    momenta : (n_dof,), optional
        Canonical momenta M v; default zero.

    Attributes
    ----------
    q, base_position, base_rotation : arrays as in `State`
    momentum : (n_dof,)
        Base: angular momentum about the base origin and linear momentum, world axes; then those of soft coordinates.
    iterations : (n_molecules,) int
        Of the last drift; -1 where it did not converge.
    """

    def __init__(self, tree: TreeModel, state: State | None = None, momenta: Any = None):
        self.tree = tree
        n, nm = tree.n_links, tree.n_molecules
        first = tree.molecule_link[tree.molecule]
        second = 0.5 * np.trace(tree.link_inertia, axis1=1, axis2=2)[:, None, None] * np.eye(3) - tree.link_inertia
        self._layout = (
            np.where(tree.parent < 0, -1, tree.parent - first), tree.joint, tree.axis, tree.origin, tree.coordinate,
            tree.molecule, tree.dof, tree.q_reference, tree.link_mass, tree.link_com, tree.link_inertia, second,
            tree.molecule_link, tree.molecule_dof,
        )  # fmt: skip
        self._R, self._R1 = np.empty((2, n, 3, 3))
        self._p, self._p1 = np.empty((2, n, 3))
        self._S, self._U, self._wrench, self._f = np.empty((4, n, 6))
        self._P, self._Y = np.empty((2, n, 6, 6))
        self._D = np.empty(n)
        self._root = np.empty((nm, 6, 6))
        self._residual, self._velocity = np.empty((2, tree.n_dof))
        self._status = np.empty(nm, dtype=np.int64)
        self.iterations = np.zeros(nm, dtype=np.int64)
        self.set_state(tree.reference if state is None else state)
        self.momentum = np.zeros(tree.n_dof) if momenta is None else tree.check_dof_vector("momenta", momenta)

    # ------------------------------------------------------------------ state

    def set_state(self, state: State) -> None:
        """Take over the configuration of `state`; momenta stay."""
        self.q = state.q.copy()
        self.base_position = state.base_position.copy()
        self.base_rotation = state.base_rotation.copy()
        self._factored = False

    @property
    def state(self) -> State:
        """The present configuration, as an immutable copy."""
        return State.make(self.tree, self.q, self.base_position, self.base_rotation)

    def save(self) -> tuple[np.ndarray, ...]:
        """Return copies of everything that `restore` needs."""
        return self.q.copy(), self.base_position.copy(), self.base_rotation.copy(), self.momentum.copy()

    def restore(self, saved: tuple[np.ndarray, ...]) -> None:
        """Go back to what `save` returned."""
        self.q, self.base_position, self.base_rotation, self.momentum = (part.copy() for part in saved)
        self._factored = False

    # ------------------------------------------------------------------ what the present configuration gives

    def _for_all(self, serial: Any, parallel: Any, *arguments: Any) -> None:
        """Run a kernel over all molecules: on all cores if they are many, else without the cost of threads."""
        n = self.tree.n_molecules
        if n < MANY_MOLECULES:
            serial(self._layout, 0, n, *arguments)
        else:
            parallel(self._layout, min(n, 64), *arguments)

    def _factor(self) -> None:
        if self._factored:
            return
        self._for_all(
            kernels.factor_range, kernels.factor_forest, self.base_position, self.base_rotation, self.q, self._R,
            self._p, self._S, self._P, self._U, self._D, self._root, self._status,
        )  # fmt: skip
        bad = self._status[self._status >= 0]
        if bad.size:
            raise_singular(self.tree, int(bad[0]))
        self._factored = True

    def positions(self, out: np.ndarray | None = None) -> np.ndarray:
        """Return the atom positions (n_atoms, 3), nm."""
        self._factor()
        x = np.empty((self.tree.n_atoms, 3)) if out is None else out
        place_atoms(self.tree.atom_link, self.tree.local, self._R, self._p, x)
        return x

    def velocities(self) -> np.ndarray:
        """Return the generalised velocities M^-1 p (n_dof,)."""
        self._factor()
        t = self.tree
        v = np.empty(t.n_dof)
        articulated.solve(
            t.parent, t.joint, t.molecule, t.dof, self._S, self._P, self._U, self._D, self._root, self.momentum, v,
            self._f,
        )  # fmt: skip
        return v

    def atom_velocities(self) -> np.ndarray:
        """Return the atom velocities (n_atoms, 3), nm/ps."""
        return self.tree.velocities(self.state, self.velocities())

    def kinetic_energy(self) -> float:
        """Return p M^-1 p / 2, kJ/mol."""
        return 0.5 * float(self.momentum @ self.velocities())

    def project(self, x: np.ndarray, forces: np.ndarray) -> np.ndarray:
        """Return the generalised forces J^T F (n_dof,) of atom forces (n_atoms, 3) at the positions x."""
        self._factor()
        t = self.tree
        torque, force, axes = np.empty((3, t.n_links, 3))
        world_axes(t.parent, t.joint, t.axis, self._R, axes)
        gather_wrenches(t.atom_link, x, self._p, forces, torque, force)
        out = np.zeros(t.n_dof)
        project_wrenches(t.parent, t.joint, t.dof, axes, self._p, torque, force, out)
        return out

    def fixman_torque(self) -> np.ndarray:
        """Return -d/dq of ln(det M / J^2) / 2 over all degrees of freedom (n_dof,): the Fixman torque per kT."""
        self._factor()
        t = self.tree
        gradient = np.empty(t.n_coordinates)
        articulated.log_det_gradient(
            t.parent,
            t.joint,
            t.molecule,
            t.coordinate,
            self._S,
            self._P,
            self._U,
            self._D,
            self._root,
            self._Y,
            gradient,
        )
        gradient[t.bend_index] -= 2.0 / np.tan(self.q[t.bend_index])
        torque = np.zeros(t.n_dof)
        torque[t.coordinate_dof] = -0.5 * gradient
        return torque

    def fixman_energy(self) -> float:
        """Return ln(det M / J^2) / 2: the Fixman potential per kT."""
        self._factor()
        t = self.tree
        log_det = articulated.log_det(t.parent, t.joint, t.molecule, self._P, self._D, self._root)
        return float(0.5 * log_det - np.log(np.abs(np.sin(self.q[t.bend_index]))).sum())

    # ------------------------------------------------------------------ moves

    def kick(self, torque: np.ndarray, h: float) -> None:
        """B: p += h tau."""
        self.momentum += h * torque

    def drift(self, h: float, tolerance: float = DRIFT_TOLERANCE) -> bool:
        """A: move freely for the time h (ps). Return False, with everything as before, if it did not converge."""
        self._factor()
        saved = self.save()
        self._for_all(
            kernels.drift_range, kernels.drift_forest, h, tolerance, DRIFT_ITERATIONS, self.base_position,
            self.base_rotation, self.q, self.momentum, self._R, self._p, self._R1, self._p1, self._S, self._P, self._U,
            self._D, self._root, self._wrench, self._f, self._residual, self._velocity, self.iterations,
        )  # fmt: skip
        self._factored = False
        if (self.iterations < 0).any():
            self.restore(saved)
            return False
        return True

    def thermalise(self, keep: float, kT: float, rng: np.random.Generator) -> None:
        """O: p <- keep p + sqrt(1 - keep^2) noise, noise ~ N(0, kT M); keep = 0 draws new momenta."""
        if not 0.0 <= keep <= 1.0:
            raise ArgumentError(f"keep is {keep:g}, expected a number between 0 and 1")
        self._factor()
        noise = np.empty(self.tree.n_dof)
        normals = rng.standard_normal(self.tree.n_dof)
        kernels.momentum_noise(self._layout, self._S, self._P, self._U, self._D, self._root, normals, self._f, noise)
        self.momentum = keep * self.momentum + np.sqrt((1.0 - keep * keep) * kT) * noise

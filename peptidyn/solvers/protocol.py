"""What every mass-matrix solver offers, and how to find one.

A solver factors the mass matrix M of a tree in one configuration; the factor answers questions about it. Public
methods check their arguments and their answers; the mathematics of a method is in its own file. A quantity that a
method does not have, or a tree that it cannot treat, raises `UnsupportedError`, which names the solvers that can.

Right-hand sides and answers are vectors over all degrees of freedom, molecule after molecule: the six base
components (torque about the base origin, force; the force alone for a point; none for a fixed base), then the soft
coordinates.
"""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np

from peptidyn.core.checks import all_finite
from peptidyn.core.errors import ArgumentError, SolverError, UnsupportedError
from peptidyn.core.units import plain_array
from peptidyn.model.state import State
from peptidyn.model.tree import Links, TreeModel
from peptidyn.solvers.dynamics import bias_forces, link_bias_forces


class Factor(ABC):
    """The mass matrix of one tree in one configuration, factored."""

    @abstractmethod
    def solve(self, b: np.ndarray) -> np.ndarray:
        """Return M^-1 b for `b` (n_dof, m), C-contiguous float64; `b` is not changed."""

    @abstractmethod
    def log_det(self) -> float:
        """Return ln det M."""


class Solver(ABC):
    """One method of mass-matrix algebra.

    A method needs `_factor` only. One that can do with less overrides `_solve`, `_log_det` and `_accelerations`, whose
    arguments are checked and whose answers will be: to fill the same arrays at every call (`ReusingSolver`), or to do
    everything in one compiled call.

    Attributes
    ----------
    name : str
        Its key in the registry.
    paper : str
        Where the method is described.
    takes_joint_inertia : bool
        Whether the method knows `TreeModel.joint_inertia`; if not, trees that have some are refused.
    inverts_bodies : bool
        Whether it needs an invertible inertia of every body, so that it refuses bodies that are lines or points.
    """

    name: str
    paper: str
    takes_joint_inertia: bool = False
    inverts_bodies: bool = False

    def factor(self, tree: TreeModel, state: State) -> Factor:
        """Factor M; raise SolverError, naming the body, if it is singular."""
        self._check(tree, state)
        return self._factor(tree, state)

    @abstractmethod
    def _factor(self, tree: TreeModel, state: State) -> Factor:
        """Return the factor of M for arguments that are checked."""

    def solve(self, tree: TreeModel, state: State, b: Any) -> np.ndarray:
        """Return M^-1 b.

        Parameters
        ----------
        tree : TreeModel
        state : State
        b : (n_dof,) or (n_dof, m)
            One or many right-hand sides, one per column.
        """
        rhs = check_columns("b", b, tree.n_dof)
        self._check(tree, state)
        return self._finite(self._solve(tree, state, rhs))

    def _solve(self, tree: TreeModel, state: State, b: np.ndarray) -> np.ndarray:
        """Return M^-1 b for `b` (n_dof,) or (n_dof, m), checked."""
        return self._factor(tree, state).solve(b[:, None] if b.ndim == 1 else b).reshape(b.shape)

    def log_det(self, tree: TreeModel, state: State) -> float:
        """Return ln det M (masses in Da, lengths in nm)."""
        self._check(tree, state)
        return float(self._finite(self._log_det(tree, state)))

    def _log_det(self, tree: TreeModel, state: State) -> float:
        return self._factor(tree, state).log_det()

    def accelerations(self, tree: TreeModel, state: State, velocities: Any, tau: Any) -> np.ndarray:
        """Return the generalised accelerations (n_dof,) under generalised forces `tau`: forward dynamics.

        Solves M a = tau - c, with c the velocity-dependent bias forces. Base accelerations are the time derivatives of
        the base velocities: angular acceleration, and acceleration of the base origin.
        """
        v = tree.check_dof_vector("velocities", velocities)
        t = tree.check_dof_vector("tau", tau)
        self._check(tree, state)
        return self._finite(self._accelerations(tree, state, v, t))

    def _accelerations(self, tree: TreeModel, state: State, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        rhs = tau - bias_forces(tree, state, v)
        return self._factor(tree, state).solve(rhs[:, None])[:, 0]

    def constraint_forces(self, tree: TreeModel, state: State, velocities: Any, tau: Any) -> np.ndarray:
        """Return the constraint wrench at every joint, for methods that compute it."""
        self._unsupported("constraint_forces")

    def square_root(self, tree: TreeModel, state: State, normals: Any) -> np.ndarray:
        """Return L z with L L^T = M: unit normals `z` become momenta of covariance M."""
        self._unsupported("square_root")

    def inverse_square_root(self, tree: TreeModel, state: State, normals: Any) -> np.ndarray:
        """Return L^-T z: unit normals `z` become velocities of covariance M^-1."""
        self._unsupported("inverse_square_root")

    def _check(self, tree: TreeModel, state: State) -> None:
        """Refuse the state of another tree, and joint inertias if the method has none."""
        tree.check_state(state)
        if not self.takes_joint_inertia:
            refuse_joint_inertia(self.name, tree)

    def _unsupported(self, method: str) -> NoReturn:
        inherited = getattr(Solver, method)
        able = _names(lambda solver: getattr(type(solver), method) is not inherited)
        raise UnsupportedError(f"the solver {self.name!r} has no {method}; these have: {able}")

    def _finite(self, answer: Any) -> Any:
        if not (all_finite(answer) if isinstance(answer, np.ndarray) else math.isfinite(answer)):
            raise SolverError(
                f"the solver {self.name!r} found no finite answer: the mass matrix is singular to working precision"
            )
        return answer

    def __repr__(self) -> str:
        return f"<solver {self.name}: {self.paper}>"


class ReusableFactor(Factor):
    """A factor whose arrays can be filled again.

    Parameters
    ----------
    tree : TreeModel
        For its sizes and arrays. The tree itself must not be kept: `FactorPool` would then keep it alive for ever.

    Attributes
    ----------
    topology : tuple
        parent, joint and dof of the tree, and
    placed : Links
        its links where `refactor` has placed them: what `accelerations` reads. A method with another way to
        accelerations needs neither.
    """

    topology: tuple[np.ndarray, np.ndarray, np.ndarray]
    placed: Links

    @abstractmethod
    def __init__(self, tree: TreeModel):
        """Make the arrays for factors of one tree."""

    @abstractmethod
    def refactor(self, tree: TreeModel, state: State) -> None:
        """Factor M of another state; raise SolverError, naming the body, if it is singular."""

    def accelerations(self, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """Return M^-1 (tau - c) (n_dof,), with the velocity-dependent forces c at velocities `v` (n_dof,)."""
        rhs = tau - link_bias_forces(*self.topology, self.placed, v)
        return self.solve(rhs[:, None])[:, 0]


AnyFactor = TypeVar("AnyFactor", bound=ReusableFactor)
Answer = TypeVar("Answer")


class FactorPool(Generic[AnyFactor]):
    """Factors that calls hand on to each other, so that a call allocates little and touches no fresh memory.

    A factor belongs to one call from `take` to `give`. Calls on several threads have their own: as many are kept per
    tree as ever ran at the same time, and as long as the tree. The factor of a call that raises is dropped.
    """

    def __init__(self, make: Callable[[TreeModel], AnyFactor]):
        self.make = make
        self._free: dict[int, list[AnyFactor]] = {}  # by id of the tree, until the tree is gone

    def take(self, tree: TreeModel) -> AnyFactor:
        """Return a factor that no other call has."""
        try:
            return self._free[id(tree)].pop()  # one step for the interpreter: two threads never get the same one
        except (KeyError, IndexError):
            return self.make(tree)

    def give(self, tree: TreeModel, factor: AnyFactor) -> None:
        """Leave a factor for the next call."""
        try:
            self._free[id(tree)].append(factor)
        except KeyError:
            self._free[id(tree)] = [factor]
            weakref.finalize(tree, self._free.pop, id(tree), None).atexit = False


class ReusingSolver(Solver, Generic[AnyFactor]):
    """A method whose public calls fill the same factors again and again; `factor` gives one that is yours to keep."""

    pool: FactorPool[AnyFactor]

    def _factor(self, tree: TreeModel, state: State) -> AnyFactor:
        factor = self.pool.make(tree)
        factor.refactor(tree, state)
        return factor

    def _solve(self, tree: TreeModel, state: State, b: np.ndarray) -> np.ndarray:
        columns = b[:, None] if b.ndim == 1 else b
        return self._ask(tree, state, lambda factor: factor.solve(columns)).reshape(b.shape)

    def _log_det(self, tree: TreeModel, state: State) -> float:
        return self._ask(tree, state, lambda factor: factor.log_det())

    def _accelerations(self, tree: TreeModel, state: State, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        return self._ask(tree, state, lambda factor: factor.accelerations(v, tau))

    def _ask(self, tree: TreeModel, state: State, question: Callable[[AnyFactor], Answer]) -> Answer:
        """Return the answer of a factor of `state`, which the next call fills again."""
        factor = self.pool.take(tree)
        factor.refactor(tree, state)
        answer = question(factor)
        self.pool.give(tree, factor)
        return answer


def check_columns(name: str, values: Any, n: int) -> np.ndarray:
    """Return `values` (n,) or (n, m) as float64; raise ArgumentError if they have another shape or are not finite."""
    array = plain_array(values)
    if array.ndim not in (1, 2) or array.shape[0] != n:
        raise ArgumentError(
            f"{name} has shape {array.shape}, expected ({n},) or ({n}, m): one row per degree of freedom"
        )
    if not all_finite(array):
        raise ArgumentError(f"{name} holds values that are not finite numbers")
    return array


def raise_singular(tree: TreeModel, link: int) -> NoReturn:
    """Raise SolverError naming the body of `link`, about whose axes the mass matrix has no inertia."""
    raise SolverError(
        f"the mass matrix is singular at the {_body_name(tree, link)}: its masses lie on one line or one point, so it "
        "has no inertia about some axis; give it off-axis atoms (hydrogens), freeze it with rigid=, or remove it"
    )


def refuse_joint_inertia(solver: str, tree: TreeModel) -> None:
    """Raise UnsupportedError, naming the solvers that have them, if the tree has joint inertias."""
    if tree.joint_inertia.any():
        able = _names(lambda other: other.takes_joint_inertia)
        raise UnsupportedError(
            f"the solver {solver!r} has no joint inertias, and this tree has them; these have: {able}"
        )


_FREE_BODIES = "it needs bodies with inertia about every axis, and independent coordinates in every joint"


def raise_unfit(solver: str, tree: TreeModel, state: State, link: int, why: str = _FREE_BODIES) -> NoReturn:
    """Raise for the body of `link`, which a method that sets bodies free cannot treat.

    SolverError if the mass matrix itself is singular; otherwise UnsupportedError, naming methods that have an answer.
    """
    get_solver("udu").factor(tree, state)  # raises if M is singular
    able = _names(lambda other: other.takes_joint_inertia and not other.inverts_bodies)
    raise UnsupportedError(
        f"the solver {solver!r} has no answer at the {_body_name(tree, link)}: {why}; these have: {able}"
    )


def _body_name(tree: TreeModel, link: int) -> str:
    while tree.link_mass[link] == 0 and link + 1 < tree.n_links:
        link += 1  # a massless link has no atoms to name; the body behind the joint has
    return tree.unit(link).name if tree.n_atoms else f"body of link {link}"


def _names(able: Callable[[Solver], bool]) -> str:
    """Return the names of the solvers that are `able`."""
    return ", ".join(name for name in list_solvers() if able(get_solver(name))) or "none"


_MODULES = {
    "dense": ("peptidyn.solvers.dense", "DenseSolver"),
    "articulated": ("peptidyn.solvers.articulated", "ArticulatedSolver"),
    "fixman": ("peptidyn.solvers.fixman_elimination", "FixmanSolver"),
    "fixman-points": ("peptidyn.solvers.point_elimination", "FixmanPointsSolver"),
    "spatial-operator": ("peptidyn.solvers.spatial_operator", "SpatialOperatorSolver"),
    "udu": ("peptidyn.solvers.udu", "UDUSolver"),
    "virtual-work": ("peptidyn.solvers.virtual_work", "VirtualWorkSolver"),
}

_LOADED: dict[str, Solver] = {}


def register_solver(solver: Solver) -> None:
    """Add a solver under its own name, so that `get_solver` and the tests find it."""
    if solver.name in _MODULES or solver.name in _LOADED:
        raise ArgumentError(f"there is a solver named {solver.name!r} already; choose another name")
    _LOADED[solver.name] = solver


def list_solvers() -> list[str]:
    """Return the names of all solvers."""
    return [*_MODULES, *(name for name in _LOADED if name.partition(":")[0] not in _MODULES)]


def get_solver(name: str) -> Solver:
    """Return the solver called `name`; see `list_solvers`.

    An option may follow a colon: ``spatial-operator:fd1`` is that solver with the forward-dynamics algorithm FD1.
    """
    if name not in _LOADED:
        plain, _, option = name.partition(":")
        if plain not in _MODULES:
            raise ArgumentError(f"unknown solver {name!r}; the solvers are: {', '.join(list_solvers())}")
        module, attribute = _MODULES[plain]
        make = getattr(import_module(module), attribute)
        if option and "algorithm" not in signature(make).parameters:
            raise ArgumentError(f"the solver {plain!r} takes no option, but {option!r} was given")
        _LOADED[name] = make(algorithm=option) if option else make()
    return _LOADED[name]

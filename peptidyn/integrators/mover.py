"""`Mover`: a forest in motion, with the three moves that integrators are made of.

It holds positions and canonical momenta and moves them in place, with all scratch space allocated once. Kick B changes
momenta, drift A moves positions and momenta along the free motion, O mixes in thermal momenta.

Moves are noted and made together, in one compiled call, as soon as something they change is asked for: everything
between two force evaluations is one call. `flush` makes them at once and tells whether all drifts converged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.kernels import motions
from peptidyn.kernels.packing import link_axes, pack
from peptidyn.kernels.states import make_scratch
from peptidyn.model.kinematics import FLAT, STRETCH
from peptidyn.model.state import State
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.protocol import raise_singular

DRIFT_TOLERANCE = 1e-13
"""The drift is solved until what is left to correct is smaller than this (nm or rad)."""

KEPT_PROGRAMS = 64
"""Programs of moves that are kept as arrays; a simulation has a few that come again and again."""

MANY_MOLECULES = 64
"""From this number on, molecules are moved on all cores."""


class Mover:
    """Configuration and momenta of a tree, moved in place.

    Many methods: what integrators and Monte Carlo moves do to one configuration, and ask of it, is all here.

    Parameters
    ----------
    tree : TreeModel
    state : State, optional
        Where to start; default the reference.
    momenta : (n_dof,), optional
        Canonical momenta M v; default zero.

    Attributes
    ----------
    iterations : (n_molecules,) int
        Of the last drift; -1 where it did not converge.
    out_of_range : int
        A soft coordinate that left its range in the last drift that failed: an angle beyond 0 or 180 degrees, or a bond
        without length; -1 if none did.
    fallbacks : int
        Programs of moves with a drift that the usual iterations did not solve, and Anderson's method did.
    cycles : (2,) int
        How many cycles the last, or present, call of `run_cycles` has begun, and its fallbacks.
    """

    def __init__(self, tree: TreeModel, state: State | None = None, momenta: Any = None):
        self.tree = tree
        n, nm, nd, nq = tree.n_links, tree.n_molecules, tree.n_dof, tree.n_coordinates
        order = np.argsort(tree.atom_link, kind="stable")
        link_atom = np.zeros(n + 1, dtype=np.int64)
        np.cumsum(np.bincount(tree.atom_link, minlength=n), out=link_atom[1:])
        local = np.einsum("aji,aj->ai", link_axes(tree)[tree.atom_link[order]], tree.local[order])
        self._q, self._momentum = np.empty(nq), np.zeros(nd)
        self._base_position, self._base_rotation = np.empty((nm, 3)), np.empty((nm, 4))
        self._saved = (np.empty((nm, 3)), np.empty((nm, 4)), np.empty(nq), np.empty(nd))
        self._torque, self._fixman = np.zeros(nd), np.zeros(nd)
        self._normals, self._velocity = np.empty(nd), np.empty(nd)
        self._log_det = np.empty(nm)
        self._x, self._force, self._atom_velocity = (np.zeros((tree.n_atoms, 3)) for _ in range(3))
        self._status = np.zeros(nm, dtype=np.int64)
        self.iterations = np.zeros(nm, dtype=np.int64)
        self.out_of_range = -1
        self.fallbacks = 0
        packed = pack(tree)
        self._arguments = (
            packed, make_scratch(packed, nm),
            (tree.molecule_link, tree.molecule_dof, order, local, link_atom, tree.measure),
            (self._base_position, self._base_rotation, self._q, self._momentum, *self._saved),
            (
                self._torque, self._fixman, np.empty(nq), self._normals, self._velocity, self._log_det,
                np.zeros((n, motions.N_DRIFT, 4)), np.zeros(nd), np.empty(nq),
            ),
            (self._x, self._force, self._atom_velocity), self._status,
        )  # fmt: skip
        self.cycles = np.zeros(2, dtype=np.int64)
        self._waiting: list[int] = []
        self._numbers: list[tuple[float, float]] = []
        self._programs: dict[tuple, tuple[np.ndarray, np.ndarray]] = {}  # noted moves and numbers, as arrays
        self._factored = self._placed = self._has_fixman = False
        self.set_state(tree.reference if state is None else state)
        if momenta is not None:
            self.momentum = tree.check_dof_vector("momenta", momenta)

    # ------------------------------------------------------------------ moves that wait, and their execution

    def _note(self, move: int, a: float = 0.0, b: float = 0.0) -> None:
        self._waiting.append(move)
        self._numbers.append((a, b))

    def _need_factor(self) -> None:
        if not self._factored:
            self._note(motions.FACTOR)
            self._factored = True

    def _need_positions(self) -> None:
        if not self._placed:
            self._need_factor()
            self._note(motions.POSITIONS)
            self._placed = True

    def flush(self) -> bool:
        """Make all moves that wait. Return False if a drift did not converge; `restore` or `undo` then."""
        if not self._waiting:
            return True
        self._need_positions()
        moves, program = self._waiting.copy(), self._take_program()
        n = self.tree.n_molecules
        if n < MANY_MOLECULES:
            worst = motions.run_range(*program, 0, n, *self._arguments)
        else:
            motions.run_parallel(*program, min(n, 64), *self._arguments)
            worst = int(self._status.min(initial=0))
        return self._check_status(worst, motions.DRIFT in moves)

    def _take_program(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the moves that wait, and their numbers, as arrays; none of them waits any more."""
        key = tuple(self._waiting), tuple(self._numbers)
        program = self._programs.get(key)
        if program is None:
            if len(self._programs) >= KEPT_PROGRAMS:
                self._programs.clear()
            program = self._programs[key] = np.array(key[0], dtype=np.int64), np.array(key[1])
        self._waiting.clear()
        self._numbers.clear()
        return program

    def _check_status(self, worst: int, drifted: bool) -> bool:
        """Return False, and forget what was computed, if a drift failed; raise SolverError if M was singular."""
        if worst <= -2:
            self._forget()
            raise_singular(self.tree, -2 - worst)
        if drifted:
            self.iterations[:] = self._status
            self.fallbacks += bool((self._status > motions.DRIFT_ITERATIONS).any())
            if worst < 0:
                self.out_of_range = self._find_out_of_range()
                self._forget()
                return False
        return True

    def _find_out_of_range(self) -> int:
        measure = self.tree.measure
        inside = (measure == FLAT) | ((self._q > 0.0) & ((measure == STRETCH) | (self._q < np.pi)))
        return -1 if inside.all() else int(inside.argmin())

    def _forget(self) -> None:
        """Nothing that was computed holds for the present configuration."""
        self._waiting.clear()
        self._numbers.clear()
        self._factored = self._placed = self._has_fixman = False

    # ------------------------------------------------------------------ state

    @property
    def q(self) -> np.ndarray:
        """Soft coordinates (n_coordinates,), as in `State`."""
        self.flush()
        return self._q

    @property
    def base_position(self) -> np.ndarray:
        """Base origins (n_molecules, 3), nm."""
        self.flush()
        return self._base_position

    @property
    def base_rotation(self) -> np.ndarray:
        """Unit quaternions of the bases (n_molecules, 4)."""
        self.flush()
        return self._base_rotation

    @property
    def momentum(self) -> np.ndarray:
        """Canonical momenta (n_dof,): angular about the base origin, linear, then those of soft coordinates."""
        self.flush()
        return self._momentum

    @momentum.setter
    def momentum(self, values: Any) -> None:
        self.flush()
        self._momentum[:] = values

    def set_state(self, state: State) -> None:
        """Take over the configuration of `state`; momenta stay."""
        self.flush()
        self._q[:] = state.q
        self._base_position[:] = state.base_position
        self._base_rotation[:] = state.base_rotation
        self._forget()

    @property
    def state(self) -> State:
        """The present configuration, as an immutable copy."""
        return State.make(self.tree, self.q, self._base_position, self._base_rotation)

    def save(self) -> tuple[np.ndarray, ...]:
        """Return copies of everything that `restore` needs."""
        return self.q.copy(), self._base_position.copy(), self._base_rotation.copy(), self._momentum.copy()

    def restore(self, saved: tuple[np.ndarray, ...]) -> None:
        """Go back to what `save` returned."""
        self._forget()
        self._q[:], self._base_position[:], self._base_rotation[:], self._momentum[:] = saved

    def mark(self) -> None:
        """Note the present configuration and momenta as the place where `undo` goes back to."""
        self._note(motions.SAVE)

    def undo(self) -> None:
        """Go back to the last `mark`, which must have been made."""
        position, rotation, q, momentum = self._saved
        self.restore((q, position, rotation, momentum))

    # ------------------------------------------------------------------ what the present configuration gives

    def positions(self) -> np.ndarray:
        """Return the atom positions (n_atoms, 3), nm."""
        return self.place().copy()

    def place(self) -> np.ndarray:
        """Return the atom positions (n_atoms, 3), nm, in an array that the next move changes."""
        self._need_positions()
        self.flush()
        return self._x

    def velocities(self) -> np.ndarray:
        """Return the generalised velocities M^-1 p (n_dof,)."""
        self._need_factor()
        self._note(motions.VELOCITIES)
        self.flush()
        return self._velocity.copy()

    def atom_velocities(self) -> np.ndarray:
        """Return the atom velocities (n_atoms, 3), nm/ps."""
        self._need_factor()
        self._note(motions.VELOCITIES)
        self._note(motions.ATOM_VELOCITIES)
        self.flush()
        return self._atom_velocity.copy()

    def kinetic_energy(self) -> float:
        """Return p M^-1 p / 2, kJ/mol."""
        return 0.5 * float(self.velocities() @ self._momentum)

    def load_forces(self, forces: np.ndarray, fixman_kT: float = 0.0) -> np.ndarray:
        """Note the projection of atom forces (n_atoms, 3) on the motions, plus the Fixman torque at fixman_kT.

        Returns the array (n_dof,) that will hold the generalised forces once moves are flushed; it can be given to
        `kick` at once.
        """
        self.place()
        self._force[:] = forces
        self._note(motions.PROJECT)
        if fixman_kT:
            self._need_fixman()
            self._note(motions.ADD_FIXMAN, fixman_kT)
        return self._torque

    def _need_fixman(self) -> None:
        if not self._has_fixman:
            self._need_factor()
            self._note(motions.FIXMAN)
            self._has_fixman = True

    def project(self, forces: np.ndarray) -> np.ndarray:
        """Return the generalised forces J^T F (n_dof,) of atom forces (n_atoms, 3) where the mover is."""
        torque = self.load_forces(forces)
        self.flush()
        return torque.copy()

    def fixman_torque(self) -> np.ndarray:
        """Return -d/dq of ln(det M / J^2) / 2 over all degrees of freedom (n_dof,): the Fixman torque per kT."""
        self._need_fixman()
        self.flush()
        return self._fixman.copy()

    def fixman_energy(self) -> float:
        """Return ln(det M / J^2) / 2: the Fixman potential per kT."""
        self._need_factor()
        self._note(motions.LOG_DET)
        self.flush()
        return float(0.5 * self._log_det.sum() - self.tree.log_jacobian(self._q))

    # ------------------------------------------------------------------ moves

    def pending(self) -> tuple[list[int], list[tuple[float, float]]]:
        """Return the moves that wait, with their numbers."""
        return self._waiting.copy(), self._numbers.copy()

    def forget_moves(self) -> None:
        """Drop the moves that wait; `undo` or `restore` then."""
        self._forget()

    def run_cycles(self, begin: tuple[list[int], list[tuple[float, float]]], noise: np.ndarray, server: Any) -> int:
        """Make the moves that wait and ask for forces, as often as `noise` has rows; return how often that succeeded.

        Parameters
        ----------
        begin : moves with their numbers
            With which those that wait begin: what a step does with new forces, as `pending` returned it. They wait
            again afterwards.
        noise : (count, n_dof) or (count, 0)
            Normals for `THERMALISE` in every cycle.
        server : (N_SERVER,) int64
            Where forces come from; see `peptidyn.kernels.foreign`.

        After a failure everything is as the failed drift, or forces that are not finite, left it: `undo` then.
        """
        from peptidyn.kernels.cycles import run_cycles

        self._note(motions.POSITIONS)
        done, worst = run_cycles(*self._take_program(), noise, self.cycles, server, *self._arguments)
        self.fallbacks += int(self.cycles[1])
        if done < len(noise):
            if worst < 0:
                self._check_status(worst, True)
            self._forget()
            return done
        self.iterations[:] = self._status
        self._waiting, self._numbers = begin[0].copy(), begin[1].copy()
        self._factored = self._placed = True
        self._has_fixman = motions.FIXMAN in begin[0]
        return done

    @property
    def forces(self) -> np.ndarray:
        """Atom forces (n_atoms, 3), kJ/mol/nm, that were loaded last."""
        return self._force

    def kick(self, torque: np.ndarray, h: float) -> None:
        """B: p += h tau."""
        if torque is not self._torque:
            self.flush()
            self._torque[:] = torque
        self._note(motions.KICK, h)

    def note_drift(self, h: float, tolerance: float = DRIFT_TOLERANCE) -> None:
        """Note a drift, A; whether it converged is what the next `flush` returns."""
        self._need_factor()
        self._note(motions.DRIFT, h, tolerance)
        self._placed = self._has_fixman = False

    def drift(self, h: float, tolerance: float = DRIFT_TOLERANCE) -> bool:
        """A: move freely for the time h (ps). Return False, with everything as before, if it did not converge."""
        self.mark()
        self.note_drift(h, tolerance)
        if not self.flush():
            self.undo()
            return False
        return True

    def thermalise(self, keep: float, kT: float, rng: np.random.Generator) -> None:
        """O: p <- keep p + sqrt(1 - keep^2) noise, noise ~ N(0, kT M); keep = 0 draws new momenta."""
        if not 0.0 <= keep <= 1.0:
            raise ArgumentError(f"keep is {keep:g}, expected a number between 0 and 1")
        if motions.THERMALISE in self._waiting:
            self.flush()
        rng.standard_normal(out=self._normals)
        self.note_thermalise(keep, kT)

    def note_thermalise(self, keep: float, kT: float) -> None:
        """Note O with the normals that are there when it is made."""
        self._need_factor()
        self._note(motions.THERMALISE, keep, ((1.0 - keep * keep) * kT) ** 0.5)

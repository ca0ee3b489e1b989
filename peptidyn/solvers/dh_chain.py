"""`DHChain`: serial arms and chains given by Denavit-Hartenberg parameters and the mass properties of their bodies.

Body k = 1 .. n is fixed in frame k,

    T_k = T_{k-1} screw(e1, b_k, beta_k) screw(e2, a_k, alpha_k) screw(e3, c_k, gamma_k),        T_0 = 1,

form C (26) of Lee, Wang & Chirikjian, "O(n) mass matrix inversion for serial manipulators and polypeptide chains
using Lie derivatives"; alpha = a = 0 is the four-parameter form (23). beta_k turns about the line through o_{k-1}
along x_{k-1}. The base is fixed in space.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.core.errors import ArgumentError
from peptidyn.core.units import plain_array
from peptidyn.model import dh
from peptidyn.model.kinematics import FIXED, PRISMATIC, REVOLUTE
from peptidyn.model.state import State
from peptidyn.model.tree import Coordinate, TreeModel
from peptidyn.solvers.dense import mass_matrix
from peptidyn.solvers.protocol import get_solver

Soft = str | Sequence[str | Iterable[str]]

# The screws of form C in order: (name of the angle, name of the distance), along axis 0, 1, 2 of the moving frame.
_SCREWS = (("beta", "b"), ("alpha", "a"), ("gamma", "c"))

_ASYMMETRY = 1e-9  # of an inertia, relative to its largest entry: more is a mistake, less is rounding


class DHChain:
    """A serial chain of rigid bodies on a fixed base.

    Parameters
    ----------
    beta, b, c, gamma : (n,) or one number for all
        D-H parameters of every joint; angles in rad.
    mass : (n,)
    com : (n, 3)
        Centre of mass of body k in frame k.
    inertia : (n, 3) or (n, 3, 3)
        About the centre of mass, along the axes of frame k; (n, 3) for diagonal ones.
    soft : str, or one entry per joint
        Which of alpha, beta, gamma, a, b, c may move: ``"beta"`` or ``"beta gamma"`` for every joint alike, or a
        sequence such as ``["beta", "beta gamma", (), "c"]`` with an entry for each. A joint with none is rigid.
    alpha, a : (n,) or one number for all
        The other two parameters of form C.

    Attributes
    ----------
    tree : TreeModel
        The chain as a tree without atoms, for every solver. Coordinates are named ``beta1``, ``gamma2``, ...
    state : State
        The configuration given.
    frames, com_frames : (n, 4, 4)
        T_k and T_k^c.

    Notes
    -----
    Lengths and masses may be in any consistent units; Quantities are converted to nm and Da. Degrees of freedom come
    joint by joint, within a joint in the order alpha, beta, gamma, a, b, c.
    """

    def __init__(
        self,
        *,
        beta: Any,
        b: Any,
        c: Any,
        gamma: Any,
        mass: Any,
        com: Any,
        inertia: Any,
        soft: Soft = "beta",
        alpha: Any = 0.0,
        a: Any = 0.0,
    ):
        masses = plain_array(mass)
        if masses.ndim != 1 or not len(masses):
            raise ArgumentError(f"mass has shape {masses.shape}, expected (n,), one mass for each body")
        n = len(masses)
        given = {"alpha": alpha, "beta": beta, "gamma": gamma, "a": a, "b": b, "c": c}
        q = np.stack([_per_joint(name, given[name], n) for name in dh.COORDINATES], axis=1)
        bodies = _check_bodies(masses, plain_array(com), plain_array(inertia))
        names = _check_soft(soft, n)

        self.frames = dh.chain_transforms(dh.transform(q))
        self.com_frames = self.frames.copy()
        self.com_frames[:, :3, 3] += np.einsum("kij,kj->ki", self.frames[:, :3, :3], bodies.com)
        self.tree: TreeModel = _build_tree(q, names, bodies, self.frames)
        self.state: State = self.tree.reference

    def mass_matrix(self) -> np.ndarray:
        """Return the mass matrix M (n_dof, n_dof), dense."""
        return mass_matrix(self.tree, self.state)

    def solve(self, rhs: Any, solver: str = "fixman") -> np.ndarray:
        """Return M^-1 `rhs` for one (n_dof,) or many (n_dof, m) right-hand sides."""
        return get_solver(solver).solve(self.tree, self.state, rhs)

    def log_det(self, solver: str = "fixman") -> float:
        """Return ln det M."""
        return get_solver(solver).log_det(self.tree, self.state)

    def accelerations(self, velocities: Any, tau: Any, solver: str = "fixman") -> np.ndarray:
        """Return the accelerations (n_dof,) at joint `velocities` under joint forces `tau`; no gravity."""
        return get_solver(solver).accelerations(self.tree, self.state, velocities, tau)

    def __repr__(self) -> str:
        return f"<DHChain: {len(self.frames)} bodies, {self.tree.n_dof} soft coordinates>"


# ---------------------------------------------------------------------- what is given


@dataclass(frozen=True, eq=False)
class _Bodies:
    mass: np.ndarray  # (n,)
    com: np.ndarray  # (n, 3) in frame k
    inertia: np.ndarray  # (n, 3, 3) along the axes of frame k


def _per_joint(name: str, value: Any, n: int) -> np.ndarray:
    array = plain_array(value)
    if array.shape not in ((), (n,)):
        raise ArgumentError(f"{name} has shape {array.shape}, expected ({n},) or one number: there are {n} masses")
    if not np.isfinite(array).all():
        raise ArgumentError(f"{name} holds values that are not finite numbers")
    return np.broadcast_to(array, (n,))


def _check_bodies(mass: np.ndarray, com: np.ndarray, inertia: np.ndarray) -> _Bodies:
    n = len(mass)
    bad = np.flatnonzero(~(np.isfinite(mass) & (mass > 0)))
    if bad.size:
        raise ArgumentError(f"the mass of body {bad[0] + 1} is {mass[bad[0]]:g}; every body needs a positive mass")
    if com.shape != (n, 3):
        raise ArgumentError(f"com has shape {com.shape}, expected ({n}, 3)")
    if inertia.shape not in ((n, 3), (n, 3, 3)):
        raise ArgumentError(f"inertia has shape {inertia.shape}, expected ({n}, 3) or ({n}, 3, 3)")
    tensors = inertia if inertia.ndim == 3 else inertia[:, :, None] * np.eye(3)
    for k in range(n):
        I = tensors[k]
        if not (np.isfinite(com[k]).all() and np.isfinite(I).all()):
            raise ArgumentError(f"com or inertia of body {k + 1} holds values that are not finite numbers")
        if np.abs(I - I.T).max() > _ASYMMETRY * np.abs(I).max():
            raise ArgumentError(f"the inertia of body {k + 1} is not a symmetric matrix")
        least = np.linalg.eigvalsh(I)[0]
        if not least > 0:
            raise ArgumentError(
                f"the inertia of body {k + 1} is not positive: its least moment is {least:.3g}; give the moments about "
                "the centre of mass of a body that is not a line or a point"
            )
    return _Bodies(mass, com, 0.5 * (tensors + tensors.transpose(0, 2, 1)))


def _check_soft(soft: Soft, n: int) -> list[list[str]]:
    """Return the soft coordinates of every joint, in the order of `peptidyn.model.dh.COORDINATES`."""
    entries = [soft] * n if isinstance(soft, str) else list(soft)
    if len(entries) != n:
        raise ArgumentError(f"soft has {len(entries)} entries, expected {n}, one per joint, or one string for all")
    table = []
    for k, entry in enumerate(entries):
        names = entry.replace(",", " ").split() if isinstance(entry, str) else list(entry)
        for name in names:
            if name not in dh.COORDINATES:
                raise ArgumentError(
                    f"soft of joint {k + 1} holds {name!r}; the coordinates are {', '.join(dh.COORDINATES)}"
                )
        table.append([name for name in dh.COORDINATES if name in names])
    return table


# ---------------------------------------------------------------------- the tree


def _build_tree(q: np.ndarray, soft: list[list[str]], bodies: _Bodies, frames: np.ndarray) -> TreeModel:
    """Return the chain as a tree: the base, and one link per soft coordinate, in the order of the screws.

    The last link of a joint carries its body. A body behind a rigid joint goes to the link before, or to the base.
    """
    first = np.concatenate([[0], np.cumsum([len(names) for names in soft])])  # coordinate numbers of every joint
    n_links = int(first[-1]) + 1
    joint = np.full(n_links, FIXED)
    axis, origin = np.zeros((2, n_links, 3))
    coordinate = np.full(n_links, -1)
    q_reference = np.empty(n_links - 1)
    coordinates: list[Coordinate] = []
    l = 1
    for k, names in enumerate(soft):
        T = frames[k - 1] if k else np.eye(4)
        for number, (angle, distance) in enumerate(_SCREWS):
            for name in (angle, distance):
                if name in names:
                    joint[l] = REVOLUTE if name == angle else PRISMATIC
                    axis[l], origin[l] = T[:3, number], T[:3, 3]
                    coordinate[l] = first[k] + names.index(name)
                    q_reference[coordinate[l]] = q[k, dh.COORDINATES.index(name)]
                    l += 1
            T = T @ dh.screw(np.eye(3)[number], q[k, dh.COORDINATES.index(distance)], q[k, dh.COORDINATES.index(angle)])
        coordinates.extend(_coordinate(name, k, int(first[k]) + i) for i, name in enumerate(names))
    mass, com, inertia = _merge(bodies, frames, first[1:], origin)
    none, no_bonds, no_atoms = np.empty(0, dtype=np.int64), np.empty((0, 2), dtype=np.int64), np.empty(0, dtype=str)
    return TreeModel(
        parent=np.arange(-1, n_links - 1),
        joint=joint,
        axis=axis,
        origin=origin,
        coordinate=coordinate,
        dof=np.maximum(coordinate, 0),
        molecule=np.zeros(n_links, dtype=np.int64),
        molecule_link=np.array([0, n_links]),
        molecule_dof=np.array([0, n_links - 1]),
        link_mass=mass,
        link_com=com,
        link_inertia=inertia,
        q_reference=q_reference,
        masses=np.empty(0),
        atom_link=none,
        local=np.empty((0, 3)),
        share_link=none,
        share_atom=none,
        share_weight=np.empty(0),
        joint_atoms=np.full((n_links, 3), -1),
        coordinates=tuple(coordinates),
        hard_bonds=(),
        cut_bonds=no_bonds,
        atoms=Atoms(no_atoms, no_atoms, none, no_atoms, no_atoms, none, no_atoms, no_bonds, np.empty(0)),
        base="fixed",
    )


def _coordinate(name: str, joint: int, dof: int) -> Coordinate:
    return Coordinate(
        kind=f"{name}{joint + 1}",
        motion="torsion" if name in ("alpha", "beta", "gamma") else "slide",
        atoms=(),
        chain="",
        residue=joint,
        residue_name="joint",
        residue_id=str(joint + 1),
        dof=dof,
    )


def _merge(
    bodies: _Bodies, frames: np.ndarray, link: np.ndarray, origin: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sum bodies that one link carries; return mass, centre of mass relative to `origin`, and inertia of every link.

    `link` (n,) is the link of each body. World axes of the configuration given.
    """
    n_links = len(origin)
    R = frames[:, :3, :3]
    x = frames[:, :3, 3] + np.einsum("kij,kj->ki", R, bodies.com) - origin[link]
    mass, weighted, inertia = np.zeros(n_links), np.zeros((n_links, 3)), np.zeros((n_links, 3, 3))
    np.add.at(mass, link, bodies.mass)
    np.add.at(weighted, link, bodies.mass[:, None] * x)
    com = np.divide(weighted, mass[:, None], out=np.zeros((n_links, 3)), where=mass[:, None] > 0)
    d = x - com[link]
    steiner = (d * d).sum(axis=1)[:, None, None] * np.eye(3) - d[:, :, None] * d[:, None, :]
    np.add.at(inertia, link, R @ bodies.inertia @ R.transpose(0, 2, 1) + bodies.mass[:, None, None] * steiner)
    return mass, com, inertia

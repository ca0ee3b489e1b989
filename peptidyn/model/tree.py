"""`TreeModel`: the frozen model of a forest of articulated molecules, and its kinematics.

A molecule is a tree of rigid bodies joined by soft coordinates; a System is a forest of them. The model holds flat
arrays over *links*: one link per rigid body, plus a massless link between two soft coordinates that share a joint
(a soft bond angle and the torsion beside it). Links are in topological order, ``parent[l] < l``, and the links of
a molecule are consecutive. See `peptidyn.model.kinematics` for the conventions of poses and rates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import Any

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.core.checks import all_finite
from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.core.units import plain_array
from peptidyn.model import kinematics
from peptidyn.model.fitting import Fit, fit_state
from peptidyn.model.reference_geometry import reference_geometry
from peptidyn.model.rigid_units import RigidUnit, describe_unit
from peptidyn.model.state import State

_OF_TOPOLOGY = (
    "n_bodies", "torsion_index", "phase_index", "bend_index", "stretch_index", "torsions", "bends", "groups",
    "measure", "unit_members", "coordinate_atoms", "coordinate_dof", "virtual_sites",
)  # fmt: skip
"""Cached properties that a new geometry does not change."""

STATE_TOLERANCE = 2e-3
"""`TreeModel.state` refuses positions whose rigid units are deformed by more than this (nm)."""


@dataclass(frozen=True)
class Coordinate:
    """One soft coordinate.

    Attributes
    ----------
    kind : str
        ``phi``, ``psi``, ``chi1``, ``methyl``, ``N-CA-C`` ...; see `peptidyn.model.chemistry`.
    motion : str
        ``torsion``, ``phase`` (a dihedral about a bond between two atoms that hang on its end), ``bend``, ``stretch``,
        or ``slide`` (of a mechanism without atoms).
    atoms : tuple of int
        The four atoms of the dihedral, the three of the angle, or the two of the bond.
    chain : str
        Chain name.
    residue : int
        Index of the residue in the structure's topology, from 0.
    residue_name, residue_id : str
        e.g. ``ALA`` and ``12`` (with insertion code, as in the file).
    dof : int
        Its place in vectors over all degrees of freedom.
    names : tuple of str
        Names of the atoms, for coordinates that `kind` alone does not tell apart.
    """

    kind: str
    motion: str
    atoms: tuple[int, ...]
    chain: str
    residue: int
    residue_name: str
    residue_id: str
    dof: int

    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        chain = f"chain {self.chain}, " if self.chain.strip() else ""
        atoms = f" {'-'.join(self.names)}" if self.names else ""
        return f"{self.kind}{atoms} of {chain}residue {self.residue_name} {self.residue_id}"


def coordinate_atoms(coordinates: tuple[Coordinate, ...]) -> np.ndarray:
    """Return the atoms that measure every coordinate, (n, 4) int; -1 where there is none."""
    table = np.full((len(coordinates), 4), -1, dtype=np.int64)
    for row, c in zip(table, coordinates, strict=True):
        row[: len(c.atoms)] = c.atoms
    return table


@dataclass(frozen=True)
class HardBond:
    """A bond that could turn but does not, and why."""

    kind: str
    atoms: tuple[int, int]
    why: str


@dataclass(frozen=True, eq=False)
class Links:
    """World-frame snapshot of all links in one configuration; what the solvers read.

    Attributes
    ----------
    R : (n_links, 3, 3)
        Rotation from the reference to the world.
    p : (n_links, 3)
        World position of the link origin (a point on its joint axis; the base origin for roots), nm.
    axis : (n_links, 3)
        Joint axis in world axes; zero for roots.
    com : (n_links, 3)
        Centre of mass in the world, nm; `p` for massless links.
    inertia : (n_links, 3, 3)
        Inertia about the centre of mass in world axes, Da nm^2.
    mass : (n_links,)
        Da.
    """

    R: np.ndarray
    p: np.ndarray
    axis: np.ndarray
    com: np.ndarray
    inertia: np.ndarray
    mass: np.ndarray


def _frozen(function: Callable[[Any], np.ndarray]) -> cached_property[np.ndarray]:
    """Make a cached property of an array that cannot be written, as it is after `__setstate__`.

    Compiled code for arrays that can be written is another one: a tree from another process would have it made anew.
    """

    @wraps(function)
    def made(tree: Any) -> np.ndarray:
        array = function(tree)
        array.setflags(write=False)
        return array

    return cached_property(made)


@dataclass(frozen=True, eq=False)
class TreeModel:
    """Frozen model of a forest of articulated molecules. Make one with `build_tree`. Arrays are read-only.

    Many methods: sizes, groups of coordinates, states, kinematics and momenta of one model are asked for here.

    Attributes
    ----------
    parent : (n_links,) int
        Link each link hangs on; -1 for the root of a molecule.
    joint : (n_links,) int
        ``REVOLUTE``, ``PRISMATIC``, or the kind of root: ``FREE`` (6 dof), ``POINT`` (3), ``FIXED`` (0); the codes
        are in `peptidyn.model.kinematics`.
    axis, origin : (n_links, 3)
        Joint axis (unit vector) and a point on it in the reference configuration; for roots the base origin, which
        is the centre of mass of the atoms of the root body.
    coordinate : (n_links,) int
        Index of the joint's coordinate in ``state.q``; -1 for roots.
    dof : (n_links,) int
        Index of the joint's first degree of freedom in vectors over all of them.
    molecule : (n_links,) int
        Molecule of each link.
    molecule_link, molecule_dof : (n_molecules + 1,) int
        Where each molecule's links and degrees of freedom start.
    link_mass, link_com, link_inertia : (n_links,), (n_links, 3), (n_links, 3, 3)
        Mass properties (Da, nm, Da nm^2) in the reference axes, centre of mass relative to `origin`, inertia about the
        centre of mass.
        The mass of atoms that lie on a joint's axis is shared between the bodies on both sides, which leaves the mass
        matrix as it is and makes every inertia invertible. Massless links have zeros.
    q_reference : (n_coordinates,)
        The soft coordinates of the reference configuration, rad.
    masses : (n_atoms,)
        Da; zero for virtual sites, which a rigid body carries along.
    atom_link : (n_atoms,) int
        Link that carries each atom.
    local : (n_atoms, 3)
        Atom position relative to the origin of its link, reference axes, nm.
    share_link, share_atom, share_weight : (n_shares,) int, int, float
        Atoms of every rigid unit, its own and those shared with a neighbour, with the share of their mass.
    joint_atoms : (n_links, 3) int
        (-1, j, k) for a torsion about j -> k; (i, j, k) for a bend of i-j-k; (-1, -1, -1) otherwise.
    coordinates : tuple of Coordinate
        What each soft coordinate is, in the order of ``state.q``.
    hard_bonds : tuple of HardBond
        Bonds that could turn but do not, and why.
    cut_bonds : (n_cut, 2) int
        Bonds left out of the tree because they close a loop (disulfides).
    atoms : Atoms
        Names; an empty table for models without atoms.
    base : str
        ``free`` or ``fixed``.
    joint_inertia : (n_coordinates,)
        Inertia a that every soft coordinate has beside that of the atoms, Da nm^2 (Da for bond lengths): the mass
        matrix is J^T m J + diag(a). Zero, which is physical dynamics, unless set by `with_joint_inertia`.
    """

    parent: np.ndarray
    joint: np.ndarray
    axis: np.ndarray
    origin: np.ndarray
    coordinate: np.ndarray
    dof: np.ndarray
    molecule: np.ndarray
    molecule_link: np.ndarray
    molecule_dof: np.ndarray
    link_mass: np.ndarray
    link_com: np.ndarray
    link_inertia: np.ndarray
    q_reference: np.ndarray
    masses: np.ndarray
    atom_link: np.ndarray
    local: np.ndarray
    share_link: np.ndarray
    share_atom: np.ndarray
    share_weight: np.ndarray
    joint_atoms: np.ndarray
    coordinates: tuple[Coordinate, ...]
    hard_bonds: tuple[HardBond, ...]
    cut_bonds: np.ndarray
    atoms: Atoms
    base: str
    joint_inertia: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.joint_inertia is None:
            object.__setattr__(self, "joint_inertia", np.zeros(len(self.q_reference)))
        self._freeze()

    def __setstate__(self, content: dict[str, Any]) -> None:
        self.__dict__.update(content)
        self._freeze()  # pickle forgets it, and compiled code for arrays that can be written would be made anew

    def _freeze(self) -> None:
        for value in self.__dict__.values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    # ------------------------------------------------------------------ sizes

    @property
    def n_atoms(self) -> int:
        """Number of atoms."""
        return len(self.masses)

    @property
    def n_links(self) -> int:
        """Number of links: bodies, and massless ones between two joints of one bond."""
        return len(self.parent)

    @cached_property
    def n_bodies(self) -> int:
        """Number of rigid bodies (massless links are none)."""
        return int(np.count_nonzero(self.link_mass > 0))

    @property
    def n_molecules(self) -> int:
        """Number of molecules."""
        return len(self.molecule_link) - 1

    @property
    def n_coordinates(self) -> int:
        """Number of soft coordinates: torsions, phases, bends and bond lengths."""
        return len(self.q_reference)

    @property
    def n_torsions(self) -> int:
        """Number of soft torsions."""
        return len(self.torsion_index)

    @property
    def n_bends(self) -> int:
        """Number of soft bond angles."""
        return len(self.bend_index)

    @property
    def n_phases(self) -> int:
        """Number of soft phases."""
        return len(self.phase_index)

    @property
    def n_stretches(self) -> int:
        """Number of soft bond lengths."""
        return len(self.stretch_index)

    @cached_property
    def n_dof(self) -> int:
        """Degrees of freedom: soft coordinates plus 6 per free molecule, 3 per point, 0 per fixed base."""
        return int(self.molecule_dof[-1])

    def _places(self, motion: str) -> np.ndarray:
        return np.array([i for i, c in enumerate(self.coordinates) if c.motion == motion], dtype=np.int64)

    @_frozen
    def torsion_index(self) -> np.ndarray:
        """Places of the torsions in ``state.q``."""
        return self._places("torsion")

    @_frozen
    def phase_index(self) -> np.ndarray:
        """Places of the phases in ``state.q``."""
        return self._places("phase")

    @_frozen
    def bend_index(self) -> np.ndarray:
        """Places of the bends in ``state.q``."""
        return self._places("bend")

    @_frozen
    def stretch_index(self) -> np.ndarray:
        """Places of the bond lengths in ``state.q``."""
        return self._places("stretch")

    @cached_property
    def torsions(self) -> tuple[Coordinate, ...]:
        """The soft torsions, in the order of ``state.torsions``."""
        return tuple(self.coordinates[i] for i in self.torsion_index)

    @cached_property
    def bends(self) -> tuple[Coordinate, ...]:
        """The soft bond angles, in the order of ``state.bends``."""
        return tuple(self.coordinates[i] for i in self.bend_index)

    @cached_property
    def groups(self) -> dict[str, np.ndarray]:
        """Places of the soft coordinates in ``state.q`` by what they are, named as the parts of a state."""
        return {
            "torsions": self.torsion_index, "phases": self.phase_index, "bends": self.bend_index,
            "stretches": self.stretch_index,
        }  # fmt: skip

    @_frozen
    def measure(self) -> np.ndarray:
        """What every soft coordinate contributes to J, (n_coordinates,): FLAT, BEND or STRETCH of `kinematics`."""
        measure = np.full(self.n_coordinates, kinematics.FLAT)
        measure[self.bend_index] = kinematics.BEND
        measure[self.stretch_index] = kinematics.STRETCH
        return measure

    def log_jacobian(self, q: np.ndarray) -> np.ndarray:
        """Return ln J (...,) of coordinates `q` (..., n_coordinates): J is the product of r^2 and sin(angle).

        It is the volume of Cartesian space that belongs to soft bond lengths r and angles; bonds count in nm.
        """
        bends, lengths = q[..., self.bend_index], q[..., self.stretch_index]
        return np.log(np.abs(np.sin(bends))).sum(axis=-1) + 2.0 * np.log(np.abs(lengths)).sum(axis=-1)

    @cached_property
    def unit_members(self) -> tuple[np.ndarray, np.ndarray]:
        """Atoms of every rigid unit, own and shared: where each link starts (n_links + 1,), and the atoms in a row."""
        order = np.argsort(self.share_link, kind="stable")
        start = np.zeros(self.n_links + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.share_link, minlength=self.n_links), out=start[1:])
        return start, self.share_atom[order]

    @_frozen
    def coordinate_atoms(self) -> np.ndarray:
        """Atoms that measure every soft coordinate, (n_coordinates, 4) int; -1 where there is none."""
        return coordinate_atoms(self.coordinates)

    @_frozen
    def virtual_sites(self) -> np.ndarray:
        """Atoms without mass, which rigid bodies carry along, (n,) int."""
        return np.flatnonzero(self.masses == 0)

    @_frozen
    def coordinate_dof(self) -> np.ndarray:
        """Place of every soft coordinate in vectors over all degrees of freedom, (n_coordinates,)."""
        inner = self.coordinate >= 0
        places = np.empty(self.n_coordinates, dtype=np.int64)
        places[self.coordinate[inner]] = self.dof[inner]
        return places

    def __repr__(self) -> str:
        return (
            f"<TreeModel: {self.n_molecules} molecules, {self.n_bodies} bodies, {self.describe_coordinates()}, "
            f"{self.n_dof} degrees of freedom, {self.n_atoms} atoms>"
        )

    def describe_coordinates(self) -> str:
        """Return how many soft coordinates of each kind there are, in words."""
        counts = {name: len(places) for name, places in self.groups.items()}
        return ", ".join(f"{n} {name}" for name, n in counts.items() if n or name == "torsions")

    # ------------------------------------------------------------------ states

    @cached_property
    def reference(self) -> State:
        """The state the tree was built from."""
        roots = self.parent < 0
        rotation = np.zeros((self.n_molecules, 4))
        rotation[:, 0] = 1.0
        return State.make(self, self.q_reference, self.origin[roots], rotation)

    def fit(self, positions: Any) -> Fit:
        """Return the state nearest to `positions`, and how far it is from them.

        Soft coordinates are the dihedrals and angles of their atoms; every molecule is then superposed, mass-weighted,
        on its atoms. The misfit of each rigid unit is the deviation left after its own best rigid superposition.

        Parameters
        ----------
        positions : (n_atoms, 3), nm

        Returns
        -------
        Fit
        """
        x = self._per_atom("positions", positions)
        bad = np.flatnonzero(~np.isfinite(x).all(axis=1))
        if bad.size:
            raise ArgumentError(f"positions are not finite numbers at {self.atoms.labels(bad)}")
        return fit_state(self, x)

    def state(self, positions: Any, tolerance: float = STATE_TOLERANCE) -> State:
        """Return the state of `positions` (n_atoms, 3), nm.

        Raises ModelError, naming the rigid unit, if one is deformed by more than `tolerance` (nm); `fit` accepts such
        positions and reports the misfit.
        """
        fit = self.fit(positions)
        if not fit.max_misfit <= tolerance:
            unit = self.unit(fit.worst_link)
            raise ModelError(
                f"the positions do not fit the rigid {unit.name}: it is deformed by {fit.max_misfit:.2e} nm, more "
                f"than {tolerance:.1e}; build the tree from these positions, or use tree.fit(positions)"
            )
        return fit.state

    def with_geometry(self, positions: Any) -> TreeModel:
        """Return the same tree with `positions` (n_atoms, 3), nm, as its reference geometry; O(n)."""
        geometry: dict[str, Any] = reference_geometry(self, self._per_atom("positions", positions), self.masses)
        return self._with(geometry)

    def with_masses(self, masses: Any) -> TreeModel:
        """Return the same tree with other atom masses (n_atoms,), Da; those of virtual sites stay zero."""
        new = plain_array(masses)
        from peptidyn.model.build import check_masses

        check_masses(self.atoms, new, self.virtual_sites)
        geometry: dict[str, Any] = reference_geometry(self, self.positions(self.reference), new)
        return self._with({"masses": new, **geometry})

    def with_joint_inertia(self, inertia: Any) -> TreeModel:
        """Return the same tree with other joint inertias (n_coordinates,), Da nm^2 (Da for bond lengths); O(n).

        With the Fixman potential the sampled distribution does not depend on them; the motion in time does.
        """
        new = plain_array(inertia)
        if new.shape != (self.n_coordinates,):
            raise ArgumentError(
                f"the joint inertia has shape {new.shape}, expected ({self.n_coordinates},), one entry per soft "
                "coordinate of this tree"
            )
        bad = np.flatnonzero(~(np.isfinite(new) & (new >= 0)))
        if bad.size:
            raise ArgumentError(
                f"the joint inertia of {self.coordinates[bad[0]]} is {new[bad[0]]:g}, expected a finite number that is "
                "not negative"
            )
        return self._with({"joint_inertia": new})

    def _with(self, fields: dict[str, Any]) -> TreeModel:
        """Return a copy with other geometry or masses, which knows already what depends on the topology alone."""
        other = replace(self, **fields)
        other.__dict__.update({name: self.__dict__[name] for name in _OF_TOPOLOGY if name in self.__dict__})
        return other

    # ------------------------------------------------------------------ kinematics

    def check_state(self, state: State) -> None:
        """Raise ArgumentError if `state` does not fit this tree."""
        if state.tree is not self and (state.tree.n_links != self.n_links or len(state.q) != self.n_coordinates):
            raise ArgumentError("the state belongs to another tree; make it with this tree's state() or reference")

    def poses(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Return rotation (n_links, 3, 3) and world position of the origin (n_links, 3) of every link; O(n)."""
        self.check_state(state)
        R = np.empty((self.n_links, 3, 3))
        p = np.empty((self.n_links, 3))
        kinematics.link_poses(
            self.parent, self.joint, self.axis, self.origin, self.coordinate, self.molecule, self.q_reference,
            state.base_position, state.base_rotation, state.q, R, p,
        )  # fmt: skip
        return R, p

    def _place(self, R: np.ndarray, p: np.ndarray) -> np.ndarray:
        x = np.empty((self.n_atoms, 3))
        kinematics.place_atoms(self.atom_link, self.local, R, p, x)
        return x

    def positions(self, state: State) -> np.ndarray:
        """Return the atom positions (n_atoms, 3), nm; O(n)."""
        return self._place(*self.poses(state))

    def velocities(self, state: State, v: Any) -> np.ndarray:
        """Return the atom velocities J v (n_atoms, 3), nm/ps, for generalised velocities `v` (n_dof,); O(n)."""
        v = self.check_dof_vector("velocities", v)
        R, p = self.poses(state)
        w, u = self._twists(R, p, v)
        out = np.empty((self.n_atoms, 3))
        kinematics.atom_velocities(self.atom_link, self._place(R, p), p, w, u, out)
        return out

    def generalized_forces(self, state: State, forces: Any) -> np.ndarray:
        """Return J^T F (n_dof,) for atom forces F (n_atoms, 3), kJ/mol/nm; O(n).

        Base components come first in every molecule: the torque about the base origin, then the force.
        """
        F = self._per_atom("forces", forces)
        R, p = self.poses(state)
        a = self._axes(R)
        torque = np.empty((self.n_links, 3))
        force = np.empty((self.n_links, 3))
        kinematics.gather_wrenches(self.atom_link, self._place(R, p), p, F, torque, force)
        out = np.zeros(self.n_dof)
        kinematics.project_wrenches(self.parent, self.joint, self.dof, a, p, torque, force, out)
        return out

    def momenta(self, state: State, v: Any) -> np.ndarray:
        """Return the generalised momenta M v = J^T m J v + a v (n_dof,); O(n)."""
        momenta = self.generalized_forces(state, self.masses[:, None] * self.velocities(state, v))
        momenta[self.coordinate_dof] += self.joint_inertia * np.asarray(v)[self.coordinate_dof]
        return momenta

    def center_of_mass(self, state: State) -> np.ndarray:
        """Return the centre of mass of all atoms (3,), nm."""
        return self.masses @ self.positions(state) / self.masses.sum()

    def linear_momentum(self, state: State, v: Any) -> np.ndarray:
        """Return the total linear momentum (3,), Da nm/ps."""
        return self.masses @ self.velocities(state, v)

    def angular_momentum(self, state: State, v: Any) -> np.ndarray:
        """Return the total angular momentum about the world origin (3,), Da nm^2/ps."""
        return self.masses @ np.cross(self.positions(state), self.velocities(state, v))

    def links(self, state: State) -> Links:
        """Return the world-frame snapshot of all links that the solvers read; O(n)."""
        self.check_state(state)
        out = self.empty_links()
        kinematics.link_snapshot(
            *self.link_arrays, state.base_position, state.base_rotation, state.q, out.R, out.p, out.axis, out.com,
            out.inertia,
        )  # fmt: skip
        return out

    def empty_links(self) -> Links:
        """Return arrays for a snapshot, to be written by `peptidyn.model.kinematics.link_snapshot`."""
        n = self.n_links
        return Links(
            R=np.empty((n, 3, 3)), p=np.empty((n, 3)), axis=np.empty((n, 3)), com=np.empty((n, 3)),
            inertia=np.empty((n, 3, 3)), mass=self.link_mass,
        )  # fmt: skip

    @cached_property
    def link_arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays that `peptidyn.model.kinematics.link_snapshot` starts from, in the order of its arguments."""
        return (
            self.parent, self.joint, self.axis, self.origin, self.coordinate, self.molecule, self.q_reference,
            self.link_mass, self.link_com, self.link_inertia,
        )  # fmt: skip

    def _axes(self, R: np.ndarray) -> np.ndarray:
        a = np.empty((self.n_links, 3))
        kinematics.world_axes(self.parent, self.joint, self.axis, R, a)
        return a

    def _twists(self, R: np.ndarray, p: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        w = np.empty((self.n_links, 3))
        u = np.empty((self.n_links, 3))
        kinematics.link_twists(self.parent, self.joint, self.dof, self._axes(R), p, v, w, u)
        return w, u

    def _per_atom(self, name: str, value: Any) -> np.ndarray:
        """Return `value` as a new float64 array (n_atoms, 3); raise ArgumentError naming it if it is not one."""
        x = plain_array(value)
        if x.shape != (self.n_atoms, 3):
            raise ArgumentError(f"{name} have shape {x.shape}, expected ({self.n_atoms}, 3)")
        return x

    def check_dof_vector(self, name: str, value: Any) -> np.ndarray:
        """Return `value` as a new float64 array (n_dof,); raise ArgumentError naming it if it is not one."""
        v = plain_array(value)
        if v.shape != (self.n_dof,):
            raise ArgumentError(
                f"{name} has shape {v.shape}, expected ({self.n_dof},), one entry per degree of freedom"
            )
        if not all_finite(v):
            raise ArgumentError(f"{name} holds values that are not finite numbers, at {int(np.argmin(np.isfinite(v)))}")
        return v

    # ------------------------------------------------------------------ for people

    def unit(self, link: int) -> RigidUnit:
        """Return the rigid unit of one link: its atoms, mass, centre of mass and inertia."""
        return describe_unit(self, link)

    @property
    def units(self) -> list[RigidUnit]:
        """All rigid units, in link order."""
        return [describe_unit(self, link) for link in np.flatnonzero(self.link_mass > 0).tolist()]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that shapes the motion: topology, geometry, masses, joint inertias."""
        digest = hashlib.sha256(self.base.encode())
        names = ("parent", "joint", "axis", "origin", "q_reference", "masses", "atom_link", "local", "link_mass")
        for name in (*names, "joint_inertia"):
            digest.update(np.ascontiguousarray(getattr(self, name)).tobytes())
        return digest.hexdigest()[:32]

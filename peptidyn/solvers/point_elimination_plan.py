"""The plan of `fixman-points`: which atoms carry which coordinates, and in which order the hard ones are eliminated.

All of this depends on the tree, not on the configuration, and is done once per tree, in O(n).

**Coordinates.** An atom is placed in the rigid unit nearest the root that holds it: the far atom of a soft bond lies on
its axis, so it is placed with the parent unit. Every unit has a *triple* of atoms that do not lie on one line. Those of
them that lie on all axes of the unit's joint (both atoms of a soft bond; the central atom of a soft angle) are
placed with the parent unit, the others are the unit's *carriers*: their coordinates are the soft ones of the joint and
as many hard ones as remain. The carriers of a free root are all three, with six soft coordinates. Every other atom of
the unit has three hard coordinates: its place in the frame of the triple. This is a Z-matrix in which the triple holds
the reference atoms of bond, angle and torsion; a molecule of N atoms has 3N coordinates.

A unit whose atoms lie on one line has no triple and shows no turn about that line. All its atoms are carriers then, and
the units that hang on it add theirs, with the coordinates of their own joints: the turn shows in them, if anywhere.

**Blocks.** The coordinates of carriers (as a rule of one unit), or of one other atom, form a block. Its rows dq/dx
touch its own atoms and the reference atoms of one frame, which were placed before them. So the matrix of all rows is
block triangular.

**Fronts.** Blocks are eliminated from the leaves to the root. What remains of H22 couples the remaining rows through
few atoms, the front: those that eliminated rows touched and remaining rows touch. A front grows out of what earlier
fronts left and of atoms not touched before. An atom that only one block touches needs no place in it, so that a rigid
unit costs the same per atom however large it is, and a unit with many joints the same per joint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from peptidyn.core.errors import UnsupportedError
from peptidyn.core.jit import njit
from peptidyn.model.kinematics import FIXED, FREE, POINT
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.protocol import raise_singular

COLLINEAR = 1e-6
"""Three atoms lie on one line if the height of their triangle is this small a part of its longest side."""

_JOINT_ATOM = 4.0  # a carrier that is also an atom of a further joint makes smaller fronts: its lever counts this much


class Blocks(NamedTuple):
    """Rows dq/dx, block after block in the order of elimination; n blocks, flat arrays with offsets ``*_at`` (n + 1,).

    link : (n,) unit of the block.
    frame : (n,) frame of its reference atoms; -1 if they are fixed in space.
    n_own : (n,) number of its own atoms.
    n_soft, n_hard : (n,) numbers of coordinates, 3 n_own together.
    joint_at, joint : links that move its own atoms against the frame.
    moved_at, moved : for every link of `joint` and every own atom whether it does.
    dof_at, dof : degree of freedom of every soft coordinate.
    column_at, column : atoms that the rows touch: own ones, then those of the frame that can move.
    reference : place (0, 1, 2) in the frame of every column; -1 for own atoms.
    n_hard_columns : (n,) how many of the columns the hard rows touch: all, or all but the last.
    slot : place in the front of every column; -1 if it has none.
    soft_at, hard_at : where the values of soft and hard rows start.
    factor_at, gain_at : where the Cholesky factor of the pivot and the gain start.
    """

    link: np.ndarray
    frame: np.ndarray
    n_own: np.ndarray
    n_soft: np.ndarray
    n_hard: np.ndarray
    joint_at: np.ndarray
    joint: np.ndarray
    moved_at: np.ndarray
    moved: np.ndarray
    dof_at: np.ndarray
    dof: np.ndarray
    column_at: np.ndarray
    column: np.ndarray
    reference: np.ndarray
    n_hard_columns: np.ndarray
    slot: np.ndarray
    soft_at: np.ndarray
    hard_at: np.ndarray
    factor_at: np.ndarray
    gain_at: np.ndarray


class Fronts(NamedTuple):
    """Fronts in the order of elimination; n fronts, flat arrays with offsets ``*_at`` (n + 1,).

    block_at : the blocks that are eliminated in it; blocks after the last have soft coordinates only.
    atom_at, atom : its atoms.
    source, source_slot : the front that each of them comes from, and its place there; -1 if no row touched it before.
    matrix_at : (n,) where its matrix starts in a store of size `store`; places are used again once they are free.
    """

    block_at: np.ndarray
    atom_at: np.ndarray
    atom: np.ndarray
    source: np.ndarray
    source_slot: np.ndarray
    matrix_at: np.ndarray
    store: int


class Plan(NamedTuple):
    """What `fixman-points` needs to know of a tree.

    frames : (n_frames, 3) atoms; the first is the origin, the second gives the axis, the third the plane.
    blocks, fronts : see there.
    mobility : (n_atoms,) 1/m, 1/Da; zero for atoms that a fixed base holds.
    """

    frames: np.ndarray
    blocks: Blocks
    fronts: Fronts
    mobility: np.ndarray


def make_plan(tree: TreeModel) -> Plan:
    """Return the plan of a tree."""
    if tree.n_links and not tree.n_atoms:
        raise UnsupportedError(
            "the solver 'fixman-points' works on point masses and this model has bodies without atoms; use 'fixman', "
            "'spatial-operator', 'udu', 'virtual-work' or 'dense'"
        )
    if len(tree.virtual_sites):
        raise UnsupportedError(
            f"the solver 'fixman-points' divides by the masses of atoms, and {tree.atoms.label(tree.virtual_sites[0])} "
            "has none; use 'fixman', 'spatial-operator', 'udu', 'virtual-work', 'articulated' or 'dense'"
        )
    units = _find_units(tree)
    layout = _Layout(tree, units)
    schedule = _Schedule(layout, tree.n_atoms)
    schedule.eliminate(units)
    mobility = np.zeros(tree.n_atoms)
    moving = [a for block in layout.blocks for a in block.own]
    mobility[moving] = 1.0 / tree.masses[moving]
    return _flatten(tree, layout, schedule, mobility)


# ---------------------------------------------------------------------- rigid units


@dataclass(eq=False)
class _Unit:
    """A rigid unit."""

    link: int
    joint: list[int]  # links between its parent unit and itself, its own included
    parent: _Unit | None
    shared: list[int]  # atoms on all axes of its joint, placed with the parent unit: its own one first
    placed: list[int]  # atoms placed with this unit
    children: list[_Unit] = field(default_factory=list)
    triple: list[int] = field(default_factory=list)  # empty if its atoms lie on one line
    carriers: list[int] = field(default_factory=list)
    block: int = -1  # of its carriers, if it is the first unit there


def _find_units(tree: TreeModel) -> list[_Unit]:
    """Return the rigid units, parents first."""
    home = np.full(tree.n_atoms, tree.n_links)
    np.minimum.at(home, tree.share_atom, tree.share_link)
    order = np.argsort(tree.share_link, kind="stable")
    members = tree.share_atom[order].tolist()
    start = np.searchsorted(tree.share_link[order], np.arange(tree.n_links + 1)).tolist()
    home_of, link_of, parent = home.tolist(), tree.atom_link.tolist(), tree.parent.tolist()

    units: dict[int, _Unit] = {}
    pending: dict[int, list[int]] = {}  # links without atoms, with those above them up to the next unit
    for l, up in enumerate(parent):
        joint = [*pending.pop(up), l] if up in pending else [l]
        above = units.get(parent[joint[0]])
        if up >= 0 and len(joint) == 1 and above is None:
            raise UnsupportedError(
                f"link {up} has no atoms and carries several joints; the solver 'fixman-points' needs a rigid unit "
                "where joints branch: use 'spatial-operator', 'udu' or 'dense'"
            )
        atoms = members[start[l] : start[l + 1]]
        if not atoms:
            pending[l] = joint
            continue
        common = [a for a in atoms if home_of[a] != l]
        shared = [a for a in common if link_of[a] == l] + [a for a in common if link_of[a] != l]
        unit = _Unit(l, joint, above, shared, [a for a in atoms if home_of[a] == l])
        units[l] = unit
        if above is not None:
            above.children.append(unit)
    for joint in pending.values():
        raise_singular(tree, joint[-1])
    return list(units.values())


# ---------------------------------------------------------------------- coordinates of all atoms


@dataclass(eq=False)
class _Block:
    """A block of rows; attributes as in `Blocks`."""

    link: int
    frame: int
    own: list[int]
    joint: list[int]
    moved: list[bool]
    dof: list[int]
    columns: list[int]
    reference: list[int]
    n_hard_columns: int
    slots: list[int] = field(default_factory=list)

    @property
    def n_hard(self) -> int:
        return 3 * len(self.own) - len(self.dof)


class _Layout:
    """Frames and blocks of all coordinates, units in order."""

    def __init__(self, tree: TreeModel, units: list[_Unit]):
        self.blocks: list[_Block] = []
        self.frames: list[tuple[int, ...]] = []
        self.block_of: dict[int, int] = {}  # of the atoms that are no carriers
        self._tree = tree
        self._still: set[int] = set()  # atoms that a fixed base holds
        self._frame_of: dict[int, int] = {}  # link of a unit -> frame of its triple; -1 if it is fixed in space
        self._x = tree.positions(tree.reference)
        self._even = np.ones(tree.n_atoms)
        self._choose_carriers(units)
        for unit in units:
            self._lay_out(unit)

    def _choose_carriers(self, units: list[_Unit]) -> None:
        weight = self._tree.masses.copy()
        weight[[a for unit in units for a in unit.shared]] *= _JOINT_ATOM
        for unit in units:
            triple = _choose_triple(self._x, weight, unit.shared, unit.placed)
            if len(triple) == 3:
                unit.triple = triple
                unit.carriers = triple[len(unit.shared) :]
            else:
                unit.carriers = unit.placed

    def _lay_out(self, unit: _Unit) -> None:
        """Add the blocks of the atoms placed with one unit."""
        tree = self._tree
        if unit.parent is None and tree.joint[unit.link] == FIXED:
            self._still.update(unit.placed)
            self._frame_of[unit.link] = -1
            return
        if unit.parent is None or unit.parent.link in self._frame_of:
            self._add_carriers(unit)
        if unit.triple:
            frame = self._frame_of[unit.link] = self._add_frame(unit.triple)
            for a in unit.placed:
                if a not in unit.carriers:
                    self.block_of[a] = self._add_block(unit.link, frame, 3, [a], [], [], [])

    def _add_carriers(self, unit: _Unit) -> None:
        """Add the block of a unit's carriers, with those of the units on it that it cannot tell the motion of."""
        joint: list[int] = []
        own: list[int] = []
        moved_by: list[set[int]] = []
        stack: list[tuple[_Unit, set[int]]] = [(unit, set())]
        while stack:
            here, above = stack.pop()
            path = above | set(here.joint)
            joint += here.joint
            own += here.carriers
            moved_by += [path] * len(here.carriers)
            if not here.triple:
                stack.extend((child, path) for child in here.children)
        dof = [d for l in joint for d in _degrees_of_freedom(self._tree, l)]
        if len(dof) > 3 * len(own):
            raise_singular(self._tree, unit.link)
        frame = -1
        if unit.parent is not None and self._frame_of[unit.parent.link] >= 0:
            above_frame = self.frames[self._frame_of[unit.parent.link]]
            frame = self._add_frame(_choose_triple(self._x, self._even, unit.shared, above_frame))
        # two reference atoms on the axis of a torsion settle all but the torsion itself, which is soft
        n_touched = 2 if len(unit.shared) == 2 else 3
        moved = [l in path for l in joint for path in moved_by]
        unit.block = self._add_block(unit.link, frame, n_touched, own, joint, moved, dof)

    def _add_frame(self, atoms: Sequence[int]) -> int:
        self.frames.append(tuple(atoms))
        return len(self.frames) - 1

    def _add_block(
        self, link: int, frame: int, n_touched: int, own: list[int], joint: list[int], moved: list[bool], dof: list[int]
    ) -> int:
        """Add a block; its hard rows touch the first `n_touched` atoms of the frame."""
        atoms = self.frames[frame] if frame >= 0 else ()
        reference = [r for r, a in enumerate(atoms) if a not in self._still]
        columns = own + [atoms[r] for r in reference]
        n_hard_columns = len(own) + sum(r < n_touched for r in reference)
        places = [-1] * len(own) + reference
        self.blocks.append(_Block(link, frame, own, joint, moved, dof, columns, places, n_hard_columns))
        return len(self.blocks) - 1


def _degrees_of_freedom(tree: TreeModel, link: int) -> Iterable[int]:
    first = int(tree.dof[link])
    return range(first, first + {FREE: 6, POINT: 3, FIXED: 0}.get(int(tree.joint[link]), 1))


def _choose_triple(x: np.ndarray, weight: np.ndarray, given: Sequence[int], candidates: Sequence[int]) -> list[int]:
    """Return three atoms, those given first, that span a wide triangle; fewer if all lie on one line."""
    triple = list(given)
    pool = np.array(candidates, dtype=np.int64)
    while len(triple) < 3:
        best = _longest_lever(x, weight, np.array(triple, dtype=np.int64), pool)
        if best < 0:
            break
        triple.append(best)
    return triple


@njit(cache=True)
def _longest_lever(x, weight, chosen, pool):
    """Return the atom of `pool` with the longest lever, weight times squared distance; -1 if all levers are zero.

    The distance is that from the centre of the pool, from the chosen atom, or from the line through both chosen atoms.
    """
    best, found = 0.0, -1
    centre = np.zeros(3)
    for a in pool:
        for i in range(3):
            centre[i] += x[a, i] / len(pool)
    for a in pool:
        square = 0.0
        if len(chosen) == 0:
            for i in range(3):
                square += (x[a, i] - centre[i]) ** 2
            square = max(square, 1e-300)  # a single atom is its own centre
        elif len(chosen) == 1:
            for i in range(3):
                square += (x[a, i] - x[chosen[0], i]) ** 2
        else:
            u, v = x[chosen[1]] - x[chosen[0]], x[a] - x[chosen[0]]
            w = x[a] - x[chosen[1]]
            n = np.cross(u, v)
            longest = max((u * u).sum(), (v * v).sum(), (w * w).sum())
            square = (n * n).sum() / (u * u).sum()
            if square <= COLLINEAR**2 * longest:
                square = 0.0
        if weight[a] * square > best:
            best, found = weight[a] * square, a
    return found


# ---------------------------------------------------------------------- order of elimination


class _Schedule:
    """Eliminates blocks on paper, and keeps record of the fronts.

    A block is eliminated as soon as no other one touches its own atoms any more, so that fronts stay small. The
    children of a unit are taken near atom by near atom for the same reason.
    """

    def __init__(self, layout: _Layout, n_atoms: int):
        self.layout = layout
        self.block_lists: list[list[int]] = []
        self.atom_lists: list[list[int]] = []
        self.sources: list[list[tuple[int, int]]] = []
        self.matrix_at: list[int] = []
        self.store = 0
        self.unpivoted: list[int] = []  # blocks without hard coordinates
        self._vacant: dict[int, list[int]] = {}  # places in the store that no front needs any more, by their size
        self._slots: list[dict[int, int]] = []
        self._front_of = [-1] * n_atoms
        self._uses = [0] * n_atoms  # blocks still to come that touch an atom
        self._done = [False] * len(layout.blocks)
        for block in layout.blocks:
            if block.n_hard:
                for a in block.columns[: block.n_hard_columns]:
                    self._uses[a] += 1

    def eliminate(self, units: list[_Unit]) -> None:
        """Eliminate all blocks, from the leaves to the root of every molecule."""
        stack = [unit for unit in reversed(units) if unit.parent is None]
        entered: set[int] = set()
        while stack:
            unit = stack[-1]
            if unit.link not in entered:
                entered.add(unit.link)
                stack.extend(sorted(unit.children, key=lambda child: child.shared[-1:]))
                continue
            stack.pop()
            for a in unit.placed:
                if a in self.layout.block_of:
                    self._add(self.layout.block_of[a])
            if unit.block >= 0:
                self._add(unit.block)
                self._add_released(unit.block)

    def _add_released(self, number: int) -> None:
        """Eliminate the atoms that `number` was the last other block to touch."""
        block = self.layout.blocks[number]
        for a in block.columns[len(block.own) : block.n_hard_columns]:
            if self._uses[a] == 1 and a in self.layout.block_of:
                self._add(self.layout.block_of[a])

    def _add(self, number: int) -> None:
        block = self.layout.blocks[number]
        if self._done[number]:
            return
        self._done[number] = True
        if not block.n_hard:
            self.unpivoted.append(number)
            return
        touched = block.columns[: block.n_hard_columns]
        front = self._find_front([a for a in touched if self._front_of[a] >= 0 or self._uses[a] > 1])
        self.block_lists[front].append(number)
        block.slots = [self._slots[front].get(a, -1) for a in touched]
        for a in touched:
            self._uses[a] -= 1

    def _find_front(self, atoms: list[int]) -> int:
        """Return the front that holds all of `atoms`; make one if there is none."""
        before = sorted({self._front_of[a] for a in atoms} - {-1})
        fresh = [a for a in atoms if self._front_of[a] < 0]
        if len(before) == 1 and not fresh:
            return before[0]
        front = len(self.atom_lists)
        members: list[int] = []
        sources: list[tuple[int, int]] = []
        for old in before:
            for slot, a in enumerate(self.atom_lists[old]):
                if self._uses[a]:
                    members.append(a)
                    sources.append((old, slot))
        members += fresh
        sources += [(-1, -1)] * len(fresh)
        for a in members:
            self._front_of[a] = front
        self.atom_lists.append(members)
        self.sources.append(sources)
        self.block_lists.append([])
        self._slots.append({a: slot for slot, a in enumerate(members)})
        self._allot(9 * len(members) ** 2)
        for old in before:
            self._vacant.setdefault(9 * len(self.atom_lists[old]) ** 2, []).append(self.matrix_at[old])
        return front

    def _allot(self, size: int) -> None:
        """Give the new front a place in the store."""
        vacant = self._vacant.get(size)
        if vacant:
            self.matrix_at.append(vacant.pop())
        else:
            self.matrix_at.append(self.store)
            self.store += size


# ---------------------------------------------------------------------- flat arrays


def _flatten(tree: TreeModel, layout: _Layout, schedule: _Schedule, mobility: np.ndarray) -> Plan:
    order = [number for numbers in schedule.block_lists for number in numbers]
    width = [3 * len(atoms) for atoms in schedule.atom_lists]
    gain = [w * layout.blocks[n].n_hard for w, ns in zip(width, schedule.block_lists, strict=True) for n in ns]
    ordered = [layout.blocks[n] for n in order + schedule.unpivoted]
    gain += [0] * len(schedule.unpivoted)
    sources = [s for front in schedule.sources for s in front]
    blocks = Blocks(
        link=_integers(b.link for b in ordered),
        frame=_integers(b.frame for b in ordered),
        n_own=_integers(len(b.own) for b in ordered),
        n_soft=_integers(len(b.dof) for b in ordered),
        n_hard=_integers(b.n_hard for b in ordered),
        joint_at=_offsets(len(b.joint) for b in ordered),
        joint=_integers(l for b in ordered for l in b.joint),
        moved_at=_offsets(len(b.moved) for b in ordered),
        moved=np.array([m for b in ordered for m in b.moved], dtype=np.bool_),
        dof_at=_offsets(len(b.dof) for b in ordered),
        dof=_integers(d for b in ordered for d in b.dof),
        column_at=_offsets(len(b.columns) for b in ordered),
        column=_integers(a for b in ordered for a in b.columns),
        reference=_integers(r for b in ordered for r in b.reference),
        n_hard_columns=_integers(b.n_hard_columns for b in ordered),
        slot=_integers(s for b in ordered for s in (b.slots + [-1] * len(b.columns))[: len(b.columns)]),
        soft_at=_offsets(3 * len(b.dof) * len(b.columns) for b in ordered),
        hard_at=_offsets(3 * b.n_hard * b.n_hard_columns for b in ordered),
        factor_at=_offsets(b.n_hard**2 for b in ordered),
        gain_at=_offsets(gain),
    )
    fronts = Fronts(
        block_at=_offsets(len(numbers) for numbers in schedule.block_lists),
        atom_at=_offsets(len(atoms) for atoms in schedule.atom_lists),
        atom=_integers(a for atoms in schedule.atom_lists for a in atoms),
        source=_integers(front for front, _ in sources),
        source_slot=_integers(slot for _, slot in sources),
        matrix_at=_integers(schedule.matrix_at),
        store=schedule.store,
    )
    return Plan(_integers(layout.frames).reshape(-1, 3), blocks, fronts, mobility)


def _integers(values: Iterable) -> np.ndarray:
    return np.array(list(values), dtype=np.int64)


def _offsets(lengths: Iterable[int]) -> np.ndarray:
    return np.array([0, *accumulate(lengths)], dtype=np.int64)

"""Which coordinates are soft at every bond: from the request and the chemistry to joints.

The bonds that lie on no ring and in no rigid selection form a tree of blocks: single atoms, rings, rigid selections.
Seen from the root, such a bond leads from an atom j to an atom k. With i, on which j hangs, and the main atom m of j,
its soft coordinates are

    phase     of k about i-j, relative to m; none for m itself
    bend      the angle i-j-k
    stretch   the length of j-k
    torsion   about j-k, which turns everything beyond k

in this order from j to k. Everything that is not soft stays as it is in the reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.core.errors import ModelError
from peptidyn.core.geometry import bond_angle
from peptidyn.core.residues import is_amino_acid, is_hydrogen
from peptidyn.model import chemistry
from peptidyn.model.chemistry import Soft
from peptidyn.model.graph import bridges, components
from peptidyn.model.rings import Cuts
from peptidyn.model.soft import BENDS, BY_ATOM, SoftRequest
from peptidyn.model.tree import HardBond

STRAIGHT = np.deg2rad(10.0)
"""Bond angles nearer than this to 0 or 180 degrees reach them in thermal motion and cannot be soft."""

BACKBONE_ANGLES = {tuple(kind.split("-")): kind for kind in BENDS}

Pair = tuple[int, int]


@dataclass
class Joint:
    """What is soft at one bond."""

    phase: Soft | None = None
    bend: Soft | None = None
    stretch: Soft | None = None
    torsion: Soft | None = None

    def __len__(self) -> int:
        return sum(part is not None for part in (self.phase, self.bend, self.stretch, self.torsion))

    def sequence(self, near: int, far: int) -> Iterator[tuple[Soft, tuple[int, ...]]]:
        """Yield the coordinates from the parent's atom `near` to the child's atom `far`, with atoms of their axes.

        The atoms are (-1, a, b) for an axis along a -> b and (a, b, c) for one perpendicular to their plane. A bend
        whose central atom is the parent's comes before the torsion, one whose central atom is the child's after it.
        """
        if self.phase is not None:
            yield self.phase, (-1, *self.phase.atoms[1:3])
        if self.bend is not None and self.bend.atoms[1] == near:
            yield self.bend, self.bend.atoms
        if self.stretch is not None:
            yield self.stretch, (-1, near, far)
        if self.torsion is not None:
            yield self.torsion, (-1, near, far)
        if self.bend is not None and self.bend.atoms[1] != near:
            i, centre, k = self.bend.atoms
            yield self.bend, (k, centre, i)

    def common_atoms(self, near: int, far: int) -> tuple[bool, bool]:
        """Tell whether `near` and `far` lie on every axis of the joint, so that both bodies have them."""
        if self.stretch is not None:
            return False, False
        centre = self.bend.atoms[1] if self.bend is not None else -1
        return centre in (-1, near), centre in (-1, far) and self.phase is None


Joints = dict[Pair, Joint]
"""By bond, smaller atom first."""


def find_joints(
    whole: Atoms, x: np.ndarray, soft: SoftRequest, glue: np.ndarray, cuts: Cuts, roots: np.ndarray
) -> tuple[Joints, list[HardBond]]:
    """Return the joints, and the bonds that could turn but do not.

    Parameters
    ----------
    whole : Atoms
        With the bonds that are cut.
    x : (n_atoms, 3), nm
    soft : SoftRequest
    glue : (n, 2) int
        Edges that tie rigid selections together.
    cuts : Cuts
    roots : (n_molecules,) int
        An atom of the root body of every molecule.
    """
    atoms = whole.without_bonds(cuts.bonds)
    acyclic = bridges(atoms.n_atoms, atoms.bonds)
    movable = bridges(atoms.n_atoms, np.concatenate([atoms.bonds, glue]))[: len(atoms.bonds)]
    rotors, stiff = chemistry.find_rotors(atoms, x, acyclic, whole)
    ring, frozen = _pairs(atoms.bonds[~acyclic]), _pairs(atoms.bonds[~movable])
    joints: Joints = {}
    hard: list[HardBond] = []
    for rotor in rotors:
        key = _pair(*rotor.atoms[1:3])
        if not (soft.asks(rotor.kind, *key) or (key in cuts.ring_bonds and soft.asks("ring", *key))):
            hard.append(HardBond(rotor.kind, key, "not asked for"))
        elif key in frozen:
            hard.append(HardBond(rotor.kind, key, "inside a rigid selection"))
        else:
            joints[key] = Joint(torsion=rotor)
    hard.extend(HardBond("rotor", tuple(atoms.bonds[bond].tolist()), why) for bond, why in stiff.items())
    hard.extend(_ring_phi(atoms, ring))
    if soft.kinds & BY_ATOM:
        _Branches(atoms, x, soft, glue, movable, cuts, roots, rotors).add_to(joints)
        return joints, [bond for bond in hard if bond.atoms not in joints or joints[bond.atoms].torsion is None]
    for bend in chemistry.find_bends(atoms, soft.kinds):
        key = _pair(*bend.atoms[1:])
        if not soft.asks(bend.kind, *key):
            continue
        if key in frozen:
            hard.append(HardBond(bend.kind, key, "in a ring" if key in ring else "inside a rigid selection"))
        else:
            joints.setdefault(key, Joint()).bend = bend
    return joints, hard


def _pair(j: int, k: int) -> Pair:
    return min(j, k), max(j, k)


def _pairs(bonds: np.ndarray) -> set[tuple[int, ...]]:
    return set(map(tuple, bonds.tolist()))


def _ring_phi(atoms: Atoms, ring: set[tuple[int, ...]]) -> list[HardBond]:
    """Return the phi bonds that lie in a ring: proline's."""
    tables = [table for r, table in enumerate(atoms.residue_atoms) if is_amino_acid(atoms, r)]
    bonds = [_pair(table["N"], table["CA"]) for table in tables]
    return [HardBond("phi", bond, "in a ring") for bond in bonds if bond in ring]


class _Branches:
    """The bonds that can move, seen from the root, and the coordinates of the atoms at their ends."""

    def __init__(
        self, atoms: Atoms, x: np.ndarray, soft: SoftRequest, glue: np.ndarray, movable: np.ndarray, cuts: Cuts,
        roots: np.ndarray, rotors: list[Soft],
    ):  # fmt: skip
        self.atoms, self.x, self.soft, self.cuts = atoms, x, soft, cuts
        self.hydrogen = is_hydrogen(atoms).tolist()
        self.rotors = {_pair(*rotor.atoms[1:3]): rotor for rotor in rotors}
        self.block = components(atoms.n_atoms, np.concatenate([atoms.bonds[~movable], glue]))
        self.parent, self.children, order = self._orient(glue, movable, roots)
        self.order = [k for k in order if k in self.parent]
        members: dict[int, list[int]] = {}
        for atom, block in enumerate(self.block.tolist()):
            members.setdefault(block, []).append(atom)
        self.members = members
        self._frames: dict[int, Pair] = {}

    def _orient(
        self, glue: np.ndarray, movable: np.ndarray, roots: np.ndarray
    ) -> tuple[dict[int, int], dict[int, list[int]], list[int]]:
        """Return for every atom that hangs on a bond that can move the atom it hangs on, and the reverse."""
        bridge = _pairs(self.atoms.bonds[movable])
        beside: list[list[int]] = [list(bonded) for bonded in self.atoms.neighbours]
        for i, j in glue.tolist():
            beside[i].append(j)
            beside[j].append(i)
        parent: dict[int, int] = {}
        children: dict[int, list[int]] = {}
        seen = [False] * self.atoms.n_atoms
        order: list[int] = []
        for root in roots.tolist():
            seen[root] = True
            queue = [root]
            for atom in queue:
                for other in beside[atom]:
                    if not seen[other]:
                        seen[other] = True
                        queue.append(other)
                        if _pair(atom, other) in bridge:
                            parent[other] = atom
                            children.setdefault(atom, []).append(other)
            order += queue
        return parent, children, order

    def _rank(self, k: int) -> tuple[bool, bool, int]:
        return self.hydrogen[k], not self.children.get(k), k

    def frame(self, j: int) -> Pair:
        """Return the atoms (i, m) that children of j are measured from: on which it hangs, and the main one; -1: none.

        For an atom of a block the block gives them as far as it can; a root atom of its own hangs on its first child.
        """
        if j not in self._frames:
            self._frames[j] = self._find_frame(j)
        return self._frames[j]

    def _find_frame(self, j: int) -> Pair:
        own = [a for a in self.members[int(self.block[j])] if a != j]
        bonded = set(self.atoms.neighbours[j])
        own.sort(key=lambda a: (a not in bonded, a))
        rotor = self.rotors.get(_pair(self.parent[j], j)) if j in self.parent else None
        kids = sorted(self.children.get(j, ()), key=self._rank)
        if rotor is not None:  # the atom that names the torsion about i-j is the main one
            named = rotor.atoms[3] if rotor.atoms[2] == j else rotor.atoms[0]
            kids.sort(key=lambda k: k != named)
        candidates = own + kids
        i = self.parent[j] if j in self.parent else (candidates.pop(0) if candidates else -1)
        if i in kids and _pair(i, j) in self.rotors:
            candidates.sort(key=lambda a: a not in self.rotors[_pair(i, j)].atoms)
        entry = self.parent.get(i, -1)
        for m in [*candidates, *([entry] if own and entry >= 0 else [])]:
            if m in kids or self._turns(i, j, m):
                return i, m
        return i, -1

    def _turns(self, i: int, j: int, m: int) -> bool:
        angle = bond_angle(self.x[i], self.x[j], self.x[m])
        return bool(STRAIGHT < angle < np.pi - STRAIGHT)

    def add_to(self, joints: Joints) -> None:
        """Put what is soft at every bond into `joints`; torsions that are named there already get their atoms."""
        keys = {k: _pair(self.parent[k], k) for k in self.order}
        for k, key in keys.items():
            joint = joints[key] = joints.pop(key, Joint())
            ring = key in self.cuts.ring_bonds and self.soft.asks("ring", *key)
            self._add_place(joint, self.parent[k], k, ring)
        for k, key in keys.items():
            joints[key].torsion = self._torsion(joints, self.parent[k], k)
        for key in keys.values():
            if not len(joints[key]):
                del joints[key]

    def _add_place(self, joint: Joint, j: int, k: int, ring: bool) -> None:
        """Add phase, bend and stretch of atom k, which hangs on j."""
        i, m = self.frame(j)
        suffix = "-H" if self.hydrogen[k] else ""
        residue = int(self.atoms.residue[k])
        if ring or self.soft.asks(f"bond{suffix}", k):
            joint.stretch = Soft("stretch", "bond", (j, k), residue)
        if k == i or i < 0:
            return
        names = tuple(str(self.atoms.name[a]) for a in (i, j, k))
        backbone = BACKBONE_ANGLES.get(names) or BACKBONE_ANGLES.get(names[::-1])
        kind = backbone if backbone and is_amino_acid(self.atoms, int(self.atoms.residue[j])) else f"angle{suffix}"
        if ring or self.soft.asks(kind, k):
            joint.bend = Soft("bend", kind.removesuffix("-H"), (i, j, k), residue)
        if m not in (k, -1) and (ring or self.soft.asks(f"phase{suffix}", k)):
            joint.phase = Soft("phase", "phase", (m, i, j, k), residue)
        if (joint.bend or joint.phase) and not self._turns(i, j, k):
            raise ModelError(
                f"the angle of {self.atoms.labels((i, j, k))} is linear or nearly so, and what is linear cannot be "
                "soft: confine the soft coordinates to the other atoms, e.g. soft='phi psi chi; all in residue 1 to 9'"
            )

    def _torsion(self, joints: Joints, j: int, k: int) -> Soft | None:
        """Return the torsion about j-k with atoms that measure it alone, or None if it is not soft or turns nothing."""
        i, m = self.frame(j)
        near = m if i == k else i
        far = self.frame(k)[1]
        if near < 0 or far < 0:
            return None
        rotor = joints[_pair(j, k)].torsion
        if rotor is None:
            if not self.soft.asks("stiff", j, k):
                return None
            found = self.rotors.get(_pair(j, k))
            kind, residue = (found.kind, found.residue) if found else ("rotor", int(self.atoms.residue[j]))
            return Soft("torsion", kind, (near, j, k, far), residue)
        first, last = (rotor.atoms[0], rotor.atoms[3]) if rotor.atoms[1] == j else (rotor.atoms[3], rotor.atoms[0])
        near = first if self._still(joints, first, j, k) else near
        far = last if self._still(joints, last, k, j) else far
        quad = (near, j, k, far)
        return Soft("torsion", rotor.kind, quad if rotor.atoms[1] == j else quad[::-1], rotor.residue)

    def _still(self, joints: Joints, a: int, j: int, k: int) -> bool:
        """True if no phase and no angle at j turns the half plane of atom `a`, on j, about the bond j-k."""
        i, m = self.frame(j)
        place = joints.get(_pair(a, j), Joint()) if self.parent.get(a) == j else Joint()
        if k == i:  # angles at j are measured from this bond, and move atoms within their half planes
            return a == m or place.phase is None
        axis = joints[_pair(j, k)]
        return a == i or not (axis.bend or axis.phase or place.bend or place.phase)

"""Where missing atoms go: heavy atoms by residue templates, hydrogens by the geometry of the atom that carries them.

Every place follows from atoms that are there, with template bond lengths and angles and the handedness of the template;
nothing is minimised, so that a rigid model built on the result starts from sound geometry. What a
template does not decide, a free rotation, is turned out of the way of other atoms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import cos, radians, sin

import numpy as np
from scipy.optimize import least_squares
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from peptidyn.core.atoms import Atoms, steps_from
from peptidyn.core.points import place, rotated, unit
from peptidyn.core.residues import HYDROGENS, is_hydrogen
from peptidyn.io.residue_templates import H_ANGLE, H_LENGTH, inline_hydrogen, methylene_hydrogens, rotor_hydrogens

_PEPTIDE_BOND = 0.133
_CARBONYL = {"O": 0.123, "OXT": 0.125, "CH3": 0.151}
_WATER_OH, _WATER_ANGLE = 0.09572, radians(104.52)
_NEIGHBOURHOOD = 0.4


@dataclass(frozen=True)
class Shape:
    """The heavy atoms of a residue template.

    Attributes
    ----------
    xyz : name -> (3,)
        nm.
    neighbours : name -> names
    """

    xyz: Mapping[str, np.ndarray]
    neighbours: Mapping[str, tuple[str, ...]]

    def distances(self, start: str) -> dict[str, int]:
        """Number of bonds from `start` to every atom."""
        return steps_from(start, self.neighbours.__getitem__)

    def turns_freely(self, a: str, b: str) -> bool:
        """Whether the bond a-b is in no ring."""
        return b not in steps_from(a, lambda n: [other for other in self.neighbours[n] if {n, other} != {a, b}])


class Surroundings:
    """The atoms that are there, to be kept clear of."""

    def __init__(self, positions: np.ndarray) -> None:
        self._tree = cKDTree(positions)
        self._added: list[np.ndarray] = []

    def add(self, points: Iterable[np.ndarray]) -> None:
        self._added.extend(points)

    def clearance(self, point: np.ndarray, apart_from: np.ndarray) -> float:
        """Distance (nm) to the nearest atom, leaving out those at the places `apart_from`; 0.4 if none is that near."""
        near = self._tree.data[self._tree.query_ball_point(point, _NEIGHBOURHOOD)]
        others = np.array([*near, *self._added]).reshape(-1, 3)
        excluded = np.linalg.norm(others[:, None] - apart_from[None], axis=2).min(axis=1, initial=np.inf) < 1e-6
        distances = np.linalg.norm(others[~excluded] - point, axis=1)
        return float(min(distances.min(initial=_NEIGHBOURHOOD), _NEIGHBOURHOOD))


def place_heavy_atoms(
    shape: Shape,
    present: Mapping[str, np.ndarray],
    missing: Iterable[str],
    linked: Mapping[str, np.ndarray],
    surroundings: Surroundings,
) -> dict[str, np.ndarray]:
    """Return the places of the missing heavy atoms of one residue.

    Parameters
    ----------
    shape : Shape
        Of the residue's template.
    present : name -> (3,)
        Atoms that are there, nm.
    missing : names
        OXT among them is placed although templates do not have it.
    linked : name -> (3,)
        For atoms bonded to another residue, also for missing ones, the place of that other atom.
    surroundings : Surroundings

    Returns
    -------
    dict of name -> (3,)
        Without the atoms that too little is there to place.
    """
    known = {name: np.asarray(xyz) for name, xyz in present.items() if name in shape.xyz}
    wanted = [name for name in missing if name in shape.xyz]
    placed: dict[str, np.ndarray] = {}
    while wanted:
        tried = {name: _place_one(shape, name, known, linked, surroundings) for name in wanted}
        options = {name: option for name, option in tried.items() if option is not None}
        if not options:
            break
        # Atoms that their neighbours determine come before those that could turn.
        name = min(options, key=lambda n: options[n][1])
        wanted.remove(name)
        known[name] = placed[name] = options[name][0]
    if "OXT" in missing and {"CA", "C", "O"} <= known.keys():
        placed["OXT"] = _third_around(known["C"], known["CA"], known["O"], _CARBONYL["OXT"])
    surroundings.add(placed.values())
    return placed


def _third_around(centre: np.ndarray, a: np.ndarray, b: np.ndarray, length: float) -> np.ndarray:
    """The third neighbour of a planar atom."""
    return centre - length * unit(unit(a - centre) + unit(b - centre))


def _place_one(
    shape: Shape,
    name: str,
    known: Mapping[str, np.ndarray],
    linked: Mapping[str, np.ndarray],
    surroundings: Surroundings,
) -> tuple[np.ndarray, int] | None:
    """Return a place for one atom, and 0 if its neighbours determine it, 1 if it was turned freely."""
    parents = [p for p in shape.neighbours[name] if p in known]
    if not parents:
        return None
    parent = parents[0]
    others = [known[n] for n in shape.neighbours[parent] if n in known]
    if parent == "C" and name in _CARBONYL and len(others) == 1 and "C" in linked:
        return _third_around(known["C"], others[0], linked["C"], _CARBONYL[name]), 0
    away = shape.distances(name)
    for reach in (2, 3, 4):
        references = [n for n in known if away.get(n, 99) <= reach]
        if _spans_plane([shape.xyz[n] for n in references]):
            break
    else:
        return None
    here, there = (np.mean([xyz[n] for n in references], axis=0) for xyz in (shape.xyz, known))
    turn, _ = Rotation.align_vectors([known[n] - there for n in references], [shape.xyz[n] - here for n in references])
    rough = turn.apply(shape.xyz[name] - here) + there
    if len(parents) > 1 or name in linked:
        return _fit_between(shape, name, rough, known, linked.get(name)), 0
    length = float(np.linalg.norm(shape.xyz[name] - shape.xyz[parent]))
    at = known[parent] + length * unit(rough - known[parent])
    if reach == 2:
        return at, 0
    axis_ends = [g for g in shape.neighbours[parent] if g in known]
    if len(axis_ends) != 1 or not shape.turns_freely(parent, axis_ends[0]):
        return at, 0
    return _turn_clear(shape, parent, axis_ends[0], at, known, surroundings), 1


def _fit_between(
    shape: Shape, name: str, start: np.ndarray, known: Mapping[str, np.ndarray], link: np.ndarray | None
) -> np.ndarray:
    """Place an atom that has bonds on several sides: bond lengths first, then distances to second neighbours."""
    away = shape.distances(name)
    near = [n for n in known if away.get(n, 99) <= 2]
    anchors = [known[n] for n in near]
    wanted = [float(np.linalg.norm(shape.xyz[name] - shape.xyz[n])) for n in near]
    weights = [1.0 if away[n] == 1 else 0.2 for n in near]
    if link is not None:
        anchors, wanted, weights = [*anchors, link], [*wanted, _PEPTIDE_BOND], [*weights, 1.0]
    points = np.array(anchors)

    def misfit(x: np.ndarray) -> np.ndarray:
        return np.array(weights) * (np.linalg.norm(points - x, axis=1) - np.array(wanted))

    return np.asarray(least_squares(misfit, start).x)


def _spans_plane(points: list[np.ndarray]) -> bool:
    if len(points) < 3:
        return False
    centred = np.array(points) - np.mean(points, axis=0)
    return bool(np.linalg.svd(centred, compute_uv=False)[1] > 0.02)


def _turn_clear(
    shape: Shape,
    parent: str,
    before: str,
    at: np.ndarray,
    known: Mapping[str, np.ndarray],
    surroundings: Surroundings,
) -> np.ndarray:
    """Turn a new atom about the bond before-parent to the place furthest from others, the template's own if equal."""
    axis = unit(known[parent] - known[before])
    near = [known[n] for n in {parent, before, *shape.neighbours[before]} if n in known]
    best, best_score = at, -1.0
    for step in _turns(shape, parent, before):
        candidate = known[parent] + rotated(at - known[parent], axis, radians(step))
        score = surroundings.clearance(candidate, np.array(near))
        if score > best_score + 0.01:
            best, best_score = candidate, score
    return best


def _turns(shape: Shape, parent: str, before: str) -> tuple[int, ...]:
    """Degrees to try: the guanidinium of arginine is flat, a planar group turns as it likes, the rest is staggered."""
    if {parent, before} == {"NE", "CZ"}:
        return (0, 180)
    around = [unit(shape.xyz[n] - shape.xyz[parent]) for n in shape.neighbours[parent]]
    planar = len(around) == 3 and abs(np.linalg.det(np.array(around))) < 0.1
    return tuple(range(0, 360, 30)) if planar else (0, 120, 240)


# ---------------------------------------------------------------------- hydrogens


def place_hydrogens(atoms: Atoms, positions: np.ndarray, added: Iterable[int]) -> np.ndarray:
    """Return positions in which the added hydrogens have ideal bond lengths and angles.

    Parameters
    ----------
    atoms : Atoms
        With all its hydrogens.
    positions : (n_atoms, 3)
        nm. Of the added hydrogens only the directions in water are used.
    added : atom indices
        Hydrogens to place; all other atoms stay.
    """
    new = positions.copy()
    loose = {int(h) for h in added}
    heavy = np.flatnonzero(~is_hydrogen(atoms))
    acceptor = np.isin(atoms.element[heavy], ["O", "N"])
    contact = np.where(acceptor, 0.16, 0.24)
    tree = cKDTree(positions[heavy])
    for parent in sorted({atoms.neighbours[h][0] for h in loose}):
        hydrogens = [b for b in atoms.neighbours[parent] if b in loose]
        fixed = [b for b in atoms.neighbours[parent] if b not in loose]
        if len(fixed) == 1 and len(hydrogens) == 1 and atoms.element[parent] in ("O", "S"):
            candidates = _hydroxyl_candidates(atoms, new, parent, fixed[0])
            skip = {parent, fixed[0]}
            new[hydrogens[0]] = max(
                candidates, key=lambda point: _room(point, tree, heavy, contact, positions, skip)
            )  # fmt: skip
        else:
            for h, point in zip(hydrogens, _points(atoms, new, parent, fixed, hydrogens), strict=True):
                new[h] = point
    return new


def _hydroxyl_candidates(atoms: Atoms, positions: np.ndarray, parent: int, neighbour: int) -> list[np.ndarray]:
    """Where the hydrogen of an OH or SH may be: staggered, or flat on a planar carbon."""
    before = _another(atoms, neighbour, parent)
    if before is None:
        return [positions[b] for b in atoms.neighbours[parent] if atoms.element[b] in HYDROGENS]
    element = str(atoms.element[parent])
    turns = (180.0, 0.0) if _is_planar(atoms, neighbour) else (180.0, 60.0, -60.0)
    spokes = (positions[before], positions[neighbour], positions[parent])
    return [place(*spokes, H_LENGTH[element], H_ANGLE[element], radians(turn)) for turn in turns]


def _room(
    point: np.ndarray, tree: cKDTree, heavy: np.ndarray, contact: np.ndarray, positions: np.ndarray, skip: set[int]
) -> float:
    """How far a polar hydrogen is from bumping into anything; acceptors may come nearer than other atoms."""
    near = [k for k in tree.query_ball_point(point, _NEIGHBOURHOOD) if int(heavy[k]) not in skip]
    if not near:
        return _NEIGHBOURHOOD
    return float((np.linalg.norm(positions[heavy[near]] - point, axis=1) - contact[near]).min())


def _points(
    atoms: Atoms, positions: np.ndarray, parent: int, fixed: list[int], hydrogens: list[int]
) -> list[np.ndarray]:
    """Places of the hydrogens of one atom, given its other neighbours."""
    element = str(atoms.element[parent])
    centre = positions[parent]
    count = len(hydrogens)
    if not fixed:
        is_water = element == "O" and count == 2
        return _water(positions, parent, hydrogens) if is_water else [positions[h] for h in hydrogens]
    around = [positions[b] for b in fixed]
    if count == 1 and len(fixed) >= 2:
        return [inline_hydrogen(element, centre, around)]
    if count == 2 and len(fixed) == 2:
        first, second = _nearer_backbone_first(atoms, parent, fixed)
        return list(methylene_hydrogens(element, centre, positions[first], positions[second]))
    before = _another(atoms, fixed[0], parent)
    if before is None:
        return [positions[h] for h in hydrogens]
    planar = count == 2 and _is_planar(atoms, fixed[0])
    return rotor_hydrogens(count, element, positions[before], around[0], centre, planar=planar)


def _another(atoms: Atoms, atom: int, apart_from: int) -> int | None:
    """A further neighbour of `atom`, a heavy one if there is one."""
    others = [b for b in atoms.neighbours[atom] if b != apart_from]
    return min(others, key=lambda b: (atoms.element[b] in HYDROGENS, b), default=None)


def _is_planar(atoms: Atoms, atom: int) -> bool:
    return atoms.element[atom] == "C" and len(atoms.neighbours[atom]) == 3


def _nearer_backbone_first(atoms: Atoms, parent: int, fixed: list[int]) -> list[int]:
    """Order two neighbours as the names of a CH2's hydrogens want it: along the side chain from CA; for CA, N first."""
    start = atoms.residue_atoms[int(atoms.residue[parent])].get("CA", parent)
    # N is passed by: proline's ring is counted from CB on.
    distance = steps_from(
        start, lambda atom: [b for b in atoms.neighbours[atom] if b != parent and atoms.name[b] not in ("N", "C")]
    )
    return sorted(fixed, key=lambda b: (distance.get(b, 99), atoms.name[b] != "N"))


def _water(positions: np.ndarray, oxygen: int, hydrogens: list[int]) -> list[np.ndarray]:
    """Keep the directions of a water, make its shape right."""
    centre = positions[oxygen]
    first = unit(positions[hydrogens[0]] - centre)
    second = positions[hydrogens[1]] - centre
    side = unit(second - (second @ first) * first)
    return [
        centre + _WATER_OH * first,
        centre + _WATER_OH * (cos(_WATER_ANGLE) * first + sin(_WATER_ANGLE) * side),
    ]

"""Side chains without clashes: standard rotamers, and the choice among them.

The choice is deterministic and costs O(n). Every side chain takes in turn the rotamer with the least repulsion
from the backbone and from the side chains that already stand; side chains whose neighbourhood has changed
then choose again, until nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import cos, radians
from types import MappingProxyType

import numpy as np

from peptidyn.io.residue_templates import POLAR_ROTORS, ResidueTemplate, residue_templates

VDW_RADII = MappingProxyType({"H": 0.110, "C": 0.170, "N": 0.155, "O": 0.152, "S": 0.180})
"""Van der Waals radii, nm (Bondi; hydrogen after Rowland and Taylor)."""

_GAUCHE = (-65.0, 180.0, 62.0)
_LINEAR = (180.0, -65.0, 65.0)

# Degrees, the commonest first. Pairs of chi angles that depend on each other are listed, the others multiplied out.
# The last ones of Ile and Val are not staggered: nothing else fits a fully extended chain (phi = psi = 180).
_ROTAMERS: dict[str, tuple[tuple[float, ...], ...]] = {
    "ARG": tuple((*c, 0.0) for c in product(_GAUCHE, _LINEAR, _LINEAR, (180.0, -85.0, 85.0))),
    "ASN": ((-65, -20), (-177, 30), (-65, 120), (-65, -75), (62, 30), (62, -10), (-174, -20)),
    "ASP": ((-70, -15), (-177, 0), (62, 10), (-177, 65), (62, -30)),
    "CYS": ((-65,), (-177,), (62,)),
    "GLN": tuple(product(_GAUCHE, _LINEAR, (0.0, -60.0, 60.0, 120.0, -120.0))),
    "GLU": tuple(product(_GAUCHE, _LINEAR, (0.0, -40.0, 40.0, 90.0))),
    "HIS": ((-65, -70), (-177, 60), (-65, 165), (-65, 80), (-177, -165), (-177, -80), (62, -75), (62, 80)),
    "ILE": ((-65, 170), (-57, -60), (62, 170), (-177, 165), (-177, 66), (-145, 165)),
    "LEU": ((-65, 175), (-177, 65), (-172, 145), (-85, 65), (62, 80)),
    "LYS": tuple(product(_GAUCHE, _LINEAR, _LINEAR, _LINEAR)),
    "MET": tuple(product(_GAUCHE, _LINEAR, (180.0, -70.0, 70.0))),
    "PHE": ((-65, -85), (-177, 80), (-65, -30), (62, 90)),
    "SER": ((62,), (-65,), (-177,)),
    "THR": ((62,), (-65,), (-175,)),
    "TRP": ((-65, 95), (-177, -105), (-177, 90), (-65, -5), (62, -90), (62, 90), (-65, -90)),
    "TYR": ((-65, -85), (-177, 80), (-65, -30), (62, 90)),
    "VAL": ((175,), (-60,), (63,), (95,)),
}
_POLAR = {"CYS": (180.0, 62.0, -65.0), "SER": (180.0, 62.0, -65.0), "THR": (180.0, 62.0, -65.0), "TYR": (0.0, 180.0)}

# Repulsion of a pair is (contact / distance)^12: one at the distance where atoms begin to overlap in earnest.
_CONTACT = 0.9
_PREFERENCE = 0.02  # per place down the list of rotamers: decides only between side chains that both fit
_FINE = radians(12.0)
_ECLIPSING = 2.5  # cost of chi1: this times 1 + cos 3 chi1
_REACH = 0.4  # nm around a side chain beyond which repulsion does not matter
_HYDROGEN_BOND = 0.16  # nm between hydrogen and acceptor
_HOPELESS = 100.0  # cost above the best against the backbone alone at which a rotamer is given up
_SWEEPS = 20


@dataclass(frozen=True)
class Conformers:
    """The rotamers of one residue in its own frame.

    Attributes
    ----------
    xyz : (n_conformers, n_atoms, 3)
        nm, rows as in the template.
    cost : (n_conformers,)
        What each costs by itself: strain between its own atoms, and rarity.
    """

    xyz: np.ndarray
    cost: np.ndarray


@lru_cache(maxsize=256)
def conformers(letter: str, chi: tuple[float, ...], phi: float | None, fine: bool = False) -> Conformers:
    """Return the rotamers of a residue.

    Parameters
    ----------
    letter : str
        One-letter code.
    chi : tuple of float
        The first chi angles, rad, where they are prescribed; the others are left to the rotamers.
    phi : float or None
        rad; shapes the ring of proline and nothing else.
    fine : bool
        Vary chi1 and chi2 of every rotamer by a few degrees, for side chains that do not fit otherwise.
    """
    template = residue_templates()[letter]
    if letter == "P":
        assert phi is not None
        xyz = template.proline_conformers(phi)
        rarity = np.array([0.0, 0.0])
    else:
        rank: dict[tuple[float, ...], int] = {}
        for order, rotamer in enumerate(_ROTAMERS.get(template.name, ((),))):
            full = (*chi, *map(radians, rotamer[len(chi) :]))
            for varied in _varied(full, len(chi)) if fine else [full]:
                rank.setdefault(varied, order)
        turns = [radians(t) for t in _POLAR[template.name]] if template.name in POLAR_ROTORS else [None]
        both = list(product(rank, turns))
        xyz = np.array([template.conformer(c, turn) for c, turn in both])
        rarity = np.array([_PREFERENCE * rank[c] for c, _ in both])
        rarity += [_ECLIPSING * (1.0 + cos(3.0 * c[0])) if c else 0.0 for c, _ in both]
    cost = _strain(template, xyz) + rarity
    for array in (xyz, cost):  # they are cached
        array.setflags(write=False)
    return Conformers(xyz, cost)


def _varied(rotamer: tuple[float, ...], fixed: int) -> list[tuple[float, ...]]:
    """Return the rotamer and its neighbours by `_FINE` in chi1 and chi2, but for the `fixed` first angles."""
    steps = [(0.0, -_FINE, _FINE) if fixed <= k < 2 else (0.0,) for k in range(len(rotamer))]
    return [tuple(a + s for a, s in zip(rotamer, shift, strict=True)) for shift in product(*steps)]


def _strain(template: ResidueTemplate, xyz: np.ndarray) -> np.ndarray:
    radii = np.array([VDW_RADII[name[0]] for name in template.names])
    n = len(template.names)
    first, second = np.triu_indices(n)
    apart = ~within_three_bonds(n, np.array(template.bonds)).hold(first, second)
    first, second = first[apart], second[apart]
    squared = ((xyz[:, first] - xyz[:, second]) ** 2).sum(axis=-1)
    ratio = (_CONTACT * (radii[first] + radii[second])) ** 2 / squared
    return (ratio**6).sum(axis=-1)


@dataclass(frozen=True)
class Pairs:
    """A set of pairs of atoms.

    Attributes
    ----------
    codes : (n,) int
        i n_atoms + j of all pairs in both orders, sorted.
    n_atoms : int
    """

    codes: np.ndarray
    n_atoms: int

    def hold(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Return which of the pairs (i, j) are in the set; shapes as numpy broadcasts them."""
        wanted = i * self.n_atoms + j
        found = np.searchsorted(self.codes, wanted)
        return self.codes[np.minimum(found, len(self.codes) - 1)] == wanted


def within_three_bonds(n_atoms: int, bonds: np.ndarray) -> Pairs:
    """Return the pairs, self included, that at most three bonds join."""
    ends = np.concatenate([bonds, bonds[:, ::-1]])
    ends = ends[np.argsort(ends[:, 0], kind="stable")]
    degree = np.bincount(ends[:, 0], minlength=n_atoms)
    column = np.arange(len(ends)) - np.repeat(np.cumsum(degree) - degree, degree)
    # every atom with its partners, filled up with itself
    around = np.repeat(np.arange(n_atoms)[:, None], 1 + degree.max(initial=0), axis=1)
    around[ends[:, 0], 1 + column] = ends[:, 1]
    reached = around[around[around]].reshape(n_atoms, -1)
    return Pairs(np.unique(np.arange(n_atoms)[:, None] * n_atoms + reached), n_atoms)


def close_pairs(positions: np.ndarray, distance: float) -> tuple[np.ndarray, np.ndarray]:
    """Return atoms i < j of all pairs nearer than `distance`, by cells of that size; O(n).

    As `cKDTree.query_pairs` does it, without the import of scipy.spatial, which takes longer than to build a peptide.
    """
    cell = np.floor((positions - positions.min(axis=0)) / distance).astype(np.int64) + 1
    stride = np.cumprod([1, *(cell.max(axis=0) + 2)])[:3]
    key = cell @ stride
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    found = []
    for offset in product((-1, 0, 1), repeat=3):
        beside = key + stride @ offset
        first = np.searchsorted(ordered, beside)
        count = np.searchsorted(ordered, beside, "right") - first
        i = np.repeat(np.arange(len(key)), count)
        j = order[np.arange(len(i)) + np.repeat(first - (np.cumsum(count) - count), count)]
        keep = i < j
        found.append((i[keep], j[keep]))
    i, j = (np.concatenate(part) for part in zip(*found, strict=True))
    near = ((positions[i] - positions[j]) ** 2).sum(axis=1) < distance**2
    return i[near], j[near]


def pack(
    positions: np.ndarray,
    elements: Sequence[str],
    near: Pairs,
    rows: Sequence[np.ndarray],
    choices: Sequence[np.ndarray],
    costs: Sequence[np.ndarray],
) -> np.ndarray:
    """Choose a rotamer for every residue.

    Parameters
    ----------
    positions, elements : (n_atoms, 3), nm, and (n_atoms,) str
        Side chains may be anywhere.
    near : Pairs
        Those that do not repel each other, see `within_three_bonds`.
    rows : list of (m,) int
        The atoms that the rotamers of each residue place.
    choices, costs : list of (k, m, 3), nm, and of (k,)
        Where each rotamer would place them, and what it costs by itself.

    Returns
    -------
    (n_atoms, 3)
        `positions` with every side chain in its rotamer.
    """
    xyz = positions.copy()
    contact = _CONTACT * np.array([VDW_RADII[e] for e in elements])
    several = [r for r in range(len(rows)) if len(choices[r]) > 1]
    for r in set(range(len(rows))).difference(several):
        xyz[rows[r]] = choices[r][0]
    if not several:
        return xyz
    from scipy.spatial import cKDTree

    standing = np.setdiff1d(np.arange(len(xyz)), np.concatenate([rows[r] for r in several]))
    tree = cKDTree(xyz[standing])
    free = []
    for r in several:
        centre = choices[r].reshape(-1, 3).mean(axis=0)
        reach = np.linalg.norm(choices[r] - centre, axis=-1).max()
        backbone = standing[tree.query_ball_point(centre, reach + _REACH)]
        limit = contact[rows[r]][:, None] + contact[backbone]
        limit[near.hold(rows[r][:, None], backbone)] = 0.0
        cost = costs[r] + _repulsion(choices[r], xyz[backbone], limit)
        hopeful = cost <= cost.min() + _HOPELESS
        free.append(_Free(rows[r], choices[r][hopeful], cost[hopeful], centre, reach))
    _settle(free, xyz, contact)
    return xyz


@dataclass(frozen=True)
class _Free:
    """A side chain that has a choice: its atoms, their places (k, m, 3) and costs (k,), and a ball around them all."""

    rows: np.ndarray
    places: np.ndarray
    cost: np.ndarray
    centre: np.ndarray
    reach: float


def _settle(free: list[_Free], xyz: np.ndarray, contact: np.ndarray) -> None:
    """Put the side chains into their rotamers, in place, one after the other until nothing changes."""
    beside = _neighbours(free)
    chosen: dict[int, int] = {}
    waiting = list(range(len(free)))
    for _ in range(_SWEEPS):
        changed = set()
        for k in waiting:
            this, total = free[k], free[k].cost
            placed = [free[other].rows for other in beside[k] if other in chosen]
            if placed:
                others = np.concatenate(placed)
                others = others[np.linalg.norm(xyz[others] - this.centre, axis=1) < this.reach + _REACH]
                # side chains of two residues are never within three bonds of each other
                total = total + _repulsion(this.places, xyz[others], contact[this.rows][:, None] + contact[others])
            best = int(np.argmin(total))
            if chosen.get(k) != best:
                chosen[k] = best
                xyz[this.rows] = this.places[best]
                changed.add(k)
        waiting = [k for k in range(len(free)) if changed.intersection(beside[k])]
        if not waiting:
            break


def _repulsion(places: np.ndarray, others: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Return what each rotamer (k, m, 3) costs among the atoms at `others` (n, 3), with contact distances (m, n)."""
    from scipy.spatial.distance import cdist

    ratio = cdist(places.reshape(-1, 3), others, "sqeuclidean").reshape(*places.shape[:2], len(others))
    np.divide(limit**2, ratio, out=ratio)
    cubed = ratio * ratio * ratio
    return np.einsum("kij,kij->k", cubed, cubed)


def _neighbours(free: list[_Free]) -> list[list[int]]:
    """Return for every side chain the others that it can touch."""
    from scipy.spatial import cKDTree

    tree = cKDTree([f.centre for f in free])
    reach = np.array([f.reach for f in free])
    around = tree.query_ball_point(tree.data, reach + reach.max() + _REACH)
    return [sorted(k for k in near if k != own) for own, near in enumerate(around)]


def overlaps(
    positions: np.ndarray, elements: Sequence[str], bonds: np.ndarray, near: Pairs, limit: float
) -> np.ndarray:
    """Return the pairs of atoms that overlap, the worst first: (n, 2) int.

    They are nearer than `limit` times the sum of their van der Waals radii; where one is a hydrogen on N or O
    and the other N or O, nearer than 0.16 nm. Pairs that at most three bonds join (`near`) do not count.
    """
    radii = np.array([VDW_RADII[e] for e in elements])
    polar = np.isin(elements, ("N", "O"))
    hydrogen = np.asarray(elements) == "H"
    donated = np.zeros(len(radii), dtype=bool)
    for a, b in (bonds.T, bonds.T[::-1]):
        donated[b[hydrogen[b] & polar[a]]] = True
    i, j = close_pairs(positions, 2.0 * limit * radii.max())
    apart = ~near.hold(i, j)
    i, j = i[apart], j[apart]
    allowed = limit * (radii[i] + radii[j])
    allowed[(donated[i] & polar[j]) | (polar[i] & donated[j])] = _HYDROGEN_BOND
    ratio = np.linalg.norm(positions[i] - positions[j], axis=1) / allowed
    order = np.lexsort((j, i, ratio))
    return np.column_stack([i, j])[order][ratio[order] < 1.0]

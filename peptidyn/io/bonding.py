"""Bonds: those a file or a residue template names, judged by distance, and those that neither names.

A reader hands over the bonds of OpenMM's residue templates and of the file's own records. Templates join
neighbours of a chain whatever lies between them, records list metal contacts and hydrogen bonds beside covalent
bonds, and residues that OpenMM does not know come without any. Here every bond between residues is judged by its
length, disulfides and other links are found, and unknown residues get their bonds from distances.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from peptidyn.core.atoms import Atoms, steps_from
from peptidyn.core.errors import StructureError
from peptidyn.core.residues import ACYL_CAPS, AMINE_CAPS, HYDROGENS, WATER, has_backbone
from peptidyn.io.composition import standard_residues
from peptidyn.io.notes import Note, counted, some
from peptidyn.io.topology import Bonds

PEPTIDE_BOND_LIMIT = 0.2
"""C-N distances above this (nm) are chain breaks; a peptide bond has 0.133."""

DISULFIDE_LIMIT = 0.3
"""Two sulfurs of cysteines nearer than this (nm) are bonded, as in OpenMM; a disulfide has 0.205, a contact 0.35."""

COINCIDENT = 1e-3
"""Atoms nearer than this (nm) are at the same place."""

_HYDROGEN_REACH = 0.16
"""A hydrogen is bonded to the nearest heavy atom within this (nm); Se-H has 0.146."""

_SLACK = 0.045
"""Two atoms of an unknown residue are bonded up to the sum of their covalent radii plus this (nm)."""

_LINK_SLACK = 0.02
"""The same between residues, where a bond that is not there would join two molecules."""

_STRETCH = 1.45
"""A bond longer than this many sums of covalent radii is not a bond, whatever a record says."""

# Covalent radii in nm (Cordero et al., Dalton Trans. 2008, 2832).
_RADII = {
    **{"H": 0.031, "D": 0.031, "B": 0.084, "C": 0.076, "N": 0.071, "O": 0.066, "F": 0.057, "Si": 0.111},
    **{"P": 0.107, "S": 0.105, "Cl": 0.102, "As": 0.119, "Se": 0.120, "Br": 0.120, "Te": 0.138, "I": 0.139},
    **{"Mg": 0.141, "Al": 0.121, "V": 0.153, "Cr": 0.139, "Mn": 0.139, "Fe": 0.132, "Co": 0.126, "Ni": 0.124},
    **{"Cu": 0.132, "Zn": 0.122, "Mo": 0.154, "Ru": 0.146, "Rh": 0.142, "Pd": 0.139, "Cd": 0.144, "W": 0.162},
    **{"Re": 0.151, "Os": 0.144, "Ir": 0.141, "Pt": 0.136, "Au": 0.136, "Hg": 0.132},
}
_OTHER_METAL = 0.15
_NONMETALS = frozenset("H D B C N O F Si P S Cl As Se Br Te I He Ne Ar Kr Xe".split())
_MOST_BONDS = {"H": 1, "D": 1, "C": 4, "N": 4, "O": 3, "F": 1}


def longest_bonds(atoms: Atoms, pairs: np.ndarray) -> np.ndarray:
    """Return how long a bond between the atoms of each pair (n, 2) can be at most (n,), nm."""
    radius = _radii(atoms)
    return _STRETCH * (radius[pairs[:, 0]] + radius[pairs[:, 1]])


def _radii(atoms: Atoms) -> np.ndarray:
    return np.array([_RADII.get(e, _OTHER_METAL) for e in atoms.element.tolist()])


class _Perception:
    """The bonds while they are being settled, and what was noticed on the way."""

    def __init__(self, atoms: Atoms, positions: np.ndarray, recorded: Bonds) -> None:
        self.atoms = atoms
        self.positions = positions
        self.bonds: Bonds = {}
        self.near: list[set[int]] = [set() for _ in range(atoms.n_atoms)]
        self.notes: list[Note] = []
        self.element = atoms.element.tolist()
        self.residue = atoms.residue.tolist()
        self.radius = _radii(atoms)
        self.members: list[list[int]] = [[] for _ in range(atoms.n_residues)]
        for atom, residue in enumerate(self.residue):
            self.members[residue].append(atom)
        self.standard = [name in standard_residues() for name in atoms.residue_name.tolist()]
        for pair, kind in recorded.items():
            self.add(*pair, kind)

    def add(self, i: int, j: int, kind: tuple[Any, int | None] = (None, None)) -> None:
        i, j = sorted((int(i), int(j)))
        self.bonds.setdefault((i, j), kind)
        self.near[i].add(j)
        self.near[j].add(i)

    def remove(self, i: int, j: int) -> None:
        del self.bonds[i, j]
        self.near[i].discard(j)
        self.near[j].discard(i)

    def note(self, kind: str, text: str, atoms: Iterable[int]) -> None:
        self.notes.append(Note(kind, text, tuple(int(a) for a in atoms)))

    def note_pairs(self, kind: str, text: str, pairs: list[tuple[int, int]]) -> None:
        """Note something about pairs of atoms, if there are any, and list them."""
        if pairs:
            listed = some([f"{self.atoms.label(i)} - {self.atoms.label(j)}" for i, j in pairs])
            self.note(kind, f"{text}: {listed}", [a for pair in pairs for a in pair])

    def note_residues(self, kind: str, text: str, residues: list[int]) -> None:
        """Note something about residues, if there are any, and list them; ``{}`` becomes ``3 residues``."""
        if residues:
            listed = some([self.atoms.residue_label(r) for r in residues])
            text = text.format(counted(len(residues), "residue"))
            self.note(kind, f"{text}: {listed}", [a for r in residues for a in self.members[r]])

    def note_gap(self, r: int, s: int, i: int, j: int) -> None:
        """Note that the chain is broken between two residues, where two atoms should be bonded."""
        where = f"{self.atoms.residue_label(r)} and {self.atoms.residue_label(s)}"
        names = f"{self.atoms.name[i]} and {self.atoms.name[j]}"
        distance = self.distance(i, j)
        self.note("gap", f"the chain is broken between {where}: {names} are {distance:.3f} nm apart", (i, j))

    def distance(self, i: int, j: int) -> float:
        return float(np.linalg.norm(self.positions[i] - self.positions[j]))

    def is_metal(self, atom: int) -> bool:
        return self.element[atom] not in _NONMETALS

    def is_hydrogen(self, atom: int) -> bool:
        return self.element[atom] in HYDROGENS

    def is_ion(self, atom: int) -> bool:
        """A residue of one atom that is not part of a chain: a metal, a halide, a noble gas."""
        alone = len(self.members[self.residue[atom]]) == 1
        return alone and self.element[atom] not in ("C", "N", "O", "S", "P", "H", "D", "Se", "B", "Si")

    def is_water(self, atom: int) -> bool:
        return bool(self.atoms.residue_name[self.residue[atom]] == WATER)

    def has_room(self, atom: int) -> bool:
        """Whether the atom can take one more bond."""
        return len(self.near[atom]) < _MOST_BONDS.get(self.element[atom], 8)

    def linked(self, atom: int) -> bool:
        """Whether the atom is bonded to another residue."""
        return any(self.residue[other] != self.residue[atom] for other in self.near[atom])


def possible_bonds(atoms: Atoms, recorded: Bonds) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of atoms (n, 2) that may be bonded, and how long their bonds can be (n,), nm.

    Recorded bonds, neighbours of a chain, cysteines, and all pairs within residues without a template: enough to put a
    molecule together that was split at a box wall, before its bonds are settled by distance.
    """
    limits: dict[tuple[int, int], float] = {}
    tables = atoms.residue_atoms
    for r in range(atoms.n_residues - 1):
        if atoms.residue_chain[r] == atoms.residue_chain[r + 1] and "C" in tables[r] and "N" in tables[r + 1]:
            limits[tables[r]["C"], tables[r + 1]["N"]] = PEPTIDE_BOND_LIMIT
    sulfurs = [table["SG"] for table in tables if {"SG", "CB"} <= table.keys()]
    limits |= dict.fromkeys(combinations(sulfurs, 2), DISULFIDE_LIMIT)
    radius = _radii(atoms)
    bonded = {atom for pair in recorded for atom in pair}
    for r, name in enumerate(atoms.residue_name.tolist()):
        members = sorted(tables[r].values())
        if name not in standard_residues() and not bonded.issuperset(members):
            limits |= {(i, j): float(radius[i] + radius[j]) + _SLACK for i, j in combinations(members, 2)}
    others = np.array([pair for pair in recorded if pair not in limits], dtype=np.int64).reshape(-1, 2)
    pairs = np.concatenate([others, np.array(list(limits), dtype=np.int64).reshape(-1, 2)])
    return pairs, np.concatenate([longest_bonds(atoms, others), np.array(list(limits.values()), dtype=np.float64)])


def settle_bonds(atoms: Atoms, positions: np.ndarray, recorded: Bonds) -> tuple[Bonds, list[Note]]:
    """Judge the bonds that a reader found and add the ones it could not know.

    Parameters
    ----------
    atoms : Atoms
        Its own bonds are not looked at.
    positions : (n_atoms, 3)
        nm.
    recorded : Bonds
        From residue templates and from the file's records.

    Returns
    -------
    bonds : Bonds
    notes : list of Note
        Kinds ``gap``, ``disulfide``, ``link``, ``coordination``, ``dropped-bond``, ``inferred-bonds``, ``long-bond``,
        ``stray``, ``pieces``, ``close-contact``.

    Notes
    -----
    O(n log n): distances are searched with a k-d tree.
    """
    work = _Perception(atoms, positions, recorded)
    _check_separation_within_residues(work)
    _drop_contacts(work)
    _judge_chain_neighbours(work)
    _drop_stretched_links(work)
    _bond_disulfides(work)
    _bond_unknown_residues(work)
    _bond_loose_atoms(work)
    _bond_links(work)
    _note_oddities(work)
    return work.bonds, work.notes


def _check_separation_within_residues(work: _Perception) -> None:
    for i, j in coincident_pairs(work.positions):
        if work.residue[i] == work.residue[j]:
            raise coincidence_error(work.atoms, i, j)


def coincident_pairs(positions: np.ndarray) -> list[tuple[int, int]]:
    """Return pairs of atoms at the same place: each atom with its nearest, if nearer than `COINCIDENT`."""
    if len(positions) < 2:
        return []
    # Only the nearest neighbour is asked for: a file of equal coordinates would have n^2 pairs.
    distance, nearest = cKDTree(positions).query(positions, k=2)
    own = np.arange(len(positions))
    other = np.where(nearest[:, 1] == own, nearest[:, 0], nearest[:, 1])
    at = np.flatnonzero(distance[:, 1] < COINCIDENT)
    return sorted({(min(i, j), max(i, j)) for i, j in zip(at.tolist(), other[at].tolist(), strict=True)})


def coincidence_error(atoms: Atoms, i: int, j: int) -> StructureError:
    return StructureError(
        f"{atoms.label(i)} and {atoms.label(j)} of one molecule are at the same place; repair the coordinates"
    )


def _drop_contacts(work: _Perception) -> None:
    """Records of metal coordination and hydrogen bonds are no covalent bonds: an ion stays an ion."""
    coordination, contacts = [], []
    for i, j in list(work.bonds):
        between = work.residue[i] != work.residue[j]
        if between and (work.is_metal(i) or work.is_metal(j) or work.is_ion(i) or work.is_ion(j)):
            coordination.append((i, j))
        elif between and (work.is_water(i) or work.is_water(j)):
            contacts.append((i, j))
        elif work.is_hydrogen(i) and work.is_hydrogen(j) and len(work.members[work.residue[i]]) > 2:
            contacts.append((i, j))
        else:
            continue
        work.remove(i, j)
    work.note_pairs("coordination", "recorded contacts of metals and ions are not bonds here", coordination)
    work.note_pairs("dropped-bond", "recorded bonds of water or between hydrogens were left out", contacts)


def _judge_chain_neighbours(work: _Perception) -> None:
    """Bond C to the next N of the same chain if they are near enough, and only then."""
    atoms = work.atoms
    lacking: list[str] = []
    at: list[int] = []
    for r in range(atoms.n_residues - 1):
        s = r + 1
        if atoms.residue_chain[r] != atoms.residue_chain[s]:
            continue
        if not (_in_chain(work, r, ACYL_CAPS) and _in_chain(work, s, AMINE_CAPS)):
            _judge_other_neighbours(work, r, s)
            continue
        carbon, nitrogen = atoms.residue_atoms[r].get("C"), atoms.residue_atoms[s].get("N")
        if carbon is None or nitrogen is None:
            lacking.append(
                f"{atoms.residue_label(r)}, atom C" if carbon is None else f"{atoms.residue_label(s)}, atom N"
            )
            at += work.members[s]
            continue
        if work.distance(carbon, nitrogen) <= PEPTIDE_BOND_LIMIT:
            work.add(carbon, nitrogen)
            continue
        if (carbon, nitrogen) in work.bonds:
            work.remove(carbon, nitrogen)
        # Where both are bonded elsewhere, they are neighbours in the list, not in the molecule.
        if not (work.linked(carbon) and work.linked(nitrogen)):
            work.note_gap(r, s, carbon, nitrogen)
    if lacking:
        work.note(
            "gap",
            f"the chain is broken in {counted(len(lacking), 'place')} where atoms are missing: {some(lacking)}",
            at,
        )


def _in_chain(work: _Perception, residue: int, caps: frozenset[str]) -> bool:
    """Whether a residue is an amino acid, or one of the caps that may stand at this end; bonds are not known yet."""
    name = str(work.atoms.residue_name[residue])
    if name in caps:
        return True
    template = standard_residues().get(name)
    if template is not None:
        return template.is_amino_acid
    return has_backbone(work.atoms.residue_atoms[residue])


def _judge_other_neighbours(work: _Perception, r: int, s: int) -> None:
    """Nucleotides: a phosphate bond that a template drew across a gap."""
    oxygen, phosphorus = work.atoms.residue_atoms[r].get("O3'"), work.atoms.residue_atoms[s].get("P")
    if oxygen is None or phosphorus is None or (oxygen, phosphorus) not in work.bonds:
        return
    if work.distance(oxygen, phosphorus) > _STRETCH * float(work.radius[oxygen] + work.radius[phosphorus]):
        work.remove(oxygen, phosphorus)
        work.note_gap(r, s, oxygen, phosphorus)


def _drop_stretched_links(work: _Perception) -> None:
    """Records may join symmetry copies, or count atoms anew after 99,999: such bonds are far too long."""
    for i, j in _stretched(work):
        if work.residue[i] != work.residue[j]:
            distance = work.distance(i, j)
            work.remove(i, j)
            work.note(
                "dropped-bond",
                f"the recorded bond {work.atoms.label(i)} - {work.atoms.label(j)} was left out: it would be "
                f"{distance:.3f} nm long",
                (i, j),
            )


def _stretched(work: _Perception) -> list[tuple[int, int]]:
    """Bonds that are far longer than bonds are."""
    pairs = np.array(sorted(work.bonds), dtype=np.int64).reshape(-1, 2)
    length = np.linalg.norm(work.positions[pairs[:, 0]] - work.positions[pairs[:, 1]], axis=1)
    return [(int(a), int(b)) for a, b in pairs[length > longest_bonds(work.atoms, pairs)]]


def _bond_disulfides(work: _Perception) -> None:
    """Bond the sulfurs of cysteines, nearest pairs first, each once."""
    atoms = work.atoms
    sulfurs = [
        table["SG"]
        for table in atoms.residue_atoms
        if "SG" in table and "CB" in table and work.element[table["SG"]] == "S"
    ]
    free = [s for s in sulfurs if not work.linked(s) and not any(work.is_hydrogen(b) for b in work.near[s])]
    if len(free) > 1:
        pairs = cKDTree(work.positions[free]).query_pairs(DISULFIDE_LIMIT)
        ranked = sorted((work.distance(free[a], free[b]), free[a], free[b]) for a, b in pairs)
        for _, i, j in ranked:
            if not work.linked(i) and not work.linked(j):
                work.add(i, j)
    for i, j in sorted(work.bonds):
        if work.element[i] == work.element[j] == "S" and work.residue[i] != work.residue[j]:
            work.note(
                "disulfide",
                f"disulfide bond between {atoms.label(i)} and {atoms.label(j)} ({work.distance(i, j):.3f} nm)",
                (i, j),
            )


def _bond_unknown_residues(work: _Perception) -> None:
    """Give residues without a template the bonds that their distances show, unless records already join them."""
    inferred: list[int] = []
    for residue, members in enumerate(work.members):
        if work.standard[residue] or len(members) < 2 or _is_whole(work, members):
            continue
        _bond_heavy_atoms(work, members, members)
        _bond_hydrogens(work, members)
        for atom in members:
            if len(work.near[atom]) > _MOST_BONDS.get(work.element[atom], 8):
                raise StructureError(
                    f"{work.atoms.residue_label(residue)} is not a standard residue and its bonds cannot be told from "
                    f"its coordinates: atom {work.atoms.name[atom]} would have {len(work.near[atom])} bonds; "
                    "repair the coordinates or give CONECT records"
                )
        inferred.append(residue)
    work.note_residues("inferred-bonds", "bonds within {} without a template inferred from distances", inferred)


def _is_whole(work: _Perception, members: list[int]) -> bool:
    """Whether bonds inside the residue connect all of it."""
    inside = set(members)
    return len(steps_from(members[0], lambda atom: work.near[atom] & inside)) == len(members)


def _bond_heavy_atoms(work: _Perception, loose: list[int], members: list[int]) -> list[int]:
    """Bond each atom of `loose` to the heavy atoms of the residue within reach; return the atoms that were bonded."""
    heavy = [a for a in members if not work.is_hydrogen(a)]
    loose_heavy = [a for a in loose if not work.is_hydrogen(a)]
    if len(heavy) < 2 or not loose_heavy:
        return []
    reach = 2 * float(work.radius[heavy].max()) + _SLACK
    changed = []
    for atom, found in zip(
        loose_heavy, cKDTree(work.positions[heavy]).query_ball_point(work.positions[loose_heavy], reach), strict=True
    ):
        for other in (heavy[k] for k in found):
            both_metal = work.is_metal(atom) and work.is_metal(other)
            limit = float(work.radius[atom] + work.radius[other]) + _SLACK
            if other != atom and not both_metal and work.distance(atom, other) <= limit:
                work.add(atom, other)
                changed.append(atom)
    return changed


def _bond_hydrogens(work: _Perception, members: list[int]) -> list[int]:
    """Bond hydrogens without a bond to the nearest heavy atom of the residue; return the ones that were bonded."""
    loose = [a for a in members if work.is_hydrogen(a) and not work.near[a]]
    heavy = [a for a in members if not work.is_hydrogen(a) and not work.is_metal(a)]
    if not loose or not heavy:
        return []
    distance, nearest = cKDTree(work.positions[heavy]).query(work.positions[loose])
    changed = []
    for atom, d, k in zip(loose, distance.tolist(), nearest.tolist(), strict=True):
        if d <= _HYDROGEN_REACH:
            work.add(atom, heavy[k])
            changed.append(atom)
    return changed


def _bond_loose_atoms(work: _Perception) -> None:
    """Atoms of standard residues that no template names (odd hydrogen names, say) are bonded by distance."""
    changed: list[int] = []
    for residue, members in enumerate(work.members):
        if work.standard[residue] and len(members) > 1:
            loose = [a for a in members if not work.near[a]]
            if loose:
                changed += _bond_heavy_atoms(work, loose, members)
                changed += _bond_hydrogens(work, members)
    if changed:
        unique = sorted(set(changed))
        work.note(
            "inferred-bonds",
            f"{counted(len(unique), 'atom')} with names unknown to the template of the residue bonded by distance: "
            f"{work.atoms.labels(unique)}",
            unique,
        )


def _bond_links(work: _Perception) -> None:
    """Bonds between residues that nobody recorded: glycosylation, modified neighbours, rings closed end to end."""
    heavy = [
        a
        for a in range(work.atoms.n_atoms)
        if not (work.is_hydrogen(a) or work.is_metal(a) or work.is_ion(a) or work.is_water(a))
    ]
    if len(heavy) < 2:
        return
    contacts = []
    names = work.atoms.name
    close = cKDTree(work.positions[heavy]).query_pairs(0.26, output_type="ndarray")
    near = np.linalg.norm(np.diff(work.positions[heavy][close], axis=1)[:, 0], axis=1)
    for (a, b), distance in sorted(zip(close.tolist(), near.tolist(), strict=True), key=lambda item: item[1]):
        i, j = sorted((heavy[a], heavy[b]))
        if work.residue[i] == work.residue[j] or (i, j) in work.bonds:
            continue
        if not 0.1 < distance <= float(work.radius[i] + work.radius[j]) + _LINK_SLACK:
            continue
        peptide = {str(names[i]), str(names[j])} == {"C", "N"} and not (work.linked(i) or work.linked(j))
        unknown = not (work.standard[work.residue[i]] and work.standard[work.residue[j]])
        if (peptide or unknown) and work.has_room(i) and work.has_room(j):
            work.add(i, j)
            ends = f"{work.atoms.label(i)} - {work.atoms.label(j)}"
            work.note("link", f"bond between residues by distance: {ends} ({distance:.3f} nm)", (i, j))
        else:
            contacts.append((i, j))
    text = f"{counted(len(contacts), 'pair')} of atoms within bonding distance that no record bonds"
    work.note_pairs("close-contact", text, contacts)


def _note_oddities(work: _Perception) -> None:
    stray = [
        a
        for a in range(work.atoms.n_atoms)
        if not work.near[a] and not work.is_ion(a) and not (work.is_water(a) and work.element[a] == "O")
    ]
    if stray:
        work.note("stray", f"{counted(len(stray), 'atom')} without any bond: {work.atoms.labels(stray)}", stray)
    broken = [r for r, members in enumerate(work.members) if not work.standard[r] and not _is_whole(work, members)]
    work.note_residues("pieces", "{} in pieces that no bond connects", broken)
    stretched = _stretched(work)
    text = f"{counted(len(stretched), 'bond')} far longer than bonds are (a molecule broken at a box wall?)"
    work.note_pairs("long-bond", text, stretched)

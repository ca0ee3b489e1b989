"""Chemistry -> soft bonds: which bonds can turn, what they are called, and which of them are asked for.

`find_rotors` looks at every bond that lies on no ring and says what it is:

==========  =====================================================================================
kind        bond
==========  =====================================================================================
phi         N-CA of an amino acid that follows another residue (proline's lies in its ring)
psi         CA-C followed by another residue
carboxyl    CA-C at the end of a chain: it turns the terminal oxygens; soft with "psi"
omega       C-N between residues
chi1..chi5  side-chain bonds of amino acids, counted from CA
methyl      a bond that turns nothing but the hydrogens of a carbon
polar       a bond that turns nothing but the hydrogens of N, O, S (NH3+, NH2, OH, SH)
amide       a C-N amide bond elsewhere (side chains, ligands); soft with "omega"
rotor       any other acyclic single bond, in any other molecule; soft with "chi"
==========  =====================================================================================

`find_bends` lists the backbone angles N-CA-C, CA-C-N and C-N-CA.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from peptidyn.core.atoms import Atoms, steps_from
from peptidyn.core.errors import ModelError
from peptidyn.core.geometry import bond_angle
from peptidyn.core.residues import CHI, is_amino_acid, is_hydrogen, missing_backbone, parent_name
from peptidyn.model.soft import BENDS, CHIS

DOUBLE_BOND = {("C", "C"): 0.1415, ("C", "N"): 0.1315, ("N", "N"): 0.130, ("C", "S"): 0.168, ("N", "O"): 0.130}
"""Without bond orders, shorter bonds (nm) than these are taken as double."""

COLLINEAR = 1e-3
"""Bond angles nearer than this (rad) to 0 or pi define no plane."""


@dataclass(frozen=True)
class Soft:
    """A coordinate that can be soft.

    Attributes
    ----------
    motion : str
        ``torsion``, ``bend``, ``phase`` or ``stretch``.
    kind : str
        See the table at the top of this file for torsions, `peptidyn.model.soft` for the others.
    atoms : tuple of int
        A torsion about j-k has (i, j, k, l), the dihedral that measures it. A bend has (i, j, k): everything beyond k
        turns about j. The phase of l about i-j, relative to the main atom m, has (m, i, j, l), and a stretch (j, k).
    residue : int
        Index of the residue it is counted with.
    """

    motion: str
    kind: str
    atoms: tuple[int, ...]
    residue: int


def check_backbone(atoms: Atoms) -> None:
    """Raise ModelError, naming chain, residue and atom, if an amino acid lacks N, CA or C."""
    lacking = missing_backbone(atoms)
    if lacking:
        residue, names = lacking[0]
        more = f" (and {len(lacking) - 1} more residues)" if len(lacking) > 1 else ""
        raise ModelError(
            f"{atoms.residue_label(residue)} lacks the backbone atom {' and '.join(names)}{more}; "
            "complete it with load_structure(..., add_hydrogens=True), or remove the residue"
        )


class _Namer:
    """Names the rotors of one molecule table; holds what every question needs."""

    def __init__(self, atoms: Atoms, positions: np.ndarray, whole: Atoms):
        self.atoms = atoms
        self.whole = whole
        self.positions = positions
        self.hydrogen = is_hydrogen(atoms)
        self.amino: dict[int, bool] = {}
        self.named = self._named_bonds()

    def is_amino(self, residue: int) -> bool:
        if residue not in self.amino:
            self.amino[residue] = is_amino_acid(self.atoms, residue)
        return self.amino[residue]

    def _named_bonds(self) -> dict[tuple[int, int], tuple[str, tuple[int, int, int, int]]]:
        """Side-chain torsions by name: bond (j, k) -> (kind, atoms)."""
        named = {}
        aliases = {"CD1": "CD"}  # CHARMM names isoleucine's delta carbon CD
        for residue, residue_name in enumerate(self.atoms.residue_name.tolist()):
            table = self.atoms.residue_atoms[residue]
            for kind, names in zip(CHIS, CHI.get(parent_name(residue_name), ()), strict=False):
                found = [table.get(n, table.get(aliases.get(n, n), -1)) for n in names]
                if min(found) >= 0:
                    i, j, k, l = found
                    named[min(j, k), max(j, k)] = (kind, (i, j, k, l))
        return named

    def terminal(self, k: int, j: int) -> bool:
        """True if k carries, beside j, nothing but hydrogens (and at least one)."""
        others = [a for a in self.atoms.neighbours[k] if a != j]
        return bool(others) and all(self.hydrogen[a] and len(self.atoms.neighbours[a]) == 1 for a in others)

    def plane_atom(self, j: int, k: int) -> int:
        """Return the neighbour of j that, with the bond j-k, best spans a plane; -1 if none does.

        Preference: atoms that no backbone bend moves, heavy atoms, low branch number in the name (CG1 before CG2).
        """

        def rank(a: int) -> tuple[bool, bool, str, str, int]:
            name = str(self.atoms.name[a])
            return self._beyond_bend(j, a), bool(self.hydrogen[a]), _branch(name), name, a

        candidates = sorted((a for a in self.atoms.neighbours[j] if a != k), key=rank)
        return next((a for a in candidates if self._bent(a, j, k)), -1)

    def _bent(self, i: int, j: int, k: int) -> bool:
        """True if three atoms do not lie on one line."""
        return COLLINEAR < bond_angle(self.positions[i], self.positions[j], self.positions[k]) < np.pi - COLLINEAR

    def _beyond_bend(self, j: int, a: int) -> bool:
        """True if `a` is the far atom of a backbone angle centred on j, so that opening the angle moves it."""
        names = (str(self.atoms.name[j]), str(self.atoms.name[a]))
        return names in (("CA", "C"), ("C", "N"), ("N", "CA")) and self.is_amino(int(self.atoms.residue[j]))

    def is_double(self, bond: int, j: int, k: int) -> bool:
        order = self.atoms.bond_order[bond]
        if order > 0:
            return order > 1.25
        first, second = sorted((str(self.atoms.element[j]), str(self.atoms.element[k])))
        limit = DOUBLE_BOND.get((first, second))
        if limit is None or max(len(self.atoms.neighbours[j]), len(self.atoms.neighbours[k])) > 3:
            return False
        return bool(np.linalg.norm(self.positions[j] - self.positions[k]) < limit)

    def is_amide(self, j: int, k: int) -> bool:
        """True for a bond between a nitrogen and a carbon that carries a terminal oxygen."""
        element, neighbours = self.atoms.element, self.atoms.neighbours
        if element[j] == "N":
            j, k = k, j
        return (
            element[j] == "C"
            and element[k] == "N"
            and any(element[a] == "O" and len(neighbours[a]) == 1 for a in neighbours[j])
        )

    def name(self, bond: int) -> Soft | str:
        """Return the rotor of an acyclic bond with neighbours on both sides, or why it cannot turn."""
        j, k = self.atoms.bonds[bond].tolist()
        rotor = self._backbone(j, k) or self._terminal(bond, j, k) or self._side_chain(bond, j, k)
        if rotor is not None:
            return rotor
        if self.is_double(bond, j, k):
            return "double bond"
        i, l = self.plane_atom(j, k), self.plane_atom(k, j)
        if i < 0 or l < 0:
            return "linear: turning it moves nothing"
        kind = "amide" if self.is_amide(j, k) else "rotor"
        residue = int(min(self.atoms.residue[j], self.atoms.residue[k]))
        return Soft("torsion", kind, (i, j, k, l), residue)

    def _backbone(self, j: int, k: int) -> Soft | None:
        atoms = self.atoms
        name_j, name_k = str(atoms.name[j]), str(atoms.name[k])
        residue_j, residue_k = int(atoms.residue[j]), int(atoms.residue[k])
        if residue_j == residue_k:
            if not self.is_amino(residue_j):
                return None
            table = atoms.residue_atoms[residue_j]
            if {name_j, name_k} == {"N", "CA"}:
                before = self._previous_carbon(table["N"], residue_j)
                if before in self.atoms.neighbours[table["N"]]:
                    return self._measured("phi", (before, table["N"], table["CA"], table["C"]), residue_j)
                beside = self.plane_atom(table["N"], table["CA"])
                if before >= 0 and beside >= 0:  # beyond a bond that is cut, where it measures more than this torsion
                    return self._measured("phi", (beside, table["N"], table["CA"], table["C"]), residue_j)
            elif {name_j, name_k} == {"CA", "C"}:
                after = self._next_nitrogen(table["C"], residue_j)
                if after >= 0:
                    return self._measured("psi", (table["N"], table["CA"], table["C"], after), residue_j)
                oxygen = table.get("OXT", table.get("OT2", -1))
                if oxygen < 0:
                    oxygen = self.plane_atom(table["C"], table["CA"])
                if oxygen >= 0:
                    return self._measured("carboxyl", (table["N"], table["CA"], table["C"], oxygen), residue_j)
            return None
        if {name_j, name_k} == {"C", "N"}:
            carbon, nitrogen = (j, k) if name_j == "C" else (k, j)
            if self.terminal(nitrogen, carbon):
                return None
            first = self._named_or_plane(carbon, nitrogen, ("CA", "CH3"))
            last = self._named_or_plane(nitrogen, carbon, ("CA", "CH3", "C"))
            if first >= 0 and last >= 0:
                return self._measured("omega", (first, carbon, nitrogen, last), int(atoms.residue[carbon]))
        return None

    def _terminal(self, bond: int, j: int, k: int) -> Soft | None:
        ends = [(near, far) for near, far in ((j, k), (k, j)) if self.terminal(far, near)]
        ends.sort(key=lambda pair: self.atoms.element[pair[1]] == "C")  # methanol's bond is polar, not methyl
        for near, far in ends:
            carbon = self.atoms.element[far] == "C"
            residue = int(self.atoms.residue[far])
            if (carbon or not self.is_amino(residue)) and self.is_double(bond, near, far):
                return None
            i, l = self.plane_atom(near, far), self.plane_atom(far, near)
            if i >= 0 and l >= 0:
                return Soft("torsion", "methyl" if carbon else "polar", (i, near, far, l), residue)
        return None

    def _side_chain(self, bond: int, j: int, k: int) -> Soft | None:
        atoms = self.atoms
        residue = int(atoms.residue[j])
        found = self.named.get((min(j, k), max(j, k)))
        if found is not None and self.is_amino(residue):
            return self._measured(found[0], found[1], residue)
        standard = parent_name(str(atoms.residue_name[residue])) in CHI
        if standard or residue != int(atoms.residue[k]) or not self.is_amino(residue):
            return None
        if self.is_double(bond, j, k) or self.is_amide(j, k):
            return None
        depth, near, far = self._depth(residue, j, k)
        if not 1 <= depth <= 5:
            return None
        table = atoms.residue_atoms[residue]
        i, l = table["N"] if near == table["CA"] else self.plane_atom(near, far), self.plane_atom(far, near)
        if i < 0 or l < 0:
            return None
        return Soft("torsion", CHIS[depth - 1], (i, near, far, l), residue)

    def _depth(self, residue: int, j: int, k: int) -> tuple[int, int, int]:
        """Return how many bonds lead from CA to the far end of j-k along a side chain, and its near and far atom."""
        table = self.atoms.residue_atoms[residue]
        owner, backbone = self.atoms.residue, (table["N"], table["C"])

        def along(atom: int) -> list[int]:
            return [b for b in self.atoms.neighbours[atom] if b not in backbone and owner[b] == residue]

        reached = steps_from(table["CA"], along)
        if j not in reached or k not in reached:
            return 0, j, k
        near, far = (j, k) if reached[j] < reached[k] else (k, j)
        return reached[far], near, far

    def _previous_carbon(self, nitrogen: int, residue: int) -> int:
        """Return the carbonyl carbon that precedes `nitrogen`, or -1."""
        for a in self.whole.neighbours[nitrogen]:
            elsewhere = self.atoms.residue[a] != residue
            if elsewhere and self.atoms.element[a] == "C" and (self.atoms.name[a] == "C" or self.is_amide(a, nitrogen)):
                return a
        return -1

    def _next_nitrogen(self, carbon: int, residue: int) -> int:
        """Return the nitrogen that follows `carbon` in the next residue, or -1."""
        atoms = self.atoms
        bonded = (a for a in atoms.neighbours[carbon] if atoms.residue[a] != residue and atoms.element[a] == "N")
        return next(bonded, -1)

    def _named_or_plane(self, atom: int, partner: int, names: tuple[str, ...]) -> int:
        own = self.atoms.residue[atom]
        for name in names:
            for a in self.atoms.neighbours[atom]:
                if a != partner and self.atoms.residue[a] == own and self.atoms.name[a] == name:
                    return a
        return self.plane_atom(atom, partner)

    def _measured(self, kind: str, quad: tuple[int, int, int, int], residue: int) -> Soft:
        """Return the rotor after checking that its four atoms define a dihedral."""
        for triple in (quad[:3], quad[1:]):
            if not self._bent(*triple):
                raise ModelError(
                    f"{kind} cannot be measured: the atoms {self.atoms.labels(triple)} lie on one line; "
                    "repair the coordinates of these atoms"
                )
        return Soft("torsion", kind, quad, residue)


def _branch(name: str) -> str:
    """Return the digits at the end of an atom name: the branch number of PDB names."""
    return name[len(name.rstrip("0123456789")) :]


def find_rotors(
    atoms: Atoms, positions: np.ndarray, acyclic: np.ndarray, whole: Atoms
) -> tuple[list[Soft], dict[int, str]]:
    """Name every bond that could turn.

    Parameters
    ----------
    atoms : Atoms
    positions : (n_atoms, 3) float64, nm
        Used to judge double bonds where no bond order is known, and collinear atoms.
    acyclic : (n_bonds,) bool
        Bonds that lie on no ring.
    whole : Atoms
        The same atoms with the bonds that are cut; they tell which bond is a phi.

    Returns
    -------
    rotors : list of Soft
        In bond order.
    stiff : dict
        Bond index -> reason, for acyclic bonds between non-terminal atoms that cannot turn.
    """
    namer = _Namer(atoms, positions, whole)
    degree = np.bincount(atoms.bonds.ravel(), minlength=atoms.n_atoms)
    inner = acyclic & (degree[atoms.bonds] > 1).all(axis=1)
    rotors: list[Soft] = []
    stiff: dict[int, str] = {}
    for bond in np.flatnonzero(inner).tolist():
        found = namer.name(bond)
        if isinstance(found, Soft):
            rotors.append(found)
        else:
            stiff[bond] = found
    return rotors, stiff


def find_bends(atoms: Atoms, kinds: frozenset[str]) -> list[Soft]:
    """List the backbone angles of the given kinds, in residue order.

    A bend is carried by its second bond (j-k), read along the chain from N to C: whatever else is bonded to the
    central atom stays with the first.
    """
    wanted = [kind for kind in BENDS if kind in kinds]
    bends: list[Soft] = []
    if not wanted:
        return bends
    for residue in range(atoms.n_residues):
        if not is_amino_acid(atoms, residue):
            continue
        table = atoms.residue_atoms[residue]
        n, ca, c = table["N"], table["CA"], table["C"]
        before = [a for a in atoms.neighbours[n] if atoms.residue[a] != residue and atoms.name[a] == "C"]
        after = [a for a in atoms.neighbours[c] if atoms.residue[a] != residue and atoms.element[a] == "N"]
        found = {"N-CA-C": (n, ca, c)}
        if before:
            found["C-N-CA"] = (before[0], n, ca)
        if after:
            found["CA-C-N"] = (ca, c, after[0])
        bends.extend(Soft("bend", kind, found[kind], residue) for kind in wanted if kind in found)
    return bends

"""Denavit-Hartenberg tables of polypeptide backbones.

Frame k stands on backbone atom k (k = 1 .. n, the order N, CA, C, N, ...), with

    T_k = T_{k-1} screw(e1, b_k, beta_k) screw(e3, c_k, gamma_k),       c_k = 0                        (eq. 23)

of Lee, Wang and Chirikjian. Their rule leaves the sign of z open; the one used here makes the table single-valued:

x_k       points from atom k to atom k+1
z_k       x_{k-1} x x_k, normalised: the normal of atoms k-1, k, k+1
b_k       length of the bond k-1, k
gamma_k   pi minus the bond angle at atom k; between 0 and pi
beta_k    the IUPAC dihedral of atoms k-2, k-1, k, k+1, cis = 0, without any offset. It belongs to the bond k-1, k:
          phi in the row of CA, psi in the row of C, omega in the row of N

At the ends, where atoms are missing, the freedom is used up thus: the base T_0 stands on the first atom, x along the
first bond, z normal to the first three atoms, so that beta_1 = b_1 = gamma_1 = beta_2 = 0; the last frame is the one
before it, carried along the last bond (beta_n = gamma_n = 0). The table with its base is thus the whole geometry.

Table II of the paper turns z over at every second atom. `BackboneTable.alternating` gives that form: gamma_k is
negative at odd k, and beta_k is larger by pi, so that trans is 0.

A segment is a run of amino acids joined by C-N bonds; a gap in the chain starts a new one. What is an amino acid is
read from the atoms (N, CA, C bonded in this order), so that modified residues belong to the chain. A cap, or any other
neighbour outside that pattern, adds the atoms that complete the torsions of the residue next to it: the carbonyl C
before the first N and the one carbon before that (ACE: CH3, C), the N after the last C and the one carbon after that
(NME: N, CH3; NH2: N alone).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from peptidyn.core.errors import ModelError, StructureError
from peptidyn.core.points import bond_angle, dihedral
from peptidyn.core.residues import BACKBONE, STANDARD, has_backbone, is_amino_acid, missing_backbone, parent_name
from peptidyn.core.units import ANGSTROM
from peptidyn.model.dh import chain_transforms, dh_transform

if TYPE_CHECKING:
    from peptidyn.core.atoms import Atoms

COINCIDING = 1e-3
"""Bonded atoms nearer than this (nm) are taken for two copies of one atom."""

COLLINEAR = 1e-6
"""Three atoms are collinear when the sine of their angle is below this."""

_TORSION_OF_ROLE = {"N": "omega", "CA": "phi", "C": "psi"}


class HasAtoms(Protocol):
    """What `backbone_frames` needs of a structure."""

    @property
    def atoms(self) -> Atoms: ...
    @property
    def positions(self) -> np.ndarray: ...


@dataclass(frozen=True, eq=False, repr=False)
class BackboneTable:
    """The D-H table of one unbroken stretch of backbone: n rows, one per atom.

    Attributes
    ----------
    chain : str
        Chain name, as in the file.
    atoms : (n,) int
        Indices of the atoms in the structure.
    names, residues : tuple of str
        Per row: atom name, and residue such as ``ALA 5``.
    roles : tuple of str
        Per row ``N``, ``CA`` or ``C``: the place in the backbone, which for caps is not the name (CH3 acts as CA).
    beta, gamma : (n,) float64
        rad.
    b, c : (n,) float64
        nm.
    base : (4, 4) float64
        T_0.
    """

    chain: str
    atoms: np.ndarray
    names: tuple[str, ...]
    residues: tuple[str, ...]
    roles: tuple[str, ...]
    beta: np.ndarray
    b: np.ndarray
    c: np.ndarray
    gamma: np.ndarray
    base: np.ndarray

    def __len__(self) -> int:
        return len(self.atoms)

    def __repr__(self) -> str:
        stretch = f", {self.residues[0]} to {self.residues[-1]}" if len(self) else ""
        return f"<BackboneTable: chain {self.chain}{stretch}, {len(self)} rows>"

    # ------------------------------------------------------------------ geometry

    def frames(self) -> np.ndarray:
        """Return T_k of every row, (n, 4, 4), nm."""
        return chain_transforms(dh_transform(self.beta, self.b, self.c, self.gamma), self.base)

    def rebuild(self) -> np.ndarray:
        """Return the positions of the backbone atoms from the table alone, (n, 3), nm."""
        return self.frames()[:, :3, 3]

    @property
    def torsions(self) -> np.ndarray:
        """IUPAC dihedral of atoms k-2, k-1, k, k+1 for every row, rad, (n,); NaN where an atom is missing.

        Read off the table in either sign convention: beta_k, plus pi if gamma changes sign from row k-1 to row k.
        """
        angles = np.full(len(self), np.nan)
        turned = self.gamma[1:-2] * self.gamma[2:-1] < 0.0
        angles[2:-1] = _wrapped(self.beta[2:-1] + np.pi * turned)
        return angles

    @property
    def torsion_names(self) -> tuple[str, ...]:
        """``phi``, ``psi`` or ``omega`` for every row that has a torsion, else the empty string."""
        return tuple(_TORSION_OF_ROLE[role] if 2 <= row < len(self) - 1 else "" for row, role in enumerate(self.roles))

    @property
    def bond_angles(self) -> np.ndarray:
        """Angle of atoms k-1, k, k+1 for every row, rad, (n,); NaN at the two ends."""
        angles = np.full(len(self), np.nan)
        angles[1:-1] = np.pi - np.abs(self.gamma[1:-1])
        return angles

    def alternating(self) -> BackboneTable:
        """Return the same chain in the sign convention of the paper's Table II.

        z is turned over at odd k, as in a chain whose first N precedes the C-alpha that heads Table II. Bond lengths,
        base and rebuilt positions stay. Calling it on its own result gives this convention back.
        """
        sign = np.where(np.arange(len(self)) % 2 == 0, -1.0, 1.0)
        return replace(self, beta=_frozen(_wrapped(self.beta + np.pi)), gamma=_frozen(sign * self.gamma + 0.0))

    # ------------------------------------------------------------------ for people and programs

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self) -> str:
        """Return the table in degrees and angstrom, laid out as the paper's Table II."""
        width = max(len("residue"), *map(len, self.residues))
        chain = f"chain {self.chain.strip()}, " if self.chain.strip() else ""
        lines = [
            f"{chain}{self.residues[0]} to {self.residues[-1]}: {len(self)} backbone atoms",
            f"{'k':>5}  {'residue':<{width}}  {'atom':<4}  {'beta [deg]':>10}  {'b [A]':>8}  {'c [A]':>8}"
            f"  {'gamma [deg]':>11}  torsion",
        ]
        # adding zero after rounding prints -0.00 as 0.00
        beta, gamma = (np.round(np.degrees(angle), 2) + 0.0 for angle in (self.beta, self.gamma))
        for row, torsion in enumerate(self.torsion_names):
            lines.append(
                f"{row + 1:>5}  {self.residues[row]:<{width}}  {self.names[row]:<4}  {beta[row]:>10.2f}"
                f"  {self.b[row] / ANGSTROM:>8.4f}  {self.c[row] / ANGSTROM:>8.4f}  {gamma[row]:>11.2f}"
                f"  {torsion}".rstrip()
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain lists and numbers (rad, nm), ready for JSON."""
        columns = {
            "k": range(1, len(self) + 1),
            "atom_index": self.atoms.tolist(),
            "residue": self.residues,
            "atom": self.names,
            **{name: getattr(self, name).tolist() for name in ("beta", "b", "c", "gamma")},
            "torsion": [torsion or None for torsion in self.torsion_names],
        }
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        units = {"angle": "rad", "length": "nm"}
        return {"chain": self.chain, "units": units, "base": self.base.tolist(), "rows": rows}


def backbone_frames(structure: HasAtoms) -> tuple[BackboneTable, ...]:
    """Return the D-H table of every stretch of polypeptide backbone, in file order.

    Parameters
    ----------
    structure : Structure
        Anything with ``atoms`` (`peptidyn.core.atoms.Atoms`) and ``positions`` ((n_atoms, 3), nm).

    Returns
    -------
    tuple of BackboneTable
        Empty when there is no amino acid. Waters, ions, ligands and stray single atoms are passed over. A cyclic
        peptide is opened before its first residue in the file.

    Raises
    ------
    StructureError
        If an amino acid lacks a backbone atom or the bonds between them, or two of these atoms coincide.
    ModelError
        If three consecutive backbone atoms are collinear, so that a frame has no z axis.
    """
    atoms = structure.atoms
    positions = np.asarray(structure.positions, dtype=np.float64)
    _check_complete(atoms)
    return tuple(_table(atoms, positions, *_with_caps(atoms, run)) for run in _runs(atoms))


# ---------------------------------------------------------------------- which atoms


def _check_complete(atoms: Atoms) -> None:
    """Refuse residues that are amino acids by name but have no backbone path."""
    for residue, names in missing_backbone(atoms):
        raise StructureError(
            f"{atoms.residue_label(residue)} has no backbone atom {' and '.join(names)}, so its frames are undefined; "
            "complete the structure with load_structure(..., add_hydrogens=True), or remove the residue"
        )
    for residue, table in enumerate(atoms.residue_atoms):
        name = parent_name(str(atoms.residue_name[residue]))
        if name in (*STANDARD, "MSE") and has_backbone(table) and not is_amino_acid(atoms, residue):
            raise StructureError(
                f"{atoms.residue_label(residue)} has atoms N, CA and C but not the bonds N-CA and CA-C; "
                "give a topology with bonds, or load the file with load_structure"
            )


def _runs(atoms: Atoms) -> list[list[int]]:
    """Return the residues of every segment, joined where the C of one is bonded to the N of the next."""
    residues = [r for r in range(atoms.n_residues) if is_amino_acid(atoms, r)]
    residue_of_n = {atoms.residue_atoms[r]["N"]: r for r in residues}
    following: dict[int, int] = {}
    preceding: dict[int, int] = {}
    for residue in residues:
        carbon = atoms.residue_atoms[residue]["C"]
        for partner in atoms.neighbours[carbon]:
            after = residue_of_n.get(partner, residue)
            if after == residue:
                continue
            if residue in following or after in preceding:
                raise StructureError(
                    f"the backbone branches at {atoms.label(carbon)} or {atoms.label(partner)}, where a C is bonded to "
                    "the N of two residues or an N to two C; remove the bond that is wrong"
                )
            following[residue], preceding[after] = after, residue
    runs: list[list[int]] = []
    seen: set[int] = set()
    # Open chains first, from their first residue; what is left after them are rings.
    for start in [r for r in residues if r not in preceding] + residues:
        if start in seen:
            continue
        run = [start]
        while (after := following.get(run[-1], start)) != start:
            run.append(after)
        seen.update(run)
        runs.append(run)
    return sorted(runs)


def _with_caps(atoms: Atoms, run: list[int]) -> tuple[list[int], list[str]]:
    """Return the backbone atoms of a segment in order, caps included, and their roles."""
    path = [atoms.residue_atoms[r][name] for r in run for name in BACKBONE]
    roles = list(BACKBONE) * len(run)
    before = _cap(atoms, path[0], "C")
    after = _cap(atoms, path[-1], "N")
    path = before[::-1] + path + after
    roles = ["C", "CA"][: len(before)][::-1] + roles + ["N", "CA"][: len(after)]
    return path, roles


def _cap(atoms: Atoms, end: int, element: str) -> list[int]:
    """Return the backbone atoms beyond `end`, outwards: the bonded cap atom and the one carbon behind it."""
    own = int(atoms.residue[end])
    found = [
        i
        for i in atoms.neighbours[end]
        if atoms.residue[i] != own
        and _is_element(atoms, i, element)
        and not is_amino_acid(atoms, int(atoms.residue[i]))
    ]
    if len(found) != 1:
        return []
    cap = int(atoms.residue[found[0]])
    carbons = [i for i in atoms.neighbours[found[0]] if atoms.residue[i] == cap and _is_element(atoms, i, "C")]
    return found + carbons if len(carbons) == 1 else found


def _is_element(atoms: Atoms, atom: int, symbol: str) -> bool:
    known = str(atoms.element[atom])
    return known == symbol if known else str(atoms.name[atom]).startswith(symbol)


# ---------------------------------------------------------------------- their geometry


def _table(atoms: Atoms, positions: np.ndarray, path: list[int], roles: list[str]) -> BackboneTable:
    index = np.array(path, dtype=np.int64)
    beta, b, gamma, base = _measure(positions[index], lambda row: atoms.label(path[row]))
    owners = atoms.residue[index]
    index.setflags(write=False)
    return BackboneTable(
        chain=str(atoms.chain_id[atoms.residue_chain[owners[0]]]),
        atoms=index,
        names=tuple(str(n) for n in atoms.name[index]),
        residues=tuple(f"{atoms.residue_name[r]} {atoms.residue_id[r]}" for r in owners),
        roles=tuple(roles),
        beta=_frozen(beta),
        b=_frozen(b),
        c=_frozen(np.zeros(len(path))),
        gamma=_frozen(gamma),
        base=_frozen(base),
    )


def _measure(points: np.ndarray, label: Callable[[int], str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return beta, b, gamma (n,) and the base (4, 4) of at least three points (n, 3)."""
    steps = np.diff(points, axis=0)
    lengths = np.linalg.norm(steps, axis=1)
    for row in np.flatnonzero(lengths < COINCIDING)[:1].tolist():
        raise StructureError(
            f"{label(row)} and {label(row + 1)} coincide (distance {lengths[row]:.2g} nm); repair the coordinates"
        )
    x = steps / lengths[:, None]
    normals = np.cross(x[:-1], x[1:])
    sines = np.linalg.norm(normals, axis=1)
    for row in np.flatnonzero(sines < COLLINEAR)[:1].tolist():
        raise ModelError(
            f"{label(row)}; {label(row + 1)}; {label(row + 2)} lie on one line, so the frame of the middle atom has no "
            "z axis; repair the coordinates"
        )
    z = normals / sines[:, None]

    n = len(points)
    beta, b, gamma = np.zeros(n), np.zeros(n), np.zeros(n)
    b[1:] = lengths
    p = points.T
    gamma[1:-1] = np.pi - bond_angle(p[:, :-2], p[:, 1:-1], p[:, 2:])
    beta[2:-1] = dihedral(p[:, :-3], p[:, 1:-2], p[:, 2:-1], p[:, 3:])
    base = np.eye(4)
    base[:3, :3] = np.stack([x[0], np.cross(z[0], x[0]), z[0]], axis=1)
    base[:3, 3] = points[0]
    return beta, b, gamma, base


def _wrapped(angles: np.ndarray) -> np.ndarray:
    """Return angles in (-pi, pi]."""
    return angles - 2.0 * np.pi * np.ceil((angles - np.pi) / (2.0 * np.pi))


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array

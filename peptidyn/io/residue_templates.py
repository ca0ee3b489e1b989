"""All-atom templates of the 20 amino acids: ideal geometry, hydrogens, side-chain torsions.

Bond lengths and angles of the heavy atoms are Biopython's averages over well-resolved crystal structures
(`Bio.PDB.ic_data`), read from a chain that Biopython builds from its defaults, with planar groups made exactly
planar. Which hydrogens a residue carries, and their names, come from OpenMM's hydrogen definitions at pH 7: Asp,
Glu, Lys and Arg charged, Cys neutral, His neutral with its hydrogen on NE2. Hydrogens are placed by the geometry
of the atom that carries them, so that every call gives the same bits; `openmm.app.Modeller` would start them
from random positions.

Units: nm and rad. A template lives in the residue frame: origin CA, x along CA->C, N in the upper half of
the xy plane.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from math import acos, cos, pi, radians, sin
from types import MappingProxyType
from typing import Any

import numpy as np

from peptidyn.core.atoms import steps_from
from peptidyn.core.points import bond_angle, cross, dihedral, place, rotated, unit
from peptidyn.core.residues import CHI, THREE_LETTER
from peptidyn.core.units import ANGSTROM
from peptidyn.io.composition import standard_residues

POLAR_ROTORS = MappingProxyType(
    {
        "CYS": ("CA", "CB", "SG", "HG"),
        "SER": ("CA", "CB", "OG", "HG"),
        "THR": ("CA", "CB", "OG1", "HG1"),
        "TYR": ("CE1", "CZ", "OH", "HH"),
    }
)
"""The dihedral that turns the one hydrogen of a hydroxyl or a thiol."""

PROLINE_PHI = radians(-65.0)
"""Phi of a proline whose phi is not asked for: the ring is then all but relaxed."""

# The proline ring is closed through CG; these hold in trans prolyl peptides and are not in Biopython's tables.
_PRO_N_CD, _PRO_CA_N_CD, _PRO_N_CD_CG = 0.1473, radians(112.0), radians(103.2)

H_LENGTH = {"C": 0.109, "N": 0.101, "O": 0.096, "S": 0.1336}
H_ANGLE = {"C": radians(109.5), "N": radians(109.5), "O": radians(108.5), "S": radians(96.0)}
_H_C_H_HALF = radians(54.0)
_BOND_LIMIT = 0.195  # nm: the longest bond is C-S, 0.181; the nearest second neighbours are 0.21 apart


def residue_frame(n: np.ndarray, ca: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return the (3, 3) rotation whose columns are the axes of the residue frame."""
    x = unit(c - ca)
    z = unit(cross(x, n - ca))
    return np.column_stack([x, cross(z, x), z])


@dataclass(frozen=True)
class ResidueTemplate:
    """One amino acid in its own frame.

    Attributes
    ----------
    name : str
        Three-letter code.
    names : tuple of str
        N, CA, C, then every atom whose place does not depend on the neighbours: hydrogens of CA, CB, the side
        chain. Hydrogens follow the atom that carries them. O, OXT and the hydrogens of N are not among them.
    xyz : (n, 3)
        nm, in the residue frame; every chi is 180 degrees.
    bonds : tuple of (int, int)
        Pairs of rows of `xyz`.
    n_ca, ca_c, c_o, c_n : float
        Bond lengths, nm; `c_n` is the bond to the residue before.
    n_ca_c, ca_c_o, ca_c_n, c_n_ca : float
        Bond angles, rad; `c_n_ca` begins in the residue before, `ca_c_n` ends in the residue after.
    """

    name: str
    names: tuple[str, ...]
    xyz: np.ndarray
    bonds: tuple[tuple[int, int], ...]
    n_ca: float
    ca_c: float
    c_o: float
    c_n: float
    n_ca_c: float
    ca_c_o: float
    ca_c_n: float
    c_n_ca: float

    @property
    def n_chi(self) -> int:
        """How many chi angles can be set."""
        return len(CHI.get(self.name, ()))

    def conformer(self, chi: tuple[float, ...], polar: float | None = None) -> np.ndarray:
        """Return the atoms, (n, 3), with the given chi angles and hydroxyl or thiol dihedral (rad)."""
        xyz = self.xyz.copy()
        for four, value in zip(CHI.get(self.name, ()), chi, strict=False):
            self._turn(xyz, four, value)
        if polar is not None:
            self._turn(xyz, POLAR_ROTORS[self.name], polar)
        return xyz

    def _turn(self, xyz: np.ndarray, four: tuple[str, ...], value: float) -> None:
        i, j, k, l = (self.names.index(name) for name in four)
        angle = value - dihedral(xyz[i], xyz[j], xyz[k], xyz[l])
        moving = self._beyond(j, k)
        xyz[moving] = xyz[k] + rotated(xyz[moving] - xyz[k], unit(xyz[k] - xyz[j]), angle)

    def _beyond(self, j: int, k: int) -> list[int]:
        """Return the rows that turn when the bond j-k is turned: those reached from k without j."""
        reached = steps_from(k, lambda row: [sum(pair) - row for pair in self.bonds if row in pair and j not in pair])
        return sorted(reached.keys() - {k})

    def proline_conformers(self, phi: float) -> np.ndarray:
        """Return the two puckers of a proline ring closed at `phi` (rad): (2, n, 3), CG-endo first.

        CD lies in the plane of C (of the residue before), N and CA, so that N stays planar. CG then has one freedom
        left, the turn about CB-CD; it takes, on either side of the ring, the place where the ring angles at CB and
        CD are nearest to their usual values.
        """
        from scipy.optimize import minimize_scalar

        row = {name: i for i, name in enumerate(self.names)}
        n, ca, c, cb = (self.xyz[row[name]] for name in ("N", "CA", "C", "CB"))
        cg0 = self.xyz[row["CG"]]
        cb_cg, cg_cd = (float(np.linalg.norm(cg0 - x)) for x in (cb, self.xyz[row["CD"]]))
        at_cb = bond_angle(ca, cb, cg0)
        cd = place(c, ca, n, _PRO_N_CD, _PRO_CA_N_CD, phi + pi)
        span = float(np.linalg.norm(cd - cb))
        angle_at_cb = acos((cb_cg**2 + span**2 - cg_cd**2) / (2.0 * cb_cg * span))

        def cg_at(turn: float) -> np.ndarray:
            return place(ca, cd, cb, cb_cg, angle_at_cb, pi + turn)

        def strain(turn: float) -> float:
            cg = cg_at(turn)
            return (bond_angle(ca, cb, cg) - at_cb) ** 2 + (bond_angle(n, cd, cg) - _PRO_N_CD_CG) ** 2

        conformers = []
        for bounds in ((0.0, 0.5 * pi), (-0.5 * pi, 0.0)):
            turn = minimize_scalar(strain, bounds=bounds, method="bounded", options={"xatol": 1e-10}).x
            xyz = self.xyz.copy()
            xyz[row["CD"]], xyz[row["CG"]] = cd, cg_at(turn)
            for parent, first, second in (("CB", "CA", "CG"), ("CG", "CB", "CD"), ("CD", "CG", "N")):
                rows = [row[f"H{parent[1:]}{k}"] for k in (2, 3)]
                xyz[rows] = methylene_hydrogens("C", *(xyz[row[a]] for a in (parent, first, second)))
            conformers.append(xyz)
        return np.array(conformers)


def methylene_hydrogens(
    element: str, parent: np.ndarray, before: np.ndarray, after: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the two hydrogens of a tetrahedral atom with two heavy neighbours.

    The first is the one that the PDB names 2 (HB2, HA2), when `before` is the neighbour nearer the backbone
    (for the CA of glycine: N).
    """
    u, v = unit(before - parent), unit(after - parent)
    bisector, normal = unit(-(u + v)), unit(cross(v, u))
    length = H_LENGTH[element]
    up, out = length * sin(_H_C_H_HALF) * normal, length * cos(_H_C_H_HALF) * bisector
    return parent + out + up, parent + out - up


def rotor_hydrogens(
    count: int, element: str, before: np.ndarray, heavy: np.ndarray, parent: np.ndarray, planar: bool = False
) -> list[np.ndarray]:
    """Return `count` hydrogens of an atom with one heavy neighbour, staggered against `before`, or in its plane."""
    angle = radians(120.0) if planar else H_ANGLE[element]
    turns = (0.0, 180.0) if planar else (180.0, 60.0, -60.0)
    return [place(before, heavy, parent, H_LENGTH[element], angle, radians(t)) for t in turns[:count]]


def inline_hydrogen(element: str, parent: np.ndarray, neighbours: list[np.ndarray]) -> np.ndarray:
    """Return the one hydrogen of an atom with two (planar) or three (tetrahedral) heavy neighbours."""
    away = -sum(unit(x - parent) for x in neighbours)
    return parent + H_LENGTH[element] * unit(np.asarray(away))


@lru_cache(maxsize=1)
def residue_templates() -> MappingProxyType[str, ResidueTemplate]:
    """Return the templates of the 20 amino acids by one-letter code."""
    chain = _default_chain("G" + "".join(f"{letter}G" for letter in THREE_LETTER))
    templates = {}
    for index, letter in enumerate(THREE_LETTER):
        before, residue, after = chain[2 * index : 2 * index + 3]
        templates[letter] = _template(residue, before, after, _hydrogens_at_pH_7(residue.resname))
    return MappingProxyType(templates)


def _default_chain(sequence: str) -> list[Any]:
    """Return the residues that Biopython builds for `sequence`, in float64.

    Every settable torsion is 180 degrees, and planar groups are planar: Biopython's default dihedrals of
    rings, carboxylates and amides are averages a degree or so off the plane.
    """
    from Bio.PDB.PICIO import read_PIC_seq
    from Bio.Seq import Seq
    from Bio.SeqRecord import SeqRecord

    with warnings.catch_warnings():
        # numpy 2.4 warns of a np.divide(where=...) inside Biopython; the masked entries do not occur here
        warnings.filterwarnings("ignore", message="'where' used without 'out'", category=UserWarning)
        structure = read_PIC_seq(SeqRecord(Seq(sequence), id="template"))
        for residue in structure.get_residues():
            internal = residue.internal_coord
            for torsion in ("psi", "chi1", "chi2", "chi3", "chi4", "chi5"):
                if residue.resname != "PRO" or torsion == "psi":
                    internal.set_angle(torsion, 180.0)
            for dihedron in internal.dihedra.values():
                flat = 180.0 * round(dihedron.angle / 180.0)
                if abs(dihedron.angle - flat) < 3.0:
                    dihedron.angle = flat
        structure.internal_to_atom_coordinates()
    return list(structure.get_residues())


def _hydrogens_at_pH_7(residue: str) -> dict[str, list[str]]:
    """Return {heavy atom: [hydrogen, ...]} of a residue within a chain."""
    carried: dict[str, list[str]] = defaultdict(list)
    for h in standard_residues()[residue].hydrogens:
        if not h.terminal and h.max_pH >= 7.0 and "HID" not in h.variants:
            carried[h.parent].append(h.name)
    return carried


def _template(residue: Any, before: Any, after: Any, hydrogens: dict[str, list[str]]) -> ResidueTemplate:
    def at(owner: Any, name: str) -> np.ndarray:
        return np.asarray(owner[name].coord, dtype=np.float64) * ANGSTROM

    n, ca, c, o = (at(residue, name) for name in ("N", "CA", "C", "O"))
    frame = residue_frame(n, ca, c)
    heavy = {a.name: (at(residue, a.name) - ca) @ frame for a in residue if a.name != "O"}
    neighbours = {
        name: [other for other, y in heavy.items() if other != name and np.linalg.norm(x - y) < _BOND_LIMIT]
        for name, x in heavy.items()
    }

    names, rows = ["N", "CA", "C"], [heavy["N"], heavy["CA"], heavy["C"]]
    pairs = [("N", "CA"), ("CA", "C")]
    for parent, position in heavy.items():
        if parent not in names:
            names.append(parent)
            rows.append(position)
            pairs += [(other, parent) for other in neighbours[parent] if other in names]
        if parent not in ("N", "C"):
            carried = hydrogens.get(parent, [])
            names += carried
            rows += _hydrogens_of(parent, len(carried), heavy, neighbours)
            pairs += [(parent, name) for name in carried]
    xyz = np.array(rows)
    xyz.setflags(write=False)
    return ResidueTemplate(
        name=residue.resname,
        names=tuple(names),
        xyz=xyz,
        bonds=tuple((names.index(a), names.index(b)) for a, b in pairs),
        n_ca=float(np.linalg.norm(ca - n)),
        ca_c=float(np.linalg.norm(c - ca)),
        c_o=float(np.linalg.norm(o - c)),
        c_n=float(np.linalg.norm(n - at(before, "C"))),
        n_ca_c=bond_angle(n, ca, c),
        ca_c_o=bond_angle(ca, c, o),
        ca_c_n=bond_angle(ca, c, at(after, "N")),
        c_n_ca=bond_angle(at(before, "C"), n, ca),
    )


def _hydrogens_of(
    parent: str, count: int, heavy: dict[str, np.ndarray], neighbours: dict[str, list[str]]
) -> list[np.ndarray]:
    """Return the places of the `count` hydrogens of one heavy atom that has all its heavy neighbours in `heavy`."""
    around = neighbours[parent]
    if count == 0:
        return []
    if len(around) == 1:
        before = next(name for name in neighbours[around[0]] if name != parent)
        spokes = (heavy[before], heavy[around[0]], heavy[parent])
        return rotor_hydrogens(count, parent[0], *spokes, planar=count == 2)
    if count == 2:
        return list(methylene_hydrogens(parent[0], heavy[parent], heavy[around[0]], heavy[around[1]]))
    return [inline_hydrogen(parent[0], heavy[parent], [heavy[name] for name in around])]

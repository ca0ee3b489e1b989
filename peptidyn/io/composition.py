"""What a standard residue should hold: its atoms and hydrogens, and which of them a structure lacks.

The tables are the ones OpenMM itself completes structures with (``residues.xml`` and ``hydrogens.xml`` among its
data files), so that what is reported here as missing is what a force field will ask for.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from xml.etree import ElementTree

from peptidyn.core.atoms import Atoms
from peptidyn.core.residues import HYDROGENS, WATER, has_backbone

_PHOSPHATE = frozenset({"P", "OP1", "OP2"})
# UNK is any residue; the table's FOR does not describe a formyl group.
_NOT_JUDGED = frozenset({"UNK", "FOR"})
_NEVER_REQUIRED = frozenset({"OXT", "OP3", "HXT"})


@dataclass(frozen=True)
class Hydrogen:
    """A hydrogen of a standard residue.

    Attributes
    ----------
    name, parent : str
    terminal : str
        Empty, or which chain end it belongs to: ``N``, ``C``.
    variants : tuple of str
        The protonation states that have it (HIS HD1: ``HID``, ``HIP``); empty if all do.
    max_pH : float
        Where it is lost.
    """

    name: str
    parent: str
    terminal: str
    variants: tuple[str, ...]
    max_pH: float


@dataclass(frozen=True)
class StandardResidue:
    """A standard residue, cap, nucleotide or water.

    Attributes
    ----------
    heavy : tuple of str
        Heavy atoms it has anywhere in a chain (no OXT).
    hydrogens : tuple of Hydrogen
    """

    name: str
    heavy: tuple[str, ...]
    hydrogens: tuple[Hydrogen, ...]

    @property
    def is_amino_acid(self) -> bool:
        return has_backbone(self.heavy)

    @property
    def is_nucleotide(self) -> bool:
        return {"O3'", "O5'"} <= set(self.heavy)


@cache
def standard_residues() -> dict[str, StandardResidue]:
    """Return the standard residues by name."""
    data = files("openmm.app") / "data"
    hydrogens: dict[str, list[Hydrogen]] = defaultdict(list)
    for residue in ElementTree.fromstring((data / "hydrogens.xml").read_text()).findall("Residue"):
        for h in residue.findall("H"):
            hydrogens[residue.attrib["name"]].append(
                Hydrogen(
                    h.attrib["name"],
                    h.attrib["parent"],
                    h.attrib.get("terminal", ""),
                    tuple(filter(None, h.attrib.get("variant", "").split(","))),
                    float(h.attrib.get("maxph", "inf")),
                )
            )
    templates = {}
    for residue in ElementTree.fromstring((data / "residues.xml").read_text()).findall("Residue"):
        name = residue.attrib["name"]
        # A leading + or - marks an atom of the neighbouring residue; hydrogens are the names in H.
        names = {bond.attrib[end]: None for bond in residue.findall("Bond") for end in ("from", "to")}
        heavy = tuple(n for n in names if n[0] not in "+-H" and n not in _NEVER_REQUIRED)
        templates[name] = StandardResidue(name, heavy, tuple(hydrogens[name]))
    return templates


@dataclass(frozen=True)
class Missing:
    """What one residue lacks.

    Attributes
    ----------
    residue : int
        Residue index.
    heavy, hydrogens : tuple of str
        Names of the missing atoms.
    """

    residue: int
    heavy: tuple[str, ...]
    hydrogens: tuple[str, ...]


def missing_atoms(atoms: Atoms) -> list[Missing]:
    """Return what every standard residue, cap, nucleotide and water lacks.

    Hydrogens are counted per heavy atom, so their names do not matter. Those that depend on the protonation
    state never count as missing, and an amino terminus may be neutral. Residues without a template are not judged.
    """
    external = _externally_bonded(atoms)
    last_in_chain = _last_polymer_residues(atoms)
    found = []
    for r, name in enumerate(atoms.residue_name.tolist()):
        template = standard_residues().get(name)
        if template is None or name in _NOT_JUDGED:
            continue
        heavy = _missing_heavy(atoms, template, r, external, r in last_in_chain)
        hydrogens = _missing_hydrogens(atoms, template, r, external)
        if heavy or hydrogens:
            found.append(Missing(r, heavy, hydrogens))
    return found


def _externally_bonded(atoms: Atoms) -> set[int]:
    """Atoms with a bond to another residue."""
    crossing = atoms.bonds[atoms.residue[atoms.bonds[:, 0]] != atoms.residue[atoms.bonds[:, 1]]]
    return set(crossing.ravel().tolist())


def _last_polymer_residues(atoms: Atoms) -> set[int]:
    """The last amino acid or cap of every chain: a carboxyl end belongs there, not at a gap."""
    last: dict[int, int] = {}
    for r, name in enumerate(atoms.residue_name.tolist()):
        if name != WATER and ("N" in atoms.residue_atoms[r] or "CA" in atoms.residue_atoms[r]):
            last[int(atoms.residue_chain[r])] = r
    return set(last.values())


def _missing_heavy(
    atoms: Atoms, template: StandardResidue, residue: int, external: set[int], is_last: bool
) -> tuple[str, ...]:
    present = atoms.residue_atoms[residue]
    required = [n for n in template.heavy if n not in present]
    if template.is_nucleotide and _PHOSPHATE.isdisjoint(present) and present.get("O5'") not in external:
        required = [n for n in required if n not in _PHOSPHATE]
    carbon = present.get("C")
    if template.is_amino_acid and is_last and "OXT" not in present and carbon is not None and carbon not in external:
        required.append("OXT")
    return tuple(required)


def _missing_hydrogens(atoms: Atoms, template: StandardResidue, residue: int, external: set[int]) -> tuple[str, ...]:
    present = atoms.residue_atoms[residue]
    missing: list[str] = []
    by_parent: dict[str, list[Hydrogen]] = defaultdict(list)
    for hydrogen in template.hydrogens:
        if not hydrogen.variants and hydrogen.parent in present:
            by_parent[hydrogen.parent].append(hydrogen)
    for parent, hydrogens in by_parent.items():
        atom = present[parent]
        bonded = atoms.neighbours[atom]
        have = sum(1 for b in bonded if atoms.element[b] in HYDROGENS)
        at_end = atom not in external and not (parent[0] == "O" and len(bonded) - have > 1)
        expected = [h for h in hydrogens if not h.terminal or at_end]
        # An amino end has three hydrogens when charged and two when neutral: both are complete.
        spare = 1 if at_end and parent == "N" and any(h.terminal for h in expected) else 0
        if have < len(expected) - spare:
            absent = [h.name for h in expected if h.name not in present]
            missing.extend(absent[: len(expected) - have])
    return tuple(missing)

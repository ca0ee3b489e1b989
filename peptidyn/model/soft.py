"""The words of ``soft=``: which kinds of coordinates they make soft, and where.

=============  ====================================================================================
word           soft coordinates
=============  ====================================================================================
torsions       phi, psi and chi: the default
angles         the backbone angles N-CA-C, CA-C-N and C-N-CA
bends, phases  angles and phases of all heavy atoms
heavy          torsions, omega, and the angles and phases of all heavy atoms
hydrogens      rotors, angles and phases of hydrogens
bonds          bond lengths
rings          everything within rings that can pucker, which are cut at one bond
all            everything: 3 n - 6 coordinates for a molecule of n atoms
=============  ====================================================================================

An atom k hangs on an atom j, which hangs on i. Its coordinates are the bond length j-k, the angle i-j-k, and its turn
about i-j. The turn of one of the atoms on j, the main one, is the torsion about i-j, which carries them all; the turns
of the others relative to it are called phases.

Parts are separated by semicolons, and a part may be confined to a selection, as in ``"phi psi chi; all in residue 10
to 14"``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError

DEFAULT_SOFT = "phi psi chi"

BENDS = ("N-CA-C", "CA-C-N", "C-N-CA")
"""Backbone bond angles."""

CHIS = ("chi1", "chi2", "chi3", "chi4", "chi5")

TORSIONS = ("phi", "psi", "carboxyl", *CHIS, "rotor")

HEAVY = ("angle", "phase")
HYDROGENS = ("angle-H", "phase-H")
LENGTHS = ("bond", "bond-H")

BY_ATOM = frozenset((*HEAVY, *HYDROGENS, *LENGTHS, "ring", "stiff"))
"""Kinds that need the place of every atom in the tree; the others are found bond by bond."""

WORDS: dict[str, tuple[str, ...]] = {
    "phi": ("phi",),
    "psi": ("psi", "carboxyl"),
    "omega": ("omega", "amide"),
    "chi": (*CHIS, "rotor"),
    **{chi: (chi,) for chi in CHIS},
    "methyl": ("methyl",),
    "polar": ("polar",),
    "amide": ("amide",),
    "carboxyl": ("carboxyl",),
    "rotor": ("rotor",),
    "torsions": TORSIONS,
    "angles": BENDS,
    **{bend: (bend,) for bend in BENDS},
    "bends": (*BENDS, "angle"),
    "phases": ("phase",),
    "heavy": (*TORSIONS, "omega", "amide", *BENDS, *HEAVY),
    "hydrogens": ("methyl", "polar", *HYDROGENS),
    "bonds": LENGTHS,
    "rings": ("ring",),
    "all": (*TORSIONS, "omega", "amide", "methyl", "polar", *BENDS, *HEAVY, *HYDROGENS, *LENGTHS, "ring", "stiff"),
    "none": (),
}
"""What each word of ``soft=`` makes soft, by kinds of coordinates."""


@dataclass(frozen=True)
class SoftPart:
    """Kinds of coordinates that are soft, everywhere or within an MDTraj selection."""

    kinds: frozenset[str]
    selection: str | None = None


def parse_parts(soft: str | Iterable[str]) -> tuple[SoftPart, ...]:
    """Return the parts of ``soft=``.

    Parameters
    ----------
    soft : str or iterable of str
        Words separated by blanks or commas, in parts separated by semicolons, each with ``in SELECTION`` if it is not
        meant for all atoms; or an iterable of words, or of parts.
    """
    texts = soft.split(";") if isinstance(soft, str) else [str(text) for text in soft]
    parts = []
    for text in texts:
        words, found, selection = f" {text} ".partition(" in ")
        kinds = frozenset(kind for word in words.replace(",", " ").split() for kind in _kinds(word))
        if found and not selection.strip():
            raise ArgumentError(f"the part {text.strip()!r} of soft names no selection after 'in'")
        parts.append(SoftPart(kinds, selection.strip() or None))
    return tuple(parts)


def parse_soft(soft: str | Iterable[str]) -> frozenset[str]:
    """Return the set of kinds that the words of `soft` make soft somewhere."""
    return frozenset().union(*(part.kinds for part in parse_parts(soft)))


def _kinds(word: str) -> tuple[str, ...]:
    known = {name.lower(): kinds for name, kinds in WORDS.items()}
    if word.lower() not in known:
        near = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ArgumentError(f"unknown soft coordinate {word!r}{hint} The known words are: {' '.join(WORDS)}")
    return known[word.lower()]


class SoftRequest:
    """What is asked to be soft in one structure.

    Parameters
    ----------
    structure : Structure
        For its selections.
    soft : str or iterable of str
        See `parse_parts`.

    Attributes
    ----------
    kinds : frozenset of str
        All kinds that are soft somewhere.
    """

    def __init__(self, structure: Any, soft: str | Iterable[str]):
        self.kinds = parse_soft(soft)
        self._parts: list[tuple[frozenset[str], np.ndarray | None]] = []
        for part in parse_parts(soft):
            mask = None
            if part.selection is not None:
                mask = np.zeros(structure.atoms.n_atoms, dtype=bool)
                mask[structure.select(part.selection)] = True
            self._parts.append((part.kinds, mask))

    def asks(self, kind: str, *atoms: int) -> bool:
        """True if coordinates of this kind are soft where all of `atoms` are."""
        return any(kind in kinds and (mask is None or mask[list(atoms)].all()) for kinds, mask in self._parts)

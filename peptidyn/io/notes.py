"""`Note`: one thing noticed while a structure was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Note:
    """One thing noticed while a structure was read.

    Attributes
    ----------
    kind : str
        A short tag for programs: ``altloc``, ``models``, ``gap``, ``missing-hydrogens``, ``missing-atoms``,
        ``disulfide``, ``inferred-bonds``, ``renamed``, ``completed``, ``dropped``, ``overlap`` ...
    text : str
        One sentence for people.
    atoms : tuple of int
        Indices of the atoms it is about; empty when it is about the whole file.
    """

    kind: str
    text: str
    atoms: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.text

    def renumbered(self, new_index: Mapping[int, int]) -> Note | None:
        """Return the note for a structure with other atom numbers; None if all its atoms are gone."""
        atoms = tuple(new_index[a] for a in self.atoms if a in new_index)
        return None if self.atoms and not atoms else replace(self, atoms=atoms)


def counted(n: int, thing: str) -> str:
    """Return ``1 atom``, ``2 atoms``."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def some(labels: list[str], most: int = 5) -> str:
    """Return a few labels in one phrase, with how many were left out."""
    text = "; ".join(labels[:most])
    return text if len(labels) <= most else f"{text}; and {len(labels) - most} more"

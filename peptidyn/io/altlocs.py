"""Alternate locations: one conformer per residue, never a mixture.

Crystal structures list disordered atoms several times, each copy with a letter and an occupancy. Two
residues at one site (microheterogeneity) are listed in the same way, under different residue names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

BLANK = ""


@dataclass(frozen=True)
class Site:
    """One line of coordinates, as far as the choice among alternates needs it.

    Attributes
    ----------
    residue : int
        Number of the residue the line belongs to; equal for all residue names at one site.
    label : str
        That residue for people, without its name: ``chain A, residue 25``.
    residue_name, name : str
        Residue name, and atom name as by `site_name`.
    altloc : str
        The letter, or `BLANK`.
    occupancy : float
    """

    residue: int
    label: str
    residue_name: str
    name: str
    altloc: str
    occupancy: float


def site_name(name: str, element: str) -> str:
    """Return the atom name under which alternates are compared: D and H of an exchanged hydrogen are one atom."""
    return f"H{name[1:]}" if element.strip().upper() == "D" and name.startswith("D") else name


def choose_locations(sites: Sequence[Site]) -> tuple[list[int], list[str]]:
    """Choose one conformer for each residue.

    The letter with the highest mean occupancy wins, the first of the file among equals. All letters that name
    one of its atoms again, and all other residue names, are then out; letters that only name other atoms
    (an independent disorder elsewhere in the residue) are chosen among themselves in the same way.
    Atoms without a letter stay, unless the same atom is listed with a letter too: then the blank counts as a letter.

    Returns
    -------
    kept : list of int
        Indices into `sites`, in order.
    choices : list of str
        For every residue where there was a choice, one phrase saying what was chosen.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for index, site in enumerate(sites):
        groups[site.residue].append(index)
    dropped: set[int] = set()
    choices: list[str] = []
    for members in groups.values():
        if any(sites[i].altloc != BLANK for i in members):
            out, choice = _choose_in_residue([(i, sites[i]) for i in members])
            dropped.update(out)
            if out:
                choices.append(choice)
    return [i for i in range(len(sites)) if i not in dropped], choices


def _choose_in_residue(members: list[tuple[int, Site]]) -> tuple[set[int], str]:
    """Return the indices to drop and a phrase about the choice, for one residue."""
    lettered = {site.name for _, site in members if site.altloc != BLANK}
    conformers: dict[tuple[str, str], list[tuple[int, Site]]] = defaultdict(list)
    for index, site in members:
        if site.name in lettered:
            conformers[site.altloc, site.residue_name].append((index, site))
    remaining = list(conformers)
    chosen: list[tuple[str, str]] = []
    dropped: set[int] = set()
    while remaining:
        # max() keeps the first of equals, which is the first of the file.
        best = max(remaining, key=lambda key: sum(s.occupancy for _, s in conformers[key]) / len(conformers[key]))
        chosen.append(best)
        names = {site.name for _, site in conformers[best]}
        for key in [k for k in remaining if k != best]:
            if key[1] != best[1] or any(site.name in names for _, site in conformers[key]):
                dropped.update(index for index, _ in conformers[key])
                remaining.remove(key)
        remaining.remove(best)
    letters = "+".join(letter or "(blank)" for letter, _ in chosen)
    residue_name = chosen[0][1]
    others = sorted({name for _, name in conformers if name != residue_name})
    instead = f" rather than {', '.join(others)}" if others else ""
    return dropped, f"{members[0][1].label}: {residue_name} {letters}{instead}"

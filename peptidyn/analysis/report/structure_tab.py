"""The tab of a report about structure: tables and pictures of its frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from peptidyn.analysis import structure_plots as plots
from peptidyn.analysis.conformations import COIL, HELIX, STRAND, Conformations
from peptidyn.analysis.estimates import Estimate, estimate, with_error
from peptidyn.analysis.observables import BASINS

MOST_FRAMES = 1000
"""Frames that are looked at; of more, every so many."""

MOST_BONDS = 20
"""Rows in the table of hydrogen bonds."""

Rows = list[tuple[Any, ...]]
"""Of a table: numbers stand at the right."""


@dataclass(frozen=True, eq=False)
class StructureTab:
    """What the template shows.

    Attributes
    ----------
    averages, secondary, bonds, basins : list of tuple
        Tables.
    more_bonds : int
        Hydrogen bonds that are not in the table.
    basin_names : tuple of str
        Columns of `basins`.
    figures : dict
        Pictures by name.
    notes : list of str
    """

    averages: Rows
    secondary: Rows
    bonds: Rows
    more_bonds: int
    basins: Rows
    basin_names: tuple[str, ...]
    figures: dict[str, Any]
    notes: list[str]


def structure_tab(found: Conformations, along: np.ndarray, label: str, notes: list[str]) -> StructureTab:
    """Return tables and pictures of conformations.

    Parameters
    ----------
    found : Conformations
    along : (n_frames,)
        Times or iterations of the frames.
    label : str
        What they are, with the unit.
    notes : list of str
        What was left out.
    """
    names = [found.name(r) for r in found.residues]
    _, present = found.bonds
    bonds, more = _bonds(found)
    basins, figure = _basins(found)
    figures = {
        "size": plots.size_figure(along, label, [found.averages[name] for name in ("RMSD", "radius of gyration")]),
        "secondary": plots.secondary_figure(along, label, found.secondary, names),
        "bonds": plots.bonds_figure(along, label, present.sum(axis=1)) if bonds else None,
        "basins": figure,
    }
    return StructureTab(
        averages=[(named(one), round(one.mean, 4), round(one.error, 4)) for one in found.averages.values()],
        secondary=_secondary(found, names),
        bonds=bonds,
        more_bonds=more,
        basins=basins,
        basin_names=BASINS,
        figures=figures,
        notes=notes,
    )


def named(one: Estimate) -> str:
    """Return the name of an average with its unit."""
    return f"{one.name} ({one.unit})" if one.unit else one.name


def part(mean: float, error: float) -> str:
    """Return a part and its standard error as text; one that never changed has no estimate of its error."""
    return with_error(mean, error) if error > 0 else f"{mean:.3g}"


def _secondary(found: Conformations, names: list[str]) -> Rows:
    columns = [estimate(found.secondary == letter) for letter in (HELIX, STRAND, COIL)] if names else []
    return [(name, *(part(one.mean[i], one.error[i]) for one in columns)) for i, name in enumerate(names)]


def _bonds(found: Conformations) -> tuple[Rows, int]:
    """Rows of the most frequent hydrogen bonds, and how many more there are."""
    pairs, present = found.bonds
    if not len(pairs):
        return [], 0
    seen = estimate(present)
    atom = found.frames.topology.atom
    order = np.argsort(-seen.mean, kind="stable")[:MOST_BONDS].tolist()
    rows = [
        (*(_label(atom(a)) for a in pairs[i]), round(float(seen.mean[i]), 3), round(float(seen.error[i]), 3))
        for i in order
    ]
    return rows, max(0, len(pairs) - MOST_BONDS)


def _label(atom: Any) -> str:
    return f"{atom.residue.name} {atom.residue.resSeq} {atom.name}"


def _basins(found: Conformations) -> tuple[Rows, Any | None]:
    one = found.basins
    if one is None:
        return [], None
    rows = [
        (name, *(part(m, e) for m, e in zip(mean, error, strict=True)))
        for name, mean, error in zip(one.labels, one.mean, one.error, strict=True)
    ]
    return rows, plots.basins_figure(one.labels, one.mean, one.error)

"""Pictures of a run, from the table of its frames: for its folder, and for its report.

Lines are told apart by style and position as well as by colour.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from peptidyn.analysis.plots import (
    BARS,
    DARK,
    LIGHT,
    LINE,
    MARK,
    add_legend,
    leave_room,
    new_figure,
    plain_label,
    ramachandran_axes,
    save_figures,
)
from peptidyn.runs.run_folder import RunFolder

Table = dict[str, np.ndarray]
"""Energies and coordinates per frame; see `peptidyn.engine.torsion_reporter.read_torsions`."""

MOST_CHI = 12
"""Distributions of chi angles that are drawn; those of more residues would be too small to read."""


def plot_run(folder: str | os.PathLike[str]) -> list[Path]:
    """Draw ``energy.png``, ``drift.png`` and, if there are phi/psi pairs, ``ramachandran.png``.

    Parameters
    ----------
    folder : str or path
        Of a run that has ended.

    Returns
    -------
    list of Path
        The pictures; empty if the run reported fewer than two frames.
    """
    run = RunFolder(folder)
    table = run.table
    if run.n_frames < 2:
        return []
    conserved = run.settings.ensemble == "nve"
    figures = {
        "energy": energy_figure(table, None if conserved else run.settings.temperature),
        "drift": drift_figure(table, conserved),
        "ramachandran": ramachandran_figure(table),
    }
    return save_figures(figures, run.path)


def phi_psi_pairs(table: Table) -> list[tuple[int, int]]:
    """Return the columns (phi, psi) of every residue that has both."""
    names = zip(table["torsion_kind"], table["torsion_chain"], table["torsion_residue"].tolist(), strict=True)
    place = {name: column for column, name in enumerate(names)}
    return [
        (column, place["psi", chain, residue])
        for (kind, chain, residue), column in place.items()
        if kind == "phi" and ("psi", chain, residue) in place
    ]


def energy_figure(table: Table, target: float | None) -> Any:
    """Energies and kinetic temperature along the run; `target` is the temperature (K) of its heat bath, if any."""
    figure, (upper, lower) = new_figure(2, 1, figsize=(8.0, 5.4), sharex=True)
    time = table["time"]
    total = "total, with $U_F$" if table["fixman"].any() else "total"
    for name, style, colour, label in (
        ("potential", "-", DARK, "potential"),
        ("kinetic", ":", "black", "kinetic"),
        ("total", "--", LIGHT, total),
    ):
        mean = float(table[name].mean())
        upper.plot(time, table[name] - mean, style, linewidth=1.0, color=colour, label=f"{label}: {mean:.0f}")
    upper.set(ylabel="energy − mean (kJ/mol)", title="Energies and temperature")
    leave_room(upper, 0.3)
    add_legend(upper, ncols=3, title="means (kJ/mol)", title_fontsize=8, loc="upper left")
    mean = float(table["temperature"].mean())
    lower.plot(time, table["temperature"], **LINE)
    lower.axhline(mean, label=f"mean {mean:.1f} K", **MARK)
    if target is not None:
        lower.axhline(target, color=LIGHT, linestyle=":", linewidth=1.4, label=f"heat bath {target:g} K")
    lower.set(xlabel="time (ps)", ylabel="kinetic temperature (K)")
    leave_room(lower, 0.2)
    add_legend(lower, ncols=2, loc="upper left")
    return figure


def drift_figure(table: Table, conserved: bool) -> Any:
    """Total energy; its drift means something only where nothing exchanges energy with the molecule."""
    figure, axes = new_figure(figsize=(8.0, 3.4))
    time, change = table["time"], table["total"] - table["total"][0]
    axes.plot(time, change, **LINE)
    if conserved:
        slope, offset = np.polyfit(time, change, 1)
        axes.plot(time, offset + slope * time, label=f"{1000 * slope:+.3g} kJ/mol/ns", **MARK)
        add_legend(axes)
    title = "Drift of the total energy" if conserved else "Total energy, exchanged with the heat bath"
    axes.set(xlabel="time (ps)", ylabel="change of the\ntotal energy (kJ/mol)", title=title)
    return figure


def ramachandran_figure(table: Table) -> Any | None:
    """All phi/psi pairs, shaded by time; None if there are none."""
    pairs = phi_psi_pairs(table)
    if not pairs:
        return None
    figure, axes = new_figure(figsize=(5.6, 4.9))
    degrees = np.rad2deg(table["torsions"])
    phi, psi = degrees[:, [p for p, _ in pairs]], degrees[:, [s for _, s in pairs]]
    time = np.broadcast_to(table["time"][:, None], phi.shape)
    points = axes.scatter(phi.ravel(), psi.ravel(), c=time.ravel(), s=6, cmap="cividis", linewidths=0)
    figure.colorbar(points, ax=axes, label="time (ps)", shrink=0.85)
    ramachandran_axes(axes, title=f"{len(pairs)} residues, {len(degrees)} frames")
    axes.axhline(0, color="grey", linewidth=0.5)
    axes.axvline(0, color="grey", linewidth=0.5)
    return figure


def chi_figure(table: Table) -> tuple[Any | None, int]:
    """Distributions of the first chi angles, and how many more there are; None if there are none."""
    kinds = table["torsion_kind"]
    columns = [i for i, kind in enumerate(kinds) if str(kind).startswith("chi")]
    if not columns:
        return None, 0
    shown = columns[:MOST_CHI]
    across = min(4, len(shown))
    down = math.ceil(len(shown) / across)
    size = (2.3 * across + 0.6, 1.9 * down + 0.6)
    figure, grid = new_figure(down, across, figsize=size, sharex=True, squeeze=False)
    degrees = np.rad2deg(table["torsions"])
    for axes, column in zip(grid.flat, shown, strict=False):
        axes.hist(degrees[:, column], bins=np.arange(-180, 181, 10), **BARS)
        name = f"{kinds[column]} {table['torsion_residue_name'][column]} {table['torsion_residue_id'][column]}"
        axes.set_title(plain_label(name), fontsize=9)
        axes.set(xlim=(-180, 180), xticks=(-180, -60, 60, 180))
    for axes in list(grid.flat)[len(shown) :]:
        axes.set_visible(False)
    figure.supxlabel("χ (degrees)")
    figure.supylabel("frames")
    return figure, len(columns) - len(shown)


def acceptance_figure(table: Table) -> Any | None:
    """Acceptance rate of the proposals so far, along the run; None unless proposals were made."""
    if not np.isfinite(table["acceptance"]).any():
        return None
    figure, axes = new_figure(figsize=(8.0, 2.8))
    axes.plot(table["time"], table["acceptance"], **LINE)
    axes.set(xlabel="time (ps)", ylabel="acceptance rate")
    return figure


def iterations_figure(table: Table) -> Any:
    """How many iterations the drift took at the reported steps."""
    figure, axes = new_figure(figsize=(5.0, 2.8))
    count = np.bincount(table["iterations"])
    axes.bar(np.arange(len(count)), count, **BARS)
    axes.set(xlabel="iterations of the drift", ylabel="reported steps")
    axes.xaxis.get_major_locator().set_params(integer=True)
    return figure

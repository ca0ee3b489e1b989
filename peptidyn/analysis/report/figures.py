"""The figures of a report: axes with units, told apart by line style and position as well as by colour."""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import numpy as np

from peptidyn.analysis.plots import new_figure
from peptidyn.analysis.report.run_folder import RunFolder
from peptidyn.analysis.run_plots import phi_psi_pairs
from peptidyn.core.statistics import kish_size
from peptidyn.core.units import BOLTZMANN

_DARK, _LIGHT = "#1f4e79", "#c8781e"  # apart in grey, and for every kind of colour blindness
_ANGLES = range(-180, 181, 60)
MOST_CHI = 12
"""Distributions of chi angles that are drawn; those of more residues would be too small to read."""


def as_data_uri(figure: Any) -> str:
    """Return a figure as a PNG inside a data: address."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110, format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def plain_label(text: str) -> str:
    """Return text for matplotlib, which would read formulas between dollar signs."""
    return text.replace("$", r"\$")


def energy_figure(run: RunFolder) -> Any:
    """Potential, kinetic and total energy and the temperature along the run."""
    figure, (upper, lower) = new_figure(2, 1, figsize=(8.0, 5.2), sharex=True)
    time = run.table["time"]
    for name, style, colour in (("potential", "-", _DARK), ("kinetic", ":", "black"), ("total", "--", _LIGHT)):
        upper.plot(time, run.table[name], style, linewidth=1.0, color=colour, label=name)
    upper.set(ylabel="energy (kJ/mol)")
    upper.legend(frameon=False, fontsize=8, ncols=3)
    mean = float(run.table["temperature"].mean())
    lower.plot(time, run.table["temperature"], linewidth=0.9, color=_DARK)
    lower.axhline(mean, color="black", linestyle="--", linewidth=0.9, label=f"mean {mean:.1f} K")
    if run.settings.ensemble != "nve":
        target = run.settings.temperature
        lower.axhline(target, color=_LIGHT, linestyle=":", linewidth=1.4, label=f"heat bath {target:g} K")
    lower.set(xlabel="time (ps)", ylabel="kinetic temperature (K)")
    lower.legend(frameon=False, fontsize=8, ncols=2)
    return figure


def drift_figure(run: RunFolder) -> Any:
    """Change of the total energy, with its slope where it is conserved."""
    figure, axes = new_figure(figsize=(8.0, 3.2))
    time, change = run.table["time"], run.table["total"] - run.table["total"][0]
    axes.plot(time, change, linewidth=0.9, color=_DARK)
    if run.settings.ensemble == "nve":
        slope, offset = np.polyfit(time, change, 1)
        label = f"{1000 * slope:+.3g} kJ/mol/ns"
        axes.plot(time, offset + slope * time, color="black", linestyle="--", linewidth=0.9, label=label)
        axes.legend(frameon=False)
    axes.set(xlabel="time (ps)", ylabel="change of the\ntotal energy (kJ/mol)")
    return figure


def ramachandran_figure(run: RunFolder) -> Any | None:
    """All phi/psi pairs, shaded by time; None if there are none."""
    pairs = phi_psi_pairs(run.table)
    if not pairs:
        return None
    figure, axes = new_figure(figsize=(5.6, 4.8))
    degrees = np.rad2deg(run.table["torsions"])
    phi, psi = degrees[:, [p for p, _ in pairs]], degrees[:, [s for _, s in pairs]]
    time = np.broadcast_to(run.table["time"][:, None], phi.shape)
    points = axes.scatter(phi.ravel(), psi.ravel(), c=time.ravel(), s=6, cmap="cividis", linewidths=0)
    figure.colorbar(points, ax=axes, label="time (ps)", shrink=0.85)
    axes.set(xlim=(-180, 180), ylim=(-180, 180), xlabel="φ (degrees)", ylabel="ψ (degrees)")
    axes.set(xticks=_ANGLES, yticks=_ANGLES, aspect="equal")
    axes.axhline(0, color="grey", linewidth=0.5)
    axes.axvline(0, color="grey", linewidth=0.5)
    return figure


def chi_figure(run: RunFolder) -> tuple[Any | None, int]:
    """Distributions of the first chi angles, and how many more there are; None if there are none."""
    kinds = run.table["torsion_kind"]
    columns = [i for i, kind in enumerate(kinds) if str(kind).startswith("chi")]
    if not columns:
        return None, 0
    shown = columns[:MOST_CHI]
    across = min(4, len(shown))
    down = math.ceil(len(shown) / across)
    size = (2.3 * across + 0.6, 1.9 * down + 0.6)
    figure, grid = new_figure(down, across, figsize=size, sharex=True, squeeze=False)
    degrees = np.rad2deg(run.table["torsions"])
    for axes, column in zip(grid.flat, shown, strict=False):
        axes.hist(degrees[:, column], bins=np.arange(-180, 181, 10), color=_LIGHT, edgecolor="black", linewidth=0.3)
        name = f"{kinds[column]} {run.table['torsion_residue_name'][column]} {run.table['torsion_residue_id'][column]}"
        axes.set_title(plain_label(name), fontsize=9)
        axes.set(xlim=(-180, 180), xticks=(-180, -60, 60, 180))
    for axes in list(grid.flat)[len(shown) :]:
        axes.set_visible(False)
    figure.supxlabel("χ (degrees)")
    figure.supylabel("frames")
    return figure, len(columns) - len(shown)


def fixman_figure(run: RunFolder, energies: np.ndarray) -> Any:
    """U_F (n_frames,), kJ/mol, along the run, and the weights that go with it."""
    figure, (left, right) = new_figure(1, 2, figsize=(8.6, 3.4))
    kT = BOLTZMANN * run.settings.temperature
    left.plot(run.table["time"], (energies - energies.mean()) / kT, linewidth=0.9, color=_DARK)
    left.set(xlabel="time (ps)", ylabel="$U_F$ − mean (kT)")
    weights = fixman_weights_of(run, energies)
    right.hist(weights * len(weights), bins=30, color=_LIGHT, edgecolor="black", linewidth=0.4)
    right.axvline(1.0, color="black", linestyle="--", linewidth=0.9, label="equal weights")
    right.set(xlabel="weight × number of frames", ylabel="frames")
    right.set_title(f"effective sample size {kish_size(weights):.0f} of {len(weights)}", fontsize=10)
    right.legend(frameon=False, fontsize=8)
    return figure


def fixman_weights_of(run: RunFolder, energies: np.ndarray) -> np.ndarray:
    """Return normalised weights: those that bring U_F in where it was off, or take it out where it was on."""
    sign = 1.0 if run.settings.uses_fixman else -1.0
    exponent = sign * energies / (BOLTZMANN * run.settings.temperature)
    weights = np.exp(exponent - exponent.max())
    return weights / weights.sum()


def acceptance_figure(run: RunFolder) -> Any | None:
    """Accepted part of the proposals so far, along the run; None unless proposals were made."""
    accepted = run.table["acceptance"]
    if not np.isfinite(accepted).any():
        return None
    figure, axes = new_figure(figsize=(8.0, 2.8))
    axes.plot(run.table["time"], accepted, linewidth=1.1, color=_DARK)
    axes.set(xlabel="time (ps)", ylabel="accepted part\nof the proposals")
    return figure


def iterations_figure(run: RunFolder) -> Any:
    """How many iterations the drift took at the reported steps."""
    figure, axes = new_figure(figsize=(5.0, 2.8))
    count = np.bincount(run.table["iterations"])
    axes.bar(np.arange(len(count)), count, color=_LIGHT, edgecolor="black", linewidth=0.4)
    axes.set(xlabel="iterations of the drift", ylabel="reported steps")
    axes.xaxis.get_major_locator().set_params(integer=True)
    return figure

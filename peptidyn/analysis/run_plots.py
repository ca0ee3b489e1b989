"""Pictures of a run, from the files in its folder: energy and temperature, Ramachandran plot, drift."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from peptidyn.analysis.plots import new_figure, save_figure
from peptidyn.core.errors import ArgumentError
from peptidyn.runs.settings import read_toml

_BLUE, _ORANGE = "#1f4e79", "#c8781e"


def plot_run(folder: str | os.PathLike[str]) -> list[Path]:
    """Draw ``energy.png``, ``drift.png`` and, if there are phi/psi pairs, ``ramachandran.png``.

    Parameters
    ----------
    folder : str or path
        With the torsions.npz and run.toml that `peptidyn run` left there.

    Returns
    -------
    list of Path
        The pictures; empty if the run reported fewer than two frames.
    """
    place = Path(folder)
    try:
        with np.load(place / "torsions.npz", allow_pickle=False) as file:
            table = {name: file[name] for name in file.files}
    except FileNotFoundError as error:
        raise ArgumentError(f"{place} holds no torsions.npz to draw from") from error
    if len(table["step"]) < 2:
        return []
    pictures = [place / "energy.png", place / "drift.png"]
    settings = read_toml(place / "run.toml")
    _plot_energy(table, pictures[0], settings)
    _plot_drift(table, pictures[1], conserved=settings.get("ensemble") == "nve")
    pairs = phi_psi_pairs(table)
    if pairs:
        pictures.append(place / "ramachandran.png")
        _plot_ramachandran(table, pairs, pictures[-1])
    return pictures


def phi_psi_pairs(table: dict[str, np.ndarray]) -> list[tuple[int, int]]:
    """Return the columns (phi, psi) of every residue that has both."""
    place = {
        (kind, chain, residue): column
        for column, (kind, chain, residue) in enumerate(
            zip(table["torsion_kind"], table["torsion_chain"], table["torsion_residue"].tolist(), strict=True)
        )
    }
    return [
        (column, place["psi", chain, residue])
        for (kind, chain, residue), column in place.items()
        if kind == "phi" and ("psi", chain, residue) in place
    ]


def _plot_energy(table: dict[str, np.ndarray], path: Path, settings: dict[str, Any]) -> None:
    figure, (upper, lower) = new_figure(2, 1, figsize=(7.0, 5.4), sharex=True)
    upper.plot(table["time"], table["potential"], linewidth=0.9, color=_BLUE, label="potential")
    if table["fixman"].any():
        # only its changes matter: the level of ln det M depends on units
        level = table["fixman"] - table["fixman"].mean() + table["potential"].mean()
        upper.plot(table["time"], level, linewidth=0.9, color=_ORANGE, label="Fixman, shifted")
    upper.set(ylabel="energy (kJ/mol)", title="Potential energy and temperature")
    upper.legend(frameon=False, fontsize=8)
    mean = float(table["temperature"].mean())
    lower.plot(table["time"], table["temperature"], linewidth=0.9, color=_BLUE)
    lower.axhline(mean, color="black", linestyle="--", linewidth=0.9, label=f"mean {mean:.0f} K")
    target = settings.get("temperature")
    if target is not None and settings.get("ensemble") != "nve":
        lower.axhline(target, color=_ORANGE, linewidth=0.9, label=f"target {target:.0f} K")
    lower.set(xlabel="time (ps)", ylabel="kinetic temperature (K)")
    lower.legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def _plot_drift(table: dict[str, np.ndarray], path: Path, conserved: bool) -> None:
    """Draw the total energy; its drift means something only where nothing exchanges energy with the molecule."""
    figure, axes = new_figure()
    time, change = table["time"], table["total"] - table["total"][0]
    axes.plot(time, change, linewidth=0.9, color=_BLUE)
    if conserved:
        slope, offset = np.polyfit(time, change, 1)
        label = f"{1000 * slope:+.3g} kJ/mol/ns"
        axes.plot(time, offset + slope * time, color="black", linestyle="--", linewidth=0.9, label=label)
        axes.legend(frameon=False)
    title = "Drift of the total energy" if conserved else "Total energy, exchanged with the heat bath"
    axes.set(xlabel="time (ps)", ylabel="change of the total energy (kJ/mol)", title=title)
    save_figure(figure, path)


def _plot_ramachandran(table: dict[str, np.ndarray], pairs: list[tuple[int, int]], path: Path) -> None:
    figure, axes = new_figure(figsize=(5.4, 5.0))
    degrees = np.rad2deg(table["torsions"])
    phi, psi = degrees[:, [p for p, _ in pairs]], degrees[:, [s for _, s in pairs]]
    colour: Any = np.broadcast_to(table["time"][:, None], phi.shape)
    points = axes.scatter(phi.ravel(), psi.ravel(), c=colour.ravel(), s=6, cmap="cividis", linewidths=0)
    figure.colorbar(points, ax=axes, label="time (ps)", fraction=0.046, pad=0.04)
    axes.set(
        xlim=(-180, 180), ylim=(-180, 180), xlabel="φ (degrees)", ylabel="ψ (degrees)",
        title=f"{len(pairs)} residues, {len(degrees)} frames",
    )  # fmt: skip
    axes.set_xticks(range(-180, 181, 60))
    axes.set_yticks(range(-180, 181, 60))
    axes.axhline(0, color="grey", linewidth=0.5)
    axes.axvline(0, color="grey", linewidth=0.5)
    axes.set_aspect("equal")
    save_figure(figure, path)

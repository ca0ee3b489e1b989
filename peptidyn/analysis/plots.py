"""What all pictures share: figures that need no screen, one look, saving. Also the maps and weights of U_F.

matplotlib is an extra: ``pip install "peptidyn[plots]"``.
"""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from peptidyn.core.errors import MissingDependencyError
from peptidyn.core.files import replacing
from peptidyn.core.statistics import kish_size
from peptidyn.metric.fixman_map import BASINS, FixmanMap
from peptidyn.metric.fixman_weights import FixmanWeights

DARK, LIGHT = "#1f4e79", "#c8781e"
"""Colours that stay apart in grey, and for every kind of colour blindness."""

LINE: dict[str, Any] = {"linewidth": 0.9, "color": DARK}
BARS: dict[str, Any] = {"color": LIGHT, "edgecolor": "black", "linewidth": 0.4}
MARK: dict[str, Any] = {"linewidth": 0.9, "color": "black", "linestyle": "--"}
"""Of a line that something is compared with."""


def new_figure(*args: Any, **keywords: Any) -> tuple[Any, Any]:
    """Return a figure and its axes that need no screen."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError.of("plots need matplotlib", "plots") from error
    figure = Figure(figsize=keywords.pop("figsize", (6.0, 4.5)), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(*args, **keywords)


def save_figure(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write a figure; the file appears only when it is complete."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150)


def save_figures(figures: dict[str, Any], folder: Path) -> list[Path]:
    """Write figures, but those that are None, under their names; return the files."""
    pictures = {folder / f"{name}.png": figure for name, figure in figures.items() if figure is not None}
    for path, figure in pictures.items():
        save_figure(figure, path)
    return list(pictures)


def as_data_uri(figure: Any) -> str:
    """Return a figure as a PNG inside a data: address."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110, format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def plain_label(text: str) -> str:
    """Return text for matplotlib, which would read formulas between dollar signs."""
    return text.replace("$", r"\$")


def add_legend(axes: Any, **keywords: Any) -> None:
    """Add the legend of all labelled artists, without a frame."""
    axes.legend(frameon=False, fontsize=8, **keywords)


def leave_room(axes: Any, part: float) -> None:
    """Leave the upper `part` of axes free, for a legend."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, low + (high - low) / (1.0 - part))


def ramachandran_axes(axes: Any, **labels: Any) -> None:
    """Make axes a square of phi and psi, degrees."""
    angles = range(-180, 181, 60)
    axes.set(xlim=(-180, 180), ylim=(-180, 180), xticks=angles, yticks=angles, aspect="equal")
    axes.set(xlabel="φ (degrees)", ylabel="ψ (degrees)", **labels)


def plot_fixman_map(chart: FixmanMap, path: str | os.PathLike[str]) -> None:
    """Draw U_F over phi and psi in kT, with contour lines and the standard basins."""
    save_figure(fixman_map_figure(chart), path)


def fixman_map_figure(chart: FixmanMap) -> Any:
    """Return the picture of a map of U_F."""
    figure, axes = new_figure()
    # closed at +180, so that the map is periodic to the eye too
    phi, psi = np.append(chart.phi, 180.0), np.append(chart.psi, 180.0)
    energy = np.pad(chart.energy, ((0, 1), (0, 1)), mode="wrap")
    levels = np.linspace(0.0, max(chart.range, 1e-6), 13)
    filled = axes.contourf(phi, psi, energy.T, levels=levels, cmap="cividis")
    lines = axes.contour(phi, psi, energy.T, levels=levels[1::2], colors="white", linewidths=0.6)
    axes.clabel(lines, fmt="%.2f", fontsize=7)
    for name, (x, y) in BASINS.items():
        axes.plot(x, y, "o", color="white", markeredgecolor="black", markersize=5)
        axes.annotate(
            name, (x, y), xytext=(5, 5), textcoords="offset points", fontsize=9, color="white",
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "black", "alpha": 0.6, "linewidth": 0},
        )  # fmt: skip
    figure.colorbar(filled, ax=axes, label="$U_F$ / kT, above the minimum", format="%.2f")
    ramachandran_axes(axes, title=f"Fixman potential of {chart.residue}")
    return figure


def plot_fixman_weights(weights: FixmanWeights, path: str | os.PathLike[str]) -> None:
    """Draw U_F along the trajectory and the distribution of the weights."""
    save_figure(fixman_figure(weights.time, weights.energy / weights.kT, weights.weights), path)


def fixman_figure(time: np.ndarray, energy: np.ndarray, weights: np.ndarray) -> Any:
    """Draw U_F (n_frames,), kT, along the time (ps), and the distribution of normalised weights (n_frames,)."""
    figure, (left, right) = new_figure(1, 2, figsize=(9.0, 3.6))
    left.plot(time, energy - energy.mean(), **LINE)
    left.set(xlabel="time (ps)", ylabel="$U_F$ − mean (kT)", title="Fixman potential along the trajectory")
    right.hist(weights * len(weights), bins=40, **BARS)
    right.axvline(1.0, label="equal weights", **MARK)
    title = f"effective sample size {kish_size(weights):.0f} of {len(weights)}"
    right.set(xlabel="weight × number of frames", ylabel="frames", title=title)
    add_legend(right)
    return figure

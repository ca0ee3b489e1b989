"""Pictures. matplotlib is an extra: ``pip install "peptidyn[plots]"``."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from peptidyn.core.errors import MissingDependencyError
from peptidyn.core.files import replacing
from peptidyn.metric.fixman_map import BASINS, FixmanMap
from peptidyn.metric.fixman_weights import FixmanWeights


def new_figure(*args: Any, **keywords: Any) -> tuple[Any, Any]:
    """Return a figure and its axes that need no screen."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            'plots need matplotlib, which is not installed; install it with: pip install "peptidyn[plots]"'
        ) from error
    figure = Figure(figsize=keywords.pop("figsize", (6.0, 4.5)), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(*args, **keywords)


def save_figure(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write a figure; the file appears only when it is complete."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150)


def plot_fixman_map(chart: FixmanMap, path: str | os.PathLike[str]) -> None:
    """Draw U_F over phi and psi in kT, with contour lines and the standard basins."""
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
    axes.set(xlabel="φ (degrees)", ylabel="ψ (degrees)", title=f"Fixman potential of {chart.residue}")
    axes.set_xticks(range(-180, 181, 60))
    axes.set_yticks(range(-180, 181, 60))
    axes.set_aspect("equal")
    save_figure(figure, path)


def plot_fixman_weights(weights: FixmanWeights, path: str | os.PathLike[str]) -> None:
    """Draw U_F along the trajectory and the distribution of the weights."""
    figure, (left, right) = new_figure(1, 2, figsize=(9.0, 3.8))
    left.plot(weights.time, weights.energy / weights.kT, linewidth=0.8, color="#1f4e79")
    left.set(xlabel="time (ps)", ylabel="$U_F$ / kT", title="Fixman potential along the trajectory")
    right.hist(weights.weights * len(weights), bins=40, color="#c8781e", edgecolor="black", linewidth=0.4)
    right.axvline(1.0, color="black", linestyle="--", linewidth=0.9, label="equal weights")
    right.set(
        xlabel="weight × number of frames", ylabel="frames",
        title=f"effective sample size {weights.effective_sample_size:.0f} of {len(weights)}",
    )  # fmt: skip
    right.legend(frameon=False)
    save_figure(figure, path)

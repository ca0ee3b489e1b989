"""Pictures of what frames look like: size, secondary structure, hydrogen bonds, populations, melting curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from peptidyn.analysis.conformations import COIL, HELIX, STRAND
from peptidyn.analysis.estimates import Estimate
from peptidyn.analysis.melting import Curve
from peptidyn.analysis.observables import BASINS
from peptidyn.analysis.plots import DARK, LIGHT, LINE, add_legend, new_figure, plain_label

LETTERS = {HELIX: ("helix", LIGHT), STRAND: ("strand", DARK), COIL: ("coil", "#e4e4e4")}
"""Secondary structure: words and colours, which stay apart in grey."""

MOST_NAMES = 40
"""Residues that are named at an axis; of more, every so many."""


def size_figure(along: np.ndarray, label: str, lengths: Sequence[Estimate]) -> Any:
    """Lengths (n_frames,), nm, along the frames; `label` says what `along` is."""
    figure, grid = new_figure(len(lengths), 1, figsize=(8.0, 2.3 * len(lengths)), sharex=True, squeeze=False)
    for axes, length in zip(grid.flat, lengths, strict=True):
        axes.plot(along, length.values, **LINE)
        axes.set(ylabel=f"{length.name} (nm)")
    axes.set(xlabel=label)
    return figure


def secondary_figure(along: np.ndarray, label: str, letters: np.ndarray, names: Sequence[str]) -> Any | None:
    """Secondary structure (n_frames, n_residues) along the frames; None without residues."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    if not len(names):
        return None
    figure, axes = new_figure(figsize=(8.0, min(1.8 + 0.2 * len(names), 9.0)))
    codes = np.zeros(letters.shape)
    for index, letter in enumerate(LETTERS):
        codes[letters == letter] = index
    colours = ListedColormap([colour for _, colour in LETTERS.values()])
    extent = (float(along[0]), float(along[-1]), len(names) - 0.5, -0.5)
    look = {"aspect": "auto", "cmap": colours, "vmin": -0.5, "vmax": len(LETTERS) - 0.5, "interpolation": "nearest"}
    axes.imshow(codes.T, extent=extent, **look)
    _name_residues(axes.yaxis, names)
    axes.set(xlabel=label)
    patches = [Patch(color=colour, label=word) for word, colour in LETTERS.values()]
    axes.legend(handles=patches, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    axes.set_title("Secondary structure (DSSP)", loc="left")
    return figure


def bonds_figure(along: np.ndarray, label: str, count: np.ndarray) -> Any:
    """Number of hydrogen bonds (n_frames,) along the frames."""
    figure, axes = new_figure(figsize=(8.0, 2.8))
    axes.plot(along, count, **LINE)
    axes.set(xlabel=label, ylabel="hydrogen bonds")
    axes.yaxis.get_major_locator().set_params(integer=True)
    return figure


def basins_figure(names: Sequence[str], population: np.ndarray, error: np.ndarray) -> Any | None:
    """Populations (n_residues, n_basins) of every residue with their standard errors; None without residues."""
    if not len(names):
        return None
    figure, axes = new_figure(figsize=(min(3.0 + 0.34 * len(names), 12.0), 3.6))
    looks = ((LIGHT, ""), (DARK, ""), ("#8fb0cf", "//"))
    place, low = np.arange(len(names)), np.zeros(len(names))
    for column, (word, (colour, hatch)) in enumerate(zip(BASINS, looks, strict=True)):
        height = population[:, column]
        axes.bar(place, height, bottom=low, color=colour, hatch=hatch, edgecolor="black", linewidth=0.4, label=word)
        shown = height > 0.02
        axes.errorbar(
            place[shown],
            (low + height)[shown],
            error[shown, column],
            fmt="none",
            ecolor="black",
            capsize=2,
            linewidth=0.7,
        )
        low += height
    axes.set(ylim=(0, 1.02), ylabel="population", title="Basins of the Ramachandran plot, standard errors")
    _name_residues(axes.xaxis, names)
    axes.tick_params(axis="x", rotation=60)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def melting_figure(temperatures: np.ndarray, alone: dict[str, np.ndarray], curves: dict[str, Curve]) -> Any:
    """Averages against temperature.

    Parameters
    ----------
    temperatures : (n_levels,)
        K.
    alone : dict of (n_levels, 2)
        By name with unit: mean and standard error of the frames at each temperature alone.
    curves : dict of Curve
        By the same names: from all frames together; empty where there are too few.
    """
    across = min(2, len(alone))
    down = -(-len(alone) // across)
    figure, grid = new_figure(down, across, figsize=(4.6 * across, 3.0 * down), squeeze=False)
    for axes, (name, (mean, error)) in zip(grid.flat, ((n, v.T) for n, v in alone.items()), strict=False):
        axes.errorbar(temperatures, mean, error, fmt="o", color=LIGHT, markersize=5, capsize=3, label="each alone")
        if name in curves:
            one = curves[name]
            axes.plot(one.temperatures, one.mean, label="all together (MBAR)", **LINE)
            low, high = one.mean - one.error, one.mean + one.error
            axes.fill_between(one.temperatures, low, high, color=DARK, alpha=0.2, linewidth=0)
        axes.set(xlabel="temperature (K)", ylabel=name)
    for axes in list(grid.flat)[len(alone) :]:
        axes.set_visible(False)
    add_legend(grid.flat[0])
    return figure


def _name_residues(axis: Any, names: Sequence[str]) -> None:
    step = -(-len(names) // MOST_NAMES)
    axis.set_ticks(np.arange(0, len(names), step), [plain_label(name) for name in names[::step]], fontsize=8)

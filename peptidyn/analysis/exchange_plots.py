"""Pictures of a replica exchange run, from the files in its folder."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from peptidyn.analysis.plots import BARS, DARK, LIGHT, LINE, MARK, add_legend, new_figure, save_figures
from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.runs.exchange_run import ExchangeRun
from peptidyn.sampling.mbar import TemperatureMBAR


def plot_exchange(folder: str | os.PathLike[str]) -> list[Path]:
    """Draw ``temperatures.png``, ``acceptance.png``, ``overlap.png`` and ``energies.png``.

    Parameters
    ----------
    folder : str or path
        With the files that `peptidyn exchange` left there.

    Returns
    -------
    list of Path
        The pictures; empty if the run has fewer than two iterations.
    """
    run = ExchangeRun(folder)
    return save_figures(exchange_figures(run), run.path) if len(run.walk) > 1 else []


def exchange_figures(run: ExchangeRun) -> dict[str, Any]:
    """Return figures of temperatures visited, acceptance rates, overlap and energies."""
    T = run.temperatures
    energies = [run.energies(level)["potential"] for level in range(len(T))]
    mbar = TemperatureMBAR(energies, T)
    return {
        "temperatures": _walk_figure(run.walk, T, int(run.round_trips.sum())),
        "acceptance": _acceptance_figure(run, mbar.overlap),
        "overlap": _overlap_figure(mbar.overlap, T),
        "energies": _energies_figure(energies, mbar, T),
    }


def _walk_figure(walk: np.ndarray, T: np.ndarray, trips: int) -> Any:
    """One row per replica, coloured by its temperature: a replica that travels changes colour along its row."""
    n = len(T)
    figure, axes = new_figure(figsize=(8.0, 1.6 + 0.32 * min(n, 24)))
    extent = (0, len(walk), n - 0.5, -0.5)
    shown = axes.imshow(
        walk.T, aspect="auto", cmap="plasma", interpolation="nearest", extent=extent, vmin=0, vmax=n - 1
    )
    bar = figure.colorbar(shown, ax=axes, label="temperature (K)")
    ticks = np.unique(np.linspace(0, n - 1, min(n, 8)).round().astype(int))
    bar.set_ticks(ticks, labels=[f"{T[k]:.0f}" for k in ticks])
    axes.set_yticks(np.arange(n) if n <= 24 else np.arange(0, n, 10))
    axes.set(xlabel="iteration", ylabel="replica", title=f"Temperatures visited; round trips: {trips}")
    return figure


def _acceptance_figure(run: ExchangeRun, overlap: np.ndarray) -> Any:
    """Acceptance rates of exchanges, beside the overlap of the pair, and of moves."""
    figure, (left, right) = new_figure(1, 2, figsize=(9.5, 4.0))
    T = run.temperatures
    pairs = np.arange(len(T) - 1)
    left.bar(pairs, run.acceptance, label="acceptance rate", **BARS)
    left.plot(pairs, overlap.diagonal(1), "D", color=DARK, label="overlap")
    left.axhline(0.2, label="0.2, a usual aim", **MARK)
    left.set(ylim=(0, 1.15), xlabel="pair (K)", title="Exchanges of neighbours")
    left.set_xticks(pairs, [f"{a:.0f}–{b:.0f}" for a, b in pairwise(T)], rotation=45, ha="right")
    add_legend(left, ncols=3, loc="upper center")
    for column, move in enumerate(run.moves):
        right.plot(
            T, run.move_acceptance[:, column], "o-", color=(DARK, LIGHT)[column % 2], markersize=4, label=move["move"]
        )
    right.set(ylim=(0, 1.02), xlabel="temperature (K)", ylabel="acceptance rate", title="Moves")
    add_legend(right)
    return figure


def _overlap_figure(overlap: np.ndarray, T: np.ndarray) -> Any:
    figure, axes = new_figure(figsize=(5.8, 5.0))
    shown = axes.imshow(overlap, cmap="Blues", vmin=0.0, vmax=max(0.5, float(overlap.max())))
    ticks, labels = np.arange(len(T)), [f"{t:.0f}" for t in T]
    axes.set_xticks(ticks, labels, rotation=45)
    axes.set_yticks(ticks, labels)
    for (i, j), value in np.ndenumerate(overlap):
        if len(T) <= 12 and value >= 0.005:
            colour = "white" if value > 0.5 * shown.norm.vmax else "black"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    figure.colorbar(shown, ax=axes, label="overlap")
    axes.set(xlabel="temperature (K)", ylabel="temperature (K)", title="Overlap of the temperatures")
    return figure


def _energies_figure(energies: list[np.ndarray], mbar: TemperatureMBAR, T: np.ndarray) -> Any:
    """Distributions of V at every temperature, and its average from each alone and from all together."""
    import matplotlib

    figure, (left, right) = new_figure(1, 2, figsize=(11.0, 4.0))
    pooled = np.concatenate(energies)
    bins = int(np.clip(2.0 * len(pooled) ** (1 / 3), 8, 60))
    edges = np.linspace(pooled.min(), pooled.max() + 1e-9, bins + 1)
    colours = matplotlib.colormaps["cividis"](np.linspace(0.0, 0.92, len(T)))
    visited = [(t, e, colour) for t, e, colour in zip(T, energies, colours, strict=True) if len(e)]
    for t, e, colour in visited:
        left.hist(e, edges, histtype="step", density=True, color=colour, linewidth=1.2, label=f"{t:.0f} K")
        error = e.std() * np.sqrt(statistical_inefficiency(e) / len(e))
        right.errorbar(t, e.mean(), error, fmt="o", color=colour, markersize=4, capsize=3)
    left.set(xlabel="potential energy (kJ/mol)", ylabel="density", title="Energies at every temperature")
    add_legend(left, ncols=1 + len(T) // 9)
    grid = np.linspace(T[0], T[-1], 41)
    mean, error = mbar.mean_energy(grid)
    right.plot(grid, mean, label="all temperatures together (MBAR)", **LINE)
    right.fill_between(grid, mean - error, mean + error, color=DARK, alpha=0.2, linewidth=0)
    right.set(xlabel="temperature (K)", ylabel="mean potential energy (kJ/mol)", title="Mean energy, standard errors")
    add_legend(right)
    return figure

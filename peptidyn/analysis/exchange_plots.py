"""Pictures of a replica exchange run, from the files in its folder."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp

from peptidyn.analysis.plots import new_figure, save_figure
from peptidyn.core.errors import ArgumentError
from peptidyn.core.units import BOLTZMANN
from peptidyn.sampling.storage import ENERGIES, ExchangeFolder

_BLUE, _ORANGE = "#1f4e79", "#c8781e"

MBAR_FRAMES = 500
"""Frames per temperature that the overlap is computed from, at most."""


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
    place = Path(folder)
    try:
        summary = json.loads((place / "summary.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArgumentError(f"{place} holds no summary.json to draw from") from error
    T = np.array(summary["temperatures_K"])
    files = ExchangeFolder(place, len(T))
    walk = files.read_walk()
    if len(walk) < 2:
        return []
    rows = np.concatenate([np.load(files.replica(r) / ENERGIES) for r in range(len(T))])
    energies = [rows["potential"][rows["level"] == k] for k in range(len(T))]
    pictures = [place / f"{name}.png" for name in ("temperatures", "acceptance", "overlap", "energies")]
    _plot_walk(walk, T, summary["round_trips"], pictures[0])
    _plot_acceptance(summary, T, pictures[1])
    _plot_overlap(overlap_matrix(energies, T), T, pictures[2])
    _plot_energies(energies, T, pictures[3])
    return pictures


def overlap_matrix(energies: list[np.ndarray], temperatures: np.ndarray) -> np.ndarray:
    """Return the overlap of the temperatures, O_ij = mean over all samples of N_j w_i(x) w_j(x), rows sum to one.

    w_i(x) = exp(f_i - V/kT_i) / sum_k N_k exp(f_k - V/kT_k) are the weights of the multistate estimator (MBAR), with
    the free energies f_i solved for by iteration. Neighbours that share less than 0.03 are hardly connected.

    Parameters
    ----------
    energies : list of (n_i,)
        V of the frames at every temperature, kJ/mol.
    temperatures : (m,)
        K.
    """
    energies = [e[:: max(1, len(e) // MBAR_FRAMES)] for e in energies]
    count = np.array([len(e) for e in energies], dtype=np.float64)
    pooled = np.concatenate(energies)
    pooled = pooled - pooled.mean()
    u = pooled[None] / (BOLTZMANN * temperatures[:, None])
    with np.errstate(divide="ignore"):
        log_count = np.log(count)
    f = np.zeros(len(temperatures))
    for _ in range(10_000):
        mixture = logsumexp(f[:, None] - u + log_count[:, None], axis=0)
        new = -logsumexp(-u - mixture, axis=1)
        new -= new[0]
        change = np.abs(new - f).max()
        f = new
        if change < 1e-8:
            break
    w = np.exp(f[:, None] - u - mixture)
    w /= w.sum(axis=1, keepdims=True)
    return (w @ w.T) * count[None]


def _plot_walk(walk: np.ndarray, T: np.ndarray, trips: list[int], path: Path) -> None:
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
    axes.set(xlabel="iteration", ylabel="replica", title=f"Temperatures visited; {sum(trips)} round trips")
    save_figure(figure, path)


def _plot_acceptance(summary: dict[str, Any], T: np.ndarray, path: Path) -> None:
    figure, (left, right) = new_figure(1, 2, figsize=(9.5, 4.0))
    rates = np.array([np.nan if rate is None else rate for rate in summary["exchange_acceptance"]])
    left.bar(np.arange(len(rates)), rates, color=_BLUE, width=0.7)
    left.axhline(0.2, color=_ORANGE, linestyle="--", linewidth=1.0)
    left.set(
        ylim=(0, 1), ylabel="accepted part of exchanges", xlabel="pair (K)",
        title="Exchanges of neighbours (line: 0.2, a usual aim)",
    )  # fmt: skip
    left.set_xticks(np.arange(len(rates)), [f"{a:.0f}–{b:.0f}" for a, b in pairwise(T)], rotation=45, ha="right")
    moves = np.array([[np.nan if a is None else a for a in row] for row in summary["move_acceptance"]])
    for column, move in enumerate(summary["moves"]):
        right.plot(T, moves[:, column], "o-", color=(_BLUE, _ORANGE)[column % 2], markersize=4, label=move["move"])
    right.set(ylim=(0, 1.02), xlabel="temperature (K)", ylabel="accepted part of proposals", title="Moves")
    right.legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def _plot_overlap(overlap: np.ndarray, T: np.ndarray, path: Path) -> None:
    figure, axes = new_figure(figsize=(5.8, 5.0))
    shown = axes.imshow(overlap, cmap="Blues", vmin=0.0, vmax=max(0.5, float(overlap.max())))
    ticks = np.arange(len(T))
    axes.set_xticks(ticks, [f"{t:.0f}" for t in T], rotation=45)
    axes.set_yticks(ticks, [f"{t:.0f}" for t in T])
    if len(T) <= 12:
        for i in ticks:
            for j in ticks:
                if overlap[i, j] >= 0.005:
                    dark = overlap[i, j] > 0.5 * shown.norm.vmax
                    axes.text(
                        j, i, f"{overlap[i, j]:.2f}", ha="center", va="center", fontsize=8,
                        color="white" if dark else "black",
                    )  # fmt: skip
    figure.colorbar(shown, ax=axes, label="overlap")
    axes.set(xlabel="temperature (K)", ylabel="temperature (K)", title="Overlap of the temperatures")
    save_figure(figure, path)


def _plot_energies(energies: list[np.ndarray], T: np.ndarray, path: Path) -> None:
    figure, axes = new_figure(figsize=(7.0, 4.0))
    low, high = min(e.min() for e in energies if len(e)), max(e.max() for e in energies if len(e))
    edges = np.linspace(low, high + 1e-9, 61)
    colours = _colours(len(T))
    for k, e in enumerate(energies):
        if len(e):
            axes.hist(e, edges, histtype="step", density=True, color=colours[k], linewidth=1.2, label=f"{T[k]:.0f} K")
    axes.set(xlabel="potential energy (kJ/mol)", ylabel="density", title="Energies at every temperature")
    axes.legend(frameon=False, fontsize=8, ncols=1 + len(T) // 9)
    save_figure(figure, path)


def _colours(count: int) -> Any:
    import matplotlib

    return matplotlib.colormaps["cividis"](np.linspace(0.0, 0.92, count))

"""The report of replica exchange."""

from __future__ import annotations

from typing import Any

import numpy as np

from peptidyn.analysis.conformations import Conformations
from peptidyn.analysis.estimates import estimate
from peptidyn.analysis.exchange_plots import exchange_figures
from peptidyn.analysis.melting import Curve, melting_curve, melting_temperature
from peptidyn.analysis.plots import as_data_uri
from peptidyn.analysis.report.page import render_page
from peptidyn.analysis.report.run_page import setting_rows, version_rows
from peptidyn.analysis.report.structure_tab import MOST_FRAMES as MOST_STRUCTURES
from peptidyn.analysis.report.structure_tab import Rows, StructureTab, named, part, structure_tab
from peptidyn.analysis.report.viewer import MOST_BYTES, level_frames, most_frames, pack, shown_atoms
from peptidyn.analysis.structure_plots import melting_figure
from peptidyn.core.errors import ArgumentError
from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.runs.exchange_run import ExchangeRun
from peptidyn.sampling.mbar import MOST_FRAMES

HELIX_CONTENT = "helix content"

TABS = {
    "overview": "Overview",
    "exchange": "Exchange",
    "energy": "Energy",
    "melting": "Melting",
    "structure": "Structure",
    "view": "3-D view",
}


def exchange_page(run: ExchangeRun, most_bytes: int = MOST_BYTES) -> str:
    """Return the report of replica exchange as HTML.

    Parameters
    ----------
    run : ExchangeRun
    most_bytes : int
        Limit of the coordinates that the 3-D view carries.
    """
    if len(run.walk) < 2:
        raise ArgumentError(
            f"the replica exchange run in {run.path} has made {len(run.walk)} iterations, too few for a report; "
            "continue it first"
        )
    settings, versions = run.settings, version_rows(run.summary)  # what is damaged is told before anything is computed
    shown, notes = shown_atoms(run.structure)
    alone, curves, sentences = _melting(run, shown)
    structure, view, left_out = _lowest(run, shown, most_bytes)
    figures = {
        **exchange_figures(run),
        "melting": melting_figure(run.temperatures, alone, curves),
        **structure.figures,
    }
    name = run.path.resolve().name if settings is None else settings.name
    T = run.temperatures
    return render_page(
        "exchange.html",
        title=f"peptidyn exchange: {name}",
        subtitle=f"{run.n_replicas} replicas, {T[0]:.1f} to {T[-1]:.1f} K, {len(run.walk)} iterations",
        tabs=TABS,
        folder=run.path.name,
        ending=run.ending,
        resumable=settings is not None,
        pictures={name: as_data_uri(figure) for name, figure in figures.items() if figure is not None},
        facts=_facts(run),
        settings=[] if settings is None else setting_rows(settings),
        notes=[str(note) for note in run.structure.notes],
        versions=versions,
        replicas=_replicas(run),
        levels=_levels(run),
        melting=_melting_rows(T, alone),
        melting_head=("temperature (K)", *alone),
        helix=HELIX_CONTENT in alone,
        sentences=sentences,
        lowest=float(T[0]),
        structure=structure,
        view=view,
        left_out=notes + left_out,
    )


def _facts(run: ExchangeRun) -> Rows:
    facts: Rows = [
        ("state", run.ending),
        ("replicas", run.n_replicas),
        ("temperatures (K)", ", ".join(f"{T:.1f}" for T in run.temperatures)),
        ("iterations", len(run.walk)),
        ("frames per replica", run.n_frames),
        ("round trips of all replicas", int(run.round_trips.sum())),
        ("energy and force calls", run.force_calls),
        ("atoms", run.structure.n_atoms),
        ("moves", "; ".join(_move(move) for move in run.moves)),
    ]
    if run.settings is not None:
        facts.append(("distribution", run.settings.distribution))
    return [(name, str(value)) for name, value in facts]


def _move(settings: dict[str, Any]) -> str:
    """Return a move and its settings as text; its time step at the beginning, before it was tuned."""
    units = {"step": " ps", "friction": " 1/ps"}
    parts = [f"{name} {value}{units.get(name, '')}" for name, value in settings.items() if name != "move"]
    return f"{settings['move']} ({', '.join(parts)})"


def _replicas(run: ExchangeRun) -> Rows:
    ends = [(run.walk == level).sum(axis=0).tolist() for level in (0, run.n_replicas - 1)]
    return [(r, *counts) for r, counts in enumerate(zip(run.round_trips.tolist(), *ends, strict=True))]


def _levels(run: ExchangeRun) -> Rows:
    """Mean potential energy at every temperature, from its own frames."""
    rows: Rows = []
    for level, T in enumerate(run.temperatures.tolist()):
        energy = run.energies(level)["potential"]
        found = estimate(energy)
        size = len(energy) / statistical_inefficiency(energy)
        rows.append((round(T, 1), len(energy), round(found.mean, 2), round(found.error, 2), round(size, 1)))
    return rows


def _melting(run: ExchangeRun, shown: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, Curve], list[str]]:
    """Return averages at each temperature alone and as curves over all, by name, and what there is to say of them."""
    reference, T = run.structure.positions[shown], run.temperatures
    values, energies = [], []
    for level in range(run.n_replicas):
        frames, rows, _ = level_frames(run, level, shown, MOST_FRAMES)
        values.append(Conformations(frames, reference).averages)
        energies.append(rows["potential"])
    alone = {named(one): np.array([(v[k].mean, v[k].error) for v in values]) for k, one in values[0].items()}
    count = len(energies[0])
    sentences = [f"From {len(T) * count} of {run.n_replicas * run.n_frames} frames, from the first iteration on."]
    if count < 4:
        return alone, {}, [*sentences, "Curves over all temperatures need four iterations."]
    grid = np.linspace(T[0], T[-1], 41)
    curves = {
        named(one): melting_curve(np.array([v[k].values for v in values]), np.array(energies), T, grid)
        for k, one in values[0].items()
    }
    if HELIX_CONTENT in curves:
        at, error = melting_temperature(curves[HELIX_CONTENT])
        if np.isfinite(at):
            sentences.append(f"Half of the helix is left at {at:.0f} K, with a standard error of {error:.0f} K.")
    return alone, curves, sentences


def _melting_rows(T: np.ndarray, alone: dict[str, np.ndarray]) -> Rows:
    return [
        (round(t, 1), *(part(*map(float, column[level])) for column in alone.values()))
        for level, t in enumerate(T.tolist())
    ]


def _lowest(run: ExchangeRun, shown: np.ndarray, most_bytes: int) -> tuple[StructureTab, dict[str, Any], list[str]]:
    """Return tab and view of the frames at the lowest temperature, and what was left out of the view."""
    frames, rows, left_out = level_frames(run, 0, shown, MOST_STRUCTURES)
    found = Conformations(frames, run.structure.positions[shown])
    tab = structure_tab(found, rows["iteration"], "iteration", left_out)
    frames, rows, left_out = level_frames(run, 0, shown, most_frames(len(shown), most_bytes))
    return tab, pack(frames, rows["iteration"], "iteration ", ""), left_out

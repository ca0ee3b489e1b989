"""`peptidyn report`: one HTML file about a run, which needs nothing else to be read."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax
from scipy.stats import circmean

from peptidyn._version import __version__
from peptidyn.analysis import run_plots as plots
from peptidyn.analysis.plots import as_data_uri, fixman_figure
from peptidyn.analysis.report.page import render_page
from peptidyn.analysis.report.viewer import MOST_BYTES, view_data
from peptidyn.analysis.step_limits import estimate_periods
from peptidyn.analysis.transitions import count_transitions
from peptidyn.core.files import write_text
from peptidyn.core.statistics import kish_size, statistical_inefficiency
from peptidyn.core.units import BOLTZMANN
from peptidyn.metric.fixman_potential import FixmanPotential
from peptidyn.runs.run_folder import RunFolder, read_run

__all__ = ["read_run", "write_report"]

FASTEST = 8
"""Rows in the table of fastest coordinates."""

Rows = list[tuple[Any, ...]]
"""Of a table: numbers stand at the right."""


def write_report(
    folder: str | os.PathLike[str], output: str | os.PathLike[str] | None = None, *, most_bytes: int = MOST_BYTES
) -> Path:
    """Write a report about a run as one HTML file; return its path.

    Parameters
    ----------
    folder : str or path
        The folder that `peptidyn run` wrote. The run may be finished, interrupted, killed or running.
    output : str or path, optional
        File to write; report.html in the folder if not given.
    most_bytes : int
        Limit of the coordinates that the 3-D view carries; frames are left out beyond, and the report says so.
    """
    run = read_run(folder)
    target = run.path / "report.html" if output is None else Path(output)
    table, conserved = run.table, run.settings.ensemble == "nve"
    fixman, fixman_picture = _fixman(run)
    chi, more_chi = plots.chi_figure(table)
    figures = {
        "energy": plots.energy_figure(table, None if conserved else run.settings.temperature),
        "drift": plots.drift_figure(table, conserved),
        "acceptance": plots.acceptance_figure(table),
        "ramachandran": plots.ramachandran_figure(table),
        "chi": chi,
        "fixman": fixman_picture,
        "iterations": plots.iterations_figure(table),
    }
    view, left_out = view_data(run, most_bytes)
    page = render_page(
        title=f"peptidyn run: {Path(run.settings.file or 'capped decaalanine').name}",
        run=run,
        time=float(table["time"][-1]),
        pictures={name: as_data_uri(figure) for name, figure in figures.items() if figure is not None},
        facts=_facts(run),
        settings=[(k, _setting(v)) for k, v in asdict(run.settings).items() if v not in (None, ())],
        notes=[*run.summary.get("notes", []), *(str(note) for note in run.structure.notes)],
        versions=_versions(run),
        averages=_averages(run),
        drift=_drift(run) if conserved else None,
        more_chi=more_chi,
        transitions=_transitions(run),
        fixman=fixman,
        periods=_periods(run),
        view=view,
        left_out=left_out,
    )
    write_text(target, page)
    return target


def _facts(run: RunFolder) -> Rows:
    tree = run.tree
    facts: Rows = [
        ("state", run.ending),
        ("frames", run.n_frames),
        ("simulated time (ps)", round(float(run.table["time"][-1]), 6)),
        ("steps", int(run.table["step"][-1])),
        ("atoms", tree.n_atoms),
        ("soft coordinates", tree.describe_coordinates()),
        ("degrees of freedom", tree.n_dof),
        ("distribution", run.settings.distribution),
        ("kinetic metric", _metric(run)),
        ("Fixman potential", "on" if run.settings.uses_fixman else "off"),
    ]
    if run.summary.get("ns_per_day"):
        facts.append(("speed (ns/day)", round(run.summary["ns_per_day"], 1)))
    return [(name, str(value)) for name, value in facts]


def _metric(run: RunFolder) -> str:
    inertias = np.count_nonzero(run.tree.joint_inertia)
    if not inertias:
        return "physical"
    return f"{run.settings.metric_word}: {inertias} soft coordinates have joint inertias, so rates are not physical"


def _versions(run: RunFolder) -> Rows:
    recorded = {"openmm": "not recorded", "platform": "?", "peptidyn": "not recorded", **run.summary}
    return [
        ("peptidyn, of the run", recorded["peptidyn"]),
        ("OpenMM, of the run", f"{recorded['openmm']} ({recorded['platform']})"),
        ("peptidyn, of this report", __version__),
        ("Python, of this report", platform.python_version()),
        *((f"{name}, of this report", version(name)) for name in ("numpy", "numba", "mdtraj")),
    ]


def _setting(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)


def _averages(run: RunFolder) -> Rows:
    """Mean and standard error of energies and temperature."""
    rows: Rows = []
    for name, unit in (("potential", "kJ/mol"), ("kinetic", "kJ/mol"), ("total", "kJ/mol"), ("temperature", "K")):
        series = run.table[name]
        error = series.std() * np.sqrt(statistical_inefficiency(series) / len(series))
        rows.append((f"{name} ({unit})", round(float(series.mean()), 2), round(float(error), 2)))
    return rows


def _drift(run: RunFolder) -> tuple[float, float]:
    """Return the drift of the total energy: kJ/mol/ns, and kT per degree of freedom and ns."""
    slope = 1000.0 * float(np.polyfit(run.table["time"], run.table["total"], 1)[0])
    return slope, slope / (BOLTZMANN * run.settings.temperature * run.tree.n_dof)


def _transitions(run: RunFolder) -> Rows:
    degrees = np.rad2deg(run.table["torsions"])
    means = circmean(degrees, high=180.0, low=-180.0, axis=0)
    time = float(run.table["time"][-1] - run.table["time"][0])
    counts = [count_transitions(degrees[:, i], torsion.kind) for i, torsion in enumerate(run.tree.torsions)]
    return [
        (str(torsion), count, round(count / time, 4), round(float(mean), 1))
        for torsion, count, mean in zip(run.tree.torsions, counts, means, strict=True)
    ]


def _fixman(run: RunFolder) -> tuple[Rows, Any]:
    """Table and picture of U_F, with weights that bring it in where it was off, or take it out where it was on."""
    on = run.settings.uses_fixman
    potential = FixmanPotential(run.tree, run.settings.temperature)
    energy = (run.table["fixman"] if on else potential.energies(run.q)) / potential.kT
    weights = softmax(energy if on else -energy)
    rows: Rows = [
        ("standard deviation of U_F (kT)", round(float(energy.std()), 3)),
        ("range of U_F (kT)", round(float(np.ptp(energy)), 3)),
        ("effective sample size with the weights", round(kish_size(weights), 1)),
        ("frames", run.n_frames),
    ]
    return rows, fixman_figure(run.table["time"], energy, weights)


def _periods(run: RunFolder) -> Rows:
    """Return the fastest coordinates, their periods (fs) and the steps in each; nothing for fewer than ten frames."""
    if run.n_frames < 10 or not run.tree.n_coordinates:
        return []
    periods = estimate_periods(run.tree, run.q, run.settings.temperature)
    return [
        (
            str(run.tree.coordinates[i]),
            round(1000.0 * float(periods[i]), 1),
            round(float(periods[i] / run.settings.timestep_ps), 1),
        )
        for i in np.argsort(periods)[:FASTEST]
    ]

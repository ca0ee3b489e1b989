"""`peptidyn report`: one HTML file about a run, which needs nothing else to be read."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from peptidyn._version import __version__
from peptidyn.analysis.report import figures
from peptidyn.analysis.report.page import Section, paragraph, picture, render_page, table, viewer_section
from peptidyn.analysis.report.run_folder import RunFolder, read_run
from peptidyn.analysis.report.viewer import MOST_BYTES, view_data
from peptidyn.analysis.step_limits import estimate_periods
from peptidyn.analysis.transitions import count_transitions
from peptidyn.core.files import write_text
from peptidyn.core.statistics import kish_size, statistical_inefficiency
from peptidyn.core.units import BOLTZMANN
from peptidyn.metric.fixman_potential import FixmanPotential

__all__ = ["read_run", "write_report"]

_ENDINGS = {
    "finished": "The run is complete.",
    "interrupted": "The run was interrupted and can be continued: peptidyn run --resume -o FOLDER.",
    "killed": "The run was killed, or is still running. What it had reported so far is shown; it can be continued: "
    "peptidyn run --resume -o FOLDER.",
}
FASTEST = 8
"""Rows in the table of fastest coordinates."""


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
    data, left_out = view_data(run, most_bytes)
    view = "\n".join(paragraph(note) for note in left_out)
    if data is not None:
        view += viewer_section(data)
    sections = [
        Section("overview", "Overview", _overview(run)),
        Section("energy", "Energy", _energy(run)),
        Section("torsions", "Torsions", _torsions(run)),
        Section("fixman", "Fixman", _fixman(run)),
        Section("step", "Time step", _step(run)),
        Section("view", "3-D view", view),
    ]
    name = run.settings.file or "capped decaalanine"
    title = f"peptidyn run: {Path(name).name}"
    time = float(run.table["time"][-1])
    subtitle = f"{run.n_frames} frames, {time:g} ps, {run.settings.ensemble}, {run.settings.temperature:g} K"
    write_text(target, render_page(title, subtitle, sections, with_viewer=data is not None))
    return target


def _overview(run: RunFolder) -> str:
    tree, summary = run.tree, run.summary
    parts = [paragraph(_ENDINGS[run.ending].replace("FOLDER", run.path.name), "" if summary else "warning")]
    facts: list[tuple[str, Any]] = [
        ("state", run.ending),
        ("frames", run.n_frames),
        ("simulated time (ps)", round(float(run.table["time"][-1]), 6)),
        ("steps", int(run.table["step"][-1])),
        ("atoms", tree.n_atoms),
        ("torsions", tree.n_torsions),
        ("opened bond angles", tree.n_bends),
        ("degrees of freedom", tree.n_dof),
        ("Fixman potential", "on" if run.settings.uses_fixman else "off"),
    ]
    if summary.get("ns_per_day"):
        facts.append(("speed (ns/day)", round(summary["ns_per_day"], 1)))
    parts += ["<h2>What was run</h2>", table((name, str(value)) for name, value in facts), "<h2>Settings</h2>"]
    settings = [(name, _setting(value)) for name, value in asdict(run.settings).items() if value not in (None, ())]
    parts.append(table(settings))
    notes = [*summary.get("notes", []), *(str(note) for note in run.structure.notes)]
    if notes:
        parts += ["<h2>Notes</h2>", *(paragraph(note) for note in notes)]
    versions = [("peptidyn, of the run", summary.get("peptidyn", "not recorded"))]
    versions += [("OpenMM, of the run", f"{summary.get('openmm', 'not recorded')} ({summary.get('platform', '?')})")]
    versions += [("peptidyn, of this report", __version__), ("Python, of this report", platform.python_version())]
    versions += [(f"{name}, of this report", version(name)) for name in ("numpy", "numba", "mdtraj")]
    return "\n".join([*parts, "<h2>Versions</h2>", table(versions)])


def _setting(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)


def _energy(run: RunFolder) -> str:
    t = run.table
    rows = []
    for name, unit in (("potential", "kJ/mol"), ("kinetic", "kJ/mol"), ("total", "kJ/mol"), ("temperature", "K")):
        series = t[name]
        error = series.std() * np.sqrt(statistical_inefficiency(series) / len(series))
        rows.append((f"{name} ({unit})", round(float(series.mean()), 2), round(float(error), 2)))
    parts = [
        picture(figures.as_data_uri(figures.energy_figure(run)), "Energies and kinetic temperature along the run."),
        table(rows, ("quantity", "mean", "standard error")),
        "<h2>Drift</h2>",
        picture(figures.as_data_uri(figures.drift_figure(run)), "Change of the total energy since the first frame."),
    ]
    if run.settings.ensemble == "nve":
        slope = 1000.0 * float(np.polyfit(t["time"], t["total"], 1)[0])
        per_dof = slope / (BOLTZMANN * run.settings.temperature * run.tree.n_dof)
        parts.append(
            paragraph(f"The energy drifts by {slope:+.3g} kJ/mol/ns, {per_dof:+.2g} kT per degree of freedom.")
        )
    else:
        parts.append(paragraph("The molecule exchanges energy with a heat bath, so its total energy is not conserved."))
    accepted = figures.acceptance_figure(run)
    parts.append("<h2>Acceptance</h2>")
    if accepted is None:
        parts.append(paragraph(f"The {run.settings.ensemble} ensemble makes no proposals: every step is taken."))
    else:
        last = float(run.table["acceptance"][-1])
        parts.append(
            picture(figures.as_data_uri(accepted), f"Accepted part of all proposals so far; {last:.4f} at last.")
        )
    return "\n".join(parts)


def _torsions(run: RunFolder) -> str:
    parts = ["<h2>Ramachandran plot</h2>"]
    map_ = figures.ramachandran_figure(run)
    if map_ is None:
        parts.append(paragraph("No residue has both phi and psi soft."))
    else:
        parts.append(
            picture(figures.as_data_uri(map_), "φ and ψ of all residues in all frames; lighter points are later.")
        )
    parts.append("<h2>Side chains</h2>")
    chi, more = figures.chi_figure(run)
    if chi is None:
        parts.append(paragraph("No chi angle is soft."))
    else:
        caption = "Distributions of side-chain torsions." + (f" {more} more are not drawn." if more else "")
        parts.append(picture(figures.as_data_uri(chi), caption))
    degrees = np.rad2deg(run.table["torsions"])
    time = float(run.table["time"][-1] - run.table["time"][0])
    rows = []
    for column, torsion in enumerate(run.tree.torsions):
        count = count_transitions(degrees[:, column], torsion.kind)
        rows.append((str(torsion), count, round(count / time, 4), round(float(_circular_mean(degrees[:, column])), 1)))
    parts += [
        "<h2>Transitions</h2>",
        paragraph(
            "How often each torsion entered another well, counted from frame to frame: faster returns are not seen, "
            "and passing the edge of a well without entering the next one does not count."
        ),
        table(rows, ("torsion", "transitions", "per ps", "mean (degrees)")),
    ]
    return "\n".join(parts)


def _circular_mean(degrees: np.ndarray) -> float:
    return float(np.rad2deg(np.angle(np.exp(1j * np.deg2rad(degrees)).mean())))


def _fixman(run: RunFolder) -> str:
    on = run.settings.uses_fixman
    energies = run.table["fixman"] if on else FixmanPotential(run.tree, run.settings.temperature).energies(run.q)
    kT = BOLTZMANN * run.settings.temperature
    weights = figures.fixman_weights_of(run, energies)
    if on:
        text = (
            "U_F was part of the energy: all frames count alike. The weights below are those that would take it out "
            "again; they show how large the bias of rigid dynamics would have been."
        )
    else:
        text = (
            "U_F was not part of the energy. The weights below remove the bias of rigid dynamics from averages over "
            "the frames; peptidyn fixman writes them to a table."
        )
    rows = [
        ("standard deviation of U_F (kT)", round(float(energies.std() / kT), 3)),
        ("range of U_F (kT)", round(float(np.ptp(energies) / kT), 3)),
        ("effective sample size with the weights", round(float(kish_size(weights)), 1)),
        ("frames", run.n_frames),
    ]
    shown = picture(
        figures.as_data_uri(figures.fixman_figure(run, energies)),
        "The Fixman potential along the run, about its mean, and the distribution of the weights.",
    )
    return "\n".join([paragraph(text), shown, table(rows)])


def _step(run: RunFolder) -> str:
    h = 1000.0 * run.settings.timestep_ps
    iterations = run.table["iterations"]
    parts = [
        paragraph(f"The time step was {h:g} fs."),
        "<h2>Iterations of the drift</h2>",
        picture(
            figures.as_data_uri(figures.iterations_figure(run)),
            "Iterations that the implicit part of the step took, at the reported steps; many mean a large step.",
        ),
        paragraph(f"Mean {iterations.mean():.2f}, largest {iterations.max()}."),
        "<h2>Fastest coordinates</h2>",
    ]
    if run.n_frames < 10 or not run.tree.n_coordinates:
        return "\n".join([*parts, paragraph("There are too few frames to estimate periods: ten are needed.")])
    periods = 1000.0 * estimate_periods(run.tree, run.q, run.settings.temperature)
    order = np.argsort(periods)[:FASTEST]
    rows = [(str(run.tree.coordinates[i]), round(float(periods[i]), 1), round(float(periods[i] / h), 1)) for i in order]
    parts += [
        paragraph(
            "The period with which a coordinate swings in its well, estimated from its spread in this run and its "
            "inertia. The fastest ones limit the step: motions of fewer than about ten steps per period lose accuracy, "
            "and below three the step is not stable. Motions of several coordinates together can be faster."
        ),
        table(rows, ("coordinate", "period (fs)", "steps per period")),
    ]
    return "\n".join(parts)

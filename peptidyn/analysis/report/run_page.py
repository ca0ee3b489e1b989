"""The report of a run."""

from __future__ import annotations

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
from peptidyn.analysis.conformations import Conformations, nearest_well
from peptidyn.analysis.estimates import estimate
from peptidyn.analysis.plots import as_data_uri, fixman_figure
from peptidyn.analysis.report.page import render_page
from peptidyn.analysis.report.structure_tab import MOST_FRAMES as MOST_STRUCTURES
from peptidyn.analysis.report.structure_tab import Rows, StructureTab, part, structure_tab
from peptidyn.analysis.report.viewer import MOST_BYTES, run_frames, shown_atoms, view_data
from peptidyn.analysis.step_limits import estimate_periods
from peptidyn.analysis.transitions import CORES, THREEFOLD, count_transitions
from peptidyn.core.statistics import kish_size
from peptidyn.core.units import BOLTZMANN
from peptidyn.metric.fixman_potential import FixmanPotential
from peptidyn.runs.run_folder import RunFolder
from peptidyn.runs.settings import ModelSettings

UNITS = {
    "timestep": "fs", "friction": "1/ps", "temperature": "K", "tmin": "K", "tmax": "K", "pressure": "bar",
    "padding": "nm", "cutoff": "nm", "ions": "mol/l", "hydrogen_mass": "Da", "interval": "steps",
}  # fmt: skip
"""Of settings that are numbers."""

FASTEST = 8
"""Rows in the table of fastest coordinates."""


TABS = {
    "overview": "Overview",
    "energy": "Energy",
    "torsions": "Torsions",
    "structure": "Structure",
    "fixman": "Fixman",
    "step": "Time step",
    "view": "3-D view",
}


def run_page(run: RunFolder, most_bytes: int = MOST_BYTES) -> str:
    """Return the report of a run as HTML.

    Parameters
    ----------
    run : RunFolder
    most_bytes : int
        Limit of the coordinates that the 3-D view carries.
    """
    table, conserved, settings = run.table, run.settings.ensemble == "nve", run.settings
    fixman, fixman_picture = _fixman(run)
    chi, more_chi = plots.chi_figure(table)
    structure = _structure(run)
    figures = {
        "energy": plots.energy_figure(table, None if conserved else settings.temperature),
        "drift": plots.drift_figure(table, conserved),
        "acceptance": plots.acceptance_figure(table),
        "ramachandran": plots.ramachandran_figure(table),
        "chi": chi,
        "fixman": fixman_picture,
        "iterations": plots.iterations_figure(table),
        **({} if structure is None else structure.figures),
    }
    view, left_out = view_data(run, most_bytes)
    time = float(table["time"][-1])
    return render_page(
        "run.html",
        title=f"peptidyn run: {Path(settings.file or 'capped decaalanine').name}",
        subtitle=f"{run.n_frames} frames, {time:g} ps, {settings.ensemble}, {settings.temperature:g} K",
        tabs=TABS,
        run=run,
        pictures={name: as_data_uri(figure) for name, figure in figures.items() if figure is not None},
        facts=_facts(run),
        settings=setting_rows(settings),
        notes=[*run.summary.get("notes", []), *(str(note) for note in run.structure.notes)],
        versions=version_rows(run.summary),
        averages=_averages(run),
        drift=_drift(run) if conserved else None,
        more_chi=more_chi,
        transitions=_transitions(run),
        structure=structure,
        fixman=fixman,
        periods=_periods(run),
        view=view,
        left_out=left_out,
    )


def _structure(run: RunFolder) -> StructureTab | None:
    """Return the tab about structure; None without a trajectory."""
    shown, _ = shown_atoms(run.structure)
    frames, times, left_out = run_frames(run, shown, MOST_STRUCTURES)
    if frames is None:
        return None
    return structure_tab(Conformations(frames, run.structure.positions[shown]), times, "time (ps)", left_out)


def _facts(run: RunFolder) -> Rows:
    tree = run.tree
    number = np.count_nonzero(tree.joint_inertia)
    inertias = f": {number} soft coordinates have joint inertias, so rates are not physical"
    facts: Rows = [
        ("state", run.ending),
        ("frames", run.n_frames),
        ("simulated time (ps)", round(float(run.table["time"][-1]), 6)),
        ("steps", int(run.table["step"][-1])),
        ("atoms", tree.n_atoms),
        ("soft coordinates", tree.describe_coordinates()),
        ("degrees of freedom", tree.n_dof),
        ("distribution", run.settings.distribution),
        ("kinetic metric", f"{run.settings.metric_word}{inertias}" if tree.joint_inertia.any() else "physical"),
        ("Fixman potential", "on" if run.settings.uses_fixman else "off"),
    ]
    if moves := run.summary.get("pivot_moves"):
        facts.append(("pivot moves", f"{moves['accepted']} of {moves['proposed']} accepted"))
    if run.summary.get("ns_per_day"):
        facts.append(("speed (ns/day)", round(run.summary["ns_per_day"], 1)))
    return [(name, str(value)) for name, value in facts]


def version_rows(summary: dict[str, Any]) -> Rows:
    """Return the versions that a summary of a run records, and those of the report."""
    recorded = {"openmm": "not recorded", "platform": "?", "peptidyn": "not recorded", **summary}
    return [
        ("peptidyn, of the run", recorded["peptidyn"]),
        ("OpenMM, of the run", f"{recorded['openmm']} ({recorded['platform']})"),
        ("peptidyn, of this report", __version__),
        ("Python, of this report", platform.python_version()),
        *((f"{name}, of this report", version(name)) for name in ("numpy", "numba", "mdtraj")),
    ]


def setting_rows(settings: ModelSettings) -> Rows:
    """Return all settings that have a value, with units, as text."""
    return [
        (f"{name} ({UNITS[name]})" if name in UNITS else name, _setting(value))
        for name, value in asdict(settings).items()
        if value not in (None, ())
    ]


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)


def _averages(run: RunFolder) -> Rows:
    """Mean and standard error of energies, U_F included where it was part of the total, and of the temperature."""
    names = {"potential": "potential (kJ/mol)", "kinetic": "kinetic (kJ/mol)", "fixman": "Fixman, U_F (kJ/mol)"}
    if not run.settings.uses_fixman:
        del names["fixman"]
    names |= {"total": "total (kJ/mol)", "temperature": "temperature (K)"}
    averages = {words: estimate(run.table[name]) for name, words in names.items()}
    return [(words, round(one.mean, 2), round(one.error, 2)) for words, one in averages.items()]


def _drift(run: RunFolder) -> tuple[float, float]:
    """Return the drift of the total energy: kJ/mol/ns, and kT per degree of freedom and ns."""
    slope = 1000.0 * float(np.polyfit(run.table["time"], run.table["total"], 1)[0])
    return slope, slope / (BOLTZMANN * run.settings.temperature * run.tree.n_dof)


def _transitions(run: RunFolder) -> Rows:
    degrees = np.rad2deg(run.table["torsions"])
    means = circmean(degrees, high=180.0, low=-180.0, axis=0)
    time = float(run.table["time"][-1] - run.table["time"][0])
    counts = [count_transitions(degrees[:, i], torsion.kind) for i, torsion in enumerate(run.tree.torsions)]
    wells = [_wells(degrees[:, i], torsion.kind) for i, torsion in enumerate(run.tree.torsions)]
    return [
        (str(torsion), count, round(count / time, 4), round(float(mean), 1), well)
        for torsion, count, mean, well in zip(run.tree.torsions, counts, means, wells, strict=True)
    ]


def _wells(degrees: np.ndarray, kind: str) -> str:
    """Return the populations of the wells of a torsion (n_frames,), by the nearest centre, as text."""
    centres = CORES.get(kind, THREEFOLD)
    inside = nearest_well(degrees, kind)[:, None] == np.arange(len(centres))
    found = estimate(inside)
    parts = zip(centres, found.mean, found.error, strict=True)
    return "; ".join(f"{centre:g}: {part(mean, error)}" for (centre, _), mean, error in parts if mean > 0)


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

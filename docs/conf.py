"""How the pages in this folder become HTML: ``python -m sphinx -W -b html docs html``. Needs no network."""

from __future__ import annotations

from pathlib import Path

import peptidyn

project = "peptidyn"
author = "The peptidyn developers"
copyright = "the peptidyn developers"
version = release = peptidyn.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
nitpicky = True
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"peptidyn {version}"
html_show_sphinx = False
html_copy_source = False

autodoc_typehints = "none"  # types, shapes and units are in the docstrings
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": False}
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

GROUPS = {
    "io": "Structures and trajectories",
    "model": "The tree model",
    "solvers": "Solvers",
    "metric": "The Fixman potential",
    "engine": "OpenMM: forces, integrators, simulations",
    "sampling": "Sampling",
    "runs": "Runs and studies",
    "analysis": "Reports",
    "core": "Errors",
}
"""Packages in the order of the flow, and what their names have in common."""

MORE = {
    "model": [
        "peptidyn.model.tree.Coordinate", "peptidyn.model.tree.Links",
        "peptidyn.model.trajectory_states.Frame", "peptidyn.model.trajectory_states.FrameChunk",
    ],
    "solvers": ["peptidyn.solvers.protocol.Solver", "peptidyn.solvers.protocol.Factor"],
    "metric": ["peptidyn.metric.fixman_weights.FixmanWeights", "peptidyn.metric.fixman_map.FixmanMap"],
    "sampling": ["peptidyn.sampling.gibbs.Samples", "peptidyn.sampling.moves.Move"],
    "runs": [
        "peptidyn.runs.run.RunResult", "peptidyn.runs.run_folder.RunFolder",
        "peptidyn.runs.exchange_run.ExchangeRun",
        "peptidyn.runs.settings.ModelSettings", "peptidyn.runs.settings.RunSettings",
        "peptidyn.runs.settings.ExchangeSettings",
    ],
    "core": [f"peptidyn.core.errors.{name}" for name in (
        "StructureError", "TrajectoryError", "SelectionError", "ModelError", "SolverError", "ArgumentError",
        "OutputError", "MissingDependencyError", "UnsupportedError", "StepError", "SamplingError", "BackendError",
        "CheckpointError",
    )],
}  # fmt: skip
"""What public calls take or return, beside the names in ``peptidyn`` itself."""


def write_api_page(app: object) -> None:
    """Write api.rst: every name of ``peptidyn.__all__``, by package, from its docstring."""
    lines = ["API", "===", "", "Names in ``peptidyn`` can be imported from there: ``import peptidyn as ptd``.", ""]
    lines += ["Units are nm, ps, Da, kJ/mol, rad and K unless a docstring says otherwise.", ""]
    for package, title in GROUPS.items():
        names = [n for n in peptidyn.__all__ if _package(n) == package]
        lines += [title, "-" * len(title), ""]
        for name in names:
            lines += _entry(f"peptidyn.{name}", getattr(peptidyn, name))
        for path in MORE.get(package, ()):
            module, _, name = path.rpartition(".")
            lines += _entry(path, getattr(__import__(module, fromlist=[name]), name))
    (Path(__file__).parent / "api.rst").write_text("\n".join(lines))


def _package(name: str) -> str:
    """Return the room that a public name lives in."""
    return getattr(getattr(peptidyn, name), "__module__", "").removeprefix("peptidyn.").split(".")[0]


def _entry(path: str, value: object) -> list[str]:
    directive = (
        ("autoexception" if issubclass(value, Exception) else "autoclass")
        if isinstance(value, type)
        else "autofunction"
    )
    return [f".. {directive}:: {path}", ""]


def setup(app: object) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", write_api_page)  # type: ignore[attr-defined]

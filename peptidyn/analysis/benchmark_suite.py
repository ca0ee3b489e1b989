"""The benchmarks by name: measure, say, and write files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from peptidyn.analysis.benchmark_dynamics import format_dynamics, measure_dynamics, plot_dynamics
from peptidyn.analysis.benchmark_fixman import format_fixman, measure_fixman
from peptidyn.analysis.benchmark_kernels import format_kernels, measure_kernels, plot_kernels
from peptidyn.analysis.benchmark_peers import format_peers, measure_peers, plot_peers
from peptidyn.analysis.benchmark_solvers import format_solvers, measure_solvers, plot_solvers
from peptidyn.analysis.benchmarks import check_rounds, write_json
from peptidyn.analysis.plots import new_figure
from peptidyn.core.errors import ArgumentError

BENCHMARKS: dict[str, tuple[Callable[..., dict[str, Any]], Callable[[Mapping[str, Any]], str]]] = {
    "solvers": (measure_solvers, format_solvers),
    "fixman": (measure_fixman, format_fixman),
    "kernels": (measure_kernels, format_kernels),
    "peers": (measure_peers, format_peers),
    "dynamics": (measure_dynamics, format_dynamics),
}
PICTURES = {"solvers": plot_solvers, "kernels": plot_kernels, "peers": plot_peers, "dynamics": plot_dynamics}


def run_benchmark(
    name: str,
    *,
    sizes: Sequence[int] | None = None,
    rounds: int = 7,
    frames: int | None = None,
    structure: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> tuple[dict[str, Any], str]:
    """Run one benchmark; return its report as a dictionary and as text.

    Parameters
    ----------
    name : {"solvers", "fixman", "kernels", "peers", "dynamics"}
    sizes : sequence of int, optional
        Numbers of torsions; each benchmark has its own default, but for ``dynamics``, whose molecules are fixed.
    rounds : int
        Interleaved rounds.
    frames : int, optional
        Length of the trajectory of ``fixman``.
    structure : path, optional
        The protein of ``peers``.
    folder : path, optional
        Where ``NAME.json`` and, but for ``fixman``, ``NAME.png`` are written; made if its parent exists.
    overwrite : bool
        Replace files that exist.
    progress : bool
        Show progress on standard error.
    """
    if name not in BENCHMARKS:
        raise ArgumentError(f"unknown benchmark {name!r}; the benchmarks are: {', '.join(BENCHMARKS)}")
    if frames is not None and name != "fixman":
        raise ArgumentError(f"the benchmark {name!r} reads no trajectory; a number of frames is for 'fixman'")
    if sizes is not None and name == "dynamics":
        raise ArgumentError(
            "the benchmark 'dynamics' runs Ala10 and Ala50; sizes are for the others, such as 'kernels'"
        )
    if structure is not None and name != "peers":
        raise ArgumentError(f"the benchmark {name!r} takes no structure; a file is for 'peers'")
    check_rounds(rounds)
    # what could go wrong with the files is found before minutes of measuring, not after them
    files = {} if folder is None else _output_files(name, Path(folder), overwrite)
    measure, text = BENCHMARKS[name]
    keywords: dict[str, Any] = {"rounds": rounds, "progress": progress}
    keywords |= {} if sizes is None else {"sizes": sizes}
    keywords |= {} if frames is None else {"frames": frames}
    keywords |= {} if structure is None else {"structure": structure}
    report = measure(**keywords)
    if files:
        files["json"].parent.mkdir(exist_ok=True)
        write_json(report, files["json"])
        if "png" in files:
            PICTURES[name](report, files["png"])
    return report, text(report)


def _output_files(name: str, folder: Path, overwrite: bool) -> dict[str, Path]:
    files = {"json": folder / f"{name}.json"}
    if name in PICTURES:
        files["png"] = folder / f"{name}.png"
        new_figure()  # raises if matplotlib is missing
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(f"{folder} is a file; give a folder for the results")
    if not folder.absolute().parent.is_dir():
        raise ArgumentError(f"the folder {folder.absolute().parent} does not exist; create it first")
    for path in files.values():
        if path.exists() and not overwrite:
            raise ArgumentError(f"{path} exists; choose another folder, or give --overwrite to replace it")
    return files

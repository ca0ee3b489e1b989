"""What the commands that simulate share: options, arguments for the library, what they print, and how they end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from peptidyn.cli.options import add_input_options
from peptidyn.core.errors import MissingDependencyError
from peptidyn.runs.presets import PRESETS


def add_run_options(p: argparse.ArgumentParser, longer: str) -> None:
    """Add the options that say what is read and where is written; `longer` says how a resumed run goes on."""
    p.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="PDB or mmCIF file, plain, .gz or .bz2; or prmtop, psf, top (default: built, Ala10)",
    )
    add_input_options(p)
    p.add_argument(
        "--from",
        dest="start",
        metavar="PATH",
        help="start where another run is, with its settings where none are given here: the folder of a run; or at a "
        "frame of a trajectory of the atoms in FILE",
    )
    p.add_argument("--frame", type=int, metavar="N", help="with --from: frame, counted from 0 (default: the last)")
    p.add_argument("--config", metavar="TOML", help="file with settings, named as here; options win over it")
    p.add_argument("-o", "--output", metavar="FOLDER", help="folder to write (default: named after FILE)")
    p.add_argument("--resume", action="store_true", help=f"continue the run in FOLDER, {longer}")
    p.add_argument("--overwrite", action="store_true", help="replace an earlier run in FOLDER")
    p.add_argument("-q", "--quiet", action="store_true", help="no progress, no report of the stages")


def add_model_options(p: argparse.ArgumentParser) -> None:
    """Add the options of `peptidyn.runs.settings.ModelSettings`."""
    s = p.add_argument_group("model, forces and steps")
    s.add_argument(
        "--timestep", type=float, metavar="FS", help="in fs (default: that of the preset, or less for long loops)"
    )
    s.add_argument("--friction", type=float, metavar="1/PS", help="friction in 1/ps (default: 1)")
    s.add_argument("--preset", metavar="NAME", help="torsions (default), angles, heavy or flexible; see below")
    s.add_argument("--soft", metavar="WORDS", help='soft coordinates, instead of --preset, e.g. "phi psi chi methyl"')
    s.add_argument("--metric", metavar="NAME", help="kinetic metric: physical or auto (default: that of the preset)")
    s.add_argument("--rigid", action="append", metavar="SELECTION", help="MDTraj selection to freeze into one body")
    s.add_argument("--select", metavar="SELECTION", help="MDTraj selection of the atoms to simulate (default: all)")
    s.add_argument("--model", type=int, metavar="N", help="which model of FILE, counted from 0 (default: 0)")
    s.add_argument("--hydrogen-mass", type=float, metavar="DA", help="repartition masses: hydrogens get this one")
    s.add_argument(
        "--solvent",
        metavar="NAME",
        help="implicit: obc2 (default), gbn2; none: vacuum; explicit, with PME: tip3p, tip3pfb, spce, opc3, and with "
        "four sites tip4pew, tip4pfb, tip4p2005 (charmm36), opc; explicit for the water of a prmtop, psf or top file. "
        "A file that holds a box full of water is simulated in it, otherwise water is added",
    )
    s.add_argument("--padding", type=float, metavar="NM", help="explicit: new box with so much water on every side")
    s.add_argument("--ions", type=float, metavar="M", help="explicit: salt, mol/l, beside neutralising ions")
    s.add_argument(
        "--cutoff",
        type=float,
        metavar="NM",
        help="of nonbonded forces; explicit: of the direct-space part of PME (default: 1), otherwise there is none "
        "unless given",
    )
    s.add_argument(
        "--forcefield",
        metavar="NAME",
        help="amber14 (default), amber19, amber99sbildn, amber03, charmm36, or files of OpenMM, separated by commas",
    )
    s.add_argument("--pH", type=float, help="protonation of hydrogens that are added (default: 7)")
    s.add_argument("--platform", metavar="NAME", help="OpenMM platform (default: the fastest)")
    s.add_argument("--threads", type=int, metavar="N", help="threads of the CPU platform; of each replica in exchange")
    s.add_argument("--seed", type=int, metavar="N", help="of the random numbers (default: drawn, and recorded)")
    s.add_argument(
        "--relax",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether bond lengths and angles are relaxed first (default: yes; with --from, if they moved there)",
    )


def speaker(options: argparse.Namespace) -> Callable[[str], None]:
    """Return what prints a line of text, or nothing with --quiet."""

    def say(text: str) -> None:
        if not options.quiet:
            print(text, flush=True)

    return say


def preset_help(dynamics: str) -> str:
    """Return a list of the presets for --help: steps, and which distribution each samples.

    Parameters
    ----------
    dynamics : {"langevin", "ghmc"}
        Whose time steps are told.
    """
    rows = [
        f"  {name:<10}{preset.soft}; {preset.metric} metric, {getattr(preset, dynamics):g} fs\n"
        f"            distribution: {preset.distribution}"
        for name, preset in PRESETS.items()
    ]
    return "\n".join(
        [
            "presets, from the rigid model to the flexible force field:",
            *rows,
            "With the auto metric stiff coordinates have joint inertias that the time step needs. What is sampled",
            "stays the same, but rates are not physical. In explicit water steps are 4 fs, and waters are rigid.",
        ]
    )


def run_arguments(options: argparse.Namespace, kind: type) -> dict[str, Any]:
    """Return the options as arguments of `peptidyn.run` or `peptidyn.exchange`; `kind` names the settings."""
    return {
        "config": options.config,
        "folder": options.output,
        "resume": options.resume,
        "overwrite": options.overwrite,
        "progress": not options.quiet,
        **{field.name: value for field in fields(kind) if (value := getattr(options, field.name, None)) is not None},
    }


def end_run(result: Any, done: str, plot: Callable[[Path], object], say: Callable[[str], None]) -> int:
    """Say what was done and draw pictures, or how to continue; return the exit status.

    Parameters
    ----------
    result : RunResult
    done : str
        How much was done.
    plot : callable
        Draws the pictures of a folder.
    say : callable
    """
    done = f"{done} in {result.folder}"
    if result.interrupted:
        print(f"peptidyn: interrupted after {done}; continue with --resume -o {result.folder}", file=sys.stderr)
        return 130
    try:
        plot(result.folder)
    except MissingDependencyError as error:
        say(f"note: no pictures were drawn: {error}")
    say(f"done: {done}")
    return 0

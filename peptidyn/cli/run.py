"""`peptidyn run`: simulate a structure in torsion space."""

from __future__ import annotations

import argparse

from peptidyn.cli.options import examples
from peptidyn.cli.simulations import add_model_options, add_run_options, end_run, preset_help, run_arguments, speaker


def add_command(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    p = commands.add_parser(
        "run",
        help="simulate a structure in torsion space",
        description="Prepare a structure (hydrogens, relaxed geometry), minimise, equilibrate and simulate it in "
        "torsion space. Without FILE, capped decaalanine is built. The folder then holds the trajectory, energies, "
        "torsions, settings, a summary, pictures and a checkpoint.",
        **examples(
            "peptidyn run",
            "peptidyn run protein.pdb --time 1ns --preset flexible -o protein-run",
            "peptidyn run -o protein-run --resume --time 2ns",
            "peptidyn run --config protein-run/run.toml --seed 2 -o second-run",
            "peptidyn run peptide.pdb --preset flexible --pivots 100 -o peptide-run",
            "peptidyn run --from protein-run --temperature 350 -o hot-run",
            "peptidyn run protein.pdb --from other.xtc --frame 100 -o from-frame",
            before=preset_help("langevin"),
        ),
    )
    add_run_options(p, "perhaps with a longer --time")
    s = p.add_argument_group("length, ensemble and reports")
    s.add_argument("--time", metavar="TIME", help="length of the run, e.g. 100ps or 2ns (default: 100ps)")
    s.add_argument("--steps", type=int, metavar="N", help="length of the run in steps, instead of --time")
    s.add_argument("-T", "--temperature", type=float, metavar="K", help="temperature in K (default: 300)")
    s.add_argument("--pressure", type=float, metavar="BAR", help="constant pressure, in explicit water only")
    s.add_argument("--ensemble", metavar="NAME", help="langevin (default), nve or ghmc")
    s.add_argument(
        "--pivots",
        type=int,
        metavar="N",
        help="pivot moves per 100 time steps: turns of one backbone bond by any angle, for small peptides without "
        "water; 100 with --preset flexible is a good choice (default: 0)",
    )
    s.add_argument(
        "--fixman",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether the Fixman potential is part of the energy (default: yes, except for nve)",
    )
    s.add_argument(
        "--keep-rigid-terms",
        action="store_true",
        default=None,
        help="compute angle and torsion terms inside rigid units, although they are constant",
    )
    s.add_argument("--equilibrate", metavar="TIME", help="equilibration before the run (default: 2ps)")
    s.add_argument("--report", metavar="TIME", help="time between frames, or a number of steps (default: 1ps)")
    s.add_argument("--trajectory", metavar="FORMAT", help="dcd (default), or xtc: smaller, to 0.001 nm")
    add_model_options(p)
    p.set_defaults(run=run_command)


def run_command(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from peptidyn.analysis.run_plots import plot_run
    from peptidyn.runs.run import run
    from peptidyn.runs.settings import RunSettings

    say = speaker(options)
    result = run(say=say, **run_arguments(options, RunSettings))
    done = f"{result.summary['time_ps']:g} ps, {result.summary['frames']} frames"
    if fallbacks := result.summary["drift_fallbacks"]:
        say(f"note: {fallbacks} drifts were solved by Anderson's method; if they are many, the time step is too large")
    if not result.summary["frames"] and not result.interrupted:
        say("note: no frame was written, since the run is shorter than the time between frames; see --report")
    return end_run(result, done, plot_run, say)

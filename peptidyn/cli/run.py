"""`peptidyn run`: simulate a structure in torsion space."""

from __future__ import annotations

import argparse

from peptidyn.cli.options import examples
from peptidyn.cli.simulations import end_run, run_arguments, speaker


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
            "peptidyn run protein.pdb --time 1ns --preset angles -o protein-run",
            "peptidyn run -o protein-run --resume --time 2ns",
            "peptidyn run --config protein-run/run.toml --seed 2 -o second-run",
        ),
    )
    p.add_argument("file", metavar="FILE", nargs="?", help="PDB or mmCIF file, plain or .gz")
    p.add_argument("--config", metavar="TOML", help="file with settings, named as here; options win over it")
    p.add_argument("-o", "--output", metavar="FOLDER", help="folder to write (default: named after FILE)")
    p.add_argument("--resume", action="store_true", help="continue the run in FOLDER, perhaps with a longer --time")
    p.add_argument("--overwrite", action="store_true", help="replace an earlier run in FOLDER")
    p.add_argument("-q", "--quiet", action="store_true", help="no progress, no report of the stages")
    s = p.add_argument_group("settings")
    s.add_argument("--time", metavar="TIME", help="length of the run, e.g. 100ps or 2ns (default: 100ps)")
    s.add_argument("--steps", type=int, metavar="N", help="length of the run in steps, instead of --time")
    s.add_argument("--timestep", type=float, metavar="FS", help="in fs (default: 8; 4 with soft angles or in water)")
    s.add_argument("-T", "--temperature", type=float, metavar="K", help="temperature in K (default: 300)")
    s.add_argument("--friction", type=float, metavar="1/PS", help="friction in 1/ps (default: 1)")
    s.add_argument("--ensemble", metavar="NAME", help="langevin (default), nve or ghmc")
    s.add_argument(
        "--fixman",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether the Fixman potential is part of the energy (default: yes, except for nve)",
    )
    s.add_argument(
        "--preset",
        metavar="NAME",
        help="soft set: torsions (default: phi psi chi, 8 fs, fast; rigid geometry raises barriers and shifts "
        "populations), or angles (backbone angles and omega too, 4 fs: recommended for populations)",
    )
    s.add_argument("--soft", metavar="WORDS", help='soft coordinates, instead of --preset, e.g. "phi psi chi methyl"')
    s.add_argument("--rigid", action="append", metavar="SELECTION", help="MDTraj selection to freeze into one body")
    s.add_argument("--select", metavar="SELECTION", help="MDTraj selection of the atoms to simulate (default: all)")
    s.add_argument("--hydrogen-mass", type=float, metavar="DA", help="repartition masses: hydrogens get this one")
    s.add_argument(
        "--solvent",
        metavar="NAME",
        help="implicit: obc2 (default), gbn2; none: vacuum; explicit, with PME: tip3p, tip3pfb, spce, opc3. A file "
        "that holds a box full of water is simulated in it, otherwise water is added",
    )
    s.add_argument("--padding", type=float, metavar="NM", help="explicit: new box with so much water on every side")
    s.add_argument("--ions", type=float, metavar="M", help="explicit: salt, mol/l, beside neutralising ions")
    s.add_argument("--cutoff", type=float, metavar="NM", help="explicit: direct-space cutoff of PME (default: 1)")
    s.add_argument(
        "--forcefield",
        metavar="NAME",
        help="amber14 (default), amber99sbildn, amber03, charmm36, or files of OpenMM, separated by commas",
    )
    s.add_argument(
        "--keep-rigid-terms",
        action="store_true",
        default=None,
        help="compute angle and torsion terms inside rigid units, although they are constant",
    )
    s.add_argument("--pH", type=float, help="protonation of hydrogens that are added (default: 7)")
    s.add_argument("--platform", metavar="NAME", help="OpenMM platform (default: the fastest)")
    s.add_argument("--threads", type=int, metavar="N", help="threads of the CPU platform")
    s.add_argument("--seed", type=int, metavar="N", help="of the random numbers (default: drawn, and recorded)")
    s.add_argument("--report", metavar="TIME", help="time between frames, or a number of steps (default: 1ps)")
    s.add_argument("--trajectory", metavar="FORMAT", help="dcd (default), or xtc: smaller, to 0.001 nm")
    s.add_argument("--equilibrate", metavar="TIME", help="equilibration before the run (default: 2ps)")
    s.add_argument(
        "--no-relax",
        dest="relax",
        action="store_false",
        default=None,
        help="keep bond lengths and angles of FILE instead of relaxing them",
    )
    p.set_defaults(run=run_command)


def run_command(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from peptidyn.analysis.run_plots import plot_run
    from peptidyn.runs.run import run
    from peptidyn.runs.settings import RunSettings

    say = speaker(options)
    result = run(config=options.config, say=say, **run_arguments(options, RunSettings))
    return end_run(result, f"{result.summary['time_ps']:g} ps, {result.summary['frames']} frames", plot_run, say)

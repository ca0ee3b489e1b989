"""The command line: parses, calls the library, prints.

Exit status: 0 done, 2 bad input or usage (one sentence on standard error, nothing written), 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from peptidyn._version import __version__
from peptidyn.errors import ArgumentError, MissingDependencyError, PeptidynError

_EPILOG = """examples:
  peptidyn run
  peptidyn run protein.pdb --time 1ns --preset angles -o protein-run
  peptidyn inspect data/all20.pdb
  peptidyn inspect 1abc.cif.gz --add-hydrogens --soft "phi psi chi omega angles"
  peptidyn build AAAAAAAAAA --phi -57 --psi -47 -o helix.pdb
  peptidyn fixman run.xtc --top start.pdb -T 300 -o weights.csv --plot
  peptidyn fixman --map data/ala1.pdb --residue 2 -o map.csv --plot
  peptidyn bench solvers -o bench
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except PeptidynError as error:
        print(f"peptidyn: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # the reader (head, less) has gone: nothing more to say, and Python must not try again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("peptidyn: interrupted", file=sys.stderr)
        return 130


def make_parser() -> argparse.ArgumentParser:
    """Return the argument parser with all subcommands."""
    parser = argparse.ArgumentParser(
        prog="peptidyn",
        description="Torsion-space molecular dynamics of polypeptides.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"peptidyn {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_run(commands)
    _add_inspect(commands)
    _add_build(commands)
    _add_fixman(commands)
    _add_bench(commands)
    return parser


# ---------------------------------------------------------------------------- run


def _add_run(commands: argparse._SubParsersAction) -> None:
    p = commands.add_parser(
        "run",
        help="simulate a structure in torsion space",
        description="Prepare a structure (hydrogens, relaxed geometry), minimise, equilibrate and simulate it in "
        "torsion space. Without FILE, capped decaalanine is built. The folder then holds the trajectory, energies, "
        "torsions, settings, a summary, pictures and a checkpoint.",
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
    s.add_argument("--timestep", type=float, metavar="FS", help="time step in fs (default: 8; 4 with soft bond angles)")
    s.add_argument("-T", "--temperature", type=float, metavar="K", help="temperature in K (default: 300)")
    s.add_argument("--friction", type=float, metavar="1/PS", help="friction in 1/ps (default: 1)")
    s.add_argument("--ensemble", metavar="NAME", help="langevin (default), nve or ghmc")
    s.add_argument(
        "--fixman",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether the Fixman potential is part of the energy (default: yes, except for nve)",
    )
    s.add_argument("--preset", metavar="NAME", help="soft set: torsions (default), or angles, better for populations")
    s.add_argument("--soft", metavar="WORDS", help='soft coordinates, instead of --preset, e.g. "phi psi chi methyl"')
    s.add_argument("--rigid", action="append", metavar="SELECTION", help="MDTraj selection to freeze into one body")
    s.add_argument("--select", metavar="SELECTION", help="MDTraj selection of the atoms to simulate (default: all)")
    s.add_argument("--hydrogen-mass", type=float, metavar="DA", help="repartition masses: hydrogens get this one")
    s.add_argument("--solvent", metavar="NAME", help="obc2 (default), gbn2 or vacuum")
    s.add_argument("--forcefield", metavar="NAME", help="amber14 (default), or a force field file of OpenMM")
    s.add_argument("--pH", type=float, help="protonation of hydrogens that are added (default: 7)")
    s.add_argument("--platform", metavar="NAME", help="OpenMM platform (default: the fastest)")
    s.add_argument("--threads", type=int, metavar="N", help="threads of the CPU platform")
    s.add_argument("--seed", type=int, metavar="N", help="of the random numbers (default: drawn, and recorded)")
    s.add_argument("--report", metavar="TIME", help="time between frames, or a number of steps (default: 1ps)")
    s.add_argument("--equilibrate", metavar="TIME", help="equilibration before the run (default: 2ps)")
    s.add_argument(
        "--no-relax",
        dest="relax",
        action="store_false",
        default=None,
        help="keep bond lengths and angles of FILE instead of relaxing them",
    )
    p.set_defaults(run=_run)


_RUN_SETTINGS = (
    "file", "time", "steps", "timestep", "temperature", "friction", "ensemble", "fixman", "preset", "soft", "rigid",
    "select", "hydrogen_mass", "solvent", "forcefield", "pH", "platform", "threads", "seed", "report", "equilibrate",
    "relax",
)  # fmt: skip


def _run(options: argparse.Namespace) -> int:
    from peptidyn.analysis.run_plots import plot_run
    from peptidyn.engine.runs import run

    def say(text: str) -> None:
        if not options.quiet:
            print(text, flush=True)

    result = run(
        {name: value for name in _RUN_SETTINGS if (value := getattr(options, name)) is not None},
        config=options.config,
        folder=options.output,
        resume=options.resume,
        overwrite=options.overwrite,
        progress=not options.quiet,
        say=say,
    )
    done = f"{result.summary['time_ps']:g} ps, {result.summary['frames']} frames in {result.folder}"
    if result.interrupted:
        print(f"peptidyn: interrupted after {done}; continue with --resume -o {result.folder}", file=sys.stderr)
        return 130
    try:
        plot_run(result.folder)
    except MissingDependencyError as error:
        say(f"note: no pictures were drawn: {error}")
    say(f"done: {done}")
    return 0


# ---------------------------------------------------------------------------- inspect


def _add_inspect(commands: argparse._SubParsersAction) -> None:
    p = commands.add_parser(
        "inspect",
        help="show chains, rigid units, torsions, degrees of freedom and the D-H table of a structure",
        description="Show what peptidyn makes of a structure file: chains, rigid units, torsions by kind, degrees of "
        "freedom, what was made rigid and why, and the Denavit-Hartenberg table of the backbone.",
    )
    p.add_argument("file", metavar="FILE", help="PDB or mmCIF file, plain or .gz")
    p.add_argument("--frames", action="store_true", help="print the D-H table of every backbone segment")
    p.add_argument("--json", action="store_true", help="print everything as JSON")
    p.add_argument("--add-hydrogens", action="store_true", help="complete missing hydrogens and heavy atoms first")
    p.add_argument("--pH", type=float, default=7.0, help="protonation of added hydrogens (default: 7)")
    p.add_argument("--model", type=int, default=0, help="which model of the file, from 0 (default: 0)")
    _add_tree_options(p)
    p.set_defaults(run=_inspect)


def _add_tree_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--soft", default="phi psi chi", help='soft coordinates (default: "phi psi chi")')
    p.add_argument("--base", choices=("free", "fixed"), default="free", help="whether molecules float (default: free)")
    p.add_argument("--rigid", action="append", metavar="SELECTION", help="MDTraj selection to freeze into one body")


def _inspect(options: argparse.Namespace) -> int:
    from peptidyn.analysis.inspection import format_inspection, inspect_tree
    from peptidyn.io.readers import load_structure
    from peptidyn.model.backbone import backbone_frames
    from peptidyn.model.build import build_tree

    structure = load_structure(options.file, model=options.model, add_hydrogens=options.add_hydrogens, pH=options.pH)
    tree = build_tree(structure, soft=options.soft, base=options.base, rigid=options.rigid)
    frames = tuple(backbone_frames(structure)) if options.frames else ()
    report = inspect_tree(structure, tree, frames)
    if options.json:
        print(json.dumps(report, indent=1))
        return 0
    print(format_inspection(report))
    for table in frames:
        print(f"\n{table.to_text()}")
    return 0


# ---------------------------------------------------------------------------- build


def _add_build(commands: argparse._SubParsersAction) -> None:
    p = commands.add_parser(
        "build",
        help="build an all-atom peptide from its sequence",
        description="Build an all-atom peptide from its one-letter sequence and write it as PDB or mmCIF.",
    )
    p.add_argument("sequence", metavar="SEQUENCE", help="one-letter codes, e.g. AAAAAAAAAA")
    p.add_argument("-o", "--output", metavar="FILE", required=True, help=".pdb or .cif file to write")
    for angle, value in (("phi", -57.0), ("psi", -47.0), ("omega", 180.0)):
        p.add_argument(
            f"--{angle}",
            default=str(value),
            type=str,
            metavar="DEG",
            help=f"{angle} in degrees: one value, or one per residue separated by commas (default: {value:g})",
        )
    p.add_argument("--no-caps", action="store_true", help="charged termini instead of ACE and NME")
    p.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
    p.set_defaults(run=_build)


def _angles(name: str, text: str) -> float | list[float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(
            f"--{name} is {text!r}, expected degrees: one number, or one per residue separated by commas"
        ) from None
    return values[0] if len(values) == 1 else values


def _build(options: argparse.Namespace) -> int:
    from peptidyn.io.peptides import build_peptide

    check_output(options.output, options.overwrite)
    structure = build_peptide(
        options.sequence,
        phi=_angles("phi", options.phi),
        psi=_angles("psi", options.psi),
        omega=_angles("omega", options.omega),
        caps=not options.no_caps,
    )
    structure.write(options.output)
    print(f"{options.output}: {structure.n_atoms} atoms, {structure.n_residues} residues")
    for note in structure.notes:
        print(f"note: {note}")
    return 0


def check_output(path: str, overwrite: bool) -> None:
    """Raise ArgumentError if `path` exists and may not be replaced, or its folder does not exist."""
    file = Path(path)
    if file.exists() and not overwrite:
        raise ArgumentError(f"{file} exists; choose another name, or give --overwrite to replace it")
    if not file.parent.is_dir():
        raise ArgumentError(f"the folder {file.parent} does not exist; create it first")


# ---------------------------------------------------------------------------- fixman


def _add_fixman(commands: argparse._SubParsersAction) -> None:
    p = commands.add_parser(
        "fixman",
        help="weights that remove the mass-metric bias from a trajectory, or a phi/psi map of the Fixman potential",
        description="With a trajectory: the Fixman potential of every frame and the weights that remove the "
        "mass-metric bias of constrained dynamics. With --map: the Fixman potential over phi and psi of one residue.",
    )
    p.add_argument("trajectory", metavar="TRAJ", nargs="?", help="trajectory in any format MDTraj reads")
    p.add_argument("--top", metavar="TOP", help="PDB or mmCIF file with the atoms of the trajectory")
    p.add_argument("-T", "--temperature", type=float, metavar="K", help="temperature in K")
    p.add_argument("--select", metavar="SELECTION", help="MDTraj selection of the atoms to use (default: all)")
    p.add_argument("--tolerance", type=float, metavar="NM", help="report frames with units deformed by more than this")
    p.add_argument("--map", metavar="STRUCTURE", help="draw the map of a structure instead of reading a trajectory")
    p.add_argument("--residue", metavar="N", help="with --map: residue number, as in the file")
    p.add_argument("--chain", metavar="ID", help="with --map: chain, if several have that residue")
    p.add_argument("-o", "--output", metavar="CSV", help="table to write")
    p.add_argument("--plot", nargs="?", const="", metavar="PNG", help="picture to write (default: beside the table)")
    p.add_argument("--overwrite", action="store_true", help="replace files that exist")
    p.add_argument("-q", "--quiet", action="store_true", help="no progress")
    _add_tree_options(p)
    p.set_defaults(run=_fixman)


def _fixman(options: argparse.Namespace) -> int:
    if (options.trajectory is None) == (options.map is None):
        raise ArgumentError("give either a trajectory, or --map with a structure")
    source = options.map if options.map is not None else options.trajectory
    picture = options.plot
    if picture == "":
        picture = str(Path(options.output or Path(source).name).with_suffix(".png"))
    for path in (options.output, picture):
        if path is not None:
            check_output(path, options.overwrite)
    return _fixman_map(options, picture) if options.map is not None else _fixman_weights(options, picture)


def _fixman_map(options: argparse.Namespace, picture: str | None) -> int:
    from peptidyn.analysis.tables import write_csv
    from peptidyn.ensemble.fixman_map import BASINS, fixman_map
    from peptidyn.io.readers import load_structure
    from peptidyn.model.build import build_tree

    if options.residue is None:
        raise ArgumentError("--map needs --residue, the residue number as in the file")
    structure = load_structure(options.map)
    tree = build_tree(structure, soft=options.soft, base=options.base, rigid=options.rigid)
    chart = fixman_map(tree, options.residue, options.chain)
    print(f"{chart.residue}: U_F spans {chart.range:.3f} kT over phi and psi")
    for name, (phi, psi) in BASINS.items():
        print(f"  {name:4s} ({phi:4.0f}, {psi:4.0f})  {chart.at(phi, psi):.3f} kT above the minimum")
    if options.output:
        write_csv(options.output, ("phi_deg", "psi_deg", "U_F_kT"), chart.rows())
    if picture is not None:
        from peptidyn.analysis.plots import plot_fixman_map

        plot_fixman_map(chart, picture)
    return 0


def _fixman_weights(options: argparse.Namespace, picture: str | None) -> int:
    from peptidyn.analysis.tables import write_csv
    from peptidyn.ensemble.reweighting import RIGID_TOLERANCE, fixman_weights
    from peptidyn.io.readers import load_structure
    from peptidyn.io.trajectories import open_trajectory
    from peptidyn.model.build import build_tree

    if options.top is None or options.temperature is None:
        raise ArgumentError("a trajectory needs --top with a structure file, and -T with the temperature in K")
    structure = load_structure(options.top)
    if options.select:
        structure = structure.subset(options.select)
    tree = build_tree(structure, soft=options.soft, base=options.base, rigid=options.rigid)
    reader = open_trajectory(tree, options.trajectory, top=options.top, atoms=options.select)
    tolerance = RIGID_TOLERANCE if options.tolerance is None else options.tolerance
    weights = fixman_weights(tree, reader, options.temperature, tolerance=tolerance, progress=not options.quiet)
    print(weights.summary())
    if options.output:
        columns = ("frame", "time_ps", "ln_det", "U_F_kJ_per_mol", "weight", "inverse_weight", "misfit_nm", "deformed")
        rows = zip(
            weights.index.tolist(), weights.time.tolist(), weights.log_det.tolist(), weights.energy.tolist(),
            weights.weights.tolist(), weights.inverse_weights.tolist(), weights.misfit.tolist(),
            weights.deformed.astype(int).tolist(), strict=True,
        )  # fmt: skip
        write_csv(options.output, columns, rows)
    if picture is not None:
        from peptidyn.analysis.plots import plot_fixman_weights

        plot_fixman_weights(weights, picture)
    return 0


# ---------------------------------------------------------------------------- bench


def _add_bench(commands: argparse._SubParsersAction) -> None:
    p = commands.add_parser(
        "bench",
        help="measure the solvers, the Fixman potential, or forward dynamics beside Pinocchio",
        description="Measure, in interleaved rounds on polyalanine chains: how the cost of every solver grows with the "
        "number of torsions (solvers); what the Fixman potential and trajectory weights cost (fixman); forward "
        "dynamics beside Pinocchio, if that is installed (peers).",
    )
    p.add_argument("what", metavar="WHAT", choices=("solvers", "fixman", "peers"), help="solvers, fixman or peers")
    p.add_argument("--sizes", metavar="N,N,...", help="numbers of torsions (default: those of docs/performance.md)")
    p.add_argument("--repeats", type=int, default=7, metavar="N", help="interleaved rounds (default: 7)")
    p.add_argument("--frames", type=int, metavar="N", help="fixman: length of the trajectory (default: 10000)")
    p.add_argument("-o", "--output", metavar="FOLDER", help="write WHAT.json, and for solvers a picture, there")
    p.add_argument("--overwrite", action="store_true", help="replace files that exist")
    p.add_argument("--json", action="store_true", help="print everything as JSON")
    p.add_argument("-q", "--quiet", action="store_true", help="no progress")
    p.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> int:
    if "numpy" not in sys.modules:  # which reads these when it is loaded; all methods are compared on one thread
        for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
            os.environ.setdefault(variable, "1")
    from peptidyn.analysis.benchmark_suite import run_benchmark

    report, text = run_benchmark(
        options.what,
        sizes=None if options.sizes is None else _sizes(options.sizes),
        rounds=options.repeats,
        frames=options.frames,
        folder=options.output,
        overwrite=options.overwrite,
        progress=not options.quiet,
    )
    print(json.dumps(report, indent=1) if options.json else text)
    return 0


def _sizes(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(f"--sizes is {text!r}, expected whole numbers separated by commas") from None

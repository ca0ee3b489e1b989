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
from peptidyn.errors import ArgumentError, PeptidynError

_EPILOG = """examples:
  peptidyn inspect data/all20.pdb
  peptidyn inspect 1abc.cif.gz --add-hydrogens --soft "phi psi chi omega angles"
  peptidyn build AAAAAAAAAA --phi -57 --psi -47 -o helix.pdb
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
    _add_inspect(commands)
    _add_build(commands)
    return parser


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

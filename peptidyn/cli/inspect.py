"""`peptidyn inspect`: what peptidyn makes of a structure file."""

from __future__ import annotations

import argparse
import json

from peptidyn.cli.options import add_input_options, add_tree_options, examples, read_input


def add_command(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    p = commands.add_parser(
        "inspect",
        help="show chains, rigid units, torsions, degrees of freedom and the D-H table of a structure",
        description="Show what peptidyn makes of a structure file: chains, rigid units, torsions by kind, degrees of "
        "freedom, what was made rigid and why, and the Denavit-Hartenberg table of the backbone.",
        **examples(
            "peptidyn inspect data/all20.pdb",
            'peptidyn inspect 1abc.cif.gz --add-hydrogens --soft "phi psi chi omega angles"',
            "peptidyn inspect data/ala3.pdb --frames --json",
        ),
    )
    p.add_argument("file", metavar="FILE", help="PDB or mmCIF file, plain, .gz or .bz2; or prmtop, psf, top")
    add_input_options(p)
    p.add_argument("--frames", action="store_true", help="print the D-H table of every backbone segment")
    p.add_argument("--json", action="store_true", help="print everything as JSON")
    p.add_argument("--add-hydrogens", action="store_true", help="complete missing hydrogens and heavy atoms first")
    p.add_argument("--pH", type=float, default=7.0, help="protonation of added hydrogens (default: 7)")
    p.add_argument("--model", type=int, default=0, help="which model of the file, from 0 (default: 0)")
    p.add_argument("-q", "--quiet", action="store_true", help="print nothing: only check that FILE can be used")
    add_tree_options(p)
    p.set_defaults(run=run_command)


def run_command(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from peptidyn.analysis.inspection import format_inspection, inspect_tree
    from peptidyn.model.backbone import backbone_frames
    from peptidyn.model.build import build_tree

    reading = {"model": options.model, "add_hydrogens": options.add_hydrogens, "pH": options.pH}
    structure = read_input(options.file, options, **reading)
    tree = build_tree(structure, soft=options.soft, base=options.base, rigid=options.rigid)
    frames = tuple(backbone_frames(structure)) if options.frames else ()
    report = inspect_tree(structure, tree, frames)
    if options.quiet:
        return 0
    if options.json:
        print(json.dumps(report, indent=1))
        return 0
    print(format_inspection(report))
    for table in frames:
        print(f"\n{table.to_text()}")
    return 0

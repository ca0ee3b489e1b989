"""`peptidyn build`: an all-atom peptide from its sequence."""

from __future__ import annotations

import argparse

from peptidyn.cli.options import check_output, examples
from peptidyn.core.errors import ArgumentError


def add_command(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    p = commands.add_parser(
        "build",
        help="build an all-atom peptide from its sequence",
        description="Build an all-atom peptide from its one-letter sequence and write it as PDB or mmCIF.",
        **examples(
            "peptidyn build AAAAAAAAAA --phi -57 --psi -47 -o helix.pdb",
            "peptidyn build GPG --phi=-60,-65,80 --psi=140,150,10 --no-caps -o turn.cif",
        ),
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
    p.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    p.set_defaults(run=run_command)


def _angles(name: str, text: str) -> float | list[float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(
            f"--{name} is {text!r}, expected degrees: one number, or one per residue separated by commas"
        ) from None
    return values[0] if len(values) == 1 else values


def run_command(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
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
    if options.quiet:
        return 0
    print(f"{options.output}: {structure.n_atoms} atoms, {structure.n_residues} residues")
    for note in structure.notes:
        print(f"note: {note}")
    return 0

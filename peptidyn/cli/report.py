"""`peptidyn report`: one HTML file about a run or about replica exchange."""

from __future__ import annotations

import argparse
from pathlib import Path

from peptidyn.cli.options import check_output, examples


def add_command(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    p = commands.add_parser(
        "report",
        help="write an HTML page about a run or replica exchange: energies, torsions, structure, melting, 3-D view",
        description="Write one HTML file about a run or about replica exchange. It holds everything it shows, also the "
        "3-D viewer, and opens in a browser without network. The run may be finished, interrupted or still running.",
        **examples(
            "peptidyn report ala10",
            "peptidyn report ala10 -o ala10.html --overwrite",
            "peptidyn report ala10-exchange",
        ),
    )
    p.add_argument("folder", metavar="RUN_DIR", help="the folder that `peptidyn run` or `peptidyn exchange` wrote")
    p.add_argument("-o", "--output", metavar="HTML", help="file to write (default: report.html in RUN_DIR)")
    p.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    p.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    p.set_defaults(run=run_command)


def run_command(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from peptidyn.analysis.report import write_report

    target = options.output or str(Path(options.folder) / "report.html")
    if options.output or Path(options.folder).is_dir():
        check_output(target, options.overwrite)
    path = write_report(options.folder, target)
    if not options.quiet:
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB; open it in a browser")
    return 0

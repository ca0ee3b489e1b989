"""`peptidyn extract`: the trajectory of one temperature from the replicas of an exchange run."""

from __future__ import annotations

import argparse

from peptidyn.cli.options import check_output, examples


def add_command(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    p = commands.add_parser(
        "extract",
        help="write the trajectory of one temperature of an exchange run",
        description="Replicas keep their configurations and change temperatures. This collects all frames at one "
        "temperature from the trajectories of the replicas, in the order of iterations; topology.pdb in EXCHANGE_DIR "
        "belongs to it. The run may be going on.",
        **examples(
            "peptidyn extract ala10-exchange -o coldest.dcd",
            "peptidyn extract ala10-exchange -T 300 -o 300K.xtc",
        ),
    )
    p.add_argument("folder", metavar="EXCHANGE_DIR", help="the folder that `peptidyn exchange` wrote")
    p.add_argument("-o", "--output", metavar="FILE", required=True, help="file to write, .dcd or .xtc")
    p.add_argument("-T", "--temperature", type=float, metavar="K", help="one of the run (default: the lowest)")
    p.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    p.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    p.set_defaults(run=run_command)


def run_command(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from peptidyn.runs.exchange_run import ExchangeRun

    check_output(options.output, options.overwrite)
    run = ExchangeRun(options.folder)
    count = run.write_trajectory(options.output, options.temperature)
    if not options.quiet:
        T = run.temperatures[run.level(options.temperature)]
        print(f"{options.output}: {count} frames at {T:.1f} K")
    return 0

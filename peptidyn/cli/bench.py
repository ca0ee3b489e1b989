"""`peptidyn bench`: measure solvers, Fixman potential, kernels, forward dynamics and time steps."""

from __future__ import annotations

import argparse
import json
import os
import sys

from peptidyn.cli.options import examples
from peptidyn.core.errors import ArgumentError


def add_command(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    p = commands.add_parser(
        "bench",
        help="measure solvers, the Fixman potential, time steps, or forward dynamics beside other engines",
        description="Measure, in interleaved rounds on polyalanine chains: how the cost of every solver grows with the "
        "number of torsions (solvers); what the Fixman potential and trajectory weights cost (fixman); how the kernels "
        "of the dynamics grow (kernels); forward dynamics beside Pinocchio and MuJoCo, as far as they are installed "
        "(peers); time steps beside OpenMM's own integrator (dynamics).",
        **examples(
            "peptidyn bench solvers -o bench",
            "peptidyn bench fixman --sizes 30,300 --repeats 3",
            "peptidyn bench peers --structure protein.pdb --json",
            "peptidyn bench kernels --sizes 300,3000",
            "peptidyn bench dynamics -o bench",
        ),
    )
    p.add_argument(
        "what",
        metavar="WHAT",
        choices=("solvers", "fixman", "kernels", "peers", "dynamics"),
        help="solvers, fixman, kernels, peers or dynamics",
    )
    p.add_argument("--sizes", metavar="N,N,...", help="numbers of torsions (default: those of docs/performance.md)")
    p.add_argument("--repeats", type=int, default=7, metavar="N", help="interleaved rounds (default: 7)")
    p.add_argument("--frames", type=int, metavar="N", help="fixman: length of the trajectory (default: 10000)")
    p.add_argument("-o", "--output", metavar="FOLDER", help="write WHAT.json, and a picture, there")
    p.add_argument("--structure", metavar="FILE", help="peers: a protein, in place of a peptide of all amino acids")
    p.add_argument("--overwrite", action="store_true", help="replace files that exist")
    p.add_argument("--json", action="store_true", help="print everything as JSON")
    p.add_argument("-q", "--quiet", action="store_true", help="no progress")
    p.set_defaults(run=run_command)


def run_command(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    if "numpy" not in sys.modules:  # which reads these when it is loaded; all methods are compared on one thread
        for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
            os.environ.setdefault(variable, "1")
    from peptidyn.analysis.benchmark_suite import run_benchmark

    report, text = run_benchmark(
        options.what,
        sizes=None if options.sizes is None else _sizes(options.sizes),
        rounds=options.repeats,
        frames=options.frames,
        structure=options.structure,
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

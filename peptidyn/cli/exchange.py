"""`peptidyn exchange`: replica exchange of a structure, on this machine or a dask cluster."""

from __future__ import annotations

import argparse
from contextlib import closing, nullcontext

from peptidyn.cli.options import examples
from peptidyn.cli.simulations import add_model_options, add_run_options, end_run, preset_help, run_arguments, speaker
from peptidyn.core.errors import ArgumentError


def add_command(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    p = commands.add_parser(
        "exchange",
        help="replica exchange in temperature, on one machine or a cluster",
        description="Run copies of a structure at a ladder of temperatures that exchange places. Every replica has a "
        "trajectory and torsions of its own, which can be read while the run goes on; a killed run is continued with "
        "--resume. Replicas run on processes of this machine, or on the workers of a dask scheduler.",
        **examples(
            "peptidyn exchange protein.pdb --replicas 8 --tmin 280 --tmax 500",
            "peptidyn exchange protein.pdb --preset flexible --ensemble langevin",
            "peptidyn exchange protein.pdb --exact --workers 4 -o exact",
            "peptidyn exchange protein.pdb --scheduler tcp://node1:8786 -o cluster",
            "peptidyn exchange --resume -o cluster --iterations 1000",
            before=preset_help("ghmc"),
        ),
    )
    add_run_options(p, "perhaps with more --iterations")
    w = p.add_argument_group("where replicas run")
    w.add_argument("--workers", type=int, metavar="N", help="processes on this machine (default: one per core; GPU: 1)")
    w.add_argument("--scheduler", metavar="ADDRESS", help="dask scheduler, e.g. tcp://node1:8786; its workers are used")
    e = p.add_argument_group("exchange")
    e.add_argument("--replicas", type=int, metavar="N", help="temperatures, one replica each (default: 8)")
    e.add_argument("--tmin", type=float, metavar="K", help="lowest temperature (default: 280)")
    e.add_argument("--tmax", type=float, metavar="K", help="highest temperature (default: 500)")
    e.add_argument("--iterations", type=int, metavar="N", help="stretches, each followed by exchanges (default: 200)")
    e.add_argument("--interval", type=int, metavar="STEPS", help="time steps of a stretch, about (default: 100)")
    e.add_argument(
        "--ensemble",
        metavar="NAME",
        help="how replicas move between exchanges: ghmc (default, exact), or langevin: explores faster, with a "
        "time-step error; its step is that of `peptidyn run`, shorter above 300 K",
    )
    e.add_argument(
        "--exact",
        action="store_true",
        default=None,
        help="mix Cartesian moves in: samples the flexible force field, not the rigid model",
    )
    e.add_argument(
        "--pivots",
        type=int,
        metavar="N",
        help="pivot moves in a stretch: turns of one backbone bond by any angle, for small peptides without water; "
        "as many as --interval is a good choice (default: 0)",
    )
    e.add_argument("--warm-up", type=int, metavar="N", help="trajectories to tune time steps in (default: 40; 0: none)")
    add_model_options(p)
    p.set_defaults(run=exchange_command)


def exchange_command(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from peptidyn.analysis.exchange_plots import plot_exchange
    from peptidyn.runs.exchange import exchange
    from peptidyn.runs.settings import ExchangeSettings
    from peptidyn.sampling.backends import connect

    if options.scheduler and options.workers:
        raise ArgumentError("the scheduler has its own workers; give --scheduler or --workers")
    say = speaker(options)
    given = {**run_arguments(options, ExchangeSettings), "workers": options.workers, "say": say}
    with closing(connect(options.scheduler)) if options.scheduler else nullcontext("auto") as backend:
        result = exchange(backend=backend, **given)
    if not result.interrupted:
        rates = [f"{rate:.2f}" for rate in result.summary["exchange_acceptance"] if rate is not None]
        trips = sum(result.summary["round_trips"])
        say(f"exchanges accepted, from the lowest pair up: {' '.join(rates)}; {trips} round trips")
    return end_run(result, f"{result.summary['iterations']} iterations", plot_exchange, say)

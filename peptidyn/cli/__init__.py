"""The command line: parses, calls the library, prints. One file per command.

Exit status: 0 done, 2 bad input or usage (one sentence on standard error, nothing written), 130 interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import os
import platform
import sys
import time
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from peptidyn._version import __version__
from peptidyn.cli import build, completion, exchange, extract, fixman, inspect, report, run
from peptidyn.cli.options import name_flags
from peptidyn.cli.terminal import paint
from peptidyn.core.errors import PeptidynError

__all__ = ["main", "make_parser"]

_EPILOG = """examples:
  peptidyn run
  peptidyn run protein.pdb --time 1ns --preset flexible -o protein-run
  peptidyn report protein-run
  peptidyn exchange protein.pdb --replicas 8 --tmin 280 --tmax 500
  peptidyn inspect data/all20.pdb
  peptidyn inspect 1abc.cif.gz --add-hydrogens --soft "phi psi chi omega angles"
  peptidyn build AAAAAAAAAA --phi -57 --psi -47 -o helix.pdb
  peptidyn fixman run.xtc --top start.pdb -T 300 -o weights.csv --plot
  peptidyn fixman --map data/ala1.pdb --residue 2 -o map.csv --plot
"""

COMMANDS = (run, exchange, report, extract, inspect, build, fixman, completion)
"""Modules of this package with one command each: `add_command` adds its parser, in the order of --help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = make_parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        options.parser.error(_describe_unknown(unknown, options.parser))
    unusable = [name for name, value in vars(options).items() if not _is_text(value)]
    if unusable:
        name = {"output": "-o"}.get(unusable[0], f"--{unusable[0].replace('_', '-')}")
        parser.error(f"the argument of {name} is missing, has a NUL byte in it, or is not text in UTF-8")
    begin = time.perf_counter()
    if options.verbose:
        print(f"peptidyn: {', '.join(_versions())}", file=sys.stderr)
    try:
        return options.run(options)
    except PeptidynError as error:
        if options.verbose:
            traceback.print_exception(error)
        # names of files and atoms may hold anything: the message stays one line of text
        message = "".join(c if c.isprintable() else repr(c)[1:-1] for c in name_flags(str(error), options))
        print(f"{paint('peptidyn:', 'error', sys.stderr)} {message}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # the reader (head, less) has gone: nothing more to say, and Python must not try again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(f"{paint('peptidyn:', 'warning', sys.stderr)} interrupted", file=sys.stderr)
        return 130
    finally:
        if options.verbose:
            print(f"peptidyn: {time.perf_counter() - begin:.1f} s", file=sys.stderr)


def _is_text(value: Any) -> bool:
    """Whether a value can be written to a file, if it is text, and be the name of one."""
    if isinstance(value, list):  # argparse makes an empty one of --flag=--
        return bool(value) and all(isinstance(one, str) and _is_text(one) for one in value)
    try:
        return not isinstance(value, str) or b"\0" not in value.encode("utf-8")
    except UnicodeEncodeError:
        return False


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
    for command in COMMANDS:
        command.add_command(commands)
    for one in commands.choices.values():
        one.add_argument("-v", "--verbose", action="store_true", help="print versions, time and the origin of errors")
        one.set_defaults(parser=one)
    return parser


def _describe_unknown(unknown: list[str], parser: argparse.ArgumentParser) -> str:
    """Return what to say about arguments that a command does not take, with the nearest option it has."""
    flags = [flag for action in parser._actions for flag in action.option_strings]
    texts = []
    mistyped = [argument for argument in unknown if argument.startswith("-")]
    for argument in mistyped or unknown:  # what follows a mistyped flag belongs to it
        name = argument.split("=")[0]
        near = difflib.get_close_matches(name, flags, n=1) if name.startswith("-") else []
        if not near and "--coordinates" in flags and Path(argument).is_file():
            near = [f"--coordinates {argument}"]
        texts.append(f"unrecognized argument {argument}" + (f"; did you mean {near[0]}?" if near else ""))
    return ", ".join(texts)


def _versions() -> list[str]:
    """Return versions of what results may depend on, without importing it."""
    names = ("numpy", "scipy", "numba", "openmm", "mdtraj")
    return [f"peptidyn {__version__}", f"Python {platform.python_version()}", *(f"{n} {version(n)}" for n in names)]

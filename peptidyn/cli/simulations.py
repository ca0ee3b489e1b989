"""What the commands that simulate share: their arguments for the library, what they print, and how they end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from peptidyn.core.errors import MissingDependencyError


def speaker(options: argparse.Namespace) -> Callable[[str], None]:
    """Return what prints a line of text, or nothing with --quiet."""

    def say(text: str) -> None:
        if not options.quiet:
            print(text, flush=True)

    return say


def run_arguments(options: argparse.Namespace, kind: type) -> dict[str, Any]:
    """Return the options as arguments of `peptidyn.run` or `peptidyn.exchange`; `kind` names the settings."""
    return {
        "folder": options.output,
        "resume": options.resume,
        "overwrite": options.overwrite,
        "progress": not options.quiet,
        **{field.name: value for field in fields(kind) if (value := getattr(options, field.name, None)) is not None},
    }


def end_run(result: Any, done: str, plot: Callable[[Path], object], say: Callable[[str], None]) -> int:
    """Say what was done and draw pictures, or how to continue; return the exit status.

    Parameters
    ----------
    result : RunResult or ExchangeResult
    done : str
        How much was done.
    plot : callable
        Draws the pictures of a folder.
    say : callable
    """
    done = f"{done} in {result.folder}"
    if result.interrupted:
        print(f"peptidyn: interrupted after {done}; continue with --resume -o {result.folder}", file=sys.stderr)
        return 130
    try:
        plot(result.folder)
    except MissingDependencyError as error:
        say(f"note: no pictures were drawn: {error}")
    say(f"done: {done}")
    return 0

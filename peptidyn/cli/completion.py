"""`peptidyn completion`: a script that completes commands and options in a shell."""

from __future__ import annotations

import argparse

from peptidyn.cli.options import examples
from peptidyn.core.errors import MissingDependencyError

SHELLS = ("bash", "zsh", "fish", "tcsh")


def add_command(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    p = commands.add_parser(
        "completion",
        help="print a script that completes commands and options in your shell",
        description="Print a completion script for a shell, made from the options that this version has.",
        **examples(
            "peptidyn completion bash > ~/.local/share/bash-completion/completions/peptidyn",
            "peptidyn completion zsh > ~/.zfunc/_peptidyn",
            "peptidyn completion fish > ~/.config/fish/completions/peptidyn.fish",
        ),
    )
    p.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh, fish or tcsh")
    p.set_defaults(run=run_command)


def run_command(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    try:
        import shtab
    except ImportError as error:
        raise MissingDependencyError.of("completion scripts are made by shtab", "completion") from error
    from peptidyn.cli import make_parser

    print(shtab.complete(make_parser(), options.shell))
    return 0

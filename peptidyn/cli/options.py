"""What several commands share: examples in --help, options of the tree, files to write, flags in messages."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from peptidyn.core.errors import ArgumentError


def examples(*commands: str, before: str = "") -> dict[str, Any]:
    """Return keywords of add_parser that list commands as examples at the end of --help, perhaps with a text before."""
    return {
        "epilog": "\n".join([*([before, ""] if before else []), "examples:", *(f"  {one}" for one in commands)]),
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def add_input_options(p: argparse.ArgumentParser) -> None:
    """Add the options of files that bring their own parameters."""
    p.add_argument(
        "--coordinates",
        metavar="FILE",
        help="of a prmtop, psf or top file: inpcrd, rst7, crd, gro or pdb (default: the file of the same name)",
    )
    p.add_argument("--parameters", nargs="+", metavar="FILE", help="of a psf file: CHARMM's rtf, par, prm, str files")
    p.add_argument("--include", metavar="FOLDER", help="of a top file: where GROMACS's force fields are")


def read_input(path: str, options: argparse.Namespace, **reading: Any) -> Any:
    """Return the Structure in a file of any kind; `reading` is for pdb and cif files."""
    from peptidyn.engine.inputs import load_any_structure

    return load_any_structure(path, options.coordinates, options.parameters or (), options.include, **reading)


def add_tree_options(p: argparse.ArgumentParser) -> None:
    """Add the options that say which tree is built."""
    p.add_argument(
        "--soft",
        default="phi psi chi",
        metavar="WORDS",
        help='soft coordinates (default: "phi psi chi"), e.g. "heavy", "all", or "phi psi chi; all in resid 9 to 13"',
    )
    p.add_argument("--base", choices=("free", "fixed"), default="free", help="whether molecules float (default: free)")
    p.add_argument("--rigid", action="append", metavar="SELECTION", help="MDTraj selection to freeze into one body")


def check_output(path: str, overwrite: bool) -> None:
    """Raise ArgumentError if `path` exists and may not be replaced, or its folder does not exist."""
    file = Path(path)
    if file.exists() and not overwrite:
        raise ArgumentError(f"{file} exists; choose another name, or give --overwrite to replace it")
    if not file.parent.is_dir():
        raise ArgumentError(f"the folder {file.parent} does not exist; create it first")


def name_flags(message: str, options: argparse.Namespace) -> str:
    """Return a message of the library with the flags of the command in place of arguments.

    ``resume=True`` becomes ``--resume``, ``select='protein'`` becomes ``--select protein``, ``folder=`` becomes ``-o``
    and a list becomes its words, as far as the command has such a flag; ``load_structure(file, model=1)`` becomes
    ``--model 1``.
    """

    quotes = "\"'"

    def flag(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"]
        if name == "folder" and hasattr(options, "output"):
            return "-o"
        if not hasattr(options, name):
            return match[0]
        flag = "--from" if name == "start" else f"--{name.replace('_', '-')}"
        if value in ("", "True"):
            return flag
        if value.startswith("["):
            return " ".join([flag, *re.findall(r"[\"']([^\"']*)[\"']", value)])
        return f"{flag} {value if ' ' in value else value.strip(quotes)}"

    call = re.search(r"load_structure\([^,()]+, ((\w+)=[^()]+)\)", message)
    if call and hasattr(options, call[2]):
        message = message.replace(call[0], call[1])
    return re.sub(r"""\b(?P<name>[A-Za-z_]+)=(?P<value>"[^"]*"|'[^']*'|\[[^]]*\]|[\w.]*)""", flag, message)

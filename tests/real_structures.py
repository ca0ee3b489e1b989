"""Real structure files for tests: the project's data, files shipped with OpenMM and PDBFixer, and a folder of choice.

Set PEPTIDYN_STRUCTURES to a folder to test every structure in it too.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import openmm.app
import pdbfixer

from peptidyn.io.readers import load_structure
from peptidyn.io.structure import Structure

DATA = Path(__file__).parents[1] / "data"
OPENMM_DATA = Path(openmm.app.__file__).parent / "data"
VILLIN_IN_WATER = OPENMM_DATA / "test.pdb"
WATER_BOX = OPENMM_DATA / "tip3p.pdb"
PDBFIXER_DATA = Path(pdbfixer.__file__).parent / "tests" / "data"
CRYSTAL = PDBFIXER_DATA / "1BHL.pdb"


def extra_paths() -> list[Path]:
    """Return the structures of the folder that PEPTIDYN_STRUCTURES names."""
    folder = os.environ.get("PEPTIDYN_STRUCTURES")
    if not folder:
        return []
    return sorted(p for p in Path(folder).iterdir() if p.suffix in (".pdb", ".cif"))


def all_paths() -> list[Path]:
    """Return all structures that tests run over: ours, one solvated protein, one crystal, and the extra ones."""
    return [*sorted(DATA.glob("*.pdb")), VILLIN_IN_WATER, CRYSTAL, *extra_paths()]


@cache
def read(path: Path) -> Structure:
    """Read a file once per test session."""
    return load_structure(path)


@cache
def load(path: Path) -> Structure:
    """Read a file once per test session; structures without hydrogens are completed."""
    structure = read(path)
    if any(True for _ in structure.notes_of("missing-hydrogens")):
        structure = load_structure(path, add_hydrogens=True)
    return structure

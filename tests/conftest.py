"""Structure files for all tests, and kernels compiled by all workers together.

The folder named by the environment variable PEPTIDYN_STRUCTURES adds to what is always there: the project's own data/
and the real files that OpenMM and PDBFixer ship.
"""

from __future__ import annotations

import io
import os
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
from compiled_kernels import compile_together
from real_structures import DATA, OPENMM_DATA, PDBFIXER_DATA

MORE = os.environ.get("PEPTIDYN_STRUCTURES")
_SUFFIXES = {".pdb", ".cif"}
_LARGE = 1_000_000  # bytes: larger files take long where every atom is looked at
_MANY_TESTS = 1000  # that need most kernels between them


def all_structure_files() -> list[Path]:
    """Every structure file that tests may read, without the very large ones."""
    found = [OPENMM_DATA / "test.pdb", OPENMM_DATA / "tip3p.pdb"]
    for folder in (DATA, PDBFIXER_DATA, *([Path(MORE)] if MORE else [])):
        if folder.is_dir():
            found += sorted(p for p in folder.iterdir() if p.suffix in _SUFFIXES and p.stat().st_size < _LARGE)
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with an argument `structure_file` runs once for every structure file."""
    if "structure_file" in metafunc.fixturenames:
        paths = all_structure_files()
        metafunc.parametrize("structure_file", paths, ids=[f"{p.parent.name}/{p.name}" for p in paths])


@pytest.fixture(scope="session", autouse=True)
def _kernels_compiled_together(request, tmp_path_factory) -> None:
    """Where several workers run all tests, divide the compilation of the kernels among them."""
    several = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1
    if several and len(request.session.items) > _MANY_TESTS:
        compile_together(tmp_path_factory.getbasetemp().parent / "compiled")


@pytest.fixture(scope="session")
def structure_files() -> list[Path]:
    """All structure files, as a list."""
    return all_structure_files()


@pytest.fixture(scope="session")
def further_structure():
    """A function that returns a file of the folder PEPTIDYN_STRUCTURES, or skips the test."""

    def find(name: str) -> Path:
        if not MORE:
            pytest.skip("PEPTIDYN_STRUCTURES names no folder with further structures")
        return Path(MORE) / name

    return find


@pytest.fixture(scope="session")
def villin() -> Path:
    """Villin headpiece, all atoms: 36 residues, 596 atoms, one methionine at each of two places."""
    return PDBFIXER_DATA / "test.pdb"


@pytest.fixture(scope="session")
def integrase() -> Path:
    """HIV integrase (1BHL), a crystal structure: no hydrogens, a gap, waters, two modified cysteines (CAS)."""
    return PDBFIXER_DATA / "1BHL.pdb"


@pytest.fixture(scope="module")
def blank_pictures():
    """Figures are made as ever and saved blank: to draw them takes longer than a short run does.

    For modules whose runs and reports draw pictures that they do not test. Gives the method that draws.
    """
    figures = pytest.importorskip("matplotlib.figure")
    draw, blank = figures.Figure.savefig, io.BytesIO()
    draw(figures.Figure(figsize=(0.1, 0.1)), blank, format="png")

    def save(figure, target, **options):
        target.write(blank.getvalue()) if hasattr(target, "write") else Path(target).write_bytes(blank.getvalue())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures.Figure, "savefig", save)
        yield draw


@pytest.fixture
def drawn_pictures(blank_pictures, monkeypatch):
    """Figures are drawn, in a module where they are blank otherwise."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", blank_pictures)


@pytest.fixture
def file_size_limit():
    """A context manager that lets this process write files up to a number of bytes; needs no rights."""
    resource = pytest.importorskip("resource", reason="limits on the size of files are a thing of Unix")

    @contextmanager
    def limited(size: int):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, handler)

    return limited

"""Layers and start-up: the numeric core stands alone, and importing the package is quick."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import peptidyn

ROOT = Path(__file__).parents[1]
CORE = ("core", "model", "kernels", "solvers", "metric", "integrators")
ORDER = "core io model kernels solvers metric integrators engine sampling runs analysis cli".split()


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_core_imports_with_everything_else_blocked():
    modules = sorted(
        "peptidyn." + ".".join(path.relative_to(ROOT / "peptidyn").with_suffix("").parts)
        for layer in CORE
        for path in (ROOT / "peptidyn" / layer).glob("*.py")
        if path.stem != "__init__"
    )
    python(
        "import sys\n"
        "for name in ('openmm', 'mdtraj', 'Bio', 'pdbfixer', 'matplotlib', 'dask'): sys.modules[name] = None\n"
        f"import importlib\nfor m in {modules!r}: importlib.import_module(m)"
    )


def test_importing_the_package_loads_nothing_heavy():
    heavy = python(
        "import sys, peptidyn; print([m for m in ('openmm', 'mdtraj', 'numba', 'scipy', 'Bio') if m in sys.modules])"
    )
    assert heavy.strip() == "[]"


@pytest.mark.parametrize("name", peptidyn.__all__)
def test_public_names_resolve(name):
    assert getattr(peptidyn, name) is not None
    assert name in dir(peptidyn)


def test_unknown_names_raise():
    with pytest.raises(AttributeError, match="nonsense"):
        peptidyn.nonsense  # noqa: B018


def test_layers_import_only_to_their_left():
    """Modules of a layer import from their own layer and from those before it."""
    for place, layer in enumerate(ORDER):
        later = ORDER[place + 1 :]
        for path in (ROOT / "peptidyn" / layer).rglob("*.py"):
            for line in path.read_text().splitlines():
                words = line.split()
                if line.startswith("    ") or words[:1] not in (["import"], ["from"]):
                    continue  # imports for type checkers and inside functions are indented
                if layer == "io" and words[1].startswith("peptidyn.model"):
                    continue  # trajectories become states of a tree
                assert not any(words[1].startswith(f"peptidyn.{name}") for name in later), f"{path}: {line}"

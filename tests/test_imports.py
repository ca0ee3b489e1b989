"""Rooms and start-up: one direction of imports, a numeric core that stands alone, a package that is quick to import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import peptidyn
from peptidyn.core import errors

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "peptidyn"
CORE = ("core", "model", "kernels", "solvers", "metric", "integrators")
ORDER = "_version core io model kernels solvers metric integrators engine sampling runs analysis cli".split()
FILES = sorted(PACKAGE.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_core_imports_with_everything_else_blocked():
    modules = sorted(
        "peptidyn." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for layer in CORE
        for path in (PACKAGE / layer).glob("*.py")
        if path.stem != "__init__"
    )
    python(
        "import sys\n"
        "for name in ('openmm', 'mdtraj', 'Bio', 'pdbfixer', 'matplotlib', 'dask'): sys.modules[name] = None\n"
        f"import importlib\nfor m in {modules!r}: importlib.import_module(m)"
    )


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("", ["openmm", "mdtraj", "numba", "scipy", "Bio"]),
        # scipy.spatial and numba each take longer to import than a peptide takes to build
        ("peptidyn.build_peptide('AAA')", ["scipy.spatial", "numba", "mdtraj"]),
    ],
)
def test_start_up_loads_nothing_heavy(code, heavy):
    loaded = python(f"import sys, peptidyn; {code}\nprint([m for m in {heavy!r} if m in sys.modules])")
    assert loaded.strip() == "[]"


@pytest.mark.parametrize("name", peptidyn.__all__)
def test_public_names_resolve(name):
    assert getattr(peptidyn, name) is not None
    assert name in dir(peptidyn)


def test_unknown_names_raise():
    with pytest.raises(AttributeError, match="nonsense"):
        peptidyn.nonsense  # noqa: B018


def room_of(path: Path) -> int:
    """Place in the order of rooms; files at the top of the package, _version apart, may import all of them."""
    name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return ORDER.index(name) if name in ORDER else len(ORDER)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """All imports of the package in a file: indented ones, lazy ones and those for type checkers too."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.startswith("peptidyn"))
        elif isinstance(node, ast.ImportFrom):
            base = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = ".".join([*base, *filter(None, [node.module])])
            if module == "peptidyn":
                yield from ((node.lineno, f"peptidyn.{alias.name}") for alias in node.names)
            elif module.startswith("peptidyn."):
                yield node.lineno, module


def test_rooms_import_only_from_rooms_before_them():
    rooms = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert rooms - {"__init__", "__main__", "__init__.pyi", "py.typed", "__pycache__"} == set(ORDER)
    graph = [(path, line, module) for path in FILES for line, module in imports(path)]
    assert len(graph) > 300
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path, line, module in graph
        if module == "peptidyn" or ORDER.index(module.split(".")[1]) > room_of(path)
    ]
    assert not wrong, "\n".join(wrong)


def test_errors_live_in_one_file():
    """No class outside core/errors.py inherits from an exception, judged by the names of its bases."""
    outside = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in FILES
        if path != PACKAGE / "core" / "errors.py"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
        and any(re.search(r"(Error|Exception|Interrupt|Exit|Warning)$", ast.unparse(base)) for base in node.bases)
    ]
    assert not outside, "\n".join(outside)
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert len(kinds) > 10
    assert all(issubclass(kind, errors.PeptidynError) for kind in kinds)


def test_library_messages_name_no_flag():
    """Flags belong to the command line; a library speaks of arguments. Docstrings may name both."""
    named = []
    for path in FILES:
        if path.relative_to(PACKAGE).parts[0] == "cli":
            continue
        tree = parsed(path)
        statements = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in statements:
                flags = re.findall(r"(?<![\w-])(?:--[a-z][\w-]*|-[a-z]\b(?![\w-]))", node.value)
                named += [f"{path.relative_to(ROOT)}:{node.lineno} {flag}" for flag in flags]
    assert not named, "\n".join(named)

"""Functions and classes stay small enough to hold in the head."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "peptidyn"
LONGEST, MOST_METHODS = 60, 20
REASON = "Many methods:"
"""Begins the sentence of a docstring that says why a class has more."""


def definitions(text: str, *kinds: type) -> Iterator[ast.AST]:
    return (node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds))


def too_long(text: str) -> list[str]:
    """Functions with more than 60 lines, signature and docstring included."""
    found = definitions(text, ast.FunctionDef, ast.AsyncFunctionDef)
    return [f"{f.name} ({f.end_lineno - f.lineno + 1})" for f in found if f.end_lineno - f.lineno >= LONGEST]


def too_wide(text: str) -> list[str]:
    """Classes with more than 20 public methods, properties included, and no reason given."""
    wide = []
    for one in definitions(text, ast.ClassDef):
        methods = [f for f in one.body if isinstance(f, ast.FunctionDef) and not f.name.startswith("_")]
        if len(methods) > MOST_METHODS and REASON not in (ast.get_docstring(one) or ""):
            wide.append(f"{one.name} ({len(methods)})")
    return wide


def test_functions_have_at_most_60_lines_outside_kernels():
    """Kernels are exempt: numba compiles a pass as one function."""
    files = [path for path in PACKAGE.rglob("*.py") if "kernels" not in path.parts]
    assert {str(f.relative_to(PACKAGE)): found for f in files if (found := too_long(f.read_text()))} == {}


def test_classes_have_at_most_20_public_methods():
    files = list(PACKAGE.rglob("*.py"))
    assert len(files) > 100
    assert {str(f.relative_to(PACKAGE)): found for f in files if (found := too_wide(f.read_text()))} == {}


def test_the_search_finds_what_it_should():
    lines = "\n".join(["    pass"] * 59)
    assert too_long(f"def f():\n{lines}") == [] and too_long(f"def f():\n{lines}\n    pass") == ["f (61)"]
    methods = [f"    def m{i}(self): ..." for i in range(21)]
    assert too_wide("\n".join(["class A:", *methods])) == ["A (21)"]
    assert too_wide("\n".join(["class A:", *methods[1:]])) == []
    assert too_wide("\n".join(["class A:", f'    """A. {REASON} one for each pass."""', *methods])) == []

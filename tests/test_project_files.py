"""Files beside the package agree with it: version, map of the folders, paths, and tests that stand alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import peptidyn

ROOT = Path(__file__).parents[1]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_changelog_and_citation_have_the_version_and_one_date():
    version, date = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M).groups()
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert version == peptidyn.__version__
    assert f"\nversion: {version}\n" in citation and f"\ndate-released: {date}\n" in citation


def test_the_map_names_every_folder_of_the_package_in_the_order_of_imports():
    named = re.findall(r"^\| `peptidyn/(\w+)/` ", CONTRIBUTING, re.M)
    there = {path.name for path in (ROOT / "peptidyn").iterdir() if (path / "__init__.py").exists()}
    assert set(named) == there and len(named) == len(there)
    assert named[0] == "core" and named[-1] == "cli"


def test_paths_in_contributing_exist():
    paths = re.findall(r"`([\w.]+/[\w./]*|[A-Z]+\.(?:md|cff))`", CONTRIBUTING)
    assert len(paths) > 20
    assert not [path for path in paths if not (ROOT / path).exists()]


@pytest.mark.parametrize("path", sorted((ROOT / "tests").glob("*.py")), ids=lambda path: path.stem)
def test_no_test_imports_from_another(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    assert not [name for name in imported if name.startswith("test_") or name == "conftest"]

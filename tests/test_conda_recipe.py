"""The conda recipe asks for what pyproject.toml asks for, under the names of conda-forge."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import peptidyn

ROOT = Path(__file__).parents[1]
NAMES = {"tables": "pytables", "matplotlib": "matplotlib-base"}
"""Of packages that conda-forge calls otherwise."""


def test_requirements_and_version():
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / "conda" / "meta.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert recipe["package"]["version"] == peptidyn.__version__
    assert recipe["build"]["noarch"] == "python" and recipe["about"]["license"] == project["license"]
    wanted = [
        f"python{project['requires-python']}",
        *project["dependencies"],
        *project["optional-dependencies"]["plots"],
    ]
    named = [re.fullmatch(r"([\w-]+)(\S*)", one).groups() for one in wanted]
    assert recipe["requirements"]["run"] == [f"{NAMES.get(name, name)} {bound}" for name, bound in named]
    name, target = recipe["build"]["entry_points"][0].split(" = ")
    assert project["scripts"] == {name: target}

"""What the README and the pages in docs/ print is run as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from peptidyn.cli import make_parser

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.M | re.S)


LONG = ("recipes.md",)
"""Pages whose examples take half a minute."""


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=pytest.mark.slow) if p.name in LONG else p for p in PAGES], ids=lambda p: p.name
)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(ROOT / "data")
    names: dict = {}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_parse(page):
    """Every peptidyn command on a page is one that the parser takes."""
    import shlex

    text = page.read_text()
    commands = re.findall(r"^(?:\s{4})?(peptidyn [a-z]+ [^\n`\[|]*?)(?:\s+#.*)?$", text, flags=re.M)
    for command in commands:
        if "..." not in command and command.upper() != command:
            make_parser().parse_args(shlex.split(command.split(" > ")[0])[1:])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_pictures_exist(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.slow
def test_tutorial_commands_run(tmp_path):
    """The commands of the tutorial, in their order, in an empty folder."""
    import os
    import subprocess
    import sys

    program = tmp_path / "bin" / "peptidyn"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m peptidyn "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    lines = [line for block in blocks(ROOT / "docs" / "tutorial.md", "bash") for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("peptidyn ")]
    assert len(commands) >= 5
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
    for command in commands:
        subprocess.run(["bash", "-euc", command], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "ala5" / "report.html").stat().st_size > 500_000
    assert len((tmp_path / "ala5" / "log.csv").read_text().splitlines()) == 31


def test_two_commands_on_the_first_screen():
    first = blocks(ROOT / "README.md", "bash")[0].strip().splitlines()
    assert len(first) == 2 and all(line.startswith("python3 -m venv") for line in first)
    assert (ROOT / "README.md").read_text().index("```bash") < 1200

"""Every example runs with small settings and ends with a picture."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = {"swap_integrator.py": ["--steps", "60"], "fixman_on_off.py": ["--samples", "200"]}


def test_all_examples_are_listed():
    assert sorted(p.name for p in EXAMPLES.glob("*.py")) == sorted(SMALL)


@pytest.mark.parametrize(("name", "arguments"), SMALL.items())
def test_example(name, arguments, tmp_path, capsys):
    picture = tmp_path / "out.png"
    runpy.run_path(str(EXAMPLES / name))["main"]([*arguments, "-o", str(picture)])
    assert picture.stat().st_size > 10000
    assert str(picture) in capsys.readouterr().out

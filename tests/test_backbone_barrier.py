"""Rigid geometry raises the phi barrier of capped alanine, and opened bond angles take it down again."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "backbone_barrier.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("backbone_barrier", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_lowest_pass(script):
    """Round a hill, across the edge of the periodic map."""
    energies = np.array([[0.0, 9.0, 0.0, 5.0], [3.0, 9.0, 4.0, 9.0]])
    assert script._lowest_pass(energies, (0, 0), (0, 2)) == (0, 3)
    energies[0, 3] = 20.0
    assert script._lowest_pass(energies, (0, 0), (0, 2)) in {(0, 1), (1, 1), (1, 3)}


@pytest.mark.slow
def test_barriers(script):
    """51 kJ/mol with rigid geometry, 30 with the backbone angles opened, 28 with everything relaxed; +- 2."""
    alanine = script.Alanine()
    expected = {"rigid geometry": 51, "backbone angles opened": 30, "everything relaxed": 28}
    for name, height in expected.items():
        found, phi, psi = alanine.barrier(script.MODELS[name](alanine))
        assert found == pytest.approx(height, abs=2.0), name
        assert abs(phi) <= 15 and 60 <= psi <= 120

"""Rigid geometry raises the phi barrier of capped alanine, and soft bond angles take it down again."""

from __future__ import annotations

import numpy as np
import pytest

import backbone_barrier as script


def test_lowest_pass():
    """Round a hill, across the edge of the periodic map."""
    energies = np.array([[0.0, 9.0, 0.0, 5.0], [3.0, 9.0, 4.0, 9.0]])
    assert script._lowest_pass(energies, (0, 0), (0, 2)) == (0, 3)
    energies[0, 3] = 20.0
    assert script._lowest_pass(energies, (0, 0), (0, 2)) in {(0, 1), (1, 1), (1, 3)}


@pytest.mark.slow
def test_barriers():
    """51 kJ/mol with rigid geometry, 30 with soft backbone angles, 28 with everything relaxed; +- 2."""
    alanine = script.Alanine()
    expected = {"rigid geometry": 51, "soft backbone angles": 30, "everything relaxed": 28}
    for name, height in expected.items():
        found, phi, psi = alanine.barrier(script.MODELS[name](alanine))
        assert found == pytest.approx(height, abs=2.0), name
        assert abs(phi) <= 15 and 60 <= psi <= 120

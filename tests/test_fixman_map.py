"""Maps of the Fixman potential over phi and psi."""

from __future__ import annotations

import numpy as np
import pytest
from real_structures import DATA, load

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError


def test_map_of_capped_alanine():
    chart = ptd.fixman_map(ptd.build_tree(load(DATA / "ala1.pdb"), "phi psi"), 2)
    assert chart.range == pytest.approx(0.39, abs=0.02)
    low = {"αR": (-63, -43), "PII": (-75, 145), "β": (-135, 135)}
    values = [chart.at(*place) for place in low.values()]
    assert np.ptp(values) < 0.1  # the basins differ little
    assert chart.at(-180.0, 180.0) == chart.at(180.0, -180.0)


def test_map_errors():
    tree = ptd.build_tree(load(DATA / "ala3.pdb"))
    with pytest.raises(ArgumentError, match="residue 99"):
        ptd.fixman_map(tree, 99)
    with pytest.raises(ArgumentError, match="only psi is soft"):
        ptd.fixman_map(ptd.build_tree(load(DATA / "ala3.pdb"), "psi"), 3)

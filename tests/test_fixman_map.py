"""Maps of the Fixman potential over phi and psi."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from real_structures import DATA, load

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError
from peptidyn.metric.fixman_map import FixmanMap, _backbone_pair


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


def test_a_map_has_two_points_per_axis_at_least():
    tree = ptd.build_tree(load(DATA / "ala1.pdb"), "phi psi")
    with pytest.raises(ArgumentError, match="points is 1, expected at least 2"):
        ptd.fixman_map(tree, "2", points=1)
    chart = ptd.fixman_map(tree, "2", chain="A", points=2)
    assert chart.phi.tolist() == chart.psi.tolist() == [-180.0, 0.0] and chart.residue == "chain A, residue ALA 2"
    assert chart.range == chart.energy.max() == max(row[2] for row in chart.rows()) > 0.0


def test_the_range_is_that_of_the_whole_map():
    chart = FixmanMap(np.array([-180.0, 0.0]), np.array([-180.0, 0.0]), np.array([[1.0, 2.0], [4.0, 8.5]]), "ALA 2")
    assert chart.range == 7.5


def test_values_between_grid_points_and_beyond_the_edge():
    """U = 2 phi / 90 + 30 psi / 90 over four points per axis: bilinear, phi first, periodic."""
    grid = np.array([-180.0, -90.0, 0.0, 90.0])
    chart = FixmanMap(grid, grid, 2.0 * np.arange(4)[:, None] + 30.0 * np.arange(4)[None, :], "ALA 2")
    for i, phi in enumerate(grid):
        for j, psi in enumerate(grid):
            assert chart.at(phi, psi) == pytest.approx(2.0 * i + 30.0 * j, abs=1e-9)
    assert chart.at(-135.0, 0.0) == pytest.approx(1.0 + 60.0) and chart.at(-90.0, 45.0) == pytest.approx(2.0 + 75.0)
    assert chart.at(135.0, -180.0) == pytest.approx(0.5 * (6.0 + 0.0)) and chart.at(180.0, -180.0) == pytest.approx(0.0)
    assert chart.rows()[1] == (-180.0, -90.0, 30.0)


def test_the_map_is_u_f_at_its_angles():
    """(ln det M) / 2 from the dense matrix at three places with different phi and psi."""
    tree = ptd.build_tree(load(DATA / "ala1.pdb"), "phi psi")
    chart = ptd.fixman_map(tree, 2, points=12)
    kinds = [c.kind for c in tree.torsions]
    assert chart.energy.min() == 0.0

    def half_log_det(phi, psi):
        torsions = np.deg2rad([{"phi": phi, "psi": psi}[kind] for kind in kinds])
        return 0.5 * np.linalg.slogdet(ptd.mass_matrix(tree, tree.reference.replace(torsions=torsions)))[1]

    zero = half_log_det(-60.0, 150.0) - chart.at(-60.0, 150.0)
    for phi, psi in ((30.0, -120.0), (-150.0, 60.0), (0.0, 90.0)):
        assert half_log_det(phi, psi) - chart.at(phi, psi) == pytest.approx(zero, abs=1e-9)
        assert abs(chart.at(phi, psi) - chart.at(psi, phi)) > 0.005


def test_a_residue_is_found_by_its_number_and_chain():
    """Residues 2 and 3 of chain A and residue 2 of chain B; phi of A 2 comes after its psi, and B 3 has no phi."""
    rows = [("psi", "2", "A", 1), ("chi1", "2", "A", 1), ("phi", "2", "A", 1), ("phi", "3", "A", 2)]
    rows += [("psi", "3", "A", 2), ("phi", "2", "B ", 4), ("psi", "2", "B ", 4), ("psi", "3", "B ", 5)]
    coordinates = [SimpleNamespace(kind=k, residue_id=i, chain=c, residue=r) for k, i, c, r in rows]
    tree = SimpleNamespace(coordinates=coordinates, atoms=SimpleNamespace(residue_label=lambda r: f"label {r}"))
    assert _backbone_pair(tree, "2", "A") == (2, 0, "label 1") and _backbone_pair(tree, "2", "B") == (5, 6, "label 4")
    assert _backbone_pair(tree, "3", None) == (3, 4, "label 2")
    with pytest.raises(ArgumentError, match=r"residue 3 of chain B, but only psi is soft"):
        _backbone_pair(tree, "3", "B")
    with pytest.raises(ArgumentError, match=r"residue 2 of chain C, but it is not there, or neither is soft"):
        _backbone_pair(tree, "2", "C")
    with pytest.raises(ArgumentError, match=r"several chains have a residue 2 \(A, B \)"):
        _backbone_pair(tree, "2", None)

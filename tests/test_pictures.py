"""What pictures show: the numbers of their lines and points, and the words about them."""

from __future__ import annotations

import numpy as np
import pytest
from report_stand_ins import Ladder, make_table

import peptidyn as ptd
from peptidyn.analysis import exchange_plots, run_plots, structure_plots
from peptidyn.analysis.melting import Curve
from peptidyn.analysis.plots import fixman_figure, fixman_map_figure, leave_room, new_figure, plain_label
from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.metric.fixman_map import FixmanMap
from peptidyn.sampling.mbar import TemperatureMBAR

RNG = np.random.default_rng(0)


def labels(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.fixture(scope="module")
def table():
    """Two chains of the same residues with phi, psi and chi angles: 12 frames, 0.5 ps apart from 2 ps on."""
    tree = ptd.build_tree(ptd.build_peptide("AV"), "phi psi chi")
    made = make_table(tree, np.random.default_rng(1).uniform(-180, 180, (12, tree.n_torsions)))
    return made


def test_residues_of_two_chains_are_told_apart():
    kinds = np.array(["phi", "psi", "chi1", "psi", "phi", "phi"])
    table = {
        "torsion_kind": kinds,
        "torsion_chain": np.array(list("AABBBA")),
        "torsion_residue": np.array([1, 1, 1, 1, 1, 2]),
    }
    assert run_plots.phi_psi_pairs(table) == [(0, 1), (4, 3)]


def test_points_of_the_ramachandran_plot(table):
    figure = run_plots.ramachandran_figure(table)
    axes = figure.axes[0]
    pairs = run_plots.phi_psi_pairs(table)
    degrees = np.rad2deg(table["torsions"])
    points = axes.collections[0]
    expected = np.array([(degrees[i, p], degrees[i, s]) for i in range(12) for p, s in pairs])
    assert len(pairs) == 2 and np.asarray(points.get_offsets()) == pytest.approx(expected)
    assert np.asarray(points.get_array()) == pytest.approx(np.repeat(table["time"], 2))
    assert axes.get_title() == "2 residues, 12 frames"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("φ (degrees)", "ψ (degrees)")
    chi_only = {name: values for name, values in table.items()}
    chi_only["torsion_kind"] = np.array(["chi1"] * len(table["torsion_kind"]))
    assert run_plots.ramachandran_figure(chi_only) is None


def test_energies_along_a_run(table):
    values = {"potential": RNG.normal(50, 3, 12), "kinetic": RNG.normal(90, 3, 12), "total": RNG.normal(140, 3, 12)}
    values |= {"temperature": RNG.normal(340, 9, 12), "fixman": np.zeros(12)}
    upper, lower = run_plots.energy_figure({**table, **values}, 350.0).axes
    for line, name in zip(upper.lines, ("potential", "kinetic", "total"), strict=True):
        assert line.get_xdata() == pytest.approx(table["time"])
        assert line.get_ydata() == pytest.approx(values[name] - values[name].mean())
        assert line.get_label() == f"{name}: {values[name].mean():.0f}"
    assert lower.lines[0].get_ydata() == pytest.approx(values["temperature"])
    assert labels(lower) == [f"mean {values['temperature'].mean():.1f} K", "heat bath 350 K"]
    assert lower.lines[1].get_ydata()[0] == pytest.approx(values["temperature"].mean())
    assert lower.lines[2].get_ydata()[0] == 350.0
    upper, lower = run_plots.energy_figure({**table, **values, "fixman": np.ones(12)}, None).axes
    assert labels(upper)[2].startswith("total, with $U_F$") and len(labels(lower)) == 1


def test_the_drift_is_that_of_the_line(table):
    """Two kJ/mol in a picosecond are 2000 in a nanosecond; the change begins with 0."""
    total = {**table, "total": 30.0 + 2.0 * table["time"]}
    axes = run_plots.drift_figure(total, True).axes[0]
    assert axes.lines[0].get_ydata() == pytest.approx(2.0 * np.arange(12) * 0.5)
    assert axes.lines[1].get_ydata() == pytest.approx(axes.lines[0].get_ydata(), abs=1e-9)
    assert labels(axes) == ["+2e+03 kJ/mol/ns"] and axes.get_title() == "Drift of the total energy"
    axes = run_plots.drift_figure(total, False).axes[0]
    assert len(axes.lines) == 1 and "heat bath" in axes.get_title()


def test_distributions_of_side_chains(table):
    columns = np.flatnonzero(np.char.startswith(table["torsion_kind"].astype(str), "chi"))
    figure, more = run_plots.chi_figure(table)
    assert len(columns) == 1 and more == 0
    (axes,) = figure.axes
    counts = np.histogram(np.rad2deg(table["torsions"][:, columns[0]]), np.arange(-180, 181, 10))[0]
    assert [bar.get_height() for bar in axes.patches] == counts.tolist() and axes.get_title() == "chi1 VAL 3"
    assert run_plots.chi_figure({**table, "torsion_kind": np.array(["phi"] * len(table["torsion_kind"]))}) == (None, 0)


def test_many_side_chains_are_not_all_drawn():
    n = 14
    table = {
        "torsion_kind": np.array(["phi", *["chi1"] * n]), "torsions": RNG.uniform(-3, 3, (5, n + 1)),
        "torsion_residue_name": np.array(["SER"] * (n + 1)), "torsion_residue_id": np.arange(n + 1),
    }  # fmt: skip
    figure, more = run_plots.chi_figure(table)
    assert more == 2 and [axes.get_title() for axes in figure.axes] == [f"chi1 SER {i}" for i in range(1, 13)]
    for i, axes in enumerate(figure.axes, start=1):
        counts = np.histogram(np.rad2deg(table["torsions"][:, i]), np.arange(-180, 181, 10))[0]
        assert [bar.get_height() for bar in axes.patches] == counts.tolist()


def test_iterations_and_acceptance(table):
    some = {**table, "iterations": np.array([3, 4, 4, 6]), "acceptance": np.linspace(0.9, 0.8, 12)}
    bars = run_plots.iterations_figure(some).axes[0].patches
    assert [(round(bar.get_x() + bar.get_width() / 2), bar.get_height()) for bar in bars] == list(
        enumerate([0, 0, 0, 1, 2, 0, 1])
    )
    assert run_plots.acceptance_figure(some).axes[0].lines[0].get_ydata() == pytest.approx(some["acceptance"])
    assert run_plots.acceptance_figure(table) is None


# ---------------------------------------------------------------------------- replica exchange


@pytest.fixture(scope="module")
def ladder():
    walk = np.array([[0, 1, 2], [2, 1, 0], [0, 1, 2], [2, 1, 0], [2, 0, 1], [1, 2, 0]])
    potential = np.array([[-20.0], [0.0], [20.0]]) + np.random.default_rng(2).normal(0, 12, (3, 30)).cumsum(axis=1) / 3
    moves = [{"move": "TorsionalHMC"}, {"move": "CartesianHMC"}]
    return Ladder(None, np.array([300.0, 350.0, 420.0]), np.zeros((3, 30, 1, 3)), potential, walk, moves)


def test_pictures_of_replica_exchange(ladder):
    figures = exchange_plots.exchange_figures(ladder)
    assert list(figures) == ["temperatures", "acceptance", "overlap", "energies"]
    T, V = ladder.temperatures, list(ladder.potential)
    mbar = TemperatureMBAR(V, T)
    axes = figures["temperatures"].axes[0]
    assert np.array_equal(axes.images[0].get_array(), ladder.walk.T) and axes.images[0].get_clim() == (0, 2)
    assert axes.images[0].get_extent() == [0, 6, 2.5, -0.5]
    assert axes.get_title() == "Temperatures visited; round trips: 2"
    left, right = figures["acceptance"].axes
    assert [bar.get_height() for bar in left.patches] == ladder.acceptance.tolist()
    overlap = next(line for line in left.lines if line.get_label() == "overlap")
    assert overlap.get_ydata() == pytest.approx([mbar.overlap[0, 1], mbar.overlap[1, 2]])
    assert [text.get_text() for text in left.get_xticklabels()] == ["300–350", "350–420"]
    for line, rates, move in zip(right.lines, ladder.move_acceptance.T, ladder.moves, strict=True):
        assert line.get_xdata() == pytest.approx(T) and line.get_ydata() == pytest.approx(rates)
        assert line.get_label() == move["move"]
    axes = figures["overlap"].axes[0]
    assert np.asarray(axes.images[0].get_array()) == pytest.approx(mbar.overlap)
    for text in axes.texts:
        column, row = (round(place) for place in text.get_position())
        assert text.get_text() == f"{mbar.overlap[row, column]:.2f}"
    assert len(axes.texts) == (mbar.overlap >= 0.005).sum()
    left, right = figures["energies"].axes
    assert labels(left) == ["300 K", "350 K", "420 K"]
    for points, t, e in zip(right.containers, T, V, strict=True):
        line, _, (bars,) = points
        assert (line.get_xdata()[0], line.get_ydata()[0]) == (t, pytest.approx(e.mean()))
        error = e.std() * np.sqrt(statistical_inefficiency(e) / 30)
        assert bars.get_segments()[0][:, 1] == pytest.approx([e.mean() - error, e.mean() + error])
    grid = np.linspace(300.0, 420.0, 41)
    mean, error = mbar.mean_energy(grid)
    together = next(line for line in right.lines if "MBAR" in str(line.get_label()))
    assert together.get_xdata() == pytest.approx(grid) and together.get_ydata() == pytest.approx(mean)
    band = right.collections[-1].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (pytest.approx((mean - error).min()), pytest.approx((mean + error).max()))


# ---------------------------------------------------------------------------- structure


def test_letters_of_the_secondary_structure_have_their_colours():
    """Helix, strand and coil are numbered in this order; residues stand one below the other."""
    letters = np.array([["H", "C", "E"], ["H", "H", "E"]])
    figure = structure_plots.secondary_figure(np.array([2.0, 4.0]), "time (ps)", letters, ["A", "B", "C"])
    (image,) = figure.axes[0].images
    assert np.array_equal(image.get_array(), [[0, 0], [2, 0], [1, 1]])
    assert image.get_extent() == [2.0, 4.0, 2.5, -0.5] and figure.axes[0].get_xlabel() == "time (ps)"
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["helix", "strand", "coil"]
    assert image.cmap(image.norm(0)) == figure.axes[0].get_legend().get_patches()[0].get_facecolor()
    assert structure_plots.secondary_figure(np.arange(2), "", letters[:, :0], []) is None


def test_populations_stand_on_each_other():
    population = np.array([[0.5, 0.3, 0.2], [0.9, 0.1, 0.0]])
    error = np.array([[0.05, 0.03, 0.02], [0.01, 0.02, 0.0]])
    axes = structure_plots.basins_figure(["A", "B"], population, error).axes[0]
    bars = [(bar.get_y(), bar.get_height()) for bar in axes.patches]
    expected = [(0.0, 0.5), (0.0, 0.9), (0.5, 0.3), (0.9, 0.1), (0.8, 0.2), (1.0, 0.0)]
    assert np.array(bars) == pytest.approx(np.array(expected))
    ends = [segment[:, 1].tolist() for part in axes.collections for segment in part.get_segments()]
    assert ends[0] == pytest.approx([0.45, 0.55]) and ends[2] == pytest.approx([0.77, 0.83]) and len(ends) == 5
    assert structure_plots.basins_figure([], population[:0], error[:0]) is None


def test_melting_curves_and_points():
    T, at = np.array([300.0, 400.0]), np.linspace(300.0, 400.0, 5)
    alone = {"one (nm)": np.array([[1.0, 0.1], [2.0, 0.2]]), "two": np.array([[5.0, 0.5], [7.0, 0.7]])}
    curve = Curve(at, np.linspace(5.0, 7.0, 5), np.full(5, 0.25), np.zeros((2, 5)))
    figure = structure_plots.melting_figure(T, alone, {"two": curve})
    for axes, (name, values) in zip(figure.axes, alone.items(), strict=True):
        line, _, (bars,) = axes.containers[0]
        assert line.get_xdata() == pytest.approx(T) and line.get_ydata() == pytest.approx(values[:, 0])
        lengths = [np.ptp(segment[:, 1]) / 2 for segment in bars.get_segments()]
        assert lengths == pytest.approx(values[:, 1]) and axes.get_ylabel() == name
    assert figure.axes[1].lines[-1].get_ydata() == pytest.approx(curve.mean)
    band = figure.axes[1].collections[-1].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (pytest.approx(4.75), pytest.approx(7.25))
    assert len(figure.axes[0].lines) == len(figure.axes[1].lines) - 1


def test_weights_are_drawn_relative_to_equal_ones():
    w = np.array([0.1, 0.2, 0.3, 0.4])
    left, right = fixman_figure(np.arange(4) + 5.0, np.array([1.0, 2.0, 3.0, 6.0]), w).axes
    assert left.lines[0].get_ydata().tolist() == [-2.0, -1.0, 0.0, 3.0]
    assert left.lines[0].get_xdata().tolist() == [5.0, 6.0, 7.0, 8.0]
    assert right.patches[0].get_x() == pytest.approx(0.4)
    assert right.patches[-1].get_x() + right.patches[-1].get_width() == pytest.approx(1.6)
    assert right.get_title() == "effective sample size 3 of 4"  # 1 / 0.3


def test_a_map_of_u_f_has_phi_to_the_right():
    """U_F is 12 kT at phi = 90 and psi = -90 and nothing elsewhere: colours and lines are about that place."""
    grid, energy = np.array([-180.0, -90.0, 0.0, 90.0]), np.zeros((4, 4))
    energy[3, 1] = 12.0
    axes = fixman_map_figure(FixmanMap(grid, grid, energy, "ALA 2")).axes[0]
    filled, lines = axes.collections
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("φ (degrees)", "ψ (degrees)")
    for levels in (filled.get_paths()[-1], lines.get_paths()[-1]):
        x, y = levels.vertices.mean(axis=0)
        assert (x, y) == (pytest.approx(90.0, abs=10.0), pytest.approx(-90.0, abs=10.0))


def test_room_for_a_legend_and_plain_names():
    _, axes = new_figure()
    axes.set_ylim(1.0, 4.0)
    leave_room(axes, 0.25)
    assert axes.get_ylim() == pytest.approx((1.0, 5.0))
    assert plain_label("a$b") == r"a\$b"

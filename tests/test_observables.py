"""What is measured on trajectories: ideal structures, values by hand, errors, refusals."""

from __future__ import annotations

import math

import mdtraj
import numpy as np
import pytest
from butane_exchange import T, make

import peptidyn as ptd
from peptidyn.analysis.estimates import estimate, with_error
from peptidyn.analysis.exchange_frames import exchange_frames
from peptidyn.analysis.observables import backbone_torsions, helix_triples
from peptidyn.core.errors import ArgumentError
from peptidyn.core.statistics import weighted_average


def frames(*structures: ptd.Structure) -> mdtraj.Trajectory:
    topology = mdtraj.Topology.from_openmm(structures[0].topology)
    return mdtraj.Trajectory(np.array([s.positions for s in structures]), topology)


HELIX, STRAND = (ptd.build_peptide("A" * 10, phi=phi, psi=psi) for phi, psi in ((-57, -47), (-120, 130)))


def test_an_ideal_helix_and_a_strand():
    """In the capped helix O of residue i, cap included, binds H of residue i + 4: 8 bonds.

    It rises 0.15 nm per residue, and a strand with these angles 0.33 nm.
    """
    both = frames(HELIX, STRAND)
    assert ptd.helix_content(both).values.tolist() == [1.0, 0.0]
    assert ptd.hydrogen_bonds(both).values.tolist() == [8.0, 0.0]
    assert ptd.end_to_end_distance(both).values / 9 == pytest.approx([0.15, 0.33], abs=0.015)
    basins = ptd.ramachandran_basins(both)
    assert len(basins.labels) == 10 and all(label.startswith("ALA") for label in basins.labels)
    assert basins.values[0, :, 0].all() and basins.values[1, :, 1].all() and not basins.values[..., 2].any()
    phi, psi, chains = backbone_torsions(both)
    assert phi == pytest.approx(np.repeat([[-57.0], [-120.0]], 10, axis=1), abs=0.01)
    assert psi == pytest.approx(np.repeat([[-47.0], [130.0]], 10, axis=1), abs=0.01)
    assert not chains.any()


def test_radius_of_gyration_by_its_definition():
    m, x = HELIX.masses, HELIX.positions
    centre = m @ x / m.sum()
    expected = np.sqrt((m * ((x - centre) ** 2).sum(axis=1)).sum() / m.sum())
    assert ptd.radius_of_gyration(frames(HELIX, HELIX)).mean == pytest.approx(expected, rel=1e-4)


def test_a_broken_chain_has_two_parts():
    """Without residue 5 its neighbours lack psi and phi, and no triple spans the gap."""
    whole = frames(HELIX)
    part = whole.atom_slice([a.index for a in whole.topology.atoms if a.residue.index != 5])
    _, _, chains = backbone_torsions(part)
    assert chains.tolist() == [0, 0, 0, 1, 1, 1, 1]
    helical = np.ones((1, 7), dtype=bool)
    assert helix_triples(helical, chains).shape == (1, 3) and helix_triples(helical).shape == (1, 5)


def test_triples_by_hand():
    helical = np.array([[1, 1, 1, 0, 1, 1], [0, 1, 1, 1, 1, 1]], dtype=bool)
    assert helix_triples(helical).astype(int).tolist() == [[1, 0, 0, 0], [0, 1, 1, 1]]


def test_estimates_have_the_errors_of_correlated_frames():
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=500), 10)  # ten equal frames each: errors are those of 500
    found = estimate(x, name="x", unit="nm")
    assert found.error == pytest.approx(x.std() / np.sqrt(500), rel=0.2)
    w = rng.uniform(size=len(x))
    weighted = estimate(np.stack([x, x**2], axis=1), w, labels=("x", "square"))
    mean, error = weighted_average(np.stack([x, x**2], axis=1), w)
    assert np.array_equal(weighted.mean, mean) and np.array_equal(weighted.error, error)
    assert str(found).startswith("x: ") and str(found).endswith(" nm") and "square " in str(weighted)
    constant = estimate(np.stack([np.full(40, 0.1), np.ones(40, bool)], axis=1))  # sums of 0.1 are not exact
    assert constant.mean.tolist() == [0.1, 1.0] and constant.error.tolist() == [0.0, 0.0]
    with pytest.raises(ArgumentError, match="no frames"):
        estimate([], name="x")


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.31415, 0.0123, "0.314(12)"), (3.14159, 0.5, "3.14(50)"), (1234.5, 56.0, "1234(56)"), (2.0, 0.0, "2(0)"),
        (12345.6, 1234.0, "12300(1200)"), (5.0, math.inf, "5(inf)"), (math.nan, 0.1, "nan(0.1)"),
        (-0.0271828, 0.00031, "-0.02718(31)"), (10.0, 1.0, "10.0(10)"),
    ],
)  # fmt: skip
def test_numbers_with_their_errors(value, error, text):
    assert with_error(value, error) == text


def test_what_cannot_be_measured_is_refused():
    one = frames(ptd.build_peptide("A", caps=False))
    with pytest.raises(ArgumentError, match="no residue with phi and psi"):
        ptd.ramachandran_basins(one)
    with pytest.raises(ArgumentError, match="three residues"):
        ptd.helix_content(frames(ptd.build_peptide("AA")))
    with pytest.raises(ArgumentError, match="1 alpha carbons in 1"):
        ptd.end_to_end_distance(one)


def test_frames_of_a_temperature_are_those_of_the_run(tmp_path):
    with make(tmp_path, every=1) as exchange:
        exchange.run(5)
        rows, q = exchange.at_temperature(1)
    found = exchange_frames(tmp_path, 1)
    measured = mdtraj.compute_dihedrals(found, [[0, 1, 2, 3]], periodic=False)[:, 0]
    assert len(found) == len(rows) == 10 and set(rows["temperature"]) == {T[1]}
    assert np.abs(np.angle(np.exp(1j * (measured - q[:, 0])))).max() < 1e-4
    for level in (-1, 3):
        with pytest.raises(ArgumentError, match="expected 0 to 2"):
            exchange_frames(tmp_path, level)
    coldest = exchange_frames(tmp_path)
    assert len(coldest) == 10 and np.abs(coldest.xyz - found.xyz).max() > 1e-3


def chain_frames(*angles):
    return frames(*(ptd.build_peptide("A" * 5, phi=phi, psi=psi) for phi, psi in angles))


@pytest.mark.parametrize(
    "measure",
    [ptd.helix_content, ptd.ramachandran_basins, ptd.radius_of_gyration, ptd.end_to_end_distance, ptd.hydrogen_bonds],
)
def test_weights_of_frames_count(measure):
    """A frame with the weight 3 counts three times as much as one with the weight 1."""
    found = measure(chain_frames((-57, -47), (-120, 130)), weights=[3.0, 1.0])
    values = np.asarray(found.values, dtype=float)
    assert np.abs(values[0] - values[1]).max() > 0.05
    assert np.asarray(found.mean) == pytest.approx((3.0 * values[0] + values[1]) / 4.0)


def test_names_of_residues_have_their_numbers():
    labels = ptd.ramachandran_basins(chain_frames((-57, -47), (60, 40))).labels
    assert labels == ("ALA2", "ALA3", "ALA4", "ALA5", "ALA6")


def with_extras(structure, x):
    """Frames (n, n_atoms, 3) with a calcium ion and a molecule of water behind the peptide, near its backbone."""
    top = mdtraj.Topology.from_openmm(structure.topology)
    ion = top.add_residue("CA", top.add_chain())
    top.add_atom("CA", mdtraj.element.calcium, ion)
    water = top.add_residue("HOH", top.add_chain())
    o = top.add_atom("O", mdtraj.element.oxygen, water)
    for name in ("H1", "H2"):
        top.add_bond(o, top.add_atom(name, mdtraj.element.hydrogen, water))
    last = next(a.index for a in top.atoms if a.residue.name == "NME" and a.name == "N")
    hydrogen = next(a.index for a in top.atoms if a.residue.name == "NME" and a.name == "H")
    out = x[:, hydrogen] - x[:, last]
    out /= np.linalg.norm(out, axis=1)[:, None]
    oxygen = x[:, last] + 0.28 * out
    extra = np.stack([oxygen + 3.0, oxygen, oxygen + 0.08 * out, oxygen + 0.09 * out], axis=1)
    return mdtraj.Trajectory(np.concatenate([x, extra], axis=1), top)


def test_water_and_ions_are_not_part_of_the_chain():
    """Calcium is called CA, and O of a water that binds the last N-H is called O."""
    x = np.stack([HELIX.positions, STRAND.positions])
    alone, more = frames(HELIX, STRAND), with_extras(HELIX, x)
    for measure in (ptd.hydrogen_bonds, ptd.end_to_end_distance, ptd.helix_content):
        assert measure(more).values == pytest.approx(measure(alone).values, abs=1e-6)


def test_side_chains_do_not_count_as_backbone():
    """All hydroxyl groups of serine are donors and acceptors; bonds between backbones are those of alanine."""
    serine = ptd.build_peptide("S" * 10, phi=-57, psi=-47)
    found = ptd.hydrogen_bonds(frames(serine)).values
    assert found.tolist() == ptd.hydrogen_bonds(frames(HELIX)).values.tolist() == [8.0]
    assert len(mdtraj.wernet_nilsson(frames(serine), periodic=False)[0]) >= 8


def test_two_chains_have_no_end_to_end_distance():
    one = mdtraj.Topology.from_openmm(HELIX.topology)
    both = mdtraj.Trajectory(np.concatenate([HELIX.positions, HELIX.positions + 3.0])[None], one.join(one))
    with pytest.raises(ArgumentError, match="20 alpha carbons in 2"):
        ptd.end_to_end_distance(both)
    two = frames(ptd.build_peptide("AA", caps=False))
    assert ptd.end_to_end_distance(two).mean == pytest.approx(0.38, abs=0.01)  # between neighbours


def test_the_first_and_the_last_alpha_carbon_make_the_distance():
    names = HELIX.atoms.name
    places = np.flatnonzero(names == "CA")
    expected = np.linalg.norm(HELIX.positions[places[-1]] - HELIX.positions[places[0]])
    assert ptd.end_to_end_distance(frames(HELIX)).mean == pytest.approx(expected, rel=1e-5) and len(places) == 10


def test_text_of_averages_of_several_values():
    found = estimate(np.array([[1.0, 4.0], [2.0, 4.0], [1.0, 4.0], [2.0, 4.0]]), name="x", unit="nm", labels=("a", "b"))
    assert str(found) == "x: a 1.50(25), b 4(0) nm"
    bare = estimate(np.array([[1.0, 4.0], [2.0, 4.0], [1.0, 4.0], [2.0, 4.0]]), name="x")
    assert str(bare) == "x: 0 1.50(25), 1 4(0)"
    assert str(estimate([1.0, 2.0, 1.0, 2.0], name="y")) == "y: 1.50(25)"
    three = estimate(np.arange(4.0)[:, None, None] % 2 + np.zeros((4, 2, 2)), name="z", labels=("a", "b"))
    assert str(three) == "z: a 0.50(25) 0.50(25), b 0.50(25) 0.50(25)"

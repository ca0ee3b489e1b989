"""The backbone of built peptides from their torsions, and how it makes room for prolines."""

from __future__ import annotations

import numpy as np
import pytest

from peptidyn.core.points import bond_angle, dihedral
from peptidyn.io.peptide_backbone import (
    _closest_approach,
    _proline_runs,
    fit_prolines,
    is_alpha_helix,
    trace,
)
from peptidyn.io.residue_templates import residue_templates

LETTERS = "GPAWGV"


def angles(n, seed=2):
    return np.random.default_rng(seed).uniform(-np.pi, np.pi, (3, n))


def test_every_length_angle_and_torsion_is_that_of_its_residue():
    phi, psi, omega = angles(6)
    xyz = trace(LETTERS, phi, psi, omega)
    t = [residue_templates()[letter] for letter in LETTERS]
    assert len({one.c_n for one in t}) > 1 and len({one.ca_c_n for one in t}) > 1 and len({one.c_n_ca for one in t}) > 1
    for i, (n, ca, c) in enumerate(xyz):
        assert np.linalg.norm(ca - n) == pytest.approx(t[i].n_ca)
        assert np.linalg.norm(c - ca) == pytest.approx(t[i].ca_c)
        assert bond_angle(n, ca, c) == pytest.approx(t[i].n_ca_c)
        if i == 0:
            continue
        before = xyz[i - 1]
        assert np.linalg.norm(n - before[2]) == pytest.approx(t[i].c_n)
        assert bond_angle(before[1], before[2], n) == pytest.approx(t[i - 1].ca_c_n)
        assert bond_angle(before[2], n, ca) == pytest.approx(t[i].c_n_ca)
        assert dihedral(*before, n) == pytest.approx(psi[i - 1])
        assert dihedral(*before[1:], n, ca) == pytest.approx(omega[i - 1])
        assert dihedral(before[2], n, ca, c) == pytest.approx(phi[i])
    np.testing.assert_allclose(xyz[0, 0], 0.0)


@pytest.mark.parametrize("known", [1, 3])
def test_a_chain_goes_on_from_a_known_head(known):
    """Wherever that is; nothing of the head changes."""
    phi, psi, omega = angles(6)
    whole = trace(LETTERS, phi, psi, omega) + [1.0, 2.0, 3.0]
    np.testing.assert_allclose(trace(LETTERS, phi, psi, omega, whole[:known]), whole, atol=1e-12)


@pytest.mark.parametrize(("phi", "psi", "omega", "helix"), [
    (-57, -47, 180, True), (-74.9, -47, 180, True), (-75.1, -47, 180, False), (-50.1, -47, 180, True),
    (-49.9, -47, 180, False), (-57, -54.9, 180, True), (-57, -55.1, 180, False), (-57, -35.1, 180, True),
    (-57, -34.9, 180, False), (-57, -47, 0, False), (-57, -47, -155, True), (-57, -47, 150, False),
    (57, 47, 180, False),
])  # fmt: skip
def test_what_is_an_alpha_helix(phi, psi, omega, helix):
    assert is_alpha_helix(*np.deg2rad([phi, psi, omega])) == helix


@pytest.mark.parametrize(("sequence", "runs"), [
    ("AAA", []), ("PAAA", [(0, 0)]), ("APPA", [(1, 2)]), ("APAPA", [(1, 3)]), ("APAAPA", [(1, 1), (4, 4)]),
    ("PPAPAAPP", [(0, 3), (6, 7)]), ("PAPAP", [(0, 4)]),
])  # fmt: skip
def test_prolines_that_follow_each_other(sequence, runs):
    assert _proline_runs(sequence) == runs


def fitted(sequence, phi=-57.0, psi=-47.0):
    """psi of a helix after room was made for its prolines, degrees."""
    n = len(sequence)
    phis, psis = (np.deg2rad(np.full(n, value)) for value in (phi, psi))
    phis[[k for k, letter in enumerate(sequence) if letter == "P"]] = np.deg2rad(-65.0)
    before = psis.copy()
    found = fit_prolines(sequence, phis, psis, np.full(n, np.pi))
    np.testing.assert_array_equal(psis, before)
    return np.rad2deg(found).round(6).tolist()


def test_the_helix_bends_before_a_proline():
    """phi + psi is -117, -99 and -79 degrees one, two and three places before: psi -60, -42, -22 at phi = -57."""
    assert fitted("AAAAPAA") == [-47.0, -22.0, -42.0, -60.0, -47.0, -47.0, -47.0]
    assert fitted("AAAPAA", phi=-60.0) == [-19.0, -39.0, -57.0, -47.0, -47.0, -47.0]
    assert fitted("AAPAAA") == [-47.0] * 6  # two residues before are too few
    assert fitted("PAAAA") == [-47.0] * 5


def test_a_proline_before_another_counts_with_its_own_phi():
    """Three places apart each bends the helix; one of the three places before the second is the first itself."""
    assert fitted("AAAPAAPA") == [-22.0, -42.0, -60.0, -79.0 + 65.0, -42.0, -60.0, -47.0, -47.0]


def test_prolines_side_by_side_take_the_angles_of_polyproline():
    """From the first to before the last: 130 degrees."""
    assert fitted("AAAPP") == [-22.0, -42.0, -60.0, 130.0, -47.0]
    assert fitted("AAAPAPA") == [-22.0, -42.0, -60.0, 130.0, 130.0, -47.0, -47.0]
    assert fitted("PPP") == [130.0, 130.0, -47.0]


def closest(ca, first):
    """Distances of all pairs one by one."""
    return min((np.linalg.norm(ca[i] - ca[j]) for i in range(first, len(ca)) for j in range(i - 4)), default=np.inf)


def test_the_closest_approach_of_a_chain_to_itself():
    """Of a residue past the first to any five or more before; none is that far in a short chain."""
    ca = np.random.default_rng(7).normal(size=(14, 3))
    for first in (0, 4, 9, 13):
        assert _closest_approach(ca, first) == pytest.approx(closest(ca, first), rel=1e-6)
    assert _closest_approach(ca[:5], 0) == np.inf
    assert _closest_approach(np.zeros((8, 3)), 2) == 0.0


def polyproline(sequence, phi, psi):
    """The first of the angles at which CA atoms five apart keep 0.65 nm, or that with most room, for the first run."""
    first, last = _proline_runs(sequence)[0]
    later = _proline_runs(sequence)[1:]
    end = later[0][0] if later else len(sequence)
    psi = np.deg2rad(fitted(sequence, phi, psi))
    phi = np.deg2rad([-65.0 if letter == "P" else phi for letter in sequence])
    rooms = {}
    for value in (130, 145, 120, 155, 165, 110, 175):
        psi[first:last] = np.deg2rad(value)
        ca = trace(sequence[:end], phi, psi, np.full(len(sequence), np.pi))[:, 1]
        rooms[value] = closest(ca, first)
        if rooms[value] >= 0.65:
            return value
    return max(rooms, key=rooms.get)


@pytest.mark.parametrize(("sequence", "phi", "psi", "angle"), [
    ("AAPPAAAAA", -58.0, -42.0, 120.0),  # the third of the list
    ("AAAPPPAAA", -73.0, -45.0, 110.0),  # the sixth
    ("AAAPPAAA", -74.0, -53.0, 110.0),  # none has room: the best of all
    ("PPAAAPPAAAAA", -74.0, -55.0, 130.0),  # room up to the next prolines is enough: those bend the chain again
])  # fmt: skip
def test_where_the_chain_would_run_into_itself_another_angle_is_taken(sequence, phi, psi, angle):
    value = polyproline(sequence, phi, psi)
    first, last = _proline_runs(sequence)[0]
    assert value == angle
    assert fitted(sequence, phi, psi)[first:last] == [angle] * (last - first)
    assert fitted(sequence, phi, psi)[last] == pytest.approx(psi)

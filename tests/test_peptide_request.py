"""What is asked of `build_peptide`: how sequences, angles and caps are read."""

from __future__ import annotations

import numpy as np
import pytest
from openmm import unit

from peptidyn.core.errors import ArgumentError
from peptidyn.io.peptide_request import read_request


def request(sequence="AVA", phi=-57.0, psi=-47.0, omega=180.0, chi=None, caps=True):
    return read_request(sequence, phi, psi, omega, chi, caps)


def degrees(values):
    return np.rad2deg(values).round(9).tolist()


@pytest.mark.parametrize(
    ("spelled", "letters"),
    [("AVC", "AVC"), (" avc\n", "AVC"), ("AV\nC\n", "AVC"), ("ALA-VAL\n-CYS", "AVC"), ("A-VAL-c", "AVC"),
     ([" ala ", "V", "Cys"], "AVC"), (("A", "V"), "AV"), (np.array(["A", "VAL"]), "AV")],
)  # fmt: skip
def test_spellings(spelled, letters):
    assert request(spelled).letters == letters


@pytest.mark.parametrize(("caps", "added"), [(True, (1, 1)), (False, (0, 0)), ("ACE", (1, 0)), ("NME", (0, 1))])
def test_caps(caps, added):
    assert request(caps=caps).caps == added


@pytest.mark.parametrize("caps", [0, 1, 1.0, None, "ace", ["ACE"], ("ACE", "NME")])
def test_other_caps_are_refused(caps):
    with pytest.raises(ArgumentError, match="expected True, False, 'ACE' or 'NME'"):
        request(caps=caps)


def test_one_angle_is_that_of_all_residues():
    found = request(phi=-70.0, psi=40.0 * unit.degree, omega=1.0 * unit.radian)
    assert degrees(found.phi) == [-70.0] * 3
    assert degrees(found.psi) == [40.0] * 3
    np.testing.assert_allclose(found.omega, [1.0] * 3)
    assert found.cap_omega == pytest.approx(1.0)
    assert found.chain_phi == pytest.approx(np.deg2rad(-70.0))


def test_angles_of_each_residue():
    """A list, also of quantities, an array, a quantity of a list. No single phi then, and a cap that is trans."""
    found = request(
        phi=[10.0, 0.5 * unit.radian, 30.0], psi=np.array([1.0, 2.0, 3.0]), omega=[0.0, 10.0, 20.0] * unit.degree
    )
    np.testing.assert_allclose(found.phi, [np.deg2rad(10.0), 0.5, np.deg2rad(30.0)])
    assert degrees(found.psi) == [1.0, 2.0, 3.0] and degrees(found.omega) == [0.0, 10.0, 20.0]
    assert found.cap_omega == pytest.approx(np.pi) and found.chain_phi is None


@pytest.mark.parametrize(("angles", "helix"), [
    ((-57.0, -47.0, 180.0), True), ((-57.0, -47.0, 0.0), False), ((-120.0, 120.0, 180.0), False),
    (([-57.0] * 3, -47.0, 180.0), False), ((-57.0, [-47.0] * 3, 180.0), False), ((-57.0, -47.0, [180.0] * 3), False),
])  # fmt: skip
def test_one_angle_of_each_kind_can_make_a_uniform_helix(angles, helix):
    assert request("AVA", *angles).uniform_helix == helix


def test_phi_of_prolines():
    """One phi for all leaves every proline at -65 degrees. Given one by one it is kept, but for a first without ACE."""
    assert degrees(request("PAPP", phi=-120.0).phi) == [-65.0, -120.0, -65.0, -65.0]
    each = [-40.0, -100.0, -85.0, -35.0]
    assert degrees(request("PAPP", phi=each).phi) == each
    assert degrees(request("PAPP", phi=each, caps="NME").phi) == [-65.0, *each[1:]]
    assert degrees(request("PA", phi=[500.0, 10.0], caps=False).phi) == [-65.0, 10.0]
    assert degrees(request("PA", phi=[300.0, 10.0]).phi) == [300.0, 10.0]  # -60 degrees
    given = np.array(each)
    request("PAPP", phi=given, caps=False)
    assert given.tolist() == each


@pytest.mark.parametrize(("phi", "caps"), [(-85.01, True), (-34.99, True), (10.0, "ACE"), (180.0, True)])
def test_phi_of_prolines_outside_their_range(phi, caps):
    with pytest.raises(
        ArgumentError, match=r"phi of residue 1 of the sequence, a proline, is .* give it a value near -65"
    ):
        request("PA", phi=[phi, -60.0], caps=caps)
    with pytest.raises(ArgumentError, match="phi of residue 2 of the sequence, a proline"):
        request("AP", phi=[-60.0, phi], caps=False)


def test_side_chain_angles():
    found = request("AKVL", chi=[None, [10.0, 20.0 * unit.degree], 30.0, ()])
    assert [degrees(c) for c in found.chi] == [[], [10.0, 20.0], [30.0], []]
    assert request("AKVL").chi == ((), (), (), ())


@pytest.mark.parametrize(("sequence", "chi", "message"), [
    ("AV", [None, [1.0, 2.0]], r"chi of residue 2 \(VAL\) has 2 angles, but the residue has 1; give no more"),
    ("VA", [np.ones((1, 1)), None], r"chi of residue 1 \(VAL\) has 1 angles, but the residue has 1"),
    ("AP", [None, [1.0]], r"chi of residue 2 \(PRO\) has 1 angles, but those of its ring follow from phi"),
    ("AV", "ab", "chi is 'ab', expected one entry per residue"),
    ("AV", [None], "chi has 1 entries for a sequence of 2 residues"),
])  # fmt: skip
def test_side_chain_angles_that_cannot_be(sequence, chi, message):
    with pytest.raises(ArgumentError, match=message):
        request(sequence, chi=chi)


def test_angles_that_are_no_numbers():
    for values, where in (([1.0, 2.0, float("nan")], "at place 3"), ([float("inf"), 2.0, 3.0], "at place 1")):
        with pytest.raises(ArgumentError, match=f"psi is not a finite number {where}; give degrees"):
            request(psi=values)

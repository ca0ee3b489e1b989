"""Side chains of built peptides: templates, rotamers with their costs, the choice among them, and overlaps."""

from __future__ import annotations

from itertools import combinations
from math import cos, radians

import numpy as np
import pytest

from peptidyn.core.points import bond_angle, dihedral
from peptidyn.core.residues import CHI
from peptidyn.io.residue_templates import (
    POLAR_ROTORS,
    inline_hydrogen,
    methylene_hydrogens,
    residue_frame,
    residue_templates,
    rotor_hydrogens,
)
from peptidyn.io.rotamers import conformers, overlaps, pack, within_three_bonds

RADIUS = {"H": 0.110, "C": 0.170, "N": 0.155, "O": 0.152, "S": 0.180}


def angle_of(template, xyz, four):
    return np.rad2deg(dihedral(*(xyz[template.names.index(name)] for name in four)))


def same_angle(a, b):
    return abs((a - b + 180.0) % 360.0 - 180.0) < 1e-6


# ---------------------------------------------------------------- templates


def test_the_frame_of_a_residue():
    """x along CA-C, N in the upper half of the xy plane, right-handed."""
    n, ca, c = np.array([[0.3, 1.2, 0.4], [0.5, 0.1, -0.2], [1.4, 0.3, 0.6]])
    frame = residue_frame(n, ca, c)
    np.testing.assert_allclose(frame.T @ frame, np.eye(3), atol=1e-12)
    assert np.linalg.det(frame) == pytest.approx(1.0)
    np.testing.assert_allclose((c - ca) @ frame, [np.linalg.norm(c - ca), 0, 0], atol=1e-12)
    here = (n - ca) @ frame
    assert here[1] > 0.5 and abs(here[2]) < 1e-12


@pytest.mark.parametrize("letter", "CSTY")
def test_the_hydrogen_of_a_hydroxyl_is_turned_as_asked(letter):
    template = residue_templates()[letter]
    chi = tuple(radians(v) for v in (50.0, -110.0)[: template.n_chi])
    for polar in (-135.0, 20.0):
        xyz = template.conformer(chi, radians(polar))
        assert same_angle(angle_of(template, xyz, POLAR_ROTORS[template.name]), polar)
        for four, value in zip(CHI[template.name], chi, strict=True):
            assert same_angle(angle_of(template, xyz, four), np.rad2deg(value))
    four = {"C": "CA CB SG HG", "S": "CA CB OG HG", "T": "CA CB OG1 HG1", "Y": "CE1 CZ OH HH"}
    assert POLAR_ROTORS[template.name] == tuple(four[letter].split())


def test_templates_are_shared_and_cannot_be_changed():
    template = residue_templates()["K"]
    before = template.xyz.copy()
    turned = template.conformer((1.0, 2.0, 3.0, 0.5))
    assert np.abs(turned - before).max() > 0.1
    np.testing.assert_array_equal(template.xyz, before)
    with pytest.raises(ValueError, match="read-only"):
        template.xyz[0] = 0.0
    for array in (conformers("V", (), None).xyz, conformers("V", (), None).cost):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0


@pytest.mark.parametrize("phi", [-80.0, -65.0, -40.0])
def test_puckers_of_proline(phi):
    """CG-endo first: CG on the side of the ring on which C is. Then the other; both close."""
    template = residue_templates()["P"]
    row = {name: k for k, name in enumerate(template.names)}
    both = template.proline_conformers(radians(phi))
    assert len(both) == 2
    sides = []
    for xyz in both:
        n, ca, c, cb, cg, cd = (xyz[row[name]] for name in ("N", "CA", "C", "CB", "CG", "CD"))
        normal = np.cross(cd - ca, cb - ca)
        sides.append(np.sign(((cg - ca) @ normal) * ((c - ca) @ normal)))
        assert np.linalg.norm(cd - n) == pytest.approx(0.1473)
        assert np.rad2deg(bond_angle(ca, n, cd)) == pytest.approx(112.0)
        np.testing.assert_allclose(xyz[[row["N"], row["CA"], row["C"], row["CB"]]],
                                   template.xyz[[row["N"], row["CA"], row["C"], row["CB"]]])  # fmt: skip
        for a, b in (("CB", "CG"), ("CG", "CD")):
            kept = np.linalg.norm(template.xyz[row[a]] - template.xyz[row[b]])
            assert np.linalg.norm(xyz[row[a]] - xyz[row[b]]) == pytest.approx(kept, abs=1e-9)
        # C of the residue before is trans to CD across N-CA: their dihedrals about it differ by half a turn
        assert same_angle(np.rad2deg(dihedral(c, ca, n, cd)), phi + 180.0)
        for parent, first, second in (("CB", "CA", "CG"), ("CG", "CB", "CD"), ("CD", "CG", "N")):
            at, u, v = (xyz[row[name]] for name in (parent, first, second))
            expected = methylene_hydrogens("C", at, u, v)
            for number, place in zip((2, 3), expected, strict=True):
                np.testing.assert_allclose(xyz[row[f"H{parent[1:]}{number}"]], place, atol=1e-9)
    assert sides == [1.0, -1.0]


def test_the_pucker_has_the_angles_nearest_to_usual_ones():
    """Turning CG about CB-CD by a degree either way makes the angles at CB and CD fit worse."""
    template = residue_templates()["P"]
    row = {name: k for k, name in enumerate(template.names)}
    usual_cb = bond_angle(*(template.xyz[row[name]] for name in ("CA", "CB", "CG")))
    for xyz in template.proline_conformers(radians(-70.0)):
        n, ca, cb, cg, cd = (xyz[row[name]] for name in ("N", "CA", "CB", "CG", "CD"))
        axis = (cd - cb) / np.linalg.norm(cd - cb)

        def strain(turn, axis=axis, n=n, ca=ca, cb=cb, cg=cg, cd=cd):
            v = cg - cb
            w = v * cos(turn) + np.cross(axis, v) * np.sin(turn) + axis * (axis @ v) * (1 - cos(turn)) + cb
            return (bond_angle(ca, cb, w) - usual_cb) ** 2 + (bond_angle(n, cd, w) - radians(103.2)) ** 2

        assert strain(0.0) < min(strain(radians(1.0)), strain(radians(-1.0)))


def test_hydrogens_of_one_atom():
    """CH2: 108 degrees apart, in the plane across the two bonds, the first at the right hand. Lengths by element."""
    parent, before, after = np.zeros(3), np.array([0.3, 0.0, 0.0]), np.array([0.0, 0.1, 0.0])
    for element, length in (("C", 0.109), ("N", 0.101)):
        first, second = methylene_hydrogens(element, parent, before, after)
        out, up = length * cos(radians(54.0)) / np.sqrt(2.0), length * np.sin(radians(54.0))
        np.testing.assert_allclose(first, [-out, -out, -up], atol=1e-12)
        np.testing.assert_allclose(second, [-out, -out, up], atol=1e-12)
    at = np.array([0.0, 0.0, 0.15])
    for element, length, angle in (("C", 0.109, 109.5), ("N", 0.101, 109.5), ("O", 0.096, 108.5), ("S", 0.1336, 96.0)):
        three = rotor_hydrogens(3, element, before, parent, at)
        np.testing.assert_allclose([np.linalg.norm(h - at) for h in three], length)
        np.testing.assert_allclose([np.rad2deg(bond_angle(parent, at, h)) for h in three], angle)
        turns = [round(np.rad2deg(dihedral(before, parent, at, h))) % 360 for h in three]
        assert turns == [180, 60, 300]
    two = rotor_hydrogens(2, "N", before, parent, at, planar=True)
    assert [round(np.rad2deg(dihedral(before, parent, at, h))) for h in two] == [0, 180]
    np.testing.assert_allclose([np.rad2deg(bond_angle(parent, at, h)) for h in two], 120.0)
    np.testing.assert_allclose(
        inline_hydrogen("N", parent, [before, after]), [-0.101 / np.sqrt(2)] * 2 + [0], atol=1e-12
    )


# ---------------------------------------------------------------- rotamers


def chis(letter, xyz):
    template = residue_templates()[letter]
    return tuple(round(float(angle_of(template, xyz, four)), 4) for four in CHI.get(template.name, ()))


def strain_of(template, xyz):
    """(0.9 of the radii / distance)^12 of all pairs more than three bonds apart."""
    near = {k: {k} for k in range(len(template.names))}
    for _ in range(3):
        near = {k: reached | {a + b - r for r in reached for a, b in template.bonds if r in (a, b)}
                for k, reached in near.items()}  # fmt: skip
    return sum(
        (0.9 * (RADIUS[template.names[i][0]] + RADIUS[template.names[j][0]]) / np.linalg.norm(xyz[i] - xyz[j])) ** 12
        for i, j in combinations(range(len(template.names)), 2)
        if j not in near[i]
    )


def test_rotamers_of_valine_and_serine():
    assert [chis("V", xyz) for xyz in conformers("V", (), None).xyz] == [(175.0,), (-60.0,), (63.0,), (95.0,)]
    serine = conformers("S", (), None)
    template = residue_templates()["S"]
    turns = [(chis("S", xyz)[0], round(angle_of(template, xyz, ("CA", "CB", "OG", "HG")))) for xyz in serine.xyz]
    assert [(c, h % 360) for c, h in turns] == [(c, h) for c in (62.0, -65.0, -177.0) for h in (180, 62, 295)]
    assert len(conformers("A", (), None).xyz) == len(conformers("G", (), None).xyz) == 1
    assert len(conformers("P", (), radians(-65.0)).xyz) == 2
    assert len(conformers("K", (), None).xyz) == 81 and len(conformers("R", (), None).xyz) == 81


@pytest.mark.parametrize("letter", "ALTYV")
def test_the_cost_of_a_rotamer(letter):
    """Strain, 0.02 for every place down the list, and 2.5 (1 + cos 3 chi1)."""
    template = residue_templates()[letter]
    found = conformers(letter, (), None)
    turns = 3 if letter == "T" else 2 if letter == "Y" else 1
    for k, (xyz, cost) in enumerate(zip(found.xyz, found.cost, strict=True)):
        chi = chis(letter, xyz)
        rarity = 0.02 * (k // turns) + (2.5 * (1 + cos(3 * radians(chi[0]))) if chi else 0.0)
        assert cost == pytest.approx(strain_of(template, xyz) + rarity, rel=1e-9)


def test_the_cost_of_a_pucker_is_its_strain():
    template, found = residue_templates()["P"], conformers("P", (), radians(-50.0))
    np.testing.assert_allclose(found.cost, [strain_of(template, xyz) for xyz in found.xyz])


def test_chi_angles_that_are_given_are_kept_and_equal_rotamers_counted_once():
    """Leucine has chi2 of 65 degrees twice in its list: at the second place and the fourth. The commoner counts."""
    template = residue_templates()["L"]
    found = conformers("L", (radians(100.0),), None)
    assert [chis("L", xyz) for xyz in found.xyz] == [(100.0, chi2) for chi2 in (175.0, 65.0, 145.0, 80.0)]
    extra = [cost - strain_of(template, xyz) for xyz, cost in zip(found.xyz, found.cost, strict=True)]
    np.testing.assert_allclose(np.array(extra) - extra[0], [0.0, 0.02, 0.04, 0.08], atol=1e-9)
    assert [chis("N", xyz)[1] for xyz in conformers("N", (1.0,), None).xyz][:4] == [-20.0, 30.0, 120.0, -75.0]
    assert len(conformers("L", (1.0, 2.0), None).xyz) == 1


def test_fine_rotamers_vary_the_first_two_angles():
    """By 12 degrees either way, the third never, and not those that are given."""
    valine = {chis("V", xyz)[0] for xyz in conformers("V", (), None, True).xyz}
    assert valine == {c + d for c in (-60.0, 63.0, 95.0) for d in (-12.0, 0.0, 12.0)} | {175.0, 163.0, -173.0}
    leucine = [chis("L", xyz) for xyz in conformers("L", (), None, True).xyz]
    assert len(leucine) == 45 and {(-65.0, 163.0), (-77.0, 175.0), (-53.0, -173.0)} <= set(leucine)
    given = [chis("L", xyz) for xyz in conformers("L", (radians(100.0),), None, True).xyz]
    assert {c[0] for c in given} == {100.0} and {(100.0, 65.0), (100.0, 77.0), (100.0, 53.0)} <= set(given)
    assert len(given) == 4 * 3
    assert len(conformers("L", (1.0, 2.0), None, True).xyz) == 1
    methionine = {chis("M", xyz)[2] % 360 for xyz in conformers("M", (), None, True).xyz[::7]}
    assert methionine == {180.0, 290.0, 70.0}
    assert len(conformers("L", (), None, False).xyz) == 5


# ---------------------------------------------------------------- the choice among them


def chosen(residues, backbone=(), elements=None, near=()):
    """Pack side chains of one carbon each: `residues` lists (places, costs). Return the number of the place taken."""
    n = len(residues) + len(backbone)
    positions = np.array([[7.0 + k, 7.0, 7.0] for k in range(len(residues))] + [tuple(at) for at in backbone])
    before = positions.copy()
    rows = [np.array([k]) for k in range(len(residues))]
    places = [np.array(at, dtype=float)[:, None, :] for at, _ in residues]
    bonds = np.array(list(near) or np.zeros((0, 2)), dtype=np.int64)
    pairs = within_three_bonds(n, bonds)
    found = pack(positions, elements or ["C"] * n, pairs, rows, places, [np.array(c, dtype=float) for _, c in residues])
    np.testing.assert_array_equal(positions, before)
    np.testing.assert_array_equal(found[len(residues) :], before[len(residues) :])
    return [next(k for k, at in enumerate(p[:, 0]) if np.array_equal(at, found[r])) for r, p in enumerate(places)]


HERE, AWAY = (0.0, 0.0, 0.0), (0.0, 1.0, 0.0)


def test_the_cheapest_place_is_taken():
    assert chosen([([HERE, AWAY], [0.2, 0.1])]) == [1]
    assert chosen([([HERE, AWAY], [0.1, 0.1])]) == [0]
    assert chosen([([AWAY], [3.0]), ([HERE, (0.0, 0.0, 1.0)], [0.0, 1.0])]) == [0, 0]


def test_repulsion_goes_with_the_twelfth_power():
    """Two carbons touch at 0.9 x 0.34 nm; at 0.25 nm they cost (0.306 / 0.25)^12 = 11.3, C and O (0.29 / 0.25)^12."""
    for element, cost in (
        ("C", (0.306 / 0.25) ** 12),
        ("O", (0.9 * 0.322 / 0.25) ** 12),
        ("H", (0.9 * 0.28 / 0.25) ** 12),
    ):
        for other, place in ((0.999 * cost, 1), (1.001 * cost, 0)):
            assert chosen([([HERE, AWAY], [0.0, other])], [(0.25, 0.0, 0.0)], ["C", element]) == [place]
    assert chosen([([HERE, AWAY], [0.0, 0.1])], [(0.25, 0.0, 0.0)], near=[(0, 1)]) == [0]  # bonded atoms do not repel


def test_side_chains_without_a_choice_stand_in_the_way():
    assert chosen([([(0.25, 0.0, 0.0)], [0.0]), ([HERE, AWAY], [0.0, 1.0])]) == [0, 1]


def test_a_small_side_chain_feels_what_is_beyond_its_own_reach():
    near, far = (0.25, 0.0, 0.0), (0.40, 0.0, 0.0)
    assert chosen([([HERE, (0.0, 0.02, 0.0)], [0.0, 0.5]), ([near, far], [0.0, 1.0])]) == [0, 1]
    assert chosen([([HERE, (0.0, 0.02, 0.0)], [0.0, 0.5])], [near]) == [0]
    assert chosen([([HERE, (-0.1, 0.0, 0.0)], [0.0, 1.0])], [near]) == [1]


def test_a_small_side_chain_feels_a_large_one():
    """Whose middle is 0.8 nm away."""
    large = ([(0.25, 0.0, 0.0), (1.25, 0.0, 0.0)], [0.0, 5.0])
    assert chosen([large, ([HERE, (-0.1, 0.0, 0.0)], [0.0, 1.0])]) == [0, 1]


def test_side_chains_choose_again_until_nothing_changes():
    """B keeps off A, which then prefers its other place, whereupon B has room for its first."""
    a = ([HERE, AWAY], [0.0, 0.1])
    b = ([(0.2, 0.0, 0.0), (-0.324, 0.0, 0.0)], [0.0, 5.0])  # repelled by A at its first place with 164, and with 0.5
    assert chosen([a, b]) == [1, 0]


def test_places_that_the_backbone_forbids_are_given_up():
    """One that costs 100 more than the best is out; B then stays, though A at its place repels it more."""
    wall, fixed = (0.17, 0.0, 0.0), ([(0.0, 0.0, 0.0)], [0.0])
    crowd = (0.306 / 0.17) ** 12  # 1156
    a = ([HERE, (0.001, 0.0, 0.0)], [0.0, 0.0])
    for limit, place in ((99.0, 1), (101.0, 0)):
        b = ([wall, (5.0, 0.0, 0.0)], [0.0, limit])
        assert crowd > limit and chosen([a, b])[1] == place
    assert chosen([fixed, ([wall, (5.0, 0.0, 0.0)], [0.0, 101.0])])[1] == 1


# ---------------------------------------------------------------- overlaps


def overlapping(elements, places, bonds=(), limit=0.7):
    bonds = np.array(list(bonds), dtype=np.int64).reshape(-1, 2)
    near = within_three_bonds(len(elements), bonds)
    return overlaps(np.array(places, dtype=float), list(elements), bonds, near, limit).tolist()


def test_overlaps_begin_at_a_fraction_of_the_radii():
    """0.7 (0.17 + 0.17) = 0.238 nm for carbons, 0.154 for hydrogens; pairs that three bonds join do not count."""
    for elements, limit in (("CC", 0.238), ("HH", 0.154), ("SS", 0.252), ("CO", 0.2254), ("NH", 0.1855)):
        assert overlapping(elements, [HERE, (limit - 0.001, 0, 0)]) == [[0, 1]]
        assert overlapping(elements, [HERE, (limit + 0.001, 0, 0)]) == []
    chain = [(0.1 * k, 0.0, 0.0) for k in range(5)]
    assert overlapping("CCCCC", chain, [(k, k + 1) for k in range(4)], limit=2.0) == [[0, 4]]


@pytest.mark.parametrize("flipped", [False, True])
def test_hydrogen_bonds_may_be_shorter(flipped):
    """To 0.16 nm between N or O and a hydrogen on N or O; on carbon it is a hydrogen like others."""
    for donor, acceptor, allowed in (("N", "O", 0.16), ("O", "N", 0.16), ("O", "O", 0.16), ("C", "O", 0.7 * 0.262)):
        for distance in (allowed - 0.001, allowed + 0.001):
            elements, places = [donor, "H", acceptor], [(-0.1, 0, 0), HERE, (distance, 0, 0)]
            bonds = [(0, 1)]
            if flipped:
                elements, places, bonds = elements[::-1], places[::-1], [(1, 2)]
            pair = [[0, 1]] if flipped else [[1, 2]]
            assert overlapping(elements, places, bonds) == (pair if distance < allowed else [])
    carbon = [(-0.1, 0, 0), HERE, (0.19, 0, 0)]
    assert overlapping("NHC", carbon, [(0, 1)]) == [[1, 2]]  # 0.7 (0.11 + 0.17) = 0.196


def test_the_worst_overlap_is_first():
    """By the distance as a fraction of what is allowed, not by distance or order."""
    places = [HERE, (0.20, 0, 0), (0, 5, 0), (0.14, 5, 0), (0, 9, 0), (0.10, 9, 0), (0, 12, 0), (0.4, 12, 0)]
    assert overlapping("CCHHCCCC", places) == [[4, 5], [0, 1], [2, 3]]  # 0.42, 0.84, 0.91 of what is allowed

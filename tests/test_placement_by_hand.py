"""Where missing atoms are put: one atom at a time, with places that follow from its template or its neighbours."""

from __future__ import annotations

from math import cos, pi, radians, sin

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from small_molecules import few_atoms

from peptidyn import build_peptide
from peptidyn.core.points import bond_angle, dihedral, place
from peptidyn.io.completion import _shapes
from peptidyn.io.placement import Shape, Surroundings, place_heavy_atoms, place_hydrogens

NOTHING = np.array([[50.0, 50.0, 50.0]])
TURN = Rotation.from_rotvec([0.4, -1.1, 0.7])


def template(name):
    """The shape of a residue, and its atoms somewhere else in space."""
    shape = _shapes()[name]
    return shape, {atom: TURN.apply(xyz) + [1.0, 2.0, 3.0] for atom, xyz in shape.xyz.items()}


def placed(name, missing, *, linked=None, near=NOTHING, present=None):
    shape, there = template(name)
    known = {atom: xyz for atom, xyz in (present or there).items() if atom not in missing}
    return there, place_heavy_atoms(shape, known, missing, linked or {}, Surroundings(np.asarray(near)))


# ---------------------------------------------------------------- shapes and surroundings


def test_bonds_in_rings_do_not_turn():
    ring = {"A": ("B", "C"), "B": ("A", "C"), "C": ("A", "B", "D"), "D": ("C", "E"), "E": ("D",)}
    shape = Shape({}, ring)
    assert [shape.turns_freely(*bond) for bond in ("AB", "BC", "CD", "DC", "DE")] == [False, False, True, True, True]
    assert shape.distances("E") == {"E": 0, "D": 1, "C": 2, "A": 3, "B": 3}


def test_clearance_is_the_distance_to_the_nearest_other_atom():
    around = Surroundings(np.array([[0.3, 0, 0], [0, 0.2, 0], [0, 0, 3.0]]))
    here, none = np.zeros(3), np.empty((0, 3))
    assert around.clearance(here, none) == pytest.approx(0.2)
    assert around.clearance(here, np.array([[0, 0.2, 0], [5, 5, 5]])) == pytest.approx(0.3)
    assert around.clearance(here, np.array([[0, 0.2, 0], [0.3, 0, 0]])) == 0.4
    assert around.clearance(np.array([9.0, 9.0, 9.0]), none) == 0.4
    around.add([np.array([0, 0, 0.1]), np.array([0, 0, 0.35])])
    assert around.clearance(here, none) == pytest.approx(0.1)
    assert around.clearance(np.array([0, 0, 0.8]), none) == 0.4


# ---------------------------------------------------------------- atoms that their neighbours determine


@pytest.mark.parametrize(("name", "missing"), [
    ("ALA", ["CB"]), ("VAL", ["CG1"]), ("LEU", ["CD2"]), ("ILE", ["CG2"]), ("THR", ["OG1"]), ("ASN", ["OD1"]),
    ("ARG", ["NH2"]), ("ARG", ["CZ"]), ("LYS", ["CE"]), ("PHE", ["CZ"]), ("PHE", ["CG"]), ("PHE", ["CD1", "CE1", "CZ"]),
    ("TRP", ["CE2"]), ("TRP", ["CZ3", "CH2", "CZ2"]), ("HIS", ["CE1", "NE2"]), ("PRO", ["CG"]), ("PRO", ["CB", "CG"]),
    ("TYR", ["CE2", "OH"]), ("MET", ["SD"]),
])  # fmt: skip
def test_atoms_return_to_their_places(name, missing):
    """Present atoms have the shape of the template, elsewhere in space: so have the new ones."""
    there, found = placed(name, missing)
    assert list(found) and set(found) == set(missing)
    for atom in missing:
        np.testing.assert_allclose(found[atom], there[atom], atol=2e-4, err_msg=atom)


def test_bonds_to_the_next_residue_count():
    """C between CA, its O and the next N; N between CA and the C before: 0.133 nm from the linked atom."""
    shape, there = template("ALA")
    nitrogen = place(there["N"], there["CA"], there["C"], 0.133, radians(116.6), 2.0)
    nitrogen = there["C"] - 0.133 * sum(
        (there[a] - there["C"]) / np.linalg.norm(there[a] - there["C"]) for a in ("CA", "O")
    )
    shifted = nitrogen + np.array([0.004, -0.003, 0.002])
    for link in (nitrogen, shifted):
        _, found = placed("ALA", ["C"], linked={"C": link})
        assert abs(np.linalg.norm(found["C"] - link) - 0.133) < 0.004
        for atom, weight in (("CA", 0.004), ("O", 0.004)):
            wanted = np.linalg.norm(shape.xyz["C"] - shape.xyz[atom])
            assert abs(np.linalg.norm(found["C"] - there[atom]) - wanted) < weight
    far = nitrogen + 0.02 * (nitrogen - there["C"]) / 0.133
    with_link, without = (placed("ALA", ["C"], linked=linked)[1]["C"] for linked in ({"C": far}, {}))
    np.testing.assert_allclose(without, there["C"], atol=2e-4)
    # the link pulls along its bond: N is nearer than if C had stayed, and its distances stretch a little
    assert 0.134 < np.linalg.norm(with_link - far) < 0.152
    assert np.linalg.norm(with_link - there["C"]) > 0.003


@pytest.mark.parametrize(("residue", "name", "shift"), [("PRO", "CG", 0.02), ("PHE", "CG", 0.015), ("ARG", "CD", 0.03)])
def test_an_atom_between_others_shares_their_strain(residue, name, shift):
    """One of its ends is pulled away. Bond lengths count fully, distances to second neighbours a fifth, no others.

    There the forces of such springs are in balance.
    """
    shape, there = template(residue)
    pulled = dict(there)
    first, last = shape.neighbours[name][:2]
    away = there[last] - there[first]
    pulled[last] = there[last] + shift * away / np.linalg.norm(away)
    found = placed(residue, [name], present=pulled)[1][name]
    steps = shape.distances(name)
    force = np.zeros(3)
    for other, n in steps.items():
        if n in (1, 2):
            rest = np.linalg.norm(shape.xyz[name] - shape.xyz[other])
            v = found - pulled[other]
            force += (1.0 if n == 1 else 0.04) * (np.linalg.norm(v) - rest) * v / np.linalg.norm(v)
    assert np.linalg.norm(force) < 1e-6
    assert np.linalg.norm(found - there[name]) > 1e-3


def test_a_single_bond_has_the_length_of_the_template_however_bent_the_rest_is():
    shape, there = template("LEU")
    bent = dict(there)
    bent["CB"] = there["CB"] + np.array([0.02, -0.01, 0.015])
    _, found = placed("LEU", ["CD2"], present=bent)
    wanted = np.linalg.norm(shape.xyz["CD2"] - shape.xyz["CG"])
    assert np.linalg.norm(found["CD2"] - bent["CG"]) == pytest.approx(wanted, abs=1e-9)


def turned_about(there, first, second, moving, degrees):
    """The atoms with some of them turned about the bond first-second."""
    axis = (there[second] - there[first]) / np.linalg.norm(there[second] - there[first])
    turn = Rotation.from_rotvec(radians(degrees) * axis)
    return {n: turn.apply(x - there[first]) + there[first] if n in moving.split() else x for n, x in there.items()}


def test_the_nearest_atoms_decide():
    """A side chain in another rotamer than that of the template: what is two bonds away gives the place."""
    _, there = template("LEU")
    turned = turned_about(there, "CA", "CB", "CG CD1 CD2", 70.0)
    found = placed("LEU", ["CD2"], present=turned)[1]["CD2"]
    np.testing.assert_allclose(found, turned["CD2"], atol=1e-6)
    _, there = template("LYS")
    turned = turned_about(there, "CG", "CD", "CE NZ", 70.0)
    found = placed("LYS", ["NZ"], present=turned)[1]["NZ"]
    np.testing.assert_allclose(found, turned["NZ"], atol=1e-6)


def test_atoms_four_bonds_away_count_where_nearer_ones_lack():
    _, there = template("ARG")
    present = {name: xyz for name, xyz in there.items() if name not in ("NE", "NH1", "NH2")}
    found = place_heavy_atoms(_shapes()["ARG"], present, ["NH1"], {}, Surroundings(NOTHING))["NH1"]
    np.testing.assert_allclose(found, there["NH1"], atol=1e-6)


@pytest.mark.parametrize(("name", "parent", "also"), [("N", "CA", []), ("C", "CA", ["O"])])
def test_an_end_of_the_backbone_reaches_for_its_neighbour(name, parent, also):
    """With one bond in the residue: it keeps its length, and the neighbour's 0.133 nm pulls it from its place."""
    shape, there = template("ALA")
    away = (there[name] - there[parent]) / np.linalg.norm(there[name] - there[parent])
    link = there[name] + 0.133 * Rotation.from_rotvec([0.0, 0.7, 0.0]).apply(away)
    sideways = np.cross(away, [0.2, 0.9, 0.1])
    link = link + 0.03 * sideways / np.linalg.norm(sideways)
    _, found = placed("ALA", [name, *also], linked={name: link})
    before = abs(np.linalg.norm(there[name] - link) - 0.133)
    after = abs(np.linalg.norm(found[name] - link) - 0.133)
    assert after < 0.3 * before
    wanted = np.linalg.norm(shape.xyz[name] - shape.xyz[parent])
    assert abs(np.linalg.norm(found[name] - there[parent]) - wanted) < 0.003


def peptide_nitrogen(there):
    """The next N, at psi = 40 degrees, with the usual angle."""
    return place(there["N"], there["CA"], there["C"], 0.133, radians(116.6), radians(40.0))


def test_a_carbonyl_oxygen_lies_opposite_the_next_nitrogen():
    """In the plane of CA, C and N, and between them: 0.123 nm from C, with equal angles to both."""
    _, there = template("ALA")
    nitrogen = peptide_nitrogen(there)
    _, found = placed("ALA", ["O"], linked={"C": nitrogen})
    oxygen = found["O"]
    assert np.linalg.norm(oxygen - there["C"]) == pytest.approx(0.123, abs=1e-9)
    angles = [bond_angle(end, there["C"], oxygen) for end in (there["CA"], nitrogen)]
    np.testing.assert_allclose(angles, pi - radians(116.6) / 2, atol=1e-9)


def test_the_methyl_of_a_cap_lies_opposite_its_oxygen_and_the_next_nitrogen():
    _, there = template("ACE")
    known = {name: there[name] for name in ("C", "O")}
    away = np.cross(there["O"] - there["C"], [0.3, 0.5, -0.2])
    side = np.cross(away, there["O"] - there["C"])
    nitrogen = there["C"] + 0.133 * (
        cos(radians(123)) * (there["O"] - there["C"]) / np.linalg.norm(there["O"] - there["C"])
        + sin(radians(123)) * side / np.linalg.norm(side)
    )
    found = place_heavy_atoms(_shapes()["ACE"], known, ["CH3"], {"C": nitrogen}, Surroundings(NOTHING))["CH3"]
    assert np.linalg.norm(found - there["C"]) == pytest.approx(0.151, abs=1e-9)
    np.testing.assert_allclose(
        [bond_angle(end, there["C"], found) for end in (there["O"], nitrogen)], pi - radians(123) / 2, atol=1e-9
    )


def test_the_second_oxygen_of_a_carboxyl_end():
    """0.125 nm from C, opposite CA and O; without one of those it is not placed, and not unless it is asked for."""
    _, there = template("ALA")
    _, found = placed("ALA", ["OXT"])
    assert np.linalg.norm(found["OXT"] - there["C"]) == pytest.approx(0.125, abs=1e-9)
    ends = [bond_angle(there[a], there["C"], found["OXT"]) for a in ("CA", "O")]
    assert ends[0] == pytest.approx(ends[1], abs=1e-9)
    assert sum(ends) + bond_angle(there["CA"], there["C"], there["O"]) == pytest.approx(2 * pi, abs=1e-9)
    assert set(placed("ALA", ["CB"])[1]) == {"CB"}
    both = placed("ALA", ["OXT", "O"])[1]
    assert set(both) == {"O", "OXT"}
    only = {name: there[name] for name in ("CA", "C")}
    assert place_heavy_atoms(_shapes()["ALA"], only, ["OXT"], {}, Surroundings(NOTHING)) == {}


def test_atoms_that_too_little_is_there_to_place_are_left_out():
    """Two atoms tell no plane; three on a line neither."""
    shape, there = template("LYS")
    ends = {name: there[name] for name in ("CE", "NZ")}
    assert place_heavy_atoms(shape, ends, ["CD"], {}, Surroundings(NOTHING)) == {}
    line = Shape({k: np.array([0.15 * n, 0, 0]) for n, k in enumerate("ABCD")},
                 {"A": ("B",), "B": ("A", "C"), "C": ("B", "D"), "D": ("C",)})  # fmt: skip
    three = {k: line.xyz[k] for k in "ABC"}
    assert place_heavy_atoms(line, three, ["D"], {}, Surroundings(NOTHING)) == {}


# ---------------------------------------------------------------- atoms that may turn


def lysine(obstacles):
    """NZ of lysine is missing: where it goes, as the dihedral CG-CD-CE-NZ beyond that of the template, degrees."""
    shape, there = template("LYS")
    known = {name: xyz for name, xyz in there.items() if name != "NZ"}
    found = place_heavy_atoms(shape, known, ["NZ"], {}, Surroundings(np.array([*known.values(), *obstacles])))["NZ"]
    assert np.linalg.norm(found - there["CE"]) == pytest.approx(np.linalg.norm(there["NZ"] - there["CE"]), abs=1e-9)
    angle = bond_angle(there["CD"], there["CE"], found)
    assert angle == pytest.approx(bond_angle(there["CD"], there["CE"], there["NZ"]), abs=1e-6)
    turn = dihedral(there["CG"], there["CD"], there["CE"], found)
    own = dihedral(there["CG"], there["CD"], there["CE"], there["NZ"])
    return round(np.rad2deg(turn - own)) % 360


def about_ce(degrees, length=None):
    """A point where NZ would be, turned by this angle."""
    _, there = template("LYS")
    own = dihedral(there["CG"], there["CD"], there["CE"], there["NZ"])
    length = np.linalg.norm(there["NZ"] - there["CE"]) if length is None else length
    angle = bond_angle(there["CD"], there["CE"], there["NZ"])
    return place(there["CG"], there["CD"], there["CE"], length, angle, own + radians(degrees))


def test_a_free_end_turns_by_thirds_to_where_most_room_is():
    assert lysine([]) == 0
    assert lysine([about_ce(0)]) in (120, 240)
    assert lysine([about_ce(30)]) == 240  # 90 degrees from 120, 150 from 240
    assert lysine([about_ce(-30)]) == 120
    assert lysine([about_ce(0), about_ce(115)]) == 240
    assert lysine([about_ce(120), about_ce(240)]) == 0
    assert lysine([about_ce(0), about_ce(235)]) == 120


def test_the_place_of_the_template_is_kept_unless_another_has_more_room_by_far():
    """An obstacle a third of the way further round: 120 and 240 have hardly more room than 0, or much more."""
    own, next_place = about_ce(0), about_ce(120)
    middle = 0.5 * (own + next_place)
    step = (next_place - own) / np.linalg.norm(next_place - own)
    _, there = template("LYS")
    out = (middle - there["CE"]) / np.linalg.norm(middle - there["CE"])
    back = [about_ce(240)]
    for shift, turn in ((0.004, 0), (0.02, 120)):
        obstacle = middle + 0.1 * out - shift * step
        room = np.linalg.norm(next_place - obstacle) - np.linalg.norm(own - obstacle)
        assert (0.001 < room < 0.0095) if turn == 0 else room > 0.012
        assert lysine([obstacle, *back]) == turn


def test_an_atom_that_was_placed_stands_in_the_way_of_the_next():
    """Two residues at one place: the second takes another turn. Atoms bonded to the axis themselves do not count."""
    shape, there = template("LYS")
    known = {name: xyz for name, xyz in there.items() if name != "NZ"}
    surroundings = Surroundings(np.array(list(known.values())))
    first, second, third = (place_heavy_atoms(shape, known, ["NZ"], {}, surroundings)["NZ"] for _ in range(3))
    np.testing.assert_allclose(first, there["NZ"], atol=1e-6)
    for a, b in ((first, second), (first, third), (second, third)):
        assert np.linalg.norm(a - b) > 0.2


def test_a_planar_group_turns_in_steps_of_thirty_degrees():
    """The first atom of a ring beyond CG of phenylalanine: with both staggered thirds taken, 90 degrees off is best."""
    shape, there = template("PHE")
    known = {name: there[name] for name in ("N", "CA", "C", "O", "CB", "CG")}
    own = dihedral(there["CA"], there["CB"], there["CG"], there["CD1"])
    angle = bond_angle(there["CB"], there["CG"], there["CD1"])
    length = np.linalg.norm(there["CD1"] - there["CG"])

    def around(degrees):
        return place(there["CA"], there["CB"], there["CG"], length, angle, own + radians(degrees))

    def turned(*obstacles):
        blocked = Surroundings(np.array([*known.values(), *(around(a) for a in obstacles)]))
        found = place_heavy_atoms(shape, known, ["CD1"], {}, blocked)["CD1"]
        return round(np.rad2deg(dihedral(there["CA"], there["CB"], there["CG"], found) - own)) % 360

    taken = range(0, 360, 15)
    for free in (60, 150, 210, 330):
        assert turned(*(a for a in taken if min((a - free) % 360, (free - a) % 360) > 30)) == free


def test_a_branched_carbon_turns_by_thirds():
    """CG1 of valine, with CG2 missing too: even where half way between would be more room."""
    shape, there = template("VAL")
    known = {name: xyz for name, xyz in there.items() if name not in ("CG1", "CG2")}
    near = [turned_about(there, "CA", "CB", "CG1", turn)["CG1"] for turn in (10, 110, 130, 230, 250, 350)]
    found = place_heavy_atoms(shape, known, ["CG1"], {}, Surroundings(np.array([*known.values(), *near])))["CG1"]
    change = dihedral(there["N"], there["CA"], there["CB"], found) - dihedral(
        there["N"], there["CA"], there["CB"], there["CG1"]
    )
    assert round(np.rad2deg(change)) % 120 == 0


def test_the_guanidinium_of_arginine_stays_flat():
    """NH1 at CZ may be turned by half a turn about NE-CZ, and by nothing else."""
    shape, there = template("ARG")
    known = {name: xyz for name, xyz in there.items() if name not in ("NH1", "NH2")}
    for blocked, turn in (((), 0), (("NH1",), 180), (("NH2",), 0)):
        near = Surroundings(np.array([*NOTHING, *(there[name] for name in blocked)]))
        found = place_heavy_atoms(shape, known, ["NH1"], {}, near)["NH1"]
        change = dihedral(there["CD"], there["NE"], there["CZ"], found) - dihedral(
            there["CD"], there["NE"], there["CZ"], there["NH1"]
        )
        assert round(np.rad2deg(change)) % 360 == turn


def test_atoms_of_a_ring_do_not_turn():
    """NE1 of tryptophan hangs on CD1 alone for now; CG-CD1 is in the ring, so an obstacle changes nothing."""
    shape, there = template("TRP")
    known = {name: there[name] for name in ("N", "CA", "C", "O", "CB", "CG", "CD1")}
    near = Surroundings(there["NE1"] + [[0.03, 0, 0]])
    found = place_heavy_atoms(shape, known, ["NE1"], {}, near)["NE1"]
    np.testing.assert_allclose(found, there["NE1"], atol=1e-6)


def test_determined_atoms_come_before_those_that_turn():
    """C is fixed by its link. Once it is there CB is fixed too, and does not turn away from an atom in its place."""
    _, there = template("ALA")
    nitrogen = peptide_nitrogen(there)
    present = {name: there[name] for name in ("N", "CA", "O")}
    near = [*present.values(), there["CB"] + [0.02, 0, 0]]
    _, found = placed("ALA", ["CB", "C"], linked={"C": nitrogen}, present=present, near=near)
    assert list(found) == ["C", "CB"]
    assert np.linalg.norm(found["CB"] - there["CB"]) < 0.03


# ---------------------------------------------------------------- hydrogens


def hydrogens_of(residues, bonds, elements=None, added=None):
    """Return {name: place} after the hydrogens were placed."""
    atoms, positions = few_atoms(residues, bonds, elements=elements)
    chosen = np.flatnonzero(np.char.startswith(atoms.name, "H")) if added is None else added
    new = place_hydrogens(atoms, positions, chosen.tolist())
    heavy = np.setdiff1d(np.arange(atoms.n_atoms), chosen)
    np.testing.assert_array_equal(new[heavy], positions[heavy])
    return dict(zip(atoms.name.tolist(), new, strict=True))


def inside(*pairs):
    return [tuple(f"0 {name}" for name in pair.split()) for pair in pairs]


def degrees(*points):
    return np.rad2deg((dihedral if len(points) == 4 else bond_angle)(*points))


def test_hydrogens_of_built_peptides_are_put_where_they_were():
    """All hydrogens that cannot turn, with their names: CH2 groups, amides, rings, CH."""
    structure = build_peptide("ACDEFGHIKLMNPQRSTVWYP", -120.0, 120.0)
    atoms = structure.atoms
    light = np.flatnonzero(atoms.element == "H")
    scattered = structure.positions.copy()
    scattered[light] += np.random.default_rng(1).normal(0.0, 0.05, (len(light), 3))
    new = place_hydrogens(atoms, scattered, light.tolist())
    checked = 0
    for h in light.tolist():
        parent = atoms.neighbours[h][0]
        if sum(atoms.element[b] != "H" for b in atoms.neighbours[parent]) > 1:
            checked += 1
            np.testing.assert_allclose(new[h], structure.positions[h], atol=1e-9, err_msg=atoms.label(h))
        assert np.linalg.norm(new[h] - new[parent]) == pytest.approx(
            {"C": 0.109, "N": 0.101, "O": 0.096, "S": 0.1336}[str(atoms.element[parent])]
        )
    assert checked > 100


def test_only_added_hydrogens_move():
    places = {"C1": (0, 0, 0), "C2": (0.15, 0, 0), "H1": (0.2, 0.1, 0), "H2": (0.2, -0.1, 0), "H3": (0.2, 0, 0.1)}
    places |= {"C3": (-0.05, 0.14, 0)}
    bonds = inside("C1 C2", "C1 C3", "C2 H1", "C2 H2", "C2 H3")
    found = hydrogens_of([("LIG", places)], bonds, added=np.array([3]))
    for name in ("H1", "H3"):
        np.testing.assert_array_equal(found[name], places[name])
    assert np.linalg.norm(found["H2"] - places["C2"]) == pytest.approx(0.109)


def test_a_water_keeps_its_directions():
    """O-H 0.09572 nm and 104.52 degrees: H1 stays in its direction, H2 in its plane."""
    places = {"O": (1, 1, 1), "H1": (1, 1, 1.2), "H2": (1.07, 1, 1.01)}
    found = hydrogens_of([("HOH", places)], inside("O H1", "O H2"))
    np.testing.assert_allclose(found["H1"], [1, 1, 1.09572], atol=1e-9)
    np.testing.assert_allclose(
        found["H2"], [1 + 0.09572 * sin(radians(104.52)), 1, 1 + 0.09572 * cos(radians(104.52))], atol=1e-9
    )


def test_hydrogens_of_lone_atoms_stay():
    """Nothing tells where the hydrogens of hydroxide, ammonia and a lone OH group on another atom would be."""
    hydroxide = {"O": (0, 0, 0), "H1": (0.08, 0.05, 0)}
    np.testing.assert_array_equal(hydrogens_of([("OH", hydroxide)], inside("O H1"))["H1"], hydroxide["H1"])
    ammonia = {"N": (0, 0, 0), "H1": (0.1, 0, 0), "H2": (0, 0.1, 0)}
    found = hydrogens_of([("NH2", ammonia)], inside("N H1", "N H2"))
    for name in ("H1", "H2"):
        np.testing.assert_array_equal(found[name], ammonia[name])
    acid = {"CL": (0, 0, 0), "O": (0.17, 0, 0), "H1": (0.2, 0.09, 0)}
    found = hydrogens_of([("HOCL", acid)], inside("CL O", "O H1"), {"CL": "Cl"})
    np.testing.assert_array_equal(found["H1"], acid["H1"])
    chloroamine = {"CL": (0, 0, 0), "N": (0.17, 0, 0), "H1": (0.2, 0.09, 0), "H2": (0.2, -0.09, 0)}
    found = hydrogens_of([("LIG", chloroamine)], inside("CL N", "N H1", "N H2"), {"CL": "Cl"})
    np.testing.assert_array_equal(found["H2"], chloroamine["H2"])


ETHANOL = {"C1": (0.05, 0.143, 0), "C2": (0, 0, 0), "O": (0.143, 0, 0)}
ETHANOL_BONDS = ("C1 C2", "C2 O", "O H")


def hydroxyl(*others, places=ETHANOL, bonds=ETHANOL_BONDS, element="O"):
    """The dihedral C1-C2-O-H of an alcohol among other atoms: (element, angle at which H would meet it, distance)."""
    spokes = [np.array(places[name], dtype=float) for name in ("C1", "C2", "O")]
    far = {}
    for k, (kind, turn, distance) in enumerate(others):
        outward = place(*spokes, 0.096, radians(108.5), radians(turn)) - spokes[2]
        far[f"{kind}{k + 5}"] = spokes[2] + outward * (0.096 + distance) / 0.096
    residues = [("LIG", {**places, "H": (0.2, 0.1, 0.1)})] + [("XYZ", {name: at}) for name, at in far.items()]
    found = hydrogens_of(residues, inside(*bonds), elements={"O": element})
    length, angle = {"O": (0.096, 108.5), "S": (0.1336, 96.0)}[element]
    assert np.linalg.norm(found["H"] - spokes[2]) == pytest.approx(length)
    assert degrees(*spokes[1:], found["H"]) == pytest.approx(angle)
    return round(degrees(*spokes, found["H"])) % 360


def test_a_hydroxyl_is_staggered_where_most_room_is():
    assert hydroxyl() == 180
    assert hydroxyl(("C", 180, 0.1)) in (60, 300)
    assert hydroxyl(("C", 180, 0.1), ("C", 60, 0.1)) == 300
    assert hydroxyl(("C", 180, 0.1), ("C", 300, 0.1)) == 60
    assert hydroxyl(("C", 300, 0.1), ("C", 60, 0.1)) == 180


def test_a_hydroxyl_may_come_nearer_to_an_acceptor():
    """Room is the distance beyond 0.16 nm from O and N, 0.24 nm from others; gauche to C1 it is -0.064 nm."""
    assert hydroxyl(("C", 180, 0.18)) == 180  # -0.06
    assert hydroxyl(("C", 180, 0.17)) in (60, 300)  # -0.07
    assert hydroxyl(("O", 180, 0.11)) == 180  # -0.05
    assert hydroxyl(("N", 180, 0.08)) in (60, 300)  # -0.08
    for acceptor in "ON":
        assert hydroxyl(("C", 180, 0.165), (acceptor, 60, 0.11), ("C", 300, 0.05)) == 60
        assert hydroxyl(("C", 180, 0.165), (acceptor, 60, 0.08), ("C", 300, 0.05)) == 180


def test_atoms_that_carry_the_hydroxyl_do_not_stand_in_its_way():
    """H is always 0.096 nm from O and 0.196 from C2. With C1 further off, gauche has more room than beside C at 0.2."""
    wide = {**ETHANOL, "C1": (0.1, 0.286, 0)}
    for places in (wide, {"H": None, **wide}):  # wherever H stands among the atoms
        assert hydroxyl(places=places) == 180
        assert hydroxyl(("C", 180, 0.22), places=places) in (60, 300)
        assert hydroxyl(("C", 180, 0.22), ("C", 60, 0.21), ("C", 300, 0.225), places=places) == 300


def test_the_hydrogen_of_a_thiol():
    assert hydroxyl(element="S") == 180
    assert hydroxyl(("C", 180, 0.1), ("C", 60, 0.1), element="S") == 300


PHENOL = {**ETHANOL, "C3": (-0.07, -0.12, 0)}
PHENOL_BONDS = (*ETHANOL_BONDS, "C2 C3")


def test_a_hydroxyl_on_a_planar_carbon_is_flat():
    assert hydroxyl(places=PHENOL, bonds=PHENOL_BONDS) == 180
    assert hydroxyl(("C", 180, 0.1), places=PHENOL, bonds=PHENOL_BONDS) == 0
    assert hydroxyl(("C", 180, 0.1), ("C", 0, 0.05), places=PHENOL, bonds=PHENOL_BONDS) == 180


def test_a_methyl_is_staggered_against_the_first_heavy_atom():
    """Before the hydrogens beside it, and before heavy atoms further down the list."""
    places = {
        "H0": (-0.05, 0.09, 0.03),
        "C2": (0, 0, 0),
        "C1": (0.15, 0, 0),
        "C3": (-0.05, -0.14, 0),
        "O4": (-0.05, 0.05, -0.12),
    }
    places |= {f"H{k}": (0.2, 0.01 * k, 0.05) for k in (1, 2, 3)}
    bonds = inside("C2 H0", "C2 C1", "C2 C3", "C2 O4", "C1 H1", "C1 H2", "C1 H3")
    found = hydrogens_of([("LIG", places)], bonds, added=np.array([5, 6, 7]))
    turns = [round(degrees(found["C3"], found["C2"], found["C1"], found[f"H{k}"])) for k in (1, 2, 3)]
    assert turns == [180, 60, -60]
    np.testing.assert_allclose([degrees(found["C2"], found["C1"], found[f"H{k}"]) for k in (1, 2, 3)], 109.5)


def test_amides_are_flat_and_amines_are_staggered():
    """NH2 at a carbon with three neighbours lies in its plane; at one with four, or at nitrogen, it does not."""
    amide = {"C1": (0, 0, 0), "O1": (0.06, 0.105, 0), "C2": (0.07, -0.13, 0), "N1": (-0.133, 0, 0)}
    amide |= {"H1": (-0.2, 0.05, 0.05), "H2": (-0.2, -0.05, 0.05)}
    bonds = inside("C1 O1", "C1 C2", "C1 N1", "N1 H1", "N1 H2")
    found = hydrogens_of([("LIG", amide)], bonds)
    turns = [round(degrees(found["O1"], found["C1"], found["N1"], found[f"H{k}"])) % 360 for k in (1, 2)]
    assert turns == [0, 180]
    np.testing.assert_allclose([degrees(found["C1"], found["N1"], found[f"H{k}"]) for k in (1, 2)], 120.0)
    for extra, element in (({"C9": (0, 0, 0.15)}, "C"), ({}, "N")):
        more = inside("C1 C9") if extra else []
        amine = hydrogens_of([("LIG", {**amide, **extra})], bonds + more, {"C1": element})
        turns = [round(degrees(amine["O1"], amine["C1"], amine["N1"], amine[f"H{k}"])) % 360 for k in (1, 2)]
        assert turns == [180, 60]
    one = {name: at for name, at in amide.items() if name != "H2"}  # an imine: one hydrogen, staggered
    found = hydrogens_of([("LIG", one)], bonds[:-1])
    assert round(degrees(found["O1"], found["C1"], found["N1"], found["H1"])) % 360 == 180

"""Which atoms are bonded: records, templates and distances judged for a few atoms on a line or a grid, nm."""

from __future__ import annotations

import numpy as np
import pytest
from small_molecules import few_atoms

from peptidyn.core.errors import StructureError
from peptidyn.io.bonding import coincident_pairs, longest_bonds, possible_bonds, settle_bonds


def settled(residues, records=(), chains=None, elements=None, kinds=None):
    """Return the bonds as ``"0 C - 1 N"``, with OpenMM's kind and order of each, and the notes as {kind: texts}."""
    atoms, positions = few_atoms(residues, records, chains, elements)
    recorded = {tuple(pair): (kinds or {}).get(tuple(pair), (None, None)) for pair in atoms.bonds.tolist()}
    bonds, notes = settle_bonds(atoms, positions, recorded)
    label = [f"{r} {name}" for r, name in zip(atoms.residue.tolist(), atoms.name.tolist(), strict=True)]
    found = {}
    for note in notes:
        found.setdefault(note.kind, []).append(note.text)
    return {f"{label[i]} - {label[j]}": kind for (i, j), kind in sorted(bonds.items())}, found


def between(bonds):
    """Those of the bonds that join two residues."""
    return {bond for bond in bonds if len({end.split()[0] for end in bond.split(" - ")}) == 2}


def glycine(x, y=0.0):
    """N, CA and C on a line; the next N is at 0.431 after this one."""
    return ("GLY", {"N": (x, y, 0), "CA": (x + 0.146, y, 0), "C": (x + 0.298, y, 0)})


def inside(residue, *pairs):
    """Records within a residue: ``"N CA"`` for N-CA."""
    return [tuple(f"{residue} {name}" for name in pair.split()) for pair in pairs]


def of_glycines(n):
    return [pair for r in range(n) for pair in inside(r, "N CA", "CA C")]


def atom(name, at, residue="LIG"):
    return (residue, {name: at})


# ---------------------------------------------------------------- lengths


def test_the_longest_bond_of_two_elements():
    """1.45 times the sum of their covalent radii; 0.15 nm for a metal that is not listed."""
    places = {"C": (0, 0, 0), "N": (1, 0, 0), "ZN": (2, 0, 0), "NA": (3, 0, 0), "H": (4, 0, 0), "SE": (5, 0, 0)}
    atoms, _ = few_atoms([("LIG", places)], elements={"ZN": "Zn", "NA": "Na", "SE": "Se"})
    lengths = longest_bonds(atoms, np.array([[0, 1], [1, 2], [0, 3], [4, 5], [0, 0]]))
    np.testing.assert_allclose(lengths, 1.45 * np.array([0.147, 0.193, 0.226, 0.151, 0.152]))


def test_atoms_at_the_same_place():
    assert coincident_pairs(np.zeros((1, 3))) == []
    assert coincident_pairs(np.array([[0, 0, 0], [1, 0, 0], [0, 0, 0.0009], [1, 0.0011, 0], [5, 0, 0]])) == [(0, 2)]
    assert coincident_pairs(np.array([[0, 0, 0], [3, 0, 0], [3, 0, 0], [0, 0, 0]])) == [(0, 3), (1, 2)]


def test_atoms_of_a_residue_must_be_apart():
    """Two residues may overlap here: the reader asks later whether they are one molecule."""
    with pytest.raises(StructureError, match=r"residue LIG 1, atom C1 and .* atom C2 of one molecule are at the same"):
        settled([("LIG", {"C1": (0, 0, 0), "C2": (0.0005, 0, 0)})])
    assert settled([atom("C1", (0, 0, 0)), atom("C2", (0.0005, 0, 0))])[0] == {}


def test_pairs_that_may_be_bonded():
    """Records, C to N within a chain up to 0.2 nm, sulfurs of cysteines up to 0.3, all pairs of unknown residues."""
    residues = [
        ("CYS", {"C": (0, 0, 0), "SG": (0, 0, 0), "CB": (0, 0, 0)}),
        ("CYS", {"N": (0, 0, 0), "C": (0, 0, 0), "SG": (0, 0, 0), "CB": (0, 0, 0)}),
        ("CYS", {"N": (0, 0, 0), "SG": (0, 0, 0)}),
        ("LIG", {"C1": (0, 0, 0), "O1": (0, 0, 0), "H1": (0, 0, 0)}),
        ("XYZ", {"C1": (0, 0, 0), "O1": (0, 0, 0)}),
    ]
    records = [("0 CB", "0 SG"), ("3 C1", "3 O1"), ("4 C1", "4 O1")]
    atoms, _ = few_atoms(residues, records, "AABBB")
    recorded = dict.fromkeys(map(tuple, atoms.bonds.tolist()), (None, None))
    pairs, limits = possible_bonds(atoms, recorded)
    found = {tuple(pair): limit for pair, limit in zip(pairs.tolist(), limits.tolist(), strict=True)}
    assert found == pytest.approx({
        (1, 2): 1.45 * (0.105 + 0.076), (12, 13): 1.45 * 0.142,  # records of what needs no guess
        (0, 3): 0.2,  # the chains are different at the next residue
        (1, 5): 0.3,  # the third cysteine has no CB
        (9, 10): 0.142 + 0.045, (9, 11): 0.107 + 0.045, (10, 11): 0.097 + 0.045,
    })  # fmt: skip


# ---------------------------------------------------------------- records that are none


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize(("name", "element", "kind"), [
    ("ZN", "Zn", "coordination"), ("CL", "Cl", "coordination"), ("O", "O", "dropped-bond"),
])  # fmt: skip
def test_recorded_contacts_are_no_bonds(name, element, kind, flipped):
    """Of a metal, a halide or a water, with another residue, whichever is listed first."""
    other = ("HOH" if name == "O" else "ION", {name: (0.19, 0, 0)})
    residues = [("LIG", {"N1": (0, 0, 0), "C1": (-0.147, 0, 0)}), other]
    records = [("0 N1", "0 C1"), ("0 N1", f"1 {name}")]
    if flipped:
        residues, records = residues[::-1], [("1 N1", "1 C1"), ("1 N1", f"0 {name}")]
    bonds, notes = settled(residues, records, "AB", {name: element})
    here = int(flipped)
    assert set(bonds) == {f"{here} N1 - {here} C1"}
    assert list(notes) == [kind]
    assert f"residue LIG {1 + here}, atom N1" in notes[kind][0]


def test_a_metal_within_its_residue_is_bonded():
    """As the iron of haem; and a metal of a larger residue, linked to another residue, is not."""
    heme = ("HEM", {"FE": (0, 0, 0), "NA": (0.2, 0, 0)})
    bonds, notes = settled([heme], [("0 FE", "0 NA")], elements={"FE": "Fe"})
    assert set(bonds) == {"0 FE - 0 NA"} and notes == {}
    histidine = ("HIS", {"NE2": (-0.2, 0, 0), "CE1": (-0.33, 0, 0)})
    for k, residues in enumerate(([heme, histidine], [histidine, heme])):
        records = [*inside(k, "FE NA"), *inside(1 - k, "NE2 CE1"), (f"{k} FE", f"{1 - k} NE2")]
        bonds, notes = settled(residues, records, elements={"FE": "Fe"})
        assert between(bonds) == set() and list(notes) == ["coordination"]


def test_a_halogen_of_a_molecule_may_link_residues():
    residues = [("LIG", {"C1": (0, 0, 0), "BR": (0.19, 0, 0)}), ("XYZ", {"C1": (0.38, 0, 0)})]
    bonds, _ = settled(residues, [("0 C1", "0 BR"), ("0 BR", "1 C1")], elements={"BR": "Br"})
    assert between(bonds) == {"0 BR - 1 C1"}


def test_bonds_within_water_stay():
    water = ("HOH", {"O": (0, 0, 0), "H1": (0.1, 0, 0), "H2": (0, 0.1, 0)})
    bonds, notes = settled([water], inside(0, "O H1", "O H2"))
    assert set(bonds) == {"0 O - 0 H1", "0 O - 0 H2"} and notes == {}


def test_hydrogens_are_bonded_to_each_other_in_dihydrogen_alone():
    bonds, _ = settled([("H2", {"H1": (0, 0, 0), "H2": (0.074, 0, 0)})], [("0 H1", "0 H2")])
    assert set(bonds) == {"0 H1 - 0 H2"}
    rigid = ("HOH", {"O": (0, 0, 0), "H1": (0.1, 0, 0), "H2": (0, 0.1, 0)})
    bonds, notes = settled([rigid], inside(0, "O H1", "O H2", "H1 H2"))
    assert set(bonds) == {"0 O - 0 H1", "0 O - 0 H2"}
    assert "recorded bonds of water or between hydrogens were left out: " in notes["dropped-bond"][0]


def test_a_recorded_link_that_is_far_too_long_is_left_out():
    """1.45 (0.076 + 0.076) = 0.2204 nm; within a residue a long bond stays, and is noted."""
    for length, stays in ((0.220, True), (0.221, False)):
        bonds, notes = settled([atom("C1", (0, 0, 0)), atom("C2", (length, 0, 0))], [("0 C1", "1 C2")])
        assert bool(bonds) == stays
        assert ("dropped-bond" in notes) != stays
        assert [text.count(", atom C") for text in notes.get("stray", [])] == ([] if stays else [2])
    assert (
        "atom C1 - chain A, residue LIG 2, atom C2 was left out: it would be 0.221 nm long" in notes["dropped-bond"][0]
    )
    bonds, notes = settled([("LIG", {"C1": (0, 0, 0), "C2": (0.5, 0, 0)})], [("0 C1", "0 C2")])
    assert set(bonds) == {"0 C1 - 0 C2"} and list(notes) == ["long-bond"]


# ---------------------------------------------------------------- chains


def test_neighbours_of_a_chain_are_bonded_up_to_a_limit():
    for gap, joined in ((0.1999, True), (0.2001, False)):
        bonds, notes = settled([glycine(0), glycine(0.298 + gap)], of_glycines(2))
        assert between(bonds) == ({"0 C - 1 N"} if joined else set())
        assert list(notes) == ([] if joined else ["gap"])
    assert notes["gap"] == [
        "the chain is broken between chain A, residue GLY 1 and chain A, residue GLY 2: C and N are 0.200 nm apart"
    ]


def test_a_recorded_bond_across_a_gap_is_taken_away():
    bonds, notes = settled([glycine(0), glycine(0.508)], [*of_glycines(2), ("0 C", "1 N")])
    assert between(bonds) == set() and list(notes) == ["gap"]


def test_a_recorded_bond_of_a_chain_keeps_its_kind():
    bonds, _ = settled([glycine(0), glycine(0.431)], [*of_glycines(2), ("0 C", "1 N")], kinds={(2, 3): ("Amide", 1)})
    assert bonds["0 C - 1 N"] == ("Amide", 1)


def test_neighbours_of_different_chains_are_no_neighbours():
    """C and N at the length of a bond are joined all the same, as a link; far apart, no chain is broken."""
    bonds, notes = settled([glycine(0), glycine(0.431)], of_glycines(2), "AB")
    assert between(bonds) == {"0 C - 1 N"} and list(notes) == ["link"]
    assert settled([glycine(0), glycine(2)], of_glycines(2), "AB")[1] == {}


def test_neighbours_in_the_list_that_are_bonded_elsewhere_are_no_gap():
    """GLY 1 and 2 close a ring each with GLY 3 and 4: C of 1 and N of 2 are taken. If one is free, it is a gap."""
    ends = [glycine(0), glycine(5)], [("LIG", {"N1": (0.431, 0, 0)}), ("LIG", {"C1": (4.867, 0, 0)})]
    residues, chains = [*ends[0], *ends[1]], "AABC"
    links = [("0 C", "2 N1"), ("1 N", "3 C1")]
    assert "gap" not in settled(residues, of_glycines(2) + links, chains)[1]
    for far in (0, 1):
        moved = list(residues)
        moved[2 + far] = atom("N1" if far == 0 else "C1", (0, 9, 0))
        assert list(settled(moved, of_glycines(2) + [links[1 - far]], chains)[1]) == ["gap", "stray"]


def test_caps_are_part_of_the_chain_at_their_own_end():
    """ACE before and NME after an amino acid are bonded to it; the other way round none is, and nothing is broken."""
    ace = ("ACE", {"CH3": (-0.283, 0, 0), "C": (-0.133, 0, 0)})
    nme = ("NME", {"N": (0.431, 0, 0), "C": (0.577, 0, 0)})
    records = inside(0, "CH3 C") + inside(1, "N CA", "CA C") + inside(2, "N C")
    bonds, notes = settled([ace, glycine(0), nme], records)
    assert between(bonds) == {"0 C - 1 N", "1 C - 2 N"} and notes == {}
    apart = [
        ("NME", {"N": (-5, 0, 0), "C": (-4.853, 0, 0)}),
        glycine(0),
        ("ACE", {"CH3": (5, 0, 0), "C": (5.15, 0, 0)}),
    ]
    records = inside(0, "N C") + inside(1, "N CA", "CA C") + inside(2, "CH3 C")
    bonds, notes = settled(apart, records)
    assert between(bonds) == set() and notes == {}


def test_what_is_no_amino_acid_breaks_no_chain():
    """Water, a nucleotide or a ligand next to an amino acid; a modified one with a backbone is part of the chain."""
    for name in ("HOH", "DA", "LIG"):
        other = (name, {"O": (3, 0, 0)})
        assert "gap" not in settled([glycine(0), other], of_glycines(1))[1]
        assert "gap" not in settled([other, glycine(0)], inside(1, "N CA", "CA C"))[1]
    modified = ("XAA", glycine(0.431)[1])
    bonds, notes = settled([glycine(0), modified, glycine(0.862)], of_glycines(3))
    assert between(bonds) == {"0 C - 1 N", "1 C - 2 N"} and notes == {}
    assert list(settled([glycine(0), ("XAA", glycine(2)[1])], of_glycines(2))[1]) == ["gap"]


@pytest.mark.parametrize(("first", "second", "place"), [
    ("N CA", "N CA C", "GLY 1, atom C"), ("N CA C", "CA C", "GLY 2, atom N"), ("N CA", "CA C", "GLY 1, atom C"),
])  # fmt: skip
def test_a_chain_that_lacks_the_atom_of_a_bond(first, second, place):
    residues = [(n, {k: at for k, at in table.items() if k in names.split()})
                for (n, table), names in zip((glycine(0), glycine(0.431)), (first, second), strict=True)]  # fmt: skip
    records = [pair for pair in of_glycines(2) if all(end[2:] in (first, second)[int(end[0])].split() for end in pair)]
    _, notes = settled(residues, records)
    assert notes["gap"] == [f"the chain is broken in 1 place where atoms are missing: chain A, residue {place}"]


@pytest.mark.parametrize(
    ("length", "recorded", "joined"), [(0.25, True, True), (0.2515, True, False), (0.3, False, False)]
)
def test_a_phosphate_bond_of_a_template(length, recorded, joined):
    """1.45 (0.066 + 0.107) = 0.2509 nm. What is not recorded is no bond, and no gap."""
    residues = [
        ("DA", {"C3'": (-0.143, 0, 0), "O3'": (0, 0, 0)}),
        ("DA", {"P": (length, 0, 0), "OP1": (length, 0.15, 0)}),
    ]
    records = [*inside(0, "C3' O3'"), *inside(1, "P OP1"), *([("0 O3'", "1 P")] if recorded else [])]
    bonds, notes = settled(residues, records)
    assert between(bonds) == ({"0 O3' - 1 P"} if joined else set())
    assert set(notes) <= {"gap"}
    assert notes.get("gap", []) == (
        ["the chain is broken between chain A, residue DA 1 and chain A, residue DA 2: O3' and P are 0.252 nm apart"]
        if recorded and not joined else []
    )  # fmt: skip


# ---------------------------------------------------------------- disulfides


def cysteines(places, beta=True, hydrogens=(), elements=None, records=()):
    residues, bonds = [], list(records)
    for r, at in enumerate(places):
        table = {"SG": at}
        if beta:
            table["CB"] = np.array(at) + (0, 0.18, 0)
            bonds += inside(r, "SG CB")
        if r in hydrogens:
            table["HG"] = np.array(at) + (0, 0, 0.134)
            bonds += inside(r, "SG HG")
        residues.append(("CYS", table))
    bonds_found, notes = settled(residues, bonds, "ABCD"[: len(places)], elements)
    return between(bonds_found), notes


def test_the_nearest_sulfurs_are_joined_each_once():
    assert cysteines([(0, 0, 0), (0.29, 0, 0)])[0] == {"0 SG - 1 SG"}
    assert cysteines([(0, 0, 0), (0.31, 0, 0)])[0] == set()
    assert cysteines([(0, 0, 0), (0.25, 0, 0), (0.455, 0, 0)])[0] == {"1 SG - 2 SG"}
    assert cysteines([(0, 0, 0), (0.205, 0, 0), (0.455, 0, 0)])[0] == {"0 SG - 1 SG"}
    bonds, notes = cysteines([(0, 0, 0), (0.205, 0, 0), (0.455, 0, 0), (0.66, 0, 0)])
    assert bonds == {"0 SG - 1 SG", "2 SG - 3 SG"}
    assert notes["disulfide"][0] == (
        "disulfide bond between chain A, residue CYS 1, atom SG and chain B, residue CYS 2, atom SG (0.205 nm)"
    )
    assert len(notes["disulfide"]) == 2


def test_sulfurs_that_are_taken_are_not_joined():
    """By a hydrogen, or a record with another residue; a selenium, and one without CB, are no sulfurs of cysteine."""
    pair = [(0, 0, 0), (0.25, 0, 0)]
    assert cysteines(pair, hydrogens=(0,))[0] == set()
    assert cysteines(pair, hydrogens=(1,))[0] == set()
    assert cysteines(pair, beta=False)[0] == set()
    assert cysteines(pair, elements={"SG": "Se"})[0] == set()
    three = [(0, 0, 0), (0.29, 0, 0), (0.57, 0, 0)]
    assert cysteines(three, records=[("0 SG", "1 SG")])[0] == {"0 SG - 1 SG"}
    assert list(cysteines(three, records=[("0 SG", "1 SG")])[1]) == ["disulfide"]


# ---------------------------------------------------------------- residues without a template


def test_atoms_of_an_unknown_residue_are_bonded_by_their_radii():
    """Up to the sum of the covalent radii and 0.045 nm: C-C 0.197, C-O 0.187, C-I 0.260, N-Fe 0.248."""
    for name, element, limit in (("C2", "C", 0.197), ("O1", "O", 0.187), ("I1", "I", 0.260), ("FE", "Fe", 0.253)):
        for length in (limit - 0.0005, limit + 0.0005):
            residue = ("LIG", {"C1": (0, 0, 0), name: (length, 0, 0)})
            bonds, notes = settled([residue], elements={name: element})
            assert bool(bonds) == (length < limit), (name, length)
            assert list(notes) == (["inferred-bonds"] if length < limit else ["inferred-bonds", "stray", "pieces"])
    assert notes["pieces"] == ["1 residue in pieces that no bond connects: chain A, residue LIG 1"]


def test_metals_of_a_cluster_are_bonded_to_sulfur_and_not_to_each_other():
    places = {"FE1": (0, 0, 0), "S1": (0.16, 0.16, 0), "FE2": (0.27, 0, 0)}
    bonds, _ = settled([("FES", places)], elements={"FE1": "Fe", "FE2": "Fe"})
    assert set(bonds) == {"0 FE1 - 0 S1", "0 S1 - 0 FE2"}


def test_hydrogens_are_bonded_to_the_nearest_atom_that_is_no_metal():
    """Within 0.16 nm: Se-H has 0.146. One that has a bond gets no other."""
    places = {"SE": (0, 0, 0), "C1": (0.195, 0, 0), "H1": (-0.146, 0, 0), "H2": (0.195, 0.1595, 0)}
    places |= {"H3": (0.195, -0.1605, 0)}
    bonds, notes = settled([("LIG", places)], elements={"SE": "Se"})
    assert set(bonds) == {"0 SE - 0 C1", "0 SE - 0 H1", "0 C1 - 0 H2"}
    assert "1 atom without any bond: chain A, residue LIG 1, atom H3" in notes["stray"]
    metal = {"FE": (0, 0, 0), "C1": (0.2, 0, 0), "H1": (0.07, 0.05, 0)}
    bonds, _ = settled([("LIG", metal)], elements={"FE": "Fe"})
    assert set(bonds) == {"0 FE - 0 C1", "0 C1 - 0 H1"}
    bridge = {"C1": (0, 0, 0), "C2": (0.15, 0, 0), "H1": (0.08, 0.09, 0), "C3": (0.3, 0, 0)}
    bonds, _ = settled([("LIG", bridge)], [("0 C1", "0 H1")])
    assert set(bonds) == {"0 C1 - 0 C2", "0 C1 - 0 H1", "0 C2 - 0 C3"}


AROUND = [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1)]


@pytest.mark.parametrize(("element", "most"), [("C", 4), ("N", 4), ("O", 3), ("F", 1)])
def test_an_atom_with_too_many_neighbours_is_an_error(element, most):
    for n in (most, most + 1):
        partners = {f"C{k}": 0.15 * np.array(AROUND[k]) for k in range(n)}
        residue = ("LIG", {"X": (0, 0, 0), **partners})
        if n == most:
            assert len(settled([residue], elements={"X": element})[0]) == n
        else:
            with pytest.raises(StructureError, match=f"residue LIG 1 is not .* atom X would have {n} bonds; repair"):
                settled([residue], elements={"X": element})


def test_a_residue_joined_only_through_another_still_lacks_its_bonds():
    """Both halves are linked to a sugar: inside the residue no record connects them."""
    halves = ("LIG", {"C1": (0, 0, 0), "C2": (0.15, 0, 0)})
    sugar = ("XYZ", {"O1": (0, 0.14, 0), "O2": (0.15, 0.14, 0), "C1": (0.075, 0.24, 0)})
    records = [("0 C1", "1 O1"), ("0 C2", "1 O2"), ("1 O1", "1 C1"), ("1 O2", "1 C1")]
    bonds, notes = settled([halves, sugar], records)
    assert "0 C1 - 0 C2" in bonds
    assert notes["inferred-bonds"] == [
        "bonds within 1 residue without a template inferred from distances: chain A, residue LIG 1"
    ]


def test_a_residue_whose_records_connect_it_is_trusted():
    """C1 and C3 are near enough for a bond; records join all three, so nothing is added."""
    places = {"C1": (0, 0, 0), "C2": (0.1, 0.12, 0), "C3": (0.19, 0, 0)}
    bonds, notes = settled([("LIG", places)], inside(0, "C1 C2", "C2 C3"))
    assert set(bonds) == {"0 C1 - 0 C2", "0 C2 - 0 C3"} and notes == {}


def test_atoms_of_a_standard_residue_with_odd_names():
    """A heavy atom and a hydrogen without bonds go to their neighbours; those with bonds get no more."""
    places = {**glycine(0)[1], "OX": (0.298, 0.123, 0), "HX": (0.146, 0.109, 0), "HY": (0.146, -0.2, 0)}
    bonds, notes = settled([("GLY", places)], of_glycines(1))
    assert set(bonds) == {"0 N - 0 CA", "0 CA - 0 C", "0 C - 0 OX", "0 CA - 0 HX"}
    assert notes["inferred-bonds"] == [
        "2 atoms with names unknown to the template of the residue bonded by distance: "
        "chain A, residue GLY 1, atom OX; chain A, residue GLY 1, atom HX"
    ]
    assert notes["stray"] == ["1 atom without any bond: chain A, residue GLY 1, atom HY"]
    assert "pieces" not in notes


# ---------------------------------------------------------------- links


def ligand(at, *more):
    """An atom of an unknown residue with partners 0.15 nm away, in the directions given."""
    return ("LIG", {"C1": at, **{f"C{k + 2}": np.array(at) + 0.15 * np.array(d) for k, d in enumerate(more)}})


def test_links_by_distance_between_an_unknown_residue_and_others():
    """More than 0.1 nm and up to the sum of the covalent radii and 0.02 nm: C-C 0.172."""
    for length, linked in ((0.0995, False), (0.1005, True), (0.1715, True), (0.1725, False)):
        for name in ("GLY", "XYZ"):
            residues = [(name, {"CA": (0, 0, 0), "CB": (0, 0.15, 0)}), ligand((length, 0, 0), (1, 0, 0))]
            bonds, notes = settled(residues, inside(0, "CA CB") + inside(1, "C1 C2"), "AB")
            assert between(bonds) == ({"0 CA - 1 C1"} if linked else set()), (length, name)
            assert list(notes) == (["link"] if linked else [])
    residues[1] = ligand((0.15, 0, 0), (1, 0, 0))
    _, notes = settled(residues, inside(0, "CA CB") + inside(1, "C1 C2"), "AB")
    assert notes["link"] == [
        "bond between residues by distance: "
        "chain A, residue XYZ 1, atom CA - chain B, residue LIG 2, atom C1 (0.150 nm)"
    ]


def test_a_contact_of_standard_residues_is_noted_and_no_bond():
    residues = [("GLY", {"CA": (0, 0, 0), "C": (0, 0.15, 0)}), ("GLY", {"CA": (0.15, 0, 0), "C": (0.15, 0.15, 0)})]
    bonds, notes = settled(residues, inside(0, "CA C") + inside(1, "CA C"), "AB")
    assert between(bonds) == set()
    assert notes == {"close-contact": [
        "2 pairs of atoms within bonding distance that no record bonds: "
        "chain A, residue GLY 1, atom CA - chain B, residue GLY 2, atom CA; "
        "chain A, residue GLY 1, atom C - chain B, residue GLY 2, atom C"
    ]}  # fmt: skip


def test_a_recorded_link_is_no_contact():
    residues = [("GLY", {"CA": (0, 0, 0), "C": (0, 0.15, 0)}), ("GLY", {"CA": (0.15, 0, 0), "C": (0.3, 0, 0)})]
    bonds, notes = settled(residues, [*inside(0, "CA C"), *inside(1, "CA C"), ("0 CA", "1 CA")], "AB")
    assert between(bonds) == {"0 CA - 1 CA"} and notes == {}


def test_a_ring_of_a_chain_is_closed_where_c_and_n_are_free():
    """C of the last residue lies at N of the first. If either has its bond already, it is a contact."""
    residues = [("GLY", {"N": (0, 0, 0), "CA": (0.146, 0, 0)}), ("GLY", {"CA": (-0.28, 0, 0), "C": (-0.133, 0, 0)})]
    records = inside(0, "N CA") + inside(1, "CA C")
    bonds, notes = settled(residues, records, "AB")
    assert between(bonds) == {"0 N - 1 C"} and list(notes) == ["link"]
    for link, at in ((("0 N", "2 C2"), (0, 0.147, 0)), (("1 C", "2 C2"), (-0.133, 0.147, 0))):
        bonds, notes = settled([*residues, atom("C2", at)], [*records, link], "ABC")
        assert len(between(bonds)) == 1 and list(notes) == ["close-contact"]


def test_the_nearest_of_two_possible_links_is_made():
    """An oxygen with two bonds has room for one more; a carbon with four has none."""
    oxygen = ("LIG", {"O1": (0, 0, 0), "C2": (0, 0.14, 0), "C3": (0, -0.14, 0)})
    far, near = (("XYZ", {"C1": (x, 0, 0), "C2": (1.9 * x, 0, 0)}) for x in (0.155, -0.145))
    records = inside(0, "O1 C2", "O1 C3") + inside(1, "C1 C2") + inside(2, "C1 C2")
    bonds, notes = settled([oxygen, far, near], records, "ABC")
    assert between(bonds) == {"0 O1 - 2 C1"}
    assert list(notes) == ["link", "close-contact"]


@pytest.mark.parametrize("first", [True, False])
def test_an_atom_without_room_is_not_linked(first):
    full = ligand((0, 0, 0), *AROUND[1:])
    other = ("XYZ", {"C1": (0.15, 0, 0), "C2": (0.3, 0, 0)})
    k = 0 if first else 1
    records = inside(k, *(f"C1 C{n}" for n in (2, 3, 4, 5))) + inside(1 - k, "C1 C2")
    bonds, notes = settled([full, other] if first else [other, full], records, "AB")
    assert between(bonds) == set() and list(notes) == ["close-contact"]


@pytest.mark.parametrize(("residue", "name", "element", "distance"), [
    ("XYZ", "H1", "H", 0.11), ("ION", "ZN", "Zn", 0.2), ("ION", "CL", "Cl", 0.18), ("HOH", "O", "O", 0.15),
    ("XYZ", "MG", "Mg", 0.2),
])  # fmt: skip
def test_hydrogens_metals_ions_and_water_are_not_linked(residue, name, element, distance):
    other = {name: (distance, 0, 0)} | ({"C9": (0.4, 0, 0)} if residue == "XYZ" else {})
    records = inside(0, "C1 C2") + (inside(1, f"{name} C9") if residue == "XYZ" else [])
    bonds, notes = settled([ligand((0, 0, 0), (-1, 0, 0)), (residue, other)], records, "AB", {name: element})
    assert between(bonds) == set()
    assert not {"link", "close-contact"}.intersection(notes)


# ---------------------------------------------------------------- atoms alone


def test_atoms_without_bonds_are_noted_unless_they_are_ions_or_water():
    here = [("NA", {"NA": (0, 0, 0)}), ("CL", {"CL": (1, 0, 0)}), ("HOH", {"O": (2, 0, 0)}), ("LIG", {"C1": (3, 0, 0)})]
    here += [("HOH", {"O": (4, 0, 0), "H1": (4.3, 0, 0)}), ("GLY", {"N": (5, 0, 0)})]
    _, notes = settled(here, chains="ABCDEF", elements={"NA": "Na", "CL": "Cl"})
    assert notes == {"stray": [
        "3 atoms without any bond: chain D, residue LIG 4, atom C1; chain E, residue HOH 5, atom H1; "
        "chain F, residue GLY 6, atom N"
    ]}  # fmt: skip


def test_every_reason_to_be_no_ion():
    """An atom of these elements alone is a fragment, any other an ion."""
    for element, ion in (
        ("C", False),
        ("N", False),
        ("P", False),
        ("Se", False),
        ("B", False),
        ("Br", True),
        ("Xe", True),
    ):
        _, notes = settled([("ANY", {"X": (0, 0, 0)})], elements={"X": element})
        assert ("stray" in notes) != ion, element

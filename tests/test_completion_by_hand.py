"""Completion of small peptides: which atoms come, where, at which pH, and what is said about it."""

from __future__ import annotations

import numpy as np
import pytest
from openmm import unit
from openmm.app import Element, Topology
from small_molecules import few_atoms

from peptidyn import build_peptide
from peptidyn.core.errors import ArgumentError, StructureError
from peptidyn.io.completion import (
    _match,
    _may_be_loose,
    _segment_starts,
    _spare_closed_rings,
    _variant,
    complete,
)
from peptidyn.io.notes import Note
from peptidyn.io.structure import Structure
from peptidyn.io.topology import atoms_from_topology, bonds_of, copy_topology


def without(structure, *dropped, hydrogens=True):
    """The structure without some atoms, ``"2 CB"`` is CB of the third residue, and without hydrogens."""
    atoms = structure.atoms
    keep = [
        i
        for i in range(structure.n_atoms)
        if f"{atoms.residue[i]} {atoms.name[i]}" not in dropped and not (hydrogens and atoms.element[i] == "H")
    ]
    part = structure.subset(keep)
    return Structure.from_openmm(part.topology, None, part.positions)


def peptide(sequence, *dropped, **options):
    return without(build_peptide(sequence, -120.0, 120.0, caps=False), *dropped, **options)


def names(structure, residue):
    return set(structure.atoms.residue_atoms[residue])


def texts(structure, kind):
    return [note.text for note in structure.notes_of(kind)]


# ---------------------------------------------------------------- heavy atoms


def test_atoms_taken_away_come_back():
    """Side chains, and every atom of the backbone: the same atoms in one chain, near to where they were."""
    whole = build_peptide("AVARALAKAFAWAPAEAMAIAHAAA", -120.0, 120.0, caps=False)
    dropped = ["1 CG1", "3 NH2", "3 CZ", "5 CD1", "7 CE", "9 CZ", "11 CE3", "15 OE2", "17 CG", "19 CG2"]
    dropped += ["2 O", "4 CA", "6 C", "6 O", "8 N", "10 C", "12 N", "14 CB", "16 C", "18 N", "21 CE1", "24 OXT"]
    structure = complete(without(whole, *dropped), variants={21: "HIE"})
    old = {whole.atoms.label(i): whole.positions[i] for i in range(whole.n_atoms)}
    assert sorted(structure.atoms.label(i) for i in range(structure.n_atoms)) == sorted(old)
    new = {structure.atoms.label(i): structure.positions[i] for i in range(structure.n_atoms)}
    labels = [whole.atoms.label(whole.atoms.residue_atoms[int(r)][name]) for r, name in (d.split() for d in dropped)]
    away = {label: round(float(np.linalg.norm(new[label] - old[label])), 3) for label in labels}
    assert max(away.values()) < 0.042, away
    for i in np.flatnonzero(whole.atoms.element != "H").tolist():
        label = whole.atoms.label(i)
        if label not in labels:
            np.testing.assert_array_equal(new[label], old[label])
    assert structure.atoms.n_chains == 1
    assert not list(structure.notes_of("gap"))
    assert structure.atoms.element.tolist().count("S") == 1


def test_a_carbon_and_its_oxygen_point_to_the_next_residue():
    """C lies 0.133 nm from the next N, O opposite to it and CA; N of a residue 0.133 nm from the C before."""
    structure = complete(peptide("AAAA", "1 C", "1 O", "3 N"))
    x, tables = structure.positions, structure.atoms.residue_atoms
    assert np.linalg.norm(x[tables[1]["C"]] - x[tables[2]["N"]]) == pytest.approx(0.133, abs=0.004)
    assert np.linalg.norm(x[tables[2]["C"]] - x[tables[3]["N"]]) == pytest.approx(0.133, abs=0.004)
    centre = x[tables[1]["C"]]
    u, v, w = (x[a] - centre for a in (tables[1]["CA"], tables[1]["O"], tables[2]["N"]))
    volume = np.linalg.det([e / np.linalg.norm(e) for e in (u, v, w)])
    assert abs(volume) < 0.1
    assert np.linalg.norm(v) == pytest.approx(0.123, abs=0.002)


def test_what_was_added_is_noted():
    structure = complete(peptide("AAA", "1 CB", "2 OXT"), pH=6.5)
    assert texts(structure, "completed") == [
        "2 missing heavy atoms added: chain A, residue ALA 2, atom CB; chain A, residue ALA 3, atom OXT",
        "17 hydrogens added to 3 residues at pH 6.5",
    ]
    heavy, light = structure.notes_of("completed")
    assert structure.atoms.name[list(heavy.atoms)].tolist() == ["CB", "OXT"]
    assert set(structure.atoms.element[list(light.atoms)]) == {"H"} and len(light.atoms) == 17
    some = peptide("AAA", "1 HA", "1 HB2", hydrogens=False)
    assert texts(complete(some), "completed") == ["2 hydrogens added to 1 residue at pH 7"]
    assert complete(peptide("AAA", hydrogens=False)).notes == ()


def test_residues_with_too_little_backbone_are_left_out():
    """Three of N, CA, C and CB are enough; O does not count. Water and ligands are no amino acids."""
    kept = complete(peptide("AAAA", "0 N", "0 O"))
    assert kept.n_residues == 4 and not list(kept.notes_of("dropped"))
    for gone in (("0 N", "0 C"), ("0 CB", "0 CA"), ("0 CB", "0 N", "0 O")):
        structure = complete(peptide("AAAA", *gone))
        assert structure.n_residues == 3
        assert texts(structure, "dropped") == [
            "1 residue with less than three of N, CA, C, CB left out: chain A, residue ALA 1"
        ]
        assert not list(structure.notes_of("cut"))
        assert {"H", "H2", "H3"} <= names(structure, 0)
    with pytest.raises(StructureError, match="lack most of their backbone atoms"):
        complete(peptide("A", "0 N", "0 CA"))


def test_protonation_follows_its_residue_when_others_are_left_out():
    structure = complete(peptide("AHHDA", "0 N", "0 CA"), variants={0: "HIP", 1: "HID", 2: "HIP", 3: "ASH"})
    assert structure.atoms.residue_name.tolist() == ["HIS", "HIS", "ASP", "ALA"]
    assert {"HD1", "HE2"} & names(structure, 0) == {"HD1"}
    assert {"HD1", "HE2"} & names(structure, 1) == {"HD1", "HE2"}
    assert "HD2" in names(structure, 2)


@pytest.mark.parametrize("pH", [-0.1, 14.1, float("nan")])
def test_pH_has_a_range(pH):
    with pytest.raises(ArgumentError, match="pH must be between 0 and 14"):
        complete(peptide("AA"), pH=pH)


# ---------------------------------------------------------------- names and elements


def with_kinds(structure, kinds=(), residues=()):
    topology = copy_topology(
        structure.topology, bonds_of(structure.topology), residue_names=dict(residues), atom_kinds=dict(kinds)
    )
    return Structure.from_openmm(topology, None, structure.positions)


@pytest.mark.parametrize("names_of_deuterium", [True, False])
def test_deuterium_becomes_hydrogen_whatever_its_name(names_of_deuterium):
    plain = build_peptide("AGA", -120.0, 120.0, caps=False)
    deuterium = Element.getBySymbol("D")
    found = [i for i in range(plain.n_atoms) if plain.atoms.name[i] in ("H", "HA", "HA2")]
    kinds = {
        i: (f"D{plain.atoms.name[i][1:]}" if names_of_deuterium else str(plain.atoms.name[i]), deuterium) for i in found
    }
    structure = complete(with_kinds(plain, kinds))
    assert structure.atoms.name.tolist() == plain.atoms.name.tolist()
    assert structure.atoms.element.tolist() == plain.atoms.element.tolist()
    np.testing.assert_array_equal(structure.positions, plain.positions)
    assert texts(structure, "renamed") == ["6 deuterium atoms made hydrogen"]
    (note,) = structure.notes_of("renamed")
    assert note.atoms == tuple(found)


def test_selenomethionine_becomes_methionine_and_other_selenium_stays():
    plain = build_peptide("AMCMA", -120.0, 120.0, caps=False)
    selenium = Element.getBySymbol("Se")
    tables = plain.atoms.residue_atoms
    kinds = {tables[1]["SD"]: ("SE", selenium), tables[2]["SG"]: ("SE", selenium)}
    structure = complete(with_kinds(without(plain, "nothing", hydrogens=False), kinds, {1: "MSE", 2: "SEC"}))
    assert structure.atoms.residue_name.tolist() == ["ALA", "MET", "SEC", "MET", "ALA"]
    new = structure.atoms.residue_atoms
    assert structure.atoms.element[new[1]["SD"]] == "S"
    assert structure.atoms.element[new[2]["SE"]] == "Se"
    np.testing.assert_array_equal(structure.positions[new[1]["SD"]], plain.positions[tables[1]["SD"]])
    assert texts(structure, "renamed") == [
        "MSE was made MET, its sulfur where the selenium was: chain A, residue MSE 2"
    ]
    bare = complete(with_kinds(without(plain, "1 SD", "1 CE"), {}, {1: "MSE"}))
    assert {"SD", "CE"} <= names(bare, 1) and bare.atoms.residue_name[1] == "MET"


# ---------------------------------------------------------------- pieces of chain


def apart(ca=0.38, before="N CA C", here="N CA C", chains="AA"):
    """Whether a residue may follow the one before, given what both have."""
    residues = [
        ("ALA", {name: (0, 0, 0) for name in before.split()}),
        ("ALA", {name: (ca, 0, 0) for name in here.split()}),
    ]
    atoms, positions = few_atoms(residues, chains=chains)
    return _may_be_loose(atoms, 1, positions)


def test_when_a_residue_may_follow_the_one_before():
    """C or the next N is missing, and CA atoms are within 0.45 nm, in one chain."""
    assert not apart()
    for lacking in ({"before": "N CA"}, {"here": "CA C"}, {"before": "N CA", "here": "CA C"}):
        assert apart(**lacking)
        assert apart(0.449, **lacking) and not apart(0.451, **lacking)
        assert not apart(chains="AB", **lacking)
    assert not apart(before="N") and not apart(before="N CA", here="N C") and not apart(before="N C", here="CA C")


def test_where_pieces_of_chain_start():
    """After a missing bond next to an amino acid, a nucleotide or anything with a backbone; not among others."""
    full = {"N": (0, 0, 0), "CA": (0, 0, 0), "C": (0, 0, 0)}
    listed = [("ALA", full), ("ALA", full), ("XAA", full), ("LIG", {"C1": (9, 0, 0)}), ("LIG", {"C1": (9, 0, 0)})]
    listed += [("HOH", {"O": (9, 0, 0)}), ("HOH", {"O": (9, 0, 0)}), ("DA", {"P": (9, 0, 0)}), ("ALA", full)]
    for bonds, starts in (
        ([], {1, 2, 3, 7, 8}),
        ([("0 C", "1 N")], {2, 3, 7, 8}),
        ([("1 C", "2 N"), ("1 N", "0 C")], {3, 7, 8}),
        ([("0 C", "2 N"), ("2 C", "3 C1")], {1, 2, 7, 8}),
        ([("8 C", "0 N"), ("7 P", "8 N")], {1, 2, 3, 7}),
    ):
        atoms, positions = few_atoms(listed, bonds)
        assert _segment_starts(Structure(None, positions, np.ones(atoms.n_atoms), atoms)) == starts, bonds


def test_chains_and_their_names_stay():
    """A gap inside chain A: both its pieces get ends, and are one chain again; B is another."""
    first, second = (build_peptide("AAAAA", -120.0, 120.0, caps=False) for _ in range(2))
    topology = Topology()
    made = []
    for letter, source in (("A", first), ("B", second)):
        chain = topology.addChain(letter)
        residues = [topology.addResidue(r.name, chain, r.id) for r in source.topology.residues()]
        made += [topology.addAtom(a.name, a.element, residues[a.residue.index]) for a in source.topology.atoms()]
    for k, source in enumerate((first, second)):
        for i, j in source.atoms.bonds.tolist():
            topology.addBond(made[i + k * first.n_atoms], made[j + k * first.n_atoms])
    both = Structure.from_openmm(topology, None, np.concatenate([first.positions, second.positions + 3.0]))
    cut = [f"2 {name}" for name in first.atoms.residue_atoms[2]]
    structure = complete(without(both, *cut))
    assert structure.atoms.chain_id.tolist() == ["A", "B"]
    assert structure.atoms.residue_chain.tolist() == [0] * 4 + [1] * 5
    assert ["OXT" in t for t in structure.atoms.residue_atoms] == [False, True, False, True] + [False] * 4 + [True]
    assert ["H3" in t for t in structure.atoms.residue_atoms] == [True, False, True, False, True] + [False] * 4
    assert texts(structure, "gap")[0].startswith("the chain is broken between chain A, residue ALA 2 and")
    assert len(texts(structure, "gap")) == 1


def test_box_bond_orders_and_notes_stay():
    bare = peptide("AAA", "1 CB")
    tables = bare.atoms.residue_atoms
    bonds = bonds_of(bare.topology)
    pair = tuple(sorted((tables[2]["C"], tables[2]["O"])))
    topology = copy_topology(bare.topology, {**bonds, pair: (None, 2)})
    box = np.diag([3.0, 4.0, 5.0])
    topology.setPeriodicBoxVectors(box * unit.nanometer)
    notes = (
        Note("own", "about CA", (tables[2]["CA"],)),
        Note("stray", "judged anew", (0,)),
        Note("long-bond", "so is this"),
    )
    structure = complete(Structure.from_openmm(topology, None, bare.positions, notes=notes))
    assert np.array(structure.topology.getPeriodicBoxVectors()._value).tolist() == box.tolist()
    new = structure.atoms.residue_atoms
    at = structure.atoms.bonds.tolist().index(sorted((new[2]["C"], new[2]["O"])))
    assert structure.atoms.bond_order[at] == 2.0
    (own,) = structure.notes_of("own")
    assert own.atoms == (new[2]["CA"],) and new[2]["CA"] != tables[2]["CA"]
    assert {note.kind for note in structure.notes} == {"own", "completed"}


def test_what_no_table_lists_hydrogens_for_is_said():
    """A ligand with carbon and without hydrogens; not an ion, sulfate, or a ligand that has hydrogens."""
    peptide_part = build_peptide("AA", -120.0, 120.0, caps=False)
    topology = copy_topology(peptide_part.topology, bonds_of(peptide_part.topology))
    chain = topology.addChain("L")
    places = []
    for k, (name, made_of) in enumerate([("LIG", "C"), ("LIH", "CH"), ("CLA", "Cl"), ("SUL", "SO")]):
        residue = topology.addResidue(name, chain, str(k + 1))
        symbols = [made_of] if made_of == "Cl" else list(made_of)
        last = [topology.addAtom(f"{s}1", Element.getBySymbol(s), residue) for s in symbols]
        places += [(5.0 + k, 0.12 * j, 0.0) for j in range(len(last))]
        if len(last) == 2:
            topology.addBond(*last)
    structure = complete(Structure.from_openmm(topology, None, np.concatenate([peptide_part.positions, places])))
    assert texts(structure, "not-completed") == [
        "no hydrogens were added to 1 residue that no table lists hydrogens for: chain L, residue LIG 1"
    ]
    (note,) = structure.notes_of("not-completed")
    assert structure.atoms.name[list(note.atoms)].tolist() == ["C1"]


# ---------------------------------------------------------------- protonation


def histidine(*hydrogens):
    topology = Topology()
    residue = topology.addResidue("HIS", topology.addChain("A"))
    for name in ("N", "CA", "ND1", "NE2", *hydrogens):
        topology.addAtom(name, Element.getBySymbol(name[0]), residue)
    return residue


def test_hydrogens_that_are_there_overrule_a_variant():
    assert _variant(histidine(), None) is None
    assert _variant(histidine(), "HID") == "HID"
    assert _variant(histidine("HD1", "HA"), "HID") == "HID"
    assert _variant(histidine("HE2"), "HID") is None
    assert _variant(histidine("HD1", "HE2"), "HIP") == "HIP"
    assert _variant(histidine("HX"), "HIP") is None
    residue = histidine()
    residue.name = "LIG"
    assert _variant(residue, "HID") is None


def ring(letter, *, more=(), closed=True):
    """A ring of three residues that starts with `letter`, without hydrogens; `more` are atoms to add to the first."""
    open_chain = peptide(f"{letter}GG", "2 OXT")
    tables = open_chain.atoms.residue_atoms
    bonds = bonds_of(open_chain.topology)
    if closed:
        bonds[tables[0]["N"], tables[2]["C"]] = (None, None)
    extra = {0: [(name, Element.getBySymbol(name[0])) for name, _ in more]}
    topology = copy_topology(open_chain.topology, bonds, extra_atoms=extra)
    first = {atom.name: atom for atom in next(topology.residues()).atoms()}
    for name, parent in more:
        topology.addBond(first[name], first[parent])
    return open_chain, topology


@pytest.mark.parametrize(("letter", "pH", "side"), [
    ("A", 7.0, {"HB1", "HB2", "HB3"}), ("D", 7.0, {"HB2", "HB3"}), ("D", 4.3, {"HB2", "HB3", "HD2"}),
    ("C", 7.0, {"HB2", "HB3", "HG"}), ("C", 9.0, {"HB2", "HB3"}),
    ("H", 7.0, {"HB2", "HB3", "HD2", "HE1", "HE2"}), ("S", 7.0, {"HB2", "HB3", "HG"}),
    ("K", 9.9, {f"H{k}{n}" for k in "BGDE" for n in (2, 3)} | {"HZ1", "HZ2", "HZ3"}),
    ("K", 10.1, {f"H{k}{n}" for k in "BGDE" for n in (2, 3)} | {"HZ1", "HZ2"}),
])  # fmt: skip
def test_the_first_residue_of_a_ring_has_no_end_and_heeds_pH(letter, pH, side):
    _, topology = ring(letter)
    wanted = [None, None, None]
    _spare_closed_rings(topology, wanted, pH)
    assert {name for name, _ in wanted[0]} == {"H", "HA", *side}
    assert dict(wanted[0])["H"] == "N" and dict(wanted[0])["HA"] == "CA"
    assert len(wanted[0]) == len(side) + 2
    assert wanted[1:] == [None, None]


def test_hydrogens_of_a_ring_that_are_there_are_kept():
    """One with an odd name counts as one of its atom's; a sulfur with two bonds gets none."""
    _, topology = ring("C", more=[("HX", "CB"), ("HA", "CA"), ("S", "SG")])
    wanted = [None, None, None]
    _spare_closed_rings(topology, wanted, 7.0)
    assert set(wanted[0]) == {("H", "N"), ("HA", "CA"), ("HX", "CB"), ("HB2", "CB")}
    _, topology = ring("A", more=[("HX", "CA"), ("HY", "CA")])
    _spare_closed_rings(topology, wanted, 7.0)
    assert {pair for pair in wanted[0] if pair[1] == "CA"} == {("HX", "CA"), ("HY", "CA")}


def test_open_chains_keep_their_ends():
    _, topology = ring("D", closed=False)
    wanted = [None, "ASH", None]
    _spare_closed_rings(topology, wanted, 7.0)
    assert wanted == [None, "ASH", None]


def test_only_the_ring_of_two_chains_is_spared():
    """Its first residue is the third of all."""
    _, topology = ring("A", closed=False)
    _, closed = ring("D")
    chain = topology.addChain("B")
    made = {}
    for residue in closed.residues():
        new = topology.addResidue(residue.name, chain)
        made |= {atom: topology.addAtom(atom.name, atom.element, new) for atom in residue.atoms()}
    for bond in closed.bonds():
        topology.addBond(made[bond[0]], made[bond[1]])
    wanted = [None] * 6
    _spare_closed_rings(topology, wanted, 7.0)
    assert [w is None for w in wanted] == [True, True, True, False, True, True]


@pytest.mark.parametrize(("pH", "protonated"), [(3.0, True), (7.0, False)])
def test_a_ring_is_completed_at_its_pH(pH, protonated):
    """The ring is closed by a bond that is far too long, which is left out in the end: only its ends matter here."""
    open_chain, topology = ring("D")
    atoms = atoms_from_topology(topology)
    structure = Structure(topology, open_chain.positions, open_chain.masses, atoms)
    found = names(complete(structure, pH=pH), 0)
    assert {"H", "H2", "H3"} & found == {"H"}
    assert ("HD2" in found) == protonated


# ---------------------------------------------------------------- bookkeeping


def topology_of(*residues):
    topology = Topology()
    chain = topology.addChain("A")
    for name, atoms in residues:
        residue = topology.addResidue(name, chain, "7")
        for atom in atoms.split():
            topology.addAtom(atom, Element.getBySymbol(atom[0]), residue)
    return topology


def test_old_atoms_are_found_among_the_new_ones():
    """In order, also where two have the same name; an atom that is gone is an error."""
    old = topology_of(("LIG", "C O C"), ("GLY", "N CA"))
    new = topology_of(("LIG", "C H O H C"), ("GLY", "N H CA HA"))
    assert _match(old, new, "x") == {0: 0, 1: 2, 2: 4, 3: 5, 4: 7}
    with pytest.raises(StructureError, match="x cannot be completed: atom CA of residue GLY 7 was lost"):
        _match(old, topology_of(("LIG", "C O C"), ("GLY", "N")), "x")

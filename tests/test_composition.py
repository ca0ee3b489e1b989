"""What a residue should hold: missing atoms are named, protonation states are complete."""

from __future__ import annotations

import pytest
from small_molecules import few_atoms
from structure_files import atom_lines, residue_number, the_note, write

from peptidyn.io.composition import Hydrogen, missing_atoms, standard_residues
from peptidyn.io.readers import load_structure


def test_missing_heavy_atoms_and_hydrogens_are_named(tmp_path, villin):
    drop = {(48, "NZ"), (48, "HZ1"), (48, "HZ2"), (48, "HZ3"), (47, "CZ"), (58, "HB2"), (76, "OXT")}
    lines = [x for x in atom_lines(villin) if (residue_number(x), x[12:16].strip()) not in drop]
    structure = load_structure(write(tmp_path, lines))
    missing = {str(structure.atoms.residue_id[m.residue]): (set(m.heavy), set(m.hydrogens)) for m in structure.missing}
    assert missing == {
        "47": ({"CZ"}, set()),
        "48": ({"NZ"}, set()),
        "58": (set(), {"HB2"}),
        "76": ({"OXT"}, set()),
    }
    text = the_note(structure, "missing-atoms")
    assert "LYS 48 lacks NZ" in text
    assert "PHE 76 lacks OXT" in text
    assert "PHE 58 lacks HB2" in the_note(structure, "missing-hydrogens")
    assert structure.missing_hydrogens


def test_missing_backbone_atom_is_named(tmp_path, villin):
    lines = [x for x in atom_lines(villin) if not (residue_number(x) == 55 and x[12:16].strip() == "C")]
    structure = load_structure(write(tmp_path, lines))
    assert "ARG 55 lacks C" in the_note(structure, "missing-atoms")
    assert "1 place where atoms are missing: chain A, residue ARG 55, atom C" in the_note(structure, "gap")


def test_protonation_states_count_as_complete(tmp_path, villin):
    """Neutral lysine, neutral amino end: nothing is missing. One hydrogen on the amino end: two are."""
    neutral = {(48, "HZ3"), (41, "H3")}
    lines = [x for x in atom_lines(villin) if (residue_number(x), x[12:16].strip()) not in neutral]
    assert len(lines) == 594
    assert not load_structure(write(tmp_path, lines)).missing_hydrogens
    lines = [x for x in lines if (residue_number(x), x[12:16].strip()) != (41, "H2")]
    assert "MET 41 lacks H2, H3" in the_note(load_structure(write(tmp_path, lines)), "missing-hydrogens")


def lacking(residues, bonds=(), chains=None, **options):
    """Return {residue: (heavy atoms, hydrogens)} that are missing."""
    atoms, _ = few_atoms([(name, dict.fromkeys(names.split(), (0, 0, 0))) for name, names in residues], bonds, chains,
                         **options)  # fmt: skip
    return {m.residue: (m.heavy, m.hydrogens) for m in missing_atoms(atoms)}


def inside(residue, *pairs):
    """Bonds within a residue: ``"N H"`` for N-H."""
    return [tuple(f"{residue} {name}" for name in pair.split()) for pair in pairs]


GLYCINE = "N CA C O H HA2 HA3"
GLYCINE_BONDS = ("N CA", "CA C", "C O", "N H", "CA HA2", "CA HA3")


def test_the_table_of_standard_residues():
    table = standard_residues()
    assert set(table["ALA"].heavy) == {"N", "CA", "C", "O", "CB"}
    assert set(table["SER"].heavy) == {"N", "CA", "C", "O", "CB", "OG"}
    assert {"P", "OP1", "OP2", "O5'", "O3'"} <= set(table["DA"].heavy)
    assert "OP3" not in table["DA"].heavy
    assert [name for name in ("ALA", "DA", "HOH", "ACE", "NME") if table[name].is_amino_acid] == ["ALA"]
    assert [name for name in ("ALA", "DA", "U", "HOH", "ACE", "NME") if table[name].is_nucleotide] == ["DA", "U"]
    assert not any(name[0] in "+-H" for residue in table.values() for name in residue.heavy)


def test_the_table_of_hydrogens():
    found = {(name, h.name): h for name, residue in standard_residues().items() for h in residue.hydrogens}
    assert found["HIS", "HD1"] == Hydrogen("HD1", "ND1", "", ("HID", "HIP"), float("inf"))
    assert found["ASP", "HD2"] == Hydrogen("HD2", "OD2", "", ("ASH",), 4.4)
    assert found["ALA", "H2"] == Hydrogen("H2", "N", "N", (), float("inf"))
    assert found["DA", "HO3'"].terminal == "C"


def test_residues_that_stand_for_any_are_not_judged():
    assert lacking([("UNK", "N CA C"), ("FOR", "C O"), ("LIG", "C1")]) == {}


def test_a_carboxyl_end_is_the_last_residue_of_its_chain():
    """Water after it, or another chain, changes nothing; a link from C does, and an amide after it too."""
    bonds = inside(0, *GLYCINE_BONDS) + inside(1, *GLYCINE_BONDS) + [("0 C", "1 N")]
    lone = {0: ((), ("H2", "H3")), 1: (("OXT",), ())}
    two = [("GLY", GLYCINE), ("GLY", GLYCINE)]
    assert lacking(two, bonds) == lone
    water = inside(2, "O H1", "O H2")
    assert lacking([*two, ("HOH", "O H1 H2")], bonds + water) == lone
    assert lacking([*two, ("HOH", "O H1 H2 N")], bonds + water) == lone
    assert lacking(two, bonds[:-1], "AB") == {r: (("OXT",), ("H2", "H3")) for r in (0, 1)}
    assert lacking([("GLY", GLYCINE), ("GLY", GLYCINE + " OXT")], bonds) == {0: ((), ("H2", "H3"))}
    assert lacking(two, [*bonds, ("0 N", "1 C")]) == {}
    amide = inside(2, "N HN1", "N HN2")
    assert lacking([*two, ("NH2", "N HN1 HN2")], bonds + amide) == {0: ((), ("H2", "H3"))}


def test_a_carboxyl_end_without_its_carbon_lacks_that_and_no_second_oxygen():
    bonds = inside(0, "N CA", "N H", "CA HA2", "CA HA3")
    assert lacking([("GLY", "N CA O H HA2 HA3")], bonds)[0][0] == ("C",)


@pytest.mark.parametrize("name", ["N", "CA"])
def test_a_carboxyl_end_may_lack_other_atoms(name):
    present = GLYCINE.replace(f"{name} ", "", 1)
    bonds = [b for b in inside(0, *GLYCINE_BONDS) if f"0 {name}" not in b]
    assert lacking([("GLY", present)], bonds)[0][0] == (name, "OXT")


@pytest.mark.parametrize(("hydrogens", "absent"), [
    ("", ("H", "H2", "H3")), ("H", ("H2", "H3")), ("H H2", ()), ("H H2 H3", ()), ("D1 D2", ()),
])  # fmt: skip
def test_an_amino_end_has_two_hydrogens_or_three(hydrogens, absent):
    names = f"N CA C O OXT HA2 HA3 {hydrogens}"
    bonds = inside(0, "N CA", "CA C", "C O", "C OXT", "CA HA2", "CA HA3", *(f"N {h}" for h in hydrogens.split()))
    assert lacking([("GLY", names)], bonds) == ({0: ((), absent)} if absent else {})


@pytest.mark.parametrize(("hydrogens", "absent"), [("", ("H2", "H3")), ("H2", ()), ("H2 H3", ())])
def test_the_amino_end_of_proline(hydrogens, absent):
    names = f"N CA C O OXT CB CG CD HA HB2 HB3 HG2 HG3 HD2 HD3 {hydrogens}"
    pairs = ["N CA", "CA C", "C O", "C OXT", "CA CB", "CB CG", "CG CD", "CD N", "CA HA"]
    pairs += [f"C{k} H{k}{n}" for k in "BGD" for n in (2, 3)] + [f"N {h}" for h in hydrogens.split()]
    assert lacking([("PRO", names)], inside(0, *pairs)) == ({0: ((), absent)} if absent else {})


def test_only_chain_ends_may_be_neutral():
    """An amide that carries one hydrogen of two lacks the other; N within a chain lacks its only one."""
    assert lacking([("NH2", "N HN1")], inside(0, "N HN1")) == {0: ((), ("HN2",))}
    two = [("GLY", "N CA C O H H2 H3 HA2 HA3"), ("GLY", "N CA C O OXT HA2 HA3")]
    bonds = inside(0, *GLYCINE_BONDS, "N H2", "N H3") + [("0 C", "1 N")]
    bonds += inside(1, "N CA", "CA C", "C O", "C OXT", "CA HA2", "CA HA3")
    assert lacking(two, bonds) == {1: ((), ("H",))}


def test_hydrogens_are_counted_whatever_their_names():
    names, pairs = "N CA C O OXT X1 X2 X3 X4 HA2", ("N X1", "N X2", "N X3", "CA X4", "CA HA2")
    bonds = inside(0, "N CA", "CA C", "C O", "C OXT", *pairs)
    elements = {f"X{k}": "D" for k in range(1, 5)}
    assert lacking([("GLY", names)], bonds, elements=elements) == {}
    fewer = [b for b in bonds if "0 HA2" not in b]
    assert lacking([("GLY", names.replace(" HA2", ""))], fewer, elements=elements) == {0: ((), ("HA2",))}


def test_protonation_never_counts_as_missing():
    """Histidine, acids and cysteine need none of the hydrogens that a state or the pH may take."""
    for name, parent in (("HIS", "ND1"), ("ASP", "OD2"), ("CYS", "SG"), ("LYS", "NZ")):
        found = lacking([(name, f"CA {parent}")])[0][1]
        assert not {"HD1", "HE2", "HD2", "HG", "HZ3"}.intersection(found), name
    assert lacking([("LYS", "CA NZ")])[0][1] == ("HA", "HZ1", "HZ2")


SUGAR = inside(0, "O5' C5'", "O3' C3'")


@pytest.mark.parametrize(("more", "bonds", "phosphate", "hydrogens"), [
    ("", [], set(), {"HO5'", "HO3'"}),  # a free hydroxyl on either end
    ("", [("0 O5'", "1 P")], {"P", "OP1", "OP2"}, {"HO3'"}),
    (" OP1", [], {"P", "OP2"}, {"HO5'", "HO3'"}),
    (" P OP1 OP2", inside(0, "P O5'", "P OP1", "P OP2"), set(), {"HO3'"}),
    ("", [("0 O3'", "1 P")], set(), {"HO5'"}),
    (" HO5'", inside(0, "O5' HO5'"), set(), {"HO3'"}),
])  # fmt: skip
def test_ends_of_nucleotides(more, bonds, phosphate, hydrogens):
    residues = [("DA", f"O5' C5' O3' C3'{more}"), ("LIG", "P")]
    heavy, light = lacking(residues, [*SUGAR, *bonds], "AB")[0]
    assert {"P", "OP1", "OP2"}.intersection(heavy) == phosphate
    assert {"HO5'", "HO3'"}.intersection(light) == hydrogens

"""What a residue should hold: missing atoms are named, protonation states are complete."""

from __future__ import annotations

from structure_files import atom_lines, residue_number, the_note, write

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

"""Alternate locations: one conformer is chosen, and conformers are never mixed."""

from __future__ import annotations

import numpy as np
import pytest
from structure_files import atom_lines, deuterated, the_note, with_alternates, write

from peptidyn.io.altlocs import Site, choose_locations, site_name
from peptidyn.io.readers import load_structure


def test_microheterogeneity(further_structure):
    structure = load_structure(further_structure("altlocs.pdb"))
    assert structure.atoms.residue_name.tolist() == ["LEU"]
    assert structure.n_atoms == 19
    assert "LEU C rather than ILE" in the_note(structure, "altloc")


@pytest.mark.parametrize(
    ("occupancies", "chosen"), [((0.3, 0.7), 1), ((0.7, 0.3), 0), ((0.5, 0.5), 0), ((0.2, 0.4, 0.4), 1)]
)
def test_the_most_occupied_conformer_is_taken_whole(tmp_path, villin, occupancies, chosen):
    lines = atom_lines(villin)
    plain = load_structure(villin)
    letters = "ABC"[: len(occupancies)]
    structure = load_structure(write(tmp_path, with_alternates(lines, 50, letters, occupancies)))
    assert structure.atoms.name.tolist() == plain.atoms.name.tolist()
    moved = np.round((structure.positions - plain.positions)[:, 2], 6)
    in_residue = plain.atoms.residue_id[plain.atoms.residue] == "50"
    np.testing.assert_allclose(moved[in_residue], 0.01 * chosen, atol=1e-9)
    np.testing.assert_allclose(moved[~in_residue], 0.0, atol=1e-9)
    assert f"VAL {letters[chosen]}" in the_note(structure, "altloc")


def test_conformers_are_never_mixed(tmp_path, villin):
    """B is more occupied and lacks the side chain's end: A must not lend it."""
    lines = with_alternates(atom_lines(villin), 50, "AB", (0.4, 0.6))
    lines = [x for x in lines if not (x[16] == "B" and x[12:16].strip() in {"CG1", "HG11", "HG12", "HG13"})]
    structure = load_structure(write(tmp_path, lines))
    residue = structure.atoms.residue_id.tolist().index("50")
    assert "CG1" not in structure.atoms.residue_atoms[residue]
    assert "VAL 50 lacks CG1" in the_note(structure, "missing-atoms")


def test_atoms_without_a_letter_stay(tmp_path, villin):
    side = {"CB", "CG1", "CG2"}
    lines = with_alternates(atom_lines(villin), 50, "AB", (0.4, 0.6), only=side)
    structure = load_structure(write(tmp_path, lines))
    assert structure.n_atoms == 596


def test_second_conformer_listed_after_the_chain(tmp_path, villin):
    lines = with_alternates(atom_lines(villin), 50, "AB", (0.6, 0.4))
    scattered = [x for x in lines if x[16] != "B"] + [x for x in lines if x[16] == "B"]
    structure = load_structure(write(tmp_path, scattered))
    np.testing.assert_allclose(structure.positions, load_structure(villin).positions, atol=1e-12)


def test_half_exchanged_hydrogens_are_alternates(tmp_path, villin):
    lines = []
    for line in atom_lines(villin):
        if line[12:16] == " H  ":
            lines.append(f"{line[:16]}A{line[17:54]}  0.40{line[60:]}")
            line = deuterated(line, "B", 0.6)
        lines.append(line)
    structure = load_structure(write(tmp_path, lines))
    assert structure.n_atoms == 596
    assert (structure.atoms.element == "D").sum() == 34


def test_unrelated_disorder_in_one_residue():
    """Letters C and D name atoms that A and B do not: one of each is chosen."""
    sites = [Site(0, "residue 1", "LYS", "CB", letter, occ) for letter, occ in (("A", 0.4), ("B", 0.6))]
    sites += [Site(0, "residue 1", "LYS", "NZ", letter, occ) for letter, occ in (("C", 0.7), ("D", 0.3))]
    sites.append(Site(0, "residue 1", "LYS", "CA", "", 1.0))
    kept, choices = choose_locations(sites)
    assert [(sites[i].name, sites[i].altloc) for i in kept] == [("CB", "B"), ("NZ", "C"), ("CA", "")]
    assert choices == ["residue 1: LYS C+B"]


def test_blank_counts_as_a_letter_where_an_atom_has_both():
    sites = [
        Site(0, "residue 1", "SER", "CA", "", 1.0),
        Site(0, "residue 1", "SER", "OG", "", 0.3),
        Site(0, "residue 1", "SER", "OG", "B", 0.7),
    ]
    kept, _ = choose_locations(sites)
    assert kept == [0, 2]


def site(residue_name, name, altloc, occupancy, residue=0):
    return Site(residue, f"residue {residue + 1}", residue_name, name, altloc, occupancy)


def test_the_mean_occupancy_decides():
    """A has the larger sum, the largest value and the larger first value; its mean is 0.5, that of B 0.6."""
    sites = [site("VAL", name, "A", occ) for name, occ in (("CB", 0.9), ("CG1", 0.4), ("CG2", 0.2))]
    sites.append(site("VAL", "CB", "B", 0.6))
    assert choose_locations(sites) == ([3], ["residue 1: VAL B"])


def test_the_blank_can_win():
    sites = [site("SER", "OG", "", 0.7), site("SER", "OG", "B", 0.3), site("SER", "CA", "", 1.0)]
    assert choose_locations(sites) == ([0, 2], ["residue 1: SER (blank)"])


def test_of_two_residues_at_one_site_one_goes_even_where_they_share_no_atom():
    sites = [site("SER", "OG", "A", 0.4), site("CYS", "SG", "B", 0.6), site("SER", "N", "A", 0.4)]
    assert choose_locations(sites) == ([1], ["residue 1: CYS B rather than SER"])


def test_two_residues_under_one_letter_are_two_conformers():
    sites = [site("SER", "CB", "A", 0.3), site("SER", "OG", "A", 0.3)]
    sites += [site("CYS", "CB", "A", 0.7), site("CYS", "SG", "A", 0.7)]
    assert choose_locations(sites) == ([2, 3], ["residue 1: CYS A rather than SER"])


def test_a_letter_without_an_alternative_is_no_choice():
    sites = [site("SER", "CB", "A", 0.5), site("SER", "OG", "B", 0.5), site("GLY", "CA", "", 1.0, residue=1)]
    assert choose_locations(sites) == ([0, 1, 2], [])


def test_a_letter_that_repeats_one_atom_of_many_is_out():
    """C names an atom of B again, and one that nobody else has: it is another conformer of the whole."""
    sites = [site("LYS", "CB", "B", 0.6), site("LYS", "CG", "B", 0.6)]
    sites += [site("LYS", "CG", "C", 0.4), site("LYS", "NZ", "C", 0.4)]
    assert choose_locations(sites) == ([0, 1], ["residue 1: LYS B"])


def test_every_residue_chooses_for_itself():
    sites = [site("SER", "OG", letter, occ, r) for r, (a, b) in enumerate([(0.2, 0.8), (0.9, 0.1)])
             for letter, occ in (("A", a), ("B", b))]  # fmt: skip
    assert choose_locations(sites) == ([1, 2], ["residue 1: SER B", "residue 2: SER A"])


@pytest.mark.parametrize(
    ("name", "element", "compared"),
    [("D", "D", "H"), ("DA", "D", "HA"), ("DD21", " D", "HD21"), ("DB2", "d", "HB2"), ("HA", "D", "HA"),
     ("DG", "C", "DG"), ("CD", "C", "CD"), ("H", "H", "H")],
)  # fmt: skip
def test_deuterium_is_compared_as_hydrogen(name, element, compared):
    assert site_name(name, element) == compared

"""Structure files of a few atoms: completion, packed files, extra particles, overlaps, and what notes say of them."""

from __future__ import annotations

import bz2
import gzip

import numpy as np
import pytest
from structure_files import hetatm, the_note

import peptidyn as ptd
from peptidyn.core.errors import StructureError
from peptidyn.core.units import plain_array
from peptidyn.io.readers import load_structure

CELL = "CRYST1   20.000   22.000   24.000  90.00  90.00  90.00 P 1           1"


def save(tmp_path, *lines, name="x.pdb"):
    path = tmp_path / name
    path.write_text("\n".join([*lines, "END", ""]))
    return path


def water(number, x, y, z, chain="W", site=None):
    """Lines of a water at these coordinates (A), with an M site 0.15 A beside its O if asked for."""
    lines = [
        hetatm(1, "O", "HOH", chain, number, (x, y, z), "O"),
        hetatm(2, "H1", "HOH", chain, number, (x + 0.957, y, z), "H"),
        hetatm(3, "H2", "HOH", chain, number, (x - 0.24, y + 0.927, z), "H"),
    ]
    if site is not None:
        lines.append(f"{hetatm(4, 'M', 'HOH', chain, number, site, 'EP')[:76]}")
    return lines


@pytest.fixture(scope="module")
def selenium(tmp_path_factory):
    """ACE, ALA, MSE, ALA and NME with all their hydrogens."""
    path = tmp_path_factory.mktemp("selenium") / "x.pdb"
    ptd.build_peptide("AMA").write(path)
    text = path.read_text().replace(" SD  MET", " SE  MET").replace(" MET ", " MSE ")
    path.write_text(text.replace("           S", "          SE"))
    return path


# ---------------------------------------------------------------------------- completion


@pytest.mark.parametrize(
    ("without_hydrogen", "add_hydrogens", "residue"),
    [
        (False, False, "MSE"),
        (False, None, "MSE"),
        (False, True, "MET"),
        (True, False, "MSE"),
        (True, None, "MET"),
        (True, True, "MET"),
    ],
)
def test_a_structure_is_completed_if_asked_for_or_if_needed(
    tmp_path, selenium, without_hydrogen, add_hydrogens, residue
):
    lines = [
        line
        for line in selenium.read_text().splitlines()
        if not (without_hydrogen and line[12:16] == " HA " and "ALA A   4" in line)
    ]
    structure = load_structure(save(tmp_path, *lines[:-1]), add_hydrogens=add_hydrogens)
    assert structure.atoms.residue_name.tolist() == ["ACE", "ALA", residue, "ALA", "NME"]
    left_out = without_hydrogen and add_hydrogens is False
    assert structure.n_atoms == 49 - left_out and structure.missing_hydrogens == left_out
    assert len(list(structure.notes_of("missing-hydrogens"))) == left_out and structure.name == "x.pdb"


def test_the_ph_and_the_states_of_the_file_decide_on_hydrogens(tmp_path):
    """GLU carries a proton at pH 2; GLH, or HID, of the file decides in any case."""
    path = tmp_path / "x.pdb"
    ptd.build_peptide("EH").write(path)
    lines = [line for line in path.read_text().splitlines() if line.startswith("HETATM") or line.startswith("ATOM")]
    heavy = [line for line in lines if line[76:78].strip() != "H"]

    def hydrogens(residue, pH=7.0, names=()):
        changed = heavy
        for old, new in names:
            changed = [line.replace(f" {old} ", f" {new} ") for line in changed]
        atoms = load_structure(save(tmp_path, *changed), add_hydrogens=True, pH=pH).atoms
        return {name for name in atoms.residue_atoms[residue] if name in ("HE2", "HD1")}

    assert hydrogens(1) == set() and hydrogens(1, pH=2.0) == {"HE2"} == hydrogens(1, names=[("GLU", "GLH")])
    assert hydrogens(2, pH=2.0) == {"HD1", "HE2"} == hydrogens(2, names=[("HIS", "HIP")])
    assert hydrogens(2, names=[("HIS", "HID")]) == {"HD1"} and hydrogens(2, names=[("HIS", "HIE")]) == {"HE2"}


# ---------------------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("name", "pack"),
    [("x.pdb.bz2", bz2.compress), ("X.PDB.GZ", gzip.compress), ("X.ENT.BZ2", bz2.compress), ("x.Pdb", bytes)],
)
def test_packed_files_whatever_the_case_of_their_names(tmp_path, name, pack):
    text = "\n".join(water(1, 1.0, 2.0, 3.0)).encode()
    (tmp_path / name).write_bytes(pack(text))
    structure = load_structure(tmp_path / name)
    assert structure.n_atoms == 3 and structure.positions[0] == pytest.approx([0.1, 0.2, 0.3])
    assert structure.name == name


def test_packed_by_the_other_program(tmp_path):
    for name, pack, kind in (("x.pdb.gz", bz2.compress, "gzip"), ("x.pdb.bz2", gzip.compress, "bzip2")):
        (tmp_path / name).write_bytes(pack("\n".join(water(1, 1.0, 2.0, 3.0)).encode()))
        with pytest.raises(StructureError, match=rf"cannot unpack {name} \(.*\); is it cut short, or not {kind}"):
            load_structure(tmp_path / name)


def test_remarks_in_old_encodings(tmp_path):
    (tmp_path / "x.pdb").write_bytes(b"REMARK   Universit\xe4t\n" + "\n".join(water(1, 1.0, 2.0, 3.0)).encode())
    assert load_structure(tmp_path / "x.pdb").n_atoms == 3


def test_comments_before_the_data_of_mmcif(tmp_path):
    structure = ptd.build_peptide("A")
    structure.write(tmp_path / "x.cif")
    text = (tmp_path / "x.cif").read_text()
    for begin in ("# a comment\n\n", "\n  \n"):
        (tmp_path / "y.cif").write_text(begin + text)
        assert load_structure(tmp_path / "y.cif").n_atoms == structure.n_atoms


# ---------------------------------------------------------------------------- extra particles


def two_waters():
    """A methane-like pair, a whole water, and one whose hydrogens are at the other side of the box, each with M."""
    pair = [hetatm(1, "C1", "LIG", "A", 1, (5.0, 5.0, 5.0), "C"), hetatm(2, "C2", "LIG", "A", 1, (6.5, 5.0, 5.0), "C")]
    split = water(2, 0.2, 10.0, 10.0, site=(20.25, 10.1, 10.0))
    split[0] = hetatm(1, "O", "HOH", "W", 2, (20.2, 10.0, 10.0), "O")
    return [CELL, *pair, *water(1, 10.0, 10.0, 10.0, site=(10.1, 10.1, 10.0)), *split]


def test_extra_particles_are_left_out(tmp_path):
    structure = load_structure(save(tmp_path, *two_waters()))
    assert structure.atoms.name.tolist() == ["C1", "C2", *["O", "H1", "H2"] * 2] and structure.virtual_sites == {}
    assert structure.atoms.bonds.tolist() == [[0, 1], [2, 3], [2, 4], [5, 6], [5, 7]]
    assert structure.positions[2] == pytest.approx([1.0, 1.0, 1.0])
    said = the_note(structure, "dropped")
    assert said.startswith("2 extra particles of water, which have no mass, left out: chain W, residue HOH 1, atom M; ")
    assert "moved to another periodic image" in the_note(structure, "box")


def test_extra_particles_stay_beside_their_water(tmp_path):
    """The water at the wall is put together: its O, which comes first, stays where it is, and so does its M."""
    structure = load_structure(save(tmp_path, *two_waters()), extra_particles=True)
    assert structure.atoms.name.tolist() == ["C1", "C2", *["O", "H1", "H2", "M"] * 2]
    assert structure.virtual_sites == {5: (2, 3, 4), 9: (6, 7, 8)} and not list(structure.notes_of("dropped"))
    assert structure.masses[[5, 9]].tolist() == [0.0, 0.0]
    assert structure.atoms.bonds.tolist() == [[0, 1], [2, 3], [2, 4], [6, 7], [6, 8]]
    assert plain_array(structure.topology.getPeriodicBoxVectors()).diagonal() == pytest.approx([2.0, 2.2, 2.4])
    x = structure.positions
    assert x[5] == pytest.approx([1.01, 1.01, 1.0])
    assert np.linalg.norm(x[7] - x[6]) == pytest.approx(0.0957, abs=1e-6)
    assert x[6] == pytest.approx([2.02, 1.0, 1.0]) and x[9] == pytest.approx([2.025, 1.01, 1.0])


def test_extra_particles_go_with_the_first_atom_of_their_water(tmp_path):
    """H1 and M were read at the other side of the box, of 2 nm along x: both come to O and H2, which stay."""
    lines = water(1, 19.9, 10.0, 10.0, site=(0.3, 10.0, 10.0))
    lines[1] = hetatm(2, "H1", "HOH", "W", 1, (0.857, 10.0, 10.0), "H")
    structure = load_structure(save(tmp_path, CELL, lines[1], lines[2], lines[0], lines[3]), extra_particles=True)
    assert structure.atoms.name.tolist() == ["H1", "H2", "O", "M"]
    assert structure.positions[:, 0] == pytest.approx([2.0857, 1.966, 1.99, 2.03])
    assert "1 atom moved to another periodic image" in the_note(structure, "box")


def test_particles_without_an_element_elsewhere_are_refused(tmp_path):
    lines = [hetatm(1, "C1", "LIG", "A", 1, (5, 5, 5), "C"), hetatm(2, "XX", "LIG", "A", 1, (6, 5, 5), "EP")[:76]]
    for extra_particles in (False, True):
        with pytest.raises(StructureError, match=r"element of chain A, residue LIG 1, atom XX is unknown"):
            load_structure(save(tmp_path, *lines), extra_particles=extra_particles)


# ---------------------------------------------------------------------------- notes


def test_atoms_of_two_molecules_at_one_place_are_noted(tmp_path):
    lines = [*water(1, 5.0, 5.0, 5.0), *water(2, 9.0, 9.0, 9.0), *water(3, 5.0, 5.0, 5.0)]
    structure = load_structure(save(tmp_path, *lines))
    (note,) = structure.notes_of("overlap")
    label = "chain W, residue HOH {}, atom {}".format
    pairs = "; ".join(f"{label(1, name)} and {label(3, name)}" for name in ("O", "H1", "H2"))
    assert note.text == f"atoms of different molecules are at the same place: {pairs}"
    assert note.atoms == (0, 6, 1, 7, 2, 8)
    near = water(1, 5.0, 5.0, 5.0)
    near[2] = f"{near[2][:30]}{near[1][30:54]}{near[2][54:]}"
    with pytest.raises(StructureError, match=r"atom H1 and .*atom H2 of one molecule are at the same place"):
        load_structure(save(tmp_path, *near))


def test_what_is_missing_is_counted_and_named(tmp_path):
    path = tmp_path / "x.pdb"
    ptd.build_peptide("SV").write(path)
    gone = {("SER", "HA"), ("SER", "HG"), ("VAL", "H"), ("VAL", "CG1")}
    lines = [line for line in path.read_text().splitlines() if (line[17:20], line[12:16].strip()) not in gone]
    structure = load_structure(save(tmp_path, *lines[:-1]))
    heavy, hydrogens = (next(structure.notes_of(kind)) for kind in ("missing-atoms", "missing-hydrogens"))
    assert heavy.text == "1 heavy atom missing in 1 residue: chain A, residue VAL 3 lacks CG1"
    begin, _, rest = hydrogens.text.partition(": ")
    first, second = rest.split("; ")
    assert first == "chain A, residue SER 2 lacks HA, HG" and second.startswith("chain A, residue VAL 3 lacks H")
    assert begin == f"{2 + len(second.split(', ')) - 1} hydrogens missing in 2 residues"
    residue = structure.atoms.residue
    assert heavy.atoms == tuple(np.flatnonzero(residue == 2).tolist())
    assert sorted(hydrogens.atoms) == np.flatnonzero((residue == 1) | (residue == 2)).tolist()


def test_residues_that_get_standard_names_are_counted(tmp_path):
    lines = [line.replace("HOH", "WAT") for k in range(3) for line in water(k, 4.0 * k, 0.0, 0.0)]
    lines += [line.replace("HOH", "SOL") for line in water(7, 0.0, 8.0, 0.0)] + water(8, 4.0, 8.0, 0.0)
    structure = load_structure(save(tmp_path, *lines))
    text = "residue names were made standard, their atoms stay as they are: WAT to HOH (3), SOL to HOH (1)"
    assert the_note(structure, "renamed") == text
    assert structure.atoms.residue_name.tolist() == ["HOH"] * 5

"""Structure files: what is read, what is noticed, what is refused, what is completed, what is written."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from conftest import OPENMM_DATA
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from peptidyn.core.errors import ArgumentError, OutputError, SelectionError, StructureError
from peptidyn.io.altlocs import Site, choose_locations
from peptidyn.io.bonding import PEPTIDE_BOND_LIMIT
from peptidyn.io.readers import load_structure
from peptidyn.io.structure import Structure

WATER_BOX_MOLECULES = 895


# ---------------------------------------------------------------------- small files made from real ones


def atom_lines(path):
    return [line for line in path.read_text().splitlines() if line.startswith(("ATOM", "HETATM"))]


def residue_number(line):
    return int(line[22:26])


def write(tmp_path, lines, name="x.pdb"):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return path


def shifted(line, dx=0.0, dy=0.0, dz=0.0):
    x, y, z = (float(line[a : a + 8]) + d for a, d in ((30, dx), (38, dy), (46, dz)))
    return f"{line[:30]}{x:8.3f}{y:8.3f}{z:8.3f}{line[54:]}"


def hetatm(serial, name, residue, chain, number, xyz, element):
    field = f" {name:<3}" if len(element) == 1 and len(name) < 4 else f"{name:<4}"
    x, y, z = xyz
    return (
        f"HETATM{serial:5d} {field} {residue:>3} {chain}{number:4d}    {x:8.3f}{y:8.3f}{z:8.3f}"
        f"  1.00  0.00          {element:>2}"
    )


BENZENE = [
    (f"C{k + 1}", (1.39 * np.cos(np.pi / 3 * k) + 40, 1.39 * np.sin(np.pi / 3 * k) + 40, 40.0), "C") for k in range(6)
] + [(f"H{k + 1}", (2.48 * np.cos(np.pi / 3 * k) + 40, 2.48 * np.sin(np.pi / 3 * k) + 40, 40.0), "H") for k in range(6)]


def kinds(structure):
    return Counter(note.kind for note in structure.notes)


def the_note(structure, kind):
    (note,) = structure.notes_of(kind)
    return note.text


def bonded_names(structure, residue):
    """The bonds inside one residue, as sets of names."""
    atoms = structure.atoms
    return {
        frozenset((str(atoms.name[i]), str(atoms.name[j])))
        for i, j in atoms.bonds.tolist()
        if atoms.residue[i] == atoms.residue[j] == residue
    }


def molecules(structure):
    n, bonds = structure.n_atoms, structure.atoms.bonds
    return connected_components(coo_matrix((np.ones(len(bonds)), bonds.T), shape=(n, n)), directed=False)


def named_bonds(structure):
    return {tuple(sorted((structure.atoms.label(i), structure.atoms.label(j)))) for i, j in structure.atoms.bonds}


def bond_lengths(structure):
    i, j = structure.atoms.bonds.T
    return np.linalg.norm(structure.positions[i] - structure.positions[j], axis=1)


# ---------------------------------------------------------------------- every file


def test_every_file_loads_with_sound_bonds(structure_file):
    structure = load_structure(structure_file)
    atoms = structure.atoms
    assert structure.positions.shape == (structure.n_atoms, 3)
    assert structure.positions.dtype == np.float64
    assert not structure.positions.flags.writeable
    assert np.isfinite(structure.positions).all()
    assert (structure.masses > 0).all()
    assert structure.topology.getNumAtoms() == structure.n_atoms
    topology_bonds = sorted(tuple(sorted((b[0].index, b[1].index))) for b in structure.topology.bonds())
    assert topology_bonds == [tuple(pair) for pair in atoms.bonds.tolist()]
    if "long-bond" not in kinds(structure):
        assert bond_lengths(structure).max(initial=0.0) < 0.3
    assert bond_lengths(structure).min(initial=1.0) > 0.05
    # A hydrogen has one bond, a carbon no more than four.
    for i, element in enumerate(atoms.element.tolist()):
        if element == "H":
            assert len(atoms.neighbours[i]) == 1, atoms.label(i)
        elif element == "C":
            assert len(atoms.neighbours[i]) <= 4, atoms.label(i)
    stray = {a for note in structure.notes_of("stray") for a in note.atoms}
    for i in range(structure.n_atoms):
        alone = len(atoms.residue_atoms[int(atoms.residue[i])]) == 1
        assert atoms.neighbours[i] or alone or i in stray, atoms.label(i)


def test_positions_are_those_of_the_file(structure_file):
    if structure_file.suffix != ".pdb":
        pytest.skip("columns of a PDB file")
    structure = load_structure(structure_file)
    if kinds(structure)["altloc"] or kinds(structure)["models"] or kinds(structure)["dropped"]:
        pytest.skip("not all lines are read")
    lines = atom_lines(structure_file)
    in_file = np.array([[float(line[a : a + 8]) for a in (30, 38, 46)] for line in lines])
    np.testing.assert_allclose(structure.positions, 0.1 * in_file, rtol=0, atol=1e-12)


def test_loading_twice_gives_the_same(structure_file):
    first, second = load_structure(structure_file), load_structure(structure_file)
    assert np.array_equal(first.positions, second.positions)
    assert np.array_equal(first.masses, second.masses)
    assert np.array_equal(first.atoms.bonds, second.atoms.bonds)
    assert first.notes == second.notes


def test_completion_of_every_file(structure_file):
    before = load_structure(structure_file)
    after = load_structure(structure_file, add_hydrogens=True)
    assert not after.missing_hydrogens
    assert not after.missing_heavy_atoms
    assert "missing-hydrogens" not in kinds(after)
    assert "missing-atoms" not in kinds(after)
    old = {before.atoms.label(i).replace("MSE", "MET").replace("atom SE", "atom SD"): i for i in range(before.n_atoms)}
    new = {after.atoms.label(i): i for i in range(after.n_atoms)}
    if "dropped" not in kinds(after):
        assert old.keys() <= new.keys()
    if len(old) == before.n_atoms:  # labels are unique
        shared = sorted(old.keys() & new.keys())
        moved = after.positions[[new[s] for s in shared]] - before.positions[[old[s] for s in shared]]
        assert np.abs(moved).max() == 0.0


# ---------------------------------------------------------------------- what the files are known to hold


def test_villin_in_water():
    structure = load_structure(OPENMM_DATA / "test.pdb")
    assert structure.n_atoms == 8867
    count, _ = molecules(structure)
    waters = int((structure.atoms.residue_name == "HOH").sum())
    ions = int(np.isin(structure.atoms.residue_name, ["Cl", "Na"]).sum())
    assert count == 1 + waters + ions
    assert structure.topology.getPeriodicBoxVectors() is not None
    assert not structure.missing_hydrogens


def test_water_box_is_one_molecule_per_water():
    structure = load_structure(OPENMM_DATA / "tip3p.pdb")
    count, label = molecules(structure)
    assert count == WATER_BOX_MOLECULES
    assert (np.bincount(label) == 3).all()


@pytest.mark.parametrize(("model", "sites"), [("tip4pew", 4), ("tip5p", 5), ("swm4ndp", 5)])
def test_extra_particles_of_water_are_left_out(model, sites):
    structure = load_structure(OPENMM_DATA / f"{model}.pdb")
    assert structure.n_atoms == 3 * WATER_BOX_MOLECULES
    assert f"{(sites - 3) * WATER_BOX_MOLECULES} extra particles" in the_note(structure, "dropped")


def test_bpti_has_three_disulfides(further_structure):
    structure = load_structure(further_structure("bpti.pdb"))
    assert kinds(structure) == {"disulfide": 3}
    sulfurs = np.flatnonzero(structure.atoms.name == "SG")
    assert all(len(structure.atoms.neighbours[s]) == 2 for s in sulfurs)


def test_the_same_entry_as_pdb_and_as_mmcif(further_structure):
    pdb, cif = (load_structure(further_structure(f"1A8O.{suffix}")) for suffix in ("pdb", "cif"))
    assert cif.n_atoms == pdb.n_atoms == 644
    for column in ("name", "element", "residue", "residue_name", "residue_id", "residue_chain", "chain_id", "bonds"):
        np.testing.assert_array_equal(getattr(cif.atoms, column), getattr(pdb.atoms, column), err_msg=column)
    np.testing.assert_allclose(cif.positions, pdb.positions, rtol=0, atol=1e-12)
    assert pdb.atoms.chain_id.tolist() == ["A", "A"]
    assert kinds(pdb)["disulfide"] == kinds(cif)["disulfide"] == 1
    assert kinds(pdb)["gap"] == 0
    box = [s.topology.getPeriodicBoxVectors() for s in (pdb, cif)]
    np.testing.assert_allclose(*(np.array([[x for x in v] for v in b._value]) for b in box), atol=1e-6)


def test_stray_atom_at_the_end_of_trp_cage(further_structure):
    structure = load_structure(further_structure("1l2y.pdb"))
    assert structure.n_atoms == 305
    count, label = molecules(structure)
    assert count == 2
    assert (label == label[304]).sum() == 1
    assert "ALA 21 lacks C, CA, O, CB" in the_note(structure, "missing-atoms")
    assert "SER 20, atom HG and chain B, residue ALA 21, atom N" in the_note(structure, "overlap")
    complete = load_structure(further_structure("1l2y.pdb"), add_hydrogens=True)
    assert complete.n_atoms == 304
    assert "ALA 21" in the_note(complete, "dropped")
    assert kinds(complete) == {"dropped": 1}


def test_crystal_structure_is_completed_for_a_force_field(further_structure):
    from openmm.app import ForceField

    structure = load_structure(further_structure("1A8O.pdb"), add_hydrogens=True)
    assert "MSE 151" in the_note(structure, "renamed")
    assert not (structure.atoms.residue_name == "MSE").any()
    system = ForceField("amber14-all.xml", "amber14/tip3p.xml").createSystem(structure.topology)
    assert system.getNumParticles() == structure.n_atoms


# ---------------------------------------------------------------------- alternate locations


def test_microheterogeneity(further_structure):
    structure = load_structure(further_structure("altlocs.pdb"))
    assert structure.atoms.residue_name.tolist() == ["LEU"]
    assert structure.n_atoms == 19
    assert "LEU C rather than ILE" in the_note(structure, "altloc")


def with_alternates(lines, number, letters, occupancies, residue_names=None, only=None):
    """Repeat the atoms of one residue under several letters, each copy shifted by 0.1 A more along z."""
    out = []
    for line in lines:
        if residue_number(line) != number or (only is not None and line[12:16].strip() not in only):
            out.append(line)
            continue
        for k, (letter, occupancy) in enumerate(zip(letters, occupancies, strict=True)):
            name = residue_names[k] if residue_names else line[17:20]
            copy = shifted(line, dz=0.1 * k)
            out.append(f"{copy[:16]}{letter}{name}{copy[20:54]}{occupancy:6.2f}{copy[60:]}")
    return out


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


def test_alternates_in_mmcif(tmp_path, villin):
    lines = with_alternates(atom_lines(villin), 50, "AB", (0.4, 0.6), residue_names=["VAL", "VAL"])
    expected = load_structure(write(tmp_path, lines))
    path = tmp_path / "x.cif"
    path.write_text(mmcif_text(lines))
    structure = load_structure(path)
    np.testing.assert_allclose(structure.positions, expected.positions, atol=1e-12)
    assert the_note(structure, "altloc") == the_note(expected, "altloc")


def mmcif_text(lines, *, chain=None, extra="", model="1"):
    """The atoms of PDB lines as an mmCIF file with author's and label names, as the archive writes them."""
    columns = (
        "group_PDB id type_symbol label_atom_id label_alt_id label_comp_id label_asym_id label_seq_id "
        "pdbx_PDB_ins_code Cartn_x Cartn_y Cartn_z occupancy auth_seq_id auth_asym_id pdbx_PDB_model_num"
    ).split()
    rows, numbers = [], {}
    for line in lines:
        polymer = line.startswith("ATOM")
        number = numbers.setdefault(line[21:27], len(numbers) + 1)
        name = line[12:16].strip()
        row = [
            line[:6].strip(), line[6:11].strip(), line[76:78].strip() or "?",
            f'"{name}"' if "'" in name else name, line[16].strip() or ".", line[17:20].strip(),
            "A" if polymer else "B", str(number) if polymer else ".", line[26].strip() or "?",
            line[30:38].strip(), line[38:46].strip(), line[46:54].strip(), line[54:60].strip(), line[22:26].strip(),
            chain or line[21], model,
        ]  # fmt: skip
        rows.append(" ".join(row))
    header = "\n".join(f"_atom_site.{c}" for c in columns)
    return f"data_X\n#\n{extra}loop_\n{header}\n" + "\n".join(rows) + "\n#\n"


# ---------------------------------------------------------------------- names, chains, models, boxes


def test_insertion_codes_make_residues_of_their_own(tmp_path, villin):
    """Residues 51, 52, 53 become 51, 51A, 51B."""
    codes = {52: "A", 53: "B"}
    lines = [
        f"{line[:22]}  51{codes[residue_number(line)]}{line[27:]}" if residue_number(line) in codes else line
        for line in atom_lines(villin)
    ]
    plain, structure = load_structure(villin), load_structure(write(tmp_path, lines))
    assert structure.atoms.residue_id.tolist()[9:14] == ["50", "51", "51A", "51B", "54"]
    np.testing.assert_array_equal(structure.atoms.bonds, plain.atoms.bonds)
    cif = tmp_path / "x.cif"
    cif.write_text(mmcif_text(lines))
    from_cif = load_structure(cif)
    assert from_cif.atoms.residue_id.tolist() == structure.atoms.residue_id.tolist()
    np.testing.assert_array_equal(from_cif.atoms.bonds, plain.atoms.bonds)


def test_blank_chain_names_and_several_chains(tmp_path, villin):
    lines = atom_lines(villin)
    first = [f"{line[:21]} {line[22:]}" for line in lines]
    second = [shifted(f"{line[:21]}B{line[22:]}", dx=60.0) for line in lines]
    structure = load_structure(write(tmp_path, [*first, "TER", *second, "TER"]))
    assert [c.strip() for c in structure.atoms.chain_id.tolist()] == ["", "B"]
    assert structure.atoms.residue_label(0) == "residue MET 41"
    assert molecules(structure)[0] == 2


def test_long_chain_names_of_mmcif(tmp_path, villin):
    path = tmp_path / "x.cif"
    path.write_text(mmcif_text(atom_lines(villin), chain="AAA-2"))
    structure = load_structure(path)
    assert structure.atoms.chain_id.tolist() == ["AAA-2"]
    assert structure.atoms.residue_id.tolist()[0] == "41"


def test_two_models(tmp_path, villin):
    lines = atom_lines(villin)
    moved = [shifted(line, dx=1.0) for line in lines]
    with_records = ["MODEL        1", *lines, "ENDMDL", "MODEL        2", *moved, "ENDMDL", "END"]
    ended_only = [*lines, "END", *moved, "END"]
    for text in (with_records, ended_only):
        path = write(tmp_path, text)
        first, second = load_structure(path), load_structure(path, model=1)
        np.testing.assert_allclose(second.positions - first.positions, [[0.1, 0, 0]] * 596, atol=1e-9)
        assert "2 models" in the_note(first, "models")
        with pytest.raises(StructureError, match="no model 2: it holds 2 models"):
            load_structure(path, model=2)
    cif = tmp_path / "x.cif"
    rows = mmcif_text(lines).rstrip("#\n") + "\n" + mmcif_text(moved, model="7").split("pdbx_PDB_model_num\n")[1]
    cif.write_text(rows)
    np.testing.assert_allclose(load_structure(cif, model=1).positions, load_structure(path, model=1).positions)


def test_models_of_a_real_file(further_structure):
    path = further_structure("1vii-3frames.pdb")
    frames = [load_structure(path, model=k) for k in range(3)]
    assert [f.n_atoms for f in frames] == [596] * 3
    assert [the_note(f, "models")[-23:] for f in frames] == [f"model {k}, counted from 0" for k in range(3)]


def test_box_is_kept_and_a_placeholder_is_not(tmp_path, villin):
    lines = atom_lines(villin)
    cell = "CRYST1   40.000   50.000   60.000  90.00  90.00  90.00 P 1           1"
    boxed = load_structure(write(tmp_path, [cell, *lines]))
    edges = np.diag(np.array([[x for x in v] for v in boxed.topology.getPeriodicBoxVectors()._value]))
    np.testing.assert_allclose(edges, [4.0, 5.0, 6.0])
    dummy = cell.replace("40.000", " 1.000").replace("50.000", " 1.000").replace("60.000", " 1.000")
    assert load_structure(write(tmp_path, [dummy, *lines])).topology.getPeriodicBoxVectors() is None
    cif = tmp_path / "x.cif"
    unknown = "\n".join(f"_cell.{k} ?" for k in ("length_a", "length_b", "length_c", "angle_alpha")) + "\n#\n"
    cif.write_text(mmcif_text(lines, extra=unknown))
    assert load_structure(cif).topology.getPeriodicBoxVectors() is None


def test_packed_files(tmp_path, villin):
    plain = load_structure(villin)
    packed = tmp_path / "villin.pdb.gz"
    packed.write_bytes(gzip.compress(villin.read_bytes()))
    assert np.array_equal(load_structure(packed).positions, plain.positions)
    packed = tmp_path / "villin.cif.gz"
    packed.write_bytes(gzip.compress(mmcif_text(atom_lines(villin)).encode()))
    np.testing.assert_allclose(load_structure(packed).positions, plain.positions, atol=1e-12)


def test_more_residues_and_atoms_than_the_columns_count(tmp_path):
    """Numbers go on in hexadecimal after 9,999 residues and 99,999 atoms, in CONECT records too."""
    n, lines = 10_200, []
    for k in range(n):
        x, y, z = 3.1 * (k % 25), 3.1 * (k // 25 % 25), 3.1 * (k // 625)
        line = hetatm(0, "O", "HOH", "A", 0, (x, y, z), "O")
        lines.append(f"HETATM{_column(95_000 + k, 5)}{line[11:22]}{_column(k + 1, 4)}{line[26:]}")
    ring = [hetatm(0, name, "LIG", "B", 1, xyz, element) for name, xyz, element in BENZENE[:6]]
    far = [shifted(line, dx=200.0 + 0.4 * k) for k, line in enumerate(ring)]  # too stretched to be inferred
    lines += [f"HETATM{_column(100_500 + k, 5)}{line[11:]}" for k, line in enumerate(far)]
    bonds = [f"CONECT{_column(100_500 + k, 5)}{_column(100_501 + k, 5)}" for k in range(5)]
    structure = load_structure(write(tmp_path, [*lines, *bonds]))
    assert structure.n_residues == n + 1
    assert structure.atoms.residue_id[n - 1] == str(n)
    assert structure.atoms.bonds.tolist() == [[n + k, n + k + 1] for k in range(5)]


def _column(number, width):
    """A number as OpenMM and VMD go on when it has more digits than the column."""
    limit = 10**width
    return f"{number:{width}d}" if number < limit else f"{number - limit + 10 * 16 ** (width - 1):{width}X}"


def test_standard_names(tmp_path, villin):
    """Old hydrogen names, AMBER's end residues and protonation states, CHARMM's histidine and water."""
    lines = atom_lines(villin)
    first = residue_number(lines[0])
    changed = []
    for line in lines:
        if residue_number(line) == first:
            line = f"{line[:17]}NMET{line[21:]}"
        if line[17:20] == "LYS" and residue_number(line) == 48 and line[12:16] != " HZ3":
            line = f"{line[:17]}LYN{line[20:]}"
        if line[12:16] == " H  ":
            line = f"{line[:12]} HN {line[16:]}"
        changed.append(line)
    changed = [line for line in changed if not (residue_number(line) == 48 and line[12:16].strip() == "HZ3")]
    changed.append(hetatm(900, "OH2", "TIP", "W", 1, (40, 40, 40), "O").replace("TIP W", "TIP3W"))
    structure = load_structure(write(tmp_path, changed))
    assert "NMET to MET (1)" in the_note(structure, "renamed")
    assert "LYN to LYS (1)" in the_note(structure, "renamed")
    assert "TIP3 to HOH (1)" in the_note(structure, "renamed")
    assert structure.n_atoms == 596
    assert {"HN", "NMET", "LYN"}.isdisjoint({*structure.atoms.name.tolist(), *structure.atoms.residue_name.tolist()})
    assert all(len(structure.atoms.neighbours[i]) == 1 for i in np.flatnonzero(structure.atoms.element == "H"))


# ---------------------------------------------------------------------- gaps and links


def test_a_gap_has_no_bond(tmp_path, villin):
    lines = [line for line in atom_lines(villin) if residue_number(line) not in (55, 56, 57)]
    structure = load_structure(write(tmp_path, lines))
    assert molecules(structure)[0] == 2
    assert "chain A, residue THR 54 and chain A, residue PHE 58" in the_note(structure, "gap")
    carbon, nitrogen = (
        np.flatnonzero((structure.atoms.name == n) & (structure.atoms.residue_id[structure.atoms.residue] == r))[0]
        for n, r in (("C", "54"), ("N", "58"))
    )
    assert [carbon, nitrogen] not in structure.atoms.bonds.tolist()


def test_the_limit_of_a_peptide_bond(tmp_path, villin):
    """Pull the chain apart at one bond, along it, to just below and just above the limit."""
    plain = load_structure(villin)
    residue = plain.atoms.residue_id.tolist().index("58")
    carbon = plain.positions[plain.atoms.residue_atoms[residue - 1]["C"]]
    nitrogen = plain.positions[plain.atoms.residue_atoms[residue]["N"]]
    direction = (nitrogen - carbon) / np.linalg.norm(nitrogen - carbon)
    for distance, gaps in ((0.99 * PEPTIDE_BOND_LIMIT, 0), (1.01 * PEPTIDE_BOND_LIMIT, 1)):
        move = 10 * (distance - np.linalg.norm(nitrogen - carbon)) * direction
        lines = [shifted(x, *move) if residue_number(x) >= 58 else x for x in atom_lines(villin)]
        structure = load_structure(write(tmp_path, lines))
        assert kinds(structure)["gap"] == gaps
        assert molecules(structure)[0] == 1 + gaps


def test_gap_from_numbering_alone_is_none(tmp_path, villin):
    """Numbers may jump where the chain does not."""
    lines = [
        f"{line[:22]}{residue_number(line) + (100 if residue_number(line) > 55 else 0):4d}{line[26:]}"
        for line in atom_lines(villin)
    ]
    assert kinds(load_structure(write(tmp_path, lines)))["gap"] == 0


def test_real_gap_and_modified_residue(integrase):
    structure = load_structure(integrase)
    assert "GLN 137 and chain A, residue MET 154" in the_note(structure, "gap")
    count, _ = molecules(structure)
    waters = int((structure.atoms.residue_name == "HOH").sum())
    assert count == 2 + waters
    assert len(structure.missing) == 186  # all but the two residues CAS


def test_selenomethionine_without_records(tmp_path, villin):
    """MSE is unknown to OpenMM: its bonds and links are found without CONECT."""
    lines = []
    for line in atom_lines(villin):
        if residue_number(line) == 53:
            line = f"HETATM{line[6:17]}MSE{line[20:]}"
            if line[12:16] == " SD ":
                line = f"{line[:12]}SE  {line[16:76]}SE"
        lines.append(line)
    plain, structure = load_structure(villin), load_structure(write(tmp_path, lines))
    np.testing.assert_array_equal(structure.atoms.bonds, plain.atoms.bonds)
    assert "MSE 53" in the_note(structure, "inferred-bonds")
    complete = load_structure(write(tmp_path, lines), add_hydrogens=True)
    assert "MSE 53" in the_note(complete, "renamed")
    assert complete.atoms.residue_name.tolist() == plain.atoms.residue_name.tolist()
    assert complete.atoms.name.tolist() == plain.atoms.name.tolist()
    np.testing.assert_array_equal(complete.positions, plain.positions)
    np.testing.assert_allclose(complete.masses, plain.masses)


def test_disulfide_by_distance_and_not_between_thiols(tmp_path, villin):
    """Two cysteines made of serines, brought together; a hydrogen on sulfur speaks against the bond."""

    def cysteine(number, chain, offset, with_hydrogen):
        out = []
        for line in atom_lines(villin):
            name = line[12:16].strip()
            if residue_number(line) != 43 or (name == "HG" and not with_hydrogen):
                continue
            if name == "OG":
                line = f"{line[:12]} SG {line[16:76]} S"
            out.append(shifted(f"{line[:17]}CYS {chain}{number:4d}{line[26:]}", *offset))
        return out

    first = cysteine(1, "A", (0, 0, 0), False)
    sulfur = next(np.array([float(x[a : a + 8]) for a in (30, 38, 46)]) for x in first if x[12:16] == " SG ")
    beta = next(np.array([float(x[a : a + 8]) for a in (30, 38, 46)]) for x in first if x[12:16] == " CB ")
    away = (sulfur - beta) / np.linalg.norm(sulfur - beta)
    centre = sulfur + 1.02 * away
    mirrored = []
    for x in cysteine(2, "B", (0, 0, 0), False):
        xyz = (2 * centre[k] - float(x[30 + 8 * k : 38 + 8 * k]) for k in range(3))
        mirrored.append(f"{x[:30]}{''.join(f'{value:8.3f}' for value in xyz)}{x[54:]}")
    structure = load_structure(write(tmp_path, [*first, "TER", *mirrored, "TER"]))
    assert "CYS 1, atom SG and chain B, residue CYS 2, atom SG (0.204 nm)" in the_note(structure, "disulfide")
    assert molecules(structure)[0] == 1
    thiol = [x for x in cysteine(1, "A", (0, 0, 0), True)]
    reduced = load_structure(write(tmp_path, [*thiol, "TER", *mirrored, "TER"]))
    assert kinds(reduced)["disulfide"] == 0
    assert molecules(reduced)[0] == 2
    completed = load_structure(write(tmp_path, [*first, "TER", *mirrored, "TER"]), add_hydrogens=True)
    assert not any("HG" in table for table in completed.atoms.residue_atoms)


# ---------------------------------------------------------------------- ions, ligands, caps, waters


def test_ions_stay_ions_whatever_is_recorded(tmp_path, villin):
    lines = atom_lines(villin)
    oxygen = next(x for x in lines if x[12:16] == " OD1" and residue_number(x) == 44)
    near = np.array([float(oxygen[a : a + 8]) for a in (30, 38, 46)]) + [0, 0, 2.1]
    zinc = hetatm(900, "ZN", "ZN", "A", 101, near, "ZN")
    water = hetatm(901, "O", "HOH", "A", 102, near + [0, 0, 2.1], "O")
    records = [f"CONECT  900{int(oxygen[6:11]):5d}  901", f"CONECT  901  900{int(oxygen[6:11]):5d}"]
    structure = load_structure(write(tmp_path, [*lines, "TER", zinc, water, *records]))
    assert not structure.atoms.neighbours[596]
    assert not structure.atoms.neighbours[597]
    cif = tmp_path / "x.cif"
    partners = "".join(
        f"_struct_conn.ptnr{end}_{key}\n"
        for end in (1, 2)
        for key in ("label_asym_id", "label_seq_id", "label_atom_id", "auth_asym_id", "auth_seq_id")
    )
    connections = "loop_\n_struct_conn.id\n_struct_conn.conn_type_id\n" + partners
    connections += "m1 metalc A 4 OD1 A 44 B . ZN A 101\nc1 covale A 4 OD1 A 44 B . ZN A 101\n#\n"
    cif.write_text(mmcif_text([*lines, zinc, water], extra=connections))
    from_cif = load_structure(cif)
    np.testing.assert_array_equal(from_cif.atoms.bonds, structure.atoms.bonds)
    assert from_cif.atoms.chain_id.tolist() == ["A", "A"]
    assert "ZN 101" in the_note(from_cif, "coordination")


def test_symmetry_copies_are_not_bonded(tmp_path, villin):
    lines = atom_lines(villin)
    extra = (
        "loop_\n_struct_conn.id\n_struct_conn.conn_type_id\n_struct_conn.ptnr1_label_asym_id\n"
        "_struct_conn.ptnr1_label_seq_id\n_struct_conn.ptnr1_label_atom_id\n_struct_conn.ptnr1_symmetry\n"
        "_struct_conn.ptnr2_label_asym_id\n_struct_conn.ptnr2_label_seq_id\n_struct_conn.ptnr2_label_atom_id\n"
        "_struct_conn.ptnr2_symmetry\ncovale1 covale A 1 SD 1_555 A 13 SD 2_555\n#\n"
    )
    cif = tmp_path / "x.cif"
    cif.write_text(mmcif_text(lines, extra=extra))
    structure = load_structure(cif)
    np.testing.assert_array_equal(structure.atoms.bonds, load_structure(villin).atoms.bonds)
    assert kinds(structure)["dropped-bond"] == 0
    # The same without a symmetry column is a bond of impossible length.
    cif.write_text(mmcif_text(lines, extra=extra.replace("2_555", "1_555")))
    structure = load_structure(cif)
    np.testing.assert_array_equal(structure.atoms.bonds, load_structure(villin).atoms.bonds)
    assert "MET 41, atom SD - chain A, residue MET 53, atom SD" in the_note(structure, "dropped-bond")


def test_ligand_without_records(tmp_path, villin):
    ligand = [hetatm(700 + k, name, "LIG", "A", 101, xyz, e) for k, (name, xyz, e) in enumerate(BENZENE)]
    structure = load_structure(write(tmp_path, [*atom_lines(villin), "TER", *ligand]))
    ring = {frozenset((f"C{k + 1}", f"C{(k + 1) % 6 + 1}")) for k in range(6)}
    assert bonded_names(structure, 36) == ring | {frozenset((f"C{k + 1}", f"H{k + 1}")) for k in range(6)}
    assert "LIG 101" in the_note(structure, "inferred-bonds")
    assert structure.masses[-1] == pytest.approx(1.008, abs=0.001)


def test_complete_records_are_trusted(tmp_path):
    """A strained bond that distances would not show is there when it is recorded, and then nothing is inferred."""
    xyz = {"C1": (0, 0, 0), "C2": (1.5, 0, 0), "C3": (1.5, 2.05, 0), "C4": (0, 2.05, 0)}
    atoms = [hetatm(k + 1, name, "LIG", "A", 1, at, "C") for k, (name, at) in enumerate(xyz.items())]
    records = ["CONECT    1    2    4", "CONECT    2    3", "CONECT    3    4"]
    structure = load_structure(write(tmp_path, [*atoms, *records]))
    assert len(structure.atoms.bonds) == 4
    assert kinds(structure)["inferred-bonds"] == 0
    assert len(load_structure(write(tmp_path, atoms)).atoms.bonds) == 2


def test_a_linked_sugar_is_part_of_the_chain(tmp_path, villin):
    """An unknown residue within bonding distance of asparagine, as in glycosylation."""
    lines = [x for x in atom_lines(villin) if not (residue_number(x) == 60 and x[12:16].strip() == "HD22")]
    nitrogen, hydrogen = (
        np.array([float(x[a : a + 8]) for a in (30, 38, 46)])
        for name in ("ND2", "HD22")
        for x in atom_lines(villin)
        if residue_number(x) == 60 and x[12:16].strip() == name
    )
    direction = (hydrogen - nitrogen) / np.linalg.norm(hydrogen - nitrogen)
    at = nitrogen + 1.45 * direction
    sugar = [
        hetatm(800, "C1", "NAG", "A", 201, at, "C"),
        hetatm(801, "O5", "NAG", "A", 201, at + 1.42 * direction, "O"),
    ]
    structure = load_structure(write(tmp_path, [*lines, "TER", *sugar]))
    assert molecules(structure)[0] == 1
    assert "ASN 60, atom ND2 - chain A, residue NAG 201, atom C1" in the_note(structure, "link")


def test_caps(integrase, villin):
    from conftest import PDBFIXER_DATA

    bare = PDBFIXER_DATA / "alanine-dipeptide.pdb"
    structure = load_structure(bare)
    assert structure.atoms.residue_name.tolist() == ["ACE", "ALA", "NME"]
    assert molecules(structure)[0] == 1
    assert "ACE 1 lacks H1, H2, H3" in the_note(structure, "missing-hydrogens")
    assert kinds(structure)["missing-atoms"] == 0
    complete = load_structure(bare, add_hydrogens=True)
    assert complete.n_atoms == 22
    assert Counter(complete.atoms.element.tolist()) == {"H": 12, "C": 6, "N": 2, "O": 2}


def test_amidated_end(tmp_path, villin):
    lines = [x for x in atom_lines(villin) if not (residue_number(x) == 76 and x[12:16].strip() == "OXT")]
    oxygen = next(x for x in atom_lines(villin) if residue_number(x) == 76 and x[12:16].strip() == "OXT")
    amide = f"HETATM{oxygen[6:12]} N   NH2 A  77    {oxygen[30:76]} N"
    structure = load_structure(write(tmp_path, [*lines, amide]))
    assert molecules(structure)[0] == 1
    assert kinds(structure)["missing-atoms"] == 0
    complete = load_structure(write(tmp_path, [*lines, amide]), add_hydrogens=True)
    assert set(complete.atoms.residue_atoms[36]) == {"N", "HN1", "HN2"}
    assert not any("OXT" in table for table in complete.atoms.residue_atoms)


def test_odd_hydrogen_names_are_bonded_by_distance(tmp_path, villin):
    lines = [
        f"{x[:12]} HQ{k % 10}{x[16:]}" if residue_number(x) == 50 and x[76:78] == " H" else x
        for k, x in enumerate(atom_lines(villin))
    ]
    structure = load_structure(write(tmp_path, lines))
    np.testing.assert_array_equal(structure.atoms.bonds, load_structure(villin).atoms.bonds)
    assert "9 atoms" in the_note(structure, "inferred-bonds")
    assert not structure.missing_hydrogens


def test_missing_element_column(tmp_path, villin):
    plain = load_structure(villin)
    structure = load_structure(write(tmp_path, [line[:66] for line in atom_lines(villin)]))
    assert structure.atoms.element.tolist() == plain.atoms.element.tolist()
    assert "596 atoms" in the_note(structure, "guessed-elements")


def test_nitrogen_named_na_is_no_sodium(tmp_path):
    lines = [
        hetatm(1, "NA", "HEM", "A", 1, (0, 0, 0), "N")[:66],
        hetatm(2, "C1A", "HEM", "A", 1, (1.37, 0, 0), "C")[:66],
        hetatm(3, "NA", "NA", "A", 2, (9, 9, 9), "NA")[:66],
    ]
    assert load_structure(write(tmp_path, lines)).atoms.element.tolist() == ["N", "C", "Na"]


def deuterated(line, letter=" ", occupancy=1.0):
    name = f" D  {line[16:]}" if line[12:16] == " H  " else f"{line[12:16].replace('H', 'D', 1)}{line[16:]}"
    return f"{line[:12]}{name[:4]}{letter}{line[17:54]}{occupancy:6.2f}{line[60:76]} D"


def test_deuterium(tmp_path, villin):
    """Exchanged amide hydrogens are read as they are, and are hydrogens once the structure is completed."""
    lines = [deuterated(x) if x[12:16] == " H  " else x for x in atom_lines(villin)]
    structure = load_structure(write(tmp_path, lines))
    assert (structure.atoms.element == "D").sum() == 34
    assert not structure.missing_hydrogens
    complete = load_structure(write(tmp_path, lines), add_hydrogens=True)
    plain = load_structure(villin)
    assert complete.atoms.name.tolist() == plain.atoms.name.tolist()
    np.testing.assert_array_equal(complete.positions, plain.positions)


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


def test_second_conformer_listed_after_the_chain(tmp_path, villin):
    lines = with_alternates(atom_lines(villin), 50, "AB", (0.6, 0.4))
    scattered = [x for x in lines if x[16] != "B"] + [x for x in lines if x[16] == "B"]
    structure = load_structure(write(tmp_path, scattered))
    np.testing.assert_allclose(structure.positions, load_structure(villin).positions, atol=1e-12)


# ---------------------------------------------------------------------- what is missing


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


# ---------------------------------------------------------------------- completion


def without_hydrogens(path):
    return [x for x in atom_lines(path) if x[76:78].strip() != "H"]


def chiralities(structure):
    """Signed volume at every C-alpha that has a C-beta; positive for L."""
    x = structure.positions
    found = {}
    for r, at in enumerate(structure.atoms.residue_atoms):
        if {"N", "CA", "C", "CB"} <= at.keys():
            a, b, c = (x[at[n]] - x[at["CA"]] for n in ("N", "C", "CB"))
            found[r] = float(np.cross(a, b) @ c)
    return found


def test_hydrogens_are_put_where_they_were(tmp_path, villin):
    """Take all hydrogens away and add them: the same atoms, and those that cannot turn at the same places."""
    plain = load_structure(villin)
    structure = load_structure(write(tmp_path, without_hydrogens(villin)), add_hydrogens=True)
    assert Counter(structure.atoms.name.tolist()) == Counter(plain.atoms.name.tolist())
    old = {plain.atoms.label(i): plain.positions[i] for i in range(plain.n_atoms)}
    fixed = [
        i
        for i in np.flatnonzero(structure.atoms.element == "H").tolist()
        if len(structure.atoms.neighbours[structure.atoms.neighbours[i][0]]) - hydrogen_count(structure, i) > 1
    ]
    assert len(fixed) > 150
    away = [np.linalg.norm(structure.positions[i] - old[structure.atoms.label(i)]) for i in fixed]
    assert np.median(away) < 0.005
    assert max(away) < 0.03


def hydrogen_count(structure, hydrogen):
    parent = structure.atoms.neighbours[hydrogen][0]
    return sum(structure.atoms.element[b] == "H" for b in structure.atoms.neighbours[parent])


def test_added_hydrogens_have_sound_geometry(integrase):
    structure = load_structure(integrase, add_hydrogens=True)
    i, j = structure.atoms.bonds.T
    hydrogen = (structure.atoms.element[i] == "H") | (structure.atoms.element[j] == "H")
    lengths = bond_lengths(structure)[hydrogen]
    assert 0.0957 - 1e-4 < lengths.min()
    assert lengths.max() < 0.135
    flat = []
    for r, at in enumerate(structure.atoms.residue_atoms):
        before = structure.atoms.residue_atoms[r - 1]
        if {"N", "H", "CA"} <= at.keys() and "H2" not in at and "C" in before:
            x = structure.positions
            u, v, w = (x[k] - x[at["N"]] for k in (before["C"], at["CA"], at["H"]))
            flat.append(abs(np.linalg.det(np.array([u, v, w]) / [[np.linalg.norm(k)] for k in (u, v, w)])))
    assert len(flat) > 100
    assert max(flat) < 1e-6  # amide hydrogens lie in the peptide plane


def test_side_chains_are_completed_with_the_right_hand(tmp_path, villin):
    backbone = {"N", "CA", "C", "O", "OXT"}
    lines = [x for x in without_hydrogens(villin) if x[12:16].strip() in backbone]
    bare, structure = load_structure(write(tmp_path, lines)), load_structure(write(tmp_path, lines), add_hydrogens=True)
    assert bare.missing_heavy_atoms
    assert Counter(structure.atoms.name.tolist()) == Counter(load_structure(villin).atoms.name.tolist())
    volumes = list(chiralities(structure).values())
    assert len(volumes) == 34
    assert min(volumes) > 0.0015
    # Isoleucine and threonine have a second centre: it must be that of the original.
    plain = load_structure(villin)
    for r, at in enumerate(structure.atoms.residue_atoms):
        if structure.atoms.residue_name[r] == "THR":
            signs = []
            for s in (structure, plain):
                table = s.atoms.residue_atoms[r]
                a, b, c = (s.positions[table[n]] - s.positions[table["CB"]] for n in ("CA", "OG1", "CG2"))
                signs.append(np.sign(np.cross(a, b) @ c))
            assert signs[0] == signs[1]
            assert "CG2" in at
    heavy = (structure.atoms.element[structure.atoms.bonds] != "H").all(axis=1)
    lengths = bond_lengths(structure)[heavy]
    assert 0.115 < lengths.min()
    assert lengths.max() < 0.19


@pytest.mark.parametrize("names", [{"C"}, {"N"}, {"CA"}, {"C", "O"}, {"O"}, {"CB"}, {"CG"}, {"CD", "CZ"}])
def test_atoms_in_the_middle_are_fitted_between_their_neighbours(tmp_path, villin, names):
    lines = [x for x in without_hydrogens(villin) if not (residue_number(x) == 55 and x[12:16].strip() in names)]
    structure = load_structure(write(tmp_path, lines), add_hydrogens=True)
    plain = load_structure(villin)
    assert kinds(structure)["gap"] == 0
    assert molecules(structure)[0] == 1
    assert min(chiralities(structure).values()) > 0.0015
    old = {plain.atoms.label(i): plain.positions[i] for i in range(plain.n_atoms)}
    for i in range(structure.n_atoms):
        label = structure.atoms.label(i)
        if "ARG 55" in label and str(structure.atoms.name[i]) in names:
            assert np.linalg.norm(structure.positions[i] - old[label]) < 0.06, label


def test_a_fragment_of_a_residue_is_left_out(tmp_path, villin):
    lines = [x for x in without_hydrogens(villin) if residue_number(x) != 76 or x[12:16].strip() in ("N", "CA")]
    structure = load_structure(write(tmp_path, lines), add_hydrogens=True)
    assert "PHE 76" in the_note(structure, "dropped")
    assert structure.n_residues == 35
    assert "OXT" in structure.atoms.residue_atoms[34]


def test_ends_at_a_gap_are_charged_ends(tmp_path, villin):
    from openmm.app import ForceField

    lines = [x for x in without_hydrogens(villin) if residue_number(x) not in (55, 56, 57)]
    structure = load_structure(write(tmp_path, lines), add_hydrogens=True)
    assert structure.n_residues == 33  # nothing was built in between
    assert structure.atoms.n_chains == 1
    tables = structure.atoms.residue_atoms
    ids = structure.atoms.residue_id.tolist()
    assert "OXT" in tables[ids.index("54")]
    assert {"H", "H2", "H3"} <= tables[ids.index("58")].keys()
    assert kinds(structure)["gap"] == 1
    assert ForceField("amber14-all.xml").createSystem(structure.topology).getNumParticles() == structure.n_atoms


def test_completion_is_reproducible_and_leaves_the_global_generator_alone(tmp_path, villin):
    path = write(tmp_path, [*without_hydrogens(villin), hetatm(900, "O", "HOH", "W", 1, (40, 40, 40), "O")])
    random.seed(1)
    state = random.getstate()
    first = load_structure(path, add_hydrogens=True)
    assert random.getstate() == state
    random.seed(2)
    second = load_structure(path, add_hydrogens=True)
    assert np.array_equal(first.positions, second.positions)
    assert first.notes == second.notes


def test_completion_needs_no_network(tmp_path, villin, monkeypatch):
    import socket
    import urllib.request

    def refuse(*args, **kwargs):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setattr("pdbfixer.pdbfixer.urlopen", refuse)
    ligand = [hetatm(700 + k, name, "LIG", "B", 101, xyz, e) for k, (name, xyz, e) in enumerate(BENZENE[:6])]
    structure = load_structure(write(tmp_path, [*without_hydrogens(villin), "TER", *ligand]), add_hydrogens=True)
    assert "LIG 101" in the_note(structure, "not-completed")
    assert len(bonded_names(structure, 36)) == 6


@pytest.mark.parametrize(("pH", "count"), [(2.0, 5), (7.0, 0), (11.0, 0)])
def test_pH_decides_acids(tmp_path, villin, pH, count):
    structure = load_structure(write(tmp_path, without_hydrogens(villin)), add_hydrogens=True, pH=pH)
    names = structure.atoms.residue_name[structure.atoms.residue]
    acid = ((names == "ASP") & (structure.atoms.name == "HD2")) | ((names == "GLU") & (structure.atoms.name == "HE2"))
    assert acid.sum() == min(count, int(np.isin(structure.atoms.residue_name, ["ASP", "GLU"]).sum()))
    assert ((names == "LYS") & (structure.atoms.name == "HZ3")).any() == (pH < 10)
    with pytest.raises(ArgumentError, match="pH"):
        load_structure(write(tmp_path, without_hydrogens(villin)), add_hydrogens=True, pH=-3)


@pytest.mark.parametrize(
    ("file_name", "number", "standard", "has", "has_not"),
    [
        ("ASH", 44, "ASP", {"HD2"}, set()),
        ("GLH", 45, "GLU", {"HE2"}, set()),
        ("LYN", 48, "LYS", {"HZ1", "HZ2"}, {"HZ3"}),
    ],
)
def test_protonation_stated_by_the_residue_name(tmp_path, villin, file_name, number, standard, has, has_not):
    lines = [f"{x[:17]}{file_name}{x[20:]}" if residue_number(x) == number else x for x in without_hydrogens(villin)]
    structure = load_structure(write(tmp_path, lines), add_hydrogens=True)
    residue = structure.atoms.residue_id.tolist().index(str(number))
    assert structure.atoms.residue_name[residue] == standard
    assert has <= structure.atoms.residue_atoms[residue].keys()
    assert has_not.isdisjoint(structure.atoms.residue_atoms[residue])


@pytest.mark.parametrize(
    ("name", "has"), [("HID", {"HD1"}), ("HIE", {"HE2"}), ("HSE", {"HE2"}), ("HIP", {"HD1", "HE2"})]
)
def test_histidines(tmp_path, integrase, name, has):
    lines = [
        f"{x[:17]}{name}{x[20:]}" if x[17:20] == "HIS" else x for x in atom_lines(integrase) if residue_number(x) < 138
    ]
    structure = load_structure(write(tmp_path, lines), add_hydrogens=True)
    for r in np.flatnonzero(structure.atoms.residue_name == "HIS"):
        assert {"HD1", "HE2"} & structure.atoms.residue_atoms[r].keys() == has


def test_existing_hydrogens_stay_whatever_the_name_says(tmp_path, villin):
    """A residue called LYN that has three hydrogens keeps them."""
    lines = [f"{x[:17]}LYN{x[20:]}" if residue_number(x) == 48 else x for x in atom_lines(villin)]
    structure = load_structure(write(tmp_path, lines), add_hydrogens=True)
    np.testing.assert_array_equal(structure.positions, load_structure(villin).positions)


def test_ring_closed_end_to_end(tmp_path):
    """Six glycines in a ring: no chain ends, whether recorded or not, and none are added."""
    n = 6
    ring = [("N", 0.0, 0.0), ("CA", 1.46, 0.3), ("C", 2.9, 0.0)]
    radius = 3 * n * 1.39 / (2 * np.pi)
    lines = []
    for k in range(n):
        for j, (name, _, z) in enumerate(ring):
            angle = 2 * np.pi * (3 * k + j) / (3 * n)
            xyz = (radius * np.cos(angle), radius * np.sin(angle), z)
            lines.append(hetatm(len(lines) + 1, name, "GLY", "A", k + 1, xyz, name[0]).replace("HETATM", "ATOM  "))
        out = (1.0 + 1.23 / radius) * np.array(xyz[:2])
        lines.append(hetatm(len(lines) + 1, "O", "GLY", "A", k + 1, (*out, xyz[2]), "O").replace("HETATM", "ATOM  "))
    structure = load_structure(write(tmp_path, lines))
    assert "GLY 1, atom N - chain A, residue GLY 6, atom C" in the_note(structure, "link")
    complete = load_structure(write(tmp_path, lines), add_hydrogens=True)
    assert all(set(t) == {"N", "CA", "C", "O", "H", "HA2", "HA3"} for t in complete.atoms.residue_atoms)


# ---------------------------------------------------------------------- bad input


def bad_files(tmp_path, villin):
    """Name -> (path, what the message says)."""
    lines = atom_lines(villin)
    text = mmcif_text(lines)
    packed = gzip.compress(villin.read_bytes())

    def make(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def changed(at, new):
        return "\n".join([*lines[:at], new, *lines[at + 1 :]])

    nan = f"{lines[9][:30]}     nan{lines[9][38:]}"
    stars = f"{lines[9][:30]}********{lines[9][38:]}"
    on_top = f"{lines[9][:30]}{lines[5][30:54]}{lines[9][54:]}"
    unknown_element = hetatm(1, "XX", "LIG", "A", 1, (0, 0, 0), "Q")
    crowd = [
        hetatm(k, f"C{k}", "LIG", "A", 1, (0.6 * (k % 3), 0.6 * (k // 3 % 3), 0.6 * (k // 9)), "C") for k in range(27)
    ]
    return {
        "missing": (tmp_path / "none.pdb", "cannot read .*none.pdb: No such file"),
        "directory": (make_folder(tmp_path / "folder.pdb"), "Is a directory"),
        "empty": (make("a.pdb", ""), "is empty"),
        "blank": (make("b.cif", "\n  \n"), "is empty"),
        "junk": (make("c.pdb", bytes(range(256)) * 20), "binary"),
        "junk without zeros": (make("d.pdb", bytes(range(128, 256)) * 20), "no atoms"),
        "junk cif": (make("e.cif", bytes(range(128, 256)) * 20), "not an mmCIF file"),
        "cut cif row": (make("f.cif", text[: len(text) // 2 + 7]), "not a complete mmCIF file"),
        "cut cif quote": (make("g.cif", text + "_struct.title 'Half a tit"), "not a complete mmCIF file"),
        "cut cif text": (make("g2.cif", text + "_struct.title\n;Half a tit"), "not a complete mmCIF file"),
        "cut archive cif": (
            make("h.cif", "_audit_conform.dict_name x\n#\n".join(text.split("#\n", 1)).rsplit("\n", 20)[0]),
            "not an mmCIF file|not a complete mmCIF file",
        ),
        "cut gzip": (make("i.pdb.gz", packed[: len(packed) // 2]), "cannot unpack"),
        "not gzip": (make("j.pdb.gz", villin.read_bytes()), "cannot unpack"),
        "gzip unnamed": (make("k.pdb", packed), "binary"),
        "wrong ending": (make("l.txt", villin.read_bytes()), "must end in .pdb"),
        "no ending": (make("m", villin.read_bytes()), "must end in .pdb"),
        "cif as pdb": (make("n.pdb", text), "let its name end in .cif"),
        "pdb as cif": (make("o.cif", villin.read_bytes()), "not an mmCIF file"),
        "no atoms": (make("p.pdb", "HEADER    NOTHING\nEND\n"), "holds no atoms"),
        "no atoms cif": (make("q.cif", "data_X\n_cell.length_a 10\n"), "holds no atoms"),
        "fractional cif": (make("q2.cif", "data_X\nloop_\n_atom_site.fract_x\n0.1\n0.2\n"), "holds no atoms"),
        "nan": (make("r.pdb", changed(9, nan)), "not finite numbers at chain A, residue MET 41, atom H2"),
        "stars": (make("s.pdb", changed(9, stars)), "line 10: the coordinates .* of atom H2 in residue MET A  41"),
        "cut line": (make("t.pdb", "\n".join(lines[:100]) + "\n" + lines[100][:50]), "line 101: .* cut short"),
        "nan cif": (make("u.cif", text.replace(lines[9][30:38].strip() + " ", "nan ", 1)), "not finite numbers"),
        "word cif": (make("u2.cif", text.replace(lines[9][30:38].strip() + " ", "x.y ", 1)), "not three numbers"),
        "on top": (make("v.pdb", changed(9, on_top)), "MET 41, atom .* and .*MET 41, atom .* are at the same place"),
        "twice": (make("w.pdb", "\n".join([*lines[:10], lines[9], *lines[10:]])), "atom H2 of .*MET 41 more than once"),
        "element": (make("x.pdb", unknown_element), "element of chain A, residue LIG 1, atom XX is unknown"),
        "crowd": (make("y.pdb", "\n".join(crowd)), "LIG 1 is no standard residue .* atom C0 would have"),
        "scattered": (
            make("z2.pdb", "\n".join(sorted(lines, key=lambda x: x[76:78] == " H"))),
            "lists the atoms of chain A, residue MET 41 in two places",
        ),
        "cell": (make("z.pdb", "CRYST1   what\n" + "\n".join(lines)), "line 1: the unit cell"),
    }  # fmt: skip


def make_folder(path):
    path.mkdir(exist_ok=True)
    return path


BAD = (
    "missing", "directory", "empty", "blank", "junk", "junk without zeros", "junk cif", "cut cif row", "cut cif quote",
    "cut cif text", "cut archive cif", "cut gzip", "not gzip", "gzip unnamed", "wrong ending", "no ending",
    "cif as pdb", "pdb as cif", "no atoms", "no atoms cif", "fractional cif", "nan", "stars", "cut line", "nan cif",
    "word cif", "on top", "twice", "element", "crowd", "scattered", "cell",
)  # fmt: skip


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("complete", [False, True])
def test_bad_input_is_one_sentence(tmp_path, villin, case, complete, capfd, recwarn):
    files = bad_files(tmp_path, villin)
    assert set(BAD) == set(files)
    path, message = files[case]
    with pytest.raises(StructureError, match=message) as caught:
        load_structure(path, add_hydrogens=complete)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert capfd.readouterr() == ("", "")
    assert not list(recwarn)


def test_coinciding_atoms_of_one_molecule_in_different_residues(tmp_path, villin):
    lines = atom_lines(villin)
    at = next(k for k, x in enumerate(lines) if residue_number(x) == 60 and x[12:16].strip() == "OD1")
    lines[at] = f"{lines[at][:30]}{lines[100][30:54]}{lines[at][54:]}"
    with pytest.raises(StructureError, match="residue ASN 60, atom OD1 of one molecule are at the same place"):
        load_structure(write(tmp_path, lines))


def test_overlap_of_different_molecules_is_noted(tmp_path, villin):
    lines = atom_lines(villin)
    xyz = [float(lines[100][a : a + 8]) for a in (30, 38, 46)]
    structure = load_structure(write(tmp_path, [*lines, hetatm(700, "O", "HOH", "W", 1, xyz, "O")]))
    assert "residue HOH 1, atom O" in the_note(structure, "overlap")


def test_all_coordinates_equal(tmp_path, villin):
    lines = [f"{x[:30]}{'   0.000' * 3}{x[54:]}" for x in atom_lines(villin)]
    with pytest.raises(StructureError, match="at the same place"):
        load_structure(write(tmp_path, lines))


@pytest.mark.parametrize("model", [-1, 0.5, "first", None])
def test_model_must_be_a_count(villin, model):
    with pytest.raises(ArgumentError, match="model must be an integer"):
        load_structure(villin, model=model)


def test_nothing_is_printed_for_good_files(structure_file, capfd, recwarn):
    load_structure(structure_file)
    assert capfd.readouterr() == ("", "")
    assert not list(recwarn)


def test_import_is_light():
    heavy = "{'openmm', 'Bio', 'mdtraj', 'numba'}"
    code = f"import sys, peptidyn; print(sorted({{m.split('.')[0] for m in sys.modules}} & {heavy}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


# ---------------------------------------------------------------------- OpenMM, MDTraj, subsets, writing


def test_from_openmm_takes_masses_of_the_system(villin):
    from openmm import unit
    from openmm.app import ForceField, PDBFile

    pdb = PDBFile(str(villin))
    system = ForceField("amber14-all.xml").createSystem(pdb.topology, hydrogenMass=3 * unit.dalton)
    structure = Structure.from_openmm(pdb.topology, system, pdb.positions)
    assert structure.masses[structure.atoms.element == "H"] == pytest.approx(3.0)
    assert structure.masses.sum() == pytest.approx(load_structure(villin).masses.sum(), rel=1e-4)
    np.testing.assert_array_equal(structure.atoms.bonds, load_structure(villin).atoms.bonds)
    np.testing.assert_allclose(structure.positions, load_structure(villin).positions, atol=1e-12)
    system.addParticle(1.0)
    with pytest.raises(StructureError, match="597 particles but the Topology has 596"):
        Structure.from_openmm(pdb.topology, system, pdb.positions)


def test_from_openmm_checks_positions(villin):
    structure = load_structure(villin)
    with pytest.raises(StructureError, match=r"shape \(5, 3\), expected \(596, 3\)"):
        Structure.from_openmm(structure.topology, None, np.zeros((5, 3)))
    bad = structure.positions.copy()
    bad[7] = np.nan
    with pytest.raises(StructureError, match="MET 41, atom CE"):
        Structure.from_openmm(structure.topology, None, bad)


def test_virtual_sites_keep_their_place_and_zero_mass_in_a_system():
    from openmm import System
    from openmm.app import Element, Topology

    topology = Topology()
    residue = topology.addResidue("HOH", topology.addChain())
    for name, symbol in (("O", "O"), ("H1", "H"), ("H2", "H"), ("M", None)):
        topology.addAtom(name, Element.getBySymbol(symbol) if symbol else None, residue)
    system = System()
    for mass in (16.0, 1.0, 1.0, 0.0):
        system.addParticle(mass)
    xyz = np.arange(12.0).reshape(4, 3)
    assert Structure.from_openmm(topology, system, xyz).masses[3] == 0.0
    with pytest.raises(StructureError, match="element of chain 1, residue HOH 1, atom M is unknown"):
        Structure.from_openmm(topology, None, xyz)


def test_round_trip_through_mdtraj(villin, integrase):
    for path in (villin, integrase):
        structure = load_structure(path)
        again = Structure.from_mdtraj(structure.to_mdtraj())
        np.testing.assert_array_equal(again.atoms.bonds, structure.atoms.bonds)
        np.testing.assert_array_equal(again.atoms.bond_order, structure.atoms.bond_order)
        assert again.atoms.name.tolist() == structure.atoms.name.tolist()
        assert again.atoms.chain_id.tolist() == structure.atoms.chain_id.tolist()
        np.testing.assert_allclose(again.positions, structure.positions, atol=1e-6)
        np.testing.assert_allclose(again.masses, structure.masses)
        boxes = [s.topology.getPeriodicBoxVectors() for s in (structure, again)]
        if boxes[0] is not None:
            np.testing.assert_allclose(*(np.array([[x for x in v] for v in b._value]) for b in boxes), atol=1e-5)


def test_from_mdtraj_frame(villin):
    import mdtraj

    trajectory = mdtraj.load(str(villin))
    assert Structure.from_mdtraj(trajectory, frame=-1).n_atoms == 596
    with pytest.raises(ArgumentError, match="frame 3 does not exist: the trajectory has 1 frames"):
        Structure.from_mdtraj(trajectory, frame=3)


def test_subset_keeps_bonds_and_notes(tmp_path, villin):
    lines = [x for x in atom_lines(villin) if residue_number(x) not in (55, 56)]
    lines = [x for x in lines if (residue_number(x), x[12:16].strip()) not in {(47, "CZ"), (70, "NZ")}]
    structure = load_structure(write(tmp_path, lines))
    assert kinds(structure)["gap"] == 1
    chosen = structure.select("resid 0 to 9")
    for selection in ("resid 0 to 9", chosen, chosen[::-1].tolist(), np.isin(np.arange(structure.n_atoms), chosen)):
        part = structure.subset(selection)
        assert part.n_residues == 10
        np.testing.assert_array_equal(part.positions, structure.positions[chosen])
        np.testing.assert_array_equal(part.masses, structure.masses[chosen])
        assert named_bonds(part) == {
            bond for bond in named_bonds(structure) if all(int(end.split()[4].rstrip(",")) <= 50 for end in bond)
        }
        assert kinds(part)["gap"] == 0  # the gap is elsewhere
        assert kinds(part)["missing-atoms"] == 1  # residue 47 is in the subset
        assert "1 bond to atoms left out cut, at chain A, residue VAL 50, atom C" in the_note(part, "cut")
        note = next(part.notes_of("missing-atoms"))
        assert {str(part.atoms.residue_id[part.atoms.residue[a]]) for a in note.atoms} == {"47"}


@pytest.mark.parametrize(
    "selection", ["name XX", "name is what", [], [0, 9999], [-1], [0.5], np.zeros(3, dtype=bool), [[1, 2]], None]
)
def test_subset_of_nothing_or_nonsense(villin, selection):
    with pytest.raises(SelectionError):
        load_structure(villin).subset(selection)


@pytest.mark.parametrize("suffix", ["pdb", "cif"])
def test_written_files_read_back(tmp_path, structure_file, suffix):
    structure = load_structure(structure_file)
    if structure.n_atoms > 5000:
        structure = structure.subset(np.arange(3000))
    path = tmp_path / f"out.{suffix}"
    structure.write(path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    again = load_structure(path)
    assert again.atoms.name.tolist() == structure.atoms.name.tolist()
    assert again.atoms.element.tolist() == structure.atoms.element.tolist()
    assert again.atoms.residue_name.tolist() == structure.atoms.residue_name.tolist()
    assert again.atoms.residue_id.tolist() == structure.atoms.residue_id.tolist()
    assert [c.strip() for c in again.atoms.chain_id] == [c.strip() for c in structure.atoms.chain_id]
    np.testing.assert_array_equal(again.atoms.bonds, structure.atoms.bonds)
    np.testing.assert_allclose(again.positions, structure.positions, rtol=0, atol=6e-5 if suffix == "pdb" else 1e-12)
    boxes = [s.topology.getPeriodicBoxVectors() for s in (structure, again)]
    assert (boxes[0] is None) == (boxes[1] is None)
    if boxes[0] is not None:
        np.testing.assert_allclose(*(np.array([[x for x in v] for v in b._value]) for b in boxes), atol=2e-4)


def test_openmm_reads_what_is_written(tmp_path, integrase):
    from openmm.app import PDBFile, PDBxFile

    structure = load_structure(integrase)
    for suffix, reader in (("pdb", PDBFile), ("cif", PDBxFile)):
        path = tmp_path / f"out.{suffix}"
        structure.write(path)
        topology = reader(str(path)).topology
        assert topology.getNumAtoms() == structure.n_atoms
        # OpenMM draws a bond across the gap; all others are the same.
        assert topology.getNumBonds() == len(structure.atoms.bonds) + 1


def test_mmcif_keeps_long_names_and_codes(tmp_path, villin):
    path = tmp_path / "x.cif"
    lines = [f"{x[:26]}B{x[27:]}" if residue_number(x) == 50 else x for x in atom_lines(villin)]
    path.write_text(mmcif_text(lines, chain="LONG"))
    structure = load_structure(path)
    structure.write(tmp_path / "y.cif")
    again = load_structure(tmp_path / "y.cif")
    assert again.atoms.chain_id.tolist() == ["LONG"]
    assert "50B" in again.atoms.residue_id


def test_names_too_long_for_pdb(tmp_path):
    path = tmp_path / "x.cif"
    path.write_text(mmcif_text([hetatm(1, "C1", "LIG", "A", 1, (0, 0, 0), "C")]).replace("LIG", "LONGER"))
    structure = load_structure(path)
    with pytest.raises(StructureError, match=r"LONGER .* too long for the PDB format; write a .cif"):
        structure.write(tmp_path / "y.pdb")
    with pytest.raises(StructureError, match="does not fit into the PDB format"):
        load_structure(OPENMM_DATA / "tip3p.pdb").with_positions(np.full((2685, 3), 1e9)).write(tmp_path / "y.pdb")
    assert not (tmp_path / "y.pdb").exists()


def test_failed_writes_leave_nothing(tmp_path, villin):
    structure = load_structure(villin)
    with pytest.raises(StructureError, match=r"must end in one of \.pdb"):
        structure.write(tmp_path / "x.xyz")
    with pytest.raises(OutputError, match="cannot write"):
        structure.write(tmp_path / "no folder" / "x.pdb")
    (tmp_path / "taken.pdb").mkdir()
    with pytest.raises(OutputError, match="cannot write"):
        structure.write(tmp_path / "taken.pdb")
    assert [p.name for p in tmp_path.iterdir()] == ["taken.pdb"]


def test_selections(villin):
    structure = load_structure(villin)
    assert len(structure.select("name CA")) == 36
    with pytest.raises(SelectionError, match="matches no atom"):
        structure.select("name XYZ")
    with pytest.raises(SelectionError, match="cannot read the selection"):
        structure.select("name is what")


def test_structures_are_frozen(villin):
    structure = load_structure(villin)
    with pytest.raises(ValueError, match="read-only"):
        structure.positions[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        structure.masses[0] = 0
    moved = structure.with_positions(structure.positions + 1.0)
    assert moved.notes == structure.notes
    heavier = structure.with_masses(2 * structure.masses)
    np.testing.assert_array_equal(heavier.masses, 2 * structure.masses)
    with pytest.raises(ArgumentError, match="masses have shape"):
        structure.with_masses([1.0])

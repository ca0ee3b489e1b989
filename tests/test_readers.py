"""Structure files of every kind: what is read, what is noticed, what is refused."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from real_structures import OPENMM_DATA, read
from structure_files import atom_lines, bond_lengths, hetatm, kinds, mmcif_text, molecules, shifted, the_note

from peptidyn.core.errors import ArgumentError, StructureError
from peptidyn.io.readers import load_structure

WATER_BOX_MOLECULES = 895


def test_every_file_loads_with_sound_bonds(structure_file):
    structure = read(structure_file)
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


def test_positions_are_those_of_the_file(structure_files):
    """Every PDB file of which all atom lines are read: no alternates, no further models, no extra particles."""
    compared = 0
    for path in structure_files:
        structure = read(path)
        if path.suffix != ".pdb" or {"altloc", "models", "dropped"} & kinds(structure).keys():
            continue
        in_file = np.array([[float(line[a : a + 8]) for a in (30, 38, 46)] for line in atom_lines(path)])
        np.testing.assert_allclose(structure.positions, 0.1 * in_file, rtol=0, atol=1e-12, err_msg=str(path))
        compared += 1
    assert compared >= 10


def test_loading_again_gives_the_same_and_prints_nothing(structure_file, capfd, recwarn):
    first = read(structure_file)
    capfd.readouterr()
    recwarn.clear()
    second = load_structure(structure_file)
    assert capfd.readouterr() == ("", "")
    assert not list(recwarn)
    assert np.array_equal(first.positions, second.positions)
    assert np.array_equal(first.masses, second.masses)
    assert np.array_equal(first.atoms.bonds, second.atoms.bonds)
    assert first.notes == second.notes


def test_villin_in_water():
    structure = read(OPENMM_DATA / "test.pdb")
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


def test_packed_files(tmp_path, villin):
    plain = load_structure(villin)
    packed = tmp_path / "villin.pdb.gz"
    packed.write_bytes(gzip.compress(villin.read_bytes()))
    assert np.array_equal(load_structure(packed).positions, plain.positions)
    packed = tmp_path / "villin.cif.gz"
    packed.write_bytes(gzip.compress(mmcif_text(atom_lines(villin)).encode()))
    np.testing.assert_allclose(load_structure(packed).positions, plain.positions, atol=1e-12)


@pytest.mark.parametrize("model", [-1, 0.5, "first", None])
def test_model_must_be_a_count(villin, model):
    with pytest.raises(ArgumentError, match="model must be an integer"):
        load_structure(villin, model=model)


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
    twice = shifted(lines[9], dz=0.1)
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
        "twice": (make("w.pdb", "\n".join([*lines[:10], twice, *lines[10:]])), "atom H2 of .*MET 41 more than once"),
        "element": (make("x.pdb", unknown_element), "element of chain A, residue LIG 1, atom XX is unknown"),
        "crowd": (make("y.pdb", "\n".join(crowd)), "LIG 1 is not a standard residue .* atom C0 would have"),
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

"""Completion: which atoms are added, and which are left as they are."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from real_structures import PDBFIXER_DATA, read
from structure_files import (
    BENZENE,
    atom_lines,
    bonded_names,
    deuterated,
    hetatm,
    kinds,
    molecules,
    residue_number,
    the_note,
    without_hydrogens,
    write,
)

from peptidyn.core.errors import ArgumentError
from peptidyn.io.readers import load_structure


def test_completion_of_every_file(structure_file):
    before = read(structure_file)
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


def test_caps():
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

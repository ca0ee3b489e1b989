"""The plain table of atoms: neighbours, names, labels, steps along bonds; and notes about atoms."""

from __future__ import annotations

import numpy as np
import pytest

from peptidyn.core.atoms import Atoms, steps_from
from peptidyn.core.residues import is_amino_acid, is_hydrogen, is_water, missing_backbone
from peptidyn.io.notes import Note, counted, some


def make_atoms(*residues, bonds=(), chains=None):
    """Residues, each given as its name and its atoms (element first), in chains A and nameless."""
    names = [atom for _, atoms in residues for atom in atoms.split()]
    return Atoms(
        name=np.array(names),
        element=np.array([name[0] for name in names]),
        residue=np.repeat(np.arange(len(residues)), [len(atoms.split()) for _, atoms in residues]),
        residue_name=np.array([name for name, _ in residues]),
        residue_id=np.array([f"{k + 1}" for k in range(len(residues))]),
        residue_chain=np.array(chains or [0] * len(residues)),
        chain_id=np.array(["A", " "]),
        bonds=np.array(bonds, dtype=np.int64).reshape(-1, 2),
        bond_order=np.arange(1.0, len(bonds) + 1),
    )


def test_neighbours_are_sorted_and_mutual():
    atoms = make_atoms(("LIG", "C C C C C"), bonds=[(0, 3), (1, 3), (2, 3), (0, 4)])
    assert atoms.neighbours == [[3, 4], [3], [3], [0, 1, 2], [0]]
    atoms = make_atoms(("LIG", "C C C"), bonds=[(1, 2), (0, 2)])
    assert atoms.neighbours == [[2], [2], [0, 1]]


def test_of_two_atoms_of_one_name_the_first_is_meant():
    atoms = make_atoms(("LIG", "C1 C2 C1"), ("LIG", "C2"))
    assert atoms.residue_atoms == [{"C1": 0, "C2": 1}, {"C2": 3}]
    assert (atoms.n_atoms, atoms.n_residues, atoms.n_chains) == (4, 2, 2)


def test_bonds_are_left_out_with_their_orders():
    atoms = make_atoms(("LIG", "C C C C"), bonds=[(0, 1), (1, 2), (2, 3)])
    left = atoms.without_bonds(np.array([False, True, False]))
    assert left.bonds.tolist() == [[0, 1], [2, 3]] and left.bond_order.tolist() == [1.0, 3.0]
    assert left.neighbours == [[1], [0], [3], [2]] and len(atoms.bonds) == 3


def test_labels():
    atoms = make_atoms(("LIG", "C1 C2"), ("HOH", "O H1 H2"), chains=[0, 1])
    assert atoms.residue_label(0) == "chain A, residue LIG 1" and atoms.residue_label(1) == "residue HOH 2"
    assert atoms.label(4) == "residue HOH 2, atom H2"
    assert atoms.labels([1, 2]) == "chain A, residue LIG 1, atom C2; residue HOH 2, atom O"
    assert atoms.labels(iter([2, 1, 0]), most=2) == "residue HOH 2, atom O; chain A, residue LIG 1, atom C2; and 1 more"
    assert "more" not in atoms.labels(range(5)) and atoms.labels([0] * 9).endswith("; and 4 more")


def test_steps_along_bonds_nearest_first():
    """A ring of six with a tail at 2, and 9 apart from it."""
    near = {0: [5, 1], 1: [0, 2], 2: [1, 3, 6], 3: [2, 4], 4: [3, 5], 5: [4, 0], 6: [2, 7], 7: [6], 9: []}
    found = steps_from(0, near.__getitem__)
    assert found == {0: 0, 5: 1, 1: 1, 4: 2, 2: 2, 3: 3, 6: 3, 7: 4}
    assert list(found.values()) == sorted(found.values())
    assert steps_from(9, near.__getitem__) == {9: 0}


# ---------------------------------------------------------------------------- residues by their atoms


def test_an_amino_acid_has_its_backbone_bonded_in_order():
    bonded = make_atoms(("LIG", "CB N CA C"), bonds=[(0, 2), (1, 2), (2, 3)])
    assert is_amino_acid(bonded, 0)
    for bonds in ([(1, 2)], [(2, 3)], [(1, 3)], []):
        assert not is_amino_acid(make_atoms(("ALA", "CB N CA C"), bonds=bonds), 0)
    for names in ("N CA", "CA C", "N C"):
        assert not is_amino_acid(make_atoms(("ALA", names), bonds=[(0, 1)]), 0)


def test_residues_that_lack_their_backbone():
    """By name, a variant or MSE too; what is no amino acid is not listed, nor is a single stray atom."""
    residues = (
        ("ALA", "N CA C"),
        ("HID", "N CB"),
        ("MSE", "SE CA"),
        ("LIG", "N"),
        ("GLY", "CA"),
        ("SER", "OG"),
        ("LYS", "C"),
    )
    atoms = make_atoms(*residues, bonds=[(2, 8)])  # the atom of GLY has a bond
    assert missing_backbone(atoms) == [(1, ["CA", "C"]), (2, ["N", "C"]), (4, ["N", "C"])]


def test_waters_and_hydrogens():
    residues = ("HOH", "O H1 H2"), ("SOL", "O H1 H2 M L K"), ("SOL", "O H1 H2 M L K J"), ("LIG", "O D1 C")
    atoms = make_atoms(*residues)
    assert is_water(atoms).tolist() == [True, True, False, False]
    assert np.flatnonzero(is_hydrogen(atoms)).tolist() == [1, 2, 4, 5, 10, 11, 17]


# ---------------------------------------------------------------------------- notes


def test_notes_follow_their_atoms():
    note = Note("kind", "text", (4, 7, 2))
    assert note.renumbered({2: 0, 4: 1, 7: 2}) == Note("kind", "text", (1, 2, 0))
    assert note.renumbered({7: 3, 9: 0}) == Note("kind", "text", (3,))
    assert note.renumbered({0: 0}) is None
    assert Note("kind", "text").renumbered({}) == Note("kind", "text")  # it is about the whole file
    assert str(note) == "text"


@pytest.mark.parametrize(("n", "text"), [(0, "0 atoms"), (1, "1 atom"), (2, "2 atoms")])
def test_things_are_counted(n, text):
    assert counted(n, "atom") == text


def test_some_of_many():
    assert some(["a", "b"]) == "a; b" and some(list("abcde")) == "a; b; c; d; e"
    assert some(list("abcdefg")) == "a; b; c; d; e; and 2 more" and some(["a", "b"], most=1) == "a; and 1 more"

"""Where added atoms are put."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from structure_files import bond_lengths, chiralities, kinds, molecules, residue_number, without_hydrogens, write

from peptidyn.io.readers import load_structure


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


def test_amides_are_flat_and_amines_are_not(tmp_path, villin):
    """Signed volume of the three bonds of N, by length: none in the plane of an amide, 0.7 at a neutral lysine."""
    structure = load_structure(write(tmp_path, without_hydrogens(villin)), add_hydrogens=True, pH=13)
    volumes = {"NZ": [], "NE2": []}
    for at in structure.atoms.residue_atoms:
        for name, found in volumes.items():
            if name not in at or at.keys() & {"HZ3", "CE1"}:
                continue
            bonds = structure.positions[list(structure.atoms.neighbours[at[name]])] - structure.positions[at[name]]
            found.append(abs(np.linalg.det(bonds / np.linalg.norm(bonds, axis=1, keepdims=True))))
    assert volumes["NZ"] and min(volumes["NZ"]) > 0.6
    assert volumes["NE2"] and max(volumes["NE2"]) < 1e-6

"""Rigid units: their names, and the atoms that belong to one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from named_molecules import atom, changed, molecule
from random_trees import Beads

import peptidyn as ptd
from peptidyn.model.rigid_units import same_unit


def names_of_units(structure, soft="phi psi chi", **options):
    return [(unit.kind, unit.name) for unit in ptd.build_tree(structure, soft, **options).units]


def test_units_of_a_peptide_have_names():
    """Caps and planes, the alpha carbon between phi and psi, side chains by their first heavy atom."""
    assert names_of_units(ptd.build_peptide("S")) == [
        ("peptide plane", "peptide plane ACE 1 - SER 2 (chain A)"),
        ("alpha carbon", "alpha carbon of SER 2 (chain A)"),
        ("side chain", "side-chain unit CB of SER 2 (chain A)"),
        ("peptide plane", "peptide plane SER 2 - NME 3 (chain A)"),
    ]
    assert names_of_units(ptd.build_peptide("A"), "phi psi omega") == [
        ("cap", "cap ACE 1 (chain A)"),
        ("terminus", "terminus of ALA 2 (chain A)"),
        ("alpha carbon", "alpha carbon of ALA 2 (chain A)"),
        ("terminus", "terminus of ALA 2 (chain A)"),
        ("cap", "cap NME 3 (chain A)"),
    ]
    assert names_of_units(ptd.build_peptide("A", caps=False), "psi polar")[0] == (
        "terminus", "terminus of ALA 1 (chain A)",
    )  # fmt: skip


def test_a_rigid_stretch_is_named_from_its_first_to_its_last_plane():
    structure = ptd.build_peptide("AAA")
    (unit,) = (name for name in names_of_units(structure, rigid="resid 1 to 2") if name[0] == "peptide planes")
    assert unit == ("peptide planes", "peptide planes ACE 1 - ALA 4 (chain A)")


def test_a_side_chain_is_called_by_a_heavy_atom():
    """The first of its atoms that is no hydrogen, though HB2 stands before it in the file; HB2 if that moves alone."""
    structure = ptd.build_peptide("S")
    carbon, hydrogen = atom(structure, 1, "CB"), atom(structure, 1, "HB2")
    order = np.arange(structure.n_atoms)
    order[[carbon, hydrogen]] = hydrogen, carbon
    atoms = structure.atoms
    bonds = np.array(sorted(sorted(bond) for bond in order[atoms.bonds].tolist()))
    atoms = replace(atoms, name=atoms.name[order], element=atoms.element[order], bonds=bonds)
    other = Beads(atoms, structure.positions[order], structure.masses[order])
    assert atoms.name[carbon] == "HB2"
    assert ("side chain", "side-chain unit CB of SER 2 (chain A)") in names_of_units(other)
    assert ("side chain", "side-chain unit HB2 of SER 2 (chain A)") in names_of_units(structure, "all")


def test_waters_ions_and_other_molecules_have_names():
    parents = [-1, 0, 0, -1, -1, 4, 5, 6]
    names, residues = "O H1 H2 CL C1 C2 C3 C4", [0, 0, 0, 1, 2, 2, 3, 3]
    structure = molecule(parents, names, residues, ["HOH", "CL", "LIG", "XYZ"], [0, 1, 2, 2])
    assert names_of_units(structure, "none") == [
        ("water", "water HOH 1 (chain A)"),
        ("ion", "ion CL 2 (chain B)"),
        ("molecule", "molecule LIG 3 - XYZ 4 (chain C)"),
    ]
    assert names_of_units(changed(structure, chain_id=np.array(["A", "B", " "])), "none")[2] == (
        "molecule", "molecule LIG 3 - XYZ 4",
    )  # fmt: skip
    # one atom that moves alone is no ion
    assert names_of_units(molecule([-1, 0, 1], "C1 C2 C3"), "all") == [("molecule", "molecule LIG 1 (chain A)")] * 3


def test_units_have_their_own_atoms_and_those_on_their_axes():
    """Atoms 1 and 2 are on the axis: each belongs to one of two bodies, and both have half of its mass."""
    tree = ptd.build_tree(molecule([-1, 0, 1, 1, 2, 2], "C0 C1 C2 O3 C4 N5"), "rotor")
    first, second = tree.units
    assert (first.atoms.tolist(), first.shared.tolist()) == ([0, 1, 3], [2])
    assert (second.atoms.tolist(), second.shared.tolist()) == ([2, 4, 5], [1])
    assert (first.mass, second.mass) == (12.0 + 16.0 + 6.0 + 6.0, 12.0 + 14.0 + 6.0 + 6.0)
    assert (first.link, second.link) == (0, 1) and tree.unit(1).name == second.name
    inside = same_unit(tree)
    assert inside([0, 1, 2, 3]) and inside([1, 2, 4, 5]) and inside([1, 2]) and inside([4])
    assert not inside([0, 4]) and not inside([0, 1, 2, 4])


def test_massless_links_are_no_units():
    """Two coordinates of one bond have a link between them."""
    tree = ptd.build_tree(molecule([-1, 0, 1], "C1 C2 C3"), "all")
    assert tree.n_links == 4 and tree.n_bodies == 3 and [unit.link for unit in tree.units] == [0, 1, 3]
    nothing = tree.unit(2)
    assert (nothing.kind, nothing.mass, nothing.atoms.tolist()) == ("body", 0.0, [])

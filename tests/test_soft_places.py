"""Coordinates atom by atom: which are soft at every bond, in which order, by which atoms, and which link carries what.

The molecule is an ethane of six carbons, 0 and 3 on 1, 4 and 5 on 2; the torsion about 1-2 is named by 3 and 5, whose
names have the lowest branch numbers.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from named_molecules import coordinates, molecule, selectable
from random_trees import random_state

import peptidyn as ptd
from peptidyn.core.errors import ModelError
from peptidyn.model.tree import HardBond

ETHANE = selectable(molecule([-1, 0, 1, 1, 2, 2], "CX2 C1 C2 CX1 CX9 CX3"))
ETHENE = selectable(molecule([-1, 0, 1, 1, 2, 2], "CX2 C1 C2 CX1 CX9 CX3", order=2.0))


def words(tree):
    """Return every coordinate as a word, such as ``bend 2-1-0``."""
    return [f"{motion} {'-'.join(map(str, atoms))}" for motion, _, atoms in coordinates(tree)]


def shared(tree):
    """Return (link, atom) of atoms that a link shares with the one that carries them; each is there once."""
    pairs = list(zip(tree.share_link.tolist(), tree.share_atom.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    own, others = pairs[: tree.n_atoms], pairs[tree.n_atoms :]
    assert own == [(link, atom) for atom, link in enumerate(tree.atom_link.tolist())]
    return others


def measured_as_moved(tree):
    """True if values of coordinates that are set are those that positions have."""
    state = random_state(tree, np.random.default_rng(0))
    found = tree.state(tree.positions(state))
    return np.abs(np.exp(1j * found.q) - np.exp(1j * state.q)).max() < 1e-9


TORSION = "torsion 3-1-2-5"
CASES = {
    # the torsion alone: atoms on its axis belong to both sides
    ("rotor", None): ([TORSION], [0, 0, 1, 0, 1, 1], [(1, 1), (0, 2)]),
    # the root, atom 1, hangs on 2: angles at 1 are opened from there; those of 3 are the main ones
    ("all", None): (
        ["phase 3-2-1-0", "bend 2-1-0", "stretch 1-0", "bend 2-1-3", "stretch 1-3", "stretch 1-2", TORSION,
         "phase 5-1-2-4", "bend 1-2-4", "stretch 2-4", "bend 1-2-5", "stretch 2-5"],
        [3, 0, 7, 5, 10, 12], [],
    ),
    ("all", 4): (
        ["phase 5-1-2-4", "bend 1-2-4", "stretch 2-4", "bend 1-2-5", "stretch 2-5", "stretch 2-1", TORSION,
         "phase 3-2-1-0", "bend 2-1-0", "stretch 1-0", "bend 2-1-3", "stretch 1-3"],
        [10, 7, 0, 12, 3, 5], [],
    ),
    ("rotor bends", None): (
        ["bend 2-1-0", "bend 2-1-3", TORSION, "bend 1-2-4", "bend 1-2-5"],
        [1, 0, 3, 2, 4, 5], [(1, 1), (2, 1), (3, 1), (0, 2), (4, 2), (5, 2)],
    ),
    # an atom that a phase moves is on no axis of its own
    ("rotor phases", None): (
        ["phase 3-2-1-0", TORSION, "phase 5-1-2-4"], [1, 0, 2, 0, 3, 2], [(1, 1), (2, 1), (0, 2), (3, 2)],
    ),
    ("bonds", None): (
        ["stretch 1-0", "stretch 1-3", "stretch 1-2", "stretch 2-4", "stretch 2-5"], [1, 0, 3, 2, 4, 5], [],
    ),
    ("rotor; phases in 0", None): (
        ["phase 3-2-1-0", TORSION], [1, 0, 2, 0, 2, 2], [(1, 1), (2, 1), (0, 2)],
    ),
    ("bends phases in 4 5", None): (
        ["phase 5-1-2-4", "bend 1-2-4", "bend 1-2-5"], [0, 0, 0, 0, 2, 3], [(2, 2), (3, 2)],
    ),
    # angles of both ends, seen from the other one
    ("rotor; bends in 4 5", 4): (
        [TORSION, "bend 1-2-4", "bend 1-2-5"], [1, 1, 0, 1, 2, 3], [(1, 2), (0, 1), (2, 2), (3, 2)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("soft", "root"), CASES)
def test_coordinates_and_links_of_an_ethane(soft, root):
    expected, links, common = CASES[soft, root]
    tree = ptd.build_tree(ETHANE, soft, root=root)
    assert words(tree) == expected and tree.atom_link.tolist() == links and shared(tree) == common
    assert [c.dof for c in tree.coordinates] == list(range(6, 6 + len(expected)))
    assert tree.dof.tolist() == [0, *range(6, 6 + len(expected))] == [0, *tree.coordinate_dof.tolist()]
    assert measured_as_moved(tree)


DOUBLE = HardBond("rotor", (1, 2), "double bond")
UNASKED = HardBond("rotor", (1, 2), "not asked for")


@pytest.mark.parametrize(
    ("soft", "expected", "hard"),
    [
        ("heavy", ["bend 2-1-0", "phase 0-2-1-3", "bend 2-1-3", "bend 1-2-4", "phase 4-1-2-5", "bend 1-2-5"], [DOUBLE]),
        ("all in 0 1 3", ["bend 2-1-0", "stretch 1-0", "phase 0-2-1-3", "bend 2-1-3", "stretch 1-3"], [DOUBLE]),
        ("all in 1 2", ["stretch 1-2", "torsion 0-1-2-4"], []),
    ],
)
def test_double_bonds_turn_where_everything_is_soft(soft, expected, hard):
    """The torsion about one has no name: it is measured by the first atoms at its ends, which have no phase."""
    tree = ptd.build_tree(ETHENE, soft)
    assert words(tree) == expected and list(tree.hard_bonds) == hard and measured_as_moved(tree)
    whole = ptd.build_tree(ETHENE, "all")
    assert "torsion 0-1-2-4" in words(whole) and whole.n_coordinates == 12 and whole.hard_bonds == ()


def test_bonds_that_do_not_turn_are_listed_beside_those_that_do():
    assert ptd.build_tree(ETHANE, "bonds").hard_bonds == (UNASKED,)
    assert ptd.build_tree(ETHANE, "all").hard_bonds == ptd.build_tree(ETHANE, "rotor bends").hard_bonds == ()
    held = ptd.build_tree(ETHANE, "rotor bends", rigid=[1, 2])
    assert held.hard_bonds == (HardBond("rotor", (1, 2), "inside a rigid selection"),)


# ---------------------------------------------------------------------------- torsions beside angles and phases


LONG = selectable(molecule([-1, 0, 1, 2, 3, 2, 3], "CX1 C1 C2 C3 CX4 CX1 CX3"))
"""0-1-2-3-4 with 5 on 2 and 6 on 3; the torsions are 0-1-2-5, by name, and 1-2-3-6."""


@pytest.mark.parametrize(
    ("soft", "root", "torsion"),
    [
        ("rotor", None, "torsion 0-1-2-5"),
        ("rotor", 4, "torsion 0-1-2-5"),  # from the other end 2 hangs on 3
        ("rotor; bends in 5", 4, "torsion 0-1-2-3"),  # opening 3-2-5 turns 5 about 1-2
        ("rotor; phases in 5", 4, "torsion 0-1-2-3"),
        ("rotor; bends in 1", 4, "torsion 0-1-2-3"),  # opening 3-2-1 moves the axis
        ("rotor; bends in 4 6 0", 4, "torsion 0-1-2-5"),  # these do not
        ("rotor; bends phases in 5", None, "torsion 0-1-2-5"),  # 5 is what the torsion turns
    ],
)
def test_a_torsion_is_measured_by_atoms_that_nothing_else_turns(soft, root, torsion):
    tree = ptd.build_tree(LONG, soft, root=root)
    assert sorted(w for w in words(tree) if w.startswith("torsion")) == [torsion, "torsion 1-2-3-6"]
    assert measured_as_moved(tree)


def test_hydrogens_have_words_of_their_own():
    """CH2(H)-C(H)(O): with "hydrogens" all of theirs, with "heavy" the oxygen's angle alone."""
    structure = molecule([-1, 0, 0, 0, 3, 3], "C1 H2 H3 C4 H5 O6")
    assert coordinates(ptd.build_tree(structure, "hydrogens")) == [
        ("bend", "angle", (3, 0, 1)),
        ("phase", "phase", (1, 3, 0, 2)),
        ("bend", "angle", (3, 0, 2)),
        ("torsion", "methyl", (5, 3, 0, 1)),
        ("phase", "phase", (5, 0, 3, 4)),
        ("bend", "angle", (0, 3, 4)),
    ]
    assert coordinates(ptd.build_tree(structure, "heavy")) == [("bend", "angle", (0, 3, 5))]
    assert words(ptd.build_tree(structure, "phases")) == []
    assert words(ptd.build_tree(molecule([-1, 0, 0, 0, 3, 3], "C1 H2 C3 C4 H5 O6"), "phases")) == []
    assert words(ptd.build_tree(molecule([-1, 0, 0, 0, 3, 3], "C1 O2 C3 C4 N5 O6"), "phases")) == [
        "phase 1-3-0-2",
        "phase 4-0-3-5",
    ]


def test_heavy_atoms_that_carry_others_come_first():
    """Atom 0 hangs on its first child by rank: not the hydrogen 1, nor 2, which carries nothing, but 3."""
    structure = molecule([-1, 0, 0, 0, 3, 3, 0], "C1 H2 C3 C4 C5 C6 C7", order=2.0)
    found = words(ptd.build_tree(structure, "bends phases hydrogens"))
    assert "phase 2-3-0-1" in found and "phase 2-3-0-6" in found and "bend 3-0-2" in found
    assert {w for w in found if w.startswith("bend")} == {
        f"bend {a}" for a in ("3-0-1", "3-0-2", "3-0-6", "0-3-4", "0-3-5")
    }


@pytest.mark.parametrize(
    ("parents", "names", "expected"),
    [
        ([-1, 0], "C1 C2", ["stretch 0-1"]),
        ([-1, 0, 1], "C1 C2 C3", ["stretch 1-0", "bend 0-1-2", "stretch 1-2"]),
        ([-1, 0, -1], "C1 C2 C3", ["stretch 0-1"]),
    ],
)
def test_everything_of_two_and_three_atoms(parents, names, expected):
    """The tree of three begins at the middle one, that of two at the first."""
    tree = ptd.build_tree(molecule(parents, names), "all")
    assert words(tree) == expected and tree.atom_link[1 if parents == [-1, 0, 1] else 0] == 0


def test_the_root_that_is_asked_for_gives_way_to_the_atom_it_hangs_on():
    """Where angles are soft; with torsions alone the tree begins at the very atom."""
    assert ptd.build_tree(ETHANE, "all", root=5).atom_link[2] == 0
    assert ptd.build_tree(ETHANE, "rotor", root=5).atom_link.tolist() == [1, 1, 0, 1, 0, 0]
    assert ptd.build_tree(ETHANE, "rotor", root=3).atom_link.tolist() == [0, 0, 1, 0, 1, 1]
    two = molecule([-1, 0, 1, 2, -1, 4, 5, 6], "C1 C2 C3 C4 C5 C6 C7 C8")
    tree = ptd.build_tree(two, "rotor", root=7)
    assert tree.atom_link.tolist() == [0, 0, 1, 1, 3, 3, 2, 2] and tree.molecule_link.tolist() == [0, 2, 4]
    for m, atom in enumerate((1, 6)):  # the other molecule keeps its own
        assert tree.atom_link[atom] == tree.molecule_link[m]


@pytest.mark.parametrize(
    ("degrees", "turns"), [(9.0, False), (11.0, True), (109.0, True), (169.0, True), (171.0, False)]
)
def test_angles_within_ten_degrees_of_a_line_cannot_be_soft(degrees, turns):
    structure = molecule([-1, 0, 1, 1], "C1 C2 C3 C4")
    x, angle = structure.positions, np.deg2rad(degrees)
    x[:3] = (0.15, 0.0, 0.0), (0.0, 0.0, 0.0), (0.15 * np.cos(angle), 0.15 * np.sin(angle), 0.0)
    x[3] = 0.15 * np.array([-0.3, -0.5, 0.8])
    part = selectable(structure)
    if turns:
        assert ptd.build_tree(part, "bends in 2 3").n_bends == 2
        return
    with pytest.raises(ModelError, match="is linear or nearly so") as error:
        ptd.build_tree(part, "bends in 2 3")
    assert all(structure.atoms.label(a) in str(error.value) for a in (0, 1, 2))


# ---------------------------------------------------------------------------- rigid selections


def test_atoms_are_measured_from_the_rigid_selection_they_hang_on():
    """At its root the bonded atom comes first, then the others; at its end, where it hangs, its own atoms."""
    found = words(ptd.build_tree(LONG, "bends phases rotor", rigid=[1, 2, 5]))
    assert found == ["phase 5-2-1-0", "bend 2-1-0", "phase 5-1-2-3", "bend 1-2-3", "torsion 1-2-3-6", "phase 6-2-3-4",
                     "bend 2-3-4", "bend 2-3-6"]  # fmt: skip
    other = ptd.build_tree(LONG, "bends phases", rigid=[0, 1, 2], root=2)
    assert {"phase 0-1-2-3", "phase 0-1-2-5", "bend 1-2-3", "bend 1-2-5"} <= set(words(other))
    pair = words(ptd.build_tree(LONG, "all", rigid=[2, 5]))
    assert "phase 5-1-2-3" in pair and "torsion 0-1-2-5" in pair and len(pair) == 3 * 7 - 6 - 2


def test_an_atom_on_the_line_of_two_measures_no_phase():
    """0-1-2 on a line with 3 beside 2, all rigid: the phase of 4, on 0 about 1-0, is relative to 3, not to 2."""
    structure = molecule([-1, 0, 1, 2, 0], "C1 C2 C3 C4 C5")
    x = structure.positions
    x[3] += 2.0 * x[1] - x[0] - x[2]
    x[2] = 2.0 * x[1] - x[0]
    tree = ptd.build_tree(structure, "bends phases", rigid=[0, 1, 2, 3])
    assert words(tree) == ["phase 3-1-0-4", "bend 1-0-4"] and measured_as_moved(tree)


@pytest.mark.parametrize("root", [0, 7])
def test_a_rigid_selection_joins_two_molecules(root):
    """Rows of four whose ends are held together: 18 coordinates, less the length of 3-4, its turn, and an angle.

    That is the one at the end where the selection hangs on the rest.
    """
    two = molecule([-1, 0, 1, 2, -1, 4, 5, 6], "C1 C2 C3 C4 C5 C6 C7 C8")
    two.positions[4:] += [0.4, 0.3, -8.0]
    tree = ptd.build_tree(two, "all", rigid=[3, 4], root=root)
    assert tree.n_molecules == 1 and tree.n_coordinates == 15 and measured_as_moved(tree)
    assert tree.atom_link[3] == tree.atom_link[4]


# ---------------------------------------------------------------------------- peptides


@pytest.mark.parametrize("root", [0, -1])
def test_backbone_angles_are_the_same_from_either_end(root):
    structure = ptd.build_peptide("AA")
    tree = ptd.build_tree(structure, "angles bonds", root=root % structure.n_atoms)
    assert Counter(c.kind for c in tree.bends) == {"N-CA-C": 2, "CA-C-N": 2, "C-N-CA": 2}


def test_backbone_angles_are_those_of_amino_acids():
    """C-N-CA-CB of a ligand has none by that name."""
    ligand = molecule([-1, 0, 1, 2], "C N CA CB")
    assert ptd.build_tree(ligand, "angles bonds").n_bends == 0 and ptd.build_tree(ligand, "bends bonds").n_bends == 2
    assert {c.kind for c in ptd.build_tree(ligand, "bends bonds").bends} == {"angle"}


def test_angles_in_rigid_selections_and_rings_are_listed_with_their_reason():
    structure = ptd.build_peptide("AP")
    tree = ptd.build_tree(structure, "angles", rigid="resid 1")
    reasons = {(b.kind, b.why) for b in tree.hard_bonds if b.kind in ("N-CA-C", "CA-C-N", "C-N-CA")}
    assert reasons == {
        ("N-CA-C", "inside a rigid selection"),
        ("C-N-CA", "inside a rigid selection"),
        ("C-N-CA", "in a ring"),
    }
    ring = [b for b in tree.hard_bonds if b.why == "in a ring"]
    proline = structure.atoms.residue_atoms[2]
    assert {b.kind for b in ring} == {"phi", "C-N-CA"} and {b.atoms for b in ring} == {(proline["N"], proline["CA"])}


@pytest.mark.parametrize(("root", "first"), [(0, "C N CA"), (-1, "C CA N")])
def test_what_is_soft_in_a_soft_ring(root, first):
    """Proline's ring is cut at N-CD; lengths, angles and turns of its other atoms are soft, seen from either end."""
    structure = ptd.build_peptide("AP")
    tree = ptd.build_tree(structure, "rings", root=root % structure.n_atoms)
    found = [(c.motion, " ".join(str(structure.atoms.name[a]) for a in c.atoms)) for c in tree.coordinates]
    forward = root == 0
    assert found == [
        ("bend", first),
        ("stretch", "N CA" if forward else "CA N"),
        ("torsion", "C N CA C"),
        ("phase", "C N CA CB" if forward else "N C CA CB"),
        ("bend", "N CA CB" if forward else "C CA CB"),
        ("stretch", "CA CB"),
        ("torsion", "N CA CB CG" if forward else "C CA CB CG"),
        ("bend", "CA CB CG"),
        ("stretch", "CB CG"),
        ("torsion", "CA CB CG CD"),
        ("bend", "CB CG CD"),
        ("stretch", "CG CD"),
        ("torsion", "CB CG CD HD2"),
    ]
    assert measured_as_moved(tree)

"""Topologies as plain tables and copied with changes, reduced boxes, selections, masses of elements: all by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from openmm import Vec3, app, unit

import peptidyn as ptd
from peptidyn.core.errors import SelectionError, StructureError
from peptidyn.core.units import plain_array
from peptidyn.io.topology import (
    atoms_from_topology,
    bonds_of,
    copy_topology,
    masses_from_elements,
    reduced_box,
    select_atoms,
)

CARBON, NITROGEN, OXYGEN, SODIUM = (app.Element.getBySymbol(symbol) for symbol in ("C", "N", "O", "Na"))


def small_topology():
    """Chains A (residues 5 and 5B), A again, and B, each of one or two residues; eight atoms, one without element."""
    topology = app.Topology()
    a, again, b = (topology.addChain(name) for name in "AAB")
    first = topology.addResidue("LIG", a, "5")
    second = topology.addResidue("LIG", a, "5", "B")
    third = topology.addResidue("ACT", again, "-1")
    fourth = topology.addResidue("HOH", b, "9")
    places = [
        ("C1", CARBON, first), ("C2", CARBON, first), ("N1", NITROGEN, second), ("C1", CARBON, second),
        ("C1", CARBON, third), ("O1", OXYGEN, third), ("O", OXYGEN, fourth), ("M", None, fourth),
    ]  # fmt: skip
    atoms = [topology.addAtom(*place, id=str(100 + k)) for k, place in enumerate(places)]
    topology.addBond(atoms[4], atoms[5], app.Double, 2)
    topology.addBond(atoms[3], atoms[1], app.Aromatic, 2)
    topology.addBond(atoms[0], atoms[1], app.Single)
    topology.addBond(atoms[2], atoms[3], None, 3)
    topology.setPeriodicBoxVectors(np.diag([2.0, 3.0, 4.0]) * unit.nanometer)
    return topology


BONDS = [[0, 1], [1, 3], [2, 3], [4, 5]]


def table(topology):
    """Chains of residues with their atoms, as names."""
    return [
        (
            chain.id,
            [
                (residue.name, residue.id, residue.insertionCode, " ".join(atom.name for atom in residue.atoms()))
                for residue in chain.residues()
            ],
        )
        for chain in topology.chains()
    ]


# ---------------------------------------------------------------------------- plain tables


def test_a_topology_becomes_a_table():
    atoms = atoms_from_topology(small_topology())
    assert atoms.name.tolist() == ["C1", "C2", "N1", "C1", "C1", "O1", "O", "M"]
    assert atoms.element.tolist() == ["C", "C", "N", "C", "C", "O", "O", ""]
    assert atoms.residue.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert atoms.residue_name.tolist() == ["LIG", "LIG", "ACT", "HOH"]
    assert atoms.residue_id.tolist() == ["5", "5B", "-1", "9"]
    assert atoms.residue_chain.tolist() == [0, 0, 1, 2]
    assert atoms.chain_id.tolist() == ["A", "A", "B"]
    assert atoms.bonds.tolist() == BONDS
    assert atoms.bond_order.tolist() == [1.0, 1.5, 3.0, 2.0]  # Aromatic counts before a number
    empty = atoms_from_topology(app.Topology())
    assert empty.bonds.shape == (0, 2) and empty.n_atoms == empty.n_chains == 0


@pytest.mark.parametrize(
    ("kind", "number", "order"),
    [
        (None, None, 0.0),
        (None, 2, 2.0),
        (app.Single, None, 1.0),
        (app.Double, None, 2.0),
        (app.Triple, None, 3.0),
        (app.Aromatic, None, 1.5),
        (app.Amide, None, 0.0),
        (app.Amide, 1, 1.0),
        (app.Single, 2, 2.0),
    ],
)
def test_orders_of_bonds(kind, number, order):
    topology = app.Topology()
    residue = topology.addResidue("LIG", topology.addChain())
    one, other = (topology.addAtom(f"C{k}", CARBON, residue) for k in range(2))
    topology.addBond(other, one, kind, number)
    atoms = atoms_from_topology(topology)
    assert atoms.bonds.tolist() == [[0, 1]] and atoms.bond_order.tolist() == [order]


def test_of_bonds_that_are_listed_twice_the_higher_order_stays():
    topology = app.Topology()
    residue = topology.addResidue("LIG", topology.addChain())
    atoms = [topology.addAtom(f"C{k}", CARBON, residue) for k in range(4)]
    topology.addBond(atoms[1], atoms[0], app.Double, 2)
    topology.addBond(atoms[0], atoms[1])
    topology.addBond(atoms[2], atoms[1])
    topology.addBond(atoms[1], atoms[2], None, 3)
    topology.addBond(atoms[3], atoms[3])  # says nothing
    topology.addBond(atoms[3], atoms[2], app.Single)
    assert bonds_of(topology) == {(0, 1): (app.Double, 2), (1, 2): (None, 3), (2, 3): (app.Single, None)}


def test_atoms_out_of_order_are_refused():
    topology = small_topology()
    list(topology.atoms())[5].index = 4
    with pytest.raises(StructureError, match="lists its atoms out of order"):
        atoms_from_topology(topology)


# ---------------------------------------------------------------------------- copies


def test_a_copy_has_everything():
    topology = small_topology()
    copy = copy_topology(topology, bonds_of(topology))
    assert copy is not topology and table(copy) == table(topology)
    assert bonds_of(copy) == bonds_of(topology)
    assert [atom.element for atom in copy.atoms()] == [atom.element for atom in topology.atoms()]
    assert [atom.id for atom in copy.atoms()] == [str(100 + k) for k in range(8)]
    assert plain_array(copy.getPeriodicBoxVectors()).diagonal().tolist() == [2.0, 3.0, 4.0]
    assert copy_topology(app.Topology(), {}).getPeriodicBoxVectors() is None


def test_formal_charges_are_copied():
    topology = app.Topology()
    residue = topology.addResidue("NA", topology.addChain())
    charged = topology.addAtom("NA", SODIUM, residue)
    if not hasattr(charged, "formalCharge"):
        pytest.skip("this OpenMM has no formal charges")
    charged.formalCharge = 1
    assert next(copy_topology(topology, {}).atoms()).formalCharge == 1


def test_bonds_of_a_copy_are_those_that_are_given():
    topology = small_topology()
    copy = copy_topology(topology, {(0, 3): (None, None), (4, 5): (app.Triple, 3)})
    assert bonds_of(copy) == {(0, 3): (None, None), (4, 5): (app.Triple, 3)}


def test_some_atoms_are_kept_in_the_order_of_the_topology():
    """Residues and chains without atoms vanish, and so do bonds to atoms that are not kept."""
    topology = small_topology()
    copy = copy_topology(topology, bonds_of(topology), keep=[7, 3, 2, 1])
    assert table(copy) == [("A", [("LIG", "5", "", "C2"), ("LIG", "5", "B", "N1 C1")]), ("B", [("HOH", "9", "", "M")])]
    assert bonds_of(copy) == {(0, 2): (app.Aromatic, 2), (1, 2): (None, 3)}


def test_other_names_of_a_copy():
    topology = small_topology()
    copy = copy_topology(
        topology,
        {},
        keep=[2, 3, 4, 5, 6],
        chain_ids=["X", "Y", "Z"],
        residue_ids=[("1", ""), ("2", "C"), ("3", ""), ("4", "D")],
        residue_names={1: "ONE", 3: "WAT"},
        atom_kinds={3: ("N9", NITROGEN), 6: ("OW", OXYGEN)},
        extra_atoms={0: [("C9", CARBON)], 1: [("O7", OXYGEN), ("O8", OXYGEN)], 3: [("EP", None)]},
    )
    assert table(copy) == [
        ("X", [("ONE", "2", "C", "N1 N9 O7 O8")]),
        ("Y", [("ACT", "3", "", "C1 O1")]),
        ("Z", [("WAT", "4", "D", "OW EP")]),
    ]
    symbols = [None if atom.element is None else atom.element.symbol for atom in copy.atoms()]
    assert symbols == ["N", "N", "O", "O", "C", "O", "O", None]


def test_chains_are_broken_and_joined():
    topology = small_topology()
    ligand, second, third, fourth = (residue for _, residues in table(topology) for residue in residues)
    apart = copy_topology(topology, {}, break_before=[1])
    assert table(apart) == [("A", [ligand]), ("A", [second]), ("A", [third]), ("B", [fourth])]
    together = copy_topology(topology, {}, join_chains=[7, 7, 2])
    assert table(together) == [("A", [ligand, second, third]), ("B", [fourth])]
    both = copy_topology(topology, {}, join_chains=[0, 0, 0], break_before=[2], chain_ids="PQR")
    assert table(both) == [("P", [ligand, second]), ("Q", [third, fourth])]
    apart = copy_topology(topology, {}, join_chains=[1, 2, 1])  # not neighbours
    assert table(apart) == [("A", [ligand, second]), ("A", [third]), ("B", [fourth])]
    gone = copy_topology(topology, {}, keep=[0, 4], break_before=[1], join_chains=[0, 0, 1])
    assert [len(residues) for _, residues in table(gone)] == [1, 1]  # the break stays, though residue 1 is gone


# ---------------------------------------------------------------------------- boxes


def lattice(given):
    """The same lattice, as the rows of the box that OpenMM is given; checks that it is in reduced form."""
    found = plain_array(reduced_box(given))
    (ax, ay, az), (bx, by, bz), (cx, cy, _) = found
    assert ay == az == bz == 0.0
    assert ax >= 2 * abs(bx) and ax >= 2 * abs(cx) and by >= 2 * abs(cy)
    app.Topology().setPeriodicBoxVectors([Vec3(*row) for row in found] * unit.nanometer)  # OpenMM agrees
    return found


def test_boxes_are_reduced_to_the_same_lattice():
    """(1.3, 0, 0) is subtracted from b once; b and then a from c."""
    found = lattice([[1.3, 0, 0], [0.8, 1.1, 0], [0.9, 0.7, 1.2]])
    assert found == pytest.approx(np.array([[1.3, 0, 0], [-0.5, 1.1, 0], [0.1, -0.4, 1.2]]))
    found = lattice([[1.0, 0, 0], [-0.9, 2.0, 0], [3.3, -3.7, 1.0]])  # c + 2b = 1.5, less 1 or 2 of a
    assert found[1] == pytest.approx([0.1, 2.0, 0.0]) and found[2][1:] == pytest.approx([0.3, 1.0])
    assert abs(found[2][0]) == pytest.approx(0.5)
    skewed = np.array([[2.0, 0, 0], [7.3, 2.5, 0], [-11.2, 9.4, 1.7]])
    turns = lattice(skewed) @ np.linalg.inv(skewed)
    assert turns == pytest.approx(np.round(turns)) and np.linalg.det(turns) == pytest.approx(1.0)


def test_half_a_box_stays_and_rounding_errors_beyond_it_go():
    """Hexagonal cells have b_x of half a box; single precision leaves it a bit more, on either side."""
    half = np.array([[2.0, 0, 0], [1.0, np.sqrt(3), 0], [-1.0, -0.5 * np.sqrt(3), 1.5]])
    assert np.array_equal(lattice(half), half)
    for by_a_bit in (1e-7, -1e-7):
        given = half * [[1, 1, 1], [1 + by_a_bit, 1, 1], [1 + by_a_bit, 1 + by_a_bit, 1]]
        assert lattice(given) == pytest.approx(half, abs=2e-7)
    rectangular = np.diag([1.0, 4.0, 3.0])
    rectangular[2, 1] = 1.9  # less than half of b, more than half of a
    assert np.array_equal(lattice(rectangular), rectangular)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_box_without_volume_is_none(axis):
    flat = np.diag([2.0, 2.0, 2.0])
    flat[axis, axis] = 0.0
    assert reduced_box(flat) is None


# ---------------------------------------------------------------------------- selections


@pytest.fixture(scope="module")
def dipeptide():
    """ACE 1, ALA 2, GLY 3 and NME 4, 29 atoms in this order."""
    return ptd.build_peptide("AG").to_mdtraj().topology


@pytest.mark.parametrize(
    ("selection", "atoms"),
    [
        ("name CA", [8, 18]),
        ("name == CA", [8, 18]),
        ("name CA CB", [8, 10, 18]),
        ("resname GLY and resSeq 3", range(16, 23)),
        ("resid 1 to 2", range(6, 23)),
        ("index 3 to 5", [3, 4, 5]),
        ("mass > 15.5", [5, 15, 22]),
        ("n_bonds 4", [0, 8, 10, 18, 25]),
        ("not element H and resid 1", [6, 8, 10, 14, 15]),
        ("backbone and resid 1 2", [6, 8, 14, 15, 16, 18, 21, 22]),
        ("is_backbone and not is_water and name O", [5, 15, 22]),
        ("not is_protein or resname ACE", range(6)),
        ("chainid 0 and name CH3", [0]),
    ],
)
def test_selections_that_are_read(dipeptide, selection, atoms):
    found = select_atoms(dipeptide, selection, "x")
    assert found.dtype == np.int64 and found.tolist() == list(atoms)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ("resid 0 to", "cannot read"),
        ("index CA", "'CA' is not a number"),
        ("resSeq == CA", "'CA' is not a number"),
        ("n_bonds CA", "'CA' is not a number"),
        ("mass CA", "'CA' is not a number"),
        ("name 5", "'5' is not a name"),
        ("resname 5 6", "'5' is not a name"),
        ("name CA resname", "'resname' is not a name, and 'and' or 'or' may be missing"),
        ("name CA resid 3", "is not a name, and 'and' or 'or' may be missing"),
        ("name", "cannot read"),
        ("not name", "a keyword lacks its value"),
        ("name CA and resname", "a keyword lacks its value"),
        ("resname", "cannot read"),
        ("name CA and", "cannot read"),
        ("((name CA)", "cannot read"),
        ("resname type", "matches no atom of x"),
        ("resname ALA type", "'type' is not a name, and 'and' or 'or' may be missing"),
        ("name XYZ", "matches no atom of x; check chain, residue and atom names"),
    ],
)
def test_selections_that_are_refused(dipeptide, selection, message):
    with pytest.raises(SelectionError) as caught:
        select_atoms(dipeptide, selection, "x")
    assert message in str(caught.value) and selection in str(caught.value)


# ---------------------------------------------------------------------------- masses


def test_masses_are_those_of_the_elements():
    atoms = SimpleNamespace(
        element=np.array(["C", "", "Na", "D", "H", ""]), labels=lambda those: ", ".join(f"atom {a}" for a in those)
    )
    found = masses_from_elements(atoms, {1: (0,), 5: (2,)})
    assert found == pytest.approx([12.011, 0.0, 22.990, 2.0135532, 1.008, 0.0], rel=2e-4)
    with pytest.raises(StructureError, match="the element of atom 1 is unknown"):
        masses_from_elements(atoms, {5: (2,)})
    with pytest.raises(StructureError, match="the element of atom 1, atom 5 is unknown"):
        masses_from_elements(atoms)

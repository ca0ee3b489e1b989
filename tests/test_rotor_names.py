"""What bonds are called, and the atoms that measure them, where residues are not those of the textbook."""

from __future__ import annotations

import numpy as np
import pytest
from named_molecules import atom, changed, molecule, renamed, torsions, without

import peptidyn as ptd
from peptidyn.core.errors import ModelError
from peptidyn.core.points import place


def named(structure, soft):
    return torsions(ptd.build_tree(structure, soft))


def reasons(structure, soft="none"):
    return {bond.atoms: bond.why for bond in ptd.build_tree(structure, soft).hard_bonds}


# ---------------------------------------------------------------------------- ends of chains and caps


def test_the_delta_carbon_of_isoleucine_may_be_called_cd():
    assert named(renamed(ptd.build_peptide("I"), CD1="CD"), "chi") == [
        ("chi1", "N CA CB CG1"),
        ("chi2", "CA CB CG1 CD"),
    ]


@pytest.mark.parametrize(
    ("names", "last"), [({}, "OXT"), ({"O": "OT1", "OXT": "OT2"}, "OT2"), ({"OXT": "OX", "O": "OA"}, "OA")]
)
def test_the_carboxyl_group_is_measured_at_its_second_oxygen(names, last):
    """OXT, or OT2 in CHARMM; if neither is there, at any oxygen."""
    assert named(renamed(ptd.build_peptide("A", caps=False), **names), "psi") == [("carboxyl", f"N CA C {last}")]


def test_an_aldehyde_at_the_end_is_measured_at_its_oxygen():
    acid = ptd.build_peptide("A", caps=False)
    assert named(without(acid, atom(acid, 0, "OXT")), "psi") == [("carboxyl", "N CA C O")]


def test_rotors_are_measured_at_atoms_that_no_backbone_angle_moves():
    """At CA by N and by CB, not by C, which the angle N-CA-C moves; at the amine the carbon beside comes first."""
    assert named(ptd.build_peptide("A", caps=False), "methyl polar") == [
        ("polar", "CB CA N H"),
        ("methyl", "N CA CB HB1"),
    ]


def test_a_rotor_is_measured_at_heavy_atoms():
    structure = molecule([-1, 0, 0, 0, 2, 2], "C1 H3 C2 C4 H5 C6")
    assert named(structure, "rotor") == [("rotor", "C4 C1 C2 C6")]


def test_of_two_branches_the_lower_number_measures():
    """3 comes before 4, though N comes after C."""
    structure = molecule([-1, 0, 1, 2, 2], "CG CB CA CX4 NX3")
    assert named(structure, "rotor") == [("rotor", "CG CB CA NX3")]


def amide_at_the_end():
    """Return alanine with an ACE cap and NH2: that of NME whose carbon is a hydrogen."""
    structure = ptd.build_peptide("A")
    structure = without(structure, *(atom(structure, 2, name) for name in ("H1", "H2", "H3")))
    last = atom(structure, 2, "C")
    names, elements = structure.atoms.name.copy(), structure.atoms.element.copy()
    residues = structure.atoms.residue_name.copy()
    names[last], elements[last], residues[2] = "H2", "H", "NH2"
    return changed(structure, name=names, element=elements, residue_name=residues)


def test_an_amide_group_at_the_end_is_no_omega():
    """C-NH2 turns two hydrogens, unless the bond is known to be no single one; psi leads to its nitrogen."""
    structure = amide_at_the_end()
    assert ("polar", "CA C N H") in named(structure, "polar omega psi")
    assert ("psi", "N CA C N") in named(structure, "psi")
    assert [kind for kind, _ in named(structure, "omega")] == ["omega"]
    assert [c.kind for c in ptd.build_tree(structure, "angles").bends] == ["C-N-CA", "N-CA-C", "CA-C-N"]
    order = np.ones(len(structure.atoms.bonds))
    carbon, nitrogen = atom(structure, 1, "C"), atom(structure, 2, "N")
    order[(structure.atoms.bonds == [carbon, nitrogen]).all(axis=1)] = 1.5
    stiff = changed(structure, bond_order=order)
    assert "polar" not in [kind for kind, _ in named(stiff, "polar omega psi")]
    assert reasons(stiff)[carbon, nitrogen] == "double bond"


def test_an_ester_at_the_end_is_no_peptide_bond():
    """C-O-CH3: no psi, no angle CA-C-N; the end of the chain is measured at its terminal oxygen."""
    structure = ptd.build_peptide("A")
    structure = without(structure, atom(structure, 2, "H"))
    oxygen = atom(structure, 2, "N")
    names, elements = structure.atoms.name.copy(), structure.atoms.element.copy()
    names[oxygen], elements[oxygen] = "OM", "O"
    structure = changed(structure, name=names, element=elements)
    assert named(structure, "psi") == [("carboxyl", "N CA C O")]
    assert [c.kind for c in ptd.build_tree(structure, "angles").bends] == ["C-N-CA", "N-CA-C"]


def test_phi_follows_an_acyl_group_of_any_name():
    """The carbon before N carries a terminal oxygen; a methyl there makes the bond N-CA another rotor."""
    structure = ptd.build_peptide("A")
    names = structure.atoms.name.copy()
    names[atom(structure, 0, "C")] = "C1"
    acyl = changed(structure, name=names)
    assert named(acyl, "phi") == [("phi", "C1 N CA C")]
    bare = without(structure, atom(structure, 0, "O"))
    names = bare.atoms.name.copy()
    names[atom(bare, 0, "C")] = "C1"
    alkyl = changed(bare, name=names)
    assert named(alkyl, "phi") == []
    assert ("rotor", "C1 N CA CB") in named(alkyl, "rotor")


def test_omega_begins_at_the_carbon_of_the_cap():
    """CH3 of ACE; of a formyl group, which has none, the oxygen."""
    structure = ptd.build_peptide("A")
    assert named(structure, "omega") == [("omega", "CH3 C N CA"), ("omega", "CA C N C")]
    formyl = without(structure, *(atom(structure, 0, name) for name in ("CH3", "H1", "H2", "H3")))
    assert named(formyl, "omega")[0] == ("omega", "O C N CA")


@pytest.mark.parametrize(("atoms", "kind"), [(("C", "N", "CA"), "omega"), (("CA", "C", "N"), "psi")])
def test_torsions_need_both_of_their_angles(atoms, kind):
    """C-N-CA on a line: omega has no fourth atom that measures it. CA-C-N on a line: psi has none."""
    structure = ptd.build_peptide("AA")
    i, j, k = (atom(structure, r, name) for r, name in zip((1, 2, 2) if atoms[1] == "N" else (1, 1, 2), atoms))  # noqa: B905
    x = structure.positions.copy()
    x[k] = 2.0 * x[j] - x[i]
    with pytest.raises(ModelError, match=f"{kind} cannot be measured") as error:
        ptd.build_tree(structure.with_positions(x), "phi")
    assert all(structure.atoms.label(a) in str(error.value) for a in (i, j, k))


def test_residues_without_backbone_are_named_first_to_last():
    structure = ptd.build_peptide("AGS")
    lacking = without(structure, atom(structure, 1, "CA"), atom(structure, 2, "N"), atom(structure, 2, "C"))
    with pytest.raises(ModelError, match=r"ALA 2 lacks the backbone atom CA \(and 1 more residues\); complete"):
        ptd.build_tree(lacking)
    with pytest.raises(ModelError, match="GLY 3 lacks the backbone atom N and C; complete"):
        ptd.build_tree(without(structure, atom(structure, 2, "N"), atom(structure, 2, "C")))


# ---------------------------------------------------------------------------- ends of molecules


def test_methanol_turns_by_its_hydroxyl_group():
    """Both ends of the bond carry hydrogens alone: it is the oxygen's rotor, whichever comes first."""
    assert named(molecule([-1, 0, 0, 0, 0, 4], "C H1 H2 H3 O HO"), "polar methyl") == [("polar", "H1 C O HO")]
    assert named(molecule([-1, 0, 0, 2, 2, 2], "O HO C H1 H2 H3"), "polar methyl") == [("polar", "H1 C O HO")]


def test_ends_with_other_atoms_than_hydrogens_are_no_methyls():
    """CF3 for one (here with three oxygens), and O-H-O, whose hydrogen has two bonds."""
    assert named(molecule([-1, 0, 1, 2, 2, 2], "C1 C2 C3 O4 O5 O6"), "methyl rotor") == [("rotor", "C1 C2 C3 O4")]
    kinds = [kind for kind, _ in named(molecule([-1, 0, 1, 2, 3], "C1 C2 O3 H4 O5"), "methyl polar rotor")]
    assert kinds == ["rotor", "rotor"]


@pytest.mark.parametrize(("end", "kind"), [("C3 H4 H5", "methyl"), ("N3 H4 H5", "polar")])
@pytest.mark.parametrize("order", [1.0, 2.0])
def test_ends_at_double_bonds_do_not_turn(end, kind, order):
    """CH2 or NH2 of a ligand at a single bond turn; at a double bond they do not."""
    structure = molecule([-1, 0, 1, 2, 2], f"C1 C2 {end}", order=order)
    assert [k for k, _ in named(structure, "methyl polar rotor")] == ([kind] if order == 1.0 else [])
    assert reasons(structure)[1, 2] == ("not asked for" if order == 1.0 else "double bond")


def test_the_amine_of_arginine_turns_whatever_its_length():
    """C-N bonds of guanidinium are as long as double ones (0.1315 nm and less) in some files."""
    structure = ptd.build_peptide("R")
    near, far = atom(structure, 1, "CZ"), atom(structure, 1, "NH2")
    x = structure.positions.copy()
    x[far] = x[near] + 0.130 / np.linalg.norm(x[far] - x[near]) * (x[far] - x[near])
    assert ("polar", "NE CZ NH2 HH21") in named(structure.with_positions(x), "polar")


def test_a_methyl_belongs_to_its_own_residue():
    structure = molecule([-1, 0, 1, 2, 2, 2], "C1 C2 C3 H4 H5 H6", [0, 0, 1, 1, 1, 1], ["LIG", "XYZ"])
    (methyl,) = ptd.build_tree(structure, "methyl").torsions
    assert methyl.kind == "methyl" and methyl.residue == 1 and str(methyl) == "methyl of chain A, residue XYZ 2"


def test_a_bond_along_a_line_turns_nothing():
    """C1-C2-C3#N4 with 180 degrees at C3: the bond C2-C3 has no plane on one side."""
    structure = molecule([-1, 0, 1, 2], "C1 C2 C3 N4")
    x = structure.positions
    x[3] = x[2] + 0.8 * (x[2] - x[1])
    assert reasons(structure) == {(1, 2): "linear: turning it moves nothing"}
    x[3] = x[2] - 0.8 * (x[2] - x[1])  # folded back
    assert reasons(structure) == {(1, 2): "linear: turning it moves nothing"}
    bent = molecule([-1, 0, 1, 2, 2], "C1 C2 C3 H4 C5")  # the other atom spans the plane
    bent.positions[4] = bent.positions[2] + 0.8 * (bent.positions[2] - bent.positions[1])
    assert named(bent, "rotor") == [("rotor", "C1 C2 C3 H4")]


# ---------------------------------------------------------------------------- lengths where orders are not known


@pytest.mark.parametrize(
    ("elements", "longest"),
    [("CC", 0.1415), ("CN", 0.1315), ("NC", 0.1315), ("NN", 0.130), ("CS", 0.168), ("SC", 0.168), ("NO", 0.130),
     ("ON", 0.130), ("CO", 0.0), ("SS", 0.0), ("OO", 0.0)],
)  # fmt: skip
def test_double_bonds_by_their_elements(elements, longest):
    """Shorter than the length of the table is double, longer is single; pairs that are not in it are single."""
    for length in (longest - 0.001, longest + 0.001) if longest else (0.11, 0.16):
        x = [np.zeros(3), np.array([0.15, 0.0, 0.0])]
        x.append(x[1] + length * np.array([np.cos(1.2), np.sin(1.2), 0.0]))
        x.append(place(*x, 0.15, 1.92, 1.05))
        chain = molecule([-1, 0, 1, 2], f"C1 {elements[0]}2 {elements[1]}3 C4", order=0.0)
        chain.positions[:] = x
        assert len(named(chain, "rotor")) == (0 if length < longest else 1)


@pytest.mark.parametrize("crowded", [1, 2])
def test_four_bonds_make_a_short_bond_a_single_one(crowded):
    structure = molecule([-1, 0, 1, 2, crowded, crowded], "C1 C2 C3 C4 C5 C6", order=0.0)
    x = structure.positions
    x[3:] += 0.13 / 0.15 * (x[2] - x[1]) - (x[2] - x[1]) if crowded == 2 else 0.0
    x[2] = x[1] + 0.13 / 0.15 * (x[2] - x[1])
    assert len(named(structure, "rotor")) == 1


# ---------------------------------------------------------------------------- side chains of other residues


def side_chain(names, parents=None, order=1.0, residues=None):
    """Return N, CA, C with a side chain on CA: atoms in a row, or on the atoms of `parents` (0 is CA)."""
    on = range(len(names.split())) if parents is None else parents
    bonded = [-1, 0, 1, *(up + 2 if up else 1 for up in on)]
    if residues is None:
        return molecule(bonded, f"N CA C {names}", None, ["XAA"], order=order)
    return molecule(bonded, f"N CA C {names}", [0, 0, 0, *residues], ["XAA", "XBB"], order=order)


def test_side_chains_have_five_chis_and_then_other_rotors():
    assert named(side_chain("C1 C2 C3 C4 C5 C6 C7 C8"), "chi") == [
        ("chi1", "N CA C1 C2"),
        ("chi2", "CA C1 C2 C3"),
        ("chi3", "C1 C2 C3 C4"),
        ("chi4", "C2 C3 C4 C5"),
        ("chi5", "C3 C4 C5 C6"),
        ("rotor", "C4 C5 C6 C7"),
        ("rotor", "C5 C6 C7 C8"),
    ]


def test_double_bonds_and_amides_in_side_chains_are_no_chis():
    assert named(side_chain("C1 C2 C3", order=2.0), "chi") == []
    amide = side_chain("C1 C2 O3 N4 C5 C6", [0, 1, 2, 2, 4, 5])  # CA-C1-C2(=O3)-N4-C5-C6
    assert named(amide, "chi omega") == [
        ("chi1", "N CA C1 C2"),
        ("chi2", "CA C1 C2 O3"),
        ("amide", "C1 C2 N4 C5"),
        ("chi4", "C2 N4 C5 C6"),
    ]


def test_side_chains_end_at_the_next_residue():
    """CA-C1-C2 of XAA bonded to C3-C4-C5 of XBB: the bond between them is a rotor, and so are those beyond."""
    chain = side_chain("C1 C2 C3 C4 C5", residues=[0, 0, 1, 1, 1])
    assert [kind for kind, _ in named(chain, "chi")] == ["chi1", "chi2", "rotor", "rotor"]


def test_depths_are_counted_along_the_side_chain():
    """A bond back to the residue over another one: CA-C1 (XAA)-C2 (XBB)-C3-C4-C5 (XAA) has no chi beyond C2."""
    chain = side_chain("C1 C2 C3 C4 C5", residues=[0, 1, 0, 0, 0])
    assert [kind for kind, _ in named(chain, "chi")] == ["chi1", "rotor", "rotor", "rotor"]


def test_known_residues_have_the_chis_of_the_textbook_alone():
    """A lysine whose amine carries a chain of four more carbons in the same residue: bonds beyond chi4 are rotors."""
    names = "CB CG CD CE NZ C1 C2 C3"
    known = changed(side_chain(names), residue_name=np.array(["LYS"]))
    assert [kind for kind, _ in named(known, "chi")] == ["chi1", "chi2", "chi3", "chi4"] + ["rotor"] * 3
    other = renamed(known, CB="CX")
    assert named(other, "chi") == [
        *(("rotor", atoms) for atoms in ("N CA CX CG", "CA CX CG CD", "CX CG CD CE")),
        ("chi4", "CG CD CE NZ"),
        *(("rotor", atoms) for atoms in ("CD CE NZ C1", "CE NZ C1 C2", "NZ C1 C2 C3")),
    ]
    cut_short = changed(side_chain("CB CG CD CX NZ C1"), residue_name=np.array(["LYS"]))  # CE is missing
    assert [kind for kind, _ in named(cut_short, "chi")] == ["chi1", "chi2", "rotor", "rotor", "rotor"]

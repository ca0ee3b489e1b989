"""Less travelled ways to build a peptide: ends, caps, crowded side chains, and what the notes say."""

from __future__ import annotations

import numpy as np
import pytest

from peptidyn import build_peptide
from peptidyn.core.points import bond_angle, dihedral
from peptidyn.core.residues import CHI
from peptidyn.io.residue_templates import residue_templates
from peptidyn.io.rotamers import conformers


def torsion(structure, *atoms):
    """Degrees of four atoms, each as ``"2 CA"``: residue and name."""
    tables = structure.atoms.residue_atoms
    four = (tables[int(r)][name] for r, name in (atom.split() for atom in atoms))
    return float(np.rad2deg(dihedral(*(structure.positions[i] for i in four))))


def same_angle(a, b):
    return abs((a - b + 180.0) % 360.0 - 180.0) < 1e-5


def texts(structure, kind):
    return [note.text for note in structure.notes_of(kind)]


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize(("omega", "cap"), [(0.0, 0.0), (150.0, 150.0), ([10.0, 20.0], 180.0)])
def test_the_bond_of_the_first_cap_follows_one_omega_for_all(omega, cap):
    structure = build_peptide("AA", -120.0, 120.0, omega=omega)
    assert same_angle(torsion(structure, "0 CH3", "0 C", "1 N", "1 CA"), cap)
    each = [omega] * 2 if np.isscalar(omega) else omega
    assert same_angle(torsion(structure, "1 CA", "1 C", "2 N", "2 CA"), each[0])
    assert same_angle(torsion(structure, "2 CA", "2 C", "3 N", "3 C"), each[1])


@pytest.mark.parametrize("caps", [True, False, "ACE", "NME"])
def test_angles_belong_to_their_residues_whatever_the_caps(caps):
    chi = [[50.0], None, [-100.0]]
    structure = build_peptide("VAV", [-100.0, -110.0, -120.0], [100.0, 110.0, 120.0], chi=chi, caps=caps)
    first = int(caps in (True, "ACE"))
    for k in range(3):
        r = first + k
        if r > 0:
            assert same_angle(torsion(structure, f"{r - 1} C", f"{r} N", f"{r} CA", f"{r} C"), -100.0 - 10 * k)
        if r + 1 < structure.n_residues:
            assert same_angle(torsion(structure, f"{r} N", f"{r} CA", f"{r} C", f"{r + 1} N"), 100.0 + 10 * k)
        if chi[k]:
            assert same_angle(torsion(structure, f"{r} N", f"{r} CA", f"{r} CB", f"{r} CG1"), chi[k][0])


def test_the_carboxylate():
    """Both oxygens 0.125 nm from C at 117 degrees, OXT at psi and O opposite."""
    structure = build_peptide("AA", -100.0, 35.0, caps=False)
    table, x = structure.atoms.residue_atoms[1], structure.positions
    for name, turn in (("OXT", 35.0), ("O", -145.0)):
        assert np.linalg.norm(x[table[name]] - x[table["C"]]) == pytest.approx(0.125)
        assert np.rad2deg(bond_angle(*(x[table[n]] for n in ("CA", "C", name)))) == pytest.approx(117.0)
        assert same_angle(torsion(structure, "1 N", "1 CA", "1 C", f"1 {name}"), turn)


def test_oxygens_of_the_chain():
    """Opposite the next N across CA-C: at psi + 180 degrees, also in the cap."""
    structure = build_peptide("AA", -100.0, 35.0)
    for r in (1, 2):
        assert same_angle(torsion(structure, f"{r} N", f"{r} CA", f"{r} C", f"{r} O"), 215.0)
        template = residue_templates()["A"]
        table, x = structure.atoms.residue_atoms[r], structure.positions
        assert np.linalg.norm(x[table["O"]] - x[table["C"]]) == pytest.approx(template.c_o)
    across = dihedral(*(structure.positions[structure.atoms.residue_atoms[r][n]]
                        for r, n in ((1, "CA"), (1, "N"), (0, "C"), (0, "O"))))  # fmt: skip
    assert same_angle(np.rad2deg(across), 0.0)


def test_the_amine_of_the_first_residue():
    """Three hydrogens of 0.101 nm, staggered against C: H trans, H2 and H3 gauche."""
    structure = build_peptide("AA", -100.0, 35.0, caps=False)
    for name, turn in (("H", 180.0), ("H2", 60.0), ("H3", -60.0)):
        assert same_angle(torsion(structure, "0 C", "0 CA", "0 N", f"0 {name}"), turn)
        table, x = structure.atoms.residue_atoms[0], structure.positions
        assert np.linalg.norm(x[table[name]] - x[table["N"]]) == pytest.approx(0.101)


def test_the_amine_of_a_first_proline():
    """Two hydrogens on either side of the ring: H2 at the right hand, seen from N with CA before and CD after."""
    structure = build_peptide("PA", -65.0, 140.0, caps=False)
    table, x = structure.atoms.residue_atoms[0], structure.positions
    assert "H" not in table
    n, ca, cd, first, second = (x[table[name]] for name in ("N", "CA", "CD", "H2", "H3"))
    for h in (first, second):
        assert np.linalg.norm(h - n) == pytest.approx(0.101)
    assert np.rad2deg(bond_angle(first, n, second)) == pytest.approx(108.0)
    assert np.cross(ca - n, cd - n) @ (first - n) < 0.0 < np.cross(ca - n, cd - n) @ (second - n)


def test_the_amide_hydrogens():
    """In the plane of C, N and CA with equal angles to both, in a residue and in the last cap."""
    structure = build_peptide("AA", -100.0, 35.0, omega=160.0)
    tables, x = structure.atoms.residue_atoms, structure.positions
    for r, after in ((1, "CA"), (2, "CA"), (3, "C")):
        c, n, ca, h = (x[i] for i in (tables[r - 1]["C"], tables[r]["N"], tables[r][after], tables[r]["H"]))
        assert np.linalg.norm(h - n) == pytest.approx(0.101)
        assert bond_angle(c, n, h) == pytest.approx(bond_angle(ca, n, h))
        assert bond_angle(c, n, h) + bond_angle(ca, n, h) + bond_angle(c, n, ca) == pytest.approx(2 * np.pi)


def test_names_and_places():
    assert build_peptide("AGA").name == "AGA"
    assert build_peptide("A" * 24).name == "A" * 24
    assert build_peptide("A" * 25).name == "A" * 21 + "..."
    assert build_peptide("AGA", name="mine").name == "mine"
    structure = build_peptide("AGA")
    np.testing.assert_allclose(structure.positions.mean(axis=0), 0.0, atol=1e-11)
    np.testing.assert_array_equal(structure.positions, structure.positions.round(12))


# ---------------------------------------------------------------- crowded side chains


def off_standard(structure):
    """Residues whose side chain is in none of the listed rotamers."""
    letters = {template.name: letter for letter, template in residue_templates().items()}
    found = []
    for r, name in enumerate(structure.atoms.residue_name.tolist()):
        fours = CHI.get(name, ())
        if not fours:
            continue
        here = np.array([torsion(structure, *(f"{r} {atom}" for atom in four)) for four in fours])
        template = residue_templates()[letters[name]]
        listed = [[np.rad2deg(dihedral(*(xyz[template.names.index(a)] for a in four))) for four in fours]
                  for xyz in conformers(letters[name], (), None).xyz]  # fmt: skip
        if np.abs((np.array(listed) - here + 180.0) % 360.0 - 180.0).max(axis=1).min() > 1e-5:
            found.append(r)
    return found


@pytest.mark.parametrize("sequence", ["VEVEL", "NMDEL"])
def test_side_chains_that_overlap_are_varied_by_a_few_degrees(sequence):
    """At phi = psi = -60 no listed rotamers fit; varied ones do. Residues that do not overlap keep listed ones."""
    structure = build_peptide(sequence, -60.0, -60.0, caps=False)
    assert not texts(structure, "overlap")
    assert 1 <= len(off_standard(structure)) <= 2


@pytest.mark.parametrize("sequence", ["LEKYH", "EFRVL"])
def test_side_chains_are_not_varied_in_vain(sequence):
    structure = build_peptide(sequence, -60.0, -60.0, caps=False)
    assert len(texts(structure, "overlap")) == 1
    assert off_standard(structure) == []


# ---------------------------------------------------------------- notes


def notes_about_prolines(sequence, phi=-57.0, psi=-47.0, **options):
    structure = build_peptide(sequence, phi, psi, **options)
    found = list(structure.notes_of("proline"))
    for note in found:
        assert set(structure.atoms.name[list(note.atoms)]) == {"CA"}
    return [(note.text, structure.atoms.residue[list(note.atoms)].tolist()) for note in found]


def test_what_is_said_about_phi_of_prolines():
    """Those whose phi was asked to be another; the first residue of a chain has none, and -65 is no change."""
    ((text, residues),) = notes_about_prolines("PAPAP", -120.0, 120.0, caps=False)
    assert residues == [2, 4]
    assert text.startswith(
        "phi is -65 degrees instead of -120 at chain A, residue PRO 3; chain A, residue PRO 5: the ring"
    )
    ((_, residues),) = notes_about_prolines("PAPAP", -120.0, 120.0)
    assert residues == [1, 3, 5]
    assert notes_about_prolines("PAA", -120.0, 120.0, caps=False) == []
    assert notes_about_prolines("APA", -65.0, 120.0) == []
    assert notes_about_prolines("APA", [-60.0, -70.0, -60.0], 120.0) == []
    assert notes_about_prolines("AGA", -120.0, 120.0) == []


def test_what_is_said_about_psi_before_prolines():
    """The angles in order, no more than five of them, and not that of the cap, which has none."""
    _, (text, residues) = notes_about_prolines("AAAPA", caps=False)
    assert residues == [0, 1, 2]
    assert text.startswith(
        "psi is -22, -42, -60 degrees instead of -47 at chain A, residue ALA 1; chain A, residue ALA 2;"
    )
    _, (text, residues) = notes_about_prolines("AAPA")
    assert residues == [1, 2]
    assert text.startswith(
        "psi is -42, -60 degrees instead of -47 at chain A, residue ALA 2; chain A, residue ALA 3: a"
    )
    _, (text, residues) = notes_about_prolines("AAAPAAAPA", caps=False)
    assert residues == [0, 1, 2, 4, 5, 6]
    assert text.startswith("psi is -22, -42, -60, -22, -42, ... degrees instead of -47 at")
    (text, residues) = notes_about_prolines("AAAPAAPA", -65.0, caps=False)[0]
    assert residues == [0, 1, 2, 3, 4, 5]
    assert text.startswith("psi is -14, -34, -52, -14, -34, ... degrees instead of -47 at")


def test_what_is_said_about_overlaps():
    """How many pairs, and the worst; the note is about all their atoms."""
    structure = build_peptide("AAAAAAPAAAAA", [-65.0 if k == 6 else -57.0 for k in range(12)], [-47.0] * 12)
    (note,) = structure.notes_of("overlap")
    x, atoms = structure.positions, structure.atoms
    radius = np.array([{"H": 0.110, "C": 0.170, "N": 0.155, "O": 0.152}[e] for e in atoms.element.tolist()])
    near = np.eye(structure.n_atoms, dtype=bool)
    near[tuple(atoms.bonds.T)] = near[tuple(atoms.bonds.T[::-1])] = True
    distance = np.linalg.norm(x[:, None] - x[None], axis=-1)
    allowed = 0.7 * (radius[:, None] + radius)
    polar = np.isin(atoms.element, ["N", "O"])
    donated = np.array([atoms.element[k] == "H" and polar[atoms.neighbours[k][0]] for k in range(structure.n_atoms)])
    allowed[donated[:, None] & polar | polar[:, None] & donated] = 0.16
    ratio = np.where(near @ near @ near, 9.0, distance / allowed)
    pairs = np.argwhere(np.triu(ratio < 1.0))
    worst = pairs[np.argmin(ratio[tuple(pairs.T)])]
    assert len(pairs) > 1
    assert note.atoms == tuple(np.unique(pairs).tolist())
    first, second = (atoms.label(i) for i in worst)
    assert (
        f"atoms overlap (pairs: {len(pairs)}), the worst {first} and {second}, {distance[tuple(worst)]:.3f} nm"
        in note.text
    )

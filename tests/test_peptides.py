"""`build_peptide`: geometry against the request, no clashes, force fields, determinism, bad input."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import mdtraj
import numpy as np
import pytest
from openmm import Context, Platform, VerletIntegrator, unit
from openmm.app import ForceField, NoCutoff
from scipy.spatial import cKDTree

from peptidyn import build_peptide, cli, load_structure
from peptidyn.core.errors import ArgumentError
from peptidyn.io.rotamers import close_pairs, within_three_bonds

DATA = Path(__file__).parents[1] / "data"
ALL20 = "ACDEFGHIKLMNPQRSTVWY"
SEQUENCES = [letter * 12 for letter in ALL20] + [ALL20]
HELIX, STRAND = (-57.0, -47.0), (-120.0, 120.0)

# Van der Waals radii (nm). Atoms four or more bonds apart clash when nearer than 0.7 of the sum of theirs; a hydrogen
# on N or O and an N or O that it may bond to, when nearer than 0.16 nm.
RADIUS = {"H": 0.110, "C": 0.170, "N": 0.155, "O": 0.152, "S": 0.180}
CLASH, HYDROGEN_BOND = 0.7, 0.16

CHI = {
    "ARG": "N CA CB CG CD NE CZ NH1", "ASN": "N CA CB CG OD1", "ASP": "N CA CB CG OD1", "CYS": "N CA CB SG",
    "GLN": "N CA CB CG CD OE1", "GLU": "N CA CB CG CD OE1", "HIS": "N CA CB CG ND1", "ILE": "N CA CB CG1 CD1",
    "LEU": "N CA CB CG CD1", "LYS": "N CA CB CG CD CE NZ", "MET": "N CA CB CG SD CE", "PHE": "N CA CB CG CD1",
    "SER": "N CA CB OG", "THR": "N CA CB OG1", "TRP": "N CA CB CG CD1", "TYR": "N CA CB CG CD1", "VAL": "N CA CB CG1",
}  # fmt: skip
# atoms of each residue within a chain, hydrogens included
N_ATOMS = {
    "A": 10, "R": 24, "N": 14, "D": 12, "C": 11, "Q": 17, "E": 15, "G": 7, "H": 17, "I": 19,
    "L": 19, "K": 22, "M": 17, "F": 20, "P": 14, "S": 11, "T": 14, "W": 24, "Y": 21, "V": 16,
}  # fmt: skip


def dihedral(x, i, j, k, l):
    """Degrees, in float64, written independently of the package."""
    b1, b2, b3 = x[j] - x[i], x[k] - x[j], x[l] - x[k]
    n1, n2 = np.cross(b1, b2), np.cross(b2, b3)
    return np.degrees(np.arctan2(np.dot(np.cross(n1, n2), b2) / np.linalg.norm(b2), np.dot(n1, n2)))


def difference(a, b):
    return abs((a - b + 180.0) % 360.0 - 180.0)


def backbone(structure):
    """Return {residue number: {phi, psi, omega}} in degrees, caps taking part."""
    tables = structure.atoms.residue_atoms
    names = structure.atoms.residue_name
    x = structure.positions
    angles = {}
    for r, here in enumerate(tables):
        if names[r] in ("ACE", "NME"):
            continue
        n, ca, c = here["N"], here["CA"], here["C"]
        angles[r] = {}
        if r > 0:
            angles[r]["phi"] = dihedral(x, tables[r - 1]["C"], n, ca, c)
        if r + 1 < len(tables):
            after = tables[r + 1]
            next_ca = after["C"] if names[r + 1] == "NME" else after["CA"]
            angles[r]["psi"] = dihedral(x, n, ca, c, after["N"])
            angles[r]["omega"] = dihedral(x, ca, c, after["N"], next_ca)
    return angles


def clashes(structure):
    """Return the pairs of atoms that clash, by all distances and a walk over the bonds."""
    atoms, x = structure.atoms, structure.positions
    neighbours = atoms.neighbours
    element = atoms.element.tolist()
    radius = np.array([RADIUS[e] for e in element])
    distance = np.linalg.norm(x[:, None] - x[None], axis=-1)
    first, second = np.nonzero(np.triu(distance < CLASH * (radius[:, None] + radius), k=1))
    found = []
    for i, j in zip(first.tolist(), second.tolist(), strict=True):
        reached = {i}
        for _ in range(3):
            reached |= {b for a in reached for b in neighbours[a]}
        if j in reached:
            continue
        hydrogen, other = (i, j) if element[i] == "H" else (j, i)
        bonding = element[hydrogen] == "H" and element[other] in "NO" and element[neighbours[hydrogen][0]] in "NO"
        if not bonding or distance[i, j] < HYDROGEN_BOND:
            found.append(f"{atoms.label(i)} - {atoms.label(j)}: {distance[i, j]:.3f} nm")
    return found


@pytest.fixture(scope="module", params=["amber14-all.xml", "amber19-all.xml"])
def force_field(request):
    return ForceField(request.param)


# ---------------------------------------------------------------- composition


def test_capped_alanine_is_the_alanine_dipeptide():
    structure = build_peptide("A", phi=-80, psi=75)
    assert structure.n_atoms == 22
    assert structure.atoms.residue_name.tolist() == ["ACE", "ALA", "NME"]
    assert structure.atoms.residue_id.tolist() == ["1", "2", "3"]
    assert structure.atoms.chain_id.tolist() == ["A"]
    angles = backbone(structure)[1]
    assert difference(angles["phi"], -80) < 1e-6
    assert difference(angles["psi"], 75) < 1e-6


def test_every_residue_has_all_its_atoms_bonds_and_elements():
    structure = build_peptide(ALL20)
    counts = np.bincount(structure.atoms.residue)
    assert counts.tolist() == [6, *(N_ATOMS[letter] for letter in ALL20), 6]
    valence = {"H": {1}, "C": {3, 4}, "N": {2, 3, 4}, "O": {1, 2}, "S": {2}}
    for atom, bonded in enumerate(structure.atoms.neighbours):
        assert len(bonded) in valence[structure.atoms.element[atom]], structure.atoms.label(atom)
    # one connected molecule with the rings of His, Phe, Pro, Tyr and two of Trp
    assert len(structure.atoms.bonds) == structure.n_atoms - 1 + 6


def test_bonds_are_as_long_as_bonds_and_nothing_else_is():
    structure = build_peptide(ALL20, *STRAND)
    i, j = structure.atoms.bonds.T
    length = np.linalg.norm(structure.positions[i] - structure.positions[j], axis=1)
    assert length.min() > 0.095
    assert length.max() < 0.184
    distance = np.linalg.norm(structure.positions[:, None] - structure.positions[None], axis=-1)
    distance[i, j] = distance[j, i] = 9.0
    np.fill_diagonal(distance, 9.0)
    assert distance.min() > 0.155  # two hydrogens on one atom


def test_methyls_of_caps_are_staggered():
    """One hydrogen of each cap is trans to the neighbouring residue's atom across the bond to the cap."""
    structure = build_peptide("A", *STRAND[:2], omega=150)
    x, (ace, ala, nme) = structure.positions, structure.atoms.residue_atoms
    for atoms in (
        (ala["N"], ace["C"], ace["CH3"], ace["H1"]),
        (ala["C"], nme["N"], nme["C"], nme["H1"]),
    ):
        assert difference(dihedral(x, *atoms), 180.0) < 1e-6


def test_free_termini_are_charged():
    structure = build_peptide("AGA", caps=False)
    assert structure.atoms.residue_id.tolist() == ["1", "2", "3"]
    first, _, last = structure.atoms.residue_atoms
    assert {"H", "H2", "H3"} <= first.keys()
    assert {"O", "OXT"} <= last.keys()
    assert difference(dihedral(structure.positions, last["N"], last["CA"], last["C"], last["OXT"]), -47) < 1e-6


@pytest.mark.parametrize(
    ("caps", "names"), [("ACE", ["ACE", "PRO", "ALA"]), ("NME", ["PRO", "ALA", "NME"]), (False, ["PRO", "ALA"])]
)
def test_one_cap_or_none(caps, names, force_field):
    structure = build_peptide("PA", caps=caps)
    assert structure.atoms.residue_name.tolist() == names
    force_field.createSystem(structure.topology)


def test_sequences_can_be_spelled_in_four_ways():
    reference = build_peptide("AWG").positions
    for spelling in ("awg", "ALA-TRP-GLY", ["A", "W", "G"], ["ala", "trp", "gly"]):
        assert np.array_equal(build_peptide(spelling).positions, reference)


# ---------------------------------------------------------------- torsions


@pytest.mark.parametrize("angles", [HELIX, STRAND, (-135.0, 135.0), (180.0, 180.0), (62.5, 41.25)])
def test_torsions_are_those_asked_for(angles):
    sequence = ALL20.replace("P", "")
    structure = build_peptide(sequence, *angles)
    found = backbone(structure)
    assert len(found) == len(sequence)
    for torsions in found.values():
        assert difference(torsions["phi"], angles[0]) < 1e-6
        assert difference(torsions["psi"], angles[1]) < 1e-6
        assert difference(torsions["omega"], 180.0) < 1e-6
    # the bond after ACE
    ace, first = structure.atoms.residue_atoms[:2]
    assert difference(dihedral(structure.positions, ace["CH3"], ace["C"], first["N"], first["CA"]), 180.0) < 1e-6


@pytest.mark.parametrize("caps", [True, False])
def test_torsions_one_per_residue(caps):
    rng = np.random.default_rng(3)
    sequence = ALL20 + ALL20[::-1]
    phi, psi, omega = (rng.uniform(-180.0, 180.0, len(sequence)) for _ in range(3))
    prolines = [i for i, letter in enumerate(sequence) if letter == "P"]
    phi[prolines] = [-85.0, -35.0]
    structure = build_peptide(sequence, phi, psi.tolist(), omega * unit.degree, caps=caps)
    found = backbone(structure)
    for i in range(len(sequence)):
        torsions = found[i + caps]
        if "phi" in torsions:
            assert difference(torsions["phi"], phi[i]) < 1e-6
        if "psi" in torsions:
            assert difference(torsions["psi"], psi[i]) < 1e-6
            assert difference(torsions["omega"], omega[i]) < 1e-6


def test_chi_angles_are_those_asked_for():
    rng = np.random.default_rng(4)
    names = [*CHI, "ALA", "GLY", "PRO"]
    chi = [rng.uniform(-180.0, 180.0, max(len(CHI.get(name, "").split()) - 3, 0)) for name in names]
    structure = build_peptide("-".join(names), *STRAND, chi=[c if len(c) else None for c in chi])
    for asked, name, table in zip(chi, names, structure.atoms.residue_atoms[1:], strict=False):
        path = [table[atom] for atom in CHI.get(name, "").split()]
        for k, value in enumerate(asked):
            assert difference(dihedral(structure.positions, *path[k : k + 4]), value) < 1e-6


def test_the_first_chi_angles_leave_the_others_to_rotamers():
    structure = build_peptide("AKA", *STRAND, chi=[None, [-60 * unit.degree, 175.0], None])
    table = structure.atoms.residue_atoms[2]
    found = [
        dihedral(structure.positions, *(table[a] for a in four))
        for four in zip(*(CHI["LYS"].split()[k:] for k in range(4)), strict=False)
    ]
    assert difference(found[0], -60.0) < 1e-6
    assert difference(found[1], 175.0) < 1e-6
    assert all(min(difference(f, r) for r in (180.0, 65.0, -65.0)) < 1e-6 for f in found[2:])


def test_mdtraj_measures_the_same():
    trajectory = build_peptide(ALL20, *STRAND, omega=175.0).to_mdtraj()
    _, phi = mdtraj.compute_phi(trajectory)
    _, psi = mdtraj.compute_psi(trajectory)
    _, omega = mdtraj.compute_omega(trajectory)
    expected = np.full(20, STRAND[0])
    expected[ALL20.index("P")] = -65.0
    np.testing.assert_allclose(np.degrees(phi[0]), expected, atol=2e-3)
    np.testing.assert_allclose(np.degrees(psi[0]), STRAND[1], atol=2e-3)
    np.testing.assert_allclose(np.degrees(omega[0]), 175.0, atol=2e-3)


# ---------------------------------------------------------------- stereochemistry


@pytest.mark.parametrize("angles", [HELIX, STRAND])
def test_every_residue_is_l(angles):
    structure = build_peptide(ALL20, *angles)
    x = structure.positions
    for name, table in zip(structure.atoms.residue_name, structure.atoms.residue_atoms, strict=True):

        def volume(centre, *around, table=table):
            a, b, c = (x[table[atom]] - x[table[centre]] for atom in around)
            return np.dot(np.cross(a, b), c)

        if "CB" in table:  # seen from HA: CO, R, N clockwise
            assert volume("CA", "C", "CB", "N") > 0.001
            assert volume("CA", "C", "CB", "HA") < -0.001
        if name == "ILE":  # (2S,3S)
            assert volume("CB", "CA", "CG1", "CG2") > 0.001
        if name == "THR":  # (2S,3R)
            assert volume("CB", "CA", "OG1", "CG2") > 0.001
        if name == "LEU":
            assert volume("CG", "CB", "CD1", "CD2") < -0.001
        if name == "VAL":
            assert volume("CB", "CA", "CG1", "CG2") < -0.001
        # the hydrogen named 2 lies on the same side in every CH2, as in the PDB
        after_cd = {"ARG": "NE", "LYS": "CE", "PRO": "N"}.get(name, "")
        for four in ("CA N C HA2", "CB CA CG HB2", "CG CB CD HG2", f"CD CG {after_cd} HD2"):
            centre, *around = four.split(" ")
            if {centre, *around} <= table.keys():
                assert volume(centre, *around) < -0.0003


def test_planar_groups_are_planar():
    structure = build_peptide(ALL20, *HELIX)
    tables = dict(zip(structure.atoms.residue_name.tolist(), structure.atoms.residue_atoms, strict=True))
    planes = {
        "PHE": "CB CG CD1 CD2 CE1 CE2 CZ HD1 HD2 HE1 HE2 HZ", "TYR": "CB CG CD1 CD2 CE1 CE2 CZ OH HD1 HE2 HH",
        "TRP": "CB CG CD1 CD2 NE1 CE2 CE3 CZ2 CZ3 CH2 HD1 HE1 HH2", "HIS": "CB CG ND1 CD2 CE1 NE2 HE2 HD2",
        "ARG": "CD NE CZ NH1 NH2 HE HH11 HH22", "ASN": "CB CG OD1 ND2 HD21 HD22", "ASP": "CB CG OD1 OD2",
    }  # fmt: skip
    for name, atoms in planes.items():
        points = structure.positions[[tables[name][atom] for atom in atoms.split()]]
        flatness = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)[-1]
        assert flatness < 1e-6, name


# ---------------------------------------------------------------- proline


@pytest.mark.parametrize("phi", [-85.0, -65.0, -50.0, -35.0])
def test_the_proline_ring_closes_at_every_phi_it_accepts(phi):
    structure = build_peptide("APA", [-70.0, phi, -70.0], 140.0)
    table = structure.atoms.residue_atoms[2]
    x = structure.positions
    ring = [table[atom] for atom in ("N", "CA", "CB", "CG", "CD")]
    lengths = [np.linalg.norm(x[i] - x[j]) for i, j in pairwise([*ring, ring[0]])]
    np.testing.assert_allclose(lengths, [0.1465, 0.1530, 0.1495, 0.1505, 0.1473], atol=0.002)
    usual = {"CB": 104.4, "CG": 105.3, "CD": 103.2, "N": 112.0, "CA": 103.3}
    for k, name in enumerate(("N", "CA", "CB", "CG", "CD")):
        u, v = x[ring[k - 1]] - x[ring[k]], x[ring[(k + 1) % 5]] - x[ring[k]]
        angle = np.degrees(np.arccos(u @ v / np.linalg.norm(u) / np.linalg.norm(v)))
        assert abs(angle - usual[name]) < 6.0, name
    # N stays planar
    before = structure.atoms.residue_atoms[1]["C"]
    planar = dihedral(x, before, table["CA"], table["CD"], table["N"])
    assert min(difference(planar, 0.0), difference(planar, 180.0)) < 1e-6


def test_one_phi_for_the_chain_does_not_force_proline():
    structure = build_peptide("AAPAA", -120.0, 120.0)
    found = backbone(structure)
    assert [round(t["phi"], 6) for t in found.values()] == [-120.0, -120.0, -65.0, -120.0, -120.0]
    assert all(difference(t["psi"], 120.0) < 1e-6 for t in found.values())
    (note,) = structure.notes_of("proline")
    assert "residue PRO 4" in note.text


def test_a_helix_bends_at_proline_and_says_so():
    structure = build_peptide("AAAAAAPAAAAA", *HELIX)
    psi = [round(t["psi"], 6) for t in backbone(structure).values()]
    assert psi == [-47.0] * 3 + [-22.0, -42.0, -60.0] + [-47.0] * 6
    texts = [note.text for note in structure.notes_of("proline")]
    assert len(texts) == 2
    assert "psi is -22, -42, -60 degrees instead of -47" in texts[1]
    assert "residue ALA 5" in texts[1]


def test_a_helix_given_residue_by_residue_is_kept_straight_and_the_overlap_is_noted():
    sequence = "AAAAAAPAAAAA"
    phi = [-65.0 if letter == "P" else -57.0 for letter in sequence]
    structure = build_peptide(sequence, phi, [-47.0] * 12)
    assert all(difference(t["psi"], -47.0) < 1e-6 for t in backbone(structure).values())
    assert clashes(structure)
    (note,) = structure.notes_of("overlap")
    assert "residue PRO 8" in note.text


# ---------------------------------------------------------------- clashes


@pytest.mark.parametrize("angles", [HELIX, STRAND, (-135.0, 135.0)], ids=["helix", "strand", "wide-strand"])
@pytest.mark.parametrize("sequence", SEQUENCES, ids=[*ALL20, "all20"])
def test_no_clash(sequence, angles):
    structure = build_peptide(sequence, *angles)
    assert clashes(structure) == []
    assert not list(structure.notes_of("overlap"))


@pytest.mark.parametrize("angles", [HELIX, STRAND], ids=["helix", "strand"])
def test_no_clash_in_mixed_sequences(angles):
    rng = np.random.default_rng(11)
    for _ in range(6):
        sequence = "".join(rng.choice(list(ALL20), 30))
        assert clashes(build_peptide(sequence, *angles, caps=False)) == [], sequence


def test_the_search_for_clashes_finds_one():
    structure = build_peptide("AAAA")
    x = structure.positions.copy()
    first, last = (structure.atoms.residue_atoms[r]["CB"] for r in (1, 4))
    x[last] = x[first] + [0.0, 0.0, 0.23]
    assert any("ALA 2, atom CB" in text and "ALA 5, atom CB" in text for text in clashes(structure.with_positions(x)))


# ---------------------------------------------------------------- force fields


@pytest.mark.parametrize("caps", [True, False])
def test_force_fields_know_every_residue_and_find_no_strain(force_field, caps):
    platform = Platform.getPlatformByName("Reference")
    for sequence in [letter * 5 for letter in ALL20] + [ALL20]:
        for angles in (HELIX, STRAND):
            structure = build_peptide(sequence, *angles, caps=caps)
            system = force_field.createSystem(structure.topology, nonbondedMethod=NoCutoff)
            context = Context(system, VerletIntegrator(0.001), platform)
            context.setPositions(structure.positions)
            state = context.getState(energy=True, forces=True)
            energy = state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
            force = state.getForces(asNumpy=True).value_in_unit(unit.kilojoule_per_mole / unit.nanometer)
            # poly-Asp repels itself, 70 kJ/mol per atom; an overlap would give thousands, and forces of 1e5
            assert -60.0 < energy / structure.n_atoms < 100.0, sequence
            assert np.abs(force).max() < 4000.0, sequence


# ---------------------------------------------------------------- size, determinism, files


def test_the_same_call_gives_the_same_bits():
    first, second = (build_peptide(ALL20 * 2, *HELIX) for _ in range(2))
    assert first.positions.tobytes() == second.positions.tobytes()
    assert first.atoms.name.tolist() == second.atoms.name.tolist()
    assert not np.signbit(first.positions[first.positions == 0.0]).any()


def test_a_long_chain():
    structure = build_peptide(ALL20.replace("P", "A") * 25, *HELIX)
    assert structure.n_residues == 502
    assert all(difference(t["psi"], HELIX[1]) < 1e-6 for t in backbone(structure).values())
    assert not list(structure.notes_of("overlap"))
    assert np.abs(structure.positions.mean(axis=0)).max() < 1e-9


def commands():
    text = (DATA / "README.md").read_text()
    return re.findall(r"`(peptidyn build [^`]+)`", text)


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.split()[-1])
def test_data_files_come_from_their_commands(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = shlex.split(command)[1:]
    assert cli.main(arguments) == 0
    assert (tmp_path / arguments[-1]).read_bytes() == (DATA / arguments[-1]).read_bytes()


def test_every_data_file_has_a_command():
    assert sorted(command.split()[-1] for command in commands()) == sorted(p.name for p in DATA.glob("*.pdb"))


def test_written_and_read_again(tmp_path):
    structure = build_peptide(ALL20, *HELIX)
    structure.write(tmp_path / "all20.cif")
    again = load_structure(tmp_path / "all20.cif")
    assert again.atoms.name.tolist() == structure.atoms.name.tolist()
    assert np.array_equal(again.atoms.bonds, structure.atoms.bonds)
    np.testing.assert_allclose(again.positions, structure.positions, atol=1e-12)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sequence": ""}, "sequence is empty"),
        ({"sequence": []}, "sequence is empty"),
        ({"sequence": None}, "sequence is None"),
        ({"sequence": "AABA"}, r"residue 3 of the sequence is 'B'.*ACDEFGHIKLMNPQRSTVWY"),
        ({"sequence": "AA A"}, "residue 3 of the sequence is ' '"),
        ({"sequence": "ALA-XXX"}, "residue 2 of the sequence is 'XXX'"),
        ({"sequence": ["A", 3]}, "residue 2 of the sequence is 3"),
        ({"phi": [-57.0, -57.0]}, "phi has 2 values for a sequence of 3 residues"),
        ({"psi": []}, "psi has 0 values for a sequence of 3 residues"),
        ({"omega": np.zeros((3, 2))}, r"omega has shape \(3, 2\)"),
        ({"phi": float("nan")}, "phi is not a finite number; give degrees"),
        ({"psi": [0.0, float("inf"), 0.0]}, "psi is not a finite number at place 2"),
        ({"omega": "flat"}, "omega is 'flat', expected degrees"),
        ({"phi": None}, "phi is None, expected degrees"),
        ({"phi": 1.0 * unit.nanometer}, "phi is .* nm.*expected degrees"),
        ({"psi": [0.0, "x", 0.0]}, "psi is .*expected degrees"),
        ({"chi": 60.0}, "chi is 60.0, expected one entry per residue"),
        ({"chi": [None]}, "chi has 1 entries for a sequence of 3 residues"),
        ({"chi": [None, [60.0], None]}, r"chi of residue 2 \(ALA\) has 1 angles, but the residue has 0"),
        ({"sequence": "AVA", "chi": [None, [60, 60], None]}, r"residue 2 \(VAL\) has 2 angles, but the residue has 1"),
        ({"sequence": "AVA", "chi": [None, [float("nan")], None]}, r"chi of residue 2 \(VAL\) is not a finite number"),
        ({"sequence": "APA", "chi": [None, [30.0], None]}, r"\(PRO\) has 1 angles, but those of its ring follow"),
        ({"sequence": "APA", "phi": [-57.0, -120.0, -57.0]}, r"residue 2 .*a proline, is -120 degrees.*-85 and -35"),
        ({"caps": "both"}, "caps is 'both', expected True, False, 'ACE' or 'NME'"),
        ({"caps": 1}, "caps is 1, expected"),
    ],
)
def test_bad_input_is_one_clear_sentence(arguments, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        build_peptide(**{"sequence": "AAA", **arguments})
    assert "\n" not in str(caught.value)


def test_close_pairs_are_those_of_a_tree():
    positions = np.random.default_rng(3).uniform(-2.0, 3.0, (1500, 3))
    expected = cKDTree(positions).query_pairs(0.4)
    i, j = close_pairs(positions, 0.4)
    assert len(i) == len(expected) > 1000
    assert set(zip(i.tolist(), j.tolist(), strict=True)) == expected


def test_pairs_within_three_bonds():
    bonds = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [1, 5], [6, 7]])
    pairs = within_three_bonds(8, bonds)
    step = np.eye(8, dtype=bool)
    step[bonds[:, 0], bonds[:, 1]] = step[bonds[:, 1], bonds[:, 0]] = True
    assert (pairs.hold(np.arange(8)[:, None], np.arange(8)) == (step @ step @ step)).all()

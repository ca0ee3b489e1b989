"""D-H tables of backbones: against built chains, an independent geometry, MDTraj, and bad input."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import mdtraj
import numpy as np
import openmm.app
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_structures import DATA, VILLIN_IN_WATER, all_paths, extra_paths, read
from scipy.spatial.transform import Rotation

from peptidyn.core.atoms import Atoms
from peptidyn.core.errors import ModelError, StructureError
from peptidyn.io.readers import load_structure
from peptidyn.io.structure import Structure
from peptidyn.model import dh
from peptidyn.model.backbone import backbone_frames

DEG = np.pi / 180.0

FILES = all_paths()
FURTHER = {path.name: path for path in extra_paths()}


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.name)
def structure(request):
    return load_structure(request.param)


@dataclass
class Built:
    """A structure made by hand."""

    atoms: Atoms
    positions: np.ndarray


def built(residues, positions, bonds, chain="A"):
    """Make a structure of one chain from [(residue name, [atom names])]."""
    names = [atom for _, atoms in residues for atom in atoms]
    owner = [r for r, (_, atoms) in enumerate(residues) for _ in atoms]
    table = Atoms(
        name=np.array(names),
        element=np.array([name[0] for name in names]),
        residue=np.array(owner),
        residue_name=np.array([name for name, _ in residues]),
        residue_id=np.array([str(r + 1) for r in range(len(residues))]),
        residue_chain=np.zeros(len(residues), dtype=int),
        chain_id=np.array([chain]),
        bonds=np.array(sorted(sorted(pair) for pair in bonds)).reshape(-1, 2),
        bond_order=np.zeros(len(bonds)),
    )
    return Built(table, np.asarray(positions, dtype=float))


def backbone_chain(residue_names, positions):
    """A chain of bare N, CA, C residues."""
    residues = [(name, ["N", "CA", "C"]) for name in residue_names]
    return built(residues, positions, [(i, i + 1) for i in range(3 * len(residues) - 1)])


def zigzag(n):
    """Positions of n atoms of a planar trans chain, nm."""
    return np.stack([0.12 * np.arange(n), 0.08 * (np.arange(n) % 2), np.zeros(n)], axis=1)


def plane_dihedral(p):
    """Dihedral of four points: angle between the outer bonds seen along the middle one, cis = 0."""
    axis = (p[2] - p[1]) / np.linalg.norm(p[2] - p[1])
    u, v = p[0] - p[1], p[3] - p[2]
    u, v = u - (u @ axis) * axis, v - (v @ axis) * axis
    return np.arctan2(np.cross(axis, u) @ v, u @ v)


def difference(a, b):
    return np.abs(np.angle(np.exp(1j * (np.asarray(a) - np.asarray(b)))))


# ---------------------------------------------------------------------- chains of known geometry

TABLE_II_B = np.array([1.525, 1.329, 1.458, 1.525, 1.329, 1.458]) * 0.1
TABLE_II_GAMMA = np.array([70.5, 296.2, 58.3, 289.5, 63.8, 301.7, 70.5]) * DEG


def chain_of_table_ii(beta):
    """Tri-peptide N, [CA, C, N, CA, C, N, CA], C whose bracket has the rows of Table II and the given beta."""
    b = np.concatenate([[0.1458], TABLE_II_B, [0.1525]])
    relative = dh.dh_transform(np.append(beta, 0.0), b, 0.0, np.append(TABLE_II_GAMMA, 0.0))
    base = dh.transform([0.3, -1.0, 2.0, 0.4, -0.2, 0.9])
    frames = dh.chain_transforms(relative, base)
    return backbone_chain(["ALA"] * 3, np.concatenate([base[None, :3, 3], frames[:, :3, 3]]))


def test_a_chain_built_with_table_ii_returns_it():
    beta = np.random.default_rng(0).uniform(-np.pi, np.pi, 7)
    chain = chain_of_table_ii(beta)
    (table,) = backbone_frames(chain)
    assert table.names == ("N", "CA", "C") * 3
    rows = slice(1, 8)  # the seven rows of Table II
    np.testing.assert_allclose(table.b[2:8], TABLE_II_B, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(table.c, 0.0)
    np.testing.assert_allclose(
        np.degrees(table.gamma[rows]), [70.5, 63.8, 58.3, 70.5, 63.8, 58.3, 70.5], rtol=0, atol=1e-11
    )
    np.testing.assert_allclose(
        np.degrees(table.bond_angles[rows]), [109.5, 116.2, 121.7, 109.5, 116.2, 121.7, 109.5], rtol=0, atol=1e-11
    )
    # beta_1 of the built chain turns everything about the first bond: it has gone into the base
    assert difference(table.beta[2:8], beta[1:] + np.pi).max() < 1e-13

    printed = table.alternating()
    assert difference(printed.gamma[rows], TABLE_II_GAMMA).max() < 1e-13
    assert difference(printed.beta[2:8], beta[1:]).max() < 1e-13
    for form in (table, printed, printed.alternating()):
        np.testing.assert_allclose(form.rebuild(), chain.positions, rtol=0, atol=1e-14)
        assert difference(form.torsions[2:8], table.beta[2:8]).max() < 1e-13
        np.testing.assert_allclose(form.bond_angles[rows], np.pi - table.gamma[rows], rtol=0, atol=1e-13)


def test_trans_is_180_degrees_and_cis_is_0():
    (trans,) = backbone_frames(backbone_chain(["GLY"] * 2, zigzag(6)))
    np.testing.assert_allclose(np.abs(trans.beta[2:-1]), np.pi, atol=1e-12)
    square = 0.15 * np.array([[1, 0, 0], [0, 0, 0], [0, 1, 0], [1, 1, 0], [1, 1, 1], [1, 0, 1]])
    (table,) = backbone_frames(backbone_chain(["GLY"] * 2, square))
    np.testing.assert_allclose(table.beta[2], 0.0, atol=1e-12)
    np.testing.assert_allclose(table.gamma[1:-1], np.pi / 2, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    torsions=st.lists(st.floats(-3.14, 3.14), min_size=9, max_size=9),
    angles=st.lists(st.floats(0.2, 2.9), min_size=10, max_size=10),
    lengths=st.lists(st.floats(0.05, 0.3), min_size=11, max_size=11),
    seed=st.integers(0, 1000),
)
def test_any_chain_comes_back_and_is_independent_of_its_pose(torsions, angles, lengths, seed):
    beta, b, gamma = np.zeros(12), np.zeros(12), np.zeros(12)
    b[1:], gamma[1:-1], beta[2:-1] = lengths, angles, torsions
    positions = dh.chain_transforms(dh.dh_transform(beta, b, 0.0, gamma))[:, :3, 3]
    rng = np.random.default_rng(seed)
    moved = Rotation.random(random_state=seed).apply(positions) + rng.normal(size=3)
    for points in (positions, moved):
        (table,) = backbone_frames(backbone_chain(["GLY"] * 4, points))
        assert difference(table.beta, beta).max() < 1e-10
        np.testing.assert_allclose(table.gamma, gamma, rtol=0, atol=1e-12)
        np.testing.assert_allclose(table.b, b, rtol=0, atol=1e-13)
        np.testing.assert_allclose(table.rebuild(), points, rtol=0, atol=1e-12)


def test_changing_a_row_turns_what_comes_after_it():
    chain = chain_of_table_ii(np.full(7, 1.0))
    (table,) = backbone_frames(chain)
    beta = table.beta.copy()
    beta[4] += 0.5  # psi or phi of a bond: atoms 0..4 stay, later ones turn about the bond 3-4
    turned = replace(table, beta=beta).rebuild()
    np.testing.assert_allclose(turned[:5], chain.positions[:5], atol=1e-14)
    axis = chain.positions[4] - chain.positions[3]
    rotation = Rotation.from_rotvec(0.5 * axis / np.linalg.norm(axis))
    expected = rotation.apply(chain.positions[5:] - chain.positions[4]) + chain.positions[4]
    np.testing.assert_allclose(turned[5:], expected, atol=1e-14)


# ---------------------------------------------------------------------- real proteins


def test_real_backbones_are_rebuilt_from_the_table_alone(structure):
    tables = backbone_frames(structure)
    assert tables
    for table in tables:
        target = structure.positions[table.atoms]
        np.testing.assert_allclose(table.rebuild(), target, rtol=0, atol=1e-12)
        np.testing.assert_allclose(table.alternating().rebuild(), target, rtol=0, atol=1e-12)


def test_real_frames_follow_the_convention(structure):
    for table in backbone_frames(structure):
        p = structure.positions[table.atoms]
        frames = table.frames()
        R = frames[:, :3, :3]
        np.testing.assert_allclose(np.swapaxes(R, 1, 2) @ R, np.broadcast_to(np.eye(3), R.shape), atol=1e-12)
        bonds = np.diff(p, axis=0)
        np.testing.assert_allclose(R[:-1, :, 0] * table.b[1:, None], bonds, rtol=0, atol=1e-12)
        normals = np.cross(bonds[:-1], bonds[1:])
        assert (np.einsum("ij,ij->i", R[1:-1, :, 2], normals) > 0).all()
        np.testing.assert_allclose(np.cross(R[1:-1, :, 2], normals), 0.0, atol=1e-12)


def test_real_parameters_agree_with_plain_geometry(structure):
    for table in backbone_frames(structure):
        p = structure.positions[table.atoms]
        for k in range(1, len(p)):
            assert table.b[k] == pytest.approx(np.sqrt(((p[k] - p[k - 1]) ** 2).sum()), abs=1e-14)
        for k in range(1, len(p) - 1):
            u, v = p[k - 1] - p[k], p[k + 1] - p[k]
            angle = np.arccos(u @ v / np.sqrt((u @ u) * (v @ v)))
            assert table.gamma[k] == pytest.approx(np.pi - angle, abs=1e-12)
            assert table.bond_angles[k] == pytest.approx(angle, abs=1e-12)
        for k in range(2, len(p) - 1):
            assert difference(table.beta[k], plane_dihedral(p[k - 2 : k + 2])) < 1e-11
            assert table.torsions[k] == table.beta[k]


def test_torsions_agree_with_mdtraj(structure):
    ours = {}
    for table in backbone_frames(structure):
        for k, name in enumerate(table.torsion_names):
            if name:
                ours[tuple(table.atoms[k - 2 : k + 2].tolist())] = (name, table.beta[k])
    trajectory = structure.to_mdtraj()
    caps = {a.index for a in trajectory.topology.atoms if a.residue.name in ("ACE", "NME")}
    matched = set()
    bonded = set(map(tuple, structure.atoms.bonds.tolist()))
    for name, compute in [
        ("phi", mdtraj.compute_phi),
        ("psi", mdtraj.compute_psi),
        ("omega", mdtraj.compute_omega),
    ]:
        quadruples, angles = compute(trajectory)
        for atoms, angle in zip(map(tuple, quadruples.tolist()), angles[0], strict=True):
            if not all(tuple(sorted(atoms[i : i + 2])) in bonded for i in range(3)):
                continue  # MDTraj joins residues across chain breaks
            assert ours[atoms][0] == name
            assert difference(ours[atoms][1], angle) < 2e-4  # single precision of coordinates
            matched.add(atoms)
    assert all(caps & set(extra) for extra in ours.keys() - matched)


@pytest.mark.skipif("1l2y.pdb" not in FURTHER, reason="PEPTIDYN_STRUCTURES is not set")
def test_a_stray_atom_is_no_segment():
    (table,) = backbone_frames(load_structure(FURTHER["1l2y.pdb"]))
    assert table.chain == "A" and len(table) == 60


def test_waters_have_no_backbone():
    structure = read(VILLIN_IN_WATER)
    (table,) = backbone_frames(structure)
    assert len(table) == 105
    assert set(table.names) == {"N", "CA", "C"}
    waters = openmm.app.PDBFile(str(Path(openmm.app.__file__).parent / "data" / "tip3p.pdb"))
    assert backbone_frames(Structure.from_openmm(waters.topology, None, waters.positions)) == ()


# ---------------------------------------------------------------------- segments and caps


def test_a_gap_starts_a_new_segment():
    structure = read(VILLIN_IN_WATER)
    (whole,) = backbone_frames(structure)
    cut = set(whole.atoms[29:31].tolist())  # C of residue 10, N of residue 11
    keep = [set(pair) != cut for pair in structure.atoms.bonds.tolist()]
    atoms = replace(structure.atoms, bonds=structure.atoms.bonds[keep], bond_order=structure.atoms.bond_order[keep])
    first, second = backbone_frames(Built(atoms, structure.positions))
    assert (len(first), len(second)) == (30, 75)
    np.testing.assert_array_equal(np.concatenate([first.atoms, second.atoms]), whole.atoms)
    np.testing.assert_array_equal(first.b[1:], whole.b[1:30])
    assert second.b[0] == second.beta[0] == second.beta[1] == second.gamma[0] == 0.0
    np.testing.assert_allclose(second.rebuild(), structure.positions[second.atoms], rtol=0, atol=1e-12)


def test_caps_complete_the_torsions_of_their_neighbour():
    structure = load_structure(DATA / "ala1.pdb")
    (table,) = backbone_frames(structure)
    assert table.residues[0].startswith("ACE") and table.residues[-1].startswith("NME")
    assert table.names == ("CH3", "C", "N", "CA", "C", "N", "C")
    assert table.roles == ("CA", "C", "N", "CA", "C", "N", "CA")
    assert table.torsion_names == ("", "", "omega", "phi", "psi", "omega", "")


@pytest.mark.parametrize(
    "before, after, names",
    [
        (("FOR", ["C", "O"]), ("NH2", ["N"]), ("C", "N", "CA", "C", "N")),
        (("ACE", ["C", "CH3", "O"]), ("NME", ["N", "CH3"]), ("CH3", "C", "N", "CA", "C", "N", "CH3")),
        (("ACE", ["C", "CH3", "O"]), ("NH2", ["N"]), ("CH3", "C", "N", "CA", "C", "N")),
    ],
)
def test_caps_of_every_kind(before, after, names):
    residues = [before, ("SEP", ["N", "CA", "C"]), after]
    size = len(before[1])
    bonds = [(0, i) for i in range(1, size)] + [(0, size), (size, size + 1), (size + 1, size + 2)]
    bonds += [(size + 2, size + 3)] + [(size + 3, size + 4)] * (len(after[1]) - 1)
    positions = np.random.default_rng(0).normal(size=(size + 3 + len(after[1]), 3))
    (table,) = backbone_frames(built(residues, positions, bonds))
    assert table.names == names
    np.testing.assert_allclose(table.rebuild(), positions[table.atoms], rtol=0, atol=1e-12)


def test_a_cap_is_taken_as_far_as_there_is_one_way():
    """The N of a dimethylamide has two methyls: there is no single torsion behind it. Nor where two caps meet."""
    p = np.random.default_rng(1).normal(size=(6, 3))
    amide = [("ALA", ["N", "CA", "C"]), ("NDM", ["N", "C1", "C2"])]
    (table,) = backbone_frames(built(amide, p, [(0, 1), (1, 2), (2, 3), (3, 4), (3, 5)]))
    np.testing.assert_array_equal(table.atoms, [0, 1, 2, 3])
    acetyls = [("ALA", ["N", "CA", "C"]), ("ACE", ["C"]), ("ACE", ["C"])]
    (table,) = backbone_frames(built(acetyls, p[:5], [(0, 1), (1, 2), (0, 3), (0, 4)]))
    np.testing.assert_array_equal(table.atoms, [0, 1, 2])


def test_residues_are_recognised_by_their_atoms_not_their_names():
    (table,) = backbone_frames(backbone_chain(["ALA", "MSE", "HID", "XYZ"], zigzag(12)))
    assert len(table) == 12


def test_segments_follow_bonds_not_file_order():
    p = zigzag(9)
    chain = backbone_chain(["ALA", "GLY", "SER"], np.concatenate([p[:3], p[6:], p[3:6]]))
    bonds = [[0, 1], [1, 2], [2, 6], [3, 4], [3, 8], [4, 5], [6, 7], [7, 8]]
    chain = Built(replace(chain.atoms, bonds=np.array(bonds)), chain.positions)
    (table,) = backbone_frames(chain)
    assert table.residues[::3] == ("ALA 1", "SER 3", "GLY 2")
    np.testing.assert_allclose(table.rebuild(), p, rtol=0, atol=1e-13)


def test_a_ring_is_opened_before_its_first_residue():
    chain = backbone_chain(["GLY"] * 3, np.random.default_rng(3).normal(size=(9, 3)))
    ring = Built(replace(chain.atoms, bonds=np.concatenate([chain.atoms.bonds, [[0, 8]]])), chain.positions)
    (table,) = backbone_frames(ring)
    np.testing.assert_array_equal(table.atoms, np.arange(9))


# ---------------------------------------------------------------------- output


def test_text_is_in_degrees_and_angstrom():
    (table,) = backbone_frames(chain_of_table_ii(np.full(7, 60 * DEG)))
    text = str(table)
    lines = text.splitlines()
    assert lines[0] == "chain A, ALA 1 to ALA 3: 9 backbone atoms"
    assert lines[1].split() == "k residue atom beta [deg] b [A] c [A] gamma [deg] torsion".split()
    assert lines[4].split() == ["3", "ALA", "1", "C", "-120.00", "1.5250", "0.0000", "63.80", "psi"]
    assert table.alternating().to_text().splitlines()[4].split()[4:8] == ["60.00", "1.5250", "0.0000", "-63.80"]
    assert len(lines) == 2 + 9


def test_dictionary_survives_json_and_holds_the_whole_geometry():
    chain = chain_of_table_ii(np.full(7, 60 * DEG))
    (table,) = backbone_frames(chain)
    data = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    assert data["units"] == {"angle": "rad", "length": "nm"}
    beta, b, c, gamma = ([row[name] for row in data["rows"]] for name in ("beta", "b", "c", "gamma"))
    frames = dh.chain_transforms(dh.dh_transform(beta, b, c, gamma), data["base"])
    np.testing.assert_allclose(frames[:, :3, 3], chain.positions, rtol=0, atol=1e-14)
    assert [row["torsion"] for row in data["rows"][1:4]] == [None, "psi", "omega"]


def test_a_table_cannot_be_changed():
    (table,) = backbone_frames(backbone_chain(["GLY"], [[0, 0, 0], [0.1, 0, 0], [0.1, 0.1, 0]]))
    for array in (table.beta, table.b, table.c, table.gamma, table.base, table.atoms):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize("missing", ["N", "CA", "C"])
def test_a_missing_backbone_atom_is_named(missing):
    atoms = [name for name in ("N", "CA", "C", "O") if name != missing]
    chain = built([("ALA", ["N", "CA", "C"]), ("GLY", atoms)], zigzag(6), [(0, 1), (1, 2), (4, 5)])
    with pytest.raises(StructureError, match=f"chain A, residue GLY 2 has no backbone atom {missing},"):
        backbone_frames(chain)


def test_missing_bonds_are_named():
    chain = built([("ALA", ["N", "CA", "C"])], zigzag(3), [(1, 2)])
    with pytest.raises(StructureError, match="residue ALA 1 has atoms N, CA and C but not the bonds"):
        backbone_frames(chain)


def test_coinciding_atoms_are_named():
    p = zigzag(6)
    p[4] = p[3]
    with pytest.raises(StructureError, match="residue GLY 2, atom N and chain A, residue GLY 2, atom CA coincide"):
        backbone_frames(backbone_chain(["GLY"] * 2, p))


@pytest.mark.parametrize("third", [0.3, -0.1], ids=["straight", "folded back"])
def test_collinear_atoms_are_named(third):
    p = [[0, 0.1, 0], [-0.1, 0, 0], [0, 0, 0], [0.15, 0, 0], [third, 0, 0], [0.3, 0.1, 0.1]]
    chain = backbone_chain(["GLY"] * 2, p)
    with pytest.raises(ModelError, match=r"GLY 1, atom CA; .*GLY 1, atom C; .*GLY 2, atom N lie on one line"):
        backbone_frames(chain)


@pytest.mark.parametrize(
    ("joined", "where"), [([(2, 3), (2, 6)], "GLY 1, atom C"), ([(2, 3), (3, 8)], "GLY 3, atom C or .*GLY 2, atom N")]
)
def test_a_branched_backbone_is_refused(joined, where):
    residues = [("GLY", ["N", "CA", "C"])] * 3
    bonds = [(0, 1), (1, 2), (3, 4), (4, 5), (6, 7), (7, 8), *joined]
    with pytest.raises(StructureError, match=f"the backbone branches at chain A, residue {where}"):
        backbone_frames(built(residues, np.random.default_rng(0).normal(size=(9, 3)), bonds))


# ---------------------------------------------------------------------- chains, caps and text by hand


def joined(*chains):
    """Return chains of bare residues in one structure, named A, B, ...; each is (residue names, closed)."""
    names, residues, owner, bonds, places = [], [], [], [], []
    for number, (chain, closed) in enumerate(chains):
        first = len(names)
        for name in chain:
            owner += [len(residues)] * 3
            residues.append((name, number))
            names += ["N", "CA", "C"]
        bonds += [(i, i + 1) for i in range(first, len(names) - 1)] + [(first, len(names) - 1)] * closed
        places.append(np.random.default_rng(number).normal(size=(3 * len(chain), 3)))
    atoms = Atoms(
        name=np.array(names), element=np.array([name[0] for name in names]), residue=np.array(owner),
        residue_name=np.array([name for name, _ in residues]),
        residue_id=np.array([str(r + 1) for r in range(len(residues))]),
        residue_chain=np.array([chain for _, chain in residues]), chain_id=np.array(["A", "B", " "][: len(chains)]),
        bonds=np.array(sorted(bonds)), bond_order=np.zeros(len(bonds)),
    )  # fmt: skip
    return Built(atoms, np.concatenate(places))


def test_every_table_has_the_name_of_its_chain():
    tables = backbone_frames(joined((["ALA", "GLY"], False), (["SER"], False), (["VAL", "TRP"], False)))
    assert [table.chain for table in tables] == ["A", "B", " "]
    assert [str(table).splitlines()[0] for table in tables] == [
        "chain A, ALA 1 to GLY 2: 6 backbone atoms",
        "chain B, SER 3 to SER 3: 3 backbone atoms",
        "VAL 4 to TRP 5: 6 backbone atoms",
    ]
    assert repr(tables[1]) == "<BackboneTable: chain B, SER 3 to SER 3, 3 rows>"
    assert tables[2].to_dict()["chain"] == " " and tables[0].to_dict()["chain"] == "A"


def test_rings_and_open_chains_come_in_the_order_of_the_file():
    """A ring of three, an open chain, and another ring; each ring begins at its first residue."""
    tables = backbone_frames(joined((["ALA"] * 3, True), (["GLY"] * 2, False), (["SER"] * 3, True)))
    assert [table.atoms.tolist() for table in tables] == [list(range(9)), list(range(9, 15)), list(range(15, 24))]
    assert [table.roles for table in tables] == [("N", "CA", "C") * n for n in (3, 2, 3)]


def test_caps_are_known_by_their_names_where_elements_are_not():
    residues = [("ACE", ["C", "CH3", "O"]), ("ALA", ["N", "CA", "C"]), ("NME", ["N", "CH3", "H"])]
    bonds = [(0, 1), (0, 2), (0, 3), (3, 4), (4, 5), (5, 6), (6, 7), (6, 8)]
    chain = built(residues, np.random.default_rng(0).normal(size=(9, 3)), bonds)
    bare = Built(replace(chain.atoms, element=np.array([""] * 9)), chain.positions)
    for structure in (chain, bare):
        (table,) = backbone_frames(structure)
        assert table.atoms.tolist() == [1, 0, 3, 4, 5, 6, 7]
        assert table.roles == ("CA", "C", "N", "CA", "C", "N", "CA")
        assert table.residues == ("ACE 1", "ACE 1", "ALA 2", "ALA 2", "ALA 2", "NME 3", "NME 3")


def test_a_bond_to_a_side_chain_is_no_cap():
    """The C of a glycine bonded to NZ of a lysine, and a side chain on its N: neither carries the chain on."""
    residues = [("GLY", ["N", "CA", "C"]), ("LYS", ["N", "CA", "C", "NZ"]), ("XAA", ["N", "CA", "C", "CM"])]
    bonds = [(0, 1), (1, 2), (3, 4), (4, 5), (4, 6), (2, 6), (7, 8), (8, 9), (8, 10), (3, 10)]
    tables = backbone_frames(built(residues, np.random.default_rng(0).normal(size=(11, 3)), bonds))
    assert [table.atoms.tolist() for table in tables] == [[0, 1, 2], [3, 4, 5], [7, 8, 9]]


@pytest.mark.parametrize(
    ("name", "refused"), [("ALA", True), ("HID", True), ("MSE", True), ("XYZ", False), ("ACE", False)]
)
def test_amino_acids_by_name_need_their_bonds(name, refused):
    """N-CA without CA-C; a residue of another name is none, and is passed over."""
    chain = built([(name, ["N", "CA", "C"]), ("GLY", ["N", "CA", "C"])], zigzag(6), [(0, 1), (3, 4), (4, 5)])
    if refused:
        with pytest.raises(
            StructureError, match=f"residue {name} 1 has atoms N, CA and C but not the bonds N-CA and CA"
        ):
            backbone_frames(chain)
    else:
        (table,) = backbone_frames(chain)
        assert table.atoms.tolist() == [3, 4, 5]


def test_rows_have_torsions_and_angles_where_all_of_their_atoms_are_there():
    """Six atoms: torsions in rows 3 to 5, angles in rows 2 to 5; one residue has one angle and no torsion."""
    (table,) = backbone_frames(backbone_chain(["GLY"] * 2, np.random.default_rng(0).normal(size=(6, 3))))
    assert np.isnan(table.torsions).tolist() == [True, True, False, False, False, True]
    assert np.isnan(table.bond_angles).tolist() == [True, False, False, False, False, True]
    assert table.torsion_names == ("", "", "psi", "omega", "phi", "")
    (one,) = backbone_frames(backbone_chain(["GLY"], [[0, 0, 0], [0.1, 0, 0], [0.1, 0.1, 0]]))
    assert np.isnan(one.torsions).all() and np.isnan(one.bond_angles).tolist() == [True, False, True]
    assert one.alternating().torsion_names == ("", "", "") and np.isnan(one.alternating().torsions).all()


def test_torsions_are_between_minus_and_plus_180_degrees():
    """A planar zigzag has 180 degrees, in this convention and, where it is 0, in the alternating one."""
    (table,) = backbone_frames(backbone_chain(["GLY"] * 2, zigzag(6)))
    turned = table.alternating()
    assert np.degrees(turned.beta[2:-1]) == pytest.approx([0.0] * 3, abs=1e-9)
    exact = replace(turned, beta=np.zeros(6))
    assert (
        np.degrees(exact.torsions[2:-1]).tolist() == [180.0] * 3
        and np.degrees(exact.alternating().beta).tolist() == [180.0] * 6
    )
    many = replace(turned, beta=np.array([0.0, 0.0, -0.5, 1.0, 3.0, 0.0]))
    assert many.torsions[2:-1] == pytest.approx([np.pi - 0.5, 1.0 - np.pi, 3.0 - np.pi])


def test_a_row_of_the_dictionary_and_of_the_text():
    """Right angles of bonds of 0.1, 0.2 and 0.3 nm; the torsion is 90 degrees. Offsets c are in angstrom in text."""
    p = [[0, 0, 0], [0.1, 0, 0], [0.1, 0.2, 0], [0.1, 0.2, -0.3], [0.2, 0.2, -0.3], [0.2, 0.3, -0.3]]
    (table,) = backbone_frames(backbone_chain(["GLY", "ALA"], p))
    rows = table.to_dict()["rows"]
    assert [row["k"] for row in rows] == [1, 2, 3, 4, 5, 6] and [row["atom_index"] for row in rows] == list(range(6))
    third = rows[2]
    assert (third["residue"], third["atom"], third["torsion"], third["c"]) == ("GLY 1", "C", "psi", 0.0)
    assert (third["b"], third["gamma"]) == pytest.approx((0.2, np.pi / 2))
    assert third["beta"] == pytest.approx(plane_dihedral(np.array(p[:4]))) and abs(third["beta"]) == pytest.approx(
        np.pi / 2
    )
    assert np.allclose(table.to_dict()["base"], np.eye(4))
    moved = replace(table, c=np.full(6, 0.05), beta=np.full(6, -1e-9))
    line = moved.to_text().splitlines()[4]
    assert line.split() == ["3", "GLY", "1", "C", "0.00", "2.0000", "0.5000", "90.00", "psi"]

"""Trajectory files as arrays: places, times and boxes of frames, models of PDB files, topologies, what is refused."""

from __future__ import annotations

import bz2
import gzip

import mdtraj
import numpy as np
import pytest
from openmm import app
from structure_files import hetatm

from peptidyn.core.errors import SelectionError, TrajectoryError
from peptidyn.io.topology import atoms_from_topology
from peptidyn.io.trajectories import TrajectoryFile


def make_topology(*residues, bonds=()):
    """A topology with a chain for every residue, given as its name and its atoms, and bonds between atoms."""
    topology = app.Topology()
    for name, atoms in residues:
        residue = topology.addResidue(name, topology.addChain())
        for atom in atoms.split():
            element = None if atom == "M" else app.Element.getBySymbol("Na" if atom == "NA" else atom[0])
            topology.addAtom(atom, element, residue)
    made = list(topology.atoms())
    for i, j in bonds:
        topology.addBond(made[i], made[j])
    return topology


TOPOLOGY = make_topology(("LIG", "C1 C2 O3"), ("NA", "NA"), bonds=[(0, 1), (1, 2)])
ATOMS = atoms_from_topology(TOPOLOGY)
BASE = np.array([[0.1, 0.1, 0.1], [0.25, 0.1, 0.1], [0.25, 0.22, 0.1], [0.6, 0.6, 0.6]])
FRAMES = BASE + 0.01 * np.arange(7)[:, None, None]
BOXES = np.array([[[1.2 + 0.1 * k, 0, 0], [0.2, 1.3 + 0.1 * k, 0], [-0.3, 0.1, 1.4 + 0.1 * k]] for k in range(7)])


def as_mdtraj(xyz=FRAMES, boxes=None, topology=TOPOLOGY):
    trajectory = mdtraj.Trajectory(np.asarray(xyz, np.float32), mdtraj.Topology.from_openmm(topology))
    trajectory.time = 0.5 * np.arange(len(xyz))
    if boxes is not None:
        trajectory.unitcell_vectors = np.asarray(boxes, np.float32)
    return trajectory


def open_file(path, top=None, chosen=None, chunk=100, stride=1, atoms=ATOMS):
    return TrajectoryFile(atoms, path, top, chosen, chunk, stride)


def read_all(file):
    """Places, times and positions of all frames."""
    return [np.concatenate(part) for part in zip(*file.chunks(), strict=True)]


def lines_of(x, atoms=ATOMS, shift=0.0):
    """The lines of a PDB model; positions in nm."""
    return [
        hetatm(
            k + 1, str(atoms.name[k]), str(atoms.residue_name[atoms.residue[k]]), "AB"[atoms.residue[k]], 1,
            10.0 * x[k] + shift, str(atoms.element[k]).upper(),
        )
        for k in range(atoms.n_atoms)
    ]  # fmt: skip


def cell(a, b, c, alpha=90.0, beta=90.0, gamma=90.0):
    """A CRYST1 record; lengths in nm, angles in degrees."""
    return f"CRYST1{10 * a:9.3f}{10 * b:9.3f}{10 * c:9.3f}{alpha:7.2f}{beta:7.2f}{gamma:7.2f} P 1           1"


def write_models(path, models, end="ENDMDL"):
    """A PDB file of models, each a list of lines."""
    lines = [line for k, model in enumerate(models) for line in (f"MODEL     {k + 1:4d}", *model, "ENDMDL")]
    path.write_text("\n".join([*(lines if end else lines[:-1]), ""]))
    return path


# ---------------------------------------------------------------------------- boxes


@pytest.mark.parametrize("name", ["t.dcd", "t.trr", "t.h5"])
@pytest.mark.parametrize("chunk", [3, 100])
def test_every_frame_is_made_whole_by_its_own_box(tmp_path, name, chunk):
    """Boxes grow from frame to frame; the ligand lies across a corner, and its first atom stays where it is."""
    corner = FRAMES - [0.2, 0.15, 0.15] + BOXES.sum(axis=1)[:, None, :]
    wrapped = np.array([x - np.floor(x @ np.linalg.inv(b)) @ b for x, b in zip(corner, BOXES, strict=True)])
    assert np.linalg.norm(wrapped[:, 1] - wrapped[:, 0], axis=1).min() > 0.9
    path = tmp_path / name
    as_mdtraj(wrapped, BOXES).save(str(path))
    expected = wrapped.copy()
    expected[:, 1:3] = wrapped[:, :1] + FRAMES[:, 1:3] - FRAMES[:, :1]
    file = open_file(path, chunk=chunk)
    assert np.abs(read_all(file)[2] - expected).max() < 2e-6
    for number in (0, 1, 4, 6, -1, -3):
        x, box = file.frame(number)
        assert np.abs(x - expected[number]).max() < 2e-6
        assert np.abs(box - BOXES[number]).max() < 2e-6


def test_frames_without_a_box_have_none(tmp_path):
    path = tmp_path / "t.trr"
    as_mdtraj().save(str(path))
    x, box = open_file(path).frame(2)
    assert box is None and np.abs(x - FRAMES[2]).max() < 1e-6
    as_mdtraj(boxes=np.zeros((7, 3, 3))).save(str(path))  # as programs write that there is none
    x, box = open_file(path).frame(2)
    assert box is None and np.abs(x - FRAMES[2]).max() < 1e-6


@pytest.mark.parametrize(
    ("lengths", "angles", "box"),
    [
        ((2.0, 3.0, 4.0), (90, 90, 90), np.diag([2.0, 3.0, 4.0])),
        ((2.0, 3.0, 4.0), (60, 90, 90), [[2, 0, 0], [0, 3, 0], [0, 2, np.sqrt(12)]]),
        ((2.0, 3.0, 4.0), (90, 60, 90), [[2, 0, 0], [0, 3, 0], [2, 0, np.sqrt(12)]]),
        ((2.0, 3.0, 4.0), (90, 90, 60), [[2, 0, 0], [1.5, 1.5 * np.sqrt(3), 0], [0, 0, 4]]),
        ((0.1, 0.1, 0.1), (90, 90, 90), None),  # stands for no box
        ((0.6, 0.7, 0.8), (90, 90, 90), np.diag([0.6, 0.7, 0.8])),
    ],
)
def test_boxes_of_pdb_models_are_in_nm(tmp_path, lengths, angles, box):
    path = write_models(tmp_path / "t.pdb", [[cell(*lengths, *angles), *lines_of(FRAMES[0])]])
    found = open_file(path).frame(0)[1]
    assert found is None if box is None else np.abs(found - box).max() < 1e-6


def test_a_box_holds_until_another_is_stated(tmp_path):
    """Three models, boxes of 1 and 1.2 nm before the first and the third; the second atom is wrapped in all."""
    models = [
        lines_of(np.array([[0.1, 0, 0], [0.95 if k < 2 else 1.15, 0, 0], [0.1, 0.1, 0], [0.5, 0.5, 0.5]]))
        for k in range(3)
    ]
    models[0].insert(0, cell(1.0, 1.0, 1.0))
    models[2].insert(0, cell(1.2, 1.2, 1.2))
    path = write_models(tmp_path / "t.pdb", models)
    for chunk in (1, 2, 3):
        file = open_file(path, chunk=chunk)
        assert [file.frame(k)[1][0, 0] for k in range(3)] == pytest.approx([1.0, 1.0, 1.2])
        assert read_all(file)[2][:, 1, 0] == pytest.approx([-0.05] * 3)


# ---------------------------------------------------------------------------- places and times


@pytest.mark.parametrize("name", ["t.xtc", "t.trr", "t.dcd", "t.pdb"])
@pytest.mark.parametrize(("chunk", "stride"), [(2, 1), (2, 3), (1, 2), (100, 3), (2, 7)])
def test_places_and_times_of_every_stride(tmp_path, name, chunk, stride):
    path = tmp_path / name
    as_mdtraj().save(str(path))
    file = open_file(path, chunk=chunk, stride=stride)
    parts = list(file.chunks())
    places = list(range(0, 7, stride))
    assert [len(index) for index, _, _ in parts[:-1]] == [chunk] * (len(parts) - 1)
    index, time, xyz = read_all(file)
    assert index.tolist() == places
    assert time == pytest.approx([0.5 * k if name in ("t.xtc", "t.trr") else k for k in places])
    assert np.abs(xyz - FRAMES[::stride]).max() < 1e-3
    assert file.n_frames == (None if name == "t.pdb" else len(places))
    for number in range(-len(places), len(places)):
        assert np.abs(file.frame(number)[0] - FRAMES[places[number]]).max() < 1e-3
    for number in (len(places), len(places) + 1, -len(places) - 1):
        with pytest.raises(TrajectoryError, match=f"no frame {number}: it holds {len(places)} frames"):
            file.frame(number)


def test_a_damaged_frame_is_named_and_others_are_read(tmp_path):
    xyz = FRAMES.copy()
    xyz[5, 1, 2] = xyz[5, 3, 1] = xyz[6, 0, 0] = np.nan
    path = tmp_path / "t.dcd"
    as_mdtraj(xyz).save(str(path))
    file = open_file(path, chunk=2)
    assert np.abs(file.frame(4)[0] - FRAMES[4]).max() < 1e-6
    with pytest.raises(TrajectoryError, match=r"frame 5 of .*chain 1, residue LIG 1, atom C2 are not finite"):
        file.frame(5)
    with pytest.raises(TrajectoryError, match=r"frame 5 of .*chain 1, residue LIG 1, atom C2 are not finite"):
        read_all(file)
    with pytest.raises(TrajectoryError, match=r"frame 6 of .*chain 1, residue LIG 1, atom C1 are not finite"):
        read_all(open_file(path, chunk=2, stride=2))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_bond_that_is_too_long_is_named(tmp_path, axis):
    """0.45 nm passes, 0.62 nm does not; the longest of all frames that are read together is named."""
    xyz = FRAMES.copy()
    xyz[4, 2] = xyz[4, 1]
    xyz[4, 2, axis] += 0.45
    path = tmp_path / "t.dcd"
    as_mdtraj(xyz).save(str(path))
    assert len(read_all(open_file(path))[0]) == 7
    xyz[3, 2] = xyz[3, 1]
    xyz[3, 2, axis] += 0.62
    for k in (1, 5):
        xyz[k, 1:3, axis] -= 0.55
    message = "frame 3 of .*between chain 1, residue LIG 1, atom C2 and chain 1, residue LIG 1, atom O3 is 0.62 nm long"
    xyz[[1, 5], 1] = xyz[[1, 5], 0] + 0.2  # 0.35 nm
    xyz[[1, 5], 2] = xyz[[1, 5], 1]
    as_mdtraj(xyz).save(str(path))
    with pytest.raises(TrajectoryError, match=f"{message}; either topology and trajectory do not match, or .* no box"):
        read_all(open_file(path))
    as_mdtraj(xyz, np.array([9.0 * np.eye(3)] * 7)).save(str(path))
    with pytest.raises(TrajectoryError, match=f"{message}; topology and trajectory do not list the same atoms"):
        read_all(open_file(path))
    with pytest.raises(TrajectoryError, match="frame 3 of"):
        read_all(open_file(path, chunk=1, stride=3))


def test_a_file_without_frames_says_so(tmp_path):
    path = tmp_path / "t.pdb"
    write_models(path, [["REMARK nothing"]])
    with pytest.raises(TrajectoryError, match="holds no frames"):
        list(open_file(path, top=mdtraj.Topology.from_openmm(TOPOLOGY)).chunks())


# ---------------------------------------------------------------------------- models of PDB files


def test_models_have_the_first_of_alternate_locations(tmp_path):
    """In every model anew, also if the second location stands alone, and for each residue on its own."""
    models = []
    for x in FRAMES[:2]:
        first, second, *rest = lines_of(x)
        other = lines_of(x, shift=1.0)[1]
        models.append([first, f"{second[:16]}A{second[17:]}", f"{other[:16]}B{other[17:]}", *rest])
    only_second = lines_of(FRAMES[2])
    only_second[1] = f"{only_second[1][:16]}B{only_second[1][17:]}"
    path = write_models(tmp_path / "t.pdb", [*models, only_second])
    top = mdtraj.Topology.from_openmm(TOPOLOGY)
    assert np.abs(read_all(open_file(path, top))[2] - FRAMES[:3]).max() < 1e-4
    two = make_topology(("LIG", "C1"), ("LIG", "C1"))
    x = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    lines = [f"{line[:16]}A{line[17:]}" for line in lines_of(x, atoms_from_topology(two))]
    path = write_models(tmp_path / "two.pdb", [lines])
    file = open_file(path, mdtraj.Topology.from_openmm(two), atoms=atoms_from_topology(two))
    assert np.abs(read_all(file)[2] - x).max() < 1e-4


@pytest.mark.parametrize("packed", ["", ".gz", ".bz2"])
def test_models_packed_and_without_an_end(tmp_path, packed):
    """ATOM and HETATM records; the last model ends with the file. Some atoms are chosen, by number or by their kind."""
    water = ["ATOM  " + hetatm(9, "O", "HOH", "W", 1, (20, 20, 20), "O")[6:]]
    text = write_models(tmp_path / "t.pdb", [[*water, *lines_of(x)] for x in FRAMES], end="").read_text()
    pack = {"": str.encode, ".gz": lambda t: gzip.compress(t.encode()), ".bz2": lambda t: bz2.compress(t.encode())}
    path = tmp_path / f"u.pdb{packed}"
    path.write_bytes(pack[packed](text))
    for chosen in ("not water", [1, 2, 3, 4], np.array([1, 2, 3, 4])):
        index, _, xyz = read_all(open_file(path, chosen=chosen, chunk=2, stride=3))
        assert index.tolist() == [0, 3, 6] and np.abs(xyz - FRAMES[::3]).max() < 1e-4
    with pytest.raises(TrajectoryError, match="holds 5 atoms but the tree has 4; give atoms= to choose those"):
        open_file(path)
    with pytest.raises(TrajectoryError, match="holds 1 atoms but the tree has 4; give the matching topology"):
        open_file(path, chosen="water")


def test_models_that_cannot_be_read(tmp_path):
    for extra in (lines_of(FRAMES[0])[:3], [*lines_of(FRAMES[0]), *lines_of(FRAMES[0])[:1]]):
        path = write_models(tmp_path / "t.pdb", [lines_of(FRAMES[0]), lines_of(FRAMES[1]), extra])
        with pytest.raises(TrajectoryError, match=rf"model 2 of .* has {len(extra)} atoms, the first has 4"):
            read_all(open_file(path))
        assert len(read_all(open_file(path, stride=3))[0]) == 1  # models that are passed over may differ
    bad = lines_of(FRAMES[1])
    bad[2] = bad[2][:38] + "********" + bad[2][46:]
    path = write_models(tmp_path / "t.pdb", [lines_of(FRAMES[0]), bad])
    with pytest.raises(TrajectoryError, match=r"cannot read coordinates in the line 'HETATM    3 .*\*\*\*"):
        read_all(open_file(path))


# ---------------------------------------------------------------------------- topologies


WET = make_topology(("HOH", "O H1 H2"), ("LIG", "C1 C2 O3"), ("NA", "NA"), bonds=[(0, 1), (0, 2), (3, 4), (4, 5)])
WATER = np.array([[2.0, 2.0, 2.0], [2.1, 2.0, 2.0], [2.0, 2.1, 2.0]])


def test_topologies_of_every_kind(tmp_path):
    """Frames hold a water before the atoms that are wanted."""
    wet = np.concatenate([np.broadcast_to(WATER, (7, 3, 3)), FRAMES], axis=1)
    whole = as_mdtraj(wet, topology=WET)
    dcd, h5 = tmp_path / "t.dcd", tmp_path / "t.h5"
    whole.save(str(dcd))
    whole.save(str(h5))
    write_models(tmp_path / "models.pdb", [lines_of(x, atoms_from_topology(TOPOLOGY)) for x in FRAMES[:2]])
    whole[0].save(str(tmp_path / "top.pdb"))
    (tmp_path / "top.pdb.gz").write_bytes(gzip.compress((tmp_path / "top.pdb").read_bytes()))
    whole[0].save(str(tmp_path / "top.gro"))
    tops = [whole, whole.topology, *(tmp_path / name for name in ("top.pdb", "top.pdb.gz", "top.gro", "t.h5"))]
    for path, top in [*((dcd, top) for top in tops), (h5, None)]:
        file = open_file(path, top, "resname LIG NA", stride=2)
        assert np.abs(read_all(file)[2] - FRAMES[::2]).max() < 1e-6
        assert np.abs(open_file(path, top, np.arange(3, 7)).frame(1)[0] - FRAMES[1]).max() < 1e-6
    junk = tmp_path / "junk.gro"
    junk.write_text("this is\nno topology\n")
    with pytest.raises(TrajectoryError, match=r"cannot read a topology from .*junk\.gro"):
        open_file(dcd, junk)
    (tmp_path / "junk.pdb").write_text("HETATM    1  C1  LIG A   1      no numbers\n")
    with pytest.raises(TrajectoryError, match=r"cannot read a topology from .*junk\.pdb"):
        open_file(dcd, tmp_path / "junk.pdb")


def test_without_a_topology_selections_know_the_atoms(tmp_path):
    """Chains, residues, names and elements are those of the atoms; a site without element is a virtual one."""
    topology = make_topology(("HOH", "O H1 H2 M"), ("NA", "NA"), bonds=[(0, 1), (0, 2)])
    atoms = atoms_from_topology(topology)
    x = np.concatenate([WATER, [[2.01, 2.01, 2.0], [3.0, 3.0, 3.0]]])
    path = tmp_path / "t.dcd"
    as_mdtraj(x[None], topology=topology).save(str(path))
    for chosen in (
        "(chainid 0 and resname HOH) or (chainid 1 and resname NA)",
        "(resid 0 and name O H1 H2 M) or (resid 1 and name NA)",
        "element VS or element O or element H or element Na",
    ):
        assert np.abs(open_file(path, chosen=chosen, atoms=atoms).frame(0)[0] - x).max() < 1e-6
    for chosen in ("element O H Na", "chainid 1", "resid 0"):
        with pytest.raises(TrajectoryError, match=r"holds . atoms but the tree has 5"):
            open_file(path, chosen=chosen, atoms=atoms)
    with pytest.raises(SelectionError, match="matches no atom of the trajectory's topology"):
        open_file(path, chosen="chainid 2", atoms=atoms)

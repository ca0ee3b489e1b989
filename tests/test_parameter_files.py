"""Topology files with parameters: which coordinates and which box are read, beside them or given, and what is refused.

Two waters in a box of 2 x 2.2 x 2.4 nm, as files of AMBER, CHARMM and GROMACS.
"""

from __future__ import annotations

import shutil

import numpy as np
import openmm
import parmed
import pytest
from openmm import app, unit

from peptidyn.core.errors import ArgumentError, StructureError
from peptidyn.core.units import plain_array
from peptidyn.io.parameter_files import is_parameter_file, read_parameter_file

WATER = np.array([[0.0, 0.0, 0.0], [0.096, 0.0, 0.0], [-0.024, 0.093, 0.0]])
X = np.concatenate([WATER + 0.3, WATER + 0.9])
EDGES = [2.0, 2.2, 2.4]
COORDINATES = ("w.inpcrd", "w.rst7", "w.crd", "w.gro", "w.pdb")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files, written by ParmEd. Each file of coordinates is 0.01 nm further along x than the one before."""
    place = tmp_path_factory.mktemp("parameters")
    topology = app.Topology()
    chain = topology.addChain()
    for _ in range(2):
        residue = topology.addResidue("HOH", chain)
        oxygen, *hydrogens = (
            topology.addAtom(name, app.Element.getBySymbol(name[0]), residue) for name in ("O", "H1", "H2")
        )
        for hydrogen in hydrogens:
            topology.addBond(oxygen, hydrogen)
    topology.setPeriodicBoxVectors(np.diag(EDGES) * unit.nanometer)
    field = app.ForceField("amber14/tip3p.xml")
    system = field.createSystem(topology, nonbondedMethod=app.PME, nonbondedCutoff=0.8, rigidWater=False)
    made = parmed.openmm.load_topology(topology, system, 10 * X)
    for name in ("w.prmtop", "w.top", "w.psf"):
        made.save(str(place / name))
    for k, name in enumerate(COORDINATES):
        made.coordinates = 10 * (X + [0.01 * k, 0.0, 0.0])
        made.save(str(place / name))
    parameters = parmed.charmm.CharmmParameterSet.from_structure(made)
    parameters.write(top=str(place / "w.rtf"), par=str(place / "w.par"))
    return place


def options(folder, name):
    return {"parameters": [folder / "w.rtf", folder / "w.par"]} if name.endswith(".psf") else {}


def shift_of(found):
    """By how many steps of 0.01 nm the coordinates are shifted."""
    assert found.positions == pytest.approx(X + [found.positions[0, 0] - X[0, 0], 0.0, 0.0], abs=1e-3)
    return round((found.positions[0, 0] - X[0, 0]) / 0.01)


def edges(topology):
    vectors = topology.getPeriodicBoxVectors()
    return None if vectors is None else plain_array(vectors).diagonal()


@pytest.mark.parametrize(
    ("name", "given", "has_box"),
    [
        ("w.prmtop", "w.inpcrd", True),
        ("w.prmtop", "w.rst7", True),
        ("w.prmtop", "w.gro", True),
        ("w.prmtop", "w.pdb", True),
        ("w.top", "w.gro", True),
        ("w.top", "w.pdb", True),
        ("w.top", "w.rst7", True),
        ("w.psf", "w.pdb", True),
        ("w.psf", "w.rst7", True),
        ("w.psf", "w.crd", False),
    ],
)
def test_positions_and_box_are_those_of_the_coordinates(folder, name, given, has_box):
    found = read_parameter_file(folder / name, folder / given, **options(folder, name))
    assert found.name == name and found.topology.getNumAtoms() == 6
    assert shift_of(found) == COORDINATES.index(given)
    if not has_box:
        assert edges(found.topology) is None
        return
    assert edges(found.topology) == pytest.approx(EDGES)
    system = found.create_system(nonbondedMethod=app.PME, nonbondedCutoff=0.7, rigidWater=False)
    vectors = system.getDefaultPeriodicBoxVectors()
    assert [vectors[k][k]._value for k in range(3)] == pytest.approx(EDGES)
    (force,) = (f for f in system.getForces() if isinstance(f, openmm.NonbondedForce))
    assert force.getCutoffDistance()._value == pytest.approx(0.7) and system.getNumConstraints() == 0


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("w.prmtop", ["w.inpcrd", "w.rst7", "w.crd", "w.pdb"]),
        ("w.parm7", ["w.inpcrd", "w.rst7", "w.crd", "w.pdb"]),
        ("w.psf", ["w.crd", "w.pdb"]),
        ("w.top", ["w.gro", "w.pdb"]),
    ],
)
def test_coordinates_are_looked_for_beside_the_file(folder, tmp_path, name, order):
    """In this order; what is there is taken away, one after the other."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    if name == "w.parm7":
        (tmp_path / "w.prmtop").rename(tmp_path / name)
    for coordinates in order:
        found = read_parameter_file(tmp_path / name, **options(folder, name))
        assert shift_of(found) == COORDINATES.index(coordinates)
        (tmp_path / coordinates).unlink()
    endings = " or ".join(order)
    with pytest.raises(StructureError, match=f"{name} holds no coordinates, and there is no {endings} beside it; give"):
        read_parameter_file(tmp_path / name, **options(folder, name))


def test_crd_files_of_amber_and_of_charmm(folder, tmp_path):
    """The former begin with a title, the latter with remarks."""
    amber = tmp_path / "amber.crd"
    shutil.copy(folder / "w.rst7", amber)
    assert shift_of(read_parameter_file(folder / "w.prmtop", amber)) == 1
    assert shift_of(read_parameter_file(folder / "w.prmtop", folder / "w.crd")) == 2


def test_a_box_of_zeros_is_none(folder, tmp_path):
    lines = (folder / "w.gro").read_text().splitlines()
    gro = tmp_path / "w.gro"
    for box, expected in (("0 0 0", None), ("2.0 2.2 0", None), ("1.9 2.1 2.3", [1.9, 2.1, 2.3])):
        gro.write_text("\n".join([*lines[:-1], "".join(f"{float(edge):10.5f}" for edge in box.split())]) + "\n")
        found = read_parameter_file(folder / "w.top", gro)
        assert edges(found.topology) is None if expected is None else edges(found.topology) == pytest.approx(expected)


@pytest.mark.parametrize("skew", [(0.0, 0.0, 0.0), (0.4, -0.3, 0.5)], ids=["cuboid", "triclinic"])
def test_the_box_of_the_coordinates_goes_before_that_of_the_topology(folder, tmp_path, skew):
    """A prmtop holds the box of the preparation; coordinates are later, and at constant pressure have another."""
    b_x, c_x, c_y = skew
    box = [[1.9, 0.0, 0.0], [b_x, 2.1, 0.0], [c_x, c_y, 2.3]]
    lines, gro = (folder / "w.gro").read_text().splitlines(), tmp_path / "w.gro"
    numbers = (1.9, 2.1, 2.3, 0.0, 0.0, b_x, 0.0, c_x, c_y)
    gro.write_text("\n".join([*lines[:-1], "".join(f"{number:10.5f}" for number in numbers), ""]))
    for name in ("w.prmtop", "w.top", "w.psf"):
        found = read_parameter_file(folder / name, gro, **options(folder, name))
        system = found.create_system(nonbondedMethod=app.PME, nonbondedCutoff=0.7)
        for vectors in (found.topology.getPeriodicBoxVectors(), system.getDefaultPeriodicBoxVectors()):
            assert np.array([vector._value for vector in vectors]) == pytest.approx(np.array(box), abs=1e-6)


def test_a_topology_of_gromacs_includes_files_of_a_folder(folder, tmp_path):
    place = tmp_path / "fields"
    place.mkdir()
    whole = (folder / "w.top").read_text()
    begin = whole.index("[ defaults ]")
    head, tail = whole[begin:].split("[ moleculetype ]", 1)
    (place / "field.itp").write_text(head)
    top = tmp_path / "w.top"
    top.write_text(f'#include "field.itp"\n[ moleculetype ]{tail}')
    shutil.copy(folder / "w.gro", tmp_path)
    assert shift_of(read_parameter_file(top, include=place)) == 3
    with pytest.raises(StructureError, match=r"w\.top with w\.gro: .*give the folder of GROMACS's force fields as inc"):
        read_parameter_file(top)
    for name in ("w.prmtop", "w.psf"):
        with pytest.raises(ArgumentError, match=f"include= belongs to GROMACS's top files, and {name} is none"):
            read_parameter_file(folder / name, include=place, **options(folder, name))


def test_what_cannot_be_read(folder, tmp_path):
    with pytest.raises(StructureError, match=r"cannot read .*none\.prmtop: there is no such file"):
        read_parameter_file(folder / "none.prmtop")
    with pytest.raises(StructureError, match=r"cannot read the coordinates .*none\.gro: there is no such file"):
        read_parameter_file(folder / "w.top", folder / "none.gro")
    with pytest.raises(ArgumentError, match=r"w\.psf needs its CHARMM parameter files"):
        read_parameter_file(folder / "w.psf")
    for name in ("w.prmtop", "w.top"):
        with pytest.raises(ArgumentError, match=rf"parameters= belongs to CHARMM's psf files; {name} holds its own"):
            read_parameter_file(folder / name, parameters=[folder / "w.par"])
    with pytest.raises(ArgumentError, match=r"cannot tell the format of w\.par: coordinates are read from inpcrd"):
        read_parameter_file(folder / "w.prmtop", folder / "w.par")
    two = [line for line in (folder / "w.pdb").read_text().splitlines() if line.startswith(("ATOM", "HETATM"))]
    third = [f"{line[:22]}   9{line[26:]}" for line in two[:3]]
    for chosen in (two[:3], two + third):
        (tmp_path / "x.pdb").write_text("\n".join([*chosen, "END", ""]))
        with pytest.raises(
            StructureError, match=rf"x\.pdb has {len(chosen)} positions and w\.prmtop has 6 atoms; give"
        ):
            read_parameter_file(folder / "w.prmtop", tmp_path / "x.pdb")
    (tmp_path / "bad.prmtop").write_text("no topology\n")
    with pytest.raises(StructureError, match=r"OpenMM cannot read bad\.prmtop with w\.inpcrd: (?!.*include=)"):
        read_parameter_file(tmp_path / "bad.prmtop", folder / "w.inpcrd")


def test_names_of_files_with_parameters():
    for name in ("a.prmtop", "A.PARM7", "b/c.psf", "d.TOP"):
        assert is_parameter_file(name)
    for name in ("a.pdb", "prmtop", "a.prmtop.gz", None):
        assert not is_parameter_file(name)

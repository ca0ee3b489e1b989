"""Molecules that a periodic box has split: made whole on loading, or refused, never simulated in pieces."""

from __future__ import annotations

import csv
from functools import cache

import mdtraj
import numpy as np
import openmm
import pytest
from openmm import app, unit
from real_structures import DATA
from structure_files import the_note, write

import peptidyn as ptd
from peptidyn.cli import main
from peptidyn.core.atoms import Atoms
from peptidyn.core.errors import StructureError
from peptidyn.core.periodic import join_pieces
from peptidyn.core.units import plain_array
from peptidyn.io.images import join_images
from peptidyn.runs.preparation import prepare_structure
from peptidyn.runs.settings import RunSettings

BOXES = {
    "cubic": np.diag([2.2, 2.2, 2.2]),
    "triclinic": np.array([[2.4, 0.0, 0.0], [0.7, 2.3, 0.0], [-0.6, 0.9, 2.2]]),
}


def wrapped(x, box):
    """Every atom in the box, one by one, as programs write it."""
    return x - np.floor(x @ np.linalg.inv(box)) @ box


def in_box(structure, box, shift=0.4):
    """The structure in a box, with its middle at a wall, whole and with its atoms wrapped."""
    topology = structure.topology
    topology.setPeriodicBoxVectors(box * unit.nanometer)
    x = structure.positions - structure.positions.mean(axis=0) + shift * box[0]
    return ptd.Structure.from_openmm(topology, None, x), wrapped(x, box)


def written(structure, x, path):
    """A file with positions x; mmCIF keeps all digits, PDB the box to 0.001 A."""
    structure.with_positions(x).write(path)
    return path


@cache
def solvated():
    return prepare_structure(RunSettings(file=str(DATA / "ala1.pdb"), solvent="tip3p", padding=0.4, cutoff=0.8))


def bond_vectors(structure, x=None):
    x = structure.positions if x is None else x
    return x[structure.atoms.bonds[:, 1]] - x[structure.atoms.bonds[:, 0]]


@pytest.mark.parametrize("shape", BOXES)
@pytest.mark.parametrize("ending", ["pdb", "cif"])
def test_a_split_peptide_is_whole_after_loading(tmp_path, shape, ending):
    whole, split = in_box(ptd.build_peptide("CAPF"), BOXES[shape], shift=0.0)
    assert np.linalg.norm(bond_vectors(whole, split), axis=1).max() > 1.0
    back = ptd.load_structure(written(whole, split, tmp_path / f"x.{ending}"))
    assert np.array_equal(back.atoms.bonds, whole.atoms.bonds) and not list(back.notes_of("gap"))
    assert np.abs(bond_vectors(back) - bond_vectors(whole)).max() < (3e-4 if ending == "pdb" else 1e-9)
    assert "moved to another periodic image" in the_note(back, "box")
    assert ptd.build_tree(back).n_dof == ptd.build_tree(whole).n_dof


def test_a_whole_molecule_stays_where_it_is(tmp_path):
    """Also if it reaches out of its box: positions are those of the file to the last bit."""
    whole, _ = in_box(ptd.build_peptide("AAA"), BOXES["cubic"], shift=3.0)
    back = ptd.load_structure(written(whole, whole.positions, tmp_path / "x.cif"))
    assert not list(back.notes_of("box")) and np.abs(back.positions - whole.positions).max() < 1e-12


def test_a_gap_in_a_crystal_is_no_wall(tmp_path):
    """Residues that are missing leave a gap that no image closes; nothing moves."""
    structure = ptd.build_peptide("A" * 8)
    kept = structure.subset("not (resid 3 to 5)")
    whole, _ = in_box(kept, 2.0 * BOXES["triclinic"])
    back = ptd.load_structure(written(whole, whole.positions, tmp_path / "x.cif"))
    assert "the chain is broken" in the_note(back, "gap") and not list(back.notes_of("box"))


def test_the_largest_piece_stays_and_an_endless_chain_keeps_one_bond_across():
    box = np.diag([1.0, 5.0, 5.0])
    x = np.array([[0.05 + 0.1 * k, 0.0, 0.0] for k in range(10)])
    ring = np.array([[k, k + 1] for k in range(9)] + [[0, 9]])  # the last bond goes through the wall
    limit = np.full(len(ring), 0.15)
    assert np.array_equal(join_pieces(x, box, ring, limit), x)
    pieces = x.copy()
    pieces[7:] += [0.0, 5.0, 0.0]
    open_chain = ring[:-1]
    joined = join_pieces(pieces, box, open_chain, limit[:-1])
    assert np.abs(joined - x).max() < 1e-12


def test_a_ligand_without_records_is_put_together(tmp_path):
    """Its bonds come from distances, which are those of the nearest images."""
    names = ("C1", "C2", "O3", "C4", "N5")
    x = np.array([[0.0, 0.0, 0.0], [1.5, 0.0, 0.0], [2.0, 1.3, 0.0], [3.4, 1.4, 0.0], [3.9, 2.7, 0.0]]) + [18.5, 5, 5]
    lines = ["CRYST1   20.000   20.000   20.000  90.00  90.00  90.00 P 1           1"]
    for k, (name, (a, b, c)) in enumerate(zip(names, x % 20.0, strict=True)):
        lines.append(
            f"HETATM{k + 1:5d}  {name:<3} LIG A   1    {a:8.3f}{b:8.3f}{c:8.3f}  1.00  0.00           {name[0]}"
        )
    structure = ptd.load_structure(write(tmp_path, [*lines, "END"]))
    assert structure.atoms.bonds.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert np.linalg.norm(bond_vectors(structure), axis=1).max() < 0.16


@pytest.mark.parametrize("cut", ["inside a residue", "between residues"])
def test_without_a_box_a_split_molecule_is_refused(tmp_path, cut):
    structure = ptd.build_peptide("AAAA")
    x = structure.positions.copy()
    first = structure.atoms.residue_atoms[2]["N" if cut == "between residues" else "CB"]
    x[first:] += [8.0, 0.0, 0.0]
    file = written(structure, x, tmp_path / "x.cif")
    with pytest.raises(StructureError, match=r"would be 8.* nm long.*no box to put it together with.*CRYST1") as error:
        ptd.load_structure(file)
    assert "chain A, residue ALA" in str(error.value) and ("TER" in str(error.value)) == (cut == "between residues")
    assert main(["run", str(file), "-o", str(tmp_path / "out")]) == 2 and not (tmp_path / "out").exists()


def test_a_box_of_other_coordinates_is_refused(tmp_path):
    structure = ptd.build_peptide("AAAA")
    topology = structure.topology
    topology.setPeriodicBoxVectors(np.diag([3.0, 3.0, 3.0]) * unit.nanometer)
    x = structure.positions.copy()
    x[20:] += [8.0, 0.0, 0.0]
    with pytest.raises(StructureError, match="the box is not the one of these coordinates"):
        ptd.Structure.from_openmm(topology, None, x)


@pytest.mark.parametrize("shape", BOXES)
def test_openmm_and_mdtraj_objects_are_made_whole(shape):
    whole, split = in_box(ptd.build_peptide("AAA"), BOXES[shape], shift=0.0)
    given = whole.to_mdtraj()
    given.xyz = split[None].astype(np.float32)
    for back in (ptd.Structure.from_openmm(whole.topology, None, split), ptd.Structure.from_mdtraj(given)):
        assert np.abs(bond_vectors(back) - bond_vectors(whole)).max() < 1e-5
        assert "moved to another periodic image" in the_note(back, "box")


def test_a_solvated_box_is_whole(tmp_path):
    whole = solvated()
    box = plain_array(whole.topology.getPeriodicBoxVectors())
    file = written(whole, wrapped(whole.positions + 0.3, box), tmp_path / "x.cif")
    own = prepare_structure(RunSettings(file=str(file), solvent="tip3p", cutoff=0.8))
    assert "the box of the file is used" in the_note(own, "solvent") and own.n_atoms == whole.n_atoms
    assert np.abs(bond_vectors(own) - bond_vectors(whole)).max() < 1e-9


@pytest.mark.parametrize("shape", BOXES)
def test_weights_of_a_split_trajectory_are_those_of_the_whole_one(capsys, tmp_path, shape):
    """Structure and frames split: `peptidyn fixman` gives the same ln det M."""
    peptide = ptd.build_peptide("AA")
    whole, split = in_box(peptide, BOXES[shape], shift=0.0)
    tree = ptd.build_tree(whole)
    rng = np.random.default_rng(5)
    frames = np.array(
        [
            tree.positions(tree.reference.replace(torsions=tree.reference.torsions + t))
            for t in rng.normal(size=(4, tree.n_torsions))
        ]
    )
    results = []
    for name, top, xyz in (("whole", whole.positions, frames), ("split", split, wrapped(frames, BOXES[shape]))):
        written(whole, top, tmp_path / f"{name}.pdb")
        trajectory = mdtraj.Trajectory(xyz.astype(np.float32), whole.to_mdtraj().topology)
        trajectory.unitcell_vectors = np.repeat(BOXES[shape][None], 4, axis=0).astype(np.float32)
        trajectory.save_xtc(tmp_path / f"{name}.xtc")
        files = [str(tmp_path / f"{name}.{ending}") for ending in ("xtc", "pdb", "csv")]
        assert main(["fixman", files[0], "--top", files[1], "-T", "300", "-o", files[2], "-q"]) == 0
        with open(files[2]) as file:
            results.append([float(row["ln_det"]) for row in csv.DictReader(file)])
    assert len(results[0]) == 4 and results[1] == pytest.approx(results[0], abs=5e-3)  # XTC has 0.001 nm
    assert np.ptp(results[0]) > 0.1


# ---------------------------------------------------------------------------- topologies without bonds


def bare(topology):
    """The same topology without bonds."""
    from peptidyn.io.topology import copy_topology

    return copy_topology(topology, {})


@pytest.mark.parametrize("constraints", [None, app.HAngles])
def test_bonds_come_from_the_system(constraints):
    peptide = solvated()
    field = app.ForceField("amber14-all.xml", "amber14/tip3p.xml")
    system = field.createSystem(peptide.topology, constraints=constraints, rigidWater=constraints is not None)
    structure = ptd.Structure.from_openmm(bare(peptide.topology), system, peptide.positions)
    assert np.array_equal(structure.atoms.bonds, peptide.atoms.bonds)
    assert f"{len(peptide.atoms.bonds)} bonds that the Topology lacks taken from the System" in the_note(
        structure, "system-bonds"
    )


def test_urey_bradley_terms_and_restraints_are_no_bonds():
    peptide = ptd.build_peptide("AF")
    system = openmm.System()
    for mass in peptide.masses.tolist():
        system.addParticle(mass)
    bonds, restraint = openmm.HarmonicBondForce(), openmm.CustomBondForce("k*(r-1)^2")
    x, near = peptide.positions, peptide.atoms.neighbours
    pairs = {(i, k) for j in range(peptide.n_atoms) for i in near[j] for k in near[j] if i < k}  # 1-3
    for i, j in [*peptide.atoms.bonds.tolist(), *pairs]:
        bonds.addBond(i, j, float(np.linalg.norm(x[i] - x[j])), 1e5)
    restraint.addGlobalParameter("k", 10.0)
    restraint.addBond(0, peptide.n_atoms - 1, [])
    for force in (bonds, restraint):
        system.addForce(force)
    structure = ptd.Structure.from_openmm(bare(peptide.topology), system, x)
    assert np.array_equal(structure.atoms.bonds, peptide.atoms.bonds)


def test_a_system_without_bonds_says_so():
    peptide = ptd.build_peptide("A")
    system = openmm.System()
    for mass in peptide.masses.tolist():
        system.addParticle(mass)
    with pytest.raises(StructureError, match="neither the Topology nor the System has any bond"):
        ptd.Structure.from_openmm(bare(peptide.topology), system, peptide.positions)


# ---------------------------------------------------------------------------- residues by hand


def backbone(numbers, chains=None, spacing=0.4):
    """Residues of N, CA and C along x, 0.15 nm from atom to atom, with these numbers, as atoms and positions."""
    chains = chains or [0] * len(numbers)
    n = len(numbers)
    atoms = Atoms(
        name=np.array(["N", "CA", "C"] * n), element=np.array(["N", "C", "C"] * n), residue=np.repeat(np.arange(n), 3),
        residue_name=np.array(["ALA"] * n), residue_id=np.array(numbers, dtype=str), residue_chain=np.array(chains),
        chain_id=np.array(["A", "B"]), bonds=np.array([[3 * r + k, 3 * r + k + 1] for r in range(n) for k in (0, 1)]),
        bond_order=np.ones(2 * n),
    )  # fmt: skip
    x = np.zeros((3 * n, 3))
    x[:, 0] = [spacing * r + 0.15 * k for r in range(n) for k in range(3)]
    return atoms, x


@pytest.mark.parametrize(
    ("numbers", "chains", "refused"),
    [
        (["1", "2", "3"], [0, 0, 0], True),
        (["-2", "-1", "0"], [0, 0, 0], True),
        (["1", "2", "4"], [0, 0, 0], False),  # residue 3 is missing, and leaves a gap
        (["1", "3", "2"], [0, 0, 0], False),
        (["1", "2", "2A"], [0, 0, 0], False),
        (["1", "2", "2"], [0, 0, 0], False),
        (["1", "2", "3"], [0, 0, 1], False),
        (["1", "2", "?"], [0, 0, 0], False),
        (["1", "2", "²"], [0, 0, 0], False),
        (["1", "2", "--3"], [0, 0, 0], False),
        (["1", "2", "9" * 5000], [0, 0, 0], False),
    ],
)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_wall_between_residues_is_known_by_their_numbers(numbers, chains, refused, axis):
    """C of the second residue and N of the third are 0.25 and, along one axis, 1.6 nm apart."""
    atoms, x = backbone(numbers, chains)
    x[6:, axis] += 1.6 - 0.1 * (axis == 0)
    if refused:
        with pytest.raises(StructureError) as caught:
            join_images(atoms, x, None, "file", {})
        said = str(caught.value)
        assert said.startswith(f"file: the bond between chain A, residue ALA {numbers[1]}, atom C and chain A, residue")
        assert f"ALA {numbers[2]}, atom N would be 1.6" in said and "end the chain there by TER" in said
    else:
        assert join_images(atoms, x, None, "file", {})[0] is x
    assert join_images(atoms, x, None, "file")[0] is x  # bonds that are settled are not doubted
    box = np.diag([9.0, 9.0, 9.0]) * unit.nanometer
    assert join_images(atoms, x, box, "file", {})[0] is x  # with a box there are images to look in


def test_how_far_neighbours_may_be_apart():
    for distance, refused in ((1.45, False), (1.55, True)):
        atoms, x = backbone(["7", "8"], spacing=0.3 + distance)
        if refused:
            with pytest.raises(StructureError, match=r"would be 1\.55 nm long"):
                join_images(atoms, x, None, "file", {})
        else:
            assert join_images(atoms, x, None, "file", {}) == (x, [])
    atoms, x = backbone(["7", "8"], spacing=3.0)
    nameless = Atoms(**{**vars(atoms), "name": np.array(["N", "CA", "C", "CA", "CB", "C"])})
    assert join_images(nameless, x, None, "file", {})[0] is x  # there is no N that could be bonded


def test_the_longest_bond_is_named_and_moved_atoms_are_counted():
    """Bonds of 0.48 nm pass; of two longer ones the longest is named. In a box of 2 nm both are put together."""
    atoms, x = backbone(["1", "2", "3"])
    x[2, 1] += 0.45
    assert join_images(atoms, x, None, "file") == (x, [])
    x[5, 2] += 1.9
    x[8, 2] += 2.1
    with pytest.raises(
        StructureError, match=r"residue ALA 3, atom CA and .*ALA 3, atom C would be 2\.11 nm long, as in"
    ):
        join_images(atoms, x, None, "file")
    box = np.diag([2.0, 2.0, 2.0]) * unit.nanometer
    whole, (note,) = join_images(atoms, x, box, "file")
    expected = x.copy()
    expected[[5, 8], 2] -= 2.0
    assert whole == pytest.approx(expected) and note.kind == "box"
    assert note.text == "2 atoms moved to another periodic image, so that molecules are whole"
    with pytest.raises(
        StructureError, match=r"would be 2\.11 nm long, and no periodic image of the box makes it shorter"
    ):
        join_images(atoms, x, 3 * box, "file")


def test_bonds_that_are_not_settled_count_within_residues_only():
    """A recorded bond between residues may be missing in the end; one within a residue may not."""
    atoms, x = backbone(["1", "5"], spacing=4.0)
    between = Atoms(**{**vars(atoms), "bonds": np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]])})
    assert join_images(between, x, None, "file", {})[0] is x
    with pytest.raises(StructureError, match=r"ALA 1, atom C and .*ALA 5, atom N would be 3\.70 nm long"):
        join_images(between, x, None, "file")
    x[4] += 4.0
    with pytest.raises(StructureError, match=r"ALA 5, atom (N|CA) and .*ALA 5, atom (CA|C) would be"):
        join_images(between, x, None, "file", {})

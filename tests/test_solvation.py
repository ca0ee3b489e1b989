"""Which waters of a file stay, when its box is taken as it is, and what is asked of OpenMM for a new one."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import openmm
import pytest
from openmm import app, unit
from real_structures import DATA

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.core.units import plain_array
from peptidyn.io.topology import bonds_of, copy_topology
from peptidyn.runs import preparation
from peptidyn.runs.preparation import _density, _filling, find_waters, prepare_structure
from peptidyn.runs.settings import ExchangeSettings, RunSettings

WATER = {3: [("O", "O"), ("H1", "H"), ("H2", "H")]}
WATER[4] = [*WATER[3], ("M", None)]

SHAPE = np.array([[0.0, 0.0, 0.0], [0.09572, 0.0, 0.0], [-0.024, 0.0927, 0.0], [0.007, 0.009, 0.0]])
"""Of one water, nm."""

PEPTIDE = 144.17386
"""Mass of ACE-ALA-NME, Da; a water has 18.01528."""


@cache
def peptide():
    return ptd.load_structure(DATA / "ala1.pdb")


def wet(waters, density=None, sites=3, dry=False):
    """Return the peptide, unless `dry`, with waters of three or four sites in a cubic box of a density (g/cm3)."""
    topology = app.Topology() if dry else copy_topology(peptide().topology, bonds_of(peptide().topology))
    positions = [] if dry else [*peptide().positions]
    chain = topology.addChain("W ")
    for i in range(waters):
        residue = topology.addResidue("HOH", chain)
        atoms = [
            topology.addAtom(name, element and app.Element.getBySymbol(element), residue)
            for name, element in WATER[sites]
        ]
        for hydrogen in atoms[1:3]:
            topology.addBond(atoms[0], hydrogen)
        positions += [*(SHAPE[:sites] + [3.0 + 0.3 * i, 0.0, 0.0])]
    if density is not None:
        mass = (0.0 if dry else PEPTIDE) + 18.01528 * waters
        topology.setPeriodicBoxVectors(np.eye(3) * (mass * 1.66053907e-3 / density) ** (1 / 3))
    return ptd.Structure.from_openmm(topology, None, np.array(positions), name="wet")


@pytest.fixture
def prepared(monkeypatch):
    """A function that prepares a structure as if it had been read from a file."""

    def prepare(structure, **settings):
        monkeypatch.setattr(preparation, "load_structure", lambda *arguments, **options: structure)
        return prepare_structure(RunSettings(file="x.pdb", **settings))

    return prepare


@pytest.fixture
def added(monkeypatch):
    """Structures that a new box was put around."""
    found = []

    def add(structure, settings):
        found.append(structure)
        return structure

    monkeypatch.setattr(preparation, "add_water", add)
    return found


def notes(structure, kind):
    return [note.text for note in structure.notes_of(kind)]


# ---------------------------------------------------------------------------- implicit solvent and vacuum


@pytest.mark.parametrize("solvent", ["obc2", "gbn2"])
def test_implicit_solvents_leave_waters_out(prepared, solvent):
    found = prepared(wet(3), solvent=solvent)
    assert found.n_residues == 3 and np.array_equal(found.positions, peptide().positions)
    assert notes(found, "water") == [f"3 waters left out: the solvent {solvent} is implicit"]
    assert notes(prepared(wet(1), solvent=solvent), "water") == [f"1 water left out: the solvent {solvent} is implicit"]
    assert notes(prepared(wet(0), solvent=solvent), "water") == []
    with pytest.raises(ArgumentError, match=r"x\.pdb holds water only; implicit solvent leaves nothing"):
        prepared(wet(3, dry=True), solvent=solvent)


@pytest.mark.parametrize("sites", [3, 4])
def test_waters_stay_in_vacuum_without_their_sites(prepared, sites):
    found = prepared(wet(3, sites=sites), solvent="vacuum")
    assert found.n_residues == 6 and found.n_atoms == 22 + 9 and not found.virtual_sites
    assert np.array_equal(found.positions, wet(3).positions) and notes(found, "water") == []
    assert find_waters(found).tolist() == [False] * 22 + [True] * 9
    assert [chain.id for chain in found.topology.chains()][-1] == "W" and found.name == "wet"


def test_a_selection_comes_before_the_solvent(prepared):
    found = prepared(wet(3), solvent="vacuum", select="not water")
    assert found.n_atoms == 22 and prepared(wet(3), solvent="vacuum", select="water").n_atoms == 9


def test_ten_alanines_are_built_without_a_file():
    found = prepare_structure(RunSettings(solvent="vacuum"))
    assert [r.name for r in found.topology.residues()] == ["ACE", *["ALA"] * 10, "NME"]


# ---------------------------------------------------------------------------- boxes of files


@pytest.mark.parametrize(("density", "taken"), [(0.79, False), (0.81, True), (1.0, True), (1.59, True), (1.61, False)])
def test_a_box_that_is_full_of_water_is_taken(prepared, added, density, taken):
    """Nothing is added, whatever the box; others are refused, because their waters are no crystal's."""
    structure = wet(40, density)
    assert _density(structure) == pytest.approx(density, rel=1e-4)
    if taken:
        found = prepared(structure, solvent="tip3p")
        assert np.array_equal(found.positions, structure.positions)
        assert notes(found, "solvent") == [f"the box of the file is used: 40 waters, {density:.2f} g/cm3"]
        box = plain_array(found.topology.getPeriodicBoxVectors())
        assert np.array_equal(box, plain_array(structure.topology.getPeriodicBoxVectors()))
    else:
        with pytest.raises(
            ArgumentError, match=f"wet holds 40 waters and a box in which .* would be {density:.2g} g/cm3"
        ):
            prepared(structure, solvent="tip3p")
    assert added == []


@pytest.mark.parametrize(("waters", "bulk"), [(4, False), (5, True)])
def test_waters_with_half_the_mass_of_the_rest_are_bulk(prepared, added, waters, bulk):
    """Four waters have 72.06 Da, and half of the peptide 72.09."""
    structure = wet(waters)
    if bulk:
        with pytest.raises(ArgumentError, match="wet holds 5 waters and no periodic box; give the file the box"):
            prepared(structure, solvent="tip3p")
    else:
        prepared(structure, solvent="tip3p")
    assert len(added) == (not bulk)


def test_a_new_box_is_made_where_padding_is_given_or_there_is_no_water(prepared, added):
    for number, (structure, padding) in enumerate(
        ((wet(40, 1.0), 0.5), (wet(40), 0.5), (wet(0), None), (wet(0), 1.0)), 1
    ):
        prepared(structure, solvent="tip3p", padding=padding)
        assert len(added) == number and added[-1].n_atoms == structure.n_atoms


@pytest.mark.parametrize("density", [0.5, 2.0, None])
def test_a_run_that_starts_from_another_one_keeps_its_box(monkeypatch, added, density):
    """Whatever its density is, which changes at constant pressure; without a box there is nothing to keep."""
    structure = wet(40, density)
    monkeypatch.setattr("peptidyn.runs.starting_points.starting_structure", lambda settings: structure)
    settings = RunSettings(file="x.pdb", start="y.dcd", solvent="tip3p")
    if density is None:
        with pytest.raises(ArgumentError, match="no periodic box"):
            prepare_structure(settings)
    else:
        assert notes(prepare_structure(settings), "solvent") == [
            f"the box of the file is used: 40 waters, {density:.2f} g/cm3"
        ]
    assert added == []


def test_a_start_from_a_file_with_parameters_stays_as_it_is(monkeypatch, added):
    structure = wet(3, 1.0, sites=4)
    monkeypatch.setattr("peptidyn.runs.starting_points.starting_structure", lambda settings: structure)
    assert prepare_structure(RunSettings(file="x.prmtop", start="y.dcd", solvent="explicit")) is structure
    again = prepare_structure(RunSettings(file="x.pdb", start="y.dcd", solvent="obc2", select="resname ALA"))
    assert {r.name for r in again.topology.residues()} == {"ALA"}


# ---------------------------------------------------------------------------- virtual sites


@pytest.mark.parametrize(
    ("sites", "solvent", "atoms"), [(3, "tip3p", 3), (4, "tip3p", 3), (4, "opc", 4), (4, "spce", 3)]
)
def test_waters_have_the_sites_of_their_model(prepared, sites, solvent, atoms):
    structure = wet(40, 1.0, sites=sites)
    found = prepared(structure, solvent=solvent)
    assert found.n_atoms == 22 + 40 * atoms and len(found.virtual_sites) == 40 * (atoms - 3)
    oxygens = found.atoms.element == "O"
    assert np.array_equal(found.positions[oxygens], structure.positions[structure.atoms.element == "O"])


def test_sites_that_are_missing_are_added_by_the_force_field(prepared, monkeypatch):
    """Those of the waters of a force field that was asked for; what it cannot describe is named."""
    asked = []

    def load(solvent, field):
        asked.append((solvent, field))
        return app.ForceField("amber14/tip4pew.xml")

    monkeypatch.setattr(preparation, "load_force_field", load)
    box = wet(40, 1.0, dry=True)
    found = prepared(box, solvent="tip4pew", forcefield="amber03")
    assert asked == [("tip4pew", "amber03")] and len(found.virtual_sites) == 40 and found.name == "wet"
    x = found.positions.reshape(40, 4, 3)
    assert np.array_equal(x[:, :3].reshape(-1, 3), box.positions)
    assert np.linalg.norm(x[:, 3] - x[:, 0], axis=1) == pytest.approx(0.0125, abs=3e-4)  # bent as here, and as TIP4P-Ew
    with pytest.raises(ModelError, match="no parameters for chain"):
        prepared(wet(40, 1.0), solvent="tip4pew", forcefield="amber03")


# ---------------------------------------------------------------------------- new boxes


class Modeller:
    """Puts five waters, a sodium and two chlorides behind what it is given; notes what it is asked for."""

    asked: list = []

    def __init__(self, topology, positions):
        self.given = topology, positions

    def addSolvent(self, field, **options):
        self.asked.append((field, options, random.random()))
        topology, positions = self.given
        self.topology = copy_topology(topology, bonds_of(topology))
        x = [*positions.value_in_unit(unit.nanometer)]
        for name, number in (("HOH", 5), ("NA", 1), ("CL", 2)):
            for _ in range(number):
                residue = self.topology.addResidue(name, self.topology.addChain())
                atoms = WATER[3] if name == "HOH" else [(name, name.title())]
                for atom, element in atoms:
                    self.topology.addAtom(atom, app.Element.getBySymbol(element), residue)
                x += [*SHAPE[: len(atoms)]]
        self.topology.setPeriodicBoxVectors(np.eye(3) * 4.0)
        self.positions = np.array(x) * unit.nanometer


@pytest.fixture
def modeller(monkeypatch):
    fields = []
    monkeypatch.setattr(Modeller, "asked", [])
    monkeypatch.setattr(app, "Modeller", Modeller)
    monkeypatch.setattr(preparation, "load_force_field", lambda *asked: fields.append(asked) or "field")
    return fields


def line(length):
    """Three waters that are points: two of them together, and one `length` nm away."""
    x = np.full((9, 3), 7.0)
    x[6:] += [0.6 * length, 0.0, 0.8 * length]
    return wet(3, dry=True).with_positions(x)


@pytest.mark.parametrize(
    ("length", "given", "side"),
    [
        (1.0, {}, 3.0), (1.0, {"padding": 2.0}, 5.0), (0.1, {"padding": 0.5}, 2.02),
        (0.1, {"padding": 0.5, "cutoff": 1.5}, 3.02), (0.1, {"padding": 0.5, "cutoff": 0.6}, 1.22),
        (0.1, {"padding": 0.5, "pressure": 1.0}, 2.2), (2.5, {"pressure": 1.0}, 4.5),
    ],
)  # fmt: skip
def test_the_side_of_a_new_box(modeller, length, given, side):
    """Diameter and twice the padding, 1 nm each by default, but more than twice the cutoff."""
    settings = RunSettings(solvent="tip3p", seed=3, **given)
    found = preparation.add_water(line(length), settings)
    ((field, options, _),) = Modeller.asked
    box = options.pop("boxSize").value_in_unit(unit.nanometer)
    assert [*box] == pytest.approx([side] * 3, abs=1e-9) and field == "field"
    assert notes(found, "solvent") == [
        f"5 waters and 3 ions added in a cubic box of {side:.2f} nm; 3 waters of the file kept"
    ]


def test_replicas_have_no_pressure(modeller):
    preparation.add_water(line(0.1), ExchangeSettings(solvent="tip3p", padding=0.5))
    assert Modeller.asked[0][1]["boxSize"][0].value_in_unit(unit.nanometer) == pytest.approx(2.02)


def test_what_a_new_box_is_filled_with(modeller):
    """Water, salt and force field of the settings; ions are placed by the seed, which draws nothing from elsewhere."""
    for given in ({"seed": 3}, {"seed": 3}, {"seed": 4, "ions": 0.15, "solvent": "opc", "forcefield": "amber19"}):
        random.seed(5)
        found = preparation.add_water(peptide(), RunSettings(**{"solvent": "tip3p", **given}))
        assert random.random() == random.Random(5).random()
    (_, first, one), (_, _, same), (_, last, other) = Modeller.asked
    assert one == same == random.Random(3).random() and other == random.Random(4).random()
    assert modeller == [("tip3p", "amber14")] * 2 + [("opc", "amber19")]
    for options, model, salt in ((first, "tip3p", 0.0), (last, "tip4pew", 0.15)):
        assert options["model"] == model and options["ionicStrength"].value_in_unit(unit.molar) == salt
    assert notes(found, "solvent")[0].startswith("5 waters and 3 ions added in a cubic box of ")
    assert "kept" not in notes(found, "solvent")[0] and found.name == peptide().name
    assert np.allclose(found.positions[:22], peptide().positions)


@pytest.mark.parametrize(
    ("solvent", "model"),
    [("tip3p", "tip3p"), ("tip3pfb", "tip3p"), ("opc3", "tip3p"), ("spce", "spce"), ("tip4pew", "tip4pew"),
     ("opc", "tip4pew"), ("tip4pfb", "tip4pew"), ("tip4p2005", "tip4pew")],
)  # fmt: skip
def test_new_boxes_begin_with_the_nearest_water(solvent, model):
    assert _filling(solvent) == model


def test_densities():
    """33.4 waters in a cubic nanometre have 1 g/cm3; the volume is that of a tilted box, too."""
    structure = wet(40, dry=True)
    assert _density(structure) == 0.0
    vectors = np.array([[1.0, 0.0, 0.0], [0.3, 1.0, 0.0], [0.2, -0.4, 1.2]])
    structure.topology.setPeriodicBoxVectors([openmm.Vec3(*v) for v in vectors] * unit.nanometer)
    assert _density(structure) == pytest.approx(40 / 1.2 / 33.4285, rel=1e-4)

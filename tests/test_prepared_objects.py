"""What `load_system` asks other programs for: the options of createSystem, and whose positions count."""

from __future__ import annotations

import numpy as np
import openmm
import pytest
from openmm import app, unit

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, ModelError, StructureError
from peptidyn.engine import inputs

X = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [-0.03, 0.09, 0.0]])


def topology_of(name, box=None):
    topology = app.Topology()
    residue = topology.addResidue(name, topology.addChain("A"))
    atoms = [topology.addAtom(n, app.Element.getBySymbol(n[0]), residue) for n in ("O", "H1", "H2")]
    topology.addBond(atoms[0], atoms[1])
    topology.addBond(atoms[0], atoms[2])
    if box is not None:
        topology.setPeriodicBoxVectors(np.diag(box))
    return topology


class Prepared:
    """An object with the calls of a ParmEd Structure, which keeps the options that it is asked with."""

    def __init__(self, name="HOH", box=None, radii=(0.15, 0.12, 0.12)):
        self.topology = topology_of(name, box)
        self.positions = X * unit.nanometer
        self.radii = radii
        self.asked = None

    def createSystem(self, **options):
        self.asked = options
        system, nonbonded, bonds = openmm.System(), openmm.NonbondedForce(), openmm.HarmonicBondForce()
        for i, mass in enumerate((16.0, 1.0, 1.0)):
            system.addParticle(mass)
            nonbonded.addParticle((-0.8, 0.4, 0.4)[i], 0.3, 0.1)
        for i in (1, 2):
            bonds.addBond(0, i, 0.1, 1000.0)
        system.addForce(nonbonded)
        system.addForce(bonds)
        if options.get("implicitSolvent") is not None:
            implicit = openmm.GBSAOBCForce()
            for radius in self.radii:
                implicit.addParticle(0.0, radius, 0.8)
            system.addForce(implicit)
        return system


def asked(made, **options):
    loaded = ptd.load_system(made, **options)
    (nonbonded,) = (force for force in loaded.system.getForces() if isinstance(force, openmm.NonbondedForce))
    return made.asked, nonbonded.getReactionFieldDielectric()


CHOSEN = {"constraints": None, "rigidWater": True, "removeCMMotion": False}
PME = {"nonbondedMethod": app.PME, **CHOSEN}
NEAR = {"nonbondedMethod": app.CutoffNonPeriodic, **CHOSEN}
NONE = {"nonbondedMethod": app.NoCutoff, **CHOSEN}


@pytest.mark.parametrize(
    ("made", "given", "expected", "field"),
    [
        (Prepared(box=(3, 4, 5)), {}, {**PME, "nonbondedCutoff": 1.0}, 78.3),
        (Prepared(box=(3, 4, 5)), {"cutoff": 1.5}, {**PME, "nonbondedCutoff": 1.5}, 78.3),
        (Prepared(box=(3, 4, 5)), {"solvent": "explicit"}, {**PME, "nonbondedCutoff": 1.0}, 78.3),
        (Prepared("LIG", box=(3, 4, 5)), {"solvent": "explicit"}, {**PME, "nonbondedCutoff": 1.0}, 78.3),
        (Prepared("LIG", box=(3, 4, 5)), {}, NONE, 78.3),
        (Prepared(), {}, NONE, 78.3),
        (Prepared(), {"cutoff": 0.9}, {**NEAR, "nonbondedCutoff": 0.9}, 1.0),
        (Prepared("LIG", box=(3, 4, 5)), {"solvent": "vacuum", "cutoff": 2.0}, {**NEAR, "nonbondedCutoff": 2.0}, 1.0),
        (Prepared("LIG", box=(3, 4, 5)), {"solvent": "obc2"}, {**NONE, "implicitSolvent": app.OBC2}, 78.3),
        (
            Prepared(), {"solvent": "gbn2", "cutoff": 2.0},
            {**NEAR, "nonbondedCutoff": 2.0, "implicitSolvent": app.GBn2}, 1.0,
        ),
    ],
)  # fmt: skip
def test_a_solvent_and_a_cutoff_are_these_options(made, given, expected, field):
    """Without explicit water a box is ignored, and there is no water beyond a cutoff."""
    options, dielectric = asked(made, **given)
    length = options.pop("nonbondedCutoff", None)
    assert (None if length is None else length.value_in_unit(unit.nanometer)) == expected.get("nonbondedCutoff")
    assert options == {name: value for name, value in expected.items() if name != "nonbondedCutoff"}
    assert dielectric == field
    periodic = options["nonbondedMethod"] is app.PME
    assert (made.topology.getPeriodicBoxVectors() is not None) == periodic


def test_one_water_in_a_box_is_explicit_solvent():
    made = Prepared("LIG", box=(3, 4, 5))
    water = made.topology.addResidue("HOH", made.topology.addChain("B"))
    for name in ("O", "H1", "H2"):
        made.topology.addAtom(name, app.Element.getBySymbol(name[0]), water)
    chosen = inputs._options(made.topology, None, None, "x")
    assert chosen["nonbondedMethod"] is app.PME and made.topology.getPeriodicBoxVectors() is not None


def test_options_that_are_given_win():
    own = {
        "nonbondedMethod": app.CutoffNonPeriodic, "nonbondedCutoff": 0.7, "constraints": app.HBonds,
        "rigidWater": False, "removeCMMotion": True, "hydrogenMass": 2.0,
    }  # fmt: skip
    for name, value in own.items():
        options, _ = asked(Prepared(), **{name: value})
        assert options == {**NONE, name: value}
    options, dielectric = asked(Prepared(box=(3, 4, 5)), **own)
    assert options == own and dielectric == 78.3  # whoever chooses the method has it as it is
    options, dielectric = asked(Prepared(), cutoff=0.8, nonbondedMethod=app.CutoffNonPeriodic)
    assert options["nonbondedCutoff"] == 0.8 * unit.nanometer and dielectric == 78.3


def test_boxes_and_solvents_that_do_not_fit_are_refused():
    with pytest.raises(ModelError, match="no periodic box, which solvent='explicit' needs"):
        ptd.load_system(Prepared(), solvent="explicit")
    for box in ((3, 4, 1.9), (1.9, 3, 3)):  # the narrowest side counts
        with pytest.raises(ModelError, match=r"1\.90 nm wide, less than twice the cutoff of 1 nm"):
            ptd.load_system(Prepared(box=box))
        asked(Prepared(box=box), cutoff=0.95)
    with pytest.raises(ArgumentError, match=r"solvent is 'tip3p' and Prepared brings its own water"):
        ptd.load_system(Prepared(), solvent="tip3p")
    for solvent in ("vacuum", "obc2"):
        with pytest.raises(ArgumentError, match=f"a box with water, and the solvent is {solvent}"):
            ptd.load_system(Prepared(box=(3, 4, 5)), solvent=solvent)
    for radii in ((0.15, 0.0, 0.12), (0.0, 0.0, 0.0)):
        with pytest.raises(ModelError, match="Prepared has no radii for implicit solvent"):
            ptd.load_system(Prepared(radii=radii), solvent="obc2")


def test_coordinates_that_are_given_count_instead_of_those_of_the_object():
    made, elsewhere = Prepared(), X + 0.5
    assert np.array_equal(ptd.load_system(made).positions, X)
    for given in (elsewhere, elsewhere * unit.nanometer, 10.0 * elsewhere * unit.angstrom):
        assert np.allclose(ptd.load_system(made, given).positions, elsewhere, rtol=0, atol=1e-12)
    made.positions = None
    assert np.array_equal(ptd.load_system(made, elsewhere).positions, elsewhere)
    with pytest.raises(StructureError, match="the Prepared holds no positions; give them as coordinates="):
        ptd.load_system(made)


class Interchange:
    """The calls of OpenFF's class of this name."""

    def __init__(self, positions):
        self.positions = positions

    def to_openmm(self):
        return Prepared().createSystem()

    def to_openmm_topology(self):
        return topology_of("LIG")


class Length:
    """A quantity of pint, as far as it is used."""

    def m_as(self, name):
        return {"nanometer": X, "angstrom": 10.0 * X}[name]


def test_coordinates_of_an_interchange():
    assert np.array_equal(ptd.load_system(Interchange(Length())).positions, X)
    assert np.array_equal(ptd.load_system(Interchange(Length()), X + 1.0).positions, X + 1.0)
    assert np.array_equal(ptd.load_system(Interchange(None), X + 1.0).positions, X + 1.0)
    loaded = ptd.load_system(Interchange(X * unit.nanometer))
    assert np.array_equal(loaded.positions, X) and loaded.structure.masses.tolist() == [16.0, 1.0, 1.0]
    assert loaded.system.getNumForces() == 2 and loaded.topology.getNumAtoms() == 3
    with pytest.raises(StructureError, match="the Interchange holds no positions"):
        ptd.load_system(Interchange(None))


def test_objects_that_lack_a_call_are_refused():
    for lacking in ("topology", "createSystem"):
        made = Prepared()
        if lacking == "topology":
            made.topology = None
        else:
            made.createSystem = None
        with pytest.raises(ArgumentError, match=r"given a Prepared; expected .*Structure\.from_openmm\(\)"):
            ptd.load_system(made)
    half = Prepared()
    half.to_openmm = lambda: None  # not an Interchange yet
    assert ptd.load_system(half).system.getNumParticles() == 3


def test_the_first_line_of_what_went_wrong_is_said():
    made = Prepared()
    for error, said in ((ValueError("no type\nsecond line"), "no type$"), (KeyError(), "KeyError$")):

        def fail(error=error, **options):
            raise error

        made.createSystem = fail
        with pytest.raises(ModelError, match=f"OpenMM cannot make a System of Prepared: {said}"):
            ptd.load_system(made)


def test_files_and_their_companions_are_passed_on(tmp_path, monkeypatch):
    calls = []
    file = Prepared(box=(3, 3, 3))
    file.name, file.create_system = "x.psf", file.createSystem

    def read(*arguments):
        calls.append(arguments)
        file.positions = X
        return file

    monkeypatch.setattr(inputs, "read_parameter_file", read)
    ptd.load_system("x.psf", "x.pdb", parameters="one.par", include="fields")
    ptd.load_system("x.psf", "x.pdb", parameters=("one.par", "two.rtf"))
    assert calls == [("x.psf", "x.pdb", ["one.par"], "fields"), ("x.psf", "x.pdb", ["one.par", "two.rtf"], None)]
    assert file.asked["nonbondedMethod"] is app.PME
    structure = inputs.load_any_structure("x.psf", "x.pdb", ("one.par",), "fields")
    assert calls[2] == ("x.psf", "x.pdb", ("one.par",), "fields") and np.array_equal(structure.positions, X)
    assert file.asked == {"constraints": None, "rigidWater": True} and structure.name == "x.psf"


def test_companions_of_other_files_are_refused_and_options_of_structures_passed_on(monkeypatch):
    for given in ({"coordinates": "x.pdb"}, {"parameters": ("x.par",)}, {"include": "fields"}):
        with pytest.raises(ArgumentError, match=r"belong to prmtop, psf and top files, and y\.pdb is none"):
            inputs.load_any_structure("folder/y.pdb", **given)
    monkeypatch.setattr(inputs, "load_structure", lambda path, **options: (path, options))
    assert inputs.load_any_structure("y.pdb", model=3, select="protein") == (
        "y.pdb", {"model": 3, "select": "protein"},
    )  # fmt: skip

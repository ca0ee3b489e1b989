"""Force fields and solvents by name: which files, which options, and what is said where something is missing."""

from __future__ import annotations

import numpy as np
import openmm
import pytest
from openmm import app
from real_structures import DATA

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.engine import systems
from peptidyn.engine.systems import FORCE_FIELDS, load_force_field, make_system

X = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [-0.03, 0.09, 0.0]])


@pytest.fixture(scope="module")
def alanine():
    return ptd.load_structure(DATA / "ala1.pdb")


@pytest.fixture
def files(monkeypatch):
    """The names of the files that OpenMM is asked for, which are not read."""
    asked = []

    class Field:
        def __init__(self, *names):
            asked.append(names)

        def registerTemplateGenerator(self, generator):
            asked.append(generator)

    monkeypatch.setattr(app, "ForceField", Field)
    return asked


ALONE = {
    "amber14": "amber14-all.xml", "amber19": "amber19-all.xml", "amber99sbildn": "amber99sbildn.xml",
    "amber03": "amber03.xml", "charmm36": "charmm36.xml",
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_a_force_field_is_its_file_and_that_of_its_solvent(files, name):
    assert set(ALONE) == set(FORCE_FIELDS)
    own = ALONE[name]
    for solvent in ("vacuum", "obc2"):
        load_force_field(solvent, name)
        assert files.pop() == (own,)
    load_force_field("gbn2", name)
    assert files.pop() == (own, "implicit/gbn2.xml")
    folder = {"amber14": "amber14/", "amber19": "amber19/", "charmm36": "charmm36/"}.get(name, "")
    load_force_field("spce", name)
    assert files.pop() == (own, f"{folder}spce.xml")
    load_force_field("tip3p", name)
    assert files.pop() == (own, "charmm36/water.xml" if name == "charmm36" else f"{folder}tip3p.xml")
    load_force_field("tip4pew", f"{name}, ligand.xml")
    assert files.pop() == (own, "ligand.xml", f"{folder}tip4pew.xml")
    missing = "opc" if name == "charmm36" else "tip4p2005"
    with pytest.raises(ArgumentError, match=f"{name} has no water '{missing}'; it comes with tip3p"):
        load_force_field(missing, name)


def test_other_files_and_generators_are_passed_on(files):
    load_force_field("tip3p", ["my.xml", "amber14"], generators=(len, sum))
    assert files == [("my.xml", "amber14-all.xml"), len, sum]  # whoever names files names that of the water, too
    with pytest.raises(ArgumentError, match="the solvent is 'water', expected one of obc2, gbn2, vacuum, tip3p"):
        load_force_field("water", "amber14")


@pytest.mark.parametrize(
    ("forcefield", "said"),
    [
        ("amber15", r"cannot load the force field amber15 \(.*\); did you mean amber1[49]\?"),
        ("nowhere", r"give the path of a file that exists, or one of the names amber14, amber19"),
        ("nowhere.xml", r"give the path of a file that exists, or one of the names amber14, amber19"),
        (
            "amber14,amber03",
            r"amber14-all.xml \+ amber03.xml .*; files that define the same things exclude each other",
        ),
    ],
)
def test_files_that_cannot_be_loaded(forcefield, said):
    with pytest.raises(ArgumentError, match=said):
        load_force_field("vacuum", forcefield)


def test_the_reason_is_one_line():
    assert systems._reason(ValueError("no such thing.\nmore")) == "no such thing"
    assert systems._reason(KeyError("CT")) == "'CT' is not defined" and systems._reason(OSError()) == "OSError"


class Field:
    """A force field that keeps the options it is asked with, or fails."""

    def __init__(self, error=None, nonbonded=1):
        self.error, self.nonbonded, self.asked = error, nonbonded, None

    def createSystem(self, topology, **options):
        if self.error is not None:
            raise self.error
        self.asked = options
        system = openmm.System()
        for n in range(self.nonbonded):
            force = openmm.NonbondedForce()
            for i in range(topology.getNumAtoms()):
                force.addParticle(0.01 * i + n, 0.3, 0.1)
            system.addForce(force)
        for _ in range(topology.getNumAtoms()):
            system.addParticle(12.0)
        return system

    def getUnmatchedResidues(self, topology):
        return list(topology.residues())[1:2]


NONE, NEAR, PME = app.NoCutoff, app.CutoffNonPeriodic, app.PME


@pytest.mark.parametrize(
    ("solvent", "options", "method", "cutoff", "dielectric"),
    [
        ("vacuum", {}, NONE, 1.0, 1.0),
        ("vacuum", {"cutoff": 1.7}, NEAR, 1.7, 1.0),
        ("gbn2", {}, NONE, 1.0, 1.0),
        ("gbn2", {"cutoff": 1.7}, NEAR, 1.7, 1.0),
        ("obc2", {"cutoff": 1.7}, NEAR, 1.7, 1.0),
        ("vacuum", {"periodic": True}, PME, 1.0, 78.3),
        ("vacuum", {"periodic": True, "cutoff": 1.4}, PME, 1.4, 78.3),
        ("tip3p", {}, PME, 1.0, 78.3),
        ("opc", {"cutoff": 0.9, "rigid_water": True}, PME, 0.9, 78.3),
    ],
)
def test_options_of_a_solvent(alanine, monkeypatch, solvent, options, method, cutoff, dielectric):
    """No constraints, and water beyond a cutoff with explicit water alone."""
    topology = app.Modeller(alanine.topology, alanine.positions * openmm.unit.nanometer).topology
    topology.setUnitCellDimensions(openmm.Vec3(3, 3, 3))
    field = Field()
    monkeypatch.setattr(systems, "load_force_field", lambda *arguments: field)
    system = make_system(topology, solvent, **options)
    asked = dict(field.asked)
    assert asked.pop("nonbondedCutoff").value_in_unit(openmm.unit.nanometer) == cutoff
    rigid = options.get("rigid_water", False)
    assert asked == {"constraints": None, "rigidWater": rigid, "removeCMMotion": False, "nonbondedMethod": method}
    assert system.getForce(0).getReactionFieldDielectric() == dielectric
    assert system.getNumForces() == (2 if solvent == "obc2" else 1)


@pytest.mark.parametrize("cutoff", [None, 1.7])
def test_the_implicit_solvent_has_its_charges_radii_and_constants(alanine, monkeypatch, cutoff):
    """Radii are mbondi2: 0.13 nm for hydrogens on nitrogen, 0.12 for others. Factors are those of OBC."""
    monkeypatch.setattr(systems, "load_force_field", lambda *arguments: Field())
    system = make_system(alanine.topology, "obc2", cutoff=cutoff)
    force = system.getForce(1)
    assert (force.getSolventDielectric(), force.getSoluteDielectric()) == (78.5, 1.0)
    assert force.getNonbondedMethod() == (force.NoCutoff if cutoff is None else force.CutoffNonPeriodic)
    if cutoff is not None:
        assert force.getCutoffDistance()._value == cutoff
    for i, (element, name) in enumerate(zip(alanine.atoms.element, alanine.atoms.name, strict=True)):
        charge, radius, scale = force.getParticleParameters(i)
        assert charge._value == pytest.approx(0.01 * i)
        expected = {"C": 0.17, "O": 0.15, "N": 0.155, "H": 0.13 if name == "H" else 0.12}[element]
        assert radius._value == pytest.approx(expected, abs=1e-9), name
        assert scale == {"C": 0.72, "O": 0.85, "N": 0.79, "H": 0.85}[element]


@pytest.mark.parametrize("number", [0, 2])
def test_the_implicit_solvent_needs_one_force_with_charges(alanine, monkeypatch, number):
    monkeypatch.setattr(systems, "load_force_field", lambda *arguments: Field(nonbonded=number))
    with pytest.raises(ModelError, match=f"one NonbondedForce to take charges from, and this one has {number}"):
        make_system(alanine.topology, "obc2")


def test_generators_and_names_reach_the_force_field(alanine, monkeypatch):
    asked = []
    monkeypatch.setattr(systems, "load_force_field", lambda *arguments: asked.append(arguments) or Field())
    make_system(alanine.topology, "gbn2", "amber19,x.xml", generators=[len])
    assert asked == [("gbn2", "amber19,x.xml", [len])]


def test_boxes_that_pme_cannot_have(alanine, monkeypatch):
    monkeypatch.setattr(systems, "load_force_field", lambda *arguments: Field())
    topology = app.Modeller(alanine.topology, alanine.positions * openmm.unit.nanometer).topology
    topology.setPeriodicBoxVectors(None)
    with pytest.raises(ModelError, match="no periodic box, which PME needs"):
        make_system(topology, "vacuum", periodic=True)
    for sides in ((1.9, 3, 3), (3, 3, 1.9)):
        topology.setUnitCellDimensions(openmm.Vec3(*sides))
        with pytest.raises(ModelError, match=r"1\.90 nm wide, less than twice the cutoff of 1 nm"):
            make_system(topology, "vacuum", periodic=True)
    for solvent in ("obc2", "gbn2"):
        with pytest.raises(ArgumentError, match=f"PME and the implicit solvent {solvent} exclude each other"):
            make_system(topology, solvent, periodic=True)


def test_what_is_missing_is_named(alanine, monkeypatch):
    """Atoms first, of the residues that have no template; then sites; then parameters."""

    def said(structure, error):
        monkeypatch.setattr(systems, "load_force_field", lambda *arguments: Field(error))
        with pytest.raises(ModelError) as caught:
            make_system(structure.topology, "vacuum")
        return str(caught.value)

    no_template = ValueError("No template found for residue 1 (ALA).  For more information, see https://x")
    lacking = alanine.subset("not name HA CB")
    text = said(lacking, no_template)
    assert "because atoms are missing: chain A, residue ALA" in text and "lacks CB, HA" in text
    assert "add_hydrogens=True" in text and "ACE" not in text
    text = said(alanine, no_template)
    assert "no parameters for chain A, residue ALA" in text and "(No template found for residue 1 (ALA));" in text
    text = said(alanine, ValueError("There is 1 extra site in the template."))
    assert "needs a virtual site in chain A, residue ALA" in text and "addExtraParticles" in text
    text = said(alanine, RuntimeError("types clash.\nmore"))
    assert text.startswith("the force field cannot be used (types clash); its files do not fit together")

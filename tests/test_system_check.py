"""What of a System is refused or noted before it is driven through a tree, and in which words."""

from __future__ import annotations

import butane
import numpy as np
import openmm
import pytest

import peptidyn as ptd
from peptidyn.core.errors import ArgumentError, ModelError
from peptidyn.engine.system_check import check_constraints, check_system, check_tree

OTHER_BAROSTAT = "use MonteCarloBarostat, or run at constant volume"
REFUSED = [
    (openmm.AndersenThermostat(300, 1), "it acts on Cartesian velocities"),
    (openmm.MonteCarloAnisotropicBarostat([1, 1, 1], 300), OTHER_BAROSTAT),
    (openmm.MonteCarloFlexibleBarostat(1, 300), OTHER_BAROSTAT),
    (openmm.MonteCarloMembraneBarostat(1, 0, 300, 0, 0), OTHER_BAROSTAT),
    (openmm.MonteCarloBarostat(1, 300), "use TorsionLangevinIntegrator or TorsionGHMCIntegrator"),
]


def tree_of(system, soft="rotor"):
    chain = butane.make_tree()
    x = chain.positions(chain.reference.replace(torsions=[1.1]))
    return ptd.build_tree(ptd.Structure.from_openmm(butane.make_topology(), system, x), soft)


def check(system, tree=None, masses=None, **options):
    tree = tree_of(butane.make_system()) if tree is None else tree
    return check_system(tree, system, np.full(4, butane.MASS) if masses is None else masses, **options)


def test_a_system_that_fits_has_no_notes():
    assert check(butane.make_system()) == []


@pytest.mark.parametrize(("force", "why"), REFUSED, ids=lambda value: type(value).__name__)
def test_forces_that_would_be_ignored_are_refused_by_name(force, why):
    system = butane.make_system()
    system.addForce(openmm.XmlSerializer.clone(force))
    with pytest.raises(ModelError, match=f"holds a {type(force).__name__}, which torsion dynamics would ignore; {why}"):
        check(system)
    if type(force) is openmm.MonteCarloBarostat:
        assert check(system, barostat=True) == []
        force = system.getForce(system.getNumForces() - 1)
        force.setScaleMoleculesAsRigid(False)
        with pytest.raises(ModelError, match="scales single atoms"):
            check(system, barostat=True)
    else:
        with pytest.raises(ModelError, match="which torsion dynamics would ignore"):
            check(system, barostat=True)


def test_what_removes_total_momentum_is_noted():
    system = butane.make_system()
    system.addForce(openmm.CMMotionRemover())
    (note,) = check(system)
    assert "CMMotionRemover of the System has no effect" in note


@pytest.mark.parametrize("more", [1, -1])
def test_the_number_of_particles_is_that_of_the_tree(more):
    system = openmm.System()
    for _ in range(4 + more):
        system.addParticle(butane.MASS)
    with pytest.raises(ModelError, match=rf"System has {4 + more} particles but the tree has 4 atoms"):
        check(system)


@pytest.mark.parametrize("index", [0, 2])
def test_a_mass_that_differs_is_named_with_its_atom(index):
    """By more than a thousandth; the largest atoms of a System are heavy, and its hydrogens are light."""
    tree, system = tree_of(butane.make_system()), butane.make_system()
    for mass, fits in ((1.0, True), (1.0005, True), (1.002, False), (0.998, False)):
        system.setParticleMass(index, mass)
        masses = np.full(4, butane.MASS)
        masses[index] = 1.0
        if fits:
            assert check(system, tree, masses) == []
        else:
            with pytest.raises(
                ModelError, match=rf"C{index + 1}.* is {mass:.4f} Da in the System and 1\.0000 in the tree"
            ):
                check(system, tree, masses)
    system.setParticleMass(index, 0.0)
    with pytest.raises(ModelError, match=rf"C{index + 1}.* has no mass in the System"):
        check(system, tree)


def test_integrators_take_trees_alone():
    check_tree(tree_of(butane.make_system()))
    with pytest.raises(ArgumentError, match=r"was given a str, expected a TreeModel"):
        check_tree("butane")
    with pytest.raises(ArgumentError, match=r"was given a Structure, expected a TreeModel"):
        ptd.TorsionVerletIntegrator(ptd.build_peptide("A"), 0.002)


# ---------------------------------------------------------------------------- constraints


def constrained(*constraints):
    """Return butane's System with constraints of (i, j, length)."""
    system = butane.make_system()
    for i, j, length in constraints:
        system.addConstraint(i, j, length)
    return system


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_lengths_that_differ_are_noted_and_broken_ones_refused(sign):
    """Beyond 5e-4 nm and beyond 0.02 nm, of either sign; the worst is named, and all that differ are counted."""
    tree, r = tree_of(butane.make_system()), butane.BOND
    assert check_constraints(tree, butane.make_system()) == []
    small, larger = r + sign * 0.0004, r + sign * 0.0006
    assert check_constraints(tree, constrained((0, 1, r), (2, 1, small))) == []
    (note,) = check_constraints(tree, constrained((0, 1, r), (2, 1, larger), (2, 3, small)))
    assert "differ from 1 of 3 constraints" in note and "relax_geometry()" in note
    (note,) = check_constraints(tree, constrained((0, 1, larger), (2, 1, r + sign * 0.019), (2, 3, larger)))
    assert "differ from 3 of 3 constraints" in note
    assert f"C3 and chain A, residue BUT 1, atom C2 are {r:.4f} nm apart" in note
    assert f"constrains them to {r + sign * 0.019:.4f}" in note
    with pytest.raises(
        ModelError, match=rf"constrains them to {r + sign * 0.021:.4f}; minimise the structure with OpenMM"
    ):
        check_constraints(tree, constrained((0, 1, larger), (2, 1, r + sign * 0.021)))


@pytest.mark.parametrize("pair", [(0, 3), (3, 0)])
def test_a_constraint_on_a_soft_distance_names_the_coordinates_between(pair):
    """All of them that lie between the two atoms, and no other."""
    tree = tree_of(butane.make_system())
    with pytest.raises(ModelError, match=r"whose distance is soft \(") as caught:
        check_constraints(tree, constrained((*pair, 0.3)))
    assert f"whose distance is soft ({tree.coordinates[0]}), and" in str(caught.value)
    flexible = tree_of(butane.make_system(), "all")
    named = {}
    for i, j in ((0, 1), (1, 2), (2, 3), (0, 2), (1, 3), (0, 3)):
        with pytest.raises(ModelError, match="whose distance is soft") as caught:
            check_constraints(flexible, constrained((i, j, 0.3)))
        text = str(caught.value)
        named[i, j] = {k for k, c in enumerate(flexible.coordinates) if str(c) in text}
        assert "make these coordinates hard, or create the System with constraints=None" in text
    first, middle, last = named[0, 1], named[1, 2], named[2, 3]
    assert [sorted(flexible.coordinates[k].motion for k in found) for found in (first, middle, last)] == [
        ["bend", "stretch"], ["stretch", "torsion"], ["bend", "stretch"],
    ]  # fmt: skip
    assert named[0, 2] == first | middle and named[1, 3] == middle | last
    assert named[0, 3] == first | middle | last == set(range(6))


# ---------------------------------------------------------------------------- virtual sites


def with_site(weight=0.5, parents=(0, 1)):
    system = butane.make_system()
    topology = butane.make_topology()
    topology.addAtom("M", None, next(topology.residues()))
    site = system.addParticle(0.0)
    system.setVirtualSite(site, openmm.TwoParticleAverageSite(*parents, weight, 1.0 - weight))
    return topology, system


def test_a_site_is_where_the_system_places_it_and_moves_with_its_atoms():
    """To 1e-4 nm of it."""
    topology, system = with_site()
    x = butane.make_tree().positions(butane.make_tree().reference.replace(torsions=[1.1]))
    x = np.vstack([x, 0.5 * (x[0] + x[1])])
    tree = ptd.build_tree(ptd.Structure.from_openmm(topology, system, x), "rotor")
    masses = np.array([*[butane.MASS] * 4, 0.0])
    assert check(system, tree, masses) == []
    for shift, fits in ((0.5e-4, True), (2e-4, False)):
        moved = with_site(0.5 + shift / butane.BOND)[1]
        if fits:
            assert check(moved, tree, masses) == []
        else:
            with pytest.raises(ModelError, match=r"atom M is 2\.0e-04 nm from where the System places it"):
                check(moved, tree, masses)
    with pytest.raises(ModelError, match=r"atom M is a virtual site and does not move with"):
        check(with_site(parents=(2, 3))[1], tree, masses)
    with pytest.raises(ModelError, match=r"atom M is a virtual site and does not move with"):
        check(with_site(parents=(0, 3))[1], tree, masses)

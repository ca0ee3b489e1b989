"""Bonds that an OpenMM System shows."""

from __future__ import annotations

import openmm
from small_molecules import few_atoms

from peptidyn.io.system_bonds import bonds_of_system

LINE = {"C1": (0, 0, 0), "C2": (0.15, 0, 0), "C3": (0.30, 0, 0), "O1": (0.45, 0, 0), "H1": (0.55, 0, 0)}


def system_of(n):
    system = openmm.System()
    for _ in range(n):
        system.addParticle(1.0)
    system.addForce(openmm.NonbondedForce())  # has no bonds; those behind it count
    return system


def test_a_harmonic_bond_counts_by_its_length_at_rest():
    """A bond C-C can have 1.45 (0.076 + 0.076) = 0.2204 nm: a longer term is a restraint, wherever its atoms are."""
    atoms, positions = few_atoms([("LIG", LINE)])
    system, force = system_of(5), openmm.HarmonicBondForce()
    force.addBond(1, 0, 0.220, 1000.0)
    force.addBond(1, 2, 0.221, 1000.0)
    force.addBond(0, 2, 0.150, 1000.0)
    force.addBond(3, 2, 0.140, 1000.0)
    force.addBond(2, 3, 0.140, 1000.0)
    system.addForce(force)
    assert bonds_of_system(system, atoms, positions) == dict.fromkeys([(0, 1), (0, 2), (2, 3)], (None, None))


def test_a_custom_bond_counts_by_the_distance_of_its_atoms():
    atoms, positions = few_atoms([("LIG", LINE)])
    system, force = system_of(5), openmm.CustomBondForce("k * r^2")
    force.addPerBondParameter("k")
    for i, j in ((2, 1), (0, 2), (0, 1)):
        force.addBond(i, j, [5.0])
    system.addForce(force)
    assert set(bonds_of_system(system, atoms, positions)) == {(1, 2), (0, 1)}


def test_constraints_are_bonds_but_for_those_between_hydrogens():
    """As in a rigid water, and one that holds an angle: 0.20 nm is too long for N-H, and 0.25 nm for C-C."""
    places = {"O": (0, 0, 0), "H1": (0.1, 0, 0), "D2": (0, 0.1, 0), "C": (1, 0, 0), "N": (1.2, 0, 0), "CA": (1.1, 0, 0)}
    atoms, positions = few_atoms([("LIG", places)])
    system = system_of(6)
    for i, j, length in ((0, 1, 0.096), (2, 0, 0.096), (1, 2, 0.08), (3, 5, 0.25), (4, 1, 0.2), (4, 3, 0.147)):
        system.addConstraint(i, j, length)
    assert set(bonds_of_system(system, atoms, positions)) == {(0, 1), (0, 2), (3, 4)}
    assert bonds_of_system(system_of(6), atoms, positions) == {}

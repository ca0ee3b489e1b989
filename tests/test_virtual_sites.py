"""Virtual sites: which there are, and where OpenMM puts them."""

from __future__ import annotations

import numpy as np
import openmm
from small_molecules import few_atoms

from peptidyn.io.virtual_sites import copy_particles, place_virtual_sites, virtual_sites, water_sites

MASSES = [16.0, 1.0, 2.0, 0.0, 12.0]


def with_sites(sites=True):
    """Three atoms, a site a quarter of the way from the first to the third, an atom; a bond, a constraint, a force."""
    system = openmm.System()
    for mass in MASSES:
        system.addParticle(mass)
    if sites:
        system.setVirtualSite(3, openmm.TwoParticleAverageSite(0, 2, 0.75, 0.25))
    system.addConstraint(0, 1, 0.1)
    system.addConstraint(1, 2, 0.1)
    bond = openmm.HarmonicBondForce()
    bond.addBond(0, 4, 0.1, 1000.0)
    system.addForce(bond)
    system.addForce(openmm.CustomExternalForce("x"))
    return system


def test_sites_are_placed_and_all_else_stays_to_the_bit():
    rng = np.random.default_rng(5)
    positions = rng.normal(size=(5, 3))
    before = positions.copy()
    placed = place_virtual_sites(with_sites(), positions)
    np.testing.assert_allclose(placed[3], 0.75 * before[0] + 0.25 * before[2], atol=1e-15)
    others = [0, 1, 2, 4]
    np.testing.assert_array_equal(placed[others], before[others])
    np.testing.assert_array_equal(positions, before)


def test_sites_and_their_parents():
    system = with_sites()
    assert virtual_sites(system) == {3: (0, 2)}
    system.setVirtualSite(3, openmm.ThreeParticleAverageSite(4, 0, 1, 0.2, 0.3, 0.5))
    assert virtual_sites(system) == {3: (4, 0, 1)}
    assert virtual_sites(with_sites(sites=False)) == {}


def test_copies_have_the_particles_and_nothing_else():
    for sites in (True, False):
        system = with_sites(sites)
        copy = copy_particles(system)
        assert [copy.getParticleMass(i)._value for i in range(5)] == MASSES
        assert virtual_sites(copy) == virtual_sites(system)
        assert copy.getNumForces() == copy.getNumConstraints() == 0
        assert (system.getNumForces(), system.getNumConstraints()) == (2, 2)


def test_sites_of_waters_are_placed_by_the_atoms_of_their_own_water():
    """Without element, in a water that has atoms: a fourth site between, two at the end; not in another molecule."""
    here = (0, 0, 0)
    residues = [
        ("LIG", {"C": here, "X": here}),
        ("HOH", {"O": here, "M": here, "H1": here, "H2": here}),
        ("HOH", {"O": here, "H1": here, "H2": here}),
        ("HOH", {"M": here}),
        ("HOH", {"O": here, "H1": here, "H2": here, "L1": here, "L2": here}),
    ]
    atoms, _ = few_atoms(residues, elements={"M": "", "X": "", "L1": "", "L2": ""})
    assert water_sites(atoms) == {3: (2, 4, 5), 13: (10, 11, 12), 14: (10, 11, 12)}

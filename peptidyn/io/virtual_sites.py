"""Virtual sites: particles without mass that OpenMM places by the positions of others, as the fourth site of TIP4P."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.core.residues import is_water

if TYPE_CHECKING:
    from openmm import System


def virtual_sites(system: System) -> dict[int, tuple[int, ...]]:
    """Return the virtual sites of a System, each with the particles that it is placed by."""
    sites = {}
    for i in range(system.getNumParticles()):
        if system.isVirtualSite(i):
            site = system.getVirtualSite(i)
            sites[i] = tuple(site.getParticle(k) for k in range(site.getNumParticles()))
    return sites


def water_sites(atoms: Atoms) -> dict[int, tuple[int, ...]]:
    """Return the sites without element in waters, each with the atoms of its water, which place it."""
    found = np.flatnonzero((atoms.element == "") & is_water(atoms)[atoms.residue])
    begin, end = (np.searchsorted(atoms.residue, atoms.residue[found], side) for side in ("left", "right"))
    sites = {
        site: tuple(i for i in range(first, last) if atoms.element[i])
        for site, first, last in zip(found.tolist(), begin.tolist(), end.tolist(), strict=True)
    }
    return {site: parents for site, parents in sites.items() if parents}


def copy_particles(system: System) -> System:
    """Return a System with the particles and virtual sites of `system`, without forces and constraints."""
    import openmm

    if not virtual_sites(system):
        copy = openmm.System()
        for i in range(system.getNumParticles()):
            copy.addParticle(system.getParticleMass(i))
        return copy
    copy = openmm.XmlSerializer.clone(system)  # a virtual site alone cannot be copied
    for i in reversed(range(copy.getNumForces())):
        copy.removeForce(i)
    for i in reversed(range(copy.getNumConstraints())):
        copy.removeConstraint(i)
    return copy


def place_virtual_sites(system: System, positions: np.ndarray) -> np.ndarray:
    """Return positions (n_atoms, 3), nm, with the virtual sites where the other particles put them."""
    import openmm

    reference = openmm.Platform.getPlatformByName("Reference")
    context = openmm.Context(copy_particles(system), openmm.VerletIntegrator(0.001), reference)
    context.setPositions(positions)
    context.computeVirtualSites()
    placed = np.array(positions, dtype=np.float64)
    sites = list(virtual_sites(system))
    placed[sites] = context.getState(positions=True).getPositions(asNumpy=True)._value[sites]
    return placed

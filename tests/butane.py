"""United-atom butane with flexible bonds and angles, and its exact averages without any dynamics.

Bonds and angles are harmonic, the torsion has three wells, and the end atoms repel each other, which couples the
torsion to bonds and angles. In bond lengths r, angles t and the torsion f the distribution is

    r1^2 r2^2 r3^2 sin t1 sin t2 exp(-(V_bonds + V_angles + V_torsion + V_14) / kT) .

All factors but V_14 are independent: `exact` draws them one by one, and weighs with exp(-V_14 / kT).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import openmm
from openmm import app

import peptidyn as ptd
from peptidyn.core.units import BOLTZMANN

BOND, ANGLE = 0.153, np.deg2rad(112.0)
K_BOND, K_ANGLE = 60000.0, 120.0
"""kJ/mol/nm^2 and kJ/mol/rad^2. The angles are soft, so that rigid and flexible populations differ."""

TORSION = ((3, 4.0, 0.0),)
"""(periodicity, k, phase): k (1 + cos(n f - phase)); small barriers mix well."""

SIGMA, EPSILON = 0.335, 1.0
MASS = 14.0


def make_system() -> openmm.System:
    """Return the flexible System; force groups: 0 bonds, 1 angles, 2 torsion, 3 end atoms."""
    system = openmm.System()
    for _ in range(4):
        system.addParticle(MASS)
    bonds, angles, torsion = openmm.HarmonicBondForce(), openmm.HarmonicAngleForce(), openmm.PeriodicTorsionForce()
    for i in range(3):
        bonds.addBond(i, i + 1, BOND, K_BOND)
    for i in range(2):
        angles.addAngle(i, i + 1, i + 2, ANGLE, K_ANGLE)
    for n, k, phase in TORSION:
        torsion.addTorsion(0, 1, 2, 3, n, phase, k)
    ends = openmm.CustomBondForce(f"4*{EPSILON}*(({SIGMA}/r)^12 - ({SIGMA}/r)^6)")
    ends.addBond(0, 3, [])
    for group, force in enumerate((bonds, angles, torsion, ends)):
        force.setForceGroup(group)
        system.addForce(force)
    return system


def make_tree() -> ptd.TreeModel:
    return ptd.bead_chain(4, BOND, ANGLE, MASS)


def make_topology() -> app.Topology:
    topology = app.Topology()
    residue = topology.addResidue("BUT", topology.addChain("A"))
    carbon = app.Element.getBySymbol("C")
    atoms = [topology.addAtom(f"C{i}", carbon, residue) for i in range(1, 5)]
    for a, b in pairwise(atoms):
        topology.addBond(a, b)
    return topology


def torsion_energy(f):
    return sum(k * (1 + np.cos(n * f - phase)) for n, k, phase in TORSION)


def ends_energy(r1, r2, r3, t1, t2, f):
    """V_14; f = 180 degrees is trans."""
    x = r2 - r1 * np.cos(t1) - r3 * np.cos(t2)
    y = r3 * np.sin(t2) * np.cos(f) - r1 * np.sin(t1)
    z = r3 * np.sin(t2) * np.sin(f)
    s6 = (SIGMA**2 / (x * x + y * y + z * z)) ** 3
    return 4 * EPSILON * (s6 * s6 - s6)


def rigid_distribution(T: float, edges: np.ndarray) -> np.ndarray:
    """Return the probability of every bin of the torsion at the reference bonds and angles."""
    f = np.linspace(-np.pi, np.pi, 20001)
    p = np.exp(-(torsion_energy(f) + ends_energy(BOND, BOND, BOND, ANGLE, ANGLE, f)) / (BOLTZMANN * T))
    mass = np.histogram(f[:-1], edges, weights=p[:-1])[0]
    return mass / mass.sum()


def exact(T: float, edges: np.ndarray, n: int = 400_000, seed: int = 0) -> dict[str, np.ndarray | float]:
    """Return averages of the flexible distribution at T (K) from n independent weighted draws.

    Keys: ``torsion`` (probability per bin), ``bonds``, ``angles``, ``total`` (mean energies, kJ/mol); and the draws:
    ``r`` (3, n), ``t`` (2, n), ``weight`` (n,).
    """
    rng, kT = np.random.default_rng(seed), BOLTZMANN * T

    def draw(centre, k, measure, shape):
        x = np.linspace(centre - 8 * np.sqrt(kT / k), centre + 8 * np.sqrt(kT / k), 20001)
        p = np.clip(measure(x), 0, None) * np.exp(-0.5 * k * (x - centre) ** 2 / kT)
        return np.interp(rng.random(shape), np.cumsum(p) / p.sum(), x)

    r = draw(BOND, K_BOND, lambda x: x**2, (3, n))
    t = draw(ANGLE, K_ANGLE, np.sin, (2, n))
    f = rng.uniform(-np.pi, np.pi, n)
    v_torsion, v_ends = torsion_energy(f), ends_energy(*r, *t, f)
    w = np.exp(-(v_torsion + v_ends) / kT)
    w /= w.sum()
    bonds, angles = 0.5 * K_BOND * ((r - BOND) ** 2).sum(0), 0.5 * K_ANGLE * ((t - ANGLE) ** 2).sum(0)
    return {
        "torsion": np.histogram(f, edges, weights=w)[0],
        "bonds": float(w @ bonds),
        "angles": float(w @ angles),
        "total": float(w @ (bonds + angles + v_torsion + v_ends)),
        "r": r,
        "t": t,
        "weight": w,
    }

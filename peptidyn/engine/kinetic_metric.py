"""The kinetic metric that a time step needs: joint inertias from the stiffness of the soft coordinates.

With the Fixman potential the sampled distribution does not depend on the kinetic energy, so every soft coordinate may
get an inertia a of its own. A coordinate with the curvature k gets the inertia with which it oscillates with the period
T = `steps_per_period` time steps:

    a_i = sum over j of |k_ij| sqrt(s_i / s_j) / w^2,      w = 2 pi / T .

With any positive scales s this bounds the frequency of every coupled motion by w (Gershgorin). The scale of a
coordinate is its own curvature, so that couplings add little to the k_i that it needs alone. Where there is hardly any
curvature, as for a methyl without a barrier, that would make its neighbours immovable: `_scales` has a lower bound.

Torsions that are slow enough by the masses they turn get none, which are phi, psi and chi at all usual steps; light
rotors, such as methyls, that would turn far in one step are slowed down to a fixed angle per step. Rotors of hydrogens
are slowed for the contacts of their atoms too, which no bonded term knows.

A bond that closes a long loop (a macrocycle, a disulfide) couples all coordinates of the loop, and the bound on them
grows with its length, although masses alone keep such a bond slow enough for steps of a few fs. Terms across such bonds
therefore count only as far as the fastest motion needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.core.residues import WATERS
from peptidyn.core.units import BOLTZMANN, plain
from peptidyn.integrators.mover import Mover
from peptidyn.metric.fixman_potential import check_temperature
from peptidyn.model.rings import long_loops
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.articulated import ArticulatedSolver

LANGEVIN_STEPS = 8.0
"""Steps per period of the stiffest motion with which averages of Langevin dynamics are right."""


def metropolis_steps(tree: TreeModel) -> float:
    """Return the steps per period of the stiffest motion with which Metropolised steps are accepted at 0.9 or more.

    The energy error of one step adds up over all oscillators, so the number grows as the sixth root of theirs. The
    factor is measured (`benchmarks/kinetic_metric.py`).
    """
    return 7.5 * max(tree.n_coordinates, 1) ** (1.0 / 6.0)


WATER_STEP = 0.006
"""Longest step (ps) with waters: they turn as a whole, and nothing slows that down."""

THERMAL_TURN, LARGEST_TURN = 0.2, 0.7
"""Torsions that would turn farther than the first (rad) per step at thermal speed are slowed down to it, as light
rotors are at large steps; the step is refused if one would turn farther than the second."""

HYDROGEN_ROTORS, CONTACT = ("methyl", "polar"), 500.0
"""Rotors that carry hydrogens only, and the curvature (kJ/mol/rad^2) they are slowed for at least. Where atoms are
packed, contacts are stiffer than the bonded terms of such a rotor: it gains speed in collisions, and steps fail."""

SOFTEST = 10.0
"""Smallest scale of a coordinate (kJ/mol per rad^2 or nm^2): about the curvature of a torsion's barrier."""

SMALLEST_SHARE = 1e-4
"""Smallest part of the bound on terms across long loops that is tried, beside none."""

SLOW = 100.0
"""Torsions with more joint inertia (Da nm^2) than this turn by less than ten degrees per ps at 300 K."""


def joint_inertia(
    tree: TreeModel,
    system: Any,
    timestep: Any,
    *,
    steps_per_period: float = LANGEVIN_STEPS,
    temperature: Any = 300.0,
) -> np.ndarray:
    """Return the joint inertias with which a time step can be made.

    Curvatures are those of the bonded terms of the System at the reference of the tree, measured by a few force calls.

    Parameters
    ----------
    tree : TreeModel
    system : openmm.System
    timestep : float or Quantity
        ps.
    steps_per_period : float
        Time steps per period of the stiffest motion: 8 for Langevin dynamics, `metropolis_steps` for Metropolised.
    temperature : float or Quantity
        K; torsions that are too fast for the step at this temperature are refused.

    Returns
    -------
    (n_coordinates,) array
        Da nm^2, and Da for bond lengths; for `TreeModel.with_joint_inertia` and the `metric` of integrators.
    """
    from peptidyn.engine.stiffness import (
        measure_stiffness,  # imports scipy.sparse, which physical dynamics does not need
    )

    h = float(plain(timestep))
    if not (np.isfinite(h) and h > 0):
        raise ArgumentError(f"the time step is {h:g} ps, expected a positive time")
    kT = BOLTZMANN * check_temperature(temperature)
    _check_waters(tree, h)
    square = (steps_per_period * h / (2.0 * np.pi)) ** 2
    stiffness = measure_stiffness(tree, system)
    loops = long_loops(tree.atoms, tree.cut_bonds)
    if not loops:
        return _slowed(tree, stiffness_bound(stiffness) * square, h, kT, square)

    def across(term: tuple[int, ...]) -> bool:
        return any(not (near.isdisjoint(term) or far.isdisjoint(term)) for near, far in loops)

    local = measure_stiffness(tree, system, across)
    alone, shared = stiffness_bound(local) * square, stiffness_bound(stiffness - local) * square

    def inertia(share: float) -> np.ndarray:
        return _slowed(tree, alone + share * shared, h, kT, square)

    def slow_enough(share: float) -> bool:
        return fastest_motion(tree.with_joint_inertia(inertia(share)), stiffness) * square <= 1.0

    return inertia(_smallest_share(slow_enough))


def _slowed(tree: TreeModel, inertia: np.ndarray, h: float, kT: float, square: float) -> np.ndarray:
    """Return the inertias that springs need, without those of slow torsions and with those of light rotors."""
    rotors = tree.torsion_index
    hydrogens = [i for i in rotors.tolist() if tree.coordinates[i].kind in HYDROGEN_ROTORS]
    inertia[hydrogens] = np.maximum(inertia[hydrogens], CONTACT * square)
    stiff = inertia.copy()
    stiff[rotors] = 0.0
    own = effective_inertia(tree.with_joint_inertia(stiff))[rotors]
    turn = h * np.sqrt(kT / own)
    if len(turn) and turn.max() > LARGEST_TURN:
        raise ArgumentError(
            f"a time step of {1e3 * h:g} fs is too large: {tree.torsions[int(turn.argmax())]} would turn "
            f"{np.rad2deg(turn.max()):.0f} degrees per step at thermal speed; try "
            f"{1e3 * h * 0.5 * LARGEST_TURN / turn.max():.0f} fs, or give the inertias yourself"
        )
    light = np.maximum(kT * (h / THERMAL_TURN) ** 2 - own, 0.0)
    inertia[rotors] = np.maximum(np.where(inertia[rotors] > own, inertia[rotors], 0.0), light)
    return inertia


def _smallest_share(slow_enough: Callable[[float], bool]) -> float:
    """Return the smallest share, from 0 to 1, at which motions are slow enough; 1 is taken for granted."""
    if slow_enough(0.0):
        return 0.0
    low, high = SMALLEST_SHARE, 1.0
    while high > 1.2 * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if slow_enough(middle) else (middle, high)
    return high


def fastest_motion(tree: TreeModel, stiffness: Any) -> float:
    """Return the largest w^2 (1/ps^2) of small motions about the reference, to a few per cent: power iteration."""
    mover, force = Mover(tree), np.zeros(tree.n_dof)
    v, found = np.random.default_rng(0).standard_normal(tree.n_coordinates), 0.0
    for _ in range(200):
        before = found
        force[tree.coordinate_dof] = pull = stiffness @ v
        mover.momentum = force
        answer = mover.velocities()[tree.coordinate_dof]  # M^-1 K v
        found = float(pull @ answer) / max(abs(float(pull @ v)), np.finfo(float).tiny)
        v = answer / np.linalg.norm(answer)
        if abs(found - before) < 1e-3 * found:
            break
    return found


def slow_torsions(tree: TreeModel) -> list[str]:
    """Return a sentence about torsions that joint inertias all but stop; no sentence if there are none."""
    slow = [i for i in tree.torsion_index.tolist() if tree.joint_inertia[i] > SLOW]
    if not slow:
        return []
    worst = max(slow, key=lambda i: tree.joint_inertia[i])
    return [
        f"joint inertias all but stop {len(slow)} of {tree.n_torsions} torsions, most of all "
        f"{tree.coordinates[worst]} ({tree.joint_inertia[worst]:.0f} Da nm^2): they lie in loops that stiff bonds "
        "close; a time step of 4 fs lets them move"
    ]


def stiffness_bound(stiffness: Any) -> np.ndarray:
    """Return d (n,) such that diag(d) - K has no negative eigenvalue, for second derivatives K (n, n), sparse.

    d_i = sum over j of |k_ij| sqrt(s_i / s_j), about |k_ii| where couplings are weak.
    """
    entries = abs(stiffness).tocoo()
    scale = _scales(entries)
    row, column = entries.coords
    return np.bincount(row, entries.data * np.sqrt(scale[row] / scale[column]), minlength=len(scale))


def _scales(entries: Any) -> np.ndarray:
    """Return the scale s (n,) of every coordinate: its |k_ii|, or more where that is small beside its couplings.

    If K has no negative eigenvalue, k_ij^2 <= k_i k_j. Where it has, s_i >= k_ij^2 / max(|k_j|, |k_ij|) keeps what one
    coupling adds to d_j below |k_j|, or |k_ij|.
    """
    row, column = entries.coords
    k = entries.diagonal()
    scale = np.full(len(k), SOFTEST)
    some = entries.data > 0.0
    row, column, size = row[some], column[some], entries.data[some]
    np.maximum.at(scale, row, size * size / np.maximum(k[column], size))
    return scale


def effective_inertia(tree: TreeModel) -> np.ndarray:
    """Return 1 / (M^-1)_ii of all coordinates (n,): the inertia with which each answers a torque on it alone."""
    return 1.0 / ArticulatedSolver().inverse_diagonal(tree, tree.reference)


def _check_waters(tree: TreeModel, h: float) -> None:
    waters = np.flatnonzero(np.isin(tree.atoms.residue_name, list(WATERS)))
    if h > WATER_STEP * (1 + 1e-9) and waters.size:
        raise ArgumentError(
            f"a time step of {1e3 * h:g} fs is too large for {tree.atoms.residue_label(int(waters[0]))}: water turns "
            f"as a whole, which no joint inertia slows down; use at most {1e3 * WATER_STEP:g} fs, or implicit solvent"
        )


def check_metric(metric: Any) -> str | None:
    """Return "physical" or "auto", or None for an array or nothing; ArgumentError for other words."""
    if not isinstance(metric, str):
        return None
    if metric not in ("physical", "auto"):
        raise ArgumentError(f"metric is {metric!r}, expected 'physical', 'auto' or an array of joint inertias")
    return metric


def tree_with_metric(tree: TreeModel, metric: Any) -> TreeModel:
    """Return the tree with the joint inertias of a metric: "physical", which is none, or an array (n_coordinates,)."""
    return tree.with_joint_inertia(np.zeros(tree.n_coordinates) if check_metric(metric) == "physical" else metric)

"""How stiff soft coordinates are: second derivatives of the bonded terms of a System, measured by a few force calls.

Bonded terms reach over a few bonds only, so the matrix of second derivatives is sparse, and many of its columns are
measured by one displacement (Curtis, Powell, Reid 1974): coordinates that no term joins move at the same time. The
number of force calls does not grow with the size of the molecule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import openmm
from scipy.sparse import csr_array

from peptidyn.core.jit import njit
from peptidyn.io.virtual_sites import copy_particles
from peptidyn.model.tree import TreeModel

TURN, LENGTH = 1e-3, 1e-4
"""Displacements of angles (rad) and bond lengths (nm)."""

_TERMS = {
    openmm.HarmonicBondForce: ("getNumBonds", "getBondParameters", 2),
    openmm.HarmonicAngleForce: ("getNumAngles", "getAngleParameters", 3),
    openmm.PeriodicTorsionForce: ("getNumTorsions", "getTorsionParameters", 4),
    openmm.RBTorsionForce: ("getNumTorsions", "getTorsionParameters", 4),
    openmm.CustomBondForce: ("getNumBonds", "getBondParameters", 2),
    openmm.CustomAngleForce: ("getNumAngles", "getAngleParameters", 3),
    openmm.CustomTorsionForce: ("getNumTorsions", "getTorsionParameters", 4),
}
"""Bonded forces: the calls that count and return terms, and how many atoms a term has."""


_CONSTANTS = {
    openmm.HarmonicBondForce: ("setBondParameters", 1),
    openmm.HarmonicAngleForce: ("setAngleParameters", 1),
    openmm.PeriodicTorsionForce: ("setTorsionParameters", 1),
    openmm.RBTorsionForce: ("setTorsionParameters", 6),
}
"""Bonded forces whose terms can be switched off: the call that does it, and how many force constants come last."""


def bonded_terms(force: Any) -> Iterator[tuple[int, ...]] | None:
    """Yield the atoms of every term of a bonded force; None if the force is of another kind."""
    if isinstance(force, openmm.CMAPTorsionForce):
        return (
            tuple(sorted(set(force.getTorsionParameters(i)[1:9]))) for i in range(force.getNumTorsions())
        )  # fmt: skip
    if isinstance(force, openmm.CustomCompoundBondForce):
        return (tuple(force.getBondParameters(i)[0]) for i in range(force.getNumBonds()))
    for kind, (count, get, n) in _TERMS.items():
        if isinstance(force, kind):
            return (tuple(getattr(force, get)(i)[:n]) for i in range(getattr(force, count)()))
    return None


def switch_off(force: Any, without: Callable[[tuple[int, ...]], bool]) -> set[tuple[int, ...]]:
    """Make the force constants of terms zero whose atoms `without` is true of; return the atoms of these terms.

    Forces of kinds that have no such constants stay as they are.
    """
    off: set[tuple[int, ...]] = set()
    for kind, (change, n) in _CONSTANTS.items():
        if isinstance(force, kind):
            count, get, n_atoms = _TERMS[kind]
            for i in range(getattr(force, count)()):
                term = getattr(force, get)(i)
                if without(tuple(term[:n_atoms])):
                    getattr(force, change)(i, *term[:-n], *[0.0] * n)
                    off.add(tuple(term[:n_atoms]))
    return off


def measure_stiffness(
    tree: TreeModel, system: Any, without: Callable[[tuple[int, ...]], bool] | None = None
) -> csr_array:
    """Return the second derivatives of the bonded energy by the soft coordinates, at the reference of the tree.

    Parameters
    ----------
    tree : TreeModel
    system : openmm.System
    without : callable, optional
        Told the atoms of a term, says whether to leave it out; see `switch_off`.

    Returns
    -------
    (n_coordinates, n_coordinates) sparse array
        Symmetric; kJ/mol per rad^2, rad nm or nm^2.
    """
    bonded = copy_particles(system)
    terms: set[tuple[int, ...]] = set()
    for force in system.getForces():
        found = bonded_terms(force)
        if found is not None:
            copy = openmm.XmlSerializer.clone(force)
            terms.update(set(found) - (set() if without is None else switch_off(copy, without)))
            bonded.addForce(copy)
    pattern = _coupled_coordinates(tree, terms)
    colour = np.empty(tree.n_coordinates, dtype=np.int64)
    n_colours = _colour(pattern.indptr, pattern.indices, colour)
    context = openmm.Context(
        bonded, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference")
    )  # fmt: skip
    step = np.full(tree.n_coordinates, TURN)
    step[tree.stretch_index] = LENGTH
    rows = np.repeat(np.arange(tree.n_coordinates), np.diff(pattern.indptr))
    values = np.zeros(len(rows))
    for c in range(n_colours):
        moved = np.where(colour == c, step, 0.0)
        change = (_torque(tree, context, -moved) - _torque(tree, context, moved))[tree.coordinate_dof]
        mine = colour[pattern.indices] == c
        values[mine] = change[rows[mine]] / (2.0 * step[pattern.indices[mine]])
    stiffness = csr_array((values, pattern.indices, pattern.indptr), shape=pattern.shape)
    return csr_array(0.5 * (stiffness + stiffness.T))


def _torque(tree: TreeModel, context: Any, displacement: np.ndarray) -> np.ndarray:
    state = tree.reference.replace(q=tree.q_reference + displacement)
    context.setPositions(tree.positions(state))
    forces = np.array(context.getState(forces=True).getForces(asNumpy=True)._value)
    forces[tree.virtual_sites] = 0.0  # OpenMM has added these to the atoms that place the sites
    return tree.generalized_forces(state, forces)


def _coupled_coordinates(tree: TreeModel, terms: set[tuple[int, ...]]) -> csr_array:
    """Return the pattern of the coordinates that share a bonded term: those between the links of its atoms."""
    parent, coordinate = tree.parent.tolist(), tree.coordinate.tolist()
    link = tree.atom_link.tolist()
    groups = {tuple(sorted({link[a] for a in term})) for term in terms}
    pairs_row, pairs_column = [np.arange(tree.n_coordinates)], [np.arange(tree.n_coordinates)]
    for group in groups:
        between: set[int] = set()
        active = set(group)
        while len(active) > 1:
            last = max(active)  # parents have smaller numbers, so the largest is below all others
            active.discard(last)
            if parent[last] >= 0:
                between.add(coordinate[last])
                active.add(parent[last])
        members = np.array(sorted(between), dtype=np.int64)
        pairs_row.append(np.repeat(members, len(members)))
        pairs_column.append(np.tile(members, len(members)))
    row, column = np.concatenate(pairs_row), np.concatenate(pairs_column)
    pattern = csr_array((np.ones(len(row)), (row, column)), shape=(tree.n_coordinates, tree.n_coordinates))
    pattern.sum_duplicates()
    return pattern


@njit(cache=True)
def _colour(start, columns, colour):
    """Give every column the first colour that no column with which it shares a row has; return how many there are."""
    n = len(colour)
    colour[:] = -1
    taken = np.full(n + 1, -1, dtype=np.int64)
    most = 0
    for i in range(n):
        for r in range(start[i], start[i + 1]):  # the pattern is symmetric: the rows of a column are its columns
            row = columns[r]
            for s in range(start[row], start[row + 1]):
                if colour[columns[s]] >= 0:
                    taken[colour[columns[s]]] = i
        c = 0
        while taken[c] == i:
            c += 1
        colour[i] = c
        most = max(most, c + 1)
    return most

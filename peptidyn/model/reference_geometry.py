"""Positions -> the geometric part of a tree: axes, origins, local positions, mass properties. Compiled, O(n).

Sampling that changes bond lengths and angles takes a new reference geometry after every such move.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from peptidyn.core.errors import ModelError
from peptidyn.core.jit import njit
from peptidyn.model.kinematics import measure_coordinates


def reference_geometry(layout: Any, x: np.ndarray, masses: np.ndarray) -> dict[str, np.ndarray]:
    """Return the geometric fields of a TreeModel for reference positions `x` (n_atoms, 3); O(n).

    Parameters
    ----------
    layout : TreeModel or its topological part
    x : (n_atoms, 3), nm
    masses : (n_atoms,), Da
    """
    n = len(layout.parent)
    fields = {
        "axis": np.zeros((n, 3)),
        "origin": np.zeros((n, 3)),
        "local": np.empty((len(x), 3)),
        "q_reference": np.empty(len(layout.coordinate_atoms)),
        "link_mass": np.zeros(n),
        "link_com": np.zeros((n, 3)),
        "link_inertia": np.zeros((n, 3, 3)),
    }
    given = (
        layout.parent, layout.joint_atoms, layout.atom_link, layout.share_link, layout.share_atom, layout.share_weight,
        layout.coordinate_atoms, x, masses,
    )  # fmt: skip
    bad = _fill(*map(_read_only, given), *fields.values())
    if bad >= 0:
        involved = layout.joint_atoms[bad]
        raise ModelError(
            f"no joint axis can be drawn through {layout.atoms.labels(involved[involved >= 0])}: they coincide or "
            "lie on one line; repair the coordinates of these atoms"
        )
    return fields


def _read_only(array: np.ndarray) -> np.ndarray:
    """Return a view that cannot be written: with views of both kinds the same code would be compiled several times."""
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


@njit(cache=True)
def _fill(
    parent, joint_atoms, atom_link, share_link, share_atom, share_weight, coordinate_atoms, x, masses, axis, origin,
    local, q, mass, com, inertia,
):  # fmt: skip
    """Write all fields; return -1, or the link that has no axis."""
    n = len(parent)
    # the origin of a root is the centre of mass of the atoms of its body
    for a in range(len(x)):
        l = atom_link[a]
        if parent[l] < 0:
            mass[l] += masses[a]
            for i in range(3):
                origin[l, i] += masses[a] * x[a, i]
    for l in range(n):
        if parent[l] < 0:
            if mass[l] > 0:
                for i in range(3):
                    origin[l, i] /= mass[l]
            mass[l] = 0.0
            continue
        # plain arithmetic: expressions of arrays take seconds to compile
        first, centre, last = joint_atoms[l, 0], joint_atoms[l, 1], joint_atoms[l, 2]
        vx, vy, vz = x[last, 0] - x[centre, 0], x[last, 1] - x[centre, 1], x[last, 2] - x[centre, 2]
        at = last
        if first >= 0:
            ux, uy, uz = x[first, 0] - x[centre, 0], x[first, 1] - x[centre, 1], x[first, 2] - x[centre, 2]
            vx, vy, vz = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
            at = centre
        length = math.sqrt(vx * vx + vy * vy + vz * vz)
        if not length > 1e-6:
            return l
        axis[l, 0], axis[l, 1], axis[l, 2] = vx / length, vy / length, vz / length
        for i in range(3):
            origin[l, i] = x[at, i]
    for a in range(len(x)):
        for i in range(3):
            local[a, i] = x[a, i] - origin[atom_link[a], i]
    measure_coordinates(coordinate_atoms, x, q)
    _sum_masses(share_link, share_atom, share_weight, x, masses, origin, mass, com, inertia)
    return -1


@njit(cache=True, inline="always")
def _sum_masses(share_link, share_atom, share_weight, x, masses, origin, mass, com, inertia):
    """Sum the (shares of) atoms into bodies: mass, centre of mass relative to the origin, inertia about it."""
    for s in range(len(share_link)):
        l, a = share_link[s], share_atom[s]
        m = masses[a] * share_weight[s]
        mass[l] += m
        for i in range(3):
            com[l, i] += m * (x[a, i] - origin[l, i])
    for l in range(len(mass)):
        for i in range(3):
            com[l, i] = com[l, i] / mass[l] if mass[l] > 0 else 0.0
    for s in range(len(share_link)):
        l, a = share_link[s], share_atom[s]
        m = masses[a] * share_weight[s]
        dx = x[a, 0] - origin[l, 0] - com[l, 0]
        dy = x[a, 1] - origin[l, 1] - com[l, 1]
        dz = x[a, 2] - origin[l, 2] - com[l, 2]
        inertia[l, 0, 0] += m * (dy * dy + dz * dz)
        inertia[l, 1, 1] += m * (dx * dx + dz * dz)
        inertia[l, 2, 2] += m * (dx * dx + dy * dy)
        inertia[l, 0, 1] -= m * dx * dy
        inertia[l, 0, 2] -= m * dx * dz
        inertia[l, 1, 2] -= m * dy * dz
    for l in range(len(mass)):
        inertia[l, 1, 0] = inertia[l, 0, 1]
        inertia[l, 2, 0] = inertia[l, 0, 2]
        inertia[l, 2, 1] = inertia[l, 1, 2]

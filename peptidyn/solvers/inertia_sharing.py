"""Inertias of rigid bodies made invertible, without changing the mass matrix.

Two bodies on a joint have the same angular velocity along every direction e that is perpendicular to the joint's axes
of rotation. The kinetic energy k (e . omega)^2 / 2 is therefore as good on one side of the joint as on the other, and
k e e^T may be taken from the inertia of one body and given to its neighbour; M stays what it is. A neighbour that
cannot turn (a fixed base, a point) has no such energy, and its bodies may be given what they need.

`TreeModel` shares point masses on joints in the same spirit. That leaves bodies whose masses lie on one line where
bond angles are soft and hydrogens absent (N of a peptide, with C' on one side and the bend C'-N-CA on the other).
Methods that invert the inertia of every body start here.
"""

from __future__ import annotations

import numpy as np

from peptidyn.core.jit import njit
from peptidyn.model.kinematics import FIXED, POINT, REVOLUTE

SINGULAR = 1e-12
"""A body is a line or a point if its least moment of inertia is this small a part of the sum of all three."""

WEAK = 1e-4
"""Bodies whose least moment is a smaller part of the sum than this are given some of their neighbours' inertia."""


@njit(cache=True)
def share_inertias(link, top, up, parent, joint, axis, inertia):
    """Strengthen weak bodies in place: first parents from their children, then children from their parents; O(n).

    Parameters
    ----------
    link, top, up : (n_bodies,) int
        The link of each body, the first link of its joint, and its parent body (-1 for roots).
    parent, joint : (n_links,) int, axis : (n_links, 3)
        The tree; axes in the world.
    inertia : (n_bodies, 3, 3)
        About the centre of mass, world axes.
    """
    P, inverse = np.empty((3, 3)), np.empty((3, 3))
    weak = np.empty(len(link), np.bool_)
    for b in range(len(link)):
        weak[b] = _least_moment(inertia[b], inverse) < WEAK
    for b in range(len(link) - 1, -1, -1):
        if up[b] >= 0 and weak[up[b]] and not weak[b] and _turns(joint[link[up[b]]]):
            _common_directions(link[b], top[b], parent, joint, axis, P)
            _lend(P, inertia[b], inertia[up[b]], inverse)
            weak[up[b]] = _least_moment(inertia[up[b]], inverse) < WEAK
    for b in range(len(link)):
        if up[b] < 0 or not weak[b]:
            continue
        _common_directions(link[b], top[b], parent, joint, axis, P)
        if not _turns(joint[link[up[b]]]):
            trace = inertia[b, 0, 0] + inertia[b, 1, 1] + inertia[b, 2, 2]
            for i in range(3):
                for j in range(3):
                    inertia[b, i, j] += trace * P[i, j]
        elif not weak[up[b]]:
            _lend(P, inertia[up[b]], inertia[b], inverse)
        weak[b] = _least_moment(inertia[b], inverse) < WEAK


@njit(cache=True)
def invert_inertia(I, out):
    """Write the inverse of an inertia (3, 3) by Cholesky's factor; return its determinant, or 0 if it is singular."""
    if not I[0, 0] > 0.0:
        return 0.0
    l00 = np.sqrt(I[0, 0])
    l10, l20 = I[1, 0] / l00, I[2, 0] / l00
    d1 = I[1, 1] - l10 * l10
    if not d1 > 0.0:
        return 0.0
    l11 = np.sqrt(d1)
    l21 = (I[2, 1] - l20 * l10) / l11
    d2 = I[2, 2] - l20 * l20 - l21 * l21
    if not d2 > 0.0:
        return 0.0
    l22 = np.sqrt(d2)
    m00, m11, m22 = 1.0 / l00, 1.0 / l11, 1.0 / l22
    m10, m21 = -l10 * m00 * m11, -l21 * m11 * m22
    m20 = (l10 * l21 * m11 - l20) * m00 * m22
    out[0, 0] = m00 * m00 + m10 * m10 + m20 * m20
    out[1, 1] = m11 * m11 + m21 * m21
    out[2, 2] = m22 * m22
    out[0, 1] = out[1, 0] = m10 * m11 + m20 * m21
    out[0, 2] = out[2, 0] = m20 * m22
    out[1, 2] = out[2, 1] = m21 * m22
    return I[0, 0] * d1 * d2 if _ratio(I, out) > SINGULAR else 0.0


@njit(cache=True)
def _ratio(I, inverse):
    """Return the least moment relative to the sum of all, to within a factor of 3: 1 / (tr I tr I^-1)."""
    trace = I[0, 0] + I[1, 1] + I[2, 2]
    return 1.0 / (trace * (inverse[0, 0] + inverse[1, 1] + inverse[2, 2]))


@njit(cache=True)
def _least_moment(I, inverse):
    """Return the least moment relative to the sum of all, 0 if `I` is singular; `inverse` is written."""
    return _ratio(I, inverse) if invert_inertia(I, inverse) > 0.0 else 0.0


@njit(cache=True)
def _turns(kind):
    return kind != FIXED and kind != POINT


@njit(cache=True)
def _common_directions(link, top, parent, joint, axis, P):
    """Write the projector onto the directions perpendicular to all axes of rotation of a joint."""
    for i in range(3):
        for j in range(3):
            P[i, j] = 1.0 if i == j else 0.0
    l = link
    while True:
        if joint[l] == REVOLUTE:
            e0 = P[0, 0] * axis[l, 0] + P[0, 1] * axis[l, 1] + P[0, 2] * axis[l, 2]
            e1 = P[1, 0] * axis[l, 0] + P[1, 1] * axis[l, 1] + P[1, 2] * axis[l, 2]
            e2 = P[2, 0] * axis[l, 0] + P[2, 1] * axis[l, 1] + P[2, 2] * axis[l, 2]
            square = e0 * e0 + e1 * e1 + e2 * e2
            if square > 1e-28:  # an axis parallel to those before leaves rounding errors only
                e = (e0, e1, e2)
                for i in range(3):
                    for j in range(3):
                        P[i, j] -= e[i] * e[j] / square
        if l == top:
            return
        l = parent[l]


@njit(cache=True)
def _lend(P, lender, borrower, inverse):
    """Move k P from one inertia to another: not more than the borrower has in sum, or half of what there is."""
    if not invert_inertia(lender, inverse) > 0.0:
        return
    need = 0.0
    for i in range(3):
        need += borrower[i, i]
    hold = 0.0  # lender - k P stays positive for k < 1 / tr(P lender^-1 P)
    for i in range(3):
        for j in range(3):
            hold += P[i, j] * inverse[j, i]
    if not hold > 0.0:
        return
    k = 0.5 / hold if need == 0.0 else min(0.5 / hold, need)
    for i in range(3):
        for j in range(3):
            lender[i, j] -= k * P[i, j]
            borrower[i, j] += k * P[i, j]

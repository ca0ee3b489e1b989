"""Parts: a tree whose bodies carry at most three joints each, for methods that solve for constraint forces.

Yamane and Nakamura (section 4) keep their algorithm O(n) on branched chains by splitting every link with more than
three joints into links with at most three, held together by fixed joints (their Fig. 3). Here:

- A body that carries c > 2 joints on the side of the tips becomes a chain of c - 1 parts. The first part has the joint
  towards the root; every part has one joint of the tree on the side of the tips, the last part two.
- The parts share mass and inertia equally and keep the centre of mass: c - 1 equal rigid bodies on top of each other
  move, when tied together, as the one they came from, and each has an invertible inertia if that one had.
- Massless links disappear: the coordinates on both sides of one become several soft coordinates of one joint, because
  the inertia of a massless link cannot be inverted.
- A welded root is the ground. It never moves, so that joints on it do not feel each other, and it is not a part.

Parts are numbered from roots to tips, ``up[i] < i``. Joint i is the one between part i and part up[i].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from peptidyn.core.jit import njit
from peptidyn.model.kinematics import FIXED, POINT
from peptidyn.model.tree import TreeModel
from peptidyn.solvers.protocol import raise_unfit

GROUND, FLOATING = -1, -2
"""Values of `Parts.up`: the part hangs on a welded root; the part is a root and has no joint."""

_FINE, _MASSLESS, _POINT = range(3)


class Parts(NamedTuple):
    """The parts of all bodies; n is their number.

    Attributes
    ----------
    link : (n,) int
        Link of the tree whose body it is a part of.
    share : (n,) float
        Share of that body's mass and inertia.
    up : (n,) int
        The part towards the root that it is joined to; GROUND or FLOATING.
    soft : (n,) int
        Soft coordinates of joint i: 0 between parts of one body, else the number of links from `link` up to, and
        without, the next link that is a body.
    down : (n, 2) int
        The parts that hang on it; -1 for none.
    """

    link: np.ndarray
    share: np.ndarray
    up: np.ndarray
    soft: np.ndarray
    down: np.ndarray


@njit(cache=True)
def _next_body(parent, mass, l):
    """Return the nearest link above link `l` that has mass or is a root."""
    above = parent[l]
    while mass[above] == 0.0 and parent[above] >= 0:
        above = parent[above]
    return above


@njit(cache=True)
def _count_parts(parent, joint, mass, carried, first):
    """Number the parts: write joints towards the tips per body, `carried`, and `first`; both (n_links,).

    Returns how many parts there are, a status, and the link that the status is about.
    """
    n_links = len(parent)
    carried[:] = 0
    for l in range(n_links):
        if parent[l] >= 0:
            carried[parent[l]] += 1
    for l in range(n_links):
        if parent[l] < 0:
            if joint[l] != FIXED and mass[l] == 0.0:
                return 0, _MASSLESS, l
            if joint[l] == POINT and carried[l] > 0:
                return 0, _POINT, l
        elif mass[l] == 0.0 and carried[l] != 1:
            return 0, _MASSLESS, l
    n = 0
    for l in range(n_links):
        root = parent[l] < 0
        if (root and joint[l] == FIXED) or (not root and mass[l] == 0.0):
            first[l] = -1
            continue
        first[l] = n
        n += max(1, carried[l] - 1)
    return n, _FINE, -1


@njit(cache=True)
def _fill_parts(parent, mass, carried, first, taken, parts):
    """Write the parts and join them; `taken` (n_links,) is scratch for the joints already placed on each body."""
    taken[:] = 0
    parts.down[:] = -1
    for l in range(len(parent)):
        if first[l] < 0:
            continue
        count = max(1, carried[l] - 1)
        for i in range(first[l], first[l] + count):
            parts.link[i] = l
            parts.share[i] = 1.0 / count
            parts.up[i] = i - 1
            parts.soft[i] = 0
            if i > first[l]:
                parts.down[i - 1, 1] = i  # the tree's joint takes place 0; the last part has no other use for place 1
        i = first[l]
        if parent[l] < 0:
            parts.up[i] = FLOATING
            continue
        above = _next_body(parent, mass, l)
        k = parent[l]
        parts.soft[i] = 1
        while k != above:
            parts.soft[i] += 1
            k = parent[k]
        if first[above] < 0:
            parts.up[i] = GROUND
            continue
        number = taken[above]
        taken[above] += 1
        last = max(0, carried[above] - 2)
        up = first[above] + min(number, last)
        parts.up[i] = up
        parts.down[up, 1 if number > last else 0] = i


def split_links(tree: TreeModel) -> Parts:
    """Return the parts of a tree; O(n).

    Raises, naming the link, where a link without mass carries no joint or several, or a point root any.
    """
    n_links = tree.n_links
    carried, first, taken = np.empty((3, n_links), dtype=np.int64)
    n, status, link = _count_parts(tree.parent, tree.joint, tree.link_mass, carried, first)
    if status != _FINE:
        what = "is a point, which cannot turn," if status == _POINT else "has no mass"
        raise_unfit(
            "virtual-work", tree, tree.reference, link, f"link {link} {what} and carries {carried[link]} joints"
        )
    parts = Parts(
        link=np.empty(n, dtype=np.int64),
        share=np.empty(n),
        up=np.empty(n, dtype=np.int64),
        soft=np.empty(n, dtype=np.int64),
        down=np.empty((n, 2), dtype=np.int64),
    )
    _fill_parts(tree.parent, tree.link_mass, carried, first, taken, parts)
    return parts

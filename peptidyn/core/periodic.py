"""Molecules in periodic boxes, made whole where their atoms were wrapped one by one."""

from __future__ import annotations

import numpy as np

from peptidyn.core.atoms import Atoms
from peptidyn.core.jit import njit, prange


def spanning_order(atoms: Atoms) -> tuple[np.ndarray, np.ndarray]:
    """Return atoms in breadth-first order of the bonds, but the first of each molecule, and where each is reached from.

    Both (n_atoms - n_molecules,).
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    n, (i, j) = atoms.n_atoms, atoms.bonds.T
    graph = coo_matrix((np.ones(len(i)), (i, j)), shape=(n, n))
    first = np.unique(connected_components(graph, directed=False)[1], return_index=True)[1]
    # one node more, bonded to the first atom of each molecule, so that one search reaches all of them
    rows, columns = np.concatenate([i, np.full(len(first), n)]), np.concatenate([j, first])
    joined = coo_matrix((np.ones(len(rows)), (rows, columns)), shape=(n + 1, n + 1))
    order, source = breadth_first_order(joined.tocsr(), n, directed=False)
    order = order[1:][source[order[1:]] != n]
    return order.astype(np.int64), source[order].astype(np.int64)


@njit(cache=True, parallel=True)
def make_whole(xyz, box, inverse, atom, source):
    """Shift atoms by box vectors, in place, so that every bond is the shortest image.

    Parameters
    ----------
    xyz : (n_frames, n_atoms, 3), nm
    box, inverse : (n_frames, 3, 3)
        Box vectors as rows, nm, and the inverse of that matrix.
    atom, source : (n,) int
        From `spanning_order`.
    """
    for f in prange(len(xyz)):
        for n in range(len(atom)):
            a, b = atom[n], source[n]
            dx = xyz[f, a, 0] - xyz[f, b, 0]
            dy = xyz[f, a, 1] - xyz[f, b, 1]
            dz = xyz[f, a, 2] - xyz[f, b, 2]
            for k in range(3):
                turns = np.round(dx * inverse[f, 0, k] + dy * inverse[f, 1, k] + dz * inverse[f, 2, k])
                if turns != 0.0:
                    for i in range(3):
                        xyz[f, a, i] -= turns * box[f, k, i]


def join_pieces(x: np.ndarray, box: np.ndarray, bonds: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Return positions in which the pieces of a molecule that was split at a box wall are together again.

    Bonds within their limit hold a piece together. Pieces are shifted by box vectors where that brings a bond between
    them within its limit; the largest piece of each molecule stays. `x` itself is returned if no bond asks for it.

    Parameters
    ----------
    x : (n_atoms, 3), nm
    box : (3, 3)
        Box vectors as rows, nm.
    bonds : (n_bonds, 2) int
    limit : (n_bonds,)
        How long each bond may be, nm.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    apart = x[bonds[:, 1]] - x[bonds[:, 0]]
    turns = -np.round(apart @ np.linalg.inv(box))
    near = np.linalg.norm(apart, axis=1) <= limit
    across = np.flatnonzero(~near & (np.linalg.norm(apart + turns @ box, axis=1) <= limit))
    if not len(across):
        return x
    i, j = bonds[near].T
    graph = coo_matrix((np.ones(len(i)), (i, j)), shape=(len(x), len(x)))
    n_pieces, piece = connected_components(graph, directed=False)
    ways: dict[int, list[tuple[int, np.ndarray]]] = {}
    for bond in across.tolist():
        one, other = piece[bonds[bond]].tolist()
        ways.setdefault(one, []).append((other, turns[bond]))
        ways.setdefault(other, []).append((one, -turns[bond]))
    shift: dict[int, np.ndarray] = {}
    for first in sorted(ways, key=np.bincount(piece).__getitem__, reverse=True):
        if first in shift:
            continue
        shift[first] = np.zeros(3)
        reached = [first]
        for one in reached:
            for other, turn in ways[one]:
                if other not in shift:  # a molecule that goes on for ever through the box keeps one bond across it
                    shift[other] = shift[one] + turn
                    reached.append(other)
    every = np.zeros((n_pieces, 3))
    every[list(shift)] = list(shift.values())
    return x + every[piece] @ box

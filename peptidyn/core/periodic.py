"""Molecules in periodic boxes, made whole where their atoms were wrapped one by one."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from peptidyn.core.atoms import Atoms


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

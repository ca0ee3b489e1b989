"""The bond graph: which bonds are bridges, and which atoms hang together."""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components


def components(n_nodes: int, edges: np.ndarray) -> np.ndarray:
    """Return for every node the index of its connected component.

    Components are numbered by their lowest node, so the numbering is stable.

    Parameters
    ----------
    n_nodes : int
    edges : (n_edges, 2) int
    """
    ones = np.ones(len(edges), dtype=np.int8)
    graph = coo_array((ones, (edges[:, 0], edges[:, 1])), shape=(n_nodes, n_nodes))
    _, labels = connected_components(graph, directed=False)
    _, first = np.unique(labels, return_index=True)
    order = np.empty(len(first), dtype=np.int64)
    order[np.argsort(first, kind="stable")] = np.arange(len(first))
    return order[labels]


def bridges(n_nodes: int, edges: np.ndarray) -> np.ndarray:
    """Return a mask of the edges that are on no cycle (Tarjan's bridges), in O(n).

    An edge that is listed twice closes a cycle with itself and is no bridge.

    Parameters
    ----------
    n_nodes : int
    edges : (n_edges, 2) int
    """
    edges = np.ascontiguousarray(edges, dtype=np.int64)
    ends = np.concatenate([edges[:, 0], edges[:, 1]])
    partner = np.concatenate([edges[:, 1], edges[:, 0]])
    edge = np.concatenate([np.arange(len(edges)), np.arange(len(edges))])
    order = np.argsort(ends, kind="stable")
    start = np.zeros(n_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(ends, minlength=n_nodes), out=start[1:])
    return _bridges(start, partner[order], edge[order], len(edges))


@njit(cache=True)
def _bridges(start, partner, edge, n_edges):
    n = len(start) - 1
    seen = np.full(n, -1, dtype=np.int64)  # discovery time
    low = np.zeros(n, dtype=np.int64)  # earliest node reachable without the edge to the parent
    via = np.full(n, -1, dtype=np.int64)  # edge through which a node was found
    cursor = start[:-1].copy()
    stack = np.empty(n, dtype=np.int64)
    bridge = np.zeros(n_edges, dtype=np.bool_)
    clock = 0
    for root in range(n):
        if seen[root] >= 0:
            continue
        depth = 0
        stack[0] = root
        seen[root] = low[root] = clock
        clock += 1
        while depth >= 0:
            node = stack[depth]
            if cursor[node] < start[node + 1]:
                slot = cursor[node]
                cursor[node] += 1
                if edge[slot] == via[node]:
                    continue
                other = partner[slot]
                if seen[other] < 0:
                    via[other] = edge[slot]
                    seen[other] = low[other] = clock
                    clock += 1
                    depth += 1
                    stack[depth] = other
                else:
                    low[node] = min(low[node], seen[other])
            else:
                depth -= 1
                if depth >= 0:
                    above = stack[depth]
                    low[above] = min(low[above], low[node])
                    if low[node] > seen[above]:
                        bridge[via[node]] = True
    return bridge

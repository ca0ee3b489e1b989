"""The bond graph: which bonds are bridges, and which atoms hang together."""

from __future__ import annotations

import numpy as np

from peptidyn.core.jit import njit


def components(n_nodes: int, edges: np.ndarray) -> np.ndarray:
    """Return for every node the index of its connected component.

    Components are numbered by their lowest node, so the numbering is stable. By hand, because scipy.sparse takes longer
    to import than a tree takes to build.

    Parameters
    ----------
    n_nodes : int
    edges : (n_edges, 2) int
    """
    label = np.arange(n_nodes)
    _join(np.ascontiguousarray(edges, dtype=np.int64), label)
    return np.unique(label, return_inverse=True)[1]


@njit(cache=True)
def _join(edges, label):
    """Write the lowest node of its component as the label of every node; each node's own number before."""
    for e in range(len(edges)):
        i, j = edges[e, 0], edges[e, 1]
        while label[i] != i:
            label[i] = label[label[i]]
            i = label[i]
        while label[j] != j:
            label[j] = label[label[j]]
            j = label[j]
        if i < j:
            label[j] = i
        else:
            label[i] = j
    for i in range(len(label)):  # labels point to lower nodes, which are done
        label[i] = label[label[i]]


def bridges(n_nodes: int, edges: np.ndarray) -> np.ndarray:
    """Return a mask of the edges that are on no cycle (Tarjan's bridges), in O(n).

    An edge that is listed twice closes a cycle with itself and is no bridge. By hand, because scipy has no bridges.

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
    bridge = np.zeros(len(edges), dtype=np.bool_)
    seen, low, via, stack = (np.full(n_nodes, -1, dtype=np.int64) for _ in range(4))
    _bridges(start, partner[order], edge[order], start[:-1].copy(), seen, low, via, stack, bridge)
    return bridge


@njit(cache=True)
def _bridges(start, partner, edge, cursor, seen, low, via, stack, bridge):
    """Mark the bridges. Over nodes, all -1 before: discovery time `seen`, the earliest node `low` that is reachable
    without the edge to the parent, the edge `via` through which a node was found, the path `stack`.
    """
    n = len(start) - 1
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

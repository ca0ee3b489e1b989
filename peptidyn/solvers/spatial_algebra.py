"""Six-dimensional vectors and inertias of rigid bodies, compiled; nothing is allocated.

A spatial velocity is (omega; v), a spatial force (N; F): angular part first, v and N taken at the origin of a link,
all along world axes (Rodriguez & Kreutz 1988, eq. 2.14). With `arm` the vector l from the parent's origin to the
link's, the shift operator (2.16)

    phi = [[1, l~], [0, 1]]           l~ x = l x x

carries forces from the link to its parent, f -> phi f, its transpose velocities from the parent to the link, and
inertias follow P -> phi P phi^T. Every function adds to `out`, so that sums over children need no scratch.
"""

from __future__ import annotations

import numpy as np

from peptidyn.core.jit import njit


@njit(cache=True)
def fill_matrix(out, value):
    """Write `value` into all entries of `out` (n, m); `out[:] = value` takes much longer to compile."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = value


@njit(cache=True)
def copy_matrix(A, out):
    """Write A into `out`, both (n, m); `out[:] = A` would allocate where they might overlap."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = A[i, j]


@njit(cache=True)
def add_cross(a, b, scale, out):
    """Add scale * (a x b) to `out` (3,)."""
    out[0] += scale * (a[1] * b[2] - a[2] * b[1])
    out[1] += scale * (a[2] * b[0] - a[0] * b[2])
    out[2] += scale * (a[0] * b[1] - a[1] * b[0])


@njit(cache=True)
def add_shifted_force(arm, f, out):
    """Add phi f to `out`: the force `f` (6,) at the link's origin, taken at its parent's."""
    add_cross(arm, f[3:], 1.0, out)
    for i in range(6):
        out[i] += f[i]


@njit(cache=True)
def add_shifted_motion(arm, x, out):
    """Add phi^T x to `out`: the motion `x` (6,) of the parent, taken at the link's origin."""
    add_cross(x, arm, 1.0, out[3:])
    for i in range(6):
        out[i] += x[i]


@njit(cache=True)
def add_shifted_inertia(arm, P, out):
    """Add phi P phi^T to `out`; both are symmetric (6, 6) and full.

    With P = [[A, B], [B^T, C]] and X = B + l~ C the sum is [[A + l~ B^T + X l~^T, X], [X^T, C]].
    """
    x, y, z = arm[0], arm[1], arm[2]
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        X0 = P[i, 3] + arm[j] * P[3 + k, 3] - arm[k] * P[3 + j, 3]
        X1 = P[i, 4] + arm[j] * P[3 + k, 4] - arm[k] * P[3 + j, 4]
        X2 = P[i, 5] + arm[j] * P[3 + k, 5] - arm[k] * P[3 + j, 5]
        X = (X0, X1, X2)
        X_turned = (y * X2 - z * X1, z * X0 - x * X2, x * X1 - y * X0)  # row i of X l~^T
        for n in range(3):
            out[i, 3 + n] += X[n]
            out[3 + n, i] += X[n]
            out[3 + i, 3 + n] += P[3 + i, 3 + n]
        for n in range(i + 1):  # one triangle, mirrored: the sum stays symmetric to the last bit
            moved = P[i, n] + arm[j] * P[n, 3 + k] - arm[k] * P[n, 3 + j] + X_turned[n]
            out[i, n] += moved
            if n < i:
                out[n, i] += moved


@njit(cache=True)
def add_spatial_inertia(mass, c, inertia, out):
    """Add the spatial inertia (2.15) of a link about its origin to `out` (6, 6).

    Parameters
    ----------
    mass : float
    c : (3,)
        From the link's origin to its centre of mass.
    inertia : (3, 3)
        About the centre of mass.
    out : (6, 6)
    """
    cc = c[0] * c[0] + c[1] * c[1] + c[2] * c[2]
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        for n in range(3):
            out[i, n] += inertia[i, n] - mass * (c[i] * c[n])
        out[i, i] += mass * cc
        out[3 + i, 3 + i] += mass
        out[i, 3 + j] -= mass * c[k]
        out[i, 3 + k] += mass * c[j]
        out[3 + j, i] -= mass * c[k]
        out[3 + k, i] += mass * c[j]


@njit(cache=True)
def add_inertia_times(mass, c, inertia, x, out):
    """Add M x to `out` (6,) for the spatial inertia M of `add_spatial_inertia` and a motion `x` (6,)."""
    F0 = mass * (x[3] + x[1] * c[2] - x[2] * c[1])
    F1 = mass * (x[4] + x[2] * c[0] - x[0] * c[2])
    F2 = mass * (x[5] + x[0] * c[1] - x[1] * c[0])
    add_cross(c, (F0, F1, F2), 1.0, out)
    out[3] += F0
    out[4] += F1
    out[5] += F2
    for i in range(3):
        out[i] += inertia[i, 0] * x[0] + inertia[i, 1] * x[1] + inertia[i, 2] * x[2]


# ---------------------------------------------------------------------- the base: blocks of up to 6 x 6


@njit(cache=True)
def smallest_pivot(A, first, scale, work):
    """Return the smallest pivot of A[first:, first:] with diagonal pivoting, as a share of `scale`; inf if empty.

    Without pivoting a singular matrix can hide: in a rod that lies almost along a coordinate plane the rounding error
    of the last pivot is divided by the small one before it.

    Parameters
    ----------
    A : (6, 6), symmetric
    first : int
        Rows and columns before it are left out.
    scale : (2,)
        Size of the rotational (rows 0 to 2) and of the translational diagonal, whose units differ.
    work : (6, 6), overwritten
    """
    for i in range(first, 6):
        if not scale[i // 3] > 0.0:
            return 0.0
    for i in range(first, 6):
        for j in range(first, 6):
            work[i, j] = A[i, j] / np.sqrt(scale[i // 3] * scale[j // 3])
    smallest = np.inf
    left = (1 << 6) - (1 << first)
    for _ in range(first, 6):
        best = -1
        for i in range(first, 6):
            if left >> i & 1 and (best < 0 or work[i, i] > work[best, best]):
                best = i
        left -= 1 << best
        pivot = work[best, best]
        smallest = min(smallest, pivot)
        if not pivot > 0.0:
            break
        for i in range(first, 6):
            for j in range(first, 6):
                if left >> i & 1 and left >> j & 1:
                    work[i, j] -= work[i, best] * work[best, j] / pivot
    return smallest


@njit(cache=True)
def cholesky(A, first, C):
    """Write the lower Cholesky factor of A[first:, first:] into `C` (6, 6); the rest of `C` becomes the identity.

    A must be positive definite, see `smallest_pivot`.
    """
    for j in range(6):
        for i in range(6):
            C[i, j] = 1.0 if i == j else 0.0
        if j < first:
            continue
        for i in range(j, 6):
            value = A[i, j]
            for n in range(first, j):
                value -= C[i, n] * C[j, n]
            C[i, j] = np.sqrt(value) if i == j else value / C[j, j]


@njit(cache=True)
def solve_lower(C, first, x):
    """Replace `x` (6 - first,) by C^-1 x."""
    for i in range(first, 6):
        for n in range(first, i):
            x[i - first] -= C[i, n] * x[n - first]
        x[i - first] /= C[i, i]


@njit(cache=True)
def solve_lower_transposed(C, first, x):
    """Replace `x` (6 - first,) by C^-T x."""
    for i in range(5, first - 1, -1):
        for n in range(i + 1, 6):
            x[i - first] -= C[n, i] * x[n - first]
        x[i - first] /= C[i, i]


@njit(cache=True)
def multiply_lower(C, first, x):
    """Replace `x` (6 - first,) by C x."""
    for i in range(5, first - 1, -1):
        x[i - first] *= C[i, i]
        for n in range(first, i):
            x[i - first] += C[i, n] * x[n - first]

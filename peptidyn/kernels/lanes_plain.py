"""Lanes as plain numbers, by public names of numba only; what they mean is said in `lanes`.

One state at a time: where the vector implementation has four numbers in the last axis of an array, this one has one.
Vectors of space are three floats. Numbers agree with the vector implementation to rounding, as products are rounded
before they are added.
"""

from __future__ import annotations

from peptidyn.core.jit import njit

LANES = 1
"""States side by side."""


@njit
def all_above(a, b):
    """Return True if a > b."""
    return a > b


@njit
def plus(a, b, c):
    """Return a + b c."""
    return a + b * c


# ---------------------------------------------------------------------------- rows of arrays
# numba decides on the number of axes when it compiles, so that only the branch that fits is ever typed


@njit
def zero(array):
    """Return 0 as a number of an array."""
    return 0.0


@njit
def at(array, place):
    """Return one number of an array (n,) or (n, 1)."""
    if array.ndim == 1:
        return array[place]
    return array[place, 0]


@njit
def put_at(array, place, a):
    """Write one number of an array (n,) or (n, 1)."""
    if array.ndim == 1:
        array[place] = a
    else:
        array[place, 0] = a


@njit
def get(array, row, column):
    """Return one number of an array (rows, columns) or (rows, columns, 1)."""
    if array.ndim == 2:
        return array[row, column]
    return array[row, column, 0]


@njit
def get3(array, row, column):
    """Return three numbers of a row, the first at `column`."""
    return get(array, row, column), get(array, row, column + 1), get(array, row, column + 2)


@njit
def get6(array, row, column):
    """Return six numbers of a row, the first at `column`."""
    return get3(array, row, column) + get3(array, row, column + 3)


@njit
def put(array, row, column, a):
    """Write one number of a row."""
    if array.ndim == 2:
        array[row, column] = a
    else:
        array[row, column, 0] = a


@njit
def put3(array, row, column, a, b, c):
    """Write three numbers of a row, the first at `column`."""
    put(array, row, column, a)
    put(array, row, column + 1, b)
    put(array, row, column + 2, c)


@njit
def put6(array, row, column, a, b, c, d, e, f):
    """Write six numbers of a row, the first at `column`."""
    put3(array, row, column, a, b, c)
    put3(array, row, column + 3, d, e, f)


@njit
def add3(array, row, column, a, b, c):
    """Add to three numbers of a row, the first at `column`."""
    x, y, z = get3(array, row, column)
    put3(array, row, column, x + a, y + b, z + c)


@njit
def add6(array, row, column, a, b, c, d, e, f):
    """Add to six numbers of a row, the first at `column`."""
    add3(array, row, column, a, b, c)
    add3(array, row, column + 3, d, e, f)


# ---------------------------------------------------------------------------- vectors of space


@njit
def get_vector(array, row, column):
    """Return the vector in one column of an array (rows, columns, 4)."""
    return array[row, column, 0], array[row, column, 1], array[row, column, 2]


@njit
def put_vector(array, row, column, a):
    """Write a vector into one column of an array (rows, columns, 4), or three columns of an array (rows, columns)."""
    if array.ndim == 2:
        array[row, column], array[row, column + 1], array[row, column + 2] = a
    else:
        array[row, column, 0], array[row, column, 1], array[row, column, 2] = a


@njit
def scaled(a, x):
    """Return a x."""
    return a * x[0], a * x[1], a * x[2]


@njit
def total(x, y):
    """Return x + y."""
    return x[0] + y[0], x[1] + y[1], x[2] + y[2]


@njit
def difference(x, y):
    """Return x - y."""
    return x[0] - y[0], x[1] - y[1], x[2] - y[2]


@njit
def moved(p, a, x):
    """Return p + a x."""
    return total(p, scaled(a, x))


@njit
def combined(a, x, b, y, c, z):
    """Return a x + b y + c z."""
    return moved(moved(scaled(a, x), b, y), c, z)


@njit
def turned(x, y, sine, cosine):
    """Return the axes x and y turned about x cross y."""
    return moved(scaled(cosine, x), sine, y), moved(scaled(cosine, y), -sine, x)


@njit
def _cross(a, x):
    return a[1] * x[2] - a[2] * x[1], a[2] * x[0] - a[0] * x[2], a[0] * x[1] - a[1] * x[0]


@njit
def crosses(a, x, b, y, c, z, d, w):
    """Return a x X + b x Y + c x Z + d x W, the cross products of pairs of vectors."""
    return total(total(_cross(a, x), _cross(b, y)), total(_cross(c, z), _cross(d, w)))

"""Calls of C functions from compiled code, by their addresses, so that forces can be asked for without Python.

Addresses are numbers of the process and are passed as arguments; compiled code can therefore be kept on disk.
"""

from __future__ import annotations

from llvmlite import ir
from numba import carray
from numba.core import cgutils, types
from numba.extending import intrinsic

from peptidyn.kernels.compiling import njit

SET_POSITIONS, GET_STATE, GET_FORCES, GET_VECTOR, DESTROY, CONTEXT, VECTORS, KINDS, GROUPS, N_SERVER = range(10)
"""Places in the array (N_SERVER,) int64 of a force server: addresses of the C functions of OpenMM that take positions,
make a State, return its forces, return a vector of an array, and free the State; the Context, an array of vectors for
positions, the kinds of data a State shall hold, and the force groups."""

FARTHEST = 1e6
"""nm. Atoms farther out, or nowhere, are no configuration to ask OpenMM about: it would raise an error."""


@intrinsic
def _call(typingctx, address, arguments):
    """Call the C function at `address` with integers and pointers (a tuple of int64); return int64."""
    sig = types.int64(types.int64, arguments)

    def generate(context, builder, signature, args):
        word = ir.IntType(64)
        values = cgutils.unpack_tuple(builder, args[1])
        kind = ir.FunctionType(word, [word] * len(values))
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), values)

    return sig, generate


@intrinsic
def _numbers_at(typingctx, address):
    """Return an address as a pointer to numbers."""
    sig = types.CPointer(types.float64)(types.int64)  # type: ignore[attr-defined]

    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return sig, generate


@njit(cache=True, error_model="numpy")
def ask_forces(server, x, force):
    """Write the forces (n_atoms, 3), kJ/mol/nm, at positions x (n_atoms, 3), nm; return whether they are finite.

    Positions that are not finite are not asked about.
    """
    n = len(x)
    place = carray(_numbers_at(_call(server[GET_VECTOR], (server[VECTORS], 0))), (n, 3))
    for i in range(n):
        for k in range(3):
            if not abs(x[i, k]) < FARTHEST:
                return False
            place[i, k] = x[i, k]
    _call(server[SET_POSITIONS], (server[CONTEXT], server[VECTORS]))
    state = _call(server[GET_STATE], (server[CONTEXT], server[KINDS], 0, server[GROUPS]))
    found = carray(_numbers_at(_call(server[GET_VECTOR], (_call(server[GET_FORCES], (state,)), 0))), (n, 3))
    total = 0.0
    for i in range(n):
        for k in range(3):
            force[i, k] = found[i, k]
            total += found[i, k]
    _call(server[DESTROY], (state,))
    return abs(total) < 1e300

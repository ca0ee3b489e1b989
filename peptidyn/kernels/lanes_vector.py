"""Lanes as vectors of the processor, by numba's and llvmlite's internals; what they mean is said in `lanes`.

A number of four states is one value of the type `Lanes`, which adds, multiplies and divides in vector instructions.
Nothing has to be hoped for from the compiler. Kernels must not branch on the values of lanes; `all_above` is the one
comparison. A vector of space is one such value too, of which the last number means nothing.
"""

from __future__ import annotations

import math
import operator

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from peptidyn.core.jit import njit

LANES = 4
"""States side by side: what a vector register of current processors holds."""

_DOUBLE = ir.DoubleType()
_VECTOR = ir.VectorType(_DOUBLE, LANES)


class Lanes(types.Type):
    """The type of four numbers side by side."""

    def __init__(self) -> None:
        super().__init__(name=f"Lanes{LANES}")


lanes = Lanes()
register_model(Lanes)(type("LanesModel", (models.PrimitiveModel,), {
    "__init__": lambda self, manager, kind: models.PrimitiveModel.__init__(self, manager, kind, _VECTOR)
}))  # fmt: skip


def _spread(builder, value, kind):
    """Return `value` as a vector; a float is copied to all lanes."""
    if isinstance(kind, Lanes):
        return value
    vector = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
    return builder.shuffle_vector(vector, ir.Constant(_VECTOR, ir.Undefined), mask)


# ---------------------------------------------------------------------------- arithmetic


def _register_binary(operation, emit):
    @infer_global(operation)
    class Binary(AbstractTemplate):
        def generic(self, args, kws):
            if len(args) == 2 and not kws and any(isinstance(a, Lanes) for a in args):
                return signature(lanes, *(a if isinstance(a, Lanes) else types.float64 for a in args))

    def lower(context, builder, sig, args):
        a, b = (_spread(builder, value, kind) for value, kind in zip(args, sig.args, strict=True))
        return getattr(builder, emit)(a, b)

    for pair in ((lanes, lanes), (lanes, types.float64), (types.float64, lanes)):
        lower_builtin(operation, *pair)(lower)


for _operation, _emit in (
    (operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv"),
    (operator.iadd, "fadd"), (operator.isub, "fsub"), (operator.imul, "fmul"),
):  # fmt: skip
    _register_binary(_operation, _emit)


def _register_unary(operation, emit):
    @infer_global(operation)
    class Unary(AbstractTemplate):
        def generic(self, args, kws):
            if len(args) == 1 and not kws and isinstance(args[0], Lanes):
                return signature(lanes, lanes)

    lower_builtin(operation, lanes)(lambda context, builder, sig, args: emit(builder, args[0]))


def _call(name):
    def emit(builder, value):
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_VECTOR, [_VECTOR]), f"llvm.{name}.v{LANES}f64"
        )
        return builder.call(function, [value])

    return emit


_register_unary(operator.neg, lambda builder, value: builder.fneg(value))
_register_unary(abs, _call("fabs"))
_register_unary(math.sqrt, _call("sqrt"))


@intrinsic
def all_above(typingctx, a, b):
    """Return True if a > b, in every lane."""

    def codegen(context, builder, sig, args):
        if not isinstance(sig.args[0], Lanes):
            return builder.fcmp_ordered(">", *args)
        above = builder.fcmp_ordered(">", *args)
        return builder.icmp_signed("==", builder.bitcast(above, ir.IntType(LANES)), ir.Constant(ir.IntType(LANES), -1))

    return types.boolean(a, a), codegen


@intrinsic
def plus(typingctx, a, b, c):
    """Return a + b c with one rounding. It is asked for by name, so that the last bits never depend on the compiler."""
    kinds = (a, b, c)
    wide = any(isinstance(kind, Lanes) for kind in kinds)
    number, suffix = (_VECTOR, f"v{LANES}f64") if wide else (_DOUBLE, "f64")

    def codegen(context, builder, sig, args):
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(number, [number] * 3), f"llvm.fma.{suffix}"
        )
        if wide:
            args = [_spread(builder, value, kind) for value, kind in zip(args, sig.args, strict=True)]
        return builder.call(function, [args[1], args[2], args[0]])

    result = lanes if wide else types.float64
    return result(*(kind if isinstance(kind, Lanes) else types.float64 for kind in kinds)), codegen


# ---------------------------------------------------------------------------- rows of arrays


def _is_wide(array, indices):
    """True if an element with this number of indices is lanes: the array has one more axis, of length 4."""
    if not isinstance(array, types.Array) or array.layout != "C" or array.dtype != types.float64:
        raise TypeError(f"expected a C-contiguous float64 array, got {array}")
    return {indices: False, indices + 1: True}[array.ndim]


def _pointers(context, builder, kind, array, index, n):
    """Return pointers to n numbers side by side, the first at `index`: (row, column) or (place,)."""
    made = context.make_array(kind)(context, builder, array)
    place = index[0]
    if len(index) == 2:
        columns = cgutils.unpack_tuple(builder, made.shape, kind.ndim)[1]
        place = builder.add(builder.mul(place, columns, flags=("nsw",)), index[1], flags=("nsw",))
    wide = _is_wide(kind, len(index))
    start = builder.bitcast(made.data, (_VECTOR if wide else _DOUBLE).as_pointer())
    first = builder.gep(start, [place], inbounds=True)
    return [builder.gep(first, [ir.Constant(ir.IntType(64), i)], inbounds=True) for i in range(n)]


def _load(builder, pointer):
    value = builder.load(pointer)
    value.align = 8
    return value


def _getter(array, indices, n):
    number = lanes if _is_wide(array, indices) else types.float64

    def codegen(context, builder, sig, args):
        values = [_load(builder, p) for p in _pointers(context, builder, sig.args[0], args[0], args[1:], n)]
        return values[0] if n == 1 else context.make_tuple(builder, sig.return_type, values)

    result = number if n == 1 else types.UniTuple(number, n)  # type: ignore[attr-defined]
    return result(array, *[types.int64] * indices), codegen


def _putter(array, indices, values, adding=False):
    wide = _is_wide(array, indices)
    kinds = [v if isinstance(v, Lanes) else types.float64 for v in values]

    def codegen(context, builder, sig, args):
        pointers = _pointers(context, builder, sig.args[0], args[0], args[1 : 1 + indices], len(values))
        for pointer, value, kind in zip(pointers, args[1 + indices :], kinds, strict=True):
            new = _spread(builder, value, kind) if wide else value
            if adding:
                new = builder.fadd(_load(builder, pointer), new)
            builder.store(new, pointer).align = 8
        return context.get_dummy_value()

    return types.none(array, *[types.int64] * indices, *kinds), codegen


@intrinsic
def zero(typingctx, array):
    """Return 0 as a number of an array (rows, columns) or (rows, columns, 4)."""
    number = lanes if _is_wide(array, 2) else types.float64

    def codegen(context, builder, sig, args):
        return ir.Constant(
            _VECTOR if isinstance(number, Lanes) else _DOUBLE, None if isinstance(number, Lanes) else 0.0
        )

    return number(array), codegen


@intrinsic
def at(typingctx, array, place):
    """Return one number of an array (n,) or (n, 4)."""
    return _getter(array, 1, 1)


@intrinsic
def put_at(typingctx, array, place, a):
    """Write one number of an array (n,) or (n, 4)."""
    return _putter(array, 1, (a,))


@intrinsic
def get(typingctx, array, row, column):
    """Return one number of an array (rows, columns) or (rows, columns, 4)."""
    return _getter(array, 2, 1)


@intrinsic
def get3(typingctx, array, row, column):
    """Return three numbers of a row, the first at `column`."""
    return _getter(array, 2, 3)


@intrinsic
def get6(typingctx, array, row, column):
    """Return six numbers of a row, the first at `column`."""
    return _getter(array, 2, 6)


@intrinsic
def put(typingctx, array, row, column, a):
    """Write one number of a row."""
    return _putter(array, 2, (a,))


@intrinsic
def put3(typingctx, array, row, column, a, b, c):
    """Write three numbers of a row, the first at `column`."""
    return _putter(array, 2, (a, b, c))


@intrinsic
def put6(typingctx, array, row, column, a, b, c, d, e, f):
    """Write six numbers of a row, the first at `column`."""
    return _putter(array, 2, (a, b, c, d, e, f))


@intrinsic
def add3(typingctx, array, row, column, a, b, c):
    """Add to three numbers of a row, the first at `column`."""
    return _putter(array, 2, (a, b, c), True)


@intrinsic
def add6(typingctx, array, row, column, a, b, c, d, e, f):
    """Add to six numbers of a row, the first at `column`."""
    return _putter(array, 2, (a, b, c, d, e, f), True)


# ---------------------------------------------------------------------------- vectors of space


@intrinsic
def _rolled(typingctx, a):
    """Return the lanes (y, z, x, w) of (x, y, z, w): what cross products of vectors in lanes are made of."""

    def codegen(context, builder, sig, args):
        order = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [1, 2, 0, 3])
        return builder.shuffle_vector(args[0], ir.Constant(_VECTOR, ir.Undefined), order)

    return lanes(a), codegen


@intrinsic
def get_vector(typingctx, array, row, column):
    """Return the vector in one column of an array (rows, columns, 4)."""
    if not _is_wide(array, 2):
        raise TypeError(f"expected an array (rows, columns, {LANES}), got {array}")
    return _getter(array, 2, 1)


@intrinsic
def put_vector(typingctx, array, row, column, a):
    """Write a vector into one column of an array (rows, columns, 4), or into four columns of an array (rows, columns).

    What it writes into the fourth place means nothing.
    """

    def codegen(context, builder, sig, args):
        (pointer,) = _pointers(context, builder, sig.args[0], args[0], args[1:3], 1)
        builder.store(args[3], builder.bitcast(pointer, _VECTOR.as_pointer())).align = 8
        return context.get_dummy_value()

    return types.none(array, types.int64, types.int64, lanes), codegen


@njit(forceinline=True)
def scaled(a, x):
    """Return a x."""
    return a * x


@njit(forceinline=True)
def total(x, y):
    """Return x + y."""
    return x + y


@njit(forceinline=True)
def difference(x, y):
    """Return x - y."""
    return x - y


@njit(forceinline=True)
def moved(p, a, x):
    """Return p + a x."""
    return plus(p, a, x)


@njit(forceinline=True)
def combined(a, x, b, y, c, z):
    """Return a x + b y + c z."""
    return plus(plus(a * x, b, y), c, z)


@njit(forceinline=True)
def turned(x, y, sine, cosine):
    """Return the axes x and y turned about x cross y."""
    return plus(cosine * x, sine, y), plus(cosine * y, -sine, x)


@njit(forceinline=True)
def crosses(a, x, b, y, c, z, d, w):
    """Return a x X + b x Y + c x Z + d x W, the cross products of pairs of vectors.

    a x X = rolled(a * rolled(X) - rolled(a) * X); the outer turn is done once for all.
    """
    n = plus(plus(plus(a * _rolled(x), b, _rolled(y)), c, _rolled(z)), d, _rolled(w))
    return _rolled(n - plus(plus(plus(_rolled(a) * x, _rolled(b), y), _rolled(c), z), _rolled(d), w))

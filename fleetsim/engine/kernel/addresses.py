"""Raw memory for the kernel: a record or a number at an address.

numba passes an array to a compiled function as seven arguments and counts its references; with two dozen tables per
fleet a first version of the kernel compiled for a minute and ran several times slower. An address is one argument and
is not counted. The price is that nothing checks bounds: `sizes.py` says how large each table is and who guarantees it,
and the checked build (`guard.py`) compiles a look at the table's own size into every access. These functions are the
only door to memory: the kernel computes no address elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing import Context
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype

from fleetsim.engine.compiled import is_checked
from fleetsim.engine.kernel import guard, tables

CHECKED = is_checked()
_CACHE_LINE = 64


def _word(context: Any, builder: Any, base: Any, at: int) -> Any:
    """Pointer to a word of a table's fence."""
    where = builder.add(base, context.get_constant(types.int64, 8 * at))
    return builder.inttoptr(where, ir.PointerType(ir.IntType(64)))


def _read(context: Any, builder: Any, base: Any, at: int) -> Any:
    """A word of a table's fence."""
    return builder.load(_word(context, builder, base, at))


def _refuse(context: Any, builder: Any, base: Any, index: Any, most: int, other_size: Callable[[], Any]) -> None:
    """Leaves the kernel with an error where base is no table, index not below its word `most`, or its rows others."""
    marked = builder.xor(base, context.get_constant(types.int64, guard.KEY))
    no_table = builder.icmp_unsigned("!=", _read(context, builder, base, guard.MARK), marked)
    with builder.if_then(no_table, likely=False):
        context.call_conv.return_exc(builder)
    outside = builder.icmp_unsigned(">=", index, _read(context, builder, base, most))
    with builder.if_then(builder.or_(outside, other_size()), likely=False):
        builder.store(index, _word(context, builder, base, guard.REFUSED))
        one = context.get_constant(types.int64, 1)
        times = builder.add(_read(context, builder, base, guard.REFUSALS), one)
        builder.store(times, _word(context, builder, base, guard.REFUSALS))
        context.call_conv.return_exc(builder)


def _place(context: Any, builder: Any, base: Any, index: Any, bytes_each: int) -> Any:
    """Address of row `index`."""
    size = context.get_constant(types.int64, bytes_each)
    if CHECKED:

        def other() -> Any:
            return builder.icmp_unsigned("!=", _read(context, builder, base, guard.BYTES), size)

        _refuse(context, builder, base, index, guard.ROWS, other)
    return builder.add(base, builder.mul(index, size))


def _line_place(context: Any, builder: Any, base: Any, index: Any, width: Any) -> Any:
    """Address of the first row of line `index`."""
    if CHECKED:
        given = width

        def other() -> Any:
            rows, each = (_read(context, builder, base, at) for at in (guard.ROWS, guard.BYTES))
            return builder.icmp_unsigned("!=", builder.mul(rows, each), given)

        _refuse(context, builder, base, index, guard.LINES, other)
        word, fence = (context.get_constant(types.int64, n) for n in (7, guard.FENCE))
        width = builder.add(builder.and_(builder.add(width, word), builder.not_(word)), fence)
    return builder.add(base, builder.mul(index, width))


def _record(dtype: np.dtype[Any]) -> Callable[[int, int], Any]:
    """An intrinsic (base address, index) -> record of that dtype, in place."""
    kind = from_dtype(dtype)

    def at(_typing: Context, base: Any, index: Any) -> Any:
        signature = kind(types.int64, types.int64)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            where = _place(context, builder, args[0], args[1], dtype.itemsize)
            return builder.inttoptr(where, context.get_value_type(kind))

        return signature, codegen

    return intrinsic(at)


def _load(kind: Any, size: int) -> Callable[[int, int], Any]:
    """An intrinsic (base address, index) -> the number there, integers widened to 64 bits."""
    wide = types.float64 if kind is types.float64 else types.int64

    def at(_typing: Context, base: Any, index: Any) -> Any:
        signature = wide(types.int64, types.int64)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            where = _place(context, builder, args[0], args[1], size)
            number = builder.load(builder.inttoptr(where, ir.PointerType(context.get_value_type(kind))))
            return context.cast(builder, number, kind, wide)

        return signature, codegen

    return intrinsic(at)


def _store(kind: Any, size: int) -> Callable[[int, int, Any], None]:
    """An intrinsic (base address, index, number): writes it there."""

    def put(_typing: Context, base: Any, index: Any, value: Any) -> Any:
        signature = types.void(types.int64, types.int64, kind)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            where = _place(context, builder, args[0], args[1], size)
            builder.store(args[2], builder.inttoptr(where, ir.PointerType(context.get_value_type(kind))))
            return context.get_dummy_value()

        return signature, codegen

    return intrinsic(put)


def _early(dtype: np.dtype[Any]) -> Callable[[int, int], None]:
    """An intrinsic (base address, index): the row is on its way from memory when it is read; of no row it does nothing.

    Lists of requests lead through all of memory, and the next row takes longer to come than all that is done to one.
    """

    def fetch(_typing: Context, base: Any, index: Any) -> Any:
        signature = types.void(types.int64, types.int64)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            row = builder.add(args[0], builder.mul(args[1], context.get_constant(types.int64, dtype.itemsize)))
            byte, word = ir.PointerType(ir.IntType(8)), ir.IntType(32)
            ask = builder.module.declare_intrinsic(
                "llvm.prefetch", (byte,), ir.FunctionType(ir.VoidType(), (byte, word, word, word))
            )
            for at in range(0, dtype.itemsize, _CACHE_LINE):
                where = builder.inttoptr(builder.add(row, context.get_constant(types.int64, at)), byte)
                builder.call(ask, (where, *(ir.Constant(word, n) for n in (1, 3, 1))))  # to write, to keep, data
            return context.get_dummy_value()

        return signature, codegen

    return intrinsic(fetch)


def _line(_typing: Context, base: Any, index: Any, width: Any) -> Any:
    """(base address of a table of two axes, line, bytes of a line) -> base address of the line."""
    signature = types.int64(types.int64, types.int64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _line_place(context, builder, *args)

    return signature, codegen


line_at = intrinsic(_line)
fleet_at = _record(tables.FLEET)
sample_at = _record(tables.SAMPLE)
group_at = _record(tables.GROUP)
prefix_at = _record(tables.PREFIX)
instance_at = _record(tables.INSTANCE)
pool_at = _record(tables.POOL)
log_at = _record(tables.LOG)
station_at = _record(tables.STATION)
visit_at = _record(tables.VISIT)
lane_at = _record(tables.LANE)
deadline_at = _record(tables.DEADLINE)
fetch_sample, fetch_group, fetch_prefix = _early(tables.SAMPLE), _early(tables.GROUP), _early(tables.PREFIX)
int64_at, put_int64 = _load(types.int64, 8), _store(types.int64, 8)
int32_at, put_int32 = _load(types.int32, 4), _store(types.int32, 4)
float_at, put_float = _load(types.float64, 8), _store(types.float64, 8)

"""Raw memory for the kernel: a record or a number at an address.

numba passes an array to a compiled function as seven arguments and counts its references; with two dozen tables per
fleet a first version of the kernel compiled for a minute and ran several times slower. An address is one argument and
is not counted. The price is that nothing checks bounds, so `state.py` sizes every table for the worst case before the
kernel runs.
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

from fleetsim.engine.kernel import tables


def _record(dtype: np.dtype[Any]) -> Callable[[int, int], Any]:
    """An intrinsic (base address, index) -> record of that dtype, in place."""
    kind = from_dtype(dtype)

    def at(_typing: Context, base: Any, index: Any) -> Any:
        signature = kind(types.int64, types.int64)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            size = context.get_constant(types.int64, dtype.itemsize)
            where = builder.add(args[0], builder.mul(args[1], size))
            return builder.inttoptr(where, context.get_value_type(kind))

        return signature, codegen

    return intrinsic(at)


def _load(kind: Any, size: int) -> Callable[[int, int], Any]:
    """An intrinsic (base address, index) -> the number there, integers widened to 64 bits."""
    wide = types.float64 if kind is types.float64 else types.int64

    def at(_typing: Context, base: Any, index: Any) -> Any:
        signature = wide(types.int64, types.int64)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            where = builder.add(args[0], builder.mul(args[1], context.get_constant(types.int64, size)))
            number = builder.load(builder.inttoptr(where, ir.PointerType(context.get_value_type(kind))))
            return context.cast(builder, number, kind, wide)

        return signature, codegen

    return intrinsic(at)


def _store(kind: Any, size: int) -> Callable[[int, int, Any], None]:
    """An intrinsic (base address, index, number): writes it there."""

    def put(_typing: Context, base: Any, index: Any, value: Any) -> Any:
        signature = types.void(types.int64, types.int64, kind)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            where = builder.add(args[0], builder.mul(args[1], context.get_constant(types.int64, size)))
            builder.store(args[2], builder.inttoptr(where, ir.PointerType(context.get_value_type(kind))))
            return context.get_dummy_value()

        return signature, codegen

    return intrinsic(put)


fleet_at = _record(tables.FLEET)
sample_at = _record(tables.SAMPLE)
group_at = _record(tables.GROUP)
prefix_at = _record(tables.PREFIX)
instance_at = _record(tables.INSTANCE)
log_at = _record(tables.LOG)
int64_at, put_int64 = _load(types.int64, 8), _store(types.int64, 8)
int32_at, put_int32 = _load(types.int32, 4), _store(types.int32, 4)
float_at, put_float = _load(types.float64, 8), _store(types.float64, 8)

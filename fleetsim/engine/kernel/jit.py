"""The two decorators of the kernel: `compiled` for what the kernel calls, `entry` for what Python calls.

A first compilation must stay within a few seconds. So only entries get a Python wrapper and a place in the cache on
disk (their callees are linked into them); all integers passed around are 64 bits wide (a second integer type would
mean a second compilation of every function it reaches); and LLVM optimises at level 1 without vectorising, which
compiles faster and runs no slower here: the kernel chases indices, it has no loops over numbers.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numba

from fleetsim.engine.compiled import use_cache

F = TypeVar("F", bound=Callable[..., object])

use_cache()


def compiled(function: F) -> F:
    """A function of the kernel's own; divisions follow numpy (no zero checks in the hot loop)."""
    return numba.njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)


def entry(signature: str) -> Callable[[F], F]:
    """A function that Python calls: compiled, or read from the cache on disk, when its module is imported."""

    def decorate(function: F) -> F:
        with _quick_compilation():
            return numba.njit(signature, cache=True, error_model="numpy", no_cfunc_wrapper=True)(function)

    return decorate


@contextmanager
def _quick_compilation() -> Iterator[None]:
    """Other users of numba in this process keep their own settings."""
    before = numba.config.OPT, numba.config.LOOP_VECTORIZE, gc.isenabled()
    numba.config.OPT, numba.config.LOOP_VECTORIZE = 1, 0
    gc.disable()  # the compiler allocates millions of short-lived objects and no cycles that matter
    try:
        yield
    finally:
        numba.config.OPT, numba.config.LOOP_VECTORIZE = before[:2]
        if before[2]:
            gc.enable()

"""The two decorators of the kernel: `compiled` for what the kernel calls, `entry` for what is called from outside.

All integers passed around are 64 bits wide: a second integer type would mean a second compilation of every function
it reaches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numba

from fleetsim.engine.kernel.pipeline import KernelCompiler

F = TypeVar("F", bound=Callable[..., object])
# divisions follow numpy: no zero checks in the hot loop
_OPTIONS = {
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": KernelCompiler,
}


def compiled(function: F) -> F:
    """A function of the kernel's own."""
    return numba.njit(**_OPTIONS)(function)


def entry(signature: str) -> Callable[[F], F]:
    """A function that `native.py` calls: compiled, with all it calls, when its module is imported."""

    def decorate(function: F) -> F:
        return numba.njit(signature, **_OPTIONS)(function)

    return decorate

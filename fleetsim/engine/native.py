"""The kernel as machine code, ready to be called: a shared library, or compiled now where there is none.

A checkout whose sources changed since it was installed has no library of them: numba compiles them, which takes
seconds, and the library is kept for later processes. So whoever installed a wheel needs no compiler.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

from fleetsim.engine.compiled import asked_build, is_checked, is_compiled, is_fresh, library
from fleetsim.engine.kernel.guard import inspect
from fleetsim.errors import InputError, OutsideError, Problem

# numba's calling convention: status = f(&result, &exception, arguments...); 0 is success
ENTRIES: dict[str, tuple[type, tuple[type, ...]]] = {
    "fleetsim_advance": (ctypes.c_int64, (ctypes.c_int64, ctypes.c_double, ctypes.c_int64)),
    "fleetsim_command": (
        ctypes.c_double,
        (ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_double, ctypes.c_double),
    ),
}


def _callable(address: int, result: type, arguments: tuple[type, ...]) -> Callable[..., float]:
    """The entry as a Python function; it runs without the interpreter lock."""
    native = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *arguments)(address)
    places = result * 2  # of the result and of the exception

    def call(*values: float) -> float:
        out = places()
        at = ctypes.addressof(out)
        status = native(at, at + 8, *values)
        if status:
            if is_checked():
                inspect(int(values[0]))
            raise RuntimeError(f"the simulation kernel failed with status {status}")
        return out[0]  # type: ignore[no-any-return]

    return call


def from_library(path: str) -> dict[str, Callable[..., float]]:
    """The entries of a library. Raises OutsideError where this machine cannot load it."""
    try:
        loaded = ctypes.CDLL(path)
    except OSError as error:
        raise OutsideError(
            f"the simulation kernel cannot be loaded: {error}; install fleetsim again for this machine, or, in a "
            "checkout, delete the file"
        ) from error
    return _entries({name: ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value or 0 for name in ENTRIES})


def _entries(addresses: dict[str, int]) -> dict[str, Callable[..., float]]:
    return {name: _callable(addresses[name], *of) for name, of in ENTRIES.items()}


def _compiled_now() -> dict[str, Callable[..., float]]:
    """The entries of a kernel that numba compiles; kept as a library where there is a linker and the folder can be
    written. Raises OutsideError without numba."""
    try:
        from fleetsim.engine.kernel.build import build, in_memory, kernel_code
    except ImportError as error:
        raise OutsideError(
            f"the simulation kernel is not built for this machine ({library().name} is missing), and numba, which "
            f"compiles it, cannot be imported ({error}): pip install 'fleetsim[kernel]', or install a wheel"
        ) from error
    print("note: numba compiles the simulation kernel, which takes some seconds", file=sys.stderr)
    code = kernel_code()
    if not is_fresh() and build(code, library()):
        return from_library(str(library()))
    return _entries(in_memory(code, tuple(ENTRIES)))


def _load() -> dict[str, Callable[..., float]]:
    """Raises InputError for another build than there are: whoever misspells it would believe that indices are
    checked."""
    asked = asked_build()
    if asked and not is_checked() and not is_fresh():
        rule = "checked and fresh are the only other builds there are"
        raise InputError([Problem("FLEETSIM_KERNEL", asked, rule, "set it to one of them, or unset it")])
    return from_library(str(library())) if is_compiled() else _compiled_now()


_calls = _load()


def advance(fleet: int, limit: float, want: int) -> int:
    """`kernel.fleet.advance`."""
    return int(_calls["fleetsim_advance"](fleet, limit, want))


def command(fleet: int, what: int, which: int, t: float, value: float) -> float:
    """`kernel.control.command`."""
    return _calls["fleetsim_command"](fleet, what, which, t, value)

"""The kernel as machine code: from disk if this machine has it, else from LLVM code, else compiled; then called.

Importing numba and waking its compiler takes a second, and compiling the kernel takes several: more than all of
`fleetsim size` besides. So a wheel carries the kernel as LLVM code (`build_hook.py` puts it there), from which
llvmlite, which numba brings, makes machine code for this processor in a third of a second, once. A checkout has no
such file: there the first use compiles the kernel with numba, and the LLVM code is kept for whoever builds a wheel.
Either way the machine code is kept, and every later process just loads it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import llvmlite.binding as llvm

from fleetsim.engine.compiled import (
    CODE,
    LLVM_CODE,
    asked_build,
    cache_folder,
    identity,
    is_checked,
    shipped_code,
    strange,
    warn,
)
from fleetsim.engine.kernel.guard import inspect
from fleetsim.errors import InputError, Problem

# numba's calling convention: status = f(&result, &exception, arguments...); 0 is success
_ENTRIES: dict[str, tuple[type, tuple[type, ...]]] = {
    "fleetsim_advance": (ctypes.c_int64, (ctypes.c_int64, ctypes.c_double, ctypes.c_int64)),
    "fleetsim_command": (
        ctypes.c_double,
        (ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_double, ctypes.c_double),
    ),
}


def _machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True, codemodel="jitdefault"
    )


def _module() -> llvm.ModuleRef:
    """The kernel's LLVM code, parsed: the package's own, or compiled now."""
    code = shipped_code()
    if code is not None:
        try:
            return llvm.parse_assembly(code)
        except RuntimeError:
            pass  # made by a newer LLVM than this one, which cannot read it
    return llvm.parse_assembly(llvm_code())


def llvm_code() -> str:
    """The kernel as LLVM code, headed by the digests of its sources and of itself: kept on this machine, or compiled
    now, which takes seconds, and kept."""
    path = cache_folder() / LLVM_CODE
    kept = _read(path)
    if kept is None:
        from fleetsim.engine.kernel.build import kernel_code

        kept = kernel_code().encode()
        _write(path, kept)
    return kept.decode()


def _compile(machine: llvm.TargetMachine) -> bytes:
    """Machine code of the kernel for this processor."""
    module = _module()
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    return bytes(machine.emit_object(module))


def _read(path: Path) -> bytes | None:
    """The machine code in a file that is the user's own and starts with its checksum and what it must be of.

    None if it does not. The very file and folder that were looked at are read: no path is followed twice.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        with ExitStack() as opened:
            opened.callback(os.close, folder)
            fd = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            file = opened.enter_context(open(fd, "rb"))
            why = strange(os.fstat(folder)) or strange(os.fstat(fd))
            if why is not None:
                warn(path, why)
                return None
            head, of, code = file.read().split(b"\n", 2)
    except (OSError, ValueError):
        return None
    return code if of == _of() and head == _checksum(code) else None


def _write(path: Path, code: bytes) -> None:
    """All or nothing, also with two processes at once or a killed one; a cache that cannot be written is no error."""
    with suppress(OSError), ExitStack() as on_error:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(dir=path.parent)
        on_error.callback(Path(name).unlink, missing_ok=True)
        with open(fd, "wb") as file:
            file.write(b"\n".join([_checksum(code), _of(), code]))
        os.replace(name, path)


def _checksum(code: bytes) -> bytes:
    return hashlib.sha256(_of() + code).hexdigest().encode()


def _of() -> bytes:
    """What machine code must be of: its sources and compilers, and this processor, for homes may be shared."""
    return f"{identity()}; {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}".encode()


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


def _check_build() -> None:
    """Raises InputError for a build that there is not: whoever misspells it would believe that indices are checked."""
    asked = asked_build()
    if asked and not is_checked():
        rule = "checked is the only other build there is"
        raise InputError([Problem("FLEETSIM_KERNEL", asked, rule, "set it to checked, or unset it")])


def _load() -> tuple[llvm.ExecutionEngine, dict[str, Callable[..., float]]]:
    """The engine that owns the machine code, and the entries. Raises InputError for another build than there are."""
    _check_build()
    machine, path = _machine(), cache_folder() / CODE
    code = _read(path)
    if code is None:
        code = _compile(machine)
        _write(path, code)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine, {
        name: _callable(engine.get_function_address(name), result, arguments)
        for name, (result, arguments) in _ENTRIES.items()
    }


_engine, _entries = _load()


def advance(fleet: int, limit: float, want: int) -> int:
    """`kernel.fleet.advance`."""
    return int(_entries["fleetsim_advance"](fleet, limit, want))


def command(fleet: int, what: int, which: int, t: float, value: float) -> float:
    """`kernel.control.command`."""
    return _entries["fleetsim_command"](fleet, what, which, t, value)

"""The compiled kernel, from disk if it was compiled before: no numba on that way.

Importing numba and waking its compiler takes about a second, more than all of `fleetsim size` besides. So the first
use compiles the kernel with numba, takes the optimised LLVM code of its two entries, and keeps it as an object file
for this processor; every later process hands that file to LLVM (llvmlite, which numba brings) and calls into it.

The file is kept with the processor's name and its own checksum, in a folder named after the kernel's sources and the
versions of its compilers: anything else is compiled anew.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm

from fleetsim.engine.compiled import CODE, SYMBOLS, cache_folder

# numba's calling convention: status = f(&result, &exception, arguments...); 0 is success
_ENTRIES: dict[str, tuple[type, tuple[type, ...]]] = {
    "advance": (ctypes.c_int64, (ctypes.c_int64, ctypes.c_double, ctypes.c_int64)),
    "command": (
        ctypes.c_double,
        (ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_double, ctypes.c_double),
    ),
}


def _machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=1, jit=True, codemodel="jitdefault"
    )


def _host() -> str:
    """The processor that object code is for: a home directory may be shared by different ones."""
    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def _compile() -> tuple[bytes, dict[str, str]]:
    """Object code of the kernel and the symbol of each entry."""
    collecting = gc.isenabled()
    gc.disable()  # the compiler makes millions of short-lived objects and no cycles that matter
    try:
        from fleetsim.engine.kernel.control import command
        from fleetsim.engine.kernel.fleet import advance
        from fleetsim.engine.kernel.pipeline import plain_code

        symbols, module = {}, llvm.parse_assembly("")
        for name, function in (("advance", advance), ("command", command)):
            symbols[name], code = plain_code(function)
            module.link_in(llvm.parse_assembly(code))
    finally:
        if collecting:
            gc.enable()
    machine = _machine()
    _optimise(module, machine, set(symbols.values()))
    return machine.emit_object(module), symbols


def _optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine, keep: set[str]) -> None:
    """LLVM's standard passes, once, over the whole kernel; only the entries stay visible."""
    for function in module.functions:
        if not function.is_declaration and function.name not in keep:
            function.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = False  # the kernel chases indices, it has no loops over numbers
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def _write(path: Path, data: bytes) -> None:
    """All or nothing, also with two processes at once; a cache that cannot be written is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        os.replace(file.name, path)
    except OSError:
        pass


def _load() -> dict[str, Callable[..., float]]:
    folder = cache_folder()
    try:
        code, symbols = (folder / CODE).read_bytes(), json.loads((folder / SYMBOLS).read_text())
        known = symbols["host"] == _host() and symbols["sha256"] == hashlib.sha256(code).hexdigest()
    except (OSError, ValueError, KeyError):
        known = False
    if not known:
        code, symbols = _compile()
        symbols |= {"host": _host(), "sha256": hashlib.sha256(code).hexdigest()}
        _write(folder / CODE, code)
        _write(folder / SYMBOLS, json.dumps(symbols, indent=1).encode())
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _keep.append(engine)  # the code lives as long as its engine
    return {
        name: _callable(engine.get_function_address(symbols[name]), result, arguments)
        for name, (result, arguments) in _ENTRIES.items()
    }


_keep: list[llvm.ExecutionEngine] = []


def _callable(address: int, result: type, arguments: tuple[type, ...]) -> Callable[..., float]:
    """The entry as a Python function; it runs without the interpreter lock."""
    native = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *arguments)(address)

    def call(*values: float) -> float:
        out, exception = result(), ctypes.c_void_p()
        status = native(ctypes.addressof(out), ctypes.addressof(exception), *values)
        if status:
            raise RuntimeError(f"the simulation kernel failed with status {status}")
        return out.value  # type: ignore[no-any-return]

    return call


_entries = _load()


def advance(fleet: int, limit: float, want: int) -> int:
    """`kernel.fleet.advance`."""
    return int(_entries["advance"](fleet, limit, want))


def command(fleet: int, what: int, which: int, t: float, value: float) -> float:
    """`kernel.control.command`."""
    return _entries["command"](fleet, what, which, t, value)

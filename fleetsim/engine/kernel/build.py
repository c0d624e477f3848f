"""The kernel as LLVM code, as machine code in this process, and as a shared library for any system that there is.

The code holds offsets, 64-bit numbers and calls of nothing outside, so one machine can build the library of every
other: LLVM writes the object code, and a linker makes it a library. That is the system's own, or `ziglang` from pip,
which knows all systems.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm


@dataclass(frozen=True)
class Target:
    """A system that a library is built for. triple, cpu: as LLVM names them; zig: as zig does. tag: of a wheel."""

    triple: str
    cpu: str
    zig: str
    tag: str


# By `sys.platform` and `platform.machine()`. A Linux library needs no libc, so it suits every one.
TARGETS = {
    ("linux", "x86_64"): Target(
        "x86_64-unknown-linux-gnu",
        "x86-64-v2",
        "x86_64-linux-gnu",
        "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
    ),
    ("linux", "aarch64"): Target(
        "aarch64-unknown-linux-gnu",
        "generic",
        "aarch64-linux-gnu",
        "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
    ),
    ("darwin", "x86_64"): Target("x86_64-apple-macosx11.0", "x86-64-v2", "x86_64-macos", "macosx_11_0_x86_64"),
    ("darwin", "arm64"): Target("arm64-apple-macosx11.0", "apple-m1", "aarch64-macos", "macosx_11_0_arm64"),
    ("win32", "amd64"): Target("x86_64-pc-windows-gnu", "x86-64-v2", "x86_64-windows-gnu", "win_amd64"),
}


def this_machine() -> tuple[str, str]:
    """Its key in TARGETS, whether or not it is there."""
    return sys.platform, platform.machine().lower()


def kernel_code() -> str:
    """LLVM code of the whole kernel, optimised once, for no processor in particular, its two entries under plain
    names. Takes seconds."""
    collecting = gc.isenabled()
    gc.disable()  # the compiler makes millions of short-lived objects and no cycles that matter
    try:
        from fleetsim.engine.kernel.control import command
        from fleetsim.engine.kernel.fleet import advance
        from fleetsim.engine.kernel.pipeline import plain_code

        module = llvm.parse_assembly("")
        for name, function in (("fleetsim_advance", advance), ("fleetsim_command", command)):
            symbol, code = plain_code(function)
            module.link_in(llvm.parse_assembly(code))
            module.get_function(symbol).name = name
    finally:
        if collecting:
            gc.enable()
    _optimise(module)
    lines = [
        line for line in str(module).splitlines() if not line.startswith(("target ", "; ModuleID", "source_filename"))
    ]
    return "\n".join([*lines, ""])


def _optimise(module: llvm.ModuleRef) -> None:
    """LLVM's standard passes, once, over everything; only the entries stay visible."""
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and not value.name.startswith("fleetsim_"):
            value.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = False  # the kernel chases indices, it has no loops over numbers
    options.slp_vectorization = False
    llvm.initialize_native_target()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu="generic")
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def _emitted(code: str, machine: llvm.TargetMachine) -> bytes:
    module = llvm.parse_assembly(code)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    return bytes(machine.emit_object(module))


def in_memory(code: str, names: Sequence[str]) -> dict[str, int]:
    """Addresses of the entries, in machine code for this very processor, which lives as long as the process."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=2,
        jit=True,
        codemodel="jitdefault",
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(_emitted(code, machine)))
    engine.finalize_object()
    _ENGINES.append(engine)
    return {name: engine.get_function_address(name) for name in names}


_ENGINES: list[Any] = []  # what owns the code in memory


def linker(key: tuple[str, str]) -> list[str] | None:
    """The command that makes a library of an object file, without the files' names; None where there is none."""
    if importlib.util.find_spec("ziglang") is not None and key in TARGETS:
        own = ["-Wl,--no-entry"] if key[0] == "win32" else []
        return [sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[key].zig, "-shared", "-s", "-nostdlib", *own]
    found = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if found is None or key != this_machine() or sys.platform == "win32":
        return None
    return [found, "-shared", *(["-nostdlib", "-s"] if sys.platform == "linux" else [])]


def build(code: str, path: Path, key: tuple[str, str] | None = None) -> bool:
    """Makes the library `path` for a system of TARGETS (default: this one): whole, or not at all.

    Returns False where there is no linker for it or the folder cannot be written. Raises CalledProcessError where the
    linker fails.
    """
    key = key or this_machine()
    link = linker(key)
    if link is None or key not in TARGETS:
        return False
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = TARGETS[key]
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, opt=2, reloc="pic", codemodel="small"
    )
    if key[0] == "win32":
        code += "\n@_fltused = global i32 0\n"  # whoever computes with floats there must have it
    with ExitStack() as stack:
        try:
            path.parent.mkdir(exist_ok=True)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=path.parent)))
        except OSError:
            return False
        (folder / "kernel.o").write_bytes(_emitted(code, machine))
        subprocess.run([*link, "-o", path.name, "kernel.o"], cwd=folder, check=True, capture_output=True)
        build_name, _, system = path.name.split("-", 2)
        for old in path.parent.glob(f"{build_name}-*-{system}"):
            old.unlink()  # of sources that are no more
        os.replace(folder / path.name, path)
    return True

"""The kernel as LLVM code: optimised once, for no processor in particular, its two entries under plain names."""

from __future__ import annotations

import gc

import llvmlite.binding as llvm

from fleetsim.engine.compiled import headed


def kernel_code() -> str:
    """LLVM code of the whole kernel, headed by the digests of its sources and of itself. Takes seconds."""
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
    # The code holds offsets and 64-bit numbers, nothing of the machine it was made on: `native.py` names its own.
    lines = [
        line for line in str(module).splitlines() if not line.startswith(("target ", "; ModuleID", "source_filename"))
    ]
    return headed("\n".join([*lines, ""]))


def _optimise(module: llvm.ModuleRef) -> None:
    """LLVM's standard passes, once, over everything; only the entries stay visible."""
    for function in module.functions:
        if not function.is_declaration and not function.name.startswith("fleetsim_"):
            function.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = False  # the kernel chases indices, it has no loops over numbers
    options.slp_vectorization = False
    llvm.initialize_native_target()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu="generic")
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)

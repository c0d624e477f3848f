"""How the kernel is compiled: numba's own passes, but only those it needs, and LLVM's work once instead of 80 times.

numba optimises every function together with everything it calls, and turns each into machine code, before it looks
at the caller; for a tree of functions that is the same work over and over. Here each function only becomes plain
LLVM code; `native.py` optimises the entries, with everything linked into them, once.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, _LowerResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import (
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import FixupArgs, IRProcessing, TranslateByteCode

# What all schedulers do alike is a body in each of them, not a call: parts of mangled names, module and function.
INLINED = ("6kernel5batch", "blocks7look_up", "blocks10hold_found", "instance19iterations_that_fit")


class PlainLibrary(JITCodeLibrary):  # type: ignore[misc]
    """LLVM code of one function and all it calls, linked and otherwise left alone."""

    def add_ir_module(self, ir_module: Any) -> None:
        """As numba's. Inlining is asked for here: llvmlite 0.47 and older cannot add it to parsed code
        (it hangs the attribute on the result, which LLVM then refuses to read)."""
        for function in ir_module.functions:
            if not function.is_declaration and any(part in function.name for part in INLINED):
                function.attributes.add("alwaysinline")
        super().add_ir_module(ir_module)

    def _optimize_functions(self, ll_module: Any) -> None:
        pass

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class PlainLowering(NativeLowering):  # type: ignore[misc]
    """Lowers a function into a PlainLibrary and makes it known to its callers; nothing is made executable."""

    _name = "fleetsim_plain_lowering"

    def run_pass(self, state: Any) -> bool:
        """As numba's, into a library that is left alone."""
        state.library = PlainLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags = state.flags.copy()
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        key: Any = [].append  # callers find the function by it: numba wants a built-in, and no two of these are equal
        state.targetctx.insert_user_function(key, lowered.fndesc, [state.library])
        state["cr"] = _LowerResult(lowered.fndesc, lowered.call_helper, cfunc=key, env=lowered.env)
        return True


class KernelCompiler(CompilerBase):  # type: ignore[misc]
    """numba's pipeline without what the kernel does not use: closures, literals, array expressions, parallel loops."""

    def define_pipelines(self) -> list[PassManager]:
        """One pipeline of eight passes."""
        passes = PassManager("fleetsim_kernel")
        for step, name in (
            (TranslateByteCode, "analyzing bytecode"),
            (FixupArgs, "fix up args"),
            (IRProcessing, "processing IR"),
            (NopythonTypeInference, "nopython frontend"),
            (PreLowerStripPhis, "remove phis nodes"),
            (IRLegalization, "ensure IR is legal prior to lowering"),
            (PlainLowering, "plain lowering"),
            (NoPythonBackend, "nopython mode backend"),
        ):
            passes.add_pass(step, name)
        passes.finalize()
        return [passes]


def plain_code(dispatcher: Any) -> tuple[str, str]:
    """Symbol and LLVM code of a function that was compiled for one signature, with all that it calls."""
    (compiled,) = dispatcher.overloads.values()
    with global_compiler_lock:
        compiled.library._ensure_finalized()
    return compiled.fndesc.llvm_func_name, compiled.library.get_llvm_str()

"""Puts the kernel into a wheel as LLVM code, so that whoever installs it need not wait for a compiler.

Run by hatchling while it builds a wheel. Where numba is missing or fails there, the wheel is built without: the
kernel is then compiled at its first use.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds fleetsim/_data/kernel.ll to a wheel."""

    PLUGIN_NAME = "kernel"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles the kernel of the tree that is being built, unless this machine has done so."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        try:
            from fleetsim.engine.native import llvm_code

            code = llvm_code()
        except Exception as error:  # noqa: BLE001 - a wheel without it works as well, only slower at first
            self.app.display_warning(f"kernel not compiled into the wheel: {error!r}")
            return
        finally:
            sys.path.remove(self.root)
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "kernel.ll"
        path.write_text(code)
        build_data["force_include"][str(path)] = "fleetsim/_data/kernel.ll"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what `initialize` wrote."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            folder.cleanup()

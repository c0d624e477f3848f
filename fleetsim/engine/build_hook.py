"""Builds the kernel's shared library: into a wheel, or into a checkout that is installed with `pip install -e`.

Run by hatchling. Where numba or a linker is missing or fails there, fleetsim is installed without: numba is then needed
to run it. FLEETSIM_TARGET=darwin-arm64 builds the wheel of another system (`kernel/build.py` names them all).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds fleetsim/engine/built/kernel-*.so to a wheel."""

    PLUGIN_NAME = "kernel"

    def dependencies(self) -> list[str]:
        """A linker, where the system has none that will do."""
        own = any(map(shutil.which, ("cc", "gcc", "clang"))) and "FLEETSIM_TARGET" not in os.environ
        return [] if own and sys.platform != "win32" else ["ziglang>=0.14"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds the library of the tree that is being built, unless it is there."""
        sys.path.insert(0, self.root)
        try:
            from fleetsim.engine.compiled import is_fresh, library
            from fleetsim.engine.kernel.build import TARGETS, build, kernel_code, this_machine

            if is_fresh() and version == "editable":
                return  # whoever runs it there does not want this one
            asked = os.environ.get("FLEETSIM_TARGET", "-".join(this_machine()))
            key = next(key for key in TARGETS if "-".join(key) == asked)
            path = library(*key)
            if version != "editable" and not path.is_file():
                self._folder = tempfile.TemporaryDirectory()
                path = Path(self._folder.name, path.name)
            if not path.is_file() and not build(kernel_code(), path, key):
                raise FileNotFoundError("no linker, or no folder to write to")
        except Exception as error:  # noqa: BLE001 - without it fleetsim works as well, if numba is there
            self.app.display_warning(f"kernel not built; to run fleetsim, numba is needed: {error!r}")
            return
        finally:
            sys.path.remove(self.root)
        if version != "editable":
            build_data["force_include"][str(path)] = f"fleetsim/engine/built/{path.name}"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{TARGETS[key].tag}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what `initialize` wrote."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            folder.cleanup()

"""Where the compiled kernel lives on disk, and whether it is there already.

The folder is named after a hash of the kernel's sources and the versions of what compiles them, so that new sources
never meet old code. This module imports nothing heavy: the command line asks it before it decides on a spinner.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path

KERNEL = Path(__file__).parent / "kernel"
CODE, SYMBOLS = "kernel.o", "symbols.json"


def cache_root() -> Path:
    """FLEETSIM_CACHE_DIR, else XDG_CACHE_HOME/fleetsim, else ~/.cache/fleetsim; a temporary folder if unwritable."""
    chosen = os.environ.get("FLEETSIM_CACHE_DIR")
    base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fleetsim"
    try:
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=base):
            return base
    except OSError:
        return Path(tempfile.gettempdir()) / f"fleetsim-{os.getuid() if hasattr(os, 'getuid') else 'user'}"


def cache_folder() -> Path:
    """The folder of this kernel, compiled by these versions for this kind of processor."""
    digest = hashlib.sha256()
    for source in sorted(KERNEL.glob("*.py")):
        digest.update(source.read_bytes())
    for package in ("numba", "llvmlite", "numpy"):
        digest.update(f"{package} {version(package)};".encode())
    digest.update(f"{platform.system()} {platform.machine()} {platform.python_version()}".encode())
    return cache_root() / f"kernel-{digest.hexdigest()[:16]}"


def is_compiled() -> bool:
    """Whether the kernel was compiled on this machine before (else the first run takes seconds longer)."""
    folder = cache_folder()
    return (folder / CODE).exists() and (folder / SYMBOLS).exists()

"""Where the compiled kernel lives, and whether it is there already.

The cache folder is named after a digest of the kernel's sources and the versions of what compiles them, so that new
sources never meet old code. This module imports nothing heavy: the command line asks it before it decides on a
progress line.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path

KERNEL = Path(__file__).parent / "kernel"
CODE = "kernel.o"
SHIPPED = Path(__file__).parent.parent / "_data" / "kernel.ll"


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


def sources_digest() -> str:
    """Digest of the kernel's sources."""
    digest = hashlib.sha256()
    for source in sorted(KERNEL.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:32]


def cache_folder() -> Path:
    """The folder of this kernel, compiled by these versions for this kind of machine."""
    compilers = [f"{package} {version(package)}" for package in ("numba", "llvmlite", "numpy")]
    machine = f"{platform.system()} {platform.machine()} {platform.python_version()}"
    digest = hashlib.sha256("; ".join([sources_digest(), *compilers, machine]).encode())
    return cache_root() / f"kernel-{digest.hexdigest()[:16]}"


def shipped_code() -> str | None:
    """The kernel as LLVM code, if the package carries it and it was made from these very sources."""
    try:
        code = SHIPPED.read_text()
    except OSError:
        return None
    return code if code.startswith(f"; fleetsim kernel {sources_digest()}\n") else None


def is_compiled() -> bool:
    """Whether this machine can start the kernel without compiling it (which takes seconds, once)."""
    return (cache_folder() / CODE).exists() or shipped_code() is not None

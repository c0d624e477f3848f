"""Where compiled kernels live on disk, and whether they are there already.

numba checks a cached function against its own file only, so a change in a callee in another file would go unnoticed.
The cache folder is therefore named after a hash of all kernel sources: new sources, new folder.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

KERNEL = Path(__file__).parent / "kernel"


def _digest() -> str:
    digest = hashlib.sha256()
    for source in sorted(KERNEL.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


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
    """The folder of this kernel's compiled functions."""
    return cache_root() / f"kernel-{_digest()}"


def is_compiled() -> bool:
    """Whether the kernel's entry point has been compiled on this machine (a first run takes seconds longer)."""
    return any(cache_folder().rglob("*fleet.advance*.nbc"))


def use_cache() -> None:
    """Points numba at the folder; call before the first kernel function is decorated."""
    import numba

    numba.config.CACHE_DIR = str(cache_folder())

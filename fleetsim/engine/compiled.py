"""Where the compiled kernel lives, whether it is there already, and whether it may be run.

The cache folder is named after a digest of the kernel's sources, the versions of what compiles them and the user, so
that new sources never meet old code. What lies there is run without a further question, so it must be the user's own:
a folder that somebody else owns or may write to is left alone, with a warning, and another one is used. This module
imports nothing heavy: the command line asks it before it decides on a progress line.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import shutil
import stat
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

from fleetsim.visible import visible

KERNEL = Path(__file__).parent / "kernel"
CODE, LLVM_CODE = "kernel.o", "kernel.ll"
SHIPPED = Path(__file__).parent.parent / "_data" / "kernel.ll"
# Set to what was warned of: the processes that this one starts say it no second time.
TOLD = "_FLEETSIM_CACHE_TOLD"


def chosen_root() -> Path:
    """FLEETSIM_CACHE_DIR, else XDG_CACHE_HOME/fleetsim, else ~/.cache/fleetsim."""
    chosen = os.environ.get("FLEETSIM_CACHE_DIR")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fleetsim"


def cache_root() -> Path:
    """`chosen_root`; a folder of the user's own among the temporary ones if that is unusable, a new one if both are."""
    for base in (chosen_root(), Path(tempfile.gettempdir()) / f"fleetsim-{_user()}"):
        why = unusable(base)
        if why is None:
            return base
        if why != UNWRITABLE:
            warn(base, why)
    own = tempfile.mkdtemp(prefix="fleetsim-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    os.environ["FLEETSIM_CACHE_DIR"] = own  # for what this process starts, too
    return Path(own)


UNWRITABLE = "cannot be written"


def unusable(base: Path) -> str | None:
    """Why code can be neither kept in this folder nor loaded from it; None if it can."""
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=base):
            pass
        root = base.stat()
        if root.st_mode & stat.S_IWOTH and not root.st_mode & stat.S_ISVTX:
            return "can be written by everybody"
        folder = base / _folder_name()
        return strange(folder.lstat()) if os.path.lexists(folder) else None
    except OSError:
        return UNWRITABLE


def strange(found: os.stat_result) -> str | None:
    """Why a file or folder may hold somebody else's code; None if only this user can have written it."""
    if stat.S_ISLNK(found.st_mode):
        return "is a link"
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid}, not to you"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    return None


def warn(place: Path, why: str) -> None:
    """Says on stderr, once, that code is not loaded from there."""
    told = f"{place} {why}"
    if os.environ.get(TOLD) == told:
        return
    os.environ[TOLD] = told
    text = (
        f"warning: {str(place)!r} {why}: code is run only from a place that is yours alone, so fleetsim's kernel is "
        "compiled anew and kept elsewhere. Take the others' rights away (chmod -R go-w), delete it, or set "
        "FLEETSIM_CACHE_DIR to a folder of your own"
    )
    print(visible(text), file=sys.stderr)


def _user() -> str:
    return str(os.geteuid()) if hasattr(os, "geteuid") else "user"


def asked_build() -> str:
    """The build that FLEETSIM_KERNEL asks for; "" is the plain one."""
    return os.environ.get("FLEETSIM_KERNEL", "")


def is_checked() -> bool:
    """Whether that is the build that checks every index: for tests, some times slower."""
    return asked_build() == "checked"


def sources_digest() -> str:
    """Digest of the kernel's sources, and of the build that is made of them."""
    return _digest(is_checked())


@cache  # a process asks for it six times, and runs what it has read
def _digest(checked: bool) -> str:
    digest = hashlib.sha256(b"checked" if checked else b"")
    for source in sorted(KERNEL.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:32]


def identity() -> str:
    """What machine code must be of to be run: these sources, the versions that compile them, this kind of machine."""
    machine = f"{platform.system()} {platform.machine()} {platform.python_version()}"
    return "; ".join([sources_digest(), *_compilers(), machine])


@cache
def _compilers() -> tuple[str, ...]:
    return tuple(f"{package} {version(package)}" for package in ("numba", "llvmlite", "numpy"))


def _folder_name() -> str:
    """One for every identity and user: whoever shares a cache with others has a folder of their own in it."""
    return f"kernel-{hashlib.sha256(f'{identity()}; {_user()}'.encode()).hexdigest()[:16]}"


def cache_folder() -> Path:
    """The folder of this kernel's machine code."""
    return cache_root() / _folder_name()


def headed(code: str) -> str:
    """LLVM code under the digests of the sources that it was made from and of itself."""
    return f"; fleetsim kernel {sources_digest()} {hashlib.sha256(code.encode()).hexdigest()}\n{code}"


def shipped_code() -> str | None:
    """The kernel as LLVM code, if the package carries it, made from these very sources, as it was made."""
    try:
        code = SHIPPED.read_text()
    except (OSError, ValueError):
        return None
    return code if code == headed(code.partition("\n")[2]) else None


def is_compiled() -> bool:
    """Whether this machine can start the kernel without compiling it (which takes seconds, once)."""
    return (cache_folder() / CODE).exists() or shipped_code() is not None

"""Which file the compiled kernel is: a shared library, named after the sources that it is made of.

A wheel carries it (`build_hook.py` builds it), and so does a checkout that was installed with `pip install -e`. It lies
beside the sources, so whoever may change it may change them as well, and nothing needs to be guarded. New sources never
meet old code: another digest is another name. This module imports nothing heavy: the command line asks it before it
decides on a progress line.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from functools import cache
from pathlib import Path

KERNEL = Path(__file__).parent / "kernel"
LIBRARIES = Path(__file__).parent / "built"


def asked_build() -> str:
    """The build that FLEETSIM_KERNEL asks for; "" is the plain one."""
    return os.environ.get("FLEETSIM_KERNEL", "")


def is_checked() -> bool:
    """Whether that is the build that checks every index: for tests, some times slower."""
    return asked_build() == "checked"


def is_fresh() -> bool:
    """Whether the kernel is compiled in this very process, whatever library there is: to test another numba."""
    return asked_build() == "fresh"


@cache  # a process asks for it several times, and runs what it has read
def _digest(checked: bool) -> str:
    digest = hashlib.sha256(b"checked" if checked else b"")
    for source in sorted(KERNEL.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def library(system: str = sys.platform, machine: str = "") -> Path:
    """The library of these sources for a system, as `sys.platform` calls it, and a processor (default: this one)."""
    processor = (machine or platform.machine()).lower()
    return LIBRARIES / f"{asked_build() or 'kernel'}-{_digest(is_checked())}-{system}-{processor}.so"


def is_compiled() -> bool:
    """Whether this machine can start the kernel without compiling it (which takes seconds)."""
    return not is_fresh() and library().is_file()

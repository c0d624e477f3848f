"""Importing the simulator: numba and the compiled kernel, the better part of a short command's second."""

from __future__ import annotations

import gc


def load_simulator() -> None:
    """Imports what a simulation needs, with the garbage collector off: importing makes objects and no garbage.

    Compiles the kernel when this machine has not done so yet.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        import fleetsim.analysis.replicate
        import fleetsim.plan.size  # noqa: F401
    finally:
        if collecting:
            gc.enable()

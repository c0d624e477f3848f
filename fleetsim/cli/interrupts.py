"""Ctrl-C while a command starts: nothing is known yet that would be lost, so the process ends on the spot.

Later Ctrl-C is a KeyboardInterrupt, which `cli/main.py` turns into the exit code.

An exception would not do. Importing runs callbacks in which Python prints a KeyboardInterrupt and goes on, and before
the command line is parsed nobody catches one. This module imports nothing heavy: it stands before everything else.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

INTERRUPTED = 130
# Of a terminal whose progress was cut off: back to the start of the line, which is cleared, and the cursor shown.
_CLEARED = b"\r\x1b[2K\x1b[?25h"


def starting() -> None:
    """From here on Ctrl-C ends the process, until `working`. Not where somebody else minds it, or none is to reach us
    (a job in the background)."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def working() -> None:
    """From here on there is something to know or to tidy up: Ctrl-C is a KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def loaded() -> None:
    """Imports what every simulation needs, and then `working`."""
    import fleetsim.sim.metrics
    import fleetsim.sim.run  # noqa: F401 - so that it is there

    working()


def _leave(number: int, frame: FrameType | None) -> None:
    """Says so and ends. Not by way of the streams: one of them may be in the middle of a line, and locked."""
    try:
        os.write(2, (_CLEARED if os.isatty(2) else b"") + b"interrupted\n")
    finally:
        os._exit(INTERRUPTED)

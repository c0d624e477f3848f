"""A command in a terminal of its own: what it draws there, and Ctrl-C as a person types it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

INTERRUPT = b"\x03"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. drawn: what its terminal got (stderr); stdout went to a file."""

    code: int
    stdout: str
    drawn: str
    after_s: float


def in_terminal(
    arguments: list[str], stdout: Path, interrupt_when: Callable[[str], bool] | None = None, most_s: float = 300.0
) -> Ended:
    """Runs `fleetsim ARGUMENTS` with a terminal as its stderr and controlling terminal, until it ends.

    interrupt_when: asked of all that was drawn so far; when it says so, Ctrl-C is typed, once. after_s: from there to
    the end.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))

    def own_terminal() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job ignores it, and so would its children
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    environment = {**os.environ, "TERM": "xterm", "PYTHONUNBUFFERED": "1"}
    for name in ("NO_COLOR", "COLUMNS", "LINES"):  # the terminal itself says how wide it is
        environment.pop(name, None)
    with stdout.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "fleetsim", *arguments],
            stdin=slave, stdout=out, stderr=slave, preexec_fn=own_terminal, env=environment,
        )  # fmt: skip
    os.close(slave)
    drawn, typed_s, deadline = "", None, time.monotonic() + most_s
    try:
        while time.monotonic() < deadline:
            ready, _, _ = select.select([master], [], [], 0.05)
            if ready:
                try:
                    part = os.read(master, 65536)
                except OSError:  # the other side is closed
                    break
                if not part:
                    break
                drawn += part.decode(errors="replace")
            elif child.poll() is not None:
                break
            if interrupt_when is not None and typed_s is None and interrupt_when(drawn):
                typed_s = time.monotonic()
                os.write(master, INTERRUPT)
        code = child.wait(max(1.0, deadline - time.monotonic()))
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        os.close(master)
    return Ended(code, stdout.read_text(), drawn, time.monotonic() - (typed_s or time.monotonic()))

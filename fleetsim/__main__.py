"""The console script, and `python -m fleetsim` where none was installed."""

from __future__ import annotations

import gc
import os

from fleetsim.cli.interrupts import starting


def main() -> None:
    """Runs the command line, which takes a tenth of a second to import: Ctrl-C is minded before that."""
    starting()
    # Importing makes many objects and no garbage: looking for it after every 700 is a tenth of a short command.
    gc.set_threshold(500_000, 20, 100)
    # Looking for plugins in everything that is installed takes longer than most of what it would find could be of use.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Huge pages, which numpy asks for, are made by moving others where memory is in pieces: 0.1 s for one table.
    os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")
    from fleetsim.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()

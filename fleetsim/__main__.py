"""The console script, and `python -m fleetsim` where none was installed."""

from __future__ import annotations

from fleetsim.cli.interrupts import starting


def main() -> None:
    """Runs the command line, which takes a tenth of a second to import: Ctrl-C is minded before that."""
    starting()
    from fleetsim.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()

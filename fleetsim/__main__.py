"""`python -m fleetsim`: the command line where no console script was installed."""

from __future__ import annotations

from fleetsim.cli.main import main

if __name__ == "__main__":
    main()

"""Writes the table of admission laws in docs/model.md from the records of the laws.

python docs/make_laws.py            write it
python docs/make_laws.py --check    the same without writing; exit 1 if the page would change
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its folder is on the path, not docs
from fleetsim.policies.admission import LAWS

PAGE = Path(__file__).resolve().parent / "model.md"
HEAD = "| law | groups that may be outstanding |"


def table() -> list[str]:
    """A line for each law."""
    return [HEAD, "| --- | --- |", *(f"| `{name}` | {law.rule} |" for name, law in LAWS.items())]


def main() -> int:
    """Writes or checks."""
    text = PAGE.read_text(encoding="utf-8")
    lines = text.splitlines()
    head = lines.index(HEAD)
    end = next(i for i in range(head, len(lines)) if not lines[i].startswith("|"))
    new = "\n".join([*lines[:head], *table(), *lines[end:]]) + "\n"
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(new, encoding="utf-8")
    elif text != new:
        print("docs/model.md has drifted: run python docs/make_laws.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

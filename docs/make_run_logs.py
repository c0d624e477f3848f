"""Writes the tables of docs/run_logs.md: what is read of a framework's metrics (`history/step_logs`), and what not
(tests/history/log_keys/unused.txt).

python docs/make_run_logs.py            write them
python docs/make_run_logs.py --check    the same without writing; exit 1 if the page would change
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its folder is on the path, not docs
from fleetsim.history.step_logs.columns import COLUMNS
from fleetsim.history.step_logs.frameworks import FRAMEWORKS

PAGE = Path(__file__).resolve().parent / "run_logs.md"
NOT_READ = PAGE.parents[1] / "tests" / "history" / "log_keys" / "unused.txt"
READ, END, UNUSED = "| column | meaning |", "### Not used", "| framework | not used | why |"


def read() -> Iterator[str]:
    """The columns, and a section for each framework."""
    yield from (READ, "| --- | --- |", *(f"| `{column}` | {doc} |" for column, doc in COLUMNS.items()), "")
    for one in FRAMEWORKS:
        yield from (
            f"### {one.name}",
            "",
            f"Source: {one.source}.",
            "",
            "| column | from | when |",
            "| --- | --- | --- |",
        )
        yield f"| `step` | {', else '.join(f'`{s}`' for s in one.step)} | |"
        if one.name == "plain":
            yield "| any other | the column of the same name | |"
        else:
            yield from (f"| `{e.column}` | {e} | {', '.join(e.modes)} |" for e in one.entries)
        yield from ("", *(f"- {text}" for text in (one.notes or {}).values()), *([""] if one.notes else []))


def not_read() -> Iterator[tuple[str, str, list[str]]]:
    """(framework, why, patterns of names) of the metrics that no column needs; of all frameworks: "all"."""
    name = ""
    for line in re.sub(r"\n +", " ", NOT_READ.read_text(encoding="utf-8")).splitlines():
        if line.startswith("["):
            name = line.strip("[]")
        elif not line.startswith("#"):
            why, patterns = line.split(" | ")
            yield name, why, patterns.split()


def unused() -> Iterator[str]:
    """A line for each reason not to read a metric."""
    yield from (UNUSED, "| --- | --- | --- |")
    for name, why, patterns in not_read():
        yield f"| {name} | {', '.join(f'`{p}`' for p in patterns)} | {why} |"


def main() -> int:
    """Writes or checks."""
    text = PAGE.read_text(encoding="utf-8")
    lines = text.splitlines()
    first, end, last = (lines.index(line) for line in (READ, END, UNUSED))
    after = next((i for i in range(last, len(lines)) if not lines[i].startswith("|")), len(lines))
    new = "\n".join([*lines[:first], *read(), *lines[end:last], *unused(), *lines[after:]]) + "\n"
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(new, encoding="utf-8")
    elif text != new:
        print("docs/run_logs.md has drifted: run python docs/make_run_logs.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

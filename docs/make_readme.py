"""README's figures: copies them from the pages and results that other scripts wrote into README's tables.

    python docs/make_readme.py            rewrite the tables
    python docs/make_readme.py --check    exit 1 if README would change

Run it after `calibration/fit_engine.py`, `fleetsim validate --write docs` or `benchmarks/run.py --write`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a script, its folder is on the path and the benchmarks are not
from benchmarks.run import ROWS, shown  # noqa: E402

README = ROOT / "README.md"
ACCURACY = "| published runs of | number | fitted: median | 90 % within | model left out: median | 90 % within |"
SPEED = (
    "requests_4096",
    "requests_million",
    "fleet_1000",
    "size_warm",
    "size_first",
    "split_64",
    "replay_day",
    "validate",
    "fit_100000",
    "profile_show",
)


def page_rows(page: str, starts: tuple[str, ...], cells: int) -> list[str]:
    """The first cells of the rows of docs/<page> that start so."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    found = [line.strip("|").split("|") for line in lines if line.startswith(tuple(f"| {start}" for start in starts))]
    return ["| " + " | ".join(cell.strip() for cell in row[:cells]) + " |" for row in found]


def speed_rows() -> list[str]:
    """Figures of benchmarks/results.json."""
    figures = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))["figures"]
    rows = {key: f"| {what.removeprefix('- ')} | {shown(figures[key], unit)} |" for key, what, unit, _ in ROWS}
    return [rows[key] for key in SPEED]


def with_rows(text: str, head: str, rows: list[str]) -> str:
    """The text with these rows in the table that has this head. Raises ValueError when it has no such table."""
    before, found, after = text.partition(f"\n{head}\n")
    if not found:
        raise ValueError(f"README has no table {head}")
    rule, *rest = after.split("\n")
    while rest and rest[0].startswith("|"):
        rest.pop(0)
    return before + found + "\n".join([rule, *rows, *rest])


def filled(text: str) -> str:
    """README with today's figures."""
    kinds = ("all |", "one token at a time |", "multi-token", "dense |", "mixture |", "latent mixture |", "hybrid |")
    accuracy = page_rows("accuracy.md", kinds, 6)
    gates = page_rows(
        "validation.md", ("order of", "bottleneck", "ratio error", "absolute error", "blind:", "ranges of"), 4
    )
    text = with_rows(text, ACCURACY, accuracy)
    text = with_rows(text, "| published runs, one scalar fitted per case | wanted | reached | sealed alone |", gates)
    return with_rows(text, "| what | measured |", speed_rows())


def main() -> int:
    """Writes or checks README; returns the exit code."""
    text = README.read_text(encoding="utf-8")
    if "--check" not in sys.argv[1:]:
        README.write_text(filled(text), encoding="utf-8")
    elif filled(text) != text:
        print("README's figures have drifted: run python docs/make_readme.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

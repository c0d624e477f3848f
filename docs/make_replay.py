"""Simulated runs, exported as text, read back and back-tested: writes the table of docs/replay.md.

python docs/make_replay.py            run them all (a minute or two), print and write the table
python docs/make_replay.py --check    a third of them, by the day, without writing; exit 1 if the page would change
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its folder is on the path, not docs
from fleetsim.config.load import load_scenario, with_changes
from fleetsim.export.openmetrics import write_openmetrics
from fleetsim.history.history import History
from fleetsim.history.openmetrics import read_openmetrics
from fleetsim.history.window import window
from fleetsim.replay.backtest import Backtest, backtest
from fleetsim.replay.implied.implied_scenario import implied
from fleetsim.replay.observe.observe import observe
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of
from fleetsim.tell.page import same
from tests.parts import ALL, part_of_the_day, takes, words

PAGE = Path(__file__).resolve().parent / "replay.md"
HEAD = "| run | scenario given | tok/s | step | idle | queue |"
RUNS = (
    "sync-colocated",
    "async-one-step",
    "presets/verl-fully-async",
    "presets/pipelinerl",
    "presets/prime-rl",
    "presets/areal",
    "presets/trl-async-grpo",
    "presets/openrlhf-async-partial",
)
SEEDS = (77, 78)
STEPS, SCRAPE_S, END_S = 120, 15.0, 1.7e9


def exported(name: str, seed: int, folder: Path) -> History:
    """The window after warm-up of a run, as its OpenMetrics text says it."""
    scenario = with_changes(load_scenario(name), {"run.steps": STEPS, "run.seed": seed})
    records = simulate(scenario, scrape_every_s=SCRAPE_S)
    path = folder / "run.om"
    with path.open("w", encoding="utf-8") as file:
        write_openmetrics(records, file, end_s=END_S)
    history = read_openmetrics(path, SCRAPE_S)
    return window(history, history.end_s - float(records.steps["end_s"][-1]) + window_of(records).start_s, END_S)


def back_tests(name: str, seed: int, folder: Path) -> dict[str, Backtest]:
    """With its scenario given, and without."""
    history, base = exported(name, seed, folder), load_scenario(name)
    known = observe(history, base)
    bare = observe(history)
    return {"yes": backtest(known, implied(known, history, base)), "no": backtest(bare, implied(bare, history))}


def cell(found: list[Backtest], quantity: str) -> str:
    """Errors of all seeds."""
    shown = []
    for back in found:
        row = next((r for r in back.overall if r.quantity == quantity), None)
        if row is None:
            shown.append("-")
        elif row.measure == "batches":
            shown.append(f"{row.error:+.2f}")
        else:
            shown.append(f"{100 * row.error:+.1f}")
    unit = {"tok_s": " %", "step_s": " %", "trainer_idle": " points", "queue": " batches"}[quantity]
    return ", ".join(shown) + unit


def rows(before: list[str], part: int) -> list[str]:
    """One row per run and per way; of runs that the part leaves out those that the page has."""
    out: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(RUNS):
            if not takes(part, "replay", number):
                out += before[len(out) : len(out) + 2]
                continue
            seeds = [back_tests(name, seed, Path(folder)) for seed in SEEDS]
            for way in ("yes", "no"):
                found = [s[way] for s in seeds]
                shown = f"`{name.rpartition('/')[2]}`" if way == "yes" else ""
                cells = " | ".join(cell(found, q) for q in ("tok_s", "step_s", "trainer_idle", "queue"))
                out.append(f"| {shown} | {way} | {cells} |")
                print(out[-1], flush=True)
    return out


def main() -> int:
    """Writes or checks."""
    part = part_of_the_day() if "--check" in sys.argv[1:] else ALL
    print(f"runs: {words(part)}")
    text = PAGE.read_text(encoding="utf-8")
    lines = text.splitlines()
    head = lines.index(HEAD)
    end = next(i for i in range(head, len(lines)) if not lines[i].startswith("|"))
    new = "\n".join([*lines[: head + 2], *rows(lines[head + 2 : end], part), *lines[end:]]) + "\n"
    if "--check" in sys.argv[1:]:
        if same(text, new):
            return 0
        print("docs/replay.md has drifted: run python docs/make_replay.py", file=sys.stderr)
        return 1
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

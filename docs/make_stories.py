"""Twelve plans and what came of them: what published runs changed, what that was predicted to do, what it did.

python docs/make_stories.py            write docs/stories.csv
python docs/make_stories.py --check    exit 1 if it would change
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterable
from pathlib import Path

from fleetsim import units
from fleetsim.validate.case import load_cases
from fleetsim.validate.run import run_cases
from fleetsim.validate.verdict import CaseResult

TABLE = Path(__file__).resolve().parent / "stories.csv"
COLUMNS = ("plan", "predicted", "measured", "command", "source")
# Case, the arm before, the arm after, and the plan: one of each kind of change that cases hold.
STORIES = (
    ("C13", "colocate", "one-step", "verl, 7B on 16 H20: all GPUs in turn, or 12 and 4 one step off?"),
    ("C03", "colocate-64", "async-32-32", "verl, 7B on 64 H20: all GPUs in turn, or fully asynchronous on 32 and 32?"),
    ("C02", "staleness-0", "staleness-0.5", "verl, 7B on 128 H20: may half a batch be one version old?"),
    ("C06", "eta-0", "eta-4", "AReaL, 1.5B on 8 GPUs: may samples be four versions old?"),
    ("S01", "s0", "s1", "verl, a search agent of 3B on 2 H100: may samples be one version old?"),
    ("D03", "static-1-1", "static-1-2", "verl, code RL of 1.5B: add a third H100, for rollout?"),
    ("D14", "eight", "sixteen", "MarinSkyRL, 67B-A2B: 16 rollout GPUs instead of 8, beside 32 that train?"),
    ("D04", "4-4-mode-4", "12-4-mode-4", "verl, 7B on H100: 12 rollout GPUs instead of 4, beside 4 that train?"),
    ("C11", "async-c1", "async-c2", "MarinSkyRL, 67B-A2B on 40 H100: weights after every second step only?"),
    ("D06", "baseline", "mtp", "SkyRL, 9B on 8 H100: let the model's own layer draft tokens?"),
    ("D10", "on_policy-512", "one_off", "NeMo-RL, DeepSeek-V3 on 512 H100: on-policy, or 256 and 256 one step off?"),
    ("C01", "r1-dp2", "r1-dp2-tb16k", "TRL, 1.5B with LoRA: the trainer binds; pack 16,384 tokens into a micro-batch?"),
)  # fmt: skip


def rows(results: Iterable[CaseResult]) -> list[dict[str, str]]:
    """One a story. Raises KeyError for a case or an arm that is not there."""
    by_id = {result.case.id: result for result in results}
    found = []
    for case, before, after, plan in STORIES:
        result = by_id[case]
        arms = {arm.arm.name: arm for arm in result.arms}
        first, then = arms[before], arms[after]
        assert first.arm.published is not None
        assert then.arm.published is not None
        source = result.case.sources[0].split(":")[0]
        found.append(
            {
                "plan": plan,
                "predicted": _told(first.predicted, then.predicted, result.case.measure),
                "measured": _told(first.arm.published, then.arm.published, result.case.measure),
                "command": f"fleetsim validate --case {case}",
                "source": source,
            }
        )
    return found


def _told(before: float, after: float, measure: str) -> str:
    unit = "s" if measure == "step_s" else "tokens/s"
    shown = [f"{x:.3g}" if x < 1000.0 else f"{round(x, -2):,.0f}" for x in (before, after)]
    return f"{' to '.join(shown)} {unit} ({units.change(after / before - 1.0, 0)})"


def text(results: Iterable[CaseResult]) -> str:
    """The table."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(results))
    return out.getvalue()


def main() -> None:
    """Writes the table, or holds it against what is predicted today."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    made = text(run_cases(load_cases({story[0] for story in STORIES})))
    if parser.parse_args().check:
        sys.exit(
            0 if TABLE.read_text(encoding="utf-8") == made else f"{TABLE} would change: python docs/make_stories.py"
        )
    TABLE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()

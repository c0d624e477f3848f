"""Words that the views of a window of history share: marks, sizes, times, names of checks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fleetsim import units
from fleetsim.history.window import has_clock
from fleetsim.replay.diagnose.checks.reading import FEW_STEPS
from fleetsim.replay.diagnose.finding import Finding, Verdict
from fleetsim.replay.implied.implied_scenario import Implied
from fleetsim.replay.observe.observed import Observed, Reading

# A window below this shows few steps of any job, whether or not anybody counts them.
FEW_S = 600.0

# Of a simulated price: simulations that differ by less are told as one number.
SURE = 0.25

FINDINGS = "findings: faults first, then what stays open, then what is ruled out, in the runbook's order"
MARKS: Mapping[str, str] = {"fault": "FAULT", "ok": "ok", "unknown": "?"}


def span_words(observed: Observed) -> str:
    """When, for how long, how often, and from where: "2026-11-20 12:00 to 18:00 UTC (6 h 00 min), every 15.0 s"."""
    span, step = units.seconds(observed.span_s), units.seconds(observed.step_s)
    if not has_clock(observed.end_s):
        return f"no clock, counted from 0 s: {units.seconds(observed.start_s)} to {units.seconds(observed.end_s)}"
    start, end = (datetime.fromtimestamp(t, UTC) for t in (observed.start_s, observed.end_s))
    until = f"{end:%H:%M}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"
    return f"{start:%Y-%m-%d %H:%M} to {until} UTC ({span}), every {step}"


def span_of_time(start_s: float, end_s: float) -> str:
    """A part of a window: "16:00 to 17:00 UTC"; without a clock, "2 min 00 s to 5 min 00 s" after the beginning."""
    if not has_clock(end_s):
        return f"{units.seconds(start_s)} to {units.seconds(end_s)}"
    start, end = (datetime.fromtimestamp(t, UTC) for t in (start_s, end_s))
    begin = f"{start:%H:%M}" if start.date() == end.date() else f"{start:%Y-%m-%d %H:%M}"
    return f"{begin} to {end:%H:%M} UTC"


def clock(at_s: float) -> str:
    """A time of day, for the rows of a table: "11-20 14:00"; without a clock, how long after the beginning."""
    if not has_clock(at_s):
        return units.seconds(at_s)
    return f"{datetime.fromtimestamp(at_s, UTC):%m-%d %H:%M}"


def fleet_words(observed: Observed) -> str:
    """What was looked at: "8 instances of vllm now (6 to 8), model m, disaggregated"."""
    f = observed.fleet
    if f is None:
        return "no engine metrics"
    was = "" if f.instances_min == f.instances_max else f" ({f.instances_min:,} to {f.instances_max:,})"
    engine = f" of {observed.engine}" if observed.engine else ""
    model = f", model {observed.model}" if observed.model else ""
    placement = f", {observed.placement} (inferred)" if observed.placement else ""
    return f"{units.plural(f.instances_now, 'instance')}{engine} now{was}{model}{placement}"


def size_words(finding: Finding) -> str | None:
    """ "up to 70.1 GPU-h and $210.16 a day": the price without what it is of a step; None where nobody knows it."""
    price = price_words(finding)
    return None if price is None else price.partition(";")[0]


def told_ends(finding: Finding) -> tuple[float, float]:
    """The least and the most that a price is told as, each by its mean: (1, 1) where it is told as one number."""
    share, ends = finding.step_share or 0.0, finding.step_range
    if ends is None or share <= 0:
        return 1.0, 1.0
    least, most = max(0.0, ends[0]) / share, ends[1] / share
    return (least, most) if most - least > SURE else (1.0, 1.0)


def price_words(finding: Finding) -> str | None:
    """What a fault costs a day, and what of a step mending it gives back; None where nobody knows."""
    if finding.gpu_h_per_day is None or finding.usd_per_day is None:
        return None
    share = finding.step_share or 0.0
    step = f"; a step {'' if finding.simulated else 'up to '}{units.share(share)} shorter" if share > 0 else ""
    if finding.gpu_h_per_day == 0:
        return f"none: what mends it costs as much as it gives back{step}"
    least, most = told_ends(finding)
    at_most = "" if finding.simulated else "up to "
    if least == most:
        return f"{at_most}{_hours(finding.gpu_h_per_day)} and {units.money(finding.usd_per_day)} a day{step}"
    hours, usd = finding.gpu_h_per_day, finding.usd_per_day
    return (
        f"{units.number(least * hours)} to {_hours(most * hours)} and {units.money(least * usd)} to "
        f"{units.money(most * usd)} a day; a step {units.share(least * share)} to {units.share(most * share)} shorter"
    )


def _hours(gpu_h: float) -> str:
    return f"{units.count(round(gpu_h, 1))} GPU-h"


def total_words(verdict: Verdict) -> str | None:
    """What all faults cost together, where there are several with a size."""
    sized = [f for f in verdict.findings if f.gpu_h_per_day is not None]
    if len(sized) < 2:
        return None
    gpu_h, usd = sum(f.gpu_h_per_day or 0.0 for f in sized), sum(f.usd_per_day or 0.0 for f in sized)
    return f"Together up to {_hours(gpu_h)} and {units.money(usd)} a day; no GPU-second is counted twice."


def ordered(verdict: Verdict) -> tuple[Finding, ...]:
    """The findings as they are shown: what to change first, the other faults, what stays open, and what is ruled out,
    each in the runbook's order."""
    rank = {"fault": 1, "unknown": 2, "ok": 3}
    return tuple(sorted(verdict.findings, key=lambda f: 0 if f.check == verdict.binding else rank[f.state]))


def few_words(observed: Observed) -> str | None:
    """That a window is too short for its verdict to be more than a guess; None where it is not."""
    steps = observed.trainer.steps
    if steps is not None and steps.value >= FEW_STEPS:
        return None
    if steps is not None:
        seen = f"{units.plural(max(0, int(steps.value)), 'optimizer step')} in {units.seconds(observed.span_s)}"
    elif observed.span_s < FEW_S:
        seen = f"{units.seconds(observed.span_s)}, and no optimizer step"
    else:
        return None
    return f"Too few to judge by: {seen}. Several hundred steps make a representative window; replay a longer one."


def differs_words(implied: Implied | None) -> tuple[str, ...]:
    """In one line, where the window measures something else than the user or the scenario says; and what counts."""
    if implied is None or not implied.differs:
        return ()
    by_rule: dict[str, list[str]] = {}
    for line in implied.differs:
        difference, _, rule = line.partition("; ")
        by_rule.setdefault(rule, []).append(difference)
    return (" ".join(f"{'; '.join(found)}: {rule}." for rule, found in by_rule.items()),)


def source_mark(quantity: Reading) -> str:
    """Where a number comes from."""
    return {"exported": "exported", "log": "run log", "inferred": "inferred"}[quantity.source]


def changes_words(changes: Mapping[str, Any]) -> str:
    """ "fleet.instances = 10, sync.every_steps = 2"."""
    return ", ".join(f"{path} = {value}" for path, value in changes.items()) or "nothing to change"


# Characters of an instance's name in a legend, or beside its row; its end tells pods of one deployment apart.
_LONGEST = 20


def short(name: str, most: int = _LONGEST) -> str:
    """A name that fits beside a row."""
    return name if len(name) <= most else f"...{name[3 - most :]}"

"""An answer at three in the morning: trigger, why, what to do, what to check after how many steps, how to undo.

What to do about a cause, in the words of the framework whose log it is, stands in `history/step_logs/frameworks.txt`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from fleetsim import units
from fleetsim.history.step_logs.frameworks import ANY_CURES, BY_NAME
from fleetsim.records import as_dict, replace
from fleetsim.replay.diagnose.checks.case import WORTH
from fleetsim.replay.diagnose.finding import Check, Finding, Verdict
from fleetsim.replay.diagnose.levers import StepLever, levers_of
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.phases import plain
from fleetsim.tell.next_lines import resolved


def remedy_for(cause: str, framework: str | None, values: Mapping[str, str]) -> tuple[str, ...]:
    """Settings of the framework, with the values in them, or commands; a setting whose value nobody knows is left out.

    values: name of a place in the table -> what stands there. Where no setting is left, the row of any framework.
    """
    own = BY_NAME[framework].cures if framework in BY_NAME else {}
    for rows in (cures[cause].split("; ") for cures in (own, ANY_CURES) if cause in cures):
        if known := [row for row in rows if set(re.findall(r"{(\w+)}", row)) <= set(values)]:
            return tuple(row.format_map(values) for row in known)
    return ("fleetsim size --run LOG",)


def undo_of(do: tuple[str, ...]) -> tuple[str, ...]:
    """What takes it back: every setting to the value that it has now; a command, or advice in words, names none."""
    rows = [re.match(r"(?:--[\w.-]+)|(?:[+~]*[\w.]+(?==))", row) for row in do if not row.startswith("fleetsim ")]
    keys = [found[0] for found in rows if found]
    if not keys:
        return ("put back what you changed: the command itself changes nothing",)
    return (f"set back to their values of now: {', '.join(keys)}",)


FEWEST_AFTER, MOST_AFTER = 3, 50  # steps after which a change is looked at
_AFTER = 10  # steps after which a fault of the engines is looked at again
SETTLES = 2  # steps that a pipeline of samples takes to follow a change

# The words for what a check finds: first that for what engines' metrics show, then the causes of levers that are faults
# of it as well.
CAUSES_OF: Mapping[Check, tuple[str, ...]] = {
    "trainer": (
        *("trainer slow", "reference log-probs slow", "log-probs slow", "experience slow", "reward slow"),
        *("evaluation", "checkpoints", "unexplained time", "ready samples fetched slowly"),
    ),
    "sync": ("weight sync slow", "hand-over slow"),
    "stragglers": ("straggler",),
    "prefix_cache": ("prefix cache misses",),
    "in_flight_cap": ("in-flight cap",),
    "max_num_seqs": ("engine's limit of sequences",),
    "preemptions": ("KV preemption",),
    "rollout": ("rollout slow", "long tail", "judge or tool slow", "stale samples dropped", "staleness window"),
    "backlog": ("trainer slow",),
}


class Verify(Struct, frozen=True):
    """After so many steps the metric's mean lies between low and high (seconds)."""

    metric: str
    low: float
    high: float
    after_steps: int


class Cure(Struct, frozen=True):
    """One entry of `diagnosis`. cause: a word of CAUSES_OF. phase: where its seconds stand.
    mean_s, low_s, high_s: seconds of a step that it takes. since_step: None = throughout. do: settings of the framework
    or commands; undo: what takes them back. usd: US dollars a day that one of these seconds costs; None = nobody says
    what the job runs on."""

    cause: str
    phase: str
    mean_s: float
    low_s: float
    high_s: float
    since_step: int | None
    why: str
    do: tuple[str, ...]
    verify: Verify
    undo: tuple[str, ...]
    usd: float | None = None

    def document(self) -> dict[str, Any]:
        """As in the JSON."""
        seconds = {"mean": self.mean_s, "low": self.low_s, "high": self.high_s}
        usd = None if self.usd is None else {end: s * self.usd for end, s in seconds.items()}
        rest = {
            name: value for name, value in as_dict(self).items() if name not in ("mean_s", "low_s", "high_s", "usd")
        }
        return {**rest, "seconds_per_step": seconds, "usd_per_day": usd}

    def lines(self, step_s: float) -> Iterator[tuple[str, str]]:
        """The same in words, with a label each."""
        share = units.share(self.mean_s / step_s) if step_s > 0 else "?"
        when = "throughout" if self.since_step is None else f"since step {self.since_step}"
        low, high = (plain(x) for x in (self.low_s, self.high_s))
        usd = "" if self.usd is None else f", {units.money(self.mean_s * self.usd)} a day"
        yield "trigger", f"{self.cause}: {plain(self.mean_s)} of a step ({low} to {high}), {share}{usd}, {when}"
        yield "why", f"because {self.why}"
        yield "do", "; ".join(self.do)
        v = self.verify
        low, high = (plain(x) for x in (v.low, v.high))
        each = " a step" if self.cause in ("evaluation", "checkpoints") else ""  # not one of them
        within = f"{low} to {high}" if v.low > 0.0 else f"at most {high}"
        yield "verify", f"after {v.after_steps} steps, {v.metric} should be {within}{each}"
        yield "undo", "; ".join(self.undo)


def cures_of(observed: Observed, verdict: Verdict, usd_h: float | None = None) -> tuple[Cure, ...]:
    """What is wrong with a window, the largest first: of a run log by its accounting, of engines by the findings.

    usd_h: US dollars an hour of the whole job; None = nobody says.
    """
    step = observed.trainer.step_s
    if observed.logs_alone:
        found = [cure_of(lever, observed) for lever in levers_of(observed)]
    else:
        faults = [f for f in verdict.findings if f.state == "fault" and f.check in CAUSES_OF]
        found = [_of_finding(f, observed, 0.0 if step is None else step.value) for f in faults]
        found.sort(key=lambda c: -c.mean_s)  # of two that give as much, the runbook's first
    if usd_h is None or step is None or step.value <= 0:
        return tuple(found)
    return tuple(replace(cure, usd=24.0 * usd_h / step.value) for cure in found)


def for_call(cures: Sequence[Cure], call: Sequence[str]) -> tuple[Cure, ...]:
    """The cures with every command as one that repeats this call, as `finding.addressed` has the verdict's."""
    return tuple(replace(cure, do=tuple(resolved(line, call) for line in cure.do)) for cure in cures)


def cure_of(lever: StepLever, observed: Observed) -> Cure:
    """The lever with what to do, what to check and how to undo, in the words of the log's framework."""
    account = observed.account
    assert account is not None  # it is where levers come from
    found = account.phase(lever.column)
    metric = (None if found is None else found.metric) or account.step_metric
    now, spread = (lever.mean, 0.0) if found is None else (found.course.usual, found.course.spread)
    if found is None or found.metric is None:
        now = account.now_s
    # steps until a change by half of these seconds stands two standard errors above the noise
    noise = (4.0 * spread / max(1e-9, lever.mean)) ** 2
    after = min(MOST_AFTER, max(FEWEST_AFTER, SETTLES + math.ceil(noise)))
    most = lever.mean / 2.0
    every = found.course.every if found is not None and found.course.kind == "periodic" else None
    if found is not None and found.course.again:
        every = account.steps // found.course.again
    if found is not None and every is not None and lever.mean >= found.beyond_usual:
        # what comes now and then shows in the mean of two of its turns, and half as often it gives half
        now = account.step_s if found.metric is None else found.seconds
        after, most = max(after, 4 * every), lever.low / 2.0
    # beside a trainer, a wider window lets the longest go on
    wider = lever.cause == "long tail" and account.mode == "asynchronous"
    causes = ("staleness window", lever.cause) if wider else (lever.cause,)
    rows = [row for cause in causes for row in remedy_for(cause, account.framework, _values(lever, observed))]
    do = tuple({row.partition("=")[0]: row for row in reversed(rows)}.values())[::-1]
    verify = Verify(metric, max(0.0, now - lever.high), max(0.0, now - most), after)
    seconds = lever.mean, lever.low, lever.high
    return Cure(lever.cause, lever.phase, *seconds, lever.since_step, lever.why, do, verify, undo_of(do))


def _values(lever: StepLever, observed: Observed) -> dict[str, str]:
    """What stands in the places of a remedy, as far as the log says it."""
    account, lengths = observed.account, observed.lengths
    present = {} if account is None else account.present
    phase = None if account is None else account.phase(lever.column)
    found = {"rarer": str(2 * ((phase.course.every if phase is not None else None) or 10))}
    if lengths is not None and lengths.p99:
        found["p95"] = f"{math.ceil((lengths.p90 + lengths.p99) / 2 / 64) * 64:d}"
    window, size = present.get("window_cap_groups"), present.get("group_size", 1.0)
    if window and size:
        found["cap"] = f"{math.ceil(window):d}"
    elif "in_flight_cap_samples" in present:
        found["cap"] = f"{2 * math.ceil(present['in_flight_cap_samples']):d}"
    if account is not None and account.mode == "asynchronous":
        found["beside"] = "True"
    if "samples" in present:
        found["batch"] = f"{round(present['samples']):d}"
    return found


def _of_finding(finding: Finding, observed: Observed, step_s: float) -> Cure:
    share = finding.step_share or 0.0
    low, high = finding.step_range or ((share, share) if finding.simulated else (0.0, share))
    mean_s, wait = share * step_s, observed.trainer.wait_s
    phase, metric, now = "waiting for samples", "trainer.wait_s", 0.0 if wait is None else wait.value
    if finding.check in ("trainer", "sync", "backlog"):
        part = observed.trainer.sync_s if finding.check == "sync" else observed.trainer.train_s
        phase = "weights" if finding.check == "sync" else "training"
        metric, now = f"trainer.{'sync' if finding.check == 'sync' else 'train'}_s", part.value if part else 0.0
    do = tuple(line for line in (finding.next or "").splitlines() if line) or ("fleetsim replay ... --recommend",)
    if now <= mean_s / 2.0:  # that phase says nothing of it: the step does
        metric, now = "trainer.step_s", step_s
    verify = Verify(metric, max(0.0, now - mean_s), max(0.0, now - mean_s / 2.0), _AFTER)
    if mean_s <= 0.0:  # it gives back GPUs, and no second
        verify = Verify("trainer.step_s", 0.0, (1.0 + WORTH) * step_s, _AFTER)
    why = "; ".join(finding.evidence[:2]) or finding.title
    cause = finding.cause or CAUSES_OF[finding.check][0]
    return Cure(cause, phase, mean_s, low * step_s, high * step_s, None, why, do, verify, undo_of(do))

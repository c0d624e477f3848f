"""Unit tests of a rule file, for `promtool test rules`: a healthy fleet, and for each alert a fleet in which only its
signal is beyond the threshold. Counters grow evenly, so that every signal has exactly the level that is wanted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from fleetsim.alerts.alert_rule import AlertRule, Standing, duration
from fleetsim.alerts.rules import MISSING, MISSING_FOR, Writing
from fleetsim.alerts.signal_values import Expected
from fleetsim.alerts.signals import STANDING, MetricNames
from fleetsim.errors import InputError, Problem
from fleetsim.history.selection import matchers_of

# How far beyond its threshold a signal is put, as a share of its distance from the healthy level; and how far on the
# healthy side of it the others are.
BEYOND = 0.25
RUNNING = 32.0


# What a fleet shows, all of it steady: a level for each signal by its name. This one shows nothing odd.
Level = Mapping[str, float]
NEUTRAL: Level = dict.fromkeys((s.name for s in STANDING), 0.0) | {
    "trainer_pace": 1.0, "output_length": 1000.0, "straggler_pace": 1.0, "generated_per_trained": 1.0
}  # fmt: skip


def tests_document(standing: Standing, writing: Writing, rule_file: str) -> dict[str, Any]:
    """The test file: nothing fires on a healthy fleet, each alert fires on its own, and alone.

    Raises InputError when a selector leaves open which labels a test series could carry.
    """
    labels = Labels.of(writing.names)
    known = {rule.signal.name: rule.healthy for rule in standing.rules}  # means of the healthy runs
    healthy: Level = {**NEUTRAL, **known, "instances": float(standing.rehearsal.expected.instances)}
    tests = [_test(standing, writing, labels, "healthy", healthy, healthy, ())]
    tests += [
        _test(standing, writing, labels, rule.signal.alert, healthy, beyond(healthy, rule), (rule,))
        for rule in standing.rules
    ]
    if any(rule.signal.source != "engines" for rule in standing.rules):
        tests.append(_blind(standing, writing, labels, healthy))
    return {"rule_files": [rule_file], "evaluation_interval": duration(standing.rehearsal.interval_s), "tests": tests}


def beyond(healthy: Level, rule: AlertRule) -> Level:
    """The level with one signal beyond its threshold."""
    counted = rule.signal.name == "instances"
    by = -1.0 if counted else BEYOND * (rule.threshold - rule.healthy)
    return {**healthy, rule.signal.name: rule.threshold + by}


class Labels(Struct, frozen=True):
    """Labels that a test series of the engines and of the trainer carries, so that the selectors find it."""

    engines: Mapping[str, str]
    trainer: Mapping[str, str]

    @classmethod
    def of(cls, names: MetricNames) -> Labels:
        """Raises InputError for a selector that names no values."""
        return cls(
            {"instance": "", "engine": "0", **_labels("--selector", names.selector)},
            {"instance": "trainer:9090", **_labels("--trainer-selector", names.trainer_selector)},
        )


def _labels(flag: str, selector: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, how, value in matchers_of(selector):
        choices = [value] if how == "=" else value.split("|") if how == "=~" else [f"not-{value}"]
        fits = [c for c in choices if how in ("=", "!=") or bool(re.fullmatch(value, c)) == (how == "=~")]
        if not fits:
            fits = [c.replace(".*", "0").replace(".+", "0") for c in choices]
            fits = [c for c in fits if bool(re.fullmatch(value, c)) == (how == "=~")]
        if not fits:
            rule = f"no value of {name} is known that it selects"
            raise InputError([Problem(flag, selector, rule, 'use =, or =~ with names ("a|b"), or drop --tests')])
        found[name] = fits[0].replace("\\", "")
    return found


class Grown(Struct, frozen=True):
    """One series: it begins at zero (a counter) or at a level (a gauge), and changes once.

    before, after: growth per second of a counter, level of a gauge; after None = the series ends.
    """

    name: str
    labels: Mapping[str, str]
    counter: bool
    before: float
    after: float | None


def series_of(before: Level, after: Level, standing: Standing, writing: Writing, labels: Labels) -> Iterator[Grown]:
    """All series of a fleet that changes from one level to another."""
    expected, batch = standing.rehearsal.expected, standing.rehearsal.scenario.trainer.batch_samples
    names = writing.names
    was, now = _rates(before, expected, batch), _rates(after, expected, batch)
    trainer = ("steps", "wait_s_total", "train_s_total", "sync_s_total", "trained_tokens", "trained_samples")
    for name in trainer:
        yield Grown(_metric(names, f"trainer.{name}"), labels.trainer, True, was[name], now[name])
    for name, of in (("queue.samples", "queue_depth"), ("queue.oldest_age_steps", "oldest_age")):
        yield Grown(_metric(names, name), labels.trainer, False, before[of], after[of])
    count = round(before["instances"])
    for i in range(count):
        mine = {**labels.engines, "instance": f"rollout-{i}:8000"}
        lost = i >= after["instances"]
        share = [level["straggler_pace"] if i == 0 else 1.0 for level in (before, after)]
        yield Grown(_metric(names, "running"), mine, False, RUNNING, None if lost else RUNNING)
        for name in (
            *("generation_tokens", "decoding_s", "finished", "output_tokens_sum", "output_tokens_count"),
            *("preemptions", "prefix_hits", "prompt_tokens"),
        ):
            suffix = next((end for end in ("_sum", "_count") if name.endswith(end)), "")
            own, metric = name == "generation_tokens", _metric(names, name.removesuffix(suffix), suffix)
            total = [count - 1 + level["straggler_pace"] if own else count for level in (before, after)]
            part = [(share[k] if own else 1.0) / total[k] for k in (0, 1)]
            yield Grown(metric, mine, True, was[name] * part[0], None if lost else now[name] * part[1])


def _rates(level: Level, expected: Expected, batch: int) -> dict[str, float]:
    """Growth per second of every counter of the fleet at a level."""
    tokens = batch * level["output_length"]
    compute = expected.step_s + expected.token_s * (tokens + batch * expected.prompt_tokens)
    train = level["trainer_pace"] * max(compute, 1e-3)
    wait = (train + level["sync_seconds"]) * level["trainer_idle"] / max(1.0 - level["trainer_idle"], 1e-6)
    steps = 1.0 / (wait + train + level["sync_seconds"])
    requests = steps * batch
    prompts = requests * max(expected.prompt_tokens, 1.0)
    return {
        "steps": steps,
        "wait_s_total": steps * wait,
        "train_s_total": steps * train,
        "sync_s_total": steps * level["sync_seconds"],
        "trained_tokens": steps * tokens,
        "trained_samples": requests,
        "generation_tokens": level["generated_per_trained"] * steps * tokens,
        "decoding_s": RUNNING * expected.instances,
        "finished": requests,
        "output_tokens_sum": requests * level["output_length"],
        "output_tokens_count": requests,
        "preemptions": level["preemptions"] * requests,
        "prefix_hits": level["prefix_hits"] * prompts,
        "prompt_tokens": prompts,
    }


def _metric(names: MetricNames, signal: str, suffix: str = "") -> str:
    """The first of a signal's names, as a test series has it: labels of its own come with it."""
    name, brace, own = names.metrics(signal)[0].partition("{")
    return f"{name}{suffix}{brace}{own}"


def _test(
    standing: Standing,
    writing: Writing,
    labels: Labels,
    name: str,
    before: Level,
    after: Level,
    firing: tuple[AlertRule, ...],
) -> dict[str, Any]:
    """Healthy until everything has settled, then changed; nothing fires before, the right alert and no other after."""
    scrape_s, interval_s = standing.rehearsal.scrape_s, standing.rehearsal.interval_s
    longest = max(rule.window_s + rule.for_s for rule in standing.rules)
    settled_s = _whole(1.5 * longest, interval_s)
    steps = math.ceil(settled_s / scrape_s)
    # one instance fewer is seen when the last sample has left the window; others when the window is full of the change
    until_s = settled_s + _whole(1.5 * longest, interval_s)
    end = math.ceil(until_s / scrape_s) - steps
    input_series = [
        {"series": _series(s), "values": _values(s, steps, end, scrape_s)}
        for s in series_of(before, after, standing, writing, labels)
    ]
    expected = [
        {"labels": f'{{alertname="{rule.signal.alert}", severity="{rule.signal.severity}"}}', "value": 1}
        for rule in firing
    ]
    firing_expr = 'count by (alertname, severity) (ALERTS{alertstate="firing"})'
    return {
        "name": name,
        "interval": duration(scrape_s),
        "input_series": input_series,
        "promql_expr_test": [
            {"expr": firing_expr, "eval_time": duration(settled_s), "exp_samples": []},
            {"expr": firing_expr, "eval_time": duration(until_s), "exp_samples": expected},
        ],
    }


def _blind(standing: Standing, writing: Writing, labels: Labels, healthy: Level) -> dict[str, Any]:
    """Engines without a trainer: the alert on missing metrics fires, and it alone."""
    scrape_s = standing.rehearsal.scrape_s
    end = math.ceil(1800.0 / scrape_s)
    engines = [
        s for s in series_of(healthy, healthy, standing, writing, labels) if s.labels.get("instance") != "trainer:9090"
    ]
    return {
        "name": MISSING,
        "interval": duration(scrape_s),
        "input_series": [{"series": _series(s), "values": _values(s, end, 1, scrape_s)} for s in engines],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "20m",
                "exp_samples": [{"labels": f'{{alertname="{MISSING}"}}', "value": 1}],
            }
        ],
    }


assert MISSING_FOR == "10m"  # shorter than what `_blind` waits for


def _whole(seconds: float, interval_s: float) -> float:
    return math.ceil(seconds / interval_s) * interval_s


def _series(s: Grown) -> str:
    name, _, own = s.name.partition("{")
    given = [own.rstrip("}")] if own else []
    given += [f'{label}="{value}"' for label, value in s.labels.items()]
    return f"{name}{{{', '.join(given)}}}"


def _values(s: Grown, steps: int, more: int, scrape_s: float) -> str:
    """promtool's notation: `start+slope x repeats`, twice."""
    if not s.counter:
        after = f"_x{more}" if s.after is None else f"{s.after!r}+0x{more - 1}"
        return f"{s.before!r}+0x{steps} {after}"
    slope = s.before * scrape_s
    top = slope * steps
    if s.after is None:
        return f"0+{slope!r}x{steps} _x{more}"
    then = s.after * scrape_s
    return f"0+{slope!r}x{steps} {top + then!r}+{then!r}x{more - 1}"

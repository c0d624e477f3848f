"""What a window shows, told: the fleet, its instances, lengths, pauses, trainer and queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

from fleetsim import units
from fleetsim.quantities import quantity
from fleetsim.replay.observe.interruptions import Pauses
from fleetsim.replay.observe.observed import FleetView, InstanceView, LengthHistogram, LoggedRollout, Observed, Reading
from fleetsim.replay.words import short, source_mark
from fleetsim.tell.document import Block, Section, Table, Words, followed, sparkline

_MOST_INSTANCES = 12
_SPARK_WIDTH = 24
_NAME_WIDTH = 24

Told = Iterator[tuple[str, str]]


def observed_sections(observed: Observed) -> Iterator[Section]:
    """The sections of the observation, those that have something to show."""
    if observed.fleet is not None:
        yield _section(Table("observed: fleet", ("", ""), tuple(_fleet(observed, observed.fleet)), left=2))
    if observed.instances:
        yield Section("instances, slowest first", instances(observed.instances))
    if observed.logged is not None:
        yield _section(Table("rollout, as the run log tells it", ("", ""), tuple(_logged(observed.logged)), left=2))
    yield _section(trainer(observed))
    if observed.lengths is not None:
        yield _section(lengths(observed.lengths))


def _section(table: Table) -> Section:
    return Section(table.title, (table,))


def _told(*rows: tuple[str, Any, Callable[[Any], str]]) -> Told:
    """A row a value, written its way; what is not exported is not there. What the catalogue knows has its title."""
    return ((_TITLED.get(name, name), write(value)) for name, value, write in rows if value is not None)


_TITLED = {
    name: quantity(name).title
    for name in (
        *("generated_tok_s", "instance_tok_s", "running", "waiting", "prefix_hit", "pause_share", "queue_depth"),
        *("oldest_sample_age_steps", "tokens_per_trained_token", "dropped_share"),
    )
}


def _both(mean: float | None, most: float | None) -> tuple[float, float] | None:
    """Two values that are told in one row, None where one is missing."""
    return None if mean is None or most is None else (mean, most)


def _mean_and_most(pair: tuple[float, float], write: Callable[[float], str] = units.number) -> str:
    return f"{write(pair[0])} on average, {write(pair[1])} at most"


def _fleet(observed: Observed, f: FleetView) -> Told:
    r, rolling = observed.rolling, None
    if r is not None:
        each = f"{len(r.stops):,} of {units.seconds(r.mean_s)}, of one instance every {units.seconds(r.period_s)}"
        rolling = f"{units.share(r.share)} of the instances' time: {each} (inferred)"
    return _told(
        ("generated_tok_s", f.tok_s, units.number),
        ("instance_tok_s", f.instance_tok_s, units.number),
        ("spread of the instances", f.tok_s_cv, lambda cv: f"{units.share(cv)} (deviation / mean)"),
        ("samples in flight", _both(f.in_flight_mean, f.in_flight_peak), _mean_and_most),
        ("running", f.running, units.number),
        ("waiting", f.waiting, units.number),
        ("KV cache in use", _both(f.kv_use, f.kv_use_peak), lambda both: _mean_and_most(both, units.share)),
        ("instances without work", f.idle_share, units.share),
        ("preemptions", f.preemptions_per_s, lambda rate: f"{units.number(rate * 3600)} an hour"),
        ("prefix_hit", f.prefix_hit, units.share),
        ("requests ended", f.finished_s, lambda rate: f"{units.number(rate)} a second{_ends(f)}"),
        ("rolling sync", rolling, str),
        ("pause_share", "not to be seen" if observed.pauses is None else _pauses(observed.pauses), str),
    )


def _ends(f: FleetView) -> str:
    shares = ((f.length_share, "cut at the cap"), (f.aborted_share, "aborted"))
    return "".join(f", {units.share(share)} {what}" for share, what in shares if share)


def _pauses(p: Pauses) -> str:
    how = {"silence": "inferred from silence", "sleep": "sleep state", "counter": "exported"}
    sources = sorted({how[one.source] for one in p.each})
    every = "" if p.period_s is None else f", every {units.seconds(p.period_s)}"
    told = f": {len(p.each):,} of {units.seconds(p.mean_s)}{every} ({', '.join(sources)})" if p.each else ""
    return f"{units.share(p.share)} of the time{told}"


def _logged(seen: LoggedRollout) -> Told:
    """What a run log says of the engines and of what they are given."""

    def beside(value: float | None, words: str) -> str:
        return "" if value is None else f", {units.number(value)} {words}"

    def each(seconds: Sequence[tuple[str, float]]) -> str:
        return ", ".join(f"{name} {units.seconds(value)}" for name, value in seconds)

    shares = ((seen.stale_share, "older than the trainer's weights"), (seen.partial_share, "of several versions"))
    trained = ", ".join(f"{units.share(share)} {what}" for share, what in shares if share is not None)
    cap, waiting, calls = seen.in_flight_cap, seen.waiting, seen.tool_calls
    return _told(
        ("instances without work", seen.idle_share, units.share),
        ("samples in flight", seen.in_flight, lambda x: f"{units.number(x)} on average{beside(cap, 'allowed')}"),
        ("seconds of a sample", seen.sample_s or None, each),
        ("seconds of a group", seen.group_s or None, each),
        ("requests of an instance", seen.running, lambda x: f"{units.number(x)} run{beside(waiting, 'wait')}"),
        ("KV cache in use", seen.kv_use, lambda x: f"{units.share(x)} on average"),
        ("generated_tok_s", seen.tok_s, units.number),
        ("prefix_hit", seen.prefix_hit, units.share),
        ("preemptions", seen.preemptions, lambda x: f"{units.number(x)} a sample"),
        ("turns of a sample", seen.turns, lambda x: f"{units.number(x)}{beside(calls, 'tool calls')}"),
        ("seconds of a sample in tools", seen.tool_s or None, units.seconds),
        ("samples trained on", trained or None, str),
        ("the queue's cap", seen.queue_cap, lambda x: f"{units.number(x)} samples"),
    )


def instances(views: Sequence[InstanceView]) -> tuple[Block, ...]:
    """A row an instance, slowest first; of a large fleet the stragglers and the slowest, the rest in one line."""
    ordered = sorted(views, key=lambda i: (not i.straggler, round(i.pace, 2), i.active_tok_s, str(i.id)))
    shown = ordered if len(ordered) <= _MOST_INSTANCES else ordered[: _MOST_INSTANCES - 1]
    rest = [i.active_tok_s for i in ordered[len(shown) :]]
    lines: list[str | Words] = []
    if rest:
        span = f"{units.number(min(rest))} to {units.number(max(rest))} tok/s, median {units.number(median(rest))}"
        lines.append(f"and {len(rest):,} more: {span}")
    lines.append(Words(tail="tok/s outside pauses; pace: rate / the median instance's at the same load"))
    table = Table(
        "instances, slowest first",
        ("", "tok/s", "spread", "pace", "run", "wait", "KV", "preempt", "hits"),
        tuple(_instance(i) for i in shown),
        marked=frozenset(k for k, i in enumerate(shown) if i.straggler),
    )
    return followed(table.narrowing("preempt", "wait", "spread"), *lines)


def _instance(i: InstanceView) -> tuple[str, ...]:
    return (
        _name(i),
        units.number(i.active_tok_s),
        units.share(i.spread, 0),
        f"{i.pace:.2f}",
        _maybe(i.running),
        _maybe(i.waiting),
        "-" if i.kv_use is None else units.share(i.kv_use, 0),
        _maybe(i.preemptions),
        "-" if i.prefix_hit is None else units.share(i.prefix_hit, 0),
    )


def _name(i: InstanceView) -> str:
    restarts = f" ({units.plural(i.restarts, 'restart')})" if i.restarts else ""
    return f"{short(str(i.id), _NAME_WIDTH)}{restarts}{' slow' if i.straggler else ''}"


def _maybe(x: float | None) -> str:
    return "-" if x is None else units.number(x)


def trainer(observed: Observed) -> Table:
    """The trainer's step and the queue, each number with where it comes from."""
    rows = [(name, text, Words(tail=source_mark(seen))) for name, seen, text in _trainer(observed)]
    rows += [(name, text, Words()) for name, text in _queue(observed)]
    nothing = ("neither exported nor to be inferred: give --map, or --from the trainer's run log", "", "")
    return Table("trainer and queue", ("", "", ""), tuple(rows) or (nothing,), left=3)


def _trainer(observed: Observed) -> Iterator[tuple[str, Reading, str]]:
    t = observed.trainer

    def part(seconds: float) -> str:
        step_s = 0.0 if t.step_s is None else t.step_s.value
        return units.seconds(seconds) + (f" ({units.share(seconds / step_s)})" if step_s > 0 else "")

    rows: tuple[tuple[str, Reading | None, Callable[[float], str]], ...] = (
        (quantity("step_s").title, t.step_s, units.seconds),
        ("waits for samples", t.wait_s, part),
        ("computes", t.train_s, part),
        ("held by weight sync", t.sync_s, part),
        ("in other timers", t.other_s, part),
        ("in no named timer", t.unnamed_s, part),
        (quantity("trainer_idle_fraction").title, t.idle_fraction if t.wait_s is None else None, units.share),
        ("steps", t.steps, lambda x: units.count(round(x))),
        (quantity("trained_samples").title, t.batch_samples, lambda x: units.count(round(x))),
        ("output tokens per step", t.batch_tokens, units.tokens),
        (quantity("mfu").title, t.mfu, units.share),
    )
    return ((name, seen, write(seen.value)) for name, seen, write in rows if seen is not None)


def _queue(observed: Observed) -> Told:
    q = observed.queue
    grows = "" if not q.growth_per_h else f", {q.growth_per_h:+,.0f} an hour"
    return _told(
        ("queue_depth", _both(q.depth, q.depth_max), lambda both: f"{_mean_and_most(both)}{grows}"),
        ("oldest_sample_age_steps", _both(q.oldest_age_steps, q.oldest_age_max_steps), _mean_and_most),
        ("tokens_per_trained_token", q.generated_per_trained, units.number),
        ("dropped_share", q.dropped_share, units.share),
    )


def lengths(seen: LengthHistogram) -> Table:
    """Mean, quantiles and shape of the output lengths; prompts and groups."""
    return Table("response lengths of finished requests", ("", ""), tuple(_lengths(seen)), left=2)


def _lengths(ls: LengthHistogram) -> Told:
    each = (("p50", 0.5, ls.p50), ("p90", 0.9, ls.p90), ("p99", 0.99, ls.p99))
    quantiles = ", ".join(f"{name} {'above ' if ls.unbounded(q) else ''}{units.number(x)}" for name, q, x in each)
    yield "output tokens", f"mean {units.number(ls.mean)}, {quantiles}"
    finite = [units.tokens(b) for b in ls.le if b != float("inf")]
    if finite:
        scale = f"up to {finite[0]} ... {finite[-1]}" + (" and more" if len(finite) < len(ls.le) else "")
        yield "", f"{sparkline(list(ls.count), _SPARK_WIDTH)}  {scale}"
    if ls.drift_per_h is not None:
        yield "drift", f"{units.change(ls.drift_per_h)} an hour"
    if ls.prompt_mean is not None:
        yield "prompt tokens", f"mean {units.number(ls.prompt_mean)}"
    if ls.group_size is not None:
        yield "samples per prompt", f"{units.number(ls.group_size.value)} ({source_mark(ls.group_size)})"

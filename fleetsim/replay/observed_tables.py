"""What a window shows, told: the fleet, its instances, lengths, pauses, trainer and queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from fleetsim import units
from fleetsim.quantities import quantity
from fleetsim.replay.observe.observed import InstanceView, LoggedRollout, Observed, Reading
from fleetsim.replay.words import source_mark
from fleetsim.tell.characters import sparkline
from fleetsim.tell.document import Block, Section, Table, Words, followed

_MOST_INSTANCES = 12
_SPARK_WIDTH = 24
_NAME_WIDTH = 24

Told = Iterator[tuple[str, str]]


def observed_sections(observed: Observed) -> Iterator[Section]:
    """The sections of the observation, those that have something to show."""
    if observed.fleet is not None:
        yield _section(Table("observed: fleet", ("", ""), tuple(_fleet(observed)), left=2))
    if observed.instances:
        yield Section("instances, slowest first", instances(observed.instances))
    if observed.logged is not None:
        yield _section(Table("rollout, as the run log tells it", ("", ""), tuple(_logged(observed.logged)), left=2))
    yield _section(trainer(observed))
    if observed.lengths is not None:
        yield _section(lengths(observed))


def _section(table: Table) -> Section:
    return Section(table.title, (table,))


def _fleet(observed: Observed) -> Told:
    """The fleet's totals; what is not exported is not there."""
    f = observed.fleet
    if f is None:
        return
    yield quantity("generated_tok_s").title, units.number(f.tok_s)
    yield quantity("instance_tok_s").title, units.number(f.instance_tok_s)
    yield "spread of the instances", f"{units.share(f.tok_s_cv)} (deviation / mean)"
    if f.in_flight_mean is not None and f.in_flight_peak is not None:
        yield "samples in flight", _mean_and_most(f.in_flight_mean, f.in_flight_peak)
    if f.running is not None:
        yield quantity("running").title, units.number(f.running)
    if f.waiting is not None:
        yield quantity("waiting").title, units.number(f.waiting)
    if f.kv_use is not None and f.kv_use_peak is not None:
        yield "KV cache in use", f"{units.share(f.kv_use)} on average, {units.share(f.kv_use_peak)} at most"
    if f.idle_share is not None:
        yield "instances without work", units.share(f.idle_share)
    if f.preemptions_per_s is not None:
        yield "preemptions", f"{units.number(f.preemptions_per_s * 3600)} an hour"
    if f.prefix_hit is not None:
        yield quantity("prefix_hit").title, units.share(f.prefix_hit)
    if f.finished_s is not None:
        ended = f"{units.number(f.finished_s)} a second"
        for share, what in ((f.length_share, "cut at the cap"), (f.aborted_share, "aborted")):
            ended += f", {units.share(share)} {what}" if share else ""
        yield "requests ended", ended
    if observed.rolling is not None:
        r = observed.rolling
        each = f"{len(r.stops):,} of {units.seconds(r.mean_s)}, of one instance every {units.seconds(r.period_s)}"
        yield "rolling sync", f"{units.share(r.share)} of the instances' time: {each} (inferred)"
    yield quantity("pause_share").title, _pauses(observed)


def _logged(seen: LoggedRollout) -> Told:
    """What a run log says of the engines and of what they are given."""
    if seen.idle_share is not None:
        yield "instances without work", units.share(seen.idle_share)
    if seen.in_flight is not None:
        cap = "" if seen.in_flight_cap is None else f", {units.number(seen.in_flight_cap)} allowed"
        yield "samples in flight", f"{units.number(seen.in_flight)} on average{cap}"
    if seen.sample_s:
        yield "seconds of a sample", ", ".join(f"{name} {units.seconds(value)}" for name, value in seen.sample_s)
    if seen.group_s:
        yield "seconds of a group", ", ".join(f"{name} {units.seconds(value)}" for name, value in seen.group_s)
    if seen.running is not None:
        waiting = "" if seen.waiting is None else f", {units.number(seen.waiting)} wait"
        yield "requests of an instance", f"{units.number(seen.running)} run{waiting}"
    if seen.kv_use is not None:
        yield "KV cache in use", f"{units.share(seen.kv_use)} on average"
    if seen.tok_s is not None:
        yield quantity("generated_tok_s").title, units.number(seen.tok_s)
    if seen.prefix_hit is not None:
        yield quantity("prefix_hit").title, units.share(seen.prefix_hit)
    if seen.preemptions is not None:
        yield "preemptions", f"{units.number(seen.preemptions)} a sample"
    if seen.turns is not None:
        calls = "" if seen.tool_calls is None else f", {units.number(seen.tool_calls)} tool calls"
        yield "turns of a sample", f"{units.number(seen.turns)}{calls}"
    if seen.tool_s:
        yield "seconds of a sample in tools", units.seconds(seen.tool_s)
    shares = ((seen.stale_share, "older than the trainer's weights"), (seen.partial_share, "of several versions"))
    told = [f"{units.share(share)} {what}" for share, what in shares if share is not None]
    if told:
        yield "samples trained on", ", ".join(told)
    if seen.queue_cap is not None:
        yield "the queue's cap", f"{units.number(seen.queue_cap)} samples"


def _mean_and_most(mean: float, most: float) -> str:
    return f"{units.number(mean)} on average, {units.number(most)} at most"


def _pauses(observed: Observed) -> str:
    p = observed.pauses
    if p is None:
        return "not to be seen"
    how = {"silence": "inferred from silence", "sleep": "sleep state", "counter": "exported"}
    sources = sorted({how[one.source] for one in p.each})
    every = "" if p.period_s is None else f", every {units.seconds(p.period_s)}"
    told = f": {len(p.each):,} of {units.seconds(p.mean_s)}{every} ({', '.join(sources)})" if p.each else ""
    return f"{units.share(p.share)} of the time{told}"


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
    name = str(i.id)
    if len(name) > _NAME_WIDTH:  # the end tells pods of one deployment apart
        name = f"...{name[3 - _NAME_WIDTH :]}"
    restarts = f" ({units.plural(i.restarts, 'restart')})" if i.restarts else ""
    return f"{name}{restarts}{' slow' if i.straggler else ''}"


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
    step_s = 0.0 if t.step_s is None else t.step_s.value
    if t.step_s is not None:
        yield quantity("step_s").title, t.step_s, units.seconds(step_s)
    parts = (
        ("waits for samples", t.wait_s),
        ("computes", t.train_s),
        ("held by weight sync", t.sync_s),
        ("in other timers", t.other_s),
        ("in no named timer", t.unnamed_s),
    )
    for name, seen in parts:
        if seen is not None:
            of_step = f" ({units.share(seen.value / step_s)})" if step_s > 0 else ""
            yield name, seen, units.seconds(seen.value) + of_step
    if t.idle_fraction is not None and t.wait_s is None:
        yield quantity("trainer_idle_fraction").title, t.idle_fraction, units.share(t.idle_fraction.value)
    if t.steps is not None:
        yield "steps", t.steps, units.count(round(t.steps.value))
    if t.batch_samples is not None:
        yield quantity("trained_samples").title, t.batch_samples, units.count(round(t.batch_samples.value))
    if t.batch_tokens is not None:
        yield "output tokens per step", t.batch_tokens, units.tokens(t.batch_tokens.value)
    if t.mfu is not None:
        yield quantity("mfu").title, t.mfu, units.share(t.mfu.value)


def _queue(observed: Observed) -> Told:
    q = observed.queue
    if q.depth is not None and q.depth_max is not None:
        grows = "" if not q.growth_per_h else f", {q.growth_per_h:+,.0f} an hour"
        yield quantity("queue_depth").title, f"{_mean_and_most(q.depth, q.depth_max)}{grows}"
    if q.oldest_age_steps is not None and q.oldest_age_max_steps is not None:
        age = _mean_and_most(q.oldest_age_steps, q.oldest_age_max_steps)
        yield quantity("oldest_sample_age_steps").title, age
    if q.generated_per_trained is not None:
        yield quantity("tokens_per_trained_token").title, units.number(q.generated_per_trained)
    if q.dropped_share is not None:
        yield quantity("dropped_share").title, units.share(q.dropped_share)


def lengths(observed: Observed) -> Table:
    """Mean, quantiles and shape of the output lengths; prompts and groups."""
    return Table("response lengths of finished requests", ("", ""), tuple(_lengths(observed)), left=2)


def _lengths(observed: Observed) -> Told:
    ls = observed.lengths
    if ls is None:
        return
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

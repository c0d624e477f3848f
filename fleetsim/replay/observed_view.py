"""The terminal view of what a window shows: the fleet, its instances, lengths, pauses, trainer and queue."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fleetsim import units
from fleetsim.quantities import quantity
from fleetsim.replay.observe.observed import InstanceView, Observed, Quantity
from fleetsim.replay.words import source_mark
from fleetsim.tell.characters import sparkline
from fleetsim.tell.terminal import grid, section

_MOST_INSTANCES = 12
_SPARK_WIDTH = 24
_NAME_WIDTH = 24


def observed_blocks(observed: Observed) -> list[RenderableType]:
    """The sections of the observation, those that have something to show."""
    blocks: list[RenderableType] = []
    if observed.fleet is not None:
        blocks.append(section("observed: fleet", fleet(observed)))
    if observed.instances:
        blocks.append(section("instances, slowest first", instances(observed.instances)))
    blocks.append(section("trainer and queue", trainer(observed)))
    if observed.lengths is not None:
        blocks.append(section("response lengths of finished requests", lengths(observed)))
    return blocks


def fleet(observed: Observed) -> Table:
    """The fleet's totals; what is not exported is not there."""
    f = observed.fleet
    table = grid("", "", align=("left", "left"))
    if f is None:
        return table
    table.add_row("output", f"{units.number(f.tok_s)} tok/s, {units.number(f.instance_tok_s)} per instance")
    table.add_row("spread of the instances", f"{units.share(f.tok_s_cv)} (deviation / mean)")
    if f.in_flight_mean is not None and f.in_flight_peak is not None:
        table.add_row(
            "samples in flight",
            f"{units.number(f.in_flight_mean)} on average, {units.number(f.in_flight_peak)} at most",
        )
    if f.running is not None and f.waiting is not None:
        table.add_row("running, waiting", f"{units.number(f.running)}, {units.number(f.waiting)}")
    if f.kv_use is not None and f.kv_use_peak is not None:
        table.add_row("KV cache in use", f"{units.share(f.kv_use)} on average, {units.share(f.kv_use_peak)} at most")
    if f.idle_share is not None:
        table.add_row("instances without work", units.share(f.idle_share))
    if f.preemptions_per_s is not None:
        table.add_row("preemptions", f"{units.number(f.preemptions_per_s * 3600)} an hour")
    if f.prefix_hit is not None:
        table.add_row("prefix-cache hits", units.share(f.prefix_hit))
    if f.finished_s is not None:
        ended = f"{units.number(f.finished_s)} a second"
        for share, what in ((f.length_share, "cut at the cap"), (f.aborted_share, "aborted")):
            ended += f", {units.share(share)} {what}" if share else ""
        table.add_row("requests ended", ended)
    if observed.rolling is not None:
        r = observed.rolling
        each = f"{len(r.stops):,} of {units.seconds(r.mean_s)}, of one instance every {units.seconds(r.period_s)}"
        table.add_row("rolling sync", f"{units.share(r.share)} of the instances' time: {each} (inferred)")
    return _with_pauses(table, observed)


def _with_pauses(table: Table, observed: Observed) -> Table:
    p = observed.pauses
    if p is None:
        table.add_row("fleet-wide pauses", "not to be seen")
        return table
    how = {"silence": "inferred from silence", "sleep": "sleep state", "counter": "exported"}
    sources = sorted({how[one.source] for one in p.each})
    every = "" if p.period_s is None else f", every {units.seconds(p.period_s)}"
    told = f": {len(p.each):,} of {units.seconds(p.mean_s)}{every} ({', '.join(sources)})" if p.each else ""
    table.add_row("fleet-wide pauses", f"{units.share(p.share)} of the time{told}")
    return table


def instances(views: Sequence[InstanceView]) -> Group:
    """A row an instance, slowest first; of a large fleet the stragglers and the slowest, the rest in one line."""
    ordered = sorted(views, key=lambda i: (not i.straggler, i.pace, i.active_tok_s, str(i.id)))
    shown = ordered if len(ordered) <= _MOST_INSTANCES else ordered[: _MOST_INSTANCES - 1]
    rest = ordered[len(shown) :]
    table = grid("", "tok/s", "spread", "pace", "run", "wait", "KV", "preempt", "hits", align=("left", *("right",) * 8))
    for i in shown:
        table.add_row(
            _name(i),
            units.number(i.active_tok_s),
            units.share(i.spread, 0),
            f"{i.pace:.2f}",
            _maybe(i.running),
            _maybe(i.waiting),
            "-" if i.kv_use is None else units.share(i.kv_use, 0),
            _maybe(i.preemptions),
            "-" if i.prefix_hit is None else units.share(i.prefix_hit, 0),
            style="bold" if i.straggler else "",
        )
    lines: list[RenderableType] = [table]
    if rest:
        rates = [i.active_tok_s for i in rest]
        span = f"{units.number(min(rates))} to {units.number(max(rates))} tok/s, median {units.number(median(rates))}"
        lines.append(Text(f"and {len(rest):,} more: {span}"))
    lines.append(Text("tok/s outside pauses; pace: rate / the median instance's at the same load", style="dim"))
    return Group(*lines)


def _name(i: InstanceView) -> str:
    name = str(i.id)
    if len(name) > _NAME_WIDTH:  # the end tells pods of one deployment apart
        name = f"...{name[3 - _NAME_WIDTH :]}"
    restarts = f" ({i.restarts} restart{'' if i.restarts == 1 else 's'})" if i.restarts else ""
    return f"{name}{restarts}{' slow' if i.straggler else ''}"


def _maybe(x: float | None) -> str:
    return "-" if x is None else units.number(x)


def trainer(observed: Observed) -> Table:
    """The trainer's step and the queue, each number with where it comes from."""
    t, q = observed.trainer, observed.queue
    table = grid("", "", "", align=("left", "left", "left"))

    def row(name: str, seen: Quantity | None, text: str) -> None:
        if seen is not None:
            table.add_row(name, text, Text(source_mark(seen), style="dim"))

    def of_step(seen: Quantity | None) -> str:
        if seen is None or t.step_s is None or t.step_s.value <= 0:
            return ""
        return f" ({units.share(seen.value / t.step_s.value)})"

    for name, seen in (
        (quantity("step_s").title, t.step_s),
        ("waits for samples", t.wait_s),
        ("computes", t.train_s),
        ("held by weight sync", t.sync_s),
    ):
        if seen is not None:
            row(name, seen, units.seconds(seen.value) + ("" if seen is t.step_s else of_step(seen)))
    if t.idle_fraction is not None and t.wait_s is None:
        row(quantity("trainer_idle_fraction").title, t.idle_fraction, units.share(t.idle_fraction.value))
    if t.steps is not None:
        row("steps", t.steps, units.count(round(t.steps.value)))
    if t.batch_samples is not None:
        row("samples per step", t.batch_samples, units.count(round(t.batch_samples.value)))
    if t.batch_tokens is not None:
        row("output tokens per step", t.batch_tokens, units.tokens(t.batch_tokens.value))
    if t.mfu is not None:
        row("MFU", t.mfu, units.share(t.mfu.value))
    if q.depth is not None and q.depth_max is not None:
        grows = "" if not q.growth_per_h else f", {q.growth_per_h:+,.0f} an hour"
        table.add_row(
            "queue", f"{units.number(q.depth)} samples on average, {units.number(q.depth_max)} at most{grows}", ""
        )
    if q.oldest_age_steps is not None and q.oldest_age_max_steps is not None:
        age = f"{units.number(q.oldest_age_steps)} steps on average, {units.number(q.oldest_age_max_steps)} at most"
        table.add_row("oldest sample", age, "")
    if q.generated_per_trained is not None:
        table.add_row(quantity("tokens_per_trained_token").title, units.number(q.generated_per_trained), "")
    if q.dropped_share is not None:
        table.add_row("samples thrown away", units.share(q.dropped_share), "")
    if not table.row_count:
        table.add_row("neither exported nor to be inferred: give --map, or --from the trainer's run log", "", "")
    return table


def lengths(observed: Observed) -> Table:
    """Mean, quantiles and shape of the output lengths; prompts and groups."""
    table = grid("", "", align=("left", "left"))
    ls = observed.lengths
    if ls is None:
        return table
    each = (("p50", 0.5, ls.p50), ("p90", 0.9, ls.p90), ("p99", 0.99, ls.p99))
    quantiles = ", ".join(f"{name} {'above ' if ls.unbounded(q) else ''}{units.number(x)}" for name, q, x in each)
    table.add_row("output tokens", f"mean {units.number(ls.mean)}, {quantiles}")
    finite = [units.tokens(b) for b in ls.le if b != float("inf")]
    if finite:
        scale = f"up to {finite[0]} ... {finite[-1]}" + (" and more" if len(finite) < len(ls.le) else "")
        table.add_row("", f"{sparkline(list(ls.count), _SPARK_WIDTH)}  {scale}")
    if ls.drift_per_h is not None:
        table.add_row("drift", f"{units.change(ls.drift_per_h)} an hour")
    if ls.prompt_mean is not None:
        table.add_row("prompt tokens", f"mean {units.number(ls.prompt_mean)}")
    if ls.group_size is not None:
        table.add_row("samples per prompt", f"{units.number(ls.group_size.value)} ({source_mark(ls.group_size)})")
    return table

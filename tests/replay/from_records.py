"""History and Observed of a simulated run, exact: what reading it from Prometheus without loss would give."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetsim.config.scenario import Scenario
from fleetsim.engine.kernel.tables import DONE
from fleetsim.history.history import Buckets, History, InstanceId
from fleetsim.replay.observe.interruptions import Pause, Pauses
from fleetsim.replay.observe.observed import (
    FleetView,
    Hour,
    InstanceView,
    LengthHistogram,
    Observed,
    QueueView,
    Reading,
    TrainerView,
)
from fleetsim.replay.window_view import in_flight
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of

START_S = 1.7e9
BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)


def run_of(scenario: Scenario, scrape_s: float = 15.0, **more: Any) -> Records:
    """A scraped run."""
    return simulate(scenario, scrape_every_s=scrape_s, **more)


def history_of(records: Records) -> History:
    """The scrapes of the window after warm-up as a history."""
    window = window_of(records)
    rows = records.scrapes[(records.scrapes["time_s"] >= window.start_s) & (records.scrapes["time_s"] <= window.end_s)]
    count = int(rows["instance"].max()) + 1
    table = rows.reshape(-1, len(np.unique(records.scrapes["instance"])))[:, :count].T
    times = START_S + table["time_s"][0]
    up = table["up"]

    def values(name: str) -> Any:
        return np.where(up, table[name].astype(float), np.nan)

    columns = {
        "generation_tokens": values("generated"),
        "running": values("running"),
        "waiting": values("waiting"),
        "kv_use": values("kv_use"),
        "preemptions": values("preemptions"),
        "prompt_tokens": values("prefilled") + values("hit_tokens"),
        "prefix_hits": values("hit_tokens"),
        "prefix_queries": values("prefilled") + values("hit_tokens"),
    }
    names = tuple(InstanceId(f"rollout-{i}") for i in range(count))
    step = float(times[1] - times[0])
    histograms = _histograms(records, count, window.start_s, window.end_s, 300.0)
    return History(times, step, names, columns, {}, histograms, tuple({} for _ in names), None, (), "a simulated run")


def _histograms(records: Records, count: int, start_s: float, end_s: float, step_s: float) -> dict[str, Buckets]:
    """Sums and counts only: one bucket."""
    times = np.arange(start_s, end_s, min(step_s, (end_s - start_s) / 4))
    done = records.samples[records.samples["status"] == DONE]
    shape = (count, len(times))
    n, tokens, seconds = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for i in range(count):
        mine = done[done["instance"] == i]
        order = np.argsort(mine["finish_s"])
        at = np.searchsorted(mine["finish_s"][order], times, side="right")
        n[i] = at
        tokens[i] = np.append(0, np.cumsum(mine["target"][order]))[at]
        seconds[i] = np.append(0, np.cumsum((mine["finish_s"] - mine["start_s"])[order]))[at]
    le = np.array([np.inf])
    return {
        "output_tokens": Buckets(le, START_S + times, n[:, :, None], tokens),
        "e2e_s": Buckets(le, START_S + times, n[:, :, None], seconds),
    }


def observed_of(records: Records, history: History, *, trainer: bool = True) -> Observed:
    """What the window shows. trainer: whether its metrics were exported."""
    window, scenario = window_of(records), records.scenario
    span, n = window.span_s, len(window.steps)
    steps = window.steps
    generated = window.total("generated_tokens")
    up_s = sum(window.total(f"{name}_s") for name in ("busy", "paused", "idle"))
    views = tuple(_view(history, i) for i in range(len(history.instances)))
    depth = _queue(records)
    held = in_flight(records, in_pauses=_pauses(records) is None)
    limits = records.engine[1]
    counts = np.isfinite(history.values["generation_tokens"]).sum(axis=0)
    hits = window.total("hit_tokens")
    queries = hits + window.total("prefilled_tokens")
    finished = records.samples[
        (records.samples["status"] == DONE)
        & (records.samples["finish_s"] > window.start_s)
        & (records.samples["finish_s"] <= window.end_s)
    ]
    lengths = _lengths(finished, scenario)
    cap = scenario.workload.output_tokens.max if hasattr(scenario.workload.output_tokens, "max") else None
    colocated = scenario.fleet.placement == "colocated"
    fleet = FleetView(
        instances=up_s / span,
        instances_now=int(counts[-1]),
        instances_min=int(counts.min()),
        instances_max=int(counts.max()),
        tok_s=generated / span,
        instance_tok_s=generated / up_s,
        tok_s_cv=0.0,
        running=float(np.nanmean(np.nansum(history.values["running"], axis=0))),
        waiting=float(np.nanmean(np.nansum(history.values["waiting"], axis=0))),
        in_flight_mean=held.mean,
        in_flight_peak=held.peak,
        kv_use=None,
        kv_use_peak=float(np.nanpercentile(history.values["kv_use"], 99)),
        idle_share=held.idle_share,
        preemptions_per_s=window.total("preemptions") / span,
        prefix_hit=hits / queries if queries else None,
        finished_s=len(finished) / span,
        aborted_share=0.0,
        length_share=float((finished["target"] >= cap).mean()) if cap else 0.0,
    )

    def exported(value: float) -> Reading | None:
        return Reading(value, "exported") if trainer else None

    wait, step_s = float(steps["wait_s"].sum()) / n, span / n
    view = TrainerView(
        step_s=exported(step_s),
        wait_s=exported(wait),
        train_s=exported(float(steps["train_s"].sum()) / n),
        sync_s=exported(float(steps["sync_block_s"].sum()) / n),
        idle_fraction=exported(wait / step_s),
        steps=exported(n),
        batch_samples=exported(float(steps["samples"].mean())),
        batch_tokens=exported(float(steps["output_tokens"].mean())),
        mfu=None,
    )
    queue = QueueView(
        depth=depth if trainer else None,
        depth_p95=None,
        depth_max=None,
        growth_per_h=None,
        oldest_age_steps=float(steps["oldest_age_steps"].mean()) if trainer else None,
        oldest_age_max_steps=float(steps["oldest_age_steps"].max()) if trainer else None,
        dropped_share=None,
        generated_per_trained=None,
    )
    return Observed(
        start_s=START_S + window.start_s,
        end_s=START_S + window.end_s,
        step_s=history.step_s,
        source=history.source,
        engine=limits.scheduler,
        model=scenario.engine.model,
        kv_blocks=limits.kv_blocks,
        block_size=limits.block_size,
        prefix_caching=scenario.engine.prefix_caching,
        placement="colocated" if colocated else "disaggregated",
        instances=views,
        fleet=fleet,
        lengths=lengths,
        pauses=_pauses(records),
        trainer=view,
        queue=queue,
        hours=_hours(records, depth, trainer),
        gap_share=0.0,
        notes=(),
    )


def _view(history: History, i: int) -> InstanceView:
    generated = history.values["generation_tokens"][i]
    known = generated[np.isfinite(generated)]
    tokens = float(known[-1] - known[0]) if len(known) else 0.0
    present = (len(known) - 1) * history.step_s
    return InstanceView(
        id=history.instances[i],
        present_s=present,
        generated_tokens=tokens,
        tok_s=tokens / present,
        active_tok_s=tokens / present,
        spread=0.0,
        running=float(np.nanmean(history.values["running"][i])),
        waiting=float(np.nanmean(history.values["waiting"][i])),
        kv_use=float(np.nanmean(history.values["kv_use"][i])),
        kv_use_peak=float(np.nanmax(history.values["kv_use"][i])),
        preemptions=0.0,
        prefix_hit=None,
        restarts=0,
        pace=1.0,
        straggler=False,
    )


def _lengths(finished: Any, scenario: Scenario) -> LengthHistogram:
    lengths = finished["target"]
    most = scenario.workload.output_tokens.max if hasattr(scenario.workload.output_tokens, "max") else None
    bounds = [float(b) for b in BOUNDS if most is None or b <= most] + [np.inf]
    count = np.histogram(lengths, [0.0, *(b + 0.5 for b in bounds)])[0]
    p50, p90, p99 = np.percentile(lengths, [50, 90, 99])
    return LengthHistogram(
        tuple(bounds),
        tuple(float(c) for c in count),
        float(lengths.mean()),
        float(p50),
        float(p90),
        float(p99),
        float(finished["prompt"].mean()),
        Reading(float(scenario.workload.group_size), "inferred"),
        None,
    )


def _pauses(records: Records) -> Pauses | None:
    window = window_of(records)
    syncs = records.syncs[(records.syncs["pause_start_s"] > window.start_s) & (records.syncs["end_s"] < window.end_s)]
    if records.scenario.fleet.placement == "colocated":
        each = tuple(
            Pause(START_S + float(s["ready_s"]), START_S + float(s["end_s"]), "silence", True) for s in window.steps
        )
    else:
        each = tuple(
            Pause(START_S + float(s["pause_start_s"]), START_S + float(s["end_s"]), "counter", False) for s in syncs
        )
    each = tuple(p for p in each if p.seconds > 0)
    if not each:
        return None
    total = sum(p.seconds for p in each)
    period = float(np.median(np.diff([p.start_s for p in each]))) if len(each) > 2 else None
    return Pauses(each, total / window.span_s, total / len(each), period)


def _queue(records: Records) -> float:
    from fleetsim.sim.metrics import metrics_of

    return float(metrics_of(records)["queue_depth"])


def _hours(records: Records, depth: float, trainer: bool, parts: int = 4) -> tuple[Hour, ...]:
    window = window_of(records)
    slices = []
    for rows in np.array_split(window.steps, parts):
        start, end = float(rows["start_s"][0]), float(rows["end_s"][-1])
        before = records.steps[max(0, int(rows["step"][0]) - 1)]
        tokens = float(rows["generated_tokens"][-1] - before["generated_tokens"])
        up = sum(float(rows[f"{k}_s"][-1] - before[f"{k}_s"]) for k in ("busy", "paused", "idle"))
        span = end - start
        slices.append(
            Hour(
                START_S + start,
                START_S + end,
                up / span,
                tokens / span,
                tokens / up,
                span / len(rows) if trainer else None,
                float(rows["wait_s"].sum()) / span if trainer else None,
                depth if trainer else None,
            )
        )
    return tuple(slices)

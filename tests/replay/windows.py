"""Synthetic windows for tests of what comes after observing: a healthy fleet, and changes to it by dotted path."""

from __future__ import annotations

from typing import Any

from fleetsim.history.history import InstanceId, Note
from fleetsim.records import field_names, replace
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

START, SPAN = 1_760_000_000.0, 6 * 3600.0


def exported(value: float) -> Reading:
    return Reading(value, "exported")


def instance(number: int, **changes: Any) -> InstanceView:
    view = InstanceView(
        id=InstanceId(f"rollout-{number}"), present_s=SPAN, generated_tokens=4000.0 * SPAN, tok_s=4000.0,
        active_tok_s=4100.0, spread=0.06, running=60.0, waiting=0.0, kv_use=0.35, kv_use_peak=0.5, preemptions=0.0,
        prefix_hit=0.86, restarts=0, pace=1.0, straggler=False,
    )  # fmt: skip
    return replace(view, **changes)


def instances(count: int = 8, **changes: Any) -> tuple[InstanceView, ...]:
    return tuple(instance(n, **changes) for n in range(count))


def pauses(seconds: float, every_s: float, *, empty: bool = False, source: str = "silence") -> Pauses:
    starts = [START + every_s * (k + 0.5) for k in range(int(SPAN / every_s))]
    each = tuple(Pause(s, s + seconds, source, empty) for s in starts)  # type: ignore[arg-type]
    return Pauses(each, len(each) * seconds / SPAN, seconds, every_s)


def hours(step_s: float = 24.0, idle: float = 0.02, growth: float = 0.0) -> tuple[Hour, ...]:
    """Six hours; growth: of the step's seconds beside the wait, from the first to the last."""
    return tuple(
        Hour(
            START + 3600 * k, START + 3600 * (k + 1), 8.0, 32_000.0, 4000.0, step_s * (1 + growth * k / 5), idle, 300.0
        )
        for k in range(6)
    )


FLEET = FleetView(
    instances=8.0, instances_now=8, instances_min=8, instances_max=8, tok_s=32_000.0, instance_tok_s=4000.0,
    tok_s_cv=0.03, running=480.0, waiting=0.0, in_flight_mean=480.0, in_flight_peak=700.0, kv_use=0.35, kv_use_peak=0.5,
    idle_share=0.02, preemptions_per_s=0.0, prefix_hit=0.86, finished_s=21.0, aborted_share=0.0, length_share=0.01,
)  # fmt: skip
LENGTHS = LengthHistogram(
    le=(500.0, 1000.0, 2000.0, 5000.0, 10_000.0), count=(9000.0, 8000.0, 7000.0, 5000.0, 800.0), mean=1530.0,
    p50=1100.0, p90=3300.0, p99=7200.0, prompt_mean=500.0, group_size=exported(8.0), drift_per_h=0.0,
)  # fmt: skip
TRAINER = TrainerView(
    step_s=exported(24.0), wait_s=exported(0.5), train_s=exported(22.5), sync_s=exported(1.0),
    idle_fraction=exported(0.5 / 24.0), steps=exported(900.0), batch_samples=exported(512.0),
    batch_tokens=exported(783_360.0), mfu=None,
)  # fmt: skip
QUEUE = QueueView(
    depth=300.0, depth_p95=500.0, depth_max=560.0, growth_per_h=0.0, oldest_age_steps=0.8, oldest_age_max_steps=1.0,
    dropped_share=0.0, generated_per_trained=1.0,
)  # fmt: skip
HEALTHY = Observed(
    start_s=START, end_s=START + SPAN, step_s=15.0, source="test", engine="vllm", model="m", kv_blocks=20_000,
    block_size=16, prefix_caching=True, placement="disaggregated", instances=instances(), fleet=FLEET, lengths=LENGTHS,
    pauses=pauses(0.8, 24.0), trainer=TRAINER, queue=QUEUE, hours=hours(), gap_share=0.0, notes=(),
)  # fmt: skip
STARVED = {
    "trainer.step_s": exported(37.0), "trainer.wait_s": exported(13.5), "trainer.idle_fraction": exported(13.5 / 37.0),
    "trainer.steps": exported(580.0), "hours": hours(37.0, 13.5 / 37.0), "queue.depth": 3.0, "queue.depth_p95": 10.0,
    "queue.depth_max": 40.0, "pauses": pauses(0.8, 37.0),
}  # fmt: skip
"""Changes that make a trainer wait 36.5 % of a step of 37 s."""


def window(start: Observed = HEALTHY, /, **changes: Any) -> Observed:
    """The window with values changed: `window(**{"trainer.wait_s": None, "pauses": None})`."""
    return _changed(start, changes)


def _changed(value: Any, changes: dict[str, Any]) -> Any:
    assert not isinstance(value, type)
    names = set(field_names(value))
    assert names, "a record"
    direct = {path: new for path, new in changes.items() if "." not in path}
    below: dict[str, dict[str, Any]] = {}
    for path, new in changes.items():
        if "." in path:
            head, _, tail = path.partition(".")
            below.setdefault(head, {})[tail] = new
    assert names >= direct.keys() | below.keys(), changes
    nested = {head: _changed(getattr(value, head), inner) for head, inner in below.items()}
    return replace(value, **direct, **nested)


RUN_LOG_ONLY = window(
    instances=(), fleet=None, lengths=None, pauses=None, placement=None, engine=None, model=None, kv_blocks=None,
    block_size=None, prefix_caching=None, notes=(Note("missing", "a run log has no engines"),),
)  # fmt: skip
ENGINES_ONLY = window(
    trainer=TrainerView(None, None, None, None, None, None, None, None, None),
    queue=QueueView(None, None, None, None, None, None, None, None),
    hours=tuple(replace(h, step_s=None, idle_fraction=None, queue=None) for h in hours()),
)

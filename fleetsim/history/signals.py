"""Signals: what fleetsim reads, under one name each, and the metrics of engines and trainers that carry them.

Sources of the metric names: vLLM `vllm/v1/metrics/loggers.py` (0.8.5 to 0.32), SGLang
`python/sglang/srt/metrics/collector.py` (0.4.1 to 0.4.10), later `srt/observability/metrics_collector.py` (commit
44cedc2b; the label cache_source and both gauges of pages: 016d8605), TensorRT-LLM
`tensorrt_llm/metrics/collector.py` (commit 050f80de; gauges with enable_iter_perf_stats, the rest with
return_perf_metrics), prime-rl
`src/prime_rl/utils/metrics_server.py` (commit 6f97d6ba; its `trainer_*` gauges), verl's RL-Insight
`verl/utils/tracking.py` (RLInsightLogger, verl-project/verl commit 1dda039; `rl_insight_monitor_*` gauges). Names that
a release gave up stand behind those that it took instead; where both are there, the first one counts and the other
fills its gaps. Under Ray, vLLM's names begin with `ray_vllm_`. `rl_*` are names that a trainer can export itself
(docs/metrics.md) and that `fleetsim simulate --openmetrics` writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from fleetsim.records import tables_of

Kind = Literal["counter", "gauge", "histogram", "info"]
_KINDS: Mapping[str, Kind] = {"counter": "counter", "gauge": "gauge", "histogram": "histogram", "info": "info"}
Scope = Literal["instance", "fleet"]


class Signal(Struct, frozen=True):
    """One thing that is read.

    name: fleetsim's word for it. kind: how its values behave. scope: one value per instance, or one for the whole job.
    unit: of the value. metrics: exposed names (a histogram's without `_bucket`, `_sum`, `_count`), best first. doc:
    what it is.
    """

    name: str
    kind: Kind
    scope: Scope
    unit: str
    metrics: tuple[str, ...]
    doc: str


def _signals() -> Iterator[Signal]:
    for scope, rows in tables_of(Path(__file__).with_name("signals.txt")).items():
        for name, kind, unit, doc, metrics in rows:
            own = metrics.split(", ")
            names = (name for m in own for name in (m, m.replace("vllm:", "ray_vllm_"))[: 1 + m.startswith("vllm:")])
            where: Scope = "fleet" if scope == "fleet" else "instance"
            yield Signal(name, _KINDS[kind], where, unit, tuple(names), doc)


SIGNALS: tuple[Signal, ...] = tuple(_signals())

BY_NAME = {signal.name: signal for signal in SIGNALS}

ADDED = frozenset({"trainer.wait_s", "trainer.train_s"})
"""Signals whose metrics are parts, which are added up."""

SCALES = {"trainer_mfu_percent": 0.01}
"""Metrics in another unit than their signal's: what their values are multiplied by."""

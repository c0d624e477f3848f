"""Console logs of verl's fully asynchronous trainer, as verl writes them; nothing of fleetsim is used.

The lines follow verl-project/verl 1dda039: `utils/logger/aggregate_logger.py` (step:N - key:value - ...),
`experimental/fully_async_policy/detach_utils.py` (which keys, and how the local steps of a version are brought
together) and `fully_async_rollouter.py` (when rollout pauses, and what it calls idle). The job behind them is as simple
as can be: groups are made at an even rate while fewer than `window` were begun since the last sync, and the trainer
takes `pull` groups `pulls` times per version.
"""

from __future__ import annotations

from dataclasses import dataclass
from pprint import pformat

import numpy as np


@dataclass(frozen=True)
class VerlJob:
    """rate: groups per second that the engines make. window: groups that may be begun per version, and queue at most.
    train_s: of one pull. fetch_s: what a pull takes although its groups are there. odd_s: of a step, in no timer."""

    rate: float
    window: int
    train_s: float
    pull: int = 64
    pulls: int = 1
    size: int = 8
    sync_s: float = 2.0
    fetch_s: float = 0.5
    odd_s: float = 0.0
    mean: float = 800.0
    sigma: float = 0.8
    cap: float = 4096.0


def console(job: VerlJob, versions: int, seed: int = 0, first: int = 1) -> str:
    """The lines of so many weight versions from `first` on, with what a Ray job prints between them."""
    random = np.random.default_rng(seed)
    queue, begun, busy, lines = 0.0, 0.0, 0.0, []
    span = 0.01
    total_stale = 0
    for version in range(first, first + versions):
        now = wait = 0.0
        busy = 0.0
        made = 0

        def passes(seconds: float) -> None:
            nonlocal queue, begun, now, busy, made
            for _ in range(round(seconds / span)):
                now += span
                if begun < job.window:
                    queue, begun, busy = queue + job.rate * span, begun + job.rate * span, busy + span
                    made += 1

        for _ in range(job.pulls):
            before = now
            while queue < job.pull:
                passes(span)
            passes(job.fetch_s)
            wait += now - before
            queue -= job.pull
            passes(job.train_s)
            passes(job.odd_s)
        depth = int(queue)
        passes(job.sync_s)
        begun = queue
        total_stale += depth * job.size
        step_s = now
        rollout = {
            "fully_async/rollouter/active_time": busy,
            "fully_async/rollouter/version_time": now,
            "fully_async/rollouter/idle_ratio": 1.0 - busy / now,
            "fully_async/rollouter/step_generated_samples": int(made * span * job.rate),
        }
        lengths = random.lognormal(np.log(job.mean) - job.sigma**2 / 2, job.sigma, job.pull * job.pulls * job.size)
        lengths = np.minimum(np.round(lengths), job.cap)
        prompts = np.full(lengths.size, 150.0)
        seconds = lengths * 0.01
        trained = {
            "training/global_step": float(version * job.pulls),
            "training/epoch": 0,
            "fully_async/count/stale_trajectory_processed": float(total_stale),
            "fully_async/count/current_param_version": float(version),
            "fully_async/processing_time/avg": seconds.mean(),
            "fully_async/processing_time/max": seconds.max(),
            "fully_async/processing_time/tp50": np.percentile(seconds, 50),
            "fully_async/processing_time/tp99": np.percentile(seconds, 99),
            "fully_async/monitor/active_tasks_size": 16.0,
            "fully_async/monitor/queue/mq_queue_size": float(depth),
            "fully_async/static/max_required_samples": float(job.window),
            "fully_async/static/required_samples": float(job.pull),
            "fully_async/static/max_queue_size": float(job.window),
            "fully_async/static/max_concurrent_samples": 16.0,
            "fully_async/partial/partial_ratio": 0.0,
            "actor/pg_loss": 0.01,
            "perf/mfu/actor": 0.35,
            "response_length/mean": lengths.mean(),
            "response_length/max": lengths.max(),
            "response_length/clip_ratio": float((lengths >= job.cap).mean()),
            "prompt_length/mean": prompts.mean(),
            "timing_s/gen": wait,
            "timing_s/reward": 0.0001,
            "timing_s/adv": 0.1 * job.pulls,
            "timing_s/update_actor": (job.train_s - 0.1) * job.pulls,
            "timing_s/timing_s/param_sync": job.sync_s,
            "timing_s/step": step_s,
            "perf/total_num_tokens": float((lengths + prompts).sum()),
            "dynamic_resource/mq_size": depth,
            "fully_async/trainer/idle_ratio": wait / step_s,
        }
        lines += [_line(version, rollout), "[BatchUtils] Batch assembly completed in 0.42s", _line(version, trained)]
    return "".join(f"\x1b[36m(FullyAsyncTrainer pid=7)\x1b[0m {line}\n" for line in lines)


def _line(step: int, metrics: dict[str, object]) -> str:
    return " - ".join([f"step:{step}", *(f"{key}:{pformat(value)}" for key, value in metrics.items())])

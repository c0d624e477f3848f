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

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct

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


# A row a signal: name | kind | unit | what it is | metrics. A line that begins with a blank goes on with the last one.
# Of vLLM stands its own name, which under Ray is another.
_TABLE = """
[instance]
# SGLang's generation_tokens_total grows when a request ends, by all its tokens; the other while it decodes.
# TensorRT-LLM counts tokens only when a request ends.
generation_tokens | counter | tokens | output tokens | vllm:generation_tokens_total,
    sglang:realtime_tokens_total{mode="decode"}, sglang:generation_tokens_total, trtllm_generation_tokens_total
decoding_s | counter | seconds | seconds between two output tokens of a request, summed over requests |
    vllm:inter_token_latency_seconds_sum, vllm:time_per_output_token_seconds_sum, sglang:inter_token_latency_seconds_sum
prompt_tokens | counter | tokens | prompt tokens, counted when a request's first token leaves |
    vllm:prompt_tokens_total, sglang:prompt_tokens_total, trtllm_prompt_tokens_total
running | gauge | requests | requests in the engine's batch | vllm:num_requests_running, sglang:num_running_reqs,
    trtllm_num_requests_running
waiting | gauge | requests | requests that the engine has not admitted, or has preempted | vllm:num_requests_waiting,
    sglang:num_queue_reqs, trtllm_num_requests_waiting
kv_use | gauge | share | KV cache in use, 0 to 1 | vllm:kv_cache_usage_perc, vllm:gpu_cache_usage_perc,
    sglang:token_usage, trtllm_kv_cache_utilization
# total_retracted_reqs, of SGLang 0.4, is a gauge that only grows.
preemptions | counter | requests | requests thrown out of the batch for want of KV blocks |
    vllm:num_preemptions_total, sglang:num_retracted_requests_total, sglang:total_retracted_reqs
prefix_queries | counter | tokens | prompt tokens looked up in the prefix cache | vllm:prefix_cache_queries_total,
    vllm:gpu_prefix_cache_queries_total, sglang:prompt_tokens_total, trtllm_prompt_tokens_total
prefix_hits | counter | tokens | prompt tokens found there | vllm:prefix_cache_hits_total,
    vllm:gpu_prefix_cache_hits_total, sglang:cached_tokens_total, trtllm_prompt_cached_tokens_total
# SGLang 0.4.1 has no other count of them than that of the latency's histogram.
finished | counter | requests | requests that ended, for whatever reason (summed over finished_reason) |
    vllm:request_success_total, sglang:num_requests_total, sglang:e2e_request_latency_seconds_count,
    trtllm_request_success_total
finished_length | counter | requests | requests cut by the length cap |
    vllm:request_success_total{finished_reason="length"}, trtllm_request_success_total{finished_reason="length"}
finished_abort | counter | requests | requests that the client aborted |
    vllm:request_success_total{finished_reason="abort"}, sglang:num_aborted_requests_total
asleep | gauge | share | 1 while the engine sleeps (colocated: the trainer has the GPUs) |
    vllm:engine_sleep_state{sleep_state="weights_offloaded"}, vllm:engine_sleep_state{sleep_state="discard_all"}
output_tokens | histogram | tokens | output length of finished requests | vllm:request_generation_tokens,
    sglang:generation_tokens_histogram
prompt_length | histogram | tokens | prompt length of finished requests | vllm:request_prompt_tokens,
    sglang:prompt_tokens_histogram
params_n | histogram | requests | samples asked for in one request (n) | vllm:request_params_n
e2e_s | histogram | seconds | seconds from submission to the last token | vllm:e2e_request_latency_seconds,
    sglang:e2e_request_latency_seconds, trtllm_e2e_request_latency_seconds
queue_s | histogram | seconds | seconds that a request waited in the engine | vllm:request_queue_time_seconds,
    sglang:queue_time_seconds, trtllm_request_queue_time_seconds
# SGLang has a gauge of the last one only.
weight_update_s | histogram | seconds | seconds of weight updates, as the engine counts them |
    vllm:rl_weight_update_operation_duration_seconds
# SGLang 0.5.11 gave the labels up for a gauge each.
cache_config | info |  | block_size, num_gpu_blocks (SGLang: page_size, num_pages), enable_prefix_caching, as labels |
    vllm:cache_config_info, sglang:cache_config_info, sglang:page_size, sglang:num_pages
[fleet]
trainer.steps | counter | steps | optimizer steps completed (a gauge that holds the step's number will do) |
    rl_trainer_steps_total, trainer_step, rl_insight_monitor_fully_async_count_current_param_version,
    rl_insight_monitor_training_global_step
trainer.wait_s_total | counter | seconds | trainer waited for samples | rl_trainer_sample_wait_seconds_total
trainer.train_s_total | counter | seconds | trainer computed | rl_trainer_train_seconds_total
trainer.sync_s_total | counter | seconds | trainer was held by weight sync | rl_trainer_weight_sync_seconds_total
# verl's own monitor has what verl logs of its last step, "/" written as "_".
trainer.step_s | gauge | seconds | seconds of the last step, all of it | rl_insight_monitor_timing_s_step
trainer.wait_s | gauge | seconds | of the last step: waiting for samples | rl_insight_monitor_timing_s_gen,
    rl_insight_monitor_timing_s_switch_wait, rl_insight_monitor_timing_s_wait_for_enough_samples
trainer.train_s | gauge | seconds | of the last step: computing | rl_insight_monitor_timing_s_old_log_prob,
    rl_insight_monitor_timing_s_ref, rl_insight_monitor_timing_s_values, rl_insight_monitor_timing_s_adv,
    rl_insight_monitor_timing_s_update_critic, rl_insight_monitor_timing_s_update_actor
trainer.sync_s | gauge | seconds | of the last step: held by weight sync | rl_insight_monitor_timing_s_update_weights,
    rl_insight_monitor_timing_s_timing_s_param_sync, rl_insight_monitor_timing_s_param_sync,
    rl_insight_monitor_timing_s_sync_rollout_weights
trainer.trained_samples | counter | samples | samples trained on | rl_trainer_trained_samples_total
trainer.trained_tokens | counter | tokens | output tokens trained on | rl_trainer_trained_tokens_total
trainer.dropped_samples | counter | samples | samples generated and thrown away | rl_trainer_dropped_samples_total
trainer.mfu | gauge | share | model FLOPs utilization of the trainer, 0 to 1 (prime-rl's metric is in percent and is
    divided by 100) | trainer_mfu_percent
queue.samples | gauge | samples | finished samples that the trainer has not taken | rl_rollout_queue_samples
queue.oldest_age_steps | gauge | steps | optimizer steps between the weights of the oldest queued sample and now |
    rl_rollout_queue_oldest_age_steps
"""


def _signals() -> Iterator[Signal]:
    scope: Scope = "instance"
    for row in re.sub(r"\n +", " ", _TABLE).strip().splitlines():
        if row.startswith("["):
            scope = "fleet" if row == "[fleet]" else "instance"
        elif not row.startswith("#"):
            name, kind, unit, doc, metrics = (cell.strip() for cell in row.split("|"))
            own = [metric for metric in metrics.split(", ") if metric]
            names = (name for m in own for name in (m, m.replace("vllm:", "ray_vllm_"))[: 1 + m.startswith("vllm:")])
            yield Signal(name, _KINDS[kind], scope, unit, tuple(names), doc)


SIGNALS: tuple[Signal, ...] = tuple(_signals())

BY_NAME = {signal.name: signal for signal in SIGNALS}

ADDED = frozenset({"trainer.wait_s", "trainer.train_s"})
"""Signals whose metrics are parts, which are added up."""

SCALES = {"trainer_mfu_percent": 0.01}
"""Metrics in another unit than their signal's: what their values are multiplied by."""

"""Signals: what fleetsim reads, under one name each, and the metrics of engines and trainers that carry them.

Sources of the metric names: vLLM `vllm/v1/metrics/loggers.py` (0.8.5 to 0.32), SGLang
`python/sglang/srt/metrics/collector.py` (0.4.1 to 0.4.10), later `srt/observability/metrics_collector.py` (commit
44cedc2b), TensorRT-LLM
`tensorrt_llm/metrics/collector.py` (commit 050f80de; gauges with enable_iter_perf_stats, the rest with
return_perf_metrics), prime-rl
`src/prime_rl/utils/metrics_server.py` (commit 6f97d6ba; its `trainer_*` gauges). Names that a release gave up stand
behind those that it took instead; where both are there, the first one counts and the other fills its gaps. Under Ray,
vLLM's names begin with `ray_vllm_`. `rl_*` are names that a trainer can export itself (docs/metrics.md) and that
`fleetsim simulate --openmetrics` writes.
"""

from __future__ import annotations

from typing import Literal

from fleetsim.dataclass import dataclass

Kind = Literal["counter", "gauge", "histogram", "info"]
Scope = Literal["instance", "fleet"]


@dataclass(frozen=True, slots=True)
class Signal:
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


def _vllm(*names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{name}" for name in names for prefix in ("vllm:", "ray_vllm_"))


def _engine(name: str, kind: Kind, unit: str, metrics: tuple[str, ...], doc: str) -> Signal:
    return Signal(name, kind, "instance", unit, metrics, doc)


def _job(name: str, kind: Kind, unit: str, metrics: tuple[str, ...], doc: str) -> Signal:
    return Signal(name, kind, "fleet", unit, metrics, doc)


SIGNALS: tuple[Signal, ...] = (
    _engine(
        "generation_tokens",
        "counter",
        "tokens",
        # SGLang's generation_tokens_total grows when a request ends, by all its tokens; the other while it decodes.
        # TensorRT-LLM counts tokens only when a request ends.
        (
            *_vllm("generation_tokens_total"),
            'sglang:realtime_tokens_total{mode="decode"}',
            "sglang:generation_tokens_total",
            "trtllm_generation_tokens_total",
        ),
        "output tokens",
    ),
    _engine(
        "prompt_tokens",
        "counter",
        "tokens",
        (*_vllm("prompt_tokens_total"), "sglang:prompt_tokens_total", "trtllm_prompt_tokens_total"),
        "prompt tokens, counted when a request's first token leaves",
    ),
    _engine(
        "running",
        "gauge",
        "requests",
        (*_vllm("num_requests_running"), "sglang:num_running_reqs", "trtllm_num_requests_running"),
        "requests in the engine's batch",
    ),
    _engine(
        "waiting",
        "gauge",
        "requests",
        (*_vllm("num_requests_waiting"), "sglang:num_queue_reqs", "trtllm_num_requests_waiting"),
        "requests that the engine has not admitted, or has preempted",
    ),
    _engine(
        "kv_use",
        "gauge",
        "share",
        (*_vllm("kv_cache_usage_perc", "gpu_cache_usage_perc"), "sglang:token_usage", "trtllm_kv_cache_utilization"),
        "KV cache in use, 0 to 1",
    ),
    _engine(
        "preemptions",
        "counter",
        "requests",
        # SGLang 0.4: a gauge that only grows
        (*_vllm("num_preemptions_total"), "sglang:num_retracted_requests_total", "sglang:total_retracted_reqs"),
        "requests thrown out of the batch for want of KV blocks",
    ),
    _engine(
        "prefix_queries",
        "counter",
        "tokens",
        (
            *_vllm("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
            "sglang:prompt_tokens_total",
            "trtllm_prompt_tokens_total",
        ),
        "prompt tokens looked up in the prefix cache",
    ),
    _engine(
        "prefix_hits",
        "counter",
        "tokens",
        (
            *_vllm("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
            "sglang:cached_tokens_total",
            "trtllm_prompt_cached_tokens_total",
        ),
        "prompt tokens found there",
    ),
    _engine(
        "finished",
        "counter",
        "requests",
        (
            *_vllm("request_success_total"),
            "sglang:num_requests_total",
            "sglang:e2e_request_latency_seconds_count",  # 0.4.1 has no other count of them
            "trtllm_request_success_total",
        ),
        "requests that ended, for whatever reason (summed over finished_reason)",
    ),
    _engine(
        "finished_length",
        "counter",
        "requests",
        (
            *_vllm('request_success_total{finished_reason="length"}'),
            'trtllm_request_success_total{finished_reason="length"}',
        ),
        "requests cut by the length cap",
    ),
    _engine(
        "finished_abort",
        "counter",
        "requests",
        (*_vllm('request_success_total{finished_reason="abort"}'), "sglang:num_aborted_requests_total"),
        "requests that the client aborted",
    ),
    _engine(
        "asleep",
        "gauge",
        "share",
        _vllm('engine_sleep_state{sleep_state="weights_offloaded"}', 'engine_sleep_state{sleep_state="discard_all"}'),
        "1 while the engine sleeps (colocated: the trainer has the GPUs)",
    ),
    _engine(
        "output_tokens",
        "histogram",
        "tokens",
        (*_vllm("request_generation_tokens"), "sglang:generation_tokens_histogram"),
        "output length of finished requests",
    ),
    _engine(
        "prompt_length",
        "histogram",
        "tokens",
        (*_vllm("request_prompt_tokens"), "sglang:prompt_tokens_histogram"),
        "prompt length of finished requests",
    ),
    _engine("params_n", "histogram", "requests", _vllm("request_params_n"), "samples asked for in one request (n)"),
    _engine(
        "e2e_s",
        "histogram",
        "seconds",
        (
            *_vllm("e2e_request_latency_seconds"),
            "sglang:e2e_request_latency_seconds",
            "trtllm_e2e_request_latency_seconds",
        ),
        "seconds from submission to the last token",
    ),
    _engine(
        "queue_s",
        "histogram",
        "seconds",
        (*_vllm("request_queue_time_seconds"), "sglang:queue_time_seconds", "trtllm_request_queue_time_seconds"),
        "seconds that a request waited in the engine",
    ),
    _engine(
        "weight_update_s",
        "histogram",
        "seconds",
        _vllm("rl_weight_update_operation_duration_seconds"),  # SGLang has a gauge of the last one only
        "seconds of weight updates, as the engine counts them",
    ),
    _engine(
        "cache_config",
        "info",
        "",
        (*_vllm("cache_config_info"), "sglang:cache_config_info"),
        "block_size, num_gpu_blocks (SGLang: page_size, num_pages), enable_prefix_caching, as labels",
    ),
    _job(
        "trainer.steps",
        "counter",
        "steps",
        ("rl_trainer_steps_total", "trainer_step"),
        "optimizer steps completed (a gauge that holds the step's number will do)",
    ),
    _job(
        "trainer.wait_s_total",
        "counter",
        "seconds",
        ("rl_trainer_sample_wait_seconds_total",),
        "trainer waited for samples",
    ),
    _job("trainer.train_s_total", "counter", "seconds", ("rl_trainer_train_seconds_total",), "trainer computed"),
    _job(
        "trainer.sync_s_total",
        "counter",
        "seconds",
        ("rl_trainer_weight_sync_seconds_total",),
        "trainer was held by weight sync",
    ),
    _job("trainer.step_s", "gauge", "seconds", (), "seconds of the last step, all of it"),
    _job("trainer.wait_s", "gauge", "seconds", (), "of the last step: waiting for samples"),
    _job("trainer.train_s", "gauge", "seconds", (), "of the last step: computing"),
    _job("trainer.sync_s", "gauge", "seconds", (), "of the last step: held by weight sync"),
    _job("trainer.trained_samples", "counter", "samples", ("rl_trainer_trained_samples_total",), "samples trained on"),
    _job(
        "trainer.trained_tokens", "counter", "tokens", ("rl_trainer_trained_tokens_total",), "output tokens trained on"
    ),
    _job(
        "trainer.dropped_samples",
        "counter",
        "samples",
        ("rl_trainer_dropped_samples_total",),
        "samples generated and thrown away",
    ),
    _job(
        "trainer.mfu",
        "gauge",
        "share",
        ("trainer_mfu_percent",),
        "model FLOPs utilization of the trainer, 0 to 1 (prime-rl's metric is in percent and is divided by 100)",
    ),
    _job(
        "queue.samples",
        "gauge",
        "samples",
        ("rl_rollout_queue_samples",),
        "finished samples that the trainer has not taken",
    ),
    _job(
        "queue.oldest_age_steps",
        "gauge",
        "steps",
        ("rl_rollout_queue_oldest_age_steps",),
        "optimizer steps between the weights of the oldest queued sample and now",
    ),
)

BY_NAME = {signal.name: signal for signal in SIGNALS}

SCALES = {"trainer_mfu_percent": 0.01}
"""Metrics in another unit than their signal's: what their values are multiplied by."""

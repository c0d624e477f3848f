"""What a scrape of an engine or of a trainer holds: names, labels and meaning as the exporters have them.

vLLM: vllm/v1/metrics/loggers.py (0.26 and 0.32; the old names from 0.8.5). SGLang: srt/metrics/collector.py and
scheduler_metrics_mixin.py (00ae9c15, realtime_tokens_total from 2026); release 0.4 had fewer metrics
(docs/references/production_metrics.md of that release). TensorRT-LLM: tensorrt_llm/metrics/collector.py (050f80de).

An SGLang scheduler labels what it exports with its ranks (dp_rank only where there are several), the tokenizer of a
server does not. Without --enable-dp-attention every data-parallel rank has GPUs of its own, and a tp_rank from 0 on.
SGLang's generation_tokens_total and both token counters of TensorRT-LLM grow when a request ends.
vLLM and TensorRT-LLM observe the seconds in the queue when a request ends, SGLang when it is scheduled.
A trainer exports what docs/metrics.md asks trainers to export.
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.outside.setting import Setting
from tests.outside.world import Engine, Histogram, World

BEGIN = 1_795_000_000.0
"""Unix seconds of a history's beginning."""
Sample = tuple[str, str, dict[str, str], float]
"""Family, suffix, labels, value."""


def histograms(
    prefix: str, named: Mapping[str, Histogram], labels: Mapping[str, str] | None = None
) -> Iterator[Sample]:
    """The series of each histogram."""
    plain = dict(labels or {})
    for name, histogram in named.items():
        buckets = [("_bucket", {**plain, "le": bound}) for bound in bounds(histogram.bounds)]
        series = [*buckets, ("_sum", plain), ("_count", plain)]
        for (suffix, with_bound), value in zip(series, histogram.values(), strict=True):
            yield f"{prefix}{name}", suffix, with_bound, value


@cache
def bounds(of: tuple[float, ...]) -> tuple[str, ...]:
    """`le` of each bucket."""
    return (*(str(float(bound)) for bound in of), "+Inf")


def vllm(engine: Engine, prefix: str = "vllm:", old: bool = False) -> Iterator[Sample]:
    """A scrape of a vLLM server."""
    book, it = engine.counters, engine.setting
    cache = "gpu_cache_usage_perc" if old else "kv_cache_usage_perc"
    hits = "gpu_prefix_cache" if old else "prefix_cache"
    yield f"{prefix}num_requests_running", "", {}, len(engine.running)
    yield f"{prefix}num_requests_waiting", "", {}, len(engine.waiting)
    yield f"{prefix}{cache}", "", {}, round(engine.used() / it.kv_tokens, 6)
    yield f"{prefix}prompt_tokens", "_total", {}, book.prompted
    yield f"{prefix}generation_tokens", "_total", {}, int(book.generated)
    yield f"{prefix}{hits}_queries", "_total", {}, book.queries if it.prefix_caching else 0
    yield f"{prefix}{hits}_hits", "_total", {}, book.hits
    yield f"{prefix}num_preemptions", "_total", {}, book.preempted
    for reason, count in (("stop", book.stop), ("length", book.length), ("abort", book.abort)):
        yield f"{prefix}request_success", "_total", {"finished_reason": reason}, count
    named = {
        "request_generation_tokens": book.output,
        "request_prompt_tokens": book.prompts,
        "request_params_n": book.asked,
        "e2e_request_latency_seconds": book.e2e,
        "request_queue_time_seconds": book.queued,
        "request_inference_time_seconds": book.inference,
    }
    yield from histograms(prefix, named)
    if it.weight_update_metric:
        updates = {"rl_weight_update_operation_duration_seconds": book.updates}
        yield from histograms(prefix, updates, {"operation": "update"})
    info = {"block_size": "16", "num_gpu_blocks": str(it.kv_tokens // 16), "gpu_memory_utilization": "0.92"}
    yield f"{prefix}cache_config_info", "", info | {"enable_prefix_caching": str(it.prefix_caching)}, 1


def sglang(engine: Engine) -> Iterator[Sample]:
    """What the scheduler of an SGLang rank exports."""
    book, it = engine.counters, engine.setting
    yield "sglang:num_running_reqs", "", {}, len(engine.running)
    yield "sglang:num_queue_reqs", "", {}, len(engine.waiting)
    yield "sglang:token_usage", "", {}, round(engine.used() / it.kv_tokens, 4)
    yield "sglang:num_used_tokens", "", {}, int(engine.used())
    if it.engine == "sglang-0.4":
        yield "sglang:cache_hit_rate", "", {}, round(book.hits / max(book.queries, 1), 4)
        return
    yield "sglang:max_total_num_tokens", "", {}, it.kv_tokens
    yield "sglang:realtime_tokens", "_total", {"mode": "decode"}, int(book.generated)
    yield "sglang:realtime_tokens", "_total", {"mode": "prefill_compute"}, book.prompted - book.hits
    yield "sglang:num_retracted_requests", "_total", {}, book.preempted
    yield from histograms("sglang:", {"queue_time_seconds": book.scheduled})
    yield "sglang:cache_config_info", "", {"page_size": "1", "num_pages": str(it.kv_tokens)}, 1


def sglang_server(engines: Sequence[Engine]) -> Iterator[Sample]:
    """What the tokenizer of an SGLang server exports: of all its ranks together."""
    books, it = [engine.counters for engine in engines], engines[0].setting
    yield "sglang:prompt_tokens", "_total", {}, sum(book.prompts.total for book in books)
    yield "sglang:generation_tokens", "_total", {}, sum(book.output.total for book in books)
    named = {"e2e_request_latency_seconds": Histogram.sum_of([book.e2e for book in books])}
    if it.engine != "sglang-0.4":
        yield "sglang:cached_tokens", "_total", {}, sum(book.hits for book in books)
        yield "sglang:num_requests", "_total", {}, sum(book.stop + book.length for book in books)
        yield "sglang:num_aborted_requests", "_total", {}, sum(book.abort for book in books)
        named["generation_tokens_histogram"] = Histogram.sum_of([book.output for book in books])
        named["prompt_tokens_histogram"] = Histogram.sum_of([book.prompts for book in books])
    yield from histograms("sglang:", named)


def trtllm(engine: Engine) -> Iterator[Sample]:
    """A scrape of trtllm-serve with performance metrics on."""
    book, it = engine.counters, engine.setting
    blocks = it.kv_tokens // 32
    used = engine.used() / it.kv_tokens
    yield "trtllm_num_requests_running", "", {}, len(engine.running)
    yield "trtllm_num_requests_waiting", "", {}, len(engine.waiting)
    yield "trtllm_kv_cache_utilization", "", {}, round(used, 6)
    yield "trtllm_kv_cache_max_blocks", "", {}, blocks
    yield "trtllm_kv_cache_used_blocks", "", {}, int(used * blocks)
    yield "trtllm_kv_cache_tokens_per_block", "", {}, 32
    yield "trtllm_num_paused_requests", "", {}, 0
    yield "trtllm_max_batch_size_static", "", {}, it.max_num_seqs
    yield "trtllm_prompt_tokens", "_total", {}, book.prompts.total
    yield "trtllm_generation_tokens", "_total", {}, book.output.total
    yield "trtllm_prompt_cached_tokens", "_total", {}, book.hits
    yield "trtllm_num_requests_completed", "_total", {}, book.stop + book.length
    for reason, count in (("stop", book.stop), ("length", book.length)):
        yield "trtllm_request_success", "_total", {"finished_reason": reason}, count
    named = {
        "e2e_request_latency_seconds": book.e2e,
        "request_queue_time_seconds": book.queued,
        "request_inference_time_seconds": book.inference,
    }
    yield from histograms("trtllm_", named)


EXPORTERS: dict[str, Callable[[Engine], Iterator[Sample]]] = {
    "vllm": vllm,
    "vllm-0.8": lambda engine: vllm(engine, old=True),
    "ray-vllm": lambda engine: vllm(engine, prefix="ray_vllm_"),
    "sglang": sglang,
    "sglang-0.4": sglang,
    "trtllm": trtllm,
}


def trainer(world: World, now: float) -> Iterator[Sample]:
    """A scrape of the trainer's process: what it has booked, whole phases at a time."""
    it = world.trainer
    yield "rl_trainer_steps", "_total", {}, it.steps
    yield "rl_trainer_sample_wait_seconds", "_total", {}, it.wait_s
    yield "rl_trainer_train_seconds", "_total", {}, it.train_s
    yield "rl_trainer_weight_sync_seconds", "_total", {}, it.sync_s
    yield "rl_trainer_trained_samples", "_total", {}, it.samples
    yield "rl_trainer_trained_tokens", "_total", {}, it.tokens
    yield "rl_trainer_dropped_samples", "_total", {}, it.dropped
    yield "rl_rollout_queue_samples", "", {}, len(world.queue) * world.setting.group
    oldest = it.steps - world.queue[0].version if world.queue else 0
    yield "rl_rollout_queue_oldest_age_steps", "", {}, oldest


class Scrapes:
    """Every sample that Prometheus got, by family and series."""

    def __init__(self) -> None:
        self.families: dict[str, dict[str, list[str]]] = {}
        self.targets: dict[tuple[str, ...], list[list[str]]] = {}

    def keep(self, exporter: str, samples: Iterator[Sample], target: dict[str, str], now: float) -> None:
        """Keeps one scrape of one target. exporter: the same one exports the same series in the same order."""
        stamp, scraped = f"{BEGIN + now:.3f}", list(samples)
        key = (exporter, *target.values())
        if key not in self.targets:
            self.targets[key] = [self.rows(each, target) for each in scraped]
        for (*_, value), rows in zip(scraped, self.targets[key], strict=True):
            rows.append(f"{value:.10g} {stamp}")

    def rows(self, sample: Sample, target: dict[str, str]) -> list[str]:
        """Where the values of a series are kept."""
        family, suffix, labels, _ = sample
        text = ",".join(f'{key}="{value}"' for key, value in sorted((target | labels).items()))
        return self.families.setdefault(family, {}).setdefault(f"{family}{suffix}{{{text}}}", [])

    def watch(self, world: World, engine: Engine | None, now: float) -> None:
        """What `World` calls at each scrape."""
        it = world.setting
        if engine is None:
            if it.batch and it.trainer_metrics:
                self.keep(
                    "trainer", trainer(world, now), {"job": f"{it.job}-trainer", "instance": "10.0.9.9:9200"}, now
                )
        elif engine.present:
            self.keep("engine", EXPORTERS[it.engine](engine), target(engine, it), now)
            if it.engine.startswith("sglang") and not engine.number % it.ranks:
                served = [e for e in world.engines if e.number // it.ranks == engine.number // it.ranks]
                self.keep("server", sglang_server(served), target(engine, it, ranked=False), now)

    def write(self, path: Path) -> None:
        """Writes OpenMetrics text."""
        out = io.StringIO()
        for family, series in sorted(self.families.items()):
            first = next(iter(series))[len(family) :]
            kind = {"_t": "counter", "_b": "histogram"}.get(first[:2], "gauge")
            out.write(f"# TYPE {family} {kind}\n")
            for name, rows in series.items():
                out.writelines(f"{name} {row}\n" for row in rows)
        out.write("# EOF\n")
        path.write_text(out.getvalue(), encoding="utf-8")


def target(engine: Engine, it: Setting, *, ranked: bool = True) -> dict[str, str]:
    """Labels that a scrape adds, and the engine's own. ranked: of one rank, not of all of a server."""
    server, rank = divmod(engine.number, it.ranks)
    pod = f"{it.job}-{server}" + (f"-{engine.incarnation}" if engine.incarnation else "")
    labels = {
        "job": it.job,
        "instance": f"10.0.{engine.incarnation}.{server + 1}:8000",
        "pod": pod,
        "model_name": it.model,
    }
    if it.engine in ("vllm", "vllm-0.8", "ray-vllm"):
        return labels | {"engine": str(rank)}
    if it.engine == "sglang-0.4" or not ranked:
        return labels
    if it.engine == "sglang":
        ranks = {"dp_rank": str(rank)} if it.ranks > 1 else {}
        return labels | {"engine_type": "unified", "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"} | ranks
    return labels | {"engine_type": "trtllm"}


def write(path: Path, *jobs: Setting) -> list[World]:
    """Lives the jobs, all at one Prometheus, and writes what it saw; returns their worlds."""
    scrapes = Scrapes()
    worlds = [World(job, scrapes.watch).run() for job in jobs]
    scrapes.write(path)
    return worlds

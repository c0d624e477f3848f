"""A vLLM engine that runs loads: the Engine of `session.py`, its core stepped by hand in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np
from msgspec import Struct, field

from fleetsim.calibrate.loads import Limits, Load, Ran, Request, computed, warm_ups
from fleetsim.calibrate.raw import RawWriter, request_columns
from fleetsim.calibrate.session import EngineLostError
from fleetsim.calibrate.vllm import description
from fleetsim.calibrate.vllm.recorder import Recorder, Tracked, request_rows

# For dummy weights, token-id prompts and an offline machine. A user's own environment and arguments win.
ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "VLLM_HOST_IP": "127.0.0.1"}
ARGUMENTS = {"load_format": "dummy", "skip_tokenizer_init": True, "disable_log_stats": False, "seed": 0}
# What an exception says after which the device's context is of no more use.
FATAL = ("cuda error", "device-side", "illegal memory", "cublas", "nccl", "out of memory", "acceleratorerror")
SLOT_NAMES = ("max_num_running_reqs", "max_num_active_reqs")  # 0.32 counts admissions apart


class VllmEngine(Struct):
    """A started engine. start: the fields of its `start` record. forging: whether contexts can be put into the prefix
    cache without computing them."""

    llm: Any
    core: Any
    writer: RawWriter
    start: dict[str, Any]
    limits: Limits
    recorder: Recorder
    vocabulary: int
    forging: bool = True
    _forged: bool = False
    _warm: bool = False
    _requests: int = 0
    _tasks: Any = None
    _rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def now(self) -> float:
        """Seconds on the clock of this process."""
        return perf_counter()

    def run(self, load: Load, deadline_s: float) -> Ran:
        """Runs one load and records it. Raises EngineLostError where the engine cannot go on."""
        if not self._warm:
            self._warm = True
            for warm_up in warm_ups(self.limits):
                self._recovering(warm_up, deadline_s)
        return self._recovering(load, deadline_s)

    def _recovering(self, load: Load, deadline_s: float) -> Ran:
        try:
            return self._run(load, deadline_s)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if any(word in text.lower() for word in FATAL):
                raise EngineLostError(text[:400]) from error
            try:
                if getattr(self.core, "batch_queue", None):
                    self.core.batch_queue.clear()
                self.clear()
            except Exception as again:  # noqa: BLE001 - whatever it is, it cannot be brought back to rest
                raise EngineLostError(f"{text[:400]}; then {type(again).__name__}: {again}") from error
            raise

    def _run(self, load: Load, deadline_s: float) -> Ran:
        begin = self.now()
        if load.track:
            self.core.reset_prefix_cache()
        caching = bool(self.llm.llm_engine.vllm_config.cache_config.enable_prefix_caching)
        if not (self.forging and caching) and any(r.cached_tokens for r in load.requests):
            load = computed(load, self.limits)
        recorder = self.recorder
        # What arrives at which iteration; the first at the end.
        arriving = zip((r.at for r in load.requests), self.made(load), strict=True)
        waiting = sorted(arriving, key=lambda pair: pair[0])[::-1]
        cut = False
        with self._limited(load):
            recorder.begin(load.phase, dict(load.label), load.warm)
            start = self.now()
            submitted = start
            try:
                while waiting or self.busy():
                    if waiting:
                        due = recorder.scheduled if self.busy() else max(waiting[-1][0], recorder.scheduled)
                        while waiting and waiting[-1][0] <= due:
                            request = waiting.pop()[1]
                            if load.track:
                                recorder.tracked[request.request_id] = Tracked(request, self.now())
                            self.core.add_request(request)
                        if not recorder.scheduled:
                            submitted = self.now()
                    self.step()
                    if self.now() > deadline_s:
                        cut = bool(waiting) or self.busy()
                        break
                end = self.now()
            finally:
                recorder.flush()
            tally = recorder.tally
            columns = request_columns(request_rows(recorder.tracked.values()), start) if load.track else None
            if cut:
                recorder.begin(f"{load.phase}_cut", {}, 10**9)
                recorder.segment -= 1
                self.clear()
                recorder.flush()
        which = {"ph": load.phase, "seg": recorder.segment, "lab": dict(load.label)}
        took = {"wall": round(end - start, 6), "submit": round(submitted - start, 6), "cut": cut}
        self.writer.put("seg", **which, **took, **tally.record(), **({"req": columns} if columns else {}))
        self._check_forging(load, tally.prefill_tokens, cut)
        return Ran(self.now() - begin, cut, tally.decode_s, tally.prefill_tokens)

    def _check_forging(self, load: Load, prefilled: int, cut: bool) -> None:
        """Believes in forged contexts only once a load has shown that the engine finds them."""
        cached = sum(r.cached_tokens for r in load.requests)
        if self._forged or not self.forging or not cached or cut:
            return
        expected = sum(r.prompt_tokens - r.cached_tokens for r in load.requests)
        self._forged = True
        self.forging = prefilled <= expected + cached // 2
        if not self.forging:
            self.writer.put("note", forging="contexts were computed, not found in the cache", prefill_tokens=prefilled)

    @contextmanager
    def _limited(self, load: Load) -> Iterator[None]:
        """The engine under the load's own limits."""
        scheduler, pool = self.core.scheduler, self.core.scheduler.kv_cache_manager.block_pool
        limits: dict[str, int] = {}
        if load.max_num_batched_tokens is not None:
            limits["max_num_scheduled_tokens"] = min(load.max_num_batched_tokens, scheduler.max_num_scheduled_tokens)
        if load.slots is not None:
            limits |= {name: load.slots for name in SLOT_NAMES if isinstance(getattr(scheduler, name, None), int)}
        before = {name: getattr(scheduler, name) for name in limits}
        spare = pool.get_num_free_blocks() - load.pool_blocks if load.pool_blocks is not None else 0
        held = pool.get_new_blocks(spare) if spare > 0 else []
        self.recorder.held_blocks = len(held)
        for name, value in limits.items():
            setattr(scheduler, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(scheduler, name, value)
            if held:
                pool.free_blocks(held)
            self.recorder.held_blocks = 0

    def made(self, load: Load) -> list[Any]:
        """vLLM's requests for a load, contexts that should be cached put into the cache."""
        prompts: dict[tuple[int, int], list[int]] = {}
        made = []
        for request in load.requests:
            key = (request.prompt, request.prompt_tokens)
            if key not in prompts:
                forged = bool(request.cached_tokens) and self.forging
                prompts[key] = self.prompt(None if forged else request.prompt, request.prompt_tokens)
            made.append(self._request(prompts[key], request))
            if request.cached_tokens and self.forging:
                self._forge(made[-1], request.cached_tokens)
        return made

    def prompt(self, key: int | None, tokens: int) -> list[int]:
        """Token ids of a prompt; without a key, ones that were never used before."""
        rng = self._rng if key is None else np.random.default_rng([5, key, tokens])
        ids: list[int] = rng.integers(min(3, self.vocabulary - 2), self.vocabulary - 1, tokens).tolist()
        return ids

    def _request(self, tokens: list[int], request: Request) -> Any:
        import vllm

        extra = {} if request.read_cache else {"skip_reading_prefix_cache": True}
        sampling = vllm.SamplingParams(
            max_tokens=request.output_tokens, temperature=1.0, ignore_eos=True, detokenize=False, **extra
        )
        engine = self.llm.llm_engine
        if self._tasks is None:
            self._tasks = engine.get_supported_tasks()
        self._requests += 1
        processed = engine.input_processor.process_inputs(
            f"r{self._requests}", {"prompt_token_ids": tokens}, sampling, self._tasks
        )
        return self.core.preprocess_add_request(processed)[0]

    def _forge(self, request: Any, tokens: int) -> None:
        """Allocates and hashes the blocks of its first tokens as if they had been computed, then lets go of them."""
        manager = self.core.scheduler.kv_cache_manager
        try:
            if manager.allocate_slots(request, tokens) is not None:
                manager.free(request)
        except Exception as error:  # noqa: BLE001 - then contexts are computed: slower, not wrong
            self.forging = False
            self.writer.put("note", forging=f"not possible here: {error!r}"[:300])

    def busy(self) -> bool:
        """Whether requests are in it or an iteration is under way."""
        return bool(self.core.scheduler.has_requests() or getattr(self.core, "batch_queue", None))

    def step(self) -> None:
        """Calls the engine core's own step function once."""
        _, executed = self.core.step_fn()
        self.core.post_step(executed)

    def clear(self) -> None:
        """Aborts all requests and lets what is under way end."""
        self.core.abort_requests([r.request_id for r in list(self.core.scheduler.requests.values())])
        for _ in range(50):
            if not self.busy():
                return
            self.step()
        raise EngineLostError("requests were aborted, and the engine is still busy 50 iterations later")


def start(args: Mapping[str, Any], writer: RawWriter) -> VllmEngine:
    """An engine with these vLLM arguments. Raises what vLLM raises; OutsideError for a release built differently."""
    import importlib.util

    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # its core in this process
    defaults = dict(ENVIRONMENT)
    if importlib.util.find_spec("flashinfer") is None:
        defaults["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    environment = {k: v for k, v in sorted(os.environ.items()) if k.startswith(description.ENVIRONMENT)}
    args = {**ARGUMENTS, **args}
    begin = perf_counter()
    import vllm

    imported = perf_counter()
    llm = vllm.LLM(**args)
    up = perf_counter()
    core = description.core_of(llm)
    config, scheduler = llm.llm_engine.vllm_config, core.scheduler
    limits = Limits(
        max_num_seqs=config.scheduler_config.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_scheduled_tokens,
        max_model_len=config.model_config.max_model_len,
        kv_blocks=scheduler.kv_cache_manager.block_pool.num_gpu_blocks - 1,
        block_size=config.cache_config.block_size,
    )
    took = {"import_s": round(imported - begin, 2), "init_s": round(up - imported, 2)}
    said = description.published({**description.facts(llm, core), **took}, args, environment)
    vocabulary = config.model_config.get_vocab_size()
    return VllmEngine(llm, core, writer, said, limits, Recorder(scheduler, writer), vocabulary)

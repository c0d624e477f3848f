"""A server that is none: the fake scheduler behind real HTTP on the loopback, in real time, going wrong on demand."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiohttp import web

from tests.calibrate.fake_scheduler import Job, Scheduler


@dataclass
class Faults:
    """What goes wrong, and what a server lacks.

    status: answered to completions. busy_times: how many 429 come before it works. die_after, hang_after, garble_after:
    completions until it drops connections, falls silent, sends what is no stream. foreign: requests of others that the
    metrics show, from the foreign_from-th look on. family: whose metric names, none for no page. together: tokens per
    chunk. text_only, strict: refuses token ids, unknown fields. usage: whether it tells token counts at all.
    early: responses end after so many tokens. dev: has the endpoints of vLLM's development mode. interrupt: Ctrl-C
    comes while it is paused. drops: connections closed in answer to the first requests. context: the longest.
    """

    status: int = 200
    busy_times: int = 0
    retry_after: str = "0"
    key: str | None = None
    die_after: int | None = None
    hang_after: int | None = None
    garble_after: int | None = None
    error_after: int | None = None
    foreign: int = 0
    foreign_from: int = 1
    foreign_ended: int = 0
    family: str = "vllm"
    together: int = 1
    text_only: bool = False
    strict: bool = False
    usage: bool = True
    early: int | None = None
    dev: bool = True
    models: tuple[str, ...] = ("fake-7b",)
    html: bool = False
    prefix: str = ""
    refuses_n: bool = False
    stuck_paused: bool = False
    interrupt: bool = False
    drops: int = 0
    context: int = 4096


@dataclass
class FakeServer:
    """State of a running fake. url: its root. asked: bodies of the completions that it got, headers beside them.

    lived_s: what iterations really took, by how many requests made a token in them.
    """

    faults: Faults
    scheduler: Scheduler
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    looks: int = 0
    refused: int = 0
    dropped: int = 0
    served: int = 0
    paused: bool = False
    resumes: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    lived_s: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 26)
        at = self.faults.prefix
        app.router.add_get(f"{at}/v1/models", self.models)
        app.router.add_post(f"{at}/v1/completions", self.completions)
        app.router.add_get(f"{at}/metrics", self.metrics)
        app.router.add_get(f"{at}/version", self.version)
        if self.faults.dev:
            app.router.add_get(f"{at}/server_info", self.server_info)
            app.router.add_get(f"{at}/is_paused", self.is_paused)
            app.router.add_post(f"{at}/pause", self.pause)
            app.router.add_post(f"{at}/resume", self.resume)
        return app

    async def version(self, request: web.Request) -> web.StreamResponse:
        return _json({"version": "0.99.0"})

    async def is_paused(self, request: web.Request) -> web.StreamResponse:
        return _json({"is_paused": self.paused})

    async def models(self, request: web.Request) -> web.StreamResponse:
        if self.faults.html:
            return web.Response(text="<html>welcome</html>", content_type="text/html")
        if self.faults.key and request.headers.get("Authorization") != f"Bearer {self.faults.key}":
            return _error(401, "invalid key")
        owner = {"vllm": "vllm", "old": "vllm", "sglang": "sglang"}.get(self.faults.family, "someone")
        return _json(
            {
                "data": [
                    {"id": m, "owned_by": owner, "root": m, "max_model_len": self.faults.context}
                    for m in self.faults.models
                ]
            }
        )

    async def server_info(self, request: web.Request) -> web.StreamResponse:
        s = self.scheduler.limits
        if self.faults.family == "sglang":
            return _json(
                {
                    "version": "0.5.9",
                    "api_key": "secret-of-the-server",
                    "max_running_requests": s.max_num_seqs,
                    "chunked_prefill_size": s.max_num_batched_tokens,
                    "max_total_num_tokens": s.kv_tokens,
                    "page_size": s.block_size,
                    "tp_size": 2,
                    "enable_mixed_chunk": True,
                    "context_length": self.faults.context,
                }
            )
        config = {
            "scheduler_config": {"max_num_seqs": s.max_num_seqs, "max_num_batched_tokens": s.max_num_batched_tokens},
            "parallel_config": {"tensor_parallel_size": 1, "data_parallel_size": 1},
            "model_config": {"dtype": "torch.bfloat16", "enforce_eager": False},
            "compilation_config": {"cudagraph_mode": 2, "cudagraph_capture_sizes": [1, 2, 4, 8, 16]},
        }
        if s_drafts := self.scheduler.accepted:
            config["speculative_config"] = {"method": "ngram", "num_speculative_tokens": len(s_drafts)}
        system = {"nvidia_gpu_models": "GPU 0: NVIDIA H200\nGPU 1: NVIDIA H200", "nvidia_driver_version": "570.1"}
        return _json({"vllm_config": config, "system_env": system})

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        self.looks += 1
        f, s = self.faults, self.scheduler
        if f.family == "none":
            return _error(404, "not found")
        foreign = f.foreign if self.looks >= f.foreign_from else 0
        ended = s.ended + (f.foreign_ended if self.looks >= f.foreign_from else 0)
        running, waiting = len(s.running) + foreign, len(s.waiting)
        if f.family == "sglang":
            page = (
                f'sglang:num_running_reqs{{model_name="m",tp_rank="0"}} {running}\n'
                f'sglang:num_queue_reqs{{model_name="m",tp_rank="0"}} {waiting}\n'
                f'sglang:max_total_num_tokens{{model_name="m",tp_rank="0"}} {s.limits.kv_tokens}\n'
            )
        else:
            usage = "gpu_cache_usage_perc" if f.family == "old" else "kv_cache_usage_perc"
            hits = "gpu_prefix_cache_hits_total" if f.family == "old" else "prefix_cache_hits_total"
            page = (
                f'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{engine="0"}} {running}.0\n'
                f'# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{{engine="0"}} {waiting}.0\n'
                f'vllm:{usage}{{engine="0"}} 0.25\n'
                f"# TYPE vllm:request_success counter\n"
                f'vllm:request_success_total{{engine="0",finished_reason="length"}} {ended}.0\n'
                f'# TYPE vllm:num_preemptions counter\nvllm:num_preemptions_total{{engine="0"}} 0.0\n'
                f'vllm:{hits}{{engine="0"}} {s.hits}.0\n'
                f'vllm:cache_config_info{{block_size="{s.limits.block_size}",enable_prefix_caching="True",engine="0",'
                f'num_gpu_blocks="{s.limits.kv_blocks + 1}"}} 1.0\n'
            )
            page += drafts_page(s) if s.accepted else ""
        return web.Response(text=page, content_type="text/plain")

    async def pause(self, request: web.Request) -> web.StreamResponse:
        assert request.query["mode"] == "keep"
        self.paused = True
        if self.faults.interrupt:
            _thread.interrupt_main()
        return _json({"status": "paused"})

    async def resume(self, request: web.Request) -> web.StreamResponse:
        self.resumes += 1
        if self.faults.stuck_paused:
            return _error(500, "cannot resume")
        self.paused = False
        self.wake.set()
        return _json({"status": "resumed"})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        f = self.faults
        self.headers.append(dict(request.headers))
        body = await request.json()
        if f.key and request.headers.get("Authorization") != f"Bearer {f.key}":
            return _error(401, "invalid key")
        if self.dropped < f.drops and request.transport is not None:
            self.dropped += 1
            request.transport.abort()
        if self.refused < f.busy_times:
            self.refused += 1
            return web.Response(status=429, headers={"Retry-After": f.retry_after}, text="slow down")
        if f.status != 200:
            return _error(f.status, "as the fake was told")
        ids = not isinstance(body["prompt"], str)
        if ids and f.text_only:
            return _error(400, "prompt must be a string")
        if f.strict and ("return_token_ids" in body or "continuous_usage_stats" in body.get("stream_options", {})):
            return _error(422, "extra fields not permitted")
        if f.refuses_n and body.get("n", 1) > 1:
            return _error(400, "n must be 1")
        self.asked.append(body)
        self.served += 1
        return await self._serve(request, body)

    async def _serve(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        f, number = self.faults, self.served
        n, want = body.get("n", 1), body["max_tokens"]
        length = (
            len(body["prompt"]) if not isinstance(body["prompt"], str) else round(1.5 * len(body["prompt"].split()))
        )
        made = want if f.early is None else min(want, f.early)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        queue: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        jobs = []
        for choice in range(n):
            job = Job(json.dumps(body["prompt"]), length, made)
            job.told = partial(_tell, queue, choice)
            jobs.append(job)
        self.scheduler.waiting += jobs
        self.wake.set()
        try:
            with contextlib.suppress(ConnectionError):  # the client has seen enough
                await self._stream(response, request.transport, body, queue, [made] * n, length, number)
        finally:
            for job in jobs:
                job.gone = True
            self.scheduler.ended += sum(j.made < j.want for j in jobs)
        return response

    async def _stream(
        self,
        response: web.StreamResponse,
        transport: Any,
        body: dict[str, Any],
        queue: asyncio.Queue[tuple[int, int]],
        wants: list[int],
        length: int,
        number: int,
    ) -> None:
        f, options = self.faults, body.get("stream_options") or {}
        sent = [0] * len(wants)
        while any(s < w for s, w in zip(sent, wants, strict=True)):
            choice, total = await queue.get()
            if f.hang_after is not None and number > f.hang_after:
                await asyncio.sleep(3600)
            if f.die_after is not None and number > f.die_after:
                transport.abort()
                return
            if f.garble_after is not None and number > f.garble_after:
                await response.write(b"data: {half an eve\n\n")
                return
            if f.error_after is not None and number > f.error_after:
                await response.write(b'data: {"error": {"message": "EngineCore encountered an issue"}}\n\n')
                return
            if total - sent[choice] < f.together and total < wants[choice]:
                continue
            new, sent[choice] = total - sent[choice], total
            over = total >= wants[choice]
            reason = ("length" if total >= body["max_tokens"] else "stop") if over else None
            record: dict[str, Any] = {"choices": [{"index": choice, "text": "x" * new, "finish_reason": reason}]}
            if body.get("return_token_ids"):
                record["choices"][0]["token_ids"] = [7] * new
            if f.usage and options.get("continuous_usage_stats"):
                record["usage"] = {"prompt_tokens": length, "completion_tokens": total}
            await response.write(f"data: {json.dumps(record)}\n\n".encode())
        if f.usage and options.get("include_usage"):
            usage = {"prompt_tokens": length, "completion_tokens": sum(sent)}
            await response.write(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")

    async def engine(self) -> None:
        """Iterations in real time: each result is told when its seconds have passed."""
        due = last = time.perf_counter()
        while True:
            if self.paused or not self.scheduler.busy():
                self.wake.clear()
                await self.wake.wait()
                due = last = time.perf_counter()
                continue
            seconds, out = self.scheduler.step()
            due = max(due, time.perf_counter() - 0.005) + seconds  # late by a little: the mean rate still holds
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            now = time.perf_counter()
            self.lived_s[len(out)].append(now - last)
            last = now
            for job in out:
                job.told(job.made)


def drafts_page(s: Scheduler) -> str:
    """What vLLM 0.32 exports of speculative decoding, in its own order and form."""
    at = s.accepted_at or [0] * len(s.accepted)
    counters = {
        "generation_tokens_total": s.generated,
        "spec_decode_num_drafts_total": s.drafts,
        "spec_decode_num_draft_tokens_total": s.drafted,
        "spec_decode_num_accepted_tokens_total": sum(at),
    }
    page = f'vllm:time_to_first_token_seconds_count{{engine="0"}} {s.first_tokens}.0\n'
    for name, value in counters.items():
        page += f'# TYPE vllm:{name.removesuffix("_total")} counter\nvllm:{name}{{engine="0"}} {value}.0\n'
    page += "# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter\n"
    for k, value in enumerate(at):
        page += f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{k}"}} {value}.0\n'
    return page


@contextlib.contextmanager
def serve(scheduler: Scheduler | None = None, **faults: Any) -> Iterator[FakeServer]:
    """A fake server on a free port of the loopback, in a thread with an event loop of its own; gone with the block."""
    fake = FakeServer(Faults(**faults), scheduler or Scheduler())
    ready, stop = threading.Event(), threading.Event()

    async def main() -> None:
        fake.wake = asyncio.Event()
        runner = web.AppRunner(fake.app(), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}{fake.faults.prefix}"
        engine = asyncio.ensure_future(fake.engine())
        ready.set()
        while not stop.is_set():
            await asyncio.sleep(0.02)
        engine.cancel()
        await asyncio.gather(engine, return_exceptions=True)
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield fake
    finally:
        stop.set()
        thread.join(60)


def _tell(queue: asyncio.Queue[tuple[int, int]], choice: int, total: int) -> None:
    queue.put_nowait((choice, total))


def _json(value: Any) -> web.Response:
    return web.json_response(value)


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)

"""What a server's /metrics says: how busy it is, what it holds. vLLM's names through its versions, and SGLang's.

Names: vLLM exports `vllm:num_requests_running`, counters with `_total`, under Ray `ray_vllm_...`
(vllm/v1/metrics/loggers.py). SGLang: `sglang:num_running_reqs`, `num_queue_reqs`,
`max_total_num_tokens` (python/sglang/srt/metrics/collector.py).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from msgspec import Struct

from fleetsim.calibrate.engine_facts import DraftCounts
from fleetsim.errors import OutsideError

NAME = re.compile(r"^(?:ray_)?(vllm|sglang)[:_](.+?)(?:_total)?$")
# What a reading takes from a page: the first of these that it has.
RUNNING = ("num_requests_running", "num_running_reqs")
WAITING = ("num_requests_waiting", "num_queue_reqs")
COUNTERS = {
    "ended": ("request_success", "num_requests"),
    "preempted": ("num_preemptions", "num_retracted_requests"),
    "hit_tokens": ("prefix_cache_hits", "gpu_prefix_cache_hits", "cached_tokens"),
}
Samples = dict[str, list[tuple[dict[str, str], float]]]  # by name: labels, value


class Gauges(Struct, frozen=True):
    """One reading. running, waiting: requests; ended, preempted, hit_tokens: counters since the server came up, None
    where the page has none. cache: the labels of vLLM's cache_config_info. engines: data-parallel engines behind it.
    drafts: of speculative decoding, None where the engine makes none.
    """

    family: str
    running: float
    waiting: float
    ended: float | None
    preempted: float | None
    hit_tokens: float | None
    total_kv_tokens: int | None
    cache: dict[str, str]
    engines: int
    drafts: DraftCounts | None = None

    @property
    def busy(self) -> float:
        """Requests in the server."""
        return self.running + self.waiting


def gauges_of(page: str) -> Gauges | None:
    """The reading in a metrics page; None where it is no Prometheus page, or one of some other server."""
    from prometheus_client.parser import text_string_to_metric_families

    found: Samples = {}
    families: list[str] = []
    try:
        for metric in text_string_to_metric_families(page):
            for sample in metric.samples:
                match = NAME.match(sample.name)
                if match and not sample.name.endswith(("_bucket", "_created")):
                    families.append(match[1])
                    found.setdefault(match[2], []).append((dict(sample.labels), float(sample.value)))
    except (ValueError, KeyError, IndexError, TypeError):  # what the parser raises on pages that are none
        return None
    running, waiting = _first(found, *RUNNING), _first(found, *WAITING)
    if running is None or waiting is None:
        return None
    rows = [labels for name in (*RUNNING, *WAITING) for labels, _ in found.get(name, ())]
    total = _first(found, "max_total_num_tokens")
    return Gauges(
        family=families[0],
        running=running,
        waiting=waiting,
        **{name: _first(found, *names) for name, names in COUNTERS.items()},
        total_kv_tokens=int(total) if total else None,
        cache=next((labels for labels, _ in found.get("cache_config_info", ())), {}),
        engines=max(1, len({(r.get("engine", ""), r.get("dp_rank", "")) for r in rows})),
        drafts=_drafts(found),
    )


def _drafts(found: Samples) -> DraftCounts | None:
    """vLLM's counters of speculative decoding (vllm/v1/spec_decode/metrics.py, 0.32.0)."""
    at: dict[int, float] = {}
    for labels, value in found.get("spec_decode_num_accepted_tokens_per_pos", ()):
        if labels.get("position", "").isdigit():
            at[int(labels["position"])] = at.get(int(labels["position"]), 0.0) + value
    drafts, drafted = _first(found, "spec_decode_num_drafts"), _first(found, "spec_decode_num_draft_tokens")
    if not at or drafts is None or drafted is None:
        return None
    generated = _first(found, "generation_tokens") or 0.0
    first_tokens = _first(found, "time_to_first_token_seconds_count") or 0.0
    return DraftCounts.counted(drafts, drafted, tuple(at[k] for k in sorted(at)), generated, first_tokens)


def _first(found: Samples, *names: str) -> float | None:
    """The sum of the first of these metrics that the page has. Ranks of one engine repeat its value: counted once."""
    for name in names:
        if name in found:
            per: dict[tuple[tuple[str, str], ...], float] = {}
            for labels, value in found[name]:
                key = tuple(sorted((k, v) for k, v in labels.items() if k not in ("tp_rank", "pp_rank", "moe_ep_rank")))
                per[key] = max(per.get(key, value), value)
            return sum(per.values())
    return None


SETTLE_S = 20.0  # an aborted request may take an iteration or two, a slow server more
POLL_S = 0.1
TOLERATED = 2  # requests between two looks: health checks that generate a token

Read = Callable[[], Awaitable[Gauges | None]]


class Guard:
    """Watches for work that is not ours. sent: our own requests so far, counted per choice.

    The server's counter of ended requests must not run ahead of ours by more than TOLERATED; it may lag (aborted
    requests are counted late, or never).
    """

    def __init__(
        self, read: Read, shown: str, yes: bool, say: Callable[[str], None], settle_s: float = SETTLE_S
    ) -> None:
        self._read, self._shown, self._yes, self._say, self._settle_s = read, shown, yes, say, settle_s
        self._base: float | None = None
        self.blind = False
        self.sent = 0

    def count(self, choices: int) -> None:
        """Takes in that so many choices of a request of ours go out."""
        self.sent += choices

    async def first(self) -> Gauges | None:
        """Before anything is sent. Raises OutsideError where others are on the server, or where nobody can tell."""
        gauges = await self._read()
        if gauges is None:
            self.blind = True
            if not self._yes:
                raise OutsideError(
                    f"{self._shown}: has no /metrics with vLLM's or SGLang's names, so nobody can tell whether it "
                    "serves others; give --yes if it is yours alone"
                )
            self._say("no /metrics: whether the server serves others meanwhile cannot be told")
            return None
        if gauges.busy > 0:
            if not self._yes:
                raise OutsideError(
                    f"{self._shown}: {gauges.running:g} requests are running and {gauges.waiting:g} waiting; measure a "
                    "server that serves nobody, or give --yes to measure beside them (and to slow them down)"
                )
            self._say(f"{gauges.busy:g} requests of others are in the server")
        self._base = gauges.ended
        return gauges

    async def idle(self) -> Gauges | None:
        """Between loads, when all of ours have ended or were aborted. Raises OutsideError where others have come."""
        if self.blind:
            return None
        left, gauges = self._settle_s, await self._read()
        while gauges is not None and gauges.busy > 0 and left > 0 and not self._yes:
            await asyncio.sleep(POLL_S)
            left, gauges = left - POLL_S, await self._read()
        if gauges is None:  # a scrape that did not come back says nothing
            return None
        extra = 0.0
        if gauges.ended is not None and self._base is not None:
            extra = gauges.ended - self._base - self.sent
            if extra > 0:
                self._base += extra
        if gauges.busy > 0 or extra > TOLERATED:
            what = f"{gauges.busy:g} requests of others are in it" if gauges.busy > 0 else f"served {extra:g} of others"
            if not self._yes:
                raise OutsideError(
                    f"{self._shown}: others began to use the server ({what}); what was measured is kept: go on with "
                    "--resume when it is free, or with --yes"
                )
            self._say(f"others use the server: {what}")
        return gauges

"""Engines that serve users: what was sent to each instance, and the same sent again.

No trainer says there what may begin, so none is assumed. What an instance has in flight, and what has ended on it, says
when requests came; their lengths are drawn from the law that the window shows. Requests that were in flight at the
beginning have a part of theirs left: a long one is met more often, and at any place of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.engine.requests import run_requests
from fleetsim.history.counters import mended
from fleetsim.history.history import Buckets, Floats, History
from fleetsim.records import replace
from fleetsim.replay.implied.implied_scenario import Implied
from fleetsim.replay.implied.stretch import own_paces
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.segments import have_rhythm
from fleetsim.sim.engines import Engine
from fleetsim.workload.lengths import sample_lengths


class Sent(Struct, frozen=True):
    """at_s: per instance, when requests came, seconds from the window's start, ascending; those in flight at the start
    come at 0 and are `early` of them. paces: of each instance. request_s: mean seconds of a request as the engines
    count them, None where they do not."""

    at_s: tuple[Floats, ...]
    early: tuple[int, ...]
    paces: tuple[float, ...]
    prefix_hit: float
    request_s: float | None


class PlayedRequests(Struct, frozen=True):
    """What became of the requests of all instances: when each came, brought its first token and ended, its tokens, and
    whether it was new in the window."""

    came: Floats
    first: Floats
    ended: Floats
    tokens: Floats
    new: NDArray[np.bool_]

    def tokens_between(self, a: float, b: float) -> float:
        """Output tokens from a to b seconds, evenly over a request's decoding."""
        lasts = np.maximum(self.ended - self.first, 1e-9)
        inside = np.clip(np.minimum(self.ended, b) - np.maximum(self.first, a), 0.0, None)
        return float((self.tokens * inside / lasts).sum())

    def in_flight(self, a: float, b: float) -> float:
        """Mean requests in flight from a to b seconds."""
        inside = np.clip(np.minimum(self.ended, b) - np.maximum(self.came, a), 0.0, None)
        return float(inside.sum()) / (b - a)

    def request_s(self, until: float) -> float | None:
        """Mean seconds of the new requests that ended by then; None where none did."""
        done = self.new & (self.ended <= until)
        return float((self.ended - self.came)[done].mean()) if done.any() else None


def serves(observed: Observed) -> bool:
    """Whether nobody trains on what the engines make: no optimizer step was read or inferred, no weights change."""
    if observed.fleet is None or observed.trainer.step_s is not None or observed.rolling is not None:
        return False
    if observed.placement == "colocated":
        return False
    counted = any(p.source == "counter" for p in observed.held)
    return not counted and not have_rhythm([p.start_s for p in observed.held], observed.step_s)


def sent_of(history: History, observed: Observed) -> Sent | None:
    """What was sent to each instance; None where the engines do not export what is in flight and what ended."""
    running, finished = history.values.get("running"), history.values.get("finished")
    if running is None or finished is None:
        return None
    waiting = history.values.get("waiting")
    in_flight = running if waiting is None else running + waiting
    ended = mended(finished)
    at_s, early, who = [], [], []
    for i, name in enumerate(history.instances):
        there = np.isfinite(in_flight[i]) & np.isfinite(ended[i])
        if np.count_nonzero(there) < 2:
            continue
        when = history.times[there] - history.start_s
        came = np.maximum.accumulate(in_flight[i][there] + ended[i][there] - ended[i][there][0])
        first = round(float(came[0]))
        count = round(float(came[-1])) - first
        rising = np.concatenate([[True], np.diff(came) > 0])
        later = np.interp(first + 0.5 + np.arange(count), came[rising], when[rising])
        at_s.append(np.concatenate([np.full(first, when[0]), later]))
        early.append(first)
        who.append(str(name))
    if not at_s or not sum(map(len, at_s)):
        return None
    paces = own_paces(observed.instances)
    hit = observed.fleet.prefix_hit if observed.fleet is not None else None
    each, seconds = tuple(paces.get(name, 1.0) for name in who), _request_s(history.histograms.get("e2e_s"))
    return Sent(tuple(at_s), tuple(early), each, hit or 0.0, seconds)


def _request_s(seconds: Buckets | None) -> float | None:
    """Growth of the sum over that of the count, of all instances."""
    if seconds is None:
        return None
    total, count = mended(seconds.sums), mended(seconds.counts[:, :, -1])
    grown = [float(np.nanmax(x, axis=1, initial=0.0).sum()) for x in (np.nan_to_num(total), np.nan_to_num(count))]
    return grown[0] / grown[1] if grown[1] > 0 else None


def play(
    sent: Sent,
    implied: Implied,
    replication: int,
    change: Callable[[Engine], Engine] | None = None,
    *,
    alike: bool = False,
) -> PlayedRequests | None:
    """Sends it again, to each instance its own. change: of the engine. alike: slow instances keep the median's pace.
    None without an engine. Raises InputError for a request that no instance can hold."""  # fmt: skip
    if implied.engine is None:
        return None
    scenario = implied.scenario
    step, limits = implied.engine if change is None else change(implied.engine)
    # No prompt is known to be another's sibling here: what the cache saves is taken off the work of a prompt.
    left = 1.0 - sent.prefix_hit
    near = step.window
    step = replace(
        step,
        per_prefill_token_s=left * step.per_prefill_token_s,
        per_attn_pair_s=left * step.per_attn_pair_s,
        window=None if near is None else replace(near, per_attn_pair_s=left * near.per_attn_pair_s),
    )
    prompts = scenario.workload.prompt_tokens
    rng = np.random.default_rng([scenario.run.seed, replication])
    parts: list[tuple[Floats, Floats, Floats, Floats, NDArray[np.bool_]]] = []
    for at_s, early, pace in zip(sent.at_s, sent.early, sent.paces, strict=True):
        n = len(at_s)
        if not n:
            continue
        output = sample_lengths(scenario.workload.output_tokens, rng, n).astype(np.float64)
        output[:early] = _left(scenario.workload.output_tokens, rng, early)
        prompt = sample_lengths(prompts, rng, n) if not isinstance(prompts, int) else np.full(n, prompts)
        own = step if alike else step.slower(1.0 / pace)
        done = run_requests(own, limits, prompt, output, arrival_s=at_s)
        parts.append((at_s, done.first_token_s, done.finish_s, output, np.arange(n) >= early))
    return PlayedRequests(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _left(law: object, rng: np.random.Generator, n: int) -> Floats:
    """Tokens that requests still have before them that are met at any time."""
    if not n:
        return np.zeros(0)
    drawn = sample_lengths(law, rng, 20 * n).astype(np.float64)  # type: ignore[arg-type]
    met = rng.choice(drawn, n, p=drawn / drawn.sum())
    return np.maximum(1.0, np.ceil(met * rng.random(n)))

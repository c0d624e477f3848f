"""Batches kept out of the fit, predicted by the simulator and compared request by request."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fleetsim import units
from fleetsim.calibrate.drafts import counts_in
from fleetsim.calibrate.facts import EngineFacts
from fleetsim.calibrate.raw import Raw, Segment
from fleetsim.config.engine_profile import BatchCheck, PrefixCache
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.measured_drafts import with_measured_drafts
from fleetsim.engine.requests import run_requests
from fleetsim.engine.step_time import StepTime

COLUMNS = ("submit", "first", "finish", "n", "P")


def check_batches(
    raw: Raw, facts: EngineFacts, step_time: StepTime, *, overhead_s: float = 0.0
) -> tuple[BatchCheck, ...]:
    """Every whole kept-out batch with times per request, measured and simulated, in the order in which they ran.

    The simulator gets what the client knew: prompts, groups, when each request was submitted, and the lengths that were
    generated; of a batch's iterations nothing but how far drafts were accepted. overhead_s: a client's fixed seconds
    per request, added to its times where a client measured (label client). Requests that never ended are left out on
    both sides.
    """
    checks = []
    seen: Counter[str] = Counter()
    for segment in kept_out(raw):
        seen[segment.phase] += 1
        number = f" {seen[segment.phase]}" if seen[segment.phase] > 1 else ""
        checks.append(_check(segment, facts, step_time, overhead_s, segment.phase + number))
    return tuple(checks)


def kept_out(raw: Raw) -> Iterator[Segment]:
    """The batches that no fit saw, that ran to their end and whose requests were followed."""
    for segment in raw.segments:
        r = segment.requests
        if not segment.kept_out or segment.cut or r is None or not all(r.get(name) for name in COLUMNS):
            continue
        if len({len(r[name]) for name in COLUMNS}) == 1 and np.any(_ended(r)):
            yield segment


def _ended(requests: dict[str, list[int]]) -> NDArray[np.bool_]:
    return np.asarray((np.array(requests["finish"]) > 0) & (np.array(requests["n"]) > 0))


def _check(segment: Segment, facts: EngineFacts, step_time: StepTime, overhead_s: float, name: str) -> BatchCheck:
    r, label = segment.requests or {}, segment.label
    ended = _ended(r)
    submit, finish, output, prompt = (np.array(r[k])[ended] for k in ("submit", "finish", "n", "P"))
    client = bool(label.get("client"))
    begin = int(submit.min())
    # in process the engine is stepped only after the requests that open the load are all in
    opened = begin if client else max(begin, round(1e6 * float(segment.record.get("submit") or 0.0)))
    arrival_s = np.maximum(submit - opened, 0) * 1e-6
    block = facts.block_size
    needed = math.ceil(int((prompt + output).max()) / block)
    slots = int(label.get("slots") or facts.max_num_seqs)
    limits = EngineLimits(
        max_num_seqs=min(slots, facts.max_num_seqs),
        max_num_batched_tokens=max(int(label.get("budget") or facts.max_num_batched_tokens), slots),
        kv_blocks=max(int(label.get("pool_blocks") or facts.kv_blocks), needed),
        block_size=block,
    )
    drafts = counts_in(segment.record)
    if drafts is not None and drafts.accepted_at:
        accepted = "as the batch was accepted"
        step_time = with_measured_drafts(step_time, drafts.shares, drafts.each, limits.max_num_seqs, accepted)
    group = _groups(label, prompt, np.flatnonzero(ended))
    result = run_requests(
        step_time,
        limits,
        prompt,
        output,
        arrival_s=arrival_s,
        group=group,
        prefix_caching=facts.prefix_caching and label.get("cached") is not False,
    )
    measured_s = (finish - begin) * 1e-6
    predicted_s = result.finish_s + (opened - begin) * 1e-6 + (overhead_s if client else 0.0)
    off = np.abs(predicted_s / measured_s - 1.0)
    makespan_s, expected_s = float(measured_s.max()), float(predicted_s.max())
    return BatchCheck(
        name=name,
        samples=len(output),
        output_tokens=int(output.sum()),
        makespan_s=units.short(makespan_s),
        predicted_s=units.short(expected_s),
        makespan_error=units.short(expected_s / makespan_s - 1.0),
        finish_error_median=units.short(float(np.median(off))),
        finish_error_p90=units.short(float(np.percentile(off, 90.0))),
        preemptions=int(np.sum(np.array(r.get("pre") or [0]))),
        predicted_preemptions=int(result.preemptions.sum()),
        length_scale=float(label.get("length_scale") or 1.0),
    )


def _groups(label: dict[str, object], prompt: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Which group each request belongs to: G siblings stand in a row. None where they share no prompt."""
    siblings = label.get("G")
    if not isinstance(siblings, int) or siblings < 2:
        return None
    group = place // siblings
    lengths = {(g, p) for g, p in zip(group.tolist(), prompt.tolist(), strict=True)}
    return group if len(lengths) == len(set(group.tolist())) else None


def prefix_cache_of(raw: Raw, facts: EngineFacts) -> PrefixCache | None:
    """Prompt tokens that groups of siblings found in the prefix cache, beside what the model expects.

    Expected: every sibling after the first skips floor((P - 1) / block) blocks. Taken from the batches that read the
    cache and in which nothing was preempted (a request that comes back finds its own blocks). None without such.
    """
    hit = expected = batches = 0
    for segment in kept_out(raw):
        r, label = segment.requests or {}, segment.label
        rows = raw.segment == segment.id
        siblings = label.get("G")
        counted = segment.record.get("hit_tokens")
        if label.get("cached") is not True or not isinstance(siblings, int) or any(r.get("pre") or ()):
            continue
        if counted is None and not np.any(rows):
            continue
        batches += 1
        hit += int(counted) if counted is not None else int(raw.columns["hit"][rows].sum())
        skipped = (np.array(r["P"]) - 1) // facts.block_size * facts.block_size
        expected += int(facts.prefix_caching * skipped[np.arange(len(skipped)) % siblings > 0].sum())
    if not batches:
        return None
    return PrefixCache(enabled=facts.prefix_caching, hit_tokens=hit, expected_tokens=expected)

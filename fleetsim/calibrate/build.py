"""Raw measurements become a profile: facts, observations, fit, check. A pure function of the measurements."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim import units
from fleetsim.calibrate.engine_facts import OF_USERS, EngineFacts, counts_in, facts_of, measured_drafts
from fleetsim.calibrate.fit.design import Observations, observations_of
from fleetsim.calibrate.fit.fit import fit, spread_of
from fleetsim.calibrate.raw import FITTED, Raw, Segment
from fleetsim.config.engine_profile import MAX_POINTS, BatchCheck, Point, PrefixCache, Profile, ProfileError, SyncCost
from fleetsim.engine.acceptance import with_measured_drafts
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.requests import run_requests
from fleetsim.engine.step_time import StepTime

# --- Batches kept out of the fit, predicted by the simulator and compared request by request.

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
        again = f" {seen[segment.phase]}" if seen[segment.phase] > 1 else ""
        checks.append(_check(segment, facts, step_time, overhead_s, segment.phase + again))
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
    held, block = facts.limits, facts.limits.block_size
    needed = math.ceil(int((prompt + output).max()) / block)
    slots = int(label.get("slots") or held.max_num_seqs)
    limits = EngineLimits(
        max_num_seqs=min(slots, held.max_num_seqs),
        max_num_batched_tokens=max(int(label.get("budget") or held.max_num_batched_tokens), slots),
        kv_blocks=max(int(label.get("pool_blocks") or held.kv_blocks), needed),
        block_size=block,
    )
    drafts = counts_in(segment.record)
    if drafts is not None and drafts.accepted_at:
        accepted = "as the batch was accepted"
        step_time = with_measured_drafts(step_time, drafts.shares, drafts.each, limits.max_num_seqs, accepted)
    group, caching = _groups(label, prompt, np.flatnonzero(ended)), facts.prefix_caching
    caching = caching and label.get("cached") is not False
    result = run_requests(step_time, limits, prompt, output, arrival_s=arrival_s, group=group, prefix_caching=caching)
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
        skipped = (np.array(r["P"]) - 1) // facts.limits.block_size * facts.limits.block_size
        expected += int(facts.prefix_caching * skipped[np.arange(len(skipped)) % siblings > 0].sum())
    if not batches:
        return None
    return PrefixCache(enabled=facts.prefix_caching, hit_tokens=hit, expected_tokens=expected)


def build_profile(raw: Raw, *, name: str, raw_file: str | None) -> Profile:
    """The profile of an engine: the same measurements and fleetsim version give the same profile.

    raw_file: the measurements' file name beside the profile's. Raises InputError where they do not tell enough.
    """
    facts = facts_of(raw)
    observations = observations_of(raw)
    fitted = fit(observations, graph_sizes=facts.graph_sizes)
    drafts = measured_drafts(raw)
    assumed = [*facts.provenance.assumed, *fitted.assumed]
    if drafts is not None and drafts.method is None:
        assumed.append("the method of drafting: the server does not say it (VLLM_SERVER_DEV_MODE=1 would)")
    if drafts is not None and drafts.measured_on != OF_USERS:
        theirs = "calibrate a server that has served your own requests, and theirs is taken"
        assumed.append(f"acceptance of drafts: of {drafts.measured_on}; {theirs}")
    checks = check_batches(raw, facts, fitted.step_time, overhead_s=fitted.error.overhead_s)
    return Profile(
        name=name,
        kind="measured",
        coefficients=fitted.coefficients,
        ranges=fitted.ranges,
        limits=facts.limits,
        error=error_of(checks),
        fit=fitted.error,
        checks=checks,
        points=points_of(observations, alike(raw), fitted.error.overhead_s),
        prefix_cache=prefix_cache_of(raw, facts),
        sync=sync_of(raw),
        speculation=drafts,
        provenance=facts.provenance.model_copy(update={"assumed": tuple(assumed)}),
        raw=raw_file,
    )


def default_name(facts: EngineFacts) -> str:
    """A name from what was measured, as h200-qwen2.5-7b-tp1-vllm-0.26.0."""
    # memory and socket go, PCIe and NVL stay: those are other speeds
    p = facts.provenance
    gpu = re.sub(r"^(nvidia|amd|intel)\s+|[\s-](hbm\w*|sxm\w*|\d+\s*gb|generation)\b", "", p.gpu.lower())
    model = p.model.rstrip("/").rsplit("/", 1)[-1]
    gpu = gpu or ("cpu" if "+cpu" in p.torch + p.engine_version else "")  # a server may not say what it runs on
    parts = (gpu, model, f"tp{p.tp}", p.engine, p.engine_version.split("+")[0])
    joined = "-".join(part for part in parts if part).lower()
    # as long as a file's name may be, with its ending
    return re.sub(r"[^a-z0-9.]+", "-", joined)[:200].strip("-.")


def error_of(checks: tuple[BatchCheck, ...]) -> ProfileError:
    """The profile's error: of the makespans of the batches that were kept out of the fit."""
    if not checks:
        return ProfileError(what="no batch was kept out of the fit: how well it predicts one is not known")
    off, batches = np.abs([c.makespan_error for c in checks]), units.plural(len(checks), "batch")
    worst = units.short(float(off.max()))
    return ProfileError(**spread_of(off), worst=worst, what=f"makespan of {batches} kept out of the fit")


def alike(raw: Raw) -> NDArray[np.int64]:
    """Which loads are repeats of one, by segment id: passes over a sweep ask for the same thing again."""
    first: dict[str, int] = {}
    asked = [
        json.dumps([phase, {k: v for k, v in label.items() if k != "pass"}], sort_keys=True)
        for phase, label in zip(raw.phase_of, raw.label_of, strict=True)
    ]
    return np.array([first.setdefault(text, i) for i, text in enumerate(asked)], np.int64)


def points_of(o: Observations, load_of: NDArray[np.int64] | None = None, overhead_s: float = 0.0) -> tuple[Point, ...]:
    """What was measured: medians, a point per load. Mixed loads give their iterations with prefill.

    load_of: the load that a segment repeats, by segment id; each is its own without. An observation of several
    iterations counts as its mean iteration. overhead_s: a client's fixed seconds, taken out where they were in.
    """
    held = o.means()
    seconds = np.maximum(o.seconds - overhead_s * o.overheads, 1e-9) / np.bincount(o.of, minlength=len(o))
    kind = np.where(held[:, 2] == 0, 0, np.where(held[:, 0] == 0, 1, 2))
    load = o.segment.astype(np.int64) if load_of is None else load_of[o.segment]
    key = load * 3 + kind
    mixes = set(load[kind == 2].tolist())
    points = []
    for k in np.unique(key).tolist():
        if k % 3 == 0 and k // 3 in mixes:
            continue  # the decodes between a mixed load's prompts: decode loads show those
        rows = key == k
        points.append(_point(k % 3, held[rows], seconds[rows]))
    return tuple(points[:MAX_POINTS])


def _point(kind: int, held: NDArray[np.float64], seconds: NDArray[np.float64]) -> Point:
    b, kv, p, a = (units.short(float(v)) for v in np.median(held, axis=0))
    return Point(
        kind=FITTED[kind],
        decodes=b,
        kv_tokens=kv,
        prefill_tokens=p,
        attn_pairs=a,
        seconds=units.short(float(np.median(seconds))),
        p90_s=units.short(float(np.percentile(seconds, 90.0))) if len(seconds) > 1 else None,
        count=len(seconds),
    )


def sync_of(raw: Raw) -> SyncCost | None:
    """What pausing, loading weights and resuming cost, from the phase record that measured it; the last one counts."""
    found = [r for r in raw.records if r.get("t") == "phase" and r.get("ph") in ("sync", "misc")]
    if not found:
        return None
    fields: dict[str, Any] = {**found[-1], **(found[-1].get("res") or {})}
    said = fields.get("weights")
    weights = said if isinstance(said, dict) else {}
    host, size = _number(weights.get("h2d_pinned_GBs")), weights.get("bytes")
    cost = SyncCost(
        pause_s=_number(fields.get("pause_keep_s")),
        resume_s=_number(fields.get("resume_to_next_result_s")),
        broadcast_bytes_s=_number(fields.get("broadcast_bytes_s")),
        slowdown=_number(fields.get("slowdown")),
        load_s=_number(weights.get("load_from_device_s")),
        load_from_host_s=_number(weights.get("load_from_pinned_host_s")),
        model_bytes=size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None,
        host_bytes_s=None if host is None else host * 1e9,
    )
    return None if cost == SyncCost() else cost


def _number(value: Any) -> float | None:
    """A measured number, or the median of several; None for anything else."""
    several = value if isinstance(value, list) else [value]
    numbers = [float(v) for v in several if isinstance(v, (int, float)) and not isinstance(v, bool) and v >= 0]
    return units.short(float(np.median(numbers))) if numbers else None

"""Raw measurements become a profile: facts, observations, fit, check. A pure function of the measurements."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fleetsim import __version__, units
from fleetsim.calibrate.check import check_batches, prefix_cache_of
from fleetsim.calibrate.drafts import OF_USERS, measured_drafts
from fleetsim.calibrate.facts import EngineFacts, facts_of
from fleetsim.calibrate.fit.fit import Fit, fit
from fleetsim.calibrate.fit.observations import Observations, observations_of
from fleetsim.calibrate.fit.outliers import per_observation
from fleetsim.calibrate.raw import Raw
from fleetsim.config.engine_profile import (
    MAX_POINTS,
    BatchCheck,
    MeasuredDrafts,
    Point,
    Profile,
    ProfileError,
    ProfileLimits,
    Provenance,
    SyncCost,
)


def build_profile(raw: Raw, *, name: str, raw_file: str | None) -> Profile:
    """The profile of an engine: the same measurements and fleetsim version give the same profile.

    raw_file: the measurements' file name beside the profile's. Raises InputError where they do not tell enough.
    """
    facts = facts_of(raw)
    observations = observations_of(raw)
    fitted = fit(observations, graph_sizes=facts.graph_sizes)
    drafts = measured_drafts(raw)
    checks = check_batches(raw, facts, fitted.step_time, overhead_s=fitted.error.overhead_s)
    return Profile(
        name=name,
        kind="measured",
        coefficients=fitted.coefficients,
        ranges=fitted.ranges,
        limits=ProfileLimits(
            max_num_seqs=facts.max_num_seqs,
            max_num_batched_tokens=facts.max_num_batched_tokens,
            kv_blocks=facts.kv_blocks,
            block_size=facts.block_size,
        ),
        error=error_of(checks),
        fit=fitted.error,
        checks=checks,
        points=points_of(observations, alike(raw), fitted.error.overhead_s),
        prefix_cache=prefix_cache_of(raw, facts),
        sync=sync_of(raw),
        speculation=drafts,
        provenance=_provenance(raw, facts, fitted, drafts),
        raw=raw_file,
    )


def default_name(facts: EngineFacts) -> str:
    """A name from what was measured, as h200-qwen2.5-7b-tp1-vllm-0.26.0."""
    # memory and socket go, PCIe and NVL stay: those are other speeds
    gpu = re.sub(r"^(nvidia|amd|intel)\s+|[\s-](hbm\w*|sxm\w*|\d+\s*gb|generation)\b", "", facts.gpu.lower())
    model = facts.model.rstrip("/").rsplit("/", 1)[-1]
    gpu = gpu or ("cpu" if "+cpu" in facts.torch + facts.version else "")  # a server may not say what it runs on
    parts = (gpu, model, f"tp{facts.tp}", facts.engine, facts.version.split("+")[0])
    joined = "-".join(part for part in parts if part).lower()
    # as long as a file's name may be, with its ending
    return re.sub(r"[^a-z0-9.]+", "-", joined)[:200].strip("-.")


def error_of(checks: tuple[BatchCheck, ...]) -> ProfileError:
    """The profile's error: of the makespans of the batches that were kept out of the fit."""
    if not checks:
        return ProfileError(what="no batch was kept out of the fit: how well it predicts one is not known")
    off = np.abs([c.makespan_error for c in checks])
    batches = units.plural(len(checks), "batch")
    return ProfileError(
        median=units.short(float(np.median(off))),
        p90=units.short(float(np.percentile(off, 90.0))),
        worst=units.short(float(off.max())),
        what=f"makespan of {batches} kept out of the fit",
    )


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
    iterations = np.bincount(o.of, minlength=len(o)).astype(np.float64)
    columns = (o.decodes, o.kv_tokens, o.prefill_tokens, o.attn_pairs)
    held = [per_observation(o, v) / iterations for v in columns]
    seconds = np.maximum(o.seconds - overhead_s * o.overheads, 1e-9) / iterations
    kind = np.where(held[2] == 0, 0, np.where(held[0] == 0, 1, 2))
    load = o.segment.astype(np.int64) if load_of is None else load_of[o.segment]
    key = load * 3 + kind
    mixes = set(load[kind == 2].tolist())
    points = []
    for k in np.unique(key).tolist():
        if k % 3 == 0 and k // 3 in mixes:
            continue  # the decodes between a mixed load's prompts: decode loads show those
        rows = key == k
        points.append(_point(k % 3, [v[rows] for v in held], seconds[rows]))
    return tuple(points[:MAX_POINTS])


def _point(kind: int, held: list[NDArray[np.float64]], seconds: NDArray[np.float64]) -> Point:
    b, kv, p, a = (units.short(float(np.median(v))) for v in held)
    names: tuple[Literal["decode", "prefill", "mixed"], ...] = ("decode", "prefill", "mixed")
    return Point(
        kind=names[kind],
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
    weights = fields.get("weights")
    weights = weights if isinstance(weights, dict) else {}
    host, size = _number(weights.get("h2d_pinned_GBs")), weights.get("bytes")
    cost = SyncCost(
        pause_s=_number(fields.get("pause_keep_s")),
        resume_s=_number(fields.get("resume_to_next_result_s")),
        load_s=_number(weights.get("load_from_device_s")),
        load_from_host_s=_number(weights.get("load_from_pinned_host_s")),
        model_bytes=size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None,
        host_bytes_s=None if host is None else host * 1e9,
        broadcast_bytes_s=_number(fields.get("broadcast_bytes_s")),
        slowdown=_number(fields.get("slowdown")),
    )
    return None if cost == SyncCost() else cost


def _number(value: Any) -> float | None:
    """A measured number, or the median of several; None for anything else."""
    several = value if isinstance(value, list) else [value]
    numbers = [float(v) for v in several if isinstance(v, (int, float)) and not isinstance(v, bool) and v >= 0]
    return units.short(float(np.median(numbers))) if numbers else None


def _provenance(raw: Raw, facts: EngineFacts, fitted: Fit, drafts: MeasuredDrafts | None) -> Provenance:
    source = str(raw.meta.get("source") or ("server" if raw.starts[-1].get("kind") == "server" else "vllm"))
    return Provenance(
        source=source,
        gpu=facts.gpu,
        gpu_count=facts.gpu_count or None,
        driver=facts.driver,
        cuda=facts.cuda,
        torch=facts.torch,
        engine=facts.engine,
        engine_version=facts.version,
        model=facts.model,
        model_shape=facts.model_shape,
        dtype=facts.dtype,
        tp=facts.tp,
        date=str(raw.meta.get("date") or "")[:10],
        flags=facts.flags,
        assumed=(*facts.unknown, *fitted.assumed, *_of_drafts(drafts)),
        fleetsim_version=__version__,
    )


def _of_drafts(drafts: MeasuredDrafts | None) -> Iterator[str]:
    """What is not known of drafts that were measured."""
    if drafts is None:
        return
    if drafts.method is None:
        yield "the method of drafting: the server does not say it (VLLM_SERVER_DEV_MODE=1 would)"
    if drafts.measured_on != OF_USERS:
        yield (
            f"acceptance of drafts: of {drafts.measured_on}; calibrate a server that has served your own requests, "
            "and theirs is taken"
        )

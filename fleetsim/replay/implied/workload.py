"""Lengths, groups and the batch of a window, into a scenario.

The law of output lengths behind an exported histogram: its buckets are coarse, its mean is exact.

Between two bucket bounds the share of shorter responses is interpolated on (log length, normal quantile), a straight
line for a lognormal; the last bounds' slope goes on to the cap, where what is left forms the atom that `max_tokens`
makes. Inside each bucket the mass is then tilted, all buckets alike, until the law's mean is the observed sum / count.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.workload import Histogram, Lognormal, longest_length
from fleetsim.distributions import halved
from fleetsim.history.history import Floats
from fleetsim.job.nameplate import mean_output_tokens, mean_prompt_tokens
from fleetsim.records import replace
from fleetsim.replay.implied.scenario_draft import ScenarioDraft
from fleetsim.replay.observe.changes import trend_words
from fleetsim.replay.observe.lengths import normal_cdf
from fleetsim.replay.observe.observed import LengthHistogram, Observed, Reading

_NORMAL = NormalDist()
# Parts of each bucket; lengths are whole tokens, so narrow buckets get fewer.
_PARTS = 12
# A tilt beyond this has put a bucket's mass at its edge: no tilt reaches the mean then.
_MOST_TILT = 30.0
# A share of responses that is none, for all that its logarithms can tell.
_LEAST_SHARE = 1e-12
# Caps that clients set, for a window whose tail says nothing else.
_FARTHEST = 4.0


CapFrom = Literal["given", "counted", "mean", "bound"]
"""How a cap came about: given, of the share cut by length, of the mean, or the highest bound."""


def length_law(
    lengths: LengthHistogram, cap: float | None = None, length_share: float | None = None
) -> tuple[Histogram, CapFrom]:
    """The law of `lengths`, and how its cap came about. cap: longest response where it is known; length_share: share of
    responses cut by it."""
    bounds, shares = _finite(lengths)
    open_share = max(0.0, 1.0 - float(shares.sum()))
    slope, last_z = _slope(bounds, shares)
    how: CapFrom = "given"
    if cap is None or (cap < bounds[-1] and open_share > 0):
        cap, how = _cap(lengths, bounds, shares, slope, last_z, length_share)
    cap = max(cap, 1.0)
    edges, mass = _parts(bounds, shares, slope, cap, open_share)
    bucket = np.searchsorted(bounds, 0.5 * (edges[:-1] + edges[1:]))  # in which exported one each part lies
    mass = _tilted(edges, mass, bucket, lengths.mean, cap)
    # The atom at the cap: a bucket beyond it, all of which `max` cuts back.
    top = max(cap * 1.001, float(edges[-1]) + 1.0)
    return Histogram(le=(*map(float, edges[1:]), top), count=tuple(map(float, mass)), max=float(cap)), how


def _finite(lengths: LengthHistogram) -> tuple[Floats, Floats]:
    """Finite upper bounds and the share of responses in each bucket. Empty ends are cut off, unless longer responses
    lie beyond them."""
    le, count = np.asarray(lengths.le, float), np.asarray(lengths.count, float)
    total = max(float(count.sum()), 1e-300)
    keep = np.isfinite(le)
    le, count = le[keep], count[keep]
    used = np.flatnonzero(count > 0)
    if not len(used):
        return np.array([max(1.0, lengths.mean)]), np.array([1e-9])
    beyond = float(lengths.count[-1]) > 0 and not keep[-1]
    last = len(le) if beyond else int(used[-1]) + 1  # an empty bucket before the open one says where nothing ended
    return le[:last], count[:last] / total


def _slope(bounds: Floats, shares: Floats) -> tuple[float, float]:
    """d z / d log(length) at the upper end, and z at the last bound below 1."""
    below = np.cumsum(shares)
    inside = [(math.log(b), _NORMAL.inv_cdf(float(f))) for b, f in zip(bounds, below, strict=True) if 0 < f < 1 - 1e-12]
    if len(inside) < 2:
        return 1.5, inside[0][1] if inside else 0.0
    (x0, z0), (x1, z1) = inside[-2:]
    return max(0.2, (z1 - z0) / (x1 - x0)), z1


def _cap(
    lengths: LengthHistogram, bounds: Floats, shares: Floats, slope: float, last_z: float, length_share: float | None
) -> tuple[float, CapFrom]:
    """The cap that the counted share of cut responses, or else the mean, asks for."""
    top = float(bounds[-1])
    open_share = max(0.0, 1.0 - float(shares.sum()))
    if open_share <= _LEAST_SHARE:
        return top, "bound"
    if length_share is not None and _LEAST_SHARE < length_share < open_share:
        z = _NORMAL.inv_cdf(1.0 - length_share)
        return min(top * _FARTHEST, top * math.exp((z - last_z) / slope)), "counted"
    if length_share is not None and length_share >= open_share:
        return top * 1.0001, "counted"

    def below(cap: float) -> bool:
        return _mean(*_parts(bounds, shares, slope, cap, open_share), cap) < lengths.mean

    return 0.5 * sum(halved(top, top * _FARTHEST, below)), "mean"


def _parts(bounds: Floats, shares: Floats, slope: float, cap: float, open_share: float) -> tuple[Floats, Floats]:
    """Edges (n + 1,) and mass (n + 1,) of the parts: n intervals and the atom at the cap."""
    edges, mass = [0.0], []
    below, lower = 0.0, 0.0
    for bound, share in zip(map(float, bounds), map(float, shares), strict=True):
        if min(bound, cap) > lower:
            cuts = _cuts(lower, min(bound, cap))
            edges += list(cuts[1:])
            mass += list(np.diff(_between(cuts, lower, bound, below, below + share, slope)))
        lower, below = bound, below + share
    if cap > lower and open_share > 0:
        cuts = _cuts(lower, cap)
        z0 = _NORMAL.inv_cdf(min(1 - 1e-12, max(1e-12, below)))
        f = normal_cdf(z0 + slope * (np.log(cuts) - math.log(lower)))
        f[0] = below
        edges += list(cuts[1:])
        mass += list(np.maximum(0.0, np.diff(f)))
    atom = max(0.0, 1.0 - sum(mass))
    return np.array(edges), np.array([*mass, atom])


def _cuts(low: float, high: float) -> Floats:
    """Edges of the parts of one bucket, even in the logarithm, whole tokens apart at least."""
    parts = int(max(1, min(_PARTS, round(high - low))))
    return np.geomspace(low, high, parts + 1) if low > 0 else np.linspace(low, high, parts + 1)


def _between(cuts: Floats, a: float, b: float, p: float, q: float, slope: float) -> Floats:
    """Share of responses up to each cut of the bucket (a, b] that goes from share p to q."""
    if q <= p:
        return np.full(len(cuts), p)
    if a <= 0:
        return p + (q - p) * cuts / b
    span = math.log(b) - math.log(a)
    low, high = (_NORMAL.inv_cdf(x) if 0 < x < 1 - 1e-12 else math.nan for x in (p, q))
    if math.isnan(low) and math.isnan(high):
        return p + (q - p) * (cuts - a) / (b - a)
    low = high - slope * span if math.isnan(low) else low
    high = low + slope * span if math.isnan(high) else high
    f = normal_cdf(low + (high - low) * (np.log(cuts) - math.log(a)) / span)
    low_f, high_f = _NORMAL.cdf(low), _NORMAL.cdf(high)
    return np.asarray(p + (q - p) * (f - low_f) / max(1e-300, high_f - low_f))


def _mean(edges: Floats, mass: Floats, cap: float) -> float:
    middle = 0.5 * (edges[:-1] + edges[1:])
    return float((middle * mass[:-1]).sum() + cap * mass[-1]) / float(mass.sum())


def _tilted(edges: Floats, mass: Floats, bucket: NDArray[np.int64], mean: float, cap: float) -> Floats:
    """The mass, moved inside its buckets until the law has this mean (as near to it as the buckets allow)."""
    middle = 0.5 * (edges[:-1] + edges[1:])
    places = [np.flatnonzero(bucket == b) for b in np.unique(bucket)]

    def tilt(theta: float) -> Floats:
        out = mass.copy()
        for inside in places:
            total, width = float(mass[inside].sum()), max(1e-9, float(edges[inside[-1] + 1] - edges[inside[0]]))
            if total > 0 and len(inside) > 1:
                weight = mass[inside] * np.exp(theta * (middle[inside] - middle[inside].mean()) / width)
                out[inside] = total * weight / weight.sum()
        return out

    return tilt(0.5 * sum(halved(-_MOST_TILT, _MOST_TILT, lambda x: _mean(edges, tilt(x), cap) < mean, 80)))


OUTPUT = "workload.output_tokens"
CAP = f"{OUTPUT}.max"
# The base scenario's own value stays where the window is this near to it: the window's is the noisier one.
NEAR = 0.02
_LEAST_INFERRED_GROUP = 1.5
# Of the requests: where more are aborted, a sample may be several requests because it goes on after a weight sync.
_ABORTED = 0.1


def take_workload(draft: ScenarioDraft, observed: Observed) -> None:
    """Lengths of responses and prompts, and samples per prompt."""
    lengths, start = observed.lengths, draft.start
    turns = _turns(draft, observed)
    if lengths is not None and turns == 1:
        _output(draft, observed, lengths)
    elif lengths is not None and "workload.turns.count" not in draft.changes:
        draft.assumed.append(f"workload.output_tokens: of {start.name}; a request is one of {turns} turns")
    elif observed.trainer.batch_tokens is not None and observed.trainer.batch_samples is not None:
        mean = observed.trainer.batch_tokens.value / observed.trainer.batch_samples.value
        if not draft.from_base or abs(mean / mean_output_tokens(start) - 1.0) > NEAR:
            cap = longest_length(start.workload.output_tokens) if draft.from_base or draft.set_by_user(CAP) else None
            law_of = Lognormal(mean=max(1.0, mean), cv=1.0, max=cap)
            draft.assume("workload.output_tokens", law_of, f"lognormal, cv 1, with the trained mean of {mean:,.0f}")
    else:
        draft.assumed.append("workload.output_tokens: no lengths were read")
    if (
        lengths is not None
        and lengths.prompt_mean is not None
        and (turns == 1 or "workload.turns.count" in draft.changes)
    ):
        said = mean_prompt_tokens(start)
        first = lengths.prompt_mean - 0.5 * (turns - 1) * lengths.mean  # a later turn's has the turns before it as well
        if not (draft.from_base and abs(first / said - 1.0) <= NEAR):
            prompt = max(1, start.workload.shared_prefix_tokens, round(first))
            draft.take("workload.prompt_tokens", prompt, f"mean {first:,.0f}", against=(first, said))
    group = None if lengths is None else lengths.group_size
    _group(draft, None if group is not None and turns > 1 and group.source == "inferred" else group)


def _turns(draft: ScenarioDraft, observed: Observed) -> float:
    """Requests of a sample: as said, else as many as make the tokens that the trainer trains of one."""
    lengths, t = observed.lengths, observed.trainer
    if draft.from_base or draft.set_by_user("workload.turns"):
        return draft.start.workload.turns.about
    if lengths is None or lengths.law is not None or t.batch_tokens is None or t.batch_samples is None:
        return 1
    if "inferred" in (t.batch_tokens.source, t.batch_samples.source):  # what was thrown away is in it
        return 1
    trained = t.batch_tokens.value / t.batch_samples.value
    turns, aborted = round(trained / lengths.mean), 0.0 if observed.fleet is None else observed.fleet.aborted_share
    if turns < 2 or (aborted or 0.0) > _ABORTED:
        return 1
    text = f"{turns}; {trained:,.0f} tokens of a sample are trained, and a request makes {lengths.mean:,.0f}"
    draft.assume("workload.turns.count", turns, text)
    return turns


def _output(draft: ScenarioDraft, observed: Observed, lengths: LengthHistogram) -> None:
    """The law of the responses: as measured, but for the facts that the user gave of it. A cap is one fact, and so is a
    mean; whoever gives a kind or a spread gives the law."""
    facts = draft.facts(OUTPUT)
    said = draft.start.workload.output_tokens
    mean = facts.get(f"{OUTPUT}.mean")
    if set(facts) - {CAP, f"{OUTPUT}.mean"}:
        draft.compare(OUTPUT, lengths.mean, mean_output_tokens(draft.start))
        draft.taken.append(f"{OUTPUT}: as set")
        return
    if mean is not None:  # the measured shape, with the mean that was given
        draft.compare(f"{OUTPUT}.mean", lengths.mean, mean)
        factor = mean / lengths.mean
        lengths = replace(lengths, le=tuple(factor * bound for bound in lengths.le), mean=mean)
    cap = longest_length(said) if draft.from_base or CAP in facts else None
    # the highest bound that more than one response in a hundred went beyond
    beyond = sum(lengths.count) - np.cumsum(lengths.count)
    over = [le for le, rest in zip(lengths.le, beyond, strict=True) if rest > 0.01 * sum(lengths.count)]
    longer = max((le for le in over if math.isfinite(le)), default=0.0)
    if cap is not None and cap < longer:
        draft.compare(CAP, longer, cap)
        cap = cap if CAP in facts else None
    if lengths.law is not None and mean is None:
        logged = lengths.law
        draft.changes[OUTPUT] = Lognormal(mean=logged.mean, cv=logged.cv, max=logged.cap if cap is None else cap)
        draft.compare(f"{OUTPUT}.mean", lengths.mean, mean_output_tokens(draft.start))
        cut = "" if cap is None and logged.cap is None else ", cut at the longest"
        draft.taken.append(f"{OUTPUT}: lognormal, mean {lengths.mean:,.0f}, cv {logged.cv:.2f} before the cap{cut}")
        return
    law, how = length_law(lengths, cap, observed.fleet.length_share if observed.fleet is not None else None)
    if CAP in facts and cap is not None:
        law, how = law.model_copy(update={"max": float(cap)}), "given"
    elif draft.from_base:
        draft.compare(f"{OUTPUT}.mean", lengths.mean, mean_output_tokens(draft.start))
    draft.changes[OUTPUT] = law
    means = f"{lengths.mean:,.0f} as set" if mean is not None else f"{lengths.mean:,.0f}"
    draft.taken.append(f"{OUTPUT}: {len(lengths.le)} buckets, mean {means}")
    if CAP in facts:
        draft.taken.append(f"{CAP}: {law.max:,.0f}, as set")
    elif how in ("counted", "mean"):
        by = "by the share of responses cut" if how == "counted" else "by the mean"
        draft.assumed.append(f"{CAP}: {law.max:,.0f}, {by} and a lognormal tail")


def _group(draft: ScenarioDraft, found: Reading | None) -> None:
    """Samples per prompt. A hit ratio only shows the siblings that share an engine, and n = 1 is how a client asks that
    sends each sample by itself: neither is held against a scenario."""
    exported = found is not None and found.source != "inferred"
    if found is not None and draft.from_base:
        if exported and found.value >= _LEAST_INFERRED_GROUP:
            text = f"{found.value:.2f}, {found.source}"
            if round(found.value) != draft.start.workload.group_size or draft.set_by_user("workload.group_size"):
                draft.take("workload.group_size", round(found.value), text)
        return
    if draft.from_base:
        return
    # The hit ratio shows siblings that share an engine: where a router spreads them, it shows none.
    if found is not None and found.value >= (1.0 if exported else _LEAST_INFERRED_GROUP):
        said = (round(found.value), draft.start.workload.group_size) if exported and found.value > 1 else (None, None)
        draft.take("workload.group_size", round(found.value), f"{found.value:.2f}, {found.source}", against=said)
    for path in ("workload.group_correlation", "workload.shared_prefix_tokens"):
        if not draft.set_by_user(path):
            draft.assumed.append(f"{path}: {draft.at(path):g}")


def tell_trend(draft: ScenarioDraft, observed: Observed) -> None:
    """Lengths are those of the whole window: where they moved, neither its start nor its end had them."""
    moved = observed.trend("response_tokens")
    if moved is not None and (OUTPUT in draft.changes or not draft.set_by_user(OUTPUT)):
        draft.assumed.append(f"workload.output_tokens: the mean of the window, although {trend_words(moved)}")


def take_batch(draft: ScenarioDraft, observed: Observed) -> None:
    """Samples per step, in whole groups."""
    group = group_size_of(draft)
    seen = observed.trainer.batch_samples
    if seen is None and observed.fleet is not None and observed.fleet.finished_s and observed.trainer.step_s:
        seen = Reading(observed.fleet.finished_s * observed.trainer.step_s.value, "inferred")
    if seen is None or seen.value < 1:
        batch = max(1, draft.start.trainer.batch_samples // group) * group
        draft.assume("trainer.batch_samples", batch, f"{batch}, no trainer was read")
        return
    known = draft.start.trainer.batch_samples
    if draft.from_base and abs(seen.value / known - 1.0) <= NEAR and known % group == 0:
        return
    if "workload.group_size" not in draft.changes and not draft.from_base:
        whole = round(seen.value)
        group = math.gcd(group, whole) if not draft.set_by_user("workload.group_size") else group
        draft.assume("workload.group_size", group, f"{group}; no metric says how many samples a prompt has")
    batch = max(1, round(seen.value / group)) * group
    draft.take("trainer.batch_samples", batch, f"{seen.value:,.1f} samples a step, {seen.source}")


def group_size_of(draft: ScenarioDraft) -> int:
    """Samples per prompt, as written so far."""
    return int(draft.changes.get("workload.group_size", draft.start.workload.group_size))

"""Lengths, groups and the batch of a window, into a scenario."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fleetsim.config.workload import Lognormal, longest_length
from fleetsim.job.nameplate import mean_output_tokens, mean_prompt_tokens
from fleetsim.replay.implied.length_law import length_law
from fleetsim.replay.implied.scenario_draft import ScenarioDraft
from fleetsim.replay.observe.observed import LengthHistogram, Observed, Reading
from fleetsim.replay.observe.trends import trend_words

OUTPUT = "workload.output_tokens"
CAP = f"{OUTPUT}.max"
# The base scenario's own value stays where the window is this near to it: the window's is the noisier one.
NEAR = 0.02
_LEAST_INFERRED_GROUP = 1.5


def take_workload(draft: ScenarioDraft, observed: Observed) -> None:
    """Lengths of responses and prompts, and samples per prompt."""
    lengths, start = observed.lengths, draft.start
    turns = start.workload.turns.about if draft.from_base or draft.set_by_user("workload.turns") else 1
    if lengths is not None and turns == 1:
        _output(draft, observed, lengths)
    elif lengths is not None:
        draft.assumed.append(f"workload.output_tokens: of {start.name}; a request is one of {turns} turns")
    elif observed.trainer.batch_tokens is not None and observed.trainer.batch_samples is not None:
        mean = observed.trainer.batch_tokens.value / observed.trainer.batch_samples.value
        if not draft.from_base or abs(mean / mean_output_tokens(start) - 1.0) > NEAR:
            cap = longest_length(start.workload.output_tokens) if draft.from_base or draft.set_by_user(CAP) else None
            law_of = Lognormal(mean=max(1.0, mean), cv=1.0, max=cap)
            draft.assume("workload.output_tokens", law_of, f"lognormal, cv 1, with the trained mean of {mean:,.0f}")
    else:
        draft.assumed.append("workload.output_tokens: no lengths were read")
    if lengths is not None and lengths.prompt_mean is not None and turns == 1:
        said = mean_prompt_tokens(start)
        if not (draft.from_base and abs(lengths.prompt_mean / said - 1.0) <= NEAR):
            at_least = start.workload.shared_prefix_tokens
            prompt = max(1, at_least, round(lengths.prompt_mean))
            text = f"mean {lengths.prompt_mean:,.0f}"
            draft.take("workload.prompt_tokens", prompt, text, against=(lengths.prompt_mean, said))
    _group(draft, None if lengths is None else lengths.group_size)


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
    longer = _longer_than(lengths)
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
    law = length_law(lengths, cap, observed.fleet.length_share if observed.fleet is not None else None)
    if CAP in facts and cap is not None:
        law = replace(law, law=law.law.model_copy(update={"max": float(cap)}), cap=float(cap), cap_from="given")
    elif draft.from_base:
        draft.compare(f"{OUTPUT}.mean", lengths.mean, mean_output_tokens(draft.start))
    draft.changes[OUTPUT] = law.law
    means = f"{lengths.mean:,.0f} as set" if mean is not None else f"{lengths.mean:,.0f}"
    draft.taken.append(f"{OUTPUT}: {len(lengths.le)} buckets, mean {means}")
    if CAP in facts:
        draft.taken.append(f"{CAP}: {law.cap:,.0f}, as set")
    elif law.cap_from in ("counted", "mean"):
        how = {"counted": "by the share of responses cut", "mean": "by the mean"}[law.cap_from]
        draft.assumed.append(f"{CAP}: {law.cap:,.0f}, {how} and a lognormal tail")


def _longer_than(lengths: LengthHistogram) -> float:
    """The highest bound that more than one response in a hundred went beyond."""
    beyond = sum(lengths.count) - np.cumsum(lengths.count)
    over = [le for le, rest in zip(lengths.le, beyond, strict=True) if rest > 0.01 * sum(lengths.count)]
    return max((le for le in over if math.isfinite(le)), default=0.0)


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
        against = (
            (round(found.value), draft.start.workload.group_size) if exported and found.value > 1 else (None, None)
        )
        draft.take("workload.group_size", round(found.value), f"{found.value:.2f}, {found.source}", against=against)
    for path in ("workload.group_correlation", "workload.shared_prefix_tokens"):
        if not draft.set_by_user(path):
            draft.assumed.append(f"{path}: 0")


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

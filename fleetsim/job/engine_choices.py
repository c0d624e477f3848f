"""Does it pay here: drafts (speculative decoding), of how many tokens; prompts on GPUs of their own, in which ratio?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from fleetsim import units
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.speculation import SpeculationConfig
from fleetsim.estimates import Estimate
from fleetsim.job.nameplate import context_in_flight, samples_in_flight
from fleetsim.job.trials import Measure, Tell, runs_of, step_beside
from fleetsim.quantities import PREFILL_BUSY
from fleetsim.sim.engines import engine_of, profile_of, speculation_of, without_drafts
from fleetsim.sim.speculation import longest_draft

# --- Does speculative decoding pay here, and with how many drafted tokens? The same job with other k, and without.

# Lengths of drafts that are tried beside the scenario's own.
_LENGTHS = (1, 2, 3, 5, 7)


class DraftLength(Struct, frozen=True):
    """The job with k drafted tokens, 0 = without speculation. ratio: its step over that of the job as it is, paired.
    differs: whether by more than chance."""

    k: int
    step_s: float
    ratio: Estimate
    differs: bool


class Drafts(Struct, frozen=True):
    """What speculation does to a job.

    k: as asked. tokens: that an iteration then brings of a sequence. pays_up_to: an instance makes more tokens than
    without drafts up to so many running sequences, 0 = never. tried: by k, ascending. best: the k of the shortest step.
    text: all of it in words.
    """

    k: int
    tokens: float
    pays_up_to: int
    tried: tuple[DraftLength, ...]
    best: int
    text: str


def drafts_of(scenario: Scenario, replications: int, measure: Measure, tell: Tell | None = None) -> Drafts | None:
    """Speculation of a scenario, simulated with other k under the same draws; None without speculation.

    Drafts of a tree, and k by batch size, are compared with no drafts alone.
    """
    given = speculation_of(scenario)
    if given is None:
        return None
    if tell is not None:
        tell("trying other lengths of drafts")
    own = given.num_speculative_tokens
    ways = {own: scenario, 0: without_drafts(scenario)}
    if given.num_draft_tokens is None and given.num_speculative_tokens_per_batch_size is None:
        ways |= {k: _with_k(scenario, given, k) for k in _LENGTHS if k != own and k <= longest_draft(given)}
    runs = runs_of(ways, replications, measure)
    base = runs[own]
    tried = tuple(DraftLength(k, *step_beside(of, base)) for k, of in sorted(runs.items()) if of and base)
    best = min(tried, key=lambda t: (t.step_s, t.k)).k if tried else own
    tokens, up_to = at_engine(scenario)
    told = (_drafts_verdict(own, tried, best), engine_words(scenario), _unmeasured(scenario))
    return Drafts(own, tokens, up_to, tried, best, " ".join(text for text in told if text))


def _with_k(scenario: Scenario, given: SpeculationConfig, k: int) -> Scenario:
    """The same with k drafted tokens: a measured acceptance length becomes the share that it stands for."""
    if scenario.engine.speculation is None:  # the profile's
        return with_changes(scenario, {"engine.speculation": {"method": given.method, "num_speculative_tokens": k}})
    changes: dict[str, Any] = {"engine.speculation.num_speculative_tokens": k}
    if given.acceptance_length is not None:
        from fleetsim.engine.acceptance import share_of_length

        share = share_of_length(given.acceptance_length, given.num_speculative_tokens)
        changes |= {"engine.speculation.acceptance_length": None, "engine.speculation.acceptance": share}
    return with_changes(scenario, changes)


def _drafts_verdict(own: int, tried: Sequence[DraftLength], best: int) -> str:
    """ "Speculation pays: ..." """
    of = {t.k: t for t in tried}
    if 0 not in of or own not in of:
        return ""
    without, asked = of[0], of[own]
    steps = f"{units.seconds(asked.step_s)} with k {own}, {units.seconds(without.step_s)} without"
    if not without.differs:
        said = f"Speculation changes no step here ({steps}): something else binds."
    elif without.ratio.mean > 1.0:
        said = f"Speculation pays: a step takes {steps}."
    else:
        said = f"Speculation does not pay at this load: a step takes {steps}."
    others = [str(t.k) for t in tried if t.k]
    if len(others) < 2:
        return said
    shortest = of[best]
    if best == own or not shortest.differs:
        return f"{said} No other k of {', '.join(others)} is better."
    which = f"k {best}" if best else "none"
    return f"{said} Of k {', '.join(others)} the best is {which} ({units.seconds(shortest.step_s)})."


def _unmeasured(scenario: Scenario) -> str:
    """What a profile cannot tell about other k and about no drafts; empty where there is nothing to say."""
    profile = profile_of(scenario)
    if profile is None or profile.speculation is None:
        return ""
    return (
        f"The seconds of profile {profile.name} hold its drafter at k {profile.speculation.num_speculative_tokens}, "
        "also where fewer tokens are drafted, or none: drafts pay less than told."
    )


def at_engine(scenario: Scenario) -> tuple[float, int]:
    """Tokens that an iteration with k drafts brings of a sequence, and the number of running sequences up to which
    drafts pay."""
    step_time, limits = engine_of(scenario)
    assert step_time.speculation is not None  # who asks has seen that there is one
    plain, _ = engine_of(without_drafts(scenario))
    decodes = np.arange(1, limits.max_num_seqs + 1, dtype=np.float64)
    context = context_in_flight(scenario)
    gains = step_time.mixed_s(decodes, context, 0.0, 0.0) < plain.mixed_s(decodes, context, 0.0, 0.0)
    worse = np.flatnonzero(~gains)
    lengths = step_time.speculation.lengths[0]
    return lengths[step_time.speculation.most], int(worse[0]) if len(worse) else limits.max_num_seqs


def engine_words(scenario: Scenario) -> str:
    """What drafts bring an instance at the load that the plan implies, and up to which load they pay."""
    step_time, limits = engine_of(scenario)
    plain, _ = engine_of(without_drafts(scenario))
    speculation = step_time.speculation
    assert speculation is not None  # who asks has seen that there is one
    tokens, up_to = at_engine(scenario)
    held = max(1, round(min(limits.max_num_seqs, samples_in_flight(scenario) / scenario.fleet.instances)))
    context = context_in_flight(scenario)
    gain = step_time.decode_tok_s(held, context) / plain.decode_tok_s(held, context)
    if up_to == 0:
        pays = "it never pays"
    elif up_to >= limits.max_num_seqs:
        pays = "it pays at every load that the instance can hold"
    else:
        pays = f"it pays up to {up_to:,}"
    return (
        f"{speculation.source}: {tokens:.2f} tokens an iteration, {gain:.2f} times the tokens per second where an "
        f"instance runs {units.plural(held, 'sequence')}; {pays}."
    )


# --- Do prompts on GPUs of their own pay here, and in which ratio? The same GPUs with other ratios, and undivided.

BUSY = PREFILL_BUSY.name
# Engines of a side that are tried, and ratios beside the scenario's own.
_MOST_ENGINES, _SIMULATED = 8, 3
# Prefill engines that are busier than this are what requests wait for; in a ratio that fits they are as busy as half.
_FULL, _FITTING = 0.85, 0.6


class Ratio(Struct, frozen=True):
    """The job with instances of so many prefill and decode engines, 0 prefill = undivided, on the same GPUs.

    ratio: its step over that of the job as it is, paired; differs: by more than chance."""

    prefill: int
    decode: int
    instances: int
    step_s: float
    ratio: Estimate
    differs: bool

    @property
    def text(self) -> str:
        """ "1:3" """
        return f"{self.prefill}:{self.decode}"


class Sides(Struct, frozen=True):
    """What disaggregation does to a job. busy: share of their time in which the prefill engines compute. binds: the
    side that has too little, or neither. tried: by ratio, undivided first. best: text of the ratio with the shortest
    step, "undivided" for none. verdict: whether it pays, and the best ratio,
    in words. text: all of it."""

    prefill: int
    decode: int
    busy: float
    binds: str
    tried: tuple[Ratio, ...]
    best: str
    verdict: str
    text: str


UNDIVIDED = "undivided"


def sides_of(scenario: Scenario, replications: int, measure: Measure, tell: Tell | None = None) -> Sides | None:
    """The ratio of a disaggregated job beside others on as many GPUs under the same draws; None without one."""
    given = scenario.engine.disaggregation
    if given is None:
        return None
    if tell is not None:
        tell("trying other ratios of prefill and decode engines")
    own = (given.prefill, given.decode)
    base = runs_of({own: scenario}, replications, measure)[own]
    if not base:
        return None
    busy = sum(float(run[BUSY]) for run in base) / len(base)
    ways = {own: scenario} | dict(_ways(scenario, busy))
    runs = runs_of(ways, replications, measure)
    each = ((p, d, of) for (p, d), of in sorted(runs.items()) if of)
    tried = tuple(Ratio(p, d, ways[p, d].fleet.instances, *step_beside(of, base)) for p, d, of in each)
    best = min(tried, key=lambda t: (t.step_s, t.text))
    binds = "prefill" if busy > _FULL else _less_decode(tried, own)
    verdict = _sides_verdict(tried, own, scenario)
    text = f"{verdict} {_busy_words(busy, binds)}"
    return Sides(*own, busy, binds, tried, best.text if best.prefill else UNDIVIDED, verdict, text)


def _ways(scenario: Scenario, busy: float) -> Iterator[tuple[tuple[int, int], Scenario]]:
    """The same GPUs undivided, and in the ratios nearest to the one that the prefill engines' work asks for."""
    e, given = scenario.engine, scenario.engine.disaggregation
    assert given is not None  # who asks has seen it
    gpus = scenario.fleet.instances * e.gpus
    if gpus % e.tp == 0 and given.decode_dp == 1:
        yield (0, 1), with_changes(scenario, {"engine.disaggregation": None, "fleet.instances": gpus // e.tp})
    asked = given.prefill * busy / _FITTING * e.prefill_tp  # GPUs that prefill engines need in each instance
    wanted = math.log(max(asked, 1e-3) / max(e.gpus - asked, 1e-3))
    found = []
    for p in range(given.prefill_dp, max(_MOST_ENGINES, given.prefill) + 1, given.prefill_dp):
        for d in range(given.decode_dp, max(_MOST_ENGINES, given.decode) + 1, given.decode_dp):
            each = p * e.prefill_tp + d * e.tp
            whole = math.gcd(p // given.prefill_dp, d // given.decode_dp) == 1
            if whole and gpus % each == 0 and p * given.decode != d * given.prefill:
                found.append((abs(math.log(p * e.prefill_tp / (d * e.tp)) - wanted), each, p, d))
    for _, each, p, d in sorted(found)[:_SIMULATED]:
        changes = {"engine.disaggregation.prefill": p, "engine.disaggregation.decode": d}
        yield (p, d), with_changes(scenario, {**changes, "fleet.instances": gpus // each})


def _less_decode(tried: Sequence[Ratio], own: tuple[int, int]) -> str:
    """Whether more decode engines for fewer prefill engines shorten the step."""
    more = [t for t in tried if t.prefill and t.prefill * own[1] < t.decode * own[0]]
    return "decode" if any(t.differs and t.ratio.mean < 1.0 for t in more) else "neither"


def _sides_verdict(tried: Sequence[Ratio], own: tuple[int, int], scenario: Scenario) -> str:
    """ "Disaggregation does not pay here: on 8 GPUs a step takes ..." """
    of = {(t.prefill, t.decode): t for t in tried}
    asked, whole = of[own], of.get((0, 1))
    gpus = units.plural(scenario.fleet.instances * scenario.engine.gpus, "GPU")
    said = f"On {gpus} a step takes {units.seconds(asked.step_s)} with {asked.text} prefill and decode engines"
    if whole is not None:
        steps = f"{said}, {units.seconds(whole.step_s)} undivided"
        if not whole.differs:
            said = f"Disaggregation changes no step here. {steps}."
        elif whole.ratio.mean > 1.0:
            said = f"Disaggregation pays. {steps}."
        else:
            said = f"Disaggregation does not pay here. {steps}."
    else:
        said = f"{said}."
    others = [t.text for t in tried if t.prefill and (t.prefill, t.decode) != own]
    if not others:
        return said
    ratios = [t for t in tried if t.prefill]
    shortest = min(ratios, key=lambda t: (t.step_s, t.text))
    if (shortest.prefill, shortest.decode) == own or not shortest.differs:
        return f"{said} No other ratio of {', '.join(others)} is better."
    return f"{said} Of the ratios {', '.join(others)} the best is {shortest.text} ({units.seconds(shortest.step_s)})."


def _busy_words(busy: float, binds: str) -> str:
    """ "Prefill engines compute 12 % of the time." """
    said = f"Prefill engines compute {units.share(busy, 0)} of the time"
    if binds == "prefill":
        return f"{said}: requests wait for them."
    return f"{said}: the decode engines have too little." if binds == "decode" else f"{said}."


def side_words(scenario: Scenario, busy: float | None = None) -> str:
    """The two sides of an instance in words, and how busy its prefill engines are; empty where it has none."""
    e = scenario.engine
    given = e.disaggregation
    if given is None:
        return ""
    from fleetsim.sim.engines import engine_of

    side = engine_of(scenario)[0].prefill
    assert side is not None  # the engine has a section for it
    said = (
        f"Disaggregated: {units.plural(given.prefill, 'prefill engine')} of {units.plural(e.prefill_tp, 'GPU')} and "
        f"{units.plural(given.decode, 'decode engine')} of {units.plural(e.tp, 'GPU')} are an instance; {side.source}."
    )
    return said if busy is None else f"{said} {_busy_words(busy, 'prefill' if busy > _FULL else '')}"

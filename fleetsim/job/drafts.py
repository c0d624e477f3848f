"""Does speculative decoding pay here, and with how many drafted tokens? The same job with other k, and without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetsim import units
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.speculation import SpeculationConfig
from fleetsim.dataclass import dataclass
from fleetsim.estimates import Estimate
from fleetsim.job.nameplate import context_in_flight, samples_in_flight
from fleetsim.job.trials import Measure, Tell, runs_of, step_beside
from fleetsim.sim.engines import engine_of, profile_of, speculation_of, without_drafts
from fleetsim.sim.speculation import longest_draft

# Lengths of drafts that are tried beside the scenario's own.
_TRIED = (1, 2, 3, 5, 7)


@dataclass(frozen=True, slots=True)
class DraftLength:
    """The job with k drafted tokens, 0 = without speculation. ratio: its step over that of the job as it is, paired.
    differs: whether by more than chance."""

    k: int
    step_s: float
    ratio: Estimate
    differs: bool


@dataclass(frozen=True, slots=True)
class Drafts:
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
        ways |= {k: _with_k(scenario, given, k) for k in _TRIED if k != own and k <= longest_draft(given)}
    runs = runs_of(ways, replications, measure)
    base = runs[own]
    tried = tuple(DraftLength(k, *step_beside(of, base)) for k, of in sorted(runs.items()) if of and base)
    best = min(tried, key=lambda t: (t.step_s, t.k)).k if tried else own
    tokens, up_to = at_engine(scenario)
    told = (_verdict(own, tried, best), engine_words(scenario), _unmeasured(scenario))
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


def _verdict(own: int, tried: Sequence[DraftLength], best: int) -> str:
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
    held = max(1, min(limits.max_num_seqs, round(samples_in_flight(scenario) / scenario.fleet.instances)))
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

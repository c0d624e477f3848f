"""Where the engine's speed comes from, how large its error is known to be, and whether a fleet's engines stay inside
what its profile measured: as planned, and as a run turned out.

As planned, an instance holds the samples in flight / instances. Its KV tokens peak where samples of a batch grow in
step, at most `held * P(length > t) * (prompt + t)` over t, or where they are met at random ages, three deviations
above their mean; the larger of the two, at most what the KV cache holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.config.workload import ConstantTokens
from fleetsim.engine.known_error import bias_words, known_error_of
from fleetsim.engine.limits import EngineLimits
from fleetsim.errors import InputError
from fleetsim.job.nameplate import context_in_flight, mean_prompt_tokens, samples_in_flight
from fleetsim.sim.engines import engine_of, profile_of
from fleetsim.sim.records import Records
from fleetsim.workload.lengths import quantile_length, typical_lengths
from fleetsim.workload.turns import response_law

if TYPE_CHECKING:
    from fleetsim.config.engine_profile import Profile


class EngineSource(Struct, frozen=True):
    """The profile behind an answer.

    kind: measured, derived, roofline or constant. text: all of it in words. gpu, model: what was measured or modelled,
    empty where nobody says. error_median, error_worst: absolute relative errors on data kept out of the fit, None where
    this engine has none. error_p90: 90 % of the errors are at most this, where many are known. error_what: the quantity
    of these errors. extrapolations: where the answer leaves the measured range, in words; None where there is no
    measured range. hash: of the profile's content, empty where there is none.
    """

    kind: str
    name: str
    text: str
    error_median: float | None
    error_worst: float | None
    error_what: str
    extrapolations: tuple[str, ...] | None
    gpu: str = ""
    model: str = ""
    error_p90: float | None = None
    hash: str = ""

    @property
    def accuracy(self) -> str:
        """Where the engine's speed comes from and how far off it may be: the paragraph that every answer shows."""
        if self.kind == "constant":
            return f"engine speed: {self.text}, whatever an instance holds; prompts cost nothing"
        if self.error_median is None:
            return f"engine speed: {self.text}; no error is on record for it"
        worst = f", worst {units.share(self.error_worst)}" if self.error_worst is not None else ""
        if self.error_p90 is not None:
            worst = f", 90 % within {units.share(self.error_p90, 0)}"
        what = f" ({self.error_what})" if self.error_what else ""
        return f"engine speed: {self.text}; error: median {units.share(self.error_median)}{worst}{what}"

    @property
    def strict_problem(self) -> str | None:
        """Why --strict refuses the answer, None where it does not.

        A rate that the user measured needs no range. A derived profile counts as measured inside the ranges of what it
        was derived from: somebody did measure there. One without ranges rests on a model alone, as a roofline does.
        """
        if self.kind == "roofline":
            return "this engine is a roofline estimate, nothing of it was measured"
        if self.kind != "constant" and self.extrapolations is None:
            return f"profile {self.name} has no measured ranges: nothing says where it holds"
        if self.extrapolations:
            return "the plan leaves the range that the profile measured"
        return None


def engine_source(scenario: Scenario, instances: int, runs: Sequence[Records] = ()) -> EngineSource:
    """The source of `scenario`'s engine speed, checked for `instances`, or against simulated runs where there are any.

    Raises InputError for a profile file.
    """
    e = scenario.engine
    if e.kind == "constant":
        rate = e.instance_tok_s or 0.0
        return EngineSource(
            "constant", f"{rate:g} tok/s", f"{rate:,.0f} tok/s per instance, as given", None, None, "", None
        )
    profile = profile_of(scenario)
    drafted = profile is not None and profile.speculation is not None
    drafts = "; of runs without speculative decoding" if e.speculation is not None and not drafted else ""
    drafts += "; of runs without LoRA adapters, what those take is not checked" if e.lora is not None else ""
    drafts += "; of runs that compute prompts where they decode" if e.disaggregation is not None else ""
    if profile is None:
        known = known_error_of(e)
        name = f"{e.model} on {e.gpu}"
        text = f"roofline of {name}" + ("" if e.name == "vllm" else f", {e.name}'s scheduler")
        return EngineSource(
            "roofline",
            name,
            text,
            known.median,
            None,
            known.what + bias_words(known) + drafts,
            None,
            e.gpu,
            e.model,
            error_p90=known.p90,
        )
    from fleetsim.config.engine_profile import seal_of

    extrapolations: tuple[str, ...] | None = None
    if any(bounds is not None for bounds in profile.ranges.model_dump().values()):
        extrapolations = outside_as_run(runs, profile) if runs else outside_as_planned(scenario, profile, instances)
    return EngineSource(
        profile.kind,
        profile.name,
        profile_words(profile),
        profile.error.median,
        profile.error.worst,
        profile.error.what + drafts,
        extrapolations,
        profile.provenance.gpu,
        profile.provenance.model,
        hash=seal_of(profile),
        error_p90=profile.error.p90 if profile.error.worst is None else None,
    )


def accuracy_of(scenario: Scenario) -> str:
    """`EngineSource.accuracy` of a scenario; empty where its engine's files are no more."""
    try:
        return engine_source(scenario, scenario.fleet.instances).accuracy
    except InputError:
        return ""


def profile_words(profile: Profile) -> str:
    """A profile in a line: its name, what it is, of what, from what, when."""
    p = profile.provenance
    gpu = p.gpu if p.tp is None or not p.gpu else f"{p.gpu} x {p.tp}"
    engine = f"{p.engine} {p.engine_version}".strip()
    facts = ", ".join(fact for fact in (gpu, p.model, engine, p.date) if fact)
    how = "measured" if profile.kind == "measured" else f"derived from {p.source or 'an unnamed source'}"
    return f"profile {profile.name}, {how}" + (f" ({facts})" if facts else "")


_QUANTILES = 400
# A thousandth of a run is below what the run's own noise moves.
_NEGLIGIBLE = 0.001

Range = tuple[float, float] | None
Column = NDArray[np.float64]


def outside_as_planned(scenario: Scenario, profile: Profile, instances: int) -> tuple[str, ...]:
    """Where a plan of so many instances leaves the measured ranges, in words; nothing where no range is on record."""
    _, limits = engine_of(scenario)
    held = samples_held(scenario, limits, instances)
    mean = min(held * context_in_flight(scenario), float(limits.kv_tokens))
    found = [
        _mean_outside("decodes", held, profile.ranges.decodes),
        _mean_outside("KV tokens", mean, profile.ranges.kv_tokens)
        or _peak_outside("KV tokens", peak_kv_tokens(scenario, limits, held), profile.ranges.kv_tokens),
    ]
    return tuple(text for text in (*found, *_whatever_runs(scenario, profile, limits, held)) if text)


def outside_as_run(runs: Sequence[Records], profile: Profile) -> tuple[str, ...]:
    """Where simulated runs left the measured ranges, for which share of the time, in words."""
    scenario, (_, limits) = runs[0].scenario, runs[0].engine
    held = samples_held(scenario, limits, scenario.fleet.instances)
    if scenario.workload.turns.several:
        return outside_as_planned(scenario, profile, scenario.fleet.instances)  # records know no pauses between turns
    found = []
    parts = [held_over_time(run) for run in runs]
    seconds, decodes, kv_before, kv_after = (np.concatenate([part[i] for part in parts]) for i in range(4))
    for what, before, after, measured in (
        ("decodes", decodes, decodes, profile.ranges.decodes),
        ("KV tokens", kv_before, kv_after, profile.ranges.kv_tokens),
    ):
        if measured is None or not seconds.sum() > 0:
            continue
        low, high = np.minimum(before, after), np.maximum(before, after)
        share = float((seconds * _share_outside(low, high, measured)).sum() / seconds.sum())
        if share > _NEGLIGIBLE:
            found.append(
                f"for about {units.share(share)} of the time that they work, instances hold {what} outside "
                f"{_range_words(measured)}: {_amount(float(low.min()))} to {_amount(float(high.max()))}"
            )
    return (*found, *_whatever_runs(scenario, profile, limits, held))


def samples_held(scenario: Scenario, limits: EngineLimits, instances: int) -> float:
    """Samples that an instance decodes at a time: its share of those in flight, at most what its limits let run."""
    most = min(limits.max_num_seqs, max(1.0, limits.kv_tokens // context_in_flight(scenario)))
    cap = scenario.fleet.max_in_flight_samples_per_instance
    held = samples_in_flight(scenario) / instances
    return min(held, float(most), math.inf if cap is None else float(cap))


def peak_kv_tokens(scenario: Scenario, limits: EngineLimits, held: float) -> float:
    """The most KV tokens that an instance of `held` samples comes to (see the module's docstring)."""
    law, prompt = response_law(scenario.workload), mean_prompt_tokens(scenario)
    lengths = typical_lengths(law, _QUANTILES)
    left = 1.0 - np.arange(_QUANTILES) / _QUANTILES
    in_step = held * float(np.max(left * (prompt + lengths)))
    mean = context_in_flight(scenario)
    written = float(np.mean(lengths**2) / (2.0 * np.mean(lengths)))
    deviation = math.sqrt(max(0.0, float(np.mean(lengths**3) / (3.0 * np.mean(lengths))) - written**2))
    return min(max(in_step, held * mean + 3.0 * math.sqrt(held) * deviation), float(limits.kv_tokens))


def _whatever_runs(scenario: Scenario, profile: Profile, limits: EngineLimits, held: float) -> tuple[str, ...]:
    """What does not depend on the course of a run: prompts that come in one iteration, and the longest context."""
    w = scenario.workload
    siblings = w.group_size if scenario.engine.prefix_caching and scenario.fleet.group_placement == "together" else 1
    prompts = min(float(limits.max_num_batched_tokens), max(1.0, held / siblings) * mean_prompt_tokens(scenario))
    found = [_peak_outside("prefill tokens in an iteration", prompts, profile.ranges.prefill_tokens)]
    contexts = [p.kv_tokens / p.decodes for p in profile.points if p.decodes >= 1 and p.kv_tokens > 0]
    law = response_law(w)
    longest = law.value if isinstance(law, ConstantTokens) else law.max or quantile_length(law, 0.999)
    reached = mean_prompt_tokens(scenario) + longest
    if contexts and reached > max(contexts):
        found.append(
            f"responses reach a context of {_amount(reached)} tokens; measured: up to {_amount(max(contexts))}"
        )
    return tuple(text for text in found if text)


def _mean_outside(what: str, value: float, measured: Range) -> str | None:
    if measured is None or measured[0] <= value <= measured[1]:
        return None
    return f"{_amount(value)} {what} per instance; measured: {_range_words(measured)}"


def _peak_outside(what: str, value: float, measured: Range) -> str | None:
    if measured is None or value <= measured[1]:
        return None
    return f"up to {_amount(value)} {what} per instance; measured: {_range_words(measured)}"


def _range_words(measured: tuple[float, float]) -> str:
    return f"{_amount(measured[0])} to {_amount(measured[1])}"


def _amount(x: float) -> str:
    return f"{x:,.0f}" if x >= 10 or x == round(x) else f"{x:.1f}"


def _share_outside(low: Column, high: Column, measured: tuple[float, float]) -> Column:
    """Which share of a change from low to high, even in time, lies outside of what was measured."""
    inside = np.minimum(high, measured[1]) - np.maximum(low, measured[0])
    still = np.where(inside >= 0, 0.0, 1.0)
    return np.where(high > low, 1.0 - np.maximum(inside, 0.0) / np.maximum(high - low, 1e-300), still)


def held_over_time(run: Records) -> tuple[Column, Column, Column, Column]:
    """What busy instances held between any two changes: seconds, samples, KV tokens at the start and at the end.

    A sample counts from its first schedule to its last token, and writes evenly from its first token on; one that was
    under way at the end of the run or was interrupted counts as far as it came.
    """
    s = run.samples
    end = float(run.steps["end_s"][-1])
    s = s[(s["start_s"] >= 0) & (s["instance"] >= 0) & (s["start_s"] < end)]  # -1: never came so far
    start = s["start_s"]
    finish = np.where(s["finish_s"] > start, np.minimum(s["finish_s"], end), end)
    first = np.where(s["first_token_s"] >= start, np.clip(s["first_token_s"], start, finish), finish)
    rate = np.where(finish > first, s["made"] / np.maximum(finish - first, 1e-9), 0.0)
    prompt = s["prompt"].astype(np.float64)
    at = np.concatenate([start, first, finish])
    one, none = np.ones(len(s)), np.zeros(len(s))
    samples = np.concatenate([one, none, -one])
    level = np.concatenate([prompt, -rate * first, rate * first - prompt])
    slope = np.concatenate([none, rate, -rate])
    instance = np.tile(s["instance"], 3)
    order = np.lexsort((at, instance))
    at, instance = at[order], instance[order]
    held, level, slope = (np.cumsum(column[order])[:-1] for column in (samples, level, slope))
    seconds = np.where(instance[1:] == instance[:-1], np.diff(at), 0.0)
    busy = (held > 0.5) & (seconds > 0)
    before, after = (np.maximum(level + slope * t, 0.0)[busy] for t in (at[:-1], at[1:]))
    return seconds[busy], held[busy], before, after

"""How long responses are: what --len, --len-cv and --max-len make of a law, and a law that changes from step to step.

`--len` is the mean of what is generated, cap included; a scenario's `mean` is that of the law before its cap. The law
is therefore solved for: its own mean is raised until the capped mean is --len. A job whose responses change is sized
where they are longest.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from fleetsim.config.base import MAX_TOKENS
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario, most_steps
from fleetsim.config.tree import is_given
from fleetsim.config.workload import LEAST_CV, MOST_CV, ConstantTokens, Gamma, LengthSpec, Lognormal
from fleetsim.distributions import halved
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag, setting, text
from fleetsim.job.settings import BY_NAME
from fleetsim.workload.lengths import growth_by_the_end, lognormal_parameters, mean_length, quantile_length, scaled_law

# An assumed cap leaves room for the tail: the next power of two at or above this many means, and at least 8,192.
_ROOM = 4.0
_LEAST_CAP = 8192.0


def law_from_flags(
    law: LengthSpec, cap_is_given: bool, mean: float | None, cv: float | None, cap: float | None
) -> tuple[list[Problem], dict[str, Any] | None]:
    """The law that the flags make of `law`: its problems, or its mapping. Flags that are None leave `law` as it is."""
    problems = [
        Problem(
            flag(name),
            value,
            f"must be between {low:g} and {high:,.0f}",
            text("for example {}", flag(name, f"{BY_NAME[name].example}{more}")),
        )
        for name, value, low, high, more in (
            ("len", mean, 1.0, MAX_TOKENS / _ROOM, ""),
            ("len_cv", cv or None, LEAST_CV, MOST_CV, ", or 0 for lengths that are all equal"),
            ("max_len", cap, 1.0, MAX_TOKENS, ""),
        )
        if value is not None and not low <= value <= high
    ]
    if problems:
        return problems, None
    if not isinstance(law, (ConstantTokens, Lognormal, Gamma)):
        if mean is None and cv is None:
            return [], {**law.model_dump(exclude_none=True), "max": cap}
        name, value = ("len", mean) if mean is not None else ("len_cv", cv)
        rule = f"the scenario's lengths are {law.kind}, they have no such parameter"
        described = setting("workload.output_tokens", "'{mean: 1536, cv: 1.0}'")
        remedy = text("drop the flag, or describe the lengths by {}", described)
        return [Problem(flag(name), value, rule, remedy)], None
    if cv == 0 or (isinstance(law, ConstantTokens) and cv is None):
        return _constant(law, mean, cap)
    spread = cv if cv is not None else _cv_of(law)
    own_mean = _mean_of(law)
    if cap is None:
        cap = None if isinstance(law, ConstantTokens) else law.max
        if mean is not None and not cap_is_given:
            cap = max(_LEAST_CAP, 2.0 ** math.ceil(math.log2(_ROOM * mean)))
    kind = "gamma" if isinstance(law, Gamma) else "lognormal"
    if mean is None:
        return [], _mapping(kind, own_mean, spread, cap)
    if cap is not None and mean >= cap:
        return [
            Problem(
                flag("len"),
                mean,
                f"the mean must be below the longest response ({cap:g})",
                text("raise {}, or lower {}", flag("max_len"), flag("len")),
            )
        ], None
    return _solved(kind, mean, spread, cap)


def _constant(law: LengthSpec, mean: float | None, cap: float | None) -> tuple[list[Problem], dict[str, Any] | None]:
    value = mean if mean is not None else _mean_of(law)
    if value != int(value):
        return [Problem(flag("len"), value, "constant lengths must be whole tokens", f"use {round(value)}")], None
    if cap is not None and value > cap:
        rule, remedy = f"every response has {value:g} tokens", text("raise {}", flag("max_len"))
        return [Problem(flag("max_len"), cap, rule, remedy)], None
    return [], {"kind": "constant", "value": int(value)}


def _mean_of(law: LengthSpec) -> float:
    """Mean of the law before its cap."""
    if isinstance(law, ConstantTokens):
        return float(law.value)
    if isinstance(law, Lognormal):
        mu, sigma = lognormal_parameters(law)
        return law.mean if law.mean is not None else math.exp(mu + sigma**2 / 2.0)
    assert isinstance(law, Gamma)  # the two laws without a mean are refused before
    return law.mean


def _cv_of(law: LengthSpec) -> float:
    if isinstance(law, Lognormal) and law.cv is None:
        return max(LEAST_CV, math.sqrt(math.expm1(lognormal_parameters(law)[1] ** 2)))
    cv = getattr(law, "cv", None)
    return 1.0 if cv is None else float(cv)


def _mapping(kind: str, mean: float, cv: float, cap: float | None) -> dict[str, Any]:
    return {"kind": kind, "mean": mean, "cv": cv} | ({} if cap is None else {"max": cap})


def _solved(kind: str, mean: float, cv: float, cap: float | None) -> tuple[list[Problem], dict[str, Any] | None]:
    """The law whose capped mean is `mean`, by bisection on the mean before the cap."""
    if cap is None:
        return [], _mapping(kind, mean, cv, None)
    build = Gamma if kind == "gamma" else Lognormal

    def capped_mean(own: float) -> float:
        return mean_length(build(mean=own, cv=cv, max=cap), at_least=1.0)

    low, high = mean / 2.0, mean
    while capped_mean(low) > mean:
        low /= 2.0
        if low < 1e-3:
            rule = f"responses of at least one token with cv {cv:g} are longer on average"
            remedy = text("raise {}, or give {}", flag("len"), flag("len_cv", 0))
            return [Problem(flag("len"), mean, rule, remedy)], None
    while capped_mean(high) < mean:
        low, high = high, high * 2.0
        if high > 1e6 * cap or high > 1e9:
            return [
                Problem(
                    flag("len"),
                    mean,
                    f"cannot be the mean of responses cut at {cap:g} tokens with cv {cv:g}",
                    text("raise {}, or lower {} or {}", flag("max_len"), flag("len"), flag("len_cv")),
                )
            ], None
    _, high = halved(low, high, lambda x: capped_mean(x) < mean)
    try:
        build(mean=high, cv=cv, max=cap)
    except (InputError, ValueError):
        remedy = text("check {} and {}", flag("len_cv"), flag("max_len"))
        return [Problem(flag("len"), mean, "makes no law with this cap and cv", remedy)], None
    return [], _mapping(kind, high, cv, cap)


def share_above(law: LengthSpec, cap: float) -> float:
    """P(L > cap) of a law, to a thousandth, by bisection on its quantiles."""
    return 1.0 - halved(0.0, 1.0, lambda share: quantile_length(law, share) <= cap, 14)[0]


def share_at_cap(law: LengthSpec) -> float:
    """The share of the responses that a law's cap cuts."""
    if isinstance(law, ConstantTokens) or law.max is None:
        return 0.0
    return share_above(law, law.max * (1.0 - 1e-9))


_FURTHER = 100


def where_longest(scenario: Scenario) -> dict[str, Any]:
    """The changes that make a drifting job steady at its longest responses: those of the last step of run.steps, or of
    the first one where they shrink. Nothing where there is no drift."""
    w = scenario.workload
    if not w.length_drift_per_step:
        return {}
    law = scaled_law(w.output_tokens, max(1.0, growth_by_the_end(scenario)))
    return {"workload.length_drift_per_step": 0.0, "workload.output_tokens": law.model_dump(exclude_none=True)}


def growth_notes(scenario: Scenario, given: Collection[str]) -> tuple[str, ...]:
    """What an answer about a drifting job rests on. given: dotted paths that somebody wrote."""
    w, steps = scenario.workload, most_steps(scenario)
    drift = w.length_drift_per_step
    if not drift:
        return ()
    start, end = (mean_length(w.output_tokens, scale=by, at_least=1.0) for by in (1.0, growth_by_the_end(scenario)))
    nobody = "" if is_given("run.steps", given) else ", which nobody gave"
    way, longest = ("grow", "last") if drift > 0 else ("shrink", "first")
    return (
        f"responses {way} by {abs(drift):.2g} of their length a step (workload.length_drift_per_step): from a mean of "
        f"{start:,.0f} tokens to {end:,.0f} after {steps:,} steps (run.steps{nobody}). A fleet is sized for the "
        f"{longest} of these steps, where they are longest; a run is simulated over all. {_FURTHER} steps more make "
        f"them {(1.0 + drift) ** _FURTHER:.2g} times as long: give the length of the job, --set run.steps=N",
    )


def as_asked(planned: Scenario, scenario: Scenario) -> Scenario:
    """What a plan made of a scenario, with the scenario's own lengths and their drift."""
    w = scenario.workload
    if not w.length_drift_per_step:
        return planned
    law = w.output_tokens.model_dump(exclude_none=True)
    changes = {"workload.length_drift_per_step": w.length_drift_per_step, "workload.output_tokens": law}
    return with_changes(planned, changes)

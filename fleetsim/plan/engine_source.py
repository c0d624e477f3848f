"""Where the engine's speed comes from, how far off it is known to be, and whether a plan leaves what was measured."""

from __future__ import annotations

import json
from dataclasses import dataclass

from fleetsim.config.profile import load_profile
from fleetsim.config.scenario import Scenario
from fleetsim.config.shipped import data_path
from fleetsim.plan.nameplate import context_in_flight, samples_in_flight


@dataclass(frozen=True, slots=True)
class EngineSource:
    """The profile behind a plan.

    kind: measured, roofline or constant. error_median, error_worst: absolute relative errors on data kept out of the
    fit, None where none were published; error_what says of which quantity. extrapolations: where the plan leaves the
    measured range, in words; None where nothing was measured that it could leave.
    """

    kind: str
    name: str
    text: str
    error_median: float | None
    error_worst: float | None
    error_what: str
    extrapolations: tuple[str, ...] | None


def engine_source(scenario: Scenario, instances: int) -> EngineSource:
    """The source of `scenario`'s engine speed, checked for `instances`. Raises InputError for a profile file."""
    e = scenario.engine
    if e.kind == "constant":
        rate = e.instance_tok_s or 0.0
        return EngineSource(
            "constant", f"{rate:g} tok/s", f"{rate:,.0f} tok/s per instance, as given", None, None, "", None
        )
    if e.kind == "roofline":
        median, worst, what = _roofline_error()
        name = f"{e.model} on {e.gpu}"
        return EngineSource("roofline", name, f"roofline of {name}", median, worst, what, None)
    profile = load_profile(e.profile or "")
    return EngineSource(
        "measured",
        profile.name,
        f"profile {profile.name}, measured",
        profile.error.median,
        profile.error.worst,
        profile.error.what,
        _extrapolations(scenario, instances),
    )


def _roofline_error() -> tuple[float | None, float | None, str]:
    """The error that the fit of the roofline's factors reported of itself."""
    document = json.loads(data_path("calibration", "roofline_factors.json").read_text(encoding="utf-8"))
    error = document.get("error", {})
    return error.get("median"), error.get("worst"), str(error.get("what", ""))


def _extrapolations(scenario: Scenario, instances: int) -> tuple[str, ...]:
    ranges = load_profile(scenario.engine.profile or "").ranges
    held = samples_in_flight(scenario) / instances
    held = min(held, float(scenario.engine.max_num_seqs or held))
    planned = {"decodes": held, "kv_tokens": held * context_in_flight(scenario)}
    found = []
    for name, value in planned.items():
        measured = getattr(ranges, name)
        if measured is not None and not measured[0] <= value <= measured[1]:
            low, high = measured
            found.append(f"{value:,.0f} {name.replace('_', ' ')} per instance; measured: {low:,.0f} to {high:,.0f}")
    return tuple(found)

"""Where the engine's speed comes from, how far off it is known to be, and whether a plan leaves what was measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from fleetsim.config.profile import Profile
from fleetsim.config.profile_files import seal_of
from fleetsim.config.scenario import Scenario
from fleetsim.config.shipped import data_path
from fleetsim.engine.gpus import gpu_spec
from fleetsim.plan.measured_range import outside_as_planned, outside_as_run
from fleetsim.sim.engines import profile_of
from fleetsim.sim.records import Records

# The GPU that the roofline's factors were fitted and checked on (calibration/roofline_factors.json).
FITTED_GPU = "H100-SXM"


@dataclass(frozen=True, slots=True)
class EngineSource:
    """The profile behind an answer.

    kind: measured, derived, roofline or constant. text: all of it in words. gpu, model: what was measured or
    modelled, empty where nobody says. error_median, error_worst: absolute relative errors on data kept out of the fit,
    None where none were published; error_what says of which quantity. extrapolations: where the answer leaves the
    measured range, in words; None where nothing was measured that it could leave. unmeasured: what the error says
    nothing about, in words. hash: of the profile's content, empty where there is none.
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
    unmeasured: str = ""
    hash: str = ""

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
    if profile is None:
        median, worst, what = roofline_error()
        name = f"{e.model} on {e.gpu}"
        text = f"roofline of {name}" + ("" if e.name == "vllm" else f", {e.name}'s scheduler")
        return EngineSource("roofline", name, text, median, worst, what, None, e.gpu, e.model, _unmeasured(scenario))
    extrapolations: tuple[str, ...] | None = None
    if any(bounds is not None for bounds in profile.ranges.model_dump().values()):
        extrapolations = outside_as_run(runs, profile) if runs else outside_as_planned(scenario, profile, instances)
    return EngineSource(
        profile.kind,
        profile.name,
        profile_words(profile),
        profile.error.median,
        profile.error.worst,
        profile.error.what,
        extrapolations,
        profile.provenance.gpu,
        profile.provenance.model,
        hash=seal_of(profile),
    )


def _unmeasured(scenario: Scenario) -> str:
    """What of this engine the roofline was never held against: it was fitted to vLLM on one type of GPU."""
    e = scenario.engine
    what = []
    if gpu_spec(e.gpu).name != FITTED_GPU:
        what.append(e.gpu)
    if e.name != "vllm":
        what.append({"sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"}[e.name])
    return f"Nothing was measured on {' or with '.join(what)}: expect more" if what else ""


def profile_words(profile: Profile) -> str:
    """A profile in a line: its name, what it is, of what, from what, when."""
    p = profile.provenance
    gpu = p.gpu if p.tp is None or not p.gpu else f"{p.gpu} x {p.tp}"
    engine = f"{p.engine} {p.engine_version}".strip()
    facts = ", ".join(fact for fact in (gpu, p.model, engine, p.date) if fact)
    how = "measured" if profile.kind == "measured" else f"derived from {p.source or 'an unnamed source'}"
    return f"profile {profile.name}, {how}" + (f" ({facts})" if facts else "")


def roofline_error() -> tuple[float | None, float | None, str]:
    """Median, worst and what of: the error that the fit of the roofline's factors reported of itself."""
    document = json.loads(data_path("calibration", "roofline_factors.json").read_text(encoding="utf-8"))
    error = document.get("error", {})
    return error.get("median"), error.get("worst"), str(error.get("what", ""))

"""Where the engine's speed comes from, how large its error is known to be, and whether a plan leaves the measured
range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.dataclass import dataclass
from fleetsim.engine.gpus import gpu_of
from fleetsim.engine.known_error import bias_words, domain_of, known_error
from fleetsim.engine.model.names import model_shape
from fleetsim.errors import InputError
from fleetsim.job.measured_range import outside_as_planned, outside_as_run
from fleetsim.sim.engines import profile_of
from fleetsim.sim.records import Records

if TYPE_CHECKING:
    from fleetsim.config.engine_profile import Profile


@dataclass(frozen=True, slots=True)
class EngineSource:
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
        shape = model_shape(e.model)
        known = known_error(domain_of(gpu_of(e), shape, e.dtype, e.name))
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
    from fleetsim.config.profile_files import seal_of

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

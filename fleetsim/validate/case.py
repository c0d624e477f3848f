"""A published case as its file says it: where its figures come from, what is fitted, and its arms."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from fleetsim import units
from fleetsim.config.base import ConfigSection, Count, Name
from fleetsim.config.data_files import data_folder
from fleetsim.config.workload import Lognormal
from fleetsim.engine.slowdown import slowdown_of
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag
from fleetsim.validate.ledger import Date, check, read_ledger, read_section
from fleetsim.workload.lengths import limited_mean

# --- What no source publishes, assumed once for every case and never tuned for one of them.

# Spread of the log of the output length. Two GSM8K runs of marin-community/marin issue 8936 publish mean and truncated
# share at caps of 2048 and 4096: a capped lognormal through both has sigma 0.875 and 0.905. p99 / median = 10
# (arXiv 2510.12633) is 0.99, longest / median = 25 to 32 of 1,024 samples (RollPacker, NSDI 2026) 1.04 to 1.12.
# It is no function of mean over cap. Mean and cut share of a step in aishukamal/rl-time-slicing at 6a343557756d, of
# verl's logs: 0.72 to 0.76 where the mean is 0.09 to 0.14 of the cap (7B, math), 0.64 at 0.51 and 1.03 at 0.73 (1.5B
# distilled, math, caps of 16k and 8k), 0.33 at 0.70 (the same model, code). With its own, D01's longer arm is predicted
# 1.9 % short for 5.4 % long, and D03's two arms worse: 8.0 for 4.8 %, -7.0 for -5.8 %.
LENGTH_SIGMA = 0.9
# No mean makes a capped lognormal longer than this share of its cap with fewer than three quarters of it at the cap.
_LONGEST_SHARE = 0.97

# All figures are means of runs under different draws: of at most so many, and of fewer, two at least, where the
# standard error of the seconds of a step is below this share of them.
REPLICATIONS, PRECISE = 5, 0.005

STATED = (
    f"Output lengths are lognormal with sigma {LENGTH_SIGMA:g} of the log, or a spread that the source publishes (C12, "
    "D04), cut at the published cap; the mean after it is the published one, else the fitted scalar. Siblings share a "
    "quarter of the log's variance, those of DeepSeek-R1-Distill-Qwen-1.5B half (D01's logs).",
    "verl's fully_async takes 45 to 100 ns a padded token to get its batch (logs of D04's source), and calls it "
    "waiting.",
    "Iteration times are the roofline of the GPU and model named (of the source's other experiments, where it names "
    "no GPU), times the fitted decode slowdown or, where another scalar is fitted, what published runs of the "
    f"framework lost inside a job (the table below); of all frameworks, {slowdown_of(None):g}, for verl of 2025.",
    "An iteration without CUDA graphs takes no less than its launches: 0.29 ms a layer, 0.71 ms of a mixture "
    "(vllm-project/vllm issue 45709 and others).",
    "Seconds of the trainer's own computation come, in this order, from the arm's own published phases; from published "
    "training FLOP/s of the same paper (AReaL); from another publication of the same framework and model (NeMo-RL "
    "v0.3's table, verl's 28 % of the peak in C02); for mixtures with 3 billion active parameters from NeMo-RL v0.3's "
    "677 GPU-microseconds a token; else from the trainer's model. A trainer on other GPUs of the same kind takes time "
    "in inverse proportion to their number; in D10 and D10b, and blind, it is modelled.",
    "Weight syncs take the seconds published, else those that the framework's way of moving weights comes to; other "
    "hand-overs the seconds published, else NeMo-RL's, which always moves the trainer's states, a plan's 5 s each way, "
    "and others' none. Of what verl of 2025 counts as "
    "generation of a colocated step 22.5 % is hand-over and waiting for the slowest rank (its one_step_off page: 247 "
    "of 321 s, 162 of 207 s).",
    f"Every figure is the mean of {REPLICATIONS} simulated runs under different draws, or of fewer, two at least, "
    f"where these leave the seconds of a step uncertain by less than {units.share(PRECISE)}.",
    "No instance fails or is slower than the others, no reward takes time, and nothing else uses the fleet.",
)


def length_law(mean: float, cap: float, sigma: float | None = None) -> Lognormal:
    """The length law whose mean after the cap is `mean` tokens; sigma None: the assumed spread.

    Raises InputError if the cap allows no such mean.
    """
    if not 0 < mean <= _LONGEST_SHARE * cap:
        rule = f"must be between 0 and {units.share(_LONGEST_SHARE, 0)} of the cap of {cap:g} tokens"
        raise InputError([Problem("lengths.mean", mean, rule, "lower the mean or raise the cap")])
    cv = math.sqrt(math.expm1((LENGTH_SIGMA if sigma is None else sigma) ** 2))
    low, high = mean, 1000.0 * cap
    for _ in range(80):
        middle = math.sqrt(low * high)
        if limited_mean(Lognormal(mean=middle, cv=cv, max=cap), cap) < mean:
            low = middle
        else:
            high = middle
    return Lognormal(mean=round(high, 3), cv=cv, max=cap)


ENDING = ".case.yaml"
Measure = Literal["step_s", "tok_s"]
Gate = Literal["order", "ratio", "abs"]
Positive = Annotated[float, Field(gt=0, le=1e12)]
Text = Annotated[str, Field(min_length=1, max_length=4000)]
Side = Literal["trainer", "generation", "in_flight_cap"]


class Lengths(ConfigSection):
    """Output lengths after the cap; the law between is assumed, above."""

    mean: Positive = Field(description="mean output tokens after the cap; where it is the fitted scalar, a start")
    cap: Positive = Field(description="longest output in tokens")
    sigma: Annotated[float, Field(gt=0, le=3)] | None = Field(
        default=None,
        description="spread of the log, only where the source itself publishes one; null = the assumed one",
    )


class CaseFit(ConfigSection):
    """The one scalar of a case: what is changed, on which arm, until which figure is met."""

    scalar: Literal["decode_slowdown", "mean_tokens", "trainer_seconds", "both"] = Field(
        description="iteration time multiplier of every instance | mean output tokens after the cap | multiplier of "
        "the trainer's seconds | of a figure of which no part is published: factor on it, which iterations and the "
        "trainer's seconds make up together, each as far as it is in doubt"
    )
    arm: Name = Field(description="the baseline: the only arm that the fit sees")
    figure: Literal["step_s", "tok_s", "wait_s", "wait_share", "gen_s"] = Field(
        description="simulated figure: seconds of a step, trained output tokens a second, seconds or share of a step "
        "that the trainer waits for samples, or seconds of generation, hand-over included"
    )
    against: Name | None = Field(
        default=None, description="where no absolute figure is published: the arm that the figure is relative to"
    )
    value: Positive = Field(description="the published figure")
    low: Positive = Field(description="where the search for the scalar begins")
    high: Positive = Field(description="and ends")


class Arm(ConfigSection):
    """One published run. `set` and `lengths` change the case's scenario; everything in them is an input."""

    name: Name
    set: dict[str, Any] = Field(default={}, description="dotted paths of the scenario and their values")
    lengths: Lengths | None = Field(default=None, description="the arm's own lengths, if they were published")
    handover_share: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="share of what the source calls generation that is handing the GPUs over, not generating",
    )
    published: Positive | None = Field(default=None, description="the figure of the case's measure")
    reference: Name | None = Field(
        default=None, description="the arm that the figure is relative to; null = it is absolute"
    )
    bottleneck: Side | None = Field(default=None, description="what the authors found, or their waits show, to bind")
    bottleneck_from: str = Field(default="", max_length=500, description="where that comes from")
    gated: bool = Field(default=True, description="whether the arm counts; false needs a reason in `reading`")
    inputs: str = Field(default="", max_length=1000, description="what entered from this arm's own publication")
    reading: str = Field(default="", max_length=4000, description="why it misses, or what to know about it")
    blind: str = Field(
        default="", max_length=1000, description="why it is far off where nothing of it but its configuration is known"
    )
    unpublished: str = Field(
        default="",
        max_length=1000,
        description="what decides this arm and nobody published: without the arm's own seconds it has no gate",
    )


class PublishedCase(ConfigSection):
    """A case file."""

    schema_version: Literal[1] = 1
    sealed: Date | None = Field(
        default=None, description="the day it was written, before anything of it was predicted; see sealed.yaml"
    )
    id: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,39}$")]
    title: Text
    trust: Literal["primary", "excerpt"] = Field(
        description="a primary source, or an excerpt of an issue or pull request"
    )
    sources: Annotated[tuple[Text, ...], Field(min_length=1, strict=False)]
    gates: Annotated[tuple[Gate, ...], Field(strict=False)]
    measure: Measure = Field(
        description="what the arms publish: seconds per optimizer step, or trained tokens a second"
    )
    framework: Name | None = Field(
        default=None, description="whose engines' slowdown is taken where it is not fitted; null = that of all"
    )
    stands_in: bool = Field(
        default=False, description="another engine or model stands in for one that nobody describes: no absolute figure"
    )
    relative: bool = Field(
        default=False, description="the published figures are relative to each other, none is absolute"
    )
    measure_note: str = Field(default="", max_length=1000, description="how the figures were read")
    bottleneck_at_wait: Annotated[float, Field(gt=0, lt=1)] = 0.1
    assumed: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    scenario: dict[str, Any] = Field(description="the base scenario, as in a scenario file")
    lengths: Lengths
    eager: bool = Field(default=False, description="whether the engines ran without CUDA graphs (enforce_eager)")
    fit: CaseFit | None = Field(default=None, description="null: everything was published, nothing is fitted")
    baseline: Name = Field(description="the arm that ratios are taken to")
    steps: Count = Field(default=24, description="optimizer steps to simulate")
    arms: Annotated[tuple[Arm, ...], Field(min_length=1, strict=False)]
    reading: str = Field(default="", max_length=6000, description="how to read the outcome")

    @model_validator(mode="after")
    def _arms_exist(self) -> PublishedCase:
        names = [arm.name for arm in self.arms]
        wanted = {
            self.baseline,
            *([self.fit.arm, self.fit.against] if self.fit else []),
            None,
            *(a.reference for a in self.arms if a.reference),
        }
        if len(set(names)) < len(names) or not wanted - {None} <= set(names):
            raise PydanticCustomError("arms", "arm names must differ, and baseline and fit.arm be among them", {})
        if self.fit is not None and self.fit.low >= self.fit.high:
            raise PydanticCustomError("fit", "fit.low must be below fit.high", {})
        for arm in self.arms:
            if not arm.gated and not arm.reading:
                raise PydanticCustomError("gated", "{arm} is not gated: reading must say why", {"arm": arm.name})
        return self

    def arm(self, name: str) -> Arm:
        """The arm of that name. Raises KeyError."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise KeyError(name)


def case_files(folder: Path | None = None) -> list[Path]:
    """The case files of a folder, sorted; None: the shipped ones. Raises InputError for a folder that holds none."""
    if folder is None:
        return sorted(shipped().glob(f"*{ENDING}"))
    found = sorted(folder.glob(f"*{ENDING}")) if folder.is_dir() else []
    if not found:
        rule = f"a folder with cases (*{ENDING})" if folder.is_dir() else "is no folder"
        raise InputError([Problem(flag("cases"), str(folder), rule, "write cases as those of scenarios/published are")])
    return found


def shipped() -> Path:
    """The folder of the shipped cases."""
    return data_folder("scenarios") / "published"


def load_case(path: Path) -> PublishedCase:
    """The case in a file. Raises InputError with what is wrong."""
    return read_section(path, PublishedCase, "CASE", "correct the case file, as the shipped ones are")


def load_cases(ids: Collection[str] = (), folder: Path | None = None) -> list[PublishedCase]:
    """The cases of a folder (None: the shipped ones), or those with these ids, sorted by id.

    Raises InputError for an unknown id, for two cases of one id, and for a sealed case that its ledger does not hold.
    """
    files = case_files(folder)
    loaded = {path: load_case(path) for path in files}
    where = shipped() if folder is None else folder
    check(read_ledger(where), {path.name: path for path, case in loaded.items() if case.sealed}, where)
    cases = sorted(loaded.values(), key=lambda case: case.id)
    known = [case.id for case in cases]
    problems = [
        Problem(flag("cases"), name, f"stands in {count} files", "give each case an id of its own")
        for name, count in Counter(known).items()
        if count > 1
    ]
    wrong = [name for name in ids if name.upper() not in {k.upper() for k in known}]
    problems += [Problem(flag("case"), name, f"must be one of {', '.join(known)}", "name one") for name in wrong]
    if problems:
        raise InputError(problems)
    wanted = {name.upper() for name in ids}
    return [case for case in cases if not wanted or case.id.upper() in wanted]

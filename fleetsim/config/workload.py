"""The `workload` section: what the trainer asks of the rollout engines, per sample and per group."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from fleetsim.config.base import (
    MAX_SECONDS,
    MAX_TOKENS,
    ConfigSection,
    CountOrZero,
    Fraction,
    Name,
    Tokens,
    beside_the_scenario,
)

# --- Length and latency laws as a scenario writes them: a bare number, or a mapping with the law's parameters.
#     512                                             constant
#     {kind: lognormal, mean: 1536, cv: 1.0, max: 8192}
#     {kind: lognormal, median: 800, p99: 6000}
#     {kind: gamma, mean: 300, cv: 0.5}
#     {kind: empirical, file: lengths.csv, column: output_tokens}
#     {kind: histogram, le: [128, 512, 2048], count: [10, 70, 20]}
# `kind` may be left out where the other keys say which law it is (`file`, `le`, `value`); mean, median, cv and p99
# without `kind` mean lognormal. mean, cv, median and p99 describe the law *before* the cap; `max` cuts every value
# above it to `max`, so that the cap keeps an atom, as `max_tokens` does in an engine.

Positive = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
# A cv of 10 is far heavier than any published length log (at most about 3); below 0.0001 all values are one token.
LEAST_CV, MOST_CV = 1e-4, 10.0
Cv = Annotated[float, Field(ge=LEAST_CV, le=MOST_CV)]
Cap = Annotated[float, Field(gt=0, le=MAX_SECONDS, description="values above are cut to this one (tokens or seconds)")]

EMPIRICAL_SUFFIXES = (".csv", ".jsonl", ".parquet")


class ConstantTokens(ConfigSection):
    """Always the same number of tokens."""

    kind: Literal["constant"] = "constant"
    value: int = Field(ge=0, le=MAX_TOKENS, description="tokens")


class ConstantSeconds(ConfigSection):
    """Always the same number of seconds."""

    kind: Literal["constant"] = "constant"
    value: float = Field(ge=0, le=MAX_SECONDS, description="seconds")


class Lognormal(ConfigSection):
    """Lognormal, given by mean and cv, or by median and p99 (all of the law before the cap)."""

    kind: Literal["lognormal"] = "lognormal"
    mean: Positive | None = Field(default=None, description="mean of the uncapped law, tokens or seconds; with cv")
    cv: Cv | None = Field(default=None, description="standard deviation / mean of the uncapped law; with mean")
    median: Positive | None = Field(default=None, description="median of the uncapped law, tokens or seconds; with p99")
    p99: Positive | None = Field(default=None, description="99th percentile of the uncapped law; with median")
    max: Cap | None = None

    @model_validator(mode="after")
    def _one_pair(self) -> Lognormal:
        given = tuple(name for name in ("mean", "cv", "median", "p99") if getattr(self, name) is not None)
        if given not in (("mean", "cv"), ("median", "p99")):
            raise PydanticCustomError(
                "law",
                "a lognormal takes mean and cv, or median and p99",
                {"remedy": f"give exactly one of the two pairs (given: {', '.join(given) or 'neither'})"},
            )
        if self.median is not None and self.p99 is not None and self.p99 <= self.median:
            raise PydanticCustomError(
                "law", "p99 must be above the median", {"remedy": "use kind: constant for a law without spread"}
            )
        return self


class Gamma(ConfigSection):
    """Gamma, given by mean and cv of the law before the cap."""

    kind: Literal["gamma"] = "gamma"
    mean: Positive = Field(description="mean of the uncapped law, tokens or seconds")
    cv: Cv = Field(description="standard deviation / mean of the uncapped law")
    max: Cap | None = None


class Empirical(ConfigSection):
    """Measured values, drawn again with replacement from one column of a file."""

    kind: Literal["empirical"] = "empirical"
    file: Name = Field(description=".csv, .jsonl or .parquet file; relative to the scenario file")
    column: Name = Field(description="the column (or JSON key) that holds the tokens or seconds")
    max: Cap | None = None

    @model_validator(mode="after")
    def _known_format(self) -> Empirical:
        if os.path.splitext(self.file)[1].lower() not in EMPIRICAL_SUFFIXES:
            raise PydanticCustomError(
                "law",
                "an empirical file must end in .csv, .jsonl or .parquet",
                {"remedy": "convert the file, or give it the ending that its content has"},
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _file_beside_the_scenario(cls, given: Any, info: ValidationInfo) -> Any:
        return beside_the_scenario(given, "file", info)


class Histogram(ConfigSection):
    """Bucket counts as Prometheus keeps them (but not cumulative): uniform inside each bucket, the first from 0."""

    kind: Literal["histogram"] = "histogram"
    le: tuple[Positive, ...] = Field(
        min_length=1, max_length=10_000, strict=False, description="upper bounds, increasing, finite"
    )
    count: tuple[Annotated[float, Field(ge=0, le=1e15)], ...] = Field(
        min_length=1, max_length=10_000, strict=False, description="observations in each bucket, not cumulative"
    )
    max: Cap | None = None

    @model_validator(mode="after")
    def _buckets(self) -> Histogram:
        if len(self.le) != len(self.count):
            raise PydanticCustomError(
                "law",
                "le and count must have the same length",
                {"remedy": f"{len(self.le)} bounds and {len(self.count)} counts are given"},
            )
        if any(b <= a for a, b in pairwise(self.le)):
            raise PydanticCustomError("law", "le must increase", {"remedy": "sort the buckets by their upper bound"})
        if not sum(self.count) > 0:
            raise PydanticCustomError(
                "law", "at least one bucket must hold an observation", {"remedy": "give the counts per bucket"}
            )
        return self


def _expand(given: Any) -> Any:
    """The short forms: a bare number is a constant; a mapping without `kind` names its law by its keys."""
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return {"kind": "constant", "value": given}
    if isinstance(given, dict) and "kind" not in given:
        for key, kind in (("value", "constant"), ("file", "empirical"), ("le", "histogram"), ("count", "histogram")):
            if key in given:
                return {"kind": kind, **given}
        if given:
            return {"kind": "lognormal", **given}
    return given


class _ShortForms:
    """Says in the JSON schema what `_expand` accepts."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(source)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        laws = handler(schema)
        # anyOf, not oneOf: {mean, cv} without kind fits lognormal and gamma; the loader reads it as lognormal.
        return {"anyOf": [{"type": "number", "minimum": 0}, *laws.get("oneOf", [laws])]}


Length = Annotated[
    ConstantTokens | Lognormal | Gamma | Empirical | Histogram,
    Field(discriminator="kind"),
    BeforeValidator(_expand),
    _ShortForms(),
]
Latency = Annotated[
    ConstantSeconds | Lognormal | Gamma | Empirical | Histogram,
    Field(discriminator="kind"),
    BeforeValidator(_expand),
    _ShortForms(),
]
LengthSpec = ConstantTokens | Lognormal | Gamma | Empirical | Histogram
LatencySpec = ConstantSeconds | Lognormal | Gamma | Empirical | Histogram


def longest_length(law: LengthSpec) -> float | None:
    """The value that a law of token counts never exceeds, None where nothing says one."""
    if isinstance(law, ConstantTokens):
        return float(law.value)
    if law.max is None and isinstance(law, Histogram):
        return law.le[-1]
    return law.max


class TurnsConfig(ConfigSection):
    """Agentic rollouts: `count` generations with a tool call between each two."""

    count: Annotated[int, Field(ge=1, le=10_000)] = Field(default=1, description="generations per sample")
    tool_latency_s: Latency = Field(
        default=ConstantSeconds(value=0.0), description="seconds of one tool call, while the sample generates nothing"
    )
    tool_tokens: Length = Field(
        default=ConstantTokens(value=0), description="tokens that one tool answer adds to the context"
    )


class RewardConfig(ConfigSection):
    """What happens between a sample's last token and its readiness for training."""

    latency_s: Latency = Field(default=ConstantSeconds(value=0.0), description="seconds to score one sample")


class FilterConfig(ConfigSection):
    """Groups whose rewards are all equal carry no gradient: DAPO-style filters drop and refill them."""

    zero_variance_share: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="share of finished groups that are dropped and refilled"
    )
    retry_limit: CountOrZero | None = Field(
        default=None,
        description="the run fails after more than this many filtered groups in a row in one trainer wait; null = none",
    )


class WorkloadConfig(ConfigSection):
    """Prompts, outputs, groups, turns, rewards and filtering."""

    prompt_tokens: Length = Field(
        default=ConstantTokens(value=512), description="tokens of a group's prompt, shared system prompt included"
    )
    output_tokens: Length = Field(
        default=Lognormal(mean=1536.0, cv=1.0, max=8192.0),
        description="generated tokens of one sample, all its turns together",
    )
    group_size: Annotated[int, Field(ge=1, le=1_000_000)] = Field(default=8, description="samples per prompt (G)")
    group_correlation: Fraction = Field(
        default=0.0, description="share of the log-variance of output_tokens common to the siblings of a group"
    )
    shared_prefix_tokens: Tokens = Field(
        default=0, description="tokens of the system prompt that all groups share; prompts are at least this long"
    )
    turns: TurnsConfig = TurnsConfig()
    reward: RewardConfig = RewardConfig()
    filter: FilterConfig = FilterConfig()
    length_drift_per_step: Annotated[float, Field(gt=-1, le=10)] = Field(
        default=0.0, description="relative growth of the mean output length per optimizer step (0.01 = 1 % a step)"
    )

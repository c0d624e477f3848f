"""The `workload` section: what the trainer asks of the rollout engines, per sample and per group."""

import math
import os
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from fleetsim.config.base import (
    MAX_SECONDS,
    MAX_TOKENS,
    ConfigSection,
    Count,
    CountOrZero,
    Fraction,
    Name,
    Tokens,
    beside_the_scenario,
    unsaid,
    wrong,
)
from fleetsim.config.tree import A_NUMBER

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
    def _one_pair(self) -> Self:
        given = tuple(name for name in ("mean", "cv", "median", "p99") if getattr(self, name) is not None)
        if given not in (("mean", "cv"), ("median", "p99")):
            raise wrong(
                "a lognormal takes mean and cv, or median and p99",
                f"give exactly one of the two pairs (given: {', '.join(given) or 'neither'})",
            )
        if self.median is not None and self.p99 is not None and self.p99 <= self.median:
            raise wrong("p99 must be above the median", "use kind: constant for a law without spread")
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
    def _known_format(self) -> Self:
        if os.path.splitext(self.file)[1].lower() not in EMPIRICAL_SUFFIXES:
            raise wrong(
                "an empirical file must end in .csv, .jsonl or .parquet",
                "convert the file, or give it the ending that its content has",
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
    def _buckets(self) -> Self:
        if len(self.le) != len(self.count):
            raise wrong(
                "le and count must have the same length",
                f"{len(self.le)} bounds and {len(self.count)} counts are given",
            )
        if any(b <= a for a, b in pairwise(self.le)):
            raise wrong("le must increase", "sort the buckets by their upper bound")
        if not sum(self.count) > 0:
            raise wrong("at least one bucket must hold an observation", "give the counts per bucket")
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


LengthSpec = ConstantTokens | Lognormal | Gamma | Empirical | Histogram
LatencySpec = ConstantSeconds | Lognormal | Gamma | Empirical | Histogram
Length = Annotated[LengthSpec, Field(discriminator="kind"), BeforeValidator(_expand), _ShortForms()]
Latency = Annotated[LatencySpec, Field(discriminator="kind"), BeforeValidator(_expand), _ShortForms()]


def longest_length(law: LengthSpec) -> float | None:
    """The value that a law of token counts never exceeds, None where nothing says one."""
    if isinstance(law, ConstantTokens):
        return float(law.value)
    if law.max is None and isinstance(law, Histogram):
        return law.le[-1]
    return law.max


# --- How many turns a sample has: a whole number, or a law of whole numbers. A bucket of a histogram with le: k holds
#     the turns up to k, so that le: [1, 2, 3] are the shares of one, two and three turns.

MOST_TURNS = 10_000
_TurnCap = Annotated[int, Field(ge=1, le=MOST_TURNS, description="counts above are cut to this one")]


class Geometric(ConfigSection):
    """After each turn a sample goes on with the same chance, 1 - 1 / mean: it may stop early, or go on for long."""

    kind: Literal["geometric"] = "geometric"
    mean: Annotated[float, Field(ge=1, le=500)] = Field(description="mean of the uncapped law")
    max: _TurnCap | None = None


class Uniform(ConfigSection):
    """Each count from `low` to `high` is as likely as any other."""

    kind: Literal["uniform"] = "uniform"
    low: Annotated[int, Field(ge=1, le=MOST_TURNS)] = Field(default=1, description="the smallest count")
    high: Annotated[int, Field(ge=1, le=MOST_TURNS)] = Field(description="the largest count")
    max: _TurnCap | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise wrong("low must be at most high", "give them in order")
        return self


# What stands behind `geometric:` and `uniform:`, in this order.
_TURN_WORDS = {"geometric": ("mean", "max"), "uniform": ("low", "high")}


def _turn_law(given: Any) -> Any:
    """The short forms: "geometric:3" or "geometric:3:20" (mean, most), "uniform:1:5", and those of all laws."""
    if isinstance(given, str):
        name, *numbers = given.split(":")
        keys = _TURN_WORDS.get(name, ())
        if 1 <= len(numbers) <= len(keys) and all(n.replace(".", "", 1).isdecimal() for n in numbers):
            found = dict(zip(keys[-1:] if name == "uniform" and len(numbers) == 1 else keys, numbers, strict=False))
            return {"kind": name} | {key: float(n) if "." in n else int(n) for key, n in found.items()}
        rule = "must be a whole number or a law: geometric:MEAN, geometric:MEAN:MOST, uniform:LOW:HIGH"
        raise wrong(rule, "for example 10, or geometric:3")
    return given if isinstance(given, (int, float)) else _expand(given)


def _law_kind(given: Any) -> str:
    """The branch of the union: the kind of a law, else that of numbers."""
    kind = given.get("kind") if isinstance(given, dict) else getattr(given, "kind", A_NUMBER)
    return kind if isinstance(kind, str) else ""


class _TurnForms(_ShortForms):
    """Says in the JSON schema what `_turn_law` accepts."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        laws = handler(schema)
        return {"anyOf": [{"type": "string", "pattern": "^(geometric|uniform):[0-9.:]+$"}, *laws["oneOf"]]}


TurnCount = Annotated[
    Annotated[int, Field(ge=1, le=MOST_TURNS), Tag(A_NUMBER)]
    | Annotated[Geometric, Tag("geometric")]
    | Annotated[Uniform, Tag("uniform")]
    | Annotated[Lognormal, Tag("lognormal")]
    | Annotated[Gamma, Tag("gamma")]
    | Annotated[Empirical, Tag("empirical")]
    | Annotated[Histogram, Tag("histogram")],
    Discriminator(_law_kind),
    BeforeValidator(_turn_law),
    _TurnForms(),
]
TurnSpec = int | Geometric | Uniform | Lognormal | Gamma | Empirical | Histogram


class TurnsConfig(ConfigSection):
    """Agentic rollouts: `count` generations with a tool call between each two."""

    count: TurnCount = Field(default=1, description="generations per sample, or their law")
    output_tokens: Length | None = Field(
        default=None, description="generated tokens of one turn; null = workload.output_tokens, spread evenly"
    )
    max_output_tokens: Count | None = Field(default=None, description="a turn's cap: max_tokens; null = none")
    max_trajectory_tokens: Count | None = Field(
        default=None, description="a trajectory's cap: all that follows its prompt, tools' answers too; null = none"
    )
    cut_turn: Literal["goes_on", "ends"] = Field(
        default="goes_on", description="after a turn that max_output_tokens cut"
    )
    tool_latency_s: Latency = Field(
        default=ConstantSeconds(value=0.0), description="seconds of one tool call, while the sample generates nothing"
    )
    tool_tokens: Length = Field(
        default=ConstantTokens(value=0), description="tokens that one tool answer adds to the context"
    )

    @property
    def several(self) -> bool:
        """Whether a sample may have more than one turn."""
        return self.most > 1

    @property
    def most(self) -> float:
        """Turns of a sample at most; infinite where nothing bounds them."""
        law = self.count
        if isinstance(law, int):
            return law
        bounds = {"uniform": "high", "histogram": "le"}
        own = getattr(law, bounds.get(law.kind, "max"))
        own = own[-1] if isinstance(own, tuple) else own
        return min(math.inf if x is None else max(1.0, math.ceil(x)) for x in (own, law.max))

    @property
    def about(self) -> int:
        """Turns of a sample, more or less: what a bound on the length of a run needs to know."""
        law = self.count
        found = law if isinstance(law, int) else getattr(law, "mean", None) or getattr(law, "median", None) or 4
        return max(1, round(min(found, self.most)))

    @property
    def by_law(self) -> bool:
        """Whether the tokens of a sample come from its turns or are cut by their caps, beside `output_tokens`."""
        caps = self.max_output_tokens, self.max_trajectory_tokens
        return self.output_tokens is not None or caps != (None, None)

    def most_tokens(self, whole: LengthSpec) -> float | None:
        """Tokens that a sample generates at most, None where nothing says so. whole: `workload.output_tokens`."""
        if not self.by_law:
            return longest_length(whole)
        each = math.inf if self.output_tokens is None else (longest_length(self.output_tokens) or math.inf)
        of_turns = self.most * min(each, self.max_output_tokens or math.inf)
        of_whole = (longest_length(whole) or math.inf) if self.output_tokens is None else math.inf
        most = min(of_turns, of_whole, self.max_trajectory_tokens or math.inf)
        return most if math.isfinite(most) else None


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


# Siblings of a group resemble each other in length (RollPacker section 3, Seer). Public logs say how much
# (aishukamal/rl-time-slicing at 6a343557756d): the mean of a step varies between steps with 3 to 7 times the variance
# of as many independent responses. By that 0.25 to 0.4 of the variance of the logarithm is common to 16 responses of
# Qwen2.5-Math-7B (verl-benchmarks, three runs in mode 1), and 0.45 to 0.6 to 8 of DeepSeek-R1-Distill-Qwen-1.5B
# (async-longcot, three runs). Drift of the policy is in it, so that the least of them is taken for all: by the
# differences of neighbouring steps, in which little of it is left, thirds of the first three runs have 0.08 to 0.35.
GROUP_CORRELATION = 0.25


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
        default=GROUP_CORRELATION,
        description="share of the log-variance of output_tokens common to the siblings of a group",
    )
    shared_prefix_tokens: Tokens = Field(
        default=0, description="tokens of the system prompt that all groups share; prompts are at least this long"
    )
    turns: TurnsConfig = unsaid(TurnsConfig)
    reward: RewardConfig = unsaid(RewardConfig)
    filter: FilterConfig = unsaid(FilterConfig)
    length_drift_per_step: Annotated[float, Field(gt=-1, le=10)] = Field(
        default=0.0, description="relative growth of the mean output length per optimizer step (0.01 = 1 % a step)"
    )

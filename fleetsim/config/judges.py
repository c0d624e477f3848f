"""Engines beside the rollout's that read what it has made: judges, reward models, teachers, references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import Field

from fleetsim.config.base import ConfigSection, Factor, Fraction, Price, Seconds, Tokens
from fleetsim.config.engine import EngineConfig
from fleetsim.config.workload import ConstantTokens, Length

if TYPE_CHECKING:
    from fleetsim.config.sections import Sections

S = TypeVar("S", bound="Sections")
# Their names under `stations`; all of them are read alike.
JUDGES = ("judge", "teacher", "reference")


class ApiConfig(ConfigSection):
    """A judge that is rented: so many tokens per second for each request, whatever else it serves."""

    tok_s: Factor = Field(default=50.0, description="output tokens per second of one request")
    first_token_s: Seconds = Field(default=0.0, description="seconds until a request is begun")
    concurrency: Annotated[int, Field(ge=1, le=4096)] = Field(default=4096, description="requests at the same time")
    requests_per_s: Factor | None = Field(default=None, description="rate limit; null = none")
    tokens_per_s: Factor | None = Field(
        default=None, description="rate limit of prompt and output tokens together; null = none"
    )
    usd_per_million_prompt_tokens: Price = Field(default=0.0, description="US dollars")
    usd_per_million_output_tokens: Price = Field(default=0.0, description="US dollars")


class JudgeConfig(ConfigSection):
    """Engines of their own, or an API, that read every rollout (or group) when it has its reward; the rollout is ready
    when all of them have answered."""

    engine: EngineConfig = Field(default=EngineConfig(), description="as the rollout's engine; not read with an api")
    instances: Annotated[int, Field(ge=1, le=4096)] = Field(default=1, description="engines")
    api: ApiConfig | None = Field(default=None, description="rented by the token instead; null = engines of its own")
    per: Literal["sample", "group"] = Field(
        default="sample", description="it reads each sample, or all samples of a group together when they are scored"
    )
    votes: Annotated[int, Field(ge=1, le=64)] = Field(default=1, description="requests for each sample or group")
    prompt_tokens: Length = Field(
        default=ConstantTokens(value=0), description="tokens of its own prompt, before those that it reads"
    )
    shared_prefix_tokens: Tokens = Field(default=0, description="of them, tokens that are the same in all its prompts")
    reads_share: Fraction = Field(
        default=1.0, description="share of a rollout's tokens (prompt, tools, response) that it reads"
    )
    output_tokens: Length = Field(
        default=ConstantTokens(value=1), description="tokens of its answer; 1 = a score, or log-probabilities, only"
    )
    price_usd_per_gpu_h: Price | None = Field(
        default=None, description="US dollars per GPU and hour of its engines; null = the list price of engine.gpu"
    )


def judges_of(scenario: Sections) -> dict[str, JudgeConfig]:
    """Name -> judge, of those that a scenario has."""
    found = {name: getattr(scenario.stations, name) for name in JUDGES}
    return {name: judge for name, judge in found.items() if judge is not None}


def as_rollout(scenario: S, judge: JudgeConfig) -> S:
    """The scenario with a judge's engines in the rollout's place: what is asked of those can be asked of these."""
    return scenario.model_copy(
        update={
            "engine": judge.engine,
            "fleet": scenario.fleet.model_copy(update={"instances": judge.instances}),
            "workload": scenario.workload.model_copy(update={"output_tokens": judge.output_tokens}),
            "run": scenario.run.model_copy(update={"events": ()}),
        }
    )

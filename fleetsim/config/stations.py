"""The `stations` section: workers that serve tools and rewards, and engines that read finished rollouts: judges, reward
models, teachers, references."""

from typing import Annotated, Literal

from pydantic import Field

from fleetsim.config.base import (
    ConfigSection,
    Count,
    CountOrZero,
    Factor,
    Fraction,
    PositiveSeconds,
    Price,
    Seconds,
    Tokens,
    unsaid,
)
from fleetsim.config.engine import EngineConfig
from fleetsim.config.workload import ConstantTokens, Length
from fleetsim.policies.samples import LOST, LostName

MOST_JUDGES = 4096
_LOST = "; ".join(f"{name}: {policy.says}" for name, policy in LOST.items())


class OverflowConfig(ConfigSection):
    """Workers that take the calls for which a station's own, or its rate, are too few: a hosted API, for example. What
    cannot begin goes there when one is free and their rate lets it."""

    after_s: Seconds = Field(
        default=0.0, description="seconds that a call waits for a worker and its turn at its own first"
    )
    workers: Count | None = Field(default=None, description="calls there at the same time; null = no limit")
    start_s: Seconds = Field(default=0.0, description="seconds until a worker there begins with a call")
    calls_per_s: Factor | None = Field(default=None, description="its rate limit, calls per second; null = none")
    usd_per_call: Price = Field(default=0.0, description="US dollars for each call that goes there")
    worker_price_usd_per_h: Price = Field(default=0.0, description="US dollars per worker and hour in use")

    @property
    def has_price(self) -> bool:
        """Whether a call costs money there."""
        return max(self.usd_per_call, self.worker_price_usd_per_h) > 0.0


class StationConfig(ConfigSection):
    """Workers, each of which serves one call at a time; calls wait for them, first come first served."""

    workers: CountOrZero | None = Field(
        default=None, description="calls at the same time; null = no limit, 0 = all go to its overflow"
    )
    start_s: Seconds = Field(default=0.0, description="seconds until a fresh worker begins with a call")
    warm: CountOrZero = Field(
        default=0, description="fresh workers that are kept started; one that is taken is replaced within start_s"
    )
    calls_per_s: Factor | None = Field(default=None, description="calls that begin per second at most; null = no limit")
    fresh_per: Literal["call", "episode"] = Field(
        default="call", description="each call takes a fresh worker, or a rollout keeps its first one until its end"
    )
    timeout_s: PositiveSeconds | None = Field(
        default=None, description="a call fails after so long: waiting, start-up and service together; null = never"
    )
    failure_share: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="share of calls that fail, at their end"
    )
    tries: Annotated[int, Field(ge=1, le=1_000)] = Field(
        default=1, description="times that a call is made until one succeeds"
    )
    lost: LostName = Field(
        default="dropped", description=f"what becomes of a rollout whose last try was in vain; {_LOST}"
    )
    worker_price_usd_per_h: Price = Field(
        default=0.0,
        description="US dollars per worker and hour; without a limit on workers, per hour in use or kept warm",
    )
    overflow: OverflowConfig | None = Field(
        default=None, description="who takes the calls that these workers are too few for; null = such calls wait"
    )

    @property
    def mean_tries(self) -> float:
        """Times that a call is made, where none is timed out."""
        share = self.failure_share
        return (1.0 - share**self.tries) / (1.0 - share) if share else 1.0


class RewardStationConfig(StationConfig):
    """The workers that score samples: their own, or those of the tools."""

    at: Literal["reward", "tools"] = Field(
        default="reward", description="tools: samples are scored by the workers of stations.tools"
    )
    holds_slot: bool = Field(
        default=False, description="a rollout stays in flight, and keeps its place at its engine, until it is scored"
    )


class ApiConfig(ConfigSection):
    """A judge that is rented: so many tokens per second for each request, whatever else it serves."""

    tok_s: Factor = Field(default=50.0, description="output tokens per second of one request")
    first_token_s: Seconds = Field(default=0.0, description="seconds until a request is begun")
    concurrency: Annotated[int, Field(ge=1, le=4096)] = Field(default=4096, description="requests at the same time")
    requests_per_s: Factor | None = Field(default=None, description="rate limit of requests; null = none")
    tokens_per_s: Factor | None = Field(
        default=None, description="rate limit of prompt and output tokens together; null = none"
    )
    usd_per_million_prompt_tokens: Price = Field(default=0.0, description="US dollars")
    usd_per_million_output_tokens: Price = Field(default=0.0, description="US dollars")

    @property
    def has_price(self) -> bool:
        """Whether a request costs money there."""
        return max(self.usd_per_million_prompt_tokens, self.usd_per_million_output_tokens) > 0.0


class JudgeOverflowConfig(ApiConfig):
    """For what its own engines have no place."""

    after_s: Seconds = Field(default=0.0, description="seconds that a request waits for a place at its own first")


class JudgeConfig(ConfigSection):
    """Engines of their own, an API, or the rollout's, that read every rollout (or group) when it has its reward; it is
    ready when all of them have answered."""

    at: Literal["own", "rollout"] = Field(
        default="own", description="engines or an API of its own, or the rollout's engines"
    )
    engine: EngineConfig = Field(
        default=unsaid(EngineConfig), description="as the rollout's engine; not read with an api"
    )
    instances: Annotated[int, Field(ge=0, le=MOST_JUDGES)] = Field(
        default=1, description="engines; 0 = its overflow alone"
    )
    api: ApiConfig | None = Field(default=None, description="rented by the token instead; null = engines of its own")
    overflow: JudgeOverflowConfig | None = Field(
        default=None,
        description="an API that takes what finds all its engines full (engine.max_num_seqs); null = it waits",
    )
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

    @property
    def has_engines(self) -> bool:
        """Whether it has engines of its own."""
        return self.at == "own" and self.api is None


class TimeLimitConfig(ConfigSection):
    """How long a turn, or a rollout, may take."""

    timeout_s: PositiveSeconds | None = Field(default=None, description="seconds until its last token; null = no limit")
    lost: LostName = Field(default="dropped", description="of a rollout whose time is over")


class StationsConfig(ConfigSection):
    """Who serves the calls of a rollout beside the engines, and its time limits."""

    tools: StationConfig = unsaid(StationConfig)
    reward: RewardStationConfig = unsaid(RewardStationConfig)
    turn: TimeLimitConfig = Field(default=unsaid(TimeLimitConfig), description="of one generation, from its request on")
    episode: TimeLimitConfig = Field(
        default=unsaid(TimeLimitConfig), description="of turns and tools, with their waits, not of the reward"
    )
    judge: JudgeConfig | None = Field(default=None, description="a judge or a reward model; null = none")
    teacher: JudgeConfig | None = Field(default=None, description="whose log-probabilities are distilled; null = none")
    reference: JudgeConfig | None = Field(default=None, description="the reference model; null = none")

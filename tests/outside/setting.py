"""What a job of the outside world is made of: every number that a history is generated from."""

import math
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Spell:
    """A factor that holds from `start` to `end` (seconds of the history); outside of it, 1."""

    factor: float
    start: float = 0.0
    end: float = math.inf

    def at(self, time: float) -> float:
        """The factor at a time."""
        return self.factor if self.start <= time < self.end else 1.0


@dataclass(frozen=True)
class Ramp(Spell):
    """A factor that grows from 1 at `start` to `factor` at `end`, and stays there."""

    def at(self, time: float) -> float:
        """The factor at a time."""
        done = (time - self.start) / (self.end - self.start)
        return 1.0 + (self.factor - 1.0) * min(max(done, 0.0), 1.0)


ALWAYS_ONE = Spell(1.0)


@dataclass(frozen=True)
class Absence:
    """An instance is gone from `start` to `end`; `renamed`: what comes back is another pod with counters from zero."""

    instance: int
    start: float
    end: float = math.inf
    renamed: bool = False


@dataclass(frozen=True)
class Setting:
    """One job: engines, work, trainer, what disturbs them, and how they are scraped. Seconds and tokens."""

    name: str
    instances: int = 5
    hours: float = 1.0
    seed: int = 0
    # Engines: an iteration lasts base_s + per_request_s x running + per_kv_token_s x tokens in the KV cache.
    base_s: float = 0.015
    per_request_s: float = 0.00005
    per_kv_token_s: float = 3e-8
    prefill_tokens_per_s: float = 40_000.0
    kv_tokens: int = 400_000
    max_num_seqs: int = 256
    prefix_caching: bool = True
    slow: dict[int, Spell] = field(default_factory=dict)  # per instance: its iterations last this much longer
    absences: tuple[Absence, ...] = ()
    # Work: groups of samples of one prompt.
    group: int = 8
    prompt: int = 400
    median: float = 650.0
    sigma: float = 0.7
    cap: int = 4096
    longer: Spell = ALWAYS_ONE  # responses are this much longer
    route: str = "least"  # least (in flight), round, group (all samples of a prompt to one instance)
    stuck: float = 0.0  # of the requests, the share that a balancer sends to instance 0 whatever its load
    turns: int = 1  # a sample is so many requests, one after the other, each with all that was said as its prompt
    tool_s: float = 0.0  # seconds between two of them, exponential
    reward_s: float = 0.0  # median seconds of judging a sample after its last response, lognormal
    reward_sigma: float = 1.0
    # The client: at most (1 + staleness) batches started and not yet trained; at most this many requests in flight.
    staleness: float = 1.0
    in_flight: int = 10**9
    bounded: bool = (
        True  # False: a constant pool of requests in flight whatever the trainer does (in_flight is its size)
    )
    sends_per_s: float = math.inf  # the client's own processor sends no more requests a second
    max_age: int = 10**9  # steps: older groups are thrown away when the trainer takes a batch
    # The trainer. batch 0: there is none, requests arrive by themselves (serving).
    batch: int = 32
    train_s: float = 20.0
    train_noise: float = 0.03
    trainer_slow: Spell = ALWAYS_ONE
    pause_s: float = 1.0
    sync_slow: Spell = ALWAYS_ONE
    sync_every: int = 1
    rolling: bool = False
    flushed: bool = False  # the prefix caches are emptied at each sync
    saves_every: int = 10**9  # steps: after so many the trainer writes a checkpoint, for save_s seconds
    save_s: float = 0.0
    tests_every: int = 10**9  # steps: after so many, `tests` requests that nobody trains on are sent at once
    tests: int = 0
    # Serving: requests per second, its swing over the day squeezed into `wave_s`.
    arrivals: float = 0.0
    swing: float = 0.0
    wave_s: float = 3600.0
    # How it is seen.
    scrape_s: float = 15.0
    holes: tuple[tuple[float, float], ...] = ()
    deaf: bool = False  # engines answer no scrape while a sync holds them
    engine: str = "vllm"  # vllm, vllm-0.8, ray-vllm, sglang, sglang-0.4, trtllm
    ranks: int = 1  # data-parallel ranks behind one server (one scrape target)
    trainer_metrics: bool = True
    weight_update_metric: bool = False
    job: str = "rollout"
    model: str = "Qwen/Qwen3-8B"

    def but(self, **changes: Any) -> "Setting":
        """The same job with other values."""
        return replace(self, **changes)

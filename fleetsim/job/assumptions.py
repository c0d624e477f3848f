"""What was assumed because nobody said otherwise: defaults that bear on a plan, each with the flag that changes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from msgspec import Struct

from fleetsim import units
from fleetsim.config.law_numbers import law_of
from fleetsim.config.scenario import Scenario, has_spot
from fleetsim.config.tree import is_touched, value_at
from fleetsim.config.workload import Lognormal
from fleetsim.engine.prices import prices_of
from fleetsim.faces import flag, setting, text
from fleetsim.job import words
from fleetsim.job.settings import LENGTHS, SAID_BY

_FLEET = "fleet.instances"


class Assumption(Struct, frozen=True):
    """One assumed value: its scenario path, the value, the flag that changes it, and the sentence of the report."""

    path: str
    value: Any
    flag: str
    text: str


class _Default(Struct, frozen=True):
    """say: the value in words. matters: whether it bears on the job. example: what to type for a path that has no flag,
    or for a part of it."""

    path: str
    say: Callable[[Scenario], str]
    matters: Callable[[Scenario], bool] = lambda s: True
    example: str = ""

    @property
    def flag(self) -> str:
        """What to type to say it."""
        return f"--set {self.path}{self.example}" if self.example else flag(SAID_BY[self.path])


def _modelled(s: Scenario) -> bool:
    return s.engine.kind == "roofline"


def _by_law(s: Scenario) -> bool:
    return has_spot(s) and s.fleet.spot.trace is None


def _starts_by_itself(s: Scenario) -> bool:
    given = s.engine.max_num_seqs, s.engine.max_num_batched_tokens
    return _modelled(s) and s.engine.name == "vllm" and None in given


def _drafts_are_guessed(s: Scenario) -> bool:
    from fleetsim.sim.engines import profile_of, speculation_of

    d, profile = speculation_of(s), profile_of(s)
    if profile is not None and profile.speculation is not None:
        return False
    return d is not None and d.acceptance is None and d.acceptance_length is None and d.curve is None


def _reuses(on: bool) -> Callable[[Scenario], bool]:
    """Whether prompts come again, and engines have the cache for them or not."""
    return lambda s: s.engine.kind != "constant" and s.workload.group_size > 1 and s.engine.prefix_caching == on


def _lognormal(s: Scenario) -> Lognormal | None:
    law = s.workload.output_tokens
    return law if isinstance(law, Lognormal) else None


def _capped(s: Scenario) -> bool:
    law = _lognormal(s)
    return law is not None and law.max is not None


def _dispersed(s: Scenario) -> bool:
    law = _lognormal(s)
    return law is not None and law.cv is not None


def is_estimated(s: Scenario) -> bool:
    """Whether the trainer's seconds come from its model (`job/derived_values.py`), and not from what a file assumes."""
    named = s.engine.kind != "constant" or s.trainer.recipe.model is not None
    return named and "trainer.fixed_s" in s.assumed and "trainer.per_token_s" in s.assumed


def _told_per_step(s: Scenario) -> bool:
    """Whether the seconds of a step are said once, as those of the step."""
    return not is_estimated(s) and not (s.trainer.fixed_s == 0 and (s.trainer.per_token_s > 0 or s.trainer.phases))


def _is_stated(path: str) -> Callable[[Scenario], bool]:
    """Whether a file assumes these seconds, so that no model makes them."""
    return lambda s: path in s.assumed and not is_estimated(s)


def _assumes(path: str) -> Callable[[Scenario], bool]:
    return lambda s: path in s.assumed


def _lengths(say: Callable[[Lognormal], str]) -> Callable[[Scenario], str]:
    return lambda s: "" if (law := _lognormal(s)) is None else say(law)


_DEFAULTS = (
    _Default("engine.profile", words.named_profile, lambda s: s.engine.kind == "measured"),
    _Default("engine.model", lambda s: s.engine.model, _modelled),
    _Default("engine.gpu", lambda s: s.engine.gpu, _modelled),
    _Default("engine.tp", words.instance),
    _Default("engine.dtype", words.weights, _modelled),
    _Default("engine.kv_dtype", words.kv_cache, _modelled),
    _Default("engine.slowdown", words.slowdown, _assumes("engine.slowdown")),
    _Default("engine.entry_point", words.entry_point, _starts_by_itself, "=llm"),
    _Default("engine.speculation.acceptance", words.drafts, _drafts_are_guessed, "_length=3"),
    _Default("engine.prefix_caching", words.prefix_caching, _reuses(True), "=false"),
    _Default("engine.prefix_caching", words.prefix_caching, _reuses(False), "=true"),
    _Default("trainer.batch_samples", lambda s: f"{s.trainer.batch_samples:,} samples per optimizer step"),
    _Default(
        f"{LENGTHS}.mean",
        _lengths(lambda law: f"a mean of {law.mean:,.0f} generated tokens before the cap"),
        _dispersed,
    ),
    _Default(f"{LENGTHS}.cv", _lengths(lambda law: f"lognormal lengths, cv {law.cv:g} before the cap"), _dispersed),
    _Default(f"{LENGTHS}.max", _lengths(lambda law: f"responses cut at {law.max:,.0f} tokens"), _capped),
    _Default("workload.group_size", lambda s: f"groups of {s.workload.group_size}"),
    _Default(
        "workload.group_correlation",
        lambda s: f"siblings share {s.workload.group_correlation:g} of the variance of lengths",
        lambda s: s.workload.group_size > 1,
        "=0.6",
    ),
    _Default(
        "workload.prompt_tokens",
        lambda s: f"prompts of {getattr(s.workload.prompt_tokens, 'value', 0):,} tokens",
        lambda s: s.engine.kind != "constant",
    ),
    _Default("trainer.fixed_s", lambda s: f"{s.trainer.fixed_s:g} s of compute per step", _told_per_step),
    _Default("trainer.fixed_s", words.estimated_step, is_estimated),
    _Default("trainer.per_token_s", words.per_token, _is_stated("trainer.per_token_s")),
    _Default(
        "trainer.phases",
        lambda s: f"the seconds of {' and '.join(p.name for p in s.trainer.phases)}",
        lambda s: bool(s.trainer.phases) and _is_stated("trainer.phases")(s),
    ),
    _Default("trainer.gpus", words.trainer_gpus),
    _Default(
        "admission.max_staleness",
        lambda s: f"generation at most {units.plural(s.admission.max_staleness, 'weight version')} ahead",
        lambda s: law_of(s).plain_window,
    ),
    _Default(
        "sync.transport",
        lambda s: f"weights by {(s.sync.transport or '').replace('_', ' ')}",
        _assumes("sync.transport"),
        "=rdma_p2p",
    ),
    _Default("sync.publish_s", words.publish, lambda s: s.sync.transport is not None, "=0"),
    _Default("sync.pause_s", words.pause),
    _Default("sync.trainer_block_s", words.trainer_block, example="=0"),
    _Default(
        "targets.headroom", lambda s: f"headroom {s.targets.headroom:g} in the arithmetic (not in the simulation)"
    ),
    _Default(
        "cost.instance_price_usd_per_gpu_h",
        lambda s: f"{units.price(prices_of(s).rollout)} per rollout GPU-hour ({words.price_list(s, s.engine.gpu)})",
    ),
    _Default(
        "cost.trainer_price_usd_per_gpu_h",
        lambda s: (
            f"{units.price(prices_of(s).trainer)} per trainer GPU-hour"
            + (f" ({words.price_list(s, s.trainer.recipe.gpu)})" if s.trainer.recipe.gpu else "")
        ),
    ),
    _Default(
        "cost.spot_price_usd_per_gpu_h",
        lambda s: f"{units.price(prices_of(s).spot)} per spot GPU-hour",
        lambda s: s.fleet.on_spot > 0,
    ),
    _Default(
        "fleet.spot.mean_life_s",
        lambda s: f"a spot machine serves {units.seconds(s.fleet.spot.mean_life_s)} on average",
        _by_law,
        "=7200",
    ),
    _Default(
        "fleet.spot.mean_absence_s",
        lambda s: f"another one is found after {units.seconds(s.fleet.spot.mean_absence_s)}",
        _by_law,
        "=1200",
    ),
    _Default(
        "fleet.spot.start_s",
        lambda s: f"it serves {units.seconds(s.fleet.spot.start_s)} after it is found",
        has_spot,
        "=300",
    ),
    _Default(
        "fleet.failures.mtbf_s", lambda s: "no instance fails", lambda s: s.fleet.failures.mtbf_s is None, "=86400"
    ),
    _Default(
        "fleet.straggler_share",
        lambda s: "no stragglers: all instances are equally fast",
        lambda s: not s.fleet.speed_factors and not s.fleet.straggler_share,
        "=0.1",
    ),
    _Default(
        "workload.reward.latency_s",
        lambda s: "rewards take no time",
        lambda s: getattr(s.workload.reward.latency_s, "value", None) == 0,
        "=2",
    ),
)


def assumptions_of(scenario: Scenario, given: Collection[str]) -> tuple[Assumption, ...]:
    """Every default that bears on the plan and that no path in `given` touches; then whatever else the scenario calls
    assumed."""
    defaults = tuple(
        Assumption(d.path, value_at(scenario, d.path), d.flag, d.say(scenario))
        for d in _DEFAULTS
        if d.matters(scenario) and not is_touched(d.path, given)
    )
    return (*defaults, *_others(scenario, given))


def _others(scenario: Scenario, given: Collection[str]) -> Iterator[Assumption]:
    """Values that the scenario calls assumed and for which no sentence is written above; without the instances, which a
    plan chooses."""
    told = {"fleet.instances", *(d.path for d in _DEFAULTS)}
    for path, value in assumed_values(scenario).items():
        if path not in told and not is_touched(path, given):
            other = setting(path, "VALUE")
            yield Assumption(path, value, other, text("{} = {} ({})", path, short(value), other))


def assumed_values(scenario: Scenario) -> dict[str, Any]:
    """What the scenario itself calls assumed: its values by path. Paths that it does not have are left out."""
    found = {}
    for path in scenario.assumed:
        try:
            value = value_at(scenario, path)
        except AttributeError:  # a parameter of another law
            continue
        if value is not None:
            found[path] = value
    return found


def short(value: Any) -> str:
    """A value of a scenario in a few characters."""
    if isinstance(value, dict) and value.keys() == {"kind", "value"}:
        value = value["value"]
    if isinstance(value, (tuple, list)):
        return f"{len(value)} of them" if value else "none"
    return f"{value:g}" if isinstance(value, float) else str(value)[:100]


def run_assumptions(scenario: Scenario, given: Collection[str]) -> tuple[Assumption, ...]:
    """Every default that bears on a run and that no path in `given` touches, and what the scenario calls assumed."""
    found = [a for a in assumptions_of(scenario, given) if not a.path.startswith("targets.")]
    if not is_touched(_FLEET, given):
        count = scenario.fleet.instances
        found.append(Assumption(_FLEET, count, flag("instances"), units.plural(count, "instance")))
    return tuple(sorted(found, key=lambda a: a.path.partition(".")[0] != "engine"))

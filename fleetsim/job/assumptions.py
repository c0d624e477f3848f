"""What was assumed because nobody said otherwise: defaults that bear on a plan, each with the flag that changes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from fleetsim import units
from fleetsim.config.law_numbers import law_of
from fleetsim.config.lengths import Lognormal
from fleetsim.config.paths import is_touched, value_at
from fleetsim.config.scenario import Scenario
from fleetsim.dataclass import dataclass
from fleetsim.engine.prices import prices_of
from fleetsim.faces import flag, setting, text
from fleetsim.job import value_words

_FLEET = "fleet.instances"


@dataclass(frozen=True, slots=True)
class Assumption:
    """One assumed value: its scenario path, the value, the flag that changes it, and the sentence of the report."""

    path: str
    value: Any
    flag: str
    text: str


@dataclass(frozen=True, slots=True)
class _Default:
    path: str
    flag: str
    say: Callable[[Scenario], str]
    matters: Callable[[Scenario], bool] = lambda s: True


def _modelled(s: Scenario) -> bool:
    return s.engine.kind == "roofline"


def _profiled(s: Scenario) -> bool:
    return s.engine.kind == "measured"


def _starts_by_itself(s: Scenario) -> bool:
    given = s.engine.max_num_seqs, s.engine.max_num_batched_tokens
    return _modelled(s) and s.engine.name == "vllm" and None in given


def _drafts_are_guessed(s: Scenario) -> bool:
    from fleetsim.sim.engines import profile_of, speculation_of

    d, profile = speculation_of(s), profile_of(s)
    if profile is not None and profile.speculation is not None:
        return False
    return d is not None and d.acceptance is None and d.acceptance_length is None and d.curve is None


def _reuses_prompts(s: Scenario) -> bool:
    return s.engine.kind != "constant" and s.workload.group_size > 1


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


def _counts_per_token(s: Scenario) -> bool:
    return s.trainer.fixed_s == 0 and (s.trainer.per_token_s > 0 or bool(s.trainer.phases))


_DEFAULTS = (
    _Default("engine.profile", flag("profile"), value_words.profile, _profiled),
    _Default("engine.model", flag("model"), lambda s: s.engine.model, _modelled),
    _Default("engine.gpu", flag("gpu"), lambda s: s.engine.gpu, _modelled),
    _Default("engine.tp", flag("tp"), value_words.instance),
    _Default("engine.dtype", flag("dtype"), value_words.weights, _modelled),
    _Default("engine.kv_dtype", flag("kv_dtype"), value_words.kv_cache, _modelled),
    _Default("engine.slowdown", flag("slowdown"), value_words.slowdown, lambda s: "engine.slowdown" in s.assumed),
    _Default("engine.entry_point", "--set engine.entry_point=llm", value_words.entry_point, _starts_by_itself),
    _Default(
        "engine.speculation.acceptance",
        "--set engine.speculation.acceptance_length=3",
        value_words.drafts,
        _drafts_are_guessed,
    ),
    _Default(
        "engine.prefix_caching",
        "--set engine.prefix_caching=false",
        value_words.prefix_caching,
        lambda s: _reuses_prompts(s) and s.engine.prefix_caching,
    ),
    _Default(
        "engine.prefix_caching",
        "--set engine.prefix_caching=true",
        value_words.prefix_caching,
        lambda s: _reuses_prompts(s) and not s.engine.prefix_caching,
    ),
    _Default(
        "trainer.batch_samples", flag("batch"), lambda s: f"{s.trainer.batch_samples:,} samples per optimizer step"
    ),
    _Default(
        "workload.output_tokens.mean",
        flag("len"),
        lambda s: f"a mean of {law.mean:,.0f} generated tokens before the cap" if (law := _lognormal(s)) else "",
        _dispersed,
    ),
    _Default(
        "workload.output_tokens.cv",
        flag("len_cv"),
        lambda s: f"lognormal lengths, cv {law.cv:g} before the cap" if (law := _lognormal(s)) else "",
        _dispersed,
    ),
    _Default(
        "workload.output_tokens.max",
        flag("max_len"),
        lambda s: f"responses cut at {law.max:,.0f} tokens" if (law := _lognormal(s)) else "",
        _capped,
    ),
    _Default("workload.group_size", flag("group_size"), lambda s: f"groups of {s.workload.group_size}"),
    _Default(
        "workload.prompt_tokens",
        flag("prompt_len"),
        lambda s: f"prompts of {getattr(s.workload.prompt_tokens, 'value', 0):,} tokens",
        lambda s: s.engine.kind != "constant",
    ),
    _Default(
        "trainer.fixed_s",
        flag("trainer_step_s"),
        lambda s: f"{s.trainer.fixed_s:g} s of compute per step",
        lambda s: not is_estimated(s) and not _counts_per_token(s),
    ),
    _Default("trainer.fixed_s", flag("trainer_step_s"), value_words.estimated_step, is_estimated),
    _Default(
        "trainer.per_token_s",
        flag("trainer_step_s"),
        value_words.per_token,
        lambda s: "trainer.per_token_s" in s.assumed and not is_estimated(s),
    ),
    _Default(
        "trainer.phases",
        flag("trainer_step_s"),
        lambda s: f"the seconds of {' and '.join(p.name for p in s.trainer.phases)}",
        lambda s: bool(s.trainer.phases) and "trainer.phases" in s.assumed and not is_estimated(s),
    ),
    _Default("trainer.gpus", flag("trainer_gpus"), value_words.trainer_gpus),
    _Default(
        "admission.max_staleness",
        flag("max_staleness"),
        lambda s: f"generation at most {units.plural(s.admission.max_staleness, 'weight version')} ahead",
        lambda s: law_of(s).plain_window,
    ),
    _Default(
        "sync.transport",
        "--set sync.transport=rdma_p2p",
        lambda s: f"weights by {(s.sync.transport or '').replace('_', ' ')}",
        lambda s: "sync.transport" in s.assumed,
    ),
    _Default("sync.publish_s", "--set sync.publish_s=0", value_words.publish, lambda s: s.sync.transport is not None),
    _Default("sync.pause_s", flag("sync_pause_s"), value_words.pause),
    _Default("sync.trainer_block_s", "--set sync.trainer_block_s=0", value_words.trainer_block),
    _Default(
        "targets.headroom",
        flag("headroom"),
        lambda s: f"headroom {s.targets.headroom:g} in the arithmetic (not in the simulation)",
    ),
    _Default(
        "cost.instance_price_usd_per_gpu_h",
        flag("instance_price"),
        lambda s: f"{units.price(prices_of(s).rollout)} per rollout GPU-hour ({value_words.price_list(s)})",
    ),
    _Default(
        "cost.trainer_price_usd_per_gpu_h",
        flag("trainer_price"),
        lambda s: f"{units.price(prices_of(s).trainer)} per trainer GPU-hour",
    ),
    _Default(
        "fleet.failures.mtbf_s",
        "--set fleet.failures.mtbf_s=86400",
        lambda s: "no instance fails",
        lambda s: s.fleet.failures.mtbf_s is None,
    ),
    _Default(
        "fleet.straggler_share",
        "--set fleet.straggler_share=0.1",
        lambda s: "no stragglers: all instances are equally fast",
        lambda s: not s.fleet.speed_factors and not s.fleet.straggler_share,
    ),
    _Default(
        "workload.reward.latency_s",
        "--set workload.reward.latency_s=2",
        lambda s: "rewards take no time",
        lambda s: getattr(s.workload.reward.latency_s, "value", None) == 0,
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

"""The defaults that mattered: what was assumed because nobody said otherwise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from fleetsim import units
from fleetsim.config.counted import law_of
from fleetsim.config.lengths import Lognormal
from fleetsim.config.paths import is_touched, value_at
from fleetsim.config.scenario import Scenario
from fleetsim.engine.defaults import ENTRY_POINTS, default_limits
from fleetsim.engine.gpus import gpu_of
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.precision import KV_BYTES, PRECISIONS
from fleetsim.engine.prices import listed_price, prices_of
from fleetsim.engine.slowdown import is_known
from fleetsim.engine.transport import sync_times
from fleetsim.faces import flag, setting, text
from fleetsim.job.nameplate import mean_output_tokens, mean_prompt_tokens


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


def _profile(s: Scenario) -> str:
    from fleetsim.job.engine_source import profile_words
    from fleetsim.sim.engines import profile_of

    found = profile_of(s)
    return "" if found is None else profile_words(found)


def _instance(s: Scenario) -> str:
    why = ": the cheapest that fits" if _modelled(s) and s.engine.tp > 1 else ""
    stages = f" x PP{s.engine.pp}" if s.engine.pp > 1 else ""
    apart = s.engine.disaggregation
    if apart is not None:
        sides = f"{apart.prefill} prefill (TP{s.engine.prefill_tp}) + {apart.decode} decode (TP{s.engine.tp}) engines"
        return f"{sides}: {_plural(s.engine.gpus, 'GPU')} per instance"
    return f"TP{s.engine.tp}{stages} ({_plural(s.engine.gpus, 'GPU')} per instance{why})"


def _weights(s: Scenario) -> str:
    shape = model_shape(s.engine.model)
    small = PRECISIONS[shape.weights_type(s.engine.dtype)].bits < 16
    own = ", as the checkpoint has them" if s.engine.dtype == "auto" and small else ""
    return f"{shape.stored(s.engine.dtype).text(shape.mixture is not None)}{own}"


def _cache(s: Scenario) -> str:
    kind = model_shape(s.engine.model).cache_type(s.engine.kv_dtype)
    own = ", as the checkpoint asks" if s.engine.kv_dtype == "auto" and KV_BYTES[kind] < 2 else ""
    return f"KV cache in {kind}{own}"


def _starts_by_itself(s: Scenario) -> bool:
    given = s.engine.max_num_seqs, s.engine.max_num_batched_tokens
    return _modelled(s) and s.engine.name == "vllm" and None in given


def _entry_point(s: Scenario) -> str:
    point = ENTRY_POINTS[s.engine.entry_point]
    seqs, tokens = default_limits(gpu_of(s.engine), "vllm", s.engine.entry_point)
    seqs, tokens = s.engine.max_num_seqs or seqs, s.engine.max_num_batched_tokens or tokens
    return f"vLLM as {point.words}: {seqs:,} requests at once, {tokens:,} tokens per iteration"


def _drafts_are_guessed(s: Scenario) -> bool:
    from fleetsim.sim.engines import profile_of, speculation_of

    d, profile = speculation_of(s), profile_of(s)
    if profile is not None and profile.speculation is not None:
        return False
    return d is not None and d.acceptance is None and d.acceptance_length is None and d.curve is None


def _drafts(s: Scenario) -> str:
    from fleetsim.sim.engines import engine_of

    found = engine_of(s)[0].speculation
    assert found is not None  # asked of scenarios with speculation alone
    return f"{found.source.replace('assumed: ', '')}: {found.lengths[0][found.most]:.2f} tokens an iteration"


def _reuses_prompts(s: Scenario) -> bool:
    return s.engine.kind != "constant" and s.workload.group_size > 1


def _prefix_caching(s: Scenario) -> str:
    from fleetsim.sim.engines import profile_of

    found, on = profile_of(s), s.engine.prefix_caching
    measured = found.prefix_cache if found is not None else None
    as_there = ", as in the engine that was measured" if measured is not None and measured.enabled == on else ""
    return f"prefix caching {'on' if on else 'off'}{as_there}"


def _slowdown(s: Scenario) -> str:
    """How much slower engines are in this job, and whose runs say so."""
    whose = s.trainer.recipe.framework
    own = f"{whose}'s published runs" if is_known(whose) else "published runs"
    return f"iterations take {s.engine.slowdown:g} times as long as of the engine alone, as in {own}"


def _listed(s: Scenario) -> str:
    return listed_price(s.engine.gpu, s.cost.market, s.cost.prices).words


def _publish(s: Scenario) -> str:
    return f"weights published {units.seconds(sync_times(s).publish_s)} after the update"


def _pause(s: Scenario) -> str:
    times = sync_times(s)
    if "pause_s" not in times.derived:
        return f"engines pause {times.pause_s:g} s per weight sync"
    return f"engines pause {units.seconds(times.pause_s)} per weight sync: from {times.text}"


def _trainer_block(s: Scenario) -> str:
    times = sync_times(s)
    derived = "trainer_block_s" in times.derived
    waits = units.seconds(times.trainer_block_s) if derived else f"{times.trainer_block_s:g} s"
    return f"the trainer waits {waits} per weight sync"


def _lognormal(s: Scenario) -> Lognormal | None:
    law = s.workload.output_tokens
    return law if isinstance(law, Lognormal) else None


def _capped(s: Scenario) -> bool:
    law = _lognormal(s)
    return law is not None and law.max is not None


def _dispersed(s: Scenario) -> bool:
    law = _lognormal(s)
    return law is not None and law.cv is not None


def _per_token(s: Scenario) -> str:
    """The update's seconds per token, and what a mean batch makes of them."""
    t = s.trainer
    batch = t.batch_samples * (mean_prompt_tokens(s) + mean_output_tokens(s)) * t.per_token_s
    return f"{t.per_token_s:.3g} s of compute per trained token ({units.seconds(batch)} for a mean batch)"


def is_estimated(s: Scenario) -> bool:
    """Whether the trainer's seconds are those of its model (`fleetsim.job.derived`), not those that a file assumes."""
    named = s.engine.kind != "constant" or s.trainer.recipe.model is not None
    return named and "trainer.fixed_s" in s.assumed and "trainer.per_token_s" in s.assumed


def _estimated_step(s: Scenario) -> str:
    """The whole step, how it is trained, and how far off that is."""
    from fleetsim.trainer.estimate import estimate_of

    found = estimate_of(s, s.trainer.gpus)
    error = "" if found.error is None else f", off by {units.share(found.error.median, 0)} in the median"
    how = "FSDP" if found.plan.recipe.backend == "fsdp" else "Megatron"
    passes = ", log-probs included" if found.seconds.passes else ""
    return f"{units.seconds(found.step_s)} of compute per step{passes} (estimated, {how}{error})"


def _counts_per_token(s: Scenario) -> bool:
    return s.trainer.fixed_s == 0 and (s.trainer.per_token_s > 0 or bool(s.trainer.phases))


def _trainer_gpus(s: Scenario) -> str:
    least = ", the fewest servers that fit" if "trainer.gpus" in s.assumed else ""
    return f"{_plural(s.trainer.gpus, 'GPU')}{least}"


def _plural(number: float, noun: str) -> str:
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"


_DEFAULTS = (
    _Default("engine.profile", flag("profile"), _profile, _profiled),
    _Default("engine.model", flag("model"), lambda s: s.engine.model, _modelled),
    _Default("engine.gpu", flag("gpu"), lambda s: s.engine.gpu, _modelled),
    _Default("engine.tp", flag("tp"), _instance),
    _Default("engine.dtype", flag("dtype"), _weights, _modelled),
    _Default("engine.kv_dtype", flag("kv_dtype"), _cache, _modelled),
    _Default("engine.slowdown", flag("slowdown"), _slowdown, lambda s: "engine.slowdown" in s.assumed),
    _Default("engine.entry_point", "--set engine.entry_point=llm", _entry_point, _starts_by_itself),
    _Default(
        "engine.speculation.acceptance",
        "--set engine.speculation.acceptance_length=3",
        _drafts,
        _drafts_are_guessed,
    ),
    _Default(
        "engine.prefix_caching",
        "--set engine.prefix_caching=false",
        _prefix_caching,
        lambda s: _reuses_prompts(s) and s.engine.prefix_caching,
    ),
    _Default(
        "engine.prefix_caching",
        "--set engine.prefix_caching=true",
        _prefix_caching,
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
    _Default("trainer.fixed_s", flag("trainer_step_s"), _estimated_step, is_estimated),
    _Default(
        "trainer.per_token_s",
        flag("trainer_step_s"),
        _per_token,
        lambda s: "trainer.per_token_s" in s.assumed and not is_estimated(s),
    ),
    _Default(
        "trainer.phases",
        flag("trainer_step_s"),
        lambda s: f"the seconds of {' and '.join(p.name for p in s.trainer.phases)}",
        lambda s: bool(s.trainer.phases) and "trainer.phases" in s.assumed and not is_estimated(s),
    ),
    _Default("trainer.gpus", flag("trainer_gpus"), _trainer_gpus),
    _Default(
        "admission.max_staleness",
        flag("max_staleness"),
        lambda s: f"staleness budget of {_plural(s.admission.max_staleness, 'step')} (version window)",
        lambda s: law_of(s).plain_window,
    ),
    _Default(
        "sync.transport",
        "--set sync.transport=rdma_p2p",
        lambda s: f"weights by {(s.sync.transport or '').replace('_', ' ')}",
        lambda s: "sync.transport" in s.assumed,
    ),
    _Default("sync.publish_s", "--set sync.publish_s=0", _publish, lambda s: s.sync.transport is not None),
    _Default("sync.pause_s", flag("sync_pause_s"), _pause),
    _Default("sync.trainer_block_s", "--set sync.trainer_block_s=0", _trainer_block),
    _Default(
        "targets.trainer_idle_fraction",
        flag("target_idle"),
        lambda s: f"trainer idle at most {units.share(s.targets.trainer_idle_fraction)}",
    ),
    _Default(
        "targets.headroom",
        flag("headroom"),
        lambda s: f"headroom {s.targets.headroom:g} in the arithmetic (not in the simulation)",
    ),
    _Default(
        "cost.instance_price_usd_per_gpu_h",
        flag("instance_price"),
        lambda s: f"{units.price(prices_of(s).rollout)} per rollout GPU-hour ({_listed(s)})",
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
    """Every default that bears on the plan and that no path in `given` touches, and what the scenario calls assumed."""
    defaults = tuple(
        Assumption(d.path, value_at(scenario, d.path), d.flag, d.say(scenario))
        for d in _DEFAULTS
        if d.matters(scenario) and not is_touched(d.path, given)
    )
    return (*defaults, *_others(scenario, given))


def _others(scenario: Scenario, given: Collection[str]) -> Iterator[Assumption]:
    """Values that the scenario calls assumed and that have no sentence of their own; plans choose the instances."""
    told = {"fleet.instances", *(d.path for d in _DEFAULTS)}
    for path, value in assumed_values(scenario).items():
        if path not in told and not is_touched(path, given):
            other = setting(path, "VALUE")
            yield Assumption(path, value, other, text("{} = {} ({})", path, short(value), other))


def assumed_values(scenario: Scenario) -> dict[str, Any]:
    """What the scenario itself calls assumed: its values by path, without those that it does not have (any more)."""
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

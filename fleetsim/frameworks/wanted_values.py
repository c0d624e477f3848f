"""What a scenario wants of a configuration, path by path; and which of its values no configuration can hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from fleetsim.config.pools import RecipeConfig
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import field_at, is_given
from fleetsim.config.workload import ConstantTokens, Histogram
from fleetsim.frameworks.common import OUTPUT_CAP, PROMPT_OF_CAP, cap_of_prompts

# Scenario -> engine limits that it leaves to the engine, by dotted path, as they come out there.
Limits = Callable[[Scenario], Mapping[str, Any]]
# Stands for: the scenario says nothing here.
NOTHING: Any = object()
SECTIONS = ("workload", "stations", "engine", "fleet", "trainer", "sync", "admission", "buffer")
# Facts about the data, the hardware and the measured system: the plan rests on them, and no framework is told them.
_FACTS = (
    "workload.prompt_tokens", "workload.output_tokens", "workload.group_correlation", "workload.shared_prefix_tokens",
    "workload.turns.tool_latency_s", "workload.turns.tool_tokens", "workload.reward", "workload.filter",
    "workload.length_drift_per_step",
    "engine.kind", "engine.gpu", "engine.gpu_sheet", "engine.entry_point", "engine.nic_gb_s", "engine.profile",
    "engine.instance_tok_s", "engine.kv_blocks", "engine.slowdown", "engine.speculation.acceptance",
    "engine.speculation.acceptance_length", "engine.speculation.curve", "engine.speculation.decay_per_version",
    "engine.speculation.redrafted_every", "engine.speculation.draft_s",
    "engine.disaggregation.link_gb_s", "engine.disaggregation.latency_s",
    "fleet.switch_s", "fleet.speed_factors", "fleet.straggler_share", "fleet.straggler_slowdown", "fleet.failures",
    "trainer.fixed_s", "trainer.per_token_s", "trainer.phases", "trainer.checkpoint.stall_s", "trainer.scaling",
    "trainer.recipe.framework", "trainer.recipe.gpu", "trainer.recipe.model",
    "sync.publish_s", "sync.pause_s", "sync.trainer_block_s", "sync.link",
)  # fmt: skip


class Wanted:
    """The values of a scenario by dotted path, with the engine's own limits where it gives none."""

    def __init__(self, scenario: Scenario, limits: Limits) -> None:
        self.scenario, self.limits_of, self.limits = scenario, limits, limits(scenario)
        self.recipe = scenario.trainer.recipe.model_copy(update={"framework": None}) != RecipeConfig()

    def __call__(self, path: str) -> Any:
        """The value; None where it is null; NOTHING where the scenario says nothing of it."""
        if path == OUTPUT_CAP:
            return longest(self.scenario.workload.output_tokens) or NOTHING
        if path == "workload.prompt_tokens":
            return _prompt(self.scenario.workload.prompt_tokens)
        if path.startswith("trainer.recipe.") and path != "trainer.recipe.critic" and not self.recipe:
            return NOTHING
        value = field_at(self.scenario, path)
        return self.limits.get(path) if value is None else value

    def cuts(self, prompts: float) -> bool:
        """Whether the cap of which so many tokens are the assumed share cuts the scenario's prompts."""
        law = self.scenario.workload.prompt_tokens
        return (longest(law) or _prompt(law)) > cap_of_prompts(prompts)


@cache
def is_fact(path: str) -> bool:
    """Whether a value is a fact that no framework is told."""
    of_station = path.startswith("stations.") and not path.endswith(".workers")
    return of_station or (is_given(path, _FACTS) and path != OUTPUT_CAP)


def policies_of(scenario: Scenario) -> Iterator[str]:
    """Dotted paths of everything that a configuration could decide."""
    for section in SECTIONS:
        yield from (path for path in _below(section, getattr(scenario, section)) if not is_fact(path))


def longest(law: Any) -> int | None:
    """Tokens of the longest value of a law; None where it has no end."""
    if isinstance(law, ConstantTokens):
        return int(law.value)
    if law.max is not None:
        return round(float(law.max))
    return round(law.le[-1]) if isinstance(law, Histogram) else None


def _prompt(law: Any) -> int:
    """Tokens of a prompt, of which the cap is a multiple; for a law with an end, the share of it that is assumed."""
    if isinstance(law, ConstantTokens):
        return int(law.value)
    end = longest(law)
    if end is not None:
        return max(1, round(end * PROMPT_OF_CAP))
    return round(getattr(law, "mean", None) or getattr(law, "median", None) or 512)


def _below(path: str, value: Any) -> Iterator[str]:
    if hasattr(type(value), "model_fields"):
        for name in type(value).model_fields:
            yield from _below(f"{path}.{name}", getattr(value, name))
    else:
        yield path

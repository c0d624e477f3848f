"""Where the headroom goes: which cause takes how much of a fleet's nameplate rate, found by removing one cause at a
time.

    computed headroom = consumption / (instances * nameplate rate)

The runbook's 0.8 stands for this number. The rest, 1 - computed, is split between causes. A fleet's supply is its
output rate with a trainer that takes no time. One cause is removed at a time: 1 - supply / supply without the cause is
the share of the fleet that exists because of it.

Where causes overlap, these shares add up to more than what is missing from the nameplate rate; then each is scaled down
by the same factor. So no part is negative, and together they are what is missing. Where they add up to less, the rest
is called "interaction": instances that hold fewer samples than planned, and causes that only matter together. What the
fleet could supply beyond the consumption (because counts are whole, or because of the target) is called "slack". All
parts and the computed headroom sum to 1, unless more than the nameplate rate is consumed.

A trainer that works while the engines generate may take more than the fleet makes with a trainer that takes no time:
then the consumption counts as the supply. Two kinds of runs say nothing, and what they would explain stays in
"interaction": a run that gets stuck when its cause is removed, and one that gets stuck because the trainer takes no
time (every response is then too old).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.workload import ConstantTokens
from fleetsim.engine.transport import sync_times
from fleetsim.errors import StuckError
from fleetsim.job.nameplate import mean_output_tokens, mean_prompt_tokens
from fleetsim.job.trials import Measure, Tell, with_instances
from fleetsim.policies.samples import IN_FLIGHT
from fleetsim.sim.second_pool import counted_as_first

LONG_TAIL, SYNC, STRAGGLERS, FAILURES, PREFILL = "long_tail", "sync_pauses", "stragglers", "failures", "prefill"
INTERACTION, SLACK = "interaction", "slack"


@dataclass(frozen=True, slots=True)
class Headroom:
    """computed: consumption / nameplate supply. supply_tok_s: what the fleet can make; `--json` has it, so it stays.
    parts: see above."""

    computed: float
    supply_tok_s: float
    nameplate_tok_s: float
    parts: Mapping[str, float]


def causes(scenario: Scenario) -> dict[str, dict[str, Any]]:
    """The causes of loss that this scenario has, each with the changes that take it away."""
    w, f, s, times = scenario.workload, scenario.fleet, scenario.sync, sync_times(scenario)
    found: dict[str, dict[str, Any]] = {}
    if not isinstance(w.output_tokens, ConstantTokens):
        found[LONG_TAIL] = {"workload.output_tokens": max(1, round(mean_output_tokens(scenario)))}
    policy = IN_FLIGHT[s.in_flight]
    if times.complete_s or policy.drains or policy.aborts:
        found[SYNC] = {
            "sync.pause_s": 0.0,
            "sync.publish_s": 0.0,
            "sync.trainer_block_s": 0.0,
            "sync.in_flight": "keep",
            "sync.reset_prefix_cache": False,
        }
    if f.speed_factors or (f.straggler_share > 0 and f.straggler_slowdown > 1):
        found[STRAGGLERS] = {"fleet.speed_factors": [], "fleet.straggler_share": 0.0}
    if f.failures.mtbf_s is not None:
        found[FAILURES] = {"fleet.failures": {}}
    if scenario.engine.kind != "constant":
        # A prompt that all groups share is computed once per weight version: its compute is gone, its KV reads stay.
        tokens = max(1, round(mean_prompt_tokens(scenario)))
        found[PREFILL] = {
            "workload.prompt_tokens": tokens,
            "workload.shared_prefix_tokens": tokens,
            "engine.prefix_caching": True,
        }
    return found


def headroom_of(
    scenario: Scenario,
    instances: int,
    consume_tok_s: float,
    instance_tok_s: float,
    measure: Measure,
    tell: Tell | None = None,
) -> Headroom:
    """The headroom of `instances` and its parts, each from one run. All of them are replication 0, so the draws are the
    same.

    instance_tok_s: the nameplate rate at this count.
    """
    freed = {"trainer.fixed_s": 0.0, "trainer.per_token_s": 0.0, "trainer.phases": [], "trainer.checkpoint": {}}
    base = with_changes(with_instances(scenario, instances), freed)

    def supply(changes: Mapping[str, Any]) -> float | None:
        changed = with_changes(base, changes) if changes else base
        trained = scenario.trainer.batch_samples * mean_output_tokens(changed)
        try:
            return trained / float(measure(changed, 0)["step_s"])
        except StuckError:
            return None

    if tell is not None:
        tell("taking the causes of loss away, one by one")
    nameplate = (instances + counted_as_first(scenario)) * instance_tok_s
    have = supply({})
    now = min(max(have or 0.0, consume_tok_s), nameplate)
    missing = 1.0 - now / nameplate
    without = {cause: supply(changes) for cause, changes in causes(scenario).items()} if have is not None else {}
    alone = {c: max(0.0, 1.0 - (have or 0.0) / more) for c, more in without.items() if more is not None}
    told = sum(alone.values())
    parts = {cause: share * min(1.0, missing / told) if told else 0.0 for cause, share in alone.items()}
    parts[INTERACTION] = max(0.0, missing - told)
    parts[SLACK] = max(0.0, now - consume_tok_s) / nameplate
    return Headroom(consume_tok_s / nameplate, now, nameplate, parts)

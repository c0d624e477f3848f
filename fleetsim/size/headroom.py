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

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from fleetsim.config.law_numbers import budget_steps
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.workload import ConstantTokens
from fleetsim.engine.transport import sync_times
from fleetsim.errors import StuckError
from fleetsim.job.looks import long_enough
from fleetsim.job.nameplate import mean_output_tokens, mean_prompt_tokens
from fleetsim.job.trainer_scaling import FREED
from fleetsim.job.trials import Measure, Tell, flat, with_instances
from fleetsim.policies.samples import IN_FLIGHT
from fleetsim.search.rate_matching import smallest
from fleetsim.sim.pools import counted_as_first

LONG_TAIL, SYNC, STRAGGLERS, FAILURES, PREFILL = "long_tail", "sync_pauses", "stragglers", "failures", "prefill"
INTERACTION, SLACK = "interaction", "slack"


class Headroom(Struct, frozen=True):
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
    base = with_changes(with_instances(scenario, instances), FREED)

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


# --- How many finished samples may wait for the trainer: enough that it rarely waits, few enough that they do not get
#     stale. The runbook's bound needs no simulation. A sample that waits behind `cap` others is trained cap / batch
#     steps later, so
#
#         cap <= staleness budget * batch
#
#     and never below one batch, because a batch could not fill. Within the bound the simulation looks for the smallest
#     cap with which a step takes next to no longer than without any. Where groups are reserved for their steps, a queue
#     within the bound may fill with those of later steps and stop the job: then the answer is the smallest cap that
#     does not.

EPSILON = 0.01
# The cap is looked for in this many parts of a batch; a finer one would be precision that one run does not have.
_PARTS_OF_BATCH = 4
# Where every cap within the bound stops the job, larger ones are tried up to this one.
_MOST_BATCHES = 64


class QueueCap(Struct, frozen=True):
    """The recommended cap. step_cost: relative step time it costs; bound_samples: the arithmetic's upper bound.

    staleness_p99_steps: with this cap. within_budget: whether that is inside the staleness budget, if there is one.
    """

    samples: int
    steps: float
    step_cost: float
    staleness_p99_steps: float
    budget_steps: float | None
    bound_samples: int | None
    within_budget: bool


def staleness_budget(scenario: Scenario) -> float | None:
    """Steps of staleness that the recipe tolerates: the target if given, else what its law says (`budget_steps`)."""
    asked = scenario.targets.staleness_p99_steps
    return budget_steps(scenario) if asked is None else asked


def queue_cap_of(scenario: Scenario, instances: int, measure: Measure, tell: Tell | None = None) -> QueueCap:
    """The smallest buffer capacity at `instances` that costs at most EPSILON of step time, from single runs.

    All runs share replication 0's draws; those of spot machines are looks. A cap with which the run gets stuck does not
    hold.
    """
    base = long_enough(with_instances(scenario, instances))
    batch, group = scenario.trainer.batch_samples, scenario.workload.group_size
    budget = staleness_budget(scenario)
    bound = None if budget is None else max(batch, math.floor(budget * batch))
    if tell is not None:
        tell("looking for the smallest queue")
    runs: dict[int | None, tuple[float, float]] = {}

    def run(cap: int | None) -> tuple[float, float]:
        """Step time and 99th percentile of staleness with a cap; infinite where it stops the job."""
        if cap not in runs:
            changes = {"buffer.capacity_samples": cap, "buffer.on_full": "block"}
            runs[cap] = _run(with_changes(base, changes), measure)
        return runs[cap]

    without = run(None)[0]
    if without == math.inf:  # all would be too old that waits in a queue without an end: against the scenario's own
        without = _run(base, measure)[0]
    part = max(group, batch // _PARTS_OF_BATCH // group * group)

    def samples(parts: int) -> int:
        return batch + (parts - 1) * part

    def holds(parts: int) -> bool:
        return run(samples(parts))[0] <= (1.0 + EPSILON) * without

    most = math.ceil(((bound or 2 * batch) - batch) / part) + 1
    found = smallest(holds, 1, most)
    cap = samples(most if found is None else found)
    if bound is not None:
        cap = min(cap, bound)
    if run(cap)[0] == math.inf:  # so small a queue stops the job, whatever the arithmetic says
        able = smallest(lambda parts: run(samples(parts))[0] < math.inf, most, _MOST_BATCHES * batch // part)
        cap = samples(able) if able is not None else scenario.buffer.capacity_samples or cap
    step_s, staleness = run(cap)
    if step_s == math.inf:  # the scenario's own way to fill a queue is the only one that runs
        step_s, staleness = _run(base, measure)
    return QueueCap(
        samples=cap,
        steps=cap / batch,
        step_cost=step_s / without - 1.0,
        staleness_p99_steps=staleness,
        budget_steps=budget,
        bound_samples=bound,
        within_budget=budget is None or staleness <= budget,
    )


def _run(scenario: Scenario, measure: Measure) -> tuple[float, float]:
    try:
        metrics = flat(measure(scenario, 0))
    except StuckError:
        return math.inf, math.inf
    return float(metrics["step_s"]), float(metrics["staleness_steps.p99"])

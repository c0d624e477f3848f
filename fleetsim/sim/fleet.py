"""The rollout fleet as a run sees it: the kernel's tables, filled with groups as they are needed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fleetsim.config.scenario import Scenario
from fleetsim.engine.kernel import tables as t
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.native import advance, command
from fleetsim.engine.requests import ROUTERS
from fleetsim.engine.state import UNLIMITED, World
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError, Problem
from fleetsim.workload.groups import GroupSource
from fleetsim.workload.streams import seed_sequence

NO_BATCH = 1 << 50
MOST_SAMPLES_AT_ONCE = 2_000_000


class Fleet:
    """The kernel behind a few verbs. Times are the run's seconds; groups and instances are indices."""

    def __init__(self, scenario: Scenario, step_time: StepTime, limits: EngineLimits, replication: int) -> None:
        workload, fleet = scenario.workload, scenario.fleet
        self.group_size = workload.group_size
        self.limits = limits
        self.source = GroupSource(
            workload, seed_sequence(scenario.run.seed, replication, "workload"), scenario.groups_per_step
        )
        self.chunk = _expected_groups(scenario)
        sizes = [fleet.instances, *(e.instances for e in scenario.run.events if e.instances is not None)]
        # a constant-rate engine is the runbook's: prompts are free and no cache is kept
        caching = scenario.engine.prefix_caching and scenario.engine.kind != "constant"
        self.world = World(
            step_time,
            limits,
            instances=max(sizes),
            started=fleet.instances,
            slow=_slow(scenario, max(sizes)),
            prefix_caching=caching,
            system_tokens=workload.shared_prefix_tokens,
            turns=workload.turns.count,
            reward_workers=workload.reward.workers or 0,
        )
        capacity = scenario.buffer.capacity_samples
        self.world.set(
            routing=ROUTERS[fleet.routing],
            imbalance=fleet.imbalance_limit,
            together=int(fleet.group_placement == "together"),
            cap=fleet.max_in_flight_samples or UNLIMITED,
            cap_instance=fleet.max_in_flight_samples_per_instance or self._own_cap(scenario),
            ready_cap=UNLIMITED if capacity is None else capacity // self.group_size,
            drop_oldest=int(scenario.buffer.on_full == "drop_oldest"),
            pool=int(scenario.admission.law == "fixed_pool"),
            has_rewards=1,
        )

    def _own_cap(self, scenario: Scenario) -> int:
        """Unbounded admission still ends somewhere: at what the engines can run."""
        return self.limits.max_num_seqs if scenario.admission.law == "unbounded" else UNLIMITED

    @property
    def now(self) -> float:
        """The fleet's clock in seconds."""
        return float(self.world.fleet["now"][0])

    def get(self, name: str) -> int:
        """A counter of the fleet row."""
        return int(self.world.fleet[name][0])

    def set(self, **scalars: float) -> None:
        """Sets fields of the fleet row."""
        self.world.set(**scalars)

    def advance(self, limit: float, want: int = NO_BATCH) -> int:
        """Moves the fleet to `limit` or to the moment when `want` groups are ready; returns the kernel's code."""
        while True:
            code = advance(self.world.address, limit, want)
            if code != t.NEED_GROUPS:
                return int(code)
            self._draw()

    def command(self, what: np.int64, which: int = 0, at: float = 0.0, value: float = 0.0) -> float:
        """One of the CMD_ codes of `kernel/tables.py`."""
        return float(command(self.world.address, int(what), which, at, value))

    def hold(self, at: float, until: float = math.inf) -> None:
        """Engines stop at their first iteration boundary at or after `at`."""
        self.command(t.CMD_HOLD, 0, at, until)

    def seconds(self, account: np.int64, at: float) -> float:
        """Instance-seconds in one account until `at`."""
        return self.command(t.CMD_SECONDS, int(account), at)

    def started(self) -> int:
        """Groups of which at least one sample was sent."""
        return self.get("next_group") + int(self.get("sent") > 0)

    def open_groups(self) -> int:
        """Groups in generation or scoring."""
        return self.started() - self.get("completed_groups") - self.get("aborted_groups")

    def outstanding(self) -> int:
        """Groups sent and neither trained nor thrown away: open, in the buffer, or waiting for room in it."""
        return self.open_groups() + self.get("n_ready") + self.get("n_blocked")

    def quiet(self) -> bool:
        """Whether no event is pending in the fleet itself."""
        return bool(self.world.clock[1] == math.inf and self.get("n_timers") == 0)

    def _draw(self) -> None:
        """Draws more groups and hangs them behind the others."""
        drawn = self.source.take(self.chunk)
        self.chunk = max(64, len(drawn) // 8)  # the first draw was meant to be enough
        world, size = self.world, self.group_size
        g, s = world.add_groups(len(drawn)), world.add_samples(len(drawn) * size)
        groups, samples = world.groups[g], world.samples[s]
        groups["first"] = np.arange(s.start, s.stop, size)
        groups["size"] = size
        groups["zero_variance"] = drawn.zero_variance
        samples["prompt"] = np.repeat(drawn.prompt_tokens, size)
        samples["target"] = drawn.output_tokens
        samples["group"] = np.repeat(np.arange(g.start, g.stop), size)
        world.reward_s[s] = drawn.reward_latency_s
        if drawn.tool_tokens.shape[1]:
            world.tool_s[s], world.tool_tokens[s] = drawn.tool_latency_s, drawn.tool_tokens
        self._check_fit(samples, drawn.tool_tokens)
        world.bind()

    def _check_fit(self, samples: Any, tool_tokens: Any) -> None:
        longest = int((samples["prompt"] + samples["target"] + tool_tokens.sum(axis=1)).max()) - 1
        need = -(-longest // self.limits.block_size)
        if need > self.limits.kv_blocks:
            raise InputError(
                [
                    Problem(
                        "engine.kv_blocks",
                        self.limits.kv_blocks,
                        f"at least {need}, or a drawn sample of {longest + 1} tokens never fits",
                        "cap workload.output_tokens (max), raise engine.tp or gpu_memory_utilization",
                    )
                ]
            )


def _expected_groups(scenario: Scenario) -> int:
    """Groups that a run will need: one draw for all of them is cheaper than growing the tables again and again.

    What is trained, thrown away by filter and oversampling, and in flight at the end; at most two million samples.
    """
    ahead = 2 + max(scenario.admission.max_staleness, scenario.admission.batches_ahead) * scenario.sync.every_steps
    kept = (1 - scenario.workload.filter.zero_variance_share) / scenario.buffer.oversampling
    groups = scenario.groups_per_step * (scenario.run.steps + ahead) / kept
    return max(64, math.ceil(min(groups, MOST_SAMPLES_AT_ONCE / scenario.workload.group_size)))


def _slow(scenario: Scenario, instances: int) -> list[float]:
    """Iteration time multiplier per instance; stragglers are spread evenly over the indices."""
    fleet = scenario.fleet
    slow = [*fleet.speed_factors, *([1.0] * (instances - len(fleet.speed_factors)))][:instances]
    n = round(fleet.straggler_share * instances)
    for k in range(n):
        slow[(k * instances) // n] *= fleet.straggler_slowdown
    return slow

"""Tiny fleets whose timelines can be written down by hand: what the test_timelines files share.

Every engine makes a token in 0.01 s whatever it holds, so a response is given in whole seconds and takes as long as
it says; every other time of a scenario is a whole number of seconds too. Times are compared as whole seconds: what is
left of an iteration when something happens in its middle moves them by hundredths.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any
from unittest import mock

import numpy as np

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.engine import EngineLimits, LinearStepTime, StepTime
from fleetsim.engine.kernel import tables as t
from fleetsim.records import replace
from fleetsim.sim.fleet import Fleet
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.workload.groups import Groups, GroupSource

TOKENS_PER_S = 100
ROOMY = EngineLimits(64, 65_536, 1 << 30)
Engine = tuple[StepTime, EngineLimits]
# Prompts are one token: to prefill a response again costs nothing, or as long as it took to generate it.
FREE: Engine = (LinearStepTime(0.01), ROOMY)
PREFILL: Engine = (LinearStepTime(0.01, 0.0, 0.01), ROOMY)

BASE: dict[str, Any] = {
    "workload.prompt_tokens": 1,
    "workload.output_tokens": 100,
    "workload.group_size": 1,
    "fleet.instances": 1,
    "trainer.batch_samples": 2,
    "trainer.fixed_s": 4.0,
    "sync.pause_s": 0.0,
    "sync.trainer_block_s": 0.0,
    "buffer.batch_rule": "fifo",
    "run.steps": 4,
    "run.warmup_steps": 0,
}


def limited(engine: Engine, **limits: int) -> Engine:
    """The engine with other limits (fields of EngineLimits)."""
    return engine[0], replace(engine[1], **limits)


def scenario_of(changes: dict[str, Any]) -> Scenario:
    """BASE with changes; a double underscore stands for the dot of a path."""
    return with_changes(default_scenario(), BASE | {k.replace("__", "."): v for k, v in changes.items()})


def play(
    lengths: Sequence[int | tuple[int, ...]],
    *,
    engine: Engine = FREE,
    filtered: Iterable[int] = (),
    activity: bool = False,
    **changes: Any,
) -> Records:
    """Runs the scenario with the groups given: seconds of each (a tuple: of each of its samples); the last repeats.

    filtered: indices of the groups whose rewards are all equal. activity: as for `simulate`.
    """
    dropped = np.array(sorted(filtered), np.int64)
    original = GroupSource.take

    def listed(self: GroupSource, n_groups: int) -> Groups:
        drawn = original(self, n_groups)
        siblings = len(drawn.output_tokens) // max(1, n_groups)
        rows = [lengths[min(g, len(lengths) - 1)] for g in range(drawn.first, drawn.first + n_groups)]
        seconds = [row if isinstance(row, tuple) else (row,) * siblings for row in rows]
        assert all(len(row) == siblings for row in seconds), f"a group starts {siblings} samples"
        return replace(
            drawn,
            output_tokens=np.array(seconds, np.int32).ravel() * TOKENS_PER_S,
            zero_variance=np.isin(np.arange(drawn.first, drawn.first + n_groups), dropped),
        )

    with mock.patch.object(GroupSource, "take", listed):
        return simulate(scenario_of(changes), engine=engine, activity=activity)


def whole(seconds: Any) -> tuple[float, ...]:
    """Seconds as whole ones where they are within a tenth of one; others stay visible as what they are."""
    values = [float(s) for s in np.atleast_1d(np.asarray(seconds, np.float64))]
    return tuple(float(round(s)) if abs(s - round(s)) < 0.1 else round(s, 2) for s in values)


def sends(records: Records, n: int) -> tuple[float, ...]:
    """When the first n groups were sent."""
    return whole(records.groups["submit_s"][:n])


def batches(records: Records) -> tuple[float, ...]:
    """When the batch of each step was complete."""
    return whole(records.steps["ready_s"])


def done(records: Records, *groups: int) -> tuple[float, ...]:
    """When these groups were complete; -1 for one that never was."""
    return whole(records.groups["ready_s"][list(groups)])


def trained(records: Records) -> tuple[tuple[int, ...], ...]:
    """The groups of each step, in the order in which they were sent."""
    steps = records.groups["trained_step"]
    return tuple(tuple(np.flatnonzero(steps == k).tolist()) for k in range(len(records.steps)))


def trained_seconds(records: Records) -> tuple[tuple[float, ...], ...]:
    """The lengths of the samples that each step trained, sorted: says who it was where a group starts twice."""
    samples = records.samples[records.samples["status"] == t.DONE]
    steps = records.groups["trained_step"][samples["group"]]
    return tuple(whole(np.sort(samples["target"][steps == k]) / TOKENS_PER_S) for k in range(len(records.steps)))


def versions(records: Records) -> tuple[tuple[int, ...], ...]:
    """The weight versions of each step's groups."""
    return tuple(tuple(records.groups["version"][list(groups)].tolist()) for groups in trained(records))


def with_status(records: Records, status: np.int64) -> tuple[int, ...]:
    """The groups that ended so."""
    return tuple(np.flatnonzero(records.groups["status"] == status).tolist())


def all_different(table: dict[Any, Any]) -> bool:
    """Whether no two rows of a table expect the same: then each would fail under every neighbour's law."""
    return all(a != b for a, b in combinations(table.values(), 2))


def with_its_fleet(scenario: Scenario) -> tuple[Records, Fleet]:
    """A run, and the fleet as the run left it. Raises as `simulate`."""
    seen: list[Fleet] = []
    original = Fleet.__init__

    def kept(self: Fleet, *given: Any) -> None:
        original(self, *given)
        seen.append(self)

    with mock.patch.multiple(Fleet, __init__=kept, close=lambda self: None):
        return simulate(scenario), seen[0]

"""The prefill engines of an instance, where prompts are computed on other GPUs than tokens are decoded.

Their rows stand behind those of all instances, `prefills` for each. A request first waits for one of them (PREFILLING).
When its prompt is computed its cache moves to the instance, which takes a while, and there it waits for room (BROUGHT);
from then on it decodes like any other. What an instance loses later (preemption, new weights) it computes again itself,
as vLLM's decode engines do. A prefill engine is at no time asked to do anything at its next boundary: what leaves it
leaves at once, and the iteration under way takes as long as before.
"""

from __future__ import annotations

from fleetsim.engine.kernel.addresses import fleet_at, group_at, instance_at, sample_at
from fleetsim.engine.kernel.blocks import give_back
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.members import unlink, unwait
from fleetsim.engine.kernel.tables import DECODING, RUNNING


@compiled
def prefill_row(fleet: int, i: int) -> int:
    """Row of the first prefill engine of instance i."""
    w = fleet_at(fleet, 0)
    return w.n_instances + i * w.prefills


@compiled
def prefill_for(fleet: int, i: int, s: int) -> int:
    """The prefill engine for a request: where it, or a sibling, was computed before; else one with the fewest."""
    w = fleet_at(fleet, 0)
    first = prefill_row(fleet, i)
    end = first + w.prefills
    g = sample_at(w.samples, s).group
    if w.caching == 1 and g >= 0:
        group = group_at(w.groups, g)
        for sibling in range(group.first, group.first + group.size):
            row = sample_at(w.samples, sibling).prefill
            if first <= row < end:
                return row
    best = first
    for row in range(first + 1, end):
        engine, least = instance_at(w.instances, row), instance_at(w.instances, best)
        if engine.running + engine.waiting < least.running + least.waiting:
            best = row
    return best


@compiled
def withdraw(fleet: int, s: int) -> None:
    """Takes a request from its prefill engine."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    row = S.prefill
    if S.status == RUNNING:
        if instance_at(w.instances, row).partial == s:
            instance_at(w.instances, row).partial = -1
        unlink(fleet, row, s)
        give_back(fleet, row, s)
    else:
        unwait(fleet, row, s)
    S.side = DECODING


@compiled
def next_prefilling(fleet: int, row: int) -> int:
    """A request that a prefill engine has: the last to wait, else the last to run; -1 if it has none."""
    w = fleet_at(fleet, 0)
    engine = instance_at(w.instances, row)
    return engine.wait_tail if engine.wait_tail >= 0 else engine.tail

"""A table that cannot grow: the run ends with an error, and until then the kernel reads no memory that was freed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.engine import EngineLimits, LinearStepTime, state
from fleetsim.engine.kernel.sizes import SIZES
from fleetsim.engine.state import GROUP_TABLES, SAMPLE_TABLES, World
from fleetsim.errors import InputError
from fleetsim.records import replace
from fleetsim.sim.engines import engine_of
from fleetsim.sim.fleet import Fleet

GROWING = len(GROUP_TABLES) + len(SAMPLE_TABLES) + 3  # and the tables of groups, samples and prefixes


def small_world() -> World:
    world = World(LinearStepTime(1.0), EngineLimits(4, 64, 40), instances=2, prefix_caching=True, several=True)
    world.add_samples(4)
    world.add_groups(4)
    world.bind()
    return world


def grow(world: World) -> None:
    world.add_samples(100)
    world.add_groups(100)


def is_whole(world: World) -> bool:
    """Whether the kernel is shown the tables that there are, none of them too short for what it may use."""
    row = dict(zip(world.fleet.dtype.names or (), world.fleet[0].item(), strict=True))
    return all(
        row[name] == getattr(world, name).ctypes.data and len(getattr(world, name)) >= size.shape(row)[0]
        for name, size in SIZES.items()
    )


def fails_at(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Memory ends when a table grows for this time, counted from 0."""
    longer, left = state._longer, [call]

    def sometimes(array: Any, n: int) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise MemoryError("no more")
        return longer(array, n)

    monkeypatch.setattr(state, "_longer", sometimes)


@pytest.mark.parametrize("call", range(GROWING))
def test_what_could_not_grow_leaves_the_kernel_with_what_it_has(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    world = small_world()
    with monkeypatch.context() as patched:
        fails_at(patched, call)
        with pytest.raises(MemoryError):
            grow(world)
    assert is_whole(world)
    assert world.get("n_groups") == 4
    samples, groups = world.add_samples(50), world.add_groups(50)
    world.bind()
    assert is_whole(world)
    assert (groups.stop, world.get("n_groups")) == (54, 54)
    assert np.all(world.samples["group"][samples] == -1)


def test_every_table_that_grows_was_made_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    world = small_world()
    fails_at(monkeypatch, GROWING)
    grow(world)
    with pytest.raises(MemoryError):
        world.add_groups(10_000)


def test_groups_of_a_draw_that_is_refused_are_never_shown_to_the_kernel() -> None:
    """The trainer may ask the fleet once more before the error ends the run: it must find the groups of before."""
    scenario = with_changes(default_scenario(), {"run.steps": 1, "trainer.batch_samples": 16, "fleet.instances": 2})
    fleet = Fleet(scenario, *engine_of(scenario), 0)
    fleet.draws.more()
    before = fleet.get("n_groups")
    fleet.draws.chunk = 10 * before
    fleet.draws.limits = replace(fleet.limits, kv_blocks=1)
    with pytest.raises(InputError, match="never fits"):
        fleet.draws.more()
    assert fleet.get("n_groups") == before
    assert is_whole(fleet.world)

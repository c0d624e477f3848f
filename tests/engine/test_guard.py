"""No index of the kernel leaves its table: sizes are checked when it is shown them, every access in a checked build.

The checked build is what notices a fault; so what is tested here is that it notices: each table in turn is taken away
from under the kernel, in a process of its own, and the error must name it.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fleetsim.engine import EngineLimits, LinearStepTime
from fleetsim.engine.compiled import KERNEL
from fleetsim.engine.kernel.guard import TAIL, guarded
from fleetsim.engine.kernel.sizes import SIZES
from fleetsim.engine.kernel.tables import ADDRESSES, STATION
from fleetsim.engine.state import World

ROOT = Path(__file__).parents[2]
OPEN_LOOP = {"arrival_s", "arrival"}

# Takes a table away after every `bind`, and runs what reads all of them.
LOST_TABLES = """
import json, sys
import numpy as np
from fleetsim.config import default_scenario, with_changes
from fleetsim.engine import EngineLimits, LinearStepTime, StepTime, run_requests
from fleetsim.engine.kernel.guard import guarded
from fleetsim.engine.state import World
from fleetsim.engine.window import AttentionWindow
from fleetsim.sim.run import simulate

scenario = with_changes(default_scenario(), {
    "workload.group_size": 4, "workload.prompt_tokens": {"kind": "constant", "value": 60},
    "workload.output_tokens": {"kind": "lognormal", "mean": 80, "cv": 1.0, "max": 400},
    "workload.turns": {"count": 2, "tool_latency_s": 0.3, "tool_tokens": 9, "max_output_tokens": 300},
    "workload.reward": {"latency_s": 0.5, "workers": 3},
    "stations.tools": {"start_s": 0.2, "warm": 1, "failure_share": 0.3, "tries": 3},
    "workload.filter.zero_variance_share": 0.3,
    "engine.max_num_seqs": 12, "engine.max_num_batched_tokens": 256, "engine.kv_blocks": 400,
    "engine.speculation": {"method": "ngram", "off_above_batch": 9, "decay_per_version": 0.2},
    "fleet.instances": 2, "fleet.failures.mtbf_s": 3.0, "fleet.failures.restart_s": 1.0,
    "trainer.batch_samples": 16, "trainer.fixed_s": 3.0, "buffer.capacity_samples": 16,
    "admission.law": "target_step", "admission.max_staleness": 3.0, "run.steps": 6, "run.warmup_steps": 0,
})
bind, held = World.bind, {}

def bind_without(name):
    def bound(self):
        address = bind(self)
        old = getattr(self, name)
        held[name] = guarded(old[:, :0] if old.ndim == 2 else old[:0])
        self.fleet[name] = held[name].ctypes.data
        return address
    return bound

found = {}
for name in sys.argv[1:]:
    World.bind = bind_without(name)
    try:
        if name.startswith("arrival"):
            run_requests(LinearStepTime(1.0), EngineLimits(4, 64, 40), [5] * 6, 7)
        elif name == "crossings":
            near = StepTime((0.0,), (1.0,), window=AttentionWindow(6, 0.0, 0.0, chunked=True))
            run_requests(near, EngineLimits(4, 64, 40), [5] * 6, 7)
        elif name == "prompt_table_s":
            simulate(with_changes(scenario, {"engine.disaggregation": {"prefill": 2}}))
        elif name.startswith("lane"):
            plays = {"in_flight_unit": "environments", "max_in_flight_samples": 64, "group_placement": "spread"}
            simulate(with_changes(scenario, {f"fleet.{key}": value for key, value in plays.items()}))
        elif name == "log":
            simulate(scenario, activity=True)
        elif name == "deadlines":
            simulate(with_changes(scenario, {"stations.episode.timeout_s": 30.0}))
        elif name == "loaded_s":
            simulate(with_changes(scenario, {"engine.kv_offloading_gib": 4.0, "engine.kv_blocks": 60}))
        else:
            simulate(scenario)
        found[name] = "nothing"
    except IndexError as error:
        found[name] = str(error)
print(json.dumps(found))
"""

# The buffer of no group, which no scenario may ask for; a heap that grows past its line; an address that is no table.
FAULTS = """
import json
import numpy as np
from fleetsim.engine import EngineLimits, LinearStepTime
from fleetsim.engine.native import advance
from fleetsim.engine.state import World

def world():
    w = World(LinearStepTime(1.0), EngineLimits(4, 64, 40), instances=2)
    w.set(credits=3, has_rewards=1)
    g, s = w.add_groups(3), w.add_samples(3)
    groups, samples = w.groups[g], w.samples[s]
    groups["first"], groups["size"], groups["need"] = np.arange(3), 1, 1
    samples["prompt"], samples["target"], samples["group"] = 5, [3, 4, 5], np.arange(3)
    w.bind()
    return w

def told(change, want=9):
    w = world()
    change(w)
    try:
        return str(advance(w.address, np.inf, want)), w.inspect()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def no_room(w): w.set(ready_cap=0, drop_oldest=1)
def long_heap(w): w.instances["heap_n"], w.ends[...] = 4, 1 << 60
def no_table(w): w.fleet["groups"] += 8
def other_width(w): w.fleet["ready"] = w.timer_key.ctypes.data
def overwritten(w):
    end = w.owed.ctypes.data + w.owed.nbytes
    np.ctypeslib.as_array((__import__("ctypes").c_int32).from_address((end + 7) // 8 * 8))[...] = 1
print(json.dumps([told(f) for f in (lambda w: None, no_room, long_heap, no_table, other_width, overwritten)]))
"""


def checked(script: str, *words: str) -> str:
    """What a script prints whose kernel is the checked build."""
    environment = {**os.environ, "FLEETSIM_KERNEL": "checked", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_table_has_its_size_and_who_guarantees_it() -> None:
    assert tuple(SIZES) == ADDRESSES
    assert all(len(size.why) > 5 for size in SIZES.values())


def test_the_checked_build_notices_every_table_that_is_too_short() -> None:
    names = [name for name in ADDRESSES if name != "prefixes"]
    found = json.loads(checked(LOST_TABLES, *names))
    assert {name: f" of table {name}" in text for name, text in found.items()} == dict.fromkeys(names, True), found


def test_the_checked_build_notices_what_is_inside_the_heap_of_memory() -> None:
    """Indices below the first row, past a line that another one follows, addresses between rows, wrong widths, and
    words that somebody else overwrote: all would be silent without it."""
    fine, no_room, long_heap, no_table, other_width, overwritten = json.loads(checked(FAULTS))
    assert fine == ["2", None], "the same run, unharmed, ends where nothing moves any more"
    assert no_room == "IndexError: the kernel reached for row -1 of table ready, which has 3 of 4 bytes"
    assert "row 4 of table ends, line 0 of 2, which has 4" in long_heap
    assert no_table == "IndexError: no table groups at its address, or the fence in front of it was overwritten"
    assert other_width == "IndexError: the kernel reached for row 0 of table timer_key, which has 3 of 8 bytes"
    assert overwritten == "IndexError: the fence behind table owed was overwritten"


@pytest.mark.parametrize("name", sorted(set(SIZES) - {"prefixes", "log"}))
def test_a_table_of_another_size_or_type_is_not_shown_to_the_kernel(name: str) -> None:
    """In the plain build too: whoever sets a table too small hears it before the kernel runs."""
    limits = EngineLimits(4, 64, 40, host_blocks=8, load_block_s=0.1)
    world = World(
        LinearStepTime(1.0), limits, instances=3, prefix_caching=True, several=True, stations=np.zeros(2, STATION)
    )
    world.set(has_goals=1, turn_limit=1)
    world.add_samples(5)
    world.add_calls(5)
    world.add_groups(5)
    world.arrival_s, world.arrival = np.zeros(5), np.zeros(5, np.int32)
    world.set(n_arrivals=5)
    world.bind()
    good = getattr(world, name)
    for bad in (good[:-1] if name not in OPEN_LOOP else good[:4], np.zeros(good.shape, "f4")):
        setattr(world, name, bad)
        with pytest.raises(IndexError, match=f"table {name} is"):
            world.bind()


def test_guarded_rows_are_the_same_rows() -> None:
    for table in (np.arange(7, dtype=np.int32), np.arange(12.0).reshape(4, 3), np.zeros((0, 2)), np.zeros(0)):
        copy = guarded(table)
        assert copy.dtype == table.dtype
        np.testing.assert_array_equal(copy, table)
        copy[...] = 1
        words = copy.base if isinstance(copy.base, np.ndarray) else np.asarray(copy.base)
        assert len(set(np.asarray(words).reshape(max(1, len(table)) if table.ndim == 2 else 1, -1)[0][-TAIL:])) == 1


def test_the_kernel_computes_no_address() -> None:
    """What `addresses.py` checks is all there is: an address is only ever handed on, never calculated with."""
    for path in sorted(KERNEL.glob("*.py")):
        tree = ast.parse(path.read_text())
        handed_on = {id(a) for call in ast.walk(tree) if isinstance(call, ast.Call) for a in call.args}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ADDRESSES and _is_row(node):
                assert id(node) in handed_on, f"{path.name}:{node.lineno}"
        if path.name != "addresses.py":
            assert "inttoptr" not in path.read_text()
            assert "carray" not in path.read_text()


def _is_row(node: ast.Attribute) -> bool:
    """Whether this is a field of the fleet row, which every function calls w."""
    return isinstance(node.value, ast.Name) and node.value.id == "w"

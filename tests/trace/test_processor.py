"""Perfetto's trace processor reads our traces: no error, and SQL finds what the records say.

One processor a run: starting it takes most of the time.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from fleetsim.engine.kernel import tables as t
from fleetsim.export.perfetto.tracks import DOES, microseconds
from fleetsim.sim import timeline
from fleetsim.sim.records import TRAINER_DOES
from tests.trace.conftest import Drawn, draw
from tests.trace.processor import Rows, opened

# An arrow without a begin or an end counts as information there.
ERRORS = "SELECT name, value FROM stats WHERE value > 0 AND (severity IN ('error', 'data_loss') OR name LIKE 'flow_%')"
SLICES = """
SELECT s.id, s.ts, s.dur, s.name, s.depth, s.arg_set_id, t.name AS thread, p.name AS process
FROM slice s JOIN thread_track k ON s.track_id = k.id JOIN thread t USING (utid) JOIN process p USING (upid)
ORDER BY s.ts, s.depth
"""
COUNTERS = """
SELECT c.ts, c.value, k.name, p.name AS process
FROM counter c JOIN process_counter_track k ON c.track_id = k.id JOIN process p USING (upid) ORDER BY c.ts
"""
FLOWS = """
SELECT f.slice_out, f.slice_in, f.trace_id,
  (SELECT string_value FROM args a WHERE a.arg_set_id = f.arg_set_id AND a.key = 'cat') AS category,
  (SELECT string_value FROM args a WHERE a.arg_set_id = f.arg_set_id AND a.key = 'name') AS name
FROM flow f ORDER BY f.id
"""
ARGS = "SELECT arg_set_id, key, display_value FROM args WHERE key LIKE 'args.%'"


@pytest.mark.parts
@pytest.mark.parametrize("name", ["faults", "rolling", "lending"])
def test_perfetto_reads_what_the_records_say(processor: str, name: str, tmp_path: Path) -> None:
    drawn = draw(name, tmp_path)
    with opened(processor, drawn.file) as perfetto:
        assert perfetto.query(ERRORS) == []
        slices, counters, flows = (perfetto.query(sql) for sql in (SLICES, COUNTERS, FLOWS))
        args = perfetto.query(ARGS)
    lines = [line for line in drawn.trace.text() if '"ph":"X"' in line]
    assert len(slices) == len(lines), "no slice was dropped"
    check_trainer(drawn, slices)
    check_instances(drawn, slices)
    check_syncs(drawn, slices)
    check_counters(drawn, counters)
    check_flows(drawn, slices, flows, args)


def spans(rows: Rows) -> list[tuple[str, int, int]]:
    """Name, microsecond of the begin, microseconds."""
    assert all(row["ts"] % 1000 == 0 and row["dur"] % 1000 == 0 for row in rows)
    return [(row["name"], row["ts"] // 1000, row["dur"] // 1000) for row in rows]


def expected(names: list[str], rows: np.ndarray) -> list[tuple[str, int, int]]:  # type: ignore[type-arg]
    out = []
    for name, row in zip(names, rows, strict=True):
        start, end = microseconds(row["start_s"]), microseconds(row["end_s"])
        if end > start:
            out.append((name, start, end - start))
    return out


def check_trainer(drawn: Drawn, slices: Rows) -> None:
    own = [row for row in slices if row["process"] == "trainer"]
    rows = timeline.trainer_spans(drawn.records)
    inner = [row for row in own if row["depth"] == 1]
    assert spans(inner) == expected([DOES[TRAINER_DOES[row["does"]]] for row in rows], rows)
    steps = drawn.records.steps
    outer = [row for row in own if row["depth"] == 0]
    assert [row["name"] for row in outer] == [f"step {k}" for k in steps["step"]]
    total = sum(row["dur"] for row in inner if row["name"] == DOES["train"]) / 1e9
    assert total == pytest.approx(steps["train_s"].sum(), abs=1e-5 * len(steps))


def check_instances(drawn: Drawn, slices: Rows) -> None:
    rows = timeline.instance_spans(drawn.records)
    for i in np.unique(rows["instance"]):
        own = rows[(rows["instance"] == i) & (rows["account"] != t.ACC_OFF)]
        process = {f"instance {i}", f"instance {i} (on the trainer's GPUs)"}
        found = [row for row in slices if row["process"] in process and row["thread"] == "state"]
        assert spans(found) == expected([timeline.ACCOUNTS[row["account"]] for row in own], own)
        assert {row["depth"] for row in found} <= {0}
    end = drawn.records.steps[-1]
    for account in ("busy", "paused", "idle", "down"):
        seconds = sum(row["dur"] for row in slices if row["name"] == account and row["thread"] == "state") / 1e9
        assert seconds == pytest.approx(end[f"{account}_s"], abs=1e-6 * (len(rows) + 1))


def check_syncs(drawn: Drawn, slices: Rows) -> None:
    """Publications may overlap: then they lie on several tracks, each whole."""
    own = [row for row in slices if row["process"] == "weight sync" and row["name"].startswith("version ")]
    syncs, end_s = drawn.records.syncs, timeline.end_of(drawn.records)
    want = Counter()
    for row in syncs:
        start, end = microseconds(row["trigger_s"]), microseconds(min(row["end_s"], end_s))
        if end > start:
            want[f"version {row['version']}", start, end - start] += 1
    assert Counter(spans(own)) == want
    assert {row["depth"] for row in own} <= {0}


def check_counters(drawn: Drawn, counters: Rows) -> None:
    by_name: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for row in counters:
        by_name[row["process"], row["name"]].append((row["ts"] // 1000, row["value"]))
    depth = timeline.queue_depth(drawn.records)
    assert by_name["queue", "queue depth samples"] == [(microseconds(r["time_s"]), r["samples"]) for r in depth]
    stale = timeline.staleness(drawn.records)
    for name in ("mean", "most"):
        found = by_name["queue", f"staleness ({name}) steps"]
        assert found == [(microseconds(r["time_s"]), r[name]) for r in stale]
    looks = drawn.records.scrapes
    own = looks[(looks["instance"] == 0) & looks["up"]]
    assert by_name["instance 0", "requests running"] == [(microseconds(r["time_s"]), r["running"]) for r in own]
    assert len(by_name["instance 0", "KV use percent"]) == len(own) > 20


def check_flows(drawn: Drawn, slices: Rows, flows: Rows, args: Rows) -> None:
    """A sampled group is one flow: from its submission to a sample of it, its time in the buffer, and its step."""
    by_id = {row["id"]: row for row in slices}
    values: dict[int, dict[str, str]] = defaultdict(dict)
    for row in args:
        values[row["arg_set_id"]][row["key"].removeprefix("args.")] = row["display_value"]
    chains: dict[str, Rows] = defaultdict(list)
    for flow in flows:
        assert flow["category"] in ("group", "sample")
        if flow["category"] == "group":
            chains[flow["name"]].append(flow)
    assert len(chains) == drawn.trace.metadata["flows"] == drawn.trace.metadata["groups_sampled"]
    status, steps = drawn.records.groups["status"], drawn.records.groups["trained_step"]
    arrived = 0
    for name, chain in chains.items():
        g = int(name.removeprefix("group "))
        assert len({flow["trace_id"] for flow in chain}) == 1
        assert all(a["slice_in"] == b["slice_out"] for a, b in itertools.pairwise(chain))
        begin, end = by_id[chain[0]["slice_out"]], by_id[chain[-1]["slice_in"]]
        assert (begin["process"], begin["name"]) == ("sampled groups", "generate")
        assert begin["ts"] // 1000 == microseconds(drawn.records.groups["submit_s"][g])
        through = [by_id[flow["slice_in"]] for flow in chain]
        assert all(values[row["arg_set_id"]].get("group", str(g)) == str(g) for row in through)
        if end["process"] == "trainer":
            assert end["name"] == "train"
            assert int(values[end["arg_set_id"]]["step"]) == steps[g]
            arrived += 1
    picked = [int(name.removeprefix("group ")) for name in chains]
    assert arrived == np.count_nonzero(status[picked] == t.G_TRAINED) > 0


def test_what_is_wrong_is_seen(processor: str, tmp_path: Path) -> None:
    """The check can fail: a slice that overlaps another is dropped, an arrow that ends without a begin is counted."""
    first = {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 0, "dur": 10}
    end = {"ph": "f", "bp": "e", "cat": "group", "name": "b", "id": 1, "pid": 1, "tid": 1, "ts": 16}
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps({"traceEvents": [first, first | {"ts": 5}, first | {"ts": 15}, end]}))
    with opened(processor, broken) as perfetto:
        found = {row["name"] for row in perfetto.query(ERRORS)}
    assert found == {"slice_drop_overlapping_complete_event", "flow_end_without_start"}

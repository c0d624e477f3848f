"""Traces: valid for both viewers whatever the run, and the same as the records that they show.

- the format: whole microseconds in the order of time, finite numbers, slices that nest on their track, flows with both
  ends, each at the begin of a slice.
- the content: every track says what the timeline of the records says, to the microsecond.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.engine.kernel import tables as t
from fleetsim.errors import InputError, StuckError
from fleetsim.export import perfetto
from fleetsim.export.perfetto import Trace, record, trace_of
from fleetsim.export.perfetto.tracks import DOES, Events, StepChoice, TrackPoint, lanes, microseconds, parse_steps
from fleetsim.sim import timeline
from fleetsim.sim.records import TRAINER_DOES, Records
from fleetsim.sim.run import simulate
from tests.sim.random_scenarios import scenarios
from tests.sim.test_scrape import CASES, SHORT, bytes_of

Event = dict[str, Any]
ALL = StepChoice(None, None)


def traced(scenario: Scenario, steps: StepChoice = ALL) -> tuple[Records, Trace, list[Event]]:
    plain = simulate(scenario)
    records = record(scenario, plain, steps)
    assert bytes_of(records) == bytes_of(plain), "a trace shows the run that was reported"
    drawn = trace_of(records, steps)
    return records, drawn, json.loads("".join(drawn.text()), parse_constant=pytest.fail)["traceEvents"]


def tracks_of(events: list[Event]) -> dict[tuple[int, int], list[Event]]:
    out: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            out[event["pid"], event["tid"]].append(event)
    return out


def name_of(events: list[Event], kind: str) -> dict[int, str]:
    at = "pid" if kind == "process_name" else "tid"
    return {e[at]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == kind}


def check_format(events: list[Event]) -> None:
    timed = [e for e in events if e["ph"] != "M"]
    assert {e["ph"] for e in events} <= set("MXCstf")
    assert all(type(e["ts"]) is int and e["ts"] >= 0 for e in timed)
    assert all(a["ts"] <= b["ts"] for a, b in itertools.pairwise(timed))
    for e in events:
        assert all(not isinstance(v, float) or math.isfinite(v) for v in e.get("args", {}).values())
    processes, threads = name_of(events, "process_name"), name_of(events, "thread_name")
    assert all(e["pid"] in processes for e in timed)
    begins = set()
    for (_, tid), slices in tracks_of(events).items():
        assert tid in threads
        open_until: list[int] = []
        for e in slices:
            assert type(e["dur"]) is int
            assert e["dur"] > 0
            while open_until and open_until[-1] <= e["ts"]:
                open_until.pop()
            assert not open_until or e["ts"] + e["dur"] <= open_until[-1], "it lies inside of what is open"
            open_until.append(e["ts"] + e["dur"])
            begins.add((tid, e["ts"] + (e["dur"] > 1)))
    flows: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for e in timed:
        if e["ph"] in "stf":
            assert (e["tid"], e["ts"]) in begins, "a flow binds to a slice that has just begun"
            flows[e["cat"], e["id"]].append(e)
    assert len({number for _, number in flows}) == len(flows), "a number is one flow's"
    for points in flows.values():
        assert [e["ph"] for e in points] == ["s", *["t"] * (len(points) - 2), "f"]


def check_content(records: Records, drawn: Trace, events: list[Event]) -> None:
    window = (drawn.metadata["start_s"], drawn.metadata["end_s"])
    processes, threads, tracks = name_of(events, "process_name"), name_of(events, "thread_name"), tracks_of(events)

    def on(process: str, thread: str) -> list[Event]:
        found = [s for (p, th), s in tracks.items() if processes[p] == process and threads[th] == thread]
        return found[0] if found else []

    def spans(rows: Any, name: Any) -> list[tuple[str, int, int]]:
        out = [(name(r), microseconds(r["start_s"]), microseconds(r["end_s"])) for r in rows]
        return [(n, a, b - a) for n, a, b in out if b > a]

    does = [(e["name"], e["ts"], e["dur"]) for e in on("trainer", "steps") if not e["name"].startswith("step ")]
    assert does == spans(timeline.trainer_spans(records, *window), lambda r: DOES[TRAINER_DOES[r["does"]]])
    steps = [e["args"]["step"] for e in on("trainer", "steps") if e["name"].startswith("step ")]
    first, last = drawn.metadata["first_step"], drawn.metadata["last_step"]
    lasting = records.steps[records.steps["end_s"] - records.steps["start_s"] > 1e-6]["step"]
    assert steps == [k for k in range(first, last + 1) if k in lasting]
    own = timeline.instance_spans(records, *window)
    for i in np.unique(records.activity["instance"]):
        process = next(name for name in processes.values() if name.split(" (")[0] == f"instance {i}")
        wanted = spans(
            own[(own["instance"] == i) & (own["account"] != t.ACC_OFF)], lambda r: timeline.ACCOUNTS[r["account"]]
        )
        assert [(e["name"], e["ts"], e["dur"]) for e in on(process, "state")] == wanted
    depth = [(e["ts"], e["args"]["samples"]) for e in events if e["name"] == "queue depth"]
    assert depth == [(microseconds(r["time_s"]), r["samples"]) for r in timeline.queue_depth(records, *window)]
    check_groups(records, drawn, events)


def check_groups(records: Records, drawn: Trace, events: list[Event]) -> None:
    """One flow a sampled group that was trained; samples lie where and when the records say."""
    flows: dict[int, list[Event]] = defaultdict(list)
    for e in events:
        if e["ph"] in "stf" and e["cat"] == "group":
            flows[int(e["name"].removeprefix("group "))].append(e)
    threads, processes = name_of(events, "thread_name"), name_of(events, "process_name")
    shown = {e["args"]["group"]: e for e in events if e["ph"] == "X" and "becomes" in e["args"]}
    assert len(flows) == drawn.metadata["flows"] <= len(shown) <= drawn.metadata["groups_sampled"]
    for g, e in shown.items():
        group = records.groups[g]
        assert e["ts"] == microseconds(group["submit_s"])
        if group["status"] == t.G_TRAINED and group["left_s"] < drawn.metadata["end_s"] and g in flows:
            end = flows[g][-1]
            assert e["ts"] + e["dur"] == microseconds(group["left_s"])
            train = [
                x for x in events if x["ph"] == "X" and x["name"] == "train" and x["ts"] <= end["ts"] <= x["ts"] + 1
            ]
            if threads[end["tid"]] == "steps":
                assert train[0]["args"]["step"] == group["trained_step"]
    for e in events:
        if e["ph"] == "X" and "ends" in e["args"]:
            row = records.samples[e["args"]["sample"]]
            assert processes[e["pid"]].split(" (")[0] == f"instance {row['instance']}"
            assert e["ts"] == microseconds(row["sent_s"])
            if e["args"]["ends"] == "finished":
                assert e["ts"] + e["dur"] == microseconds(row["finish_s"])


@settings(max_examples=15)
@given(scenarios(), st.sampled_from([ALL, StepChoice(), StepChoice(2, 3), StepChoice(None, 2)]))
def test_any_run_makes_a_valid_trace(scenario: Scenario, steps: StepChoice) -> None:
    try:
        records, drawn, events = traced(scenario, steps)
    except StuckError:
        return
    check_format(events)
    check_content(records, drawn, events)


@pytest.mark.parts
@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_every_arrangement(changes: dict[str, Any]) -> None:
    records, drawn, events = traced(with_changes(default_scenario(), SHORT | {"fleet.instances": 4} | changes))
    check_format(events)
    check_content(records, drawn, events)
    assert drawn.metadata["flows"] > 0
    assert any(e["name"] == "KV use" for e in events)


def test_most_trained_groups_lead_to_their_step() -> None:
    records, drawn, events = traced(with_changes(default_scenario(), {"run.steps": 12}))
    ends = [e for e in events if e["ph"] == "f" and e["cat"] == "group"]
    threads = name_of(events, "thread_name")
    trained = [e for e in ends if threads[e["tid"]] == "steps"]
    picked = {int(e["name"].removeprefix("group ")) for e in ends}
    want = [g for g in picked if records.groups["status"][g] == t.G_TRAINED]
    assert len(trained) == len(want) > 100
    assert drawn.metadata["groups_sampled"] == perfetto.MOST_GROUPS < drawn.metadata["groups_submitted"]


def test_what_was_moved_says_so() -> None:
    # Samples that lag one version make a run long enough for many instances to fail.
    failing = {"fleet.failures": {"mtbf_s": 200.0, "restart_s": 20.0}}
    changes = {"run.steps": 12, "admission.max_staleness": 1.0, **failing}
    records, _, events = traced(with_changes(default_scenario(), changes))
    assert len(records.failures) > 5
    moved = [e for e in events if e["ph"] == "X" and e["args"].get("moved")]
    assert moved
    for e in moved:
        row = records.samples[e["args"]["sample"]]
        assert row["start_s"] < row["sent_s"]
    down = [e for e in events if e["ph"] == "X" and e["name"] == "down"]
    assert sum(e["dur"] for e in down) / 1e6 == pytest.approx(records.steps["down_s"][-1], abs=1e-4)


def test_the_same_run_gives_the_same_bytes() -> None:
    scenario = with_changes(default_scenario(), SHORT)
    assert "".join(traced(scenario)[1].text()) == "".join(traced(scenario)[1].text())


def test_a_trace_that_would_be_too_large_shows_fewer_steps_and_says_so() -> None:
    scenario = with_changes(default_scenario(), {"run.steps": 12})
    with mock.patch.object(perfetto, "MOST_EVENTS", 300):
        _, drawn, events = traced(scenario)
    assert 0 <= drawn.metadata["last_step"] < 11
    assert any("300" in words for words in drawn.left_out)
    check_format(events)
    assert max(e["ts"] for e in events if "ts" in e) <= microseconds(drawn.metadata["end_s"])


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (None, StepChoice(None, 20, events=True)),
        ("7", StepChoice(None, 7)),
        ("0:9", StepChoice(0, 10)),
        ("4:4", StepChoice(4, 1)),
        ("all", ALL),
    ],
)
def test_steps(text: str | None, steps: StepChoice) -> None:
    assert parse_steps(text) == steps


@given(st.one_of(st.text(max_size=12), st.sampled_from(["0", "9:3", "-1", "1:", ":4", "1.5", "1:2:3", "ALL", "٣"])))
def test_other_steps_are_refused(text: str) -> None:
    try:
        steps = parse_steps(text)
    except InputError as error:
        assert error.problems[0].path == "--perfetto-steps"
        assert error.problems[0].remedy
    else:
        assert steps.count is None or steps.count > 0


def test_steps_that_the_run_does_not_have() -> None:
    with pytest.raises(InputError, match="0 to 5"):
        StepChoice(6, 1).check(6)
    StepChoice(5, 9).check(6)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=40))
def test_lanes(spans: list[tuple[int, int]]) -> None:
    ordered = sorted((float(start), float(start + length)) for start, length in spans)
    found = lanes(ordered)
    for lane in set(found):
        own = [span for span, at in zip(ordered, found, strict=True) if at == lane]
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(own))
    most = max((sum(a <= at < max(b, a + 1e-9) for a, b in ordered) for at, _ in ordered), default=0)
    assert len(set(found)) <= most


def test_lanes_want_their_spans_in_order() -> None:
    with pytest.raises(ValueError, match="order of their starts"):
        lanes([(2.0, 3.0), (1.0, 4.0)])


def test_what_lasts_no_microsecond_is_no_slice_and_one_slice_is_no_flow() -> None:
    events = Events()
    track = events.track(events.process("p"), "t")
    assert events.slice(track, "nothing", 1.0, 1.0000001, {}) is None
    point = events.slice(track, "something", 1.0, 1.000001, {})
    assert point == TrackPoint(track, 1_000_000)
    assert not events.flow("group", "alone", 1, [point])
    assert [json.loads(line)["ph"] for line in events.lines()] == ["M"] * 4 + ["X"]

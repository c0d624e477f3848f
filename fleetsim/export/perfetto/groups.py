"""Every instance as a process: what it does, its counters, the samples on it; and sampled groups, their way from
submission over the instances and the buffer to the step that trained them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.engine.kernel.tables import ACC_OFF, DONE, G_ABORTED, G_FILTERED, G_OVERFLOW, G_STALE, G_TRAINED, SCORING
from fleetsim.export.perfetto.tracks import Events, TrackPoint, TrainingStarts, looks_in
from fleetsim.sim import timeline
from fleetsim.sim.fleet_settings import most_instances
from fleetsim.sim.records import Records


class Stay(Struct, frozen=True):
    """A sample on the instance that has it, until it has finished, was thrown away, or the window ends.

    start_s, first_token_s: when it was first scheduled and had its first token there; None where that was not yet, or
    elsewhere. end: how the stay ends ("finished", "aborted", "goes on").
    """

    sample: int
    group: int
    instance: int
    sent_s: float
    start_s: float | None
    first_token_s: float | None
    end_s: float
    end: str
    args: dict[str, int | float | str | bool]


def draw_instances(
    events: Events, records: Records, window: tuple[float, float], stays: Sequence[Stay]
) -> dict[int, TrackPoint]:
    """Draws all instances; returns the point of each sample (row of `records.samples`) that was drawn."""
    spans = timeline.instance_spans(records, *window)
    own, looks = most_instances(records.scenario), looks_in(records, window)
    by_instance = _grouped(stays, lambda stay: stay.instance)
    drawn: dict[int, TrackPoint] = {}
    for i in range(int(records.activity["instance"].max()) + 1):
        process = events.process(f"instance {i}" + (" (on the trainer's GPUs)" if i >= own else ""))
        track = events.track(process, "state")
        for span in spans[spans["instance"] == i]:
            if span["account"] != ACC_OFF:
                name = timeline.ACCOUNTS[span["account"]]
                events.slice(track, name, span["start_s"], span["end_s"], {"instance": i})
        for row in looks[(looks["instance"] == i) & looks["up"]]:
            requests = {"running": int(row["running"]), "waiting": int(row["waiting"])}
            events.counter(process, "requests", row["time_s"], requests)
            events.counter(process, "KV use", row["time_s"], {"percent": round(100 * float(row["kv_use"]), 3)})
        drawn |= _draw_stays(events, process, by_instance.get(i, []), records.scenario.workload.turns.most)
    return drawn


def _draw_stays(events: Events, process: int, stays: list[Stay], turns: float) -> dict[int, TrackPoint]:
    """A slice a sample with its waiting, prefill and decode inside; samples that overlap lie in lanes."""
    stays = sorted(stays, key=lambda stay: (stay.sent_s, stay.sample))
    drawn: dict[int, TrackPoint] = {}
    tracks = events.tracks(process, "samples", ((stay.sent_s, stay.end_s) for stay in stays))
    for stay, track in zip(stays, tracks, strict=True):
        point = events.slice(track, f"group {stay.group}", stay.sent_s, stay.end_s, stay.args)
        if point is None:
            continue
        drawn[stay.sample] = point
        args = {"group": stay.group, "sample": stay.sample}
        if stay.start_s is not None:
            first = stay.end_s if stay.first_token_s is None else stay.first_token_s
            events.slice(track, "waiting", stay.sent_s, stay.start_s, args)
            events.slice(track, "prefill", stay.start_s, first, args)
            events.slice(track, "decode" if turns == 1 else "turns", first, stay.end_s, args)
    return drawn


Ids = NDArray[np.int64]
FATES = {
    int(G_TRAINED): "trained",
    int(G_FILTERED): "filtered",
    int(G_STALE): "too old",
    int(G_OVERFLOW): "pushed out of the buffer",
    int(G_ABORTED): "aborted",
}


def sampled_groups(records: Records, window: tuple[float, float], most: int) -> tuple[Ids, int]:
    """At most so many of the groups that were submitted in the window, evenly in the order of submission; of how many.

    They are rows of `records.groups`.
    """
    submitted = records.groups["submit_s"]
    inside = np.flatnonzero((submitted >= window[0]) & (submitted < window[1]))
    inside = inside[np.argsort(submitted[inside], kind="stable")]
    n = min(most, len(inside))
    picked: Ids = inside[(np.arange(n) * len(inside)) // n] if n else inside[:0]
    return picked, len(inside)


def stays_of(records: Records, picked: Ids, window: tuple[float, float]) -> list[Stay]:
    """Where the samples of these groups are, or were last, cut at the window's end.

    A sample that lost its instance or was moved shows its last one only, and then neither first schedule nor token:
    records have no more of it. What was aborted leaves its instance at the end of an iteration; shown is when that
    was asked for.
    """
    aborted = _aborted_s(records)
    out = []
    for g in picked.tolist():
        group = records.groups[g]
        first, size = int(group["first"]), int(group["size"])
        for s in range(first, first + size):
            row = records.samples[s]
            sent, finish = float(row["sent_s"]), float(row["finish_s"])
            if row["instance"] < 0 or sent < 0 or sent >= window[1]:
                continue
            end, how = finish, "finished"
            if finish < 0:
                # when a sample that never finished was given up, None for one that was not
                gone = float(group["ready_s"]) if group["ready_s"] >= 0 else None
                gone = aborted.get(g) if group["status"] == G_ABORTED and group["left_s"] < 0 else gone
                end, how = (window[1], "goes on") if gone is None else (gone, "aborted")
            if end > window[1]:
                end, how = window[1], "goes on"
            here = row["start_s"] >= sent
            started = float(row["start_s"]) if here and row["start_s"] < end else None
            token = float(row["first_token_s"])
            args: dict[str, int | float | str | bool] = {
                "group": g,
                "sample": s,
                "prompt tokens": int(row["prompt"]),
                "output tokens": int(row["target"]),
                "weight version": int(group["version"]),
                "preemptions": int(row["preemptions"]),
                "ends": how,
                "moved": bool(0 <= row["start_s"] < sent),
            }
            shown = token if started is not None and started <= token < end else None
            out.append(Stay(s, g, int(row["instance"]), sent, started, shown, end, how, args))
    return out


def _aborted_s(records: Records) -> dict[int, float]:
    """When groups were thrown away unfinished; the last time counts."""
    return dict(zip(records.discards["group"].tolist(), records.discards["time_s"].tolist(), strict=True))


def draw_groups(
    events: Events,
    records: Records,
    window: tuple[float, float],
    process: int,
    picked: Ids,
    stays: Sequence[Stay],
    on: Mapping[int, TrackPoint],
    trainer: TrainingStarts,
) -> int:
    """A slice a group, from its submission until it is trained or thrown away, and its flow; returns how many flows.

    One flow a group (category "group"): submission, the sample that ended last, the buffer, the training. The other
    samples hang on flows of their own (category "sample"): submission, sample, and the buffer where they got there.
    """
    aborted, mine = _aborted_s(records), _grouped(stays, lambda stay: stay.group)
    ends = [_end(records.groups[g], aborted.get(int(g)), window) for g in picked]
    spans = [(float(records.groups["submit_s"][g]), end) for g, end in zip(picked, ends, strict=True)]
    flows = 0
    for g, (start, end), track in zip(picked.tolist(), spans, events.tracks(process, "groups", spans), strict=True):
        group = records.groups[g]
        events.slice(track, f"group {g}", start, end, _args(records, g))
        finished = [stay for stay in mine.get(g, ()) if stay.sample in on]
        done = _generated(group, finished, end)
        begun = events.slice(track, "generate", start, done, {"group": g})
        last = max(finished, key=lambda stay: (stay.end == "finished", stay.end_s, -stay.sample), default=None)
        ready, buffered = float(group["ready_s"]), None
        if 0 <= ready < end:
            events.slice(track, "reward", done, min(ready, end), {"group": g})
            buffered = events.slice(track, "in the buffer", ready, end, {"group": g})
        trained = None
        if group["status"] == G_TRAINED and group["left_s"] <= window[1]:
            trained = trainer.trains(int(group["trained_step"]), float(group["left_s"]))
        sample = None if last is None else on[last.sample]
        trunk = [point for point in (begun, sample, buffered, trained) if point is not None]
        flows += events.flow("group", f"group {g}", g + 1, trunk)
        for stay in finished:
            if stay is not last and begun is not None:
                branch = [begun, on[stay.sample]]
                branch += [buffered] if buffered is not None and stay.end == "finished" else []
                events.flow("sample", f"group {g}", len(records.groups) + stay.sample + 1, branch)
    return flows


def _grouped(stays: Sequence[Stay], of: Callable[[Stay], int]) -> dict[int, list[Stay]]:
    out: dict[int, list[Stay]] = {}
    for stay in stays:
        out.setdefault(of(stay), []).append(stay)
    return out


def _end(group: Any, aborted_s: float | None, window: tuple[float, float]) -> float:
    """When the group is trained or thrown away, in the window."""
    end = float(group["left_s"])
    if end < 0 and group["status"] == G_FILTERED:
        end = float(group["ready_s"])
    if end < 0 and group["status"] == G_ABORTED and aborted_s is not None:
        end = aborted_s
    return window[1] if end < 0 else min(end, window[1])


def _generated(group: Any, stays: Sequence[Stay], end: float) -> float:
    """When the last sample that the group needed had its last token; the group's end where some have not."""
    if group["ready_s"] < 0 or group["ready_s"] > end:
        return end
    done = sorted(stay.end_s for stay in stays if stay.end == "finished")
    return min(done[-1], float(group["ready_s"])) if done else float(group["ready_s"])


def _args(records: Records, g: int) -> dict[str, Any]:
    group = records.groups[g]
    samples = records.samples[group["first"] : group["first"] + group["size"]]
    out: dict[str, Any] = {
        "group": g,
        "samples": int(group["size"]),
        "weight version": int(group["version"]),
        "output tokens": int(samples["target"].sum()),
        "becomes": FATES.get(int(group["status"]), "unfinished when the run ends"),
        "samples done": int(np.count_nonzero((samples["status"] == DONE) | (samples["status"] == SCORING))),
    }
    if group["status"] == G_TRAINED:
        step = int(group["trained_step"])
        out |= {"trained in step": step, "staleness in steps": float(step - records.updates[group["version"]])}
    return out

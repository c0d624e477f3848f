"""Every instance as a process: what it does, the samples of sampled groups on it, and its counters."""

from __future__ import annotations

from collections.abc import Sequence

from fleetsim.dataclass import dataclass
from fleetsim.engine.kernel.tables import ACC_OFF
from fleetsim.export.perfetto.events import Events, Track, TrackPoint, lanes
from fleetsim.export.perfetto.window import looks_in
from fleetsim.sim import timeline
from fleetsim.sim.fleet_settings import most_instances
from fleetsim.sim.records import Records


@dataclass(frozen=True, slots=True)
class Stay:
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
    by_instance: dict[int, list[Stay]] = {}
    for stay in stays:
        by_instance.setdefault(stay.instance, []).append(stay)
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
        drawn |= _draw_stays(events, process, by_instance.get(i, []), records.scenario.workload.turns.count)
    return drawn


def _draw_stays(events: Events, process: int, stays: list[Stay], turns: int) -> dict[int, TrackPoint]:
    """A slice a sample with its waiting, prefill and decode inside; samples that overlap lie in lanes."""
    stays = sorted(stays, key=lambda stay: (stay.sent_s, stay.sample))
    tracks: list[Track] = []
    drawn: dict[int, TrackPoint] = {}
    for stay, lane in zip(stays, lanes((stay.sent_s, stay.end_s) for stay in stays), strict=True):
        if lane == len(tracks):
            tracks.append(events.track(process, f"samples {lane + 1}"))
        track = tracks[lane]
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

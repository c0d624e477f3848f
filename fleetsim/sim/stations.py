"""The stations of a run: their rows for the kernel, what they counted step by step, and what that comes to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.base import unsaid
from fleetsim.config.scenario import Scenario
from fleetsim.config.stations import OverflowConfig, StationConfig
from fleetsim.engine.first_rows import UNLIMITED
from fleetsim.engine.kernel import tables as t
from fleetsim.engine.state import World
from fleetsim.errors import InputError, Problem
from fleetsim.policies.samples import LOST
from fleetsim.sim.records import STATION_COUNTS, Records
from fleetsim.sim.window import Growth, StepWindow, grown
from fleetsim.workload.lengths import Spec, mean_length, typical_lengths
from fleetsim.workload.streams import seed_sequence
from fleetsim.workload.turns import mean_turns

_POLICIES = dict(zip(LOST, (t.DROPPED, t.TRUNCATED, t.RETRIED, t.MASKED, t.WITHHELD, t.WAITED), strict=True))
_PLAIN = unsaid(StationConfig)
TIME_LIMITS = ("turn", "episode")
HOUR_S = 3600.0
# A station is full for more than this share of the time or of its rate: calls wait for most of it.
FULL = 0.95


def stations_of(scenario: Scenario) -> dict[str, StationConfig]:
    """Name -> station, of those that limit anything; the kernel knows no others. Rewards may be at the tools'; a time
    limit is a station that everybody is at, without a worker."""
    of, w = scenario.stations, scenario.workload
    found: dict[str, StationConfig] = {}
    if w.turns.several or of.reward.at == "tools":
        found["tools"] = of.tools
    if of.reward.at == "reward":
        found["reward"] = of.reward
    limits = {name: getattr(of, name) for name in TIME_LIMITS}
    found |= {name: StationConfig(**dict(limit)) for name, limit in limits.items() if limit.timeout_s is not None}
    return {name: station for name, station in found.items() if _limits(station)}


def limits_of(scenario: Scenario) -> dict[str, tuple[float, str]]:
    """Name -> seconds and policy, of the time limits that end a rollout."""
    found = {name: at for name, at in stations_of(scenario).items() if name in TIME_LIMITS and at.lost != "waited"}
    return {name: (at.timeout_s or math.inf, at.lost) for name, at in found.items()}


def loses_rollouts(scenario: Scenario) -> bool:
    """Whether a station or a time limit may lose any."""
    stations = stations_of(scenario).values()
    return any((at.timeout_s is not None or at.failure_share > 0.0) and at.lost != "waited" for at in stations)


def _limits(station: StationConfig) -> bool:
    return any(getattr(station, name) != getattr(_PLAIN, name) for name in StationConfig.model_fields)


def timed_stations(scenario: Scenario) -> tuple[str, ...]:
    """The stations whose calls take time, so that their workers count."""
    turns, reward, at = scenario.workload.turns, scenario.workload.reward, scenario.stations.reward.at
    scores = mean_length(reward.latency_s, at_least=0.0) > 0.0
    calls = turns.several and mean_length(turns.tool_latency_s, at_least=0.0) > 0.0
    found = {"tools": calls or (scores and at == "tools"), "reward": scores and at == "reward"}
    return tuple(name for name, timed in found.items() if timed)


def workers_usd_per_h(scenario: Scenario) -> float:
    """What the workers cost in an hour that are there whether they are used or not."""
    own = stations_of(scenario).values()
    return sum(s.worker_price_usd_per_h * (s.warm if s.workers is None else s.workers) for s in own)


def station_rows(stations: dict[str, StationConfig]) -> NDArray[Any]:
    """Their rows in the kernel, in this order, and behind them those of their overflows."""
    beyond = _overflow_rows(stations)
    every = [*stations.values(), *(_overflow_of(stations[name]) for name in beyond)]
    rows = np.zeros(len(every), t.STATION)
    rows["head"] = rows["tail"] = rows["first_due"] = rows["last_due"] = -1
    rows["home"] = [*range(len(stations)), *map(list(stations).index, beyond)]
    for row, station in zip(rows, every, strict=True):
        row["workers"] = UNLIMITED if station.workers is None else station.workers
        row["timeout_s"] = np.inf if station.timeout_s is None else station.timeout_s
        row["gap_s"] = 0.0 if station.calls_per_s is None else 1.0 / station.calls_per_s
        row["episode"], row["policy"] = station.fresh_per == "episode", _POLICIES[station.lost]
        for name in ("start_s", "warm", "failure_share", "tries"):
            row[name] = getattr(station, name)
        if station.overflow is not None:
            row["after_s"] = station.overflow.after_s
    for name, k in beyond.items():
        rows["overflow"][list(stations).index(name)] = k
    return rows


def _overflow_rows(stations: dict[str, StationConfig]) -> dict[str, int]:
    """Station -> the row of its overflow, of those that have one."""
    return {name: k for k, name in enumerate((n for n, s in stations.items() if s.overflow), len(stations))}


def _overflow_of(station: StationConfig) -> StationConfig:
    """The workers of a station's overflow: they serve its calls by its own rules."""
    assert station.overflow is not None
    own = {name: getattr(station.overflow, name) for name in ("workers", "start_s", "calls_per_s")}
    return station.model_copy(update={**own, "warm": 0, "overflow": None})


def open_stations(world: World, scenario: Scenario, replication: int, token_s: float) -> None:
    """Tells the kernel which stage of a rollout is at which station, and what its calls need when made again. token_s:
    seconds of a token on an engine that makes no other.

    Raises InputError for a station whose calls, or a time limit whose rollouts, can never end in time.
    """
    names = list(stations_of(scenario))
    if not names:
        return
    _check_limits(scenario, token_s)
    at = {"tools": "tools", "reward": scenario.stations.reward.at} | {name: name for name in TIME_LIMITS}
    place = {stage: names.index(station) if station in names else -1 for stage, station in at.items()}
    laws: dict[str, Spec] = {
        "tools": scenario.workload.turns.tool_latency_s,
        "reward": scenario.workload.reward.latency_s,
    }
    for line, (stage, law) in enumerate(laws.items()):
        if place[stage] >= 0 and (stage == "reward" or scenario.workload.turns.several):
            world.needs[line] = typical_lengths(law, int(t.NEEDS))
            _check_time(scenario, at[stage], stage, float(world.needs[line, 0]))
    seeds = seed_sequence(scenario.run.seed, replication, "stations").generate_state(1, np.uint64)
    world.set(
        tool_station=place["tools"] if scenario.workload.turns.several else -1,
        reward_station=place["reward"],
        turn_limit=place["turn"],
        episode_limit=place["episode"],
        chance=int(seeds[0] >> np.uint64(2)),
    )


def _check_time(scenario: Scenario, name: str, stage: str, least_s: float) -> None:
    station: StationConfig = getattr(scenario.stations, name)
    beyond = station.overflow
    there = {"": station.start_s} | ({" of its overflow": beyond.after_s + beyond.start_s} if beyond else {})
    for where, before_s in there.items():
        least = before_s + least_s
        if station.timeout_s is not None and station.timeout_s <= least:
            waits = "its start-up included" if not where else "its wait and start-up included"
            rule = f"the shortest call of the {stage}{where} takes {least:g} s, {waits}: every call would time out"
            raise InputError([Problem(f"stations.{name}.timeout_s", station.timeout_s, rule, "raise it, or use null")])


def _check_limits(scenario: Scenario, token_s: float) -> None:
    turns, of, several = scenario.workload.turns, scenario.workload.output_tokens, scenario.workload.turns.several
    n = turns.count if isinstance(turns.count, int) else 1
    of_turn = 1 if turns.output_tokens is None else int(typical_lengths(turns.output_tokens, int(t.NEEDS))[0])
    least = {"episode": n * of_turn}
    if not turns.by_law:
        least["episode"] = max(n, int(typical_lengths(of, int(t.NEEDS))[0]))
        of_turn = least["episode"] // n
    least["turn"] = min(of_turn, turns.max_output_tokens or of_turn)
    tool_s = float(typical_lengths(turns.tool_latency_s, int(t.NEEDS))[0]) if several else 0.0
    for name, tokens in least.items():
        limit = getattr(scenario.stations, name)
        # the first token of a prompt may come at once, and so may what follows a tool
        least_s = max(0, tokens - n) * token_s + (n - 1) * tool_s if name == "episode" else (tokens - 1) * token_s
        if limit.timeout_s is not None and limit.timeout_s <= least_s and limit.lost != "waited":
            rule = f"the shortest {name} takes {least_s:g} s on an engine of its own: all would be over time"
            raise InputError([Problem(f"stations.{name}.timeout_s", limit.timeout_s, rule, "raise it, or use null")])


def counts_now(world: World) -> list[tuple[Any, ...]]:
    """A row for each station, the columns of STATION_STEP: its totals since the start of the run, and what its workers
    and waits were since this was asked last."""
    rows: list[tuple[Any, ...]] = []
    for k, row in enumerate(world.stations):
        used, waits = world.levels[2 * k : 2 * k + 2].astype(np.float32)
        rows.append((*(row[name] for name in STATION_COUNTS), used, waits))
    world.levels[:] = 0.0
    return rows


def station_metrics(records: Records, window: StepWindow) -> dict[str, dict[str, float]]:
    """What each station did in the window: mean calls that wait and that are served; seconds of a call's wait, mean,
    median and p99; workers in use for 99 % of the time and at most, their share of time in use (where they are
    limited); calls that failed or timed out, as shares of those that ended; rollouts lost, per step.

    Medians, p99 and the most are known to a sixteenth. A call that waits for its turn at a rate counts as waiting from
    when it has its worker, so what is out at either end of the window is known as well as the window is long.
    """
    stations = stations_of(records.scenario)
    found: dict[str, dict[str, float]] = {}
    rows, beyond = records.stations[records.stations["step"] >= window.first], _overflow_rows(stations)
    for k, (name, at) in enumerate(zip(stations, _grown(records, window), strict=True)):
        station = at.station
        of, every = at.all, [k, *([beyond[name]] if name in beyond else [])]
        if name in TIME_LIMITS:
            late = of["late"] / max(1.0, of["served"] + of["late"])
            found[name] = {"late": late, "lost": of["lost"] / len(window.steps)}
            continue
        used, waits = (
            rows[np.isin(rows["station"], whose)][levels].sum(axis=0, dtype=np.float64)
            for levels, whose in (("used", [k]), ("waits", every))
        )
        ended = of["served"] + of["failed"] + of["late"]
        workers = station.workers or math.inf  # the upper edge of a level may lie above it
        row = {
            "waiting": of["waited_s"] / window.span_s,
            "in_service": max(0.0, of["served_s"] / window.span_s),
            "wait_s": of["waited_s"] / of["calls"] if of["calls"] else 0.0,
            "wait_p50_s": quantile_of(waits, 0.5) / 1000.0,
            "wait_p99_s": quantile_of(waits, 0.99) / 1000.0,
            "workers_p99": min(quantile_of(used, 0.99), workers),
            "workers_most": min(quantile_of(used, 1.0), workers),
            "calls": ended / len(window.steps),
            "failed": of["failed"] / ended if ended else 0.0,
            "late": of["late"] / ended if ended else 0.0,
            "lost": of["lost"] / len(window.steps),
        }
        if station.workers is not None:
            row["busy_fraction"] = at.own["used_s"] / (max(1, station.workers) * window.span_s)
        if station.overflow is not None:
            row["overflow_share"] = at.beyond["calls"] / of["calls"] if of["calls"] else 0.0
            row["overflow_in_use"] = at.beyond["used_s"] / window.span_s
            row["overflow_usd"] = _overflow_usd(station.overflow, at.beyond) / len(window.steps)
        found[name] = row
    return found


def stations_full(records: Records, window: StepWindow) -> bool:
    """Whether calls always wait at a station: all its workers are in use, or calls begin as fast as its rate allows;
    and at its overflow, where it has one."""

    def full(station: StationConfig, of: dict[str, float], in_time: float) -> bool:
        workers, rate = station.workers or math.inf, station.calls_per_s or math.inf
        return max(of["used_s"] / workers, of["calls"] / rate) * in_time > FULL * window.span_s

    return any(
        (at.station.workers == 0 or full(at.station, at.own, at.in_time))
        and (at.station.overflow is None or full(_overflow_of(at.station), at.beyond, at.in_time))
        for at in _grown(records, window)
    )


def saturated_s(records: Records, window: StepWindow) -> float:
    """Seconds in which calls waited because all workers of a station were in use, or began as fast as its rate allows;
    of the station with most of them. Where its overflow takes what waits, none.

    Calls of a whole batch that begin together wait for half of these seconds in the mean; where they wait for less, the
    queue was empty in between."""
    rows, found = records.stations[records.stations["step"] >= window.first], [0.0]
    for k, at in enumerate(_grown(records, window)):
        if at.station.overflow is not None:
            continue
        waited_s = 2.0 * at.own["waited_s"] / records.scenario.trainer.batch_samples
        if at.station.calls_per_s is not None:
            found.append(min(at.own["calls"] / at.station.calls_per_s, waited_s) * at.in_time)
        if at.station.workers is not None:
            used = rows[rows["station"] == k]["used"].sum(axis=0, dtype=np.float64)
            full = int(np.searchsorted(EDGES, at.station.workers, side="right")) - 1
            found.append(min(float(used[full:].sum()), waited_s) * at.in_time)
    return max(found)


# The smallest number of each level, and of one beyond: see `level_of` (`engine/kernel/stations.py`).
EDGES = np.concatenate([np.arange(32.0), *((16.0 + np.arange(16.0)) * 2.0**s for s in range(1, int(t.LEVELS) // 16))])


def quantile_of(levels: NDArray[np.float64], share: float) -> float:
    """The number that so much of a total stays at or below, by what was counted at each level; 0 of nothing."""
    total = np.cumsum(levels)
    if total[-1] <= 0.0:
        return 0.0
    level = int(np.searchsorted(total, min(share, 1.0 - 1e-12) * total[-1]))
    low, above = EDGES[level], EDGES[level + 1]
    inside = 1.0 - (total[level] - share * total[-1]) / levels[level]
    return float(low + inside * (above - 1.0 - low))


def tools_s(records: Records, window: StepWindow) -> tuple[float, float, float]:
    """Seconds that a rollout is at its tools, of these seconds that it waits for a worker, and the share of the calls
    that more workers would answer sooner: by their law or, where they are a station, as long as its calls took."""
    turns, stations = records.scenario.workload.turns, list(stations_of(records.scenario))
    if "tools" not in stations:
        return (mean_turns(records.scenario.workload) - 1.0) * mean_length(turns.tool_latency_s), 0.0, 1.0
    grown, finish = _grown(records, window)[stations.index("tools")], records.samples["finish_s"]
    rollouts = max(1, np.count_nonzero((finish > window.start_s) & (finish <= window.end_s)))
    of = grown.all
    return (of["waited_s"] + of["served_s"]) / rollouts, of["waited_s"] / rollouts, grown.in_time


def station_usd(records: Records, window: StepWindow) -> float:
    """US dollars of the workers in the window: of all that are there, or of those in use where nothing limits them; and
    of what went to an overflow."""
    usd = 0.0
    for at in _grown(records, window):
        station = at.station
        in_use = at.own["used_s"] + station.warm * window.span_s
        hours = in_use if station.workers is None else station.workers * window.span_s
        usd += station.worker_price_usd_per_h * hours / HOUR_S
        if station.overflow is not None:
            usd += _overflow_usd(station.overflow, at.beyond)
    return usd


def _overflow_usd(overflow: OverflowConfig, of: dict[str, float]) -> float:
    return overflow.usd_per_call * of["calls"] + overflow.worker_price_usd_per_h * of["used_s"] / HOUR_S


class _Growth(Growth):
    station: StationConfig
    begins_again: bool

    @property
    def in_time(self) -> float:
        """Share of the calls that more workers would answer sooner. One that times out is waited for no longer, however
        many wait, unless its rollout begins again."""
        of = self.all
        return 1.0 if self.begins_again else 1.0 - of["late"] / max(1.0, of["served"] + of["failed"] + of["late"])


def _grown(records: Records, window: StepWindow) -> list[_Growth]:
    """By how much each station's totals grew in the window."""
    stations, rows = stations_of(records.scenario), records.stations
    beyond, none = _overflow_rows(stations), dict.fromkeys(STATION_COUNTS, 0.0)

    def of(k: int) -> dict[str, float]:
        return grown(rows[rows["station"] == k], STATION_COUNTS, window)

    alone = records.scenario.workload.group_size == 1
    return [
        _Growth(
            of(k),
            of(beyond[name]) if name in beyond else none,
            station,
            station.lost == "retried" or (station.lost == "dropped" and alone),
        )
        for k, (name, station) in enumerate(stations.items())
    ]

"""First tokens of a closed load whose prompts are computed by attention ranks: evenly and each for itself, as fleetsim
has it, or by chance and in step, as SGLang's sources have it.

SGLang's data-parallel controller gives a prompt to rank `bootstrap_room % ranks`, a random number
(managers/data_parallel_controller.py, follow_bootstrap_room; sgl-project/sglang issue 13052). Ranks that share experts
run each iteration together, so that all wait for the one with most tokens.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Load:
    """engines, ranks: of each engine. clients, each: that many requests, one after the other. prompt, output: most
    tokens; lengths are even over [0.8, 1] of them. token_s: seconds of a rank per prompt token. later_s: per later
    token."""

    engines: int
    ranks: int
    clients: int
    each: int
    prompt: int
    output: int
    token_s: float
    later_s: float


@dataclass
class _Unit:
    """Ranks that run together: their queues of [tokens left, client, arrival]."""

    queues: list[deque[list[float]]]
    busy: bool = False

    def iteration(self, chunk: int) -> tuple[float, list[list[float]]]:
        """Tokens of the fullest rank, and the prompts that end."""
        most, ended = 0.0, []
        for queue in self.queues:
            room = float(chunk)
            while queue and room > 0:
                taken = min(room, queue[0][0])
                queue[0][0] -= taken
                room -= taken
                if queue[0][0] == 0:
                    ended.append(queue.popleft())
            most = max(most, chunk - room)
        return most, ended


@dataclass
class _Run:
    load: Load
    by_chance: bool
    draws: np.random.Generator
    units: list[_Unit]
    chunk: int
    events: list[tuple[float, int, object]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    sent: int = 0

    def at(self, time: float, what: object) -> None:
        """what: a client that sends its next request, or a unit and the prompts that end with its iteration."""
        self.sent += 1
        heapq.heappush(self.events, (time, self.sent, what))

    def length(self, most: int) -> int:
        """Even over [0.8, 1] of the most."""
        return int(self.draws.integers(int(0.8 * most), most + 1))


def first_s(load: Load, chunk: int, *, by_chance: bool, in_step: bool, seed: int = 0) -> float:
    """Mean seconds from a request to the end of its prompt. chunk: tokens of a rank in an iteration at most."""
    together = load.ranks if in_step else 1
    units = [_Unit([deque() for _ in range(together)]) for _ in range(load.engines * load.ranks // together)]
    run = _Run(load, by_chance, np.random.default_rng(seed), units, chunk)
    left = [load.each] * load.clients
    for client in range(load.clients):
        run.at(0.0, client)
    turn = 0
    while run.events:
        now, _, what = heapq.heappop(run.events)
        if isinstance(what, int):
            turn += 1
            even = turn // load.engines % load.ranks
            rank = turn % load.engines * load.ranks
            rank += int(run.draws.integers(load.ranks)) if by_chance else even
            unit = units[rank // together]
            unit.queues[rank % together].append([run.length(load.prompt), what, now])
            if not run.events or run.events[0][0] > now:  # those that come at once are there before an iteration begins
                _begin(run, now)
            continue
        unit, ended = what
        unit.busy = False
        for _, client, came in ended:
            run.waits.append(now - came)
            left[int(client)] -= 1
            if left[int(client)]:
                run.at(now + run.length(load.output) * load.later_s, int(client))
        _begin(run, now)
    return float(np.mean(run.waits))


def _begin(run: _Run, now: float) -> None:
    """An iteration of every unit that has work and runs none."""
    for unit in run.units:
        if not unit.busy and any(unit.queues):
            most, ended = unit.iteration(run.chunk)
            unit.busy = True
            run.at(now + most * run.load.token_s, (unit, ended))

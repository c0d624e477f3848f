"""Where rollout and trainer stand, and on how many GPUs: the shares that a plan tries, and the scenario of each.

Trainers come in whole servers, or in parts of one; fleets in whole engines. Of many counts some are tried, then those
between them beside the best.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msgspec import Struct

from fleetsim.config.law_numbers import law_of
from fleetsim.config.load import with_changes
from fleetsim.config.rules import broken_rules
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given
from fleetsim.engine.prices import Prices, prices_of
from fleetsim.errors import InputError
from fleetsim.frameworks.equal_parts import divides
from fleetsim.job.derived_values import with_derived
from fleetsim.job.trainer_scaling import least_trainer_gpus, server_gpus, trained_on
from fleetsim.job.trials import unit_of
from fleetsim.records import replace
from fleetsim.search.arrangements import Kind, Share, colocated_async, colocated_sync, split
from fleetsim.search.bound import SECONDS
from fleetsim.search.permissions import StalenessBudget, steps_ahead
from fleetsim.sim.pools import counted_as_first, pools_gpus, pools_paid

# Where there are no more counts than this, all are tried; else each is this much larger than the one before.
_ALL, _STRIDE = 16, 1.6
# What a plan chooses is no longer assumed.
_CHOSEN = ("engine", "admission", "fleet.instances", "fleet.placement", "trainer.gpus")


def counts(most: int, unit: int, of: int) -> list[int]:
    """Multiples of a unit up to `most`, ascending, the largest always: all where `of` units are few, else some."""
    found, last = [], most // unit
    n = 1
    while n <= last:
        found.append(n * unit)
        n = n + 1 if of <= _ALL else max(n + 1, round(n * _STRIDE))
    if last and found[-1] != last * unit:
        found.append(last * unit)
    return found


def trainer_counts(most: int, server: int) -> list[int]:
    """GPUs of a trainer: parts that divide a server, and whole servers."""
    parts = [n for n in range(1, server) if server % n == 0]
    return [*(n for n in parts if n <= most), *counts(most, server, most // server)]


class Room(Struct, frozen=True):
    """What a budget has room for. gpus: of both pools. usd_per_h: for them, at these prices of a GPU-hour. GPUs that
    both share are paid for as rollout."""

    gpus: int
    usd_per_h: float = math.inf
    rollout: float = 0.0
    trainer: float = 0.0

    def beside(self, trainer: int) -> int:
        """GPUs of rollout, beside so many of a trainer."""
        return min(self.gpus - trainer, self._paid(self.usd_per_h - trainer * self.trainer, self.rollout))

    @property
    def of_trainer(self) -> int:
        """GPUs of a trainer, beside nothing."""
        return self._paid(self.usd_per_h, self.trainer)

    def _paid(self, usd_per_h: float, price: float) -> int:
        # A budget of exactly so many GPUs must not lose one to the last bit of a division.
        most = usd_per_h / price + 1e-9 if price > 0 else math.inf if usd_per_h >= 0 else 0.0
        return math.floor(max(0.0, min(self.gpus, most)))


class Value(Struct, frozen=True, eq=False):
    """One value of a choice. changes: of the scenario. needs: the permissions that it takes, separated by spaces."""

    changes: Mapping[str, Any]
    needs: str = ""


@dataclass(frozen=True, eq=False)
class Engines:
    """One kind of engine for a job. scenario: with it. value: the choices that made it. given: paths that are said,
    those choices among them. counts_pools: whether counts of other pools are chosen, too."""

    scenario: Scenario
    value: Value
    given: frozenset[str]
    counts_pools: bool = False
    _trainers: dict[tuple[bool, int], dict[str, Any] | None] = field(default_factory=dict, repr=False)
    _trainers_s: dict[tuple[bool, int], tuple[float, float]] = field(default_factory=dict, repr=False)
    _bases: dict[Hashable, Scenario] = field(default_factory=dict, repr=False)
    _first: dict[Hashable, Scenario] = field(default_factory=dict, repr=False)

    @cached_property
    def prices(self) -> tuple[float, float]:
        """US dollars per hour of a rollout GPU, by the share of spot machines that is wanted, and of a trainer."""
        found, fleet = self._listed, self.scenario.fleet
        spot = fleet.held_share(fleet.instances) * found.spot
        return found.rollout + fleet.spot.share * (spot - found.rollout), found.trainer

    @cached_property
    def _listed(self) -> Prices:
        return prices_of(self.scenario)

    @cached_property
    def pools_usd_per_h(self) -> float:
        """What other pools cost in an hour; they serve beside a split alone."""
        return pools_paid(self.scenario)[1]

    @cached_property
    def pools_gpus(self) -> int:
        """GPUs of other pools that count towards a budget: where their number is chosen."""
        return pools_gpus(self.scenario) if self.counts_pools else 0

    @cached_property
    def pools_as_first(self) -> float:
        """Other pools, in instances of the first."""
        return counted_as_first(self.scenario)

    @cached_property
    def each(self) -> int:
        """GPUs that come and go together."""
        return self.scenario.engine.gpus * unit_of(self.scenario)

    @cached_property
    def least(self) -> int:
        """GPUs of the smallest trainer."""
        return least_trainer_gpus(self.scenario)

    def shares(self, room: Room, on_policy: bool) -> Iterator[Share]:
        """Every share within a budget that is tried."""
        server = self.server
        ranks = unit_of(self.scenario)
        fixed = is_given("fleet.placement", self.given) and self.scenario.fleet.placement
        found: list[Share] = []
        if fixed in (False, "colocated") and not self.pools_gpus:  # which a share of one make leaves out
            kind: Kind = "colocated_sync" if on_policy else "colocated_async"
            both = [n for n in trainer_counts(room.beside(0), math.lcm(server, self.each)) if n % self.each == 0]
            found += [Share(kind, n // self.each * ranks, n, n) for n in both]
        if not on_policy and fixed != "colocated":
            for trainer in trainer_counts(room.of_trainer, server):
                rollouts = counts(room.beside(trainer), self.each, room.beside(0) // self.each)
                found += [Share("split", n // self.each * ranks, n, trainer) for n in rollouts]
        yield from sorted((s for s in found if self.trains(s)), key=lambda s: s.trainer_gpus)

    def trains(self, share: Share) -> bool:
        """Whether a trainer has room on so many GPUs, and its framework can divide an update among them.

        GPUs that both pools use in turn train a batch whole, not in parts.
        """
        job = self.scenario if share.kind == "split" else self._whole
        return share.trainer_gpus >= self.least and divides(job, share.trainer_gpus)

    @cached_property
    def _whole(self) -> Scenario:
        return with_changes(self.scenario, {"trainer.minibatches": 1})

    @cached_property
    def server(self) -> int:
        """GPUs of a server of the trainer."""
        return server_gpus(self.scenario)

    def usd_per_s(self, share: Share) -> float:
        """US dollars per second of all pools; shared GPUs are paid for as rollout, and none is on a spot machine."""
        found, fleet, apart = self._listed, self.scenario.fleet, 0.0
        rollout = share.rollout_gpus * found.rollout
        if share.kind == "split":
            on_spot = fleet.spot.of(share.instances) * self.scenario.engine.gpus
            rollout += on_spot * (fleet.held_share(share.instances) * found.spot - found.rollout)
            apart = share.trainer_gpus * found.trainer + self.pools_usd_per_h
        return (rollout + apart) / 3600.0

    def trainer(self, share: Share) -> dict[str, Any] | None:
        """The changes that give the trainer its GPUs, with its seconds there; None where it does not fit.

        Seconds that nobody gave are worked out as for any job; those that somebody gave scale.
        """
        key = share.kind == "split", share.trainer_gpus
        if key not in self._trainers:
            self._trainers[key] = trained_on(self.scenario if key[0] else self._whole, share.trainer_gpus)
        return self._trainers[key]

    def trainer_s(self, share: Share) -> tuple[float, float]:
        """Seconds of the trainer for a step and for a token, phases included; infinite where it does not fit."""
        key = share.kind == "split", share.trainer_gpus
        if key not in self._trainers_s:
            self._trainers_s[key] = _trainer_s(self.trainer(share))
        return self._trainers_s[key]

    def scenario_of(self, share: Share, ahead: StalenessBudget) -> Scenario | None:
        """The scenario that runs it; None where there is none.

        Plans of one kind differ in the trainer's section and the count of instances alone. So one of each kind, and one
        of each trainer, is made from what was written; the thousands of others take their parts, and are held against
        the rules that join two fields, as every scenario is.
        """
        kind = share.kind, tuple(sorted(ahead.changes.items()))
        trainer = share.kind, share.trainer_gpus
        alike, trained = self._first.get(kind), self._first.get(trainer)
        if alike is None or trained is None or alike.fleet.speed_factors:
            made = self._made(share, ahead)
            if made is not None:
                self._first.setdefault(kind, made)
                self._first.setdefault(trainer, made)
            return made
        fleet = alike.fleet.model_copy(update={"instances": share.instances})
        made = alike.model_copy(update={"fleet": fleet, "trainer": trained.trainer})
        return None if any(broken_rules(made)) else made

    def _made(self, share: Share, ahead: StalenessBudget) -> Scenario | None:
        """The same, from what was written. It is validated once, for a search makes thousands."""
        seconds = self.trainer(share)
        if seconds is None:
            return None
        assumed = [p for p in self.scenario.assumed if p not in self.given and not p.startswith(_CHOSEN)]
        trained = {**seconds, "assumed": assumed}
        try:
            base = self._ahead(ahead.changes)
            if share.kind == "split":
                made = split(base, share.instances, share.gpus, trained)
            elif share.kind == "colocated_sync":
                made = colocated_sync(base, share.gpus, trained)
            else:
                made = colocated_async(base, share.gpus, trained)
            waits = law_of(base).waits_for_trainer and share.kind != "colocated_sync"
            if waits and steps_ahead(made.scenario) != ahead.steps:
                return None
            return with_derived(made.scenario, self.given | {"trainer.gpus", "fleet.placement"})
        except InputError:
            return None

    def _ahead(self, changes: Mapping[str, Any]) -> Scenario:
        """The scenario that runs so far ahead. Raises InputError where it cannot."""
        key = tuple(sorted(changes.items()))
        if key not in self._bases:
            self._bases[key] = with_changes(self.scenario, changes) if changes else self.scenario
        return self._bases[key]


def _trainer_s(changes: Mapping[str, Any] | None) -> tuple[float, float]:
    if changes is None:
        return math.inf, math.inf
    phases = [dict(p) for p in changes["trainer.phases"]]
    fixed_s, per_token_s = (changes[f"trainer.{name}"] + sum(p.get(name, 0.0) for p in phases) for name in SECONDS)
    return fixed_s, per_token_s


class Candidate(Struct, frozen=True, eq=False):
    """One plan. needs: names of permissions."""

    engines: Engines
    ahead: StalenessBudget
    share: Share

    @property
    def needs(self) -> tuple[str, ...]:
        """Permissions that it takes, staleness apart."""
        return tuple(self.engines.value.needs.split())

    @property
    def kind(self) -> tuple[Hashable, ...]:
        """The same for plans that differ in nothing but their counts; the engines first."""
        return self.engines, self.share.kind, tuple(sorted(self.ahead.changes.items()))

    @property
    def place(self) -> Hashable:
        """What tells it from all others."""
        return self.kind, self.share

    def scenario(self) -> Scenario | None:
        """What runs it, None where it cannot be."""
        return self.engines.scenario_of(self.share, self.ahead)

    @property
    def usd_per_s(self) -> float:
        """US dollars per second of both pools."""
        return self.engines.usd_per_s(self.share)


def neighbours(candidate: Candidate, room: Room, stride: float) -> Iterator[Candidate]:
    """The same plan with pools that are larger and smaller by a factor, within a budget."""
    engines, share = candidate.engines, candidate.share
    each, server = engines.each, engines.server
    ranks = unit_of(engines.scenario)
    most = room.of_trainer if share.kind == "split" else room.beside(0)
    for trainer in around(share.trainer_gpus, server if share.kind == "split" else math.lcm(server, each), stride):
        if trainer > most or not engines.trains(replace(share, trainer_gpus=trainer)):
            continue
        if share.kind != "split":
            if trainer % each == 0:
                yield replace(candidate, share=Share(share.kind, trainer // each * ranks, trainer, trainer))
            continue
        beside = room.beside(trainer)
        for rollout in {*around(share.rollout_gpus, each, stride), beside // each * each}:
            if 0 < rollout <= beside:
                yield replace(candidate, share=Share("split", rollout // each * ranks, rollout, trainer))


def around(count: int, unit: int, stride: float) -> Iterator[int]:
    """A count, and those of whole units a factor away; parts of a unit have none."""
    yield count
    n = count // unit
    if count % unit == 0:
        less, more = min(n - 1, round(n / stride)), max(n + 1, round(n * stride))
        yield from (k * unit for k in (less, more) if k > 0)

"""The ways to use one set of GPUs: both pools on all of them in turn, or split in two.

- colocated sync: every GPU generates a whole batch, then every GPU trains on it (admission barrier, nothing in flight
  at the switch). On-policy: staleness 0.
- colocated async: the same GPUs in turn, but a batch is complete as soon as enough groups are; what is unfinished is
  stopped for the training, keeps its tokens and is prefilled again (in_flight abort_resume). The tail of the responses
  no longer holds every GPU; samples are as old as the scenario's staleness budget allows, which counts publications
  as often as the scenario's, in whole steps.
- split r + t: r GPUs generate all the time, t train all the time.
- split r + t in turn: the same two pools, batch by batch: r GPUs generate while t wait, then t train while r wait.
  On-policy, too; it saves the two switches and pays with GPUs that stand still.

Colocated engines keep their whole KV cache: the trainer's states are offloaded while they generate, which is what
fleet.switch_s pays for, twice a step. Their weights never cross a network: sync.publish_s and sync.pause_s are left
out, or what CUDA IPC takes where a transport gives the times; sync.trainer_block_s (resharding) stays. Other pools
serve beside a split alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from fleetsim.config.law_numbers import law_of, steps_per_version
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag, text
from fleetsim.job.trainer_scaling import anchored, chosen_gpus, fleet_of, lays_out, least_trainer_gpus, scaled
from fleetsim.job.trials import planned, unit_of
from fleetsim.policies.admission import LAWS
from fleetsim.policies.samples import BATCH_RULES, IN_FLIGHT

Kind = Literal["colocated_sync", "colocated_async", "split", "split_sync"]
# Those whose pools have GPUs of their own.
APART: tuple[Kind, ...] = ("split", "split_sync")
Changes = Mapping[str, Any]

# Seconds to hand the GPUs over, each way, where nobody measured it. verl's published colocated steps (docs/advance/
# fully_async.md of verl-project/verl at 1dda039, a 7B model) last 10.9 s and 10.7 s longer than generation, log-probs
# and update together on 64 and 128 H20; all of that is taken for the two switches.
SWITCH_S = 5.0
# Where its scenario says nothing else: who waits for every batch wants young samples.
_AHEAD = 1.0
MOST_GPUS = 100_000


def divided(scenario: Scenario, given: frozenset[str]) -> Scenario:
    """The job as GPUs are divided for it: handing them over takes time, and the trainer's seconds are those of its
    points. Of two makes the first is divided, and the second stays beside it."""
    job = planned(scenario, given)
    if not is_given("fleet.switch_s", given) and job.fleet.switch_s == 0:
        job = with_changes(job, {"fleet.switch_s": SWITCH_S})
    return anchored(job, given)


class Share(Struct, frozen=True):
    """Where rollout and trainer stand. instances: of rollout. rollout_gpus, trainer_gpus: colocated, both are all."""

    kind: Kind
    instances: int
    rollout_gpus: int
    trainer_gpus: int

    @property
    def gpus(self) -> int:
        """Of both pools together."""
        return self.rollout_gpus + self.trainer_gpus if self.apart else self.trainer_gpus

    @property
    def label(self) -> str:
        """ "10 + 6" for a split, "10 + 6 in turn" for one that works batch by batch, else its name."""
        if not self.apart:
            return self.kind.replace("_", " ")
        return f"{self.rollout_gpus} + {self.trainer_gpus}" + (" in turn" if self.on_policy else "")

    @property
    def apart(self) -> bool:
        """Whether rollout and trainer have GPUs of their own."""
        return self.kind in APART

    @property
    def on_policy(self) -> bool:
        """Whether nothing is generated while the trainer works."""
        return self.kind in ("colocated_sync", "split_sync")


class Arrangement(Share, frozen=True):
    """One way: a share of all GPUs, and the scenario that runs it."""

    scenario: Scenario


class Rules(Struct, frozen=True):
    """What a split must keep to: the fewest trainer GPUs (None: as many as its states need), and of what they are a
    multiple (None: whole servers, or a part of one that divides it, among whose ranks the job's framework can divide an
    update)."""

    trainer_least: int | None = None
    trainer_unit: int | None = None

    def lays_out(self, trainer: int, scenario: Scenario) -> bool:
        """Whether a trainer has so many GPUs; as many as the job's own has, always."""
        if self.trainer_unit is not None:
            return trainer % self.trainer_unit == 0
        return lays_out(trainer, scenario)


def gpus_per_engine(scenario: Scenario) -> int:
    """GPUs that come and go together: of one instance, or of all that share their experts."""
    return scenario.engine.gpus * unit_of(scenario)


def split_counts(scenario: Scenario, gpus: int, rules: Rules) -> list[int]:
    """Rollout instances of every split of exactly `gpus` GPUs that keeps to the rules, ascending.

    Raises InputError when the GPUs make no whole instances, or cannot be split.
    """
    each, unit = gpus_per_engine(scenario), rules.trainer_unit or 1
    ranks = unit_of(scenario)
    engine = "an instance" if ranks == 1 else f"an engine of {ranks} instances"
    least = least_trainer_gpus(scenario) if rules.trainer_least is None else rules.trainer_least
    if not 1 <= gpus <= MOST_GPUS:
        raise _refused(gpus, f"must be between 1 and {MOST_GPUS:,}", "give all GPUs of both pools")
    if gpus % each:
        below = gpus // each * each
        raise _refused(
            gpus,
            f"must be a multiple of the {each} GPUs of {engine}, so that colocated engines use them all",
            text("use {}, or another {}", f"{below} or {below + each}" if below else each, flag("tp")),
        )
    every = [k * ranks for k in range(1, (gpus - least) // each + 1)]
    counts = [n for n in every if rules.lays_out(gpus - n // ranks * each, scenario)]
    if not counts and rules.trainer_unit is None:  # then a trainer that is hard to lay out is better than no answer
        counts = every
    if not counts:
        trainer = f"{least} for the trainer" + (f", a multiple of {unit}" if unit > 1 else "")
        whole = math.lcm(each, unit)
        needed = each + math.ceil(least / whole) * whole
        raise _refused(
            gpus,
            f"cannot be split: {engine} takes {each}, and at least {trainer} must be left",
            f"use {needed} or more"
            if needed > gpus
            else text("change {}, {} or {}", flag("trainer_unit"), flag("trainer_min_gpus"), flag("tp")),
        )
    return counts


def _refused(gpus: int, rule: str, remedy: str) -> InputError:
    return InputError([Problem(flag("gpus"), gpus, rule, remedy)])


def split(scenario: Scenario, instances: int, gpus: int, trained: Changes | None = None) -> Arrangement:
    """So many rollout instances, and the other GPUs for the trainer.

    trained: the changes that give the trainer its GPUs, where they are known already; None = its seconds scaled.
    """
    rollout = instances * scenario.engine.gpus
    changes = {**_apart(scenario, instances, gpus - rollout, trained), **_ahead(scenario)}
    return Arrangement("split", instances, rollout, gpus - rollout, with_changes(scenario, changes))


def split_in_turn(scenario: Scenario, instances: int, gpus: int) -> Arrangement:
    """The same two pools, batch by batch: the one works while the other waits."""
    rollout = instances * scenario.engine.gpus
    changes = {
        **_apart(scenario, instances, gpus - rollout, None),
        **_published_each_step(scenario),
        **_batch_by_batch(scenario),
        "trainer.minibatches": 1,
    }
    return Arrangement("split_sync", instances, rollout, gpus - rollout, with_changes(scenario, changes))


def colocated_sync(scenario: Scenario, gpus: int, trained: Changes | None = None) -> Arrangement:
    """All GPUs in turn, whole batches. trained: as for `split`."""
    changes = {**_in_turn(scenario, gpus, trained), **_batch_by_batch(scenario)}
    return Arrangement("colocated_sync", gpus // scenario.engine.gpus, gpus, gpus, with_changes(scenario, changes))


def _batch_by_batch(scenario: Scenario) -> dict[str, Any]:
    """What makes a job on-policy: a batch is generated by the newest weights, and nothing beside it."""
    changes: dict[str, Any] = {
        "admission.law": "barrier",
        "admission.age_action": "train_anyway",
        "admission.max_age": None,
        "sync.in_flight": "drain",
        "sync.every_steps": 1,
    }
    if not BATCH_RULES[scenario.buffer.batch_rule].rounds:
        changes |= {"buffer.batch_rule": "fifo", "buffer.wait_for_oldest": False}
    return changes


def colocated_async(scenario: Scenario, gpus: int, trained: Changes | None = None) -> Arrangement:
    """All GPUs in turn, unfinished samples carried over. trained: as for `split`."""
    changes = _in_turn(scenario, gpus, trained) | _ahead(scenario) | {"sync.in_flight": "abort_resume"}
    if LAWS[changes.get("admission.law", scenario.admission.law)].rounds == "overlapping":
        # Counted beyond the batch in training, beside which nothing is generated here: one would be a barrier.
        ahead = changes.get("admission.batches_ahead", scenario.admission.batches_ahead)
        changes["admission.batches_ahead"] = ahead + 1
    return Arrangement("colocated_async", gpus // scenario.engine.gpus, gpus, gpus, with_changes(scenario, changes))


def _apart(scenario: Scenario, instances: int, trainer_gpus: int, trained: Changes | None) -> dict[str, Any]:
    """What all splits share: two pools, weights over a network."""
    return {
        **chosen_gpus(scenario),
        **(trained or scaled(scenario, trainer_gpus)),
        **fleet_of(scenario, instances),
        **_over_the_network(scenario),
        "fleet.placement": "disaggregated",
    }


def _published_each_step(scenario: Scenario) -> dict[str, Any]:
    """A publication by steps, to the whole fleet, as often as the scenario's own."""
    return {
        "sync.scope": "global",
        "sync.trigger": "steps",
        "sync.every_steps": steps_per_version(scenario),
        "sync.every_pulls": None,
        "sync.every_samples": None,
    }


def _over_the_network(scenario: Scenario) -> dict[str, Any]:
    """The sync of a split. One that was written for shared GPUs knows no pause and no network: the defaults then."""
    sync = scenario.sync
    changes: dict[str, Any] = {}
    if scenario.fleet.placement == "colocated":
        if sync.pause_s == 0:  # its engines stand still anyway
            changes["sync.pause_s"] = None
        if sync.transport == "cuda_ipc":
            changes["sync.transport"] = "collective_broadcast"
    return changes


def _in_place(scenario: Scenario) -> dict[str, Any]:
    """The sync of shared GPUs: a colocated scenario's own, else no network; from handle to handle by transport."""
    sync = scenario.sync
    if scenario.fleet.placement == "colocated":
        return {}
    if sync.transport is None:
        return {"sync.publish_s": 0.0, "sync.pause_s": 0.0}
    return {"sync.transport": "cuda_ipc", "sync.publish_s": 0.0, "sync.pause_s": None}


def _in_turn(scenario: Scenario, gpus: int, trained: Changes | None) -> dict[str, Any]:
    """What both colocated ways share: every GPU in both pools, no weights over a network, no batch in parts."""
    return {
        **chosen_gpus(scenario),
        **(trained or scaled(scenario, gpus)),
        **fleet_of(scenario, gpus // scenario.engine.gpus),
        "fleet.placement": "colocated",
        "fleet.spot.share": 0.0,  # a trainer needs all of its GPUs
        "fleet.pools": {},  # of one make
        **_in_place(scenario),
        **_published_each_step(scenario),
        "trainer.minibatches": 1,
    }


def versions_ahead(scenario: Scenario) -> float:
    """How far the async ways of a job with a barrier may run ahead of the trainer, in weight versions."""
    admission = scenario.admission
    return admission.max_staleness if "max_staleness" in admission.model_fields_set else _AHEAD


def _ahead(scenario: Scenario) -> dict[str, Any]:
    """The scenario's own admission where groups may start ahead of the trainer; a barrier becomes a few versions."""
    if not law_of(scenario).waits_for_trainer:
        return {}
    in_flight = "keep" if IN_FLIGHT[scenario.sync.in_flight].drains else scenario.sync.in_flight
    if BATCH_RULES[scenario.buffer.batch_rule].rounds and scenario.buffer.leftover != "defer":
        return {"admission.law": "batches_ahead", "admission.batches_ahead": 1, "sync.in_flight": in_flight}
    return {
        "admission.law": "version_window",
        "admission.max_staleness": versions_ahead(scenario),
        "sync.in_flight": in_flight,
        "buffer.batch_rule": "oldest_version_first",
        "buffer.oversampling": 1.0,
        "buffer.leftover": "abort",
    }

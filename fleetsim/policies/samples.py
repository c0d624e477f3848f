"""What becomes of samples: by age, in a batch, in flight at a weight sync. One record for each name of a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args

from msgspec import Struct

# --- Tables of policies: one entry for each name that a scenario file may give.

Name = TypeVar("Name", bound=str)
Record = TypeVar("Record")


def complete(names: Any, entries: Mapping[Name, Record]) -> Mapping[Name, Record]:
    """The entries, read only, in the order of `names`, a Literal. Raises TypeError at import where one has no entry."""
    missing = [name for name in get_args(names) if name not in entries]
    if missing:
        raise TypeError(f"a policy has a name and no entry in its table: {', '.join(missing)}")
    return MappingProxyType({name: entries[name] for name in get_args(names)})


def listed(names: list[str]) -> str:
    """Names in a sentence: "a", "a or b", "a or b or c"."""
    return " or ".join(names)


# --- What happens to a group older than `max_age` (`admission.age_action`): one record for each action.

AgeActionName = Literal["train_anyway", "drop_on_dequeue", "drop_and_refill", "cancel_in_flight", "wait", "mask"]


class AgeAction(Struct, frozen=True, kw_only=True):
    """What an action does about a group that is too old.

    says: what becomes of the group, in a few words. drops: it is thrown away once it is finished. at_publication: that
    happens when the version is made that makes it too old, and not when the trainer comes upon it. cancels: it goes
    then even in flight. waits: the trainer waits for the groups that the next publication would make too old. masks: it
    fills its place in the batch, and nothing is learned from it.
    """

    says: str
    drops: bool
    at_publication: bool
    cancels: bool
    waits: bool
    masks: bool = False

    @property
    def limits_age(self) -> bool:
        """Whether the action needs an age limit."""
        return self.drops or self.waits or self.masks


AGE_ACTIONS: Mapping[AgeActionName, AgeAction] = complete(
    AgeActionName,
    {
        "train_anyway": AgeAction(says="trained anyway", drops=False, at_publication=False, cancels=False, waits=False),
        "drop_on_dequeue": AgeAction(
            says="dropped at the trainer", drops=True, at_publication=False, cancels=False, waits=False
        ),
        "drop_and_refill": AgeAction(
            says="dropped and replaced", drops=True, at_publication=True, cancels=False, waits=False
        ),
        "cancel_in_flight": AgeAction(
            says="cancelled in flight", drops=True, at_publication=True, cancels=True, waits=False
        ),
        "wait": AgeAction(says="waited for", drops=False, at_publication=False, cancels=False, waits=True),
        "mask": AgeAction(
            says="masked in the loss", drops=False, at_publication=False, cancels=False, waits=False, masks=True
        ),
    },
)


# --- Which finished samples make the next batch (`buffer.batch_rule`): one record for each rule.

BatchRuleName = Literal["fifo", "oldest_version_first", "first_finished", "exact_target_step"]


class BatchRule(Struct, frozen=True, kw_only=True):
    """How a batch is picked from the buffer.

    order: finished groups as they were completed, or the oldest weight version first. rounds: the rule works on whole
    rounds, of which a batch is the first to finish; the round may be larger than the batch (`buffer.oversampling`), and
    `buffer.leftover` says what becomes of the rest. reserved: a batch is the groups that were reserved for its step.
    """

    order: Literal["completion", "version"]
    rounds: bool
    reserved: bool

    @property
    def in_order(self) -> bool:
        """Whether groups are taken as they were completed, whatever their round, step or version."""
        return self.order == "completion" and not self.rounds and not self.reserved


BATCH_RULES: Mapping[BatchRuleName, BatchRule] = complete(
    BatchRuleName,
    {
        "fifo": BatchRule(order="completion", rounds=False, reserved=False),
        "oldest_version_first": BatchRule(order="version", rounds=False, reserved=False),
        "first_finished": BatchRule(order="completion", rounds=True, reserved=False),
        "exact_target_step": BatchRule(order="completion", rounds=False, reserved=True),
    },
)


def names_of(holds: Callable[[BatchRule], bool]) -> str:
    """The names of the rules for which something holds, for a sentence: "a or b"."""
    return listed([name for name, rule in BATCH_RULES.items() if holds(rule)])


# --- What becomes of a rollout whose calls were all in vain, or whose time is over (`lost` of a station or a limit).

LostName = Literal["dropped", "truncated", "retried", "masked", "withheld", "waited"]


class Lost(Struct, frozen=True, kw_only=True):
    """What a policy does with a rollout that is lost.

    says: what becomes of it, in a few words. ends: it is scored and takes its place in the batch, as it is. told: its
    share of all rollouts stands beside the samples that are lost, which it is not among; the word for it. whole: the
    batch has a whole rollout in the end, for sure.
    """

    says: str
    ends: bool = False
    whole: bool = False
    told: str = ""


LOST: Mapping[LostName, Lost] = complete(
    LostName,
    {
        "dropped": Lost(says="its group is trained without it"),
        "truncated": Lost(says="trained with what it has", ends=True, told="truncated"),
        "retried": Lost(says="from its prompt, thrice at most", told="retried"),
        "masked": Lost(says="in the batch, not learned from", ends=True),
        "withheld": Lost(says="its group is replaced", whole=True),
        "waited": Lost(says="until its end", ends=True, told="waited for", whole=True),
    },
)


# --- What happens to unfinished samples when new weights are loaded (`sync.in_flight`): one record for each policy.

InFlightName = Literal["drain", "abort_discard", "abort_resume", "keep", "keep_recompute", "finish_on_old_weights"]


class InFlight(Struct, frozen=True, kw_only=True):
    """What a policy does to the work on an instance that loads new weights.

    drains: nothing new is sent, and the pause begins when the last sample in flight has ended. aborts: requests leave
    their engine. discards: unfinished groups are thrown away, their credits return. recomputes: running requests lose
    their cache, and prompt and generated tokens are prefilled again. pauses: engines stand still while they load.
    """

    drains: bool
    aborts: bool
    discards: bool
    recomputes: bool
    pauses: bool

    @property
    def keeps_version(self) -> bool:
        """Whether what is in flight stays on the version that it was sent with."""
        return not self.pauses


IN_FLIGHT: Mapping[InFlightName, InFlight] = complete(
    InFlightName,
    {
        "drain": InFlight(drains=True, aborts=False, discards=False, recomputes=False, pauses=True),
        "abort_discard": InFlight(drains=False, aborts=True, discards=True, recomputes=False, pauses=True),
        "abort_resume": InFlight(drains=False, aborts=True, discards=False, recomputes=True, pauses=True),
        "keep": InFlight(drains=False, aborts=False, discards=False, recomputes=False, pauses=True),
        "keep_recompute": InFlight(drains=False, aborts=False, discards=False, recomputes=True, pauses=True),
        "finish_on_old_weights": InFlight(drains=False, aborts=False, discards=False, recomputes=False, pauses=False),
    },
)

"""What happens to a group older than `max_age` (`admission.age_action`): one record for each action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from fleetsim.dataclass import dataclass
from fleetsim.policies.tables import complete

AgeActionName = Literal["train_anyway", "drop_on_dequeue", "drop_and_refill", "cancel_in_flight", "wait"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeAction:
    """What an action does about a group that is too old.

    says: what becomes of the group, in a few words. drops: it is thrown away once it is finished. at_publication: that
    happens when the version is made that makes it too old, and not when the trainer comes upon it. cancels: it goes
    then even in flight. waits: the trainer waits for the groups that the next publication would make too old.
    """

    says: str
    drops: bool
    at_publication: bool
    cancels: bool
    waits: bool

    @property
    def limits_age(self) -> bool:
        """Whether the action needs an age limit."""
        return self.drops or self.waits


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
    },
)

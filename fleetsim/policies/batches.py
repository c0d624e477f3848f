"""Which finished samples make the next batch (`buffer.batch_rule`): one record for each rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from fleetsim.dataclass import dataclass
from fleetsim.policies.tables import complete, listed

BatchRuleName = Literal["fifo", "oldest_version_first", "first_finished", "exact_target_step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRule:
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

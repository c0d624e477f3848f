"""What an admission law is asked with: its settings, what a job counts in, how far the run is, how batches are made."""

from __future__ import annotations

from dataclasses import field
from typing import Literal, Protocol

from fleetsim.dataclass import dataclass

LawName = Literal[
    "barrier",
    "batches_ahead",
    "version_window",
    "fixed_pool",
    "unbounded",
    "per_sync_window",
    "cumulative_ratio",
    "target_step",
    "adaptive",
]


class Adaptive(Protocol):
    """The settings of the law that follows the engines' KV use, as far as other numbers depend on them."""

    @property
    def most_samples(self) -> int:
        """Samples in flight at most."""


class Settings(Protocol):
    """The `admission` settings that laws read."""

    @property
    def law(self) -> LawName:
        """The law's name."""

    @property
    def batches_ahead(self) -> int:
        """Batches that generation may be ahead."""

    @property
    def max_staleness(self) -> float:
        """eta, in weight versions."""

    @property
    def staleness_threshold(self) -> float:
        """Share of a sync window that may start beyond it."""

    @property
    def async_ratio(self) -> float:
        """alpha, in batches."""

    @property
    def extra_groups(self) -> int:
        """Groups that run whatever was let in."""

    @property
    def pool_samples(self) -> int | None:
        """Samples in flight at all times."""

    @property
    def adaptive(self) -> Adaptive:
        """Settings of the law that follows the engines' KV use."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a job counts in.

    step, version, round: groups trained by an optimizer step, trained between two publications, started for one batch.
    group, batch: samples of a group and of a step.
    """

    step: int
    version: int
    round: int
    group: int
    batch: int

    @property
    def steps_per_version(self) -> float:
        """Optimizer steps between two publications."""
        return self.version / self.step


@dataclass(slots=True)
class Progress:
    """How far the run is.

    version: published weight version, the oldest that any instance serves. triggered: versions that the trainer has
    made; updates[v], contained[v]: optimizer steps and groups contained in version v. taken_groups: taken to train,
    taken_of_round: of the current step. generating: whether a barrier's round is open. round_groups: groups of that
    round, None = the law's own number. window_start: groups started before the current sync window, less those that
    its version left to be trained. grants: (groups that admission had let in, version then), in order.
    """

    version: int = 0
    triggered: int = 0
    updates: list[float] = field(default_factory=lambda: [0.0])
    contained: list[int] = field(default_factory=lambda: [0])
    taken_groups: int = 0
    taken_of_round: int = 0
    generating: bool = False
    round_groups: int | None = None
    window_start: int = 0
    grants: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Order:
    """How batches are made and weights published, as far as the age of a group depends on it.

    one_by_one: each optimizer step, on a whole batch, publishes. exact: a batch is the groups reserved for its step.
    waits_for_oldest: no batch overtakes an older version's groups. in_order: groups are taken as they were
    completed. carries_over: a round's late groups are kept for the next batch. oversampled: more groups start than are
    trained.
    drains: all that is in flight ends before a publication, on the whole fleet.
    """

    one_by_one: bool
    exact: bool
    waits_for_oldest: bool
    in_order: bool
    carries_over: bool
    oversampled: bool
    drains: bool

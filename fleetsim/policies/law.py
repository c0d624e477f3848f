"""What an admission law says about itself, and what it is asked with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from fleetsim.errors import Problem

# --- What an admission law is asked with: settings, what a job counts in, how far the run is, how batches are made.

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


class Sizes(Struct, frozen=True):
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


class Progress(Struct):
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


class Order(Struct, frozen=True):
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


# --- What an admission law says about itself.

# More groups than any run starts: no limit.
PLENTY = 1 << 40
# Steps that a run needs to fill its pipeline where the law sets no number of batches or versions.
_DEPTH_WITHOUT_NUMBER = 2.0


class UpTo(Struct, frozen=True, kw_only=True):
    """So many groups as `limit` says; what counts against it:

    outstanding: sent, and neither trained nor thrown away. open: in generation or scoring. started: ever sent; what is
    thrown away is not replaced.
    """

    counts: Literal["outstanding", "open", "started"]
    limit: Callable[[Settings, Sizes, Progress], int]


class EachStep(Struct, frozen=True, kw_only=True):
    """So many more groups at the beginning of each step; `first` = of the run. kept_running: groups that run at least,
    whatever was let in."""

    groups: Callable[[Settings, Sizes, bool], int]
    kept_running: Callable[[Settings], int]


class Ahead(Struct, frozen=True, kw_only=True):
    """How far generation may run ahead of the trainer: `most` of `unit`.

    and_current: 1.0 where the batch or version that is trained next may be out as well, 0.0 where `most` counts it.
    promised: whether so much staleness is a promise, and not the count of a window that starts anew.
    """

    unit: Literal["batches", "versions"]
    most: Callable[[Settings], float]
    and_current: float
    promised: bool


class Looser(Struct, frozen=True, kw_only=True):
    """What lets generation run further ahead: the law's parameter by `more`.

    says: that in words, {} standing for the number. lift: what a verdict recommends.
    """

    more: float
    says: str
    lift: str


class Exchange(Struct, frozen=True, kw_only=True):
    """A law without such a number is loosened by another one. changes: its settings. says: that in words."""

    changes: Mapping[str, Any]
    says: str


class Cap(Struct, frozen=True, kw_only=True):
    """A cap on what is in flight that is part of the law. setting: its path. samples: what it is now.

    frees: what must be over for a place to be free again: a sample, or a whole group with its rewards.
    """

    setting: str
    samples: Callable[[Settings], int | None]
    frees: Literal["samples", "groups"]


class Law(Struct, frozen=True, kw_only=True):
    """Everything that anybody asks about an admission law. No field has a default: a new law answers every question.

    says: what may start, in a few words. rule: the same for the documentation, as a formula (Markdown).
    lets_in: the groups that may start. ahead: how far generation may run ahead, None = no number says so.
    in_flight: samples that are kept in generation beside the batch in training.
    oldest: versions that no trained group is ever older than, by the law and the order of batches; None = no bound.
    parameter: the path of the one setting that says how much the law allows. also_reads: its other settings.
    looser, cap: what lets more start, None = nothing of the law.
    starves: why too little may start for a batch to be ever complete, None = the law lets enough start.
    rounds: whether what starts are the rounds of batches: one after the other, or several at a time; None = no rounds.
    budget: what a staleness budget (--max-staleness) sets: the law's versions, its whole batches; None = nothing.
    reserves_steps: each group is reserved for a step when it starts. fills_queue: a queue that holds what the law may
    start must grow with it. engines_limit: the client sends whatever the engines can run. follows_kv: a controller
    watches the engines' KV use and sets how much is in flight.
    """

    says: Callable[[Settings], str]
    rule: str
    lets_in: UpTo | EachStep
    ahead: Ahead | None
    in_flight: Callable[[Settings, Sizes], float]
    oldest: Callable[[Settings, Order], float | None]
    parameter: str | None
    also_reads: tuple[str, ...]
    looser: Looser | Exchange | None
    cap: Cap | None
    starves: Callable[[Settings, Sizes, Progress], Problem | None]
    rounds: Literal["one_by_one", "overlapping"] | None
    budget: Literal["versions", "batches"] | None
    reserves_steps: bool
    fills_queue: bool
    engines_limit: bool
    follows_kv: bool

    @property
    def reads(self) -> tuple[str, ...]:
        """Paths of all settings that the law reads."""
        return (*([] if self.parameter is None else [self.parameter]), *self.also_reads)

    @property
    def waits_for_trainer(self) -> bool:
        """Whether nothing is generated while the trainer works: one round after the other."""
        return self.rounds == "one_by_one"

    @property
    def counts_versions(self) -> bool:
        """Whether the end of a publication lets groups start."""
        return self.ahead is not None and self.ahead.unit == "versions"

    @property
    def counts_open(self) -> bool:
        """Whether a group that is finished makes room for the next, trained or not."""
        return isinstance(self.lets_in, UpTo) and self.lets_in.counts == "open"

    @property
    def counts_started(self) -> bool:
        """Whether a group counts for good once it is sent, so that nothing replaces it before the next version."""
        return isinstance(self.lets_in, UpTo) and self.lets_in.counts == "started"

    @property
    def plain_window(self) -> bool:
        """Whether the law is a staleness budget in versions, and any group may be in any batch."""
        return self.budget == "versions" and not self.reserves_steps

    def number(self, settings: Settings) -> float | None:
        """The law's parameter, None where it has none."""
        return None if self.parameter is None else getattr(settings, self.parameter.rpartition(".")[2])

    def depth_steps(self, settings: Settings, sizes: Sizes) -> float:
        """Steps from the start of a run until what is trained was generated under the law."""
        if self.ahead is None:
            return _DEPTH_WITHOUT_NUMBER
        return self.ahead.most(settings) * (sizes.steps_per_version if self.counts_versions else 1.0)

    def units_out(self, settings: Settings) -> float | None:
        """Batches or versions, by `ahead.unit`, that may be out at a time; None where the law promises no number."""
        if self.ahead is None or not self.ahead.promised:
            return None
        return self.ahead.most(settings) + self.ahead.and_current

    def groups_ahead(self, settings: Settings, sizes: Sizes) -> float | None:
        """Groups that may be ahead of the trainer; None where no setting of the law says how many."""
        if self.ahead is None or self.parameter is None:
            return None
        unit = sizes.version if self.ahead.unit == "versions" else sizes.step
        return (self.ahead.most(settings) + self.ahead.and_current) * unit

    def loosened(self, settings: Settings) -> float | None:
        """By what factor the groups ahead grow when the law is loosened once; None where it has no such number."""
        if self.ahead is None or not isinstance(self.looser, Looser):
            return None
        now = self.ahead.most(settings) + self.ahead.and_current
        return (now + self.looser.more) / now


def written(number: float) -> str:
    """A law's number as a scenario file takes it: whole ones in full."""
    return str(number) if isinstance(number, int) else f"{number:g}"

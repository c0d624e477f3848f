"""The endless row of prompt groups that a run draws from: the same row whatever the fleet and whoever asks when."""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.config.workload import Empirical, WorkloadConfig
from fleetsim.records import field_names
from fleetsim.workload.lengths import sample_latencies, sample_lengths
from fleetsim.workload.streams import substream
from fleetsim.workload.turns import TurnStreams, trajectories

# Growth over thousands of steps leaves the floating-point range; the cap on tokens has bound long before.
_MAX_FACTOR = 1e9
# Of a row no more samples than these are remembered, and no more draws: a few of them would fill the memory.
_MOST_KEPT, _MOST_TAKES = 100_000, 4


class Groups(Struct, frozen=True):
    """`n` consecutive groups of G samples; the samples of a group are next to each other, in the order of groups.

    first: index of the first group. prompt_tokens: int32 (n,). zero_variance: bool (n,), the filter will drop the
    group. reward_latency_s: float64 (n*G,). The rest as of `Trajectories`: turns (n*G,), output_tokens (n*G,), and of
    each call tool_latency_s, tool_tokens, goals.
    """

    first: int
    prompt_tokens: NDArray[np.int32]
    zero_variance: NDArray[np.bool_]
    reward_latency_s: NDArray[np.float64]
    turns: NDArray[np.int64]
    output_tokens: NDArray[np.int32]
    tool_latency_s: NDArray[np.float64]
    tool_tokens: NDArray[np.int32]
    goals: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.prompt_tokens)


class _Streams(TurnStreams):
    """A stream for each cause, at its beginning."""

    def __init__(self, seeds: np.random.SeedSequence) -> None:
        super().__init__(seeds)
        self.prompts = substream(seeds, "prompts")
        self.common = substream(seeds, "common")
        self.filter = substream(seeds, "filter")
        self.reward = substream(seeds, "reward")


class GroupSource:
    """Draws groups 0, 1, 2, ... in chunks of any size; group k is the same for every chunking.

    workload: the scenario's section. seeds: of this replication (`streams.seed_sequence(seed, replication,
    "workload")`). groups_per_step: after so many groups the length drift advances by one step. siblings: samples
    drawn per group, `workload.group_size` unless more are started than kept.

    Each cause (prompts, turns, lengths, siblings' common factor, filter, rewards, tools) has a stream of its own and
    takes its draws in the order of groups, samples and turns.
    """

    def __init__(
        self,
        workload: WorkloadConfig,
        seeds: np.random.SeedSequence,
        groups_per_step: int | None = None,
        siblings: int | None = None,
    ) -> None:
        if workload.length_drift_per_step and not groups_per_step:
            raise ValueError("length_drift_per_step needs groups_per_step")
        self.workload = workload
        self.groups_per_step = groups_per_step or 1
        self.siblings = siblings or workload.group_size
        self.taken = 0
        self._seeds = seeds
        self.streams: _Streams | None = None  # made when something is drawn
        self._takes: tuple[int, ...] = ()  # groups of each draw that is remembered
        self._behind: _Streams | None = None  # as they are after these; shared

    def group_factor(self, k: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """What the output lengths of group k are multiplied by, before the cap: (1 + drift)^(k // groups_per_step)."""
        steps = np.asarray(k, dtype=np.int64) // self.groups_per_step
        with np.errstate(over="ignore"):
            factor = np.power(1.0 + self.workload.length_drift_per_step, steps.astype(np.float64))
        return np.minimum(factor, _MAX_FACTOR)

    def take(self, n_groups: int) -> Groups:
        """The next `n_groups` groups, not to be written to. Raises InputError for an empirical file that cannot be
        read."""
        entropy, small = self._seeds.entropy, (self.taken + n_groups) * self.siblings <= _MOST_KEPT
        few = self.streams is None and len(self._takes) < _MOST_TAKES
        if not (small and few) or not isinstance(entropy, int) or _reads_files(self.workload):
            return self.drawn(n_groups)
        self._takes = (*self._takes, n_groups)
        of = (self.workload, entropy, self._seeds.spawn_key, self.groups_per_step, self.siblings, self._takes)
        groups, self._behind = _begun(*of)
        self.taken += n_groups
        return groups

    def drawn(self, n_groups: int) -> Groups:
        """`take` that remembers nothing, and whose arrays are the caller's own."""
        if self.streams is None:
            self.streams = _Streams(self._seeds) if self._behind is None else deepcopy(self._behind)
        streams = self.streams
        w, first, siblings = self.workload, self.taken, self.siblings
        samples = n_groups * siblings
        prompt_tokens = sample_lengths(
            w.prompt_tokens, streams.prompts, n_groups, at_least=max(1, w.shared_prefix_tokens)
        )
        common = None
        if w.group_correlation > 0.0 and siblings > 1:
            common = np.repeat(streams.common.standard_normal(n_groups), siblings)
        scale: float | NDArray[np.float64] = 1.0
        if w.length_drift_per_step:
            scale = np.repeat(self.group_factor(np.arange(first, first + n_groups, dtype=np.int64)), siblings)
        does = trajectories(w, streams, samples, common, scale)
        groups = Groups(
            first=first,
            prompt_tokens=prompt_tokens,
            zero_variance=streams.filter.random(n_groups) < w.filter.zero_variance_share,
            reward_latency_s=sample_latencies(w.reward.latency_s, streams.reward, samples),
            turns=does.turns,
            output_tokens=does.output_tokens,
            tool_latency_s=does.tool_latency_s,
            tool_tokens=does.tool_tokens,
            goals=does.goals,
        )
        self.taken = first + n_groups
        return groups


@lru_cache(maxsize=32)
def _begun(
    workload: WorkloadConfig,
    entropy: int,
    spawn_key: tuple[int, ...],
    groups_per_step: int,
    siblings: int,
    takes: tuple[int, ...],
) -> tuple[Groups, _Streams]:
    """The last of the first few draws of a row, and its streams behind them. The runs of a search see the same draws:
    they are made once."""
    *before, n_groups = takes
    seeds = np.random.SeedSequence(entropy=entropy, spawn_key=spawn_key)
    source = GroupSource(workload, seeds, groups_per_step, siblings)
    if before:
        source._behind = _begun(workload, entropy, spawn_key, groups_per_step, siblings, tuple(before))[1]
        source.taken = sum(before)
    groups = source.drawn(n_groups)
    for table in field_names(groups):
        if table != "first":
            getattr(groups, table).setflags(write=False)
    assert source.streams is not None
    return groups, source.streams


def _reads_files(w: WorkloadConfig) -> bool:
    """Whether a law comes from a file, which may be another one by the next run."""
    turns = w.turns
    laws = (w.prompt_tokens, w.output_tokens, w.reward.latency_s, turns.count, turns.output_tokens)
    laws = (*laws, turns.tool_latency_s, turns.tool_tokens)
    return any(isinstance(law, Empirical) for law in laws)

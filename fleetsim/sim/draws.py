"""The groups of a run in the kernel's tables: drawn when they are needed, stretched by events, drawn once more."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.judges import at_rollout
from fleetsim.config.scenario import Scenario, most_steps, sent_samples, settles, steps_ahead
from fleetsim.engine.kernel.tables import ASKED, EVALUATED, G_TRAINED, GONE, OF_GROUPS, OF_SAMPLES
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.state import World
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError, Problem
from fleetsim.sim.work import check_samples
from fleetsim.workload.groups import Groups, GroupSource
from fleetsim.workload.lengths import sample_lengths
from fleetsim.workload.streams import seed_sequence, stream
from fleetsim.workload.turns import mean_turns

MOST_SAMPLES_AT_ONCE = 2_000_000
# Steps that a run without a length has at least, more or less.
_OPEN_STEPS = 32


class Draws:
    """Draws the groups of a run and writes them into the kernel's tables.

    kept: samples of a group that are trained. group_size: samples of a group that are sent; more than `kept` where
    groups are oversampled. exact: a group is drawn only when one may start, and not all groups are of one size. chunk:
    groups of the next draw, where it is not exact. reserved: rows before the groups: the one of all evaluations, if
    their requests go through the fleet.
    """

    def __init__(
        self, scenario: Scenario, world: World, step_time: StepTime, limits: EngineLimits, replication: int
    ) -> None:
        workload = scenario.workload
        self._world, self.limits = world, limits
        self._holds = step_time.blocks_of_one  # KV blocks of a request at most, of those of an instance
        self.kept = workload.group_size
        self.group_size = math.ceil(workload.group_size * scenario.buffer.group_oversampling - 1e-9)
        self._siblings = np.arange(self.group_size)
        self.exact = scenario.buffer.leftover == "defer"
        self._turns = mean_turns(workload)
        self._longest = (
            workload.turns.most_tokens(workload.output_tokens)
            if workload.turns.by_law
            else getattr(workload.output_tokens, "max", None)
        ) or math.inf
        world.set(has_goals=int(workload.turns.by_law))
        self._source = GroupSource(
            workload,
            seed_sequence(scenario.run.seed, replication, "workload"),
            scenario.groups_per_step,
            self.group_size,
        )
        self._open = settles(scenario)
        self.chunk = _expected_groups(scenario)
        self._factor = 1.0
        # what was drawn, kept only where an event stretches what is not sent yet
        self._stretches = any(e.length_factor is not None for e in scenario.run.events)
        self._drawn = np.zeros(0, np.int32)
        self._system = max(1, workload.shared_prefix_tokens)
        found = at_rollout(scenario)
        self._judge = None if found is None else found[1]
        self.reserved = int(scenario.evaluation.on_fleet) + int(found is not None)
        if self.reserved:
            rows = world.add_groups(self.reserved)
            world.groups["status"][rows], world.groups["zero_variance"][rows] = G_TRAINED, EVALUATED
            if found is not None:
                name, judge = found
                self._answers = stream(scenario.run.seed, replication, f"station {name}")
                row = world.groups[self.reserved - 1]
                row["zero_variance"], row["size"], row["need"] = ASKED, 1, 1 << 30
                reads = OF_GROUPS if judge.per == "group" else OF_SAMPLES
                world.set(own_votes=judge.votes, own_reads=int(reads), own_share=judge.reads_share)
            world.bind()
            world.set(next_group=self.reserved, completed_groups=self.reserved)

    def more(self) -> None:
        """Draws more groups and puts them behind those that are there."""
        world, size = self._world, self.group_size
        wanted = max(1, int(world.get("credits"))) if self.exact else self.chunk
        check_samples((int(world.get("n_groups")) + wanted) * self.group_size, self._turns)
        drawn = self._source.take(wanted)
        # The first draw was meant to be enough; where it is not, what is drawn in all grows by an eighth each time, of
        # a run without a length by a half.
        self.chunk = max(64, self._source.taken // (2 if self._open else 8))
        s, g = world.add_samples(len(drawn) * size), world.add_groups(len(drawn))
        groups, samples = world.groups[g], world.samples[s]
        groups["first"] = np.arange(s.start, s.stop, size)
        groups["size"], groups["need"] = size, self.kept
        groups["zero_variance"] = drawn.zero_variance
        samples["prompt"] = np.repeat(drawn.prompt_tokens, size)
        samples["target"] = drawn.output_tokens
        if self._stretches:
            self._drawn = np.concatenate([self._drawn, drawn.output_tokens])
            samples["target"] = self._stretched(drawn.output_tokens, drawn.turns)
        samples["group"] = np.repeat(np.arange(g.start, g.stop), size)
        self._serve(drawn, s)
        self._let_read(s, g)
        world.bind()

    def _let_read(self, s: slice, g: slice) -> None:
        """A row for each request of the judge that asks the rollout's engines about these samples, or these groups.
        Raises InputError for one that never fits."""
        world, judge = self._world, self._judge
        if judge is None:
            return
        read = np.arange(s.start, s.stop) if judge.per == "sample" else world.groups["first"][g]
        tokens = world.samples["prompt"][s] + world.samples["extra"][s] + world.samples["target"][s]
        tokens += world.heard(world.samples[s])
        if judge.per == "group":
            tokens = np.add.reduceat(tokens, read - s.start)
        r = world.add_samples(len(read) * judge.votes)
        asked = world.samples[r]
        asked["prompt"], asked["group"], asked["status"] = 1, self.reserved - 1, GONE  # until somebody asks
        own = sample_lengths(judge.prompt_tokens, self._answers, len(read), at_least=1)
        asked["extra"] = np.repeat(own - 1, judge.votes)
        asked["target"] = sample_lengths(judge.output_tokens, self._answers, len(read) * judge.votes)
        asked["asks"] = np.repeat(read, judge.votes)
        world.samples["asks"][read] = np.arange(r.start, r.stop, judge.votes)
        if self._stretches:
            self._drawn = np.concatenate([self._drawn, asked["target"]])
        self._check_fit(asked, np.repeat((judge.reads_share * tokens).astype(np.int64), judge.votes))

    def _serve(self, drawn: Groups, s: slice) -> None:
        """The seconds of rewards and tools of new samples; raises InputError for one that never fits."""
        world = self._world
        world.reward_s[s] = drawn.reward_latency_s
        calls = len(drawn.tool_latency_s)
        if calls:
            c = world.add_calls(calls)
            world.tool_s[c], world.tool_tokens[c] = drawn.tool_latency_s, drawn.tool_tokens
            samples = world.samples[s]
            samples["turns"] = drawn.turns
            samples["first_call"] = c.start + np.cumsum(drawn.turns - 1) - (drawn.turns - 1)
            if world.get("has_goals"):
                longer = samples["target"] / drawn.output_tokens  # than drawn, after an event
                world.goals[c] = np.rint(drawn.goals * np.repeat(longer, drawn.turns - 1))
        self._check_fit(world.samples[s])

    def evaluate(self, drawn: Groups) -> slice:
        """The requests of an evaluation are sent before all others. They share one row of the groups, and the system
        prompt: the rest of each prompt is its own. Returns their rows."""
        world, n = self._world, len(drawn)
        s = world.add_samples(n)
        samples, row = world.samples[s], world.groups[:1]
        samples["prompt"] = np.minimum(drawn.prompt_tokens, self._system)
        samples["extra"] = drawn.prompt_tokens - samples["prompt"]
        samples["target"], samples["group"] = drawn.output_tokens, 0
        if self._stretches:
            self._drawn = np.concatenate([self._drawn, drawn.output_tokens])
        self._serve(drawn, s)
        if self._judge is not None and self._judge.per == "sample":
            self._let_read(s, slice(0, 0))
        row["first"], row["size"], row["need"], row["scored"], row["dropped"] = s.start, n, n, 0, 0
        row["ready_s"] = -1.0
        waiting = world.get("n_requeued")
        world.requeue[waiting : waiting + n] = np.arange(s.stop - 1, s.start - 1, -1)  # the last is sent first
        world.bind()
        world.set(n_requeued=waiting + n)
        return s

    def evaluated(self) -> bool:
        """Whether the last evaluation has all its answers."""
        return bool(self._world.groups["ready_s"][0] >= 0)

    def stretch(self, factor: float, rows: NDArray[np.int64]) -> None:
        """Responses are so many times as long: those of `rows`, which are not sent yet, and all later ones."""
        self._factor = factor
        if len(rows) == 0:
            return
        samples = self._world.samples
        turns, before = samples["turns"][rows].astype(np.int64), samples["target"][rows]
        samples["target"][rows] = self._stretched(self._drawn[rows], turns)
        if self._world.get("has_goals"):
            calls = np.repeat(samples["first_call"][rows] - np.cumsum(turns - 1) + turns - 1, turns - 1)
            calls += np.arange(len(calls))
            longer = np.repeat(samples["target"][rows] / before, turns - 1)
            self._world.goals[calls] = np.rint(self._world.goals[calls] * longer)
        self._check_fit(samples[rows])

    def _stretched(self, drawn: NDArray[np.int32], turns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Tokens as the current factor makes them: whole ones, within the cap, one per turn at least."""
        tokens: NDArray[np.float64] = np.rint(drawn * self._factor)
        return tokens.clip(turns, np.maximum(self._longest, turns))

    def repeat(self, old: NDArray[np.int64]) -> None:
        """These groups start next. They are drawn as the first time, with only as many samples as are kept."""
        world, size = self._world, self.kept
        s, g = world.add_samples(len(old) * size), world.add_groups(len(old))
        groups, samples = world.groups[g], world.samples[s]
        rows = (world.groups["first"][old][:, None] + np.arange(size)).ravel()
        groups["first"] = np.arange(s.start, s.stop, size)
        groups["size"], groups["need"] = size, size
        groups["zero_variance"] = world.groups["zero_variance"][old]
        for name in ("prompt", "target", "turns", "first_call"):  # their calls are the same rows
            samples[name] = world.samples[name][rows]
        world.reward_s[s] = world.reward_s[rows]
        if self._stretches:
            self._drawn = np.concatenate([self._drawn, self._drawn[rows]])
        waiting = np.arange(int(world.get("next_group")), g.stop)
        self._let_read(s, g)
        world.groups[waiting] = world.groups[np.roll(waiting, len(old))]  # before groups that were drawn and not sent
        world.samples["group"][self.samples_of(waiting)] = np.repeat(waiting, world.groups["size"][waiting])
        world.bind()

    def samples_of(self, groups: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of all samples of these groups."""
        if not self.exact:  # all groups are of one size
            of_each: NDArray[np.int64] = self._world.groups["first"][groups][:, None] + self._siblings
            return of_each.ravel()
        first, size = self._world.groups["first"][groups], self._world.groups["size"][groups]
        ends = np.cumsum(size)
        within: NDArray[np.int64] = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - size, size)
        return np.repeat(first, size) + within

    def _check_fit(self, samples: Any, read: Any = 0) -> None:
        own = samples["prompt"] + samples["extra"] + read
        longest = int((own + samples["target"] + self._world.heard(samples)).max()) - 1
        need = self.limits.blocks_for(longest)
        holds = self._holds(self.limits.kv_blocks)
        if need > holds:
            raise InputError(
                [
                    Problem(
                        "engine.kv_blocks",
                        holds,
                        f"at least {need}, or a drawn sample of {longest + 1} tokens never fits",
                        "cap workload.output_tokens (max), raise engine.tp or gpu_memory_utilization",
                    )
                ]
            )


def _expected_groups(scenario: Scenario) -> int:
    """Groups that a run will need: one draw for all of them is cheaper than growing the tables again and again.

    What is trained, thrown away by filter and oversampling, and in flight at the end; at most two million samples. What
    may be ahead is counted up to as many steps as the run has: more is drawn if engines ever get there.
    """
    steps = min(most_steps(scenario), _OPEN_STEPS) if settles(scenario) else most_steps(scenario)
    ahead = 2 + min(steps_ahead(scenario), steps)
    groups = sent_samples(scenario) / scenario.workload.group_size * (steps + ahead)
    return max(64, math.ceil(min(groups, MOST_SAMPLES_AT_ONCE / scenario.workload.group_size)))

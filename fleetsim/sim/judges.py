"""The judges of a run: their engines in the kernel, what they are asked, and what that comes to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.judges import as_rollout, judges_of
from fleetsim.config.scenario import Scenario
from fleetsim.config.stations import ApiConfig, JudgeConfig
from fleetsim.engine.kernel import tables as t
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.prices import own_or_listed
from fleetsim.engine.state import World
from fleetsim.engine.step_time import LinearStepTime, StepTime
from fleetsim.errors import InputError, Problem
from fleetsim.records import replace
from fleetsim.sim.engines import engine_of, in_engine
from fleetsim.sim.records import JUDGE_COUNTS, JUDGE_STEP, Records
from fleetsim.sim.window import Growth, StepWindow, grown
from fleetsim.workload.lengths import sample_lengths
from fleetsim.workload.streams import stream

HOUR_S = 3600.0
_MILLION = 1e6
# Engines that compute for more than this share of the time always have something to do.
_FULL = 0.98
# An API is asked for more than this share of what its limits let it.
_AT_LIMIT = 0.95
# So much of what more engines could answer at most, full ones with what waits or runs there must answer.
_ANSWERED = 0.9
# An API takes as many prompt tokens at once as there are.
_API_TOKENS, _API_BLOCKS = 1 << 20, 1 << 40
Floats = NDArray[np.float64]


def judge_engine(scenario: Scenario, name: str, judge: JudgeConfig) -> tuple[StepTime, EngineLimits]:
    """Iteration times and limits of one of its engines. Raises InputError as `engine_of` does, with the judge's paths.

    An API is one engine whose iteration takes the time of a token, whatever is in it.
    """
    if judge.api is not None:
        return _api_engine(judge.api)
    seen = as_rollout(scenario, judge)
    try:
        return engine_of(seen, log_probs=False)
    except InputError as error:
        raise InputError([replace(p, path=f"stations.{name}.{p.path}") for p in in_engine(seen, error)]) from None


def _api_engine(api: ApiConfig) -> tuple[StepTime, EngineLimits]:
    return LinearStepTime(1.0 / api.tok_s), EngineLimits(api.concurrency, _API_TOKENS, _API_BLOCKS)


class JudgeFleet:
    """A judge's engines in the kernel, beside the fleet `home` whose rollouts they read.

    It holds a row for every sample (or group) of `home` that is drawn, and in it a request for each vote; its overflow
    (`beyond`) holds the same rows.
    """

    def __init__(
        self, scenario: Scenario, name: str, replication: int, home: World, engine: tuple[StepTime, EngineLimits]
    ) -> None:
        judge = judges_of(scenario)[name]
        self.name, self.judge, self._home = name, judge, home
        step_time, self._limits = engine
        self._holds = step_time.blocks_of_one(self._limits.kv_blocks)
        self._draw = stream(scenario.run.seed, replication, f"station {name}")
        self.world = World(
            step_time,
            self._limits,
            instances=1 if judge.api is not None else judge.instances,
            prefix_caching=judge.api is None and judge.engine.prefix_caching,
            system_tokens=judge.shared_prefix_tokens,
        )
        self.world.set(
            open_loop=1,
            asked_by=home.address,
            reads=int(t.OF_GROUPS if judge.per == "group" else t.OF_SAMPLES),
            reads_share=judge.reads_share,
            # its votes read the same
            routing=int(t.PREFIX_AFFINITY if judge.votes > 1 else t.LEAST_LOADED),
            imbalance=scenario.fleet.imbalance_limit,
            **_gate(judge.api),
        )
        self.beyond: World | None = None
        if judge.overflow is not None:
            self.beyond = World(*_api_engine(judge.overflow), instances=1)
            self.beyond.set(
                open_loop=1,
                asked_by=home.address,
                reads=int(t.OF_NOTHING),
                behind=self.world.address,
                cap=judge.overflow.concurrency,
                **_gate(judge.overflow),
            )
            self.world.set(
                beyond=self.beyond.address,
                after_s=judge.overflow.after_s,
                cap_instance=self._limits.max_num_seqs,
                line_head=-1,
            )

    @property
    def worlds(self) -> tuple[World, ...]:
        """Its engines, and before them the API of its overflow: where that has room, the line behind them moves."""
        return (self.world,) if self.beyond is None else (self.beyond, self.world)

    def follow(self) -> None:
        """Holds as many rows as there are samples, or groups. Raises InputError for one that never fits."""
        world, votes = self.world, self.judge.votes
        have = world.n_groups
        of_groups = self.judge.per == "group"
        n = (self._home.n_groups if of_groups else self._home.get("n_samples")) - have
        if n <= 0:
            return
        own = sample_lengths(self.judge.prompt_tokens, self._draw, n, at_least=self.judge.shared_prefix_tokens)
        answers = sample_lengths(self.judge.output_tokens, self._draw, n * votes)
        for at in self.worlds:
            s, g = at.add_samples(n * votes), at.add_groups(n)
            at.groups["first"][g] = np.arange(s.start, s.stop, votes)
            at.groups["size"][g] = at.groups["need"][g] = votes
            samples = at.samples[s]
            samples["group"] = np.repeat(np.arange(g.start, g.stop), votes)
            samples["prompt"] = np.repeat(own, votes)
            samples["target"] = answers
        self._check_fit(samples, self._read(have, of_groups))
        for at in self.worlds:
            at.bind()

    def _read(self, first: int, of_groups: bool) -> NDArray[np.int64]:
        """Tokens of the samples from `first` on, or of the groups, as they are when nothing cuts them."""
        groups = self._home.groups[first : self._home.n_groups]
        begin = int(groups["first"].min()) if of_groups else first  # what was drawn before is not looked at again
        samples = self._home.samples[begin : self._home.get("n_samples")]
        made = samples["target"] + self._home.heard(samples)
        if not of_groups:
            return np.asarray(samples["prompt"] + made)
        before, at = np.concatenate([[0], np.cumsum(made)]), groups["first"] - begin
        return np.asarray(samples["prompt"][at] + before[at + groups["size"]] - before[at])

    def _check_fit(self, samples: NDArray[np.void], read: NDArray[np.int64]) -> None:
        tokens = np.repeat((self.judge.reads_share * read).astype(np.int64), self.judge.votes)
        longest = int((samples["prompt"] + tokens + samples["target"]).max()) - 1
        need = self._limits.blocks_for(longest)
        if need > self._holds:
            rule = f"must be at least {need}, or what it reads, up to {longest + 1} tokens, never fits"
            remedy = f"raise its engine.tp, lower stations.{self.name}.reads_share, or cap workload.output_tokens (max)"
            raise InputError([Problem(f"stations.{self.name}.engine.kv_blocks", self._holds, rule, remedy)])

    def counts(self, ends: Floats) -> NDArray[np.void]:
        """Its totals at each of these times, rows of JUDGE_STEP: requests that waited, ran and were answered so far."""
        return self._counted(self.world, self.world.samples["status"] != t.GONE, ends)

    def counts_beyond(self, ends: Floats) -> NDArray[np.void]:
        """The same of those that went to its overflow."""
        assert self.beyond is not None
        return self._counted(self.beyond, self.world.samples["status"] == t.GONE, ends)

    def _counted(self, at: World, there: NDArray[np.bool_], ends: Floats) -> NDArray[np.void]:
        n = self.world.get("n_samples")
        came = self.world.groups["submit_s"][self.world.samples["group"][:n]]
        asked = (came >= 0) & there[:n]
        return _totals(at.samples[:n].compress(asked), came[asked], ends)


class HomeJudge:
    """A judge that asks the engines of the rollouts that it reads: its requests are rows of their table (`Draws`)."""

    def __init__(self, home: World) -> None:
        self.world = home
        self.worlds = (home,)

    def counts(self, ends: Floats) -> NDArray[np.void]:
        """As of `JudgeFleet`; no engine computes for it alone."""
        samples = self.world.samples[: self.world.get("n_samples")]
        asked = (self.world.groups["zero_variance"][samples["group"]] == t.ASKED) & (samples["status"] != t.GONE)
        rows = _totals(samples.compress(asked), self.world.reward_s[: len(samples)][asked], ends, extra=True)
        rows["busy_s"] = 0.0
        return rows


def _totals(samples: NDArray[np.void], came: Floats, ends: Floats, *, extra: bool = False) -> NDArray[np.void]:
    """Totals of requests at each of these times. came: when each was asked for. extra: their prompts are there."""
    start, finish = (np.where(samples[name] < 0, np.inf, samples[name]) for name in ("start_s", "finish_s"))
    began, over = _busy(samples["instance"], start, finish)
    rows = np.zeros(len(ends), JUDGE_STEP)
    rows["step"] = np.arange(len(ends))
    rows["waited_s"] = _until(came, ends) - _until(start, ends)
    rows["served_s"] = _until(start, ends) - _until(finish, ends)
    rows["busy_s"] = _until(began, ends) - _until(over, ends)
    rows["asked"] = _sums(came, np.ones(len(came)), ends)
    rows["answered"] = _sums(finish, np.ones(len(came)), ends)
    prompts = samples["prompt"] + samples["extra"] if extra else samples["prompt"]
    rows["prompt_tokens"] = _sums(came, prompts, ends)
    rows["output_tokens"] = _sums(finish, samples["target"], ends)
    return rows


def _gate(api: ApiConfig | None) -> dict[str, float]:
    """The limits on an API's rate, fields of the fleet row."""
    if api is None:
        return {}
    each = {"gate_request_s": api.requests_per_s, "gate_token_s": api.tokens_per_s}
    return {name: 1.0 / rate for name, rate in each.items() if rate is not None} | {"reach_s": api.first_token_s}


def _sums(times: Floats, values: Floats, ends: Floats) -> Floats:
    """The sum of the values whose times are not after each of the ends."""
    order = np.argsort(times, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(values[order])])
    return np.asarray(total[np.searchsorted(times[order], ends, side="right")])


def _until(times: Floats, ends: Floats) -> Floats:
    """Seconds since each of these times, all together, at each of the ends."""
    past = times[np.isfinite(times)]
    return ends * _sums(past, np.ones(len(past)), ends) - _sums(past, past, ends)


def _busy(instance: NDArray[np.int64], start: Floats, finish: Floats) -> tuple[Floats, Floats]:
    """When the instances began to compute and were through, each time: the requests on each one, laid together."""
    begins, ends = [np.zeros(0)], [np.zeros(0)]
    for i in np.unique(instance[np.isfinite(start)]):
        own = np.flatnonzero((instance == i) & np.isfinite(start))
        own = own[np.argsort(start[own], kind="stable")]
        latest = np.maximum.accumulate(finish[own])
        first = np.concatenate([[True], start[own][1:] > latest[:-1]])
        begins.append(start[own][first])
        ends.append(latest[np.append(first[1:], True)])
    return np.concatenate(begins), np.concatenate(ends)


def open_judges(scenario: Scenario, home: World, replication: int) -> list[JudgeFleet | HomeJudge]:
    """The judges of a run, made known to the kernel."""
    found = [
        HomeJudge(home)
        if judge.at == "rollout"
        else JudgeFleet(scenario, name, replication, home, judge_engine(scenario, name, judge))
        for name, judge in judges_of(scenario).items()
    ]
    first = 0
    for judge in reversed([judge for judge in found if isinstance(judge, JudgeFleet)]):
        for at in reversed(judge.worlds):
            at.set(next_judge=first)
            first = at.address
        home.followers.append(judge.follow)
    home.set(judges=first)
    return found


def judge_rows(judges: Sequence[JudgeFleet | HomeJudge], ends: Floats) -> NDArray[np.void]:
    """What the judges counted until each step's end: rows of JUDGE_STEP, judge after judge, and behind them those of
    their overflows."""
    for judge in judges:
        for world in judge.worlds:
            world.inspect()
    tables = [np.zeros(0, JUDGE_STEP), *(judge.counts(ends) for judge in judges)]
    tables += [judge.counts_beyond(ends) for judge in judges if isinstance(judge, JudgeFleet) and judge.beyond]
    for k, table in enumerate(tables[1:]):
        table["judge"] = k
    return np.concatenate(tables)


def judge_metrics(records: Records, window: StepWindow) -> dict[str, dict[str, float]]:
    """What each judge did in the window: mean requests that wait and that run, mean seconds of a request's wait, its
    engines' share of time at work (of its own ones), requests answered and US dollars, per step."""
    found: dict[str, dict[str, float]] = {}
    for (name, judge), at in zip(judges_of(records.scenario).items(), _grown(records, window), strict=True):
        of, beyond = at.all, judge.overflow
        row = {
            "waiting": of["waited_s"] / window.span_s,
            "in_service": of["served_s"] / window.span_s,
            "wait_s": of["waited_s"] / of["asked"] if of["asked"] else 0.0,
            "calls": of["answered"] / len(window.steps),
            "usd": _usd(records.scenario, judge, at, window.span_s) / len(window.steps),
        }
        if judge.has_engines:
            row["busy_fraction"] = at.own["busy_s"] / (judge.instances * window.span_s)
        if beyond is not None:
            row["overflow_share"] = at.beyond["answered"] / of["answered"] if of["answered"] else 0.0
            row["overflow_in_use"] = at.beyond["served_s"] / window.span_s
            row["overflow_usd"] = _api_usd(beyond, at.beyond) / len(window.steps)
        found[name] = row
    return found


def judging_s(records: Records, window: StepWindow) -> tuple[float, float, float, float]:
    """Seconds that a sample is with its judges, on average: with the slowest of samples, then with that of groups. Of
    these, seconds that it waits there, and seconds with a judge that asks the rollout's own engines; and how many of
    its requests are there."""
    each, here, held = {"sample": (0.0, 0.0), "group": (0.0, 0.0)}, 0.0, 0.0
    for judge, at in zip(judges_of(records.scenario).values(), _grown(records, window), strict=True):
        of = at.all
        if of["answered"]:
            spent = of["waited_s"] + of["served_s"]
            each[judge.per] = max(each[judge.per], (spent / of["answered"], of["waited_s"] / of["answered"]))
            if judge.at == "rollout":
                here, held = spent / of["answered"], spent / window.span_s
    return sum(each[of][0] for of in each), sum(each[of][1] for of in each), here, held


def judges_full(records: Records, window: StepWindow, more: float) -> bool:
    """Whether a judge sets the pace: an API is asked as much as its limits let it, or engines compute all the time and
    `more` times as many would answer as much more; and its overflow, too, where it has one."""
    scenario, span = records.scenario, window.span_s
    for (name, judge), at in zip(judges_of(scenario).items(), _grown(records, window), strict=True):
        if judge.api is not None:
            full = _at_limit(judge.api, at.own, span)
        else:
            full = at.own["busy_s"] > _FULL * judge.instances * span and min(at.own["asked"], at.own["answered"]) > 0
            full = full and (judge.overflow is None or _at_limit(judge.overflow, at.beyond, span))
            full = full and _answered(scenario, name, judge, at.own, span, more) - 1.0 > _ANSWERED * (more - 1.0)
        if full and judge.at != "rollout":
            return True
    return False


def _answered(
    scenario: Scenario, name: str, judge: JudgeConfig, of: dict[str, float], span_s: float, more: float
) -> float:
    """How many times as much `more` times as many engines would answer of the requests that wait and run there: they
    fill with what waits, and where they hold fewer each of those is faster."""
    step_time, _ = judge_engine(scenario, name, judge)
    running = of["served_s"] / (judge.instances * span_s)
    left = min(running, (of["served_s"] + of["waited_s"]) / (more * judge.instances * span_s))
    prompt, answer = of["prompt_tokens"] / of["asked"], of["output_tokens"] / of["answered"]
    prefills = 0.0 if step_time.prefill is not None else prompt / answer
    now_s, then_s = step_time.mixed_s(np.maximum(1.0, [running, left]), prompt + answer / 2.0, prefills, prompt / 2.0)
    return more * left / running * float(now_s / then_s)


def _at_limit(api: ApiConfig, of: dict[str, float], span_s: float) -> bool:
    """Whether an API is asked as much as one of its limits lets it."""
    used = (
        of["served_s"] / api.concurrency,
        of["answered"] / (api.requests_per_s or math.inf),
        (of["prompt_tokens"] + of["output_tokens"]) / (api.tokens_per_s or math.inf),
    )
    return max(used) > _AT_LIMIT * span_s


def judged_here(records: Records, window: StepWindow) -> float:
    """Tokens of answers in the window that the rollout's own engines made."""
    each = zip(judges_of(records.scenario).values(), _grown(records, window), strict=True)
    return sum(at.own["output_tokens"] for judge, at in each if judge.at == "rollout")


def judges_gpus(scenario: Scenario) -> int:
    """GPUs of all judges' own engines."""
    return sum(j.instances * j.engine.gpus for j in judges_of(scenario).values() if j.has_engines)


def beside_gpus(scenario: Scenario) -> int:
    """GPUs that are paid beside those of both pools: of judges, and of instances that only evaluate."""
    return judges_gpus(scenario) + scenario.evaluation.own_instances * scenario.engine.gpus


def judges_usd_per_h(scenario: Scenario) -> float:
    """What the judges' own engines cost in an hour."""
    return sum(_own_usd_per_h(scenario, judge) for judge in judges_of(scenario).values())


def _own_usd_per_h(scenario: Scenario, judge: JudgeConfig) -> float:
    if not judge.has_engines:
        return 0.0
    price = own_or_listed(judge.price_usd_per_gpu_h, judge.engine.gpu, scenario.cost)
    return judge.instances * judge.engine.gpus * price


def _usd(scenario: Scenario, judge: JudgeConfig, at: Growth, span_s: float) -> float:
    """What a judge cost in the window: its GPUs by the hour, an API's tokens, or both."""
    own = _own_usd_per_h(scenario, judge) * span_s / HOUR_S
    for api, of in ((judge.api, at.own), (judge.overflow, at.beyond)):
        own += 0.0 if api is None else _api_usd(api, of)
    return own


def _api_usd(api: ApiConfig, of: dict[str, float]) -> float:
    prompt = of["prompt_tokens"] * api.usd_per_million_prompt_tokens
    return (prompt + of["output_tokens"] * api.usd_per_million_output_tokens) / _MILLION


def _grown(records: Records, window: StepWindow) -> list[Growth]:
    """By how much each judge's totals grew in the window."""
    judges, rows = judges_of(records.scenario).values(), records.judges
    beyond = [n for n, judge in enumerate(judges) if judge.overflow is not None]

    def of(k: int) -> dict[str, float]:
        return grown(rows[rows["judge"] == k], JUDGE_COUNTS, window)

    none = dict.fromkeys(JUDGE_COUNTS, 0.0)
    return [Growth(of(n), of(len(judges) + beyond.index(n)) if n in beyond else none) for n in range(len(judges))]

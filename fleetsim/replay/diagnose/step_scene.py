"""`StepScene`: what the rules of levers look at; and why rollout takes so long, where it holds the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist

import numpy as np
from msgspec import Struct

from fleetsim import units
from fleetsim.config.workload import GROUP_CORRELATION
from fleetsim.distributions import halved
from fleetsim.history.history import Floats
from fleetsim.history.step_logs.steps import TRAINING
from fleetsim.replay.observe.account import FRESH
from fleetsim.replay.observe.observed import LengthHistogram
from fleetsim.replay.observe.phases import Account

GROUP = 8  # samples of a group where the log does not say, as most recipes have
POINTS = 100  # quantiles over which the longest of a group is averaged
UNEVEN = 1.3  # the longest sample's seconds / what its length alone would make them: an instance is slower than others
SWINGS, SWINGING = 2.0, 0.1  # deviation of the generation / that of the mean response, and the least that tells
TAIL = 3.0  # longest response / the length that a tenth exceed
LENGTHENS = 0.5  # of what a cut of the tail gives back: so much the longest response must add to a generation
OUTSIDE = 0.35  # of a sample's seconds: those that do not grow with its length
RUNS_OUT = 0.15  # of rollout's time, without work although the trainer waits
FEW = 0.5  # of a batch: fewer samples in flight, beside a trainer that waits for them, are held back before the engines
CAPPED = 0.9  # of the client's cap, in flight when the trainer takes a batch
# The share of an iteration's seconds that grows with what an engine holds: the median of the shipped profiles, with 16
# samples of 1,000 tokens, for the last of a batch are few.
FULLER = 0.15
THROWN = 0.1  # of a batch: samples thrown away beside it
READY = 0.5  # of the trainer's wait: beside a batch
AGAIN = 0.2  # preemptions a sample
OVERLAP = ("asynchronous", "one step off")
WORTH = 0.05  # of a step: what gives back less is no cause


class StepScene(Struct, frozen=True):
    """What the rules look at.

    ready: of the trainer's wait, the share beside a batch that stands ready. p90: length that a tenth exceed, tokens;
    length: of a share of the responses -> the length that no more of them exceed; None = the log has no law.
    """

    account: Account
    ready: float
    p90: float | None
    length: Callable[[float], float] | None = None

    @property
    def p95(self) -> float | None:
        """The length that one in twenty exceed, tokens."""
        return self.p90 if self.length is None else self.length(0.95)

    @property
    def group_max(self) -> float | None:
        """The mean of a group's longest, where the log says how many a group has."""
        if self.length is None or "group_size" not in self.means:
            return None
        return float(self.group_tokens.mean())

    @property
    def group_tokens(self) -> Floats:
        """(POINTS,) quantiles of the groups' longest; of a law alone."""
        assert self.length is not None
        each = 1.0 / max(1.0, self.means.get("group_size", GROUP))
        return np.array([self.length(((n + 0.5) / POINTS) ** each) for n in range(POINTS)])

    def left(self, group_s: Floats, wait_s: float) -> float:
        """Batches that are begun and not complete when the trainer takes one, after wait_s: groups begin when weights
        come, and of those begun k steps ago as many are left as take longer than k steps and the wait."""
        step_s = wait_s + self.step_s - self.now("wait_s")
        steps = np.arange(1 + int(group_s[-1] / max(step_s, 1e-9)))
        return float((group_s > wait_s + step_s * steps[:, None]).sum() / POINTS)

    @property
    def means(self) -> Mapping[str, float]:
        """Of the log's columns, as they are now."""
        return self.account.present

    @property
    def window(self) -> float:
        """Batches that may be on the way, with the one that the trainer has: of the log, else one and the versions of
        the weights that pass meanwhile, else one and those that are not complete yet, else one beside it."""
        m = self.means
        if {"window_cap_groups", "pull_groups"} <= set(m) and m["pull_groups"]:
            return max(1.0, m["window_cap_groups"] / m["pull_groups"])
        if (age := m.get("staleness_steps")) is not None:
            return 1.0 + age
        if "group_s_mean" in m and (longest := self.group_max):
            return 1.0 + self.left(self.group_tokens * (m["group_s_mean"] / longest), self.now("wait_s"))
        return 2.0 if self.account.mode == "asynchronous" else 1.0

    @property
    def held(self) -> float | None:
        """Mean seconds in which a group is made, until its longest sample is there; None where nothing times it."""
        m, longest = self.means, self.group_max
        mean_s, tokens = m.get("sample_s_mean"), m.get("length_mean")
        if "group_s_mean" in m or mean_s is None or not longest or not tokens:  # of unknown lengths a group may be all
            return m.get("group_s_mean", m.get("sample_s_max", mean_s))
        most = mean_s * longest / tokens
        if not self.has("sample_s_max", "length_max") or m["length_max"] <= tokens:
            return most
        # later tokens are faster: at least as a line to the longest sample has it; the geometric middle counts
        least = mean_s + (m["sample_s_max"] - mean_s) * (longest - tokens) / (m["length_max"] - tokens)
        return math.sqrt(most * min(most, max(mean_s, least)))

    @property
    def held_s(self) -> float:
        """Seconds of a step that samples in the making account for: by Little's law a window of so many batches holds
        each for as many steps, in the making and then while the trainer works."""
        return self.step_s - (self.step_s - self.now("wait_s")) / self.window

    def now(self, *columns: str) -> float:
        """Seconds that these phases take now."""
        return sum(map(self.account.now, columns))

    def each(self, column: str) -> float:
        """The same with what comes every few steps, spread over all: 0 where the log has none."""
        found = self.account.phase(column)
        return 0.0 if found is None else found.each

    def has(self, *columns: str) -> bool:
        """Whether the log has all of them."""
        return all(c in self.means for c in columns)

    @property
    def step_s(self) -> float:
        """Seconds of a step now."""
        return self.account.now_s

    @property
    def update_s(self) -> float:
        """Seconds of the update; where it has no timer, of all that the trainer computes."""
        return self.now("update_s") or self.now("train_s")

    @property
    def trainer_s(self) -> float:
        """Seconds of all that the trainer computes in a step."""
        return max(self.update_s, self.now(*TRAINING, "train_s"))

    @property
    def overlaps(self) -> bool:
        """Whether samples are generated beside the trainer, as far as the log says."""
        return self.account.mode in (*OVERLAP, "unknown")

    @property
    def rollout_binds(self) -> bool:
        """Whether the trainer waits for samples that are generated beside it: then its own seconds cost no step."""
        return self.overlaps and self.now("wait_s") >= WORTH * self.step_s


def scene_of(account: Account, lengths: LengthHistogram | None, ready: float) -> StepScene:
    """What the rules look at. ready: of the trainer's wait, beside a batch."""
    p90, law = (None, None) if lengths is None else (lengths.p90, lengths.law)
    if law is None:
        return StepScene(account, ready, p90)
    sigma = math.sqrt(math.log1p(law.cv**2))
    most = math.inf if law.cap is None else law.cap

    def length(quantile: float) -> float:
        return min(most, math.exp(math.log(law.mean) - sigma**2 / 2 + sigma * NormalDist().inv_cdf(quantile)))

    return StepScene(account, ready, p90, length)


def why_slow(scene: StepScene) -> tuple[str, str]:
    """Why rollout takes so long: the first of its causes that shows, from the narrowest to the widest."""
    m = scene.means
    fetched = f"{units.share(scene.ready, 0)} of the wait lies beside a whole batch that stands ready"
    batch, thrown, again = m.get("samples", 0.0), m.get("dropped_samples", 0.0), m.get("preemptions", 0.0)
    dropped = f"{thrown:,.0f} samples are thrown away as too old beside every {batch:,.0f} that are trained"
    preempted = f"a sample is thrown out of its engine's batch {again:.1f} times, for want of KV cache"
    active, window = m.get("rollout_active_s"), m.get("rollout_window_s")
    idle = m.get("rollout_idle", 0.0) if active is None or not window else 1.0 - active / window
    empty = f"rollout has nothing in flight for {units.share(idle, 0)} of the time, for it may not run further ahead"
    fresh = scene.account.mode == "asynchronous" and m.get("staleness_steps", 1.0) < FRESH
    if fresh:
        empty = "no sample is older than the trainer's weights: none is begun before they are there, so both take turns"
    flying, cap = m.get("in_flight_samples", 0.0), m.get("in_flight_cap_samples", math.inf)
    capped = f"the client holds {flying:,.0f} samples in flight, and its cap is {cap:,.0f}"
    for cause, shown in (
        ("ready samples fetched slowly", fetched if scene.ready >= READY else ""),
        ("stale samples dropped", dropped if batch and thrown >= THROWN * batch else ""),
        ("KV preemption", preempted if again >= AGAIN else ""),
        ("staleness window", empty if idle >= RUNS_OUT or fresh else ""),
        ("in-flight cap", capped if cap and flying >= CAPPED * cap - m.get("group_size", 1.0) else ""),
        ("judge or tool slow", _late(scene) if "tool_s_mean" in scene.means else ""),  # timed, and not inferred
        ("straggler", _straggles(scene)),
        # samples that wait for a place in an engine look like that, too: only a client far from its cap rules them out
        ("judge or tool slow", _late(scene) if "in_flight_cap_samples" in m else ""),
        ("long tail", _tail(scene)),
        ("in-flight cap", _few(scene)),
    ):
        if shown:
            return cause, shown
    ruled = "no cap, no drops, no long tail and no slow instance shows"
    if scene.account.mode == "asynchronous" and m.keys().isdisjoint(_TELLING):
        ruled = "whether a cap, drops, a judge or a slow instance hold it back the log does not say"
    if late := _late(scene):
        ruled = f"{ruled}; {late}"
    if scene.account.mode == "synchronous":
        return "rollout slow", f"the trainer waits until the whole batch is generated; {ruled}"
    return "rollout slow", f"the trainer waits for samples that rollout makes beside it; {ruled}"


def _work(scene: StepScene) -> tuple[float, float, float, float] | None:
    """Seconds of the mean and of the slowest piece of work, and their tokens; of samples, else of whole groups."""
    m = scene.means
    for unit, tokens in (("sample", m.get("length_mean")), ("group", scene.group_max)):
        if tokens and scene.has(f"{unit}_s_mean", f"{unit}_s_max", "length_max"):
            return max(1e-9, m[f"{unit}_s_mean"]), m[f"{unit}_s_max"], tokens, m["length_max"]
    return None


def unevenness(scene: StepScene) -> float:
    """How many times as long the longest work takes as its length makes it, beside the mean one; 0 where no log says.
    Of samples that begin together it is below 1 in an even fleet, for the last tokens are the fastest."""
    work = _work(scene)
    return 0.0 if work is None else work[1] / work[0] / (work[3] / work[2])


def _straggles(scene: StepScene) -> str:
    """One slow instance: its longest work takes longer than its length explains."""
    work = _work(scene)
    if work is None or unevenness(scene) < UNEVEN:
        return ""
    times = f"{work[1] / work[0]:.1f} times as long as the mean one, of {work[3] / work[2]:.1f} times the tokens"
    return f"the slowest takes {times}: an instance is slower than the others, or it was tried again"


def outside_share(scene: StepScene) -> float:
    """The share of a sample's seconds outside its generation: of a judge, a tool, a queue. Where the log does not time
    them, it is what does not grow with the length; 0 where samples begin together, for then the later tokens are
    faster."""
    m = scene.means
    if (tools := m.get("tool_s_mean")) is not None:
        # beside its own generation; else of all that a group, or a batch, took: at least that
        own = m.get("sample_s_mean")
        whole = m.get("group_s_mean", m.get("generate_s")) if own is None else tools + own
        if whole:
            return min(1.0, tools / whole)
    work = _work(scene)
    if scene.account.mode == "synchronous" or work is None or work[3] <= work[2]:
        return 0.0
    mean_s, most_s, mean, most = work
    return min(1.0, max(0.0, 1.0 - (most_s - mean_s) / (most - mean) * mean / mean_s))


# What shows why rollout is slow beside a trainer.
_TELLING = ("in_flight_samples", "in_flight_groups", "dropped_samples", "sample_s_mean", "group_s_mean")


def _batches_in_flight(scene: StepScene) -> float:
    """By Little's law, of groups that are taken a batch a step and that long in the making: the versions of the weights
    that pass meanwhile, where nothing times them; infinite where no log says that either. Engines that are too few have
    all in flight that the window allows, which is more than a batch."""
    m = scene.means
    held = m.get("group_s_mean", m.get("sample_s_mean"))
    batches = m.get("staleness_steps", math.inf) if held is None else held / scene.step_s
    return batches if scene.account.mode == "asynchronous" else math.inf


def _few(scene: StepScene) -> str:
    """A client that keeps few samples in flight."""
    share = _batches_in_flight(scene)
    said = f"only {units.share(min(share, FEW))} of a batch is in flight on average, and nothing else holds it back"
    return said if share < FEW else ""


def _late(scene: StepScene) -> str:
    share = outside_share(scene)
    said = (
        f"{units.share(share, 0)} of a sample's seconds lie outside its generation: a judge, a tool or a queue has them"
    )
    return said if share >= OUTSIDE else ""


def _tail(scene: StepScene) -> str:
    """The longest responses hold the batch. Beside a trainer that takes others first they hold nobody, so that only a
    window below one batch counts."""
    m = scene.means
    cap, pull = m.get("window_cap_groups"), m.get("pull_groups")
    ahead = m.get("staleness_steps", _batches_in_flight(scene))  # batches, or versions of the weights
    narrow = ahead < 0.9 if cap is None or pull is None else cap < 2.0 * pull
    given_back, beside = tail_s(scene), scene.account.mode == "asynchronous"
    if beside and (not narrow or (given_back is not None and given_back < WORTH * scene.step_s)):
        return ""
    if "length_max" not in m:  # the longest of a batch swings where the mean of all does not
        timer = "generate_s" if "generate_s" in m else "wait_s"
        seconds, tokens = (scene.account.scatter.get(name, 0.0) for name in (timer, "length_mean"))
        clear = not beside and seconds >= SWINGS * max(tokens, 0.5 * SWINGING)
        by, mean = units.share(seconds, 0), units.share(tokens, 0)
        swings = f"generation swings by {by} from step to step, the mean response by {mean}"
        said = f"{swings}: the longest of a batch decides, and the others wait for it"
        return said if clear and _longest_over_p90(tokens, m) >= TAIL else ""
    if scene.p90 is None or m["length_max"] < TAIL * scene.p90:
        return ""
    if scene.account.token_s is not None and scene.account.mode == "synchronous" and given_back:
        slope, error = scene.account.token_s
        if (slope + 2.0 * error) * (m["length_max"] - (scene.p95 or 0.0)) < LENGTHENS * given_back:
            return ""  # a generation takes no longer where its longest response does
    return (
        f"the longest response of a batch has {m['length_max']:,.0f} tokens, nine of ten fewer than {scene.p90:,.0f}: "
        "the others wait for it"
    )


def tail_s(scene: StepScene) -> float | None:
    """Seconds of a step that are had without the tail; None where the log does not say how long responses are.

    Of a batch that is waited for whole: those of cutting the one in twenty responses that are longest, for a generation
    takes as long as its longest response. Beside a trainer: those of a window one batch wider, in which the longest go
    on while others are trained.
    """
    m = scene.means
    if not scene.p95 or "length_max" not in m:
        return None
    beside = scene.account.mode == "asynchronous"
    if beside and scene.length is not None and scene.window > 1.0 + FRESH:
        return _wider_s(scene)
    whole = scene.held_s if beside else max(scene.now("wait_s"), m.get("generate_s", 0.0))
    return whole * max(0.0, 1.0 - scene.p95 / m["length_max"])


def _wider_s(scene: StepScene) -> float:
    """Seconds of the wait that go where a batch more may be on the way: the trainer takes a batch as soon as all but
    window - 1 batches of those that are begun are complete. How long a token takes makes that true of the wait as it
    is, and engines that hold more take longer."""
    wait, rest, tokens = scene.now("wait_s"), scene.step_s - scene.now("wait_s"), scene.group_tokens

    most = scene.step_s / tokens[0]
    _, token_s = halved(0.0, most, lambda x: scene.left(x * tokens, wait) <= scene.window - 1.0, 40)
    fuller = FULLER / (1.0 - FULLER)  # of a sample by Little's law: in flight for longer, of shorter steps

    def waits(x: float) -> bool:
        return scene.left(tokens * token_s * ((wait + rest) / (x + rest)) ** fuller, x) > scene.window

    return wait - halved(0.0, wait, waits, 40)[1]


def _longest_over_p90(scatter: float, means: Mapping[str, float]) -> float:
    """The longest of a batch / the length that a tenth exceed, of a lognormal law as wide as batches' means scatter;
    infinite where the log does not say how many samples a batch has."""
    samples = means.get("samples", 0.0)
    if samples < 2:
        return math.inf
    # siblings share a part of their variance: a mean of them scatters as one of fewer samples
    alone = samples / (1.0 + (means.get("group_size", GROUP) - 1.0) * GROUP_CORRELATION)
    sigma = math.sqrt(math.log1p(scatter**2 * alone))
    return math.exp(sigma * (NormalDist().inv_cdf(0.5 ** (1.0 / samples)) - NormalDist().inv_cdf(0.9)))

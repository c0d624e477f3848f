"""What would give seconds back: each lever is the job without one cause, and what its step would then be shorter by.

A lever's seconds come from the account itself and from what the phase would cost without its cause. The costs, with
their grounds:

- A pass forward is 2 floating-point operations a parameter and token, the update with its backward pass 6, and 8 where
  activations are computed again (Kaplan et al. 2020, "Scaling laws for neural language models", 2.1): so log-probs take
  a quarter to a third of the update beside them.
- A reward runs beside the generation where it is not waited for in the trainer's loop: it need not cost a step.
- Weights of 7 to 1,000 billion parameters were sent in 0.3 to 17 s (checkpoint-engine's README, verl's
  docs/advance/one_step_off.md, slime's and TRL's threads): their geometric middle counts where nothing else is known.
- Two sides that follow one another are in balance where neither takes much longer than the other; two that run side by
  side where neither waits. A side that binds gives back at most what the other leaves.
- Where a phase was cheaper earlier in the same run, that is what it would cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator

from msgspec import Struct

from fleetsim import units
from fleetsim.history.step_logs.frameworks import ANY_CURES, BY_NAME
from fleetsim.replay.diagnose.step_scene import WORTH, StepScene, outside_share, scene_of, tail_s, unevenness, why_slow
from fleetsim.replay.observe.account import AGAIN, FASTEST_S
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.phases import EVALUATES, UNEXPLAINED, Phase, plain

FORWARD, FORWARD_MOST = 1 / 4, 1 / 3  # of the update: one pass forward, with and without activations computed again
SYNC_LEAST_S, SYNC_MOST_S = 0.3, 17.0
SYNC_S = math.sqrt(SYNC_LEAST_S * SYNC_MOST_S)
SYNC_SHARE = 0.1  # of a step: weights that take less are sent as fast as a job needs them
BALANCE = 1.5  # one side's seconds / the other's, beyond which it binds
BESIDE = 1.25  # the same where both work at once: what the other side has ready beside it shows that it is ahead
BEHIND = 0.75  # of a batch: so much of the next stands ready when the trainer takes one, and rollout is ahead of it
HIDDEN = 0.2  # of a step: what is in no timer
EVEN = 0.8  # the longest sample's seconds / what its length makes them, of a batch begun together in an even fleet
GROWN = 0.7  # of a phase's growth: where the responses grew so much, the workload changed and not the phase


class StepLever(Struct, frozen=True):
    """A cause, and what its absence gives back.

    cause: a word of CAUSES. phase: where its seconds stand now; column: of the log. mean, low, high: seconds of a step.
    why: one sentence. since_step: None = throughout.
    """

    cause: str
    phase: str
    column: str
    mean: float
    low: float
    high: float
    why: str
    since_step: int | None = None


Rule = Callable[[StepScene], Iterator[StepLever]]


def levers_of(observed: Observed) -> tuple[StepLever, ...]:
    """What would give seconds back, the largest first; () where nothing is worth it."""
    if observed.account is None:
        return ()
    scene = scene_of(observed.account, observed.lengths, observed.trainer.ready_share or 0.0)
    found = [lever for rule in RULES for lever in rule(scene) if lever.mean >= WORTH * scene.step_s]
    found.sort(key=lambda lever: -lever.mean)
    seen: set[str] = set()
    kept = []
    for lever in found:  # a phase has one cause: the one that gives most
        if lever.column not in seen:
            kept.append(lever)
            seen.add(lever.column)
    return tuple(kept)


def _lever(
    scene: StepScene, cause: str, column: str, costs: tuple[float, float, float], why: str
) -> Iterator[StepLever]:
    """The lever that brings a phase to what it would cost (mean, least, most): what it took before in this run, where
    it was cheaper then."""
    found = scene.account.phase(column)
    if found is None:
        return
    course, since = found.course, None
    now = course.usual if column == "wait_s" else found.each  # what an evaluation makes it wait is another lever's
    before = max(0.0, course.before or 0.0) * (1.0 + max(0.0, _grew(found, cause)))  # of as much work as now
    if (
        _rose(scene, found, cause) and before - costs[0] >= course.usual - before
    ):  # most of it was there before: over the run its mean
        now = found.seconds - (found.each - course.usual if column == "wait_s" else 0.0)
    elif _rose(scene, found, cause):
        costs, since = (before, 0.9 * before, 1.1 * before), found.since_step
    error = 2.0 * course.spread / math.sqrt(max(1, scene.account.steps - (course.at or 0)))
    usual = now
    if course.kind == "rising":  # over the run its mean; at most what it takes at the end
        usual = 0.5 * (now + (course.before or 0.0))
        why = f"{why}; it rises from {plain(course.before or 0.0)} to {plain(now)} over the run"
    mean, least, most = max(0.0, usual - costs[0]), max(0.0, now - costs[1]), max(0.0, usual - costs[2])
    yield StepLever(cause, found.name, column, mean, max(0.0, most - error), least + error, why, since)


def _rose(scene: StepScene, phase: Phase, cause: str = "") -> bool:
    """Whether a phase takes more than it did, and not for longer or more responses alone."""
    before = phase.course.before
    if before is None or phase.course.excess < WORTH * scene.step_s:
        return False
    return _grew(phase, cause) < GROWN * phase.course.excess / max(before, 1e-9)


def _grew(phase: Phase, cause: str = "") -> float:
    """By which share the work of a phase grew with it. A longer longest response is work of a generation, but where it
    is what costs the seconds."""
    return max(phase.growth, phase.stretch if phase.column == "wait_s" and cause != "long tail" else 0.0)


def _passes(scene: StepScene) -> Iterator[tuple[str, str, float, float]]:
    """Of each pass of the trainer's models column and cause, and the seconds that it takes at least and at most."""
    for column, cause, least, most in (
        ("ref_s", "reference log-probs slow", 1, 1),
        ("logp_s", "log-probs slow", 1, 1),
        ("logps_s", "log-probs slow", 1, 2),
        ("experience_s", "experience slow", 1, 2 if scene.account.phase("values_s") is None else 4),
        ("values_s", "trainer slow", 4, 4),
    ):
        yield column, cause, least * FORWARD * scene.update_s, most * FORWARD_MOST * scene.update_s


def _forward(scene: StepScene) -> Iterator[StepLever]:
    """Log-probs that take longer than passes forward do; a critic that takes longer than one as large as the policy,
    which is asked forward and updated."""
    if scene.rollout_binds or scene.update_s <= 0:
        return
    update = scene.update_s
    for column, cause, one, allowed in _passes(scene):
        if scene.each(column) - allowed < WORTH * scene.step_s:
            continue
        why = (
            f"a pass forward takes a quarter to a third of the {update:.1f} s of the update beside it, and this phase "
            f"takes {scene.each(column) / update:.1f} times the update"
        )
        yield from _lever(scene, cause, column, (one, 0.0, allowed), why)


def _waited(scene: StepScene) -> Iterator[StepLever]:
    """A reward in the trainer's loop, and weights: both sides wait for them."""
    now = scene.each("reward_s")
    if not scene.rollout_binds and now >= WORTH * scene.step_s:
        why = "the trainer computes nothing while rewards are computed, and they can run beside the generation"
        yield from _lever(scene, "reward slow", "reward_s", (0.0, 0.0, 0.2 * now), why)
    sent = f"models of 7 to 1,000 billion parameters are sent in {SYNC_LEAST_S} to {SYNC_MOST_S:.0f} s"
    for column, cause in (("sync_s", "weight sync slow"), ("handover_s", "hand-over slow")):
        now = scene.each(column)
        if now >= SYNC_SHARE * scene.step_s and now > SYNC_S:
            costs = (SYNC_S, SYNC_LEAST_S, min(now, SYNC_MOST_S))
            yield from _lever(scene, cause, column, costs, f"neither side works meanwhile, and {sent}")


def _changes(scene: StepScene) -> Iterator[StepLever]:
    """A phase of the trainer that became slower within the run, the responses being as long as before."""
    if scene.rollout_binds:
        return
    for phase in scene.account.phases:
        if phase.column in ("update_s", "train_s", "values_s", "advantage_s", "other_s", UNEXPLAINED):
            if not _rose(scene, phase):
                continue
            how = "rose" if phase.since_step is None else f"rose at step {phase.since_step}"
            cause = "trainer slow" if phase.column in ("update_s", "train_s", "values_s") else "unexplained time"
            why = f"{phase.name} {how}, while the responses stayed as long as they were"
            yield from _lever(scene, cause, phase.column, (math.inf, math.inf, math.inf), why)  # what it took before


# Of a phase that takes far longer in some steps, what is slow then: it is done again where they have no rhythm.
_AGAIN = {
    **dict.fromkeys(AGAIN, "trainer slow"),
    **dict.fromkeys(("logp_s", "logps_s"), "log-probs slow"),
    "ref_s": "reference log-probs slow",
    "experience_s": "experience slow",
    "sync_s": "weight sync slow",
    "handover_s": "hand-over slow",
    "wait_s": "rollout slow",
}
_RHYTHM = {**dict.fromkeys((UNEXPLAINED, "between_s", "update_s"), "unexplained time"), "wait_s": "evaluation"}


def _now_and_then(scene: StepScene) -> Iterator[StepLever]:
    """A phase that takes far longer in some steps, as one that is tried again, or an evaluation that no timer has."""
    account = scene.account
    named = BY_NAME[account.framework].entries if account.framework in BY_NAME else ()
    timed = {"eval_s", "checkpoint_s"} <= {entry.column for entry in named}
    for phase in account.phases:
        seconds, rows, every = phase.beyond_usual, phase.course.again, phase.course.every
        # no evaluation and no checkpoint lies in it
        alone = not scene.overlaps if phase.column == "wait_s" else timed and _AGAIN.get(phase.column) == "trainer slow"
        if rows and not scene.rollout_binds:
            cause, apart, error = _AGAIN[phase.column], account.steps / rows, 2.0 / math.sqrt(rows)  # as many by chance
            ends = max(0.0, (1.0 - error) * seconds), (1.0 + error) * seconds
            when, what = f"in {rows} of {account.steps} steps", "it is done again, or held up"
        elif every and alone and not scene.rollout_binds and seconds >= WORTH * account.step_s:
            cause, apart, ends = _AGAIN[phase.column], every, (0.9 * seconds, seconds)
            when, what = f"every {every} steps", "evaluations and checkpoints have timers of their own"
        elif every and seconds >= EVALUATES * account.step_s and phase.column in _RHYTHM and not alone:
            cause, apart, ends = _RHYTHM[phase.column], every, (seconds / 2, seconds)
            when, what = f"every {every} steps", "an evaluation or a checkpoint does so"
        else:
            continue
        share = units.share(seconds / account.step_s, 0)
        why = f"{when} {phase.name} takes {plain(apart * seconds)} more than in the others, {share} of the time: {what}"
        yield StepLever(cause, phase.name, phase.column, seconds, *ends, why)


def _trainer(scene: StepScene) -> Iterator[StepLever]:
    """A trainer beside which rollout stands idle, or after which it takes a small part of the step."""
    column = "update_s" if scene.account.phase("update_s") else "train_s"
    pace = None if scene.account.estimated or scene.account.either or scene.rollout_binds else _pace(scene)
    if pace is None or scene.now(column) < pace.behind:
        return
    why = f"a batch is generated in {pace.usual:.1f} s, and the trainer holds the step for the rest"
    # of two that work at once the trainer comes down to that with all else that it computes
    rest = scene.trainer_s - scene.now(column) if scene.overlaps else 0.0
    costs = (max(0.0, pace.usual - rest), max(0.0, pace.least - rest), pace.behind)
    yield from _lever(scene, "trainer slow", column, costs, why)


class _Pace(Struct, frozen=True):
    """Seconds in which rollout makes a batch, as is likely and at least; and those beyond which a trainer is behind."""

    usual: float
    least: float
    behind: float


def _pace(scene: StepScene) -> _Pace | None:
    """How fast rollout makes a batch, where that shows: the generation; its time with work; beside a trainer that is
    behind, by Little's law; else by the run's first batch."""
    m, mode = scene.means, scene.account.mode
    timed = scene.now("wait_s") if mode == "synchronous" else m.get("generate_s") if mode == "one step off" else None
    batch, ready, held = m.get("samples"), m.get("queue_samples"), scene.held
    overlaps = mode not in ("synchronous", "one step off")
    if overlaps and held is not None and batch:
        # with as many in the making as now, or a batch; and with all that window and client allow
        cap = m.get("in_flight_cap_samples", math.inf)
        now, all_of = (min(max(batch, x), cap) for x in (m.get("in_flight_samples", batch), scene.window * batch))
        most = held * batch / max(1.0, now)
        if scene.window < 2.0:  # samples that are begun together are done with the longest
            longest = m.get("group_s_max", m.get("sample_s_max", math.inf))
            most = max(most, longest if longest <= scene.step_s else 0.0)
        # in the making or ready while so many versions came, and half a step less, wherever it was begun
        ahead = m.get("staleness_steps", 0.0) - 0.5 - most / scene.step_s if ready is None else ready / batch
        if ahead >= BEHIND:
            least = min(most, held * batch / max(1.0, all_of))
            return _Pace(math.sqrt(least * most), least, BESIDE * most)
        if ready is not None:
            return None
        timed = most
    if overlaps and "rollout_active_s" in m and m.get("rollout_window_s"):
        # by the mean of the same rows: an evaluation lies in a step and in a window
        timed = m["step_s"] * m["rollout_active_s"] / m["rollout_window_s"]
    if timed:
        return _Pace(timed, 0.9 * timed, (BESIDE if scene.overlaps else BALANCE) * timed)
    first, longest = m.get("first_batch_s", 0.0), m.get("length_max", m.get("length_mean", math.inf))
    if mode != "asynchronous" or first < FASTEST_S * longest:  # it came too soon to have been begun then
        return None
    # the trainer waited for it with nothing ready, while all that the window allows was in the making: no later one
    # takes longer, and none less than its share of those
    usual = first / math.sqrt(scene.window)
    return _Pace(usual, first / scene.window, BALANCE * usual)


def pace_words(observed: Observed) -> str:
    """What is said of a trainer that never waits, where the log does not time what rollout could do, and of a
    generation that may be a wait; "" elsewhere."""
    account = observed.account
    if account is None:
        return ""
    if account.either and account.mode == "synchronous" and account.now("wait_s") >= WORTH * account.now_s:
        waited = plain(account.now("wait_s"))
        return f": if the run is asynchronous, which its log does not say, the trainer waits {waited} for samples"
    if account.mode != "asynchronous" or account.either:
        return ""
    scene = scene_of(account, observed.lengths, 0.0)
    if scene.rollout_binds or scene.update_s <= 0 or scene.held is not None or "rollout_active_s" in scene.means:
        return ""
    most = plain(scene.update_s)
    return f": the trainer sets the pace, and a faster one saves at most {most}, as far as rollout, not timed, keeps up"


def _rollout(scene: StepScene) -> Iterator[StepLever]:
    """Generation that holds the step: which of its causes it is, and what the others leave."""
    wait = scene.now("wait_s")
    if scene.account.mode == "synchronous":
        other = scene.trainer_s
        if scene.update_s > 0:  # what is slow in the trainer is another lever's, and makes rollout no faster
            other -= sum(max(0.0, scene.now(column) - most) for column, _, _, most in _passes(scene))
        cause, why = why_slow(scene)
        uneven = cause == "straggler"  # costs its seconds also beside a trainer that takes as many
        generation = scene.account.phase("wait_s")
        rose = cause != "long tail" and generation is not None and _rose(scene, generation)
        if other <= 0 or (wait < BALANCE * other and not uneven and not rose):
            return
        if rose:
            why = f"generation rose, and the responses did not: fewer instances work, or they are slower; {why}"
        cost, least = other, BALANCE * other
        if cause == "KV preemption":  # each computes a sample again, as a pass forward does; room for more may give all
            again_s = scene.means["preemptions"] * (scene.each("logp_s") or FORWARD * scene.update_s)
            why = f"{why}; computing them again takes about {plain(again_s)}, the rest is that fewer fit at once"
            least = max(least, wait - again_s)
        if uneven:
            cost = min(other, EVEN * wait / unevenness(scene))
        if cause == "long tail":
            cost = cost if (given_back := tail_s(scene)) is None else max(0.0, wait - given_back)
        if scene.account.estimated:
            why, least = f"{why}; a trainer whose passes take longer with longer responses looks like that, too", wait
        costs = (cost, 0.5 * min(cost, other), max(cost, least))
    else:
        if not scene.rollout_binds:
            return
        cause, why = why_slow(scene)
        # of a generation beside a trainer that nobody times, nobody knows how much of it that hides
        saved = wait / 2.0 if scene.trainer_s <= 0 and scene.has("generate_s") else wait
        if cause == "judge or tool slow":
            whole, share = scene.held_s, outside_share(scene)
            if "sample_s_mean" not in scene.means:
                # a group ends with its slowest sample: its share lies between that and all (toy jobs: by a quarter)
                whole, share = scene.step_s, (3.0 * share + 1.0) / 4.0
            saved = whole * share
        elif cause == "long tail":
            saved = saved if (given_back := tail_s(scene)) is None else given_back
        elif cause == "straggler":
            saved = scene.held_s * (1.0 - EVEN / unevenness(scene))
        saved = min(wait, saved)
        costs = (wait - saved, 0.0, wait - 0.5 * saved)
    yield from _lever(scene, cause, "wait_s", costs, why)


def _beside(scene: StepScene) -> Iterator[StepLever]:
    """Evaluations and checkpoints that take a third of the time, and what no timer explains."""
    account = scene.account
    for column, cause in (("eval_s", "evaluation"), ("checkpoint_s", "checkpoints")):
        phase = account.phase(column)
        if phase is not None and phase.share >= EVALUATES:
            why = f"it takes {units.share(phase.share, 0)} of the run's time"
            yield StepLever(cause, phase.name, column, phase.seconds, phase.seconds / 2, phase.seconds, why)
    if scene.update_s <= 0:  # of a log that does not time the training, most is unexplained
        return
    for column, why in ((UNEXPLAINED, "no timer of the log has these seconds"), ("other_s", "")):
        hidden = scene.account.phase(column)
        if hidden is not None and hidden.course.usual >= HIDDEN * scene.step_s:
            now, timers = hidden.course.usual, why or f"neither side works meanwhile, but {hidden.metric} takes them"
            yield StepLever("unexplained time", hidden.name, column, now, 0.0, now, timers)


RULES: tuple[Rule, ...] = (_forward, _waited, _changes, _now_and_then, _rollout, _trainer, _beside)
CAUSES: Collection[str] = ANY_CURES.keys()
"""Every word that `diagnosis` of a log has for a cause: each has a cure."""

"""What binds: the one thing to change if the step should be shorter.

For each thing that can be changed the question is: by how much would the step become shorter with a fifth more of it
(or a fifth less, where less is better)? The critical path of the run answers it without another run. What has the
largest gain binds. `tests/analysis/test_binding.py` compares the answers with runs in which the change is made.
"""

from __future__ import annotations

import math
import statistics

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.law_numbers import law_of, sizes_of
from fleetsim.engine.kernel.tables import DONE
from fleetsim.policies.samples import BATCH_RULES, IN_FLIGHT
from fleetsim.records import replace
from fleetsim.sim.critical_path import SAME_S, CriticalPath, critical_path, places_of_groups, sent_s
from fleetsim.sim.judges import judges_full, judging_s
from fleetsim.sim.load import Mix, given_up_s, in_flight, mix_of, shared_with
from fleetsim.sim.records import Records
from fleetsim.sim.stations import saturated_s, stations_full, tools_s
from fleetsim.sim.thrown_away import between_syncs, thrown_sooner
from fleetsim.sim.time_limits import in_whole_rollouts, limits_of, needed
from fleetsim.sim.window import StepWindow, window_of
from fleetsim.workload.lengths import mean_length

Floats = NDArray[np.float64]

# Below this share of the cycle the trainer's waiting is not worth a GPU.
SMALL_WAIT = 0.03
# What is asked: a fifth more of each thing; of times and lengths, that much less.
MORE = 1.2
LESS = 1.0 - 1.0 / MORE
# A gain of this share of the largest is as good: the gains are estimates.
EQUAL = 0.9
# Moments of a sample's life at which the load is looked at.
_LOOKS = 8
# Samples that stand for all.
_SOME = 500


# What only waits for a station or a judge that sets the pace.
_FULLER = {"staleness_window", "in_flight_cap"}
_OF_TRAINER = {"trainer", "sync", "checkpoint", "evaluation"}
_AHEAD = {*_FULLER, "rollout", "longest_response"}
# What is read of the samples. The rest of a run is small, or not needed.
_READ = ("sent_s", "finish_s", "status", "target", "made", "prompt", "group")
# A run of more samples is answered at once: many of them would fill the memory, and beside them the answer takes no
# time.
_MOST_KEPT = 50_000


def binding_of(records: Records, window: StepWindow) -> str:
    """The name of the largest gain in `gains_of`; of equal ones the first, and the trainer last, for a faster one waits
    more."""
    gains = gains_of(records, window)
    most = max(gains.values())
    return next(name for name in sorted(gains, key="trainer".__eq__) if gains[name] >= most - (1.0 - EQUAL) * abs(most))


def gains_of(records: Records, window: StepWindow) -> dict[str, float]:
    """What a fifth more (or less) of each thing would save, as a share of the step.

    Only of things that the job has, and that may save more than the trainer's own seconds.

    trainer: its seconds, less. checkpoint, evaluation: seconds for which they hold it, less. sync: seconds of
    publications and pauses, less. environment: seconds of tools and rewards, less. judge: seconds of judges, teachers
    and references, less. rollout: instances, more. longest_response: the cap on responses, lower by a sixth than the
    longest one. in_flight_cap: samples or whole groups that the client keeps in flight, more. staleness_window: groups
    that admission lets be ahead of the trainer, more. Faster samples cannot save more than the time that the trainer
    waits for them.
    """
    span = window.span_s
    path = critical_path(records, window.start_s, window.end_s)
    waits = float(window.steps["wait_s"].sum())
    if records.scenario.fleet.placement == "colocated_lending":  # a trainer that need not wait lends nothing
        waits += float(window.steps["switch_s"].sum())
    own = {"trainer": path.train_s, **path.held_s, "sync": path.sync_s}
    saved = {name: LESS * seconds for name, seconds in own.items()}
    saved["trainer"] -= thrown_sooner(records, window, path, saved["trainer"])
    of_tools = tools_s(records, window)
    need = needed(records, of_tools[0])
    if waits > SMALL_WAIT * span and (first := _pacemaker(records, window)) is not None:
        # A fifth more of it serves a fifth more; what comes before it and after it only waits longer.
        saved = dict.fromkeys(saved.keys() | _AHEAD, 0.0) | {first: min(waits, LESS * span)}
    elif path.lives and waits + saved["sync"] > EQUAL * max(saved.values()):  # else nothing of them can promise more
        of_lives = _of_lives(records, window, path, of_tools, need)
        saved |= {name: min(waits, seconds) for name, seconds in of_lives.items()}
    saved["sync"] += saved.pop("pauses", 0.0)
    gains = {name: seconds / span for name, seconds in saved.items()}
    if not limits_of(records.scenario):
        return gains
    return in_whole_rollouts(records, window, path, need, gains, _of_need(records, window, of_tools[0], gains), MORE)


def _of_need(
    records: Records, window: StepWindow, of_tools: float, gains: dict[str, float]
) -> dict[str, Floats | float]:
    """What a fifth more of each thing makes of the time that a rollout needs, as a factor."""
    samples, sent, cap = records.samples, sent_s(records), max(1.0, longest_of_a_batch(records) / MORE)
    ended = np.flatnonzero((samples["finish_s"] > window.start_s) & (sent >= 0) & (samples["finish_s"] > sent))
    ended = ended[:: 1 + len(ended) // _SOME]
    if not len(ended):
        return {}
    lived = samples["finish_s"][ended] - sent[ended]
    at_engines = 1.0 - min(1.0, of_tools / float(lived.mean()))
    again, asked = _computed_again(records, window), judging_s(records, window)[3]
    shorter, slower = _paces(records, window, sent[ended], samples["finish_s"][ended], at_engines, again, asked)
    # more in flight; and where the trainer need not wait, what lets it take batches sooner has more sent meanwhile
    waits = float(window.steps["wait_s"].sum()) / window.span_s
    fuller = {name: (1.0 - waits) * gains[name] / LESS for name in _OF_TRAINER & gains.keys()}
    fuller |= dict.fromkeys(_FULLER & gains.keys(), 1.0)
    at_tools: dict[str, Floats | float] = {"environment": 1.0 - (1.0 - at_engines) * LESS} if of_tools > 0.0 else {}
    return at_tools | {
        "rollout": 1.0 - at_engines * float(shorter.mean()),
        "longest_response": np.minimum(1.0, cap / samples["target"].clip(1)),
        **{name: 1.0 + at_engines * float(slower.mean()) * share for name, share in fuller.items()},
    }


def _of_lives(
    records: Records, window: StepWindow, path: CriticalPath, of_tools_s: tuple[float, float, float], need: Floats
) -> dict[str, float]:
    """Seconds that a fifth of each thing would save on the lives that are waited for. need: as of `needed`."""
    scenario = records.scenario
    sent = np.array([life.sent_s for life in path.lives])
    end = np.array([life.end_s for life in path.lives])
    freed = np.array([life.freed for life in path.lives])
    paused = _paused(records, window, sent, end)
    (of_tools, waiting, in_time), (judging, at_judges, judged_here, asked) = of_tools_s, judging_s(records, window)
    at_engines_s = _made_s(records, of_tools)
    tools = np.zeros(len(sent))
    if at_engines_s is not None:
        which, lived = [life.sample for life in path.lives], records.samples["finish_s"] - sent_s(records)
        tools = ((end - sent) * (1.0 - at_engines_s[which] / lived[which].clip(SAME_S)) - paused).clip(0.0)
    making = end - sent - paused - tools
    reward, scored = mean_length(scenario.workload.reward.latency_s, at_least=0.0), [x.scored_s for x in path.lives]
    # The rollout's engines also make what a judge says that asks them.
    made = making + np.array(scored) * (judged_here / (judging + reward) if judged_here else 0.0)
    again, at_engines = _computed_again(records, window), float(making.sum() / max(SAME_S, (making + tools).sum()))
    shorter, slower = _paces(records, window, sent, end, at_engines, again, asked)
    # one that is cut takes as long until it would be done in time
    over = np.maximum(1.0, need)
    late = over[[life.sample for life in path.lives]]
    shorter, tools = 1.0 - np.minimum(1.0, late * (1.0 - shorter)), np.where(late > 1.0, 0.0, tools)
    law, fleet = law_of(scenario), scenario.fleet
    in_groups, by_engines = fleet.in_flight_unit == "groups", law.engines_limit
    # What the engines hold at most is their cap, where a law lets them be as full as they can be.
    holds = records.engine[1].max_num_seqs if by_engines else math.inf
    by_group, pool = np.array([life.whole for life in path.lives]), law.cap is not None and law.cap.frees == "groups"
    own_cap = law.cap.samples(scenario.admission) if law.cap is not None and not pool else None
    each = (fleet.max_in_flight_samples_per_instance or math.inf) < holds
    places = min(holds, fleet.max_in_flight_samples_per_instance or math.inf) * (fleet.instances + fleet.pooled)
    all_of_them = min(fleet.max_in_flight_samples or math.inf, own_cap or math.inf)
    most = all_of_them < places
    # A cap of each instance grows with the fleet: more of them make more at the same load.
    own = (each or by_engines) and all_of_them >= MORE * places
    full = in_groups and by_engines  # what waits for a sample, and not for a group, waits for an engine
    shorter = np.where(freed & ((own & ~(by_group & pool)) | (full & ~by_group)), (1.0 - again) * LESS, shorter)
    saved = dict[str, float]()
    # A group keeps its place until it has its rewards.
    held = end - sent + np.array([x.loop_s + (x.scored_s if places_of_groups(scenario) else 0.0) for x in path.lives])
    # More in flight shares the fleet among more of them: each takes longer, and a batch needs as many as before.
    # So do those that wait for a worker, or for a judge.
    queued, fuller = LESS * tools * (waiting / of_tools if of_tools else 0.0), made * slower / MORE
    queued += LESS * np.array(scored) * (at_judges / (judging + reward) if judging else 0.0)
    more = np.maximum(0.0, LESS * held - queued - fuller)
    capped = law.cap is not None or most or each
    if capped:
        # A place that any sample frees, and not only the last one of its group.
        by_sample = (law.cap is not None and law.cap.frees == "samples") or ((most or each) and not in_groups)
        saved["in_flight_cap"] = float(more[freed & (by_group | by_sample)].sum())
    ahead = law.groups_ahead(scenario.admission, sizes_of(scenario))
    if ahead is not None:
        by_window = _with_more_ahead(records, window, path, ahead, np.where(freed & capped, 0.0, more), fuller, queued)
        saved["staleness_window"] = float(by_window.sum())
    # Engines that hold a fifth more are faster by what that makes of each iteration, and work while they stood empty.
    busy, idle = window.total("busy_s"), window.total("idle_s")
    faster = 1.0 - (1.0 + float(np.average(slower, weights=end - sent))) / MORE
    most_s = (idle + busy * faster) / _engines(window)
    # Seconds in which a station serves no more, however many calls there are.
    full_s = min(saturated_s(records, window), float((end - sent).sum()) + path.scoring_s)
    saved = {name: min(seconds, most_s, window.span_s - full_s) for name, seconds in saved.items()}
    saved["pauses"] = LESS * float(paused.sum() + again * making.sum())
    saved["rollout"] = float((made * shorter).sum())
    if by_engines and own:  # more of them have more in flight when a sync throws it away
        saved["rollout"] = max(saved["rollout"], between_syncs(records, window, path, math.inf, MORE))
    cap = max(1.0, longest_of_a_batch(records) / MORE)
    by_life = float(_cut(records, path, cap, making, shorter, at_engines_s, over).sum())
    saved["longest_response"] = max(by_life, between_syncs(records, window, path, cap))
    judged = path.scoring_s * judging / (judging + reward) if judging > 0 else 0.0
    scoring = max(path.scoring_s - judged + in_time * float(tools.sum()), full_s)
    # seconds that were measured stand before those that are worked out
    measured = {"judge": LESS * judged, "environment": LESS * scoring}
    return {name: seconds for name, seconds in measured.items() if seconds > 0} | saved


def _pacemaker(records: Records, window: StepWindow) -> str | None:
    """The verdict about a station or a judge that never has nothing to do, where there is one."""
    if stations_full(records, window):
        return "environment"
    return "judge" if judges_full(records, window, MORE) else None


def _made_s(records: Records, of_tools: float) -> Floats | None:
    """Seconds of each sample at engines, by its tokens and the mean pace of all; None where nothing calls a tool.
    Samples that are waited for had the longest calls."""
    if of_tools <= 0.0:
        return None
    samples = records.samples
    done, lived, made = samples["status"] == DONE, samples["finish_s"] - sent_s(records), samples["made"]
    found: Floats = made * float((lived[done] - of_tools).clip(0.0).sum() / max(1, made[done].sum()))
    return np.minimum(found, lived.clip(0.0))


def _paused(records: Records, window: StepWindow, sent: Floats, end: Floats) -> Floats:
    """Seconds of each life in which its instance stood still for a sync."""
    sync = records.scenario.sync
    if not IN_FLIGHT[sync.in_flight].pauses:
        return np.zeros(len(sent))
    if sync.scope == "rolling":
        busy, paused = window.total("busy_s"), window.total("paused_s")
        return (end - sent) * paused / max(busy + paused, SAME_S)
    begin, over = records.syncs["pause_start_s"], records.syncs["end_s"]
    each = np.minimum(end[:, None], over[None, :]) - np.maximum(sent[:, None], begin[None, :])
    return np.asarray(each.clip(0.0).sum(axis=1))


def _computed_again(records: Records, window: StepWindow) -> float:
    """Share of an instance's busy time in which it computes again what syncs took from it."""
    if not IN_FLIGHT[records.scenario.sync.in_flight].recomputes:
        return 0.0
    running = window.steps["running"] / np.maximum(1, window.steps["instances"])
    all_s, without_s = (_mix(records, window, again).iteration_s(running).sum() for again in (True, False))
    return float(1.0 - without_s / all_s) if all_s > 0 else 0.0


def _mix(records: Records, window: StepWindow, again: bool) -> Mix:
    """The mix of the run. again: with what was computed again."""
    generated, prefilled = window.total("generated_tokens"), window.total("prefilled_tokens")
    return mix_of(records, generated, prefilled if again else prefilled - window.total("recomputed_tokens"))


def _engines(window: StepWindow) -> float:
    """Instances that serve, in the mean."""
    return max(1.0, float(window.steps["instances"].mean()))


def _paces(
    records: Records, window: StepWindow, sent: Floats, end: Floats, at_engines: float, again: float, asked: float
) -> tuple[Floats, Floats]:
    """How much shorter a life is with a fifth more instances, and how much longer with a fifth more in flight; as
    shares. at_engines: share of a life that is not spent at tools. again: as of `_computed_again`; a sync takes as much
    of an instance's time as requests run there, however many instances there are. asked: requests of a judge there.

    The load is looked at several times in a life. Samples that must be placed together cannot be divided: where an
    instance would stay empty, the others do not become faster.
    """
    mix = _mix(records, window, again=not again)
    samples, groups, fleet = records.samples, records.groups, records.scenario.fleet
    at = sent[:, None] + (end - sent)[:, None] * ((np.arange(_LOOKS) + 0.5) / _LOOKS)
    was_sent, finished = sent_s(records), np.maximum(samples["finish_s"], given_up_s(records))
    n = np.maximum(1.0, in_flight(np.where(was_sent < 0, np.inf, was_sent), finished, at)) + asked
    units = n
    if fleet.group_placement == "together" and records.scenario.workload.group_size > 1:
        last = np.maximum.reduceat(np.where(finished < 0, np.inf, finished), groups["first"])
        units = np.minimum(n, np.maximum(1.0, in_flight(groups["submit_s"], last, at)))
    size, instances = at_engines * n / units, _engines(window)
    cases = (1.0, instances), (1.0, MORE * instances), (MORE, instances)
    loads = [np.maximum(1.0, size * shared_with(held * units, engines)) for held, engines in cases]
    running = [np.minimum(load, mix.seqs) for load in loads]
    # Seconds from one token of a sample to its next, those included in which it waits for others that run.
    now, *others = (mix.iteration_s(b) * load / b for b, load in zip(running, loads, strict=True))
    # How many times as long a life then takes.
    more, fuller = (
        np.where(now > 0.0, (1.0 - again) * s / now.clip(SAME_S) + again * held * b / running[0], 1.0)
        for (held, _), s, b in zip(cases[1:], others, running[1:], strict=True)
    )
    shorter, slower = (1.0 - more).clip(0.0, LESS), (fuller - 1.0).clip(0.0, MORE - 1.0)
    return np.asarray(shorter.mean(axis=1)), np.asarray(slower.mean(axis=1))


def _cut(
    records: Records,
    path: CriticalPath,
    cap: float,
    making: Floats,
    shorter: Floats,
    at_engines_s: Floats | None,
    over: Floats,
) -> Floats:
    """Seconds that would be saved on each life, if no response were longer than a cap.

    A wait that ended when enough groups were complete would end when as many groups, cut in this way, are complete. A
    batch that waits for certain groups, a drain, and a place that a group holds wait for the longest response of their
    own. Where one sample frees the place of the next, shorter samples are less work.
    """
    samples, groups, buffer = records.samples, records.groups, records.scenario.buffer
    tokens, finish = samples["target"].astype(np.float64), np.where(samples["status"] == DONE, samples["finish_s"], -1)
    lived = np.maximum(0.0, finish - sent_s(records))
    cut = (1.0 - np.minimum(1.0, over * cap / np.maximum(cap, tokens))) * (
        lived if at_engines_s is None else np.minimum(lived, at_engines_s)
    )
    first = groups["first"]
    sooner = np.maximum.reduceat(finish, first) - np.maximum.reduceat(finish - cut, first)
    ready = np.sort(path.ready_s - sooner[path.groups])
    certain = BATCH_RULES[buffer.batch_rule].reserved or buffer.wait_for_oldest
    made = samples["made"].astype(np.float64)  # what is given up is no work beyond that
    work = (1.0 - float(np.minimum(made, cap).sum() / max(1.0, made.sum()))) * making * shorter / LESS
    own = np.zeros(len(path.lives))
    for k, life in enumerate(path.lives):
        then = path.lives[k - 1] if k and life.ready < 0 else None  # what could be sent as this one ended
        if life.ready >= 0 and not certain:
            own[k] = path.ready_s[life.ready] - ready[life.ready]
        elif life.ready >= 0 or life.replaced or (then is not None and then.whole):
            own[k] = sooner[samples["group"][life.sample]]
        elif then is None or not then.freed:
            own[k] = cut[life.sample]
    if records.scenario.fleet.placement == "colocated":  # of a life that began before the wait, what was made in it
        own *= np.minimum(1.0, [(x.end_s - x.sent_s) / max(SAME_S, lived[x.sample]) for x in path.lives])
    found: Floats = np.maximum(own, work)
    return found


def longest_of_a_batch(records: Records) -> float:
    """Tokens of the longest response that a step trains, median over the steps."""
    groups, samples = records.groups, records.samples
    held = (samples["status"] == DONE) | bool(limits_of(records.scenario))
    longest = np.maximum.reduceat(np.where(held, samples["target"], 0), groups["first"])
    trained = groups["trained_step"] >= 0
    each = np.zeros(int(groups["trained_step"].max()) + 1)
    np.maximum.at(each, groups["trained_step"][trained], longest[trained])
    return statistics.median(each.tolist())


def _with_more_ahead(
    records: Records,
    window: StepWindow,
    path: CriticalPath,
    ahead: float,
    more: Floats,
    fuller_s: Floats,
    queued_s: Floats,
) -> Floats:
    """Seconds that would be saved on each life that the trainer let begin, if a fifth more groups might be ahead.

    Groups would begin earlier, and in time as many more of them would be complete: the batch would have been complete
    when there were that many fewer. They are more work (fuller_s), unless instances have time to spare, and more calls
    that wait (queued_s). A life that ended no wait itself saves what a larger cap on what is in flight would save it
    (`more`). Under a cap a batch's lives begin with one that the trainer let begin, and would go on while it works, but
    not on shared GPUs. There, what a sync throws away halves the gain, and a drain makes a batch for each step.
    """
    law, sizes = law_of(records.scenario), sizes_of(records.scenario)
    unit = sizes.version if law.reserves_steps else 1  # whole groups start, or those of whole steps
    fewer = max(unit, math.floor((MORE - 1.0) * ahead / unit + 1e-9) * unit)
    less, reach = fewer / (ahead + fewer), 1.0 if law.reserves_steps else 1.5
    share = math.log(MORE) / -math.log1p(-less)  # of what so many bring, a fifth
    begun = sum(not life.freed for life in path.lives)
    spare = window.total("idle_s") / _engines(window) / max(1, begun)
    scenario = records.scenario
    drains = IN_FLIGHT[scenario.sync.in_flight].drains and scenario.sync.scope == "global"
    shared = scenario.fleet.placement == "colocated"
    discards = IN_FLIGHT[scenario.sync.in_flight].discards and scenario.sync.scope == "global"
    weight = share * (0.5 if shared and IN_FLIGHT[scenario.sync.in_flight].discards else 1.0)
    saved, first = more.copy(), None
    for k, life in enumerate(path.lives):
        if life is first:
            saved[k] = 0.0  # its chain is counted where it ended
            continue
        if life.ready < 0 or (life.freed and more[k]):
            # a drain waits for whatever is in flight; and what a group replaced counts where the last of them is ready
            saved[k] = 0.0 if not life.freed and (drains or life.replaced) else more[k]
            continue
        ready, first = float(path.ready_s[life.ready]), life
        for before in path.lives[k + 1 :]:
            if not (first.freed or before.replaced) or before.ready >= 0:
                break
            first = before
        if first.freed or (shared and (life.freed or drains)) or (life.freed and discards):
            saved[k] = 0.0  # the trainer let none of them begin, or stops or throws away what begins while it works
            continue
        earlier = ready - max(first.sent_s, float(path.ready_s[max(0, life.ready - fewer)]))
        in_loop = life.freed or (drains and first is life)
        most = first.loop_s if in_loop else reach * less * (ready - first.sent_s + first.loop_s)
        # a cap keeps the load as it is
        longer_s = 0.0 if life.freed else max(0.0, fuller_s[k] - spare) + queued_s[k]
        saved[k] = max(0.0, weight * min(earlier, most) - longer_s)
    return saved


class BindingVerdict:
    """`binding_of` a run, as text. The run is kept until then, without what is not read for it."""

    __slots__ = ("_known", "_run")

    def __init__(self, records: Records, window: StepWindow) -> None:
        self._known: str | None = None
        self._run: Records | None = None
        # Where the trainer never waits, no sample is looked at.
        if len(records.samples) > _MOST_KEPT or not window.steps["wait_s"].any():
            self._known = binding_of(records, window)
        else:
            self._run = replace(
                records, samples=_columns(records), groups=records.groups.take(np.arange(len(records.groups)))
            )

    def __str__(self) -> str:
        run = self._run
        if run is not None:
            self._known, self._run = binding_of(run, window_of(run)), None
        return str(self._known)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BindingVerdict | str) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def _columns(records: Records) -> NDArray[np.void]:
    """The columns of the samples that are read, of memory of their own."""
    samples = records.samples
    # aligned: numpy writes numbers that lie across words three times as slowly
    kept = np.empty(len(samples), np.dtype([(name, samples.dtype[name]) for name in _READ], align=True))
    for name in _READ:
        kept[name] = samples[name]
    return kept

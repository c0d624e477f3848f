"""Metrics of one run: pure functions of its records, over the window that is left after warm-up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.scenario import has_spot
from fleetsim.engine.kernel.tables import DONE, G_ABORTED, G_FILTERED, G_OVERFLOW, G_STALE, G_TRAINED
from fleetsim.engine.prices import prices_of
from fleetsim.errors import InputError, Problem, StuckError
from fleetsim.policies.samples import AGE_ACTIONS
from fleetsim.quantities import CACHE_HIT, EVALUATION_S, HOST_HIT, PREFILL_BUSY, WHOLE
from fleetsim.sim.binding import binding_of
from fleetsim.sim.fleet_settings import lent_instances, paces
from fleetsim.sim.judges import judge_metrics, judged_here, judges_gpus
from fleetsim.sim.load import mix_of
from fleetsim.sim.pools import mean_kv_blocks
from fleetsim.sim.records import NOT_TRAINING, Records
from fleetsim.sim.spot import spot_metrics
from fleetsim.sim.stations import loses_rollouts, station_metrics, station_usd
from fleetsim.sim.window import StepWindow, window_of

DAY_S = 86_400.0


def metrics_of(records: Records) -> dict[str, Any]:
    """All metrics of one run: its numbers, and `binding`, see `binding_of`. Raises InputError as `numbers_of`."""
    window = window_of(records)
    return {**numbers_of(records, window), "binding": binding_of(records, window)}


def numbers_of(records: Records, window: StepWindow | None = None) -> dict[str, Any]:
    """The numbers of one run, over its window if given.

    step_s: window / steps. trainer_idle_fraction: sample-wait / window, the wait for a drain included. sync_fraction:
    trainer held by sync / window. switch_fraction: GPUs changing hands / window. checkpoint_fraction,
    evaluation_fraction: trainer held by them / window. not_training_fraction: all of these, which is all that the
    trainer does not compute. evaluation_s: mean seconds of one, held or not, of those that began. lent_fraction: the
    trainer's GPUs serve rollout / window (the trainer waits meanwhile, its GPUs do not).
    rollout_idle_fraction: idle / (busy + idle + paused + down) instance-seconds. rollout_utilization: see
    `utilization`. queue_depth: mean samples in the buffer over time. oldest_sample_age_steps: mean over steps, when the
    batch is taken.
    staleness_steps: of trained samples, step - updates contained in the weights at submission.
    tokens_per_trained_token: generated / trained output tokens. waste: output tokens thrown away by cause (stale,
    filtered, aborted, lost) and tokens computed again (recomputed), per trained output token.
    generated_tok_s: output tokens per second, whole fleet. instance_tok_s: the same per instance that is up.
    completions_per_s: samples whose generation is complete, per second, whole fleet. iterations_per_day: optimizer
    steps in 24 hours.
    goodput: trained output tokens per GPU-second of both pools and judges. cost_per_step: US dollars. preemptions: per
    step. kv_use: mean share of KV blocks in use on an instance that computes. trained_length_bias: mean length of
    trained samples / mean length of all samples sent in the window (below 1: long samples are lost). samples_lost:
    share of the samples that were generated for nothing, see `_samples_lost`. prefill_busy_fraction: of disaggregated
    fleets. cache_hit, host_hit: where the host keeps copies of KV blocks.
    stations: name -> see `station_metrics` and `judge_metrics`. spot: see `spot_metrics`. whole_share: see `_whole`.
    Raises InputError for a run that took no time, StuckError for one that learned nothing.
    """
    window = window or window_of(records)
    steps = window.steps
    n, span = len(steps), window.span_s
    if not span > 0:
        remedy = "give trainer.fixed_s, or an engine whose iterations take time"
        raise InputError([Problem("run", f"{span:g} s", "takes no time, so it has no rates", remedy)])
    masked = masked_in(records, window)
    cut = records.samples[records.samples["masked"] == 1]  # by a station or a time limit
    lost = float(cut["made"][_trained_in(records, window)[cut["group"]]].sum()) if len(cut) else 0.0
    trained = float(steps["output_tokens"].sum()) - float(_of_samples(records, "made", masked).sum()) - lost
    if (too_old := masked.any() and not _trained_in(records, window).any()) or (lost and not trained > 0):
        path = "admission.max_age" if too_old else "stations"  # no count that a search may choose
        remedy = "raise it" if too_old else "raise the time-out of lost: masked"
        raise StuckError("the trainer learns nothing", [Problem(path, None, "every sample is masked", remedy)])
    busy, paused, idle, down = (window.total(f"{name}_s") for name in ("busy", "paused", "idle", "down"))
    instance_s = busy + paused + idle + down
    generated = window.total("generated_tokens") - window.total("evaluation_tokens") - judged_here(records, window)
    gpu_s = gpu_seconds(records, window)
    waste = _waste(records, window, trained, lost)
    judges = judge_metrics(records, window)
    stations = (station_metrics(records, window) if len(records.stations) else {}) | judges
    return {
        "step_s": window.step_s,
        "trainer_idle_fraction": float(steps["wait_s"].sum()) / span,
        "rollout_idle_fraction": idle / instance_s,
        "rollout_utilization": utilization(records, window),
        "sync_fraction": float(steps["sync_block_s"].sum()) / span,
        **{f"{of}_fraction": float(steps[f"{of}_s"].sum()) / span for of in ("switch", "checkpoint", "evaluation")},
        "not_training_fraction": sum(float(steps[name].sum()) for name in NOT_TRAINING) / span,
        "lent_fraction": _lent(records, window),
        "queue_depth": _mean_queue(records, window),
        "queue_growth": _queue_growth(window),
        "oldest_sample_age_steps": float(steps["oldest_age_steps"].mean()),
        "staleness_steps": _staleness(records, window),
        "tokens_per_trained_token": generated / trained,
        "waste": waste,
        "generated_tok_s": generated / span,
        "completions_per_s": _completed(records, window) / span,
        "iterations_per_day": n / span * DAY_S,
        "instance_tok_s": window.total("generated_tokens") / (busy + paused + idle) if instance_s > down else 0.0,
        "goodput": trained / (sum(gpu_s.values()) + span * judges_gpus(records.scenario)),
        "cost_per_step": (cost_usd(records, window, gpu_s) + station_usd(records, window)) / n
        + sum(judge["usd"] for judge in judges.values()),
        "preemptions": window.total("preemptions") / n,
        "kv_use": window.total("block_s") / (busy * mean_kv_blocks(records)) if busy > 0 else 0.0,
        "trained_length_bias": _length_bias(records, window),
        "samples_lost": _samples_lost(records, window),
        **_whole(records, window),
        **_of_prefill(records, window),
        **_of_host(records, window),
        **_of_evaluations(records, window),
        **({"spot": spot_metrics(records, window)} if has_spot(records.scenario) else {}),
        **({"stations": stations} if stations else {}),
    }


def utilization(records: Records, window: StepWindow) -> float:
    """Tokens generated / what the instances of the window would have generated full: see `Mix.saturated_tok_s`.

    An instance that computes for one sample is not idle, and makes a small part of what it could. At most 1.
    """
    scenario = records.scenario
    generated = window.total("generated_tokens")
    slow = paces(scenario)
    speed = sum(1.0 / factor for factor in slow) / len(slow)
    full = mix_of(records, generated, window.total("prefilled_tokens")).saturated_tok_s * speed
    instance_s = sum(window.total(f"{name}_s") for name in ("busy", "paused", "idle", "down"))
    return min(1.0, generated / (full * instance_s)) if full * instance_s > 0 else 0.0


def _completed(records: Records, window: StepWindow) -> int:
    """Samples whose generation ended in the window, by themselves or at the cap; also those that are then dropped."""
    finish_s = records.samples["finish_s"]
    return int(np.count_nonzero((finish_s > window.start_s) & (finish_s <= window.end_s)))


def _queue_growth(window: StepWindow) -> float:
    """Samples by which the buffer, and what waits before it, grow from step to step."""
    held = (window.steps["queue_depth"] + window.steps["blocked"]).astype(np.float64)
    return float(held[-1] - held[0]) / (len(held) - 1) if len(held) > 1 else 0.0


def _of_prefill(records: Records, window: StepWindow) -> dict[str, float]:
    """How busy the engines are that compute prompts for others, where there are any."""
    side = records.engine[0].prefill
    if side is None:
        return {}
    up = sum(window.total(f"{name}_s") for name in ("busy", "paused", "idle"))
    return {PREFILL_BUSY.name: window.total("prefill_busy_s") / (side.engines * up) if up > 0 else 0.0}


def _of_host(records: Records, window: StepWindow) -> dict[str, float]:
    """What comes back from the host, where it keeps copies of KV blocks."""
    if not records.scenario.engine.offloads:
        return {}
    found, computed = window.total("hit_tokens"), window.total("prefilled_tokens")
    host = window.total("host_tokens")
    asked = max(1.0, found + computed)
    return {CACHE_HIT.name: (found - host) / asked, HOST_HIT.name: host / asked}


def _of_evaluations(records: Records, window: StepWindow) -> dict[str, float]:
    """What one takes, where there are any."""
    if records.scenario.evaluation.every_steps is None:
        return {}
    found = records.evaluations[records.evaluations["begin_s"] >= window.start_s]
    return {EVALUATION_S.name: float((found["end_s"] - found["begin_s"]).mean()) if len(found) else 0.0}


def _lent(records: Records, window: StepWindow) -> float:
    lent = lent_instances(records.scenario)
    return window.total("lent_s") / (lent * window.span_s) if lent else 0.0


def gpu_seconds(records: Records, window: StepWindow) -> dict[str, float]:
    """GPU-seconds paid for in the window: rollout = instance-seconds x TP, those on spot machines apart (spot), and
    those of the other pools (pools), trainer = its GPUs x window, evaluation = instances of its own x TP x window.

    Colocated pools are the same GPUs: they are counted once, as rollout, and the trainer adds what it has more. GPUs
    that the trainer lends are its own.
    """
    scenario, fleet = records.scenario, records.scenario.fleet
    instance_s = sum(window.total(f"{name}_s") for name in ("busy", "paused", "idle", "down"))
    rollout = (instance_s - window.total("lent_s") - window.total("pools_s")) * scenario.engine.gpus
    trainer = scenario.trainer.gpus * window.span_s
    if fleet.placement == "colocated":
        trainer = max(0.0, trainer - rollout)
    evaluation = scenario.evaluation.own_instances * scenario.engine.gpus * window.span_s
    spot = window.total("spot_s") * scenario.engine.gpus
    pools = window.total("pools_gpu_s")
    return {"rollout": rollout - spot, "spot": spot, "pools": pools, "trainer": trainer, "evaluation": evaluation}


def cost_usd(records: Records, window: StepWindow, gpu_s: dict[str, float]) -> float:
    """US dollars for so many GPU-seconds of the window; instances that only evaluate cost what rollout costs."""
    prices = prices_of(records.scenario)
    rollout = gpu_s["rollout"] + gpu_s["evaluation"]
    own = rollout * prices.rollout + gpu_s["spot"] * prices.spot + gpu_s["trainer"] * prices.trainer
    return own / 3600.0 + window.total("pools_usd")


def _of_samples(records: Records, column: str, groups: NDArray[np.bool_]) -> NDArray[Any]:
    """One column of the samples whose group is selected."""
    return np.asarray(records.samples[column][groups[records.samples["group"]]])


def _taken_in(records: Records, window: StepWindow) -> NDArray[np.bool_]:
    """Groups that the trainer took in the window."""
    groups = records.groups
    return np.asarray((groups["status"] == G_TRAINED) & (groups["trained_step"] >= window.first))


def masked_in(records: Records, window: StepWindow) -> NDArray[np.bool_]:
    """Of them those that nothing was learned from, being older than `max_age` versions under an action that masks."""
    groups, limit = records.groups, records.scenario.admission.max_age
    if limit is None or not AGE_ACTIONS[records.scenario.admission.age_action].masks:
        return np.zeros(len(groups), bool)
    made = np.searchsorted(records.updates, groups["trained_step"], side="right") - 1
    return np.asarray(_taken_in(records, window) & (made - groups["version"] > limit))


def _whole(records: Records, window: StepWindow) -> dict[str, float]:
    """Share of the batches that is learned from and was not cut, where anything may be lost."""
    samples, admission = records.samples, records.scenario.admission
    masks = admission.max_age is not None and AGE_ACTIONS[admission.age_action].masks
    if not (masks or loses_rollouts(records.scenario)):
        return {}
    whole = (samples["status"] == DONE) & (samples["masked"] == 0) & (samples["made"] >= samples["target"])
    trained = float(np.count_nonzero(whole & _trained_in(records, window)[samples["group"]]))
    return {WHOLE.name: trained / (len(window.steps) * records.scenario.trainer.batch_samples)}


def _trained_in(records: Records, window: StepWindow) -> NDArray[np.bool_]:
    return np.asarray(_taken_in(records, window) & ~masked_in(records, window))


def _staleness(records: Records, window: StepWindow) -> dict[str, float]:
    """Sample-weighted staleness in steps: trained step - optimizer steps contained in the version."""
    groups, trained = records.groups, _trained_in(records, window)
    age = groups["trained_step"][trained] - records.updates[groups["version"][trained]]
    in_order = np.sort(age)
    return {
        "mean": float(age.mean()),
        "p50": quantile(in_order, 0.5),
        "p99": quantile(in_order, 0.99),
        "max": float(in_order[-1]),
    }


def quantile(in_order: NDArray[np.integer | np.floating], q: float) -> float:
    """The q-quantile (0 to 1) of numbers in ascending order, shape (n,), n >= 1; linear between two of them.

    To the last bit `np.quantile`, which imports numpy's masked arrays: a tenth of all that `size` has to import.
    """
    at = (len(in_order) - 1) * q
    below = math.floor(at)
    low, high, share = float(in_order[below]), float(in_order[min(below + 1, len(in_order) - 1)]), at - below
    return high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share


def _waste(records: Records, window: StepWindow, trained: float, lost: float) -> dict[str, float]:
    groups = records.groups
    left = np.where(groups["status"] == G_FILTERED, groups["ready_s"], groups["left_s"])
    inside = (left > window.start_s) & (left <= window.end_s)
    stale = inside & ((groups["status"] == G_STALE) | (groups["status"] == G_OVERFLOW)) | masked_in(records, window)
    filtered = inside & (groups["status"] == G_FILTERED)
    return {
        "stale": float(_of_samples(records, "made", stale).sum()) / trained if stale.any() else 0.0,
        "filtered": float(_of_samples(records, "made", filtered).sum()) / trained if filtered.any() else 0.0,
        "aborted": window.total("aborted_tokens") / trained,
        "recomputed": window.total("recomputed_tokens") / trained,
        "lost": (window.total("lost_tokens") + lost) / trained,
    }


def _mean_queue(records: Records, window: StepWindow) -> float:
    """Time-weighted mean of samples in the buffer (at its door included): each group from ready to left."""
    groups = records.groups
    # column by column: numpy copies rows with fields field by field
    seen = (groups["ready_s"] >= 0) & (groups["status"] != G_FILTERED)
    ready, left, need = (groups[name][seen] for name in ("ready_s", "left_s", "need"))
    left = np.where(left < 0, window.end_s, left)
    inside = left.clip(window.start_s, window.end_s) - ready.clip(window.start_s, window.end_s)
    return float((inside * need).sum() / window.span_s)


def lengths_of(records: Records, window: StepWindow) -> tuple[NDArray[Any], NDArray[Any]]:
    """Output tokens of the samples that were sent in the window, and of those that were trained in it.

    Samples that were sent count with the length that they would have had without a cut or an abort.
    """
    used = (records.samples["status"] == DONE) & (records.samples["masked"] == 0)
    group, length = records.samples["group"], records.samples["target"]
    made = np.minimum(records.samples["made"], length)
    submitted = records.groups["submit_s"]
    sent = (submitted >= window.start_s) & (submitted <= window.end_s)
    return length[sent[group]], made[used & _trained_in(records, window)[group]]


def _length_bias(records: Records, window: StepWindow) -> float:
    sent, trained = lengths_of(records, window)
    return float(trained.mean() / sent.mean()) if len(sent) else 1.0


def _samples_lost(records: Records, window: StepWindow) -> dict[str, float]:
    """Share of the samples that were thrown away: of all, and of the longest tenth.

    Counted are the samples whose fate was decided in the window: trained, or lost, which is stale or masked, pushed
    out of the buffer, or aborted (a group aborted in flight counts from when it was sent: no record says when it
    ended; one that is put off to a long round is not lost). What is unfinished at the end counts on neither side, nor
    does what the reward filter removed: it looks at rewards, not at time. Lengths are those that samples have when
    they are left alone; ties at the shortest of the longest tenth belong to it.
    """
    groups, status = records.groups, records.groups["status"]
    trained = _trained_in(records, window)
    left, sent = groups["left_s"], groups["submit_s"]
    inside = np.where(
        left >= 0, (left > window.start_s) & (left <= window.end_s), (sent >= window.start_s) & (sent < window.end_s)
    )
    ended = (status == G_STALE) | (status == G_OVERFLOW)
    if records.scenario.buffer.leftover != "defer":  # there, what is aborted comes back in a long round
        ended |= status == G_ABORTED
    thrown_away = inside & ended | masked_in(records, window)
    group = records.samples["group"]
    counted = (trained | thrown_away)[group]
    # Of a group that was trained, the samples that were started beyond its size are lost too.
    lost = ((records.samples["status"] != DONE) | (records.samples["masked"] == 1))[counted]
    if thrown_away.any():
        lost |= thrown_away[group][counted]
    if not lost.any():
        return {"all": 0.0, "longest_tenth": 0.0}
    length = records.samples["target"][counted]
    rest = len(length) - math.ceil(len(length) / 10)
    longest = length >= np.partition(length, rest)[rest]
    return {"all": float(lost.mean()), "longest_tenth": float(lost[longest].mean())}

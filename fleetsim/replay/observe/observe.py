"""`observe`: a window of history as numbers."""

from __future__ import annotations

from collections import Counter

import numpy as np

from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history.history import History, Note
from fleetsim.history.option_names import END, MAP, SELECTOR, START, STEP, mapped
from fleetsim.replay.observe.account import account_of
from fleetsim.replay.observe.changes import change_notes, departures_of, trends_of
from fleetsim.replay.observe.interruptions import Hole, Pauses, outside
from fleetsim.replay.observe.intervals import Intervals, intervals_of
from fleetsim.replay.observe.lengths import lengths_of, logged_lengths
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.paces import expected_growth, paces_of
from fleetsim.replay.observe.pauses import find_pauses
from fleetsim.replay.observe.rates import fleet_view, hours_of, instance_views, log_span, logged_rollout
from fleetsim.replay.observe.segments import holes_of
from fleetsim.replay.observe.steps import Steps, steps_of
from fleetsim.replay.observe.stops import rolling_of, without_stops
from fleetsim.replay.observe.trainer import mfu_notes, placement_of, queue_view, ready_share, trainer_view

HALF = 0.5  # of the trainer's waiting, beside a batch
_NO_PAUSES = Pauses((), 0.0, 0.0, None)
_SILENT = Note(
    "missing",
    "TensorRT-LLM counts tokens when a request ends: engines that stand still look like engines with long responses",
)
FEWEST_TIMES = 4  # fewer show neither a pause nor what lies at its sides


def observe(history: History, scenario: Scenario | None = None) -> Observed:
    """What the window shows: fleet, lengths, pauses, trainer, queue, and each of its hours.

    scenario: what is known beforehand; only its prompts matter (a shared system prompt or turns hit the prefix cache as
    siblings do). InputError: the window is too short, or nobody generated in it.
    """
    if not history.instances:
        return _without_engines(history)
    _check(history)
    intervals = intervals_of(history)
    if not np.nansum(intervals.growth) > 0:
        raise _nothing(history, intervals)
    silent = _engine(history) == "tensorrt-llm"
    rolling = None if silent else rolling_of(history, intervals)
    others, working = without_stops(history, intervals, rolling)
    pauses, notes = (_NO_PAUSES, (_SILENT,)) if silent else find_pauses(others, working, in_turn=rolling is not None)
    clean = outside(working, pauses.each)
    paces = paces_of(working, expected_growth(working, clean), clean)
    views = instance_views(history, intervals, pauses.each, paces)
    fleet = fleet_view(history, intervals, pauses.each, views)
    blocks, block_size, caching, config_notes = _cache_config(history)
    lengths, length_notes = lengths_of(history, block_size, caching, scenario)
    placement = placement_of(history, pauses.each, None, intervals.read_s)
    steps = steps_of(history, pauses.each, placement)
    if placement == "colocated" and (ready_share(history, steps) or 0.0) > HALF:
        placement = None  # a trainer that has its batch and does not begin is no trainer that waits for its turn
    kept_s = None if fleet.finished_s is None else fleet.finished_s * (1.0 - (fleet.aborted_share or 0.0))
    departed, trends = departures_of(history, intervals, steps), trends_of(history, steps)
    return Observed(
        start_s=history.start_s,
        end_s=history.end_s,
        step_s=history.step_s,
        source=history.source,
        engine=_engine(history),
        model=_model(history),
        kv_blocks=blocks,
        block_size=block_size,
        prefix_caching=caching,
        placement=placement,
        instances=views,
        fleet=fleet,
        lengths=lengths,
        pauses=pauses,
        trainer=trainer_view(history, steps, kept_s, fleet.tok_s),
        queue=queue_view(history, steps, fleet.tok_s),
        hours=hours_of(history, intervals, steps),
        gap_share=intervals.gap_share,
        notes=(
            *history.notes,
            *notes,
            *config_notes,
            *length_notes,
            *(steps.notes if steps else ()),
            *mfu_notes(history),
            *_load_notes(history, len(views), int(paces.judged.sum())),
            *change_notes(departed, trends),
        ),
        departed=departed,
        trends=trends,
        holes=_holes(intervals, steps),
        rolling=rolling,
        account=None if steps is None else account_of(history, steps),
    )


def _holes(intervals: Intervals, steps: Steps | None) -> tuple[Hole, ...]:
    """Where no engine was read, and where the trainer alone was not."""
    of_engines = holes_of(intervals.times, np.asarray(intervals.known.any(axis=0)))
    found = [Hole(a, b, "engines") for a, b in of_engines]
    for a, b in () if steps is None else steps.holes:
        if not any(start < b and end > a for start, end in of_engines):
            found.append(Hole(a, b, "trainer"))
    return tuple(sorted(found, key=lambda hole: hole.start_s))


def _without_engines(history: History) -> Observed:
    """A run log, or a trainer whose engines nobody scrapes."""
    steps = steps_of(history, (), None)
    if steps is None or not len(steps.end_s):
        rule = "shows neither engines nor optimizer steps"
        remedy = text("check {} and {}, or give a run log", SELECTOR, MAP)
        raise InputError([Problem("history", history.source, rule, remedy)])
    start_s, end_s = log_span(steps) if history.steps is not None else (history.start_s, history.end_s)
    trends = trends_of(history, steps)
    if len(steps.end_s) < 2 or not end_s > start_s:
        rule, remedy = "too short: at least two optimizer steps are needed", "give a log of more steps"
        if len(steps.end_s) > 1:
            rule, remedy = "says neither the seconds of a step nor when it ended", "add its clock: --map time_s=COLUMN"
        raise InputError([Problem("history", history.source, rule, remedy)])
    return Observed(
        start_s=start_s,
        end_s=end_s,
        step_s=history.step_s,
        source=history.source,
        placement=placement_of(history, (), steps),
        lengths=None if history.steps is None else logged_lengths(history.steps, steps),
        trainer=trainer_view(history, steps),
        queue=queue_view(history, steps, None),
        hours=hours_of(history, None, steps),
        notes=(*history.notes, *steps.notes, *mfu_notes(history), *change_notes((), trends)),
        trends=trends,
        holes=tuple(Hole(a, b, "trainer") for a, b in steps.holes),
        logged=logged_rollout(history),
        account=account_of(history, steps),
    )


def _check(history: History) -> None:
    problems = []
    if len(history.times) < FEWEST_TIMES:
        rule = f"too short: at least {FEWEST_TIMES} scrapes are needed"
        remedy = text("take an earlier {}, or a {} of one scrape", START, STEP)
        problems.append(Problem("history.times", len(history.times), rule, remedy))
    if "generation_tokens" not in history.values:
        rule = "no metric carries output tokens (vllm:generation_tokens_total, sglang:generation_tokens_total)"
        remedy = text("name it with {}, or widen {}", mapped("generation_tokens", "METRIC"), SELECTOR)
        problems.append(Problem("history.generation_tokens", None, rule, remedy))
    if problems:
        raise InputError(problems)


def _nothing(history: History, intervals: Intervals) -> InputError:
    if not intervals.known.any():
        rule = "no instance was read at two times of the window"
        remedy = text("take an earlier {} or a coarser {}, or check that the engines were scraped then", START, STEP)
    else:
        rule = "nobody generated a token in the window"
        remedy = text("choose {} and {} while the job ran", START, END)
    return InputError([Problem("history.generation_tokens", f"{len(history.instances)} instances", rule, remedy)])


def _engine(history: History) -> str | None:
    """TensorRT-LLM says its name, SGLang labels its series with ranks that vLLM has not; vLLM counts look-ups and names
    its block pool."""
    if any(i.labels.get("engine_type") == "trtllm" for i in history.instances):
        return "tensorrt-llm"
    if any("tp_rank" in i.labels or "engine_type" in i.labels for i in history.instances):
        return "sglang"
    vllm_only = {"prefix_queries", "finished_length", "asleep"} & set(
        history.values
    ) or "params_n" in history.histograms
    return "vllm" if vllm_only or any("num_gpu_blocks" in c for c in history.configs) else None


def _model(history: History) -> str | None:
    names = Counter(i.model for i in history.instances if i.model)
    return names.most_common(1)[0][0] if names else None


def _cache_config(history: History) -> tuple[int | None, int | None, bool | None, tuple[Note, ...]]:
    """KV blocks, block size and prefix caching of most instances."""
    notes = []
    found: dict[str, str | None] = {}
    for key in ("num_gpu_blocks", "block_size", "enable_prefix_caching"):
        values = Counter(c[key] for c in history.configs if c.get(key) not in {None, "", "None"})
        found[key] = values.most_common(1)[0][0] if values else None
        if len(values) > 1:
            said = ", ".join(f"{value} ({count})" for value, count in values.most_common(4))
            notes.append(Note("other", f"instances differ in {key}: {said}; the most frequent one counts"))
    caching = found["enable_prefix_caching"]
    return (
        _whole(found["num_gpu_blocks"]),
        _whole(found["block_size"]),
        None if caching is None else caching.lower() in {"true", "1"},
        tuple(notes),
    )


def _whole(text: str | None) -> int | None:
    try:
        return None if text is None else int(float(text))
    except (ValueError, OverflowError):
        return None


def _load_notes(history: History, instances: int, judged: int) -> tuple[Note, ...]:
    notes = []
    if "running" not in history.values:
        text = "running requests are not exported: instances are compared by rate alone, whatever their load"
        notes.append(Note("missing", text))
    if 1 < judged < instances:
        text = f"{instances - judged} of {instances} instances were under load for too short a time to be compared"
        notes.append(Note("other", text, (instances - judged) / instances))
    return tuple(notes)

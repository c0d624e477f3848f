"""Seconds of the trainer and of weight sync, from a window into a scenario."""

from __future__ import annotations

import numpy as np

from fleetsim.config.law_numbers import law_of
from fleetsim.config.scenario import Scenario
from fleetsim.engine.transport import SyncTimes, sync_times
from fleetsim.errors import InputError
from fleetsim.job.nameplate import mean_batch_tokens, mean_output_tokens
from fleetsim.policies.samples import IN_FLIGHT
from fleetsim.replay.implied.scenario_draft import ScenarioDraft
from fleetsim.replay.implied.stretch import found_pauses
from fleetsim.replay.observe.observed import Observed, value_of

# A base scenario's seconds stay where the window is this near to them, in seconds or as a share.
NEAR_S, NEAR_SHARE = 0.25, 0.02
# The rest of a step that belongs to nothing counts from this share of it on.
LEAST_REST = 0.01
_ROLLING = "the instances stop one after the other, with a rhythm"


def near(a: float, b: float) -> bool:
    """Whether two durations are the same but for how they were read."""
    return abs(a - b) <= max(NEAR_S, NEAR_SHARE * max(abs(a), abs(b)))


def take_trainer(draft: ScenarioDraft, observed: Observed) -> None:
    """Compute seconds of a step. A base scenario's split into fixed and per token is kept and scaled as a whole."""
    view = observed.trainer
    train = value_of(view.train_s)
    source: str = view.train_s.source if view.train_s is not None else ""
    if train is None:
        step, wait = value_of(view.step_s), value_of(view.wait_s)
        if step is not None and wait is not None:
            train, source = max(0.0, step - wait - (value_of(view.sync_s) or 0.0)), "the step less wait and sync"
    if train is None:
        if draft.from_base:
            draft.assumed.append("trainer seconds: of the base scenario; no trainer was read")
        else:
            draft.assume("trainer.fixed_s", 0.0, "0, so that the fleet alone sets the pace; no trainer was read")
            _nothing_per_token(draft)
        return
    scenario = draft.scenario()
    t = scenario.trainer
    tokens, output = mean_batch_tokens(scenario), value_of(view.batch_tokens)
    if output:  # what was trained, where it is exported: a client that drops stale samples trains on the short ones
        tokens += output - t.batch_samples * mean_output_tokens(scenario)
    now = t.fixed_s + t.per_token_s * tokens + sum(p.fixed_s + p.per_token_s * tokens for p in t.phases)
    by_user = any(draft.set_by_user(f"trainer.{name}") for name in ("fixed_s", "per_token_s", "phases"))
    text = f"{train:.2f} s a step, {source}"
    if by_user:
        draft.compare("trainer.fixed_s", train, now)
        draft.taken.append(f"trainer seconds: {now:.2f} as set (observed {text})")
    elif draft.from_base and now > 0 and near(train, now):
        draft.taken.append(f"trainer seconds: {now:.2f} as in the base scenario (observed {text})")
    elif draft.from_base and now > 0:
        factor = train / now
        draft.take("trainer.fixed_s", t.fixed_s * factor, text, against=(train, now))
        draft.changes["trainer.per_token_s"] = t.per_token_s * factor
        draft.changes["trainer.phases"] = [
            {"name": p.name, "fixed_s": p.fixed_s * factor, "per_token_s": p.per_token_s * factor} for p in t.phases
        ]
    else:
        draft.take("trainer.fixed_s", train, text)
        _nothing_per_token(draft)
        draft.assumed.append("trainer.per_token_s: 0, a step takes as long whatever its tokens")


def _nothing_per_token(draft: ScenarioDraft) -> None:
    """Beside the window's seconds of a step the estimate of a model must not stand: they would be counted twice."""
    draft.changes["trainer.per_token_s"] = 0.0
    if not draft.set_by_user("trainer.phases"):
        draft.changes["trainer.phases"] = []


# Of the syncs of a window, as many must show as a silence: those of pauses that a scrape can show nearly all do.
_SEEN = 0.25


def take_sync(draft: ScenarioDraft, observed: Observed) -> None:
    """Pause, cadence, the trainer's block, and what a step holds beyond wait, compute and sync."""
    scenario = draft.scenario()
    placement = scenario.fleet.placement
    step = value_of(observed.trainer.step_s)
    blocked = value_of(observed.trainer.sync_s)
    cadence = _cadence(draft, observed, step)
    held = [p for p in found_pauses(observed) if not p.empty]
    syncs = (observed.end_s - observed.start_s) / (step * cadence) if step else 0.0
    if draft.from_base and len(held) < _SEEN * syncs and all(p.source == "silence" for p in held):
        held = []  # silences that nearly all syncs leave out are no pauses of theirs
    held_s = [p.seconds for p in held]
    pause, count = (sum(held_s) / len(held_s) if len(held_s) >= 3 else None), len(held_s)
    if observed.rolling is not None:  # of one instance
        pause, count = observed.rolling.mean_s, len(observed.rolling.stops)
    pause = pause if placement == "disaggregated" else None
    if draft.from_base:
        if observed.rolling is not None and scenario.sync.scope != "rolling":
            draft.take("sync.scope", "rolling", _ROLLING, against=("rolling", scenario.sync.scope))
        _against_base(draft, scenario, observed, pause, count, None if blocked is None else blocked * cadence)
        _rest(draft, observed, scenario)
        return
    if "sync.transport" in scenario.assumed:  # the window's own seconds count, none that a guess adds
        draft.changes["sync.transport"] = None
    if placement == "disaggregated":
        if pause is not None:
            if observed.rolling is not None:
                draft.take("sync.scope", "rolling", _ROLLING)
            draft.take("sync.pause_s", pause, f"{pause:.2f} s, mean of {count} pauses")
        elif blocked is not None:
            text = f"{blocked * cadence:.2f} s, as long as the trainer is held; no pause was long enough to be seen"
            draft.assume("sync.pause_s", blocked * cadence, text)
        else:
            draft.assume("sync.pause_s", 0.0, "0, no pause was found")
        draft.assumed.append("sync.in_flight: keep")
    else:
        draft.assume("sync.pause_s", 0.0, "0 beside the trainer's own seconds: the engines stand still anyway")
    if blocked is not None:
        draft.take("sync.trainer_block_s", blocked * cadence, f"{blocked:.2f} s a step held by sync")
    else:
        draft.assume("sync.trainer_block_s", 0.0, "0, not exported")
    _rest(draft, observed, scenario)


def _against_base(
    draft: ScenarioDraft, scenario: Scenario, observed: Observed, pause: float | None, count: int, held: float | None
) -> None:
    """The sync's seconds as measured, where the scenario's, or its transport's, are others. held: the trainer's, of one
    sync. A trainer that can do nothing else meanwhile is held for all of the sync, publication and pause as well."""
    try:
        times = sync_times(scenario)
    except InputError:  # a transport of a model that nobody knows
        times = SyncTimes(0.0, 0.0, 0.0)
    if pause is not None and not near(pause, times.pause_s):
        text = f"{pause:.2f} s, mean of {count} pauses"
        draft.take("sync.pause_s", pause, text, against=(pause, times.pause_s))
    if held is None or scenario.sync.trigger != "steps":
        return
    alone = scenario.fleet.placement == "colocated" or law_of(scenario).waits_for_trainer
    expected = times.complete_s if alone else times.trainer_block_s
    # A trainer that comes back while the fleet drains for an earlier sync is held by the rest of that one, too.
    drains = IN_FLIGHT[scenario.sync.in_flight].drains and scenario.sync.scope == "global"
    if near(held, expected) or (drains and not alone and expected <= held <= expected + times.complete_s):
        return
    source = observed.trainer.sync_s.source if observed.trainer.sync_s is not None else ""
    text = f"{held:.2f} s held by a sync, {source}"
    draft.take("sync.trainer_block_s", held, text, against=(held, expected))
    if alone and pause is None and held < times.publish_s + times.pause_s:
        rest = max(0.0, held - times.publish_s)
        draft.take("sync.pause_s", rest, f"{rest:.2f} s, no longer than the trainer is held")


def _cadence(draft: ScenarioDraft, observed: Observed, step: float | None) -> int:
    """Steps between two syncs. Pauses that are only a silence may have been missed: they say nothing against a
    scenario; those that the engines count do."""
    if observed.rolling is not None and step and not draft.set_by_user("sync.every_steps"):
        every = max(1, round(observed.rolling.period_s / step))
        if not draft.from_base or (draft.start.sync.trigger == "steps" and every != draft.start.sync.every_steps):
            draft.take("sync.every_steps", every, f"each instance stops every {observed.rolling.period_s:.1f} s")
        return every
    found = [p for p in found_pauses(observed) if not p.empty]
    sure = not draft.from_base or (draft.start.sync.trigger == "steps" and all(p.source != "silence" for p in found))
    if step and len(found) >= 4 and observed.placement != "colocated" and sure:
        period = float(np.median(np.diff([p.start_s for p in found])))
        every = max(1, round(period / step))
        if not draft.from_base or every != draft.start.sync.every_steps:
            draft.take("sync.every_steps", every, f"a pause every {period:.1f} s")
        return draft.start.sync.every_steps if draft.set_by_user("sync.every_steps") else every
    if draft.from_base or draft.set_by_user("sync.every_steps"):
        return draft.start.sync.every_steps
    draft.assume("sync.every_steps", 1, "1")
    return 1


def _rest(draft: ScenarioDraft, observed: Observed, scenario: Scenario) -> None:
    """What is left of a step: the switch of colocated GPUs, else a stall after each step."""
    view, checkpoint = observed.trainer, scenario.trainer.checkpoint
    colocated = scenario.fleet.placement == "colocated"
    known, rest, step = view.rest_s is not None, view.rest_s or 0.0, value_of(view.step_s) or 0.0
    if rest <= LEAST_REST * step:
        rest = 0.0
    every = checkpoint.every_steps
    if draft.from_base:
        stall = 0.0 if every is None else checkpoint.stall_s / every
        said = stall + (2.0 * scenario.fleet.switch_s if colocated else 0.0)
        if (
            not known
            or scenario.fleet.placement == "colocated_lending"
            or abs(rest - said) <= max(NEAR_S, LEAST_REST * step)
        ):
            return
        draft.compare("trainer.checkpoint.stall_s", rest, said)
    text = f"{rest:.2f} s of a step are neither wait, compute nor sync"
    if colocated:
        stall = 0.0 if every is None or not draft.from_base else min(rest, checkpoint.stall_s / every)
        draft.take("fleet.switch_s", (rest - stall) / 2.0, f"half of the {text.replace(' are', ' that are')}")
    elif rest > 0 or draft.from_base:
        draft.take("trainer.checkpoint.every_steps", 1, text)
        if not draft.set_by_user("trainer.checkpoint.stall_s"):
            draft.changes["trainer.checkpoint.stall_s"] = rest

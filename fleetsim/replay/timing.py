"""Seconds of the trainer and of weight sync, from a window into a scenario."""

from __future__ import annotations

import numpy as np

from fleetsim.plan.nameplate import mean_output_tokens, mean_prompt_tokens
from fleetsim.replay.draft import Draft
from fleetsim.replay.load_seen import found_pauses
from fleetsim.replay.observed import Observed, Quantity

# A base scenario's seconds stay where the window is this near to them, in seconds or as a share.
NEAR_S, NEAR_SHARE = 0.25, 0.02
# The rest of a step that belongs to nothing counts from this share of it on.
LEAST_REST = 0.01


def _value(quantity: Quantity | None) -> float | None:
    return None if quantity is None else quantity.value


def near(a: float, b: float) -> bool:
    """Whether two durations are the same but for how they were read."""
    return abs(a - b) <= max(NEAR_S, NEAR_SHARE * max(abs(a), abs(b)))


def take_trainer(draft: Draft, observed: Observed) -> None:
    """Compute seconds of a step. A base scenario's split into fixed and per token is kept and scaled as a whole."""
    view = observed.trainer
    train = _value(view.train_s)
    source: str = view.train_s.source if view.train_s is not None else ""
    if train is None:
        step, wait = _value(view.step_s), _value(view.wait_s)
        if step is not None and wait is not None:
            train, source = max(0.0, step - wait - (_value(view.sync_s) or 0.0)), "the step less wait and sync"
    if train is None:
        if draft.from_base:
            draft.assumed.append("trainer seconds: of the base scenario; no trainer was read")
        else:
            draft.assume("trainer.fixed_s", 0.0, "0, so that the fleet alone sets the pace; no trainer was read")
            draft.changes["trainer.per_token_s"] = 0.0
        return
    scenario = draft.scenario()
    t = scenario.trainer
    tokens = t.batch_samples * (mean_prompt_tokens(scenario) + mean_output_tokens(scenario))
    now = t.fixed_s + t.per_token_s * tokens + sum(p.fixed_s + p.per_token_s * tokens for p in t.phases)
    by_user = any(draft.set_by_user(f"trainer.{name}") for name in ("fixed_s", "per_token_s", "phases"))
    text = f"{train:.2f} s a step, {source}"
    if draft.from_base and now > 0 and (by_user or near(train, now)):
        draft.taken.append(f"trainer seconds: {now:.2f} as in the base scenario (observed {text})")
    elif draft.from_base and now > 0:
        factor = train / now
        draft.take("trainer.fixed_s", t.fixed_s * factor, text)
        draft.changes["trainer.per_token_s"] = t.per_token_s * factor
        draft.changes["trainer.phases"] = [
            {"name": p.name, "fixed_s": p.fixed_s * factor, "per_token_s": p.per_token_s * factor} for p in t.phases
        ]
    else:
        draft.take("trainer.fixed_s", train, text)
        draft.assumed.append("trainer.per_token_s: 0, a step takes as long whatever its tokens")


def take_sync(draft: Draft, observed: Observed) -> None:
    """Pause, cadence, the trainer's block, and what a step holds beyond wait, compute and sync."""
    scenario = draft.scenario()
    placement = scenario.fleet.placement
    step = _value(observed.trainer.step_s)
    held = _value(observed.trainer.sync_s)
    cadence = _cadence(draft, observed, step)
    pause = _pause(observed) if placement == "disaggregated" else None
    if draft.from_base:
        sync = scenario.sync
        if pause is not None and sync.transport is None and not near(pause, sync.pause_s or 0.0):
            draft.take("sync.pause_s", pause, f"{pause:.2f} s, mean of {_count(observed)} pauses")
    else:
        if placement == "disaggregated":
            if pause is not None:
                draft.take("sync.pause_s", pause, f"{pause:.2f} s, mean of {_count(observed)} pauses")
            elif held is not None:
                text = f"{held * cadence:.2f} s, as long as the trainer is held; no pause was long enough to be seen"
                draft.assume("sync.pause_s", held * cadence, text)
            else:
                draft.assume("sync.pause_s", 0.0, "0, no pause was found")
            draft.assumed.append("sync.in_flight: keep")
        else:
            draft.assume("sync.pause_s", 0.0, "0 beside the trainer's own seconds: the engines stand still anyway")
        if held is not None:
            draft.take("sync.trainer_block_s", held * cadence, f"{held:.2f} s a step held by sync")
        else:
            draft.assume("sync.trainer_block_s", 0.0, "0, not exported")
    _rest(draft, observed, placement)


def _cadence(draft: Draft, observed: Observed, step: float | None) -> int:
    if draft.from_base:
        return draft.start.sync.every_steps
    starts = [p.start_s for p in found_pauses(observed) if not p.empty]
    if step and len(starts) >= 4 and observed.placement != "colocated":
        period = float(np.median(np.diff(starts)))
        every = max(1, round(period / step))
        draft.take("sync.every_steps", every, f"a pause every {period:.1f} s")
        return every
    draft.assume("sync.every_steps", 1, "1")
    return 1


def _pause(observed: Observed) -> float | None:
    """Mean seconds of the pauses with work in hand; None below three of them."""
    held = [p.seconds for p in found_pauses(observed) if not p.empty]
    return sum(held) / len(held) if len(held) >= 3 else None


def _count(observed: Observed) -> int:
    return len([p for p in found_pauses(observed) if not p.empty])


def _rest(draft: Draft, observed: Observed, placement: str) -> None:
    """What is left of a step: the switch of colocated GPUs, else a stall after each step."""
    if draft.from_base:
        return
    view = observed.trainer
    parts = [_value(q) for q in (view.step_s, view.wait_s, view.train_s, view.sync_s)]
    rest = 0.0
    if all(p is not None for p in parts):
        step, wait, train, sync = (p or 0.0 for p in parts)
        rest = step - wait - train - sync
        if rest <= LEAST_REST * step:
            rest = 0.0
    if placement == "colocated":
        text = f"half of the {rest:.2f} s of a step that are neither wait, compute nor sync"
        draft.take("fleet.switch_s", rest / 2.0, text)
    elif rest > 0:
        draft.take("trainer.checkpoint.every_steps", 1, f"{rest:.2f} s of a step are neither wait, compute nor sync")
        draft.changes["trainer.checkpoint.stall_s"] = rest

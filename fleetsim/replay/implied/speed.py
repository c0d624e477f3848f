"""Engine speed from history: what an iteration took at the loads that the window saw, no benchmark needed.

An iteration takes base + per_seq r + per_kv K + per_prefill p seconds (`engine/step_time.py`): r = requests running, K
= tokens in the KV cache, p = prompt tokens computed. Two things in a window tell the four numbers, none negative:

- The *level*. A token of a request takes one iteration, so seconds in the engine / tokens, summed over requests, is the
  mean iteration as tokens see it. Engines export both sums (end-to-end less queue seconds, output tokens), so scrapes
  may be as far apart as they like; without them the sampled gauge stands in for the seconds: sum of running x dt. The
  load that belongs to it is the mean over scrapes, weighted by r / iteration.
- *Steady intervals*. Between two scrapes with the same r, dt seconds hold g / r iterations for g tokens. The more r
  moved, the less an interval counts; those in a known pause, or in which a batch begins, count not at all.

All of it comes from the first half of the window. That fit then predicts the level of the second half, which it never
saw, instance by instance.

Where GPU and model are known, the shape is that of their roofline times one factor: it holds beyond the loads seen. The
free shape is taken only where it fits the steady intervals clearly better. Where only the model is known, the shape is
that of its roofline on a GPU of no name, and is said to be assumed.

Loads that are too much alike cannot tell a fixed cost from one per request. Then the shape is the roofline's, or
assumed and said to be. Loads count as alike, too, where running scatters no more than samples that come and go at
random would: a gauge's noise is not a load, and a fit to it finds that iterations grow with what the gauge happened to
show.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from fleetsim import units
from fleetsim.engine.step_time import LinearStepTime, StepTime
from fleetsim.history.history import History
from fleetsim.least_squares import non_negative
from fleetsim.records import replace
from fleetsim.replay.implied.stretch import LoadLevel, Stretch, seen_of
from fleetsim.replay.observe.observed import Observed

Shape = Literal["fitted", "roofline", "assumed"]

# (p95 - p5) / median of the requests running: below, one load was seen, not a range.
NARROW = 0.3
# Variance of the requests running / mean: up to here, the scatter of one load (arrivals at random have 1).
SCATTER = 4.0
# The free shape must fit the steady intervals this much better (weighted relative error) than the roofline's.
BETTER = 0.05
# Steady intervals below which the free shape is not fitted.
FEWEST = 8
# ... and below which a roofline's shape is not given up for it.
FEWEST_AGAINST = 60
# Steady intervals that are fitted at most: every second, third, ... of more.
MOST_ROWS = 20_000
# Share of an iteration that is fixed at least, at the loads seen.
LEAST_FIXED = 0.02
# What a prompt token may cost at most, of what is fixed, and what it does on a large GPU: reading all weights takes as
# long as computing dozens to hundreds of them. A fit with dearer ones explains by prompts what comes and goes with
# them.
DEAREST_PROMPT, USUAL_PROMPT = 0.02, 0.01
NOTHING_FIXED = "a fit to the window is refused: it leaves nothing of an iteration fixed"
THRASH = "the engines preempt requests in most intervals, so that no shape is fitted to the window"
# Assumed share of an iteration that does not depend on the load, where nothing can tell.
FIXED_SHARE = 0.5
# Weight of the level beside all steady intervals together.
_LEVEL = 10.0
# Tokens of a prompt chunk at which a step time's cost of a prompt token is read.
_CHUNK = 2048
_ROUNDS = 8


class Speed(Struct, frozen=True):
    """Iteration times of an instance of normal pace.

    shape: fitted (all terms from the window) | roofline (one factor from the window) | assumed (the level from the
    window, the split into terms not). factor: of the roofline, whether known or assumed; None = no roofline. loads: 5th
    and 95th percentile of requests running per instance. rows: steady intervals. counted: whether the level comes from
    counted seconds, not from a sampled gauge. held_out: median over instances of the absolute relative error of the
    second half's level, bias: the mean error (above 0 = predicted too slow); None where the window is too short to keep
    half of it out. refused: why the window's own shape was not taken although its load moved; "" = it was, or could not
    be seen.
    """

    step_time: StepTime
    shape: Shape
    factor: float | None
    loads: tuple[float, float]
    rows: int
    counted: bool
    held_out: float | None
    bias: float | None
    refused: str = ""

    @property
    def text(self) -> str:
        """One line: what it is and how far off."""
        how = {
            "fitted": "fitted to the window",
            "roofline": f"the roofline times {self.factor or 1.0:.3f}, fitted to the window",
            "assumed": "level from the window, shape assumed" + (" like a roofline's" if self.factor else ""),
        }[self.shape]
        at = f"at {self.loads[0]:.0f} to {self.loads[1]:.0f} running requests"
        off = "" if self.held_out is None else f"; {units.share(self.held_out)} off on the second half, kept out"
        return f"{how} ({at}{off})" + (f"; {self.refused}" if self.refused else "")


def speed_of(
    history: History,
    observed: Observed,
    roofline: StepTime | None = None,
    kv_tokens: float | None = None,
    unseen_pause_s: float | None = None,
    likely: StepTime | None = None,
    reads: tuple[float, float] = (0.0, 0.0),
) -> Speed | None:
    """The engine speed that a window shows; None where too little of it was read.

    roofline: of the GPU and model, where they are known. kv_tokens: KV capacity of an instance, where the history does
    not export it. unseen_pause_s: of a weight sync, for pauses too short to be seen between two scrapes. likely: a
    roofline of the model on a GPU that nobody named. reads: as of `seen_of`.
    """
    if observed.kv_blocks is not None and observed.block_size is not None:
        kv_tokens = float(observed.kv_blocks * observed.block_size)
    seen = seen_of(history, observed, kv_tokens, unseen_pause_s, reads)
    if seen is None:
        return None
    middle = 0.5 * (history.start_s + history.end_s)
    early, late = seen.part(history.start_s, middle), seen.part(middle, history.end_s)
    level, halves = early.level(), True
    if level is None or late.level() is None:
        early, halves = seen, False
        level = seen.level()
    if level is None:
        return None
    step_time, shape, factor, refused = _fit(early, level, roofline, likely)
    errors = late.errors(lambda part: _of_level(part, step_time)) if halves else None
    low, high = np.percentile(level.running, [5, 95])
    speed = Speed(
        step_time,
        shape,
        factor,
        (float(low), float(high)),
        len(early.rows),
        level.counted,
        None if errors is None else float(np.median(np.abs(errors))),
        None if errors is None else float(np.mean(errors)),
        refused,
    )
    return replace(speed, step_time=replace(step_time, source=speed.text))


def _fit(
    seen: Stretch, level: LoadLevel, roofline: StepTime | None, likely: StepTime | None
) -> tuple[StepTime, Shape, float | None, str]:
    known: Shape = "assumed" if roofline is None else "roofline"
    shape = likely if roofline is None else roofline
    factor = None if shape is None else level.seconds / _of_level(level, shape)
    scaled = None if shape is None or factor is None else shape.slower(factor)
    low, middle, high = np.percentile(level.running, [5, 50, 95])
    narrow = (high - low) / max(middle, 1.0) < NARROW
    if narrow or np.var(level.running) <= SCATTER * np.mean(level.running):  # one load was seen, not a range
        return scaled or _assumed(level), known, factor, ""
    if len(seen.rows) < (FEWEST if scaled is None else FEWEST_AGAINST):
        return scaled or _assumed(level), known, factor, THRASH if seen.preempting > len(seen.rows) else ""
    free = _linear(seen, level)
    if free is None:
        return scaled or _assumed(level), known, factor, NOTHING_FIXED
    if scaled is not None and _error(scaled, seen) <= _error(free, seen) + BETTER:
        return scaled, known, factor, ""
    return free, "fitted", None, ""


def _linear(seen: Stretch, level: LoadLevel) -> StepTime | None:
    """The free shape of the steady intervals and the level. Where prompts come with load, as after each batch, a fit
    may take one for the other: then a prompt token costs what it usually does beside the weights.

    None where the best fit has iterations that take no time, or of which next to nothing is fixed: engines read their
    weights in every one. What explains the intervals then is something that came and went with the load.
    """
    found = _least_squares(seen, level)
    if found is not None and found.per_prefill_token_s > DEAREST_PROMPT * found.knots_s[0]:
        found = _least_squares(seen, level, USUAL_PROMPT)
    return found if found is not None and found.knots_s[0] > LEAST_FIXED * level.seconds else None


def _least_squares(seen: Stretch, level: LoadLevel, prompt: float | None = None) -> StepTime | None:
    """Non-negative least squares over the steady intervals and the level; the level's load depends on the answer.
    prompt: what a prompt token takes, of what is fixed; None = it is fitted, too. None where iterations take no time.
    """
    rows = seen.rows.some(np.arange(len(seen.rows)) % max(1, len(seen.rows) // MOST_ROWS) == 0)
    n = rows.generated / rows.running
    x = np.stack([n, rows.generated, n * rows.kv_tokens, rows.prefilled], axis=1) / rows.dt_s[:, None]
    into = np.eye(4) if prompt is None else np.eye(4)[:, :3] + np.outer([0.0, 0.0, 0.0, prompt], [1.0, 0.0, 0.0])
    x = x @ into
    step_time = LinearStepTime(level.seconds)
    trust = np.ones(len(rows))
    for _ in range(_ROUNDS):
        load = level.load(step_time)
        moment = np.array([1.0, *load, level.prefill_per_iteration]) @ into / level.seconds
        weights = trust / rows.doubt
        heavy = _LEVEL * max(1.0, float(np.sqrt(np.square(weights).sum())))
        a = np.concatenate([x * weights[:, None], heavy * moment[None, :]])
        y = np.append(weights, heavy)
        scale = np.maximum(np.abs(a).mean(axis=0), 1e-30)
        found = non_negative(a / scale, y) / scale
        # square roots of Huber's weights: rows beyond 1.5 robust standard deviations count less
        off = np.abs((x @ found - 1.0) / rows.doubt)
        spread = max(1e-6, 1.4826 * float(np.median(off)))
        trust = np.sqrt(np.minimum(1.0, 1.5 * spread / np.maximum(off, 1e-12)))
        fixed, per_seq, per_kv, per_prompt = into @ found
        step_time = LinearStepTime(float(fixed), float(per_seq), float(per_prompt), float(per_kv))
        if not (step_time.each_s(level.running, kv_tokens=level.kv_tokens) > 0).all():
            return None
    return step_time


def _assumed(level: LoadLevel) -> StepTime:
    running = float(np.average(level.running, weights=level.running))
    return LinearStepTime(FIXED_SHARE * level.seconds, (1.0 - FIXED_SHARE) * level.seconds / running)


def _error(step_time: StepTime, seen: Stretch) -> float:
    rows = seen.rows
    each = step_time.each_s(rows.running, kv_tokens=rows.kv_tokens)
    predicted = rows.generated / rows.running * each + rows.prefilled * _prefill_s(step_time)
    return float(np.average(np.abs(predicted / rows.dt_s - 1.0), weights=1.0 / rows.doubt))


def _of_level(level: LoadLevel, step_time: StepTime) -> float:
    """The level's seconds as a step time predicts them."""
    return level.mean(step_time) + level.prefill_per_iteration * _prefill_s(step_time)


def _prefill_s(step_time: StepTime) -> float:
    """Seconds of a prompt token in a chunk of a few thousand."""
    return (step_time.seconds(0, _CHUNK) - step_time.seconds(0, 1)) / (_CHUNK - 1)

"""Two jobs in turns on one H100, as published (aishukamal/rl-time-slicing and llm-d's blog of 2026-06-28, D05): the
rotation of `pack` is given what each job takes alone and what a switch takes, and nothing of the two together.

The predictions of the first two were committed before the published figures were looked at. Of the third, two trainers
in turn beside rollout GPUs of their own, what was given and what was published were committed before the first
prediction. All stay as they came.
"""

from __future__ import annotations

import pytest

from fleetsim.pack.together import rotate
from tests.pack.test_pack import _phase

# Seconds of a step alone (17.6 to 19.8) and of a switch, as published of a 0.5B model on one H100.
ALONE_S, SWITCH_S = 18.7, 14.6
# Of the same GPUs at work by one job alone, as published of a 7B model on eight H100; what a switch takes is not.
DUTY_ALONE = 0.4
# Seconds from one step of a job to its next, and the GPUs' duty with two jobs; the second is a bound.
PREDICTED_CYCLE_S, PREDICTED_DUTY = 66.6, 0.8
# As published: 34.6 s for a turn (19.7 to 20.5 s, longer than a step alone) and a switch, two of them a round.
PUBLISHED_CYCLE_S, PUBLISHED_DUTY = 2 * 34.6, 0.7


def test_the_predictions_are_what_the_rotation_says() -> None:
    one = (_phase("gpus", ALONE_S, switch_s=SWITCH_S),)
    assert rotate([one, one], rounds=40, settling=5).step_s(0) == pytest.approx(PREDICTED_CYCLE_S)
    # A job is at work on the GPUs for so much of its step, and elsewhere (its rollouts, its rewards) for the rest.
    part = (_phase("gpus", DUTY_ALONE, switch_s=0.0), _phase("own", 1.0 - DUTY_ALONE, switch_s=0.0))
    other = (part[0], _phase("other", 1.0 - DUTY_ALONE, switch_s=0.0))
    table = rotate([part, other], rounds=40, settling=5)
    assert table.seconds("gpus", switches=False) / table.whole_s == pytest.approx(PREDICTED_DUTY)


def test_the_errors_as_they_came() -> None:
    assert pytest.approx(-0.038, abs=5e-4) == PREDICTED_CYCLE_S / PUBLISHED_CYCLE_S - 1.0
    assert pytest.approx(0.143, abs=5e-4) == PREDICTED_DUTY / PUBLISHED_DUTY - 1.0


# Math and code RL by verl's fully asynchronous trainer, each with an H100 of its own that generates, both with one more
# that trains them in turn (the same repository at 6a343557756d: async-rl-benchmarks/poc-handoff/
# POC2-math-code-timeslicing.md; time-slicing-vertical-integrations/verl/fully-async/runs/poc2/RESULTS.md). Alone:
# seconds from batch to batch, whose rollout GPU never pauses, and those of training one. A switch: snapshot and
# restore, medians. Batches a rollout may be ahead: staleness_threshold.
BATCH_S, TRAIN_S, TRAINERS_SWITCH_S, AHEAD = (407.0, 611.1), (185.0, 281.6), 30.3, 8
PREDICTED_STEP_S, PREDICTED_TRAINER_DUTY = (420.3, 610.5), 0.901
# As published: mean seconds of a step of each, and the trainer's duty (of one alone: 41.6 %, of which it trains 46 %).
PUBLISHED_STEP_S, PUBLISHED_TRAINER_DUTY = (470.0, 604.3), 0.866


def test_two_trainers_in_turn_are_what_the_rotation_says() -> None:
    jobs = [
        (_phase(f"rollout {i}", made), _phase("trainer", trained, switch_s=TRAINERS_SWITCH_S))
        for i, (made, trained) in enumerate(zip(BATCH_S, TRAIN_S, strict=True))
    ]
    table = rotate(jobs, ahead=(AHEAD, AHEAD))
    assert [table.step_s(0), table.step_s(1)] == pytest.approx(list(PREDICTED_STEP_S), abs=0.1)
    duty = table.seconds("trainer", switches=False) / table.whole_s
    assert duty == pytest.approx(PREDICTED_TRAINER_DUTY, abs=1e-3)
    errors = [a / b - 1.0 for a, b in zip(PREDICTED_STEP_S, PUBLISHED_STEP_S, strict=True)]
    assert errors == pytest.approx([-0.106, 0.010], abs=1e-3)
    assert pytest.approx(0.040, abs=1e-3) == PREDICTED_TRAINER_DUTY / PUBLISHED_TRAINER_DUTY - 1.0

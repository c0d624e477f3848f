"""Where supply exceeds the trainer for good, the advice is plain: reduce engines to N."""

from __future__ import annotations

from typing import Any

import pytest

import fleetsim as fs
from fleetsim.job.facts import losses_line, pace, regime_line
from fleetsim.job.trials import trial_of
from fleetsim.search.alternative import never_waits
from fleetsim.size.facts import brief_facts
from fleetsim.size.words import surplus
from tests.plan.fakes import metrics

# The runbook's job: 512 x 1,536 tokens in 20 s are 39,321.6 tok/s, which is 9.83 instances of 4,000 tok/s.
RUNBOOK: dict[str, Any] = {"batch": 512, "len": 1536, "instance_tok_s": 4000, "trainer_step_s": 20}
UNSYNCED = {"sync.pause_s": 0.0, "sync.publish_s": 0.0, "sync.trainer_block_s": 0.0, "run.replications": 2}
BACKLOG = {"admission.law": "unbounded", "buffer.batch_rule": "fifo", "fleet.max_in_flight_samples_per_instance": 16}


def supply_of(instances: int, **changes: Any) -> str | None:
    said = str(fs.load(None, {**UNSYNCED, **changes}, instances=instances, **RUNBOOK).simulate()).splitlines()
    return next((line.removeprefix("supply ").strip() for line in said if line.startswith("supply ")), None)


@pytest.mark.parts
@pytest.mark.parametrize(
    ("instances", "law"),
    [(15, {}), (15, BACKLOG), (40, {}), (10, {}), (8, {})],
    ids=["throttled", "backlog", "far too many", "matched", "too few"],
)
def test_a_fleet_that_makes_too_much_is_told_how_many_engines_do(instances: int, law: dict[str, Any]) -> None:
    told = supply_of(instances, **law)
    assert told == ("more than the trainer takes, for good: reduce engines to 10" if instances > 10 else None)


def test_it_is_the_count_that_size_recommends() -> None:
    """In a job whose search has to decide between counts that are close."""
    job = fs.load(batch=512, len=1536, trainer_step_s=30)
    sized = job.size().plan
    found = job.with_(instances=20).simulate().alternatives
    assert found is not None
    assert found.enough == sized.instances
    assert never_waits(sized.recommended)
    assert surplus(sized) == (
        f"A larger fleet makes more than the trainer takes, for good: reduce engines to {sized.instances}."
    )


def test_a_trainer_that_waits_has_no_engine_too_many() -> None:
    """Free time makes one instance the cheapest; that is a trade, and no surplus."""
    waiting = fs.load(None, UNSYNCED, instances=8, worth=0, **RUNBOOK).simulate().alternatives
    fed = fs.load(None, UNSYNCED, instances=12, worth=0, trainer_gpus=1, **RUNBOOK).simulate().alternatives
    assert waiting is not None
    assert fed is not None
    assert waiting.enough is None
    assert fed.enough is None
    assert surplus(fs.load(None, UNSYNCED, worth=0, trainer_gpus=1, **RUNBOOK).size().plan) is None


def test_the_pace_is_said_in_the_words_of_the_field() -> None:
    of = trial_of(1, [metrics(20.0, 0.0)]).estimates
    assert pace(of) == "25.6 completions per second, 4,320 iterations (optimizer steps) a day"
    explained = fs.load(None, UNSYNCED, instances=12, **RUNBOOK).simulate().explained
    lines = {line.strip().split("  ")[0]: line for line in explained.splitlines()}
    assert "25.6" in lines["completions per second"]
    assert "4,320" in lines["iterations (optimizer steps) per day"]


@pytest.mark.parts
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("preset", ["trl-async-grpo", None])
def test_size_says_the_age_and_the_losses_of_the_others(preset: str | None) -> None:
    start = None if preset is None else f"presets/{preset}"
    plan = fs.load(start, batch=128, replications=2).size().plan
    lines = dict(brief_facts(plan).lines)
    of = plan.recommended.estimates
    assert lines["age"] == regime_line(of)
    assert lines.get("lost") == losses_line(of, plan.scenario)
    assert ("lost" in lines) == (preset is not None)
    assert len(lines) <= 9

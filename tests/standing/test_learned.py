"""Thresholds from a fleet's own healthy hours, of histories that something else than fleetsim wrote."""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import fleetsim as fs
from fleetsim.alerts import rehearsal
from fleetsim.alerts.alert_rule import Standing, Tracer, alarms
from fleetsim.alerts.learned import Learned, learned_of, scraped_history
from fleetsim.alerts.planned_fleet import PlanFields, PlannedFleet
from fleetsim.alerts.rehearsal import rehearse
from fleetsim.alerts.rules import Writing, rules_document
from fleetsim.alerts.signals import MetricNames
from fleetsim.alerts.thresholds import choose
from fleetsim.errors import InputError
from fleetsim.history.files import read_file
from tests.once import once
from tests.outside.cases import base
from tests.outside.exposition import write
from tests.outside.setting import Spell

HOUR = 3600.0
# A trainer's log, by another process that knows nothing of fleetsim: steps, and from which to which it is slow.
LOG = """
import random, sys
random.seed(3)
path, steps, first, last = sys.argv[1], *map(int, sys.argv[2:])
with open(path, "w") as log:
    for step in range(1, steps + 1):
        slow = 1.5 if first <= step < last else 1.0
        gen, update, sync = random.gauss(31, 1), slow * random.gauss(20, 0.3), random.gauss(2, 0.05)
        parts = {"training/global_step": step, "timing_s/gen": gen, "timing_s/update_actor": update,
            "timing_s/update_weights": sync, "timing_s/step": gen + update + sync + 1,
            "response_length/mean": random.gauss(800, 12), "response_length/max": 2048, "prompt_length/mean": 200,
            "training/rollout_batch": 256, "perf/total_num_tokens": 256_000}
        log.write(f"step:{step} - " + " - ".join(f"{name}:{value:.3f}" for name, value in parts.items()) + "\\n")
"""


def logged(place: Path, steps: int, first: int = 0, last: int = 0) -> str:
    """A log of so many steps."""
    subprocess.run([sys.executable, "-c", LOG, str(place), str(steps), str(first), str(last)], check=True)
    return str(place)


def learned_from(file: str) -> tuple[PlannedFleet, Learned]:
    """What a run shows of its job, and of its healthy hours."""
    planned = PlannedFleet.of_job(fs.load(run=file))
    assert planned.history is not None
    return planned, learned_of(planned.history, planned.scenario, planned.given)


def inside(learned: Learned, from_s: float, to_s: float) -> bool:
    """Whether something of a span was taken for healthy."""
    return any(((run.times > from_s) & (run.times < to_s)).any() for run in learned.stretches)


def test_a_log_s_steps_are_counters_that_grow_at_their_ends(tmp_path: Path) -> None:
    history = read_file(logged(tmp_path / "run.log", 300))
    scraped = scraped_history(history)
    assert history.steps is not None
    assert scraped.trainer["trainer.steps"][-1] == 300
    assert scraped.trainer["trainer.train_s_total"][-1] == pytest.approx(history.steps.columns["train_s"].sum())
    assert np.isnan(scraped.trainer["queue.samples"]).all()
    tokens, count = (scraped.engines[f"output_tokens_{end}"][0, -1] for end in ("sum", "count"))
    assert tokens / count == pytest.approx(800, rel=0.01)


def test_steps_that_a_trainer_took_too_long_for_are_left_out(tmp_path: Path) -> None:
    _, learned = learned_from(logged(tmp_path / "run.log", 600, 200, 260))
    ends = np.cumsum(read_file(str(tmp_path / "run.log")).steps.columns["step_s"])  # type: ignore[union-attr]
    assert not inside(learned, ends[199], ends[258])
    assert set(learned.faults) == {"trainer"}
    assert 6.0 < learned.hours < learned.of_hours - ends[258] / HOUR + ends[199] / HOUR
    assert "healthy hours of run.log" in learned.words()
    assert "trainer in" in learned.words()


def test_all_of_a_healthy_run_is_learned_from(tmp_path: Path) -> None:
    _, learned = learned_from(logged(tmp_path / "run.log", 400))
    assert not learned.faults
    assert len(learned.stretches) == 1
    assert learned.hours == pytest.approx(learned.of_hours, abs=0.1)


def test_too_little_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"1\.\d of 1\.\d hours"):
        learned_from(logged(tmp_path / "short.log", 80))
    with pytest.raises(InputError, match="is given as well"):
        PlanFields(plan="PLAN.json", run="run.log").planned("alerts")


def test_a_count_that_nobody_gave_has_no_alert(tmp_path: Path) -> None:
    """A trainer's log does not say how many engines there are."""
    planned, _ = learned_from(logged(tmp_path / "run.log", 200))
    assert planned.given is not None
    doubt = rehearsal.doubt_of(planned.scenario, planned.given, None)
    assert "fleet.instances=N" in doubt.unmeasured["instances"]
    assert not {"trainer_pace", "sync_seconds", "output_length"} & set(doubt.unmeasured)


def lived(folder: Path, hours: float, seed: int, *, slow: Spell | None = None) -> str:
    """Hours of a job of the outside world."""
    place = folder / f"{seed}.om"
    changes = {} if slow is None else {"trainer_slow": slow}
    text = once(("lived", hours, seed, changes), lambda: _written(place, hours, seed, changes))
    place.write_text(text)
    return str(place)


def _written(place: Path, hours: float, seed: int, changes: dict[str, Spell]) -> str:
    write(place, base("lived", hours=hours, seed=seed, **changes))
    return place.read_text()


SLOW = Spell(1.6, 1.5 * HOUR, 2.0 * HOUR)


@lru_cache
def stood(file: str) -> tuple[Standing, Learned]:
    """The alerts of a run."""
    planned, learned = learned_from(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal, "MULTIPLES", (1, 2))
        made = rehearse(planned.scenario, hours=4.0, replications=1, given=planned.given)
    return choose(made, 1.0, learned), learned


def test_alerts_of_a_run_stand_at_its_own_levels(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Healthy in the next hours of the same job; its slow trainer fires, and it alone."""
    folder = tmp_path_factory.mktemp("lived")
    file = lived(folder, 4.2, 0, slow=SLOW)
    standing, learned = stood(file)
    assert standing.rehearsal.expected.instances == 3
    assert not inside(learned, SLOW.start, SLOW.end)
    own = {rule.signal.name for rule in standing.rules if rule.learned}
    assert {"trainer_pace", "sync_seconds", "output_length", "queue_depth", "generated_per_trained"} <= own
    assert all(rule.hours < learned.hours for rule in standing.rules if rule.learned)
    assert standing.rule("instances").threshold == 3
    healthy = scraped_history(read_file(lived(folder, 3.0, 1)))
    fired = alarms(standing, Tracer(standing.rehearsal, healthy, 7.0))
    assert not {alert for alert, firing in fired.items() if firing.any()}
    tracer = Tracer(standing.rehearsal, scraped_history(read_file(file)), 7.0)
    fired = alarms(standing, tracer)
    slow = fired["RolloutTrainerSlow"]
    began = float(tracer.scraped.times[0]) + SLOW.start
    assert slow.any()
    assert not slow[(tracer.at < began) | (tracer.at > began + SLOW.end - SLOW.start + 900.0)].any()
    text = str(rules_document(standing, Writing(MetricNames(), "lived")))
    assert "healthy hours of 0.om" in text

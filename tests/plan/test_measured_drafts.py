"""A profile of an engine that drafted: what size and simulate take from it, and what a scenario may change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleetsim as fs
from fleetsim.calibrate.facts import sheets_of
from fleetsim.config import default_scenario, with_changes
from fleetsim.config.engine_profile import Profile, load_profile, profile_text, seal_of
from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError
from fleetsim.job.assumptions import assumptions_of
from fleetsim.job.engine_choices import drafts_of
from fleetsim.job.engine_source import engine_source
from fleetsim.job.trials import simulated
from fleetsim.sim.engines import (
    engine_of,
    in_engine,
    speculation_of,
    step_time_as_measured,
    step_time_of,
    without_drafts,
)
from tests.profiles import profile

DRAFTS = {
    "method": "ngram",
    "num_speculative_tokens": 4,
    "acceptance": [0.5, 0.3, 0.2, 0.1],
    "drafted_tokens": 2.5,
    "iterations": 12_000,
    "measured_on": "requests of its users",
    "swept_tokens": 1.0,
}
SMALL = {
    "engine.slowdown": 1.0,
    "trainer.batch_samples": 64,
    "trainer.fixed_s": 2.0,
    "fleet.instances": 2,
    "run.steps": 6,
    "run.replications": 2,
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    place = tmp_path / "drafting.profile.json"
    place.write_text(profile_text(profile(speculation=DRAFTS)))
    return str(place)


def job(path: str, **speculation: Any) -> Scenario:
    return with_changes(
        default_scenario(),
        {
            **SMALL,
            "engine.kind": "measured",
            "engine.profile": path,
            **({"engine.speculation": speculation} if speculation else {}),
        },
    )


def test_the_scenario_takes_the_profiles_drafts(path: str) -> None:
    scenario = job(path)
    drafts = speculation_of(scenario)
    assert drafts is not None
    assert (drafts.method, drafts.num_speculative_tokens) == ("ngram", 4)
    step_time, limits = engine_of(scenario, log_probs=False)
    assert step_time.speculation is not None
    assert step_time.speculation.lengths == ((1.0, 1.5, 1.8, 2.0, 2.1),)
    assert step_time.speculation.source == f"n-gram, measured: profile {load_profile(path).name}"
    found = np.array([1.0, 16.0, float(limits.max_num_seqs)])
    plain = step_time_of(load_profile(path))
    context = 1000.0
    expected = (plain.curve(found * 3.5) + plain.per_seq_s * found + plain.per_kv_token_s * context * found) / 2.1
    assert step_time.mixed_s(found, context, 0.0, 0.0) == pytest.approx(expected, rel=1e-3)
    as_measured = step_time_as_measured(load_profile(path))
    assert as_measured.mixed_s(found, context, 0.0, 0.0) == pytest.approx(expected, rel=1e-3)


def test_no_drafts_can_be_asked_for(path: str) -> None:
    off = without_drafts(job(path))
    assert speculation_of(off) is None
    assert engine_of(off)[0].speculation is None
    assert without_drafts(off) is off
    asked = with_changes(
        job(path), {"engine.speculation.method": "ngram", "engine.speculation.num_speculative_tokens": 0}
    )
    assert engine_of(asked)[0].speculation is None


def test_size_says_whether_they_pay_and_what_it_cannot_know(path: str) -> None:
    found = drafts_of(job(path), 2, simulated)
    assert found is not None
    assert [t.k for t in found.tried] == [0, 1, 2, 3, 4, 5, 7]
    assert "Speculation pays" in found.text
    assert "drafts pay less than told" in found.text
    told = " ".join(fs.load(job(path)).simulate().explained.split())
    assert "n-gram, measured: profile" in told
    assert "engine.speculation.acceptance" not in {a.path for a in assumptions_of(job(path), ())}
    assert "without speculative decoding" not in engine_source(job(path), 2).accuracy


def test_the_profile_shows_them() -> None:
    (sheet,) = [s for s in sheets_of(profile(speculation=DRAFTS)) if s.title == "speculative decoding"]
    told = dict(sheet.rows)
    assert told["drafted"] == "up to 4 tokens: n-gram"
    assert told["kept, by position"] == "50.0 %, 30.0 %, 20.0 %, 10.0 % of the iterations"
    assert told["an iteration brings"] == "2.1 tokens of a sequence"
    assert sheet.note == "12,000 iterations of a sequence: requests of its users"
    assert not [s for s in sheets_of(profile()) if s.title == "speculative decoding"]


def test_a_scenario_may_say_better_what_is_accepted(path: str) -> None:
    step_time, _ = engine_of(job(path, method="ngram", num_speculative_tokens=2, acceptance=[0.9, 0.8]))
    assert step_time.speculation is not None
    assert step_time.speculation.lengths[0] == pytest.approx((1.0, 1.9, 2.7))


@pytest.mark.parametrize(
    ("speculation", "key", "says"),
    [
        ({"method": "mtp"}, "engine.speculation.method", "was measured with ngram"),
        ({"method": "ngram", "draft_s": 0.001}, "engine.speculation.draft_s", "hold its drafter's"),
    ],
)
def test_what_contradicts_the_profile_is_refused(path: str, speculation: dict[str, Any], key: str, says: str) -> None:
    scenario = job(path, **speculation)
    with pytest.raises(InputError, match=says) as caught:
        engine_of(scenario)
    assert [p.path for p in in_engine(scenario, caught.value)] == [key]


def test_a_profile_without_drafts_says_nothing_of_a_drafter(tmp_path: Path) -> None:
    place = tmp_path / "plain.profile.json"
    place.write_text(profile_text(profile()))
    with pytest.raises(InputError, match="measured without drafts"):
        engine_of(job(str(place), method="eagle3"))
    assert engine_of(job(str(place), method="eagle3", draft_s=0.001))[0].speculation is not None


def test_seals_from_before_there_were_drafts_hold() -> None:
    plain = profile()
    drafting = profile(speculation=DRAFTS)
    assert plain.speculation is None
    assert '"speculation"' not in profile_text(plain)
    assert seal_of(plain) != seal_of(drafting)
    assert isinstance(drafting, Profile)

"""What-ifs of a window that came without a scenario: nothing invented binds, nothing unread is silent, and where the
window's loads end the intervals grow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.config.load import load_scenario, with_changes
from fleetsim.engine.step_time import LinearStepTime
from fleetsim.records import replace
from fleetsim.replay.change.recommendation import extrapolated
from fleetsim.replay.change.what_if import changed, what_if
from fleetsim.replay.implied.admission import _places
from fleetsim.replay.implied.implied_scenario import Implied, implied
from fleetsim.replay.implied.speed import Shape, Speed
from fleetsim.replay.observe.lengths import expected_hits, places_when_spread
from fleetsim.replay.observe.observe import observe
from tests.replay.independent import Job, run
from tests.replay.windows import window

NO_STALENESS = "no staleness bound shows in this window"


def bare(job: Job, hours: float = 0.5) -> tuple[Implied, float]:
    """What a window of the job implies, and the step that it has."""
    ran = run(job, hours)
    history = ran.history()
    return implied(observe(history), history), ran.step_s


def test_a_clients_cap_is_raised_without_a_bound_that_nobody_saw() -> None:
    job = Job(train_s=20.0, in_flight=64, staleness=4.0)
    model, step_s = bare(job)
    assert model.scenario.admission.law == "unbounded"
    answer = what_if(model, {"fleet.max_in_flight_samples": 128}, replications=2)
    step = answer.effect("step_s")
    assert step.before.mean == pytest.approx(step_s, rel=0.06)
    assert step.after.ci_low <= run(replace(job, in_flight=128), 0.5).step_s <= step.after.ci_high
    assert answer.extrapolated is not None
    assert any(note.startswith(NO_STALENESS) for note in answer.notes)
    assert not any(note.startswith(NO_STALENESS) for note in changed(model, {"fleet.instances": 5})[2])


def test_a_queue_that_grows_is_simulated_as_one() -> None:
    job = Job(instances=6, train_s=30.0, staleness=1e6, in_flight=512)
    model, step_s = bare(job)
    assert (model.scenario.admission.law, model.scenario.buffer.capacity_samples) == ("unbounded", None)
    step = what_if(model, {"fleet.instances": 1}, replications=2).effect("step_s")
    assert step.before.mean == pytest.approx(step_s, rel=0.02)
    fewer = run(replace(job, instances=1), 0.5).step_s
    assert step.after.ci_low <= fewer <= step.after.ci_high
    assert step.after.mean == pytest.approx(fewer, rel=0.1)


@given(st.integers(2, 32), st.integers(2, 64), st.integers(200, 4000), st.booleans())
def test_hits_say_whether_siblings_are_kept_together(group: int, instances: int, prompt: int, together: bool) -> None:
    scenario = with_changes(
        load_scenario("async-one-step"),
        {"workload.group_size": group, "trainer.batch_samples": 8 * group, "fleet.instances": instances},
    )
    places = 1.0 if together else places_when_spread(group, instances)
    seen = window(
        **{"fleet.prefix_hit": expected_hits(group, prompt, 16, places), "lengths.prompt_mean": float(prompt)}
    )
    assert _places(scenario, seen) == (({},) if together else ({"fleet.group_placement": "spread"},))


@pytest.mark.parametrize(
    ("law", "path", "value", "told"),
    [
        ("batches_ahead", "admission.max_staleness", 4.0, "only admission.law version_window or target_step reads it"),
        ("version_window", "admission.batches_ahead", 2, "only admission.law batches_ahead reads it"),
        ("version_window", "admission.max_staleness", 4.0, ""),
    ],
)
def test_a_change_that_the_inferred_law_does_not_read_is_told(law: str, path: str, value: object, told: str) -> None:
    scenario, guess = with_changes(load_scenario("async-one-step"), {"admission.law": law}), (f"admission: {law}",)
    model = Implied(scenario, None, None, (), guess, None, ())
    notes = changed(model, {path: value})[2]
    assert [told in note for note in notes] == ([True] if told else [])
    if told:
        assert f"{law} is what the window looks like" in notes[0]
        known = changed(replace(model, assumed=()), {path: value})[2]
        assert "what the window looks like" not in known[0]


@given(
    st.floats(0.001, 0.05), st.floats(1e-6, 1e-3), st.floats(1.0, 200.0), st.floats(1.01, 20.0), st.booleans(),
    st.floats(0.0, 1.0),
)  # fmt: skip
def test_the_doubt_holds_every_split_of_an_iteration(
    base: float, each: float, end: float, far: float, above: bool, fixed: float
) -> None:
    """Whatever share of an iteration is fixed at the window's end, its seconds beyond it lie within the doubt."""
    end = float(round(end) + (0 if above else 40))
    model = LinearStepTime(base, each)
    running = float(max(1, round(end * far if above else end / far)))
    shape: Shape = "assumed"
    found = extrapolated(Speed(model, shape, None, (end, end), 100, True, 0.0, 0.0), running)
    if found is None:
        return
    level = model.seconds(round(end))
    truth = LinearStepTime(fixed * level, (1.0 - fixed) * level / end)
    ratio = truth.seconds(round(running)) / model.seconds(round(running))
    fast, slow = found.doubt
    assert fast - 1e-9 <= ratio <= slow + 1e-9
    known = extrapolated(Speed(model, "roofline", 1.0, (end, end), 100, True, 0.0, 0.0), running)
    assert known is not None
    assert fast <= known.doubt[0] <= 1.0 <= known.doubt[1] <= slow

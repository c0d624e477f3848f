"""Does speculative decoding pay, and with which k: what size, split and simulate say of it, and that it is so."""

from __future__ import annotations

from typing import Any

import pytest

import fleetsim as fs
from fleetsim.config import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.job.assumptions import assumptions_of
from fleetsim.job.engine_choices import at_engine, drafts_of, engine_words
from fleetsim.job.trials import simulated
from tests.plan.fakes import one_ahead

SMALL = {
    "engine.slowdown": 1.0,
    "trainer.batch_samples": 64,
    "trainer.fixed_s": 2.0,
    "fleet.instances": 2,
    "run.steps": 8,
    "run.replications": 2,
}


def job(**speculation: Any) -> Scenario:
    return with_changes(one_ahead(), {**SMALL, "engine.speculation": speculation or None})


def test_without_speculation_there_is_nothing_to_say() -> None:
    assert drafts_of(job(), 2, simulated) is None


def test_good_drafts_pay_and_a_longer_one_is_better() -> None:
    found = drafts_of(job(method="mtp", num_speculative_tokens=1, curve="qwen3.5-397b-mtp"), 4, simulated)
    assert found is not None
    assert [t.k for t in found.tried] == [0, 1, 2, 3, 5, 7]
    steps = {t.k: t.step_s for t in found.tried}
    assert steps[0] > 1.2 * steps[1]
    assert found.best == min(steps, key=lambda k: steps[k]) != 1
    assert "Speculation pays" in found.text
    assert f"the best is k {found.best}" in found.text
    assert "curve qwen3.5-397b-mtp: 1.93 tokens an iteration" in found.text


def test_drafts_that_are_refused_do_not_pay() -> None:
    found = drafts_of(job(method="draft_model", draft_model="Qwen/Qwen2.5-3B", acceptance=0.1), 2, simulated)
    assert found is not None
    assert (found.best, found.pays_up_to) == (0, 0)
    assert "does not pay at this load" in found.text
    assert "it never pays" in found.text


def test_where_the_trainer_binds_nothing_changes() -> None:
    slow = with_changes(job(method="mtp"), {"trainer.fixed_s": 600.0, "admission.law": "version_window"})
    found = drafts_of(slow, 2, simulated)
    assert found is not None
    assert "changes no step here" in found.text


def test_without_a_limit_of_admission_an_instance_runs_as_many_as_it_holds() -> None:
    unlimited = with_changes(job(method="mtp"), {"admission.law": "unbounded"})
    assert "where an instance runs 1,024 sequences" in engine_words(unlimited)


def test_a_measured_length_is_the_same_law_for_other_k() -> None:
    found = drafts_of(job(method="mtp", acceptance_length=3.0, num_speculative_tokens=3), 1, simulated)
    assert found is not None
    assert found.tokens == pytest.approx(3.0)
    assert len(found.tried) == 6


def test_it_pays_up_to_the_batch_where_the_rates_cross() -> None:
    from fleetsim.job.nameplate import context_in_flight
    from fleetsim.sim.engines import engine_of

    scenario = job(method="ngram", acceptance=0.3)
    _, up_to = at_engine(scenario)
    drafting, plain = engine_of(scenario)[0], engine_of(job())[0]
    context = context_in_flight(scenario)
    assert up_to > 1
    for b, pays in ((1, True), (up_to, True), (up_to + 1, False)):
        assert (drafting.decode_tok_s(b, context) > plain.decode_tok_s(b, context)) == pays


@pytest.mark.usefixtures("quick")
def test_every_answer_tells_it() -> None:
    asked = fs.load(job(method="mtp"))
    size, split = asked.size(), asked.split(8)
    for result in (size, split):
        drafts = result.document()["drafts"]
        assert "assumed: curve glm-5.2-mtp: 2.99 tokens an iteration" in drafts["text"]
        assert drafts["k"] == 3
    assert "2.99 tokens an iteration" in " ".join(asked.simulate().explained.split())
    assert "drafts" not in fs.load(job()).size().document()


def test_a_stand_in_is_among_what_is_assumed_with_the_flag_that_changes_it() -> None:
    found = {a.path: a for a in assumptions_of(job(method="mtp"), ())}["engine.speculation.acceptance"]
    assert found.flag == "--set engine.speculation.acceptance_length=3"
    assert found.text.startswith("MTP (Qwen/Qwen2.5-7B is not known to have such a layer")
    assert found.text.endswith(", curve glm-5.2-mtp: 2.99 tokens an iteration")
    for given in ({"acceptance": 0.8}, {"acceptance_length": 2.0}, {"curve": "deepseek-v4-mtp"}):
        told = {a.path for a in assumptions_of(job(method="mtp", **given), ())}
        assert "engine.speculation.acceptance" not in told

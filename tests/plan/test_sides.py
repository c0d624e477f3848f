"""Do prompts on GPUs of their own pay, and in which ratio: what size and simulate say of it, and that it is so."""

from __future__ import annotations

from typing import Any

import pytest

import fleetsim as fs
from fleetsim.config import default_scenario, with_changes
from fleetsim.config.load import parse_override
from fleetsim.config.scenario import Scenario
from fleetsim.job.assumptions import assumptions_of
from fleetsim.job.engine_choices import UNDIVIDED, side_words, sides_of
from fleetsim.job.trials import simulated

SMALL = {
    "trainer.batch_samples": 64,
    "trainer.fixed_s": 2.0,
    "fleet.instances": 2,
    "run.steps": 8,
    "run.replications": 2,
}
# Long prompts of one sample each, short answers: the decode engines would stand still for them.
PROMPTS = {"workload.prompt_tokens": 12_000, "workload.group_size": 1, "workload.output_tokens.mean": 400.0}


def job(prefill: int | None, decode: int = 1, **changes: Any) -> Scenario:
    sides = None if prefill is None else {"prefill": prefill, "decode": decode}
    return with_changes(default_scenario(), {**SMALL, **changes, "engine.disaggregation": sides})


def test_without_disaggregation_there_is_nothing_to_say() -> None:
    assert sides_of(job(None), 2, simulated) is None
    assert side_words(job(None)) == ""


def test_short_prompts_do_not_pay_for_gpus_of_their_own() -> None:
    found = sides_of(job(2, 2, **{"trainer.batch_samples": 1024}), 2, simulated)
    assert found is not None
    assert found.best == UNDIVIDED
    assert found.busy < 0.1
    assert "Disaggregation does not pay here. On 8 GPUs" in found.text
    steps = {t.text: t.step_s for t in found.tried}
    assert steps["1:7"] < steps["2:2"]
    assert found.binds == "decode"
    assert "the decode engines have too little" in found.text


def test_prefill_engines_that_are_always_busy_bind() -> None:
    found = sides_of(job(1, 3, **PROMPTS), 2, simulated)
    assert found is not None
    assert found.busy > 0.85
    assert found.binds == "prefill"
    assert "requests wait for them" in found.text
    more = [t for t in found.tried if t.prefill and t.prefill / t.decode > 1 / 3]
    assert min(t.step_s for t in more) < next(t.step_s for t in found.tried if t.text == "1:3")


def test_all_ways_have_the_same_gpus() -> None:
    found = sides_of(job(1, 3), 1, simulated)
    assert found is not None
    gpus = {t.instances * (t.prefill + t.decode) for t in found.tried}
    assert gpus == {8}


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_every_answer_tells_it() -> None:
    asked = fs.load(job(1, 3))
    size, split = asked.size(), asked.split(16)
    assert "prefill" in str(size)
    for told, result in ((size.explained, size), (split.explained, split)):
        assert "Disaggregation" in told
        assert "Prefill engines compute" in " ".join(told.split())
        assert result.document()["sides"]["decode"] == 3
    ran = asked.simulate()
    assert 0 < ran.metrics["prefill_busy_fraction"].mean < 1
    words = "1 prefill engine of 1 GPU and 3 decode engines of 1 GPU are an instance"
    assert words in " ".join(ran.explained.split())
    said = {a.path: a.text for a in assumptions_of(asked.scenario, ())}
    assert said["engine.tp"] == "1 prefill (TP1) + 3 decode (TP1) engines: 4 GPUs per instance"
    assert "sides" not in fs.load(job(None)).size().document()


def test_one_setting_is_enough() -> None:
    for setting in ("engine.disaggregation.prefill=2", "engine.disaggregation={prefill: 2, decode: 4}"):
        path, value = parse_override(setting)
        sides = with_changes(default_scenario(), {path: value}).engine.disaggregation
        assert sides is not None
        assert sides.prefill == 2

from __future__ import annotations

import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.config.tree import is_given, value_at
from fleetsim.job.assumptions import assumptions_of
from fleetsim.job.nameplate import mean_step_s
from fleetsim.search.arrangements import Rules
from fleetsim.size.assumptions import way_assumptions


def test_the_embedded_default_is_told_in_full() -> None:
    text = "; ".join(a.text for a in assumptions_of(default_scenario(), ()))
    for told in (
        "Qwen/Qwen2.5-7B", "H100-SXM", "TP1", "bfloat16", "groups of 8", "prompts of 512 tokens", "cut at 8,192 tokens",
        "20 s of compute", "8 GPUs", "generation at most 4 weight versions ahead",
        "headroom 0.8",
    ):  # fmt: skip
        assert told in text


def test_what_was_given_is_never_assumed() -> None:
    everything = [a.path for a in assumptions_of(default_scenario(), ())]
    for path in everything:
        assert path not in [a.path for a in assumptions_of(default_scenario(), {path})]
    assert assumptions_of(default_scenario(), set(everything)) == ()


def test_what_has_no_effect_is_not_assumed() -> None:
    constant = with_changes(default_scenario(), {"engine.kind": "constant", "engine.instance_tok_s": 4000.0})
    paths = {a.path for a in assumptions_of(constant, {"engine.instance_tok_s"})}
    assert not paths & {"engine.model", "engine.gpu", "engine.dtype", "workload.prompt_tokens"}


def test_every_assumption_names_a_path_of_the_scenario() -> None:
    for a in assumptions_of(default_scenario(), ()):
        assert value_at(default_scenario(), a.path) == a.value


@pytest.mark.parametrize(
    ("path", "given", "expected"),
    [("a.b", {"a"}, True), ("a.b", {"a.b"}, True), ("a.b", {"a.bc"}, False), ("a", {"a.b"}, False)],
)
def test_a_given_section_gives_its_fields(path: str, given: set[str], expected: bool) -> None:
    assert is_given(path, given) is expected


def test_derived_sync_times_are_told_as_derived() -> None:
    derived = with_changes(default_scenario(), {"sync.transport": "collective_broadcast"})
    text = {a.path: a.text for a in assumptions_of(derived, {"sync.transport"})}
    assert text["sync.pause_s"] == (
        "engines pause 3.5 s per weight sync: from 15.2 GB in 339 tensors (collective_broadcast), most of it gathering"
    )
    assert text["sync.publish_s"] == "weights published 0 s after the update"
    assert text["sync.trainer_block_s"] == "the trainer waits 3.5 s per weight sync"
    assert "sync.publish_s" not in {a.path for a in assumptions_of(default_scenario(), ())}


def test_a_trainer_that_does_not_fit_by_the_estimate_is_told_by_its_own_seconds() -> None:
    """Somebody runs a configuration that the estimate refuses: its plan says what the file assumes."""
    assumed_seconds = ["trainer.fixed_s", "trainer.per_token_s"]
    changes = {"engine.model": "Qwen/Qwen3-8B", "trainer.gpus": 1, "trainer.fixed_s": 0.0, "trainer.per_token_s": 1e-4}
    job = with_changes(default_scenario(), changes | {"assumed": assumed_seconds})
    text = {a.path: a.text for a in assumptions_of(job, ())}["trainer.fixed_s"]
    assert text.startswith("0.0001 s of compute per trained token")


def test_a_split_tells_assumed_trainer_seconds_once_and_as_a_whole() -> None:
    guesses = ("trainer.fixed_s", "trainer.per_token_s", "trainer.phases", "fleet.switch_s")
    job = with_changes(
        default_scenario(),
        {"trainer.fixed_s": 0.0, "trainer.per_token_s": 1e-5, "fleet.switch_s": 4.0, "assumed": list(guesses)},
    )
    found = [a for a in way_assumptions(job, Rules(), Rules(trainer_least=2), frozenset()) if a.path in guesses]
    assert [a.path for a in found] == ["trainer.fixed_s", "fleet.switch_s"]
    assert found[0].text == f"{mean_step_s(job):.3g} s of compute per step on 8 GPUs"
    # Seconds of the user's beside those per token: the others are still told.
    mine = {a.path for a in way_assumptions(job, Rules(), Rules(), frozenset({"trainer.fixed_s", "trainer.gpus"}))}
    assert "trainer.per_token_s" not in mine, "seconds that were estimated together are told in one line"

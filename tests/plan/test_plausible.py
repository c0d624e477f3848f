from __future__ import annotations

from typing import Any

import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.engine.training import trainer_s_per_token
from fleetsim.size.implausible_defaults import implausible

LARGE = {"engine.model": "Qwen/Qwen2.5-32B", "engine.tp": 2}
LENGTH = {"workload.output_tokens": {"kind": "constant", "value": 3000}}


def told(changes: dict[str, Any], about: str, given: tuple[str, ...] | None = None) -> list[str]:
    """The warnings with a word in them; given are the changed paths, unless said otherwise."""
    scenario = with_changes(default_scenario(), changes)
    return [w for w in implausible(scenario, changes.keys() if given is None else given) if about in w]


def test_trainer_seconds_that_do_not_fit_the_model() -> None:
    # 32.76e9 parameters x 8 FLOPs x 512 x (512 + 3000) tokens on half of 8 x 989e12 FLOP/s
    assert pytest.approx(119, rel=0.01) == 512 * 3512 * 8 * 32.76e9 / (4 * 989e12)
    (text,) = told(LARGE | LENGTH, "trainer step")
    assert "a trainer step of 20.0 s is assumed; an update of Qwen/Qwen2.5-32B on 1,798,144 tokens" in text
    assert "takes 8 GPUs about 1 min 59 s" in text
    assert "--trainer-step-s 119, or" in text


@pytest.mark.parametrize("path", ["trainer.fixed_s", "trainer.per_token_s", "trainer.scaling.points", "trainer"])
def test_seconds_that_were_given_are_the_users(path: str) -> None:
    assert told(LARGE, "trainer step")
    assert not told(LARGE, "trainer step", (*LARGE, path))


def test_no_word_on_seconds_without_a_model_or_a_length_or_within_a_factor_of_two() -> None:
    assert not told(LARGE, "trainer step", ("trainer.gpus",))
    assert not told({"workload.output_tokens.mean": 1500.0}, "trainer step")
    assert told({"workload.output_tokens.mean": 6000.0, "workload.output_tokens.max": 32768.0}, "trainer step")
    assert not told({"engine.model": "nobody/knows-this"}, "trainer step")
    by_rate = {"engine.kind": "constant", "engine.instance_tok_s": 4000.0} | LENGTH
    assert implausible(with_changes(default_scenario(), by_rate), by_rate.keys()) == ()


def test_a_trainer_too_small_for_its_states() -> None:
    (text,) = told(LARGE | {"trainer.gpus": 1}, "Adam")
    assert text.startswith("a trainer of 1 GPU cannot hold")
    assert "(16 bytes per parameter), one of 7 could: --trainer-gpus 7, unless" in text
    assert not told(LARGE | {"trainer.gpus": 7}, "Adam")


def test_a_sync_that_does_not_fit_the_model() -> None:
    assert told(LARGE, "weight sync") == [
        "a weight sync of 1 s is assumed; 65.5 GB by collective broadcast take about 13.5 s: "
        "--set sync.transport=collective_broadcast"
    ]
    small = {"engine.model": "Qwen/Qwen2.5-3B"}
    assert not told(small, "weight sync")
    for known in ({"sync.pause_s": 1.0}, {"sync.trainer_block_s": 1.0}, {"sync.transport": "collective_broadcast"}):
        assert not told(LARGE | known, "weight sync")
    for text in told(LARGE | {"fleet.placement": "colocated"}, "weight sync"):
        assert "by CUDA IPC" in text


def test_an_update_is_four_passes_and_more_gpus_divide_it() -> None:
    one, eight = (trainer_s_per_token("Qwen/Qwen2.5-7B", "H100-SXM", gpus) for gpus in (1, 8))
    assert one is not None
    assert eight is not None
    assert one[0] == 4 * one[1] == pytest.approx(8 * eight[0])
    assert trainer_s_per_token("Qwen/Qwen2.5-7B", "no such GPU", 8) is None

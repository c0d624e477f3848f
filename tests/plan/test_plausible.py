"""Seconds that were given for a trainer that cannot hold its model."""

from __future__ import annotations

from typing import Any

from fleetsim.config import default_scenario, with_changes
from fleetsim.size.assumptions import implausible

LARGE = {"engine.model": "Qwen/Qwen2.5-32B", "engine.tp": 2}


def told(changes: dict[str, Any]) -> tuple[str, ...]:
    return implausible(with_changes(default_scenario(), changes), changes.keys())


def test_a_trainer_too_small_for_its_states() -> None:
    (text,) = told(LARGE | {"trainer.gpus": 4, "trainer.fixed_s": 20.0})
    assert text.startswith("a trainer of 4 GPUs cannot hold weights, gradients and Adam states of")
    assert "one of 8 could: --trainer-gpus 8, unless" in text
    assert not told(LARGE | {"trainer.gpus": 16, "trainer.fixed_s": 20.0})


def test_no_word_without_a_model() -> None:
    by_rate = {"engine.kind": "constant", "engine.instance_tok_s": 4000.0, "trainer.gpus": 1}
    assert told(by_rate) == ()
    assert told({"engine.model": "nobody/knows-this", "trainer.gpus": 1}) == ()


def test_what_the_recipe_saves_counts() -> None:
    small = LARGE | {"trainer.gpus": 4, "trainer.fixed_s": 20.0}
    assert told(small)
    assert not told(small | {"trainer.recipe.tune": "lora"})

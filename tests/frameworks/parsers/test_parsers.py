"""A framework's own parser takes what `scenario to` writes, and what it then has is the scenario."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from fleetsim.config import Scenario, load_scenario
from fleetsim.config.load import with_changes
from fleetsim.errors import InputError
from fleetsim.frameworks.convert import FRAMEWORKS, scenario_from
from fleetsim.frameworks.export import Exported
from fleetsim.frameworks.settings import normal, settings_of
from tests.frameworks.parsers.conftest import Parse, commands
from tests.frameworks.test_config_keys import CHANGES
from tests.frameworks.test_to import PRESETS, differing, scenarios, written

OWN = ("verl", "openrlhf", "trl", "areal", "skyrl")


def parsed(made: Exported, ask: Parse, folder: Path) -> dict[str, Any]:
    """All settings that the framework then has, by key, and the programs that are started."""
    script = FRAMEWORKS[made.framework].form not in ("yaml", "toml")
    started = commands(made.text, folder) if script else [[]]
    found: dict[str, Any] = {}
    for words in started:
        answer = ask(made.framework, words, made.text)
        assert "error" not in answer, f"{answer['error']}\n{made.text}"
        found |= answer["settings"]
    return found


def taken_whole(made: Exported, scenario: Scenario, ask: Parse, folder: Path) -> None:
    """The framework takes it, has every setting as it was written, and all its settings together say the scenario."""
    found = parsed(made, ask, folder)
    resolved = settings_of(found.items())
    for key in [k for k, value in found.items() if isinstance(value, str) and value.startswith("{")]:
        resolved.add(key, json.loads(found[key]))
    for key, value in made.settings.items():
        assert resolved.found[normal(key)].value == (found[value[2:-1]] if str(value).startswith("${") else value), key
    start = next(mode.start for mode in FRAMEWORKS[made.framework].modes if mode.name == made.mode)
    resolved.programs += start.split()
    again = scenario_from(made.framework, resolved, speed=lambda model, gpu, gpus: (1e-6, 1e-6)).scenario
    wrong = differing(again, scenario, {left.path for left in made.left_out})
    # What the scenario leaves open, the framework need not: its trainer's ranks, its backend.
    assert {p: v for p, v in wrong.items() if v[0] is not None or not p.startswith("trainer.recipe.")} == {}, made.text


@pytest.mark.parametrize("framework", OWN)
def test_presets_are_taken(framework: str, own_parser: Parse, tmp_path: Path) -> None:
    """Its own, and some of the others: what they cannot be told is listed, and the rest is a configuration."""
    for name in [p for p in PRESETS if p.startswith(f"presets/{framework}")] + PRESETS[::7]:
        scenario = load_scenario(name)
        taken_whole(written(framework, scenario), scenario, own_parser, tmp_path)


@pytest.mark.parametrize("framework", OWN)
def test_what_presets_do_not_have_is_taken(framework: str, own_parser: Parse, tmp_path: Path) -> None:
    """Ranks, offload, passes, critics, speculation, prefill engines and adapters."""
    sides = {"engine.disaggregation.prefill": 1, "engine.disaggregation.decode": 3, "fleet.instances": 2}
    name = {"trl": "trl-async-grpo", "openrlhf": "openrlhf-async"}.get(framework, framework)
    own = load_scenario(next(p for p in PRESETS if p.startswith(f"presets/{name}")))
    for changes in (*CHANGES, sides, {"engine.lora.rank": 32}):
        try:
            scenario = with_changes(own, changes)
            made = written(framework, scenario)
        except InputError:
            assert framework == "verl", changes  # its instances have no pipeline stages
            continue
        taken_whole(made, scenario, own_parser, tmp_path)


@pytest.mark.parametrize("framework", OWN)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scenario=scenarios())
def test_any_scenario_is_taken(framework: str, own_parser: Parse, tmp_path: Path, scenario: Scenario) -> None:
    """Or it is refused before it is written."""
    try:
        made = written(framework, scenario)
    except InputError:
        return
    taken_whole(made, scenario, own_parser, tmp_path)


def test_a_parser_refuses_what_is_wrong(own_parser: Parse, tmp_path: Path) -> None:
    """The parsers are run: a setting that verl does not have, and a batch that SkyRL cannot divide, are refused."""
    verl = written("verl", load_scenario("presets/verl-sync"))
    words = commands(verl.text, tmp_path)[-1]
    assert "Could not override" in own_parser("verl", [*words, "actor_rollout_ref.rollout.no_such_key=1"], "")["error"]
    skyrl = commands(written("skyrl", load_scenario("presets/skyrl-fully-async")).text, tmp_path)[-1]
    assert "divisible" in own_parser("skyrl", [*skyrl, "trainer.policy_mini_batch_size=3"], "")["error"]


@pytest.mark.parametrize("gpus", [4, 6, 7, 8, 12, 14, 16, 24])
def test_verl_stops_at_the_batches_that_are_told_about(gpus: int, own_parser: Parse, tmp_path: Path) -> None:
    """verl's own check of a batch of 512 samples, without dynamic micro-batches."""
    scenario = load_scenario("presets/verl-sync", [f"trainer.gpus={gpus}", f"fleet.instances={gpus}"])
    made = written("verl", scenario)
    static = ("actor_rollout_ref.actor.use_dynamic_bsz=False", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1")
    answer = own_parser("verl", [*commands(made.text, tmp_path)[-1], *static], "")
    assert ("must be divisible" in answer.get("error", "")) == any("as many samples" in note for note in made.notes)

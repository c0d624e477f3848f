"""An imported scenario has the semantics of the preset that it names, wherever its configuration asks for no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetsim.config import Scenario, load_scenario
from fleetsim.frameworks.convert import FRAMEWORKS, scenario_from
from fleetsim.frameworks.source import parsed_source, read_source
from fleetsim.trainer.estimate import token_seconds

DATA = Path(__file__).parent / "data"
SEMANTICS = (
    "fleet.placement",
    "fleet.group_placement",
    "fleet.routing",
    "sync.trigger",
    "sync.in_flight",
    "sync.scope",
    "sync.reset_prefix_cache",
    "admission.law",
    "admission.age_reference",
    "admission.age_action",
    "buffer.on_full",
    "buffer.batch_rule",
    "buffer.wait_for_oldest",
    "buffer.leftover",
)
PASSES = ("framework", "tune", "old_log_probs", "reference")
# Passes that the configuration itself switches on or off: use_kl_loss, beta, init_coef, load_ref_policy, init_kl_coef.
OTHER_PASSES = {
    "slime_sync.sh",
    "trl_grpo.py",
    "verl_sync.yaml",
    "openrlhf_async.sh",
    "open_instruct.sh",
    "roll_agentic.yaml",
    "ms_swift_colocate.sh",
    "ms_swift_ray.yaml",
    "ms_swift_server.sh",
    "rlinf.yaml",
    "tinker_config.json",
}
# What the configuration itself says otherwise than the preset: --partial-rollout, vllm_generate_batch_size,
# in_flight_weight_updates, vllm_mode server.
SAID_OTHERWISE = {
    "slime_sync.sh": {"buffer.leftover"},
    "openrlhf_async.sh": {"buffer.batch_rule", "buffer.leftover"},
    "nemo_rl_async.yaml": {"sync.in_flight"},
    "trl_server.sh": {"fleet.placement"},
    "ms_swift_server.sh": {"fleet.placement"},
    "ms_swift_ray.yaml": {"fleet.placement"},
    "rlinf.yaml": {"fleet.placement"},
    "tinker_config.json": {"fleet.group_placement", "fleet.placement", "fleet.routing"},
}


def at(scenario: Scenario, path: str) -> Any:
    value: Any = scenario
    for key in path.split("."):
        value = getattr(value, key)
    return value


@pytest.mark.parametrize("file", sorted(p.name for p in DATA.iterdir() if p.is_file()))
def test_semantics_are_the_presets(file: str) -> None:
    framework = max((f for f in FRAMEWORKS if file.replace("_", "-").startswith(f)), key=len)
    result = scenario_from(framework, read_source(str(DATA / file)), file, speed=token_seconds)
    preset = load_scenario(f"presets/{result.preset}")
    different = {path for path in SEMANTICS if at(result.scenario, path) != at(preset, path)}
    assert different == SAID_OTHERWISE.get(file, set())
    own, usual = result.scenario.trainer.recipe, preset.trainer.recipe
    same = all(getattr(own, name) == getattr(usual, name) for name in PASSES)
    assert same == (file not in OTHER_PASSES), (own, usual)


def test_what_a_preset_has_otherwise_is_said() -> None:
    """SkyRL waits for the whole batch by default, on shared GPUs (skyrl/train/config); its preset does not."""
    read = parsed_source("python -m skyrl.train.entrypoints.main_base trainer.policy.model.path=Qwen/Qwen3-8B", "c.sh")
    assert scenario_from("skyrl", read).alike == "as the preset verl-sync, but for fleet.routing"
    server = scenario_from("trl", read_source(str(DATA / "trl_server.sh")))
    assert server.alike == "as the preset trl-grpo, but for fleet.placement"
    assert server.alike in server.scenario.description

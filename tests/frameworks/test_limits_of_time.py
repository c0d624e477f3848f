"""Time limits of rollouts: which setting says one, and what its framework does when it is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetsim.config.stations import TimeLimitConfig
from fleetsim.frameworks.convert import scenario_from
from fleetsim.frameworks.source import parsed_source, read_source

DATA = Path(__file__).parent / "data"
SOURCE = """
[[orchestrator.train.source]]
name = "swe"
[orchestrator.train.source.env.agent.timeout]
rollout = {seconds}
"""


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("native.generation_timeout_s", "turn"),
        ("native.env_timeout_s", "tools"),
        ("nemo_gym.rollout_timeout_s", "episode"),
    ],
)
def test_nemo_rl_sends_a_time_out_again(word: str, what: str) -> None:
    """nemo_rl/algorithms/single_controller_utils/config.py, RolloutFailureConfig."""
    path = DATA / "nemo_rl_single_controller.yaml"
    words = (f"async_rl.rollout_failure.{word}=900",)
    found = scenario_from("nemo-rl", read_source(str(path), words), path.name).scenario.stations
    limit = getattr(found, what)
    assert (limit.timeout_s, limit.lost) == (900.0, "retried")
    none = scenario_from("nemo-rl", read_source(str(path), (words[0].replace("900", "null"),)), path.name)
    assert getattr(none.scenario.stations, what).timeout_s is None


def test_prime_rl_trains_no_trace_with_an_error() -> None:
    """verifiers/v1/configs/agent.py, TimeoutConfig; prime_rl/orchestrator/algo/base.py."""
    text = 'model.name = "Qwen/Qwen3-8B"\nbatch_size = 64\ngroup_size = 8\n' + SOURCE.format(seconds=3600)
    found = scenario_from("prime-rl", parsed_source(text, "c.toml", ()), "c.toml").scenario.stations
    assert found.episode == TimeLimitConfig(timeout_s=3600.0, lost="dropped")
    plain = scenario_from("prime-rl", parsed_source(text.rpartition("[")[0], "c.toml", ()), "c.toml")
    assert plain.scenario.stations.episode.timeout_s is None


def test_skyrl_masks_what_harbor_ends() -> None:
    """examples/train_integrations/harbor/harbor_generator.py, build_step_wise_generator_output."""
    words = "python -m my.main_harbor trainer.policy.model.path=Qwen/Qwen2.5-0.5B"
    limit = "harbor_trial_config.agent.override_timeout_sec=1200"
    found = scenario_from("skyrl", parsed_source(f"{words} {limit}", "run.sh"), "run.sh").scenario.stations
    assert found.episode == TimeLimitConfig(timeout_s=1200.0, lost="masked")
    none = scenario_from("skyrl", parsed_source(words, "run.sh"), "run.sh").scenario.stations
    assert none.episode.timeout_s is None


RLLM = {
    "verl": "python3 -m examples.train rllm/backend=verl actor_rollout_ref.model.path=Qwen/Qwen3-8B",
    "tinker": "python train.py rllm/backend=tinker model.name=Qwen/Qwen3-8B training.group_size=8 "
    "data.train_batch_size=20",
}


@pytest.mark.parametrize("framework", RLLM)
@pytest.mark.parametrize(
    ("more", "lost"),
    [
        ("", "truncated"),
        ("rllm.compact_filtering.enable=True", "dropped"),
        ("rllm.compact_filtering.enable=True rllm.compact_filtering.mask_timeout=False", "truncated"),
    ],
)
def test_a_workflow_of_rllms_ends_in_time(framework: str, more: str, lost: str) -> None:
    """rllm/workflows/workflow.py, run_with_termination_handling; rllm/trainer/algorithms/config.py, should_mask."""
    words, limit = RLLM[framework], "rllm.workflow.workflow_args.timeout="

    def of(seconds: str) -> TimeLimitConfig:
        source = parsed_source(f"{words} {limit}{seconds} {more}", "c.sh")
        return scenario_from(framework, source, "c.sh").scenario.stations.episode

    assert of("600") == TimeLimitConfig(timeout_s=600.0, lost=lost)
    assert of("1e6").timeout_s is None

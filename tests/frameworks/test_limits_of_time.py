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
    ("word", "what"), [("native.generation_timeout_s", "turn"), ("nemo_gym.rollout_timeout_s", "episode")]
)
def test_nemo_rl_sends_a_time_out_again(word: str, what: str) -> None:
    """nemo_rl/algorithms/single_controller_utils/config.py, RolloutFailureConfig."""
    path = DATA / "nemo_rl_single_controller.yaml"
    words = (f"async_rl.rollout_failure.{word}=900",)
    found = scenario_from("nemo-rl", read_source(str(path), words), path.name).scenario.stations
    assert getattr(found, what) == TimeLimitConfig(timeout_s=900.0, lost="retried")
    none = scenario_from("nemo-rl", read_source(str(path), (words[0].replace("900", "null"),)), path.name)
    assert getattr(none.scenario.stations, what).timeout_s is None


def test_prime_rl_trains_no_trace_with_an_error() -> None:
    """verifiers/v1/configs/agent.py, TimeoutConfig; prime_rl/orchestrator/algo/base.py."""
    text = 'model.name = "Qwen/Qwen3-8B"\nbatch_size = 64\ngroup_size = 8\n' + SOURCE.format(seconds=3600)
    found = scenario_from("prime-rl", parsed_source(text, "c.toml", ()), "c.toml").scenario.stations
    assert found.episode == TimeLimitConfig(timeout_s=3600.0, lost="dropped")
    plain = scenario_from("prime-rl", parsed_source(text.rpartition("[")[0], "c.toml", ()), "c.toml")
    assert plain.scenario.stations.episode.timeout_s is None

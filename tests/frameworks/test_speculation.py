"""Speculative decoding in the words of each framework, and the section that has to come of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetsim.config import load_scenario
from fleetsim.errors import InputError
from fleetsim.frameworks.convert import Imported, scenario_from
from fleetsim.frameworks.source import parsed_source, read_source

DATA = Path(__file__).parent / "data"
MTP, ROLLOUT = "actor_rollout_ref.model.mtp", "actor_rollout_ref.rollout"
NEMO = "policy.generation.vllm_kwargs.speculative_config"


def read(framework: str, file: str, *words: str, sets: tuple[str, ...] = ()) -> Imported:
    return scenario_from(framework, read_source(str(DATA / file), words), file, sets)


CASES: list[tuple[str, str, tuple[str, ...], dict[str, Any], bool]] = [
    (
        "verl", "verl_sync.yaml",
        (
            f"{MTP}.enable=True", f"{MTP}.enable_rollout=True", f"{MTP}.enable_train=True",
            f"{MTP}.num_speculative_tokens=3",
        ),
        {"method": "mtp", "num_speculative_tokens": 3, "curve": "glm-5.2-mtp"}, False,
    ),
    (
        "verl", "verl_sync.yaml", (f"{ROLLOUT}.name=sglang", f"{MTP}.enable=True", f"{MTP}.enable_rollout=True"),
        {"method": "mtp", "num_speculative_tokens": 3, "num_draft_tokens": None}, True,
    ),
    (
        "verl", "verl_sync.yaml",
        (
            f"{ROLLOUT}.speculative_decoding.enable=True", f"{ROLLOUT}.speculative_decoding.method=EAGLE3",
            f"{ROLLOUT}.speculative_decoding.num_draft_tokens=4", f"{ROLLOUT}.speculative_decoding.draft_model_path=/x",
        ),
        {"method": "eagle3", "num_speculative_tokens": 4, "curve": "kimi-k2.5-eagle3"}, True,
    ),
    (
        "slime", "slime_sync.sh",
        (
            "--sglang-speculative-algorithm", "EAGLE", "--sglang-speculative-num-steps", "2",
            "--sglang-speculative-eagle-topk", "2", "--sglang-speculative-num-draft-tokens", "4",
        ),
        {"method": "mtp", "num_speculative_tokens": 2, "num_draft_tokens": 4}, True,
    ),
    (
        "nemo-rl", "nemo_rl_base.yaml", (f"++{NEMO}.method=ngram", f"++{NEMO}.num_speculative_tokens=5"),
        {"method": "ngram", "num_speculative_tokens": 5, "acceptance": 0.25}, False,
    ),
    (
        "nemo-rl", "nemo_rl_base.yaml",
        (
            f"++{NEMO}.method=draft_model", f"++{NEMO}.model=Qwen/Qwen2.5-0.5B", f"++{NEMO}.num_speculative_tokens=12",
            f"++{NEMO}.disable_by_batch_size=32",
        ),
        {"method": "draft_model", "draft_model": "Qwen/Qwen2.5-0.5B", "off_above_batch": 32}, True,
    ),
    (
        "roll", "roll_rlvr_async.yaml",
        ("actor_infer.strategy_args.strategy_config.speculative_config.method=mtp",
         "actor_infer.strategy_args.strategy_config.speculative_config.num_speculative_tokens=3"),
        {"method": "mtp", "num_speculative_tokens": 3}, True,
    ),
    (
        "trl", "trl_async.sh",
        ("--vllm_serve.speculative_config", '{"method": "qwen3_next_mtp", "num_speculative_tokens": 5}'),
        {"method": "mtp", "num_speculative_tokens": 5}, True,
    ),
    (
        "verl", "verl_sync.yaml",
        (f"""+{ROLLOUT}.engine_kwargs.vllm.speculative_config='{{"method": "ngram", "num_speculative_tokens": 4}}'""",),
        {"method": "ngram", "num_speculative_tokens": 4}, False,
    ),
    (
        "prime-rl", "prime_rl.toml",
        ("--inference.vllm.speculative_config.method", "qwen3_5_mtp",
         "--inference.vllm.speculative_config.num_speculative_tokens", "12"),
        {"method": "mtp", "num_speculative_tokens": 12, "acceptance": 0.76}, True,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("framework", "file", "words", "expected", "ages"), CASES)
def test_what_is_asked_of_the_engine(
    framework: str, file: str, words: tuple[str, ...], expected: dict[str, Any], *, ages: bool
) -> None:
    found = read(framework, file, *words)
    speculation = found.scenario.engine.speculation
    assert speculation is not None
    assert {name: getattr(speculation, name) for name in expected} == expected
    assert ages == any("accepted less with each version" in str(note) for note in found.not_modelled)
    assert any(a.path.startswith("engine.speculation.") and "acceptance" in a.why for a in found.assumed)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), ""),
        ((f"{MTP}.enable=True",), ""),  # loaded and trained, and not drafted with
        ((f"{MTP}.enable=True", f"{MTP}.enable_rollout=True", f"{MTP}.method=dflash"), "no method of drafting"),
    ],
)
def test_what_is_not_asked_or_not_known_is_not_simulated(words: tuple[str, ...], told: str) -> None:
    found = read("verl", "verl_sync.yaml", *words)
    assert found.scenario.engine.speculation is None
    assert any(told in str(note) for note in found.not_modelled)


def test_a_text_that_is_no_json_object_is_refused() -> None:
    with pytest.raises(InputError, match="must be a JSON object"):
        read("trl", "trl_async.sh", "--vllm_serve.speculative_config", "ngram please")


def test_a_measured_length_takes_the_place_of_the_assumed_curve(tmp_path: Path) -> None:
    """Both where the configuration is read, and of the scenario that came of it."""
    words = (f"{MTP}.enable=True", f"{MTP}.enable_rollout=True", f"{MTP}.num_speculative_tokens=3")
    path = tmp_path / "job.yaml"
    path.write_text(read("verl", "verl_sync.yaml", *words).text)
    measured = "engine.speculation.acceptance_length=2.5"
    for scenario in (
        read("verl", "verl_sync.yaml", *words, sets=(measured,)).scenario,
        load_scenario(path, overrides=[measured]),
    ):
        assert scenario.engine.speculation is not None
        assert (scenario.engine.speculation.acceptance_length, scenario.engine.speculation.curve) == (2.5, None)
    with pytest.raises(InputError, match="give one of them"):
        load_scenario(_both(path))


def _both(path: Path) -> Path:
    text = path.read_text().replace("    curve: glm-5.2-mtp", "    acceptance: 0.5\n    curve: glm-5.2-mtp")
    path.write_text(text)
    return path


def test_skyrls_switch_for_mtp_is_the_engines_too() -> None:
    """skyrl/train/utils/utils.py, _apply_mtp_config: unless the engine has a section of its own."""
    words = "python -m skyrl.train.entrypoints.main_base trainer.policy.model.path=Qwen/Qwen3.5-9B "
    words += "trainer.mtp.enabled=true trainer.mtp.num_speculative_tokens=2 "
    own = "generator.inference_engine.speculative_config.method=ngram"
    own += " generator.inference_engine.speculative_config.num_speculative_tokens=4"
    found = []
    for text in (words, words + own):
        drafts = scenario_from("skyrl", parsed_source(text, "c.sh"), "c.sh").scenario.engine.speculation
        assert drafts is not None
        found.append((drafts.method, drafts.num_speculative_tokens))
    assert found == [("mtp", 2), ("ngram", 4)]

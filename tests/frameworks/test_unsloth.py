"""Unsloth on TRL: what its own calls say of model, weights, adapters and generation."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetsim.config.load import with_changes
from fleetsim.frameworks.convert import scenario_from
from fleetsim.frameworks.patch import patch_of
from fleetsim.frameworks.source import parsed_source, read_source
from fleetsim.job.nameplate import limits_of

UNSLOTH = """\
from unsloth import FastLanguageModel
max_seq_length = 1024
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name = "unsloth/meta-Llama-3.1-8B-Instruct", max_seq_length = max_seq_length,{loaded}
    gpu_memory_utilization = 0.9,  # Reduce if out of memory
)
model = FastLanguageModel.get_peft_model(model, r = 32)
trainer = SFTTrainer(model = model, args = SFTConfig(per_device_train_batch_size = 1))
max_prompt_length = 256
training_args = GRPOConfig(
    per_device_train_batch_size = 1, gradient_accumulation_steps = {steps}, num_generations = 6,
    max_prompt_length = max_prompt_length, max_completion_length = max_seq_length - max_prompt_length,
)
trainer = GRPOTrainer(model = model, args = training_args)
"""


@pytest.mark.parametrize(
    ("loaded", "steps", "batch", "dtype", "rank"),
    [
        (" load_in_4bit = True, fast_inference = True,", 1, 6, "int4", 32),  # a device's samples are a group
        (" fast_inference = True,", 6, 6, "int4", 32),
        (" load_in_fp8 = 'block', fast_inference = True,", 6, 6, "fp8", 32),
        (" load_in_4bit = False,", 12, 12, "auto", None),
    ],
)
def test_unsloth_says_its_model_where_it_loads_it(
    loaded: str, steps: int, batch: int, dtype: str, rank: int | None
) -> None:
    """unslothai/notebooks at bdda2efc, python_scripts/Llama3.1_(8B)-GRPO.py; the script trains SFT first."""
    read = scenario_from("trl", parsed_source(UNSLOTH.format(loaded=loaded, steps=steps), "grpo.py"))
    job = read.scenario
    assert (job.engine.model, job.engine.dtype) == ("unsloth/meta-Llama-3.1-8B-Instruct", dtype)
    assert (job.trainer.gpus, job.trainer.batch_samples, job.trainer.recipe.tune) == (1, batch, "lora")
    assert job.workload.output_tokens == job.workload.output_tokens.model_copy(update={"max": 768.0})
    assert job.engine.gpu_memory_utilization == 0.9
    assert (job.engine.lora.rank if job.engine.lora else None) == rank
    assert any("by transformers" in note.why for note in read.not_modelled) == (rank is None)


def test_a_length_that_a_script_computes_is_named() -> None:
    text = UNSLOTH.format(loaded="", steps=6).replace("max_prompt_length = 256", "max_prompt_length = longest(data)")
    read = scenario_from("trl", parsed_source(text, "grpo.py"))
    (why,) = (one.why for one in read.assumed if one.path == "workload.output_tokens.max")
    assert "max_completion_length is given with a value that is not known here" in why


def test_what_its_calls_say_is_changed_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "grpo.py"
    text = UNSLOTH.format(loaded=" fast_inference = True,", steps=6)
    file.write_text(text)
    job = scenario_from("trl", read_source(str(file))).scenario
    wanted = {"engine.model": "Qwen/Qwen3-8B", "engine.gpu_memory_utilization": 0.7, "engine.lora.rank": 64}
    patch = patch_of("trl", with_changes(job, {**wanted, "workload.group_size": 3}), limits_of, str(file))
    assert patch.text == (
        text.replace('"unsloth/meta-Llama-3.1-8B-Instruct"', "'Qwen/Qwen3-8B'")
        .replace("0.9,  # Reduce", "0.7,  # Reduce")
        .replace("r = 32", "r = 64")
        .replace("num_generations = 6", "num_generations = 3")
    )


def test_a_model_that_hugging_faces_class_loads() -> None:
    text = (
        'm = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")\nGRPOTrainer(model=m, args=GRPOConfig(beta=0.1))\n'
    )
    assert scenario_from("trl", parsed_source(text, "grpo.py")).scenario.engine.model == "Qwen/Qwen3-8B"

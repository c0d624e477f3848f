"""Unsloth and Axolotl on TRL: what their own words say of model, weights, adapters and generation; notebooks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetsim.config.load import with_changes
from fleetsim.errors import InputError
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


def test_a_notebook_is_read_as_its_cells_and_not_changed(tmp_path: Path) -> None:
    """Commands of IPython are no Python; a cell of another language is none of it, and a pin counts."""
    code = UNSLOTH.format(loaded=" fast_inference = True,", steps=6).replace("beta", "b")
    cells = [
        "%%capture\nif True:\n    !pip install --upgrade \\\n  trl==1.10.0\n",
        "%%bash\nif [ a ]; then b; fi\n",
        code,
    ]
    texts = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    file = tmp_path / "grpo.ipynb"
    file.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": ["# GRPO: it"]}, *texts], "nbformat": 4}))
    read, script = read_source(str(file)), parsed_source(code, "grpo.py")
    assert {key: setting.value for key, setting in read.found.items()} == {k: s.value for k, s in script.found.items()}
    assert read.pinned["trl"].text == "trl==1.10.0"
    with pytest.raises(InputError, match="is a notebook"):
        patch_of("trl", scenario_from("trl", script).scenario, limits_of, str(file))


def test_axolotls_keys_are_trls() -> None:
    """docs/grpo.qmd and integrations/nemo_gym/examples/nemo_gym_multi_turn.yaml of axolotl-ai-cloud/axolotl."""
    text = """\
base_model: Qwen/Qwen2.5-1.5B-Instruct
rl: grpo
adapter: qlora
trl: {use_vllm: true, vllm_mode: server, num_generations: 4, max_completion_length: 2048}
vllm: {tensor_parallel_size: 2, data_parallel_size: 3, gpu_memory_utilization: 0.8}
gradient_accumulation_steps: 64
nemo_gym_max_turns: 10
"""
    job = scenario_from("trl", parsed_source(f"{text}num_processes: 2\n", "c.yaml")).scenario
    assert (job.engine.tp, job.fleet.instances, job.engine.gpu_memory_utilization) == (2, 3, 0.8)
    assert (job.trainer.batch_samples, job.workload.group_size, job.trainer.recipe.tune) == (128, 4, "lora")
    assert "workload.turns.count" in job.assumed

"""A program that is given no configuration takes its own: the script's words stand over that file."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetsim.errors import InputError
from fleetsim.frameworks.convert import Imported, scenario_from
from fleetsim.frameworks.source import parsed_source, read_source
from fleetsim.job.in_frameworks import patched
from fleetsim.trainer.estimate import token_seconds

NEMO = """\
if not args.config:
    args.config = os.path.join(
        os.path.dirname(__file__),
        "configs", "game.yaml"
    )
"""
GAME = """\
policy: {model_name: Qwen/Qwen3-8B, max_total_sequence_length: 4096}
grpo: {num_prompts_per_step: 16, num_generations_per_prompt: 4, max_rollout_turns: 9}
cluster: {gpus_per_node: 4}
"""
RECIPE = """\
actor_rollout_ref: {rollout: {n: 6, name: sglang}, model: {path: Qwen/Qwen3-8B}}
data: {train_batch_size: 32}
"""


def put(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def read(framework: str, path: Path, script: str) -> Imported:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"cd $PROJECT_ROOT\n{script}\n")
    return scenario_from(framework, read_source(str(path)), path.name)


def test_nemo_rls_program_names_it_in_its_code(tmp_path: Path) -> None:
    put(tmp_path, **{"examples__run_game.py": NEMO, "examples__configs__game.yaml": GAME})
    script = tmp_path / "tests" / "functional" / "run.sh"
    job = read("nemo-rl", script, "uv run $PROJECT_ROOT/examples/run_game.py grpo.num_prompts_per_step=8").scenario
    assert (job.trainer.batch_samples, job.workload.turns.count, job.trainer.gpus) == (8 * 4, 9, 4)


def test_a_configuration_that_is_not_known_is_no_reason_to_take_another(tmp_path: Path) -> None:
    put(tmp_path, **{"examples__run_game.py": NEMO, "examples__configs__game.yaml": GAME})
    words = "policy.model_name=Qwen/Qwen3-8B grpo.num_prompts_per_step=8 grpo.num_generations_per_prompt=2"
    job = read("nemo-rl", tmp_path / "run.sh", f"uv run examples/run_game.py --config $(find_it) {words}").scenario
    assert (job.trainer.batch_samples, job.workload.turns.count) == (8 * 2, 1)


@pytest.mark.parametrize("module", ["recipe.mine.main_mine", "mine.main_mine"])
def test_hydras_program_names_it_above_its_function(tmp_path: Path, module: str) -> None:
    main = '@hydra.main(config_path="config", config_name="mine_trainer", version_base=None)\n'
    put(tmp_path, **{"mine__main_mine.py": main, "mine__config__mine_trainer.yaml": RECIPE})
    job = read("verl", tmp_path / "mine" / "run.sh", f"python3 -m {module} data.train_batch_size=8").scenario
    assert (job.workload.group_size, job.trainer.batch_samples, job.engine.name) == (6, 8 * 6, "sglang")


def test_a_parent_that_is_not_found_says_by_its_name_who_trains(tmp_path: Path) -> None:
    """recipe/dapo/dapo_transfer_queue: its trainer builds on verl's ppo_megatron_trainer, which says the strategy."""
    main = '@hydra.main(config_path="config", config_name="mine_trainer", version_base=None)\n'
    parents = f"defaults: [ppo_megatron_trainer, _self_]\n{RECIPE}"
    put(tmp_path, **{"mine__main_mine.py": main, "mine__config__mine_trainer.yaml": parents})
    rank = "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 trainer.n_gpus_per_node=8"
    job = read("verl", tmp_path / "mine" / "run.sh", f"python3 -m mine.main_mine {rank}").scenario
    assert (job.trainer.recipe.backend, job.trainer.recipe.tp) == ("megatron", 4)


def test_verls_own_defaults_are_its_readers(tmp_path: Path) -> None:
    main = '@hydra.main(config_path="config", config_name="ppo_trainer", version_base=None)\n'
    put(tmp_path, **{"verl__trainer__main_ppo.py": main, "verl__trainer__config__ppo_trainer.yaml": RECIPE})
    words = "actor_rollout_ref.model.path=Qwen/Qwen3-8B"
    found = read("verl", tmp_path / "run.sh", f"python3 -m verl.trainer.main_ppo {words}")
    assert found.scenario.workload.group_size == 1
    assert "workload.group_size" in {one.path for one in found.assumed}


def test_adapters_by_either_name() -> None:
    """verl has two keys for a rank, of which a whole configuration prints both."""
    words = "actor_rollout_ref.model.lora_rank=0 actor_rollout_ref.model.lora.rank=32"
    text = f"python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B {words}"
    assert scenario_from("verl", parsed_source(text, "c.sh"), "c.sh").scenario.trainer.recipe.tune == "lora"


def test_a_script_whose_file_is_not_found_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a file that is not found by the script's words"):
        read("nemo-rl", tmp_path / "run.sh", "uv run examples/run_grpo.py --config $1 grpo.max_num_steps=3")


def test_a_workflow_of_rllms_is_an_agent() -> None:
    words = "actor_rollout_ref.model.path=Qwen/Qwen3-8B rllm.workflow.use_workflow=True"
    text = f"python3 -m examples.train {words}"
    assert "workload.turns.count" in scenario_from("verl", parsed_source(text, "c.sh"), "c.sh").scenario.assumed


def test_a_script_of_the_users_own_is_read_for_what_its_words_say() -> None:
    text = "accelerate launch --num_processes 4 train_grpo.py --model_name_or_path Qwen/Qwen3-8B --output_dir o"
    assert scenario_from("trl", parsed_source(text, "c.sh"), "c.sh").scenario.trainer.gpus == 4


SKY = """\
resources: {{accelerators: {}}}
num_nodes: 2
envs: {{BATCH: 64}}
run: |
  if [ "$SKYPILOT_NODE_RANK" == "0" ]; then
    python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B \\
      data.train_batch_size=$BATCH trainer.nnodes=$SKYPILOT_NUM_NODES \\
      trainer.n_gpus_per_node=$SKYPILOT_NUM_GPUS_PER_NODE
  fi
"""


@pytest.mark.parametrize(
    ("accelerators", "gpu"),
    # A100 is the smaller one there; a GPU that nobody knows is not taken.
    [("L40S:4", "L40S"), ("{H100: 4}", "H100"), ("A100:4", "A100-40GB"), ("V100:4", "H100-SXM")],
)
def test_a_task_of_skypilot_runs_on_what_it_asks_for(accelerators: str, gpu: str) -> None:
    read, asked = parsed_source(SKY.format(accelerators), "c.yaml"), []

    def counted(model: str, gpu: str, gpus: int) -> tuple[float, float] | None:
        asked.append(gpu)
        return token_seconds(model, gpu, gpus)

    job = scenario_from("verl", read, "c.yaml", (), counted).scenario
    assert len(asked) == len(set(asked))
    assert (job.trainer.gpus, job.trainer.batch_samples, job.engine.gpu) == (2 * 4, 64, gpu)
    assert ("engine.gpu" in job.assumed) == (gpu == "H100-SXM")


def test_the_placement_of_skyrl_s_other_entry_point_is_its_own() -> None:
    """integrations/arctic_rl/config.py, `colocate`: placement.colocate_all must stay false."""
    text = (
        "trainer.override_entrypoint=integrations.arctic_rl.entrypoint trainer.arctic_rl.colocate={} "
        "trainer.placement.colocate_all=false trainer.policy.model.path=Qwen/Qwen3-8B"
    )
    for said, placement in (("true", "colocated"), ("false", "disaggregated")):
        words = f"python -m skyrl.train.entrypoints.main_base {text.format(said)}"
        found = scenario_from("skyrl", parsed_source(words, "c.sh"), "c.sh")
        assert found.scenario.fleet.placement == placement
        assert any("override_entrypoint" in each.setting for each in found.not_modelled)


def test_a_task_of_skypilot_is_not_changed_in_place(tmp_path: Path) -> None:
    path = tmp_path / "task.yaml"
    path.write_text(SKY.format("H100:4"))
    job = scenario_from("verl", read_source(str(path)), path.name, ["workload.group_size=4"]).scenario
    with pytest.raises(InputError, match="cannot be changed alone"):
        patched("verl", job, str(path))


@pytest.mark.parametrize("way", ['if [ "$MODE" = big ]; then\nN=9\nfi', 'case "$MODE" in big) N=9 ;; esac'])
def test_what_a_script_lets_be_nothing_is_no_word_that_it_asks_for(way: str) -> None:
    """examples/grpo_trainer/run_qwen3_8b_fsdp.sh of verl; a name that it does not give a default is not decided."""
    run = "python3 -m verl.trainer.main_ppo data.train_batch_size=$N"
    known, open_ = (parsed_source(f"{first}N=4\n{way}\n{run}", "c.sh") for first in ("MODE=${MODE:-}\n", ""))
    assert known.found["data.train_batch_size"].value == 4
    assert "data.train_batch_size" not in open_.found

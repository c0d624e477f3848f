"""What projects on verl call by names of their own: groups, batches, turns, and all of it in EasyR1."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetsim.config.load import with_changes
from fleetsim.errors import InputError
from fleetsim.frameworks.convert import Imported, scenario_from
from fleetsim.frameworks.patch import patch_of
from fleetsim.frameworks.source import parsed_source, read_source, settings_of_words
from fleetsim.job.nameplate import limits_of

VERL = (
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-3B data.train_batch_size=64 data.max_response_length=100 "
    "data.max_prompt_length=700 actor_rollout_ref.actor.ppo_mini_batch_size=32"
)


def read(words: str, base: str = VERL) -> Imported:
    settings = settings_of_words(["python3", "-m", "verl.trainer.main_ppo", *base.split(), *words.split()])
    return scenario_from("verl", settings)


@pytest.mark.parametrize(
    ("words", "group", "turns", "longest", "each"),
    [
        ("", 1, 1, 100, None),
        # a last answer after the turns; every turn has the cap, and begins with a window of its prompts' length
        ("retriever.topk=3 max_turns=4 actor_rollout_ref.rollout.n_agent=5", 5, 5, 500, 100),
        ("retriever.topk=3 max_turns=9 actor_rollout_ref.rollout.n_agent=5", 5, 10, 800, 100),
        ("retriever.topk=3 max_turns=4 do_search=false actor_rollout_ref.rollout.n=3", 3, 1, 100, None),
        ("agent_grpo.n=16 max_turns=4", 16, 4, 400, 100),
        ("env.env_name=Shop env.max_steps=50 env.rollout.n=8", 8, 50, 5000, 100),
        ("agent.tool_use=True agent.max_turns=3 actor_rollout_ref.rollout.n=2", 2, 3, 300, 100),
        ("agent.tool_use=False agent.max_turns=3", 1, 1, 100, None),
        # here the cap of a response is that of all turns
        ("actor_rollout_ref.agent.max_turns=2 actor_rollout_ref.rollout.n=4", 4, 3, 100, None),
        ("actor_rollout_ref.agent.max_turns=2 actor_rollout_ref.agent.max_action_length=30", 1, 3, 90, 30),
        ("actor_rollout_ref.rollout.max_turns=6", 1, 6, 100, None),
        ("agent.num_chains=8 agent.max_turns=4", 8, 4, 100, None),
        (
            "agent.run_config.num_chains=8 agent.run_config.max_turns=24 agent.init_config.max_model_len=900 "
            "agent.run_config.generation_config.max_tokens=50",
            8,
            24,
            900,
            50,
        ),
        ("rllm.agent.max_steps=6", 1, 6, 100, None),
        ("rllm.agent.max_steps=6 rllm.stepwise_advantage.enable=true", 1, 6, 600, 100),
    ],
)
def test_a_project_on_verl_has_its_groups_and_turns(
    words: str, group: int, turns: int, longest: int, each: int | None
) -> None:
    scenario = read(words).scenario
    assert scenario.workload.group_size == group
    assert scenario.trainer.batch_samples == 64 * group
    assert scenario.workload.turns.count == turns
    assert scenario.workload.output_tokens.max == longest  # type: ignore[union-attr]
    assert scenario.workload.turns.max_output_tokens == each


@pytest.mark.parametrize(
    ("words", "turns", "assumed"),
    [
        ("tool_config_path=tools.yaml", 1, True),
        ("interaction_config_path=talk.yaml", 1, True),
        ("tool_config_path=tools.yaml {0}.enable=false", 1, False),
        ("tool_config_path=tools.yaml {0}.max_user_turns=1", 2, False),
        ("enable=true {0}.max_user_turns=9 {0}.max_assistant_turns=4", 4, False),
        ("enable=true {0}.max_user_turns=2 {0}.max_assistant_turns=4", 3, False),
        ("format=hermes", 1, False),
    ],
)
def test_an_agent_of_verl_has_turns_or_they_are_named(words: str, turns: int, assumed: bool) -> None:
    section = "actor_rollout_ref.rollout.multi_turn"
    result = read(f"{section}.{words.format(section)}")
    assert result.scenario.workload.turns.count == turns
    assert any(a.path == "workload.turns.count" for a in result.assumed) == assumed


def test_a_configuration_below_a_folder_that_is_not_known_is_found(tmp_path: Path) -> None:
    (tmp_path / "examples" / "conf").mkdir(parents=True)
    turns = "actor_rollout_ref: {rollout: {multi_turn: {enable: true, max_assistant_turns: 7}}}\n"
    (tmp_path / "examples" / "conf" / "talk.yaml").write_text(turns)
    script = tmp_path / "examples" / "run.sh"
    command = f"python3 -m verl.trainer.main_ppo --config-path=$HERE/conf --config-name=talk {VERL}\n"
    script.write_text(f'HERE="$(pwd)/examples"\n{command}')
    assert scenario_from("verl", read_source(str(script))).scenario.workload.turns.count == 7


def test_an_own_group_is_repeated_after_the_mini_batch_is_counted() -> None:
    """verl counts a mini-batch in prompts, and multiplies it by `rollout.n`; of an own group it knows nothing."""
    assert read("actor_rollout_ref.rollout.n=4").scenario.trainer.recipe.optimizer_steps == 2
    assert read("agent_grpo.n=4").scenario.trainer.recipe.optimizer_steps == 8


@pytest.mark.parametrize(("history", "longest"), [(-1, 90), (2, 400)])
def test_a_window_bounds_a_trajectory_whose_prompt_holds_all_of_it(history: int, longest: int) -> None:
    ragen = "es_manager.train.env_groups=8 es_manager.train.group_size=16 agent_proxy.max_turn=4"
    window = f"actor_rollout_ref.rollout.max_model_len=90 agent_proxy.max_context_window={history}"
    scenario = read(f"{ragen} {window} data.train_batch_size=null").scenario
    assert scenario.trainer.batch_samples == 8 * 16
    assert scenario.workload.output_tokens.max == longest  # type: ignore[union-attr]


def test_a_batch_that_is_picked_from_more_prompts_drops_the_others() -> None:
    scenario = read("data.filter_accuracy=True data.oversample_factor=4").scenario
    assert scenario.workload.filter.zero_variance_share == 0.75


def test_a_pull_of_rllm_has_prompts_of_its_own_number() -> None:
    words = "async_training.required_samples=16 actor_rollout_ref.rollout.n=2 rollout.nnodes=1"
    scenario = read(f"{words} async_training.trigger_parameter_sync_step=3").scenario
    assert scenario.trainer.batch_samples == 16 * 3 * 2


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/hub/models--Qwen--Qwen3-8B/snapshots/0123456789abcdef", "Qwen/Qwen3-8B"),
        ("/runs/sft-qwen-2.5-7b/global_step_372/actor/huggingface", "sft-qwen-2.5-7b"),
        ("checkpoints/warm/mine-7b/checkpoint-90", "mine-7b"),
        ("mine/model", "mine/model"),
    ],
)
def test_a_path_names_the_model_and_not_its_state(path: str, model: str) -> None:
    assert read(f"actor_rollout_ref.model.path={path}").scenario.engine.model == model


@pytest.mark.parametrize(
    "path", ["/YOUR_MODEL", "/your/model/path", "model_path", "path/to/model", "/path/to/huggingface"]
)
def test_a_word_that_stands_for_a_model_is_refused_with_the_flag(path: str) -> None:
    with pytest.raises(InputError, match=r"names no model: a placeholder; .*--set engine\.model="):
        read(f"actor_rollout_ref.model.path={path}")


def test_a_critic_that_sits_with_the_reward_model_has_no_gpus_of_its_own() -> None:
    words = "--pretrain Qwen/Qwen2.5-7B --reward_pretrain Qwen/Qwen2.5-7B --vllm_num_engines 2 --critic_num_nodes 1"
    more = "--critic_num_gpus_per_node 2 --reward_num_nodes 1 --reward_num_gpus_per_node 2"
    command = ["python3", "-m", "openrlhf.cli.train_ppo_ray", *words.split(), *more.split()]
    apart, shared = (
        scenario_from("openrlhf", settings_of_words([*command, *own])) for own in ([], ["--colocate_critic_reward"])
    )
    assert "2 more GPUs" in str(apart.raw["description"])
    assert "more GPU" not in str(shared.raw["description"])
    assert all(result.scenario.trainer.recipe.critic for result in (apart, shared))


EASY = "worker.actor.model.model_path=Qwen/Qwen3-4B worker.rollout.n=5 worker.rollout.tensor_parallel_size=4"


def test_easyr1_is_verl_by_other_names() -> None:
    words = "data.rollout_batch_size=96 worker.actor.global_batch_size=24 worker.actor.offload.offload_optimizer=true"
    result = read(words, EASY)
    scenario = result.scenario
    assert scenario.engine.model == "Qwen/Qwen3-4B"
    assert (scenario.engine.tp, scenario.fleet.instances, scenario.trainer.gpus) == (4, 2, 8)
    assert (scenario.trainer.batch_samples, scenario.trainer.recipe.optimizer_steps) == (480, 4)
    assert scenario.trainer.recipe.offload == "states"
    assert (scenario.trainer.recipe.critic, scenario.trainer.recipe.reference) == (False, True)
    assert scenario.engine.gpu_memory_utilization == 0.6
    # its processes hold an LLM each, which is told no max_num_seqs
    assert (scenario.engine.entry_point, scenario.engine.max_num_seqs) == ("llm", None)
    assert (scenario.fleet.group_placement, scenario.fleet.routing) == ("together", "round_robin")
    said = [setting for taken in result.taken for setting in taken.settings]
    assert "worker.rollout.n = 5" in said  # told, and written back, in the file's own words


def test_easyr1_has_its_optimizer_in_host_memory_where_fsdp_is() -> None:
    assert read("worker.actor.fsdp.enable_cpu_offload=true", EASY).scenario.trainer.recipe.offload == "adam"


def test_easyr1_without_a_penalty_has_no_reference() -> None:
    assert not read("algorithm.disable_kl=True", EASY).scenario.trainer.recipe.reference


def test_rllm_on_tinker_is_read_by_its_own_keys() -> None:
    words = "rllm/backend=tinker model.name=Qwen/Qwen3-8B model.lora_rank=16 training.group_size=8"
    settings = settings_of_words(["python", "train.py", *words.split(), "data.train_batch_size=20"])
    scenario = scenario_from("tinker", settings).scenario
    assert (scenario.engine.model, scenario.workload.group_size) == ("Qwen/Qwen3-8B", 8)
    assert scenario.trainer.batch_samples == 160
    assert scenario.engine.lora is not None
    assert scenario.engine.lora.rank == 16


@pytest.mark.parametrize(("partial", "way"), [("true", "finish_on_old_weights"), ("false", "drain")])
def test_rllms_asynchronous_training_on_tinker_is_its_own(partial: str, way: str) -> None:
    """examples/countdown/unified_trainer/train_countdown_unified_tinker_async.sh; rllm/trainer/sync_coordinator.py."""
    its = "rllm.async_training"
    words = (
        f"rllm/backend=tinker model.name=Qwen/Qwen3-8B training.group_size=8 data.train_batch_size=1 {its}.enable=true"
    )
    words += f" {its}.mini_batch_size=32 {its}.staleness_threshold=0.5 {its}.trigger_parameter_sync_step=2"
    words += f" {its}.partial_rollout={partial} rllm.workflow.n_parallel_tasks=100 data.max_response_length=2048"
    scenario = scenario_from("tinker", settings_of_words(["python", "train.py", *words.split()])).scenario
    assert (scenario.trainer.batch_samples, scenario.trainer.minibatches, scenario.sync.every_pulls) == (
        32 * 8 * 2,
        2,
        2,
    )
    assert (scenario.admission.law, scenario.admission.staleness_threshold) == ("per_sync_window", 0.5)
    assert (scenario.sync.in_flight, scenario.fleet.max_in_flight_samples) == (way, 100)


@pytest.mark.parametrize(("groups", "passes"), [(8, 4), (32, 1)])
def test_rllm_trains_a_part_of_its_batch_as_soon_as_that_is_there(groups: int, passes: int) -> None:
    """rllm/trainer/unified_trainer.py, _training_loop: weights go out after so many passes."""
    its = "rllm.async_training"
    words = f"rllm/backend=tinker model.name=Qwen/Qwen3-8B training.group_size=8 {its}.enable=true"
    words += f" {its}.mini_batch_size=32 {its}.fwd_bwd_group_size={groups} data.max_response_length=2048"
    scenario = scenario_from("tinker", settings_of_words(["python", "train.py", *words.split()])).scenario
    assert (scenario.trainer.batch_samples, scenario.trainer.minibatches, scenario.sync.every_pulls) == (
        256,
        passes,
        passes,
    )


@pytest.mark.parametrize(("value", "said"), [("0.9", True), ("1.0", False)])
def test_ragens_filter_that_drops_groups_is_told(value: str, said: bool) -> None:
    """config/base.yaml: of the groups' scores a part is kept, and nothing is generated in their place."""
    words = f"es_manager.train.env_groups=8 actor_rollout_ref.rollout.rollout_filter_value={value}"
    assert any("makes a batch smaller" in note.why for note in read(words).not_modelled) == said


LIGHTNING = """\
def config():
    return {
        "data": {"train_batch_size": 32, "max_response_length": 1024},
        "actor_rollout_ref": {
            "rollout": {"n": 4, "tensor_model_parallel_size": 2},  # of a group
            "actor": {"megatron": {"template": find()}, "ppo_mini_batch_size": 16},
            "model": {"path": "Qwen/Qwen2.5-7B-Instruct"},
        },
        "trainer": {"n_gpus_per_node": 8},
        "agentlightning": {"async_rollout": {"enabled": True, "async_train_batch_size": 48}},
    }
"""


def test_agent_lightnings_table_is_verls(tmp_path: Path) -> None:
    """microsoft/agent-lightning at c632d8dd, examples/science_world: what is beyond the batch goes on later."""
    file = tmp_path / "train.py"
    file.write_text(LIGHTNING)
    read = scenario_from("verl", read_source(str(file)))
    job = read.scenario
    assert (job.engine.model, job.engine.tp, job.trainer.gpus) == ("Qwen/Qwen2.5-7B-Instruct", 2, 8)
    assert (job.trainer.batch_samples, job.trainer.recipe.optimizer_steps) == (128, 2)
    assert (job.buffer.oversampling, job.buffer.leftover, job.buffer.batch_rule) == (
        1.5,
        "carry_over",
        "first_finished",
    )
    assert "workload.turns.count" in job.assumed  # an agent, of which no setting says the turns
    assert read.not_understood == ("actor_rollout_ref.actor.megatron.template = ...: line 6, computed",)
    wanted = {"workload.group_size": 8, "trainer.batch_samples": 256, "engine.max_num_seqs": 64}
    patch = patch_of("verl", with_changes(job, wanted), limits_of, str(file))
    assert patch.text == LIGHTNING.replace('{"n": 4,', '{"max_num_seqs": 64, "n": 8,')


@pytest.mark.parametrize("mode", ["sglang:d4p1t2+d2t4", "sglang.d4p1t2+d2t4", "sglang.d4p1m2+d2p1m4"])
def test_areal_allocations_of_every_age(mode: str) -> None:
    text = f"actor: {{path: Qwen/Qwen2.5-7B}}\ngconfig: {{n_samples: 4}}\nallocation_mode: {mode}\n"
    scenario = scenario_from("areal", parsed_source(text + "train_dataset: {batch_size: 8}\n", "c.yaml")).scenario
    assert (scenario.engine.tp, scenario.fleet.instances, scenario.trainer.gpus) == (2, 4, 8)
    assert scenario.trainer.recipe.tp == 4


@pytest.mark.parametrize(
    ("words", "made"),
    [
        ("retriever.topk=3 max_turns=4", True),
        ("agent_grpo.n=16 max_turns=4", True),
        ("es_manager.train.env_groups=8 data.train_batch_size=null", True),
        ("es_manager.train.env_groups=8 data.train_batch_size=null actor_rollout_ref.actor.use_ref=False", False),
        ("data.n_samples=4", True),
        ("data.n_samples=4 algorithm.kl_ctrl.kl_coef=0.00", False),
        ("rllm.agent.max_steps=6", False),
    ],
)
def test_a_project_whose_reference_passes_without_a_penalty(words: str, made: bool) -> None:
    assert read(f"{words} actor_rollout_ref.actor.use_kl_loss=False").scenario.trainer.recipe.reference == made


def test_the_turns_of_an_agent_loop_of_the_users_own_have_verls_caps() -> None:
    section = "actor_rollout_ref.rollout"
    words = f"{section}.agent.agent_loop_config_path=mine.yaml {section}.multi_turn.max_assistant_turns=8"
    assert read(words).scenario.workload.turns.count == 8


@pytest.mark.parametrize(
    ("words", "eager", "seqs", "packed", "again"),
    [  # trainer/config/ppo_trainer.yaml of each
        ("", False, 256, True, True),
        ("retriever.topk=3 max_turns=4", True, 1024, False, False),
        ("data.n_samples=4", True, 1024, False, False),
        ("agent_grpo.n=16 max_turns=4", True, 1024, True, True),
        ("agent.tool_use=True agent.max_turns=3", True, 1024, False, True),
        ("actor_rollout_ref.rollout.max_turns=6", True, 1024, False, True),
        ("actor_rollout_ref.agent.max_turns=2", False, 1024, False, True),
        ("rllm.agent.max_steps=6", False, 256, True, True),  # it asks for verl 0.8
        ("data.n_samples=4 actor_rollout_ref.rollout.enforce_eager=False", False, 1024, False, False),
    ],
)
def test_a_project_keeps_the_defaults_of_the_verl_that_it_left(
    words: str, eager: bool, seqs: int, packed: bool, again: bool
) -> None:
    scenario = read(words).scenario
    assert (scenario.engine.enforce_eager, scenario.engine.max_num_seqs) == (eager, seqs)
    assert (scenario.trainer.recipe.packing, scenario.trainer.recipe.recompute) == (packed, again)

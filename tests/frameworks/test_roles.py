"""Models beside the policy, adapters, offload and precision: read, or named with the flag that settles it."""

from __future__ import annotations

from typing import Any

import pytest

from fleetsim.config import scenario_from_mapping
from fleetsim.config.tree import field_at
from fleetsim.config.yaml_text import from_yaml
from fleetsim.errors import InputError
from fleetsim.frameworks.convert import Imported, scenario_from
from fleetsim.frameworks.source import parsed_source
from fleetsim.job.assumptions import assumptions_of
from fleetsim.job.facts import assumed_line
from fleetsim.trainer.estimate import token_seconds

REWARD, REFERENCE, CRITIC = "workload.reward.latency_s", "trainer.recipe.reference", "trainer.recipe.critic"
JUDGE, TEACHER = "stations.judge.instances", "stations.teacher.instances"
ROLL = """\
pretrain: Qwen/Qwen2.5-7B
rollout_batch_size: 8
adv_estimator: {}
init_kl_coef: 0.1
actor_train: {{device_mapping: "list(range(0,8))"}}
actor_infer: {{device_mapping: "list(range(8,12))"}}
{}: {{device_mapping: "list(range({}))"}}
"""
VERL = "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B algorithm.adv_estimator=grpo "
OPENRLHF = "python -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path Qwen/Qwen2.5-7B --vllm.num_engines 2 "
SKYRL = "trainer.policy.model.path=Qwen/Qwen2.5-7B "
AREAL = """\
actor: {path: Qwen/Qwen3-8B, backend: "fsdp:d2"}
rollout: {backend: "sglang:d2"}
train_dataset: {batch_size: 8}
"""
RLINF = """\
rollout: {model: {model_path: Qwen/Qwen2.5-7B}, tensor_parallel_size: 2}
cluster: {component_placement: {"actor,rollout": all}}
data: {rollout_batch_size: 64}
actor: {training_backend: megatron, offload_optimizer: true, optim: {optimizer_cpu_offload: true}}
"""
NEMO = """\
policy: {{model_name: Qwen/Qwen2.5-7B, {}}}
grpo: {{num_prompts_per_step: 8, num_generations_per_prompt: 4, {}}}
cluster: {{num_nodes: 4, gpus_per_node: 8}}
{}
"""
PRIME = 'model = {name = "Qwen/Qwen3-8B"}\n[orchestrator]\nbatch_size = 64\n'
RELAX = '{"actor": [2, 8], "rollout": [1, 12], "reference": [1, 8]}'
SLIME = "python train.py --hf-checkpoint Qwen/Qwen3-8B --rollout-batch-size 8 --colocate "


def read(framework: str, text: str, name: str = "c.yaml", sets: tuple[str, ...] = ()) -> Imported:
    return scenario_from(framework, parsed_source(text, name), name, sets)


@pytest.mark.parametrize(
    ("framework", "text", "name", "path", "gpus"),
    [
        ("roll", ROLL.format("grpo", "rewards: {llm_judge", "12,16") + "}", "c.yaml", JUDGE, 4),
        ("roll", ROLL.format("grpo", "reference", "12,20"), "c.yaml", REFERENCE, 8),
        ("roll", ROLL.format("gae", "critic", "12,14"), "c.yaml", CRITIC, 2),
        ("roll", ROLL.format("grpo", "teacher: {big", "12,28") + "}", "c.yaml", TEACHER, 16),
        ("verl", VERL + "distillation.enabled=True distillation.nnodes=1 distillation.n_gpus_per_node=4", "c.sh",
         TEACHER, 4),
        ("verl", VERL + "reward.reward_model.enable=True reward.reward_model.enable_resource_pool=True "
         "reward.reward_model.nnodes=1", "c.sh", JUDGE, 8),
        ("areal", AREAL + 'teacher: {backend: "fsdp:d1p1t4", path: Qwen/Qwen3-32B}', "c.yaml", TEACHER, 4),
        ("areal", AREAL + 'critic: {backend: "fsdp:d2", path: Qwen/Qwen3-8B}', "c.yaml", CRITIC, 2),
        ("areal", AREAL + 'judge_engine: {backend: "sglang:d2t2"}', "c.yaml", JUDGE, 4),
        ("openrlhf", OPENRLHF + "--critic.num_nodes 1 --critic.num_gpus_per_node 2", "c.sh", CRITIC, 2),
        ("openrlhf", OPENRLHF + "--reward.model_name_or_path q/rm --reward.num_nodes 2", "c.sh", JUDGE, 16),
        ("skyrl", SKYRL + "trainer.placement.colocate_all=false trainer.critic.model.path=q/q "
         "trainer.placement.critic_num_gpus_per_node=4", "c.sh", CRITIC, 4),
        ("nemo-rl", NEMO.format("", "", "env: {reward_model: {model_name: q/rm, resources: {num_nodes: 1}}}"), "c.yaml",
         JUDGE, 8),
        ("nemo-rl", NEMO.format("", "", "env: {should_use_nemo_gym: true, nemo_gym: {num_gpu_nodes: 2}}"), "c.yaml",
         JUDGE, 16),
        ("nemo-rl", NEMO.format("", "", "on_policy_distillation: {enabled: true, teacher_model_by_agent_name: {a: q/x, "
         "b: q/x}, non_colocated_teachers: {enabled: true, default_teacher_cfg: {num_nodes: 1}}}"), "c.yaml", TEACHER,
         8),
    ],
)  # fmt: skip
def test_gpus_of_other_models_are_counted_and_named(framework: str, text: str, name: str, path: str, gpus: int) -> None:
    result = read(framework, text, name)
    why = next(a.why for a in result.assumed if a.path == path)
    value: Any = True
    if path in (JUDGE, TEACHER):  # a station: engines on these GPUs
        judge, own = field_at(result.scenario, path.rpartition(".")[0]), result.scenario.engine
        value = judge.instances
        assert value * judge.engine.gpus == gpus
        assert judge.engine.gpu == own.gpu
        assert f"{gpus} GPUs of its own" in why
        assert "in no pool" not in result.scenario.description
        assert scenario_from_mapping(from_yaml(result.text, "again")).stations == result.scenario.stations
    else:
        assert f"{gpus} more GPUs in no pool of it" in result.scenario.description
        assert f"{gpus} GPUs that no pool" in why
    assert path in result.scenario.assumed
    flags = assumed_line(result.scenario, assumptions_of(result.scenario, ()), ())
    assert f"--set {path}={value}" in flags  # no answer goes without it


TWO = (
    VERL + "distillation.enabled=True distillation.nnodes=1 distillation.n_gpus_per_node=8 "
    "+distillation.teacher_models.a.model_path=Qwen/Qwen3-8B +distillation.teacher_models.a.num_replicas=2 "
    "+distillation.teacher_models.a.inference.tensor_model_parallel_size=1 "
    "+distillation.teacher_models.b.model_path=Qwen/Qwen3-32B +distillation.teacher_models.b.num_replicas=3"
)


@pytest.mark.parametrize(
    ("framework", "text", "name", "model", "tp", "instances"),
    [
        ("verl", VERL + "distillation.enabled=True distillation.nnodes=1 distillation.n_gpus_per_node=8 "
         "distillation.teacher_models.teacher_model.model_path=/m/Qwen3-32B", "c.sh", "Qwen3-32B", 2, 4),
        ("verl", TWO, "c.sh", "Qwen/Qwen3-32B", 2, 4),  # 2 GPUs of one, 6 of the other, for which it stands
        ("verl", VERL + "reward_model.enable=True reward_model.enable_resource_pool=True reward_model.nnodes=1 "
         "reward_model.model.path=Qwen/Qwen3-4B reward_model.rollout.tensor_model_parallel_size=1", "c.sh",
         "Qwen/Qwen3-4B", 1, 8),
        ("verl", VERL + "distillation.enabled=True distillation.nnodes=1 distillation.n_gpus_per_node=8 "
         "distillation.teacher_models.teacher_model.model_path=q/nobody-knows", "c.sh", "Qwen/Qwen2.5-7B", 2, 4),
        ("nemo-rl", NEMO.format("", "", "env: {reward_model: {model_name: Qwen/Qwen3-8B, resources: {num_nodes: 1}, "
         "dtensor_cfg: {tensor_parallel_size: 4}}}"), "c.yaml", "Qwen/Qwen3-8B", 4, 2),
        ("nemo-rl", NEMO.format("", "", "on_policy_distillation: {enabled: true, teacher_model_by_agent_name: {a: "
         "Qwen/Qwen3-32B}, non_colocated_teachers: {enabled: true, default_teacher_cfg: {num_nodes: 1, "
         "tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2}}}"), "c.yaml", "Qwen/Qwen3-32B", 4, 2),
        ("areal", AREAL + 'teacher: {backend: "fsdp:d2p1t4", path: Qwen/Qwen3-32B}', "c.yaml", "Qwen/Qwen3-32B", 4, 2),
        ("roll", ROLL.format("grpo", "reward_model", "12,16").replace("{device", "{model_args: {model_name_or_path: "
         "Qwen/Qwen3-4B}, strategy_args: {strategy_config: {tensor_parallel_size: 2}}, device", 3).replace(
             "Qwen/Qwen2.5-7B", "Qwen/Qwen3-8B"), "c.yaml", "Qwen/Qwen3-4B", 2, 2),
        ("openrlhf", OPENRLHF + "--reward.model_name_or_path Qwen/Qwen3-4B --reward.num_nodes 1", "c.sh",
         "Qwen/Qwen3-4B", 1, 8),
    ],
)  # fmt: skip
def test_who_reads_the_samples_has_its_own_model(
    framework: str, text: str, name: str, model: str, tp: int, instances: int
) -> None:
    """The largest pool's model stands for all of a station; one that is not known, for that the policy's."""
    settings = parsed_source(text, name)
    stations = scenario_from(framework, settings, name, (), token_seconds).scenario.stations
    station = stations.judge or stations.teacher
    assert station is not None
    assert (station.engine.model, station.engine.gpus, station.instances) == (model, tp, instances)


def test_teachers_that_share_gpus_have_them_once() -> None:
    """ROLL's two teachers take turns on eight GPUs of their own."""
    two = "{big: {device_mapping: 'list(range(12,20))'}, small: {device_mapping: 'list(range(12,20))'}}"
    text = ROLL.format("grpo", "teacher", "12,20").rpartition("teacher:")[0] + f"teacher: {two}"
    teacher = read("roll", text).scenario.stations.teacher
    assert teacher is not None
    assert teacher.instances * teacher.engine.gpus == 8


def test_a_teacher_of_its_own_gpus_takes_none_of_the_trainers_time() -> None:
    """One that shares them passes there, as a reference does, and in the reference's place."""
    apart, shared = (ROLL.format("grpo", "teacher", gpus) for gpus in ("12,20", "0,8"))
    assert [read("roll", text).scenario.trainer.recipe.reference for text in (apart, shared)] == [False, True]
    opd = "on_policy_distillation: {{enabled: true, teacher_model_by_agent_name: {{a: q/x}}, {}}}"
    own = "non_colocated_teachers: {enabled: true}"
    nemo = [
        NEMO.format("", "", f"{opd.format(more)}\nloss_fn: {{reference_policy_kl_penalty: 0}}") for more in (own, "")
    ]
    assert [read("nemo-rl", text).scenario.trainer.recipe.reference for text in nemo] == [False, True]


def test_nemo_rls_trainer_has_what_others_leave() -> None:
    reward = "env: {reward_model: {model_name: q/rm, resources: {num_nodes: 1}}}"
    assert read("nemo-rl", NEMO.format("", "", reward)).scenario.trainer.gpus == 24
    assert read("nemo-rl", NEMO.format("", "", "")).scenario.trainer.gpus == 32


def test_a_critic_that_nobody_asked_for_in_words() -> None:
    """OpenRLHF's default estimator needs one, and so does slime's PPO; on the trainer's own GPUs it is no guess."""
    assert read("openrlhf", f"{OPENRLHF} --train.colocate_all", "c.sh").scenario.trainer.recipe.critic
    assert not read("openrlhf", f"{OPENRLHF} --algo.advantage.estimator rloo", "c.sh").scenario.trainer.recipe.critic
    assert read("slime", f"{SLIME} --advantage-estimator ppo", "c.sh").scenario.trainer.recipe.critic
    verl = VERL.replace("algorithm.adv_estimator=grpo", "")
    assert read("verl", verl, "c.sh").scenario.trainer.recipe.critic
    assert not read("verl", verl.replace("verl.trainer.main_ppo", "main_gkd"), "c.sh").scenario.trainer.recipe.critic


def megatron(section: str, more: str = "") -> str:
    generation = f"generation: {{backend: {section}, {more}}}"
    return NEMO.format(f"megatron_cfg: {{enabled: true, tensor_model_parallel_size: 4}}, {generation}", "", "")


@pytest.mark.parametrize(
    ("framework", "text", "name", "expected"),
    [
        ("nemo-rl", megatron("megatron"), "c.yaml", {"engine.tp": 4, "fleet.instances": 8}),
        ("nemo-rl", megatron("megatron", "mcore_generation_config: {tensor_model_parallel_size: 2}"), "c.yaml",
         {"engine.tp": 2}),
        ("nemo-rl", megatron("trtllm", "trtllm_cfg: {tensor_parallel_size: 8}, vllm_cfg: {tensor_parallel_size: 2}"),
         "c.yaml", {"engine.tp": 8, "engine.name": "tensorrt-llm"}),
        ("nemo-rl", megatron("dynamo", "vllm_cfg: {tensor_parallel_size: 2}"), "c.yaml",
         {"engine.tp": 2, "engine.name": "vllm"}),
        ("nemo-rl", NEMO.format("generation: {quant_cfg: my_nvfp4.yaml, real_quant: true}", "", ""), "c.yaml",
         {"engine.dtype": "nvfp4"}),
        ("nemo-rl", NEMO.format("", "use_dynamic_sampling: true, batch_multiplier: 1.5", ""), "c.yaml",
         {"workload.filter.zero_variance_share": 0.3333}),
        ("nemo-rl", NEMO.format("dtensor_cfg: {enabled: true, expert_parallel_size: 8}", "", ""), "c.yaml",
         {"trainer.recipe.ep": 8}),
        ("nemo-rl", NEMO.format("dtensor_cfg: {lora_cfg: {enabled: true, dim: 8}}", "", ""), "c.yaml",
         {"trainer.recipe.tune": "lora"}),
        ("nemo-rl", NEMO.format("megatron_cfg: {enabled: true, fp8_cfg: {enabled: true}}", "", ""), "c.yaml",
         {"trainer.recipe.precision": "fp8"}),
        ("roll", ROLL.format("grpo", "reference", "0,8").replace("actor_train: {", "actor_train: {model_args: "
         "{lora_target: all, lora_rank: 16}, "), "c.yaml", {"trainer.recipe.tune": "lora", "engine.lora.rank": 16}),
        ("verl", VERL + "model_engine=veomni actor_rollout_ref.actor.veomni.optimizer_offload=True "
         "actor_rollout_ref.actor.veomni.expert_parallel_size=4", "c.sh",
         {"trainer.recipe.backend": "fsdp", "trainer.recipe.offload": "states", "trainer.recipe.ep": 4}),
        # Not the partial rollout of verl's fully asynchronous policy: the same GPUs generate, then train.
        ("verl", VERL.replace("verl.trainer", "recipe.partial_rollout") + "async_training.partial_rollout=True", "c.sh",
         {"fleet.placement": "colocated", "admission.law": "barrier", "buffer.oversampling": 2.0,
          "buffer.leftover": "carry_over"}),
        ("prime-rl", PRIME + "[trainer.model.full_offload]\npin = true", "c.toml", {"trainer.recipe.offload": "adam"}),
        ("prime-rl", PRIME, "c.toml", {"trainer.recipe.offload": "states"}),
        # the file of an orchestrator alone: k8s/prime-rl/examples/reverse-text/orch.toml
        ("prime-rl", 'batch_size = 64\ngroup_size = 8\n[model]\nname = "Qwen/Qwen3-8B"\n[train.sampling]\n'
         'max_completion_tokens = 90\n[[train.source]]\nname = "rev"', "c.toml",
         {"workload.group_size": 8, "workload.output_tokens.max": 90, "trainer.batch_samples": 64}),
        # examples/terminal_bench: trajectories of an episode, of which a prompt has several
        ("areal", AREAL + "gconfig: {n_samples: 2}\nn_trajs: 4\nscheduler: {type: local}", "c.yaml",
         {"workload.group_size": 8, "trainer.batch_samples": 64}),
        # inclusionAI/ASearcher at 813e804, asearcher.py sets n_samples to 1
        ("areal", AREAL + "gconfig: {n_samples: 2}\nn_trajs: 4", "c.yaml", {"workload.group_size": 4}),
        ("trl", "GRPOConfig(model='q/q')\nGRPOTrainer(peft_config=get_peft_config(args))", "c.py",
         {"trainer.recipe.tune": None}),
        ("trl", "GRPOConfig(model='q/q', use_peft=True)\nGRPOTrainer(peft_config=get_peft_config(args))", "c.py",
         {"trainer.recipe.tune": "lora"}),
        # Miles
        ("slime", SLIME + "--lora-rank 32", "c.sh", {"trainer.recipe.tune": "lora", "engine.lora.rank": 32}),
        ("slime", SLIME + "--lora-rank 32 --lora-train-only", "c.sh", {"trainer.recipe.tune": "lora",
                                                                       "engine.lora": None}),
        # Relax: groups and GPUs of each role
        ("slime", SLIME.replace("--colocate", f"--resource '{RELAX}'"), "c.sh",
         {"trainer.gpus": 16, "fleet.instances": 12}),
        ("slime", SLIME + "--train-backend fsdp", "c.sh", {"trainer.recipe.backend": "fsdp"}),
        ("slime", SLIME.replace("--colocate", "--rollout-num-gpus 8") + "--update-weight-transfer-mode p2p", "c.sh",
         {"sync.transport": "rdma_p2p"}),
        ("slime", SLIME + "--optimizer-cpu-offload", "c.sh", {"trainer.recipe.offload": "adam"}),
        ("skyrl", SKYRL + "generator.inference_engine.engine_init_kwargs.quantization=fp8", "c.sh",
         {"engine.dtype": "fp8"}),
        ("skyrl", SKYRL + "trainer.placement.colocate_all=false generator.inference_engine.weight_sync_backend=delta",
         "c.sh", {"sync.transport": "sparse_delta"}),
        ("skyrl", SKYRL + "trainer.placement.colocate_all=false generator.inference_engine.external_server_urls="
         "\"['http://a:1','http://b:1']\"", "c.sh", {"fleet.instances": 2}),
        ("rlinf", RLINF, "c.yaml", {"trainer.recipe.offload": "adam"}),
        ("roll", ROLL.format("grpo", "reference", "0,8") + "num_return_sequences_in_group: 4\n"
         "is_num_return_sequences_expand: false\n", "c.yaml", {"fleet.in_flight_unit": "groups"}),
    ],
)  # fmt: skip
def test_what_is_read(framework: str, text: str, name: str, expected: dict[str, Any]) -> None:
    scenario = read(framework, text, name).scenario
    assert {path: field_at(scenario, path) for path in expected} == expected


def test_a_teacher_of_one_source_is_named() -> None:
    """configs/debug/algo/mixed_grpo_opd.toml"""
    source = '[[orchestrator.train.source]]\nname = "a"\nalgo = {type = "opd", teacher = {name = "q/t"}}\n'
    assert "q/t" in next(a.why for a in read("prime-rl", PRIME + source, "c.toml").assumed if a.path == REWARD)


def test_a_gpu_that_stands_in_for_an_npu_is_told() -> None:
    notes = [n.why for n in read("verl", VERL + "trainer.device=npu", "c.sh").not_modelled]
    assert any("stands in" in why for why in notes)
    assert not any("stands in" in n.why for n in read("verl", VERL + "trainer.device=cuda", "c.sh").not_modelled)


def test_a_flag_that_is_turned_off_by_its_no_is_off() -> None:
    """HfArgumentParser has `--no_flag` for each flag that is on by default."""
    text = "python open_instruct/grpo_fast.py --model_name_or_path Qwen/Qwen3-8B --num_learners_per_node 2 "
    assert read("open-instruct", text, "c.sh").scenario.trainer.recipe.reference is True
    assert read("open-instruct", f"{text} --no_load_ref_policy", "c.sh").scenario.trainer.recipe.reference is False


def test_a_teacher_beside_a_reference_is_named() -> None:
    """examples/on_policy_distillation/run-qwen3-8B-opd-megatron.sh has both: one pass is timed."""
    result = read("slime", SLIME + "--use-kl-loss --use-opd --opd-teacher-load /root/Qwen3-32B", "c.sh")
    assert "Qwen3-32B" in next(a.why for a in result.assumed if a.path == REFERENCE)
    assert any(n.setting == "use_opd" for n in result.not_modelled)


def test_a_reference_on_the_rollouts_gpus_has_none_of_its_own() -> None:
    shared, apart = (read("roll", ROLL.format("grpo", "reference", gpus), "c.yaml") for gpus in ("0,12", "0,16"))
    assert "no pool" not in shared.scenario.description
    assert REFERENCE in shared.scenario.assumed
    assert "4 more GPUs" in apart.scenario.description


def test_dapo_drops_groups_in_skyrl() -> None:
    result = read("skyrl", SKYRL + "trainer.algorithm.dynamic_sampling.type=filter", "c.sh")
    assert "workload.filter.zero_variance_share" in result.scenario.assumed


@pytest.mark.parametrize("engine", ["veomni", "torchtitan"])
def test_a_backend_that_stands_in_is_named(engine: str) -> None:
    result = read("verl", f"{VERL} model_engine={engine}", "c.sh")
    assert engine in next(a.why for a in result.assumed if a.path == "trainer.recipe.backend")


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("my.sandbox.max_turns: 4", "workload.turns.count"),
        ("my.max_llm_calls_per_run: 4", "workload.turns.count"),
        ("my.use_fp8_kv_cache: true", "engine.kv_dtype"),
        ("judge.model_path: q/j", REWARD),
        ("verifier_pool.num_gpus: 8", REWARD),
        ("teacher.path: q/t", REFERENCE),
        ("teacher.server_ip: 10.0.0.7", REFERENCE),
        ("policy_lora.rank: 8", "trainer.recipe.tune"),
        ("actor_rollout_ref.model.lora_adapter_path: /mine", "trainer.recipe.tune"),
        ("trainer.extra.fp8_recipe: blockwise", "trainer.recipe.precision"),
        ("rollout.extra.quantization: fp8", "engine.dtype"),
        ("optimizer_offload: true", "trainer.recipe.offload"),
        ("use_value_model: true", "trainer.recipe.critic"),
        ("fsdp.sharding_strategy: HYBRID_SHARD", "trainer.recipe.shards"),
    ],
)
def test_an_unread_key_of_weight_is_named_with_its_flag(key: str, path: str) -> None:
    result = read("verl", VERL + key.replace(": ", "="), "c.sh")
    found = next(a for a in result.assumed if a.path == path and "not read" in a.why)
    assert key.split(":")[0] in found.why
    assert found.remedy.startswith(f"--set {path}=")
    assert path in result.scenario.assumed


def test_a_default_that_stands_in_for_a_value_of_the_shells_is_assumed() -> None:
    """THUDM/slime, scripts/run-qwen3-4B.sh counts the GPUs of its machine."""
    words = f"{SLIME} --actor-num-nodes 2 --actor-num-gpus-per-node $(count)"
    result = read("slime", f"#!/bin/bash\n{words}", "c.sh")
    (found,) = [a for a in result.assumed if a.path == "trainer.gpus"]
    assert "actor_num_gpus_per_node is given with a value that is not known here" in found.why
    assert found.remedy == "-- actor_num_gpus_per_node VALUE"
    assert "trainer.gpus" in result.scenario.assumed
    assert not [taken for taken in result.taken if taken.path == "trainer.gpus"]


def test_a_filter_that_is_off_refills_nothing() -> None:
    words = "data.gen_batch_size=64 algorithm.filter_groups.enable="
    on, off = (read("verl", VERL + words + value, "c.sh") for value in ("True", "False"))
    assert [any("refilled" in note.why for note in result.not_modelled) for result in (on, off)] == [True, False]


def test_keys_of_no_weight_are_only_counted() -> None:
    quiet = "my.color=red my.fp8_cfg.enabled=False my.fp8_cfg.fp8_recipe=blockwise trainer.val.n_gpus=8 my.lora.rank=0"
    quiet += " rollout.fp8_gemm_backend=triton my.compute_returns=True fsdp.sharding_strategy=FULL_SHARD"
    result = read("verl", VERL + quiet, "c.sh")
    assert not [a for a in result.assumed if "not read" in a.why]
    assert "my.color" in result.not_looked_at


def test_what_the_user_sets_is_not_assumed() -> None:
    text = ROLL.format("grpo", "rewards: {llm_judge", "12,16") + "}"
    result = read("roll", text, sets=(f"{REWARD}=3",))
    assert REWARD not in result.scenario.assumed
    assert "4 more GPUs" in result.scenario.description


@pytest.mark.parametrize(
    ("framework", "text", "name", "what"),
    [
        ("nemo-rl", "policy: {model_name: q/q}\nsft: {max_num_steps: 1}", "c.yaml", "supervised fine-tuning"),
        ("nemo-rl", "policy: {model_name: q/q}\ndpo: {max_num_steps: 1}", "c.yaml", "DPO"),
        ("nemo-rl", "policy: {model_name: q/q}\nppo: {max_num_steps: 1}", "c.yaml", "PPO or RLOO"),
        ("nemo-rl", "policy: {model_name: q/q}\ndistillation: {topk: 1}", "c.yaml", "distillation"),
        ("nemo-rl", "policy: {model_name: q/q}\nrm: {max_num_steps: 1}", "c.yaml", "a reward model's training"),
        ("prime-rl", 'model = {name = "q/q"}\n[data]\nbatch_size = 8', "c.toml", "supervised fine-tuning"),
        ("areal", 'actor: {path: q/q, backend: "fsdp:d2"}\ntrain_dataset: {batch_size: 8}', "c.yaml", "a reward model"),
        ("trl", "SFTTrainer(model='q/q')", "c.py", "supervised fine-tuning"),
        ("roll", "pretrain: q/q\nsft_train: {device_mapping: [0]}", "c.yaml", "supervised fine-tuning"),
        ("openrlhf", "deepspeed --module openrlhf.cli.train_dpo --model q/q", "c.sh", "DPO"),
    ],
)
def test_a_refusal_says_what_the_file_is(framework: str, text: str, name: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        read(framework, text, name)
    (problem,) = caught.value.problems
    assert what in str(problem.value)


@pytest.mark.parametrize(
    "name", ["Follow the guide at x/deepseek.md", "/path/to/model", "<your model>", "./models/sft/global_step_105"]
)
def test_a_placeholder_is_no_model(name: str) -> None:
    text = NEMO.format("", "", "").replace("Qwen/Qwen2.5-7B", name)
    with pytest.raises(InputError, match="names no model: a placeholder"):
        read("nemo-rl", text)
    assert read("nemo-rl", text, sets=("engine.model=Qwen/Qwen2.5-7B",)).scenario.engine.model == "Qwen/Qwen2.5-7B"
    assert read("nemo-rl", NEMO.format("", "", "").replace("Qwen/Qwen2.5-7B", "/path/to/Qwen3-8B"))


FP8 = "+actor_rollout_ref.actor.megatron.override_transformer_config.fp8=hybrid model_engine=megatron"
CACHE = "+actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_dtype=fp8_e4m3"
QAT = "actor_rollout_ref.actor.fsdp_config.qat.enable=True actor_rollout_ref.actor.fsdp_config.qat.mode=w4a16"
JUDGES = """
[[orchestrator.train.source]]
[orchestrator.train.source.env.taskset]
id = "math"
[[orchestrator.train.source.env.taskset.task.judges]]
id = "reference"
model = "Qwen/Qwen3-235B-A22B-Instruct-2507"
"""


@pytest.mark.parametrize(
    ("framework", "text", "name", "path", "value"),
    [
        ("verl", VERL + FP8, "c.sh", "trainer.recipe.precision", "fp8"),
        ("verl", VERL + CACHE, "c.sh", "engine.kv_dtype", "fp8"),
        ("verl", VERL + QAT, "c.sh", "engine.dtype", "nvfp4"),
        ("slime", SLIME + "--fp8-format e4m3", "c.sh", "trainer.recipe.precision", "fp8"),
        ("slime", SLIME + "--sglang-kv-cache-dtype fp8_e4m3", "c.sh", "engine.kv_dtype", "fp8"),
        ("open-instruct", "python grpo_fast.py --model_name_or_path Qwen/Qwen3-8B --actor_num_gpus_per_node 6", "c.sh",
         "trainer.gpus", 6),
    ],
)  # fmt: skip
def test_a_precision_and_an_older_name_are_read(framework: str, text: str, name: str, path: str, value: Any) -> None:
    result = read(framework, text, name)
    assert field_at(result.scenario, path) == value
    assert path not in result.scenario.assumed


def test_what_is_left_is_named_under_what_it_would_change() -> None:
    """Ranks of a model's own attention are no adapters; four bits of bitsandbytes are a precision; judges wait."""
    latent = "--multi-latent-attention --q-lora-rank 768 --kv-lora-rank 512"
    assert "trainer.recipe.tune" not in read("slime", SLIME + latent, "c.sh").scenario.assumed
    swift = "NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --model Qwen/Qwen3-8B --quant_method bnb --quant_bits 4"
    assert "trainer.recipe.precision" in read("ms-swift", swift, "c.sh").scenario.assumed
    four = "trl grpo --model_name_or_path Qwen/Qwen3-8B --num_processes 4 --use_peft --load_in_4bit"
    assert "trainer.recipe.precision" in read("trl", four, "c.sh").scenario.assumed
    why = next(a.why for a in read("prime-rl", PRIME + JUDGES, "c.toml").assumed if a.path == REWARD)
    assert "Qwen3-235B" in why


def test_several_reward_models_of_ms_swift_are_all_named() -> None:
    """examples/train/grpo/plugin/run_external_reward_model.sh"""
    words = "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B --reward_model Qwen/A org/B"
    found = scenario_from("ms-swift", parsed_source(words, "c.sh"), "c.sh")
    (named,) = [one for one in found.assumed if one.path == REWARD]
    assert all(model in named.why for model in ("Qwen/A", "org/B"))


@pytest.mark.parametrize(
    ("framework", "text", "name", "who"),
    [
        # scripts/train/dr-tulu/dr_tulu_qwen35.sh
        ("open-instruct", "python grpo_fast.py --model_name_or_path q/q --apply_evolving_rubric_reward true", "c.sh",
         "apply_evolving_rubric_reward"),
        # rlinf/agents/wideseek_r1/wideseek_r1.py: on unless it is switched off
        ("rlinf", f"{RLINF}agentloop: {{workflow: sa, max_sa_turns: 4}}\n", "c.yaml", "agentloop.use_llm_judge"),
        ("rlinf", f"{RLINF}agentloop: {{workflow: sa, max_sa_turns: 4, use_llm_judge: false}}\n", "c.yaml", ""),
        ("rlinf", f"{RLINF}agentloop: {{max_turns: 4}}\n", "c.yaml", ""),
        ("verl", f"{VERL}reward_rollout.if_use_reward_rollout=True", "c.sh", "reward_rollout"),  # RL-Factory
        ("verl", f"{VERL}reward_rollout.if_use_reward_rollout=False", "c.sh", ""),
        ("verl", f"{VERL}rllm.distill.enable=True", "c.sh", "rllm.distill"),
    ],
)  # fmt: skip
def test_a_judge_of_an_agents_own_is_named(framework: str, text: str, name: str, who: str) -> None:
    found = [one.why for one in read(framework, text, name).assumed if one.path == REWARD]
    assert [who in why for why in found] == [True] * bool(who)

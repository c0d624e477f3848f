"""How many turns a trajectory has, and how long it may be: each framework by its own rule, none of them silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetsim.frameworks.convert import Imported, scenario_from
from fleetsim.frameworks.export import scenario_to
from fleetsim.frameworks.source import parsed_source, read_source
from fleetsim.job.nameplate import limits_of

TURNS = "workload.turns.count"
ROLL = """\
pretrain: Qwen/Qwen2.5-0.5B
rollout_batch_size: 16
sequence_length: {whole}
adv_estimator: grpo
init_kl_coef: 0.0
actor_train: {{device_mapping: "list(range(0,2))"}}
actor_infer: {{device_mapping: "list(range(2,4))"}}
train_env_manager:
  num_env_groups: 2
  group_size: 8
  tags: [Pond]
  generating_args: {{max_new_tokens: 100}}
custom_envs:
  Pond:
    ${{all_ponds.Pond}}
"""
PONDS = """\
steps: 12
per_step: 50
all_ponds:
  Pond: {max_steps: "${steps}", max_tokens_per_step: "${per_step}"}
  Sea: {max_steps: 99, max_tokens_per_step: 999}
"""


def read(framework: str, text: str, name: str = "c.yaml", words: tuple[str, ...] = ()) -> Imported:
    return scenario_from(framework, parsed_source(text, name, words), name)


def longest(result: Imported) -> float | None:
    return result.scenario.workload.output_tokens.max  # type: ignore[union-attr]


def why(result: Imported, path: str = TURNS) -> str:
    """Why a path is assumed; it stands in the scenario's own list as well, which every answer names."""
    assert path in result.scenario.assumed
    return next(a.why for a in result.assumed if a.path == path)


@pytest.mark.parametrize(("package", "whole", "most"), [("@_here_", 8192, 600), ("", 8192, 600), ("@_here_", 400, 400)])
def test_roll_reads_its_environments_from_a_parent(tmp_path: Path, package: str, whole: int, most: int) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "ponds.yaml").write_text(PONDS)
    file = tmp_path / "job.yaml"
    file.write_text(f"defaults:\n  - config/ponds{package}\n{ROLL.format(whole=whole)}")
    result = scenario_from("roll", read_source(str(file)))
    assert result.scenario.workload.turns.count == 12
    assert longest(result) == most  # 12 turns of min(50, 100) tokens, within the sequence
    assert TURNS in result.scenario.assumed  # the cap of the turns, not their number


@pytest.mark.parametrize(
    ("settings", "unit"),
    [
        ("", "environments"),
        ("async_generation_ratio: 1\nrollout_batch_size: 48", "environments"),
        # a batch that is no multiple of the 16 environments, or more games than it needs: the first to end make it
        ("rollout_batch_size: 24", "samples"),
        ("train_env_manager.max_traj_per_env: 2", "samples"),
        # which an asynchronous pipeline sets itself
        ("train_env_manager.max_traj_per_env: 2\nasync_generation_ratio: 1", "environments"),
    ],
)
def test_roll_deals_a_steps_games_out_to_its_environments(settings: str, unit: str) -> None:
    text = ROLL.format(whole=8192).replace(
        "rollout_batch_size: 16\n", "" if "rollout" in settings else "rollout_batch_size: 16\n"
    )
    scenario = read("roll", f"{text}{settings}\n").scenario
    assert (scenario.fleet.in_flight_unit, scenario.fleet.max_in_flight_samples) == (unit, 16)


def test_a_parent_that_is_not_there_is_told_and_so_are_the_turns() -> None:
    result = read("roll", f"defaults: [config/ponds@_here_]\n{ROLL.format(whole=8192)}")
    assert [n.setting for n in result.not_modelled if "config/ponds" in n.setting]
    assert "no setting says how many turns" in why(result)
    assert longest(result) == 8192


def test_a_group_of_hydra_goes_below_its_name(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "short.yaml").write_text("max_response_length: 77\n")
    file = tmp_path / "job.yaml"
    file.write_text("defaults: [{data: short}, _self_]\nactor_rollout_ref: {model: {path: Qwen/Qwen2.5-0.5B}}\n"
                    "algorithm: {adv_estimator: grpo}\n")  # fmt: skip
    assert longest(scenario_from("verl", read_source(str(file)))) == 77


SKYRL = "trainer.policy.model.path=Qwen/Qwen2.5-0.5B generator.sampling_params.max_generate_length=500 "


@pytest.mark.parametrize(
    ("words", "turns", "most"),
    [
        ("generator.max_turns=4 generator.max_input_length=1500", 4, 2000),  # what a turn begins with, and one more
        ("generator.max_turns=2 generator.max_input_length=4096", 2, 1000),
        ("environment.env_class=gsm8k", 1, 500),
    ],
)
def test_skyrl(words: str, turns: int, most: int) -> None:
    result = read("skyrl", SKYRL + words, "run.sh")
    assert (result.scenario.workload.turns.count, longest(result)) == (turns, most)


def test_an_agent_of_skyrl_without_a_number_of_turns() -> None:
    result = read("skyrl", f"python -m my.main_harbor {SKYRL}", "run.sh")
    assert "several turns" in why(result)


AREAL = """\
actor: {{path: Qwen/Qwen3-0.6B, backend: "fsdp:d2"}}
rollout: {{backend: "sglang:d2"}}
train_dataset: {{batch_size: 8}}
gconfig: {{n_samples: 4, max_new_tokens: 1000{}}}
{}
"""


@pytest.mark.parametrize(
    ("more", "section", "turns", "most"),
    [
        (", max_tokens: 6000", "econfig: {max_steps: 50}", 50, 6000),
        ("", "tir: {max_turns: 3, max_length: 9000}", 4, 8000),
        ("", "tir: {max_turns: 2, max_length: 3000}", 3, 3000),
        ("", "max_tokens_per_trajectory: 5000", None, 5000),
        ("", "", 1, 1000),
    ],
)
def test_areal(more: str, section: str, turns: int | None, most: int) -> None:
    result = read("areal", AREAL.format(more, section))
    assert longest(result) == most
    assert result.scenario.workload.turns.count == (turns or 1)
    assert (TURNS in result.scenario.assumed) == (turns != 1)


NEMO = """\
policy:
  model_name: Qwen/Qwen2.5-0.5B
  max_total_sequence_length: 4096
  generation: {max_new_tokens: 1024}
grpo: {num_prompts_per_step: 8, num_generations_per_prompt: 4, max_rollout_turns: TURNS}
cluster: {num_nodes: 1, gpus_per_node: 8}
"""


def test_nemo_rl_counts_rollout_turns_but_for_gyms() -> None:
    result = read("nemo-rl", NEMO.replace("TURNS", "3"))
    assert (result.scenario.workload.turns.count, longest(result)) == (3, 3072)
    gym = NEMO.replace("TURNS", "1") + "env: {should_use_nemo_gym: true, nemo_gym: {LIMIT}}"
    result = read("nemo-rl", gym.replace("LIMIT", "swe: {agent_max_turns: 200}"))
    assert (result.scenario.workload.turns.count, longest(result)) == (200, 4096)
    result = read("nemo-rl", gym.replace("LIMIT", "config_paths: [a.yaml]"))
    assert "should_use_nemo_gym" in why(result)
    assert longest(result) == 4096


@pytest.mark.parametrize(
    ("framework", "text", "name", "marker"),
    [
        ("prime-rl", 'model = {name = "q/q"}\n[[orchestrator.train.source]]\nenv = {taskset = {id = "my-swe"}}',
         "c.toml", "my-swe"),
        ("prime-rl", 'model = {name = "q/q"}\n[[orchestrator.train.source]]\nenv = {agent = {harness = {id = "rlm"}}}',
         "c.toml", "rlm"),
        ("trl", "GRPOConfig(model='q/q')\nGRPOTrainer(environment_factory=Pond)", "c.py", "environment_factory"),
        ("trl", "GRPOConfig(model='q/q')\nGRPOTrainer(tools=[look, jump])", "c.py", "tools"),
        ("slime", "python train.py --hf-checkpoint q/q --rollout-batch-size 8 --colocate "
         "--custom-generate-function-path mine.play", "c.sh", "mine.play"),
        ("openrlhf", "python -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path q/q --vllm.num_engines 2 "
         "--train.agent_func_path pond.py", "c.sh", "pond.py"),
        ("verl", "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=q/q "
         "actor_rollout_ref.rollout.multi_turn.enable=True", "c.sh", "multi_turn"),
        ("verl", "python -m recipe.atropos.main_atropos actor_rollout_ref.model.path=q/q atropos.api_url=http://a:1",
         "c.sh", "atropos"),
    ],
)  # fmt: skip
def test_an_agent_is_named_where_nobody_says_its_turns(framework: str, text: str, name: str, marker: str) -> None:
    result = read(framework, text, name)
    assert marker in why(result)
    assert next(a.remedy for a in result.assumed if a.path == TURNS).startswith(f"--set {TURNS}=")


@pytest.mark.parametrize(
    ("framework", "text", "name", "turns"),
    [
        ("prime-rl", 'model = {name = "q/q"}\n[[orchestrator.train.source]]\nenv = {taskset = {max_turns = 6}}',
         "c.toml", 6),
        ("trl", "GRPOConfig(model='q/q', max_tool_calling_iterations=4)\nGRPOTrainer(tools=[look])", "c.py", 5),
        ("verl", "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=q/q "
         "actor_rollout_ref.rollout.multi_turn.enable=True actor_rollout_ref.rollout.multi_turn.max_assistant_turns=7",
         "c.sh", 7),
    ],
)  # fmt: skip
def test_a_cap_of_turns_is_read(framework: str, text: str, name: str, turns: int) -> None:
    assert read(framework, text, name).scenario.workload.turns.count == turns


def cap_of_a_turn(result: Imported) -> int | None:
    return result.scenario.workload.turns.max_output_tokens


PRIME = """model = {name = "q/q"}
[orchestrator.train.sampling]
max_completion_tokens = 300
[[orchestrator.train.source]]
env = {taskset = {max_turns = {}}}
"""
RLINF = """\
cluster: {num_nodes: 1, component_placement: {"actor,rollout": 0-7}}
runner: {task_type: reasoning, seq_length: 9000}
rollout: {model: {model_path: q/q}}
data: {rollout_batch_size: 8}
algorithm: {sampling_params: {max_new_tokens: 400}}
agentloop: {max_turns: {}}
"""
SWIFT = "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model q/q --max_completion_length 600 --max_turns {}"
TINKER = "python -m tinker_cookbook.recipes.search_tool.train max_tokens=700 max_turns={}"
OF_ONE_TURN = [
    ("skyrl", SKYRL + "generator.max_input_length=4096 generator.max_turns={}", "c.sh", 500),
    ("areal", AREAL.format(", max_tokens: 9000", "econfig: {{max_steps: {}}}").replace("{{", "{").replace("}}", "}"),
     "c.yaml", 1000),
    ("nemo-rl", NEMO.replace("TURNS", "{}"), "c.yaml", 1024),
    ("prime-rl", PRIME, "c.toml", 300),
    ("rlinf", RLINF, "c.yaml", 400),
    ("ms-swift", SWIFT, "c.sh", 600),
    ("tinker", TINKER, "c.sh", 700),
]  # fmt: skip


@pytest.mark.parametrize(("framework", "text", "name", "cap"), OF_ONE_TURN, ids=[case[0] for case in OF_ONE_TURN])
def test_a_cap_of_one_turn_is_that_of_a_turn(framework: str, text: str, name: str, cap: int) -> None:
    """With one turn it is the trajectory's, and says nothing more."""
    several, one = (read(framework, text.replace("{}", turns), name) for turns in ("3", "1"))
    assert (several.scenario.workload.turns.count, cap_of_a_turn(several)) == (3, cap)
    assert (one.scenario.workload.turns.count, cap_of_a_turn(one), longest(one)) == (1, None, cap)


@pytest.mark.parametrize(
    ("loop", "turns"),
    [
        ("max_user_turns: null, max_assistant_turns: 5", 5),
        ("max_user_turns: 2, max_assistant_turns: 5", 3),
        ("workflow: mas, max_planner_turns: 10, max_sa_turns: 50, max_toolcall_per_worker: 4", 10),
        ("workflow: sa, max_planner_turns: 10, max_sa_turns: 50, max_toolcall_per_worker: 4", 50),
        ("max_toolcall_per_worker: 4", 1),  # calls of one turn
    ],
)
def test_rlinfs_agents_have_turns_within_what_a_prompt_leaves(loop: str, turns: int) -> None:
    text = RLINF.replace("max_turns: {}", loop).replace(
        "rollout_batch_size", "max_prompt_length: 1000, rollout_batch_size"
    )
    result = read("rlinf", text.replace("max_new_tokens: 400", "max_new_tokens: 8000"), "c.yaml")
    assert (result.scenario.workload.turns.count, longest(result)) == (turns, 8000 if turns > 1 else 9000)


def test_rolls_cap_of_one_turn(tmp_path: Path) -> None:
    (tmp_path / "ponds.yaml").write_text(PONDS)
    file = tmp_path / "job.yaml"
    file.write_text(f"defaults: [ponds@_here_]\n{ROLL.format(whole=400)}")
    result = scenario_from("roll", read_source(str(file)))
    assert (cap_of_a_turn(result), longest(result)) == (50, 400)  # of 12 turns, within the sequence


@pytest.mark.parametrize(
    ("framework", "text", "name"),
    [
        ("trl", "GRPOConfig(model='q/q', max_tool_calling_iterations=4)\nGRPOTrainer(tools=[look])", "c.py"),
        ("verl", "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=q/q "
         "actor_rollout_ref.rollout.multi_turn.enable=True actor_rollout_ref.rollout.multi_turn.max_assistant_turns=7",
         "c.sh"),
        ("ms-swift", SWIFT.replace("{}", "3 --completion_length_limit_scope total"), "c.sh"),
        ("nemo-rl", NEMO.replace("TURNS", "1") + "env: {should_use_nemo_gym: true}", "c.yaml"),  # how many nobody says
    ],
)  # fmt: skip
def test_a_cap_of_the_whole_is_none_of_a_turn(framework: str, text: str, name: str) -> None:
    assert cap_of_a_turn(read(framework, text, name)) is None


def test_both_caps_go_back(tmp_path: Path) -> None:
    """Of a trajectory that its whole bounds before its turns do, and of one with room for all of them."""
    for whole in (1500, 4096):
        words = f"{SKYRL}generator.max_turns=4 generator.max_input_length={whole}"
        first = read("skyrl", words, "run.sh").scenario
        again = read("skyrl", scenario_to("skyrl", first, limits_of).text, "run.sh").scenario
        assert again.workload.turns.max_output_tokens == 500
        assert again.workload.output_tokens == first.workload.output_tokens


def test_open_instructs_tools_are_called_five_times_where_nobody_says() -> None:
    """open_instruct/environments/tools/utils.py, max_steps; one more turn answers."""
    result = read("open-instruct", "python open_instruct/grpo_fast.py --model_name_or_path q/q --tools search", "c.sh")
    assert result.scenario.workload.turns.count == 6
    assert TURNS in {one.path for one in result.assumed}
    assert (
        read(
            "open-instruct", "python open_instruct/grpo_fast.py --model_name_or_path q/q", "c.sh"
        ).scenario.workload.turns.count
        == 1
    )


def test_open_instruct_bounds_a_turn_within_the_response() -> None:
    """open_instruct/vllm_utils.py: what is left of the response, and of the turn."""
    words = "python open_instruct/grpo_fast.py --model_name_or_path q/q --tools search --max_steps 4"
    turns = read("open-instruct", f"{words} --response_length 2048 --per_turn_max_tokens 700", "c.sh").scenario.workload
    assert (turns.turns.count, turns.turns.max_output_tokens, turns.output_tokens.max) == (5, 700, 2048)  # type: ignore[union-attr]

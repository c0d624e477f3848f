"""What is wrong with a configuration is told, all at once, with the framework's own keys; garbage is an InputError."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.errors import InputError
from fleetsim.frameworks.convert import FRAMEWORKS, framework_name, scenario_from
from fleetsim.frameworks.settings import settings_of
from fleetsim.frameworks.source import parsed_source, read_source

DATA = Path(__file__).parent / "data"
FILES = sorted(p.name for p in DATA.iterdir() if p.is_file())


def problems(framework: str, text: str, name: str = "c.yaml", words: tuple[str, ...] = ()) -> str:
    with pytest.raises(InputError) as caught:
        scenario_from(framework, parsed_source(text, name, words), name)
    assert all(p.rule and p.remedy for p in caught.value.problems)
    return str(caught.value)


@pytest.mark.parametrize(
    ("word", "name"), [("VeRL", "verl"), ("NeMo_RL", "nemo-rl"), ("openinstruct", "open-instruct")]
)
def test_names_in_any_spelling(word: str, name: str) -> None:
    assert framework_name(word) == name


@pytest.mark.parametrize(("word", "near"), [("verll", "verl"), ("open-rlhf2", "openrlhf"), ("slim", "slime")])
def test_a_wrong_name_is_told_with_the_near_one(word: str, near: str) -> None:
    with pytest.raises(InputError, match=f'did you mean "{near}"'):
        framework_name(word)
    with pytest.raises(InputError, match="known here: areal, ms-swift"):
        framework_name("zzzzzz")


def test_a_cluster_that_nobody_has_is_not_listed_gpu_by_gpu() -> None:
    """A billion nodes took 1.3 GB."""
    text = (DATA / "rlinf.yaml").read_text()
    assert "num_nodes: 8\n" in text
    text = text.replace("num_nodes: 8\n", "num_nodes: 1000000000\n")
    tracemalloc.start()
    read = scenario_from("rlinf", parsed_source(text, "rlinf.yaml", ()), "rlinf.yaml")
    assert tracemalloc.get_traced_memory()[1] < 1e8
    tracemalloc.stop()
    assert read.scenario.trainer.gpus == 40


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("file", FILES)
def test_a_file_of_another_framework_is_recognised(framework: str, file: str) -> None:
    owner = max((f for f in FRAMEWORKS if file.replace("_", "-").startswith(f)), key=len)
    read = read_source(str(DATA / file))
    if framework == owner:
        assert scenario_from(framework, read).framework == owner
        return
    try:
        scenario_from(framework, read)
    except InputError as error:
        told = str(error)
        assert f"looks like a configuration of {owner}" in told or "is missing" in told
    else:
        pytest.fail(f"{file} was taken for a configuration of {framework}")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_empty_configuration_lacks_the_model(framework: str) -> None:
    assert "is missing: the model says how fast an engine is" in problems(framework, "unrelated: 1")


@pytest.mark.parametrize(
    ("framework", "expected"),
    [
        ("slime", ("rollout_batch_size", "rollout_num_gpus", "hf_checkpoint")),
        ("areal", ("train_dataset.batch_size", "actor.path", "rollout.backend", "actor.backend")),
        ("nemo-rl", ("grpo.num_prompts_per_step", "grpo.num_generations_per_prompt", "policy.model_name")),
        ("roll", ("pretrain", "actor_train.device_mapping", "actor_infer.device_mapping")),
        ("openrlhf", ("vllm.num_engines", "actor.model_name_or_path")),
    ],
)
def test_everything_that_is_missing_is_told_at_once(framework: str, expected: tuple[str, ...]) -> None:
    told = problems(framework, "unrelated: 1")
    assert [key for key in expected if key not in told] == []


@pytest.mark.parametrize(
    ("framework", "text", "words"),
    [
        (
            "verl",
            "actor_rollout_ref: {model: {path: Qwen/Qwen2.5-7B}, rollout: {n: many, tensor_model_parallel_size: 3}}\n"
            "trainer: {nnodes: 1, n_gpus_per_node: 8}\ndata: {train_batch_size: -4}",
            ("rollout.n: 'many': must be a whole number", "train_batch_size: -4", "3 does not divide it"),
        ),
        (
            "verl",
            "actor_rollout_ref: {model: {path: q/q}, actor: {ppo_mini_batch_size: 100}}\n"
            "data: {train_batch_size: 256}\ntrainer: {v1: {trainer_mode: separate_async}}",
            ("must be trainer.v1.separate_async.parameter_sync_step = 4 x", "use data.train_batch_size=400"),
        ),
        (
            "trl",
            "model_name_or_path: q/q\nnum_generations: 7\nper_device_train_batch_size: 4\nnum_processes: 2\n"
            "vllm_mode: both",
            ("must be a multiple of num_generations = 7", "must be one of colocate, server"),
        ),
        (
            "prime-rl",
            "model: {name: q/q}\norchestrator: {batch_size: 100, group_size: 16}\n"
            "deployment: {num_infer_gpus: 3}\ninference: {vllm: {tensor_parallel_size: 2}}",
            ("must be a multiple of orchestrator.group_size = 16", "tensor_parallel_size = 2 does not divide it"),
        ),
        (
            "areal",
            "actor: {path: q/q, backend: fsdp}\nrollout: {backend: 'sglang:d4x2'}\ngconfig: {n_samples: 0}\n"
            "train_dataset: {batch_size: 8}",
            ("actor.backend: 'fsdp'", "rollout.backend: 'sglang:d4x2'", "gconfig.n_samples: 0"),
        ),
        (
            "roll",
            "pretrain: q/q\nactor_train: {device_mapping: 'open(1)'}\n"
            "actor_infer: {device_mapping: 'list(range(8,8))'}",
            ("actor_train.device_mapping: 'open(1)'", "actor_infer.device_mapping: 'list(range(8,8))'"),
        ),
        (
            "nemo-rl",
            "grpo: {num_prompts_per_step: 8, num_generations_per_prompt: 4}\npolicy: {model_name: q/q, generation: "
            "{colocated: {enabled: false, resources: {num_nodes: 2}}}}\ncluster: {num_nodes: 2, gpus_per_node: 8}",
            ("leaves no GPU to training",),
        ),
        (
            "openrlhf",
            "actor.model_name_or_path: q/q\nvllm: {num_engines: 9}\ntrain: {colocate_all: true, "
            "partial_rollout_enable: true}",
            ("needs more than the actor's 8 GPUs", "needs asynchronous training"),
        ),
        (
            "slime",
            "hf_checkpoint: q/q\nrollout_batch_size: 32\nover_sampling_batch_size: 16\ncolocate: true\n"
            "global_batch_size: 64",
            ("over_sampling_batch_size: 16: must not be below", "global_batch_size: 64: is more than a rollout has"),
        ),
        (
            "open-instruct",
            "model_name_or_path: q/q\nnum_learners_per_node: [8, x]\nasync_steps: 0\ninflight_updates: maybe",
            ("num_learners_per_node", "async_steps: 0", "inflight_updates: 'maybe'"),
        ),
    ],
)
def test_all_problems_at_once_under_their_own_names(framework: str, text: str, words: tuple[str, ...]) -> None:
    told = problems(framework, text)
    assert [word for word in words if word not in told] == []


def test_a_problem_of_the_scenario_is_told_under_the_setting() -> None:
    told = problems("verl", (DATA / "verl_sync.yaml").read_text(), words=("trainer.nnodes=900000000",))
    assert "trainer.nnodes 900000000 x trainer.n_gpus_per_node 8" in told
    assert "trainer.gpus" in told


def test_wrong_overrides_are_told_too() -> None:
    read = read_source(str(DATA / "verl_sync.yaml"), ("data.train_batch_size=x",))
    with pytest.raises(InputError) as caught:
        scenario_from("verl", read, sets=("fleet.instancs=3",))
    told = str(caught.value)
    assert 'did you mean "instances"' in told
    assert "data.train_batch_size: 'x'" in told


@pytest.mark.parametrize("name", ["c.yaml", "c.toml", "c.json", "c.sh", "c.py", "stdin"])
@pytest.mark.parametrize("framework", ["verl", "trl", "roll"])
@given(data=st.binary(max_size=400) | st.text(max_size=400).map(lambda t: t.encode("utf-8", "replace")))
@settings(max_examples=30)
def test_no_text_raises_anything_but_input_errors(framework: str, name: str, data: bytes) -> None:
    text = data.decode("utf-8", "replace").replace("\0", "")
    try:
        scenario_from(framework, parsed_source(text, name), name)
    except InputError as error:
        assert error.problems


_SHELL = st.lists(
    st.sampled_from(
        [
            "python ", "t.py ", "-m ", "--n ", "a=1 ", "\\\n", "\n", "'", '"', "$(", ")", "${", "}", "$((", "))", "`",
            "A=(", "${A[@]} ", "${N:-", "N=", "if ", "fi\n", "then ", "<<E\n", "E\n", "# ", ";", "|", "&", "3 ", "@ ",
            "source ", "export ", "+", "\\", "é", "--x=", "for i in ", "done ", "[ ", "case ", "~a ", ">", "2>&1 ",
        ]
    ),
    max_size=40,
).map("".join)  # fmt: skip


@given(text=_SHELL)
def test_no_script_raises_anything_but_input_errors(text: str) -> None:
    try:
        scenario_from("slime", parsed_source(text, "run.sh"), "run.sh")
    except InputError as error:
        assert error.problems


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.sampled_from(
        ["", "sglang:d2t2", "list(range(0,8))", "Qwen/Qwen2.5-7B", "${a.b}", "sync", "8", "-1", "1_0", "\ud800", "\x85"]
    )
    | st.text(max_size=6)
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def _known_keys(framework: str) -> list[str]:
    """Keys that the framework's module reads, from what its own configurations set, and its marks."""
    keys = set(FRAMEWORKS[framework].marks)
    for file in FILES:
        if file.replace("_", "-").startswith(framework):
            keys |= {s.key for s in read_source(str(DATA / file)).found.values()}
    return sorted(keys)


KEYS = {framework: _known_keys(framework) for framework in FRAMEWORKS}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@given(data=st.data())
@settings(max_examples=40)
def test_no_values_raise_anything_but_input_errors(framework: str, data: st.DataObject) -> None:
    """Random values at keys that are known: on top of a good configuration, and alone."""
    changes: dict[str, Any] = data.draw(st.dictionaries(st.sampled_from(KEYS[framework]), _VALUES, max_size=6))
    file = next(f for f in FILES if f.replace("_", "-").startswith(framework))
    base = read_source(str(DATA / file))
    top = settings_of(changes.items())
    read = top.over(base) if data.draw(st.booleans()) else top
    try:
        result = scenario_from(framework, read, "x\n# y: 1")
    except InputError as error:
        assert str(error)
    else:
        assert yaml.safe_load(result.text)["schema_version"] == 1


@pytest.mark.parametrize(
    ("framework", "text", "name", "told"),
    [
        ("slime", "python3 train.py --hf-checkpoint m --rollout-batch-size 8 --rollout-function-path a.sft_rollout.f",
         "c.sh", "no rollout to plan: fine-tuning"),
        ("prime-rl", '[deployment]\ntype = "disaggregated"\n[vllm]\nmodel = "m"\n', "c.toml", "an inference server"),
        # configs/debug/fake/rl.toml, and k8s/prime-rl/examples/reverse-text/train.toml
        ("prime-rl", "[data.fake]\nbatch_size = 2\n[model]\nseq_len = 1024\n", "c.toml", "a trainer alone"),
        ("prime-rl", '[model]\nname = "m"\n[optim]\nlr = 3e-6\n', "c.toml", "a trainer alone"),
        ("rlinf", "runner: {task_type: reasoning_eval}\ndata: {rollout_batch_size: 16}\n", "c.yaml", "an evaluation"),
        ("roll", "actor_infer:\n  device_mapping: list(range(0,8))\nrollout_batch_size: 8\n", "c.yaml",
         "a rollout without training"),
        ("verl", "engine:\n  strategy: fsdp\noptim: {lr: 1}\ntrainer: {nnodes: 1}\n", "c.yaml", "supervised"),
        ("openrlhf", "a: 1\nb: 2\n", "c.yaml", "holds no setting of openrlhf, and does not start it"),
        # open-instruct, configs/train_configs/dpo: nothing in it asks for a rollout
        *((framework, "model_name_or_path: m\ndataset_mixer: {a: 1}\nper_device_train_batch_size: 1\n"
           "gradient_accumulation_steps: 2\n", "c.yaml", "'fine-tuning or DPO': no rollout to plan")
          for framework in ("trl", "open-instruct")),
        ("verl", "tools: [{class_name: a.Tool}]\n", "c.yaml", "holds no setting of verl, and does not start it"),
        ("trl", "base_model: m\nrl: ebft\ntrl: {num_generations: 4}\n", "c.yaml", "must be one of grpo, gdpo"),
        # OpenPipe/ART at 779559f, examples/tic_tac_toe
        ("trl", "model = art.TrainableModel(base_model='Qwen/Qwen2.5-7B')\n", "c.py", "a training of ART"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_the_file_is(framework: str, text: str, name: str, told: str) -> None:
    assert told in problems(framework, text, name)


SCRIPT = '''"""
```
accelerate launch --num_processes 4 run.py --model_name_or_path Qwen/Qwen3-8B --max_completion_length 900
```
"""
from trl import GRPOConfig, GRPOTrainer

parser = make_parser()
parser.add_argument("-n", "--num-generations", default=4)
args = parser.parse_args()
GRPOTrainer(model=args.model, args=GRPOConfig(num_generations=args.num_generations, max_completion_length=100))
'''


def test_a_script_of_another_trainer_is_refused_whatever_its_docstring_starts() -> None:
    other = SCRIPT.replace("GRPO", "SFT").replace("run.py", "run.py --per_device_train_batch_size 8")
    assert "supervised fine-tuning" in problems("trl", other, "run.py")


def test_a_script_that_reads_its_command_line_is_read_as_its_docstring_starts_it() -> None:
    """The flags of that command win; what has a default on the command line is that; and it is said."""
    read = parsed_source(SCRIPT, "run.py")
    made = scenario_from("trl", read, "run.py").scenario
    assert (made.engine.model, made.trainer.gpus) == ("Qwen/Qwen3-8B", 4)
    assert (made.workload.group_size, made.workload.output_tokens.model_dump()["max"]) == (4, 900)
    assert any("its docstring shows" in note for note in read.not_understood)
    assert "is missing" in problems("trl", SCRIPT.replace(" run.py --model", ""), "run.py")


SAMPLES = "actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.rollout.n=8 data.train_files=f.parquet"
SERVED = "trainer.policy.model.path=Qwen/Qwen3-8B generator.inference_engine.num_engines=4"


@pytest.mark.parametrize(
    ("framework", "text", "told"),
    [  # verl/trainer/main_generation_server.py, main_eval.py; skyrl/train/entrypoints/serve.py, main_generate.py
        ("verl", f"python3 -m verl.trainer.main_generation_server {SAMPLES}", "a rollout without training"),
        ("verl", "python3 -m verl.trainer.main_eval data.path=f.parquet", "an evaluation"),
        ("verl", f"python3 -m verl.trainer.main_ppo {SAMPLES} trainer.val_only=True", "an evaluation"),
        ("slime", "python3 train.py --hf-checkpoint m --rollout-batch-size 8 --debug-rollout-only", "rollouts alone"),
        ("slime", "python3 train.py --hf-checkpoint m --debug-train-only --loss-type sft_loss", "fine-tuning"),
        ("slime", "train.py --hf-checkpoint m --colocate --rollout-batch-size 8 --loss-type sft_loss", "fine-tuning"),
        # scripts/generate_trainer_config.sh; async_flow of verl-recipe
        ("verl", f"python3 scripts/print_cfg.py --cfg job {SAMPLES}", "a configuration that is printed"),
        ("verl", f"python3 -m a.grpo_main {SAMPLES} async_resources.actor_train.nnodes=1", "are not modelled"),
        ("skyrl", f"python -m skyrl.train.entrypoints.serve {SERVED}", "no trainer to plan for"),
        ("skyrl", f"python -m skyrl.train.entrypoints.main_generate {SERVED}", "no trainer to plan for"),
        ("skyrl", f"python -m examples.train_scripts.full_context.main_full_ctx {SERVED}", "on made-up data"),
        ("skyrl", "python -m skyrl.tinker.api --base-model Qwen/Qwen3-8B --backend megatron", "a server for Tinker"),
        # examples/train_integrations/harbor/run_harbor_gen.sh, rlvr_megatron/run_rlvr_rollout_pipeline.sh
        ("skyrl", f"python -m x.main_harbor_generate {SERVED} trainer.policy_mini_batch_size=8", "no trainer to plan"),
        ("roll", "python start_rlvr_rollout_pipeline.py actor_train.a=1 actor_infer.a=1", "a rollout pipeline"),
        *(("tinker", f"python -m tinker_cookbook.recipes.{program} n=1", "a command that trains nothing")
          for program in ("verifiers_rl.evaluate", "rubric.debug_env", "multiplayer_rl.text_arena.play")),
        ("tinker", "python -m tinker_cookbook.recipes.chat_sl.sweep a=1", "supervised fine-tuning"),
        # examples/reasoning/run_placement_autotune.sh
        ("rlinf", "python toolkits/auto_placement/auto_placement_worker.py data.rollout_batch_size=8 cluster.a=1",
         "a search of placements"),
        ("open-instruct", "python open_instruct/reward_modeling.py --model_name_or_path m --max_prompt_token_length 9",
         "a reward model's training"),
        # all of open-instruct's settings have defaults
        ("open-instruct", "python -m eval.mmlu.run_eval --ntrain 0 --model_name_or_path 7B", "does not start it"),
        ("openrlhf", "docker run --runtime=nvidia -it --rm --shm-size=10g image bash", "does not start it"),
        ("trl", "accelerate launch examples/scripts/online_dpo.py --model_name_or_path Qwen/Qwen3-8B", "on its own"),
        ("trl", "accelerate launch examples/scripts/sdpo.py --model_name_or_path Qwen/Qwen3-8B", "is not modelled"),
        ("verl", f"python3 -m verl.trainer.main_ppo {SAMPLES.replace('Qwen/Qwen3-8B', 'path_to_mm2')}", "placeholder"),
    ],
)  # fmt: skip
def test_work_that_trains_nothing_is_called_by_its_name(framework: str, text: str, told: str) -> None:
    assert told in problems(framework, text, "c.sh")

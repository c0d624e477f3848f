"""The settings that an RL framework's configuration has, read off a checkout of it:

    python docs/make_config_keys.py verl CHECKOUT

writes tests/frameworks/config_keys/verl.tsv: repository, commit and date, then each key.
`tests/frameworks/test_config_keys.py` asks of every setting that `fleetsim scenario to` writes whether the framework
has it. Only names are taken, nothing else of the framework's code. `*` stands for any key below.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

OUT = Path(__file__).parents[1] / "tests" / "frameworks" / "config_keys"
_NAMES = re.compile(r"[A-Za-z_]\w*")
_OPEN = frozenset({"dict", "Dict", "Mapping", "Any"})


# Name -> file -> the class of this name there.
Classes = dict[str, dict[str, ast.ClassDef]]


@dataclass(frozen=True)
class Spec:
    """Where a framework declares its settings.

    yaml: files whose keys are all that there are. flags: files with `add_argument("--name")`. classes: files with
    dataclasses or pydantic models, and the names of those that a user's settings begin at. more: keys that are declared
    elsewhere, with the place.
    """

    repo: str
    yaml: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    more: Mapping[str, str] = field(default_factory=dict)


SPECS: Mapping[str, Spec] = {
    "verl": Spec(
        "verl-project/verl",
        yaml=(
            "verl/trainer/config/_generated_ppo_trainer.yaml",
            "verl/trainer/config/_generated_ppo_megatron_trainer.yaml",
            "verl/experimental/*/config/*_trainer.yaml",
        ),
        more={
            "model_engine": "verl/trainer/config/ppo_trainer.yaml, a group of its defaults",
            "actor_rollout_ref.rollout.engine_kwargs.vllm.*": "rollout.yaml: handed to vLLM",
        },
    ),
    "roll": Spec(
        "alibaba/ROLL",
        classes=("roll/configs/*.py", "roll/pipeline/*/*config.py"),
        roots=("RLVRConfig", "AgenticConfig"),
        more={"max_actions_per_traj": "a variable of the example configurations, which environments take up"},
    ),
    "ms-swift": Spec(
        "modelscope/ms-swift",
        classes=("swift/arguments/*.py", "swift/arguments/base_args/*.py", "swift/rlhf_trainers/args_mixin.py",
                 "swift/trainers/arguments.py", "swift/megatron/arguments/*.py"),
        roots=("RLHFArguments", "MegatronRLHFArguments", "RolloutArguments"),
        more={
            "nnodes": "swift/cli/main.py, from the environment",
            "nproc_per_node": "swift/cli/main.py, from the environment",
            "rollout.*": "swift/ray, a section of a file for Ray",
            "train.*": "swift/ray, a section of a file for Ray",
            "vllm_serve.*": "swift/arguments/deploy_args.py, RolloutArguments",
            "gradient_checkpointing": "transformers, TrainingArguments",
        },
    ),
    "rlinf": Spec(
        "RLinf/RLinf",
        yaml=("examples/reasoning/config/math/*.yaml",),
        more={
            "cluster.component_placement.*": "rlinf/scheduler/placement/placement.py",
            "actor.model.context_parallel_size": "rlinf/config.py",
            "actor.model.expert_model_parallel_size": "rlinf/config.py",
            "actor.fsdp_config.gradient_checkpointing": "rlinf/config.py",
            "agentloop.max_turns": "examples/agent/searchr1/config",
        },
    ),
    "openrlhf": Spec("OpenRLHF/OpenRLHF", flags=("openrlhf/cli/train_ppo_ray.py",)),
    "open-instruct": Spec(
        "allenai/open-instruct",
        classes=(
            "open_instruct/data_loader.py",
            "open_instruct/grpo_utils.py",
            "open_instruct/model_utils.py",
            "open_instruct/olmo_core_utils.py",
        ),
        roots=("GRPOExperimentConfig", "StreamingDataLoaderConfig", "VLLMConfig", "ModelConfig"),
    ),
    "trl": Spec(
        "huggingface/trl",
        classes=("trl/trainer/*.py", "trl/scripts/*.py", "trl/experimental/async_grpo/*.py"),
        roots=("GRPOConfig", "AsyncGRPOConfig", "ModelConfig", "ScriptArguments"),
        more={
            "num_processes": "accelerate launch",
            "per_device_train_batch_size": "transformers, TrainingArguments",
            "gradient_accumulation_steps": "transformers, TrainingArguments",
            "vllm_serve.*": "trl/scripts/vllm_serve.py",
        },
    ),
    "areal": Spec("inclusionAI/AReaL", classes=("areal/api/cli_args.py",), roots=("GRPOConfig",)),
    "nemo-rl": Spec(
        "NVIDIA-NeMo/RL",
        yaml=(
            "examples/configs/grpo_math_1B.yaml",
            "examples/configs/grpo_math_1B_megatron_single_controller.yaml",
        ),
        more={
            "policy.generation.vllm_kwargs.*": "handed to vLLM",
            "policy.generation.vllm_cfg.enable_prefix_caching": "nemo_rl/models/generation/vllm/vllm_worker.py",
            "defaults": "the file it builds on",
        },
    ),
    "slime": Spec(
        "THUDM/slime",
        flags=("slime/utils/arguments.py", "slime/backends/sglang_utils/arguments.py"),
        more={
            "sglang_*": "SGLang's own arguments",
            **dict.fromkeys(
                ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
                 "expert_model_parallel_size", "optimizer_cpu_offload", "recompute_granularity", "recompute_method",
                 "recompute_num_layers"),
                "Megatron-LM, arguments.py",
            ),
        },
    ),
    "tinker": Spec(
        "thinking-machines-lab/tinker-cookbook",
        classes=("tinker_cookbook/recipes/math_rl/train.py", "tinker_cookbook/rl/train.py"),
        roots=("CLIConfig",),
        more={
            **dict.fromkeys(("max_turns", "max_trajectory_tokens"), "recipes/harbor_rl/train.py"),
            "dataset_builder.*": "of config.json: the recipe's RLDatasetBuilder",
        },
    ),
    "skyrl": Spec("NovaSky-AI/SkyRL", classes=("skyrl/train/config/config.py",), roots=("SkyRLTrainConfig",)),
    "prime-rl": Spec(
        "PrimeIntellect-ai/prime-rl",
        classes=("packages/prime-rl-configs/src/prime_rl/configs/*.py",),
        roots=("RLConfig",),
        more={"inference.vllm.*": "inference.py: vLLM's own arguments"},
    ),
}  # fmt: skip


def main() -> int:
    """Write one framework's table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=sorted(SPECS))
    parser.add_argument("checkout", type=Path)
    asked = parser.parse_args()
    spec = SPECS[asked.framework]
    tree = git(asked.checkout, "ls-tree", "-r", "--name-only", "HEAD").splitlines()
    keys = sorted({*found(spec, asked.checkout, tree), *spec.more})
    commit = git(asked.checkout, "log", "-1", "--format=%h %cs").strip()
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{asked.framework}.tsv"
    path.write_text("\n".join([f"# {spec.repo} {commit}", *keys]) + "\n", encoding="utf-8")
    print(f"{path.name}: {len(keys)} keys")
    return 0


def git(checkout: Path, *words: str) -> str:
    """What git says of the checkout."""
    return subprocess.run(["git", "-C", str(checkout), *words], check=True, capture_output=True, text=True).stdout


def found(spec: Spec, checkout: Path, tree: list[str]) -> Iterator[str]:
    """All keys of the files that a spec names."""
    for file in _named(tree, spec.yaml):
        yield from _below(yaml.load(git(checkout, "show", f"HEAD:{file}"), Loader=yaml.BaseLoader), "")
    for file in _named(tree, spec.flags):
        for name in re.findall(r'"--([a-z][\w.-]*)"', git(checkout, "show", f"HEAD:{file}")):
            yield name.replace("-", "_")
    classes: Classes = {}
    aliases: dict[str, list[str]] = {}
    for file in _named(tree, spec.classes):
        module = ast.parse(git(checkout, "show", f"HEAD:{file}"))
        for found_class in (n for n in ast.walk(module) if isinstance(n, ast.ClassDef)):
            classes.setdefault(found_class.name, {}).setdefault(file, found_class)
        for node in module.body:  # names of types: `OptimizerConfig: TypeAlias = AdamW | SGD`
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(target, ast.Name) and node.value:
                aliases[target.id] = _NAMES.findall(ast.unparse(node.value))
    for root in spec.roots:
        yield from _fields(classes, aliases, root, "", 0, "")


def _named(tree: list[str], patterns: tuple[str, ...]) -> list[str]:
    return [file for pattern in patterns for file in tree if fnmatch(file, pattern)]


def _below(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _below(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path


def _fields(
    classes: Classes, aliases: Mapping[str, list[str]], name: str, path: str, level: int, file: str
) -> Iterator[str]:
    """Fields of a class and of those that it builds on; a field whose type is such a class, with a dot.

    Of two classes of one name, that of the same file counts, else that of the file that is named first.
    """
    places = classes.get(name, {})
    if not places or level > 8:
        return
    file = file if file in places else next(iter(places))
    node = places[file]
    for base in node.bases:
        yield from _fields(classes, aliases, _NAMES.findall(ast.unparse(base))[-1], path, level + 1, file)
    for line in node.body:
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        key = f"{path}{line.target.id}"
        words = _NAMES.findall(ast.unparse(line.annotation))
        words += [inner for word in words for inner in aliases.get(word, ())]
        yield key
        if _OPEN & set(words):
            yield f"{key}.*"
        for word in words:
            yield from _fields(classes, aliases, word, f"{key}.", level + 1, file)


if __name__ == "__main__":
    sys.exit(main())

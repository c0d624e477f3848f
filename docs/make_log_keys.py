"""The metric keys that an RL framework's code logs, read off a checkout of it:

    python docs/make_log_keys.py verl CHECKOUT

writes tests/history/log_keys/verl.tsv: repository, commit and date, then each key with the file that writes it.
`tests/history/test_log_keys.py` asks of every key whether fleetsim maps it (`fleetsim/history/step_logs`) or says why
not (`unused.txt` there). Only names are taken, nothing else of the framework's code. What is put together
while it runs stands as {}.
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

OUT = Path(__file__).parents[1] / "tests" / "history" / "log_keys"
# A key with a "/": words, placeholders, and what metric names have beside them.
_KEY = re.compile(r"[A-Za-z_{][\w{}@.:+-]*(?: [\w{}.:]+)*(?:/[\w{}@.:+-]+)+")
_WORD = re.compile(r"[A-Za-z_{][\w{}@./:+-]*")
_NO_KEY = ("application/", "http", "torch.", "text/", "image/", "audio/", "Qwen/", "meta-llama/", "allenai/", "/")


@dataclass(frozen=True)
class Spec:
    """Where a framework logs. files: globs of the code that runs in RL training, without those of `but`. timers: calls
    whose first argument names a timer, and the key that it becomes. stores: names of mappings whose keys without a "/"
    are metrics, and the key they become. keywords: calls whose keywords are metrics, and the key they become."""

    repo: str
    files: tuple[str, ...]
    but: tuple[str, ...] = ()
    timers: Mapping[str, str] = field(default_factory=dict)
    stores: Mapping[str, str] = field(default_factory=dict)
    keywords: Mapping[str, str] = field(default_factory=dict)


SPECS: Mapping[str, Spec] = {
    "verl": Spec(
        "verl-project/verl",
        (
            "verl/trainer/ppo/*",
            "verl/experimental/fully_async_policy/*",
            "verl/experimental/one_step_off_policy/*",
            "verl/experimental/separation/*",
            "verl/experimental/agent_loop/agent_loop.py",
            "verl/utils/seqlen_balancing.py",
            "verl/workers/engine_workers.py",
            "verl/workers/utils/losses.py",
        ),
        but=("*/unittest/*", "*/shell/*"),
        timers={"marked_timer": "timing_s/{}", "simple_timer": "timing_s/{}"},
        stores={"timing": "timing_s/{}", "rollout_status": "fully_async/{}", "processing_time_stats": "fully_async/{}"},
    ),
    "roll": Spec(
        "alibaba/ROLL",
        (
            "roll/pipeline/rlvr/*",
            "roll/pipeline/agentic/*",
            "roll/pipeline/base_*",
            "roll/distributed/scheduler/*",
            "roll/utils/metrics/*",
            "roll/utils/functionals.py",
        ),
        but=("*/rewards/*", "*/env/*"),
    ),
    "openrlhf": Spec(
        "OpenRLHF/OpenRLHF",
        (
            "openrlhf/trainer/ppo*",
            "openrlhf/trainer/ray/ppo*",
            "openrlhf/trainer/ppo_utils/*",
            "openrlhf/utils/logging_utils.py",
        ),
        stores={"status": "{}", "logs": "{}"},
    ),
    "trl": Spec(
        "huggingface/trl",
        ("trl/trainer/grpo_trainer.py", "trl/experimental/async_grpo/*", "trl/extras/profiling.py"),
        stores={"_metrics": "{}", "metrics": "{}"},
    ),
    "open-instruct": Spec(
        "allenai/open-instruct",
        (
            "open_instruct/grpo*",
            "open_instruct/data_loader.py",
            "open_instruct/vllm_utils.py",
            "open_instruct/environments/tools/utils.py",
        ),
        but=("*test*",),
        stores={"combined_reward_metrics": "{}", "step_metrics": "{}", "metrics": "{}"},
    ),
    "areal": Spec(
        "inclusionAI/AReaL",
        ("areal/trainer/rl_trainer.py", "areal/trainer/ppo/*", "areal/infra/workflow_executor.py", "areal/workflow/*"),
        timers={"record_timing": "timeperf/{}"},
        keywords={"stat": "{}", "scalar": "{}", "denominator": "{}"},
    ),
    "nemo-rl": Spec(
        "NVIDIA-NeMo/RL",
        ("nemo_rl/algorithms/grpo.py", "nemo_rl/experience/rollouts.py", "nemo_rl/algorithms/async_utils/*"),
        timers={"time": "timing/train/{}"},
        stores={
            "metrics": "train/{}",
            "rollout_metrics": "train/{}",
            "penalty_metrics": "train/{}",
            "timing_metrics": "timing/train/{}",
            "ds_metrics": "train/{}",
        },
    ),
    "slime": Spec(
        "THUDM/slime",
        ("slime/observability/*", "slime/rollout/*", "slime/backends/megatron_utils/*", "slime/ray/*", "slime/utils/*"),
        timers={"timer": "perf/{}_time", "Timer": "perf/{}_time", "start": "perf/{}_time"},
        stores={"log_dict": "{}"},
    ),
    "skyrl": Spec(
        "NovaSky-AI/SkyRL",
        (
            "skyrl/train/trainer.py",
            "skyrl/train/fully_async_trainer.py",
            "skyrl/train/generators/utils.py",
            "skyrl/train/utils/trainer_utils.py",
        ),
        timers={"Timer": "timing/{}", "timed_phase": "timing/{}"},
    ),
    "prime-rl": Spec(
        "PrimeIntellect-ai/prime-rl",
        ("src/prime_rl/trainer/rl/*", "src/prime_rl/orchestrator/*", "src/prime_rl/monitors/wandb/overview.py"),
    ),
    "tinker": Spec(
        "thinking-machines-lab/tinker-cookbook",
        tuple(f"tinker_cookbook/rl/{name}.py" for name in ("train", "metric_util", "metrics", "rollout_runner")),
        timers={"scope_span": "time/{}"},
    ),
    "rllm": Spec(
        "rllm-org/rllm",
        (
            "rllm/trainer/*.py",
            "rllm/trainer/verl/verl_backend.py",
            "rllm/trainer/tinker/tinker_backend.py",
            "rllm/trainer/tinker/tinker_metrics_utils.py",
            "rllm/trainer/algorithms/*",
        ),
        but=("*sft*",),
        timers={"simple_timer": "timing_s/{}", "record": "{}"},
    ),
    "rlinf": Spec(
        "RLinf/RLinf",
        (
            "rlinf/runners/reasoning_runner.py",
            "rlinf/runners/agent_runner.py",
            "rlinf/runners/embodied_runner.py",
            "rlinf/runners/async_ppo_embodied_runner.py",
            "rlinf/utils/distributed.py",
        ),
        timers={"timer": "time/{}"},
        stores={"time_metrics": "time/{}", "rollout_metrics": "rollout/{}"},
    ),
    "ms-swift": Spec(
        "modelscope/ms-swift",
        (
            "swift/rlhf_trainers/grpo_trainer.py",
            "swift/trainers/patcher.py",
            "swift/megatron/trainers/grpo_trainer.py",
            "swift/megatron/callbacks/print.py",
        ),
        stores={"_metrics": "{}", "metrics": "{}", "logs": "{}"},
    ),
}


def keys_of(spec: Spec, checkout: Path) -> dict[str, str]:
    """Key -> the first file that writes it."""
    found: dict[str, str] = {}
    for path in sorted(checkout.rglob("*.py")):
        name = path.relative_to(checkout).as_posix()
        if not any(fnmatch(name, glob) for glob in spec.files) or any(fnmatch(name, glob) for glob in spec.but):
            continue
        for key in _keys(ast.parse(path.read_text(encoding="utf-8")), spec):
            found.setdefault(key, name)
    return found


def _keys(tree: ast.AST, spec: Spec) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            yield from (k for key in node.keys if (k := _slashed(key)) is not None)
        elif isinstance(node, ast.Assign):
            yield from _stored(node, spec)
        elif isinstance(node, ast.Subscript):
            if (key := _slashed(node.slice)) is not None:
                yield key
        elif isinstance(node, ast.Call):
            yield from _called(node, spec)
        elif isinstance(node, ast.FunctionDef):  # `@timer` names its timer after the function
            names = {_name(decorator) for decorator in node.decorator_list}
            yield from (key.replace("{}", node.name) for call, key in spec.timers.items() if call in names)


def _stored(node: ast.Assign, spec: Spec) -> Iterator[str]:
    """`metrics["loss"] = ...` and `metrics = {"loss": ...}` of the mappings that hold metrics."""
    for target in node.targets:
        name = spec.stores.get(_name(target.value) if isinstance(target, ast.Subscript) else _name(target))
        if name is None:
            continue
        keys = [target.slice] if isinstance(target, ast.Subscript) else []
        if isinstance(node.value, ast.Dict) and not keys:
            keys = [key for key in node.value.keys if key is not None]
        yield from (name.replace("{}", word) for key in keys if (word := _word(key)) is not None)


def _called(node: ast.Call, spec: Spec) -> Iterator[str]:
    name = _name(node.func)
    first = node.args[0] if node.args else None
    if name in spec.timers and first is not None and (word := _word(first)) is not None:
        yield spec.timers[name].replace("{}", word)
    elif name in ("add_metric", "add_domain_metrics", "log_metric", "record_metric") and first is not None:
        key = _slashed(first)
        if key is not None:
            yield key
    elif name == "append" and isinstance(node.func, ast.Attribute):
        target = node.func.value
        store = spec.stores.get(_name(target.value)) if isinstance(target, ast.Subscript) else None
        if store is not None and isinstance(target, ast.Subscript) and (word := _word(target.slice)) is not None:
            yield store.replace("{}", word)
    if name in spec.keywords:
        yield from (
            spec.keywords[name].replace("{}", k.arg) for k in node.keywords if k.arg not in (None, "denominator")
        )


def _name(node: ast.AST) -> str:
    """The last name of an expression: `self.all_metrics["train"]` is all_metrics."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.AST | None) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
    return None


def _word(node: ast.AST | None) -> str | None:
    text = _text(node)
    return text if text is not None and _WORD.fullmatch(text) and text.strip("{}/_") else None


def _slashed(node: ast.AST | None) -> str | None:
    text = _text(node)
    good = text is not None and _KEY.fullmatch(text) and not text.startswith(_NO_KEY) and text.strip("{}/_")
    return text if good else None


def main() -> None:
    """Write the table of one framework."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=SPECS)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--commit", help="of the checkout, where it is no git repository")
    asked = parser.parse_args()
    spec, commit = SPECS[asked.framework], asked.commit
    if commit is None:
        git = ["git", "-C", str(asked.checkout), "log", "-1", "--format=%H %as"]
        commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    keys = keys_of(spec, asked.checkout)
    if not keys:
        sys.exit(f"{asked.checkout} has no metric keys of {asked.framework}: is it a checkout of {spec.repo}?")
    rows = "".join(f"{key}\t{file}\n" for key, file in sorted(keys.items()))
    (OUT / f"{asked.framework}.tsv").write_text(f"# {spec.repo} {commit}\n{rows}", encoding="utf-8")
    print(f"{len(keys)} keys of {spec.repo} {commit}")


if __name__ == "__main__":
    main()

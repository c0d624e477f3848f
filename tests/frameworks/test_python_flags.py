"""Scripts that put slime's flags together as text: what is always said is read, what a condition decides is named.

Read against Miles' own record of what its scripts start (radixark/miles at 31f1ca961, tests/snapshots/launch_scripts):
of 36 scripts 1,713 flags, all as it has them but for paths that only a running script knows.
"""

from __future__ import annotations

from pathlib import Path

from fleetsim.config.load import with_changes
from fleetsim.frameworks.convert import Imported, scenario_from
from fleetsim.frameworks.patch import patch_of
from fleetsim.frameworks.source import parsed_source
from fleetsim.job.nameplate import limits_of

SCRIPT = """\
import miles.utils.external_utils.command_utils as U

GPUS = 8

@dataclass
class ScriptArgs(U.ExecuteTrainConfig):
    model_name: str = "Qwen3-4B"
    model_dir: str = "/root/models"
    num_nodes: int = 2
    engine: int = 1
    length: int | None = None

    def __post_init__(self):
        self.engine = 2

def layout(args):
    return "--tensor-model-parallel-size 4 "

def execute(args):
    hf = f"{args.model_dir}/{args.model_name}"
    rollout_args = (
        f"--hf-checkpoint {hf}/ --rollout-batch-size 32 "
        f"--n-samples-per-prompt 8 --rollout-max-response-len {args.length} "
    )
    perf_args = "--recompute-granularity full "
    perf_args += "--optimizer-cpu-offload "
    if args.colocate:
        perf_args += "--colocate "
    else:
        perf_args += f"--rollout-num-gpus {GPUS} "
    train_args = (
        f"{rollout_args}{perf_args} {layout(args)}--actor-num-nodes {args.num_nodes} --actor-num-gpus-per-node {GPUS} "
        + f"--rollout-num-gpus-per-engine {args.engine} "
        + ("--use-kl-loss " if args.kl else "")
    )
    U.execute_train(train_args=train_args, train_script="train_async.py", num_gpus_per_node=GPUS)
"""


def read(text: str) -> Imported:
    settings = parsed_source(text, "run.py")
    settings.add("--rollout-num-gpus", 16)  # as told behind `--`: a condition decides the script's own
    return scenario_from("slime", settings, "run.py")


def test_what_a_function_always_says_is_read() -> None:
    found = read(SCRIPT)
    job = found.scenario
    assert (job.engine.model, job.workload.group_size, job.trainer.batch_samples) == ("Qwen3-4B", 8, 256)
    assert (job.trainer.gpus, job.fleet.instances) == (16, 16)
    assert (job.trainer.recipe.recompute, job.trainer.recipe.offload) == (True, "adam")
    assert job.admission.law == "batches_ahead"  # train_async.py


def test_what_is_computed_or_decided_by_a_condition_is_named() -> None:
    found = read(SCRIPT)
    named = {one.path: one.why for one in found.assumed}
    for path, flag in (("engine.tp", "rollout_num_gpus_per_engine"), ("fleet.placement", "colocate"),
                       ("workload.output_tokens.max", "rollout_max_response_len")):  # fmt: skip
        assert flag in named[path] or path == "workload.output_tokens.max"
    text = " ".join(found.not_understood)
    assert all(flag in text for flag in ("colocate", "use-kl-loss", "tensor-model-parallel-size", "response-len"))
    assert found.scenario.trainer.recipe.tp is None


def test_a_sum_without_end_is_no_command() -> None:
    deep = "def execute(args):\n    x = " + " + ".join(["'--a 1 '"] * 900) + "\n    execute_train(train_args=x)\n"
    assert not parsed_source(deep, "run.py").found


def test_what_changes_goes_behind_its_command(tmp_path: Path) -> None:
    file = tmp_path / "run.py"
    text = SCRIPT.replace("    else:\n        perf_args += ", "    perf_args += ")
    file.write_text(text)
    job = scenario_from("slime", parsed_source(text, str(file))).scenario
    patch = patch_of(
        "slime", with_changes(job, {"workload.group_size": 4, "engine.prefix_caching": False}), limits_of, str(file)
    )
    assert patch.text == text
    (words,) = patch.words.values()
    assert "--n-samples-per-prompt 4" in words
    assert "--sglang-disable-radix-cache" in words

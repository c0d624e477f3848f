"""A framework's own parser, in a process of its own: `python own.py verl`.

Each line of standard input is a configuration as JSON, {"words": [...], "text": "..."}: the words of a command that
`scenario to` wrote, or the text of its file. Each line of standard output is what the framework makes of it:
{"settings": {...}}, every setting that it then has, defaults too, by its dotted key; or {"error": "..."}, why it
refuses. What a run needs besides, and `scenario to` leaves to its user, is added (YOURS).
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import json
import os
import runpy
import sys
import tempfile
import traceback
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).parent
PACKAGES = HERE / ".packages"
sys.path[:0] = [str(PACKAGES), str(HERE)]

from stand_ins import stand_in_for  # noqa: E402 it lies beside this file

# What their parsers import and do not need. transformers is TRL's parser in part.
STAND_INS = (
    "PIL", "accelerate", "aiofiles", "aiohttp", "bitsandbytes", "cachetools", "codetiming", "colorlog", "datasets",
    "deepspeed", "einops", "fastapi", "flash_attn", "flask", "jaxtyping", "loguru", "megatron", "openai", "orjson",
    "pandas", "peft", "pyarrow", "pylatexenc", "ray", "ring_flash_attn", "setproctitle", "sympy", "tenacity",
    "tensordict", "torch", "torchdata", "torchvision", "uvicorn", "uvloop",
    "verl.trainer.constants_ppo", "verl.utils.kernel",
    "verl.workers.rollout.vllm_rollout.utils", "vllm", "zmq",
)  # fmt: skip
_PARTS = ("saver", "recover", "evaluator", "stats_logger")
YOURS: Mapping[str, Sequence[str]] = {
    "verl": (
        "actor_rollout_ref.actor.use_dynamic_bsz=True",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1",
        "critic.ppo_micro_batch_size_per_gpu=1",
    ),
    "openrlhf": ("--reward.remote_url", "http://localhost"),
    "trl": ("--use_cpu", "True", "--output_dir", "out"),
    "areal": (
        *(f"+{part}experiment_name=e" for part in ("", *(f"{p}." for p in (*_PARTS, "actor", "rollout")))),
        *(f"+{part}trial_name=t" for part in ("", *(f"{p}." for p in (*_PARTS, "actor", "rollout")))),
        *(f"+{part}.fileroot=f" for part in ("cluster", *_PARTS)),
        "+train_dataset.path=d",
        "+train_dataset.type=rl",
    ),
    "skyrl": (
        "trainer.logger=console",
        "trainer.micro_forward_batch_size_per_gpu=1",
        "trainer.micro_train_batch_size_per_gpu=1",
    ),
}


class Started(BaseException):
    """What a program would have trained with."""


def verl(words: Sequence[str], text: str) -> Any:
    """Hydra over the packaged configurations, the program's own main, the dataclasses of its workers."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    module, *rest = words[words.index("-m") + 1 :]
    program, main_ppo = importlib.import_module(module), importlib.import_module("verl.trainer.main_ppo")
    name = next((w.partition("=")[2] for w in rest if w.startswith("--config-name=")), "ppo_trainer")
    importlib.import_module("verl.workers.config.model").HFModelConfig.__post_init__ = lambda self: (
        None
    )  # reads weights
    os.chdir(PACKAGES)  # one_step_off_ppo_trainer.yaml looks for verl/trainer/config where it is started
    with initialize_config_dir(str(Path(program.__file__).parent / "config"), version_base=None):
        own = [w for w in rest if not w.startswith("--")]
        said = {w.partition("=")[0] for w in own}
        config = compose(name, [*own, *(w for w in YOURS["verl"] if w.partition("=")[0] not in said)])
    main_ppo.run_ppo = program.run_ppo = lambda config, **_: None
    program.main.__wrapped__(config)
    for section in ("actor", "rollout"):
        importlib.import_module("verl.utils.config").omega_conf_to_dataclass(config.actor_rollout_ref[section])
    return OmegaConf.to_container(config, resolve=True)


def openrlhf(words: Sequence[str], text: str) -> Any:
    """The program itself, to where it would begin."""

    def begin(args: Any) -> None:
        raise Started(args)

    importlib.import_module("openrlhf.utils").get_strategy = begin
    sys.argv = ["train_ppo_ray", *words[words.index("-m") + 2 :], *YOURS["openrlhf"]]
    try:
        runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__")
    except Started as started:
        return started.args[0]
    raise RuntimeError("OpenRLHF did not come to its training")


def trl(words: Sequence[str], text: str) -> Any:
    """TRL's own parsers of `trl grpo` and `trl vllm-serve`, and one of AsyncGRPOConfig, as its example has it."""
    from transformers import TrainingArguments
    from trl import TrlParser
    from trl.experimental.async_grpo import AsyncGRPOConfig
    from trl.scripts import grpo, vllm_serve

    if "vllm-serve" in words:
        own = words[words.index("vllm-serve") + 1 :]
        served, rest = vllm_serve.make_parser().parse_args_and_config(own, return_remaining_strings=True)
        handed_on = {name.lstrip("-"): json.loads(value) for name, value in zip(rest[::2], rest[1::2], strict=True)}
        return {"vllm_serve": {**vars(served), **handed_on}, "starts": vllm_serve.build_command(served, rest)}
    at = words.index("--num_processes") + 1
    TrainingArguments.world_size = int(words[at])  # the launcher's
    own = [*words[at + 1 :], *YOURS["trl"]]
    if words[0] == "trl":
        _, training, model, _ = grpo.make_parser().parse_args_and_config(own)
    else:
        script = dataclasses.make_dataclass("Script", [("model_name_or_path", str)])
        training, model = TrlParser((AsyncGRPOConfig, script)).parse_args_and_config(own[1:])
    return {**vars(model), **vars(training), "num_processes": training.world_size}


def areal(words: Sequence[str], text: str) -> Any:
    """Hydra over the file, the dataclasses, and the parser of `backend` strings."""
    from areal.api.alloc_mode import ModelAllocation
    from areal.api.cli_args import GRPOConfig, OmegaConf, parse_cli_args, to_structured_cfg

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.yaml"
        file.write_text(text, encoding="utf-8")
        ref = ("+ref.experiment_name=e", "+ref.trial_name=t") if "\nref:" in text else ()
        config, _ = parse_cli_args(["--config", str(file), *YOURS["areal"], *ref])
    config = OmegaConf.to_object(to_structured_cfg(config, config_cls=GRPOConfig))
    for role in (config.rollout, config.actor):
        ModelAllocation.from_str(role.backend)
    return dataclasses.asdict(config)


def skyrl(words: Sequence[str], text: str) -> Any:
    """SkyRL's dataclasses, and what its entry point checks of them."""
    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict  # it is written for Python 3.12, where pydantic takes the former
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.utils.utils import validate_cfg

    config = SkyRLTrainConfig.from_cli_overrides([*words[words.index("-m") + 2 :], *YOURS["skyrl"]])
    validate_cfg(config)
    return dataclasses.asdict(config)


PARSERS: Mapping[str, Callable[[Sequence[str], str], Any]] = {
    "verl": verl, "openrlhf": openrlhf, "trl": trl, "areal": areal, "skyrl": skyrl,
}  # fmt: skip


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting by its dotted key, as JSON has it."""
    if isinstance(value, SimpleNamespace):
        value = vars(value)
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from leaves(below, f"{key}.{name}" if key else str(name))
    elif isinstance(value, enum.Enum):
        yield key, value.value
    else:
        yield key, value if isinstance(value, (str, int, float, list, tuple, type(None))) else str(value)


def main(framework: str) -> None:
    """Answer until standard input ends. What a framework prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    stand_in_for([*STAND_INS, *(() if framework == "trl" else ("transformers",))])
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"settings": dict(leaves(PARSERS[framework](asked["words"], asked["text"])))}
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever it is, it is the answer
            place = traceback.extract_tb(error.__traceback__)[-1]
            answer = {"error": f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"}
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])

"""Words of a command line as settings: `key.path=value` (Hydra), `--flag value`, `--flag=value`, `--switch`.

What starts the program is told from what the program is given: `ray job submit ... -- python3 train.py --flags` gives
the flags behind `train.py` only. Of the launchers in front (torchrun, accelerate), the number of processes is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from fleetsim.config.plain_scalar import plain_scalar
from fleetsim.config.yaml_text import from_yaml
from fleetsim.errors import InputError
from fleetsim.frameworks.settings import RunSettings, Setting, normal

_PAIR = re.compile(r"([+~]{0,2}[A-Za-z_][\w./@-]*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--([A-Za-z_][\w.-]*)(?:=(.*))?", re.DOTALL)
_NUMBER = re.compile(r"-[\d.]")
_LAUNCHERS = ("python", "torchrun", "accelerate", "deepspeed", "uv")
_LAUNCHER_MODULES = ("torch.distributed", "accelerate.commands", "deepspeed.launcher")
_PROCESS_FLAGS = {"num_processes", "nproc_per_node", "nnodes", "num_machines", "config_file"}
# The file that is started, as the command names it.
PROGRAM = "launcher.program"
_COMMANDS = ("trl", "rl", "openrlhf")
# These start one thing of several, which their next word names, on as many processes as the environment says.
_NAMING = ("swift", "megatron")
_SBATCH = {"-N": "--nodes", "-c": "--cpus-per-task"}
_SHORT = {"-tp": "--tensor-parallel-size", "-dp": "--data-parallel-size", "-pp": "--pipeline-parallel-size"}


def add_arguments(settings: RunSettings, words: Sequence[tuple[str, bool]]) -> None:
    """Put the settings of a program's own words (text, whether all of it is known) into `settings`."""
    i = 0
    while i < len(words):
        text, known = words[i]
        i += 1
        flag, pair = _FLAG.fullmatch(text), _PAIR.fullmatch(text)
        if flag:
            values: list[tuple[str, bool]] = [] if flag[2] is None else [(flag[2], known)]
            while flag[2] is None and i < len(words) and not starts_something(words[i][0]):
                if words[i] != ("", False) or not values:  # `--n 8 $MORE`: what is not known there may be more flags
                    values.append(words[i])
                i += 1
            _put(settings, flag[1], values, f"--{flag[1]}")
        elif pair:
            if pair[1].startswith("~"):
                settings.drop(pair[1][1:])
            else:
                _put(settings, pair[1].lstrip("+"), [(pair[2], known)], pair[1].lstrip("+"))
        elif text.startswith("~"):
            settings.drop(text[1:])
        elif text == "@" and i < len(words):
            settings.parents.append(words[i][0])
            i += 1
        elif text.startswith("@") and len(text) > 1:
            settings.parents.append(text[1:])


def entry_of(words: Sequence[tuple[str, bool]]) -> tuple[str, int, RunSettings] | None:
    """What a command starts: the program (`train.py`, `verl.trainer.main_ppo`), where its own words begin, and the
    launcher's number of processes. None if it starts none."""
    launcher = RunSettings()
    last = max((i for i, (text, _) in enumerate(words) if _base(text).startswith(_LAUNCHERS)), default=None)
    if last is not None:
        for i in range(last, len(words)):
            text = words[i][0]
            before = words[i - 1][0] if i else ""
            if before in ("-m", "--module") and not text.startswith(_LAUNCHER_MODULES):
                _processes(launcher, words[last:i])
                launcher.add(PROGRAM, f"{text.replace('.', '/')}.py")
                return text, i + 1, launcher
            if text.endswith(".py") or (_base(text) in _COMMANDS and before != "-m"):
                _processes(launcher, words[last:i])
                launcher.add(PROGRAM, text)
                return _base(text), i + 1, launcher
    for i, (text, _) in enumerate(words[:4]):
        if _base(text) in _COMMANDS:
            return _base(text), i + 1, launcher
        if _base(text) in _NAMING and i + 1 < len(words):
            _processes(launcher, words[:i])
            return f"{_base(text)} {words[i + 1][0]}", i + 2, launcher
    return None


def with_processes(words: Sequence[str], variables: Mapping[str, object]) -> list[str]:
    """The words of a command, with the variables in front that tell it how many processes to start."""
    if not words or _base(words[0]) not in _NAMING:
        return [*words]
    given = {name: variables.get(name) for name in ("NNODES", "NPROC_PER_NODE")}
    return [*(f"{name}={value}" for name, value in given.items() if isinstance(value, str)), *words]


def of_slurm(script: str) -> dict[str, str]:
    """The variables by which Slurm tells a job what its own `#SBATCH` lines ask for, as far as they are numbers.

    Slurm reads these lines up to the first command (its page of sbatch).
    """
    asked = RunSettings()
    for line in takewhile(lambda line: not line.strip() or line.startswith("#"), script.splitlines()):
        if line.startswith("#SBATCH "):
            flag, *rest = line.removeprefix("#SBATCH ").split("#")[0].split()[:2] or [""]
            add_arguments(asked, [(_SBATCH.get(flag, flag), True), *((word, True) for word in rest)])
    said = {setting.key.lstrip("-"): str(setting.value) for setting in asked.found.values()}
    gres = re.search(r"\bgpu(?::[A-Za-z]\w*)?:(\d+)", said.get("gres", ""))
    per_node = said.get("gpus-per-node", "").rpartition(":")[2]
    found = {
        "SLURM_JOB_NUM_NODES": said.get("nodes", ""),
        "SLURM_NNODES": said.get("nodes", ""),
        "SLURM_GPUS_PER_NODE": per_node,
        "SLURM_GPUS_ON_NODE": per_node or (gres[1] if gres else ""),
        "SLURM_NTASKS_PER_NODE": said.get("ntasks-per-node", ""),
        "SLURM_CPUS_PER_TASK": said.get("cpus-per-task", ""),
    }
    return {name: value for name, value in found.items() if value.isdecimal()}


def server_of(words: Sequence[tuple[str, bool]]) -> tuple[str, list[tuple[str, bool]]] | None:
    """A vLLM server that a trainer sends its weights to: `trl vllm-serve`, `swift rollout` or `vllm serve`; its flags.

    None for every other command, a `vllm serve` that takes no weights (a judge) among them.
    """
    texts = [text for text, _ in words]
    if "vllm-serve" in texts:
        return "trl vllm-serve", list(words[texts.index("vllm-serve") + 1 :])
    if texts[:2] == ["swift", "rollout"]:
        return "swift rollout", list(words[2:])
    at = texts.index("serve") if "serve" in texts else 0
    if not at or "vllm" not in _base(texts[at - 1]) or not any("weight-transfer" in t.replace("_", "-") for t in texts):
        return None
    own = [(_SHORT.get(text, text), known) for text, known in words[at + 1 :]]
    named = bool(own) and not own[0][0].startswith("-")
    return "vllm serve", [("--model", True), *own] if named else own


def _processes(launcher: RunSettings, words: Sequence[tuple[str, bool]]) -> None:
    all_flags = RunSettings()
    add_arguments(all_flags, words)
    for key, setting in all_flags.found.items():
        if key.lower() in _PROCESS_FLAGS:
            launcher.add(f"launcher.{key.lower()}", setting.value)


def environment_of(words: Sequence[tuple[str, bool]]) -> RunSettings:
    """The variables that `ray job submit --runtime-env-json` gives a program, as far as their text is known."""
    given = RunSettings()
    add_arguments(given, [(text, True) for text, _ in words])
    variables = given.below("runtime_env_json.env_vars")
    return RunSettings({key: Setting(key, given.found[key].value) for key in variables}).below_key("launcher")


def _base(text: str) -> str:
    return text.rsplit("/", 1)[-1]


def starts_something(text: str) -> bool:
    """Whether a word begins a setting, or something else than a value."""
    return (text.startswith("-") and not _NUMBER.match(text)) or bool(_PAIR.fullmatch(text)) or text in ("&&", "|", "@")


def _put(settings: RunSettings, key: str, values: Sequence[tuple[str, bool]], shown: str) -> None:
    unknown = [text for text, known in values if not known]
    if unknown:
        # A path whose folder is unknown still ends in a name.
        usable = all("/" in text for text in unknown)
        notes = settings.remarks if usable else settings.not_understood
        note = f"{shown} = {' '.join(text for text, _ in values) or '...'}: holds something that is not known here"[
            :200
        ]
        if note not in notes:
            notes.append(note)
        if not usable:
            settings.found.pop(normal(key), None)  # what was given before does not hold
            return
    parsed = [_value(text) for text, _ in values]
    if shown.startswith("--") and len(parsed) == 0:
        value: Any = True
    else:
        value = parsed[0] if len(parsed) == 1 else parsed
    settings.add(shown if shown.startswith("--") else key, value)


def _value(text: str) -> Any:
    """A scalar; `[1, 2]` and `{a: 1}` as YAML has them, if they are that."""
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text[:1] in ("[", "{") and len(text) < 10_000:
        try:
            return from_yaml(text, "value")
        except InputError:
            return text
    return plain_scalar(text)

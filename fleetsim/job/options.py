"""What may be said of a job in Python: the keywords of the command line's flags, and any key of a scenario."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypedDict

from pydantic import BaseModel

from fleetsim.config.tree import did_you_mean
from fleetsim.config.yaml_text import as_yaml
from fleetsim.errors import InputError, Problem
from fleetsim.job.settings import SETTINGS


class Options(TypedDict, total=False):
    """Keywords of `load`, `Job.with_` and of what a job is asked; each is the flag of the same name. `SETTINGS` has the
    words of `--help` for each, with its unit. run: a log, tracker, dump or Prometheus of a run: what it showed is taken
    for the job, and what is said beside it wins.
    """

    batch: int
    len: float
    max_len: float
    len_cv: float
    group_size: int
    prompt_len: int
    turns: int | str
    tool_s: float
    tool_tokens: int
    sandboxes: int
    sandbox_start_s: float
    sandbox_price: float
    tool_timeout_s: float
    reward_s: float
    reward_workers: int
    gpu: str
    model: str
    tp: int
    dtype: str
    kv_dtype: str
    kv_offloading: float
    profile: str | os.PathLike[str]
    instance_tok_s: float
    slowdown: float
    instances: int
    trainer_step_s: float
    trainer_gpus: int
    trainer_point: Sequence[tuple[int, float]]
    parallel_share: float
    switch_s: float
    max_staleness: float
    sync_pause_s: float
    target_idle: float
    headroom: float
    worth: float
    instance_price: float
    trainer_price: float
    spot: float
    spot_price: float
    steps: int
    replications: int
    seed: int
    run: str | os.PathLike[str]


# What a value may look like, for the remedy of one that is none.
EXAMPLES: Mapping[str, Any] = {setting.name: setting.example for setting in SETTINGS} | {"run": "train.log"}
NAMES: tuple[str, ...] = tuple(Options.__annotations__)
Options.__doc__ = f"{Options.__doc__}\n" + "\n".join(f"    {s.name}: {s.words}." for s in SETTINGS)
# As the types above are written: text, a whole number, or any number.
_KINDS: Mapping[str, str] = {name: kind.__forward_arg__ for name, kind in Options.__annotations__.items()}


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as plain Python values; None counts as not given.

    Raises InputError with all that is wrong: an unknown name ("did you mean"), a value of the wrong kind.
    """
    problems: list[Problem] = []
    result: dict[str, Any] = {}
    for name, value in options.items():
        if name not in NAMES:
            remedy = f"{did_you_mean(name, NAMES)}; any key of a scenario goes into the mapping of changes"
            problems.append(Problem(name, value, "no such option", remedy))
        elif value is not None:
            rule, plain = _plain(name, value)
            if rule:
                problems.append(Problem(name, value, rule, f"for example {name}={EXAMPLES[name]!r}"))
            result[name] = plain
    if problems:
        raise InputError(problems)
    return result


def _plain(name: str, value: Any) -> tuple[str, Any]:
    """What is wrong with a value, and the value as JSON knows it."""
    kind = _KINDS[name]
    if kind.startswith("str"):
        if not isinstance(value, (str, os.PathLike)):
            return "must be text", value
        return "", os.fspath(value)
    if name == "trainer_point":
        try:
            return "", [[int(gpus), float(seconds)] for gpus, seconds in value]
        except (TypeError, ValueError):
            return "must be a list of (GPUs, seconds)", value
    if kind == "int | str" and isinstance(value, str):
        return "", value
    if kind.startswith("int"):
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        return ("", int(value)) if whole else ("must be a whole number", value)
    if isinstance(value, bool) or not isinstance(value, Real):
        return "must be a number", value
    return "", float(value)


def override_text(path: str, value: Any) -> str:
    """The `key.path=value` of a value: text keeps its quotes and numbers their digits. Raises TypeError for an object
    that no file could hold."""
    return f"{path}={as_yaml(value)}"


def change_texts(changes: Mapping[str, Any]) -> dict[str, str]:
    """Dotted path -> `key.path=value`, for each change. Raises InputError for a value that no file could hold."""
    texts, problems = {}, []
    for path, value in changes.items():
        try:
            texts[str(path)] = override_text(str(path), _data(value))
        except (TypeError, ValueError):
            rule = f"a {type(value).__name__} is no value of a scenario"
            problems.append(Problem(str(path), value, rule, "give numbers, text, lists and mappings"))
    if problems:
        raise InputError(problems)
    return texts


def _data(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, Mapping):
        return {str(key): _data(below) for key, below in value.items()}
    if isinstance(value, (list, tuple)):
        return [_data(below) for below in value]
    return value.item() if hasattr(value, "item") else value

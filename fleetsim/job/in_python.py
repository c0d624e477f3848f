"""Errors of what the commands and Python share, in Python's words: `gpus` for --gpus, {"a.b": 1} for --set a.b=1."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from fleetsim.errors import InputError, OutsideError, Problem

# Flags whose keyword has another name.
_NAMES: Mapping[str, str] = {
    "a": "windows",
    "b": "windows",
    "basic-auth-file": "access",
    "ca-file": "access",
    "client-cert": "access",
    "client-key": "access",
    "deployment": "the command's --deployment",
    "from": "history",
    "grid": "grid",
    "html": "to_html",
    "insecure-skip-verify": "access",
    "map": "mapping",
    "metric": "metrics",
    "objective": "objectives",
    "org-id": "access",
    "parquet": "to_parquet",
    "perfetto": "to_perfetto",
    "prometheus": "history",
    "scenario": "job",
    "set": "changes",
    "step": "step_s",
    "timeout": "access",
    "token-file": "access",
}
_CREDENTIALS = "--token-file or --basic-auth-file"
_COMMAND = re.compile(r"(`?fleetsim [a-z].*)", re.DOTALL)  # a command stays one
_SET = re.compile(r"--(?:set|given|grid) ([a-z_][\w.]*)=('[^']*'|[^\s;,)]+)")
_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")


@contextmanager
def in_python() -> Iterator[None]:
    """As a decorator, or around a block: what is raised there names keywords instead of flags."""
    try:
        yield
    except InputError as error:
        error.problems = tuple(map(_renamed, error.problems))
        error.args = (error.problems,)
        raise
    except OutsideError as error:
        from fleetsim.history.refusals import PrometheusError

        if isinstance(error, PrometheusError):
            error.problem = _renamed(error.problem)
        error.args = tuple(words(part) if isinstance(part, str) else part for part in error.args)
        raise


def words(text: str) -> str:
    """The text with its flags as keywords; from a whole command on it stays as it is."""
    said, *command = _COMMAND.split(text, maxsplit=1)
    said = said.replace(_CREDENTIALS, "access=fleetsim.history.access.Access(token=...)")
    said = _SET.sub(lambda found: f'{{"{found[1]}": {found[2]}}}', said)
    return "".join([_FLAG.sub(lambda found: _keyword(found[1]), said), *command])


def _keyword(flag: str) -> str:
    return _NAMES.get(flag, flag.replace("-", "_"))


def _renamed(problem: Problem) -> Problem:
    path = problem.path
    if path.startswith("--set "):
        path = path.removeprefix("--set ").strip() or "changes"
    return replace(problem, path=words(path), rule=words(problem.rule), remedy=words(problem.remedy))

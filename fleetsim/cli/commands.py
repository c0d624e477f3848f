"""All commands by name: each is imported and built when it is asked for, so that `--help` pays for none of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from functools import cache
from importlib import import_module
from typing import Any

import typer
import typer.main
from typer.core import TyperCommand

# A shell that asks for completions sets it.
COMPLETING = "_FLEETSIM_COMPLETE"

# Command -> the first paragraph of its help, for the list of all. It is the function of this name in the module of
# this name, or that `_FILES` says; a group is the module's `app`.
LINES = {
    "size": "The smallest rollout fleet that keeps the trainer busy.",
    "split": "Share these GPUs between rollout and trainer, or split them, and how: every way simulated and ranked.",
    "plan": "Which GPUs, engines and split for a budget: every choice together, the few plans that are worth a look.",
    "pack": "Which way should several jobs share one set of GPUs: apart, by phase, or in turn?",
    "simulate": "Simulate a scenario: where each second of an optimizer step goes.",
    "forecast": "What the whole run takes: hours, GPU-hours, dollars and tokens to its last step, with ranges.",
    "compare": "What changed between A and B, by how much, and is it more than luck? Scenarios, results or windows of "
    "history.",
    "sweep": "Simulate every combination of some values, and say which are worth a look.",
    "replay": "What did the fleet do, which side starves, and what would another fleet have done? From its own "
    "metrics.",
    "alerts": "Prometheus rules for a plan: thresholds and `for:` from simulated runs of it, with and without faults.",
    "dashboard": "Grafana dashboard of a plan: every standing signal, with what the plan predicts and where its alert "
    "begins.",
    "watch": "Looks at the fleet again and again, and exports what it should be.",
    "serve": "A page to type into: the job as a form, the answer and its curve while a slider moves.",
    "validate": "How far is the simulation from what real projects published? One scalar fitted, everything else "
    "predicted.",
    "calibrate": "Measure an engine under RL-like load and write a profile that size and simulate use.",
    "examples": "The files that README and documentation use: a job, results, a history, a log, a configuration.",
    "doctor": "Look at this installation: versions, extras, kernel, GPU, and a Prometheus if one is named.",
    "profile": "Profiles of engines: list them, look at one, check it, estimate one.",
    "scenario": "Scenario files: start one, check it, see what may stand in it.",
}


_GROUPS = ("profile", "scenario")
# The files of commands that stand with others, and of groups: the standard library has a module called profile.
_FILES = {
    **dict.fromkeys(("alerts", "dashboard", "watch"), "standing"),
    **dict.fromkeys(("calibrate", "profile"), "profiles"),
    "scenario": "scenarios",
}


class Commands(MutableMapping[str, Any]):
    """Name -> typer's command. Names are known at once, a command is built when its value is first read."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = dict.fromkeys(LINES)

    def __getitem__(self, name: str) -> Any:
        if self._built[name] is None:
            self._built[name] = _built(name, COMPLETING in os.environ)
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._built)

    def __len__(self) -> int:
        return len(self._built)

    def __contains__(self, name: object) -> bool:
        return name in self._built


def lines(width: int) -> list[tuple[str, str]]:
    """Every command with what it does, cut to `width` as typer cuts it."""
    left = width - 6 - max(map(len, LINES))
    return [(name, TyperCommand(name, help=line).get_short_help_str(left)) for name, line in LINES.items()]


@cache
def _built(name: str, completing: bool) -> Any:
    """A command, or a group with its commands: with manual, and while a shell completes with what it may offer. Built
    once for all calls of a process: reading the types of its options takes longer than many an answer."""
    from fleetsim.cli import help as manual
    from fleetsim.cli.flags import command

    module = import_module(f"fleetsim.cli.{_FILES.get(name, name)}")
    group: typer.Typer | None = module.app if name in _GROUPS else None
    app = typer.Typer(add_completion=False, rich_markup_mode="rich") if group is None else group
    prefix = "" if group is None else f"{name} "
    if group is None:
        app.command(name)(command(getattr(module, name)))
    manual.attach(app, prefix)
    if completing:
        from fleetsim.cli import complete

        complete.attach(app, prefix)
    built: Any = typer.main.get_command(app) if group is None else typer.main.get_group(app)
    built.name = name
    return built

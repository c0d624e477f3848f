"""Which tracker kept a run that a path names, told by what is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from fleetsim.errors import InputError, Problem
from fleetsim.history.history import Note
from fleetsim.history.step_logs.rows import RunLogTable
from fleetsim.history.trackers import databases, tensorboard, wandb
from fleetsim.history.trackers.databases import MAGIC, columns_of, the_only

Reader = Callable[[Callable[[str], bool] | None], tuple[RunLogTable, list[Note]]]

_START = 512
_EVENTS = "*tfevents*"


def tracker_of(given: Path) -> Reader | None:
    """What reads the run; None where no tracker wrote it. `DATABASE#RUN` names one run of several; a run
    of wandb has an address. Raises InputError:
    several runs and none is named."""
    if wandb.run_address(str(given)) is not None:
        return partial(wandb.read_wandb_api, str(given))
    name, _, run = str(given).rpartition("#") if "#" in str(given) else (str(given), "", "")
    path = given if given.exists() or not run else Path(name)
    if path.is_dir():
        return _of_folder(path)
    if not path.is_file():
        return None
    with path.open("rb") as file:
        start = file.read(_START)
    if start.startswith(wandb.MAGIC):
        return partial(wandb.read_wandb, path)
    if start.startswith(MAGIC):
        return _of_database(path, run)
    return partial(tensorboard.read_events, [path]) if tensorboard.is_events(start) else None


def _of_database(path: Path, run: str) -> Reader:
    columns = columns_of(path)
    if {"run_uuid", "key", "is_nan"} <= columns:
        return partial(databases.read_database, path, run)
    if {"run_name", "step", "metrics"} <= columns:
        return partial(databases.read_project, path, run)
    rule = "is a database of neither MLflow nor trackio"
    raise InputError([Problem("history", str(path), rule, "export the run as CSV or JSONL")])


def _of_folder(path: Path) -> Reader | None:
    """A folder of one run, or one that holds the folder of one run alone."""
    if databases.is_run(path):
        return partial(databases.read_run, path)
    events = [p for p in path.rglob(_EVENTS) if p.is_file()]
    if events:
        return partial(tensorboard.read_events, [p for p in events if p.parent == _one_folder(path, events)])
    files = list({p.resolve() for p in path.rglob("*.wandb") if p.is_file()})
    if files:
        return partial(wandb.read_wandb, _only(path, files))
    runs = [p.parent for p in path.rglob("meta.yaml") if databases.is_run(p.parent)]
    return partial(databases.read_run, _only(path, runs)) if runs else None


def _one_folder(path: Path, events: Sequence[Path]) -> Path:
    """The folder with event files that stands above all others with some: sub-runs (hyperparameters, groups of curves)
    are beside the run."""
    folders = sorted({p.parent for p in events}, key=lambda p: len(p.parts))
    if all(f.is_relative_to(folders[0]) for f in folders):
        return folders[0]
    return _only(path, folders)


def _only(path: Path, runs: Sequence[Path]) -> Path:
    return Path(the_only(path, [str(r) for r in runs], "give one of them:"))

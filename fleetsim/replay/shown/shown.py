"""`--run`: what a run showed becomes part of the job that is asked about.

The run may be a console log, a tracker's folder, a dump or a Prometheus. It is observed and turned into the scenario
that it implies (`replay/implied`). Where its log holds the configuration that the framework printed, the run is the job
of that, and whatever file was given beside it is another job, which takes over what both have in common
(`shown/carry_over.py`). Every value that was measured then stands in the job's file, and `observed` says of the main
ones how sure they are. What the user says by a flag comes on top of it, and what the run shows otherwise is told.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fleetsim.config.load import load_scenario, parse_override
from fleetsim.config.sections import ObservedConfig
from fleetsim.config.tree import is_touched
from fleetsim.errors import InputError
from fleetsim.faces import flag, setting
from fleetsim.frameworks.convert import FRAMEWORKS, scenario_from
from fleetsim.frameworks.python_source import printed_config
from fleetsim.frameworks.settings import settings_of
from fleetsim.history.history import History
from fleetsim.history.option_names import HISTORY
from fleetsim.job.grounds import record_words
from fleetsim.job.job import Start, job_from_flags
from fleetsim.job.settings import place_of
from fleetsim.replay.history_fields import HistoryWindow
from fleetsim.replay.shown.carry_over import carried
from fleetsim.replay.shown.measured_values import RUN, measured
from fleetsim.trainer.estimate import token_seconds


def with_run(
    start: Start,
    sets: Sequence[str],
    flags: Mapping[str, Any],
    run: str | os.PathLike[str],
    history: History | None = None,
) -> tuple[Mapping[str, Any], tuple[str, ...], History]:
    """The job's file with what a run showed in it, notes, and the history of the run.

    start, sets, flags: as of `job_from_flags`. What they say of a value that the run's own configuration leaves open
    describes the run as well. run: a file of history, a tracker's folder, or the address of a Prometheus. history: what
    is there, if it was read before. Raises InputError (nothing there, a window that shows no job, wrong flags),
    OutsideError.
    """
    history = read_run(run) if history is None else history
    flags = {name: value for name, value in flags.items() if value is not None and place_of(name) is not None}
    printed, asked = printed_job(history, run), _raw(start)
    own = printed or asked or {}
    target = own if asked is None else asked
    known = raw_paths(own) - frozenset(own.get("assumed", ()))
    own_sets = [text for text in sets if not is_touched(parse_override(text)[0], known)]
    own_flags = {name: value for name, value in flags.items() if not is_touched(str(place_of(name)), known)}
    its_job, job = job_from_flags(own, own_sets, own_flags), job_from_flags(target, sets, flags)
    found = measured(history, its_job.scenario, its_job.given)
    another = target is not own or its_job.scenario.trainer.gpus != job.scenario.trainer.gpus
    values = dict(found.values) if target is own else {}
    if another:
        values |= carried(found, its_job, job)
    told = _said(sets, flags)
    notes = (*found.notes, *_overruled(found.observed, told))
    return overlaid(target, values, found.observed, found.assumed), notes, history


def overlaid(
    raw: Mapping[str, Any],
    values: Mapping[str, Any],
    observed: Sequence[ObservedConfig],
    assumed: Collection[str] = (),
) -> dict[str, Any]:
    """A scenario's mapping with the values in it, which are no longer assumed but for some, and their records."""
    result: dict[str, Any] = {key: dict(value) if isinstance(value, Mapping) else value for key, value in raw.items()}
    for path, value in values.items():
        *above, last = path.split(".")
        here = result
        for key in above:
            below = here.get(key)
            here[key] = dict(below) if isinstance(below, Mapping) else {}
            here = here[key]
        here[last] = value
    result["assumed"] = [*(p for p in result.get("assumed", ()) if not is_touched(p, values)), *assumed]
    result["observed"] = [record.model_dump() for record in observed]
    return result


def raw_paths(raw: Mapping[str, Any], prefix: str = "") -> frozenset[str]:
    """Dotted paths of all values of a scenario's mapping."""
    found: set[str] = set()
    for key, value in raw.items():
        if isinstance(value, Mapping) and value:
            found |= raw_paths(value, f"{prefix}{key}.")
        else:
            found.add(f"{prefix}{key}")
    return frozenset(found)


def read_run(run: str | os.PathLike[str]) -> History:
    """What a run left behind: a file of history, a tracker's folder, or the address of a Prometheus. Raises InputError,
    OutsideError."""
    where = os.fspath(run)
    server = where.startswith(("http://", "https://"))
    window = HistoryWindow(prometheus=where) if server else HistoryWindow(file=where)
    try:
        return window.read(lambda text: None)
    except InputError as error:
        problems = [replace(p, path=RUN) if p.path in ("history", HISTORY) else p for p in error.problems]
        raise InputError(problems) from None


def _raw(start: Start) -> Mapping[str, Any] | None:
    """A scenario's mapping; None for none."""
    if start is None or isinstance(start, Mapping):
        return start
    return load_scenario(start).model_dump(mode="json", exclude_unset=True)


def printed_job(history: History, run: str | os.PathLike[str]) -> Mapping[str, Any] | None:
    """The job of the configuration that the framework printed into its log."""
    framework = None if history.steps is None else history.steps.framework
    if framework is None or framework not in FRAMEWORKS or not os.path.isfile(run):
        return None
    printed, name = printed_config(run), os.path.basename(run)
    if printed is None:
        return None
    try:
        return scenario_from(framework, settings_of(printed.items(), name), name, (), token_seconds).raw
    except InputError:  # what it printed is no job of its framework's that fleetsim knows
        return None


def _said(sets: Sequence[str], flags: Mapping[str, Any]) -> dict[str, str]:
    """Path -> the words that said it."""
    said = {parse_override(text)[0]: str(setting(*text.split("=", 1))) for text in sets}
    places = {name: place for name in flags if (place := place_of(name)) is not None}
    return said | {place: str(flag(name, flags[name])) for name, place in places.items()}


def _overruled(observed: Sequence[ObservedConfig], told: Mapping[str, str]) -> Iterator[str]:
    """Lines on what the run shows and the user says otherwise."""
    for record in observed:
        words = next((words for path, words in told.items() if is_touched(record.path, [path])), None)
        if words is not None:
            yield f"{words} counts, although {RUN} shows {record_words(record)}"

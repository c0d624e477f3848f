"""`--run`: what a run showed becomes part of the job that is asked about.

The run may be a console log, a tracker's folder, a dump or a Prometheus. It is observed and turned into the scenario
that it implies (`replay/implied`). Where its log holds the configuration that the framework printed, the run is the job
of that, and whatever file was given beside it is another job, which takes over what both have in common
(`carried`). Every value that was measured then stands in the job's file, and `observed` says of the main
ones how sure they are. What the user says by a flag comes on top of it, and what the run shows otherwise is told.

From the run that was measured to another job: what its configuration changes in what was measured.

Lengths are those of the same prompts under the other cap. The trainer's seconds, those of a weight sync and of the
engines keep the ratio to what their model says: it tells how they change with GPUs, tokens, passes and engines. On
another GPU, and engines with another model, they keep half of it, in logarithms (`job/scalar.py`). Beyond these a job
keeps its own decisions.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from fleetsim.config.load import load_scenario, parse_override, scenario_from_mapping, with_changes, with_overrides
from fleetsim.config.scenario import Scenario
from fleetsim.config.sections import ObservedConfig
from fleetsim.config.tree import is_touched
from fleetsim.config.yaml_text import from_yaml
from fleetsim.engine.transport import sync_times
from fleetsim.errors import InputError
from fleetsim.faces import flag, setting
from fleetsim.frameworks.convert import FRAMEWORKS, scenario_from
from fleetsim.frameworks.scenario_text import SECTIONS, scenario_yaml
from fleetsim.frameworks.settings import settings_of
from fleetsim.history.history import History
from fleetsim.history.option_names import HISTORY
from fleetsim.history.text import printed_config
from fleetsim.job.assumptions import is_estimated
from fleetsim.job.derived_values import SLOWDOWN, seconds_of, slower
from fleetsim.job.grounds import record_words
from fleetsim.job.job import Start, StatedJob, job_from_flags
from fleetsim.job.nameplate import mean_step_s
from fleetsim.job.scalar import OF_ENGINES, OF_TRAINER, are_alike, carries, doubt_there, slowdown_there
from fleetsim.job.settings import place_of
from fleetsim.job.trainer_scaling import scaled
from fleetsim.records import replace
from fleetsim.replay.history_fields import HistoryWindow
from fleetsim.replay.implied.workload import OUTPUT
from fleetsim.replay.measured_values import COMMON, RUN, SECONDS, SYNC, Measured, measured
from fleetsim.trainer.estimate import estimate_of, token_seconds


def carried(found: Measured, run: StatedJob, target: StatedJob) -> dict[str, Any]:
    """The values that another job takes from a run. run: the job of the run before anything was measured."""
    values = {path: found.values[path] for path in COMMON if path in found.values}
    if SLOWDOWN in values:
        values[SLOWDOWN] = slowdown_there(values[SLOWDOWN], run.scenario, target.scenario)
    if OUTPUT in values:
        law, cap = values[OUTPUT], getattr(target.scenario.workload.output_tokens, "max", None)
        if cap is not None and is_touched(f"{OUTPUT}.max", target.given) and law.get("kind") == "lognormal":
            values[OUTPUT] = {**law, "max": cap}  # under the job's own cap
    if any(path in values for path in SECONDS):
        values |= _trainer(found, run, target, {path: values[path] for path in values if path not in (*SECONDS, *SYNC)})
    if any(path in values for path in SYNC):
        values |= _sync(found.scenario, run.scenario, target.scenario)
    return values


def _trainer(found: Measured, run: StatedJob, target: StatedJob, shared: dict[str, Any]) -> dict[str, Any]:
    """The measured seconds over the model's, times the model's for the other job."""
    batch = {
        path: found.values[path] for path in ("trainer.batch_samples", "workload.group_size") if path in found.values
    }
    before, after = _modelled(run, {**shared, **batch}), _modelled(target, shared)
    if before is None or after is None:
        seconds = {path: found.values[path] for path in SECONDS if path in found.values}
        here = with_changes(run.scenario, seconds)
        return {path: value for path, value in scaled(here, target.scenario.trainer.gpus).items() if path in SECONDS}
    factor = mean_step_s(found.scenario) / mean_step_s(before)
    return slower(after.trainer, factor ** carries(alike=are_alike(run.scenario, target.scenario, OF_TRAINER)))


def _records(found: Measured, run: StatedJob, target: StatedJob, values: Mapping[str, Any]) -> list[ObservedConfig]:
    """How sure the values are in the other job. Of other engines their speed is as sure as a framework's usual one, and
    as the model of these engines."""
    records = list(found.observed)
    if SLOWDOWN not in values or are_alike(run.scenario, target.scenario, OF_ENGINES):
        return records
    factor, (low, high) = values[SLOWDOWN], doubt_there(target.scenario)
    ends = {"value": factor, "low": factor * low, "high": factor * high}
    return [record.model_copy(update=ends) if record.path == SLOWDOWN else record for record in records]


def _modelled(job: StatedJob, changes: dict[str, Any]) -> Scenario | None:
    """The job with the run's lengths and the seconds that its trainer's model gives it; None where none is known."""
    kept = {path: value for path, value in changes.items() if not path.startswith("trainer.checkpoint")}
    scenario = with_changes(job.scenario, kept)
    if not is_estimated(job.scenario):
        return None
    try:
        return with_changes(scenario, seconds_of(estimate_of(scenario, scenario.trainer.gpus), scenario))
    except InputError:  # a trainer too small for its model
        return None


def _sync(found: Scenario, run: Scenario, target: Scenario) -> dict[str, Any]:
    """The measured seconds of a sync over those of the run's transport, times those of the other job's."""
    seen, modelled, there = (sync_times(scenario) for scenario in (found, run, target))
    factor = seen.complete_s / modelled.complete_s if modelled.complete_s > 0 and modelled.derived else None
    times = seen if factor is None or not there.derived else there.slower(factor)
    return {
        "sync.transport": None,
        "sync.publish_s": times.publish_s,
        "sync.pause_s": times.pause_s,
        "sync.trainer_block_s": times.trainer_block_s,
    }


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
    told = _said(sets, flags)
    another = target is not own or not are_alike(its_job.scenario, job.scenario, ("trainer.gpus", *OF_ENGINES))
    values = dict(found.values) if target is own else {}
    if target is own:  # what is said of the run is no other job's
        engine = job.scenario.model_dump(mode="json")["engine"]
        values |= {path: engine[path.partition(".")[2]] for path in OF_ENGINES if is_touched(path, told)}
    records = list(found.observed)
    if another:
        values |= carried(found, its_job, job)
        records = _records(found, its_job, job, values)
    notes = list(found.notes)
    for record in found.observed:  # what the run shows and the user says otherwise
        words = next((words for path, words in told.items() if is_touched(record.path, [path])), None)
        if words is not None:
            notes.append(f"{words} counts, although {RUN} shows {record_words(record)}")
    return overlaid(target, values, records), tuple(notes), history


def overlaid(raw: Mapping[str, Any], values: Mapping[str, Any], observed: Sequence[ObservedConfig]) -> dict[str, Any]:
    """A scenario's mapping with the values in it, which are no longer assumed, and their records."""
    result: dict[str, Any] = {key: dict(value) if isinstance(value, Mapping) else value for key, value in raw.items()}
    for path, value in values.items():
        *above, last = path.split(".")
        here = result
        for key in above:
            below = here.get(key)
            here[key] = dict(below) if isinstance(below, Mapping) else {}
            here = here[key]
        here[last] = value
    result["assumed"] = [p for p in result.get("assumed", ()) if not is_touched(p, values)]
    result["observed"] = [record.model_dump() for record in observed]
    return result


def raw_paths(raw: Mapping[str, Any], prefix: str = "") -> frozenset[str]:
    """Dotted paths of all values of a scenario's mapping."""
    each = ((f"{prefix}{key}", value) for key, value in raw.items())
    below = (raw_paths(v, f"{path}.") if isinstance(v, Mapping) and v else (path,) for path, v in each)
    return frozenset(itertools.chain.from_iterable(below))


def read_run(run: str | os.PathLike[str]) -> History:
    """What a run left behind: a file of history, a tracker's folder, or the address of a Prometheus. Raises InputError,
    OutsideError."""
    try:
        return HistoryWindow.of(os.fspath(run)).read(lambda text: None)
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
        return scenario_from(framework, settings_of(printed.items()), name, (), token_seconds).raw
    except InputError:  # what it printed is no job of its framework's that fleetsim knows
        return None


def _said(sets: Sequence[str], flags: Mapping[str, Any]) -> dict[str, str]:
    """Path -> the words that said it."""
    said = {parse_override(text)[0]: str(setting(*text.split("=", 1))) for text in sets}
    places = {name: place for name in flags if (place := place_of(name)) is not None}
    return said | {place: str(flag(name, flags[name])) for name, place in places.items()}


class RunFile(Struct, frozen=True):
    """text: YAML with comments. raw: the same as a mapping. notes: what the reader must know of it."""

    text: str
    raw: Mapping[str, Any]
    notes: tuple[str, ...]


def run_file(start: Mapping[str, Any] | None, sets: Sequence[str], run: str) -> RunFile:
    """The job of a run as a file. start: another configuration, None = that which the run's log holds. Raises as
    `with_run`."""
    found, notes, _ = with_run(start, sets, {}, run)
    name = os.path.basename(run.rstrip("/"))
    head = {"schema_version": 1, "name": name, "source": f"observed in {name}"}
    raw = with_overrides({**head, **found}, sets)
    told = [parse_override(text)[0] for text in sets]
    raw["observed"] = [record for record in raw["observed"] if not is_touched(record["path"], told)]
    raw["assumed"] = [path for path in raw["assumed"] if not is_touched(path, told)]
    # an empty list is a default
    place = {key: n for n, key in enumerate(SECTIONS)}  # the head comes before them
    raw = {key: raw[key] for key in sorted(raw, key=lambda key: place.get(key, -1)) if raw[key] not in ([], ())}
    scenario = scenario_from_mapping(raw)
    comments = {record.path: f"{record_words(record)}, in {record.source}" for record in scenario.observed}
    header = ["What a run showed, as a job. `observed` says how sure its values are: plans take their ranges from it."]
    text = scenario_yaml(raw, comments, header)
    scenario_from_mapping(from_yaml(text, "scenario"))
    return RunFile(text, raw, notes)

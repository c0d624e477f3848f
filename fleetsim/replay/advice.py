"""The job of a window as files that other commands take, and what was asked of the window as advice on that job.

What is promised of another fleet comes from runs of these files: they are what the command of the advice simulates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetsim import units
from fleetsim.config.load import dump_short, with_changes
from fleetsim.config.profile_files import profile_text
from fleetsim.config.scenario import Scenario
from fleetsim.engine.transport import sync_times
from fleetsim.files import replace_file
from fleetsim.job.base_job import load
from fleetsim.job.trials import Trials
from fleetsim.replay.answers import Answers, on_top
from fleetsim.replay.implied.implied_scenario import Implied, measured_by
from fleetsim.replay.other_fleets import changes_words
from fleetsim.search.advice import Advised, advice_data

# What would follow from the model where a file does not say it: the window has shown it.
_SAID = (
    *("engine.model", "engine.tp", "engine.slowdown", "fleet.instances", "trainer.gpus", "trainer.batch_samples"),
    *("trainer.fixed_s", "trainer.per_token_s", "sync.publish_s", "sync.pause_s", "sync.trainer_block_s"),
)


def profile_beside(job_file: str) -> str:
    """Where the engine of a job file stands: job.profile.json beside job.yaml."""
    return str(Path(job_file).with_suffix(".profile.json"))


def write_job(implied: Implied, job_file: str) -> tuple[str, ...]:
    """Writes the window's job as a scenario, and its engine beside it where the window showed one. Returns the files.

    Existing files are replaced. Raises OutsideError.
    """
    scenario, profile = _job(implied, job_file)
    written = [job_file]
    replace_file(job_file, dump_short(scenario, _SAID))
    if profile is not None:
        written.append(profile_beside(job_file))
        replace_file(written[-1], profile)
    return tuple(written)


def window_advice(implied: Implied, answers: Answers, job_file: str) -> list[dict[str, Any]]:
    """The recommended fleet, the change that was asked for, and the fleet as it is. job_file: as `write_job` wrote it.

    What gets stuck is left out: there is nothing to promise of it.
    """
    job = load(job_file)
    advised = []
    for what, changes in _asked(answers):
        scenario, _ = _job(on_top(implied, changes), job_file)
        trial = Trials(scenario).at(scenario.fleet.instances, scenario.run.replications)
        if trial.stuck is None:
            advised.append(Advised(what, scenario, trial.estimates))
    return advice_data(job, advised)


def _asked(answers: Answers) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What is advised, in words, and the changes that make it."""
    found = answers.recommendation
    if found is not None:
        yield units.plural(found.instances, "instance"), {**found.changes, "fleet.instances": found.instances}
    if answers.what_if is not None:
        yield changes_words(answers.what_if.changes), answers.what_if.changes
    yield "the fleet as it is", {}


def _job(implied: Implied, job_file: str) -> tuple[Scenario, str | None]:
    """The job with its engine from the file beside it, and that file's text. Its runs end when they are steady."""
    scenario, profile = measured_by(replace(implied, scenario=implied.settling), profile_beside(job_file))
    if scenario.sync.transport is None:
        times = sync_times(scenario)
        seconds = {"publish_s": times.publish_s, "pause_s": times.pause_s, "trainer_block_s": times.trainer_block_s}
        scenario = with_changes(scenario, {f"sync.{name}": value for name, value in seconds.items()})
    return scenario, None if profile is None else profile_text(profile)

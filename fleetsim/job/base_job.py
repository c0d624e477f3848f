"""A job: what is to be simulated, sized, split or swept. It never changes; `with_` makes another one.

Here is what every feature needs of a job. In Python it can also be asked: those methods stand above the features, in
`api/job.py`, whose `Job` is the class of all jobs once it is imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from msgspec import Struct

from fleetsim.config.load import dump_scenario, dump_short
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import did_you_mean
from fleetsim.errors import InputError, Problem
from fleetsim.faces import keywords
from fleetsim.job.grounds import pool_words
from fleetsim.job.job import Start as File
from fleetsim.job.job import job_from_flags
from fleetsim.job.options import Options, change_texts, checked
from fleetsim.job.settings import READERS, AnyJob, place_of
from fleetsim.job.typed_words import merged
from fleetsim.records import replace

if TYPE_CHECKING:
    from pathlib import Path

    from fleetsim import Job  # the public one, which has the features as methods
    from fleetsim.history.history import History


# --- The run that a job heard of by `--run`: where it is, and what was read there.


class Heard(Struct, frozen=True):
    """The run whose history is in a job. start: of the job without it. run: where it is, as somebody wrote it.

    changed: whether more was said of the job since, so that the run was read as that of another job.
    """

    start: File
    run: str
    history: History
    changed: bool = False


def heard_of(
    start: File, sets: Sequence[str], options: Mapping[str, Any], run: str, history: History | None
) -> tuple[File, tuple[str, ...], Heard]:
    """The start with what a run showed in it, notes, and the run. Raises as the reader does."""
    found, notes, read = READERS[0](start, sets, options, run, history)
    return found, notes, Heard(start, run, read)


Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BaseJob(AnyJob):
    """A scenario and how it came to be. Made by `load`.

    scenario: validated, defaults written out. given: dotted paths that somebody wrote; the rest is assumed, and results
    say so. notes: what is odd about what was said.
    """

    scenario: Scenario
    given: frozenset[str]
    notes: tuple[str, ...]
    _start: File
    _changes: Mapping[str, str]
    _options: Mapping[str, Any]
    _heard: Heard | None = None
    # What `made` makes.
    _kind: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        BaseJob._kind = cls

    def __getitem__(self, path: str) -> Any:
        """The value at a dotted path of the scenario. Raises KeyError with the nearest name."""
        here: Any = self.scenario
        for key in path.split("."):
            fields = here if isinstance(here, Mapping) else getattr(type(here), "model_fields", {})
            if key not in fields:
                raise KeyError(f"{path}: no such value; {did_you_mean(key, fields)}")
            here = here[key] if isinstance(here, Mapping) else getattr(here, key)
        return here

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BaseJob) and (self.scenario, self.given) == (other.scenario, other.given)

    def __hash__(self) -> int:
        return hash((self.scenario, self.given))

    def __repr__(self) -> str:
        return f"<Job {self.scenario.name!r}: {pool_words(self.scenario)}>"

    def _repr_html_(self) -> str:
        from fleetsim.job.grounds import document
        from fleetsim.tell.console import as_html
        from fleetsim.tell.terminal import draw

        return as_html(draw(document(self.scenario, self.given, self.notes)))

    def __str__(self) -> str:
        return dump_scenario(self.scenario)

    def with_(self, changes: Mapping[str, Any] | None = None, /, **options: Unpack[Options]) -> Job:
        """Another job: dotted paths set to new values, and options as in `load`. What was said last wins.

            >>> import fleetsim as fs
            >>> fs.load(batch=512).with_({"fleet.instances": 12}, len=1536)["trainer.batch_samples"]
            512

        Raises InputError with all that is wrong.
        """
        _check(None, changes)
        texts, said = merged(self._changes, self._options, change_texts(changes or {}), checked(options))
        job = _job(self._start, texts, said)
        if self._heard is None or job._heard is not None:
            return job
        changed = self._heard.changed or (texts, said) != (self._changes, self._options)
        return replace(job, _heard=replace(self._heard, changed=changed))

    def on(self, start: File) -> Job:
        """The same changes and options on another start. Raises InputError."""
        return _job(start, self._changes, self._options)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes as YAML what was given or differs from the defaults, which loads back to an equal scenario.

        An existing file is replaced. Raises OutsideError where it cannot be written.
        """
        from fleetsim.files import replace_file

        return replace_file(path, dump_short(self.scenario, self.given))


BaseJob._kind = BaseJob
Start = BaseJob | str | os.PathLike[str] | Mapping[str, Any] | Scenario | None
"""What `load` takes."""


def load(start: Start = None, changes: Mapping[str, Any] | None = None, /, **options: Unpack[Options]) -> Job:
    """The job in a scenario file, with changes.

    start: a YAML file, the name of a shipped scenario or preset (`scenarios()`), a mapping like such a file's, a
    Scenario, a Job, or None for the defaults. changes: dotted paths and their values. options: as the flags of
    `fleetsim size` (`Options` lists them). FLEETSIM_<SECTION>__<FIELD> variables are heard as everywhere: an option or
    a change wins over a variable, that over the file, that over the default. A change that says what an option says is
    an error.

        >>> import fleetsim as fs
        >>> fs.load("async-one-step", {"admission.max_staleness": 2}, gpu="H200")["engine.gpu"]
        'H200'

    Raises InputError with all that is wrong, each problem with what was given, the rule and the remedy.
    """
    _check(None if isinstance(start, (BaseJob, Scenario)) else start, changes)
    if isinstance(start, BaseJob):
        return start.with_(changes, **options)
    if isinstance(start, Scenario):
        start = start.model_dump(mode="json", exclude_unset=True)
    return _job(start, change_texts(changes or {}), checked(options))


def _check(start: object, changes: object) -> None:
    problems = []
    if start is not None and not isinstance(start, (str, os.PathLike, Mapping)):
        rule = f"is no scenario ({type(start).__name__})"
        problems.append(Problem("load", start, rule, "give a file, a shipped name, a mapping, or nothing"))
    if changes is not None and not isinstance(changes, Mapping):
        rule = f"is no mapping of dotted paths to values ({type(changes).__name__})"
        problems.append(Problem("changes", changes, rule, 'for example {"fleet.instances": 8}'))
    if problems:
        raise InputError(problems)


@keywords()
def _job(start: File, texts: Mapping[str, str], options: Mapping[str, Any]) -> Job:
    return made(start, list(texts.values()), options)


def made(start: File, sets: Sequence[str], options: Mapping[str, Any], history: History | None = None) -> Job:
    """The job of what was said: `key.path=value` texts, and options by name, those that are None left out.

    Of options, `run` says where a run's history is: what it shows becomes part of the start. history: what is there, if
    it was read before. Raises InputError with all that is wrong, OutsideError where a server with a history did not do
    its part.
    """
    options = dict(options)
    run = options.pop("run", None)
    shown: tuple[str, ...] = ()
    heard = None
    if run is not None:
        start, shown, heard = heard_of(start, sets, options, os.fspath(run), history)
    found = job_from_flags(start, sets, options)
    texts: dict[str, str] = {}
    for text in sets:  # what is said twice counts where it is said last
        texts.pop(path := text.partition("=")[0].strip(), None)
        texts[path] = text
    said = {name: value for name, value in options.items() if value is not None and place_of(name) is not None}
    job: Job = BaseJob._kind(found.scenario, found.given, (*found.notes, *shown), start, texts, said, heard)
    return job

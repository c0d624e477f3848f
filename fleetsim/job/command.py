"""The command that simulates a job: what one types to make exactly this scenario again.

What somebody said of the job comes first, in his own words. What the scenario has beyond it is typed as well: by its
own flag where there is one, else by `--set`. What follows from these words, as the seconds of a larger trainer, is not
typed. So words are added until the job that they load is the scenario, and each that is not needed is taken out again.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from pydantic import BaseModel

from fleetsim.config.data_files import find_scenario, is_preset
from fleetsim.config.load import default_scenario, parse_override, scenario_from_mapping
from fleetsim.config.scenario import Scenario, reader_of
from fleetsim.config.tree import given_paths, is_at, is_given, is_touched
from fleetsim.errors import InputError
from fleetsim.job.base_job import Heard, made
from fleetsim.job.derived_values import SECONDS, SYNC
from fleetsim.job.fields import OF_A_RUN
from fleetsim.job.job import Start as File
from fleetsim.job.settings import LENGTH_FLAGS, LENGTHS, SIMULATE_FLAGS, flag_words, place_of
from fleetsim.job.typed_words import NAMES, Word, contradicts, length_flags, merged, text_of, there, unquoted, words_for
from fleetsim.records import replace

if TYPE_CHECKING:
    from fleetsim.job.base_job import Job

# What no simulation reads, and how long a run is.
_NO_PART = (
    "schema_version",
    "name",
    "description",
    "source",
    "published",
    "assumed",
    "observed",
    "targets",
    "fleet.first",
)
_RUN = ("run.steps", "run.replications", "run.seed")
# Values that follow from others where nobody says them: of these the last are the first that may be needless.
_FOLLOWING = (
    *("engine.kind", "workload.group_size", "fleet.max_in_flight_samples", "fleet.max_in_flight_samples_per_instance"),
    *("admission.pool_samples", "admission.adaptive", "buffer.capacity_samples"),
    *("engine.tp", "trainer.gpus", "engine.slowdown", *SYNC, "trainer.scaling", *reversed(SECONDS)),
)
# Of these no value follows where one of them is said.
_AT_ONCE = (SECONDS, SYNC)
_MOST_ROUNDS = 6


def simulate_command(job: Job, scenario: Scenario) -> tuple[str, ...]:
    """The words of `fleetsim simulate` that make this scenario, typed in the folder and with the environment of now.

    job: as somebody asked for it. scenario: what is simulated of it: with other instances, a lever pulled, or another
    arrangement. The words make it equal but for what no simulation reads, and for steps, replications and seed, which
    are typed where somebody said them.
    """
    said, nothing = _said_of(job), _TypedWords(None, None, {}, {})
    if said.heard is None:
        known = said.start is job._start  # not so for a mapping, which is typed
    else:
        known = said.start is said.heard.start and not said.heard.changed
    found = _FewestWords(scenario).completed(said, job.scenario if known else None)
    # A value that nothing reads may still not go with the others; words of the user may not, either.
    closely = _FewestWords(scenario, closely=True)
    return (found or closely.completed(said) or closely.completed(nothing) or _in_full(scenario)).words()


def call_again(command: str, job: Job, **own: Any) -> tuple[str, ...]:
    """The words of a planning command that asks the same of this job again. own: the command's own options by keyword.

    The count of instances is what such a command chooses, so it is not typed, and steps are typed as a setting.
    """
    said = _said_of(job)
    options = {name: value for name, value in said.options.items() if name not in ("instances", "steps")}
    steps = said.options.get("steps")
    sets = {**said.sets, **({} if steps is None else {"run.steps": f"run.steps={steps}"})}
    first = (word for name, value in own.items() for word in flag_words(name, value))
    return ("fleetsim", command, *first, *replace(said, options=options, sets=sets).job_words("--scenario"))


def unused_name(name: str) -> str:
    """A name for a file that a command is to write: no command writes over what is there."""
    return unused_name(f"new-{name}") if os.path.lexists(name) else name


class _TypedWords(Struct, frozen=True):
    """What is typed. start: a scenario file or a shipped name. heard: the run of --run. options: by name. sets: path ->
    `key.path=value`."""

    start: str | os.PathLike[str] | None
    heard: Heard | None
    options: Mapping[str, Any]
    sets: Mapping[str, str]

    def scenario(self) -> Scenario:
        """What `simulate` makes of it. Raises InputError."""
        sets = list(self.sets.values())
        if self.heard is None:
            return made(self.start, sets, self.options).scenario
        return made(self.start, sets, {**self.options, "run": self.heard.run}, self.heard.history).scenario

    def adding(self, words: Iterable[Word]) -> _TypedWords:
        """With more words, of which each takes back what it contradicts."""
        sets, options = dict(self.sets), dict(self.options)
        for more, changes in words:
            if any(name in LENGTH_FLAGS for name in more):
                sets = {path: text for path, text in sets.items() if not is_at(path, LENGTHS)}
            options = {name: value for name, value in options.items() if not contradicts(name, changes)}
            sets, options = merged(sets, options, {path: text_of(path, v) for path, v in changes.items()}, more)
        return _TypedWords(self.start, self.heard, options, sets)

    def words(self) -> tuple[str, ...]:
        """The command line of `simulate`, which takes a scenario without a flag."""
        return ("fleetsim", "simulate", *self.job_words())

    def job_words(self, *called: str) -> tuple[str, ...]:
        """As a command line has them: where the job starts, its flags, its settings. called: the flag of a scenario."""
        found: list[str] = []
        if self.start is not None:
            file = [*called, os.fspath(self.start)]
            found += ["--preset", find_scenario(self.start).stem] if is_preset(self.start) else file
        if self.heard is not None:
            found += ["--run", self.heard.run]
        flags = (word for name in SIMULATE_FLAGS for word in flag_words(name, self.options.get(name)))
        return (*found, *flags, *flag_words("set", list(self.sets.values())))

    @property
    def names_a_job(self) -> bool:
        """Whether `simulate` takes it for a job."""
        return self.start is not None or self.heard is not None or bool(self.sets or {*self.options} - {*OF_A_RUN})


def _said_of(job: Job) -> _TypedWords:
    """What somebody said of a job; values of a mapping are said as flags and settings."""
    start: File = job._start if job._heard is None else job._heard.start
    options = {name: value for name, value in job._options.items() if name in SIMULATE_FLAGS}
    if not isinstance(start, Mapping):
        return _TypedWords(start, job._heard, options, dict(map(unquoted, job._changes.items())))
    changes = dict(map(parse_override, job._changes.values()))
    return _TypedWords(None, job._heard, {}, {}).adding([*_of_mapping(start), ({}, changes), (options, {})])


def _of_mapping(raw: Mapping[str, Any]) -> Iterator[Word]:
    """What a scenario's mapping gives and a default does not, or what has a flag of its own. Nothing of a mapping that
    is no scenario by itself."""
    try:
        scenario = scenario_from_mapping(raw)
    except InputError:
        return
    default, given = default_scenario(), given_paths(scenario)
    paths = [path for path in _paths(scenario) if is_touched(path, given)]
    paths = [path for path in paths if not is_touched(path, (*scenario.assumed, *_NO_PART))]
    yield from words_for([p for p in paths if p in NAMES or there(scenario, p) != there(default, p)], scenario)


class _FewestWords(Struct, frozen=True):
    """The fewest words that make a scenario. closely: also in what it does not read."""

    scenario: Scenario
    closely: bool = False

    def completed(self, said: _TypedWords, known: Scenario | None = None) -> _TypedWords | None:
        """What is said, with the words that are missing; None where they do not go with it. known: what it makes."""
        words: list[Word] = []
        try:
            for _ in range(_MOST_ROUNDS):
                now = said.adding(words)
                missing = self._missing(known or now.scenario())
                if not missing:
                    break
                law = [_lengths(now, self.scenario)] if LENGTHS in missing else []
                others = words_for([path for path in missing if path != LENGTHS], self.scenario)
                words, known = _together([*words, *law, *others]), None
            else:
                return None
        except InputError:
            return None
        words = self._needed(said, words)
        parts = [part for word in words for part in _parts(word)]
        found = said.adding(self._needed(said, parts) if len(parts) > len(words) else words)
        return found if found.names_a_job else found.adding([({"instances": self.scenario.fleet.instances}, {})])

    def _needed(self, said: _TypedWords, words: list[Word]) -> list[Word]:
        """The words without those that say what follows from others."""
        for word in sorted(filter(_follows, words), key=_follows, reverse=True):
            fewer = [other for other in words if other is not word]
            if self._is_made(said.adding(fewer)):
                words = fewer
        return words

    def _is_made(self, said: _TypedWords) -> bool:
        try:
            return not self._missing(said.scenario())
        except InputError:
            return False

    def _missing(self, now: Scenario) -> list[str]:
        """Paths at which what is made is not simulated as the scenario, in the order of a file."""
        wanted = self.scenario
        paths = [path for path in _paths(wanted, now) if not is_given(path, (*_NO_PART, *_RUN))]
        differing = [path for path in paths if there(now, path) != there(wanted, path)]
        return [path for path in differing if self.closely or not reader_of(wanted, path)]


def _in_full(scenario: Scenario) -> _TypedWords:
    """The scenario with every value typed, so that nothing is left to follow."""
    values = {path: there(scenario, path) for path in _paths(scenario) if not is_given(path, (*_NO_PART, *_RUN))}
    return _TypedWords(
        None, None, {}, {path: text_of(path, value) for path, value in values.items() if value is not None}
    )


def _together(words: Iterable[Word]) -> list[Word]:
    """The words, those of one group in one: any of them keeps the others from following."""
    alone: list[Word] = []
    groups: dict[Collection[str], Word] = {}
    for word in words:
        group = next((group for group in _AT_ONCE if any(place in group for place in _places(word))), None)
        if group is None:
            alone.append(word)
        else:
            more, changes = groups.get(group, ({}, {}))
            groups[group] = {**more, **word[0]}, {**changes, **word[1]}
    return [*alone, *groups.values()]


def _parts(word: Word) -> Iterator[Word]:
    """A word as several, of which each says one value; flags of lengths say a law together."""
    if any(name in LENGTH_FLAGS for name in word[0]):
        yield word
    else:
        yield from (({name: value}, {}) for name, value in word[0].items())
        yield from (({}, {path: value}) for path, value in word[1].items())


def _places(word: Word) -> list[str]:
    return [*(place_of(name) or "" for name in word[0]), *word[1]]


def _paths(section: BaseModel, beside: BaseModel | None = None, prefix: str = "") -> Iterator[str]:
    """Dotted paths of all values; a law is one, and so is a section that stands in one of two scenarios alone."""
    for name in type(section).model_fields:
        value, path = getattr(section, name), f"{prefix}{name}"
        other = value if beside is None else getattr(beside, name)
        law = hasattr(value, "kind") and path != "engine"
        if isinstance(value, BaseModel) and type(value) is type(other) and not law:
            yield from _paths(value, other, f"{path}.")
        elif isinstance(value, Mapping) and value.keys() == other.keys():
            for key, pool in value.items():
                yield from _paths(pool, other[key], f"{path}.{key}.")
        else:
            yield path


def _lengths(said: _TypedWords, scenario: Scenario) -> Word:
    """Flags that make the scenario's law of lengths of what is said so far, else the law itself."""
    law = scenario.workload.output_tokens
    for options in length_flags(law):
        try:
            if said.adding([(options, {})]).scenario().workload.output_tokens == law:
                return options, {}
        except InputError:
            continue
    return {}, {LENGTHS: law}


def _follows(word: Word) -> int:
    """How much rather than others a word may be needless, because what it says follows from them."""
    found = [i for i, path in enumerate(_FOLLOWING, 1) if any(is_at(place, path) for place in _places(word))]
    return max(found, default=0)

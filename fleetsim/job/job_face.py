"""A job: what is to be simulated, sized, split or swept. It never changes; `with_` makes another one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack

from fleetsim.config.load import dump_scenario, dump_short
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import did_you_mean
from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, Problem
from fleetsim.job.fields import AnyJob
from fleetsim.job.flag_paths import merged
from fleetsim.job.heard_run import Heard
from fleetsim.job.immutability import unchanging
from fleetsim.job.job import Start as File
from fleetsim.job.job import job_from_flags
from fleetsim.job.keywords import keywords
from fleetsim.job.options import Options, change_texts, checked
from fleetsim.job.scenario_words import pool_words
from fleetsim.job.settings import place_of
from fleetsim.job.watch import told

if TYPE_CHECKING:
    from pathlib import Path

    from fleetsim.frameworks.export import Exported
    from fleetsim.history.history import History
    from fleetsim.plan.result import PlanResult
    from fleetsim.replay.result import ReplayResult
    from fleetsim.simulate.result import SimulateResult
    from fleetsim.size.ask import SizeResult
    from fleetsim.split.ask import SplitResult
    from fleetsim.sweep.result import SweepResult
    from fleetsim.trainer.estimate import TrainerEstimate

Tell = Callable[[str], None]


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Job(AnyJob):
    """A scenario and how it came to be. Made by `load`.

    scenario: validated, defaults written out. given: dotted paths that somebody wrote; the rest is assumed, and results
    say so. notes: what is odd about what was said.

        >>> import fleetsim as fs
        >>> job = fs.load("async-one-step")
        >>> job["fleet.instances"], job.with_({"fleet.instances": 5})["fleet.instances"], job["fleet.instances"]
        (4, 5, 4)
    """

    scenario: Scenario
    given: frozenset[str]
    notes: tuple[str, ...]
    _start: File
    _changes: Mapping[str, str]
    _options: Mapping[str, Any]
    _heard: Heard | None = None

    def __getitem__(self, path: str) -> Any:
        """The value at a dotted path of the scenario. Raises KeyError with the nearest name."""
        here: Any = self.scenario
        for key in path.split("."):
            fields = type(here).model_fields if hasattr(type(here), "model_fields") else {}
            if key not in fields:
                raise KeyError(f"{path}: no such value; {did_you_mean(key, fields)}")
            here = getattr(here, key)
        return here

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (self.scenario, self.given) == (other.scenario, other.given)

    def __hash__(self) -> int:
        return hash((self.scenario, self.given))

    def __repr__(self) -> str:
        return f"<Job {self.scenario.name!r}: {pool_words(self.scenario)}>"

    def _repr_html_(self) -> str:
        from fleetsim.job.told import document
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

    def to(self, framework: str) -> Exported:
        """The scenario as a framework's own configuration, and what cannot be told to it.

            >>> import fleetsim as fs
            >>> made = fs.load("presets/verl-fully-async").to("verl")
            >>> made.settings["async_training.staleness_threshold"], made.left_out
            (0.1, ())

        `text` is what to paste. Raises InputError for a framework that is not known or cannot run this at all.
        """
        from fleetsim.frameworks.export import scenario_to
        from fleetsim.job.engine_limits import generated_mean, limits_of, training_step_s

        name = self.scenario.name or "scenario"
        means = generated_mean(self.scenario), training_step_s(self.scenario)
        return scenario_to(framework, self.scenario, limits_of, name, *means)

    @keywords()
    def simulate(
        self,
        *,
        hours: float | None = None,
        scrape_interval_s: float | None = None,
        tell: Tell | None = None,
        **options: Unpack[Options],
    ) -> SimulateResult:
        """Runs the scenario `replications` times: `fleetsim simulate`.

        hours: as many steps as fill them, instead of `steps`. scrape_interval_s: keep what a Prometheus would have
        seen of the first run, so often (1 to 3600 s), for `to_openmetrics`. tell: hears what is being done.

        Raises InputError for a scenario that cannot be simulated, StuckError where its limits block each other.
        """
        from fleetsim.simulate.ask import Simulate, simulate

        job, steps = self.with_(None, **options), options.get("steps")
        return simulate(Simulate(job=job, steps=steps, hours=hours, scrape_interval_s=scrape_interval_s), told(tell))

    @keywords()
    def size(
        self, *, confidence: float | None = None, tell: Tell | None = None, **options: Unpack[Options]
    ) -> SizeResult:
        """The smallest rollout fleet that keeps the trainer busy: `fleetsim size`.

        confidence: the share of the cases that the inputs' errors leave in which the count is to hold the targets;
        without a target any share asks for the count of the least expected loss. The scenario's own count of instances
        is ignored. A fleet that cannot hold the targets is no error here: the result's `feasible` is False. Raises as
        `simulate`.
        """
        from fleetsim.size.ask import Size, size

        return size(Size(job=self.with_(None, **options), confidence=confidence), told(tell))

    @keywords()
    def split(
        self,
        gpus: int,
        *,
        by: Literal["step_s", "goodput", "cost_per_step"] = "step_s",
        allow: str | Sequence[str] = (),
        trainer_min_gpus: int | None = None,
        trainer_unit: int | None = None,
        tell: Tell | None = None,
        **options: Unpack[Options],
    ) -> SplitResult:
        """Share `gpus` GPUs between rollout and trainer, or split them, and how: `fleetsim split`.

        by: what the ways are ranked by. allow: what may change training ("staleness<=2"). trainer_min_gpus: fewest of
        the trainer, else what Adam's states need; trainer_unit: they come in multiples of it. Raises as `simulate`.
        """
        from fleetsim.split.ask import Split, split

        may = allow if isinstance(allow, str) else ",".join(allow)
        rules: Any = {"allow": may, "trainer_min_gpus": trainer_min_gpus, "trainer_unit": trainer_unit}
        return split(Split(job=self.with_(None, **options), gpus=gpus, by=by, **rules), told(tell))

    def plan(self, **options: Any) -> PlanResult:
        """`fleetsim.plan(self, **options)`: the best plans of this job within a budget."""
        from fleetsim.plan.ask import plan

        return plan(self, **options)

    @keywords()
    def trainer_step(self, **options: Unpack[Options]) -> TrainerEstimate:
        """Seconds and memory of a training step, estimated: `fleetsim profile trainer`.

        Without trainer_gpus it is the smallest trainer that fits. Raises InputError where one is too small, or for a
        model or GPU that is not known.
        """
        from fleetsim.job.trainer_estimate import trainer_estimate

        job = self.with_(None, **options)
        return trainer_estimate(job.scenario, job.given)

    def sweep(self, grid: Mapping[str, Sequence[Any]], **options: Any) -> SweepResult:
        """`fleetsim.sweep(self, grid, **options)`: every combination of some values."""
        from fleetsim.sweep.ask import sweep

        return sweep(self, grid, **options)

    def replay(self, history: str | os.PathLike[str] | History, **options: Any) -> ReplayResult:
        """`fleetsim.replay(history, self, **options)`: this job's policies and prices on what a fleet did."""
        from fleetsim.replay.ask import replay

        return replay(history, self, **options)


Start = Job | str | os.PathLike[str] | Mapping[str, Any] | Scenario | None
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
    _check(None if isinstance(start, (Job, Scenario)) else start, changes)
    if isinstance(start, Job):
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
        from fleetsim.replay.shown.shown import read_run, with_run

        heard = Heard(start, os.fspath(run), read_run(run) if history is None else history)
        start, shown = with_run(start, sets, options, run, heard.history)
    found = job_from_flags(start, sets, options)
    texts: dict[str, str] = {}
    for text in sets:  # what is said twice counts where it is said last
        texts.pop(path := text.partition("=")[0].strip(), None)
        texts[path] = text
    said = {name: value for name, value in options.items() if value is not None and place_of(name) is not None}
    return Job(found.scenario, found.given, (*found.notes, *shown), start, texts, said, heard)

"""A window of history, judged: what the fleet did, which side starves, and what another fleet would have done.

Its figures are what `fleetsim replay --fail-if` can ask.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fleetsim import units
from fleetsim.errors import InputError, Problem
from fleetsim.faces import Text
from fleetsim.job.result import SILENT, Briefed, Later, Watch, unchanging
from fleetsim.quantities import quantity
from fleetsim.records import as_dict, replace
from fleetsim.replay.questions import SAY_MORE

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.frameworks.patch import ConfigPatch
    from fleetsim.history.history import History
    from fleetsim.job.metrics import Metrics
    from fleetsim.replay.answers import Answers
    from fleetsim.replay.backtest import Backtest
    from fleetsim.replay.change.recommendation import AdvisedFleet
    from fleetsim.replay.diagnose.finding import Verdict
    from fleetsim.replay.observe.observed import Observed
    from fleetsim.replay.run import Replayed
    from fleetsim.tell.document import Document

# What `--fail-if` can ask, over the window that was read, in the order of the reference: what it is, where no other
# answer has it (of the oldest sample the largest age: a run's metric is the mean), and where it stands, None where the
# window does not have it.
_FIGURES: Mapping[str, tuple[str, Callable[[ReplayResult], float | None]]] = {
    "step_s": ("", lambda r: _of(r.observed.trainer.step_s, "value")),
    "trainer_idle_fraction": ("", lambda r: _of(r.observed.trainer.idle_fraction, "value")),
    "sync_fraction": ("", lambda r: r.observed.trainer.of_step(r.observed.trainer.sync_s)),
    "pause_share": ("", lambda r: _of(r.observed.pauses, "share")),
    "generated_tok_s": ("", lambda r: _of(r.observed.fleet, "tok_s")),
    "instance_tok_s": ("", lambda r: _of(r.observed.fleet, "instance_tok_s")),
    "instance_spread": (
        "standard deviation / mean of the instances' tok/s outside pauses",
        lambda r: _of(r.observed.fleet, "tok_s_cv"),
    ),
    "instances": ("instances present at the end of the window", lambda r: _of(r.observed.fleet, "instances_now")),
    "stragglers": (
        "number of instances that are slow at their own load",
        lambda r: float(sum(i.straggler for i in r.observed.instances)) if r.observed.instances else None,
    ),
    "kv_use_peak": (
        "99th percentile of KV cache use over instances and time",
        lambda r: _of(r.observed.fleet, "kv_use_peak"),
    ),
    "preemptions_per_s": ("", lambda r: _of(r.observed.fleet, "preemptions_per_s")),
    "prefix_hit": ("", lambda r: _of(r.observed.fleet, "prefix_hit")),
    "queue_depth": ("", lambda r: r.observed.queue.depth),
    "oldest_sample_age_steps": (
        "largest age of the oldest queued sample, steps",
        lambda r: r.observed.queue.oldest_age_max_steps,
    ),
    "tokens_per_trained_token": ("", lambda r: r.observed.queue.generated_per_trained),
    "gap_share": ("instance-time in which nothing was read / instance-time", lambda r: r.observed.gap_share),
    "model_error": (
        "largest error of the back-test: |predicted / observed - 1|, and the like for idle and queue",
        lambda r: abs(w.error) if r.replayed.backtest is not None and (w := r.replayed.backtest.worst) else None,
    ),
    "faults": ("number of findings that are faults", lambda r: float(len(r.verdict.faults))),
    "lost_gpu_h_per_day": (
        "GPU-hours per day that all findings cost together",
        lambda r: sum(f.gpu_h_per_day or 0.0 for f in r.verdict.findings),
    ),
}
METRICS = tuple(_FIGURES)


def formula(name: str) -> str:
    """What one of METRICS is."""
    return _FIGURES[name][0] or quantity(name).formula


def _of(view: object, name: str) -> float | None:
    """A number of a view of the window, where there is such a view."""
    found = None if view is None else getattr(view, name)
    return None if found is None else float(found)


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReplayResult(Briefed):
    """A window of history, judged.

    replayed: everything that was found (fleetsim/replay/run.py); what it may lack is None there, and an error that says
    why as a property here. answers: what was asked beyond it: what_if, sweep, recommendation (or withheld: why there is
    none), plan, verification; None = not asked. warnings: as on stderr. job_file: the window's job as `with_job_file`
    wrote it, None = not written.
    """

    history: History
    replayed: Replayed
    answers: Answers
    warnings: tuple[str, ...]
    job_file: str | None = None
    _advice: Later[list[dict[str, Any]]] | None = None

    def __repr__(self) -> str:
        what = f"{self.verdict.starves} starves; faults: {', '.join(self.verdict.faults) or 'none'}"
        return f"<ReplayResult of {self.history.source}: {what}>"

    @property
    def observed(self) -> Observed:
        """What the fleet did, as numbers."""
        return self.replayed.observed

    @property
    def verdict(self) -> Verdict:
        """Which side starves (`starves`) and why (`findings`)."""
        return self.replayed.verdict

    @property
    def metrics(self) -> Metrics:
        """What was observed, name -> Estimate by batch means, as `fleetsim compare` reads a window; only what the
        window tells (WINDOW_METRICS of fleetsim/quantities.py has all)."""
        from fleetsim.job.metrics import Metrics
        from fleetsim.replay.observe.window_metrics import window_means, window_of

        means, _ = window_means(window_of(self.history))
        return Metrics({name: found.estimate() for name, found in means.items()})

    @property
    def backtest(self) -> Backtest:
        """How well the simulation reproduces the window. Raises InputError where it was not asked for, or could not
        be."""
        if self.replayed.backtest is None:
            raise self._missing("backtest", "no back-test was asked for", "leave out backtest=False")
        return self.replayed.backtest

    @property
    def scenario(self) -> Scenario:
        """The scenario that the window implies. Raises InputError where it does not say enough."""
        if self.replayed.implied is None:
            raise self._missing("scenario", "nothing that needs it was asked for", "leave out backtest=False")
        return self.replayed.implied.scenario

    @property
    def recommendation(self) -> AdvisedFleet:
        """The fleet that the window's job should have. Raises InputError where none was asked for, or where it is
        withheld: a fault is to be mended first, or the simulation does not predict the window (`answers.withheld`)."""
        held = self.answers.withheld
        if held is not None:
            then = self.answers.then
            anew = "size it anew from a window after that"
            after = anew if then is None else f"then {units.plural(then.instances, 'instance')}"
            remedy = after if held.first else "see result.verdict and result.backtest for where to look"
            raise InputError([Problem("recommendation", self.history.source, f"is withheld: {held.why}", remedy)])
        if self.answers.recommendation is None:
            raise self._missing("recommendation", "none was asked for", "give recommend=True to fleetsim.replay")
        return self.answers.recommendation

    def with_job_file(self, path: str | os.PathLike[str]) -> ReplayResult:
        """Writes the window's job as a scenario, and its engine as a profile beside it (job.profile.json), and returns
        the result whose `advice` simulates that file. Existing files are replaced.

        Raises InputError where the window does not say enough for a job, OutsideError.
        """
        from fleetsim.replay.answers import window_advice, write_job

        if self.replayed.implied is None:
            raise self._missing(Text("--job-out", "job_file"), "nothing that needs the job was asked for", "ask for it")
        job_file = os.fspath(path)
        write_job(self.replayed.implied, job_file)
        advice = Later(partial(window_advice, self.replayed.implied, self.answers, job_file))
        return replace(self, job_file=job_file, _advice=advice)

    def to(self, framework: str, config: str | os.PathLike[str]) -> ConfigPatch:
        """What is recommended as changes of the job's own configuration, every other word of which stays as it is.

        Raises InputError where nothing is recommended, for a configuration that cannot be read, or that has another
        fleet than the window.
        """
        from fleetsim.job.in_frameworks import changed_in

        found, own = self.recommendation, self.replayed.implied
        assert own is not None  # what is recommended was simulated
        changes = {**found.changes, "fleet.instances": found.instances}
        return changed_in(framework, os.fspath(config), changes, own.scenario.fleet.instances)

    @property
    def advice(self) -> list[dict[str, Any]]:
        """The recommended fleet, the change that was asked for, the fleet as it is: what, the command that simulates it
        from the job's file, its promise, permission. Empty without that file: a window cannot be typed as flags."""
        return [] if self._advice is None else self._advice()

    def numbers(self) -> dict[str, float | None]:
        """What --fail-if can ask, None where the window does not have it."""
        return {name: read(self) for name, (_, read) in _FIGURES.items()}

    def _missing(self, what: str, unasked: str, remedy: str) -> InputError:
        """Why there is none: the window cannot be simulated, or nobody asked."""
        if self.replayed.unsimulated is not None:
            unasked = f"the window cannot be simulated: {self.replayed.unsimulated}"
            remedy = SAY_MORE
        return InputError([Problem(what, self.history.source, unasked, remedy)])

    def rows(self) -> list[dict[str, Any]]:
        """The findings, as under -o csv."""
        return [as_dict(finding) for finding in self.verdict.findings]

    def told(self) -> Document:
        """What there is to say of it."""
        from fleetsim.replay.told import document

        return document(self.replayed, self.answers, advice=self.advice)

    def page(self, watch: Watch = SILENT) -> str:
        """What the command writes under --html."""
        from fleetsim.replay.observe.over_time import over_time
        from fleetsim.replay.told import document
        from fleetsim.tell.page import document_page

        over = over_time(self.history, self.observed)
        return document_page(document(self.replayed, self.answers, over, self.warnings, self.advice))

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""
        from fleetsim.replay.facts import replay_document

        return replay_document(self.replayed, self.answers, self.advice)

"""`pack`: several jobs on one set of GPUs: which way to share them, and what that is for each job."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from fleetsim import units
from fleetsim.errors import InputError, Problem, Problems
from fleetsim.faces import flag
from fleetsim.job.result import SILENT, Gated, Watch, unchanging
from fleetsim.job.settings import JOB, RUN, Argument, Option
from fleetsim.pack.sandboxes import calls_tools
from fleetsim.pack.ways import JobShare, Packing, Way
from fleetsim.records import replace
from fleetsim.tell.data import head, plain, told
from fleetsim.tell.document import Document, Section, Table
from fleetsim.tell.facts import Fact, Facts, explained, facts

if TYPE_CHECKING:
    from fleetsim.engine.gpus import GpuSpec
    from fleetsim.job.base_job import Job

# --- Jobs that share GPUs, told: the way, each job's step and cost beside those alone, and the other ways.

_HOW = {
    "apart": "each job on GPUs of its own",
    "by_phase": "by phase: while one job trains, another generates",
    "one_trainer": "one trainer: each job generates on GPUs of its own, and they train in turn",
    "in_turn": "in turn: every job has all GPUs for a step",
    "together": "together, the adapters of all jobs on the same engines",
}
_SHOWN = 12


def pack_facts(result: Packing) -> Facts:
    """What one must know, as a table."""
    best = result.best
    names = units.listed([job.scenario.name for job in result.jobs])
    rule = "worst" if result.fair else "mean"
    if best is None:
        kept = units.listed([f"{_name(result, i)} within {units.share(x - 1, 0)}" for i, x in result.protected.items()])
        nearest = result.ways[0]
        return facts(
            f"No way to share {result.gpus:,} GPUs keeps {kept} of its step alone.",
            Fact("nearest", f"{_HOW[nearest.kind]} ({nearest.label})"),
            *_jobs(result, nearest),
            tone="bad",
        )
    return facts(
        f"{names} on {result.gpus:,} GPUs: {_HOW[best.kind]} ({best.label}).",
        *_jobs(result, best),
        Fact("duty", f"{units.share(best.duty, 0)} of the GPUs' time generates or trains"
                     + (f", {units.share(best.switching, 0)} goes to switches" if best.switching else ""),
             value=best.duty, unit="share", title="GPUs at work"),
        Fact("slower", f"{best.mean:.2f} times as long as alone on average, {best.worst:.2f} at the most",
             value=getattr(best, rule), unit="number", title=f"{rule} slow-down"),
        Fact("beside", _beside(result, best)),
        Fact("assumed", _switches(result) if best.switching else ""),
        explained("rule", f"The way with the least {rule} slow-down; alone, a job has all {result.gpus:,} GPUs"),
        explained("alone", "Alone: " + units.listed([
            f"{job.scenario.name} {units.seconds(s)}" for job, s in zip(result.jobs, result.alone_s, strict=True)])),
        explained("simulated", "Apart each job is simulated as by `fleetsim split`. On shared GPUs each is simulated "
                               "batch by batch on as many GPUs, or as far ahead as alone of a trainer that all share, "
                               "and its phases take turns with those of the others"),
        explained("sandboxes", _sandboxes(result)),
        explained("classes", _classes(result)),
        explained("together", _together(result)),
    )  # fmt: skip


def _name(result: Packing, job: int) -> str:
    return result.jobs[job].scenario.name


def _jobs(result: Packing, way: Way) -> Iterator[Fact]:
    for job, share in enumerate(way.shares):
        yield Fact(_name(result, job), _job(way, share), value=share.step_s, unit="seconds", title=_name(result, job))


def _job(way: Way, share: JobShare) -> str:
    where = f"{share.gpus:,} GPUs ({share.way})" if way.kind == "apart" else share.way
    return (
        f"a step of {units.seconds(share.step_s)}, {share.slower:.2f} times as long as alone, for "
        f"{units.money(share.usd)}; {where}"
    )


def _classes(result: Packing) -> str:
    """What a job of a higher class may do."""
    if not any(result.classes.values()):
        return ""
    ranked = sorted(range(len(result.jobs)), key=lambda job: -result.classes.get(job, 0))
    names = ", ".join(_name(result, job) for job in ranked)
    return (
        f"On shared GPUs goes first, of those that ask: {names}. A rollout of a lower class gives way at once "
        "and goes on later; training is never interrupted; a way in which a class would get no turn is left out"
    )


def _sandboxes(result: Packing) -> str:
    """Who has the one pool."""
    if result.sandboxes is None:
        return ""
    return (
        f"All jobs have one pool of {result.sandboxes:,} sandboxes, also alone, and pay for it alike. Apart their "
        "calls wait in one queue: each job is simulated with the part that its calls have of it in the mean; in turn "
        "each has all of it"
    )


def _together(result: Packing) -> str:
    """How jobs on the same engines are predicted, or why they are not."""
    if result.sandboxes is not None:
        return "Jobs on the same engines, or with one trainer, are not simulated with one pool of sandboxes"
    if any(way.kind == "together" for way in result.ways):
        return (
            "Together each job is simulated on engines that the requests of the others slow down and fill in the mean; "
            "bursts of two jobs that meet are left out"
        )
    return (
        "Jobs have the same engines at the same time only where their engines differ in nothing but LoRA adapters "
        "(engine.lora) and the GPUs are enough for a trainer each"
    )


def _beside(result: Packing, best: Way) -> str:
    """The best of the other kinds."""
    found: dict[str, Way] = {}
    for way in result.ways:
        if way.kind != best.kind:
            found.setdefault(way.kind, way)
    return "; ".join(f"{_HOW[w.kind].split(':')[0]} ({w.label}) {w.mean:.2f} times" for w in found.values())


def _switches(result: Packing) -> str:
    least, most = min(result.switch_s), max(result.switch_s)
    each = units.seconds(least) if least == most else f"{units.seconds(least)} to {units.seconds(most)}"
    return f"{each} until GPUs that another job had serve the next one (--switch-s)"


def document(result: Packing) -> Document:
    """What `pack` says."""
    return Document(
        "fleetsim pack", pack_facts(result), (Section("All ways", (_table(result),), short="ways"),), result.warnings
    )


def _table(result: Packing) -> Table:
    names = [job.scenario.name for job in result.jobs]
    rows = tuple(
        (
            way.kind.replace("_", " "),
            way.label,
            *(units.seconds(share.step_s) for share in way.shares),
            f"{way.mean:.2f}",
            f"{way.worst:.2f}",
            units.share(way.duty, 0),
            units.money(way.usd_per_round),
        )
        for way in result.ways[:_SHOWN]
    )
    headings = ("way", "GPUs", *(f"{name}, a step" for name in names), "mean", "worst", "at work", "cost")
    left = len(result.ways) - len(rows)
    note = "Mean and worst: steps / those alone. Cost: of a step of every job."
    return Table("every way", headings, rows, left=2, note=f"{note} {left} more are left out." if left else note)


def pack_document(result: Packing) -> dict[str, Any]:
    """The document of `fleetsim pack --json`."""
    from fleetsim.search.reasons import Advised, advice_data

    best = result.best
    advice = []
    for job, outcome in zip(result.jobs, best.outcomes if best else (), strict=False):
        advice += advice_data(job, [Advised(f"{job.scenario.name}: {outcome.arrangement.label}",
                                            outcome.arrangement.scenario, outcome.estimates)])  # fmt: skip
    return {
        **head("pack", result.jobs[0].scenario),
        **told(pack_facts(result)),
        "scenario": None,
        "jobs": [{"name": job.scenario.name, "alone_step_s": s}
                 for job, s in zip(result.jobs, result.alone_s, strict=True)],
        "gpus": result.gpus,
        "sandboxes": result.sandboxes,
        "rule": "least worst slow-down" if result.fair else "least mean slow-down",
        "protected": {_name(result, i): most for i, most in result.protected.items()},
        "classes": {_name(result, i): rank for i, rank in result.classes.items()},
        "best": None if best is None else _way(best),
        "ways": [_way(way) for way in result.ways],
        "advice": advice,
        "warnings": list(result.warnings),
    }  # fmt: skip


def _way(way: Way) -> dict[str, Any]:
    names = ("kind", "label", "duty", "switching", "mean", "worst", "usd_per_round")
    return {**{name: getattr(way, name) for name in names}, "shares": plain(list(way.shares))}


# --- What can be asked.

# More jobs than this have too many ways to share.
MOST_JOBS = 4
_RULES = "What is best"
# What --fail-if can name: slow-downs against alone, the part of the GPUs' time at work, dollars of a step of each job.
NUMBERS = ("mean", "worst", "duty", "usd_per_round")


@dataclass(frozen=True, kw_only=True)
class Pack:
    """Which way to share these GPUs among jobs?

    made: the jobs where they are no files.
    """

    jobs: Annotated[list[str] | None, Argument("Scenario files, or names of shipped ones.", "JOB...")] = None
    gpus: Annotated[int, Option("GPUs of all jobs together.", JOB)]
    switch_s: Annotated[
        float | None, Option("Seconds until GPUs that another job had serve this one (fleet.switch_s, or 5).", JOB)
    ] = None
    sandboxes: Annotated[
        int | None, Option("Sandboxes of all jobs together: one pool. Else each job has those best for it.", JOB)
    ] = None
    fair: Annotated[bool, Option("The least worst slow-down; else the least mean slow-down of the jobs.", _RULES)] = (
        False
    )
    protect: Annotated[
        list[str] | None,
        Option("A step of this job is longer by at most so much. Repeatable.", _RULES, metavar="JOB:PERCENT"),
    ] = None
    priority: Annotated[
        list[str] | None,
        Option(
            "Class of this job, 0 if not said: the higher one goes first on shared GPUs, and rollouts of a lower one "
            "give way. Repeatable.",
            _RULES,
            metavar="JOB:CLASS",
        ),
    ] = None
    seed: Annotated[int | None, Option("Random seed of all jobs.", RUN)] = None
    made: tuple[Any, ...] = ()

    def ready(self) -> Self:
        """The same question with its jobs made. Raises InputError with all that is wrong."""
        from fleetsim.job.base_job import load

        wrong = Problems()
        made = list(self.made) or [wrong.made(load, name) for name in self.jobs or ()]
        wrong.stop()
        jobs = tuple(job if self.seed is None else job.with_({"run.seed": self.seed}) for job in made)
        if problems := [*_unlike(jobs), *self._wrong()]:
            raise InputError(problems)
        if self.sandboxes is not None and not any(calls_tools(job.scenario) for job in jobs):
            rule = "no job calls a tool that takes time"
            raise InputError([Problem(flag("sandboxes"), self.sandboxes, rule, "leave it out")])
        asked = replace(self, made=_named(jobs, self.jobs))
        asked.protected()
        asked.classes()
        return asked

    def _wrong(self) -> list[Problem]:
        found = []
        if not 1 <= self.gpus <= 100_000:
            found.append(Problem(flag("gpus"), self.gpus, "must be between 1 and 100,000", "for example 64"))
        if self.switch_s is not None and not 0 <= self.switch_s <= 1e6:
            found.append(Problem(flag("switch_s"), self.switch_s, "must be 0 to 1,000,000 seconds", "for example 5"))
        if self.sandboxes is not None and not 1 <= self.sandboxes <= 1_000_000:
            found.append(Problem(flag("sandboxes"), self.sandboxes, "must be 1 to 1,000,000", "for example 96"))
        return found

    def protected(self) -> Mapping[int, float]:
        """Number of a job -> the largest slow-down that it may have. Raises InputError for what names none."""
        rule = "must read JOB:PERCENT, the name of a job and per cent by which its step may be longer"
        found = self._of_jobs("protect", self.protect, rule, "10", lambda x: 0 <= x <= 1e6)
        return {job: 1.0 + percent / 100.0 for job, percent in found.items()}

    def classes(self) -> Mapping[int, int]:
        """Number of a job -> its class. Raises InputError for what names none."""
        rule = "must read JOB:CLASS, the name of a job and a whole number"
        found = self._of_jobs("priority", self.priority, rule, "1", lambda x: x == int(x) and abs(x) <= 1e9)
        return {job: int(x) for job, x in found.items()}

    def _of_jobs(
        self, name: str, texts: Sequence[str] | None, rule: str, example: str, may_be: Callable[[float], bool]
    ) -> dict[int, float]:
        """Number of a job -> the number that is said of it."""
        names = [job.scenario.name for job in self.made]
        found, problems = {}, []
        for text in texts or ():
            job, _, number = text.rpartition(":")
            try:
                value = float(number)
            except ValueError:
                value = math.nan
            if job not in names or not math.isfinite(value) or not may_be(value):
                problems.append(Problem(flag(name), text, rule, f"for example {names[0]}:{example}"))
            else:
                found[names.index(job)] = value
        if problems:
            raise InputError(problems)
        return found


def _unlike(jobs: Sequence[Job]) -> list[Problem]:
    """What keeps jobs from sharing GPUs."""
    from fleetsim.engine.gpus import gpu_of
    from fleetsim.sim.pools import check_one_make

    if not 2 <= len(jobs) <= MOST_JOBS:
        return [Problem("JOB", len(jobs), f"two jobs at least, {MOST_JOBS} at most", "fleetsim split for one job")]
    for job in jobs:
        check_one_make(job.scenario, "pack")
    sheets: list[GpuSpec] = [gpu_of(job.scenario.engine) for job in jobs]
    names = sorted({sheet.name for sheet in sheets})
    if len(names) > 1:
        return [Problem("engine.gpu", ", ".join(names), "one set of GPUs is of one type", "give all jobs the same GPU")]
    return []


def _named(jobs: Sequence[Job], files: Sequence[str] | None) -> tuple[Job, ...]:
    """The jobs, each by a name of its own: where two have one, by their files, or a number."""
    names = [job.scenario.name for job in jobs]
    if len(set(names)) == len(names):
        return tuple(jobs)
    by_file = [name.rsplit("/", 1)[-1].rsplit(".", 1)[0] for name in files or ()]
    if len(set(by_file)) != len(names):
        by_file = [f"{name} {i + 1}" for i, name in enumerate(names)]
    return tuple(job.with_({"name": name}) for job, name in zip(jobs, by_file, strict=True))


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PackResult(Packing, Gated):
    """How several jobs share GPUs, as it is read in a terminal, on a page and as JSON."""

    def __repr__(self) -> str:
        return f"<PackResult: {'nothing fits' if self.best is None else f'{self.best.kind} {self.best.label}'}>"

    def numbers(self) -> dict[str, float]:
        """What --fail-if can ask."""
        return {} if self.best is None else {name: float(getattr(self.best, name)) for name in NUMBERS}

    def missed(self) -> str:
        """What --protect asks for and no way keeps."""
        return "" if self.best else "no way keeps what --protect asks for; the nearest is printed above"

    def told(self) -> Document:
        """What there is to say of it."""
        return document(self)

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""
        return pack_document(self)


def pack(asked: Pack, watch: Watch = SILENT) -> PackResult:
    """Every way to share the GPUs, and the best.

    Raises InputError for jobs that cannot share GPUs, or that together need more than there are.
    """
    from fleetsim.job.trials import remembered, simulated
    from fleetsim.pack.ways import Pool, chosen

    asked = asked.ready()
    protect, classes = asked.protected(), asked.classes()
    watch.loaded()
    pool = Pool(asked.made, asked.gpus, asked.switch_s, classes, remembered(simulated), watch, asked.sandboxes)
    alone = tuple(pool.alone_s(i) for i in range(len(asked.made)))
    ways = pool.ways()
    if not ways:
        rule = "no way to share them leaves every job what it needs"
        raise InputError([Problem(flag("gpus"), asked.gpus, rule, "more GPUs, or fewer jobs")])

    def by(way: Way) -> tuple[float, float]:
        return (way.worst, way.mean) if asked.fair else (way.mean, way.worst)

    ordered = tuple(sorted(ways, key=by))
    notes = tuple(f"{job.scenario.name}: {note}" for job in asked.made for note in job.notes)
    return PackResult(
        asked.made, asked.gpus, ordered, chosen(ordered, protect, by), alone, asked.fair, protect,
        tuple(map(pool.switch_s_of, pool.scenarios)), classes, notes, asked.sandboxes,
    )  # fmt: skip

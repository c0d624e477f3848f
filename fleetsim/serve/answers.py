"""What a page asks, answered: the count with its curve at once, all that `size` says a little later, a file as a job.

Nothing that a page sends names a file of this machine: a job starts from a shipped scenario, or is the one that the
page holds; values that look like paths are refused. Each kind of question has a process of its own, so that a slider
need not wait for a whole answer.
"""

from __future__ import annotations

import multiprocessing
import os
import shlex
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetsim.errors import FleetsimError, InputError, Problem

if TYPE_CHECKING:
    from fleetsim.api.job import Job
    from fleetsim.config.scenario import Scenario
    from fleetsim.job.trials import Trial
    from fleetsim.tell.facts import Facts

# Seconds that the curve may take beside the count, where somebody waits for a slider.
_CURVE_S = 0.15
_MOST_OF_A_MAPPING = 5000
# Counts on each side of the answer that the curve has at least.
_NEXT = 3
# Keys whose texts nothing opens.
_PROSE = ("description", "source")


def count(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The count, what its fleet does, and as much of the curve as there is time for.

    asked: `start` (a shipped name, a scenario as a mapping, or nothing), `options` (as of `fleetsim.load`, and
    values by dotted path). Raises InputError, StuckError.
    """
    from fleetsim.job.facts import run_facts
    from fleetsim.job.trainer_scaling import count_words
    from fleetsim.job.trials import remembered, simulated, with_instances
    from fleetsim.job.words import binding_line
    from fleetsim.size.size import decided
    from fleetsim.tell.facts import Fact, facts

    job = _job(asked)
    found = decided(job.scenario, job.given, remembered(simulated))
    best, trials = found.best.instances, found.trials
    chosen = trials.at(best, found.job.run.replications)
    curve, until = {best: chosen}, time.monotonic() + _CURVE_S
    for instances in _counts(found.job, best):
        if time.monotonic() > until:
            break
        curve[instances] = trials.at(instances, 1)
    table = facts(
        f"{count_words(found.job, best)}, in the likeliest case.",
        run_facts(chosen.estimates, with_instances(found.job, best)),
        Fact("binds", binding_line(chosen.binding, found.job, chosen.estimates)),
    )
    return {"whole": False, **_told(job, best, table, curve)}


def whole(asked: Mapping[str, Any]) -> dict[str, Any]:
    """All that the first screen of `fleetsim size` says, and the curve. Raises InputError, StuckError."""
    from fleetsim.job.trials import Trials, remembered, simulated
    from fleetsim.size.facts import brief_facts
    from fleetsim.size.size import size

    job, measure = _job(asked), remembered(simulated)
    plan = size(job.scenario, given=job.given, notes=job.notes, brief=True, measure=measure)
    trials, near = Trials(plan.scenario, measure), _counts(plan.scenario, plan.instances)
    curve = {n: trials.at(n, 1) for n in near} | {plan.instances: plan.recommended}
    return {"whole": True, "warnings": list(plan.warnings), **_told(job, plan.instances, brief_facts(plan), curve)}


def read(name: str, framework: str | None, content: bytes) -> dict[str, Any]:
    """A log, or a configuration of a framework, as the job that a page goes on with. framework: None for a log.

    The file lies in a folder of its own while it is read. Raises InputError.
    """
    from fleetsim.api import load, read_config
    from fleetsim.replay.shown import run_file

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / (Path(name).name or "file")
        place.write_bytes(content)
        try:
            if framework:
                found = read_config(framework, str(place))
                notes = [f"{one.path} = {one.value}: {one.why}" for one in found.assumed]
                return {"start": found.raw, "notes": notes, "name": load(found.raw).scenario.name}
            run = run_file(None, (), str(place))
            return {"start": run.raw, "notes": list(run.notes), "name": place.name}
        except InputError as error:
            raise InputError([_without(folder, problem) for problem in error.problems]) from None


def problems_of(error: InputError) -> list[dict[str, str]]:
    """What is wrong, as a page shows it."""
    return [{"path": str(p.path), "text": str(p)} for p in error.problems]


def _job(asked: Mapping[str, Any]) -> Job:
    from fleetsim.api import load, scenarios

    start, options = asked.get("start"), asked.get("options") or {}
    wrong = [Problem(p, v, "is a path, and a page reads no files here", "send the file") for p, v in _paths(asked)]
    if isinstance(start, str) and not any(start in (name, name.rpartition("/")[2]) for name in scenarios()):
        wrong.append(Problem("start", start, "is no shipped scenario", "see fleetsim scenario ls"))
    if not (start is None or isinstance(start, (str, dict))) or not isinstance(options, dict):
        wrong.append(Problem("start", type(start).__name__, "must be a name or a mapping", "reload the page"))
    if "profile" in options or "run" in options:
        wrong.append(Problem("options", "profile, run", "name files", "send a log, or use the command line"))
    if wrong:
        raise InputError(wrong)
    changes = {name: value for name, value in options.items() if "." in name}
    return load(start, changes, **{name: value for name, value in options.items() if name not in changes})


def _paths(asked: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Values that name a file, or may; raises InputError for what is too large to be a job."""
    left, seen = [(path, asked)], 0
    while left:
        place, value = left.pop()
        seen += 1
        if seen > _MOST_OF_A_MAPPING:
            raise InputError([Problem("start", f"{seen} values", "is too large for a page", "use the command line")])
        if isinstance(value, dict):
            left += [(f"{place}.{key}".lstrip("."), one) for key, one in value.items()]
        elif isinstance(value, list):
            left += [(place, one) for one in value]
        elif isinstance(value, str) and place.rpartition(".")[2] not in _PROSE and _like_a_path(value):
            yield place, value


def _like_a_path(value: str) -> bool:
    return value.startswith(("/", "~", ".")) or "\\" in value or value.endswith((".json", ".csv", ".gz"))


def _without(folder: str, problem: Problem) -> Problem:
    """The problem, without the folder that the page never saw."""
    path, rule, remedy = (text.replace(f"{folder}/", "") for text in (problem.path, problem.rule, problem.remedy))
    return Problem(path, str(problem.value).replace(f"{folder}/", ""), rule, remedy)


def _counts(scenario: Scenario, best: int) -> list[int]:
    """Counts of the curve, the nearest to the answer first: from half of it to its double, at least the next ones."""
    from fleetsim.job.trials import unit_of
    from fleetsim.size.spread import counts_around

    unit = unit_of(scenario)
    near = {best + k * unit for k in range(-_NEXT, _NEXT + 1)}
    return sorted({n for n in near if n >= unit} | {*counts_around(best, unit=unit)}, key=lambda n: abs(n - best))


def _told(job: Job, best: int, table: Facts, curve: Mapping[int, Trial]) -> dict[str, Any]:
    from fleetsim.job.command import call_again

    return {
        "instances": best,
        "answer": table.answer,
        "tiles": [{"title": one.title, "figure": one.figure, "beside": one.beside} for one in table.tiles],
        "lines": [[label, str(said)] for label, said in table.lines],
        "curves": "".join(_curve(metric, best, curve) for metric in ("step_s", "cost_per_step")),
        "values": _values(job),
        "command": shlex.join(call_again("size", job)),
    }


def _curve(metric: str, best: int, curve: Mapping[int, Trial]) -> str:
    """What depends on the count, drawn as on the pages of --html."""
    from fleetsim import units
    from fleetsim.quantities import quantity
    from fleetsim.tell.charts.draw import chart_html
    from fleetsim.tell.charts.kinds import Curve, curve_chart

    q, ran = quantity(metric), sorted((n, trial) for n, trial in curve.items() if trial.stuck is None)
    points = Curve(q.title, [float(n) for n, _ in ran], [trial.estimates[metric] for _, trial in ran])
    drawn = curve_chart(
        metric, units.capital(q.title), "", [points], x_title="instances", y_title=q.title, how=q.unit,
        recommended=float(best), height_px=180,
    )  # fmt: skip
    return f"<figure><h2>{drawn.title}</h2>{chart_html(drawn)}</figure>"


def _values(job: Job) -> dict[str, Any]:
    """What each row of the form is in this job, of a law its mean; a row that nothing says is left out."""
    from fleetsim.job.derived_values import training_step_s
    from fleetsim.job.nameplate import generated_mean
    from fleetsim.job.settings import place_of
    from fleetsim.serve.form import form_fields
    from fleetsim.workload.lengths import mean_length
    from fleetsim.workload.turns import mean_turns

    # What a flag says of several keys at once.
    found: dict[str, Any] = {
        "len": round(generated_mean(job.scenario)), "trainer_step_s": round(training_step_s(job.scenario), 2),
        "turns": round(mean_turns(job.scenario.workload), 2),
    }  # fmt: skip
    for name in (field.name for field in form_fields() if field.name not in found):
        with suppress(KeyError, AttributeError):
            value = job[place_of(name) or ""]
            law = value is not None and not isinstance(value, (int, float, str))
            found[name] = round(mean_length(value, at_least=0.0), 2) if law else value
    return {name: value for name, value in found.items() if value is not None}


# --- Processes that answer. An answer that takes too long ends its process, and a new one takes its place. Memory is
# bounded where the system can.

# Bytes of address space that a process of ours may have.
_MEMORY = 6 << 30
_TOO_LARGE = "the answer needs more memory than a page may have"


def refusal(why: str) -> dict[str, Any]:
    """What a page is told where it gets no answer, and no value of its is to blame."""
    return {"problems": [{"path": "", "text": why}]}


class TooLongError(Exception):
    """No answer within the seconds that there were."""


class Worker:
    """One process, one question at a time. limit_s: of an answer."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._lock = threading.Lock()
        self._process: Any = None
        self._pipe: Connection | None = None

    def start(self) -> None:
        """Starts the process; what it needs is imported there before the first question."""
        with self._lock:
            self._ready()

    def ask(self, what: str, *arguments: Any) -> dict[str, Any]:
        """The answer of a function in `answers.py`, or {"problems": [...]} for what is wrong with the question.

        Raises TooLongError. To be called from a thread: it waits.
        """
        with self._lock:
            pipe = self._ready()
            try:
                pipe.send((what, arguments))
                if not pipe.poll(self.limit_s):
                    self._end()
                    raise TooLongError(f"no answer within {self.limit_s:g} s; the command line has no such limit")
                answer: dict[str, Any] = pipe.recv()
            except (EOFError, OSError):
                self._end()
                return refusal(_TOO_LARGE)
        return answer

    def stop(self) -> None:
        """Ends the process, whatever it does."""
        self._end()

    def _ready(self) -> Connection:
        if self._pipe is None or not self._process.is_alive():
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_answer, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        return self._pipe

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join(5)
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


def _answer(pipe: Connection) -> None:
    """What a process does: answers until nobody asks any longer."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends it
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    with tempfile.TemporaryDirectory() as folder, suppress(EOFError, OSError):
        os.chdir(folder)  # a name that a page sends is no file there
        from fleetsim.sim.processes import VARIABLE

        os.environ[VARIABLE] = "1"  # the memory of others would not be bounded
        known: Mapping[str, Callable[..., dict[str, Any]]] = {"count": count, "whole": whole, "read": read}
        while True:
            what, arguments = pipe.recv()
            pipe.send(_answered(known[what], arguments))


def _answered(function: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> dict[str, Any]:
    try:
        return function(*arguments)
    except InputError as error:
        return {"problems": problems_of(error)}
    except FleetsimError as error:
        return refusal(str(error))
    except MemoryError:
        return refusal(_TOO_LARGE)

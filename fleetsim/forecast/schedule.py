"""What changes over the steps of a run, from the command line, a CSV or a log; and the run in pieces between them."""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.estimates import Estimate
from fleetsim.faces import flag
from fleetsim.job.trials import Measure, trial_of
from fleetsim.sim.threads import side_by_side

Points = tuple[tuple[int, float], ...]
SCHEDULE = flag("schedule")


class Scheduled(Struct, frozen=True):
    """What may change. option: the keyword of a job that says it, path: or the value of a scenario. smooth: between two
    points it moves in a straight line; else it keeps its value until the next point. whole: a count."""

    words: str
    option: str = ""
    path: str = ""
    smooth: bool = False
    whole: bool = True


SCHEDULED: Mapping[str, Scheduled] = {
    "len": Scheduled("mean generated tokens", option="len", smooth=True, whole=False),
    "max_len": Scheduled("longest response, tokens", option="max_len"),
    "batch": Scheduled("samples per optimizer step", option="batch"),
    "filter": Scheduled(
        "share of groups that are filtered", path="workload.filter.zero_variance_share", smooth=True, whole=False
    ),
    "turns": Scheduled("turns of a rollout", path="workload.turns.count"),
    "instances": Scheduled("rollout instances", option="instances"),
}


class Schedule(Struct, frozen=True):
    """columns: name -> points in ascending order of steps. source: where each comes from, in words."""

    columns: Mapping[str, Points]
    source: Mapping[str, str]

    def at(self, step: int) -> dict[str, Any]:
        """The values in this step; before a first point there is none, unless it moves: then it is that point's."""
        found: dict[str, Any] = {}
        for name, points in self.columns.items():
            what, k = SCHEDULED[name], bisect_right([at for at, _ in points], step)
            if k == 0 and not what.smooth:
                continue
            value = points[max(0, k - 1)][1]
            if what.smooth and 0 < k < len(points):
                (a, x), (b, y) = points[k - 1], points[k]
                value = x + (y - x) * (step - a) / (b - a)
            found[name] = round(value) if what.whole else float(value)
        return found

    def beside(self, more: Schedule) -> Schedule:
        """Both; what this one says wins."""
        return Schedule({**more.columns, **self.columns}, {**more.source, **self.source})

    def moves(self, first: int, last: int) -> bool:
        """Whether a value moves in a straight line somewhere between two steps."""
        start, end = self.at(first), self.at(last)
        return any(SCHEDULED[name].smooth and start.get(name) != end.get(name) for name in self.columns)

    def jumps(self, step: int) -> bool:
        """Whether a value takes another in this step at once."""
        held = [points for name, points in self.columns.items() if not SCHEDULED[name].smooth]
        return any(at == step for points in held for at, _ in points)

    def stretches(self, steps: int) -> tuple[tuple[int, int], ...]:
        """The run in stretches from one point to the next: first and last step of each. Inside one nothing jumps."""
        begins = {0, *(at for points in self.columns.values() for at, _ in points if 0 < at < steps)}
        bounds = sorted(begins)
        return tuple((a, b - 1) for a, b in pairwise([*bounds, steps]))

    def words(self, steps: int) -> str:
        """ "mean generated tokens 1,500 to 4,000 by step 500; samples per optimizer step 512, 1,024 from step 300"."""
        said = []
        for name, points in self.columns.items():
            what, shown = SCHEDULED[name], [(at, value) for at, value in points if at < steps]
            if what.smooth:
                shown = shown or [points[0]]  # before its first point a value is that point's
                last = shown[-1] if len(points) == len(shown) else (steps - 1, self.at(steps - 1)[name])
                changed = any(value != shown[0][1] for _, value in (*shown, last))
                to = f" to {last[1]:,.6g} by step {last[0]:,}" if changed else ""
                said.append(f"{what.words} {shown[0][1]:,.6g}{to}")
            elif shown:
                parts = [f"{value:,.6g}{f' from step {at:,}' if at else ''}" for at, value in shown]
                said.append(f"{what.words} {', '.join(parts)}")
        return "; ".join(said)


NOTHING = Schedule({}, {})


def schedule_of(texts: Sequence[str]) -> Schedule:
    """The schedule that texts say: `len=0:1500,500:4000` each, or the path of a CSV file with a column `step`.

    Raises InputError with all that is wrong, OutsideError for a file that cannot be read.
    """
    columns: dict[str, Points] = {}
    source: dict[str, str] = {}
    problems: list[Problem] = []
    for text in texts:
        name, equals, points = text.partition("=")
        try:
            found = {name.strip(): _points(text, points)} if equals else _of_file(text)
        except InputError as error:
            problems += error.problems
            continue
        for column, values in found.items():
            wrong = _wrong(text, column, values)
            problems += [wrong] if wrong else []
            columns[column], source[column] = values, SCHEDULE if equals else text
    if problems:
        raise InputError(problems)
    return Schedule(columns, source)


def _wrong(text: str, name: str, points: Points) -> Problem | None:
    if name not in SCHEDULED:
        return Problem(SCHEDULE, text, f"{name or 'nothing'} is no value that has a schedule", _NAMES)
    steps = [at for at, _ in points]
    if any(b <= a for a, b in pairwise(steps)) or steps[0] < 0:
        return Problem(SCHEDULE, text, "its steps must be 0 or more and increase", "sort them, each once")
    low = 0.0 if name == "filter" else 1.0
    if any(not low <= value <= (0.999 if name == "filter" else 1e9) for _, value in points):
        return Problem(SCHEDULE, text, f"a value of {name} is out of range", "0.3 filters 30 % of the groups")
    return None


_NAMES = f"give one of {', '.join(SCHEDULED)}"


def _points(text: str, written: str) -> Points:
    """`0:1500,500:4000` as points; a single number is its value from step 0 on."""
    try:
        pairs = [part.split(":") for part in written.split(",")]
        if len(pairs) == 1 and len(pairs[0]) == 1:
            return ((0, float(pairs[0][0])),)
        return tuple((int(at), float(value)) for at, value in pairs)
    except ValueError:
        rule, remedy = "is no list of STEP:VALUE", "for example len=0:1500,500:4000"
        raise InputError([Problem(SCHEDULE, text, rule, remedy)]) from None


def _of_file(path: str) -> dict[str, Points]:
    """The columns of a CSV file; an empty cell is no point."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        remedy = "give len=0:1500,500:4000, or a CSV file with a column step"
        raise InputError([Problem(SCHEDULE, path, "there is no such file", remedy)]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise OutsideError(f"{SCHEDULE} {path}: it cannot be read ({error})") from None
    names = [name for name in (rows[0] if rows else {}) if name and name.strip() != "step"]
    if not names or "step" not in rows[0]:
        rule = "needs a heading, a column step, and one of a value"
        raise InputError([Problem(SCHEDULE, path, rule, f"columns may be step, {', '.join(SCHEDULED)}")])
    return {name.strip(): _column(path, rows, name) for name in names}


def _column(path: str, rows: Iterable[Mapping[str, Any]], name: str) -> Points:
    found = [(row["step"], row[name]) for row in rows if (row[name] or "").strip()]
    try:
        points = tuple((int(step), float(value)) for step, value in found)
    except (TypeError, ValueError):
        rule = f"column {name} has a cell that is no number"
        raise InputError([Problem(SCHEDULE, path, rule, "leave cells empty where nothing changes")]) from None
    if not points:
        raise InputError([Problem(SCHEDULE, path, f"column {name} is empty", "leave the column out")])
    return points


Floats = NDArray[np.float64]

# --- A run in pieces: a few long runs at points of its schedule, and straight lines between them.
#
# A long run says what a step takes once the pipeline is full (`sim/run.py`). Along a stretch in which a value moves,
# it is asked at both ends and in the middle, and again between two of these where the middle is off the line by more
# than `_OFF`; what is left between the points is smaller than what was found there.

# A middle that is off the straight line by this share of a step is a point of its own; points of a stretch, at most.
_OFF, _MOST_POINTS = 0.01, 9


class CoursePoint(Struct, frozen=True):
    """A step at which a long run was made. metrics: of its replications, flat. binding: what held it up."""

    step: int
    values: Mapping[str, Any]
    scenario: Scenario
    metrics: Mapping[str, Estimate]
    binding: str


class RunCourse(Struct, frozen=True):
    """steps: of the run. stretches: the points of each, ascending; one alone holds for all of its stretch. off: by how
    much of a step the points that were added last differ from the line that they replaced, at most."""

    steps: int
    stretches: tuple[tuple[tuple[int, int], tuple[CoursePoint, ...]], ...]
    off: float

    @property
    def points(self) -> tuple[CoursePoint, ...]:
        """All points in the order of steps."""
        return tuple({point.step: point for _, points in self.stretches for point in points}.values())

    def bound_by(self) -> tuple[tuple[int, str], ...]:
        """What binds, from which step on: of two points of a stretch with others, half-way between them."""
        found: list[tuple[int, str]] = []
        for (first, _), points in self.stretches:
            before = first
            for point in points:
                if not found or found[-1][1] != point.binding:
                    found.append(((before + point.step + 1) // 2, point.binding))
                before = point.step
        return tuple(found)

    def per_step(self, of: Callable[[CoursePoint], float]) -> Floats:
        """A figure of every step, shape (steps,)."""
        found = np.empty(self.steps)
        for (first, last), points in self.stretches:
            at = np.arange(first, last + 1)
            found[first : last + 1] = np.interp(at, [p.step for p in points], [of(p) for p in points])
        return found

    def metric(self, name: str, end: str = "mean") -> Floats:
        """A metric of every step: its mean, or an end of its interval over the seeds (ci_low, ci_high)."""
        return self.per_step(lambda point: float(getattr(point.metrics[name], end)))

    def middle(self) -> CoursePoint:
        """The point nearest to the step at which half of the seconds are over."""
        over = np.cumsum(self.metric("step_s"))
        half = int(np.searchsorted(over, over[-1] / 2))
        return min(self.points, key=lambda point: abs(point.step - half))


Scene = Callable[[Mapping[str, Any]], Scenario]


def course_of(
    scene: Scene,
    schedule: Schedule,
    steps: int,
    replications: int,
    measure: Measure,
    tell: Callable[[str], None] = lambda text: None,
) -> RunCourse:
    """The course of a run. scene: the scenario of a step's values. Raises InputError, StuckError as a simulation."""
    known: dict[tuple[tuple[str, Any], ...], tuple[Scenario, Mapping[str, Estimate], str]] = {}

    def at(step: int) -> CoursePoint:
        values = schedule.at(step)
        key = tuple(sorted(values.items()))
        if key not in known:
            tell(f"simulating step {step:,} of {steps:,}")
            scenario = scene(values)
            runs = side_by_side(lambda r: measure(scenario, r), range(replications))
            trial = trial_of(scenario.fleet.instances, runs)
            known[key] = scenario, trial.estimates, trial.binding
        return CoursePoint(step, values, *known[key])

    stretches, off = [], 0.0
    for first, last in schedule.stretches(steps):
        if not schedule.moves(first, last):
            stretches.append(((first, last), (at(first),)))
            continue
        # where nothing jumps, one stretch ends with the point that the next begins with
        end = last if last + 1 == steps or schedule.jumps(last + 1) else last + 1
        points, worst = _refined(at, first, end)
        off = max(off, worst)
        stretches.append(((first, last), points))
    return RunCourse(steps, tuple(stretches), off)


def _refined(at: Callable[[int], CoursePoint], first: int, last: int) -> tuple[tuple[CoursePoint, ...], float]:
    """Points of a stretch in which something moves, and by how much those that were added last were off the line."""
    points = {step: at(step) for step in (first, last)}
    gaps, worst = [(first, last, 0.0)], 0.0
    while gaps:
        a, b, left = gaps.pop(0)
        flat = abs(_step(points[b]) / _step(points[a]) - 1.0) <= _OFF
        if b - a < 2 or flat or len(points) >= _MOST_POINTS:
            worst = max(worst, left)
            continue
        middle = (a + b) // 2
        points[middle] = at(middle)
        off = abs(_step(points[middle]) / _between(points[a], points[b], middle) - 1.0)
        # half as far between two points, a line is a quarter as far from an even bend
        if off > _OFF:
            gaps += [(a, middle, off / 4), (middle, b, off / 4)]
        else:
            worst = max(worst, off / 4)
    return tuple(points[step] for step in sorted(points)), worst


def _step(point: CoursePoint) -> float:
    return point.metrics["step_s"].mean


def _between(a: CoursePoint, b: CoursePoint, step: int) -> float:
    return _step(a) + (_step(b) - _step(a)) * (step - a.step) / (b.step - a.step)


def drifting(mean: Callable[[float], float], drift: float, steps: int) -> tuple[tuple[int, float], ...]:
    """Points of lengths that grow by a share of themselves in each step. mean: of lengths so many times as long."""
    at = sorted({round(x) for x in np.linspace(0, max(1, steps - 1), min(steps, 9))})
    return tuple((step, mean((1.0 + drift) ** step)) for step in at)

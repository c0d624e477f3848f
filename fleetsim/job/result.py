"""What Python users hold: results, read in a terminal and in a notebook, written down as the command's own JSON.

Errors of what Python asked name keywords instead of flags, and what it holds never changes.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from msgspec import Struct

from fleetsim import units
from fleetsim.faces import keywords

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    import pandas as pd

    from fleetsim.config.scenario import Scenario
    from fleetsim.estimates import Estimate
    from fleetsim.job.base_job import Job
    from fleetsim.job.engine_source import EngineSource
    from fleetsim.job.metrics import Metrics
    from fleetsim.tell.document import Document, Table
    from fleetsim.tell.terminal import View


# --- Progress: who is told what long work is doing. The command line draws it, Python may listen, else nobody does.


class Watch:
    """What long work reports while it goes on; this class tells nobody. Called with a text: what is being done now.

    counts: whether steps should be counted and reported; False where nobody would see it.
    """

    counts = False

    def __call__(self, text: str) -> None:
        """What is being done now."""

    def loaded(self) -> None:
        """All that the work needs is imported; from here on Ctrl-C leaves something to show."""

    def due(self) -> bool:
        """Whether `at` would be shown now: for work that must count before it can say how far it is."""
        return False

    def at(self, done: float, of: float, best: Callable[[], str] | None = None) -> None:
        """So much of so much is done; best: what is known by now, asked for only when it is shown.

        May be told from any thread, and as often as one likes.
        """

    def remark(self, text: str) -> None:
        """A line that stays."""

    def replications(self, done: int, of: int) -> None:
        """So many replications of a scenario are simulated."""


SILENT = Watch()


class Told(Watch):
    """Hands texts on to a function, as Python's `tell`."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def __call__(self, text: str) -> None:
        """Tells it."""
        self._tell(text)

    def remark(self, text: str) -> None:
        """Tells it."""
        self._tell(text)

    def replications(self, done: int, of: int) -> None:
        """Tells it in words."""
        self._tell(f"simulating: {done} of {units.plural(of, 'replication')}")


def told(tell: Callable[[str], None] | None) -> Watch:
    """The watch of a Python caller."""
    return SILENT if tell is None else Told(tell)


T = TypeVar("T")


def unchanging(cls: type[T]) -> type[T]:
    """Makes setting and deleting any attribute of a frozen, slotted dataclass a FrozenInstanceError with a remedy.

    The methods that `dataclass` writes refuse the fields only: for other names they call `super` of the class that was
    there before it got its slots, which is a TypeError about Python's insides.
    """
    what = cls.__name__
    remedy = "job.with_(...) makes another one" if what == "Job" else "ask again of another job: job.with_(...)"

    def refuse_set(self: T, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot set {name!r}: a {what} never changes; {remedy}")

    def refuse_delete(self: T, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete {name!r}: a {what} never changes; {remedy}")

    cls.__setattr__ = refuse_set  # type: ignore[assignment,method-assign]
    cls.__delattr__ = refuse_delete  # type: ignore[assignment,method-assign]
    return cls


Value = TypeVar("Value")


class Later(Generic[Value]):
    """`later()` is what `make` returns, called once; what `make` needed for it is then let go."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make: Callable[[], Value] | None = make
        self._made: list[Value] = []

    def __call__(self) -> Value:
        """The value. Raises what `make` raises, and then asks it again the next time."""
        if self._make is not None:
            self._made, self._make = [self._make()], None
        return self._made[0]


F = TypeVar("F")


class Result(ABC):
    """`str(result)` is the text that the command prints, `to_json()` what it prints under --json."""

    __slots__ = ()
    # The column that names a row in `to_pandas`.
    _index: ClassVar[str | None] = None

    @abstractmethod
    def view(self) -> View:
        """What the command prints."""

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""

    @abstractmethod
    def page(self, watch: Watch = SILENT) -> str:
        """What the command writes under --html. watch: hears what is simulated for it."""

    def rows(self) -> list[dict[str, Any]]:
        """The table that the command prints under -o csv: its facts, where the result has no other."""
        facts: list[dict[str, Any]] = self.document()["facts"]
        return facts

    def to_pandas(self) -> pd.DataFrame:
        """These rows, each metric's mean with `.ci_low` and `.ci_high`. Needs pandas."""
        from fleetsim.job.metrics import frame

        return frame(self.rows(), self._index)

    def __str__(self) -> str:
        from fleetsim.tell.console import as_text

        return as_text(self.view())

    def _repr_html_(self) -> str:
        from fleetsim.tell.console import as_html

        return as_html(self.view())

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Writes the page of the command's --html: one file that opens offline. What it shows beyond the result is
        simulated for it. An existing file is replaced. Raises OutsideError without jinja2, or where the file cannot be
        written.
        """
        from fleetsim.files import replace_file

        with keywords():
            page = self.page()
        return replace_file(path, page)

    def to_json(self) -> str:
        """The document of the command's --json: sorted keys, full precision, no time of day."""
        from fleetsim.tell.data import dumps

        return dumps(self.document())

    def to_dict(self) -> dict[str, Any]:
        """The same document as Python values."""
        document: dict[str, Any] = json.loads(self.to_json())
        return document


class Briefed(Result):
    """A result that is told in about eight lines, and the rest of it when it is asked for."""

    __slots__ = ()

    @abstractmethod
    def told(self) -> Document:
        """The Document of the result."""

    def page(self, watch: Watch = SILENT) -> str:
        """What the command writes under --html."""
        from fleetsim.tell.page import document_page

        return document_page(self.told())

    def in_brief(self) -> Document:
        """What is said first: a Document of facts, of which nothing else is drawn."""
        return self.told()

    def view(self, explain: bool = False) -> View:
        """What the command prints; explain: under --explain."""
        from fleetsim.tell.terminal import draw

        return draw(self.told() if explain else self.in_brief(), explain)

    @property
    def explained(self) -> str:
        """The text that the command prints under --explain."""
        from fleetsim.tell.console import as_text

        return as_text(self.view(explain=True))


class Gated(Briefed):
    """A result whose numbers a condition can be put on."""

    __slots__ = ()

    @property
    @abstractmethod
    def warnings(self) -> tuple[str, ...]:
        """As the command prints them on stderr."""

    @abstractmethod
    def numbers(self) -> dict[str, float]:
        """What --fail-if can ask."""

    def missed(self) -> str:
        """Which wish of the user the answer does not hold, in words; empty for none."""
        return ""


class Recommendation(Gated):
    """A result that recommends a fleet."""

    __slots__ = ()

    @property
    @abstractmethod
    def _estimates(self) -> Mapping[str, Estimate]:
        """Of the recommended fleet, by metric."""

    @property
    def metrics(self) -> Metrics:
        """Of the recommended fleet: name -> Estimate."""
        from fleetsim.job.metrics import Metrics

        return Metrics(self._estimates)

    @property
    @abstractmethod
    def _answer(self) -> Any:
        """What was found, with `profile` and `warnings`."""

    @property
    def profile(self) -> EngineSource:
        """What the engine's speed rests on."""
        found: EngineSource = self._answer.profile
        return found

    @property
    def warnings(self) -> tuple[str, ...]:
        """As the command prints them on stderr."""
        return tuple(self._answer.warnings)

    @property
    def mean(self) -> dict[str, float]:
        """Metric name -> mean, of the recommended fleet."""
        return self.metrics.mean

    @abstractmethod
    def saved(self) -> str:
        """What the command writes under --save: the job with the recommended fleet."""

    @property
    def job(self) -> Job:
        """What is recommended as a job, as `saved` has it: what nobody gave stays so, and follows again."""
        from fleetsim.config.yaml_text import from_yaml
        from fleetsim.job.base_job import load

        return load(from_yaml(self.saved(), "scenario"))


class SoFar(Struct, Generic[F], frozen=True):
    """What a command had found of a job when Ctrl-C came; nothing is recommended yet.

    title, table: what a terminal shows of it. command, key, row: how its JSON calls the command and what was found, and
    one of that. missing: how far the search came, in words.
    """

    scenario: Scenario
    found: Sequence[F]
    missing: str
    title: str
    table: Callable[[Sequence[F]], Table]
    command: str
    key: str
    row: Callable[[F], dict[str, Any]]
    warnings: tuple[str, ...] = ()

    def view(self) -> View:
        """What was found, a row each."""
        from fleetsim.tell.document import Document, Section
        from fleetsim.tell.facts import facts
        from fleetsim.tell.terminal import draw

        shown = (Section(self.title, (self.table(self.found),)),)
        return draw(Document(f"fleetsim {self.command}", facts(""), shown))

    def document(self) -> dict[str, Any]:
        """The same, as --json prints it."""
        from fleetsim.tell.data import head

        rows, cut = [self.row(one) for one in self.found], [f"interrupted: {self.missing}"]
        return {**head(self.command, self.scenario), "recommendation": None, self.key: rows, "warnings": cut}

"""What A and B of `compare` are, told by their content: a scenario, a result, or history."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec import Struct

from fleetsim.errors import InputError, Problem, Problems
from fleetsim.json_text import from_json
from fleetsim.records import replace

What = Literal["scenario", "result", "history"]
LOOKED_FOR = (
    "a scenario is YAML or JSON with sections such as workload and fleet; a result is what simulate, size or split "
    "--json wrote; a history is a dump of replay --save, OpenMetrics text with timestamps, or a step log (JSONL, JSON, "
    "CSV)"
)
_FIRST_LINES = 200


class GivenSide(Struct, frozen=True):
    """where: A or B. text: as the user wrote it. held: what it stands for, where that is known by now: of a result its
    JSON, in Python a job or a history that was read."""

    where: str
    text: str
    what: What
    held: Any = None

    @property
    def is_address(self) -> bool:
        """Whether the text may be that of a Prometheus."""
        return self.text.startswith(("http://", "https://"))


T = TypeVar("T")


def told_apart(sides: Mapping[str, T], what: Callable[[str, T], GivenSide]) -> tuple[tuple[GivenSide, ...], Problems]:
    """What each side is by its letter, and what is wrong with those of which it cannot be told."""
    given: list[GivenSide] = []
    wrong = Problems()
    for where, side in sides.items():
        with wrong.check():
            given.append(what(where, side))
    return tuple(given), wrong


def given_of(where: str, text: str, mapped: bool = False, addresses: bool = False) -> GivenSide:
    """mapped: somebody said how to read a step log, so that any text with columns may be one. addresses: that of a
    Prometheus is a side.

    Raises InputError for what is none of the three.
    """
    from fleetsim.config.data_files import find_scenario

    history = GivenSide(where, text, "history")
    if addresses and history.is_address:
        return history
    path = Path(text)
    if "\0" in text or not text or not os.path.lexists(path):
        try:
            find_scenario(text)
        except InputError as error:
            problem = error.problems[0]
            rule = "no such file, and no shipped scenario of this name"
            raise InputError([Problem(where, text, rule, problem.remedy)]) from None
        return GivenSide(where, text, "scenario")
    if path.is_dir():
        return history
    if path.suffix in (".yaml", ".yml"):
        return GivenSide(where, text, "scenario")
    return _by_content(where, text, path, mapped)


def _by_content(where: str, text: str, path: Path, mapped: bool) -> GivenSide:
    from fleetsim.compare.saved_result import MAX_BYTES, is_result
    from fleetsim.config.data_files import read_text
    from fleetsim.config.yaml_text import MAX_BYTES as MAX_YAML
    from fleetsim.history.files import form_of

    try:
        form = form_of(path) if path.is_file() else "unknown"
        if form == "table":
            return GivenSide(where, text, "history")
        size = path.stat().st_size
    except OSError as error:
        rule = f"cannot be read: {error.strerror or error}"
        raise InputError([Problem(where, text, rule, "check the path and its permissions")]) from None
    if size > MAX_BYTES:
        return GivenSide(where, text, "history")
    if path.is_file() and not size:
        raise InputError([Problem(where, text, "is empty", LOOKED_FOR)])
    try:
        content = read_text(path, where, MAX_BYTES)
    except InputError as error:
        if path.is_file() and form != "unknown" and ("binary" in str(error) or "UTF-8" in str(error)):
            return GivenSide(where, text, "history")  # packed, perhaps: its reader says what it is not
        raise InputError([_reread(p) for p in error.problems]) from None
    if content.lstrip().startswith(("{", "[")):
        document = _json(content)
        if isinstance(document, Mapping) and is_result(document):
            return GivenSide(where, text, "result", document)
        # a log of one object a line does not begin as JSON of many lines does
        if document is None and content.lstrip().partition("\n")[0].strip() == "{":
            rule, remedy = "is no valid JSON: cut off, or edited by hand", "write the result again"
            raise InputError([Problem(where, text, rule, remedy)])
        if _is_scenario(document):
            return GivenSide(where, text, "scenario")
        if document is None or mapped or _has_numbers(document):
            return GivenSide(where, text, "history")
    elif size <= MAX_YAML and _is_scenario(_yaml(content)):
        return GivenSide(where, text, "scenario")
    elif form == "openmetrics" or mapped or (form == "step log" and _is_log(content)):
        return GivenSide(where, text, "history")
    raise InputError([Problem(where, text, "neither a scenario, a result nor a history", LOOKED_FOR)])


def _reread(problem: Problem) -> Problem:
    """What the reader of scenarios says of a file that need not be one."""
    return replace(problem, remedy=LOOKED_FOR) if problem.rule == "is empty" or "text" in problem.rule else problem


def _is_log(content: str) -> bool:
    """Whether a text is a step log: a framework's console, or a table with a number in it."""
    from fleetsim.history.step_logs.console import shape_of
    from fleetsim.history.text import number

    lines = content.splitlines()
    if shape_of(lines) is not None:
        return True
    rows = csv.reader(lines[1:_FIRST_LINES])
    try:
        return any(number(cell) is not None for row in rows for cell in row)
    except csv.Error:
        return False


def _has_numbers(document: Any) -> bool:
    """Whether there is a number in it, as every step log has."""
    if isinstance(document, Mapping):
        document = list(document.values())
    if isinstance(document, list):
        return any(_has_numbers(value) for value in document)
    return isinstance(document, (int, float)) and not isinstance(document, bool)


def _json(content: str) -> Any:
    """The value; None for what is no single JSON document (a run log has one a line)."""
    try:
        return from_json(content)
    except ValueError:
        return None


def _yaml(content: str) -> Any:
    from fleetsim.config.yaml_text import from_yaml

    try:
        return from_yaml(content, "file")
    except InputError:
        return None


def _is_scenario(document: Any) -> bool:
    """Whether most of its keys are a scenario's; the reader of scenarios says which are not."""
    from fleetsim.config.scenario import Scenario

    if not isinstance(document, Mapping) or not document:
        return False
    return 2 * len(set(document) & set(Scenario.model_fields)) >= len(document)

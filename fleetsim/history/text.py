"""Lines of logs without what a terminal or Ray puts around them, the numbers in them, and the configuration that a
framework prints."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from msgspec import DecodeError, Meta
from msgspec.json import Decoder

from fleetsim.errors import InputError, Problem
from fleetsim.history.wrapped import BROKEN, open_text


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What goes wrong inside is the file's fault. Raises InputError."""
    try:
        yield
    except BROKEN as error:
        rule = f"cannot be read as text: {error}"
        raise InputError([Problem(str(path), path.name, rule, "give the file as it was written")]) from error


Pairs = list[tuple[str, float]]
Row = dict[str, float]

# Wider whole numbers are none to `json_text`, which then looks at the text itself. Numbers may be texts, as SkyRL and
# transformers print them.
_NUMBERS = Decoder(dict[str, Annotated[float, Meta(gt=-(2.0**63), lt=2.0**63)]], strict=False)

_UNITS = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SPAN, _PROGRESS = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[dhms])(?: |$))+"), re.compile(r"(\d{1,15})/\d+")
_FLOAT64, _SCALAR = "np.float64(", re.compile(r"np\.\w+\(")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# An actor's name may have brackets in it; the lengths keep a line that only begins like this from being looked at long.
# Most have none, and are looked for first.
_RAY = re.compile(r"\s{0,9}\((?:\w{1,99} |[^()]{0,99}(?:\([^()]{0,99}\))?[^()]{0,99}\b)pid=\d+[^()]{0,99}\) ?")
# A key of a printed dictionary and its number, also as text or as numpy's and torch's scalars are printed.
_PAIR = re.compile(
    r"""(?P<q>['"])(?P<key>[^'"]+)(?P=q):\s*(?:(?:np\.\w+|tensor)\()?['"]?(?P<value>[^'",{}\[\]()]+)""", re.VERBOSE
)


_CARRIES = frozenset("0123456789[")
# What carries a line puts before it: Kubernetes a time or a pod, journalctl a time, host and process, `ts` a time,
# `srun --label` and torchrun a rank, Docker Compose a service.
_JOURNAL = r"[\w.-]+ [\w./@-]+\[\d+\]: "
_CARRIED = re.compile(
    rf"\d{{4}}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d) (?:std(?:out|err) F |{_JOURNAL})?|"
    r"\[\d{4}-\d\d-\d\d[ T][\d:.,]+\] |\d{1,5}: |\[(?:default|rank)\d+\]: ?|\[pod/\S+\] |"
    rf"[A-Z][a-z]{{2}} [ \d]\d [\d:]{{8}} {_JOURNAL}|[\w.-]+-\d+ +\| "
)
_BEFORE = re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:|[\w.-]{1,60}-\d+ +\| ")


def clean(line: str) -> str:
    """A console's line as its process wrote it."""
    return from_process(line)[1]


def from_process(line: str) -> tuple[str, str]:
    """The process that Ray puts before a console's line, and the line as it wrote it."""
    process = ""
    if "\x1b" in line:
        line = _COLOURS.sub("", line)
    if (line[:1] in _CARRIES or _BEFORE.match(line)) and (carried := _CARRIED.match(line)) is not None:
        line = line[carried.end() :]
    if "pid=" in line and (ray := _RAY.match(line)) is not None:
        process, line = ray[0], line[ray.end() :]
    return process, line.rstrip()


def delimiter_of(header: str) -> str:
    """What parts the cells of a table: a comma, a tab or a semicolon, whichever its header has more of."""
    return max(",\t;", key=header.count)


def numbers_of(text: str) -> Row | None:
    """The row of a JSON object that holds numbers alone, or texts of them, ten times as fast as any reader that takes
    more; else None."""
    try:
        return _NUMBERS.decode(text)
    except (DecodeError, RecursionError):
        return None


def number(value: object) -> float | None:
    """A number, or what stands for one ("12.5", "NaN", an ISO time, "1h 2m" as seconds, "3/500" as 3); None for
    anything else."""
    try:
        if isinstance(value, str):
            return float(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    except (ValueError, OverflowError):
        text = str(value).strip()
        if (done := _PROGRESS.fullmatch(text)) is not None:
            return float(done[1])
        if _SPAN.fullmatch(text) is not None:
            return lasts(text)
        try:
            return unix_of(text)
        except (ValueError, OverflowError):
            return None
    return None


def unix_of(text: str) -> float:
    """Unix seconds of an ISO 8601 time, UTC unless it names a zone. Raises ValueError, OverflowError."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def lasts(text: str) -> float:
    """Seconds of "1h 2m", "1d12h", "20s", "12.34s", "300ms"."""
    parts = re.findall(r"([\d.]+)(ms|[wdhms])", text)
    return sum(float(amount) * _UNITS[unit] for amount, unit in parts)


def bare(text: str) -> str | None:
    """A text without what numpy prints around its numbers; None where other brackets are in it, or signs that JSON
    reads as more than themselves."""
    if "\\" in text:
        return None
    if ")" not in text:
        return text
    opened = text.replace(_FLOAT64, "")
    scalars = (len(text) - len(opened)) // len(_FLOAT64)
    closed = opened.replace(")", "")
    if len(opened) - len(closed) > scalars:
        opened, others = _SCALAR.subn("", opened)
        scalars, closed = scalars + others, opened.replace(")", "")
    return closed if len(opened) - len(closed) == scalars else None


def dict_of(text: str) -> Row:
    """The numbers of a dictionary as Python or JSON prints it; texts and lists are left out."""
    if '"' not in text or "'" not in text:
        quick = bare(text)
        row = None if quick is None else numbers_of(quick.replace("'", '"'))
        if row is not None and "" not in row:
            return row
    found = ((match["key"], number(match["value"])) for match in _PAIR.finditer(text))
    return {key: value for key, value in found if value is not None}


# The configuration that a framework prints at the head of its log, a mapping over many lines: verl with pprint before
# it trains (verl-project/verl at 1dda039: verl/trainer/main_ppo.py, verl/experimental/fully_async_policy/
# fully_async_main.py), NeMo-RL under "Final config:" (NVIDIA-NeMo/RL at 7ea279a: examples/run_grpo.py). Lines of other
# processes come in between. Lines within which a log prints its configuration, and what one may hold at most.
_LOOK, _MOST = 20_000, 2**20
_LONGEST_LINE = 100_000
_FEWEST_KEYS = 3
_BEGINS = re.compile(r"\{'\w+': ?")


def printed_config(path: str | os.PathLike[str]) -> Mapping[str, Any] | None:
    """The first mapping of a log, with keys of text; None for a file that prints none, or cannot be read."""
    try:
        with open_text(Path(path)) as file:
            return _first(islice(file, _LOOK))
    except (*BROKEN, ValueError, InputError):  # told by whoever reads the file as what it is
        return None


def _first(text: Iterable[str]) -> Mapping[str, Any] | None:
    whose, size, lines = "", 0, list[str]()
    for raw in text:
        process, line = from_process(raw[:_LONGEST_LINE])
        line = _RAY.split(line, maxsplit=1)[0]  # without what another process wrote into it
        if not lines:
            if _BEGINS.match(line):
                whose, lines, size = process, [line], len(line)
        elif process == whose:
            lines.append(line)
            size += len(line)
        else:
            continue
        if lines and line.rstrip().endswith("}"):
            found = _mapping("\n".join(lines))
            if found is not None:
                return found
        # A line of a mapping is indented, or the rest of one that another process broke in two.
        goes_on = not line.strip() or line[0] in " ,:}]'\"{-TFN" or line[0].isdigit()
        if size > _MOST or not goes_on:
            lines = []
    return None


def _mapping(text: str) -> Mapping[str, Any] | None:
    try:
        tree = ast.literal_eval(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    whole = isinstance(tree, dict) and len(tree) >= _FEWEST_KEYS and all(isinstance(key, str) for key in tree)
    return tree if whole else None

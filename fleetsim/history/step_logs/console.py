"""Consoles of RL frameworks: which framework's a log is, told by a line that it alone prints, and its lines as rows.

Sources, each at the commit that `frameworks.py` names: ROLL roll/utils/logging.py; OpenRLHF openrlhf/trainer/
ppo_trainer.py, ppo_trainer_async.py; slime slime/observability/*.py; TRL through transformers' trainer_callback.py;
verl verl/utils/logger/aggregate_logger.py; AReaL areal/utils/stats_logger.py, printing.py; open-instruct
open_instruct/model_utils.py (print_rich_single_line_metrics); NeMo-RL nemo_rl/algorithms/grpo.py; SkyRL
skyrl/train/utils/tracking.py (ConsoleLogger); prime-rl src/prime_rl/trainer/rl/train.py, orchestrator/orchestrator.py;
RLinf rlinf/utils/metric_utils.py (print_metrics_table); rLLM rllm/trainer/algorithms/visualization.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from fleetsim.history.step_logs.frameworks import BY_NAME, CLOCKS, RUNNING, known_as
from fleetsim.history.text import Pairs, Row, bare, clean, dict_of, lasts, number

_AREAL = re.compile(r"\bTrain step (\d+)/\d+ done\.$")
_PANEL = re.compile(r"^╭─+ Metrics ─+╮$")
_NEMO = re.compile(r"={10,} Step (\d+)/\d+ ={10,}$")
_EPOCH = re.compile(r"={10,} Epoch \d+/\d+ ={10,}$")
_BULLET = re.compile(r"\s*• ([^:]+): (-?[\d.]+)")
_SKYRL = re.compile(r"(?:^| - )Step (\d+):$")
# "| Time: 12.34s | Loss: 0.1" until f6563ff0e (2026-06-01), "| 12.3s | Loss 0.1" since.
_PRIME = re.compile(r"(?:^|[\s\"])Step (\d+) \| +(?:Time:? +)?(\d[^|]*?) \| ((?:Loss|Reward):? .*)")
_PRIME_WAITED = re.compile(r"Waited for batch to arrive for ([\d.]+) seconds")
_RLLM, _RLLM_TITLE = re.compile(r"^┃ Metric +┃ +Value ┃$"), re.compile(r"^ *Step (\d+)$")
_RLINF, _RLINF_STEP = "Global Step:", re.compile(r" *(?:\d+%\|[^|]*\|)? *(\d+)/\d+\b")
_RLINF_SECTIONS = {"Time": "time/", "Rollout": "rollout/"}
_CELL = re.compile(r"([\w/.]+)=([-+\w.]+)")
_INDENT = 3  # spaces before a category; below it the values go on
_ITEMS = frozenset(("{'", '{"', " '", ' "'))  # how lines of pprint begin
_MOST = 400  # lines of one dictionary; what is longer was cut off

_NEMO_SECTIONS = ("Training Results", "Timing")
_PRIME_FIELD = re.compile(r"([A-Za-z][\w. -]*?):? (-?[\d.]+(?:e[-+]?\d+)?)(?:/(\d+))?")


def _grid(counter: str, mark: str, heading: re.Pattern[str], end: str) -> Callable[[Iterable[str]], Iterator[Row]]:
    """Reads grids of names and values, with the step before them. counter: what the step's number is called. mark: a
    part of each heading. end: what the last line of a grid begins with."""

    def rows(lines: Iterable[str]) -> Iterator[Row]:
        row: Row = {}
        for line in lines:
            if "│" in line and row:
                cells = line.strip().strip("│").split("│")
                names = map(str.strip, cells[::2])
                try:  # all but a grid's last line have a number in every cell
                    row |= zip(names, map(float, cells[1::2]), strict=False)
                except ValueError:
                    found = zip(map(str.strip, cells[::2]), map(number, cells[1::2]), strict=False)
                    row |= ((name, value) for name, value in found if value is not None)
                    if len(cells) == 2 and cells[0].strip() and not cells[1].strip():  # a long name goes on
                        last = next(reversed(row))
                        row[last + cells[0].strip()] = row.pop(last)
                row.pop("", None)
            elif mark in line and (done := heading.search(line)) is not None:
                step = float(done[1])
                row = {counter: step}
            elif end in line and row:
                yield row
                row = {counter: step}

    return rows


def _rlinf(lines: Iterable[str]) -> Iterator[Row]:
    """The numbers behind a bar (`step_time=12.3`), or those of a panel, whose sections name them."""
    row: Row = {}
    section = ""
    for line in lines:
        if _RLINF in line:
            for part in line.split(_RLINF)[1:]:
                if (done := _RLINF_STEP.match(part)) is not None:
                    row, section = {"step": float(done[1])}, ""
                    yield {**row, **dict(_cells(part, "rollout/"))}
        elif line.startswith("├"):
            section = _RLINF_SECTIONS.get(line.strip("├─┤ "), "")
        elif section and line.startswith("│"):
            row |= _cells(line, section)
        elif line.startswith("╰") and row:
            yield row
            row = {}


def _cells(text: str, section: str) -> Iterator[tuple[str, float]]:
    """`name=number` of a section; a name that ends with _time is a time's."""
    for name, value in _CELL.findall(text):
        if (amount := number(value)) is not None:
            yield f"time/{name.removesuffix('_time')}" if name.endswith("_time") else f"{section}{name}", amount


def _open_instruct(lines: Iterable[str]) -> Iterator[Row]:
    """The panels: a category a row, which goes on in lines without one."""
    rows: list[tuple[str, list[str]]] | None = None
    for line in lines:
        if line.startswith("│"):
            if rows is None:
                continue
            inside = line.strip("│")
            text = inside.strip()
            if len(inside) <= _INDENT or not inside[: _INDENT + 1].isspace():
                category, _, text = text.partition(" ")
                rows.append((category, [text.lstrip()]))
            elif rows:
                rows[-1][1].append(text)
        elif line.startswith("╭") and _PANEL.match(line) is not None:
            rows = []
        elif rows is not None and line.startswith("╰"):
            yield dict(pair for category, texts in rows for pair in _category(category, " ".join(texts)))
            rows = None


def _category(category: str, text: str) -> Iterator[tuple[str, float]]:
    for part in text.split("|"):
        name, _, value = part.rpartition(":")
        amount = number(value)
        if name and amount is not None:
            yield (name.strip() if category == "other" else f"{category}/{name.strip()}"), amount


def _nemo(lines: Iterable[str]) -> Iterator[Row]:
    """The bullets of results and seconds below a step's heading. Its number begins anew in every epoch."""
    printed = BY_NAME["nemo-rl"].printed
    row: Pairs = []
    last = before = 0.0
    section = ""
    for line in lines:
        if "•" in line:
            if not row or section not in _NEMO_SECTIONS or (bullet := _BULLET.match(line)) is None:
                continue
            name = printed.get(bullet[1], f"timing/train/{bullet[1]}" if section == "Timing" else "")
            if name and (amount := number(bullet[2])) is not None:
                row.append((name, amount))
        elif "= Step " in line and (heading := _NEMO.search(line)) is not None:
            if len(row) > 1:
                yield dict(row)
            last = before + float(heading[1])
            row, section = [("step", last)], ""
        elif "= Epoch " in line and _EPOCH.search(line) is not None:
            before = last
        elif line[:1] in ("📊", "⏱", "🔍"):
            section = line.partition(" ")[2].strip(" :")
    if len(row) > 1:
        yield dict(row)


def _skyrl(lines: Iterable[str]) -> Iterator[Row]:
    """The dictionaries of a step, over as many lines as they have; other processes may print between."""
    number_of: float | None = None
    text: list[str] = []
    for raw in lines:
        if number_of is None and "Step " not in raw:
            continue
        line = clean(raw)
        if line.endswith(":") and (heading := _SKYRL.search(line)) is not None:
            number_of, text = float(heading[1]), []
        elif number_of is not None and line[:2] in _ITEMS:
            text.append(line)
            if line.endswith("}"):
                yield {**dict_of("\n".join(text)), "trainer/global_step": number_of}
                number_of = None
            elif len(text) > _MOST:
                number_of = None


def _prime(lines: Iterable[str]) -> Iterator[Row]:
    """The line of a step, of the trainer or of the orchestrator; before it, at level DEBUG, the wait for its batch."""
    printed = BY_NAME["prime-rl"].printed
    for line in lines:
        if (waited := _PRIME_WAITED.search(line)) is not None:
            yield {"time/wait_for_batch": float(waited[1])}
        elif (found := _PRIME.search(line)) is not None:
            row = [("step", float(found[1])), ("time/step", lasts(found[2]))]
            for part in found[3].split(" | "):
                field = _PRIME_FIELD.match(part.strip())
                amount = number(field[2]) if field is not None else None
                if field is None or amount is None:
                    continue
                if field[1] in printed:
                    row.append((printed[field[1]], amount))
                elif field[1] == "Trainable" and field[3]:
                    row.append(("progress/rollouts", float(field[3])))
            # the very first batch of the orchestrator comes after no other
            yield dict(pair for pair in row if pair != ("time/step", 0.0))


# What every line has that a framework alone prints at a step; looked for first, for a million lines may come before.
_SIGNS = ("step:", "tep ", "╭", "}", "┃", "Global Step:")
_VERL = re.compile(r"\bstep:(\d+) - (\S.*)")
_VERL_VALUE = re.compile(r"(?:np\.\w+\()?([^()]+)\)?$")
# A dictionary that ends a line, at its beginning, behind a logger's head or behind a bar.
_DICT = re.compile(r"(?:^|[:\-] |\] *)(\{(?:'|\").*\})\s*$")
# The training bar of transformers, which alone has no name. Where carriage returns are lost, as in what tee, Slurm
# and notebooks keep, bars and the dictionary stand in one line.
_BAR = re.compile(r"(?:^|(?<=\]))\s*\d+%\|[^|]*\| *(\d+)/(\d+) \[([\d:]+)<[^\]]*\]?")
_COUNT = re.compile(r"\b([a-z]+) (\d+): $", re.IGNORECASE)


class Shape(Struct, frozen=True):
    """How a framework's console looks. first: whether a (clean) line is one that it prints at a step, and nobody else.
    rows: the rows of its clean lines. says: whether a line, as it is in the file, can say something; the others, mostly
    more than half, are not cleaned. None: any may. cleans: whether `rows` takes them unclean."""

    framework: str
    first: Callable[[str], bool]
    rows: Callable[[Iterable[str]], Iterator[Row]]
    says: Callable[[str], bool] | None
    cleans: bool = False


def shape_of(lines: Iterable[str]) -> Shape | None:
    """Whose console the lines are of, by the first that tells; None of what is no console."""
    for line in lines:
        if not any(sign in line for sign in _SIGNS):
            continue
        text = clean(line)
        for shape in SHAPES:
            if shape.first(text):
                return shape
    return None


def rows_of(shape: Shape, lines: Iterable[str], wanted: Callable[[str], bool] | None = None) -> Iterator[Row]:
    """The rows of a whole console that say something wanted beside their step and clock."""
    counts = {*BY_NAME[shape.framework].step, *CLOCKS, *RUNNING}
    known: dict[str, bool] = {}
    lines = filter(shape.says, lines)
    for row in shape.rows(lines if shape.cleans else map(clean, lines)):
        for name in row:
            told = known.get(name)
            if told is None:
                known[name] = told = name not in counts and (wanted is None or wanted(name))
            if told:
                yield row
                break


def _verl(lines: Iterable[str]) -> Iterator[Row]:
    for line in lines:
        if "step:" not in line or (found := _VERL.search(clean(line))) is None:
            continue
        row = {"step": float(found[1])}
        for part in (bare(found[2]) or found[2]).split(" - "):
            name, _, value = part.rpartition(":")
            try:
                amount: float | None = float(value)
            except ValueError:
                amount = number(value)
                if amount is None and (inside := _VERL_VALUE.match(value.strip())) is not None:
                    amount = number(inside[1])  # numpy's, where other brackets are in the line
            if name and amount is not None:
                row[name.strip()] = amount
        yield row


def _dicts(lines: Iterable[str]) -> Iterator[Row]:
    """Dictionaries, each with the number that its head has; of transformers the number and the clock of its bar."""
    bar: Row = {}
    for line in lines:
        head = ""
        if "%|" in line and (done := list(_BAR.finditer(line))):
            bar = {"global_step": float(done[-1][1]), "_runtime": _seconds(done[-1][3])}
            line = line[done[-1].end() :].lstrip()
        if line.endswith("}") and (found := _DICT.search(line)) is not None:
            head = line[: found.start(1)]
            if "eval" in head.lower():
                yield {"eval/step": 1.0}
                continue
            row = dict_of(found[1])
            # its two last words
            count = _COUNT.search(head, head.rfind(" ", 0, head.rfind(" ", 0, -1)) + 1)
            if count is not None and "train/step" not in row:
                # slime counts rollouts, and its optimizer's steps apart; the others count steps
                name = "step" if count[1].lower() == "step" else "rollout/step"
                row[name] = float(count[2])
            elif count is None and not head.strip():
                row |= bar
            yield row


def _seconds(clock: str) -> float:
    total = 0.0
    for part in clock.split(":"):
        total = 60 * total + float(part)
    return total


def _marked(framework: str) -> Callable[[str], bool]:
    """Whether a line ends with a dictionary that bears the framework's marks."""
    marks = frozenset(BY_NAME[framework].marks)

    def first(line: str) -> bool:
        if not line.endswith("}") or (found := _DICT.search(line)) is None:
            return False
        return any(known_as(name, marks) is not None for name in dict_of(found[1]))

    return first


def _tells(mark: str, pattern: re.Pattern[str]) -> Callable[[str], bool]:
    """Whether a line has the pattern. mark: a part of it, which is looked for first."""
    return lambda line: mark in line and pattern.search(line) is not None


_DICTS = ("roll", "openrlhf", "slime", "ms-swift", "trl")
SHAPES = (
    Shape("verl", _tells("step:", _VERL), _verl, lambda x: "step:" in x, cleans=True),
    *(Shape(name, _marked(name), _dicts, lambda x: "}" in x or "%|" in x) for name in _DICTS),
    Shape(
        "areal",
        _tells("Train step ", _AREAL),
        _grid("global_step", "Train step ", _AREAL, "╘"),
        lambda x: "│" in x or "Train step " in x or "╘" in x,
    ),
    Shape(
        "rllm",
        _tells("┃", _RLLM),
        _grid("step", "Step ", _RLLM_TITLE, "└"),
        lambda x: "│" in x or "Step " in x or "└" in x,
    ),
    Shape(
        "rlinf",
        _tells(_RLINF, re.compile(f"{_RLINF}{_RLINF_STEP.pattern}")),
        _rlinf,
        lambda x: not x.isascii() or _RLINF in x,
    ),
    Shape("open-instruct", _tells("╭", _PANEL), _open_instruct, lambda x: "│" in x or "─" in x),
    Shape("nemo-rl", _tells("= Step ", _NEMO), _nemo, lambda x: "= " in x or not x.isascii()),
    Shape("skyrl", _tells("Step ", _SKYRL), _skyrl, None, cleans=True),
    Shape("prime-rl", _tells("Step ", _PRIME), _prime, lambda x: "Step " in x or "Waited for batch" in x),
)

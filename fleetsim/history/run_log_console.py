"""Consoles of RL frameworks: which framework's a log is, told by a line that it alone prints, and its lines as rows.

Sources, each at the commit that its file in `step_logs` names: ROLL roll/utils/logging.py; OpenRLHF openrlhf/trainer/
ppo_trainer.py, ppo_trainer_async.py; slime slime/observability/*.py; TRL through transformers' trainer_callback.py;
verl verl/utils/logger/aggregate_logger.py. What spans several lines is in `run_log_blocks.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from fleetsim.dataclass import dataclass
from fleetsim.history import run_log_blocks as blocks
from fleetsim.history.run_log_columns import CLOCKS, RUNNING
from fleetsim.history.run_log_maps import BY_NAME
from fleetsim.history.run_log_names import known_as
from fleetsim.history.run_log_text import Row, bare, clean, cleaner, dict_of, number, numbers_of

LOOK = 200_000  # lines within which a console shows its first step
_VERL = re.compile(r"\bstep:(\d+) - (\S.*)")
_VERL_STEP = re.compile(r"step:\d+ - \S")
_VERL_VALUE = re.compile(r"(?:np\.\w+\()?([^()]+)\)?$")
# A dictionary that ends a line, at its beginning or behind a logger's head.
_DICT = re.compile(r"(?:^|[\]:\-] )(\{(?:'|\").*\})\s*$")
# The training bar of transformers, which alone has no name.
_BAR = re.compile(r"\s*\d+%\|[^|]*\| *(\d+)/(\d+) \[([\d:]+)<")
_COUNT = re.compile(r"\b([a-z]+) (\d+): $", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Shape:
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
    for _, line in zip(range(LOOK), lines, strict=False):
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
    for row in shape.rows(lines if shape.cleans else map(cleaner(), lines)):
        for name in row:
            told = known.get(name)
            if told is None:
                known[name] = told = name not in counts and (wanted is None or wanted(name))
            if told:
                yield row
                break


def _verl(lines: Iterable[str]) -> Iterator[Row]:
    known: set[str] = set()  # names as they stand between " - " and ":", nothing around them
    for line in lines:
        at = line.find("step:")
        if at < 0:
            continue
        row = _verl_quick(line, at)
        if row is not None:
            if not known.issuperset(row):
                known.update(name for name in row if name and name == name.strip())
            if known.issuperset(row):
                yield row
                continue
        found = _VERL.search(clean(line))
        if found is not None:
            yield dict(_verl_pairs(found))


def _verl_quick(line: str, at: int) -> Row | None:
    """A line of plain numbers, and numpy's, made an object of JSON and read as that. at: where it says its step."""
    told = line[at:]
    if line[at - 1 : at] not in ("", " ") or '"' in told or _VERL_STEP.match(told) is None:
        return None
    if (plain := bare(told)) is None:
        return None
    plain = plain.replace(" - ", ',"').replace(":", '":')
    return numbers_of(f'{{"{plain}}}')


def _verl_pairs(found: re.Match[str]) -> Iterator[tuple[str, float]]:
    yield "step", float(found[1])
    for part in found[2].split(" - "):
        name, _, value = part.rpartition(":")
        amount = number(value)
        if amount is None and (inside := _VERL_VALUE.match(value.strip())) is not None:
            amount = number(inside[1])
        if name and amount is not None:
            yield name.strip(), amount


def _dicts(lines: Iterable[str]) -> Iterator[Row]:
    """Dictionaries, each with the number that its head has; of transformers the number and the clock of its bar."""
    bar: Row = {}
    for line in lines:
        if "%|" in line and (done := _BAR.match(line)) is not None:
            bar = {"global_step": float(done[1]), "_runtime": _seconds(done[3])}
        elif line.endswith("}") and (found := _DICT.search(line)) is not None:
            head = line[: found.start(1)]
            if "eval" in head.lower():
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


_DICTS = ("roll", "openrlhf", "slime", "trl")
SHAPES = (
    Shape("verl", lambda x: "step:" in x and _VERL.search(x) is not None, _verl, lambda x: "step:" in x, cleans=True),
    *(Shape(name, _marked(name), _dicts, lambda x: "}" in x or "%|" in x) for name in _DICTS),
    Shape("areal", blocks.begins_areal, blocks.areal, lambda x: "│" in x or "Train step " in x or "╘" in x),
    Shape("open-instruct", blocks.begins_open_instruct, blocks.open_instruct, lambda x: "│" in x or "─" in x),
    Shape("nemo-rl", blocks.begins_nemo, blocks.nemo, lambda x: "= " in x or not x.isascii()),
    Shape("skyrl", blocks.begins_skyrl, blocks.skyrl, None, cleans=True),
    Shape("prime-rl", blocks.begins_prime, blocks.prime, lambda x: "Step " in x or "Waited for batch" in x),
)

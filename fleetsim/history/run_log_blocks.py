"""Consoles on which a step spans several lines: AReaL's grid, open-instruct's panel, NeMo-RL's bullets, SkyRL's
pprint; and prime-rl's line of named values. Each reader takes clean lines and gives rows; SkyRL's cleans them itself.

Sources, each at the commit that its file in `step_logs` names: AReaL areal/utils/stats_logger.py, printing.py;
open-instruct open_instruct/model_utils.py (print_rich_single_line_metrics); NeMo-RL nemo_rl/algorithms/grpo.py; SkyRL
skyrl/train/utils/tracking.py (ConsoleLogger); prime-rl src/prime_rl/trainer/rl/train.py, orchestrator/orchestrator.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fleetsim.history.run_log_text import Pairs, Row, cleaner, dict_of, number, numbers_of

_AREAL = re.compile(r"\bTrain step (\d+)/\d+ done\.$")
_PANEL = re.compile(r"╭─+ Metrics ─+╮$")
_NEMO = re.compile(r"={10,} Step (\d+)/\d+ ={10,}$")
_EPOCH = re.compile(r"={10,} Epoch \d+/\d+ ={10,}$")
_BULLET = re.compile(r"\s*• ([^:]+): (-?[\d.]+)")
_SKYRL = re.compile(r"(?:^| - )Step (\d+):$")
_PRIME = re.compile(r"(?:^|[\s\"])Step (\d+) \| +(\d[^|]*?) \| ((?:Loss|Reward) .*)")
_PRIME_WAITED = re.compile(r"Waited for batch to arrive for ([\d.]+) seconds")
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_INDENT = 3  # spaces before a category; below it the values go on
_ITEMS = frozenset(("{'", '{"', " '", ' "'))  # how lines of pprint begin
_MOST = 400  # lines of one dictionary; what is longer was cut off

_NEMO_SECTIONS = ("Training Results", "Timing")
# What NeMo-RL and prime-rl print, and what they call it in their trackers.
_NEMO_NAMES = {
    "Mean Generation Length": "train/mean_gen_tokens_per_sample",
    "Buffer Size": "train/buffer_size",
    "Avg Trajectory Age": "train/avg_trajectory_age",
    "Total step time": "timing/train/total_step_time",
}
_PRIME_NAMES = {
    "Throughput": "perf/throughput",
    "MFU": "perf/mfu",
    "Peak Mem.": "perf/peak_memory",
    "Max Off-Policy": "off_policy/max",
    "Truncation": "is_truncated/percent",
}
_PRIME_FIELD = re.compile(r"([A-Za-z][\w. -]*?) (-?[\d.]+(?:e[-+]?\d+)?)(?:/(\d+))?")


def begins_areal(line: str) -> bool:
    """Whether AReaL has done a step."""
    return "Train step " in line and _AREAL.search(line) is not None


def areal(lines: Iterable[str]) -> Iterator[Row]:
    """The grids of names and values, with the step before them."""
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
            row.pop("", None)
        elif "Train step " in line and (done := _AREAL.search(line)) is not None:
            step = float(done[1])
            row = {"global_step": step}
        elif "╘" in line and row:
            yield row
            row = {"global_step": step}


def begins_open_instruct(line: str) -> bool:
    """Whether a panel of metrics begins."""
    return line.startswith("╭") and _PANEL.match(line) is not None


def open_instruct(lines: Iterable[str]) -> Iterator[Row]:
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
        elif begins_open_instruct(line):
            rows = []
        elif rows is not None and line.startswith("╰"):
            panel = [(category, " ".join(texts)) for category, texts in rows]
            row = _panel_quick(panel)
            yield dict(pair for each in panel for pair in _category(*each)) if row is None else row
            rows = None


def _panel_quick(panel: list[tuple[str, str]]) -> Row | None:
    """A panel of plain numbers, made an object of JSON and read as that; None where something else is in it."""
    whole = " ".join(f"{category} {text}" for category, text in panel)
    if not whole.isascii() or '"' in whole or "\\" in whole or "  " in whole or " :" in whole:
        return None
    parts = []
    for category, text in panel:
        prefix = "" if category == "other" else f"{category}/"
        told = text.replace(" | ", f',"{prefix}').replace(": ", '":')
        parts.append(f'"{prefix}{told}')
    row = numbers_of(f"{{{','.join(parts)}}}")
    return None if row is None or "" in row else row


def _category(category: str, text: str) -> Iterator[tuple[str, float]]:
    for part in text.split("|"):
        name, _, value = part.rpartition(":")
        amount = number(value)
        if name and amount is not None:
            yield (name.strip() if category == "other" else f"{category}/{name.strip()}"), amount


def begins_nemo(line: str) -> bool:
    """Whether a step's heading is there."""
    return "= Step " in line and _NEMO.search(line) is not None


def nemo(lines: Iterable[str]) -> Iterator[Row]:
    """The bullets of results and seconds below a step's heading. Its number begins anew in every epoch."""
    row: Pairs = []
    last = before = 0.0
    section = ""
    for line in lines:
        if "•" in line:
            if not row or section not in _NEMO_SECTIONS or (bullet := _BULLET.match(line)) is None:
                continue
            name = _NEMO_NAMES.get(bullet[1], f"timing/train/{bullet[1]}" if section == "Timing" else "")
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


def begins_skyrl(line: str) -> bool:
    """Whether a step's dictionary follows."""
    return line.endswith(":") and _SKYRL.search(line) is not None


def skyrl(lines: Iterable[str]) -> Iterator[Row]:
    """The dictionaries of a step, over as many lines as they have; other processes may print between."""
    number_of: float | None = None
    text: list[str] = []
    clean = cleaner()
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


def begins_prime(line: str) -> bool:
    """Whether a step is told."""
    return "Step " in line and _PRIME.search(line) is not None


def prime(lines: Iterable[str]) -> Iterator[Row]:
    """The line of a step, of the trainer or of the orchestrator; before it, at level DEBUG, the wait for its batch."""
    for line in lines:
        if (waited := _PRIME_WAITED.search(line)) is not None:
            yield {"time/wait_for_batch": float(waited[1])}
        elif (found := _PRIME.search(line)) is not None:
            row = [("step", float(found[1])), ("time/step", _lasts(found[2]))]
            for part in found[3].split(" | "):
                field = _PRIME_FIELD.match(part.strip())
                amount = number(field[2]) if field is not None else None
                if field is None or amount is None:
                    continue
                if field[1] in _PRIME_NAMES:
                    row.append((_PRIME_NAMES[field[1]], amount))
                elif field[1] == "Trainable" and field[3]:
                    row.append(("progress/rollouts", float(field[3])))
            # the very first batch of the orchestrator comes after no other
            yield dict(pair for pair in row if pair != ("time/step", 0.0))


def _lasts(text: str) -> float:
    """Seconds of "1h 2m", "1m 20s", "20s", "300ms"."""
    parts = re.findall(r"(\d+)(ms|[dhms])", text)
    return sum(float(amount) * _UNITS[unit] for amount, unit in parts)

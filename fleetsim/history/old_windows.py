"""Windows as earlier versions saved them: a JSON file, a long table with a header, or a folder of tables. Only read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history.history import Floats, History, Note
from fleetsim.history.long_table import damaged, floats, groups_of, read_table
from fleetsim.history.option_names import SAVED
from fleetsim.history.saved_window import Header, checked_header, header_of_text, history_of_blocks
from fleetsim.json_text import from_json

HEADER = "history.json"  # of a folder
_NOTE = "This window was saved by an earlier version, in a form that is no longer written: --save it anew."


def load_old(path: Path) -> History:
    """Raises InputError: damaged, foreign, and, for a folder that holds no window, what it holds."""
    where = str(path)
    try:
        if path.is_dir():
            header, blocks = _of_folder(path)
        elif _is_json(path):
            header, blocks = _of_json(path)
        else:
            columns, meta = read_table(path)
            header = header_of_text(meta or "", where)
            blocks = _of_rows(header, groups_of(columns, path), path)
        history = history_of_blocks(header, blocks, where)
    except KeyError as error:
        raise damaged(where, f"{error.args[0]!r} is missing, or the header does not have it") from None
    except (ValueError, TypeError, OverflowError, OSError, EOFError) as error:
        raise damaged(where, f"it does not read ({error})") from None
    return replace(history, notes=(*history.notes, Note("other", _NOTE)))


def _is_json(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")


def _of_json(path: Path) -> tuple[Header, dict[str, Floats]]:
    document: Any = from_json(path.read_text(encoding="utf-8-sig"))
    data = document.pop("data", {})
    header = checked_header(document, str(path))
    blocks = {}
    for signal, shape in header.shapes().items():
        if signal in header.histograms:
            counts, sums = (np.array(data["histograms"][signal][k], dtype=float) for k in ("counts", "sums"))
            i, lines, h = shape
            counts, sums = counts.reshape(i, h, lines - 1), sums.reshape(i, 1, h)
            blocks[signal] = np.concatenate([counts.transpose(0, 2, 1), sums], axis=1)
        else:
            found = np.array(data["values" if len(shape) == 2 else "fleet"][signal], dtype=float)
            blocks[signal] = found if found.size else found.reshape(shape)
    return header, blocks


def _of_folder(path: Path) -> tuple[Header, dict[str, Floats]]:
    try:
        header = header_of_text((path / HEADER).read_bytes(), str(path / HEADER))
    except FileNotFoundError:
        found = ", ".join(sorted(p.name for p in path.iterdir())[:5]) or "nothing"
        rule = f"is no saved history: it has no {HEADER}, it has {found}"
        raise InputError([Problem("history", str(path), rule, text("give {}", SAVED))]) from None
    i = len(header.instances)

    def columns(table: str, names: list[str], times: list[float], rows: int) -> list[Floats]:
        """Numbers of a table, whose rows must be those of the header, in its order."""
        file = next((f for s in (".parquet", ".csv") if (f := path / f"{table}{s}").is_file()), None)
        found = {} if file is None else read_table(file)[0]
        clock, *out = (floats(found[name], f"{path}: {table}: {name}") for name in ("time", *names))
        if clock.tolist() != times * rows:
            rule = f"the rows of the table {table} are not those of {HEADER}: cut, sorted or of another dump"
            raise damaged(str(path), rule)
        return [column.reshape(rows, len(times)) for column in out]

    blocks = {}
    if header.values:
        blocks |= zip(header.values, columns("values", header.values, header.times, i), strict=True)
    if header.fleet:
        found = columns("fleet", header.fleet, header.times, 1)
        blocks |= {name: column[0] for name, column in zip(header.fleet, found, strict=True)}
    for name, part in header.histograms.items():
        lines = columns(f"histogram.{name}", [*(f"le={le}" for le in part.le), "sum"], part.times, i)
        blocks[name] = np.stack(lines, axis=1)
    return header, blocks


def _of_rows(header: Header, groups: list[tuple[Any, Floats, Floats]], path: Path) -> dict[str, Floats]:
    """A row per value that is there; every one must have its place in the header's grid."""
    blocks = {signal: np.full(shape, np.nan) for signal, shape in header.shapes().items()}
    row = {(i.name, i.engine): k for k, i in enumerate(header.instances)}
    grid = np.array(header.times)
    for (instance, engine, signal, le), times, values in groups:
        block = blocks[signal]
        if signal in header.histograms:
            part = header.histograms[signal]
            line = {**{str(bound): e for e, bound in enumerate(part.le)}, "sum": len(part.le)}[le]
            block[row[instance, engine], line, _places(np.array(part.times), times, path)] = values
        elif signal in header.fleet:
            block[_places(grid, times, path)] = values
        else:
            block[row[instance, engine], _places(grid, times, path)] = values
    return blocks


def _places(grid: Floats, times: Floats, path: Path) -> NDArray[np.int64]:
    """Where each time stands in the grid, to the bit. Raises InputError."""
    order = np.argsort(grid, kind="stable")
    at: NDArray[np.int64] = order[np.minimum(np.searchsorted(grid[order], times), len(grid) - 1)]
    if (grid[at] != times).any():
        wrong = float(times[grid[at] != times][0])
        raise damaged(str(path), f"a row stands at {wrong}, which is no time of the header")
    return at

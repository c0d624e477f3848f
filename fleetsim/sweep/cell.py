"""A sweep as it will run: scenario, grid, its digest; one cell of it to one row; the journal that keeps the rows."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Literal

from msgspec import Struct

import fleetsim
from fleetsim.config.load import scenario_from_mapping, with_changes
from fleetsim.config.plain_scalar import plain_scalar
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_touched
from fleetsim.config.yaml_text import as_yaml
from fleetsim.errors import InputError, Problem, StuckError
from fleetsim.estimates import Estimate, estimate
from fleetsim.files import hold, unwritten
from fleetsim.job.derived_values import TP, instance_gpus, with_derived
from fleetsim.job.profile_facts import as_profiled
from fleetsim.job.trials import flat
from fleetsim.quantities import METRICS, RARE_METRICS, RUN_METRICS
from fleetsim.sim.engines import in_engine, profile_of
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate
from fleetsim.sweep.grid import Grid

# --- What a sweep is going to run: the scenario, the grid, how often; and the digest that it is known by.

# Whatever decides on a cell's numbers.
_DECIDING = ("config", "policies", "workload", "engine", "trainer", "sim", "job", "sweep")
# Keys that trainer, weight sync and slowdown follow from where nobody said them.
_DERIVED_OF = ("engine", "trainer", "workload", "sync", "fleet.placement")
# What is worked out, and so called assumed; where it is not, somebody said it.
_DERIVED = ("trainer.gpus", "trainer.per_token_s", "engine.slowdown", "sync.transport")
_WORD = re.compile(r"[A-Za-z][\w./-]*")


class Design(Struct, frozen=True):
    """raw: the scenario as a plain mapping, all defaults written out, so that a worker can be sent it. given: dotted
    paths that somebody wrote. replications: of every cell."""

    raw: Mapping[str, Any]
    given: tuple[str, ...]
    grid: Grid
    replications: int

    def scenario(self, cell: int) -> Scenario:
        """The scenario of one cell: what `fleetsim simulate` makes of it with the cell's values as `--set`.

        Raises InputError for values that do not fit.
        """
        values = self.grid.values(cell)
        raw = dict(self.raw)
        instances = values.get("fleet.instances")
        factors = raw["fleet"].get("speed_factors") or ()
        if isinstance(instances, int) and "fleet.speed_factors" not in values and len(factors) > instances:
            # The factors of instances that are no more go with them.
            raw["fleet"] = {**raw["fleet"], "speed_factors": factors[:instances]}
        assumed = [p for p in raw.get("assumed", ()) if not is_touched(p, values)]
        raw["assumed"] = assumed
        scenario = scenario_from_mapping(raw, "cell", [f"{path}={text_of(value)}" for path, value in values.items()])
        given = {*self.given, *values}
        if any(path.startswith("engine") for path in values):
            tp = instance_gpus(scenario, given) if self.given else None
            scenario = scenario if tp is None else with_changes(scenario, {TP: tp})
            scenario = as_profiled(scenario, given).scenario
        if not any(path.startswith(_DERIVED_OF) for path in values):
            return scenario
        return with_derived(scenario, given | {p for p in _DERIVED if p not in self.raw.get("assumed", ())})


def design_of(scenario: Scenario, grid: Grid, replications: int | None = None, given: Collection[str] = ()) -> Design:
    """A design. replications: `run.replications` of the scenario if None. given: as `Design` has it."""
    n = scenario.run.replications if replications is None else replications
    raw = scenario.model_dump(exclude_none=True)
    raw["run"]["replications"] = n
    return Design(raw, tuple(sorted(given)), grid, n)


@cache
def sources_digest() -> str:
    """Digest of the code that decides on a cell's numbers, and of its version."""
    digest = hashlib.sha256(fleetsim.__version__.encode())
    root = Path(fleetsim.__file__).parent
    for package in _DECIDING:
        for source in sorted((root / package).rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def digest_of(design: Design) -> str:
    """What a design is known by: equal for equal results. Files that the scenario names count by their content."""
    grid = [[axis.path, list(axis.values)] for axis in design.grid.axes]
    known = [sources_digest(), design.raw, design.given, grid, design.replications]
    digest = hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode())
    for path in sorted({*_files(design.raw), *_files(grid)}):
        digest.update(Path(path).read_bytes())
    profile = profile_of(Scenario.model_validate(dict(design.raw)))
    if profile is not None:
        digest.update(profile.model_dump_json().encode())
    return digest.hexdigest()[:32]


def _files(value: Any) -> set[str]:
    """Every text below a value that names a file: profiles, empirical lengths, a model's config.json."""
    if isinstance(value, Mapping):
        return set().union(*map(_files, value.values()))
    if isinstance(value, (list, tuple)):
        return set().union(*map(_files, value))
    try:
        return {value} if isinstance(value, str) and value and "\0" not in value and Path(value).is_file() else set()
    except OSError:
        return set()


def text_of(value: Any) -> str:
    """A value as `--set` takes it: JSON, which is YAML; plain words without quotes."""
    if isinstance(value, str) and _WORD.fullmatch(value) and plain_scalar(value) == value:
        return value
    return as_yaml(value, str)


Status = Literal["ok", "invalid", "stuck"]


class SweepRow(Struct, frozen=True):
    """What became of a cell.

    status: ok, invalid (its values do not fit together) or stuck (its run blocks itself); then reason says why and
    values is empty. values: one tuple a replication, in the order of `RUN_METRICS`: those of stations only where
    the cell has any, None for the others. binding: the most frequent one.
    """

    cell: int
    status: Status
    reason: str = ""
    binding: str = ""
    values: tuple[tuple[float | None, ...], ...] = ()

    def estimates(self) -> dict[str, Estimate]:
        """Quantity -> mean and interval over the replications; empty where the cell has none."""
        columns = zip(RUN_METRICS, zip(*self.values, strict=True), strict=False)
        return {name: estimate(found) for name, of in columns if (found := [x for x in of if x is not None])}


def run_cell(design: Design, cell: int) -> SweepRow:
    """Simulates one cell."""
    scenario = None
    try:
        scenario = design.scenario(cell)
        runs = [flat(metrics_of(simulate(scenario, replication=r))) for r in range(design.replications)]
    except InputError as error:
        problems = error.problems if scenario is None else in_engine(scenario, error)
        return SweepRow(cell, "invalid", "; ".join(map(str, problems)))
    except StuckError as error:
        return SweepRow(cell, "stuck", "; ".join(str(error).splitlines()))
    binding = Counter(str(run["binding"]) for run in runs).most_common(1)[0][0]
    names = RUN_METRICS if any(name in runs[0] for name in RARE_METRICS) else METRICS
    return SweepRow(cell, "ok", "", binding, tuple(tuple(run.get(name) for name in names) for run in runs))


# --- The journal of a sweep: finished cells, appended to a file beside the output, so that a killed sweep goes on.
#
# The first line says which sweep it is (`digest_of`); every other line is one cell. A line that is torn, and whatever
# stands behind it, is dropped: those cells are run again. A journal without a cell is of no sweep, and goes. The file
# is locked as long as a sweep writes to it, by the operating system, so that no kill leaves the lock behind.

SUFFIX = ".journal.jsonl"
_FORMAT = 1
# The first line of a journal and no more.
_BARE = re.compile(rb'\{"journal": \d+, "sweep": "\w*"\}\s*')
# Seconds between two waits for the disk.
_SYNC_S = 0.3


class Journal:
    """An open, locked journal. rows: the cells that it holds, by cell."""

    def __init__(self, path: Path, stream: BinaryIO, rows: dict[int, SweepRow]) -> None:
        self.path, self.rows, self._stream = path, rows, stream
        self._empty, self._synced_s = not rows, 0.0

    def add(self, row: SweepRow) -> None:
        """Appends a cell: no kill takes it back; where the machine stops, the last moments may be lost. Raises
        OutsideError."""
        try:
            cell = [row.cell, row.status, row.reason, row.binding, row.values]
            self._empty = False
            self._stream.write(json.dumps(cell).encode() + b"\n")
            self._stream.flush()
            if time.monotonic() - self._synced_s > _SYNC_S:
                os.fsync(self._stream.fileno())
                self._synced_s = time.monotonic()
        except OSError as error:
            raise unwritten(self.path, error) from None

    def discard(self) -> None:
        """The output is complete: the journal goes."""
        self._empty = True
        self.close()

    def close(self) -> None:
        """Lets go of the file; the cells that it holds stay, and without any it goes."""
        if self._empty:
            self.path.unlink(missing_ok=True)
        _close(self._stream)


def journal_path(output: Path) -> Path:
    """Where the journal of an output lies."""
    return output.with_name(output.name + SUFFIX)


def open_journal(output: Path, digest: str, cells: int, restart: bool = False) -> Journal:
    """The journal of an output, begun or taken up again. restart: forget what it holds.

    Raises InputError when it is of another sweep or another process writes to it, OutsideError when it cannot be
    written.
    """
    path = journal_path(output)
    stream = _locked(path)
    try:
        if restart:
            stream.truncate(0)
        head = json.dumps({"journal": _FORMAT, "sweep": digest}).encode() + b"\n"
        stream.seek(0)
        data = stream.read()
        if not data.startswith(head):
            # Else it was killed while it wrote its first line, or before it had a cell.
            if data and not head.startswith(data) and not _BARE.fullmatch(data):
                rule = "holds the cells of another sweep: another scenario, grid, replications or version of fleetsim"
                remedy = "finish that one with its own command, choose another --out, or drop its cells with --restart"
                raise InputError([Problem("--out", str(path), rule, remedy)])
            stream.truncate(0)
            stream.write(head)
            stream.flush()
            return Journal(path, stream, {})
        rows, good = _read(data, len(head), cells)
        stream.truncate(good)
    except OSError as error:
        _close(stream)
        raise unwritten(path, error) from None
    except InputError:
        _close(stream)
        raise
    return Journal(path, stream, rows)


def _close(stream: BinaryIO) -> None:
    """Closes a file whose bytes that matter were flushed before: on a full disk, closing tries the rest once more."""
    with contextlib.suppress(OSError):
        stream.close()


def _read(data: bytes, start: int, cells: int) -> tuple[dict[int, SweepRow], int]:
    """The cells from `start` on, and where the last good line ends."""
    rows: dict[int, SweepRow] = {}
    for line in data[start:].splitlines(keepends=True):
        row = _row(line, cells) if line.endswith(b"\n") else None
        if row is None:
            break
        rows[row.cell] = row
        start += len(line)
    return rows, start


def _locked(path: Path) -> BinaryIO:
    while True:
        try:
            stream = path.open("a+b")
        except OSError as error:
            raise unwritten(path, error) from None
        if not hold(stream.fileno()):
            stream.close()
            rule, remedy = "another sweep is writing to this output", "wait for it, or choose another --out"
            raise InputError([Problem("--out", str(path), rule, remedy)])
        # Whoever held it may have removed the file meanwhile; then this is not the file that others see.
        if path.exists() and path.stat().st_ino == os.fstat(stream.fileno()).st_ino:
            return stream
        stream.close()


def _row(line: bytes, cells: int) -> SweepRow | None:
    try:
        cell, status, reason, binding, values = json.loads(line)
        row = SweepRow(
            cell, status, reason, binding, tuple(tuple(None if x is None else float(x) for x in run) for run in values)
        )
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    return row if isinstance(cell, int) and 0 <= cell < cells else None

"""One source of somebody else's measurements: durations, what they held, what the file says of the engine."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from fleetsim.calibrate.ask import Calibrate
from fleetsim.calibrate.fit.design import Observations, in_a_row
from fleetsim.calibrate.loads import prompt_chunks
from fleetsim.config.data_files import read_text
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag
from fleetsim.json_text import from_loose_json
from fleetsim.records import replace

Array = NDArray[np.float64]
Facts = dict[str, str | int | float]  # what a file says of the engine
BUDGET = 8192  # max_num_batched_tokens where nobody says: vLLM's for most servers


def config_of(model: str | None) -> str | None:
    """The config.json in a model's folder; any other name as it is."""
    if model and "\0" not in model and os.path.isfile(os.path.join(model, "config.json")):
        return os.path.join(model, "config.json")
    return model


# More is no measurement: of a duration, and of the tokens that an iteration computes.
MOST_S, MOST_TOKENS = 10_000_000, 100_000_000


class Duration(Struct, frozen=True):
    """A duration and the iterations that it took.

    seconds: of all of them together. iterations: shape (iterations, 4), by ITERATION; averages may be fractions.
    overheads: how many of a client's fixed costs lie in the duration. run: which run of the benchmark, 0, 1, 2...
    """

    seconds: float
    iterations: Array
    overheads: float = 0.0
    run: int = 0


class Source(Struct, frozen=True):
    """What one file or table tells.

    what: the kind of file, in words. observations: a segment each. run: the benchmark run of each observation, shape
    (observations,). single: whether the durations are those of single iterations, not averages over a run. facts: what
    it says of the engine, by the names of Given and engine, engine_version, date. assumed: what had to be assumed to
    read it.
    """

    path: str
    what: str
    observations: Observations
    run: NDArray[np.int64]
    single: bool = False
    facts: Facts = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


def iteration(decodes: float, kv_tokens: float, prefill_tokens: float = 0.0, attn_pairs: float = 0.0) -> Array:
    """One iteration, shape (1, 4)."""
    return np.array([[decodes, kv_tokens, prefill_tokens, attn_pairs]], np.float64)


def of_a_prompt(tokens: float, budget: float) -> Array:
    """The iterations that compute one prompt on an empty engine, shape (iterations, 4)."""
    return np.concatenate([iteration(0, 0, *chunk) for chunk in prompt_chunks([tokens], budget)])


class FileReading(Struct):
    """How a file is read. given: what the user says of the engine. budget: max_num_batched_tokens. number: of the run
    that is read, 0, 1, 2... notes: what had to be assumed."""

    given: Calibrate
    budget: int = BUDGET
    number: int = 0
    notes: list[str] = field(default_factory=list)


def observations_from(measured: Sequence[Duration], path: str) -> tuple[Observations, NDArray[np.int64]]:
    """Durations as the fit takes them, a segment each, and the run of each. Raises InputError if there are none, or if
    one says what no engine can do."""
    if not measured:
        raise InputError([Problem(flag("from"), path, "holds no usable duration", "give results of finished runs")])
    rows = np.concatenate([m.iterations for m in measured])
    tokens, seconds = float((rows[:, 0] + rows[:, 2]).max()), max(m.seconds for m in measured)
    for most, found, what in ((MOST_TOKENS, tokens, "tokens in an iteration"), (MOST_S, seconds, "seconds")):
        if found > most:
            rule = f"its numbers make {found:.3g} {what}: no engine has more than {most:,}"
            raise InputError([Problem(flag("from"), path, rule, "see whether a unit or a digit of a result is wrong")])
    observations = Observations(
        np.array([m.seconds for m in measured]),
        np.arange(len(measured), dtype=np.int32),
        np.array([m.overheads for m in measured]),
        np.repeat(np.arange(len(measured)), [len(m.iterations) for m in measured]),
        np.pad(rows, ((0, 0), (0, 1))),
    )
    return observations, np.array([m.run for m in measured], np.int64)


def joined(sources: Sequence[Source]) -> tuple[Observations, NDArray[np.int64]]:
    """The observations of all sources, segments and runs counted on. shape of runs: (observations,)."""
    runs, first = [], 0
    for s in sources:
        runs.append(s.run + first)
        first += int(s.run.max(initial=-1)) + 1
    together = in_a_row([s.observations for s in sources])
    return replace(together, segment=np.arange(len(together), dtype=np.int32)), np.concatenate(runs)


MAX_BYTES = 512 * 2**20
MAX_ROWS = 100_000
MAX_PROBLEMS = 20
UNITS = {"_ms": 1e-3, "_us": 1e-6}  # of times; others are in seconds
AS_WRITTEN = "give the file as its tool wrote it"
KNOWN = (
    "raw measurements, JSON of vllm bench serve, sweep, throughput or latency, a guidellm report, "
    "or a CSV of batch, context and tokens/s"
)
Document = Mapping[str, Any]


def unknown(path: str, found: str) -> InputError:
    """The error for a file that is none of those that can be read."""
    return InputError([Problem(flag("from"), path, f"{found}; looked for {KNOWN}", AS_WRITTEN)])


def text_of(path: str) -> str:
    """The text of a file. Raises InputError as `read_text` does."""
    return read_text(path, "--from", MAX_BYTES)


def json_documents(text: str, path: str) -> list[Document]:
    """The objects in a JSON text: one, a list of them, or one per line. Raises InputError where it is none of these."""
    try:
        documents = [from_loose_json(text)]
    except ValueError as error:
        try:
            documents = [from_loose_json(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            raise unknown(path, f"is no valid JSON ({error})") from None
    flat = [d for part in documents for d in (part if isinstance(part, list) else [part])]
    if not flat or not all(isinstance(d, dict) for d in flat):
        raise unknown(path, "holds no JSON object")
    return flat


def csv_rows(text: str, path: str) -> list[dict[str, str]]:
    """The rows of a CSV by its header; commas, semicolons or tabs. Raises InputError where there is none."""
    first = text.lstrip().splitlines()[0]
    delimiter = max(",;\t", key=first.count)
    try:
        reader = csv.DictReader(io.StringIO(text.lstrip()), delimiter=delimiter, strict=True)
        rows: list[dict[str, str]] = []
        for row in reader:
            if len(rows) >= MAX_ROWS:
                raise unknown(path, f"has more than {MAX_ROWS:,} rows")
            rows.append({k: v.strip() if isinstance(v, str) else "" for k, v in row.items() if k is not None})
    except csv.Error as error:
        raise unknown(path, f"is no valid CSV ({error})") from None
    if not rows:
        raise unknown(path, "has a header but no row, or neither")
    return rows


class DocumentFields(Struct):
    """Numbers of one document, in the unit that their key ends with, with every problem met so far."""

    document: Document
    where: str
    problems: list[Problem] = field(default_factory=list)

    def refused(self, key: str, value: Any, rule: str, remedy: str = "run the benchmark again") -> list[Duration]:
        """Notes a problem; no duration comes of it."""
        self.problems.append(Problem(f"{self.where}: {key}", value, rule, remedy))
        return []

    def number(self, *keys: str, least: float = 0.0, needed: bool = False, above: bool = False) -> float | None:
        """The first of `keys` that is given, as a finite number >= least (> least with `above`); None where none is."""
        for key in keys:
            value = self.document.get(key)
            if value is None or value == "":
                continue
            number = as_number(value)
            if number is not None and (number > least if above else number >= least):
                return number * next((unit for end, unit in UNITS.items() if key.endswith(end)), 1.0)
            self.refused(key, value, f"must be a finite number {'>' if above else '>='} {least:g}", AS_WRITTEN)
            return None
        if needed:
            self.refused(keys[0], None, f"needed, but {' or '.join(keys)} is not there", AS_WRITTEN)
        return None

    def every(self, *names: str) -> list[float] | None:
        """Numbers that are all needed, None where one is missing. A name may be several, a|b; with a > behind it the
        number must be above 0."""
        found = [self.number(*n.rstrip(">").split("|"), needed=True, above=n.endswith(">")) for n in names]
        known = [number for number in found if number is not None]
        return known if len(known) == len(names) else None

    def count(self, *keys: str) -> int | None:
        """The first of `keys` as an integer >= 1, None where it is none."""
        number = as_number(next((self.document[k] for k in keys if self.document.get(k) not in (None, "")), None))
        return int(number) if number is not None and number >= 1 and number == int(number) else None

    def text(self, *keys: str) -> str | None:
        """The first of `keys` that is a text."""
        found = (self.document.get(k) for k in keys)
        return next((v for v in found if isinstance(v, str) and v), None)


def as_number(value: Any) -> float | None:
    """A finite number, or a text of one; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None

"""Raw measurements: JSON lines, appended as they happen, so that whatever was written survives a crash.

Records by "t" (others are kept and ignored):

    meta   once per session: date, fleetsim, argv, source
    start  an engine came up: versions, limits, flags, GPU (fleetsim.calibrate.engine_facts reads it)
    it     iterations of an engine that runs in process, as columns (COLUMNS), times in integer microseconds
    obs    what a client saw of a server: seconds and the iterations that they must have held (nd, K, np, A)
    load   what is about to run: phase, label, which of how many, seconds left, and the same in words (said)
    seg    one load ended: phase, label, wall seconds, decode_s (median seconds of an iteration of decodes only); for
           batches per-request submit, first token, finish (us)
    phase  a measurement beside the loads, its figures under "res": "sync" is a weight update
    error, note, end

A run is one or more sessions in one file; a resumed run appends. Read by `read_raw`, plain or gzipped.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct, ValidationError, convert, defstruct
from numpy.typing import NDArray

from fleetsim.errors import InputError, Problem
from fleetsim.files import reason, unwritten, whole
from fleetsim.json_text import from_json

# One row per engine iteration.
COLUMNS = (
    "s",  # schedule() entered, us after the line's "e" (a monotonic clock, seconds)
    "ds",  # us inside schedule()
    "du",  # us from s until the result was on the host
    "dv",  # us inside update_from_output()
    "dt",  # duration, us: result to result; from s where the engine was empty before
    "idle",  # 1: the engine was empty before this iteration
    "warm",  # 1: warm-up, kept out of fits
    "nd",  # decodes (b)
    "K",  # tokens in the cache, summed over the decodes
    "npf",  # requests with a prefill chunk
    "np",  # prefill tokens (p)
    "A",  # query-key pairs of the prefill
    "Kp",  # tokens in the cache before the chunks, summed
    "hit",  # prompt tokens found in the prefix cache by requests admitted here
    "adm",  # requests admitted or resumed
    "out",  # tokens produced
    "fin",  # requests finished
    "pre",  # preemptions
    "run",  # running after schedule()
    "wait",  # waiting after schedule()
    "blk",  # KV blocks in use after schedule(), -1 where unknown
    "dr",  # tokens drafted for the decodes, which are verified here
)
NEEDED = frozenset({"s", "ds", "du", "dv", "dt", "nd"})  # others may be missing
REQUEST_COLUMNS = ("submit", "first", "finish", "n", "pre", "P", "want")  # one row per request, see Segment
FITTED: tuple[Literal["decode", "prefill", "mixed"], ...] = ("decode", "prefill", "mixed")
MAX_BYTES = 2 * 2**30


class Segment(Struct, frozen=True):
    """One load as it ran. id: shared with its rows. requests: per-request lists, None where not tracked.

    requests: submit, first, finish (us from the segment's start, -1 = never), n (tokens made), pre (preemptions),
    P (prompt tokens), want (tokens asked for). cut: the load was stopped before it ended.
    """

    id: int
    phase: str
    label: dict[str, Any]
    cut: bool
    requests: dict[str, list[int]] | None
    record: dict[str, Any]

    @property
    def kept_out(self) -> bool:
        """Whether this is a batch that no fit may see."""
        return self.phase not in FITTED


class Raw(Struct, frozen=True):
    """All that was measured.

    columns: per iteration, by COLUMNS name, each shape (iterations,), int64. segment: segment id per iteration.
    phase_of: phase by segment id; label_of: label by segment id. segments: the ended loads. obs: the client's records.
    damaged: lines that could not be read (a killed run leaves half a line).
    """

    meta: dict[str, Any]
    starts: tuple[dict[str, Any], ...]
    columns: dict[str, NDArray[np.int64]]
    segment: NDArray[np.int32]
    phase_of: tuple[str, ...]
    label_of: tuple[dict[str, Any], ...]
    segments: tuple[Segment, ...]
    obs: tuple[dict[str, Any], ...]
    records: tuple[dict[str, Any], ...]
    damaged: int


class RawWriter:
    """Appends records, one line per write(2); raises OutsideError if the disk refuses."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path = Path(path)
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            size = os.fstat(self._fd).st_size
            if size and os.pread(self._fd, 1, size - 1) != b"\n":
                os.write(self._fd, b"\n")  # a killed run left half a line
        except OSError as error:
            raise unwritten(path, error) from None

    def put(self, t: str, **fields: Any) -> None:
        """Writes one record."""
        line = (json.dumps({"t": t, **fields}, separators=(",", ":"), default=str) + "\n").encode()
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError as error:
            raise unwritten(self.path, error) from None

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)


def request_columns(
    requests: Iterable[tuple[float | None, float | None, float | None, int, int, int, int]], start: float
) -> dict[str, list[int]]:
    """The `req` field of a `seg` record, of rows of REQUEST_COLUMNS. Its times are microseconds from start, -1 for
    never (None, or a time below 0)."""
    rows = [
        (*(-1 if at is None or at < 0 else round((at - start) * 1e6) for at in row[:3]), *row[3:]) for row in requests
    ]
    return {name: list(column) for name, column in zip(REQUEST_COLUMNS, zip(*rows, strict=True), strict=True)}


def compress(path: str | os.PathLike[str]) -> Path:
    """FILE.jsonl becomes FILE.jsonl.gz, whole or not at all. The same records give the same bytes."""
    source = Path(path)
    target = source.with_name(source.name + ".gz")
    with (
        whole(target) as beside,
        source.open("rb") as file,
        beside.open("wb") as out,
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=out, mtime=0) as packed,
    ):
        shutil.copyfileobj(file, packed, 1 << 20)
    source.unlink()
    return target


def records_of(path: str | os.PathLike[str]) -> tuple[list[dict[str, Any]], int]:
    """The records of a file, and the number of lines that were damaged. Raises InputError if it cannot be read."""
    found: list[dict[str, Any]] = []
    damaged = 0
    for line in _lines(Path(path)):
        try:
            record = from_json(line)
        except ValueError:
            record = None
        if isinstance(record, dict) and _well_formed(record):
            found.append(record)
        else:
            damaged += bool(line.strip())
    return found, damaged


def _lines(path: Path) -> Iterator[bytes]:
    def refuse(rule: str) -> InputError:
        return InputError([Problem("raw measurements", str(path), rule, "give a file that fleetsim calibrate wrote")])

    try:
        total = 0
        with _opened(path) as source:
            try:
                for line in source:
                    total += len(line)
                    if total > MAX_BYTES:
                        raise refuse(f"is larger than {MAX_BYTES >> 30} GiB")
                    yield line
            except (EOFError, zlib.error, gzip.BadGzipFile):
                yield b"{"  # cut short: what came before counts, the rest is damage
    except OSError as error:
        raise refuse(f"cannot be read: {reason(error)}") from None


def _opened(path: Path) -> BufferedReader | gzip.GzipFile:
    """A file for reading, unpacked where it is packed."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")


def first_record(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The first line of a file, plain or gzipped, where it is a JSON object; {} for anything else."""
    try:
        with _opened(Path(path)) as stream:
            record = from_json(stream.readline(1 << 20))
    except (OSError, EOFError, ValueError, zlib.error):
        return {}
    return record if isinstance(record, dict) else {}


def read_raw(path: str | os.PathLike[str]) -> Raw:
    """The measurements in a file, plain or gzipped, whole or cut short.

    Raises InputError if it cannot be read or holds no measurements.
    """
    records, damaged = records_of(path)
    raw = raw_of(records, damaged)
    if not raw.starts or not (len(raw.segment) or raw.obs):
        what = "no engine" if not raw.starts else "no iterations"
        raise InputError(
            [Problem("raw measurements", os.fspath(path), f"holds {what}", "measure again with fleetsim calibrate")]
        )
    return raw


def raw_of(records: list[dict[str, Any]], damaged: int = 0) -> Raw:
    """The measurements in a list of records. Ill-formed ones count as damaged."""
    ids: dict[tuple[Any, ...], int] = {}
    phases: list[str] = []
    labels: list[dict[str, Any]] = []
    tables, owners = [np.empty((len(COLUMNS), 0), np.int64)], [0]
    segments: list[Segment] = []
    obs: list[dict[str, Any]] = []
    session = 0

    def id_of(record: dict[str, Any]) -> int:
        key = (session, record.get("ph"), record.get("seg"))
        if key not in ids:
            ids[key] = len(ids)
            phases.append(str(record.get("ph", "")))
            labels.append(dict(record.get("lab") or {}))
        return ids[key]

    for record in records:
        kind = record.get("t")
        if kind == "start":
            session += 1  # segments count anew in every engine
        elif kind == "it":
            try:
                tables.append(_table(record["c"]))
                owners.append(id_of(record))
            except (KeyError, TypeError, ValueError, OverflowError):
                damaged += 1
        elif kind == "seg":
            at, cut, requests = id_of(record), bool(record.get("cut")), record.get("req")
            segments.append(Segment(at, phases[at], labels[at], cut, requests, record))
        elif kind == "obs":
            obs.append({**record, "id": id_of(record)})
    return Raw(
        meta=next((r for r in records if r.get("t") == "meta"), {}),
        starts=tuple(r for r in records if r.get("t") == "start"),
        columns=dict(zip(COLUMNS, np.concatenate(tables, axis=1), strict=True)),
        segment=np.repeat(np.array(owners, np.int32), [table.shape[1] for table in tables]),
        phase_of=tuple(phases),
        label_of=tuple(labels),
        segments=tuple(segments),
        obs=tuple(obs),
        records=tuple(r for r in records if r.get("t") not in ("it", "obs")),
        damaged=damaged,
    )


def _table(columns: Mapping[str, Any]) -> NDArray[np.int64]:
    """The iterations of a record, shape (len(COLUMNS), iterations); what may be missing is 0. Raises KeyError,
    TypeError or ValueError where what iterations need is missing, or not all is of one length."""
    n = len(columns["dt"])
    return np.array(
        [columns[name] if name in NEEDED else columns.get(name) or [0] * n for name in COLUMNS], np.int64
    ).reshape(len(COLUMNS), n)


# --- What a record must look like. A file may have been cut, merged or edited on its way from the GPU box: a record
# with a wrong type, or with a number that no engine can have, counts as damaged; it is left out, how many is told.

# No iteration takes three hours, none holds more tokens than 30 bits count, no session lasts 30 years.
MOST_ITERATION_US, MOST_TOKENS, MOST_PAIRS, MOST_US = 10**10, 10**9, 10**18, 10**15


def _well_formed(record: Mapping[str, Any]) -> bool:
    """Whether a record has what its kind ("t") needs, in the right types and within reach."""
    form = FORMS.get(str(record.get("t")))
    if form is None:
        return True
    try:
        convert(record, form)
    except ValidationError:
        return False
    tables = (record.get("c"), record.get("req"))
    return all(len({len(v) for v in t.values() if isinstance(v, list)}) <= 1 for t in tables if isinstance(t, dict))


def _form(fields: Mapping[str, Any]) -> type[Struct]:
    """An object whose values, where they are given, are of these types; a name may be several. Other keys are free."""
    kinds = {names: _form(kind) if isinstance(kind, dict) else kind for names, kind in fields.items()}
    return defstruct("Form", [(name, kind | None, None) for names, kind in kinds.items() for name in names.split()])


def _forms() -> dict[str, type[Struct]]:
    """By kind of record."""

    def column(low: int, high: int, kind: type = int) -> Any:
        """Numbers between two; a single one counts as a list."""
        number = Annotated[kind, Meta(ge=low, le=high)]
        return number | list[number]

    text, count = Annotated[str, Meta(max_length=9_999)], Annotated[int, Meta(ge=0, le=MOST_TOKENS)]
    seconds, large = Annotated[float, Meta(ge=0, le=1e9)], Annotated[int, Meta(ge=0, le=10**15)]
    tokens, times, whatever = column(-1, MOST_TOKENS), column(-1, MOST_US), dict[str, Any]
    label = {"G P groups slots budget pool_blocks tokens": count, "length_scale": seconds}
    segment = {"ph": text, "seg": text | int, "lab": label}
    drafts = {"iterations drafted": large, "accepted_at": list[large]}
    iterations = {
        "s ds du dv idle warm": times,
        "dt": column(-1, MOST_ITERATION_US),
        "nd K npf np Kp hit adm out fin pre run wait blk dr": tokens,
        "A": column(0, MOST_PAIRS),
    }
    seen = {
        "dt": column(-MOST_ITERATION_US, MOST_ITERATION_US, float),
        "ovh nd K np dr": column(0, MOST_TOKENS, float),
        "of": column(0, MOST_TOKENS),
        "A": column(0, MOST_PAIRS, float),
    }
    started = {
        "engine vllm version cuda torch kind": text,
        "tp": count,
        "assumed": list[text],
        "drafts": drafts,
        "cache": {"num_gpu_blocks block_size": count},
        "sched": {"max_num_seqs max_num_batched_tokens": count},
        "comp": {"sizes": list[count]},
        "model": {"max_model_len": count, "hf": whatever, "dtype": text},
        "gpu": {"name": text, "count": count, "driver": text},
        "engine_args": {"model": text, "tensor_parallel_size": count},
        "speculation": {"method": text},
    }
    requests = {"submit first finish": times, "n pre P want": tokens}
    ended = {"wall submit decode_s": seconds, "hit_tokens": count, "drafts": drafts, "req": requests}
    forms = {
        "meta": {"model source date smi": text},
        "start": started,
        "it": {**segment, "c": iterations},
        "seg": {**segment, **ended},
        "obs": {**segment, **seen},
        "phase": {"ph": text, "res": {"weights": whatever}},
    }
    return {kind: _form(fields) for kind, fields in forms.items()}


FORMS = _forms()

"""`calibrate`: what can be asked about measuring an engine, checked before anything is started; where its files lie."""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from msgspec import Struct

from fleetsim.errors import InputError, OutsideError, Problem, Problems
from fleetsim.faces import flag
from fleetsim.files import hold, new_file, reason, unwritten
from fleetsim.job.settings import Argument, Option

WHAT, ENGINE, SERVER, RUN, OUTPUT = "What is measured", "The engine", "A server", "The measurement", "Output"
FULL_S, QUICK_S = 600.0, 120.0
LEAST_S, MOST_S = 10.0, 86_400.0
# What files and servers may say of an engine themselves.
GIVEN = ("model", "gpu", "tp", "dtype", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "kv_blocks",
         "block_size", "gpu_memory_utilization")  # fmt: skip
_COUNTS = ("tp", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "kv_blocks", "block_size")


@dataclass(frozen=True, kw_only=True)
class Calibrate:
    """How long does an iteration of this engine take? Null limits mean: as the engine says, or its default."""

    more: Annotated[list[str] | None, Argument("More files, as --from.", "[FILE]...")] = None
    model: Annotated[str | None, Option("Hugging Face id, or a folder with a config.json.", WHAT)] = None
    url: Annotated[str | None, Option("Measure a running OpenAI-compatible server instead.", WHAT)] = None
    from_: Annotated[
        list[str] | None,
        Option(
            "Fit what exists: raw measurements, vllm bench or guidellm JSON, a CSV, aiconfigurator:SYSTEM. Repeatable.",
            WHAT,
            metavar="FILE",
        ),
    ] = None
    point: Annotated[
        list[str] | None,
        Option("One measured load: concurrency=64 isl=1000 osl=1000 tok_s=4100. Repeatable.", WHAT, metavar="LOAD"),
    ] = None
    engine: Annotated[str, Option("Which engine runs in process, or is calibrated at --point.", ENGINE)] = "vllm"
    tp: Annotated[int | None, Option("GPUs per instance.", ENGINE)] = None
    dtype: Annotated[str | None, Option("Type of the weights.", ENGINE)] = None
    max_num_seqs: Annotated[int | None, Option("Running requests.", ENGINE)] = None
    max_num_batched_tokens: Annotated[int | None, Option("Tokens per iteration.", ENGINE)] = None
    max_model_len: Annotated[int | None, Option("Longest context.", ENGINE)] = None
    gpu_memory_utilization: Annotated[float | None, Option("Share of the GPU's memory.", ENGINE)] = None
    quantization: Annotated[str | None, Option("As the engine names it.", ENGINE)] = None
    load_format: Annotated[str, Option("dummy: random weights, as fast as real ones.", ENGINE)] = "dummy"
    engine_arg: Annotated[
        list[str] | None, Option("Any engine argument, value as JSON. Repeatable.", ENGINE, metavar="K=V")
    ] = None
    gpu: Annotated[str | None, Option("GPU type, where a file or server does not say.", SERVER)] = None
    kv_blocks: Annotated[int | None, Option("KV blocks, where it does not say.", SERVER)] = None
    block_size: Annotated[int | None, Option("Tokens per block, where it does not say.", SERVER)] = None
    api_key: Annotated[str | None, Option("Bearer token of the server.", SERVER, variable="FLEETSIM_API_KEY")] = None
    yes: Annotated[bool, Option("Measure although the server may serve others.", SERVER)] = False
    quick: Annotated[bool, Option("Fewer points, two minutes.", RUN)] = False
    budget_s: Annotated[float | None, Option("Seconds for everything: 600, 120 with --quick.", RUN)] = None
    dry_run: Annotated[bool, Option("Say what would be measured, in how long; measure nothing.", RUN)] = False
    measure_sync: Annotated[bool, Option("Also pause, update weights, resume.", RUN)] = False
    resume: Annotated[bool, Option("Go on with what an earlier run measured.", RUN)] = False
    measure_only: Annotated[bool, Option("Keep raw measurements, fit elsewhere.", RUN)] = False
    seed: Annotated[int, Option("Of prompts, lengths and order.", RUN)] = 0
    output: Annotated[str | None, Option("The profile: NAME.profile.json.", OUTPUT, metavar="FILE", short="-o")] = None
    name: Annotated[str | None, Option("The profile's name.", OUTPUT)] = None
    force: Annotated[bool, Option("Overwrite what is there.", OUTPUT)] = False

    @property
    def files(self) -> tuple[str, ...]:
        """Files that are fitted; nothing is measured then."""
        return (*(self.from_ or ()), *(self.more or ()))

    @property
    def source(self) -> Literal["vllm", "server", "files", "points"]:
        """Where the numbers come from."""
        if self.point:
            return "points"
        return "files" if self.files else "server" if self.url else "vllm"

    @property
    def engine_args(self) -> dict[str, Any]:
        """Further engine arguments by name."""
        return _engine_args(self.engine_arg or ())[0]

    @property
    def of_roofline(self) -> dict[str, Any]:
        """What is said of an engine that --point calibrates, as keys of a scenario's `engine`."""
        said = {name: getattr(self, name) for name in GIVEN if name not in ("model", "gpu")}
        return {name: value for name, value in said.items() if value is not None}

    @property
    def seconds(self) -> float:
        """Seconds that the whole calibration may take."""
        return self.budget_s if self.budget_s is not None else QUICK_S if self.quick else FULL_S

    @property
    def places(self) -> OutputPaths:
        """Where the files lie. Raises InputError for an output that cannot be one."""
        return places_of(self.output or f"{self._stem()}{SUFFIX}")

    def ready(self) -> Self:
        """Checks the question and returns it. Raises InputError with all that is wrong."""
        wrong = Problems([*self._contradictions(), *_engine_args(self.engine_arg or ())[1], *self._out_of_range()])
        with wrong.check():
            _ = self.places
        wrong.stop()
        return self

    def _contradictions(self) -> Iterator[Problem]:
        """Options that exclude or need each other."""
        if self.url and self.files:
            yield Problem(flag("url"), self.url, "must be one of --url and --from", "leave one of them out")
        if self.point:
            yield from self._of_points()
        if self.source == "vllm" and not self.model:
            rule = "one of --model (in process), --url (a server) and --from (files) is needed"
            yield Problem(flag("model"), None, rule, "for example --model Qwen/Qwen2.5-7B")
        if self.engine != "vllm" and not self.point:
            remedy = "start a server of that engine and give its --url"
            yield Problem(flag("engine"), self.engine, "only vllm runs in process", remedy)
        if self.dry_run and self.source != "vllm":
            yield Problem(flag("dry_run"), True, "is for an engine in process: --model", "leave it out")
        if self.source == "vllm":
            for name in ("gpu", "kv_blocks", "block_size"):
                if (said := getattr(self, name)) is not None and not (self.dry_run and name == "gpu"):
                    yield Problem(flag(name), said, "is for --url and --from", "the engine says it itself")
        elif self.engine_arg:
            yield Problem(flag("engine_arg"), self.engine_arg, "is for an engine in process", "leave it out")
        if (self.files or self.point) and (self.resume or self.measure_only):
            name = "resume" if self.resume else "measure_only"
            yield Problem(flag(name), True, "nothing is measured with --from or --point", "leave it out")

    def _of_points(self) -> Iterator[Problem]:
        """What a roofline needs that is calibrated at measured loads."""
        for name in ("url", "files"):
            if getattr(self, name):
                yield Problem(flag("point"), self.point, f"cannot be combined with {flag(name)}", "leave one out")
        for name in ("gpu", "model"):
            if not getattr(self, name):
                rule = "the roofline that --point calibrates is of a GPU and a model"
                yield Problem(flag(name), None, rule, f"add {flag(name)}")
        for name in ("max_model_len", "quantization"):
            if (said := getattr(self, name)) is not None:
                yield Problem(flag(name), said, "no roofline reads it", "leave it out; --dtype has the weights")

    def _out_of_range(self) -> Iterator[Problem]:
        """Single values that cannot be."""
        if not LEAST_S <= self.seconds <= MOST_S:
            rule = f"{LEAST_S:g} to {MOST_S:.0f} seconds"
            yield Problem(flag("budget_s"), self.budget_s, rule, "600 is the default")
        for name in _COUNTS:
            count = getattr(self, name)
            if count is not None and count < 1:
                yield Problem(flag(name), count, "must be an integer >= 1", "give a positive number")
        share = self.gpu_memory_utilization
        if share is not None and not 0 < share <= 1:
            yield Problem(flag("gpu_memory_utilization"), share, "must be a share in (0, 1]", "vLLM's default is 0.92")
        model = self.model
        if self.source == "vllm" and model and model.startswith(("/", "./", "../")) and not os.path.isdir(model):
            remedy = "give one with a config.json, or a Hugging Face id"
            yield Problem(flag("model"), model, "no such folder", remedy)

    def _stem(self) -> str:
        """The name of the files where the user gives none: the model, else the server, else the first file."""
        if self.model:
            stem, tp = slug(self.model), self.tp or 1
            return stem if tp == 1 else f"{stem}-tp{tp}"
        if self.url:
            return slug(self.url.split("//", 1)[-1].split("/", 1)[0])
        first = slug(self.files[0]) if self.files else "engine"
        for ending in (".gz", ".jsonl", ".raw", ".json", ".csv"):
            first = first.removesuffix(ending)
        return first


def _engine_args(texts: Sequence[str]) -> tuple[dict[str, Any], list[Problem]]:
    """The engine's further arguments, values as JSON where they are JSON, and what is wrong with the rest."""
    from fleetsim.json_text import from_json

    found: dict[str, Any] = {}
    problems = []
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip().lstrip("-").replace("-", "_")
        if not equals or not key.isidentifier():
            rule = "key=value, the key as the engine names it"
            problems.append(Problem(flag("engine_arg"), text, rule, "enforce_eager=true"))
            continue
        try:
            found[key] = from_json(value)
        except ValueError:
            found[key] = {"True": True, "False": False, "None": None}.get(value, value)
    return found, problems


# --- Where a calibration's files lie: the profile, its raw measurements beside it, the engine's log.

SUFFIX = ".profile.json"


class OutputPaths(Struct, frozen=True):
    """The files of one calibration. raw: while it runs; packed: when it is done; log: what the engine printed."""

    profile: Path
    raw: Path
    packed: Path
    log: Path


def places_of(output: str) -> OutputPaths:
    """The files that go with the profile file `output`. Raises InputError for a name that cannot be one."""
    if "\0" in output or not output.endswith(".json") or Path(output).name in (".json", SUFFIX):
        remedy = f"let it end in {SUFFIX}, for example h200-7b{SUFFIX}"
        raise InputError([Problem(flag("output"), output, "is no name for a profile", remedy)])
    profile = new_file(flag("output"), output, overwrite=True)
    stem = profile.name.removesuffix(SUFFIX).removesuffix(".json")
    raw = profile.with_name(f"{stem}.raw.jsonl")
    return OutputPaths(profile, raw, raw.with_name(f"{raw.name}.gz"), profile.with_name(f"{stem}.log"))


def slug(text: str) -> str:
    """A model's or server's name as a file name: Qwen/Qwen2.5-7B -> qwen2.5-7b."""
    last = text.rstrip("/").rsplit("/", 1)[-1] or text
    return re.sub(r"[^a-z0-9.]+", "-", last.lower()).strip("-.") or "engine"


def prepare(places: OutputPaths, *, resume: bool, force: bool) -> frozenset[str]:
    """Makes the places ready for measuring. Returns what ended in earlier sessions, if this one resumes them.

    resume: go on with the raw measurements that are there (packed ones are unpacked again). force: throw them away.
    Raises InputError where files are in the way, or where there is nothing to resume; OutsideError if the disk refuses.
    """
    old = [p for p in (places.raw, places.packed) if os.path.lexists(p)]
    if resume and not old:
        rule = "there are no measurements to go on with"
        raise InputError(
            [Problem(flag("resume"), str(places.raw), rule, "leave --resume out, or give the same --output")]
        )
    if not resume and not force:
        there = dict.fromkeys(old, "go on with it with --resume, or throw it away with --force")
        if places.profile.exists():
            there[places.profile] = "choose another name, or overwrite it with --force"
        if there:
            raise InputError([Problem(flag("output"), str(p), "exists already", how) for p, how in there.items()])
    from fleetsim.calibrate.session import ended

    try:
        if force and not resume:
            for p in old:
                p.unlink()
            return frozenset()
        if places.packed in old and places.raw not in old:
            places.raw.write_bytes(gzip.decompress(places.packed.read_bytes()))
    except (OSError, EOFError, zlib.error) as error:
        raise OutsideError(f"{str(places.packed)!r}: cannot be unpacked: {reason(error)}") from None
    return ended(places.raw) if resume else frozenset()


@contextmanager
def locked(places: OutputPaths) -> Iterator[None]:
    """Nobody else measures into these places meanwhile. Raises InputError where somebody does."""
    lock = places.raw.with_name(f".{places.raw.name}.lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OutsideError(f"{unwritten(lock, error)}; choose a folder of yours with -o") from None
    if not hold(handle):
        os.close(handle)
        remedy = "wait for it, stop it, or choose another name"
        problem = Problem(flag("output"), str(places.raw), "another calibration is writing it now", remedy)
        raise InputError([problem]) from None
    try:
        yield
    finally:
        with suppress(PermissionError):  # Windows removes no file that is open
            lock.unlink(missing_ok=True)
        os.close(handle)


def same_engine(places: OutputPaths, asked: dict[str, Any]) -> None:
    """Raises InputError where what is to be resumed was asked of another engine."""
    file = places.raw if places.raw.exists() else places.packed
    if not file.exists():
        return
    from fleetsim.calibrate.raw import records_of

    records, _ = records_of(file)
    before = next((r["asked"] for r in records if r.get("t") == "meta" and isinstance(r.get("asked"), dict)), None)
    if before is None:
        return
    now, wrong = json.loads(json.dumps(asked, default=str)), Problems()
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            rule = f"was {before.get(name)!r} when {file} was begun, and a profile holds for one engine"
            wrong.append(
                Problem(f"--resume: {name}", now.get(name), rule, "ask for the same, or give another --output")
            )
    wrong.stop()

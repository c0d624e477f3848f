"""One calibration from request to profile: measure or read, fit, check, write."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetsim import units
from fleetsim.calibrate.ask import Request
from fleetsim.calibrate.output_paths import SUFFIX, Places, alone, ended, prepare, same_engine, slug
from fleetsim.calibrate.raw import RawWriter, compress
from fleetsim.errors import FleetsimError, InputError, OutsideError, Problem

if TYPE_CHECKING:
    from fleetsim.config.profile import Profile

Tell = Callable[[str], None]
GOOD = 0.05  # errors above this are worth a warning
HIT_SLACK = 0.02


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What came out. profile, path: None where only measurements were asked for. raw: None where it was derived."""

    profile: Profile | None
    path: Path | None
    raw: Path | None
    warnings: tuple[str, ...]


def run(request: Request, tell: Tell) -> Calibrated:
    """Does what was asked for. tell: told what happens, in words.

    Raises InputError for what the user gave, OutsideError for the engine, GPU, server or disk; whatever had been
    measured until then is kept, and the error says where.
    """
    if request.source == "files":
        return _from_files(request, tell)
    with alone(request.places):
        return _measured(request, tell)


def _measured(request: Request, tell: Tell) -> Calibrated:
    places = request.places
    if request.resume:
        same_engine(places, _asked(request))
    done = prepare(places, resume=request.resume, force=request.force)
    _describe(request, places)
    try:
        notes = _server(request, done, tell) if request.source == "server" else _vllm(request, tell)
    except (KeyboardInterrupt, FleetsimError) as error:
        raise _kept(error, places) from None
    if request.measure_only:
        return Calibrated(None, None, compress(places.raw), notes)
    tell("fitting the step time, predicting the batches kept out")
    try:
        profile, found = _fitted(places.raw, request, places.packed.name)
    except FleetsimError as error:
        raise _kept(error, places) from None
    packed = compress(places.raw)
    _write(places.profile, profile)
    return Calibrated(profile, places.profile, packed, (*notes, *found))


def _describe(request: Request, places: Places) -> None:
    """The session's `meta` record. Never the key of a server."""
    import datetime

    from fleetsim import __version__

    writer = RawWriter(places.raw)
    writer.put(
        "meta",
        schema=1,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        fleetsim=__version__,
        source=request.source,
        model=(request.model or "").rstrip("/").rsplit("/", 1)[-1] if _is_path(request.model) else request.model,
        quick=request.quick,
        budget_s=request.budget_s,
        resumed=request.resume,
        asked=_asked(request),
        cpu=_cpu(),
        cores=os.cpu_count(),
    )
    writer.close()


def _asked(request: Request) -> dict[str, Any]:
    """What makes the engine what it is, as the user asked for it: a resumed run must ask for the same."""
    asked = _engine_args(request) if request.source == "vllm" else {"url": request.url, "model": request.model}
    if _is_path(request.model):
        asked["model"] = slug(str(request.model))
    return {key: value for key, value in asked.items() if value is not None}


def _is_path(model: str | None) -> bool:
    return model is not None and os.path.isdir(model)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _vllm(request: Request, tell: Tell) -> tuple[str, ...]:
    from fleetsim.calibrate.spawn import Spec, run_child

    outcome = run_child(
        Spec(
            raw=str(request.places.raw),
            log=str(request.places.log),
            engine_args=_engine_args(request),
            budget_s=request.budget_s,
            quick=request.quick,
            seed=request.seed,
            resume=request.resume,
            measure_sync=request.measure_sync,
        ),
        tell=tell,
    )
    if not outcome.loads and not request.resume:
        raise OutsideError(
            f"vLLM started, and then no load fitted into what was left of {request.budget_s:.0f} s; give a larger "
            "--budget-s, 120 for a quick calibration"
        )
    return outcome.notes


def _engine_args(request: Request) -> dict[str, Any]:
    """vLLM's own names; what the user wrote as --engine-arg wins."""
    named = {
        "model": request.model,
        "tensor_parallel_size": request.tp,
        "dtype": request.dtype,
        "max_num_seqs": request.max_num_seqs,
        "max_num_batched_tokens": request.max_num_batched_tokens,
        "max_model_len": request.max_model_len,
        "gpu_memory_utilization": request.gpu_memory_utilization,
        "quantization": request.quantization,
        "load_format": request.load_format,
    }
    return {**{key: value for key, value in named.items() if value is not None}, **request.engine_args}


def _server(request: Request, done: frozenset[str], tell: Tell) -> tuple[str, ...]:
    from fleetsim.calibrate.server.run import measure_server

    assert request.url is not None  # a rule of the request
    writer = RawWriter(request.places.raw)
    try:
        measure_server(
            request.url,
            writer,
            model=request.model,
            api_key=request.api_key,
            yes=request.yes,
            quick=request.quick,
            budget_s=request.budget_s,
            done=done,
            tell=tell,
            max_num_batched_tokens=request.max_num_batched_tokens,
            max_num_seqs=request.max_num_seqs,
            kv_blocks=request.kv_blocks,
            block_size=request.block_size,
            max_model_len=request.max_model_len,
            gpu=request.gpu,
            tp=request.tp,
            dtype=request.dtype,
            measure_sync=request.measure_sync,
            seed=request.seed,
        )
    finally:
        writer.close()
    return ()


def _kept(error: BaseException, places: Places) -> BaseException:
    """The same error, saying what was kept; the file goes if there is nothing in it."""
    loads = len(ended(places.raw)) if places.raw.exists() else 0
    if not loads:
        places.raw.unlink(missing_ok=True)
        if places.log.is_file() and not places.log.stat().st_size:
            places.log.unlink()
        return error
    what = (
        f"{loads} loads were measured and are kept in {places.raw}; go on with the same command and --resume, or fit "
        f"what there is with: fleetsim calibrate --from {places.raw}"
    )
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt(what)
    return OutsideError(f"{error}\n{what}")


def _fitted(raw_file: Path, request: Request, raw_name: str) -> tuple[Profile, tuple[str, ...]]:
    """The profile of a raw file, and what a user should know of it."""
    from fleetsim.calibrate.build import build_profile, default_name
    from fleetsim.calibrate.facts import facts_of
    from fleetsim.calibrate.raw import read_raw

    raw = read_raw(raw_file)
    profile = build_profile(raw, name=request.name or default_name(facts_of(raw)), raw_file=raw_name)
    damage = f"{raw.damaged} lines of {raw_file} are damaged or cut short; the profile rests on the others"
    return profile, ((damage,) if raw.damaged else ()) + warnings_of(profile)


def _from_files(request: Request, tell: Tell) -> Calibrated:
    """A profile of what exists: raw measurements are fitted as if they had just been made, anything else is derived."""
    places = request.places
    if places.profile.exists() and not request.force:
        rule = "exists already"
        raise InputError(
            [Problem("--output", str(places.profile), rule, "choose another name, or overwrite it with --force")]
        )
    tell("fitting what the files hold")
    from fleetsim.calibrate.tables import is_raw

    raw = [f for f in request.files if is_raw(f)]
    if raw:
        if len(request.files) > 1:
            rule = "raw measurements are fitted alone"
            raise InputError([Problem("--from", list(request.files), rule, "give one raw file, or none")])
        _says_itself(request)
        beside = os.path.relpath(raw[0], places.profile.parent)
        profile, found = _fitted(Path(raw[0]), request, beside)
    else:
        profile = _derived(request)
        found = warnings_of(profile)
    _write(places.profile, profile)
    return Calibrated(profile, places.profile, Path(raw[0]) if raw else None, found)


def _says_itself(request: Request) -> None:
    """Raises InputError for flags about an engine that the raw measurements describe."""
    names = ("model", "gpu", "tp", "dtype", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "kv_blocks",
             "block_size", "gpu_memory_utilization", "quantization")  # fmt: skip
    rule = "the raw measurements say it themselves"
    problems = [
        Problem(f"--{n.replace('_', '-')}", getattr(request, n), rule, "leave it out")
        for n in names
        if getattr(request, n) is not None
    ]
    if problems:
        raise InputError(problems)


def _derived(request: Request) -> Profile:
    from fleetsim.calibrate.derive import derive_profile
    from fleetsim.calibrate.known_engine import Given
    from fleetsim.calibrate.tables import read_source

    given = Given(
        gpu=request.gpu,
        model=request.model,
        tp=request.tp,
        dtype=request.dtype,
        max_num_seqs=request.max_num_seqs,
        max_num_batched_tokens=request.max_num_batched_tokens,
        max_model_len=request.max_model_len,
        kv_blocks=request.kv_blocks,
        block_size=request.block_size,
        gpu_memory_utilization=request.gpu_memory_utilization,
    )
    name = request.name or request.places.profile.name.removesuffix(SUFFIX).removesuffix(".json")
    return derive_profile([read_source(f, given) for f in request.files], given, name=name, seed=request.seed)


def _write(place: Path, profile: Profile) -> None:
    from fleetsim.config.profile_files import profile_text

    beside = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        beside.write_text(profile_text(profile), encoding="utf-8")
        beside.replace(place)
    except OSError as error:
        raise OutsideError(f"{str(place)!r}: cannot be written: {error.strerror or error}") from None


def warnings_of(profile: Profile) -> tuple[str, ...]:
    """What a user should know before trusting a new profile."""
    found = []
    error = profile.error
    if profile.kind == "measured" and error.worst is None:
        found.append(
            "no batch was kept out of the fit, so how well it predicts one is not known; measure with more --budget-s"
        )
    elif error.worst is not None and error.worst > GOOD and profile.kind == "measured":
        found.append(
            f"off by up to {units.share(error.worst)} on the {error.what}; fleetsim profile show says where. A noisy "
            "machine, clocks that throttle or a flag that changes speed with content are the usual causes"
        )
    cache = profile.prefix_cache
    if cache is not None and abs(cache.hit_tokens - cache.expected_tokens) > HIT_SLACK * max(cache.expected_tokens, 1):
        found.append(
            f"the prefix cache held {cache.hit_tokens:,} prompt tokens of groups, the simulator assumes "
            f"{cache.expected_tokens:,}: prompts will be cheaper or dearer than predicted"
        )
    found += _short_batches(profile.checks)
    return tuple(found)


def _short_batches(checks: Sequence[Any]) -> list[str]:
    short = [f"{c.name} ({units.share(c.length_scale, 0)})" for c in checks if c.length_scale < 1]
    if not short:
        return []
    return [f"time allowed shorter responses only in {', '.join(short)}; a larger --budget-s checks longer ones"]

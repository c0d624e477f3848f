"""One calibration from question to profile: measure or read, fit, check, write."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from fleetsim import units
from fleetsim.calibrate.ask import GIVEN, SUFFIX, Calibrate, OutputPaths, locked, prepare, same_engine, slug
from fleetsim.calibrate.raw import RawWriter, compress
from fleetsim.calibrate.session import ended
from fleetsim.config.engine_profile import profile_text
from fleetsim.errors import FleetsimError, InputError, OutsideError, Problem
from fleetsim.faces import flag
from fleetsim.files import new_file, write_text

if TYPE_CHECKING:
    from fleetsim.calibrate.dry_run import DryRun
    from fleetsim.config.engine_profile import Profile

Tell = Callable[[str], None]
# Options that vLLM calls by the same name.
_SAME_NAME = ("dtype", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "gpu_memory_utilization",
              "quantization", "load_format")  # fmt: skip
GOOD = 0.05  # errors above this are worth a warning
HIT_SLACK = 0.02


class Calibrated(Struct, frozen=True):
    """What came out. profile, path: None where only measurements were asked for. raw: None where it was derived."""

    profile: Profile | None
    path: Path | None
    raw: Path | None
    warnings: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""
        return {
            "schema_version": 1,
            "command": "calibrate",
            "path": None if self.path is None else str(self.path),
            "raw": None if self.raw is None else str(self.raw),
            "profile": None if self.profile is None else self.profile.model_dump(mode="json"),
            "warnings": list(self.warnings),
        }


def calibrate(asked: Calibrate, tell: Tell) -> Calibrated | DryRun:
    """Runs a calibration, or plans one. tell: hears what happens, in words.

    Raises InputError for what the user gave, OutsideError for the engine, GPU, server or disk; whatever had been
    measured until then is kept, and the error says where.
    """
    if asked.dry_run:
        from fleetsim.calibrate.dry_run import dry_run

        return dry_run(asked)
    if asked.source in ("files", "points"):
        return _derived(asked, tell)
    with locked(asked.places):
        return _measured(asked, tell)


def _measured(asked: Calibrate, tell: Tell) -> Calibrated:
    places = asked.places
    if asked.resume:
        same_engine(places, _engine_of(asked))
    done = prepare(places, resume=asked.resume, force=asked.force)
    _describe(asked, places)
    try:
        notes: tuple[str, ...] = ()
        if asked.source == "server":
            try:
                import aiohttp  # noqa: F401 - measuring a server needs both, this is where it is said how to get them
                import prometheus_client  # noqa: F401
            except ImportError as error:
                raise OutsideError(
                    f"measuring a server needs {error.name}, which is not installed; pip install 'fleetsim[server]'"
                ) from None
            from fleetsim.calibrate.server.measure import measure_server

            with closing(RawWriter(places.raw)) as writer:
                measure_server(asked, writer, done=done, tell=tell)
        else:
            from fleetsim.calibrate.vllm.parent import Spec, run_child

            how = {name: getattr(asked, name) for name in ("quick", "seed", "resume", "measure_sync")}
            spec = Spec(str(places.raw), str(places.log), _engine_args(asked), asked.seconds, **how)
            outcome = run_child(spec, tell=tell)
            notes = outcome.notes
            if not outcome.loads and not asked.resume:
                raise OutsideError(
                    f"vLLM started, and then no load fitted into what was left of {asked.seconds:.0f} s; give a larger "
                    "--budget-s, 120 for a quick calibration"
                )
    except (KeyboardInterrupt, FleetsimError) as error:
        raise _kept(error, places) from None
    if asked.measure_only:
        return Calibrated(None, None, compress(places.raw), notes)
    tell("fitting the step time, predicting the batches kept out")
    try:
        profile, found = _fitted(places.raw, asked, places.packed.name)
    except FleetsimError as error:
        raise _kept(error, places) from None
    packed = compress(places.raw)
    write_text(places.profile, profile_text(profile))
    return Calibrated(profile, places.profile, packed, (*notes, *found, *warnings_of(profile)))


def _describe(asked: Calibrate, places: OutputPaths) -> None:
    """The session's `meta` record. Never the key of a server."""
    import datetime

    from fleetsim import __version__
    from fleetsim.calibrate.vllm.description import cpu_name

    with closing(RawWriter(places.raw)) as writer:
        writer.put(
            "meta",
            schema=1,
            date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            fleetsim=__version__,
            source=asked.source,
            model=(asked.model or "").rstrip("/").rsplit("/", 1)[-1] if _is_path(asked.model) else asked.model,
            quick=asked.quick,
            budget_s=asked.seconds,
            resumed=asked.resume,
            asked=_engine_of(asked),
            cpu=cpu_name(),
            cores=os.cpu_count(),
        )


def _engine_of(asked: Calibrate) -> dict[str, Any]:
    """What makes the engine what it is, as the user asked for it: a resumed run must ask for the same."""
    said = _engine_args(asked) if asked.source == "vllm" else {"url": asked.url, "model": asked.model}
    if _is_path(asked.model):
        said["model"] = slug(str(asked.model))
    return {key: value for key, value in said.items() if value is not None}


def _is_path(model: str | None) -> bool:
    return model is not None and os.path.isdir(model)


def _engine_args(asked: Calibrate) -> dict[str, Any]:
    """vLLM's own names; what the user wrote as --engine-arg wins."""
    named = {"model": asked.model, "tensor_parallel_size": asked.tp, **{n: getattr(asked, n) for n in _SAME_NAME}}
    return {**{key: value for key, value in named.items() if value is not None}, **asked.engine_args}


def _kept(error: BaseException, places: OutputPaths) -> BaseException:
    """The error, with a sentence on what was kept. An empty file is removed."""
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


def _fitted(raw_file: Path, asked: Calibrate, raw_name: str) -> tuple[Profile, tuple[str, ...]]:
    """The profile of a raw file, and what a user should know of it."""
    from fleetsim.calibrate.build import build_profile, default_name
    from fleetsim.calibrate.engine_facts import facts_of
    from fleetsim.calibrate.raw import read_raw

    raw = read_raw(raw_file)
    profile = build_profile(raw, name=asked.name or default_name(facts_of(raw)), raw_file=raw_name)
    damage = f"{raw.damaged} lines of {raw_file} are damaged or cut short; the profile rests on the others"
    return profile, (damage,) if raw.damaged else ()


def _derived(asked: Calibrate, tell: Tell) -> Calibrated:
    """A profile of what exists: the roofline calibrated at measured loads, or a fit to files. Raw measurements are
    fitted as if they had just been made, anything else is derived."""
    place = new_file(flag("output"), str(asked.places.profile), asked.force)
    raw, notes = None, tuple[str, ...]()
    if asked.source == "points":
        from fleetsim.calibrate.one_load import calibrated, read_point

        points = [read_point(text) for text in asked.point or ()]
        tell("predicting the measured loads")
        profile = calibrated(points, str(asked.gpu), str(asked.model), asked.engine, **asked.of_roofline)
        profile = profile.model_copy(update={"name": asked.name or profile.name})
    else:
        from fleetsim.calibrate.sources import is_raw, read_source

        tell("fitting what the files hold")
        raw = next((Path(f) for f in asked.files if is_raw(f)), None)
        if raw is not None:
            if len(asked.files) > 1:
                rule, remedy = "raw measurements are fitted alone", "give one raw file, or none"
                raise InputError([Problem(flag("from"), list(asked.files), rule, remedy)])
            rule = "the raw measurements say it themselves"
            given = {name: getattr(asked, name) for name in (*GIVEN, "quantization")}
            wrong = [
                Problem(flag(name), said, rule, "leave it out") for name, said in given.items() if said is not None
            ]
            if wrong:
                raise InputError(wrong)
            profile, notes = _fitted(raw, asked, os.path.relpath(raw, place.parent))
        else:
            from fleetsim.calibrate.derivation import derive_profile

            name = asked.name or place.name.removesuffix(SUFFIX).removesuffix(".json")
            profile = derive_profile([read_source(f, asked) for f in asked.files], asked, name=name, seed=asked.seed)
    write_text(place, profile_text(profile))
    return Calibrated(profile, place, raw, (*notes, *warnings_of(profile)))


def warnings_of(profile: Profile) -> tuple[str, ...]:
    """What a user should know before trusting a new profile."""
    found = []
    error, cache = profile.error, profile.prefix_cache
    if profile.kind == "measured" and error.worst is None:
        found.append(
            "no batch was kept out of the fit, so how well it predicts one is not known; measure with more --budget-s"
        )
    elif error.worst is not None and error.worst > GOOD and profile.kind == "measured":
        found.append(
            f"off by up to {units.share(error.worst)} on the {error.what}; fleetsim profile show says where. A noisy "
            "machine, clocks that throttle or a flag that changes speed with content are the usual causes"
        )
    if cache is not None and abs(cache.hit_tokens - cache.expected_tokens) > HIT_SLACK * max(cache.expected_tokens, 1):
        found.append(
            f"the prefix cache held {cache.hit_tokens:,} prompt tokens of groups, the simulator assumes "
            f"{cache.expected_tokens:,}: prompts will be cheaper or dearer than predicted"
        )
    short = [f"{c.name} ({units.share(c.length_scale, 0)})" for c in profile.checks if c.length_scale < 1]
    if short:
        found.append(
            f"time allowed shorter responses only in {', '.join(short)}; a larger --budget-s checks longer ones"
        )
    return tuple(found)

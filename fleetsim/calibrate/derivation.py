"""Profiles that fleetsim did not measure: from benchmark results and tables of others, or from a roofline alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fleetsim import __version__, units
from fleetsim.calibrate.ask import GIVEN, Calibrate
from fleetsim.calibrate.fit.design import Observations
from fleetsim.calibrate.sources.source import (
    Array,
    Duration,
    Facts,
    Source,
    config_of,
    iteration,
    joined,
    observations_from,
)
from fleetsim.config.engine_profile import Profile, ProfileError, Provenance
from fleetsim.engine.gpus import gpu_spec
from fleetsim.engine.known_error import domain_of, known_error
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.profile_fields import coefficients_of, limit_fields
from fleetsim.engine.roofline_step import roofline
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError, Problem, Problems
from fleetsim.records import replace

if TYPE_CHECKING:
    from fleetsim.calibrate.fit.identifiability import Prior


# --- What nobody measured: a roofline as a profile, and as durations that a fit falls back on.

CONTEXTS = (128, 512, 2048, 8192, 32768)
LEAST_SIGMA = 0.1
UTILIZATION = 0.92
LIMITS, SIZE = ("max_num_seqs", "max_num_batched_tokens", "kv_blocks"), "block_size"


def roofline_prior(gpu: str, model: str, tp: int, dtype: str, limits: EngineLimits) -> Prior:
    """Durations of a roofline over everything that an engine of these limits may hold, as one prior.

    Decodes over batch and context as far as the KV cache goes, prompts up to the token budget, chunks after cached
    tokens, prompts beside decodes. Its spread is the error to count on for such an engine (`KnownError.sigma`).
    Raises InputError for an unknown GPU or model.
    """
    from fleetsim.calibrate.fit.identifiability import Prior

    step_time, _ = roofline(gpu, model, tp=tp, dtype=dtype, **{name: getattr(limits, name) for name in (*LIMITS, SIZE)})
    rows = [
        (b, b * c, 0, 0) for b in _doubled(1, limits.max_num_seqs) for c in CONTEXTS if b * c <= limits.kv_tokens
    ] or [(1, CONTEXTS[0], 0, 0)]
    prompts = _doubled(min(64, limits.max_num_batched_tokens), limits.max_num_batched_tokens)
    rows += [(0, 0, p, p * (p + 1) // 2) for p in prompts]
    rows += [(0, 0, p, p * c + p * (p + 1) // 2) for p in prompts[-2:] for c in (2048, 8192)]
    rows += [
        (b, b * 1024, p, p * (p + 1) // 2)
        for b in (16, 128)
        for p in (256, 1024)
        if b <= limits.max_num_seqs and b + p <= limits.max_num_batched_tokens
    ]
    measured = [
        Duration(step_time.seconds(b, p, kv, a), iteration(b, kv, p, a), run=i) for i, (b, kv, p, a) in enumerate(rows)
    ]
    observations, _ = observations_from(measured, "roofline")
    spread = known_error(domain_of(gpu_spec(gpu), model_shape(model), dtype, "vllm")).sigma
    return Prior(observations, max(LEAST_SIGMA, spread), source=f"a {step_time.source}")


def _doubled(low: int, high: int) -> list[int]:
    """low, 2 low, 4 low... and high."""
    steps = low * 2 ** np.arange(int(np.log2(high / low)) + 1)
    return sorted({*(int(s) for s in steps), high})


def estimate_profile(
    gpu: str,
    model: str,
    tp: int = 1,
    dtype: str = "auto",
    *,
    engine: str = "vllm",
    kv_dtype: str = "auto",
    slower: float = 1.0,
    name: str | None = None,
    **more: Any,
) -> Profile:
    """The roofline of a model on a GPU as a profile, to be saved, edited, compared: the same numbers as engine.kind
    roofline gives. Nothing in it was measured on this GPU with this model, so it has no ranges. slower: factor on
    all seconds. more: further arguments of `roofline`. Raises InputError as it does."""
    model = config_of(model) or model
    step_time, limits = roofline(gpu, model, tp=tp, dtype=dtype, kv_dtype=kv_dtype, engine=engine, **more)
    spec, shape = gpu_spec(gpu), model_shape(model)
    known = known_error(domain_of(spec, shape, dtype, engine))
    what = f"the roofline's own: median and 90th percentile {known.what}"
    last, dp = shape.name.rsplit("/", 1)[-1], more.get("dp", 1)
    return Profile(
        name=name or f"{spec.name}-{last}-tp{tp}-roofline".lower(),
        kind="derived",
        coefficients=coefficients_of(step_time.seeing_all.slower(slower)),
        limits=limit_fields(limits),
        error=ProfileError(median=known.median, p90=known.p90, what=what),
        provenance=Provenance(
            source="roofline",
            gpu=spec.name,
            engine=engine,
            model=model,
            dtype=shape.weights_type(dtype),
            tp=tp,
            assumed=(
                step_time.source,
                *([f"one of {dp} ranks that share the experts"] if dp > 1 else []),
                *guesses([name for name in LIMITS if more.get(name) is None], limits),
            ),
            fleetsim_version=__version__,
        ),
    )


def guesses(missing: Sequence[str], limits: EngineLimits) -> tuple[str, ...]:
    """Which limits were guessed, in words."""
    engine = "vLLM" if limits.scheduler == "vllm" else limits.scheduler
    why = {"kv_blocks": "what memory leaves"}
    return tuple(f"{n} {getattr(limits, n):,}: {why.get(n, f'{engine} on this GPU by default')}" for n in missing)


def derive_profile(sources: Sequence[Source], given: Calibrate, *, name: str, seed: int = 0) -> Profile:
    """The profile that fits all sources together; the same sources give the same profile.

    Limits come from the sources, else from `given`, else from the roofline of the GPU and model; the same roofline is
    the prior for what the sources did not measure, unless they are tables of single iterations that tell everything.
    Raises InputError with all problems: sources that contradict each other or the flags, limits that nobody says, too
    few measurements and no --gpu and --model to fill them in.
    """
    from fleetsim.calibrate.build import points_of
    from fleetsim.calibrate.fit.fit import fit
    from fleetsim.calibrate.fit.identifiability import lacking

    if not sources:
        raise InputError([Problem("--from", (), "needs at least one file", "name one")])
    facts, known = _agreed(sources, given)
    known = replace(known, model=config_of(known.model))
    limits, guessed = _limits(known)
    observations, runs = joined(sources)
    prior = None
    single = all(s.single for s in sources)
    if known.gpu and known.model and (not single or lacking(observations, None)):
        prior = roofline_prior(known.gpu, known.model, known.tp or 1, known.dtype or "auto", limits)
    try:
        fitted = fit(observations, prior=prior, seed=seed)
    except InputError as error:
        if not (flags := _lacking(known)):
            raise
        remedy = f"add {flags}, so that a roofline fills it in, or more measurements"
        raise InputError([replace(p, remedy=remedy) for p in error.problems]) from None
    # what had to be assumed to read the sources, each once, with its files where it is not all of them
    notes: dict[str, list[str]] = {}
    for source in sources:
        for note in source.assumed:
            notes.setdefault(note, []).append(source.path)
    told = (n if len(of) == len(sources) else f"{n} ({', '.join(of)})"[:10_000] for n, of in notes.items())
    return Profile(
        name=name,
        kind="derived",
        coefficients=fitted.coefficients,
        ranges=fitted.ranges,
        limits=limit_fields(limits),
        error=left_out_error(observations, runs, prior, seed, "point" if single else "benchmark run"),
        fit=fitted.error,
        points=points_of(observations, overhead_s=fitted.error.overhead_s),
        provenance=Provenance(
            source="; ".join(f"{s.what}: {s.path}" for s in sources)[:10_000],
            gpu=known.gpu or "",
            model=known.model or "",
            dtype=known.dtype or "",
            tp=known.tp or 1,
            engine=str(facts.get("engine", "")),
            engine_version=str(facts.get("engine_version", "")),
            date=str(facts.get("date", "")),
            assumed=(*told, *guessed, *fitted.assumed),
            fleetsim_version=__version__,
        ),
    )


def _agreed(sources: Sequence[Source], given: Calibrate) -> tuple[Facts, Calibrate]:
    """What the sources say of the engine, and the same with what the user says beside."""

    def alike(name: str, value: object) -> object:
        """Two spellings of one GPU or model are one."""
        try:
            return {"gpu": lambda v: gpu_spec(v).name, "model": lambda v: model_shape(v).name}[name](value)
        except (KeyError, InputError):
            return value

    facts: Facts = {}
    problems = Problems()
    for name in sorted({n for s in sources for n in s.facts}):
        said = {s.path: s.facts[name] for s in sources if name in s.facts}
        if name == "date":
            facts[name] = max(map(str, said.values()))
            continue
        different = Counter(alike(name, v) for v in said.values())
        if len(different) > 1 and name in GIVEN:
            rule = "the sources were measured with different ones: " + ", ".join(f"{p}: {v}" for p, v in said.items())
            problems.append(Problem(f"--from: {name}", tuple(different), rule, "derive a profile from each"))
        elif len(different) == 1:
            facts[name] = next(iter(said.values()))
        flag = getattr(given, name) if name in GIVEN else None
        if flag is not None and len(different) == 1 and alike(name, flag) not in different and name != "model":
            rule = f"{next(iter(said))} was measured with {facts[name]}"
            problems.append(Problem(f"--{name.replace('_', '-')}", flag, rule, "leave the flag out"))
    problems.stop()
    filled: dict[str, Any] = {n: facts[n] for n in GIVEN if getattr(given, n) is None and n in facts}
    return facts, replace(given, **filled)


def _limits(known: Calibrate) -> tuple[EngineLimits, tuple[str, ...]]:
    """The engine's limits and which of them were guessed. Raises InputError where nobody can say."""
    said = {n: getattr(known, n) for n in LIMITS}
    missing = [n for n, value in said.items() if value is None]
    size = known.block_size or 16
    guessed = () if known.block_size else (f"block_size {size}",)
    if not missing:
        return EngineLimits(**said, block_size=size), guessed
    if not (known.gpu and known.model):
        remedy = f"add {_lacking(known)}, or"
        raise InputError(
            [
                Problem(n, None, "no file says this limit of the engine", f"{remedy} --{n.replace('_', '-')}")
                for n in missing
            ]
        )
    share, tp, dtype = known.gpu_memory_utilization or UTILIZATION, known.tp or 1, known.dtype or "auto"
    _, limits = roofline(
        known.gpu, known.model, tp=tp, dtype=dtype, gpu_memory_utilization=share, block_size=size, **said
    )
    return limits, guessed + guesses(missing, limits)


def _lacking(known: Calibrate) -> str:
    """The flags of a roofline that are still to be given, empty where none is."""
    return " and ".join(f"--{n}" for n in ("gpu", "model") if not getattr(known, n))


LEAST_POINTS = 3
MOST_FITS = 12


def left_out_error(o: Observations, runs: NDArray[np.int64], prior: Prior | None, seed: int, one: str) -> ProfileError:
    """Relative errors of durations, each predicted by a fit to the other runs; nothing with fewer than three points.

    runs: the run of each observation, `one` what to call it. Where there are fewer than three runs, single points are
    left out instead; where there are more than 12, twelfths are left out, each of neighbours: what lies next to a point
    would give it away. First tokens, which hold a client's own time, count only where there is nothing else.
    """
    from fleetsim.calibrate.fit.fit import fit, spread_of

    point = np.unique(runs, return_inverse=True)[1]
    if point.max(initial=-1) + 1 < LEAST_POINTS:
        point, one = np.arange(len(o)), "point"
    n = int(point.max(initial=-1)) + 1
    if n < LEAST_POINTS:
        what = f"unknown: {n} {one}{'s' * (n != 1)}, at least {LEAST_POINTS} are needed to leave one out"
        return ProfileError(what=what)
    part = point * min(n, MOST_FITS) // n
    expected = np.full(len(o), np.nan)
    for k in np.unique(part):
        try:
            found = fit(o.where(part != k), prior=prior, seed=seed)
        except InputError:  # the others alone do not tell enough
            continue
        expected[part == k] = predicted_s(found.step_time, found.error.overhead_s, o)[part == k]
    count = (o.overheads == 0.0) | np.all(o.overheads > 0.0)
    count &= np.isfinite(expected)
    if not np.any(count):
        return ProfileError(what=f"unknown: without any one {one} the others do not tell enough")
    off = np.abs(expected[count] / o.seconds[count] - 1.0)
    left = f"one {one} of {n}" if n <= MOST_FITS else f"a twelfth of {n} {one}s"
    what = f"iteration times in the files, each predicted by a fit that left out {left}"
    return ProfileError(**spread_of(off), worst=units.short(float(off.max())), what=what)


def predicted_s(step_time: StepTime, overhead_s: float, o: Observations) -> Array:
    """Seconds of each observation by the model, shape (observations,)."""
    each = step_time.each_s(*o.held[:, [0, 2, 1, 3]].T)
    return np.asarray(np.bincount(o.of, each, minlength=len(o)) + overhead_s * o.overheads)

"""Closed loads: what clients of an engine see by its roofline or profile; what a measured load says of a roofline.

So many clients, each with one request at a time, ten requests of every client.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from math import exp, fsum, log
from statistics import median
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from fleetsim import units
from fleetsim.errors import InputError, Problem
from fleetsim.estimates import Ranged
from fleetsim.faces import flag
from fleetsim.records import as_dict, replace
from fleetsim.tell.document import Table

if TYPE_CHECKING:
    from fleetsim.config.engine_profile import Profile
    from fleetsim.engine.known_error import KnownError

_REQUESTS = 10
EXAMPLE = "concurrency=64 isl=1000 osl=1000 tok_s=4100"
_KEYS = ("concurrency", "isl", "osl", "tok_s")
# How much of what one load shows the whole engine follows. On public runs kept out of the fit, a load that another of
# the same engine calibrates is off by 6.9 % in the median, 90 % within 27 %; by 11.0 % and 33 % uncalibrated; with 1
# instead of 0.8 by 7.0 % and 30 %. Where all its other loads calibrate an engine: 5.8 % and 22 %.
FOLLOWED, LEFT_MEDIAN, LEFT_P90 = 0.8, 0.069, 0.268
# Nine of ten published times to the first token are within this share (docs/accuracy.md): a factor of 1.51 in eight.
FIRST_P90 = 0.7


class ClosedLoad(Struct, frozen=True):
    """concurrency: clients. isl, osl: tokens of each prompt and response."""

    concurrency: int
    isl: int
    osl: int


class MeasuredLoad(Struct, frozen=True):
    """A measured load: output tokens per second of all clients together."""

    load: ClosedLoad
    tok_s: float


class SeenLoad(Struct, frozen=True):
    """What clients see of a load: output tokens per second of all, seconds to the first token and per later one."""

    load: ClosedLoad
    tok_s: Ranged
    ttft_s: Ranged
    tpot_s: Ranged

    @property
    def words(self) -> str:
        """In a line."""
        a, b, c = self.tok_s, self.ttft_s, self.tpot_s
        return (
            f"{self.load.concurrency:,} clients, {self.load.isl:,} + {self.load.osl:,} tokens: {a.value:,.0f} tok/s "
            f"({a.low:,.0f} to {a.high:,.0f}), first token {1e3 * b.value:,.0f} ms ({1e3 * b.low:,.0f} to "
            f"{1e3 * b.high:,.0f}), later ones {1e3 * c.value:.1f} ms ({1e3 * c.low:.1f} to {1e3 * c.high:.1f}); eight "
            "of ten engines lie between these"
        )

    @property
    def data(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**as_dict(self.load), **{name: as_dict(getattr(self, name)) for name in ("tok_s", "ttft_s", "tpot_s")}}


def read_sides(text: str | None) -> dict[str, Any]:
    """`prefill=2 decode=1`: engines that compute prompts, and that decode, as keys of `engine`; of None there are none.
    Raises InputError for no such text."""
    parts = [part.partition("=") for part in (text or "").split()]
    if not all(value.isdecimal() for _, _, value in parts) or len({key for key, _, _ in parts}) < len(parts):
        rule = "KEY=N, each key once, with keys of a scenario's engine.disaggregation"
        raise InputError([Problem(flag("disaggregation"), text, rule, "for example 'prefill=2 decode=1'")])
    return {f"disaggregation.{key}": int(value) for key, _, value in parts}


def read_engine(sets: Sequence[str]) -> dict[str, Any]:
    """`engine.max_num_seqs=512`: keys of `engine` and their values. Raises InputError for another section's key."""
    from fleetsim.config.load import parse_overrides

    told = parse_overrides(sets)
    wrong = [path for path, _ in told if not path.startswith("engine.")]
    if wrong:
        rule, remedy = "must be of the engine: nothing else is told here", "for example --set engine.max_num_seqs=512"
        raise InputError([Problem(flag("set"), path, rule, remedy) for path in wrong])
    return {path.removeprefix("engine."): value for path, value in told}


def read_point(text: str) -> MeasuredLoad:
    """`concurrency=64 isl=1000 osl=1000 tok_s=4100`. Raises InputError with value, rule and remedy."""
    said = {key: value for key, _, value in (part.partition("=") for part in text.split())}
    try:
        if len(said) != len(text.split()) or len(said) != len(_KEYS):
            raise ValueError(text)
        counts = [int(said[key]) for key in _KEYS[:3]]
        tok_s = float(said["tok_s"])
    except (KeyError, ValueError):
        rule = f"each of {', '.join(f'{key}=NUMBER' for key in _KEYS)}, once"
        raise InputError([Problem(flag("point"), text, rule, f"for example --point '{EXAMPLE}'")]) from None
    load = ClosedLoad(*counts)
    check_load(load, "--point")
    if not 0 < tok_s < 1e9:
        raise InputError([Problem(flag("point"), tok_s, "must be above 0 and below 1e9", "give what was measured")])
    return MeasuredLoad(load, tok_s)


def check_load(load: ClosedLoad, path: str) -> None:
    """Raises InputError for a load that is none."""
    for name, most in (("concurrency", 4096), ("isl", 10**6), ("osl", 10**6)):
        value = getattr(load, name)
        if not 1 <= value <= most:
            raise InputError(
                [Problem(f"{path} {name}", value, f"must be a whole number from 1 to {most:,}", f"{name}=64")]
            )


def seen_of(load: ClosedLoad, gpu: str, model: str, known: KnownError | None = None, **engine: Any) -> SeenLoad:
    """What clients see of a load. engine: further keys of a scenario's `engine`. known: how far off such engines are,
    None = by their kind. Raises InputError for an engine that cannot be, and for a load that does not fit."""
    import numpy as np

    from fleetsim.calibrate.clients import closed_load, request_path
    from fleetsim.config.load import default_scenario, with_changes
    from fleetsim.engine.gpus import gpu_spec
    from fleetsim.engine.known_error import domain_of, known_error, sigma_of
    from fleetsim.engine.model.names import model_shape
    from fleetsim.sim.engines import engine_of

    asked = {"gpu": gpu, "model": model, "slowdown": 1.0, **engine}
    try:
        scenario = with_changes(default_scenario(), {f"engine.{key}": value for key, value in asked.items()})
        step_time, limits = engine_of(scenario, log_probs=False)
    except InputError as error:
        told = {"engine.name": "engine"}  # as its flag
        wrong = [replace(p, path=told.get(p.path, p.path.removeprefix("engine."))) for p in error.problems]
        raise InputError(wrong) from None
    name, ranks = scenario.engine.name, scenario.engine.dp
    clients = -(-load.concurrency // ranks)
    n = _REQUESTS * clients
    seen = closed_load(step_time, limits, np.full(n, load.isl), np.full(n, load.osl), clients, request_path(name))
    error = known or known_error(domain_of(gpu_spec(gpu), model_shape(model), scenario.engine.dtype, name))
    tok_s, first_s, later_s = (
        float(x) for x in (ranks * n * load.osl / seen.finish_s.max(), seen.first_s.mean(), seen.later_s.mean())
    )
    far = exp(1.2816 * sigma_of(FIRST_P90))
    first = Ranged(first_s, first_s / far, first_s * far)
    return SeenLoad(load, Ranged(tok_s, *error.around(tok_s)), first, Ranged(later_s, *error.around(later_s)))


def estimated(
    load: ClosedLoad, gpu: str, model: str, engine: dict[str, Any], sets: Sequence[str] = (), sides: str | None = None
) -> tuple[Profile, SeenLoad]:
    """The roofline of an engine as a profile, and what clients see of a load. engine: keys of `engine`; sets and sides:
    more of them, as typed. The profile is of one rank of those that decode, without drafts: they are the load's to
    tell. Raises InputError as `seen_of` does."""
    from fleetsim.calibrate.derivation import estimate_profile
    from fleetsim.engine import roofline

    told: dict[str, Any] = {"gpu": gpu, "model": model, **engine, **read_engine(sets)}
    apart = read_sides(sides)
    own = {key: value for key, value in told.items() if key in signature(roofline).parameters}
    own |= {"engine": told["name"], "dp": apart.get("disaggregation.decode_dp", told["dp"])}
    return estimate_profile(**own), seen_of(load, **told, **apart)


def calibrated(points: Sequence[MeasuredLoad], gpu: str, model: str, name: str = "vllm", **engine: Any) -> Profile:
    """The roofline as a profile, made slower or faster as measured loads say; its error is at least what it is off at
    these. name, engine: keys of a scenario's `engine`. Raises InputError as `seen_of` does."""
    from fleetsim.calibrate.derivation import estimate_profile

    faster = [log(seen_of(p.load, gpu, model, name=name, **engine).tok_s.value / p.tok_s) for p in points]
    slower = exp(fsum(faster) / len(points) * (FOLLOWED if len(points) == 1 else 1.0))
    plain = estimate_profile(gpu, model, engine=name, slower=slower, **engine)
    off = [exp(x) / slower - 1.0 for x in faster]
    said = "; ".join(
        f"{units.plural(p.load.concurrency, 'client')}, {p.load.isl} + {p.load.osl} tokens: {p.tok_s:g} tok/s (this "
        f"profile {units.change(x)})"
        for p, x in zip(points, off, strict=True)
    )
    left = [abs(x) for x in off]
    whose = "of public runs that another load of the same engine calibrates" if max(left) < LEFT_P90 else "of these"
    what = f"{whose}; here an iteration takes {slower:.3f} times as long as in its model"
    at_least = {"median": max(LEFT_MEDIAN, median(left)), "p90": max(LEFT_P90, *left)}
    error = plain.error.model_copy(update={**at_least, "worst": None, "what": what})
    source = plain.provenance.model_copy(update={"source": f"roofline calibrated at {said}"[:10_000]})
    changed = {"error": error, "provenance": source, "name": plain.name.replace("-roofline", "-calibrated")}
    return plain.model_copy(update=changed)


# --- What clients of a profile's engine see.

COUNTS = (1, 4, 16, 64, 256)
# As the load generators of engines ask: lengths even over [0.8, 1] of these, ten requests of every client.
PROMPT_TOKENS = OUTPUT_TOKENS = 1024
_SHORTEST = 0.8


class ClientView(Struct, frozen=True):
    """What so many clients see, each with one request at a time: means over requests, tokens per second of all."""

    clients: int
    first_token_s: float
    later_token_s: float
    output_tok_s: float


def seen_by_clients(profile: Profile) -> tuple[ClientView, ...]:
    """Simulates 1 to 256 clients, as many as the engine's limits take at once."""
    import numpy as np

    from fleetsim.calibrate.clients import closed_load, request_path
    from fleetsim.engine import EngineLimits
    from fleetsim.sim.engines import step_time_as_measured

    held = profile.limits
    limits = EngineLimits(held.max_num_seqs, held.max_num_batched_tokens, held.kv_blocks, held.block_size)
    step_time, path = step_time_as_measured(profile), request_path(profile.provenance.engine)
    most = min(held.max_num_seqs, held.kv_blocks * held.block_size // (PROMPT_TOKENS + OUTPUT_TOKENS))
    found = []
    for clients in (n for n in COUNTS if n <= most):
        rng = np.random.default_rng(0)
        prompt, output = (
            rng.integers(round(_SHORTEST * top), top + 1, size=_REQUESTS * clients)
            for top in (PROMPT_TOKENS, OUTPUT_TOKENS)
        )
        seen = closed_load(step_time, limits, prompt, output, clients, path)
        rate = float(output.sum() / seen.finish_s.max())
        found.append(ClientView(clients, float(seen.first_s.mean()), float(seen.later_s.mean()), rate))
    return tuple(found)


def clients_table(seen: Sequence[ClientView]) -> Table:
    """The table that `fleetsim profile estimate` shows."""
    rows = tuple(
        (f"{s.clients:,}", f"{1e3 * s.first_token_s:,.0f}", f"{1e3 * s.later_token_s:,.1f}", f"{s.output_tok_s:,.0f}")
        for s in seen
    )
    note = (
        f"prompts and responses of {_SHORTEST:g} to 1 times {PROMPT_TOKENS:,} tokens, {_REQUESTS} requests of every "
        "client, all start at once: means, as vLLM's and SGLang's load generators print them; docs/accuracy.md has the "
        "error of first tokens"
    )
    return Table(
        "clients of one server, each with one request at a time", ("clients", "first token ms", "later ms", "tok/s"),
        rows, left=0, note=note,
    )  # fmt: skip

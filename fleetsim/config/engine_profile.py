"""A profile: what was measured of an engine on a GPU, with intervals, ranges, errors and provenance."""

from __future__ import annotations

import hashlib
import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from fleetsim.config.base import ConfigSection, Count, CountOrZero, Name, wrong
from fleetsim.config.data_files import data_folder, read_json
from fleetsim.config.problems import of_another_kind, problems_of
from fleetsim.config.speculation import Drafts, Method, Shares
from fleetsim.config.tree import did_you_mean, tree_of
from fleetsim.errors import InputError, Problem

# --- The numbers of a step-time model in a file: coefficients with intervals, f through its knots.

Value = Annotated[float, Field(ge=0, le=1e9)]


class EstimateFields(ConfigSection):
    """A fitted coefficient with its 95 % interval, if one was computed."""

    value: Value = Field(description="seconds per unit")
    ci_low: Value | None = Field(default=None, description="lower end of the interval")
    ci_high: Value | None = Field(default=None, description="upper end of the interval")

    @model_validator(mode="after")
    def _interval_holds_the_value(self) -> Self:
        if (self.ci_low is not None and self.ci_low > self.value) or (
            self.ci_high is not None and self.ci_high < self.value
        ):
            raise wrong("ci_low <= value <= ci_high must hold", "check the order of the three numbers")
        return self


def _bare_number(given: Any) -> Any:
    return {"value": given} if isinstance(given, (int, float)) and not isinstance(given, bool) else given


Estimate = Annotated[EstimateFields, BeforeValidator(_bare_number)]


class Coefficients(ConfigSection):
    """t = f(n) + per_seq_s b + per_prefill_token_s p + per_kv_token_s K + per_attn_pair_s A, f through the knots."""

    knots_tokens: tuple[Value, ...] = Field(min_length=1, max_length=10_000, strict=False, description="tokens n of f")
    knots_s: tuple[Estimate, ...] = Field(
        min_length=1, max_length=10_000, strict=False, description="seconds f(n) at each knot"
    )
    per_seq_s: Estimate = Field(default=EstimateFields(value=0.0), description="seconds per decoding sequence")
    per_prefill_token_s: Estimate = Field(default=EstimateFields(value=0.0), description="seconds per prefill token")
    per_kv_token_s: Estimate = Field(
        default=EstimateFields(value=0.0), description="seconds per KV token that decodes read"
    )
    per_attn_pair_s: Estimate = Field(
        default=EstimateFields(value=0.0), description="seconds per query-key pair of prefill attention"
    )

    @model_validator(mode="after")
    def _a_curve(self) -> Self:
        seconds = [k.value for k in self.knots_s]
        if len(self.knots_tokens) != len(seconds):
            raise wrong(
                "knots_tokens and knots_s must have the same length",
                f"{len(self.knots_tokens)} and {len(seconds)} are given",
            )
        if any(b <= a for a, b in pairwise(self.knots_tokens)) or any(b < a for a, b in pairwise(seconds)):
            raise wrong(
                "knots_tokens must increase and knots_s must not decrease",
                "sort the knots; an iteration with more tokens is never faster",
            )
        return self

    @property
    def knot_seconds(self) -> tuple[float, ...]:
        """f at the knots, in seconds, without the intervals."""
        return tuple(k.value for k in self.knots_s)


SCHEMA_VERSION: Literal[1] = 1
# `provenance.source` of what was measured inside a training job.
IN_A_JOB = "job"
MAX_POINTS = 10_000

Text = Annotated[str, Field(max_length=10_000)]
# Bytes of weights, bytes per second, query-key pairs of long prompts: beyond any count of requests or tokens.
Large = Annotated[float, Field(ge=0, le=1e18)]
Bytes = Annotated[int, Field(ge=0, le=10**18)]
Signed = Annotated[float, Field(ge=-1e9, le=1e9)]


class Ranges(ConfigSection):
    """What was measured, as [lowest, highest]; outside of it a prediction is an extrapolation."""

    decodes: tuple[Value, Value] | None = Field(default=None, strict=False, description="decoding sequences")
    kv_tokens: tuple[Value, Value] | None = Field(default=None, strict=False, description="KV tokens read (K)")
    prefill_tokens: tuple[Value, Value] | None = Field(
        default=None, strict=False, description="prefill tokens in an iteration"
    )

    @model_validator(mode="after")
    def _lowest_first(self) -> Self:
        for name in ("decodes", "kv_tokens", "prefill_tokens"):
            given = getattr(self, name)
            if given is not None and given[0] > given[1]:
                raise wrong("a range is [lowest, highest]", f"swap the two numbers of {name}")
        return self


class ProfileLimits(ConfigSection):
    """The engine's limits during the measurement."""

    max_num_seqs: Count = Field(description="running requests")
    max_num_batched_tokens: Count = Field(description="tokens per iteration")
    kv_blocks: Count = Field(description="usable KV blocks")
    block_size: Count = Field(default=16, description="tokens per block")


class ProfileError(ConfigSection):
    """Relative errors of the profile on what was kept out of its fit."""

    median: Value | None = Field(default=None, description="median absolute relative error, 0.05 = 5 %")
    p90: Value | None = Field(default=None, description="90th percentile of it")
    worst: Value | None = Field(default=None, description="the largest")
    what: Text = Field(default="", description="of which quantity, on which data")


class FitError(ConfigSection):
    """How the step-time model fits single iterations."""

    observations: CountOrZero = Field(description="durations that the fit used")
    left_out: CountOrZero = Field(description="durations that it left out as outliers")
    median: Value = Field(description="median absolute relative error, each load predicted by a fit without it")
    p90: Value = Field(description="90th percentile of it")
    overhead_s: Value = Field(default=0.0, description="a client's fixed seconds per request, not part of the engine")


class Point(ConfigSection):
    """One load of the sweep: what an iteration of it took, measured."""

    kind: Literal["decode", "prefill", "mixed"] = Field(description="what the iterations held")
    decodes: Value = Field(description="decoding sequences")
    kv_tokens: Value = Field(default=0.0, description="KV tokens that they read")
    prefill_tokens: Value = Field(default=0.0, description="prefill tokens")
    attn_pairs: Large = Field(default=0.0, description="query-key pairs of the prefill")
    seconds: Value = Field(description="median seconds of an iteration")
    p90_s: Value | None = Field(default=None, description="90th percentile of the seconds")
    count: Count = Field(default=1, description="iterations measured")


class BatchCheck(ConfigSection):
    """A batch kept out of the fit, measured and predicted by the simulator."""

    name: Text = Field(description="which batch")
    samples: Count = Field(description="requests")
    output_tokens: Count = Field(description="tokens generated")
    makespan_s: Value = Field(description="measured seconds from the first submission to the last token")
    predicted_s: Value = Field(description="simulated seconds of the same")
    makespan_error: Signed = Field(description="predicted / measured - 1")
    finish_error_median: Value = Field(description="median absolute relative error of the requests' finish times")
    finish_error_p90: Value = Field(description="90th percentile of it")
    preemptions: CountOrZero = Field(default=0, description="measured")
    predicted_preemptions: CountOrZero = Field(default=0, description="simulated")
    length_scale: Value = Field(default=1.0, description="share of the planned response lengths that time allowed")


class PrefixCache(ConfigSection):
    """What the engine's prefix cache did on groups of siblings."""

    enabled: bool = Field(description="whether the engine had it on")
    hit_tokens: CountOrZero = Field(description="prompt tokens that the engine found in its cache")
    expected_tokens: CountOrZero = Field(
        description="what the model expects: every sibling after the first, full blocks"
    )


class SyncCost(ConfigSection):
    """Pausing, updating weights, resuming; null where it was not measured."""

    pause_s: Value | None = Field(default=None, description="until nothing runs any more, requests kept")
    resume_s: Value | None = Field(default=None, description="from resuming to the next tokens")
    load_s: Value | None = Field(default=None, description="loading all weights from the device's own memory")
    load_from_host_s: Value | None = Field(default=None, description="the same from pinned host memory")
    model_bytes: Bytes | None = Field(default=None, description="bytes of the weights")
    host_bytes_s: Large | None = Field(default=None, description="host to device, bytes per second")
    broadcast_bytes_s: Large | None = Field(default=None, description="between two GPUs, bytes per second")
    slowdown: Value | None = Field(default=None, description="iteration time during an update over without one")


class MeasuredDrafts(ConfigSection):
    """Speculative decoding of the engine, by its own counters. The profile's seconds are of iterations with drafts.

    Shares and means are of all iterations of a sequence, those among them in which nothing was drafted (n-gram).
    """

    method: Method | None = Field(default=None, description="what drafts; null = the engine does not say it")
    num_speculative_tokens: Drafts = Field(description="k: tokens that it may draft for a sequence in an iteration")
    acceptance: Shares = Field(description="share of the iterations whose first token, first two tokens, ... were kept")
    drafted_tokens: Value = Field(description="tokens drafted for a sequence in an iteration, on average")
    iterations: Count = Field(description="iterations of single sequences that acceptance and drafted_tokens rest on")
    measured_on: Text = Field(default="", description="whose requests those were")
    swept_tokens: Value = Field(default=0.0, description="drafted_tokens of the loads that the seconds were fitted to")


class Provenance(ConfigSection):
    """Where and when the profile was measured."""

    source: Text = Field(
        default="",
        description="vllm, server, or the kind of file it was derived from; job, alone or before a comma = measured "
        "inside a training job, so that nothing is added for it (engine.slowdown, log-probs)",
    )
    gpu: Text = Field(default="", description="GPU as the driver names it")
    gpu_count: Count | None = Field(default=None, description="GPUs of the host")
    driver: Text = Field(default="", description="driver version")
    cuda: Text = Field(default="", description="CUDA version")
    torch: Text = Field(default="", description="PyTorch version")
    engine: Text = Field(default="", description="engine, as vllm")
    engine_version: Text = Field(default="", description="its version")
    model: Text = Field(default="", description="Hugging Face id")
    model_shape: dict[str, Any] = Field(default_factory=dict, description="the model's config")
    dtype: Text = Field(default="", description="type of the weights")
    tp: Count | None = Field(default=None, description="tensor-parallel size")
    date: Text = Field(default="", description="ISO date of the measurement")
    flags: tuple[Text, ...] = Field(default=(), strict=False, description="engine flags, as started")
    assumed: tuple[Text, ...] = Field(default=(), strict=False, description="what nothing measured says")
    fleetsim_version: Text = Field(default="", description="version that measured and fitted")

    @property
    def in_a_job(self) -> bool:
        """Whether it was measured inside a training job."""
        return self.source.partition(",")[0] == IN_A_JOB

    @property
    def device(self) -> str:
        """The GPU by its name; a CPU where PyTorch was built for one."""
        return self.gpu or ("CPU" if self.torch.endswith("+cpu") else "a GPU of no name")


class Profile(ConfigSection):
    """A measured engine, or one derived from somebody else's measurements."""

    schema_version: Literal[1] = Field(default=SCHEMA_VERSION, description="version of this file format")
    name: Name = Field(description="how `--profile` and engine.profile name it")
    kind: Literal["measured", "derived"] = Field(
        default="measured", description="measured iteration by iteration, or derived from published tables"
    )
    coefficients: Coefficients
    ranges: Ranges = Ranges()
    limits: ProfileLimits
    error: ProfileError = ProfileError()
    fit: FitError | None = None
    checks: tuple[BatchCheck, ...] = Field(default=(), max_length=100, strict=False, description="batches kept out")
    points: tuple[Point, ...] = Field(default=(), max_length=MAX_POINTS, strict=False, description="what was measured")
    prefix_cache: PrefixCache | None = None
    sync: SyncCost | None = None
    speculation: MeasuredDrafts | None = None
    provenance: Provenance = Provenance()
    raw: Name | None = Field(default=None, description="file with the raw measurements, beside this one")
    seal: Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")] | None = Field(
        default=None, description="hash of everything else in this file; remove it to own a change made by hand"
    )


# --- Profile files: found by name or path, checked, sealed against edits by hand.

MAX_BYTES = 64 * 2**20
_PROFILE = "give a profile, as fleetsim calibrate writes it"


def shipped_profiles() -> dict[str, Path]:
    """Names and paths of the profiles under calibration/profiles/ that come with fleetsim."""
    return {p.stem: p for p in sorted((data_folder("calibration") / "profiles").glob("*.json"))}


def load_profile(path_or_name: str | os.PathLike[str]) -> Profile:
    """The profile in a JSON file, or the shipped one of this name.

    Raises InputError with all problems: no such file or name, no JSON, unknown keys, wrong values.
    """
    path = find_profile(path_or_name)
    where = os.fspath(path)
    raw = read_json(path, "profile", MAX_BYTES, _PROFILE)
    if other := of_another_kind(raw, tree_of(Profile), ("profile", where), "a profile"):
        raise InputError(other)
    return profile_from_mapping(raw, where)


def find_profile(path_or_name: str | os.PathLike[str]) -> Path:
    """The file that a profile argument means: a path, or the name of a shipped profile. Raises InputError."""
    text = os.fspath(path_or_name)
    if "\0" not in text and text and os.path.lexists(text):
        return Path(text)
    shipped = shipped_profiles()
    if text in shipped:
        return shipped[text]
    hint = did_you_mean(text, shipped)
    if "did you mean" not in hint:
        hint = "give the path of a profile file, or a name that fleetsim profile ls lists"
    raise InputError([Problem("profile", text, "no such file, and no shipped profile of this name", hint)])


def profile_from_mapping(mapping: object, where: str = "profile") -> Profile:
    """The profile in a plain mapping. `where` names it in errors. Raises InputError with all problems."""
    if not isinstance(mapping, dict):
        raise InputError([Problem(where, mapping, "must be a JSON object", "see the shipped profiles")])
    version = mapping.get("schema_version", SCHEMA_VERSION)
    if isinstance(version, int) and not isinstance(version, bool) and version > SCHEMA_VERSION:
        rule = f"this fleetsim reads profiles up to schema_version {SCHEMA_VERSION}"
        remedy = "upgrade fleetsim, or fit again from the raw measurements with fleetsim calibrate --from RAW"
        raise InputError([Problem(f"{where}: schema_version", version, rule, remedy)])
    try:
        profile = Profile.model_validate(mapping)
    except ValidationError as error:
        raise InputError(problems_of(error, tree_of(Profile))) from None
    if profile.seal is not None and seal_of(profile) != profile.seal:
        rule = "the file was changed after it was written: its content does not match its seal"
        remedy = "fit again with fleetsim calibrate --from RAW, or remove the seal to own the change"
        raise InputError([Problem(f"{where}: seal", profile.seal, rule, remedy)])
    return profile


def seal_of(profile: Profile) -> str:
    """The hash of a profile's content without its seal: sha256 over its canonical JSON."""
    # A section that came later is part of the content only where it says something: older seals hold.
    later = {"speculation"} if profile.speculation is None else set()
    return sealed(profile.model_dump(mode="json", exclude={"seal"} | later))


def sealed(content: object) -> str:
    """sha256 over the canonical JSON of a file's content."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def profile_text(profile: Profile) -> str:
    """The profile as the text of its file, sealed. The same profile gives the same bytes."""
    whole = profile.model_copy(update={"seal": seal_of(profile)})
    return json.dumps(whole.model_dump(mode="json", exclude_none=True), indent=1, ensure_ascii=True) + "\n"

"""Profile files: what was measured of an engine on a GPU, as JSON, with intervals, ranges, errors and provenance."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from fleetsim.config.base import Count, Name, Section
from fleetsim.config.files import read_text
from fleetsim.config.problems import problems_of
from fleetsim.config.shipped import data_folder
from fleetsim.config.tree import did_you_mean, tree_of
from fleetsim.errors import InputError, Problem

MAX_BYTES = 64 * 2**20

Value = Annotated[float, Field(ge=0, le=1e9)]
Text = Annotated[str, Field(max_length=10_000)]


class EstimateFields(Section):
    """A fitted coefficient with its 95 % interval, if one was computed."""

    value: Value = Field(description="seconds per unit")
    ci_low: Value | None = Field(default=None, description="lower end of the interval")
    ci_high: Value | None = Field(default=None, description="upper end of the interval")

    @model_validator(mode="after")
    def _interval_holds_the_value(self) -> EstimateFields:
        if (self.ci_low is not None and self.ci_low > self.value) or (
            self.ci_high is not None and self.ci_high < self.value
        ):
            raise PydanticCustomError(
                "profile", "ci_low <= value <= ci_high must hold", {"remedy": "check the order of the three numbers"}
            )
        return self


def _bare_number(given: Any) -> Any:
    return {"value": given} if isinstance(given, (int, float)) and not isinstance(given, bool) else given


Estimate = Annotated[EstimateFields, BeforeValidator(_bare_number)]


class Coefficients(Section):
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
    def _a_curve(self) -> Coefficients:
        seconds = [k.value for k in self.knots_s]
        if len(self.knots_tokens) != len(seconds):
            raise PydanticCustomError(
                "profile",
                "knots_tokens and knots_s must have the same length",
                {"remedy": f"{len(self.knots_tokens)} and {len(seconds)} are given"},
            )
        if any(b <= a for a, b in pairwise(self.knots_tokens)) or any(b < a for a, b in pairwise(seconds)):
            raise PydanticCustomError(
                "profile",
                "knots_tokens must increase and knots_s must not decrease",
                {"remedy": "sort the knots; an iteration with more tokens is never faster"},
            )
        return self

    @property
    def knot_seconds(self) -> tuple[float, ...]:
        """f at the knots, in seconds, without the intervals."""
        return tuple(k.value for k in self.knots_s)


class Ranges(Section):
    """What was measured, as [lowest, highest]; outside of it a prediction is an extrapolation."""

    decodes: tuple[Value, Value] | None = Field(default=None, strict=False, description="decoding sequences")
    kv_tokens: tuple[Value, Value] | None = Field(default=None, strict=False, description="KV tokens read (K)")
    prefill_tokens: tuple[Value, Value] | None = Field(
        default=None, strict=False, description="prefill tokens in an iteration"
    )

    @model_validator(mode="after")
    def _lowest_first(self) -> Ranges:
        for name in ("decodes", "kv_tokens", "prefill_tokens"):
            given = getattr(self, name)
            if given is not None and given[0] > given[1]:
                raise PydanticCustomError(
                    "profile", "a range is [lowest, highest]", {"remedy": f"swap the two numbers of {name}"}
                )
        return self


class ProfileLimits(Section):
    """The engine's limits during the measurement."""

    max_num_seqs: Count = Field(description="running requests")
    max_num_batched_tokens: Count = Field(description="tokens per iteration")
    kv_blocks: Count = Field(description="usable KV blocks")
    block_size: Count = Field(default=16, description="tokens per block")


class ProfileError(Section):
    """Relative errors of the fit on what was kept out of it."""

    median: Value | None = Field(default=None, description="median absolute relative error, 0.05 = 5 %")
    p90: Value | None = Field(default=None, description="90th percentile of it")
    worst: Value | None = Field(default=None, description="the largest")
    what: Text = Field(default="", description="of which quantity, on which data")


class Provenance(Section):
    """Where and when the profile was measured."""

    gpu: Text = Field(default="", description="GPU as the driver names it")
    gpu_count: Count | None = Field(default=None, description="GPUs of the host")
    driver: Text = Field(default="", description="driver version")
    engine: Text = Field(default="", description="engine, as vllm")
    engine_version: Text = Field(default="", description="its version")
    model: Text = Field(default="", description="Hugging Face id")
    dtype: Text = Field(default="", description="type of the weights")
    tp: Count | None = Field(default=None, description="tensor-parallel size")
    date: Text = Field(default="", description="ISO date of the measurement")
    flags: tuple[Text, ...] = Field(default=(), strict=False, description="engine flags, as started")
    fleetsim_version: Text = Field(default="", description="version that measured and fitted")


class Profile(Section):
    """A measured engine."""

    schema_version: Literal[1] = Field(default=1, description="version of this file format")
    name: Name = Field(description="how `--profile` and engine.profile name it")
    kind: Literal["measured"] = Field(default="measured", description="profiles are measured")
    coefficients: Coefficients
    ranges: Ranges = Ranges()
    limits: ProfileLimits
    error: ProfileError = ProfileError()
    provenance: Provenance = Provenance()
    raw: Name | None = Field(default=None, description="file with the raw measurements, beside this one")


def shipped_profiles() -> dict[str, Path]:
    """Names and paths of the profiles under calibration/profiles/ that come with fleetsim."""
    return {p.stem: p for p in sorted((data_folder("calibration") / "profiles").glob("*.json"))}


def load_profile(path_or_name: str | os.PathLike[str]) -> Profile:
    """The profile in a JSON file, or the shipped one of this name.

    Raises InputError with all problems: no such file or name, no JSON, unknown keys, wrong values.
    """
    text = os.fspath(path_or_name)
    shipped = shipped_profiles()
    if "\0" not in text and text and os.path.lexists(text):
        path = Path(text)
    elif text in shipped:
        path = shipped[text]
    else:
        hint = did_you_mean(text, shipped) if shipped else "give the path of a profile file"
        raise InputError([Problem("profile", text, "no such file, and no shipped profile of this name", hint)])
    return profile_from_mapping(_json(read_text(path, "profile", MAX_BYTES), os.fspath(path)), os.fspath(path))


def profile_from_mapping(mapping: object, where: str = "profile") -> Profile:
    """The profile in a plain mapping. `where` names it in errors. Raises InputError with all problems."""
    if not isinstance(mapping, dict):
        raise InputError([Problem(where, mapping, "must be a JSON object", "see the shipped profiles")])
    try:
        return Profile.model_validate(mapping)
    except ValidationError as error:
        raise InputError(problems_of(error, tree_of(Profile))) from None


def _json(text: str, where: str) -> object:
    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        keys = [key for key, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1}) if len(set(keys)) < len(keys) else []
        if twice:
            raise InputError([Problem(where, key, "this key is given twice", "keep one of them") for key in twice])
        return dict(pairs)

    try:
        value: object = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise InputError([Problem(f"{where}:{error.lineno}", error.msg, "is not valid JSON", "check it")]) from None
    except (ValueError, RecursionError) as error:
        raise InputError([Problem(where, str(error)[:80], "is no usable JSON", "check the file")]) from None
    return value

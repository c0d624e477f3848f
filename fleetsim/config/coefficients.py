"""The numbers of a step-time model in a file: coefficients with intervals, f through its knots."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from fleetsim.config.base import ConfigSection

Value = Annotated[float, Field(ge=0, le=1e9)]


class EstimateFields(ConfigSection):
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

"""How a server wants its completions: which extras it takes, ids or text, and how it counts tokens."""

from __future__ import annotations

import json
from typing import Any

from fleetsim.calibrate.server.play import Ask
from fleetsim.calibrate.server.prompts import Prompts
from fleetsim.dataclass import dataclass

BOTH = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
LAST = {"stream_options": {"include_usage": True}}
# The first tells most, the last is taken by every server: TensorRT-LLM's and strict gateways refuse unknown fields.
EXTRAS: tuple[dict[str, Any], ...] = (
    {"ignore_eos": True, "return_token_ids": True, **BOTH},
    {"ignore_eos": True, **BOTH},
    {"ignore_eos": True, **LAST},
    LAST,
    {},
)


@dataclass(slots=True)
class Dialect:
    """extras: fields beside the standard ones. counted_by: token_ids, usage, logprobs, or spread.

    tokens_per_chunk: for spread, until a stream's own usage says. ends_early: the server stopped before max_tokens,
    so it does not honour ignore_eos.
    """

    model: str
    extras: dict[str, Any]
    prompts: Prompts
    counted_by: str = ""
    tokens_per_chunk: float = 1.0
    ends_early: bool = False

    def body(self, ask: Ask) -> bytes:
        """The request's JSON."""
        fields: dict[str, Any] = {
            "model": self.model,
            "prompt": self.prompts.prompt(ask.prompt, ask.prompt_tokens),
            "max_tokens": ask.max_tokens,
            "temperature": 1.0,
            "stream": True,
            **self.extras,
        }
        if ask.n > 1:
            fields["n"] = ask.n
        elif self.counted_by == "usage":
            fields.pop("return_token_ids", None)  # the running usage says as much, and is less to send
        return json.dumps(fields, separators=(",", ":")).encode()

    def described(self) -> dict[str, Any]:
        """What the records say of the dialect."""
        return {
            "prompts": "text" if self.prompts.text else "token_ids",
            "extras": sorted(self.extras),
            "counted_by": self.counted_by,
            "ends_early": self.ends_early,
        }

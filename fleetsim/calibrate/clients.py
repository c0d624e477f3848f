"""What clients of a server with this engine would see, by how many there are: first token, later tokens, throughput."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetsim.dataclass import dataclass
from fleetsim.tell.document import Table

if TYPE_CHECKING:
    from fleetsim.config.engine_profile import Profile

COUNTS = (1, 4, 16, 64, 256)
# As the load generators of engines ask: lengths even over [0.8, 1] of these, ten requests of every client.
PROMPT_TOKENS = OUTPUT_TOKENS = 1024
_SHORTEST, _REQUESTS = 0.8, 10


@dataclass(frozen=True, slots=True)
class ClientView:
    """What so many clients see, each with one request at a time: means over requests, tokens per second of all."""

    clients: int
    first_token_s: float
    later_token_s: float
    output_tok_s: float


def seen_by_clients(profile: Profile) -> tuple[ClientView, ...]:
    """Simulates 1 to 256 clients, as many as the engine's limits take at once."""
    import numpy as np

    from fleetsim.engine import EngineLimits, closed_load, request_path
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

"""What the fit sees: seconds, and the iterations that took them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fleetsim.calibrate.raw import FITTED, Raw
from fleetsim.dataclass import dataclass

PER_DURATION = ("seconds", "segment", "overheads")
PER_ITERATION = ("decodes", "kv_tokens", "prefill_tokens", "attn_pairs", "drafted")


@dataclass(frozen=True, slots=True)
class Observations:
    """Durations, each of one iteration or of several in a row.

    seconds: shape (observations,), > 0. segment: which load, shape (observations,): what was measured together is kept
    together in folds and bootstraps. overheads: fixed costs of a client that lie in the duration (0 in process, 1 in a
    time to first token). of: index into seconds per iteration, sorted, shape (iterations,). decodes, kv_tokens,
    prefill_tokens, attn_pairs: b, K, p, A of each iteration (averages may be fractions). drafted: tokens that it
    verifies.
    """

    seconds: NDArray[np.float64]
    segment: NDArray[np.int32]
    overheads: NDArray[np.float64]
    of: NDArray[np.int64]
    decodes: NDArray[np.float64]
    kv_tokens: NDArray[np.float64]
    prefill_tokens: NDArray[np.float64]
    attn_pairs: NDArray[np.float64]
    drafted: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def tokens(self) -> NDArray[np.float64]:
        """n of each iteration: a token for each decode, those drafted, those of prompts."""
        return self.decodes + self.drafted + self.prefill_tokens


def observations_of(raw: Raw) -> Observations:
    """All that a fit may see of the raw measurements: the sweeps, without warm-up, without kept-out batches.

    Left out as well: iterations that an engine began empty (they hold the first schedule, not the pace) unless a
    prompt was computed in them, and empty ones. Fewer than one may remain; the fit says so.
    """
    return in_a_row([_of_iterations(raw), *(_of_client(record) for record in raw.obs if record.get("ph") in FITTED)])


def in_a_row(parts: Sequence[Observations]) -> Observations:
    """The observations of all parts; each keeps its segment."""
    starts = np.cumsum([0, *map(len, parts)])
    columns = {name: np.concatenate([getattr(p, name) for p in parts]) for name in (*PER_DURATION, *PER_ITERATION)}
    return Observations(of=np.concatenate([p.of + s for p, s in zip(parts, starts[:-1], strict=True)]), **columns)


def _of_iterations(raw: Raw) -> Observations:
    c = raw.columns
    fitted = np.array([p in FITTED for p in raw.phase_of], np.bool_)
    use = (c["warm"] == 0) & (c["nd"] + c["np"] > 0) & (c["dt"] > 0) & ((c["idle"] == 0) | (c["np"] > 0))
    if len(fitted):
        use &= fitted[raw.segment]
    n = int(use.sum())
    return Observations(
        seconds=c["dt"][use] * 1e-6,
        segment=raw.segment[use],
        overheads=np.zeros(n),
        of=np.arange(n, dtype=np.int64),
        decodes=c["nd"][use].astype(np.float64),
        kv_tokens=c["K"][use].astype(np.float64),
        prefill_tokens=c["np"][use].astype(np.float64),
        attn_pairs=c["A"][use].astype(np.float64),
        drafted=c["dr"][use].astype(np.float64),
    )


def _of_client(record: dict[str, object]) -> Observations:
    def column(name: str) -> NDArray[np.float64]:
        return np.atleast_1d(np.asarray(record.get(name, []), np.float64))

    seconds = column("dt") * 1e-6
    return Observations(
        seconds=seconds,
        segment=np.full(len(seconds), record["id"], np.int32),
        overheads=column("ovh") if "ovh" in record else np.zeros(len(seconds)),
        of=column("of").astype(np.int64) if "of" in record else np.arange(len(seconds), dtype=np.int64),
        decodes=column("nd"),
        kv_tokens=column("K"),
        prefill_tokens=column("np"),
        attn_pairs=column("A"),
        drafted=column("dr") if "dr" in record else np.zeros(len(column("nd"))),
    )

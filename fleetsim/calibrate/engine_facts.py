"""What an engine says of itself: limits, versions, flags, GPU. Copied, never estimated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from fleetsim import __version__, units
from fleetsim.calibrate.raw import Raw
from fleetsim.config.engine_profile import MeasuredDrafts, ProfileLimits, Provenance
from fleetsim.config.speculation import METHODS
from fleetsim.errors import Problem, Problems


class EngineFacts(Struct, frozen=True):
    """An engine as it came up.

    limits: kv_blocks are usable ones (the engine keeps a null block for itself). graph_sizes: batch sizes that decode
    graphs were captured for, empty where none run. provenance: as its profile says it; assumed: limits, as yet.
    """

    limits: ProfileLimits
    prefix_caching: bool
    graph_sizes: tuple[int, ...]
    provenance: Provenance


def facts_of(raw: Raw) -> EngineFacts:
    """The facts of the last engine that came up. Raises InputError where a start record lacks the limits."""
    start = raw.starts[-1]
    cache, sched, comp = (start.get(k) or {} for k in ("cache", "sched", "comp"))
    model, gpu, args = (start.get(k) or {} for k in ("model", "gpu", "engine_args"))
    needed = {"cache": ("num_gpu_blocks", "block_size"), "sched": ("max_num_seqs", "max_num_batched_tokens")}
    remedy = "measure again: the engine's limits were not recorded"
    problems = Problems(
        Problem(f"start.{part}.{name}", value, "an integer >= 1", remedy)
        for part, names in needed.items()
        for name in names
        if isinstance(value := (start.get(part) or {}).get(name), bool) or not isinstance(value, int) or value < 1
    )
    problems.stop()
    no_graphs = str(comp.get("cudagraph_mode")) in ("NONE", "None", "0", "CUDAGraphMode.NONE")
    kind = str(start.get("kind") or "")
    # the driver's version is the second cell of nvidia-smi's CSV, below its headings
    smi = (row.split(",") for row in str(raw.meta.get("smi") or "").splitlines()[1:2])
    driver = next((cells[1].strip() for cells in smi if len(cells) > 1), "")
    return EngineFacts(
        limits=ProfileLimits(
            **{name: sched[name] for name in ("max_num_seqs", "max_num_batched_tokens")},
            kv_blocks=max(1, cache["num_gpu_blocks"] - (0 if kind == "server_tokens" else 1)),
            block_size=cache["block_size"],
        ),
        prefix_caching=bool(cache.get("enable_prefix_caching")),
        graph_sizes=() if no_graphs else tuple(sorted(int(n) for n in comp.get("sizes") or ())),
        provenance=Provenance(
            source=str(raw.meta.get("source") or ("server" if kind.startswith("server") else "vllm")),
            gpu=str(gpu.get("name") or ""),
            gpu_count=gpu.get("count") or None,
            driver=str(gpu.get("driver") or driver),
            cuda=str(start.get("cuda") or ""),
            torch=str(start.get("torch") or ""),
            engine=str(start.get("engine") or "vllm"),
            engine_version=str(start.get("vllm") or start.get("version") or ""),
            model=str(raw.meta.get("model") or args.get("model") or ""),
            model_shape=dict(model.get("hf") or {}),
            dtype=str(model.get("dtype") or "").removeprefix("torch."),
            tp=int(start.get("tp") or args.get("tensor_parallel_size") or 1),
            date=str(raw.meta.get("date") or "")[:10],
            flags=tuple(f"{k}={v}" for k, v in sorted(args.items())),
            assumed=tuple(start.get("assumed") or ()),
            fleetsim_version=__version__,
        ),
    )


# --- What an engine's own counters say of its drafts: how many were made, how long, and how far they were accepted.
# vLLM counts (`v1/spec_decode/metrics.py`, 0.32.0) drafts, drafted and accepted tokens, and accepted tokens by
# position. Its n-gram drafter often finds nothing: such an iteration is no draft, and still brings its one token.
# Fleetsim's shares are therefore of all iterations of a sequence, those without a draft among them.

# Traffic of the engine's own users counts where it drafted so often: shares of a few hundredths are then well known.
LEAST_ITERATIONS = 2_000
OF_USERS = "requests of its users"


class DraftCounts(Struct, frozen=True):
    """Counters, or what they grew by. iterations: of each sequence, with a draft or without. drafted: tokens.

    accepted_at: drafts whose first token, whose first two tokens, ... were accepted.
    """

    iterations: int
    drafted: int
    accepted_at: tuple[int, ...]

    @classmethod
    def counted(
        cls, drafts: float, drafted: float, accepted_at: tuple[float, ...], generated: float, first_tokens: float
    ) -> DraftCounts:
        """Counts from vLLM's counters. generated: tokens made; first_tokens: those that a prompt's iteration made.

        An iteration of a sequence brings one token and what was accepted. Where a request ends within a draft, accepted
        tokens are counted that it never got; iterations are then at least the drafts.
        """
        iterations = max(drafts, generated - first_tokens - sum(accepted_at))
        return cls(round(iterations), round(drafted), tuple(round(n) for n in accepted_at))

    def since(self, before: DraftCounts) -> DraftCounts:
        """The growth of each count since an earlier reading."""
        at = tuple(new - old for new, old in zip(self.accepted_at, before.accepted_at, strict=True))
        return DraftCounts(self.iterations - before.iterations, self.drafted - before.drafted, at)

    @property
    def tokens(self) -> float:
        """Tokens of a sequence that an iteration brings."""
        return 1.0 + sum(self.accepted_at) / self.iterations if self.iterations > 0 else 1.0

    @property
    def each(self) -> float:
        """Tokens drafted for a sequence in an iteration."""
        return self.drafted / self.iterations if self.iterations > 0 else 0.0

    @property
    def shares(self) -> tuple[float, ...]:
        """Shares of the iterations in which the first token, the first two tokens, ... were accepted."""
        return tuple(min(1.0, n / self.iterations) if self.iterations > 0 else 0.0 for n in self.accepted_at)

    def record(self) -> dict[str, Any]:
        """The fields that raw measurements have of it."""
        return {"iterations": self.iterations, "drafted": self.drafted, "accepted_at": list(self.accepted_at)}


def counts_in(record: Mapping[str, Any]) -> DraftCounts | None:
    """The counts of a record that has some."""
    found = record.get("drafts")
    if not isinstance(found, Mapping) or not found.get("iterations"):
        return None
    return DraftCounts(found["iterations"], found.get("drafted") or 0, tuple(found.get("accepted_at") or ()))


def summed(counts: list[DraftCounts]) -> DraftCounts | None:
    """Adds counts up; None where there are none."""
    if not counts:
        return None
    at = tuple(sum(column) for column in zip(*(c.accepted_at for c in counts), strict=True))
    return DraftCounts(sum(c.iterations for c in counts), sum(c.drafted for c in counts), at)


def measured_drafts(raw: Raw) -> MeasuredDrafts | None:
    """The drafts of an engine that was measured; None where it made none.

    What its users' requests had accepted goes before what the calibration's own had: those are of random tokens.
    """
    said = raw.starts[-1].get("speculation")
    own = summed([c for s in raw.segments if (c := counts_in(s.record)) is not None])
    if not isinstance(said, Mapping) or own is None or not own.accepted_at:
        return None
    traffic = counts_in(raw.starts[0])
    by_users = traffic is not None and traffic.iterations >= LEAST_ITERATIONS
    counts, method = (traffic if by_users and traffic else own), said.get("method")
    return MeasuredDrafts(
        method=method if method in METHODS else None,
        num_speculative_tokens=len(counts.accepted_at),
        acceptance=tuple(units.short(share) for share in counts.shares),
        drafted_tokens=units.short(counts.each),
        iterations=counts.iterations,
        measured_on=OF_USERS if by_users else "random prompts of the calibration",
        swept_tokens=units.short(own.each),
    )

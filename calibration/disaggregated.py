"""Runs whose prompts are computed on GPUs of their own: a line of docs/accuracy.md, and a table.

Nothing is fitted to them: the curves are those of engines that compute their prompts themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from points import ACCEPTED
from prompt_ranks import Load, first_s

from fleetsim.calibrate.clients import closed_load, request_path
from fleetsim.config import default_scenario, with_changes
from fleetsim.sim.engines import engine_of

FILE = Path(__file__).resolve().parent / "public" / "disaggregated.yaml"
REQUESTS = 10  # of each client
# Tokens of a rank in an iteration: chunked-prefill-size of the recipes that CAUSES names (of the first one
# max-tpt-dep8-1p1d.yaml), which SGLang divides among its ranks (server_args.py).
CHUNKS = {"s616": 131072 // 8, "s666": 32768 // 4}
SHORTEST_MEAN = 0.9  # of the longest, where lengths are even over [0.8, 1] of it
HEAD = (
    "run", "engine", "load", "prefill", "decode", "ms per later token", "predicted", "error", "first token", "predicted"
)  # fmt: skip

INTRO = """## Prompts on GPUs of their own

`calibration/public/disaggregated.yaml`: {all} runs of InferenceX, of which {told} can be predicted. Nothing is fitted
to them. An engine with ranks computes on so many GPUs side by side. Of the others too little is known:

{why}

"""

CAUSES = """
SGLang's first tokens come {least:.0f} to {most:.0f} times too early where attention ranks compute the prompts. Either
prompts are computed more slowly than predicted, or the first wave waited for something else; means alone do not tell.

- *Slower prompts*: by Little's law {waiting} requests would wait ({runs}), and a GPU would
  compute {rates} prompt tokens per second. Fewer would decode at once, and later tokens come after
  {fewer} ({errors} of what was measured).
- *A first wave* of {wave} s more would do it, too: a tenth of the requests. SGLang's oldest runs of DeepSeek without
  prompts apart show the same 7 s with 32 and with 128 clients ([the first token](#the-first-token)), whatever the
  prompt, as if kernels were compiled.
- *Ranks by chance and in step* are a part of it. SGLang gives a prompt to a rank by a random number, and ranks that
  share experts wait in each iteration for the fullest one. Here each rank gets its turn and runs for itself. In a queue
  of such ranks (`calibration/prompt_ranks.py`, with its sources) a prompt waits {even}; by chance and in step, with
  what the recipes below let a rank compute in an iteration ({chunks} tokens), {chance}. Measured were
  {measured}. It is not modelled: it is half of what is missing with long prompts and little with short ones, and
  two runs are all there are.
- *Handing over* is not the cause: recipes of such runs (ishandhanani/srt-slurm, `recipes/b200-fp8/8k1k/stp` and
  `recipes/b200-fp4/1k1k.yaml`) leave 1,024 places to decode, more than there are clients, and a cache of 8,192 tokens
  moves within 10 ms.
"""


@dataclass(frozen=True, slots=True)
class Point:
    """One published run: a row of the file. prefill, decode: engines, TP and ranks of each."""

    id: str
    gpu: str
    engine: str
    model: str
    dtype: str
    prompt: int
    output: int
    clients: int
    prefill: tuple[int, int, int]
    decode: tuple[int, int, int]
    k: int
    first_s: float
    later_s: float


class Predicted(NamedTuple):
    """Mean seconds to the first token, median ones per later token."""

    first_s: float
    later_s: float


@cache
def read() -> tuple[tuple[Point, ...], tuple[tuple[str, str], ...]]:
    """The runs, and those of which no engine can be made with why not."""
    document = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    points = tuple(Point(**dict(zip(document["columns"], row, strict=True))) for row in document["points"])
    return points, tuple((name, why) for name, why in document["refused"])


@cache
def predicted(run: str, clients: int | None = None) -> Predicted:
    """Of one run, by its id. clients: others than it had."""
    p = next(point for point in read()[0] if point.id == run)
    (ps, p_tp, p_dp), (ds, d_tp, d_dp) = p.prefill, p.decode
    sides = {"prefill": ps * p_dp, "decode": ds * d_dp, "prefill_tp": p_tp, "prefill_dp": p_dp, "decode_dp": d_dp}
    drafts = {"method": "mtp", "num_speculative_tokens": p.k, "acceptance": ACCEPTED} if p.k else None
    scenario = with_changes(default_scenario(), {
        "engine.gpu": p.gpu, "engine.model": p.model, "engine.name": p.engine, "engine.dtype": p.dtype,
        "engine.kv_dtype": "fp8", "engine.tp": d_tp, "engine.disaggregation": sides, "engine.speculation": drafts,
    })  # fmt: skip
    draws, at_once = np.random.default_rng(0), clients or p.clients
    lengths = [draws.integers(int(most * 0.8), most + 1, size=REQUESTS * at_once) for most in (p.prompt, p.output)]
    answers = closed_load(*engine_of(scenario, log_probs=False), *lengths, at_once, request_path(p.engine))
    return Predicted(float(answers.first_s.mean()), float(np.median(answers.later_s)))


def cells() -> Iterator[list[str]]:
    """A row of the table for each run."""
    for p in read()[0]:
        found = predicted(p.id)
        error = 100 * (found.later_s / p.later_s - 1)
        drafts = f", MTP k {p.k}" if p.k else ""
        yield [
            p.id, f"{p.model.rpartition('/')[2]} {p.dtype}, {p.gpu}, {p.engine}{drafts}",
            f"{p.clients} clients, {p.prompt} + {p.output}", _side(p.prefill), _side(p.decode),
            f"{1e3 * p.later_s:.1f}", f"{1e3 * found.later_s:.1f}", f"{error:+.0f} %", f"{p.first_s:.1f} s",
            f"{found.first_s:.1f} s",
        ]  # fmt: skip


def errors() -> list[float]:
    """Per cent by which later tokens are off, a run each."""
    return [100 * (predicted(p.id).later_s / p.later_s - 1) for p in read()[0]]


def early() -> tuple[float, float]:
    """How many times too early first tokens of SGLang's attention ranks come: at least, at most."""
    times = [p.first_s / predicted(p.id).first_s for p in _late()]
    return min(times), max(times)


def _late() -> list[Point]:
    return [p for p in read()[0] if p.engine == "sglang" and p.prefill[2] > 1]


def _side(side: Sequence[int]) -> str:
    engines, tp, ranks = side
    each = f"TP{tp}" if ranks == 1 else f"{ranks} ranks"
    return f"{engines} x {each}"


def intro() -> str:
    """What stands before the table."""
    points, refused = read()
    whys = {why: [name for name, w in refused if w == why] for _, why in refused}
    why = "\n".join(f"- {', '.join(names)}: {why}" for why, names in whys.items())
    return INTRO.format(all=len(points) + len(refused), told=len(points), why=why)


def causes() -> str:
    """What stands behind it."""
    late = _late()
    seconds = [p.first_s + p.later_s * (SHORTEST_MEAN * p.output - 1) for p in late]  # of a request
    waiting = [round(p.clients * p.first_s / s) for p, s in zip(late, seconds, strict=True)]
    rates = [
        p.clients / s * SHORTEST_MEAN * p.prompt / (p.prefill[0] * p.prefill[1] * p.prefill[2])
        for p, s in zip(late, seconds, strict=True)
    ]
    fewer = [predicted(p.id, p.clients - w).later_s for p, w in zip(late, waiting, strict=True)]
    return CAUSES.format(
        **dict(zip(("least", "most"), early(), strict=True)),
        waiting=_and(f"{w} of {p.clients}" for p, w in zip(late, waiting, strict=True)),
        runs=_and(p.id for p in late),
        rates=_and(f"{r:,.0f}" for r in rates),
        fewer=_and(f"{1e3 * s:.1f} ms" for s in fewer),
        errors=_and(f"{100 * (s / p.later_s - 1):+.0f} %" for p, s in zip(late, fewer, strict=True)),
        **_ranks(late),
        wave=_and(f"{REQUESTS * (p.first_s - predicted(p.id).first_s):.0f}" for p in late),
    )


def _ranks(late: Sequence[Point]) -> dict[str, str]:
    """Mean seconds of first tokens of a queue of ranks, as in fleetsim and as in SGLang."""
    even, chance = [], []
    for p in late:
        token_s = (predicted(p.id, 1).first_s - request_path(p.engine).request_s) / (SHORTEST_MEAN * p.prompt)
        load = Load(p.prefill[0], p.prefill[2], p.clients, REQUESTS, p.prompt, p.output, token_s, p.later_s)
        even.append(first_s(load, CHUNKS[p.id], by_chance=False, in_step=False))
        chance.append(first_s(load, CHUNKS[p.id], by_chance=True, in_step=True))
    return {
        "even": _and(f"{s:.1f} s" for s in even),
        "chance": _and(f"{s:.1f} s" for s in chance),
        "measured": _and(f"{p.first_s:.1f} s" for p in late),
        "chunks": _and(f"{CHUNKS[p.id]:,}" for p in late),
    }


def _and(parts: Iterable[str]) -> str:
    return " and ".join(parts)

"""Seconds to the first token: a paragraph of docs/accuracy.md, and a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from points import Run

from fleetsim.engine.operators.curves import Curves

INTRO = """## The first token

Of {runs} runs the seconds to the first token are published too. They are means over all requests, and not medians: the
launch scripts of InferenceX send ten requests of every client, all clients at once, and the first wave queues for the
engine to compute its prompts. Its share of the mean grows with the clients and with the prompts, and is the same for
1,024 and for 8,192 tokens of output, where eight times fewer requests arrive in an iteration; so it is in what was
measured. Predicted as medians they came out at 0.28 of what was measured.

Beside that wave a request takes the path to a server and back, one number for each engine that is fitted to these runs
({paths}), and the iteration that a scheduler has planned
without it. Where a launch script holds requests back, that is counted as it says it: SGLang's
`--scheduler-recv-interval` (it looks for requests every 10 or 30 iterations), TensorRT-LLM's `batch_wait_timeout_iters`
and the balance between attention ranks. Runs of aiconfigurator's makers and of AMD, of which nobody says how requests
were sent, are predicted as if they were handed over in the engine's own process.

*fitted*: with the number of each engine. *left out*: with one from the engine's other models and GPUs.

"""

CAUSES = """
What is left, by what may be behind it:

- First tokens of DeepSeek under TensorRT-LLM, prompts of 1,024 tokens, come at 0.43 of what was measured in the median,
  those with 8,192 tokens do not: no iteration with a prompt takes less than some 150 ms, as if it waited for the host,
  without a CUDA graph. An iteration here has no such floor. It is in SGLang's 160 ms, which are no path alone.
- SGLang's oldest runs of DeepSeek in NVFP4 wait for 7 seconds with 32 and with 128 clients, with 1,024 and with 8,192
  tokens. A tenth of the requests that waited for 70 seconds would do that: kernels that are compiled in the first wave.
- AMD's first tokens come up to 18 times earlier than their prompts can be computed: prompts that are in the cache.
- Where all responses are equally long, clients end together and wait for each other; a path of a few iterations brings
  more of them together than real servers show, so `closed_load` is best asked with lengths that differ.
"""


def cells(runs: Sequence[Run], curves: Curves, left_out: Mapping[str, float]) -> Iterator[list[str]]:
    """A row for each source and engine, and for each length of prompts in InferenceX's."""
    found: dict[str, list[tuple[float, float, float | None]]] = {ALL: []}
    for run in runs:
        if not run.has_first:
            continue
        p = run.point
        row = (p.values[0], run.first(curves), left_out.get(p.id))
        kind = f"{p.source}, {p.engine}" + (f", prompts of {p.prompt:,}" if run.served else "")
        found[ALL].append(row)
        found.setdefault(kind, []).append(row)
    for kind, rows in sorted(found.items()):
        ratios = np.array([ratio for _, ratio, _ in rows])
        middle, far = np.quantile(np.abs(ratios - 1), (0.5, 0.9))
        left = [abs(ratio - 1) for *_, ratio in rows if ratio is not None]
        yield [
            kind, f"{len(rows)}", f"{np.median([ms for ms, *_ in rows]):,.0f} ms", f"{np.median(ratios):.2f}",
            f"{100 * middle:.0f} %", f"{100 * far:.0f} %", f"{100 * np.median(left):.0f} %" if left else "-",
        ]  # fmt: skip


ALL = "all first tokens"
HEAD = ("", "runs", "measured", "predicted / measured", "error: median", "90 % within", "left out: median")


def paths_words(curves: Curves) -> str:
    """The path of each engine, in words."""
    told = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"}
    ways = [f"{1e3 * host.request_s:.0f} ms to {told[engine]}" for engine, host in sorted(curves.hosts.items())]
    return ", ".join(ways[:-1]) + " and " + ways[-1]

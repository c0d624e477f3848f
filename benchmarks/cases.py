"""One benchmark case per function, each run in a process of its own by run.py: `python benchmarks/cases.py NAME`.

A case prints one JSON object: `seconds` (one per repetition), whatever else it counted, and the peak memory of the
process in bytes, Python and libraries included.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

GPU, MODEL = "H100", "Qwen/Qwen2.5-7B"


def timed(work: Callable[[], object], repetitions: int) -> list[float]:
    """Seconds of each repetition, after one that does not count."""
    work()
    out = []
    for _ in range(repetitions):
        start = time.perf_counter()
        work()
        out.append(time.perf_counter() - start)
    return out


def requests_4096() -> dict[str, Any]:
    """4,096 requests of 512 + 1,024 tokens on 8 instances, max_num_seqs 256."""
    from fleetsim.engine import roofline, run_requests

    step_time, limits = roofline(GPU, MODEL, max_num_seqs=256)
    prompt, output = np.full(4096, 512), np.full(4096, 1024)
    return {"seconds": timed(lambda: run_requests(step_time, limits, prompt, output, instances=8), 31)}


def requests_million() -> dict[str, Any]:
    """1,048,576 requests with lognormal lengths (512 + mean 1,024 tokens, cv 1, at most 8,192) on 64 instances."""
    from fleetsim.engine import roofline, run_requests

    step_time, limits = roofline(GPU, MODEL, max_num_seqs=256)
    draws = np.random.default_rng(0).lognormal(np.log(1024) - np.log(2) / 2, np.sqrt(np.log(2)), 1 << 20)
    output = np.clip(draws.round(), 1, 8192).astype(np.int64)
    run_requests(step_time, limits, 512, output[:64], instances=64)  # reads the compiled kernel
    start = time.perf_counter()
    run_requests(step_time, limits, 512, output, instances=64)
    return {"seconds": [time.perf_counter() - start]}


def cost_per_request() -> dict[str, Any]:
    """The same 1,048,576 requests on 8 and on 1,000 instances, in turn: seconds per request of each."""
    from fleetsim.engine import roofline, run_requests

    step_time, limits = roofline(GPU, MODEL, max_num_seqs=256)
    n = 1 << 20
    output = np.clip(np.random.default_rng(0).gamma(1.0, 1024.0, n), 1, 8192).astype(np.int64)
    run_requests(step_time, limits, 512, output[:64])  # reads the compiled kernel
    per_request: dict[int, list[float]] = {8: [], 1000: []}
    for _ in range(5):
        for instances, seconds in per_request.items():
            start = time.perf_counter()
            run_requests(step_time, limits, 512, output, instances=instances)
            seconds.append((time.perf_counter() - start) / n)
    few, many = (float(np.median(seconds)) for seconds in per_request.values())
    return {"seconds": per_request[1000], "few_s": few, "many_s": many, "ratio": many / few}


def fleet_1000() -> dict[str, Any]:
    """1,000 instances, 131,072 samples per step, 20 steps of which one batch is generated ahead."""
    from fleetsim.config import scenario_from_mapping
    from fleetsim.sim.run import simulate

    scenario = scenario_from_mapping(
        {
            "engine": {"gpu": GPU, "model": MODEL},
            "fleet": {"instances": 1000},
            "trainer": {"gpus": 1000, "batch_samples": 131_072},
            "admission": {"law": "batches_ahead", "batches_ahead": 1},
            "run": {"steps": 20},
        }
    )
    start = time.perf_counter()
    records = simulate(scenario)
    return {"seconds": [time.perf_counter() - start], "samples": len(records.samples)}


CASES = {case.__name__: case for case in (requests_4096, requests_million, cost_per_request, fleet_1000)}


def main() -> None:
    """Runs the case named on the command line and prints what it measured."""
    measured = CASES[sys.argv[1]]()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    measured["peak_bytes"] = peak if sys.platform == "darwin" else peak * 1024
    print(json.dumps(measured))


if __name__ == "__main__":
    main()

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
    # Others on the machine take of its memory's bandwidth by turns: rounds of one process differ by a factor of two.
    few, many = map(min, per_request.values())
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


def fit_100000() -> dict[str, Any]:
    """100,000 iterations of a synthetic sweep (100 loads, 2 % noise, hiccups) and 51 graph sizes: the whole fit."""
    from fleetsim.calibrate.fit.design import Observations
    from fleetsim.calibrate.fit.fit import fit

    rng = np.random.default_rng(0)
    each = 1000
    decode = [(b, b * c, 0.0, 0.0) for c in (256.0, 2048.0, 8192.0) for b in np.geomspace(1, 1024, 22).round()]
    chunks = [(0.0, 0.0, p, p * (p + 1) / 2) for p in np.geomspace(64, 8192, 16).round()]
    mixed = [(b, b * 1024, p, p * (p + 1) / 2) for b in (32.0, 128.0, 512.0) for p in np.geomspace(64, 4096, 6).round()]
    rows = np.repeat(np.array(decode + chunks + mixed), each, axis=0)
    b, kv, p, pairs = rows.T.copy()
    kv += b * np.tile(np.arange(each) % 40, len(rows) // each)
    exact = np.interp(b + p, [1.0, 256.0, 8192.0], [0.006, 0.009, 0.24]) + 2e-6 * b + 1e-8 * kv + 3e-10 * pairs
    seconds = exact * (1 + 0.02 * rng.standard_normal(len(rows))) * np.where(rng.random(len(rows)) < 0.002, 5.0, 1.0)
    n = len(rows)
    segment = np.repeat(np.arange(n // each, dtype=np.int32), each)
    held = np.stack([b, kv, p, pairs, np.zeros(n)], axis=1)
    observations = Observations(seconds, segment, np.zeros(n), np.arange(n), held)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]
    return {"seconds": timed(lambda: fit(observations, graph_sizes=sizes), 5), "iterations": n}


def steady_run() -> dict[str, Any]:
    """A run of the default job that ends when it is steady, and a look at it, in turn: seconds per step of each."""
    import fleetsim as fs
    from fleetsim.job.looks import looked
    from fleetsim.sim.run import simulate

    long = fs.load(None, {}, batch=512, len=1536, instances=4).scenario
    per_step: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(11):
        for short in per_step:
            scenario = looked(long) if short else long
            start = time.process_time()
            steps = len(simulate(scenario).steps)
            per_step[short].append((time.process_time() - start) / steps)
    look, steady = (float(np.median(per_step[short][1:])) for short in (True, False))
    return {"seconds": per_step[False], "ratio": steady / look}


CASES = {
    case.__name__: case
    for case in (requests_4096, requests_million, cost_per_request, fleet_1000, fit_100000, steady_run)
}


def main() -> None:
    """Runs the case named on the command line and prints what it measured."""
    measured = CASES[sys.argv[1]]()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    measured["peak_bytes"] = peak if sys.platform == "darwin" else peak * 1024
    print(json.dumps(measured))


if __name__ == "__main__":
    main()

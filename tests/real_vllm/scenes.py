"""Loads that show one fact each, run on a real engine in this process: `python -m tests.real_vllm.scenes MODEL RAW`."""

from __future__ import annotations

import os
import sys
from time import perf_counter

from fleetsim.calibrate.loads import Load, Request
from fleetsim.calibrate.raw import RawWriter
from fleetsim.calibrate.vllm import child
from fleetsim.calibrate.vllm import engine as vllm_engine
from fleetsim.calibrate.vllm.sync import broadcast_rate, measure_sync

BLOCK = 32
ENGINE = {"enforce_eager": True, "max_model_len": 2048, "max_num_seqs": 32, "block_size": BLOCK}
GROUP = {"G": 8, "P": 300, "cached": True}

SIBLINGS = Load("siblings", GROUP, tuple(Request(1, 300, 40 + i) for i in range(8)), track=True)
NOT_READ = Load("not_read", GROUP, tuple(Request(1, 300, 5, read_cache=False) for i in range(8)), track=True)
PREEMPTED = Load(
    "preempted", {"pool_blocks": 32}, tuple(Request(i, 64, 192) for i in range(8)), pool_blocks=32, track=True
)
CHUNKS = Load(
    "chunks",
    {"budget": 256},
    (*(Request(i, 33, 30, cached_tokens=32) for i in range(4)), Request(9, 1000, 3, at=5)),
    max_num_batched_tokens=256,
)
CONTEXTS = Load("contexts", {}, tuple(Request(i, 513, 20, cached_tokens=512) for i in range(16)))
SLOTS = Load("slots", {"slots": 4}, tuple(Request(i, 20, 10 + i) for i in range(16)), slots=4, track=True)
CUT = Load("cut", {}, tuple(Request(i, 20, 1000) for i in range(8)), track=True)
LATER = Load("later", {}, tuple(Request(i, 20, 2, at=50 * i) for i in range(3)), track=True)


def main(model: str, raw: str) -> None:
    """Is refused an engine, then runs all scenes on another one, then a weight update, and ends."""
    refused = {"raw": raw, "engine_args": {"model": model, "max_num_sequences": 4}}
    assert child.main(refused, perf_counter()) == child.NOT_STARTED
    writer = RawWriter(raw)
    engine = vllm_engine.start({"model": model, **ENGINE}, writer)
    writer.put("start", **engine.start)
    for load in (SIBLINGS, NOT_READ, PREEMPTED, CHUNKS, CONTEXTS, SLOTS, LATER):
        engine.run(load, engine.now() + 60.0)
    engine.run(CUT, engine.now() + 0.3)
    engine.forging = False
    engine.run(CONTEXTS, engine.now() + 60.0)
    measure_sync(engine, engine.now() + 60.0)
    engine.run(SIBLINGS, engine.now() + 60.0)
    writer.put("broadcast", bytes_s=broadcast_rate("gloo"))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])

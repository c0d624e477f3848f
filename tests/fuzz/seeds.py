"""Good inputs of every kind, and the commands that read them: what the mutations start from."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.fuzz.mutations import NUMBERS, WORDS, mutated_text, mutated_tree, odd_value

ROOT = Path(__file__).parents[2]
# A job from whose window replay recommends a fleet, so that there is a plan.
CAPPED = """
name: capped
workload: {output_tokens: {mean: 400, cv: 0.8, max: 2000}, prompt_tokens: 128, group_size: 4}
fleet: {instances: 3, max_in_flight_samples: 48}
trainer: {batch_samples: 96, fixed_s: 4.0}
admission: {law: version_window, max_staleness: 3}
sync: {pause_s: 0.5, trainer_block_s: 0.5}
run: {steps: 120, replications: 1}
"""
QUICK = ("--steps", "4", "--replications", "1")
SCENARIO = {
    "schema_version": 1,
    "name": "small",
    "workload": {
        "prompt_tokens": 64,
        "output_tokens": {"kind": "lognormal", "mean": 96, "cv": 1.0, "max": 512},
        "group_size": 4,
        "group_correlation": 0.1,
        "shared_prefix_tokens": 16,
        "turns": {"count": 1, "tool_latency_s": 0.1, "tool_tokens": 8},
        "reward": {"latency_s": {"kind": "gamma", "mean": 0.1, "cv": 0.5}, "workers": 4},
    },
    "engine": {
        "name": "vllm",
        "model": "Qwen/Qwen2.5-7B",
        "gpu": "H100-SXM",
        "tp": 1,
        "dtype": "bfloat16",
        "max_num_seqs": 32,
        "max_num_batched_tokens": 2048,
    },
    "fleet": {
        "instances": 2,
        "max_in_flight_samples": 64,
        "routing": "round_robin",
        "failures": {"mtbf_s": 1000.0, "restart_s": 60.0},
    },
    "trainer": {"gpus": 2, "batch_samples": 16, "fixed_s": 0.2, "minibatches": 1},
    "sync": {"every_steps": 1, "pause_s": 0.05, "in_flight": "keep", "scope": "global"},
    "admission": {"law": "version_window", "max_staleness": 1},
    "buffer": {"capacity_samples": 64, "on_full": "block"},
    "targets": {"trainer_idle_fraction": 0.2, "headroom": 0.8},
    "cost": {"instance_price_usd_per_gpu_h": 3.0},
    "run": {"steps": 4, "seed": 1, "replications": 1, "events": [{"step": 2, "trainer_slowdown": 1.5}]},
}


@dataclass(frozen=True, slots=True)
class Input:
    """One input to try: the arguments, and the files that they name, relative to an empty folder."""

    kind: str
    arguments: tuple[str, ...]
    files: dict[str, bytes]


Maker = Callable[[random.Random], Input]


def makers(folder: Path) -> dict[str, Maker]:
    """Per kind of input, what makes one from random choices. `folder` takes what the seeds need to be written once."""
    seeds = _written(folder)
    return {
        "scenario": _scenario,
        "flags": _flags,
        "expressions": _expressions,
        "results": lambda rng: _json(rng, "results", rng.choice(seeds["results"]), ["compare", "{}", "b.json"]),
        "profiles": lambda rng: _json(
            rng,
            "profiles",
            seeds["profile"][0],
            rng.choice((["profile", "show", "{}"], ["size", "--batch", "16", "--len", "64", "--profile", "{}"])),
        ),
        "raw": lambda rng: _raw(rng, seeds["raw"][0]),
        "histories": lambda rng: _history(rng, seeds),
        "configurations": _configuration,
        "plans": lambda rng: _json(
            rng, "plans", seeds["plan"][0], ["replay", "--from", "h.om", "--verify", "{}", "--no-backtest"]
        ),
    }


_SHARED: dict[str, bytes] = {}


def _written(folder: Path) -> dict[str, list[bytes]]:
    """Results, a profile, raw data and histories, each from fleetsim's own commands on a small job."""
    job = folder / "job.yaml"
    job.write_text(yaml.safe_dump(SCENARIO))
    om = folder / "h.om"
    simulated = call(["simulate", str(job), "--json"])
    sized = call(["size", "--scenario", str(job), "--json"])
    split = call(["split", "--gpus", "4", "--scenario", str(job), "--json"])
    call(["simulate", str(job), "--steps", "200", "--openmetrics", str(om), "--scrape-interval", "1"])
    call(["profile", "estimate", "--model", "Qwen/Qwen2.5-7B", "--gpu", "H100-SXM", "-o", str(folder / "p.json")])
    call(["replay", "--from", str(om), "--save", str(folder / "h.parquet"), "--no-backtest"])
    _SHARED["b.json"] = simulated.encode()
    _SHARED["h.om"] = om.read_bytes()
    with gzip.open(ROOT / "calibration/raw/cpu-tiny.raw.jsonl.gz", "rt") as stream:
        raw = _small_raw(stream.read().splitlines())
    return {
        "results": [simulated.encode(), sized.encode(), split.encode()],
        "profile": [(folder / "p.json").read_bytes()],
        "raw": [raw.encode()],
        "histories": [p.read_bytes() for p in (om, folder / "h.parquet")],
        "plan": [_plan(folder)],
    }


def _plan(folder: Path) -> bytes:
    """What `replay --recommend --plan-out` writes."""
    job, om, plan = folder / "capped.yaml", folder / "capped.om", folder / "plan.json"
    job.write_text(CAPPED)
    call(["simulate", str(job), "--openmetrics", str(om), "--scrape-interval", "5"])
    wider = ("--set", "fleet.max_in_flight_samples=192")  # a fleet is not sized beside a cap that binds
    facts = ("--given", "targets.trainer_idle_fraction=0.1", "--given", "cost.trainer_price_usd_per_gpu_h=7")
    call(["replay", "--from", str(om), *facts, *wider, "--plan-out", str(plan)])
    return plan.read_bytes()


def _small_raw(lines: Sequence[str]) -> str:
    """Few of the measured loads: a fit of them all takes longer than a mutation is worth."""
    return "\n".join(line for k, line in enumerate(lines) if k < 2 or k % 9 == 0 or k > len(lines) - 3) + "\n"


def call(arguments: Sequence[str]) -> str:
    """What a command prints, run in this process. Raises RuntimeError where it does not end in 0."""
    from fleetsim.cli.main import app

    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            app(list(arguments), prog_name="fleetsim", standalone_mode=True)
        except SystemExit as end:
            code = int(end.code or 0)
    if code not in (0, 10):
        raise RuntimeError(f"fleetsim {' '.join(arguments)}: exit {code}\n{err.getvalue()}")
    return out.getvalue()


def _scenario(rng: random.Random) -> Input:
    tree = mutated_tree(rng, SCENARIO, rng.randint(1, 3))
    text = yaml.safe_dump(tree, allow_unicode=True)
    if rng.random() < 0.2:
        text = mutated_text(rng, text, 1)
    command = rng.choice(
        (["scenario", "check", "job.yaml"], ["simulate", "job.yaml"], ["simulate", "job.yaml", "--json"])
        + ((["size", "--scenario", "job.yaml"],) if rng.random() < 0.3 else ())
    )
    return Input("scenario", tuple(command), {"job.yaml": _bytes(text)})


# Flags that take a value, with a good one; an odd one takes its place.
_CALLS: tuple[tuple[str, ...], ...] = (
    ("size", "--batch", "16", "--len", "64", "--group-size", "4", "--prompt-len", "32", "--max-len", "256"),
    ("size", "--batch", "16", "--len", "64", "--instance-tok-s", "4000", "--target-idle", "0.1", "--headroom", "0.8"),
    ("size", "--batch", "16", "--len", "64", "--model", "Qwen/Qwen2.5-7B", "--gpu", "H100", "--tp", "1"),
    ("size", "--batch", "16", "--len", "64", "--trainer-gpus", "2", "--trainer-step-s", "0.3", "--sync-pause-s", "0"),
    ("size", "--batch", "16", "--len", "64", "--instance-price", "2", "--trainer-price", "2", "--max-staleness", "1"),
    ("size", "--batch", "16", "--len", "64", "--preset", "verl-fully-async", "--seed", "1", "--replications", "2"),
    ("split", "--gpus", "4", "--batch", "16", "--len", "64"),
    ("simulate", "job.yaml", "--steps", "3", "--replications", "1", "--seed", "1"),
    ("simulate", "job.yaml", "--hours", "0.001", "--openmetrics", "x.om", "--openmetrics-end", "2026-11-21T08:00"),
    ("simulate", "job.yaml", "--parquet", "out", "--perfetto", "t.pftrace", "--html", "p.html"),
    ("replay", "--from", "h.om", "--start", "-1h", "--end", "now", "--no-backtest"),
    ("replay", "--from", "h.om", "--selector", 'job="x"', "--no-backtest"),
    ("compare", "b.json", "b.json", "--metric", "step_s", "--min-change", "0.01"),
    ("profile", "show", "qwen2.5-7b"),
    ("profile", "estimate", "--model", "Qwen/Qwen2.5-7B", "--gpu", "H100", "-o", "p.json"),
    ("scenario", "init", "-o", "x.yaml"),
    ("scenario", "show", "async-one-step"),
)


def _flags(rng: random.Random) -> Input:
    call = list(rng.choice(_CALLS))
    for _ in range(rng.randint(1, 2)):
        places = [k for k in range(1, len(call)) if not call[k].startswith("-")]
        place = rng.choice(places)
        call[place] = _word(rng)
    return Input("flags", tuple(call), _with_job())


def _word(rng: random.Random) -> str:
    """An odd value of a flag; an argument of a process holds no NUL."""
    odd = rng.choice((*WORDS, *NUMBERS))
    return str(odd).replace("\0", "")


_EXPRESSIONS = (
    ("simulate", "job.yaml", *QUICK, "--set", "fleet.instances=3"),
    ("simulate", "job.yaml", *QUICK, "--set", "workload.output_tokens={mean: 64, cv: 1}"),
    ("simulate", "job.yaml", *QUICK, "--set", "run.events=[{step: 1, lose_instance: 1}]"),
    ("simulate", "job.yaml", *QUICK, "--fail-if", "trainer_idle_fraction>0.1"),
    ("sweep", "job.yaml", *QUICK, "--grid", "fleet.instances=1:3:1"),
    ("sweep", "job.yaml", *QUICK, "--grid", "admission.max_staleness=0,0.5,1"),
    ("sweep", "job.yaml", *QUICK, "--grid", "fleet.instances=1,2", "--objective", "step_s"),
    ("compare", "b.json", "b.json", "--fail-if", "ratio.step_s>1.05"),
    ("replay", "--from", "h.om", "--no-backtest", "--start", "-10m"),
    ("replay", "--from", "h.om", "--no-backtest", "--given", "trainer.batch_samples=16"),
    ("replay", "--from", "h.om", "--set", "fleet.instances=3"),
)


def _expressions(rng: random.Random) -> Input:
    call = list(rng.choice(_EXPRESSIONS))
    call[-1] = mutated_text(rng, call[-1], rng.randint(1, 2)).replace("\0", "")
    if rng.random() < 0.2:
        head, _, _ = _EXPRESSIONS[0][-1].partition("=")
        call[-1] = f"{head}={odd_value(rng, 1)}"
    return Input("expressions", tuple(call), _with_job())


def _with_job() -> dict[str, bytes]:
    return {"job.yaml": yaml.safe_dump(SCENARIO).encode(), **_SHARED}


def _json(rng: random.Random, kind: str, seed: bytes, call: Sequence[str]) -> Input:
    if rng.random() < 0.85:
        text = json.dumps(mutated_tree(rng, json.loads(seed), rng.randint(1, 3)))
    else:
        text = mutated_text(rng, seed.decode(), rng.randint(1, 3))
    return Input(kind, tuple(a.format("in.json") for a in call), {"in.json": _bytes(text), **_SHARED})


def _raw(rng: random.Random, seed: bytes) -> Input:
    """Raw measurements with some of its lines mutated."""
    lines = seed.decode().splitlines()
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        try:
            lines[at] = json.dumps(mutated_tree(rng, json.loads(lines[at]), rng.randint(1, 3)))
        except ValueError:
            lines[at] = mutated_text(rng, lines[at], 1)
    if rng.random() < 0.1:
        lines = mutated_text(rng, "\n".join(lines), 1).splitlines()
    call = ("calibrate", "--from", "in.raw.jsonl", "-o", "p.json")
    return Input("raw", call, {"in.raw.jsonl": _bytes("\n".join(lines) + "\n")})


def _history(rng: random.Random, seeds: dict[str, list[bytes]]) -> Input:
    form = rng.choice(("om", "parquet"))
    om, saved = seeds["histories"]
    if form == "parquet":
        at = rng.randrange(len(saved))
        raw = saved[:at] + rng.randbytes(rng.randint(0, 4)) + saved[at + rng.randint(0, 4) :]
    else:
        raw = _bytes(mutated_text(rng, om.decode(), rng.randint(1, 5)))
    name = f"in.{form}"
    call = ["replay", "--from", name] + (["--no-backtest"] if rng.random() < 0.8 else [])
    return Input("histories", tuple(call), {name: raw})


_FRAMEWORKS = {
    "verl": ("verl_sync.yaml", "verl_fully_async.sh", "verl_one_step_off.sh", "verl_separate_async.yaml"),
    "areal": ("areal.yaml",),
    "ms-swift": ("ms_swift_colocate.sh", "ms_swift_ray.yaml", "ms_swift_server.sh"),
    "nemo-rl": ("nemo_rl_async.yaml", "nemo_rl_base.yaml", "nemo_rl_single_controller.yaml"),
    "open-instruct": ("open_instruct.sh",),
    "openrlhf": ("openrlhf_async.sh", "openrlhf_hybrid_old.sh"),
    "prime-rl": ("prime_rl.toml",),
    "rlinf": ("rlinf.yaml",),
    "roll": ("roll_agentic.yaml", "roll_rlvr_async.yaml"),
    "slime": ("slime_fully_async.sh", "slime_sync.sh"),
    "tinker": ("tinker.sh", "tinker_config.json"),
    "trl": ("trl_async.sh", "trl_grpo.py"),
}


def _configuration(rng: random.Random) -> Input:
    framework = rng.choice(sorted(_FRAMEWORKS))
    name = rng.choice(_FRAMEWORKS[framework])
    text = mutated_text(rng, (ROOT / "tests/frameworks/data" / name).read_text(), rng.randint(1, 5))
    return Input("configurations", ("scenario", "from", framework, name), {name: _bytes(text)})


def _bytes(text: Any) -> bytes:
    return str(text).encode("utf-8", "surrogatepass")

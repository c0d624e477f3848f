"""What lies in the folder of a call: scenarios, logs and tables, good and bad; and what a command makes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.golden.call import Call, say

_ROOT = Path(__file__).parents[2]
_FRAMEWORKS = _ROOT / "tests" / "frameworks" / "data"

JOB = """
name: small
workload: {output_tokens: {mean: 300, cv: 0.8, max: 1200}, prompt_tokens: 64, group_size: 4}
fleet: {instances: 3, max_in_flight_samples: 96}
trainer: {batch_samples: 48, fixed_s: 12.0, per_token_s: 1.0e-4}
sync: {pause_s: 0.5, trainer_block_s: 0.5}
run: {steps: 16, replications: 2}
"""

# The client's cap binds: 48 samples in flight on instances that could hold thousands.
CAPPED = """
name: capped
workload: {output_tokens: {mean: 400, cv: 0.8, max: 2000}, prompt_tokens: 128, group_size: 4}
fleet: {instances: 3, max_in_flight_samples: 48}
trainer: {batch_samples: 96, fixed_s: 4.0}
admission: {law: version_window, max_staleness: 3}
sync: {pause_s: 0.5, trainer_block_s: 0.5}
run: {steps: 120, replications: 1}
"""

# Few steps an hour: an hour of rehearsal is quick.
PLAN = """
name: slow-trainer
workload: {output_tokens: {mean: 100, cv: 0.8, max: 400}, prompt_tokens: 64, group_size: 4}
engine: {kind: constant, instance_tok_s: 20}
fleet: {instances: 3}
trainer: {batch_samples: 16, fixed_s: 50.0}
"""

TINY = """
name: tiny
workload: {output_tokens: {mean: 200, cv: 0.8, max: 800}, prompt_tokens: 64, group_size: 4}
engine: {kind: constant, instance_tok_s: 400}
fleet: {instances: 2}
admission: {law: barrier}
trainer: {batch_samples: 32, fixed_s: 20.0}
run: {steps: 14, replications: 2}
"""

# Nearly everything that a scenario can say.
RICH = """
schema_version: 1
name: rich
description: turns, rewards, filters, failures, lending
source: made up
assumed: [trainer.fixed_s]
workload:
  prompt_tokens: {kind: lognormal, mean: 96, cv: 0.5, max: 256}
  output_tokens: {kind: histogram, le: [50, 150, 400, 800], count: [20, 50, 20, 10]}
  group_size: 4
  group_correlation: 0.0
  shared_prefix_tokens: 32
  turns: {count: 2, tool_latency_s: 1.5, tool_tokens: 20}
  reward: {latency_s: 2.0}
  filter: {zero_variance_share: 0.2}
engine: {kind: roofline, gpu: H200, model: Qwen/Qwen2.5-7B, tp: 1}
fleet: {instances: 4, straggler_share: 0.25, straggler_slowdown: 1.6, failures: {mtbf_s: 900, restart_s: 30}}
trainer: {gpus: 4, batch_samples: 32, fixed_s: 9.0, phases: [{name: ref, fixed_s: 2.0, per_token_s: 5.0e-5}]}
sync: {every_steps: 2, in_flight: abort_resume, transport: collective_broadcast}
admission: {law: version_window, max_staleness: 2}
run: {steps: 14, replications: 2, events: [{step: 8, lose_instance: 1}]}
"""

BAD = """
name: bad
workload: {output_tokens: {mean: -5, cv: x, max: 800}, prompt_tokens: 0, group_sise: 4}
engine: {kind: roofline, gpu: H1000, tp: 3.5}
fleet: {instances: 0, placement: nowhere}
trainer: {batch_samples: 33}
admission: {law: barrier, max_staleness: 4}
unknown: 1
"""

_VERL = {
    "timing_s/step": 60.0, "timing_s/gen": 30.0, "timing_s/old_log_prob": 4.0, "timing_s/ref": 3.0,
    "timing_s/update_actor": 18.0, "timing_s/update_weights": 2.0, "timing_s/reward": 1.0, "timing_s/adv": 0.5,
    "perf/total_num_tokens": 51200, "prompt_length/mean": 100.0, "response_length/mean": 300.0,
    "response_length/max": 900.0, "response_length/clip_ratio": 0.05, "perf/mfu/actor": 0.4,
}  # fmt: skip


def _log() -> str:
    """Forty steps of verl's log; the generation of every tenth takes twice as long."""
    rows = []
    for step in range(1, 41):
        more = 25.0 if step % 10 == 0 else (step % 7) * 0.3
        row = {**_VERL, "timing_s/step": 60.0 + more, "timing_s/gen": 30.0 + more}
        rows.append(json.dumps({"training/global_step": step, **row}))
    return "\n".join(rows) + "\n"


def _table(scale: float = 1.0) -> str:
    """Tokens per second of an invented engine, by batch and context."""
    rows = ["batch,context,tok_s"]
    for batch in (1, 8, 64, 256):
        for context in (256, 1024, 4096, 8192):
            seconds = scale * (5.5e-3 + 1.2e-5 * batch + 1.4e-8 * batch * context)
            rows.append(f"{batch},{context},{batch / seconds:.6g}")
    return "\n".join(rows) + "\n"


_END = 1_790_000_000
_OPENMETRICS = f"--openmetrics-end {_END} --scrape-interval 10"
_FITTED = "--gpu H100 --model Qwen/Qwen2.5-7B --kv-blocks 40000 --block-size 16 --max-num-seqs 256"

# A text, a file of this repository, or the call that makes it.
INPUTS: Mapping[str, str | bytes | Path | Call] = {
    "job.yaml": JOB,
    "capped.yaml": CAPPED,
    "plan.yaml": PLAN,
    "tiny.yaml": TINY,
    "rich.yaml": RICH,
    "bad.yaml": BAD,
    "broken.yaml": "name: [unclosed\nfleet: {instances: 3}\n",
    "empty.yaml": "",
    "newer.yaml": "schema_version: 99\nname: newer\n",
    "picture.bin": bytes(range(256)),
    "words.txt": "neither a scenario\nnor a history\n",
    "verl.jsonl": _log(),
    "plain.csv": "step,step_s,wait_s,train_s,sync_s,samples\n"
    + "".join(f"{k},{30 + k % 3},{8 + k % 3},20,2,64\n" for k in range(1, 31)),
    "page": "vllm:num_requests_running 1\nvllm:generation_tokens_total 5\n",
    "table.csv": _table(),
    "short.csv": "batch,context,tok_s\n1,256,180\n",
    "wrong.csv": "colour,smell\nred,rose\n",
    "cpu-tiny.raw.jsonl.gz": _ROOT / "calibration" / "raw" / "cpu-tiny.raw.jsonl.gz",
    "guidellm.json": _ROOT / "tests" / "calibrate" / "data" / "guidellm-0.8.json",
    **{name.name: name for name in sorted(_FRAMEWORKS.iterdir())},
    "a.json": say("a", "simulate tiny.yaml --json", "tiny.yaml"),
    "b.json": say("b", "simulate tiny.yaml --set fleet.instances=3 --json", "tiny.yaml"),
    "sized.json": say("sized", "size --scenario plan.yaml --json --replications 1", "plan.yaml"),
    "a.om": say("a", f"simulate tiny.yaml --steps 60 --openmetrics a.om {_OPENMETRICS}", "tiny.yaml"),
    "b.om": say(
        "b", f"simulate tiny.yaml --steps 60 --set fleet.instances=3 --openmetrics b.om {_OPENMETRICS}", "tiny.yaml"
    ),
    "capped.om": say("capped", f"simulate capped.yaml --openmetrics capped.om {_OPENMETRICS}", "capped.yaml"),
    "lost.om": say(
        "lost",
        f"simulate async-one-step --steps 70 --replications 1 --openmetrics lost.om {_OPENMETRICS}"
        " --set 'run.events=[{step: 30, lose_instance: 1}]' --set trainer.batch_samples=128",
    ),
    "mine.profile.json": say("mine", f"calibrate --from table.csv {_FITTED} -o mine.profile.json", "table.csv"),
    "tiny.profile.json": say(
        "tiny", "calibrate --from cpu-tiny.raw.jsonl.gz -o tiny.profile.json", "cpu-tiny.raw.jsonl.gz"
    ),
    "roofline.profile.json": say(
        "roofline", "profile estimate --gpu H200 --model Qwen/Qwen3-32B --tp 2 -o roofline.profile.json"
    ),
    "change.json": say(
        "change",
        "replay --from capped.om --scenario capped.yaml --set fleet.max_in_flight_samples=192 --set fleet.instances=7"
        " --plan-out change.json",
        "capped.om",
        "capped.yaml",
    ),
}

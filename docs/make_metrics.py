"""The metrics that fleetsim reads from Prometheus: writes docs/metrics.md from fleetsim/history/signals.txt.

python docs/make_metrics.py            write the page
python docs/make_metrics.py --check    the same without writing; exit 1 if the page would change
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fleetsim.history.signals import SIGNALS, Signal
from fleetsim.tell.page import same

PAGE = Path(__file__).resolve().parent / "metrics.md"

INTRO = """\
# Metrics that fleetsim reads

`fleetsim replay`, `alerts`, `dashboard` and `watch` read what engines export by themselves, and what a trainer exports
if somebody tells it to. Written by

    python docs/make_metrics.py

from the catalogue in the code. Where a metric was renamed between releases, all its names
are read, also when both occur in one window. Under Ray, `vllm:` becomes `ray_vllm_`.

"""

TRAINER = """\
## What a trainer should export

Most trainers log to a tracker and export nothing. `fleetsim replay --from run.jsonl` reads their logs
([run_logs.md](run_logs.md)). Without either, the step is inferred from the pattern in which engines generate and stand
still, and marked as inferred. Better: export these, once per phase of a step, from the process that drives training.

```python
from prometheus_client import Counter, Gauge, start_http_server

steps = Counter("rl_trainer_steps", "optimizer steps completed")
wait_s = Counter("rl_trainer_sample_wait_seconds", "trainer waited for samples")
train_s = Counter("rl_trainer_train_seconds", "trainer computed")
sync_s = Counter("rl_trainer_weight_sync_seconds", "trainer was held by weight sync")
samples = Counter("rl_trainer_trained_samples", "samples trained on")
tokens = Counter("rl_trainer_trained_tokens", "output tokens trained on")
dropped = Counter("rl_trainer_dropped_samples", "samples generated and thrown away")
queued = Gauge("rl_rollout_queue_samples", "finished samples that the trainer has not taken")
oldest = Gauge("rl_rollout_queue_oldest_age_steps", "steps since the weights of the oldest queued sample")

server, thread = start_http_server(9200, addr="127.0.0.1")  # addr="0.0.0.0" to let Prometheus in from elsewhere

# in the loop, after each phase:
wait_s.inc(3.2)
train_s.inc(20.4)
sync_s.inc(1.1)
samples.inc(512)
tokens.inc(786_432)
steps.inc()
queued.set(128)
oldest.set(1)
```

Metrics with other names are mapped, each to any PromQL expression that gives one series:

    fleetsim replay --prometheus URL --map 'trainer.wait_s=max(my_trainer_wait_seconds)'

A counter is mapped as it is exposed, not as its `rate()`: a series that falls again and again is refused where a
running total is wanted.
"""


def table(signals: list[Signal]) -> list[str]:
    """One row per signal."""
    rows = ["| signal | kind | unit | metrics, best first | what it is |", "| --- | --- | --- | --- | --- |"]
    for s in signals:
        names = [n for n in s.metrics if not n.startswith("ray_vllm_")]
        shown = "<br>".join(f"`{n}`" for n in names) or "by `--map` only"
        rows.append(f"| `{s.name}` | {s.kind} | {s.unit or '-'} | {shown} | {s.doc} |")
    return rows


def page() -> str:
    """The whole page."""
    engine = [s for s in SIGNALS if s.scope == "instance"]
    fleet = [s for s in SIGNALS if s.scope == "fleet"]
    return INTRO + "\n".join(
        ["## Engines", "", *table(engine), "", "## Trainer and queue", "", *table(fleet), "", TRAINER]
    )


def main() -> int:
    """Writes or checks."""
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and same(PAGE.read_text(), text):
            return 0
        print("docs/metrics.md has drifted: run python docs/make_metrics.py", file=sys.stderr)
        return 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

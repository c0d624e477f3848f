"""The table of presets: reads scenarios/presets and writes docs/presets.md.

python docs/make_presets.py            write the page
python docs/make_presets.py --check    exit 1 if the page would change
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fleetsim import units
from fleetsim.config import Scenario, load_scenario
from fleetsim.config.data_files import presets
from fleetsim.config.scenario import age_bound
from fleetsim.job.grounds import law_words, place_words
from fleetsim.job.job import job_from_flags
from fleetsim.job.nameplate import mean_step_s
from fleetsim.policies.samples import AGE_ACTIONS

PAGE = Path(__file__).resolve().parent / "presets.md"
HEADER = """\
# Presets

What each RL post-training system does differently, as scenarios that you can simulate by name: one file per system
and mode under `scenarios/presets`, each value with the upstream file and the parameter it comes from.

```sh
fleetsim scenario ls                                       # all of them, a line each
fleetsim simulate --preset verl-fully-async --set admission.staleness_threshold=0.5
fleetsim size --preset areal --len 6000 --gpu H200 --model Qwen/Qwen3-32B
fleetsim scenario init trl-async-grpo -o job.yaml          # the file, comments and all, to change
```

Underscores do for hyphens, and the first letters for a name if they fit only one.

- **The same in all**, and marked [assumed]: 512 samples a step (64 prompts of 512 tokens, 8 responses each, lognormal
  with mean 1,536 and cv 1.0, at most 8,192), Qwen2.5-7B on H100 (roofline), 8 GPUs that train and 8 rollout
  instances, or all 16 in turn.
- **Worked out again for your job**: the seconds of a training step ([the model](trainer.md)) and of a weight sync
  ([transports](transports.md)). `--trainer-step-s` takes what you measured.
- **Another batch or group size**: what a system states in batches follows `--batch`, and what it states in prompts
  follows `--group-size` (`follow` in the preset). What you give yourself stays.
- **Age** is counted in weight versions when the trainer takes a group. A bound stands here only if the system's own
  rules keep it for every group.
- **Source**: read at that commit, or secondary notes only. `fleetsim scenario init NAME` prints that of each value.

"""
COLUMNS = ("preset", "placement", "training step", "may start", "cap in flight", "age bound", "batch rule",
           "weights every", "in flight at a sync", "source")  # fmt: skip


def cap_words(s: Scenario) -> str:
    """What the client keeps in flight at most."""
    size, unit = s.workload.group_size, s.fleet.in_flight_unit
    caps = {"": s.fleet.max_in_flight_samples, " an instance": s.fleet.max_in_flight_samples_per_instance}
    found = []
    for where, cap in caps.items():
        if cap is not None:
            found.append(f"{cap:,}{where}" if unit == "samples" else f"{cap // size:,} groups{where}")
    return ", ".join(found) or "-"


def age_cell(s: Scenario) -> str:
    """The bound, and what keeps it."""
    bound, action = age_bound(s), s.admission.age_action
    if bound is None:
        return "none"
    return f"{bound:g}, {AGE_ACTIONS[action].says if AGE_ACTIONS[action].limits_age else 'by the law'}"


def rule_words(s: Scenario) -> str:
    """Which finished groups make a batch."""
    b = s.buffer
    words = b.batch_rule.replace("_", " ")
    if b.wait_for_oldest:
        words += ", waits for them"
    if b.oversampling > 1:
        words += f" of {b.oversampling:g} x"
    if b.leftover == "defer":
        words += ", rest deferred"
    return words


def trigger_words(s: Scenario) -> str:
    """How often weights are published."""
    sync = s.sync
    if sync.trigger == "pulls":
        return f"{sync.every_pulls} pulls of 1/{s.trainer.minibatches} batch"
    if sync.trigger == "samples":
        return f"step (>= {sync.every_samples} sample)"
    return "step" if sync.every_steps == 1 else f"{sync.every_steps} steps"


def row(name: str, path: Path) -> tuple[str, ...]:
    """One preset."""
    s, derived = load_scenario(path), job_from_flags(path, (), {}).scenario
    flight = s.sync.in_flight.replace("_", " ") + (", engine by engine" if s.sync.scope == "rolling" else "")
    source, _, secondary = s.source.partition("; secondary notes")
    return (
        f"[{name}](../scenarios/presets/{name}.yaml)",
        place_words(s),
        units.seconds(mean_step_s(derived)),
        law_words(s),
        cap_words(s),
        age_cell(s),
        rule_words(s),
        trigger_words(s),
        flight,
        source + (" (secondary)" if secondary else ""),
    )


def page() -> str:
    """The whole page."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(row(name, path)) + " |" for name, path in presets().items()]
    return HEADER + "\n".join(lines) + "\n"


def main() -> int:
    """Writes or checks the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page would change")
    text = page()
    if parser.parse_args().check:
        if PAGE.read_text(encoding="utf-8") != text:
            print(f"{PAGE} has drifted: run python docs/make_presets.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

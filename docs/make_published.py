"""Published runs, predicted: simulates the scenarios under scenarios/published and writes docs/published.md.

python docs/make_published.py            simulate, print predicted and published side by side, write the page
python docs/make_published.py --check    the same without writing; exit 1 if the page would change
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleetsim.analysis.replicate import Replicated, replicate
from fleetsim.config import Scenario, load_scenario
from fleetsim.engine.kernel.tables import G_TRAINED

PAGE = Path(__file__).resolve().parent / "published.md"
TRL, ON_POLICY, ONE_OFF = (
    "trl-asyncgrpo-lora-run1",
    "nemo-rl-llama-3.1-8b-on-policy",
    "nemo-rl-llama-3.1-8b-one-off",
)
RUNS = {
    TRL: ("trainer seconds (22.9 a step, 8.5 a sync)", "generation, waiting, queue, staleness"),
    ON_POLICY: ("mean length", "generation; the trainer from half of peak FLOP/s, assumed"),
    ONE_OFF: ("mean length", "generation; the trainer from half of peak FLOP/s, assumed"),
}


@dataclass(frozen=True, slots=True)
class Arm:
    """One of the five runs of the TRL ladder: what its trainer took (given), and what the authors saw.

    step_s: wall-clock seconds per step, syncs included. queue: samples. staleness: mean, in weight versions.
    """

    name: str
    changed: str
    overrides: tuple[str, ...]
    step_s: float | None
    queue: str
    staleness: float | None
    bottleneck: str


def _trainer(samples: int, fwd_bwd_s: float, rest_s: float, sync_s: float) -> tuple[str, ...]:
    return (
        f"trainer.batch_samples={samples}",
        f"trainer.fixed_s={fwd_bwd_s}",
        f"trainer.phases=[{{name: rest of the step, fixed_s: {rest_s}}}]",
        f"sync.trainer_block_s={sync_s}",
        f"sync.publish_s={sync_s - 0.3:g}",
    )


# Source of every figure: the [post] of the scenario, sections "Run 1" to "Run 5" and "The scoreboard". Batches are
# rounded to whole groups of 8 (150 -> 152); runs 3 and 4 do not say how large theirs were, run 2's is taken. Step
# seconds without syncs: 5.9 (run 2), 4.8 (run 5); runs 3 and 4 publish forward + backward only, to which run 2's other
# 0.3 s are added. Run 2's sync is run 1's. Run 3's step: a sync of 7.6 s every 4 steps is 25 % of wall-clock.
LADDER = (
    Arm("1", "-", (), 24.84, "476", 1.5, "trainer"),
    Arm("2", "packed micro-batches", _trainer(152, 5.6, 0.3, 8.5), None, "420", None, "trainer"),
    Arm("3", "no recomputation", _trainer(152, 4.6, 0.3, 7.6), 7.6, "60 to 71", None, "generation"),
    Arm(
        "4",
        "third replica",
        (*_trainer(152, 4.6, 0.3, 5.8), "fleet.instances=3"),
        None,
        "-",
        None,
        "client cap of 128 in flight",
    ),
    Arm(
        "5",
        "cap 384, queue 768",
        (
            *_trainer(168, 4.6, 0.2, 6.2),
            "fleet.instances=3",
            "fleet.max_in_flight_samples=384",
            "buffer.capacity_samples=768",
        ),
        6.36,
        "690",
        2.0,
        "trainer",
    ),
)
LADDER_STEPS, LADDER_WARMUP = 200, 50
PEAK_SHARES = (0.4, 0.5, 0.6)

INTRO = """\
# Published runs, predicted

Three real runs that others published, simulated from what they published. This page is written by

    python docs/make_published.py

and CI fails when it has drifted. A prediction is only as good as what is left for it to predict, so each table says
what was given. Sources, and every assumption, stand beside the values in `scenarios/published/*.yaml`. Generation is
predicted by the roofline ([accuracy](accuracy.md)); no parameter was fitted to these runs. The
NeMo trainer's share of the GPU's peak was chosen with the published steps in sight.
"""

TRL_NOTE = """\
## TRL: the whole ladder

The authors changed one thing at a time over five runs. Given, per run: the trainer's seconds, its batch, the seconds of
a sync, replicas, caps. Predicted: how fast two or three replicas generate under the cap, hence the wait, the queue, the
staleness, and the wall-clock seconds per step.
"""

TRL_READING = """\
How to read it. Runs 1, 2 and 5 are bound by the trainer, published and predicted: the step then follows from what was
given, and what the simulation adds is that generation keeps up, how full the queue is and how stale the samples are.
In runs 3 and 4 the published fleet falls behind the trainer at about 25,000 tokens/s and the predicted one does not:
it could make {supply:,.0f} in run 3. The real replicas also carried a LoRA adapter, a proxy and the public network. So
near the balance of both sides the prediction names the wrong side. `sync` means that the trainer does not wait for
samples and that weight syncs hold it for over a tenth of the time.

Left out: the 0.3 s for which both replicas pause at a sync (`finish_on_old_weights` does not stop engines), checkpoints
every 50 steps, and that TRL draws samples one by one from the queue while it trains, which is why its queue reads a
little below its limit.
"""

NEMO_NOTE = """\
## NeMo-RL: what the assumed trainer does

NeMo-RL publishes no seconds of its trainer for these rows, so the scenarios assume a share of the bf16 peak. This is
the step by that share:
"""

NEMO_READING = """\
How to read it. The one-off step is bound by the trainer at every one of these shares, so its error is that of the
assumption. The on-policy step is generation plus training, and too short by {gap_s:.0f} s at one half. The published
step also holds what nobody published seconds for: offloading the trainer, waking the engines, refit, data preparation,
rewards. `fleet.switch_s` is the place for that; it is 0 here. Because of it the simulation gives one step off-policy
next to no advantage ({ratio:.2f} of the on-policy step), where the published one is {published_ratio:.2f}: do not
decide between colocated and split on a scenario whose switch was not measured.

A breakdown in NeMo-RL's pull request 1052 (66.55 s per step) has been read as this one-off row. It is not used: its
log-prob pass of 4.78 s would need over 100 % of the peak of 8 H100 for the tokens of this row's batch.
"""


def error(predicted: float, published: float) -> str:
    """Signed relative error as a percentage."""
    return f"{(predicted / published - 1) * 100:+.1f} %"


def staleness_versions(run: Replicated, first_step: int) -> float:
    """Mean weight versions that trained samples lag behind, as TRL counts it: trainer's version - sample's."""
    lags = []
    for records in run.runs:
        groups = records.groups[
            (records.groups["status"] == G_TRAINED) & (records.groups["trained_step"] >= first_step)
        ]
        lags.append((groups["trained_step"] // records.scenario.sync.every_steps - groups["version"]).mean())
    return float(np.mean(lags))


def published_of(scenario: Scenario) -> tuple[float, str]:
    """Published seconds per step, and the published bottleneck or "-"."""
    published = scenario.published
    if published is None or published.step_s is None:
        raise ValueError(f"{scenario.name} publishes no step time")
    return published.step_s, published.bottleneck or "-"


def step_s(run: Replicated) -> float:
    """Predicted mean seconds per optimizer step."""
    return float(run.metrics["step_s"].mean)


def comparison(runs: dict[str, Replicated]) -> list[str]:
    """Predicted and published step time, side by side."""
    rows = [
        "| run | published step s | predicted | error | published bottleneck | predicted | given | left to predict |",
        "| --- | ---: | ---: | ---: | --- | --- | --- | --- |",
    ]
    for name, run in runs.items():
        published, bottleneck = published_of(run.scenario)
        given, predicted = RUNS[name]
        rows.append(
            f"| {name} | {published:g} | {step_s(run):.1f} | {error(step_s(run), published)} "
            f"| {bottleneck} | {run.metrics['binding']} | {given} | {predicted} |"
        )
    return rows


def run_arm(arm: Arm) -> Replicated:
    """One of the five TRL runs."""
    return replicate(load_scenario(TRL, [f"run.steps={LADDER_STEPS}", *arm.overrides]), 1)


def ladder() -> list[str]:
    """The five TRL runs."""
    rows = [
        "| run | changed | published step s | predicted | error | queue | predicted | staleness, versions "
        "| predicted | generated tok/s, predicted | published bottleneck | predicted |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for arm in LADDER:
        run = run_arm(arm)
        queue = run.runs[0].steps["queue_depth"][LADDER_WARMUP:].mean()
        rows.append(
            f"| {arm.name} | {arm.changed} | {arm.step_s or '-'} | {step_s(run):.2f} "
            f"| {error(step_s(run), arm.step_s) if arm.step_s else '-'} | {arm.queue} | {queue:.0f} "
            f"| {arm.staleness or '-'} | {staleness_versions(run, LADDER_WARMUP):.1f} "
            f"| {run.metrics['generated_tok_s'].mean:,.0f} | {arm.bottleneck} | {run.metrics['binding']} |"
        )
    return rows


def supply_tok_s(run: Replicated) -> float:
    """Output tokens per second that a fleet would make if it never idled at the load that it had."""
    metrics = run.metrics
    return float(metrics["generated_tok_s"].mean / (1 - metrics["rollout_idle_fraction"].mean))


def peak_shares() -> list[str]:
    """The NeMo-RL steps by the trainer's assumed share of the peak."""
    rows = [
        "| share of bf16 peak | on-policy s | error | one-off s | error | one-off / on-policy |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for peak in PEAK_SHARES:
        predicted, published = [], []
        for name in (ON_POLICY, ONE_OFF):
            scenario = load_scenario(name)
            trainer = scenario.trainer
            slower = 0.5 / peak
            phase = trainer.phases[0]
            run = replicate(
                load_scenario(
                    name,
                    [
                        f"trainer.per_token_s={trainer.per_token_s * slower}",
                        f"trainer.phases=[{{name: {phase.name}, per_token_s: {phase.per_token_s * slower}}}]",
                    ],
                )
            )
            predicted.append(step_s(run))
            published.append(published_of(scenario)[0])
        errors = [error(p, q) for p, q in zip(predicted, published, strict=True)]
        rows.append(
            f"| {peak:.0%} | {predicted[0]:.1f} | {errors[0]} | {predicted[1]:.1f} | {errors[1]} "
            f"| {predicted[1] / predicted[0]:.2f} |"
        )
    rows.append(f"| published | {published[0]:g} | | {published[1]:g} | | {published[1] / published[0]:.2f} |")
    return rows


def page() -> str:
    """The whole page."""
    runs = {name: replicate(load_scenario(name)) for name in RUNS}
    predicted = {name: step_s(run) for name, run in runs.items()}
    published = {name: published_of(run.scenario)[0] for name, run in runs.items()}
    reading = NEMO_READING.format(
        gap_s=published[ON_POLICY] - predicted[ON_POLICY],
        ratio=predicted[ONE_OFF] / predicted[ON_POLICY],
        published_ratio=published[ONE_OFF] / published[ON_POLICY],
    )
    trl = TRL_READING.format(supply=round(supply_tok_s(run_arm(LADDER[2])), -3))
    blocks = [INTRO, "\n".join(comparison(runs)) + "\n", TRL_NOTE, "\n".join(ladder()) + "\n", trl]
    blocks += [NEMO_NOTE, "\n".join(peak_shares()) + "\n", reading]
    return "\n".join(blocks)


def same(ours: str, theirs: str) -> bool:
    """Whether two pages say the same: the same words, and figures that differ by the last digit shown at most.

    exp() differs by a bit between processors, and a length that rounds the other way moves every later event a little.
    """
    number = re.compile(r"\d[\d,]*(?:\.\d+)?")
    if number.sub("#", ours) != number.sub("#", theirs):
        return False
    pairs = zip(*(number.findall(text) for text in (ours, theirs)), strict=True)
    return all(math.isclose(*(float(x.replace(",", "")) for x in pair), rel_tol=0.01, abs_tol=0.11) for pair in pairs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the page; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page would change")
    check = parser.parse_args(arguments).check
    text = page()
    print("\n".join(line for line in text.splitlines() if line.startswith("|")))
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.is_file() or not same(PAGE.read_text(encoding="utf-8"), text):
        print(f"{PAGE.name} has drifted: run python docs/make_published.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

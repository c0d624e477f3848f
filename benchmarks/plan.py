"""`fleetsim plan` on real jobs: plans, what bounds rule out, simulations, processor seconds; and against all plans.

    python benchmarks/plan.py                 the jobs below, a line each
    python benchmarks/plan.py --exhaustive    a small one as well, every plan of it simulated: seconds and answers

The promise: at most 30 s on two cores for 64 GPUs and 60 s for 512, so 60 and 120 s of processor time.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fleetsim as fs
from fleetsim.job.trials import flat, simulated
from fleetsim.plan.choices import ChoiceInputs
from fleetsim.plan.plan import plan
from fleetsim.plan.space import Space
from fleetsim.plan.words import asked_for
from fleetsim.search.arrangements import divided
from fleetsim.search.front import Budget
from fleetsim.search.permissions import Allowed
from fleetsim.sim.threads import side_by_side


@dataclass(frozen=True, slots=True)
class Case:
    """One job and its budget: GPUs, dollars per hour, or seconds of a step, at most."""

    budget: Budget
    model: str
    batch: int
    tokens: int

    @property
    def options(self) -> dict[str, Any]:
        """Of `fs.load`."""
        return {"model": self.model, "batch": self.batch, "len": self.tokens}


CASES = (
    Case(Budget(16), "Qwen/Qwen3-8B", 128, 2000),
    Case(Budget(64), "Qwen/Qwen3-8B", 512, 4000),
    Case(Budget(64), "Qwen/Qwen3-32B", 512, 4000),
    Case(Budget(64), "Qwen/Qwen3-30B-A3B", 512, 8000),
    Case(Budget(256), "Qwen/Qwen3-235B-A22B", 256, 4000),
    Case(Budget(256), "Qwen/Qwen3-8B", 512, 8000),
    Case(Budget(512), "Qwen/Qwen3-8B", 1024, 8000),
    Case(Budget(512), "Qwen/Qwen3-32B", 1024, 8000),
    Case(Budget(512), "Qwen/Qwen3-30B-A3B", 1024, 8000),
    Case(Budget(512), "Qwen/Qwen3-235B-A22B", 1024, 8000),
    Case(Budget(price_per_h=200), "Qwen/Qwen3-32B", 512, 4000),
    Case(Budget(price_per_h=1000), "Qwen/Qwen3-32B", 1024, 8000),
    Case(Budget(step_s=120, objective="cost"), "Qwen/Qwen3-32B", 512, 4000),
    Case(Budget(step_s=60, objective="cost"), "Qwen/Qwen3-8B", 512, 4000),
)
SMALL = Case(Budget(8), "Qwen/Qwen3-8B", 64, 500)
HEAD = (
    "| asked for | job | plans | ruled out | simulated | CPU s | answer |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | --- |"
)


def line(case: Case) -> str:
    """A row of the table."""
    job, asked = fs.load(None, {}, **case.options), asked_for(case.budget)
    start = time.process_time()
    try:
        found = plan(job.scenario, case.budget, given=job.given)
    except fs.InputError as error:
        return f"| {asked} | {case.model} | | | | {time.process_time() - start:.1f} | {error} |"
    seconds, t = time.process_time() - start, found.tally
    best = found.best
    answer = f"{best.choice.share.kind} {best.choice.share.rollout_gpus} + {best.choice.share.trainer_gpus}, "
    answer += f"TP{best.scenario.engine.tp}, {best.step_s:.1f} s, ${best.usd:.2f}"
    what = f"{case.model}, {case.batch} x {case.tokens:,}"
    ruled = t.rough + t.bound + t.alike + t.impossible
    return f"| {asked} | {what} | {t.plans:,} | {ruled:,} | {t.simulated:,} | {seconds:.1f} | {answer} |"


def against_all(case: Case) -> str:
    """The search beside one run of every plan: processor seconds, and how far the answer is from the best of all."""
    job = fs.load(None, {}, **case.options)
    start = time.process_time()
    found = plan(job.scenario, case.budget, given=job.given)
    searched = time.process_time() - start
    space = Space(ChoiceInputs(divided(job.scenario, job.given), job.given), case.budget)
    start = time.process_time()
    scenarios = [s for c in space.plans(Allowed()) if (s := c.scenario()) is not None]
    runs = side_by_side(lambda s: float(flat(simulated(s, 0))["step_s"]), scenarios)
    exhaustive = time.process_time() - start
    again = float(flat(simulated(found.best.scenario, 0))["step_s"])
    return (
        f"{case.model}, {asked_for(case.budget)}: {searched:.1f} s of processor time for the answer, "
        f"{exhaustive:.1f} s for one run of all {len(scenarios):,} plans; "
        f"the answer's step is {again / min(runs):.4f} of the best of all"
    )


def main() -> None:
    """Prints the table."""
    print(HEAD)
    for case in CASES:
        print(line(case), flush=True)
    if "--exhaustive" in sys.argv[1:]:
        print(against_all(SMALL))


if __name__ == "__main__":
    main()

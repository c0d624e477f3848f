"""Words of a plan: what a row is, in a table, in a sentence, and as changes that another command takes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleetsim import units
from fleetsim.config.makes import as_first
from fleetsim.config.scenario import Scenario
from fleetsim.engine.prices import trainer_type
from fleetsim.job.command import unused_name
from fleetsim.job.facts import run_line
from fleetsim.plan.plan import Bought, Plans
from fleetsim.plan.space import PlanRow
from fleetsim.search.front import MOST_GPUS, Budget
from fleetsim.search.permissions import says
from fleetsim.search.shares import Share
from fleetsim.search.workers import workers_words

# The file that commands name where the plan was not saved.
PLAN_FILE = "plan.yaml"
_OBJECTIVES = {"step": "the shortest step", "cost": "the cheapest step", "token": "the cheapest token"}


def share_words(share: Share) -> str:
    """ "28 + 36", or "64 in turn, async"."""
    if share.kind == "split":
        return f"{share.rollout_gpus:,} + {share.trainer_gpus:,}"
    return f"{share.trainer_gpus:,} in turn, {'sync' if share.kind == 'colocated_sync' else 'async'}"


def pools_words(row: PlanRow) -> str:
    """ "28 + 36, 4 engines of the judge"."""
    return _beside(share_words(row.choice.share), row.scenario)


def _beside(said: str, scenario: Scenario) -> str:
    """What is said of a plan, with the workers and judges beside it, where there are any."""
    return ", ".join(filter(None, (said, workers_words(scenario))))


def engine_words(scenario: Scenario) -> str:
    """ "7 x TP4", "8 x TP8 of 4 ranks, fp8 weights, EAGLE-3 k 3"."""
    e = scenario.engine
    layout = f"TP{e.tp}" + (f" PP{e.pp}" if e.pp > 1 else "") + (f" EP{e.tp * e.dp}" if e.dp > 1 else "")
    own = "" if scenario.fleet.first is None else f" of {scenario.fleet.first}"
    parts = [f"{scenario.fleet.instances:,} x {layout}{own}"]
    pools = [as_first(scenario, name) for name in scenario.fleet.pools]
    parts += [f"{pool.fleet.instances:,} x TP{pool.engine.tp} {pool.engine.gpu}" for pool in pools]
    parts += ["two batches overlap"] if e.overlap == "two_batch" else []
    parts += [f"{e.dtype} weights"] if e.dtype != "auto" else []
    parts += [f"{e.kv_dtype} cache"] if e.kv_dtype != "auto" else []
    parts += [f"{e.speculation.method} k {e.speculation.num_speculative_tokens}"] if e.speculation else []
    limits = {
        "at once": e.max_num_seqs,
        "tokens an iteration": e.max_num_batched_tokens,
        "in flight each": scenario.fleet.max_in_flight_samples_per_instance,
    }
    parts += [f"{value:,} {name}" for name, value in limits.items() if value is not None]
    return ", ".join(parts)


def stale_words(row: PlanRow) -> str:
    """ "2", "3, sync every 2nd": steps that 99 % of the trained samples are at most old."""
    every = row.scenario.sync.every_steps
    return f"{row.age:g}, sync every {every}" if every > 1 else f"{row.age:g}"


def plan_words(row: PlanRow, several_types: bool) -> str:
    """A row in the first column of the table."""
    gpu = f"{row.scenario.engine.gpu} " if several_types else ""
    return _beside(f"{gpu}{share_words(row.choice.share)}: {engine_words(row.scenario)}", row.scenario)


def headline(result: Plans) -> str:
    """The answer in one sentence."""
    if result.contradicted:
        return f"No plan is advised. {run_line(result.scenario, result.as_run_s)}."
    row = result.best
    share, gpu, engines = row.choice.share, row.scenario.engine.gpu, engine_words(row.scenario)
    if share.kind == "split":
        other = "" if (trainer := trainer_type(row.scenario)) == gpu else f" {trainer}"
        text = f"{share.rollout_gpus:,} {gpu} for rollout ({engines}), {share.trainer_gpus:,}{other} for the trainer"
    else:
        kind = "batch by batch" if share.kind == "colocated_sync" else "carrying unfinished samples over"
        text = f"{share.trainer_gpus:,} {gpu} shared in turn ({engines}), {kind}"
    text = f"{_beside(text, row.scenario)}: a step of {units.seconds(row.mean('step_s'))}."
    if not result.feasible:
        assert result.budget.step_s is not None  # else it holds
        return f"No plan makes a step of {units.seconds(result.budget.step_s)}. The shortest: {text}"
    return text


def needs(result: Plans) -> str:
    """What the step that no plan makes would take: "6.00 s takes 160 GPUs or more, by a bound"."""
    reach, wanted = result.reach, result.budget.step_s
    if reach is None or wanted is None:
        return ""
    if reach.gpus is None and reach.usd_per_h is None:
        on = f"up to {MOST_GPUS:,} GPUs"
        return f"on {on} a step takes at least {units.seconds(reach.beyond_s)}, by a bound"
    more = f"{reach.gpus:,} GPUs" if reach.gpus is not None else f"{units.money(reach.usd_per_h or 0.0)} an hour"
    within = f", and {units.seconds(reach.within_s)} is the least that a step may take within the budget"
    return f"{units.seconds(wanted)} takes {more} or more, by a bound{within if reach.within_s > wanted else ''}"


def searched(result: Plans) -> str:
    """What was looked at, and what of it was simulated."""
    t = result.tally
    bounded = t.rough + t.bound
    alike = f"the result of a similar plan rules out {t.alike:,}, " if t.alike else ""
    return (
        f"{t.plans:,} plans were looked at: {t.impossible:,} cannot be built, a bound rules out {bounded:,}, "
        f"{alike}{t.plans - t.impossible - bounded - t.alike:,} were simulated."
    )


def asked_for(budget: Budget) -> str:
    """ "the shortest step on at most 64 GPUs"."""
    limits = [] if budget.gpus is None else [f"at most {units.plural(budget.gpus, 'GPU')}"]
    limits += [] if budget.price_per_h is None else [f"at most {units.money(budget.price_per_h)} an hour"]
    limits += [] if budget.step_s is None else [f"a step of at most {units.seconds(budget.step_s)}"]
    return f"{_OBJECTIVES[budget.objective]} with {units.listed(limits)}"


def bought_words(bought: Bought, best: PlanRow) -> str:
    """What a permission would buy: "a step of 52.1 s (31 % shorter), $2.80 (31 % less): 28 + 36, ..."."""
    row = bought.row
    if row is None:
        return f"{says(bought.permission)}: no better plan by more than a percent"
    step = f"{units.seconds(row.mean('step_s'))} ({_change(row.step_s / best.step_s, 'shorter', 'longer')})"
    cheaper = _change(row.usd / best.usd, "less", "more") if best.usd else "the same"
    usd = f"{units.money(row.mean('cost_per_step'))} ({cheaper})"
    found = f"{share_words(row.choice.share)}, {engine_words(row.scenario)}"
    return f"{says(bought.permission)}: a step of {step}, {usd}: {_beside(found, row.scenario)}"


def _change(ratio: float, less: str, more: str) -> str:
    if abs(ratio - 1) < 0.0005:
        return "the same"
    return f"{units.share(abs(ratio - 1), 0)} {less if ratio < 1 else more}"


def commands(call: Sequence[str], advice: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """(command, what it is for): the plan as a file, and each of the advice. call: the words that ask the same
    again."""
    yield shlex.join([*call, "--save", unused_name(PLAN_FILE)]), "writes the recommended plan as a scenario"
    yield from ((shlex.join(one["command"]), one["what"]) for one in advice)


def several_types(result: Plans) -> bool:
    """Whether rows have GPUs of different types."""
    return len({row.scenario.engine.gpu for row in result.rows}) > 1

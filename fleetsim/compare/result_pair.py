"""Two results of earlier runs, or a result and a scenario, which is then run as the result was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fleetsim import units
from fleetsim.compare.compare import Comparison, Side
from fleetsim.compare.runs import ToRun, run_side, steps_words, unpaired_because, unpaired_note
from fleetsim.compare.saved_result import SavedResult
from fleetsim.compare.verdicts import compare
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError, Problem
from fleetsim.quantities import RUN_METRICS


def compare_results(
    a: ToRun | SavedResult,
    b: ToRun | SavedResult,
    *,
    min_change: float = 0.01,
    metrics: Sequence[str] = RUN_METRICS,
    notes: Sequence[str] = (),
    tell: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Compares two sides, at least one a saved result. They are paired where both have runs of the same seeds.

    Raises InputError where the result's scenario cannot be read and the other side is to be run like it, and what
    `simulate` raises.
    """
    said = [*notes, *(note for side in (a, b) if isinstance(side, SavedResult) for note in side.notes)]
    side_a, scenario_a = _side(a, b, tell, said)
    side_b, scenario_b = _side(b, a, tell, said)
    because = _unpaired(side_a, scenario_a, side_b, scenario_b)
    common = [key for key in side_a.runs if key in side_b.runs]
    if because is None:
        counts = (len(side_a.runs), len(side_b.runs))
        if len(set(counts)) > 1:
            said.append(f"A has {counts[0]} runs and B {counts[1]}: the {len(common)} that both have are compared")
    elif side_a.runs and side_b.runs:
        said.append(unpaired_note(because))
    return compare(
        side_a,
        side_b,
        "results",
        metrics,
        pair=because is None,
        min_change=min_change,
        notes=tuple(dict.fromkeys(said)),
    )


def _side(
    one: ToRun | SavedResult, other: ToRun | SavedResult, tell: Callable[[str], None], said: list[str]
) -> tuple[Side, Scenario | None]:
    if isinstance(one, SavedResult):
        return one.side, one.scenario
    assert isinstance(other, SavedResult)
    if other.scenario is None:
        rule = f"is to be run as {other.side.label} was, whose scenario this version cannot read"
        raise InputError([Problem(one.label, None, rule, "write that result again with this version")])
    like = other.scenario.run
    # Not the events: they are part of the job.
    changes = {"run.steps": like.steps, "run.seed": like.seed, "run.warmup_steps": like.warmup_steps}
    scenario = with_changes(one.scenario, {**changes, "run.replications": max(1, other.side.replications)})
    rows = [r for _, r in other.side.runs] or range(other.side.replications)
    as_it_was = f"{steps_words(like.steps)}, {units.plural(len(rows), 'replication')}, seed {like.seed}"
    said.append(f"{one.label} was run as {other.side.label} was: {as_it_was}")
    tell(f"simulating {one.label}")
    return run_side(replace(one, scenario=scenario), list(rows)), scenario


def _unpaired(a: Side, scenario_a: Scenario | None, b: Side, scenario_b: Scenario | None) -> str | None:
    if not a.runs or not b.runs:
        return "not both sides have their single runs"
    if scenario_a is None or scenario_b is None:
        return "the scenario of one cannot be read"
    because = unpaired_because(scenario_a, scenario_b)
    if because is None and len([key for key in a.runs if key in b.runs]) < 2:
        return "fewer than two runs of the same seed and replication"
    return because

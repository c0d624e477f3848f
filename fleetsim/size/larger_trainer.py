"""Where the trainer binds: what twice its GPUs would buy, with the fleet that then keeps them busy.

A fleet is sized for its trainer, so more trainer GPUs buy next to nothing while the fleet stays as it is. The two are
asked for together.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError
from fleetsim.job.assumptions import is_estimated
from fleetsim.job.change import Typed
from fleetsim.job.derived_values import with_derived
from fleetsim.job.levers import kept_choices
from fleetsim.job.trials import Measure, Tell, Trial
from fleetsim.size.second_search import Anew, anew
from fleetsim.size.targets import Target

_GPUS = "trainer.gpus"


@dataclass(frozen=True, slots=True)
class LargerTrainer(Anew):
    """The same job with `gpus` trainer GPUs instead of `of`. flag: what to type."""

    gpus: int
    of: int
    flag: str


def larger_trainer_of(
    scenario: Scenario,
    now: Trial,
    binding: str,
    targets: Sequence[Target],
    measure: Measure,
    given: Collection[str],
    tell: Tell | None = None,
) -> LargerTrainer | None:
    """Twice the trainer's GPUs, with the count that is best for them.

    now: the recommendation as it is, from all runs; both are decided by as many. None where something else binds, where
    rollout shares the trainer's GPUs, and where somebody gave the trainer's seconds: only its model knows how they
    change.
    """
    if binding != "trainer" or scenario.fleet.placement == "colocated" or not is_estimated(scenario):
        return None
    of = scenario.trainer.gpus
    if tell is not None:
        tell(f"trying {2 * of:,} trainer GPUs")
    try:
        larger = with_derived(with_changes(scenario, {_GPUS: 2 * of}), {*given, _GPUS})
    except InputError:  # no layout of so many GPUs
        return None
    found = anew(larger, now, targets, measure)
    if found is None:
        return None
    typed = Typed({_GPUS: 2 * of, **kept_choices(scenario, larger, given)})
    return LargerTrainer(**asdict(found), gpus=2 * of, of=of, flag=typed.own)

"""What kind of system a scenario describes, in a few plain words: where it runs, what may start, how old it may get."""

from __future__ import annotations

from collections.abc import Mapping

from fleetsim import units
from fleetsim.config.law_numbers import law_of
from fleetsim.config.scenario import Scenario, age_bound

PLACES: Mapping[str, str] = {
    "disaggregated": "split",
    "colocated": "colocated",
    "colocated_lending": "split, lends",
}


def place_words(scenario: Scenario) -> str:
    """ "split", "colocated", or "split, lends" where the trainer's GPUs help out."""
    return PLACES[scenario.fleet.placement]


def law_words(scenario: Scenario) -> str:
    """What may start: "2 versions ahead", "a batch, then the trainer"."""
    return law_of(scenario).says(scenario.admission)


def age_words(scenario: Scenario) -> str:
    """How old a trained group may be, in weight versions: "age <= 4", or "age unbounded"."""
    bound = age_bound(scenario)
    return "age unbounded" if bound is None else f"age <= {bound:g}"


def kind_words(scenario: Scenario) -> str:
    """All of it on one line: "split; 2 versions ahead; age unbounded"."""
    return "; ".join((place_words(scenario), law_words(scenario), age_words(scenario)))


def pool_words(scenario: Scenario) -> str:
    """What runs: "4 instances, 8 trainer GPUs"."""
    instances, gpus = scenario.fleet.instances, scenario.trainer.gpus
    return f"{units.plural(instances, 'instance')}, {units.plural(gpus, 'trainer GPU')}"

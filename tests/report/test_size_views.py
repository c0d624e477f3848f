from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.estimates import Estimate
from fleetsim.job import words
from fleetsim.job.facts import run_facts
from fleetsim.job.trials import trial_of
from fleetsim.job.words import BINDINGS, binding_words
from fleetsim.records import replace
from fleetsim.search.objective import Target
from fleetsim.size.facts import brief_facts, document, size_document
from fleetsim.size.size import Sizing, size
from fleetsim.tell.data import dumps, plain
from fleetsim.tell.facts import facts
from fleetsim.tell.terminal import draw
from tests.plan.fakes import fluid, metrics, one_ahead


def plan(**changes: object) -> Sizing:
    constant = {"engine.kind": "constant", "engine.instance_tok_s": 4000.0, "workload.output_tokens": 1536}
    return size(with_changes(default_scenario(), {**constant, **changes}), measure=fluid())


def rendered(result: Sizing, width: int = 80) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, highlight=False).print(draw(document(result), explain=True))
    return stream.getvalue()


def test_the_first_line_is_the_answer() -> None:
    assert rendered(plan(), width=100).splitlines()[0].rstrip() == (
        "10 rollout instances (likely 5 to 19: wide) for 8 trainer GPUs: the least step time x cost."
    )


def test_the_first_line_names_what_time_is_worth() -> None:
    found = plan(**{"targets.worth": 0.25})
    assert "the least step time x cost, where 1 % of time is worth 0.25 % of cost." in " ".join(rendered(found).split())
    assert " of step x cost at that rate on average" in " ".join(rendered(found).split())
    assert "at that rate" not in rendered(plan())


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        # idle, sync, hand-over, checkpoint -> what is said of them
        ((0.04, 0.0, 0.0, 0.0), "4.0 %"),
        ((0.0, 0.119, 0.0, 0.0), "0.0 %, not training 11.9 % (sync adds 11.9 %)"),
        ((0.2, 0.03, 0.25, 0.0), "20.0 %, not training 48.0 % (sync adds 3.0 %, hand-over 25.0 %)"),
        ((0.2, 0.0, 0.25, 0.0), "20.0 %, not training 45.0 % (hand-over adds 25.0 %)"),
        ((0.1, 0.1, 0.0, 0.02), "10.0 %, not training 22.0 % (sync adds 10.0 %, checkpoint 2.0 %)"),
        # what is written as nothing is not said
        ((0.1, 0.0002, 0.0, 0.0), "10.0 %"),
    ],
)
def test_the_step_line_leaves_nothing_out(parts: tuple[float, ...], said: str) -> None:
    names = ("trainer_idle_fraction", "sync_fraction", "switch_fraction", "checkpoint_fraction")
    means = dict(zip(names, parts, strict=True)) | {"step_s": 30.0, "not_training_fraction": sum(parts)}
    of = trial_of(1, [metrics(30.0, 0.0)]).estimates | {name: Estimate(x, x, x) for name, x in means.items()}
    lines = dict(facts("", run_facts(of, default_scenario())).lines)
    assert lines["step"] == f"30.0 s, trainer idle {said}"


CONSTANT = {"engine.kind": "constant", "engine.instance_tok_s": 4000.0, "workload.output_tokens": 1536}
ASKED = CONSTANT | {"targets.trainer_idle_fraction": 0.05}


def test_a_fleet_that_misses_a_target_is_never_called_an_answer_that_holds() -> None:
    text = " ".join(rendered(size(with_changes(default_scenario(), ASKED), measure=fluid(floor_s=30.0))).split())
    assert text.startswith("No fleet holds trainer idle at most 5.0 %. The best: 7 rollout instances")
    assert "missed trainer idle at most 5.0 %: it is" in text


def test_a_target_that_is_held_is_what_the_answer_says() -> None:
    text = " ".join(rendered(size(with_changes(default_scenario(), ASKED), measure=fluid())).split())
    assert "the fewest that hold trainer idle at most 5.0 %." in text


def test_what_mends_a_missed_target_comes_before_the_reasons() -> None:
    def measure(s: Scenario, replication: int) -> Mapping[str, Any]:
        return fluid(floor_s=30.0 if s.admission.max_staleness < 2.0 else 0.0)(s, replication)

    text = " ".join(rendered(size(with_changes(one_ahead(), ASKED), measure=measure)).split())
    assert 0 < text.index("--max-staleness 2 meets the target with 10 instances") < text.index("What binds: ")


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_wider_than_the_terminal_and_no_table_cell_wraps(width: int) -> None:
    lines = rendered(plan(), width).splitlines()
    assert max(map(len, lines)) <= width
    assert sum(line.lstrip().startswith((">", "9 ", "10 ", "11 ", "13 ")) for line in lines) >= 4


def test_every_binding_has_words() -> None:
    for name in BINDINGS:
        assert words.binds(binding_words(name)).startswith("What binds: ")
    assert words.binds(binding_words("something_new")) == "What binds: something new."


def test_the_document_is_plain_json() -> None:
    document = json.loads(dumps(size_document(plan(), ())))
    assert document["recommendation"]["instances"] == 10
    assert document["rate_matching"]["instances"] == 13
    assert [c["instances"] for c in document["candidates"]] == [5, 10, 11, 13, 20]


def test_nan_and_infinities_become_null() -> None:
    assert plain({"a": math.nan, "b": [math.inf, np.float64(-math.inf), np.int64(3)]}) == {
        "a": None,
        "b": [None, None, 3],
    }


def test_a_target_that_is_missed_by_its_interval_alone_is_told_with_it() -> None:
    found = plan()
    idle = found.recommended.estimates["trainer_idle_fraction"]
    wide = replace(idle, mean=0.049, ci_low=0.046, ci_high=0.053)
    of = {**found.recommended.estimates, "trainer_idle_fraction": wide}
    largest = replace(found.recommended, estimates=of)
    here = replace(largest, estimates={**of, "trainer_idle_fraction": replace(idle, mean=0.2)})
    missed = (Target("trainer_idle_fraction", "trainer_idle_fraction", 0.05),)
    table = brief_facts(replace(found, recommended=here, largest=largest, missed=missed))
    assert "and 4.9 % [4.6, 5.3] with" in dict(table.lines)["missed"]

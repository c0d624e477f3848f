"""The words of a split advice say what the numbers say."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from fleetsim.config import with_changes
from fleetsim.split import facts as split_facts
from fleetsim.split.facts import document, split_document
from fleetsim.split.split import Advice
from fleetsim.tell.data import dumps
from fleetsim.tell.terminal import draw
from tests.plan.test_split import JOB, fake, split

WIN: dict[str, tuple[float, ...]] = {
    "2 + 2": (8.0, 8.1, 7.9),
    "1 + 3": (20.0, 20.2, 19.8),
    "3 + 1": (8.01, 8.0, 8.1),
    "colocated async": (10.0, 10.2, 9.9),
    "colocated sync": (14.0, 14.0, 14.0),
}
LOSE = WIN | {"2 + 2": (12.0, 12.2, 11.9), "3 + 1": (13.0,)}
DRAW = WIN | {"2 + 2": (10.1, 9.9, 10.0), "3 + 1": (13.0,)}


def advised(times: dict[str, tuple[float, ...]], replications: int = 3, **more: object) -> Advice:
    return split(with_changes(JOB, {"run.replications": replications}), 4, measure=fake(times), **more)  # type: ignore[arg-type]


def rendered(result: Advice, width: int = 80, explain: bool = True) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, highlight=False).print(draw(document(result), explain))
    return stream.getvalue()


def in_words(result: Advice, said: str) -> bool:
    """Whether this stands beside the answer, with any range: times that no input moves have none of their own."""
    before, after = map(re.escape, said.split("{}"))
    return re.fullmatch(rf"{before}[\d.]+ to [\d.]+ times{after}", split_facts.beside(result)) is not None


def test_a_split_that_wins() -> None:
    result = advised(WIN)
    assert split_facts.headline(result) == "Split 2 + 2: rollout + trainer GPUs."
    assert "2 instances (1,000 tok/s each)" in " ".join(rendered(result, explain=False).split())
    assert in_words(result, "20.3 % shorter (±0.7 of seeds; likely {}) than colocated async")
    assert "Colocated sync trains on-policy; a step of it takes 14.0 s." in str(split_facts.on_policy(result))
    assert "Not significantly different from it (=): 3 + 1." in split_facts.orders(result)


def test_a_split_that_loses_says_do_not_split() -> None:
    result = advised(LOSE)
    said = split_facts.headline(result)
    assert said.startswith("Do not split")
    assert "colocated async on all 4 GPUs, 4 instances" in said
    assert in_words(result, "the best split, 2 + 2: 19.9 % longer (±0.8 of seeds; likely {})")


def test_a_draw_is_no_reason_to_split() -> None:
    text = split_facts.beside(advised(DRAW))
    assert text.startswith("the best split, 2 + 2, is no better than by chance (")
    assert text.endswith("sharing is simpler")
    assert split_facts.headline(advised(DRAW)).startswith("Do not split")


def test_colocated_sync_needs_no_word_on_staleness() -> None:
    result = advised({name: (5.0 if name == "colocated sync" else 9.0,) for name in WIN})
    assert result.chosen.arrangement.kind == "colocated_sync"
    assert split_facts.on_policy(result) is None


def test_by_goodput_more_is_better() -> None:
    assert in_words(advised(WIN, by="goodput"), "25.4 % more (±1.2 of seeds; likely {}) than colocated async")


def test_one_replication_has_no_intervals() -> None:
    text = rendered(advised(WIN, replications=1))
    assert "±" not in text.split("%)", 1)[-1].split("every way", 1)[-1].split("interval)", 1)[-1]


def test_long_rankings_are_shortened_and_every_colocated_way_is_shown() -> None:
    times = {f"{k} + {40 - k}": (10.0 + abs(k - 20),) for k in range(1, 40)}
    measure = fake(times | {"colocated sync": (90.0,), "colocated async": (12.5,)}, gpus=40)
    text = rendered(split(with_changes(JOB, {"run.replications": 2}), 40, measure=measure))
    assert "more)" in text
    assert "colocated sync" in text
    assert "colocated async" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("by", ["step_s", "goodput", "cost_per_step"])
@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_name_and_no_figure_is_cut_in_two(width: int, by: str) -> None:
    lines = rendered(advised(WIN, by=by), width).splitlines()
    assert max(map(len, lines)) <= width
    start = next(i for i, line in enumerate(lines) if line.startswith("every way"))
    table = [line for line in lines[start + 1 :] if line.strip() and "interval)" not in line]
    for name in WIN:
        rows = [line.split(name)[1] for line in table[:7] if f" {name} " in line]
        assert len(rows) == 1, f"{name} stands in one row, with its figures"
        assert any(character.isdigit() for character in rows[0])
    heading = {"step_s": "step, s", "goodput": "tok/GPU-s", "cost_per_step": "$/step"}[by]
    assert heading in "".join(table[:2]), "what ranks the ways is never left out"
    end = next(i for i, line in enumerate(lines) if line.startswith("the trainer's seconds"))
    assert ("the terminal is too narrow" in " ".join(" ".join(lines[start:end]).split())) == (width < 80)
    doubts = "\n".join(lines[lines.index("how sure") :]).split("\n\n")[0]
    for name in ("trainer seconds", "--trainer-step-s", "weight sync seconds", "--sync-pause-s"):
        assert name in doubts, "an input in doubt and what settles it are not cut either"


def test_the_document_is_plain_json() -> None:
    document = json.loads(dumps(split_document(advised(WIN), ())))
    assert document["recommendation"]["verdict"] == "split"
    assert document["recommendation"]["arrangement"] == "2 + 2"
    assert len(document["arrangements"]) == 5

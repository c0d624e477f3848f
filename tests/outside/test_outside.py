"""fleetsim on jobs that are not its own: a few of the histories here; `python -m tests.outside.judge` has all."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.outside.cases import CASES
from tests.outside.exposition import write
from tests.outside.judge import Judged, ask, judge, score
from tests.outside.truth import kept, of, truth
from tests.outside.world import World

BY_NAME = {case.name: case for case in CASES}
# One of each kind that the reader once got wrong, and one healthy job under each exporter's names.
FEW = (
    "healthy",
    "healthy, SGLang",
    "sync of 12 s",
    "trainer slow for a while",
    "straggler and a long sync",
    "undersized and a straggler, five instances, SGLang",
    "siblings spread, prompts of 6,000",
    "undersized, TensorRT-LLM",
    "serving, healthy",
    "serving, overloaded",
    "serving, max_num_seqs of 40",
    "a slow rank, two models of four ranks on each server",
    "a slow rank of two on each server, SGLang",
    "a client that sends 9 requests a second",
    "in-flight cap, SGLang 0.4",
    "four times too many",
)


# In half an hour everything shows but what comes later; `judge` looks at the whole of each.
LATER = ("trainer slow for a while",)


@pytest.mark.parts
@pytest.mark.parametrize("name", FEW)
def test_the_causes_are_named_and_no_other(name: str) -> None:
    case = BY_NAME[name]
    row = judge(case if name in LATER else case.first(hours=0.5), kept()[name])
    assert not row.failed
    assert (row.wrong, row.missed) == (frozenset(), frozenset())


def test_two_models_behind_one_address_are_told_apart(tmp_path: Path) -> None:
    """Without a selector the answer names both; with one, the other's engines are not among the policy's."""
    case = BY_NAME["healthy, two models on each server"]
    path = tmp_path / "history.om"
    case = case.first(hours=0.2)
    write(path, case.job, *case.beside)
    code, _, err = ask(["replay", "--from", str(path), "--no-backtest"])
    assert code != 0
    assert "Qwen/Qwen3-8B" in err
    assert "judge-32b" in err
    assert "--selector" in err
    code, out, _ = ask(["replay", "--from", str(path), "--no-backtest", "--json", "--selector", case.selector])
    assert code == 0
    assert json.loads(out)["observed"]["fleet"]["instances"] == case.job.instances


def test_what_is_kept_as_the_truth_is_what_the_world_says() -> None:
    now = truth(BY_NAME["sync of 12 s"].first(hours=0.3))
    assert now.must == kept()["sync of 12 s"].must == ("sync",)
    assert now.saves["sync"] == pytest.approx(1 - (20.0 / 32.0), abs=0.03)  # 12 s of sync beside 20 s of training


def test_the_world_keeps_its_books() -> None:
    """Nothing is lost: what began is trained, queued, in flight or waits to be sent; the trainer's seconds are all."""
    world = World(BY_NAME["healthy"].job.but(hours=0.3)).run()
    it, trainer = world.setting, world.trainer
    assert world.ended == sum(e.counters.stop + e.counters.length for e in world.engines)
    assert world.flying == sum(e.load for e in world.engines)
    taken = world.trained_groups + (it.batch if trainer.state in ("train", "sync") else 0)
    assert world.started == taken + len(world.queue) + len(world.groups)
    booked = trainer.wait_s + trainer.train_s + trainer.sync_s
    assert booked == pytest.approx(trainer.since)
    assert of(world) > it.train_s


def test_a_full_cache_preempts_the_newest() -> None:
    world = World(BY_NAME["KV cache too small"].job.but(hours=0.1)).run()
    assert sum(e.counters.preempted for e in world.engines) > 0
    for engine in world.engines:
        assert engine.used() <= it_holds(world) + 1e-3


def it_holds(world: World) -> float:
    return float(world.setting.kv_tokens)


def test_there_are_enough_histories_and_their_truth_is_kept() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)
    assert set(kept()) == set(BY_NAME)


def test_precision_recall_and_counts() -> None:
    rows = [
        Judged("a", frozenset({"sync"}), frozenset({"sync", "rollout"}), frozenset(), 4, 3, ""),
        Judged("b", frozenset({"trainer"}), frozenset(), frozenset(), 9, 3, ""),
    ]
    assert (score(rows).precision, score(rows).recall, score(rows).counts) == (0.5, 0.5, 0.5)


def test_nothing_of_fleetsim_is_in_the_generator() -> None:
    for path in Path(__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = {
            name
            for node in ast.walk(tree)
            for name in (
                [a.name for a in node.names] if isinstance(node, ast.Import)
                else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            )
        }  # fmt: skip
        used = {name for name in imported if name.partition(".")[0] == "fleetsim"}
        assert used == ({"fleetsim.cli.main"} if path.name == "judge.py" else set()), path.name

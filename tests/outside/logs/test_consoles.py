"""Consoles of ten frameworks, read as their users' are; `python -m tests.outside.logs.judge` has all of them."""

from __future__ import annotations

import ast
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.errors import InputError
from fleetsim.history.files import read_file
from tests.outside.logs.cases import FORMATS, LOGS, Format
from tests.outside.logs.judge import columns_off, judge, kept
from tests.outside.logs.lived import Lived, live
from tests.outside.logs.scene import bar, interval

BY_NAME = {log.name: log for log in LOGS}
# One of each law, and one that the reader once got wrong.
FEW = (
    "roll: barrier and a long sync",
    "openrlhf: barrier, trainer slower",
    "openrlhf, locked: undersized",
    "slime, asynchronous: undersized",
    "trl, asynchronous: long sync",
    "areal: undersized",
)


@cache
def lived(law: str, what: str) -> Lived:
    """Half an hour, or longer where a step is long."""
    log = next(log for log in LOGS if (log.format.law, log.what) == (law, what))
    return live(log.setting.but(hours=0.5 if law == "window" else 1.0), law)


@pytest.mark.parametrize("each", FORMATS, ids=lambda each: each.name)
@pytest.mark.parametrize("which", [0, 2])
def test_what_a_console_tells_is_read(each: Format, which: int, tmp_path: Path) -> None:
    log = [log for log in LOGS if log.format is each][which]
    path, life = tmp_path / "train.log", lived(each.law, log.what)
    path.write_text(log.text(life), encoding="utf-8")
    assert columns_off(log, path, life.steps) == []


def test_both_logs_of_a_run_are_joined_by_step(tmp_path: Path) -> None:
    """As prime-rl lays them out, beside a log of engines; the orchestrator has begun a step more."""
    each = {name: next(log for log in LOGS if log.format.name == f"prime-rl, {name}") for name in NAMES}
    life = lived("window", "fits")
    for name, log in each.items():
        path = tmp_path / "logs" / NAMES[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = log.text(life).splitlines()
        path.write_text("\n".join(lines if name == "orchestrator" else lines[:-1]), encoding="utf-8")
    (tmp_path / "logs" / "inference.out").write_text("INFO 12:00:00 engine started\n")
    joined, trainer = read_file(tmp_path).steps, read_file(tmp_path / "logs" / NAMES["trainer"]).steps
    assert joined is not None
    assert trainer is not None
    assert joined.framework == "prime-rl"
    assert {name: joined.columns[name].tolist() for name in ("step", "step_s")} == {
        name: trainer.columns[name].tolist() for name in ("step", "step_s")
    }
    of = {step.number + 1: step for step in life.steps}
    steps = [of[int(number)] for number in joined.columns["step"]]
    assert joined.columns["samples"].tolist() == [len(step.lengths) for step in steps]
    assert joined.columns["staleness_max_steps"].tolist() == [max(step.ages) for step in steps]


NAMES = {"trainer": "trainer/rank_0.log", "orchestrator": "orchestrator.log"}


@settings(max_examples=15)
@given(data=st.data())
@pytest.mark.parametrize("each", FORMATS, ids=lambda each: each.name)
def test_any_broken_console_is_read_or_refused(
    each: Format, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    log = next(log for log in LOGS if log.format is each)
    text = log.text(lived(each.law, log.what))[:30_000]
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text)))
        put = data.draw(st.sampled_from(["", "}", "{'", "│", "╭── Metrics ──╮", "\x1b[", "(a pid=1", "9" * 400, "\n"]))
        text = text[:at] + put + text[at + data.draw(st.integers(0, 300)) :]
    path = tmp_path_factory.mktemp("broken") / "train.log"
    path.write_text(text, encoding="utf-8")
    try:
        history = read_file(path)
    except InputError as error:
        assert all(problem.remedy for problem in error.problems)
    else:
        assert history.steps is not None


@pytest.mark.parts
@pytest.mark.parametrize("name", FEW)
def test_causes_are_named_and_no_other(name: str) -> None:
    row, off = judge(BY_NAME[name])
    assert not row.failed
    assert (row.wrong, row.missed, off) == (frozenset(), frozenset(), [])


def test_the_truth_of_every_job_is_kept() -> None:
    assert set(kept()) == {f"{log.format.law}, {log.what}" for log in LOGS}
    assert len(LOGS) >= 60


@pytest.mark.parametrize("law", ["window", "barrier", "serial", "locked"])
def test_the_phases_are_all_of_the_time(law: str) -> None:
    log = next(log for log in LOGS if log.format.law == law)
    steps = live(log.setting.but(hours=0.5), law).steps
    assert len(steps) > 5
    for before, after in pairwise(steps):
        assert after.begin == pytest.approx(before.end)
    assert {len(step.lengths) for step in steps} == {log.setting.batch * log.setting.group}


def test_bars_are_tqdms() -> None:
    assert (interval(65), interval(3665)) == ("01:05", "1:01:05")
    assert bar(1, 4, 30.0) == "\r 25%|██        | 1/4 [00:30<01:30, 30.00s/it]"


def test_nothing_of_fleetsim_is_in_the_generator() -> None:
    for path in Path(__file__).parent.glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        used = {name for name in names if name.partition(".")[0] == "fleetsim"}
        assert not used or path.name in ("judge.py", "test_consoles.py"), path.name

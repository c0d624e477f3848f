"""What cannot be done is refused in Python's own words: what was given, the rule, the remedy."""

from __future__ import annotations

import copy
import pickle
import re
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fleetsim as fs
from fleetsim.errors import Problem
from fleetsim.faces import text
from fleetsim.history.access import PrometheusError
from fleetsim.history.option_names import PROMETHEUS, SELECTOR
from fleetsim.job.options import EXAMPLES, NAMES
from fleetsim.job.result import keywords
from fleetsim.records import field_names

JOB = fs.load("async-one-step", steps=4, replications=2)


@pytest.fixture(scope="module")
def run() -> fs.SimulateResult:
    return JOB.simulate()


def test_nothing_that_is_handed_out_can_be_changed(run: fs.SimulateResult) -> None:
    results = [
        JOB,
        run,
        fs.SizeResult(JOB, SimpleNamespace()),  # type: ignore[arg-type]
        fs.SplitResult(JOB, SimpleNamespace()),  # type: ignore[arg-type]
        fs.SweepResult(JOB, SimpleNamespace()),  # type: ignore[arg-type]
        fs.CompareResult(SimpleNamespace()),  # type: ignore[arg-type]
        fs.ReplayResult(SimpleNamespace(), SimpleNamespace(), SimpleNamespace(), ()),  # type: ignore[arg-type]
    ]
    for it in results:
        name = type(it).__name__
        for attribute in ("x", field_names(it)[0]):
            with pytest.raises(
                FrozenInstanceError, match=rf"cannot set '{attribute}': a {name} never changes; .*with_"
            ):
                setattr(it, attribute, 1)
            with pytest.raises(FrozenInstanceError, match=f"cannot delete '{attribute}'"):
                delattr(it, attribute)
    assert copy.copy(JOB) == pickle.loads(pickle.dumps(JOB)) == JOB


@pytest.mark.parametrize(
    "write",
    [
        lambda run, place: run.job.save(place),
        lambda run, place: run.to_perfetto(place, "0:1"),
        lambda run, place: run.to_parquet(place),
    ],
)
def test_a_place_that_cannot_be_written_to(run: fs.SimulateResult, tmp_path: Path, write: Callable[..., Any]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(fs.OutsideError, match="cannot be written"):
        write(run, tmp_path / "file" / "x")
    with pytest.raises(fs.OutsideError, match="cannot be written"):
        write(run, "zero\0byte")


@pytest.mark.parametrize(
    ("modules", "extra", "ask"),
    [
        ("pandas", "pandas", lambda run, folder: run.to_pandas()),
        ("pyarrow.parquet", "parquet", lambda run, folder: run.to_parquet(folder)),
        ("jinja2", "report", lambda run, folder: run.to_html(folder / "x.html")),
        ("requests", "prometheus", lambda run, folder: fs.replay("http://127.0.0.1:1")),
        ("ray", "ray", lambda run, folder: fs.sweep(JOB, {"fleet.instances": [2]}, ray="auto")),
    ],
)
def test_a_missing_extra_is_one_kind_of_error(
    run: fs.SimulateResult,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    modules: str,
    extra: str,
    ask: Callable[..., Any],
) -> None:
    monkeypatch.setitem(sys.modules, modules, None)
    with pytest.raises(fs.OutsideError, match=rf"pip install 'fleetsim\[{extra}\]'") as caught:
        ask(run, tmp_path)
    assert " --" not in f" {caught.value}"


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: JOB.split(gpus=1), r"^gpus: 1: cannot be split"),
        (lambda: JOB.split(gpus=7, tp=2), "another tp$"),
        (lambda: fs.sweep(JOB, {}), r'^grid: \{\}: must say what to sweep over; for example \{"fleet.instances": \['),
        (lambda: fs.sweep(JOB, {"run.seed": [1, 2]}), "^grid: 'run.seed'"),
        (lambda: fs.load(batch="x"), "^batch: 'x': must be a whole number; for example batch=512$"),
        (lambda: fs.load(len=100, max_len=50), "raise max_len, or lower len$"),
        (lambda: fs.load("async-one-step", "x"), r"^changes: 'x': is no mapping of dotted paths.*\(str\)"),
        (lambda: JOB.with_("x"), r"^changes: 'x': is no mapping"),
        (lambda: fs.load(3), r"^load: 3: is no scenario \(int\)"),
        (lambda: fs.compare(JOB), "^b: nothing to compare it with"),
        (lambda: fs.compare("there-is-no-a", "there-is-no-b"), r"A: 'there-is-no-a'[^\n]*\nB: 'there-is-no-b'"),
        (lambda: fs.compare(JOB, JOB, windows=("-1h..", None)), "^windows A: .* for windows of history only"),
    ],
)
def test_refusals_name_keywords_and_say_what_to_do(ask: Callable[[], Any], said: str) -> None:
    with pytest.raises(fs.InputError, match=said) as caught:
        ask()
    assert not re.search(r"(?<!`)--[a-z]", str(caught.value))


@pytest.mark.parametrize("name", NAMES)
def test_the_example_in_a_remedy_is_taken(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fleetsim.calibrate.derivation import estimate_profile
    from fleetsim.config.engine_profile import profile_text

    monkeypatch.chdir(tmp_path)
    Path(EXAMPLES["profile"]).write_text(profile_text(estimate_profile("H100", "Qwen/Qwen2.5-7B")))
    Path(EXAMPLES["run"]).write_text("step,step_s,wait_s,train_s\n" + "".join(f"{k},9,4,5\n" for k in range(9)))
    fs.load(**{name: EXAMPLES[name]})


def test_what_a_prometheus_says_is_said_in_keywords() -> None:
    with pytest.raises(fs.OutsideError) as caught, keywords():
        raise PrometheusError("too_large", Problem(PROMETHEUS, "http://x", "too large", text("narrow {}", SELECTOR)))
    assert str(caught.value) == "history: 'http://x': too large; narrow selector"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"history": "nowhere.om"}, "^history: 'nowhere.om'"),
        ({"history": "http://x?y=1"}, "^history: .*a credential goes into access, a tenant into access"),
        ({"history": "LOG", "framework": "verl"}, r'leave framework out, or mapping=\{"step_s": "COLUMN"\}'),
        ({"history": "LOG", "mapping": {"step_s": "x"}, "selector": "job=1"}, "^selector: 'job=1'"),
        ({"history": "LOG"}, r"framework \(areal|framework \(verl"),
    ],
)
def test_a_history_is_refused_in_keywords(tmp_path: Path, asked: dict[str, Any], said: str) -> None:
    (tmp_path / "log.jsonl").write_text('{"iteration": 1, "seconds": 2.5}\n{"iteration": 2, "seconds": 2.5}\n')
    history = asked["history"].replace("LOG", str(tmp_path / "log.jsonl"))
    with pytest.raises(fs.InputError, match=said) as caught:
        fs.replay(**{**asked, "history": history})
    assert " --" not in f" {caught.value}"


def test_what_there_is_not_says_why(tmp_path: Path) -> None:
    history = fs.load("async-one-step", replications=1).simulate(hours=0.2, scrape_interval_s=15)
    seen = fs.replay(history.to_openmetrics(tmp_path / "h.om"), backtest=False)
    with pytest.raises(fs.InputError, match="no back-test was asked for; leave out backtest=False"):
        seen.backtest  # noqa: B018
    with pytest.raises(fs.InputError, match="give recommend=True"):
        seen.recommendation  # noqa: B018
    stuck = fs.sweep(JOB, {"buffer.capacity_samples": [15, 16]}, workers=1)
    with pytest.raises(fs.InputError, match=r"none of the 2 cells could be simulated; the first says: .+"):
        stuck.best  # noqa: B018

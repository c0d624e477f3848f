"""Who is believed, fact by fact: what the user gives as one key, then what the window measures, then the scenario file.

The histories are of a fleet that fleetsim did not simulate (`independent.py`), so that its true values are known.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetsim.config.load import default_scenario, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.history.history import History
from fleetsim.job.nameplate import mean_output_tokens
from fleetsim.replay.backtest import backtest
from fleetsim.replay.implied.implied_scenario import Implied, implied
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.run import replay
from tests.replay.independent import Job, run

# The job as it ran: three engines of 64 sequences that are full, groups of 8 in one request each, a sync of 6 s.
JOB = Job(instances=3, max_num_seqs=64, train_s=15.0, sync_s=6.0, n_exported=True)
TRUE: dict[str, Any] = {
    "fleet.instances": 3,
    "workload.output_tokens": {"kind": "lognormal", "mean": 600.0, "cv": 0.5, "max": 2048.0},
    "workload.prompt_tokens": 300,
    "workload.group_size": 8,
    "trainer.batch_samples": 256,
    "trainer.fixed_s": 15.0,
    "sync.pause_s": 6.0,
    "sync.trainer_block_s": 6.0,
    "engine.max_num_seqs": 64,
    "engine.kv_blocks": 25_000,
    "admission.law": "version_window",
    "admission.max_staleness": 1.0,
}
# What a file may say instead of it.
FALSE: dict[str, Any] = {
    "fleet.instances": 8,
    "workload.output_tokens": {"kind": "lognormal", "mean": 1500.0, "cv": 1.0, "max": 8192.0},
    "workload.prompt_tokens": 2000,
    "workload.group_size": 4,
    "trainer.batch_samples": 512,
    "trainer.fixed_s": 60.0,
    "sync.trainer_block_s": 0.5,
    "engine.max_num_seqs": 48,
    "engine.kv_blocks": 3_000,
}


@cache
def seen() -> tuple[History, Observed]:
    history = run(JOB, hours=1.0).history()
    return history, observe(history)


def by_file(**wrong: Any) -> Implied:
    """The window with a scenario file, true but for these."""
    history, observed = seen()
    changes = {**TRUE, **{path.replace("__", "."): value for path, value in wrong.items()}}
    return implied(observed, history, with_changes(default_scenario(), changes), written=frozenset(changes))


@cache
def by_true_file() -> Implied:
    return by_file()


def measured(found: Implied) -> dict[str, float]:
    """What the window shows, as the scenario behind it has it."""
    s, limits = found.scenario, found.engine[1] if found.engine else None
    return {
        "fleet.instances": s.fleet.instances,
        "workload.output_tokens": mean_output_tokens(s),
        "workload.prompt_tokens": s.workload.prompt_tokens.model_dump()["value"],
        "workload.group_size": s.workload.group_size,
        "trainer.batch_samples": s.trainer.batch_samples,
        "trainer.fixed_s": s.trainer.fixed_s,
        "sync.trainer_block_s": s.sync.trainer_block_s or 0.0,
        "engine.max_num_seqs": 0 if limits is None else limits.max_num_seqs,
        "engine.kv_blocks": 0 if limits is None else limits.kv_blocks,
    }


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(wrong=st.sets(st.sampled_from(sorted(FALSE)), min_size=1))
def test_whatever_a_file_says_wrong_the_window_counts_and_a_line_says_so(wrong: set[str]) -> None:
    found = by_file(**{path.replace(".", "__"): FALSE[path] for path in wrong})
    for path, value in measured(by_true_file()).items():
        assert measured(found)[path] == pytest.approx(value, rel=0.03), path
    told = {line.partition(":")[0] for line in found.differs}
    for path in wrong:
        assert any(line.startswith(path) for line in told), path
    assert all(any(line.startswith(path) for path in wrong) for line in told)
    assert found.scenario.admission == by_true_file().scenario.admission  # no metric shows it: the file's


def test_a_file_that_is_right_is_not_contradicted() -> None:
    assert by_true_file().differs == ()
    assert by_true_file().scenario.sync.trainer_block_s == 6.0


def test_the_wrong_count_of_a_file_changes_no_prediction() -> None:
    """A fleet of three with eight (or six) in the file was back-tested as that, and missed by more than a half."""
    _, observed = seen()
    right = backtest(observed, by_true_file(), replications=1)
    for count in (1, 6, 8, 40):
        back = backtest(observed, by_file(fleet__instances=count), replications=1)
        assert [row.predicted for row in back.overall] == [row.predicted for row in right.overall]


def flat(scenario: Scenario) -> dict[str, Any]:
    """Dotted path -> value, of everything but what a run is like."""
    out: dict[str, Any] = {}

    def walk(node: Any, path: str) -> None:
        for key, value in node.items():
            if isinstance(value, dict):
                walk(value, f"{path}{key}.")
            else:
                out[f"{path}{key}"] = value

    walk(scenario.model_dump(exclude={"run", "assumed", "source"}), "")
    return out


def bare(**facts: Any) -> Implied:
    """The window alone, with facts of the user."""
    history, observed = seen()
    paths = {path.replace("__", "."): value for path, value in facts.items()}
    base = with_changes(default_scenario(), paths) if paths else None
    return implied(observed, history, base, given=frozenset(paths), from_file=False)


@cache
def by_window() -> Implied:
    return bare()


@pytest.mark.parametrize(
    ("path", "value", "follow"),
    [
        # A cap that is true: 61 % off it came out, for the measured lengths, group size and law were thrown away.
        ("workload.output_tokens.max", 2048.0, {"workload.output_tokens.count", "workload.output_tokens.le"}),
        ("sync.pause_s", 4.0, set()),
        ("engine.max_num_batched_tokens", 8192, set()),
        ("trainer.gpus", 64, set()),
        ("fleet.max_in_flight_samples", 400, set()),
    ],
)
def test_one_fact_given_is_one_fact(path: str, value: Any, follow: set[str]) -> None:
    """Nothing but that key, and what is guessed from it, is another than without it."""
    before, after = flat(by_window().scenario), flat(bare(**{path.replace(".", "__"): value}).scenario)
    assert after[path] == value
    guessed = {key for key in after if key.startswith(("admission.", "buffer.", "fleet.group_placement"))}
    assert {key for key in after if after[key] != before.get(key)} - guessed <= {path, *follow}


def test_a_given_cap_keeps_the_measured_lengths() -> None:
    _, observed = seen()
    assert observed.lengths is not None
    short = bare(workload__output_tokens__max=900.0)  # 5 % of the responses went beyond 1,000
    assert short.scenario.workload.output_tokens.kind == "histogram"
    assert mean_output_tokens(short.scenario) == pytest.approx(observed.lengths.mean, rel=0.01)
    assert any("max: 1,000 measured, 900 given; what was given counts" in line for line in short.differs)
    longer = bare(workload__output_tokens__mean=750.0)
    assert mean_output_tokens(longer.scenario) == pytest.approx(750.0, rel=0.05)
    assert longer.scenario.workload.output_tokens.kind == "histogram"


def test_the_law_that_is_given_is_tried_with_all_else_as_the_window_shows_it() -> None:
    for facts in ({"admission__max_staleness": 1.0}, {"admission__law": "version_window"}):
        found = bare(**facts).scenario
        assert found.admission.law == "version_window"
        assert found.admission.max_staleness == pytest.approx(1.0, abs=0.5)
    assert bare(admission__law="barrier").scenario.admission.law == "barrier"
    capped = bare(admission__law="version_window", admission__max_staleness=2.0).scenario
    assert capped.admission.max_staleness == 2.0
    assert capped.workload.group_size == 8


def test_replay_takes_the_file_and_the_facts_apart() -> None:
    """What `--given KEY=VALUE` writes into the defaults around it is no scenario file's, and no policy."""
    history, _ = seen()
    base = with_changes(default_scenario(), {"workload.output_tokens.max": 2048.0})
    around = frozenset(f"workload.output_tokens.{name}" for name in ("kind", "mean", "cv", "max"))
    fact = frozenset({"workload.output_tokens.max"})
    result = replay(history, base, given=around, facts=fact, from_file=False)
    assert result.implied is not None
    assert result.implied.base is None
    assert any(line.startswith("admission:") for line in result.implied.assumed)
    assert result.backtest is not None
    assert result.backtest.verdict == "ok"

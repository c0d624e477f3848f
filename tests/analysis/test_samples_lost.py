"""The share of long samples lost: by hand on written records, and where theory says what it must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.engine.kernel import tables as t
from fleetsim.records import replace
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of


def scenario(**changes: Any) -> Scenario:
    base = {
        "workload.output_tokens": {"kind": "lognormal", "mean": 200, "cv": 1.0, "max": 2000},
        "workload.group_size": 2,
        "trainer.batch_samples": 64,
        "trainer.fixed_s": 1.0,
        "fleet.instances": 2,
        "run.steps": 20,
        "run.warmup_steps": 4,
    }
    return with_changes(default_scenario(), base | {k.replace("__", "."): v for k, v in changes.items()})


def lost(records: Records) -> dict[str, float]:
    return dict(metrics_of(records)["samples_lost"])


def test_nothing_dropped_is_nothing_lost_whatever_is_unfinished_at_the_end() -> None:
    records = simulate(scenario())
    assert (records.groups["status"] == t.G_OPEN).any(), "something is in flight when the run ends"
    assert lost(records) == {"all": 0.0, "longest_tenth": 0.0}


def test_by_hand() -> None:
    """Ten groups of two, one sample each 10 tokens long and one 20; groups are lost at will."""
    records = simulate(scenario())
    window = window_of(records)
    groups, samples = np.zeros(10, records.groups.dtype), np.zeros(20, records.samples.dtype)
    groups["status"], groups["trained_step"] = t.G_TRAINED, window.first
    groups["submit_s"] = groups["left_s"] = window.start_s + 1.0
    groups["first"], groups["size"] = np.arange(0, 20, 2), 2
    samples["group"], samples["status"] = np.repeat(np.arange(10), 2), t.DONE
    samples["target"] = [10] * 18 + [20, 30]

    def of(**changes: Any) -> dict[str, float]:
        g, s = groups.copy(), samples.copy()
        for name, values in changes.items():
            for row, value in values.items():
                g[name][row] = value
        return lost(replace(records, groups=g, samples=s))

    assert of() == {"all": 0.0, "longest_tenth": 0.0}
    assert of(status={9: t.G_STALE}) == {"all": 0.1, "longest_tenth": 1.0}
    assert of(status={0: t.G_STALE}) == {"all": 0.1, "longest_tenth": 0.0}
    assert of(status={0: t.G_OVERFLOW, 9: t.G_ABORTED}, left_s={9: -1.0}) == {"all": 0.2, "longest_tenth": 1.0}
    # before the window, unfinished, filtered: on neither side
    assert of(status={9: t.G_STALE}, left_s={9: window.start_s - 1.0})["all"] == 0.0
    assert of(status={9: t.G_OPEN})["all"] == of(status={9: t.G_FILTERED})["all"] == 0.0
    assert of(status={8: t.G_STALE, 9: t.G_OPEN})["all"] == pytest.approx(1 / 9)


def test_a_trained_group_s_aborted_sibling_is_lost() -> None:
    records = simulate(scenario())
    samples = records.samples.copy()
    first = int(np.flatnonzero(records.groups["trained_step"] == 10)[0])
    samples["status"][np.flatnonzero(samples["group"] == first)[0]] = t.GONE
    trained = 64 * (20 - window_of(records).first)
    assert lost(replace(records, samples=samples))["all"] == pytest.approx(1 / trained)


def test_equal_lengths_are_lost_alike() -> None:
    records = simulate(
        scenario(
            workload__output_tokens=100,
            workload__group_size=1,
            fleet__group_placement="spread",
            admission__law="batches_ahead",
            buffer__batch_rule="first_finished",
            buffer__oversampling=1.5,
            fleet__speed_factors=[1.0, 3.0],
        )
    )
    share = lost(records)
    assert share["all"] == share["longest_tenth"] == pytest.approx(1 / 3, abs=0.05)


def test_taking_the_first_finished_loses_the_long_ones() -> None:
    """Half again as many groups as are trained, the rest aborted: a third of all is lost, nearly all of the longest."""
    share = lost(
        simulate(
            scenario(
                workload__group_size=1,
                admission__law="barrier",
                buffer__batch_rule="first_finished",
                buffer__oversampling=1.5,
            )
        )
    )
    assert share["all"] == pytest.approx(1 / 3, abs=0.01)
    assert share["longest_tenth"] > 0.95


def test_siblings_started_beyond_the_group_are_lost_and_they_are_the_long_ones() -> None:
    """Of 4 samples started for 2 kept, the slowest 2 are lost: half of all."""
    share = lost(simulate(scenario(buffer__group_oversampling=2.0)))
    assert share["all"] == pytest.approx(0.5, abs=0.01)
    assert share["longest_tenth"] > 0.85


def test_what_is_put_off_to_a_long_round_is_not_lost() -> None:
    """Tail batching trains every prompt; only groups aborted for good count."""
    rounds = {"admission__law": "barrier", "buffer__batch_rule": "first_finished", "buffer__oversampling": 1.5}
    assert lost(simulate(scenario(**rounds, buffer__leftover="abort")))["all"] > 0.3
    assert lost(simulate(scenario(**rounds, buffer__leftover="defer"))) == {"all": 0.0, "longest_tenth": 0.0}


@pytest.mark.parametrize("action", ["drop_on_dequeue", "drop_and_refill", "cancel_in_flight"])
def test_every_way_to_drop_old_samples_loses_long_ones(action: str) -> None:
    share = lost(
        simulate(
            scenario(admission__age_action=action, admission__max_age=1.0, admission__max_staleness=2.0, run__steps=40)
        )
    )
    assert 0.0 < share["all"] < share["longest_tenth"]

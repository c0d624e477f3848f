"""A weight sync that takes one instance after the other is told as that, and is neither a straggler nor a pause."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.config.load import load_scenario
from fleetsim.config.scenario import Scenario
from fleetsim.export.openmetrics import write_openmetrics
from fleetsim.history.openmetrics import read_openmetrics
from fleetsim.records import replace
from fleetsim.replay.diagnose.diagnosis import diagnose
from fleetsim.replay.diagnose.finding import Finding
from fleetsim.replay.implied.implied_scenario import implied
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed
from fleetsim.sim.run import simulate
from tests.replay.independent import Job, Ran, run

LONG = Job(mean_tokens=4000, max_tokens=16384, train_s=60.0, sync="rolling")
SHORT = Job(train_s=20.0, sync="rolling")


def findings(observed: Observed) -> dict[str, Finding]:
    return {f.check: f for f in diagnose(observed, Scenario()).findings}


def truth(ran: Ran) -> tuple[float, float]:
    """Share of an instance's time in its stops, and seconds between two of them."""
    period = ran.step_s * ran.job.sync_every
    return ran.job.sync_s / period, period


@pytest.mark.parts
@pytest.mark.parametrize(
    ("job", "scrape_s"),
    [
        (replace(LONG, sync_s=10.0), 5.0),
        (replace(LONG, sync_s=10.0), 15.0),  # shorter than a scrape
        (replace(LONG, sync_s=20.0, sync_every=2, instances=8), 15.0),
        (replace(LONG, sync_s=20.0, train_s=200.0), 15.0),  # the trainer never waits for it
        (replace(LONG, sync_s=30.0, sync_every=2, instances=2), 15.0),
        (replace(SHORT, sync_s=20.0, sync_every=2), 5.0),  # as long in all as the time between two
        (replace(SHORT, sync_s=30.0, sync_every=4), 15.0),
    ],
)
def test_a_rolling_sync_is_one_finding(job: Job, scrape_s: float) -> None:
    ran = run(job, 1.5, scrape_s)
    history = ran.history()
    observed = observe(history)
    assert observed.rolling is not None
    share, period_s = truth(ran)
    assert observed.rolling.mean_s == pytest.approx(job.sync_s, rel=0.12)
    assert observed.rolling.period_s == pytest.approx(period_s, rel=0.15)
    assert 0.6 * share <= observed.rolling.share <= 1.05 * share
    assert not any(view.straggler for view in observed.instances)
    assert all(view.pace == pytest.approx(1.0, abs=0.05) for view in observed.instances)
    found = findings(observed)
    assert found["stragglers"].state == ("ok" if job.instances > 2 else "unknown")  # two have no median
    assert found["sync"].state == ("fault" if observed.rolling.share > 0.05 else "ok")
    assert any("one instance after the other" in said for said in found["sync"].evidence)
    sync = implied(observed, history).scenario.sync
    assert (sync.scope, sync.every_steps) == ("rolling", job.sync_every)
    assert sync.pause_s == pytest.approx(job.sync_s, rel=0.12)


@pytest.mark.parametrize(
    ("slow", "scrape_s", "instances"), [({1: 1.4}, 15.0, 4), ({2: 2.5}, 5.0, 4), ({0: 1.6, 5: 1.6}, 15.0, 8)]
)
def test_a_straggler_beside_it_is_found(slow: dict[int, float], scrape_s: float, instances: int) -> None:
    observed = observe(
        run(replace(LONG, sync_s=20.0, sync_every=2, slow=slow, instances=instances), 1.5, scrape_s).history()
    )
    assert observed.rolling is not None
    assert {str(v.id) for v in observed.instances if v.straggler} == {f"rollout-{i}" for i in slow}
    title = findings(observed)["stragglers"].title
    assert set(title.removeprefix("slow: ").split(", ")) == {f"rollout-{i}" for i in slow}
    for i, factor in slow.items():
        assert observed.instances[i].pace == pytest.approx(1 / factor, rel=0.05)


@settings(max_examples=6, deadline=None)
@given(
    sync=st.sampled_from(["global", "none"]),
    sync_s=st.floats(2.0, 25.0),
    instances=st.integers(2, 5),
    scrape_s=st.sampled_from([5.0, 15.0]),
    slow=st.sampled_from([1.0, 2.5]),
    staleness=st.sampled_from([0.0, 1.0]),
)
def test_nothing_else_is_one(
    sync: str, sync_s: float, instances: int, scrape_s: float, slow: float, staleness: float
) -> None:
    """Stops of all instances at once, short batches, a slow instance: none of them goes round."""
    job = replace(LONG, sync=sync, sync_s=sync_s, instances=instances, slow={0: slow}, staleness=staleness)
    assert observe(run(job, 1.0, scrape_s).history()).rolling is None


def test_so_is_one_that_fleetsim_simulates(tmp_path: Path) -> None:
    """A preset whose scope is changed: another simulator, other lengths, a sync whose instances may be without work."""
    lengths = "workload.output_tokens={kind: lognormal, mean: 3000, cv: 0.6, max: 16384}"
    changes = ["sync.scope=rolling", "sync.pause_s=20", "sync.every_steps=2", "run.steps=50", lengths]
    scenario = load_scenario("async-one-step", [*changes, "fleet.instances=4", "trainer.fixed_s=30"])
    path = tmp_path / "history.om"
    with path.open("w") as file:
        write_openmetrics(simulate(scenario, scrape_every_s=15.0), file, end_s=1_790_000_000.0)
    history = read_openmetrics(path)
    observed = observe(history)
    assert observed.rolling is not None
    assert observed.rolling.mean_s == pytest.approx(20.0, rel=0.12)
    assert findings(observed)["stragglers"].state == "ok"
    sync = implied(observed, history).scenario.sync
    assert (sync.scope, sync.every_steps) == ("rolling", 2)

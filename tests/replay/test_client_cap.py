"""A client's cap on samples in flight is found whatever its groups: with a group missing of it, it is still flat."""

from __future__ import annotations

import pytest

from fleetsim.config.scenario import Scenario
from fleetsim.replay.diagnose.diagnosis import diagnose
from fleetsim.replay.observe.observe import observe
from tests.replay.independent import Job, run


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("cap", "group", "instances"), [(64, 8, 4), (64, 16, 4), (32, 8, 2)])
def test_a_small_cap_in_groups_binds(cap: int, group: int, instances: int, together: bool) -> None:
    job = Job(instances=instances, in_flight=cap, group=group, together=together, staleness=8.0, train_s=20.0)
    verdict = diagnose(observe(run(job, 1.0).history()), Scenario())
    assert verdict.binding == "in_flight_cap", verdict.headline
    assert verdict.starves == "trainer"


@pytest.mark.parametrize("job", [Job(staleness=0.0, instances=2), Job(train_s=5.0, group=32), Job(instances=1)])
def test_batches_that_ebb_have_no_cap(job: Job) -> None:
    found = {f.check: f for f in diagnose(observe(run(job, 1.0).history()), Scenario()).findings}
    assert found["in_flight_cap"].state == "ok"

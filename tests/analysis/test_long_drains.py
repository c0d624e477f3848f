"""The way back through a run in which each sync drains the fleet: as long as the run, however long that is."""

from __future__ import annotations

import fleetsim as fs


def test_a_thousand_drains_in_a_row_are_no_recursion() -> None:
    """Rollout decides every step, so its path has a drain in each: by hand a batch of 16 times 100 tokens at 300 tok/s,
    5.33 s, less what the next batch does beside, and the sync."""
    constant = {"kind": "constant", "value": 100}
    changes = {"sync.in_flight": "drain", "sync.pause_s": 0.1, "workload.output_tokens": constant}
    trainer = {"trainer.fixed_s": 0.2, "trainer.per_token_s": 0.0}
    options = {"batch": 16, "group_size": 4, "instance_tok_s": 300, "max_staleness": 1, "instances": 1, "steps": 1500}
    found = fs.load({}, {**changes, **trainer}, **options).simulate(replications=1)
    assert found.binding == "longest_response"
    assert 16 * 100 / 300 <= found.mean["step_s"] <= 16 * 100 / 300 + 0.1 + 0.2

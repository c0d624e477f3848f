"""Small scenarios that draw every primitive, in every combination that the rules of a scenario allow."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.policies.admission import LAWS
from fleetsim.policies.law import LawName
from fleetsim.policies.samples import AGE_ACTIONS

STEPS = 8


@st.composite
def batch_rules(draw: st.DrawFn, law: LawName) -> dict[str, Any]:
    """A batch rule that the law allows, with what belongs to it."""
    rules = ["fifo", "oldest_version_first", "wait_for_oldest"]
    if LAWS[law].rounds is not None:
        rules.append("first_finished")
    if LAWS[law].reserves_steps:
        rules.append("exact_target_step")
    rule = draw(st.sampled_from(rules))
    leftovers = ["abort", "carry_over", "defer"] if LAWS[law].waits_for_trainer else ["abort", "carry_over"]
    return {
        "buffer.batch_rule": "oldest_version_first" if rule == "wait_for_oldest" else rule,
        "buffer.wait_for_oldest": rule == "wait_for_oldest",
        "buffer.oversampling": 1.5 if rule == "first_finished" else 1.0,
        "buffer.leftover": draw(st.sampled_from(leftovers)) if rule == "first_finished" else "abort",
        "buffer.group_oversampling": draw(st.sampled_from([1.0, 1.0, 1.5])),
    }


@st.composite
def triggers(draw: st.DrawFn, placement: str) -> dict[str, Any]:
    """What publishes the weights, and whether batches are streamed."""
    trigger = draw(st.sampled_from(["steps", "steps", "pulls", "samples"]))
    return {
        "trainer.minibatches": 1 if placement == "colocated" else draw(st.sampled_from([1, 2, 4])),
        "sync.trigger": trigger,
        "sync.every_steps": draw(st.sampled_from([1, 2])),
        "sync.every_pulls": draw(st.sampled_from([1, 3])) if trigger == "pulls" else None,
        "sync.every_samples": draw(st.sampled_from([16, 20])) if trigger == "samples" else None,
    }


@st.composite
def admissions(draw: st.DrawFn, law: LawName) -> dict[str, Any]:
    """The law's parameters, and what an old group means."""
    # What is masked is a matter of metrics alone: the run is that of train_anyway (test_timelines_age).
    action = draw(st.sampled_from([name for name, one in AGE_ACTIONS.items() if not one.masks]))
    return {
        "admission.law": law,
        "admission.max_staleness": draw(st.sampled_from([0.0, 0.5, 2.0])),
        "admission.pool_samples": 24,
        "admission.staleness_threshold": draw(st.sampled_from([0.1, 1.0])),
        "admission.async_ratio": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "admission.extra_groups": draw(st.sampled_from([0, 3])),
        "admission.adaptive.start_samples": 8,
        "admission.adaptive.interval_s": 0.3,
        "admission.adaptive.target_kv": 0.65,
        "admission.adaptive.trim_above_kv": draw(st.sampled_from([0.7, 0.8])),
        "admission.age_action": action,
        "admission.age_reference": draw(st.sampled_from(["submission", "oldest_token", "creation"])),
        "admission.max_age": None if action == "train_anyway" else draw(st.sampled_from([1.0, 2.0])),
    }


@st.composite
def disaggregations(draw: st.DrawFn) -> dict[str, Any]:
    """Prompts on engines of their own; their cache takes a while to where it is decoded."""
    return {
        "prefill": draw(st.integers(1, 2)),
        "decode": draw(st.integers(1, 2)),
        "latency_s": draw(st.sampled_from([0.0, 0.3])),
    }


@st.composite
def fleets(draw: st.DrawFn) -> dict[str, Any]:
    """Where the instances are, who moves requests, and how new weights reach them."""
    placement = draw(st.sampled_from(["disaggregated", "disaggregated", "colocated", "colocated_lending"]))
    scope = "global" if placement == "colocated" else draw(st.sampled_from(["global", "rolling"]))
    return {
        "fleet.instances": draw(st.integers(1, 4)),
        "fleet.placement": placement,
        "fleet.switch_s": draw(st.sampled_from([0.0, 0.4])),
        "fleet.lending.instances": draw(st.integers(1, 2)),
        "fleet.lending.return_at": draw(st.sampled_from([0.3, 1.0])),
        "fleet.repack.every_s": draw(st.sampled_from([None, 0.5])),
        "fleet.repack.below_kv_use": draw(st.sampled_from([0.2, 0.6])),
        "sync.scope": scope,
        "sync.at_once": draw(st.integers(1, 2)),
    }


@st.composite
def faults(draw: st.DrawFn, fleet: dict[str, Any]) -> list[dict[str, Any]]:
    """What may become slower, longer or be lost after the resize."""
    possible = {
        "sync_slowdown": st.just(2.0),
        "length_factor": st.sampled_from([0.5, 1.4]),
        "trainer_slowdown": st.just(1.5),
        "lose_instance": st.integers(0, fleet["fleet.instances"] - 1),
    }
    names = draw(st.lists(st.sampled_from(sorted(possible)), max_size=3))
    return [{"step": 4 + k, name: draw(possible[name])} for k, name in enumerate(names)]


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    group = draw(st.sampled_from([1, 4]))
    law = draw(st.sampled_from(list(LAWS)))
    changes: dict[str, Any] = {
        "workload.group_size": group,
        "workload.prompt_tokens": {"kind": "lognormal", "mean": 60, "cv": 0.5, "max": 150},
        "workload.output_tokens": {
            "kind": "lognormal",
            "mean": 80,
            "cv": draw(st.sampled_from([0.3, 1.2])),
            "max": 400,
        },
        "workload.group_correlation": draw(st.sampled_from([0.0, 0.6])),
        "workload.turns": {
            "count": draw(st.sampled_from([1, 2, "geometric:2:6"])),
            "output_tokens": draw(st.sampled_from([None, None, 25])),
            "max_trajectory_tokens": draw(st.sampled_from([None, None, 70])),
            "tool_latency_s": 0.3,
            "tool_tokens": 9,
        },
        "workload.reward": {
            "latency_s": draw(st.sampled_from([0.0, 0.2])),
            "workers": draw(st.sampled_from([None, 3])),
        },
        "workload.filter.zero_variance_share": draw(st.sampled_from([0.0, 0.3])),
        "workload.shared_prefix_tokens": draw(st.sampled_from([0, 32])),
        "engine.max_num_seqs": 12,
        "engine.max_num_batched_tokens": 256,
        "engine.kv_blocks": draw(st.sampled_from([60, 400])),
        "engine.prefix_caching": draw(st.booleans()),
        "engine.disaggregation": draw(st.one_of(st.none(), disaggregations())),
        "fleet.group_placement": draw(st.sampled_from(["together", "spread"])),
        "fleet.routing": draw(st.sampled_from(["round_robin", "least_loaded", "prefix_affinity"])),
        "fleet.max_in_flight_samples": draw(st.sampled_from([None, 20])),
        "fleet.max_in_flight_samples_per_instance": draw(st.sampled_from([None, 8])),
        "fleet.in_flight_unit": draw(st.sampled_from(["samples", "groups"])),
        "fleet.failures.mtbf_s": draw(st.sampled_from([None, 15.0])),
        "fleet.failures.restart_s": 2.0,
        "fleet.straggler_share": 0.5,
        "fleet.straggler_slowdown": 1.5,
        "trainer.batch_samples": 16,
        "trainer.fixed_s": draw(st.sampled_from([0.2, 3.0])),
        "sync.publish_s": draw(st.sampled_from([0.0, 0.7])),
        "sync.pause_s": draw(st.sampled_from([0.0, 0.5])),
        "sync.trainer_block_s": draw(st.sampled_from([0.0, 0.4])),
        "sync.in_flight": draw(
            st.sampled_from(
                ["drain", "abort_discard", "abort_resume", "keep", "keep_recompute", "finish_on_old_weights"]
            )
        ),
        "buffer.capacity_samples": draw(st.sampled_from([None, 16, 40])),
        "buffer.on_full": draw(st.sampled_from(["block", "drop_oldest"])),
        "run.steps": STEPS,
        "run.warmup_steps": 0,
        "run.seed": draw(st.integers(0, 3)),
    }
    fleet = draw(fleets())
    parts = fleet, draw(triggers(fleet["fleet.placement"])), draw(admissions(law)), draw(batch_rules(law))
    for part in parts:
        changes |= part
    if draw(st.booleans()):
        changes["run.events"] = [{"step": 3, "instances": draw(st.integers(1, 5))}, *draw(faults(fleet))]
    return with_changes(default_scenario(), changes)

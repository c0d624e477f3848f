"""Rules that join two fields. Each is refused only where it is nonsense whatever the run does.

Limits that block each other while running (a buffer smaller than a batch, a cap below a group) are no business of
the loader: the run stops with StuckError and names them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product

from fleetsim import units
from fleetsim.config.base import unsaid
from fleetsim.config.exchange import LinkConfig
from fleetsim.config.judges import JUDGES, as_rollout, judges_of
from fleetsim.config.law_numbers import POLICY_RULES, Rules, rule_of
from fleetsim.config.sections import Sections
from fleetsim.config.workload import ConstantTokens, Gamma, Lognormal
from fleetsim.errors import Problem
from fleetsim.records import replace

ENGINE_RULES: Rules = []
TRANSPORT_RULES: Rules = []
RULES: Rules = []
# Kinds of engine that need a field of each make.
_SOURCES = (("measured", "profile"), ("constant", "instance_tok_s"))

# --- Rules of the `engine` section that look at the rest of the scenario: caps that a scheduler needs, whole ranks.


@rule_of(ENGINE_RULES, "engine.name", "engine.capacity_scheduler_policy", "workload.output_tokens")
def _no_eviction_needs_a_cap(s: Sections) -> Iterator[Problem]:
    policy = s.engine.capacity_scheduler_policy
    if s.engine.name != "tensorrt-llm" or policy != "guaranteed_no_evict":
        return
    if s.workload.turns.most_tokens(s.workload.output_tokens) is None:
        rule = "TensorRT-LLM starts a request only when its longest output fits, and nothing says how long that may be"
        remedy = "give the client's cap, or use engine.capacity_scheduler_policy: max_utilization"
        yield Problem("workload.output_tokens.max", None, rule, remedy)


@rule_of(ENGINE_RULES, "engine.kind", "engine.disaggregation", "engine.pp", "engine.dp")
def _two_sides_fit(s: Sections) -> Iterator[Problem]:
    apart, path = s.engine.disaggregation, "engine.disaggregation"
    if apart is None:
        return
    if s.engine.kind == "constant":
        rule = "an engine of constant rate computes prompts for nothing"
        yield Problem(path, apart.prefill, rule, "use kind: roofline, or leave it out")
    if s.engine.pp > 1:
        yield Problem(
            "engine.pp", s.engine.pp, "engines with prompts apart have one stage here", "use pp 1 and more tp"
        )
    if s.engine.dp > 1:
        remedy = f"give {path}.decode: {s.engine.dp} and {path}.decode_dp: {s.engine.dp}"
        yield Problem("engine.dp", s.engine.dp, "the ranks of a disaggregated instance are its decode engines", remedy)
    if s.engine.kind == "measured" and s.engine.prefill_tp != s.engine.tp:
        rule = "a profile was measured with one number of GPUs, and both sides have it"
        yield Problem(f"{path}.prefill_tp", apart.prefill_tp, rule, "leave it out, or use kind: roofline")


@rule_of(ENGINE_RULES, "engine.kind", "engine.speculation")
def _drafts_have_a_cost(s: Sections) -> Iterator[Problem]:
    given = s.engine.speculation
    if given is None:
        return
    if s.engine.kind == "constant":
        rule = "an engine of constant rate has no iterations that could verify drafts"
        yield Problem("engine.speculation", given.method, rule, "give the rate with speculation, or use kind: roofline")
    elif s.engine.kind == "roofline" and given.method == "draft_model" and given.draft_model is None:
        rule = "method draft_model needs the model that drafts"
        yield Problem("engine.speculation.draft_model", None, rule, "give its Hugging Face id, or a config.json")


@rule_of(ENGINE_RULES, "engine.kind", "engine.lora")
def _adapters_have_a_cost(s: Sections) -> Iterator[Problem]:
    if s.engine.lora is not None and s.engine.kind != "roofline":
        what = "a rate" if s.engine.kind == "constant" else "a profile"
        rule = f"{what} holds for the engine that was measured and says nothing of adapters"
        remedy = "measure it with the adapter in use and leave engine.lora out, or use kind: roofline"
        yield Problem("engine.lora", s.engine.lora.rank, rule, remedy)


@rule_of(
    ENGINE_RULES, "engine.kv_offloading_gib", "engine.kv_offloading_ratio", "engine.kind", "engine.name",
    "engine.prefix_caching",
)  # fmt: skip
def _the_host_keeps_a_cache(s: Sections) -> Iterator[Problem]:
    e, size = s.engine, s.engine.kv_offloading_gib or s.engine.kv_offloading_ratio
    for wrong, rule, remedy in (
        (None not in (e.kv_offloading_gib, e.kv_offloading_ratio), "one size", "drop engine.kv_offloading_ratio"),
        (e.kind != "roofline", f"kind {e.kind} does not say how large a block is", "use kind: roofline"),
        (e.name == "tensorrt-llm", "of vLLM and SGLang only", "use engine.name: vllm or sglang"),
        (not e.prefix_caching, "what comes back is found by the prefix cache", "use engine.prefix_caching: true"),
        (e.disaggregation is not None, "of engines that compute their prompts themselves", "drop the disaggregation"),
    ):
        if size and wrong:
            yield Problem("engine.kv_offloading_gib", size, rule, f"{remedy}, or leave it out")


@rule_of(ENGINE_RULES, "engine.dp", "fleet.instances", "fleet.pools", "run.events")
def _ranks_make_whole_engines(s: Sections) -> Iterator[Problem]:
    dp = s.engine.dp
    for path, n in [
        ("fleet.instances", s.fleet.instances),
        *((f"fleet.pools.{name}.instances", pool.instances) for name, pool in s.fleet.pools.items()),
        *((f"run.events[{i}].instances", e.instances) for i, e in enumerate(s.run.events) if e.instances is not None),
    ]:
        if n % dp:
            rule = f"must be a multiple of engine.dp ({dp}): every data-parallel rank is an instance"
            yield Problem(path, n, rule, f"use {max(1, n // dp) * dp}")


# --- Rules of `sync.transport` and `sync.link`: transports that cannot reach the engines, settings that nothing reads.


@rule_of(TRANSPORT_RULES, "sync.transport", "fleet.placement")
def _cuda_ipc_needs_the_same_gpus(s: Sections) -> Iterator[Problem]:
    if s.sync.transport == "cuda_ipc" and s.fleet.placement != "colocated":
        rule = f"shares memory of one GPU, but the engines have GPUs of their own (fleet.placement {s.fleet.placement})"
        remedy = "use collective_broadcast or rdma_p2p, or fleet.placement: colocated"
        yield Problem("sync.transport", "cuda_ipc", rule, remedy)


@rule_of(TRANSPORT_RULES, "sync.transport", "fleet.placement")
def _relays_serve_other_nodes(s: Sections) -> Iterator[Problem]:
    if s.sync.transport == "relay" and s.fleet.placement == "colocated":
        rule = "relay workers hold new weights for engines that go on meanwhile; colocated engines stand still anyway"
        yield Problem("sync.transport", "relay", rule, "use cuda_ipc, or another fleet.placement")


@rule_of(TRANSPORT_RULES, "sync.transport", "sync.link")
def _a_link_belongs_to_a_transport(s: Sections) -> Iterator[Problem]:
    link, unread = s.sync.link, unsaid(LinkConfig)
    changed = [name for name in type(link).model_fields if getattr(link, name) != getattr(unread, name)]
    if s.sync.transport is None and changed:
        rule = "only a transport reads it, and sync.transport is not given"
        remedy = "give sync.transport, or drop sync.link (sync.link={})"
        yield Problem(f"sync.link.{changed[0]}", getattr(link, changed[0]), rule, remedy)


@rule_of(TRANSPORT_RULES, "sync.transport", "sync.link.delta_over", "sync.link.prefetch")
def _storage_settings_need_storage(s: Sections) -> Iterator[Problem]:
    link, transport = s.sync.link, s.sync.transport
    if transport is None:
        return
    if link.delta_over == "storage" and transport != "sparse_delta":
        rule = f"only sparse_delta sends changes (sync.transport is {transport})"
        yield Problem("sync.link.delta_over", "storage", rule, "use sync.transport: sparse_delta, or drop it")
    elif link.prefetch and transport != "checkpoint_shuttle" and link.delta_over != "storage":
        rule = f"there is no shared storage to copy from (sync.transport is {transport})"
        remedy = "use checkpoint_shuttle, or sparse_delta with link.delta_over: storage"
        yield Problem("sync.link.prefetch", True, rule, remedy)


@rule_of(TRANSPORT_RULES, "sync.transport", "sync.link.load", "sync.link.calls")
def _in_place_has_no_calls_per_tensor(s: Sections) -> Iterator[Problem]:
    link = s.sync.link
    if s.sync.transport is not None and link.load == "in_place" and link.calls == "per_tensor":
        rule = "weights that land in place (link.load in_place) are not handed over tensor by tensor"
        yield Problem("sync.link.calls", "per_tensor", rule, "use link.calls: batched, or link.load: per_tensor")


@rule_of(RULES, "trainer.batch_samples", "workload.group_size")
def _batch_is_whole_groups(s: Sections) -> Iterator[Problem]:
    batch, group = s.trainer.batch_samples, s.workload.group_size
    if batch % group:
        below = batch // group * group
        near = f"{below} or {below + group}" if below else f"{group}"
        yield Problem(
            "trainer.batch_samples", batch, f"must be a multiple of workload.group_size ({group})", f"use {near}"
        )


@rule_of(RULES, "engine.kind", "engine.profile", "engine.instance_tok_s")
def _engine_kind_has_its_source(s: Sections) -> Iterator[Problem]:
    if s.engine.kind == "measured" and s.engine.profile is None:
        yield Problem(
            "engine.profile", None, "kind measured needs a profile", "give its name or file, or use kind: roofline"
        )
    if s.engine.kind == "constant" and s.engine.instance_tok_s is None:
        rule = "kind constant needs instance_tok_s"
        remedy = "give the output tokens per second of one instance, or use kind: roofline"
        yield Problem("engine.instance_tok_s", None, rule, remedy)


@rule_of(RULES, "workload.prompt_tokens", "workload.shared_prefix_tokens")
def _prompts_hold_the_shared_prefix(s: Sections) -> Iterator[Problem]:
    prompt, prefix = s.workload.prompt_tokens, s.workload.shared_prefix_tokens
    bounds: list[tuple[str, float]] = []
    if isinstance(prompt, ConstantTokens):
        bounds.append(("the prompt", prompt.value))
    elif prompt.max is not None:
        bounds.append(("the longest prompt", prompt.max))
    if isinstance(prompt, Lognormal) and prompt.median is not None:
        bounds.append(("the median prompt", prompt.median))
    if isinstance(prompt, (Lognormal, Gamma)) and prompt.mean is not None:
        bounds.append(("the mean prompt", prompt.mean))
    for what, tokens in bounds:
        if prefix > tokens:
            rule = f"is part of every prompt, but {what} has {tokens:g} tokens"
            remedy = "count the shared system prompt in prompt_tokens as well"
            yield Problem("workload.shared_prefix_tokens", prefix, rule, remedy)
            return


@rule_of(RULES, "workload.prompt_tokens", "workload.output_tokens")
def _prompts_and_outputs_have_tokens(s: Sections) -> Iterator[Problem]:
    for name in ("prompt_tokens", "output_tokens"):
        law = getattr(s.workload, name)
        if isinstance(law, ConstantTokens) and law.value < 1:
            yield Problem(f"workload.{name}", law.value, "must be at least 1 token", "use 1 or more")


@rule_of(RULES, "workload.output_tokens", "workload.turns.count")
def _every_turn_has_a_token(s: Sections) -> Iterator[Problem]:
    law, turns = s.workload.output_tokens, s.workload.turns.count
    most = law.value if isinstance(law, ConstantTokens) else law.max
    if s.workload.turns.output_tokens is not None or not isinstance(turns, int):
        return
    if turns > 1 and most is not None and most < turns:
        rule = f"output_tokens counts all turns together, but is at most {most:g}"
        remedy = "raise output_tokens to a token per turn, or lower the turns"
        yield Problem("workload.turns.count", turns, rule, remedy)


@rule_of(RULES, "run.warmup_steps", "run.steps")
def _warmup_leaves_steps(s: Sections) -> Iterator[Problem]:
    warmup, steps = s.run.warmup_steps, s.run.steps
    if warmup is not None and steps is not None and warmup >= steps:
        yield Problem(
            "run.warmup_steps", warmup, f"must be below run.steps ({steps})", "simulate more steps or drop fewer"
        )


@rule_of(RULES, "run.events")
def _events_in_order(s: Sections) -> Iterator[Problem]:
    steps = [e.step for e in s.run.events]
    for i, (a, b) in enumerate(pairwise(steps)):
        if b < a:
            yield Problem(f"run.events[{i + 1}].step", b, f"events must be sorted by step (after {a})", "sort them")


def _most_instances(s: Sections) -> int:
    return max([s.fleet.instances, *(e.instances for e in s.run.events if e.instances is not None)])


@rule_of(RULES, "fleet.instances", "run.events")
def _lost_instances_exist(s: Sections) -> Iterator[Problem]:
    most = _most_instances(s)
    for i, event in enumerate(s.run.events):
        if event.lose_instance is not None and event.lose_instance >= most:
            rule = f"no such instance: they are 0 to {most - 1}"
            yield Problem(f"run.events[{i}].lose_instance", event.lose_instance, rule, "name one of them")


@rule_of(RULES, "fleet.instances", "fleet.pools", "run.events")
def _somebody_generates(s: Sections) -> Iterator[Problem]:
    fleet, grown = s.fleet, next((e.instances for e in s.run.events if e.instances is not None), None)
    if not fleet.instances and not fleet.pools:
        yield Problem("fleet.instances", 0, "must be at least 1", "give a number at least 1")
    elif not fleet.instances and grown is not None:
        rule = f"an event makes it {grown:,}, and the fleet's first make must be there from the start"
        yield Problem("fleet.instances", 0, rule, "write the make that is there as the first")
    if fleet.first is not None and fleet.first in fleet.pools:
        rule = "stands in the first one's place (fleet.first)"
        remedy = "use fleet.instances, which counts it, and engine and cost for what it is"
        yield Problem(f"fleet.pools.{fleet.first}", "given", rule, remedy)


@rule_of(RULES, "fleet.speed_factors", "fleet.instances", "run.events")
def _speed_factors_have_instances(s: Sections) -> Iterator[Problem]:
    most = _most_instances(s)
    if len(s.fleet.speed_factors) > most:
        rule = f"more factors than instances (at most {most} during the run)"
        remedy = "drop the surplus or raise fleet.instances"
        yield Problem("fleet.speed_factors", len(s.fleet.speed_factors), rule, remedy)


@rule_of(RULES, "fleet.spot", "fleet.placement")
def _spot_machines_are_rollout_s_own(s: Sections) -> Iterator[Problem]:
    spot = s.fleet.spot
    if spot.share and s.fleet.placement == "colocated":
        rule = "the trainer's GPUs serve rollout (fleet.placement colocated), and a trainer needs all of them"
        yield Problem("fleet.spot.share", spot.share, rule, "use 0, or fleet.placement: disaggregated")


@rule_of(RULES, "fleet.pools", "fleet.placement", "engine")
def _pools_have_their_source(s: Sections) -> Iterator[Problem]:
    names = ", ".join(s.fleet.pools)
    if names and s.fleet.placement != "disaggregated":
        rule = f"the trainer's GPUs serve rollout (fleet.placement {s.fleet.placement}), and they are of one make"
        yield Problem("fleet.pools", names, rule, "leave them out, or use fleet.placement: disaggregated")
    if names and s.engine.disaggregation is not None:
        rule = "engines whose prompts are computed apart have one make here"
        yield Problem("fleet.pools", names, rule, "leave them out, or leave engine.disaggregation out")
    for (pool, told), (kind, name) in product(s.fleet.pools.items(), _SOURCES):
        path, own = f"fleet.pools.{pool}.{name}", getattr(told, name)
        if s.engine.kind == kind and own is None:
            yield Problem(path, None, f"engine.kind {kind} needs one for each make", "give it")
        elif s.engine.kind != kind and own is not None:
            yield Problem(path, own, f"read where engine.kind is {kind} only", "leave it out")


@rule_of(RULES, "trainer.phases")
def _phases_have_names_of_their_own(s: Sections) -> Iterator[Problem]:
    seen: set[str] = set()
    for i, phase in enumerate(s.trainer.phases):
        if phase.name in seen:
            yield Problem(f"trainer.phases[{i}].name", phase.name, "two phases have this name", "rename one")
        seen.add(phase.name)


@rule_of(RULES, *(f"stations.{name}" for name in JUDGES), "stations.reward.holds_slot")
def _one_judge_asks_the_rollout(s: Sections) -> Iterator[Problem]:
    there = [name for name, judge in judges_of(s).items() if judge.at == "rollout"]
    for name in there:
        path = f"stations.{name}"
        if getattr(s.stations, name).api is not None:
            yield Problem(f"{path}.api", "given", "a judge at the rollout's engines rents none", "drop it, or at: own")
        if name != there[0]:
            rule = f"the rollout's engines answer one judge, and stations.{there[0]} is at them"
            yield Problem(f"{path}.at", "rollout", rule, "use at: own, or more votes of one judge")
        if s.stations.reward.holds_slot:
            rule = f"rollouts keep their places until stations.{name} has answered, which needs such a place"
            yield Problem("stations.reward.holds_slot", True, rule, f"use false, or stations.{name}.at: own")


@rule_of(RULES, "stations.tools", "stations.reward")
def _calls_reach_their_overflow(s: Sections) -> Iterator[Problem]:
    own = {"tools": s.stations.tools} | ({"reward": s.stations.reward} if s.stations.reward.at == "reward" else {})
    for name, station in own.items():
        path = f"stations.{name}"
        if station.overflow is None:
            if station.workers == 0:
                rule = f"no call would ever be answered: there is no {path}.overflow"
                yield Problem(f"{path}.workers", 0, rule, "give a number, or an overflow")
            continue
        if station.workers is None and station.calls_per_s is None:
            rule = f"calls go to {path}.overflow when all of these are taken, and there is no limit on them"
            remedy = f"give a number, or a rate ({path}.calls_per_s), or leave the overflow out"
            yield Problem(f"{path}.workers", None, rule, remedy)
        if station.timeout_s is not None and station.timeout_s <= station.overflow.after_s:
            rule = f"a call that waits is timed out after {station.timeout_s:g} s, before it goes there"
            yield Problem(
                f"{path}.overflow.after_s", station.overflow.after_s, rule, f"lower it, or raise {path}.timeout_s"
            )


@rule_of(RULES, *(f"stations.{name}" for name in JUDGES))
def _only_own_engines_overflow(s: Sections) -> Iterator[Problem]:
    for name, judge in judges_of(s).items():
        if judge.overflow is not None and not judge.has_engines:
            where = "is rented" if judge.at == "own" else "is at the rollout's engines"
            rule = f"takes what the judge's own engines have no place for, and stations.{name} {where}"
            yield Problem(f"stations.{name}.overflow", "given", rule, "leave it out, or give it engines of its own")


@rule_of(RULES, *(f"stations.{name}" for name in JUDGES))
def _judges_have_engines(s: Sections) -> Iterator[Problem]:
    """What a rollout engine must be, a judge's own must be too."""
    for name, judge in judges_of(s).items():
        if judge.has_engines and not judge.instances:
            rule = f"nothing would ever be answered: there is no stations.{name}.overflow"
            yield Problem(f"stations.{name}.instances", 0, rule, "give a number, or an overflow")
            continue
        for rule in (_engine_kind_has_its_source, *(rule for rule, _ in ENGINE_RULES)) if judge.has_engines else ():
            for p in rule(as_rollout(s, judge)):
                own = p.path.removeprefix("fleet.").removeprefix("workload.")
                yield replace(p, path=f"stations.{name}.{own}")


@rule_of(RULES, "evaluation", "trainer.gpus", "engine")
def _evaluation_has_engines(s: Sections) -> Iterator[Problem]:
    e = s.evaluation
    if e.every_steps is None or e.at != "trainer" or e.seconds is not None:
        return
    fit = s.trainer.gpus // s.engine.gpus
    if fit < (e.instances or 1):
        made = units.plural(fit, "instance")
        rule = f"the trainer's {units.plural(s.trainer.gpus, 'GPU')} make {made} of {s.engine.gpus}"
        yield Problem("evaluation.instances", e.instances or 1, rule, "use fewer, or evaluation.at: rollout")


RULES += [*ENGINE_RULES, *POLICY_RULES, *TRANSPORT_RULES]


def broken_rules(s: Sections, wrong: frozenset[str] = frozenset()) -> list[Problem]:
    """All problems of the rules that read none of the `wrong` paths (nor anything under or above them)."""

    def touches(path: str) -> bool:
        return any(
            bad == path or not bad or bad.startswith((f"{path}.", f"{path}[")) or path.startswith(f"{bad}.")
            for bad in wrong
        )

    return [p for rule, reads in RULES if not (wrong and any(map(touches, reads))) for p in rule(s)]

"""Rules of the `engine` section that look at the rest of the scenario: caps that a scheduler needs, whole ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fleetsim.config.lengths import longest_length
from fleetsim.config.sections import Sections
from fleetsim.errors import Problem


def _no_eviction_needs_a_cap(s: Sections) -> Iterator[Problem]:
    policy = s.engine.capacity_scheduler_policy
    if s.engine.name != "tensorrt-llm" or policy != "guaranteed_no_evict":
        return
    if longest_length(s.workload.output_tokens) is None:
        yield Problem(
            "workload.output_tokens.max",
            None,
            "TensorRT-LLM starts a request only when its longest output fits, and nothing says how long that may be",
            "give the client's cap, or use engine.capacity_scheduler_policy: max_utilization",
        )


def _ranks_make_whole_engines(s: Sections) -> Iterator[Problem]:
    dp = s.engine.dp
    for path, n in [
        ("fleet.instances", s.fleet.instances),
        *((f"run.events[{i}].instances", e.instances) for i, e in enumerate(s.run.events) if e.instances is not None),
    ]:
        if n % dp:
            rule = f"must be a multiple of engine.dp ({dp}): every data-parallel rank is an instance"
            yield Problem(path, n, rule, f"use {max(1, n // dp) * dp}")


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


def _adapters_have_a_cost(s: Sections) -> Iterator[Problem]:
    if s.engine.lora is not None and s.engine.kind != "roofline":
        what = "a rate" if s.engine.kind == "constant" else "a profile"
        rule = f"{what} holds for the engine that was measured and says nothing of adapters"
        remedy = "measure it with the adapter in use and leave engine.lora out, or use kind: roofline"
        yield Problem("engine.lora", s.engine.lora.rank, rule, remedy)


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


ENGINE_RULES: tuple[tuple[Callable[[Sections], Iterator[Problem]], tuple[str, ...]], ...] = (
    (
        _no_eviction_needs_a_cap,
        ("engine.name", "engine.capacity_scheduler_policy", "workload.output_tokens"),
    ),
    (_two_sides_fit, ("engine.kind", "engine.disaggregation", "engine.pp", "engine.dp")),
    (_drafts_have_a_cost, ("engine.kind", "engine.speculation")),
    (_adapters_have_a_cost, ("engine.kind", "engine.lora")),
    (_ranks_make_whole_engines, ("engine.dp", "fleet.instances", "run.events")),
)

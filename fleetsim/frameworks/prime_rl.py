"""prime-rl (PrimeIntellect-ai/prime-rl at 559b44772): rl.toml with trainer, orchestrator and inference.

Names and defaults: packages/prime-rl-configs/src/prime_rl/configs/rl.py, orchestrator.py and inference.py; what they
do: src/prime_rl/orchestrator/concurrency.py and dispatcher.py. Files from before 2026-05 (max_async_level,
trainer_gpu_ids, inference.parallel) are read as well, and those of its hosted trainings, which verifiers ships
(PrimeIntellect-ai/verifiers at a60a606ec: configs/rl; they name no GPUs).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fleetsim.config.tree import is_at
from fleetsim.frameworks import common, roles
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read, never, one_of, times, writes
from fleetsim.frameworks.sides import SIDES, adapter, vllm_drafts
from fleetsim.frameworks.tables import put_rows

# Environments whose names say that a model acts more than once.
_AGENTS = re.compile(
    r"swe|terminal|search|wordle|tool|browse|deepdive|web|wiki|game|alphabet|harbor|sandbox|agent|bash"
)
_OFFLOAD, _FLIGHT = "optim_cpu_offload", "orchestrator.concurrency"
_LEVEL = ("max_async_level", "orchestrator.max_async_level")
_HOST = "inference.kv_cache_offload.cpu.num_bytes"


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from prime-rl's keys."""
    draft.mode, draft.preset = "asynchronous", "prime-rl"
    found = draft.settings.found
    for key in [*found] if draft.settings.has("train.source") else ():  # the file of an orchestrator alone
        found[f"orchestrator.{key}"] = found.pop(key)
    group = put_rows(draft, "model")["workload.group_size"]
    sources = _sources(draft, group)
    batch = draft.count("orchestrator.batch_size", "batch_size", default=128)
    tokens = draft.maybe_count("orchestrator.token_batch_size")
    if tokens is not None:
        remedy = "-- --orchestrator.batch_size N, with the samples that such a batch holds"
        draft.refuse(tokens.key, tokens.value, "a batch by tokens has no fixed number of samples", remedy)
    if batch.value % group.value:
        remedy = f"use {max(1, batch.value // group.value) * group.value}"
        draft.refuse(batch.key, batch.value, f"must be a multiple of {group}", remedy)
    draft.put("trainer.batch_samples", batch.value, batch, why="samples")
    cap = "orchestrator.train.sampling.max_completion_tokens"
    answer = draft.maybe_count(cap, "orchestrator.sampling.max_tokens", "sampling.max_tokens")
    whole = draft.maybe_count("seq_len", "orchestrator.seq_len") or Read("orchestrator.seq_len", 2048, False)
    turns, agent = _turns(sources)
    roles.put_turns(draft, turns, "", agent)
    roles.limited(draft, "episode", _limit(sources), "dropped", "a trace with an error is not trained")
    several = turns.value > 1 if turns is not None else bool(agent)
    if answer is not None:
        answer = roles.trajectory(
            draft, answer, turns, whole if several else None, whole.key, several=several and turns is None
        )
    common.lengths(draft, answer or Read(whole.key, whole.value, whole.given, writes(cap)), None)
    longest = (answer or whole).value
    if answer is not None:  # a sequence holds the prompt, too, and is cut where it is longer
        draft.could("workload.prompt_tokens", None, lambda want: {"seq_len": longest + common.cap_of_prompts(want)})
    instances = _gpus(draft)
    _admission(draft, batch, group, instances)
    put_rows(draft, "sync", "", "orchestrator.", "trainer.")
    if group.value > 1:
        put_rows(draft, "filter")
    common.hardware_and_times(draft, speed, False)
    _recipe(draft)


def _recipe(draft: Draft) -> None:
    """packages/prime-rl-configs/src/prime_rl/configs/trainer.py, ModelConfig; a shared section comes first."""
    put_rows(draft, "context")
    group = draft.maybe_count("deployment.nodes_per_fsdp_group")  # configs/rl.py: it sets trainer.model.dp_replicate
    if group is not None:
        island = times(group, draft.count("deployment.gpus_per_node", default=8))
        draft.put(common.SHARDS, island.value, island, unless=draft.values["trainer.gpus"])
    if draft.text("trainer.model.ep", "model.ep", default="auto").value != "auto":
        put_rows(draft, "experts")
    # until 2026-06 (#2868) neither was on where nothing says it
    old, found = draft.settings.has(*_LEVEL, "trainer_gpu_ids", "inference.parallel"), draft.settings.found
    said = [s for key, s in found.items() for ac in ("trainer.model.ac", "model.ac") if is_at(key, ac)]
    off = any(str(setting.value) in ("None", "null") for setting in said)
    put_rows(draft, "older activations" if off or (old and not said) else "activations")
    draft.settings.see("trainer.model.ac", "model.ac")
    states = draft.flag(f"trainer.model.{_OFFLOAD}", f"model.{_OFFLOAD}", default=not old)
    path = "trainer.recipe.offload"
    for key in ("full_offload", "fsdp_cpu_offload"):
        spelled = (f"trainer.model.{key}", f"model.{key}")
        on = next((name for name in spelled if draft.settings.below(name)), None)  # a section of its own switches it on
        read = Read(on, True, True) if on else draft.flag(*spelled, default=False)
        if read.value:
            draft.put(path, "adam", read, why="the optimizer runs in host memory", back=one_of({}))
            draft.settings.see(*spelled)
            break
    else:
        draft.either(path, states, "states", "none", unless="none")
    put_rows(draft, "precision")
    rank = draft.count("trainer.model.lora.rank", "model.lora.rank", "orchestrator.model.lora.rank", default=0, least=0)
    roles.adapters(draft, rank)
    adapter(draft, rank)
    other = draft.maybe_text("orchestrator.algo.sampling.source.name")
    if other is not None:
        draft.note(str(other), "another model on a server of its own generates the samples: here the policy does")
    if draft.settings.has("orchestrator.algo.teacher"):
        roles.judged(draft, "orchestrator.algo.teacher: a teacher on a server of its own")
        draft.settings.see("orchestrator.algo.teacher")
    algorithm = draft.maybe_text("orchestrator.algo.type")
    if algorithm is not None and algorithm.value == "opsd":
        roles.judged(draft, f"{algorithm}: the policy's engines read each sample again, with a demonstration")


def _turns(sources: list[Any]) -> tuple[Read[int] | None, str]:
    """The most turns that an environment allows, None where none says it; and which of them show that there are
    several."""
    found = [n for source in sources for key, n in _leaves(source) if key.endswith("max_turns") and type(n) is int]
    named = [(key, str(v)) for s in sources for key, v in _leaves(s) if key.rpartition(".")[2] in ("id", "name")]
    agents = [v for key, v in named if v != "null" and (key.endswith("harness.id") or _AGENTS.search(v.lower()))]
    agent = next(iter(agents), "")
    most = max(found, default=0)
    return (Read("max_turns of a source", most, True) if most else None), agent and f"the environment {agent}"


def _limit(sources: list[Any]) -> Read[float] | None:
    """The most seconds that an environment allows for a rollout (verifiers/v1/configs/agent.py and env.py)."""
    leaves = [leaf for source in sources for leaf in _leaves(source)]
    ends = (".timeout.rollout", ".timeout.episode", ".timeout_seconds", ".timeout")
    found = [float(s) for key, s in leaves if key.endswith(ends) and type(s) in (int, float)]
    return Read("timeout of a source", max(found), True) if found else None


def _leaves(value: Any, path: str = "", depth: int = 8) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and depth:
        for key, below in value.items():
            yield from _leaves(below, f"{path}.{key}", depth - 1)
    else:
        yield path, value


def _sources(draft: Draft, group: Read[int]) -> list[Any]:
    """Settings of single environments, of which the scenario has one."""
    found = draft.settings.get("orchestrator.train.source", "orchestrator.env", "env")
    sources = found[1] if found is not None and isinstance(found[1], list) else []
    if found is not None and len(sources) > 1:
        draft.note(f"{len(sources)} entries of {found[0].key}", "several environments are one mixture of lengths here")
    for key, value in (leaf for source in sources[:20] for leaf in _leaves(source)):
        if key.endswith(".judges") and isinstance(value, list):
            models = [str(judge["model"]) for judge in value if isinstance(judge, dict) and "model" in judge]
            roles.judged(draft, f"judges of a source of {found[0].key if found else ''}: {', '.join(models)}")
        elif key.endswith(".algo.teacher.name"):
            roles.judged(draft, f"algo.teacher of a source: {value}, on a server of its own")
    for source in sources[:20]:
        if isinstance(source, dict) and source.get("group_size", group.value) != group.value:
            draft.note("group_size of a source", f"all groups have {group.value} samples here")
    return sources[:20]


def _gpus(draft: Draft) -> int:
    tp = draft.take("engine.tp", draft.count("inference.vllm.tensor_parallel_size", "inference.parallel.tp", default=1))
    kind = draft.choice("deployment.type", default="single_node", known=("single_node", "multi_node"))
    alone = kind.value != "multi_node"
    apart = not alone and draft.text("inference.deployment.type", default="").value == "disaggregated"
    # configs/rl.py, auto_setup_deployment: ranks take all GPUs of a replica, whatever their number is said to be
    experts = draft.flag("inference.vllm.enable_expert_parallel", default=apart)
    replicas = draft.count("deployment.num_infer_replicas", default=1)
    if not alone:
        per_node = draft.count("deployment.gpus_per_node", default=8)
        nodes = draft.needed_count("deployment.num_train_nodes", remedy="-- --deployment.num_train_nodes 1")
        if apart:
            infer_nodes = _sides(draft, per_node, tp, experts)
        else:
            infer_nodes = draft.count("deployment.num_infer_nodes", "inference.deployment.num_nodes", default=1)
        trainer, rollout = times(nodes, per_node), times(infer_nodes, replicas, per_node)
        together = times(infer_nodes, per_node)
    else:
        trainer = common.listed(draft, "trainer_gpu_ids", "GPUs") or draft.count("deployment.num_train_gpus", default=1)
        rollout = common.listed(draft, "inference_gpu_ids", "GPUs") or draft.count(
            "deployment.num_infer_gpus", default=1
        )
        node = draft.count("deployment.gpus_per_node", default=8)
        if trainer.value + rollout.value > node.value:
            rule = f"with {trainer} is more than a node's {node.value} GPUs"
            draft.refuse(rollout.key, rollout.value, rule, "deployment.type = multi_node, with nodes for each")
        together = rollout
    draft.put("trainer.gpus", trainer.value, trainer)
    if apart:
        draft.put("fleet.instances", replicas.value, replicas, why="engines that compute prompts, others that decode")
    else:
        _ranks(draft, rollout, together, tp, experts, alone)
    put_rows(draft, "engine", "inference.vllm.")
    host = draft.maybe_number(_HOST, "inference.kv_cache_offload.cpu_bytes", most=1e15)
    if apart and host is not None:
        draft.note(str(host), "an instance whose engines compute prompts apart has no host's memory here")
        host = None
    store, of = draft.text("inference.kv_cache_offload.type", default="native"), 2.0**30
    if store.value == "mooncake" and host is not None:  # the bytes are those of a node
        of *= draft.count("deployment.gpus_per_node", default=8).value / tp.value
        draft.note(f"{store.key} = mooncake", "a store of all nodes: each instance has its own part of it here")
    gib = None if host is None else Read(f"{host.key} in GiB", host.value / of, True)
    back = lambda want: None if want is None else {_HOST: int(want * of)}  # noqa: E731
    draft.where_said("engine.kv_offloading_gib", gib, back=back)
    vllm_drafts(draft, "inference.vllm.speculative_config.", "inference.vllm.speculative_config")
    return max(1, rollout.value // tp.value)


def _ranks(
    draft: Draft, rollout: Read[int], together: Read[int], tp: Read[int], experts: Read[bool], alone: bool
) -> None:
    """Instances, each a rank; together: GPUs of those that share experts, alone: on the one node that there is."""
    instances = draft.parted("fleet.instances", rollout, tp)
    dp = draft.count("inference.vllm.data_parallel_size", "inference.parallel.dp", default=1)
    if dp.value > instances:
        draft.refuse(dp.key, dp.value, f"needs more than {rollout} with {tp}", "use fewer data-parallel ranks")
    sharing = max(1, together.value // tp.value)
    shared = lambda want: {experts.key: True, dp.key: want} if want > 1 else {experts.key: False}  # noqa: E731 a table
    share, why = experts.value and instances % sharing == 0, "ranks that share the experts, each an instance"
    draft.where(share, "engine.dp", sharing, together, tp, experts, now=1, why=why, back=shared, unless=1)
    if alone:
        draft.could("fleet.instances", instances, lambda want: {dp.key: want})  # the servers of one node


def _sides(draft: Draft, per_node: Read[int], tp: Read[int], experts: Read[bool]) -> Read[int]:
    """Nodes of a replica: vLLM instances that compute prompts, and those that decode (configs/inference.py)."""
    section, nodes = "inference.deployment", []
    _overrides(draft, f"{section}.decode_vllm_overrides", f"{section}.prefill_vllm_overrides")
    for side in ("prefill", "decode"):
        each = draft.count(f"{section}.{side}_nodes_per_replica", default=1)
        of = draft.count(f"{section}.num_{side}_replicas", default=1)
        ranks = Read(f"{each} x {per_node} / {tp}", max(1, each.value * per_node.value // tp.value), True)
        whole = lambda want, of=of, n=ranks.value: {of.key: want // n} if want and want % n == 0 else None  # noqa: E731
        draft.put(f"{SIDES}.{side}", of.value * ranks.value, of, ranks, back=whole)
        draft.where(experts.value, f"{SIDES}.{side}_dp", ranks.value, ranks, experts, now=1, back=never, unless=1)
        nodes.append(times(of, each))
    return Read(" + ".join(side.key for side in nodes), sum(side.value for side in nodes), True)


def _overrides(draft: Draft, decode: str, prefill: str) -> None:
    """What vLLM is handed for the engines of one side alone: `engine` has those that decode."""
    settings, path, chunk = draft.settings, f"{SIDES}.max_num_batched_tokens", "max_num_batched_tokens"
    usual = draft.maybe_count(f"{prefill}.{chunk}", f"inference.vllm.{chunk}")
    draft.where_said(path, usual if settings.below(decode) or settings.below(prefill) else None, f"{prefill}.{chunk}")
    if usual is None and settings.has(f"{decode}.{chunk}"):
        why = "vLLM's own, of engines that compute prompts, on a GPU of 70 GiB or more"
        draft.assume(path, 8192, why, f"-- {prefill}.{chunk} 8192")
    for key in settings.below(decode):
        settings.found[f"inference.vllm{key.removeprefix(decode)}"] = settings.found[key]
        settings.see(key)
    for key in settings.below(prefill):
        if not key.endswith(chunk):
            draft.note(key, "of engines that compute prompts alone: they are as those that decode here")
            settings.see(key)


def _admission(draft: Draft, batch: Read[int], group: Read[int], instances: int) -> None:
    level = draft.maybe_count(*_LEVEL, least=0)
    if level is not None:
        put_rows(draft, "level")
    else:
        # src/prime_rl/orchestrator/orchestrator.py: TARGET_LAG, update_dispatch_gate
        ahead = "one batch ahead of the trainer; then nothing starts"
        draft.put("buffer.capacity_samples", batch.value, batch, why=ahead)
        most, least = (draft.count(f"{_FLIGHT}.{word}_inflight", default=n) for word, n in (("max", 1024), ("min", 1)))
        start = draft.maybe_count(f"{_FLIGHT}.initial_inflight")
        if least.value == most.value and least.given:
            put_rows(draft, "fixed pool")
            back = lambda want: {most.key: want, least.key: want}  # noqa: E731
            draft.put("admission.pool_samples", max(most.value, group.value), most, least, back=back)
        else:
            put_rows(draft, "adaptive")
            draft.put("admission.adaptive.most_samples", max(most.value, group.value), most)
            if start is not None:
                draft.put("admission.adaptive.start_samples", min(start.value, most.value), start)
            else:
                first = min(max(group.value, 32 * instances), most.value)
                draft.could("admission.adaptive.start_samples", first, writes(f"{_FLIGHT}.initial_inflight"))
                draft.assume("admission.adaptive.start_samples", first, "prime-rl derives it from the KV cache")
    put_rows(draft, "age")

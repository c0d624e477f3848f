"""slime (THUDM/slime at 624b824a8): train.py, train_async.py and the fully asynchronous rollout function; and Miles
(radixark/miles at 31f1ca961), which is slime with FSDP, adapters and another word for how weights travel.

Names and defaults: slime/utils/arguments.py, slime/backends/sglang_utils/arguments.py; what they do: train.py,
train_async.py, slime/rollout/sglang_rollout.py, slime/rollout/fully_async_rollout.py.
"""

from __future__ import annotations

import math
import re

from fleetsim.frameworks import common, micro_batch, roles
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read, never, one_of, switched, times, turned
from fleetsim.frameworks.sides import adapter, pooled, sglang_drafts
from fleetsim.frameworks.tables import put_rows

_OF_MILES = re.compile(r"(\A|[/.])miles([/.]|\Z)")
_FILTER = "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from slime's flags."""
    settings = draft.settings
    _read_roles(draft)
    function = draft.text("rollout_function_path", default="slime.rollout.sglang_rollout.generate_rollout")
    fully = "fully_async" in function.value
    ahead = settings.runs("train_async") and not fully
    draft.mode = "fully asynchronous" if fully else "train_async.py" if ahead else "train.py"
    draft.preset = "slime-fully-async" if fully else "slime-async" if ahead else "slime-sync"
    batch = draft.needed_count("rollout_batch_size", remedy="-- --rollout-batch-size 32")
    n = put_rows(draft, "model")["workload.group_size"]
    samples = draft.product("trainer.batch_samples", batch, n, why="prompts x responses")
    whole, steps = draft.maybe_count("global_batch_size"), draft.maybe_count("num_steps_per_rollout")
    if steps is None:
        common.optimizer_steps(draft, samples, whole, "global_batch_size")
    if whole is not None and whole.value > samples.value:
        rule = f"is more than a rollout has: {batch} x {n}"
        draft.refuse(whole.key, whole.value, rule, f"use {samples.value} or less")
    if steps is not None:
        draft.put("trainer.recipe.optimizer_steps", steps.value, steps, why="they count as one step", unless=1)
    # A generation of the user's own has turns, each of which may be as long as a response; the context bounds all.
    own = draft.maybe_text("custom_generate_function_path")
    roles.put_turns(draft, None, "", "" if own is None else str(own))
    # max_seq_len: of Miles' agents (miles/rollout/generate_hub/agentic_tool_call.py)
    turn = draft.maybe_count("rollout_max_response_len")
    context = draft.maybe_count("rollout_max_context_len", "max_seq_len")
    if turn is not None and own is not None:
        turn = roles.trajectory(draft, turn, None, context, several=True)
    asked = "rollout_max_prompt_len"
    common.lengths(draft, turn, draft.maybe_count(asked), output_key="rollout_max_response_len", prompt_key=asked)
    instances, ranks = _gpus(draft, async_=ahead or fully)
    _admission(draft, batch, n, instances, ranks, fully=fully, ahead=ahead)
    way = draft.text("update_weight_transport", "update_weight_transfer_mode", default="nccl")
    weights = draft.text("update_weight_mode", default="full")
    words = {**dict.fromkeys(("nccl", "broadcast"), "collective_broadcast"), "disk": "checkpoint_shuttle"}
    words |= {**dict.fromkeys(("delta", "disk-delta"), "sparse_delta"), "p2p": "rdma_p2p"}
    common.transport(draft, weights if weights.value == "delta" else way, words)
    put_rows(draft, "requests")
    sampling = draft.maybe_text("dynamic_sampling_filter_path")
    on = one_of({True: {"dynamic_sampling_filter_path": _FILTER}})
    common.filtering(draft, Read("--dynamic-sampling-filter-path", sampling is not None, True, on))
    loss = draft.flag("use_kl_loss", default=False)
    reference, taught = loss.value or draft.number("kl_coef", default=0.0).value > 0, _taught(draft)
    if reference and taught:
        draft.note("use_opd", "the passes of a reference and of a teacher: one of them is timed, --set trainer.phases")
    # slime/utils/arguments.py and ray/placement_group.py: a critic of the actor's GPUs, in turn with it
    estimator = draft.text("advantage_estimator", default="grpo")
    penalty = Read(loss.key, reference, True, loss.written)
    common.hardware_and_times(draft, speed, _own_pass(draft, estimator.value), penalty, taught=taught)
    put_rows(draft, "trainer", "")
    roles.critic(draft, estimator, estimator.value == "ppo", switched(estimator.key, "ppo", "grpo"))
    put_rows(draft, "offload")
    # its patch of Megatron (docker/patch), linear layers; the engine's weights are those of the checkpoint
    int4 = draft.flag("launcher.runtime_env_json.env_vars.OPEN_TRAINING_INT4_FAKE_QAT_FLAG", default=False)
    if int4.value:
        micro_batch.imitated(draft, int4)
    backend, rank = draft.text("train_backend", default=""), draft.count("lora_rank", default=0, least=0)
    put_rows(draft, "fsdp" if backend.value == "fsdp" else "megatron", "")
    if backend.value == "fsdp":
        draft.put("trainer.recipe.backend", "fsdp", backend, back=one_of({}))
    if rank.value:
        roles.adapters(draft, rank)
        adapter(draft, rank, merged=draft.flag("lora_train_only", default=False))
    roles.judges(draft, "rm_url", "custom_rm_path")


def _own_pass(draft: Draft, estimator: str) -> Read[bool]:
    """Whether the policy passes before its update, and what asks for it (slime/backends/megatron_utils/actor.py,
    `can_reuse_log_probs_in_loss`): where the update is one, it takes its own log-probs. In Miles it always passes by
    FSDP (miles/backends/fsdp_utils/actor.py), and by Megatron unless it is told not to."""
    kept, old = (draft.flag(key, default=False) for key in ("use_rollout_logprobs", "keep_old_actor"))
    compared = draft.flag("get_mismatch_metrics", default=False).value
    penalty = draft.number("kl_coef", default=0.0).value
    loss = draft.text("loss_type", default="policy_loss").value
    replayed, recorded = (draft.flag(f"use_{word}routing_replay", default=False) for word in ("", "rollout_"))
    others = old.value or compared or penalty or draft.flag("use_opd", default=False).value
    others = others or estimator in ("ppo", "gspo") or loss != "policy_loss" or (replayed.value and not recorded.value)
    several = draft.values.get("trainer.recipe.optimizer_steps", 1) > 1
    if compared or draft.text("train_backend", default="").value == "fsdp":
        return Read(kept.key, True, True, never)
    if any(_OF_MILES.search(str(setting.value)) for setting in draft.settings.found.values()):
        skipped = draft.flag("skip_actor_forward_only", default=False)
        return turned(kept if kept.value else skipped)
    return turned(kept) if kept.value or several or others else old


def _taught(draft: Draft) -> bool:
    """On-policy distillation: a teacher that Megatron runs passes as a reference does, one of SGLang is a server."""
    if not draft.flag("use_opd", default=False).value:
        return False
    kind = draft.text("opd_type", default="megatron")
    if kind.value == "megatron":
        roles.passed(draft, str(draft.text("opd_teacher_load", default="a teacher")))
    else:
        roles.judged(draft, f"{kind}: a teacher on a server of its own")
    return kind.value == "megatron"


def _read_roles(draft: Draft) -> None:
    """Relax, a fork: groups and GPUs of each role in one setting."""
    keys = {"actor": "actor_num_gpus_per_node", "rollout": "rollout_num_gpus"}
    for name in draft.settings.below("resource"):
        found = draft.settings.get(name)
        if found is None or not isinstance(found[1], list) or not all(type(n) is int for n in found[1]):
            continue
        gpus, role = math.prod(found[1]), name.rpartition(".")[2]
        if role == "rollout" and draft.settings.has("colocate"):
            continue
        if role in keys:
            draft.settings.add(keys[role], gpus)
        else:
            draft.other_gpus += gpus
            draft.note(f"{found[0].key} = {found[1]}", "its GPUs are in no pool of the plan")


def _gpus(draft: Draft, async_: bool) -> tuple[int, int]:
    trainer = put_rows(draft, "trainer GPUs")["trainer.gpus"]
    together = draft.flag("colocate", default=False)
    if together.value and async_:
        draft.refuse(together.key, True, "train_async.py has no colocated mode", "drop it, or run train.py")
    rollout = draft.maybe_count("rollout_num_gpus") or (trainer if together.value else None)
    if rollout is None:
        rollout = draft.needed_count("rollout_num_gpus", remedy="-- --rollout-num-gpus 8, or -- --colocate")
    places = {"disaggregated": {together.key: False}} | ({} if async_ else {"colocated": {together.key: True}})
    draft.put("fleet.placement", "colocated" if together.value else "disaggregated", together, back=one_of(places))
    instances, ranks = _layout(draft, rollout)
    put_rows(draft, "engine")
    of_a_server = lambda key: lambda want: None if want is None else {key: want * ranks}  # noqa: E731 shared by ranks
    running = draft.count("sglang_max_running_requests", default=1)
    seqs, shared = max(1, running.value // ranks), of_a_server(running.key)
    draft.where(running.given, "engine.max_num_seqs", seqs, running, back=shared)
    chunk = draft.count("sglang_chunked_prefill_size", default=1, least=-1)
    if chunk.value > 0:
        tokens, back = max(1, chunk.value // ranks), of_a_server(chunk.key)
        draft.where(chunk.given, "engine.max_num_batched_tokens", tokens, chunk, back=back)
    else:
        whole = draft.count("sglang_max_prefill_tokens", default=16384)
        why = "prompts are not cut"
        draft.put("engine.max_num_batched_tokens", whole.value, chunk, whole, why=why, back=whole.written)
    put_rows(draft, "cache")
    sglang_drafts(draft, "sglang_", draft.flag("enable_mtp_training", default=False))
    return instances, ranks


def _layout(draft: Draft, rollout: Read[int]) -> tuple[int, int]:
    """Instances, and the ranks of one SGLang server, each of them an instance.

    A server's GPUs are its pipeline stages times its tensor parallelism, which attention with data parallelism divides
    among its ranks, with the running requests and the chunk (slime/backends/sglang_utils/sglang_engine.py; SGLang,
    srt/server_args.py).
    """
    each = draft.count("rollout_num_gpus_per_engine", default=1)
    stages = draft.count("sglang_pp_size", "sglang_pipeline_parallel_size", default=1)
    attention = draft.flag("sglang_enable_dp_attention", default=False)
    size = draft.count("sglang_dp_size", "sglang_data_parallel_size", default=1)
    ranks = size.value if attention.value else 1
    reads = [r for r in (each, stages, size) if r is each or (r.value > 1 and (r is not size or ranks > 1))]
    tp, rest = divmod(each.value, stages.value * ranks)
    if rest:
        draft.refuse(each.key, each.value, f"must be a multiple of {times(*reads[1:])}", "change one of them")
    others = stages.value * ranks
    draft.put("engine.tp", max(1, tp), *reads, back=lambda want: each.written(want * others))
    draft.put("engine.pp", stages.value, stages, unless=1)
    back = lambda want: {attention.key: want > 1, size.key: want}  # noqa: E731 a table of two
    draft.put("engine.dp", ranks, size, attention, why="ranks of a server, each an instance", back=back, unless=1)
    sent = draft.maybe_text("sglang_moe_a2a_backend")
    if (sent is not None and sent.value == "deepep") or draft.flag("sglang_enable_deepep_moe", default=False).value:
        draft.semantics("engine.expert_exchange", "all_to_all", "DeepEP")
    put_rows(draft, "overlap")
    servers = draft.divided("the number of engines", rollout, each)
    key = rollout.key if " " not in rollout.key else "rollout_num_gpus"  # colocated, the trainer's say it
    if ranks == 1:
        pool = Read(rollout.key, servers, rollout.given, lambda want: {key: want * each.value})
        prompts = draft.maybe_count("prefill_num_servers", least=0)
        asked = prompts if prompts is not None and prompts.value else None
        instances = pooled(draft, pool, asked, "prefill_num_servers", {})
        if asked is not None:
            return instances, ranks
    elif draft.settings.get("prefill_num_servers"):
        draft.note("prefill_num_servers", "prefill servers whose ranks share attention")
    gpus = lambda want: None if want % ranks else {key: want // ranks * each.value}  # noqa: E731 of whole servers
    draft.put("fleet.instances", servers * ranks, rollout, *reads, back=gpus)
    if draft.settings.has_lost("sglang_config") or draft.settings.get("sglang_config"):
        why = "sglang_config: a file of its own says which engines there are"
        draft.assume("fleet.instances", servers * ranks, why, "--set fleet.instances=N --set engine.tp=N")
    return servers * ranks, ranks


def _admission(
    draft: Draft, batch: Read[int], n: Read[int], instances: int, ranks: int, *, fully: bool, ahead: bool
) -> None:
    concurrency = draft.count("sglang_server_concurrency", default=512)
    most = -(-concurrency.value // ranks)
    servers = lambda want: None if want is None else {concurrency.key: want * ranks}  # noqa: E731
    draft.put("fleet.max_in_flight_samples_per_instance", max(most, n.value), concurrency, back=servers)
    if fully:
        engines = instances // ranks
        pool = concurrency.value * engines * n.value
        draft.semantics("admission.law", "fixed_pool", "as many groups are active as the servers' concurrency")
        draft.put("admission.pool_samples", pool, concurrency, n, why=f"groups per engine, {engines} engines")
        draft.put("buffer.capacity_samples", max(pool, batch.value * n.value), concurrency, n, why="the output queue")
        put_rows(draft, draft.mode)
        return
    put_rows(draft, draft.mode)
    over = draft.maybe_count("over_sampling_batch_size")
    if over is not None and over.value < batch.value:
        draft.refuse(over.key, over.value, f"must not be below {batch}", f"use {batch.value} or more")

    common.oversampled(draft, over, batch, "over_sampling_batch_size")
    put_rows(draft, "leftover")

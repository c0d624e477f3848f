"""SkyRL (NovaSky-AI/SkyRL at a9564572e): colocated and separate synchronous training, one step ahead, fully async.

Names and defaults: skyrl/train/config/config.py; what they do: skyrl/train/trainer.py,
skyrl/train/fully_async_trainer.py (_AsyncStalenessManager), examples/train/async/async_trainer.py and
skyrl/backends/skyrl_train/inference_servers/vllm_server_actor.py.
"""

from __future__ import annotations

from typing import Any

from fleetsim.frameworks import common, roles
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read, never, on_nodes, one_of, switched, times, writes
from fleetsim.frameworks.sides import ADAPTERS, adapter, pooled, vllm_drafts
from fleetsim.frameworks.tables import put_rows

_CORRECTIONS = (
    "tis_ratio_type",
    "sequence_mask_metric",
    "outlier_token_is_threshold_low",
    "outlier_token_is_threshold_high",
)
ENGINE, POLICY = "generator.inference_engine", "trainer.policy"


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from SkyRL's keys."""
    settings = draft.settings
    fully = draft.flag("trainer.fully_async.enabled", default=settings.runs("fully_async"))
    ahead = settings.runs("main_async", "async_trainer") and not fully.value
    together = draft.flag("trainer.placement.colocate_all", default=True)
    other = draft.maybe_text("trainer.override_entrypoint")
    if other is not None:
        if "arctic_rl" in other.value:  # integrations/arctic_rl/config.py
            together = draft.flag("trainer.arctic_rl.colocate", default=False)
        draft.note(str(other), "another trainer and engine: of what it alone has, only its placement is read")
    draft.mode = "fully async" if fully.value else "one step ahead" if ahead else "synchronous"
    draft.preset = "skyrl-fully-async" if fully.value else "verl-one-step-off" if ahead else "verl-sync"
    if together.value and (fully.value or ahead):
        rule = "asynchronous training has GPUs of its own for rollout"
        draft.refuse(together.key, True, rule, f"{together.key}=false")
    n = put_rows(draft, "model")["workload.group_size"]
    _batch(draft, n, fully=fully.value)
    _lengths(draft)
    _gpus(draft, together)
    _engine(draft)
    if fully.value:
        _fully_async(draft, n)
    else:
        put_rows(draft, draft.mode)
    put_rows(draft, "requests")
    drops = draft.flag("trainer.algorithm.zero_variance_filter", default=False)
    sampled = draft.maybe_text("trainer.algorithm.dynamic_sampling.type")  # filter (DAPO) or replace
    common.filtering(draft, drops if sampled is None or drops.value else Read(sampled.key, True, True, drops.written))
    _recipe(draft, speed)
    _roles(draft, together)
    # skyrl/train/utils/utils.py, validate_batch_sizes: a rank's share of a batch, rounded down, is whole shares of an
    # update
    mini = times(draft.count("trainer.policy_mini_batch_size", default=256), n)
    batch, ranks = times(draft.count("trainer.train_batch_size", default=1024), n), common.ranks(draft, mini)
    of_batch, of_update = batch.value // ranks, mini.value // ranks
    if of_update and of_batch % of_update:
        each = f"gives each of {ranks} data-parallel ranks {of_batch} samples"
        rule, remedy = f"{each}, no multiple of the {of_update} of an update", "have a batch that the ranks divide"
        draft.refuse(batch.key, batch.value, rule, f"{remedy}, or other trainer GPUs")


def _lengths(draft: Draft) -> None:
    """skyrl/train/generators/skyrl_gym_generator.py, agent_loop: a turn generates up to its cap, and none begins with
    more than `max_input_length` tokens."""
    turn = draft.count("generator.sampling_params.max_generate_length", default=1024)
    prompt = draft.count("trainer.max_prompt_length", default=512)
    settings, kind = draft.settings, draft.text("environment.env_class", default="").value
    trial = "harbor_trial_config.agent"  # examples/train_integrations/harbor/harbor_generator.py
    late = draft.maybe_number(f"{trial}.override_timeout_sec")
    roles.limited(draft, "episode", late, "masked", "AgentTimeoutError: with its whole group there, here alone")
    own = draft.maybe_count(f"{trial}.kwargs.max_turns")
    loops = settings.has("harbor_trial_config", "generator.task")
    several = loops or "multi_turn" in kind or settings.runs("harbor", "mini_swe", "openenv", "verifiers", "multi_turn")
    turns = own or draft.maybe_count("generator.max_turns")
    if several and own is None and (turns is None or turns.value == 1):
        turns = None
    pool = "environment.skyrl_gym.max_env_workers"
    threads = draft.maybe_count(pool, least=0)  # without threads, its own loop makes one step after the other
    threads = threads and Read(threads.key, max(1, threads.value), True, threads.written)
    roles.workers(draft, "tools" if several or (turns and turns.value > 1) else "reward", [threads], pool)
    limit = "generator.rate_limit"
    if draft.flag(f"{limit}.enabled", default=False).value and not draft.settings.has("trainer.fully_async.enabled"):
        most = draft.maybe_count(f"{limit}.max_concurrency")
        draft.where_said("fleet.max_in_flight_samples", most, f"{limit}.max_concurrency", back=lambda _: None)
        draft.leave_out({f"{limit}.trajectories_per_second": "trajectories that may begin in a second"})
    roles.put_turns(draft, turns, "generator.max_turns", "an environment of several turns" if several else "")
    most = draft.maybe_count("generator.max_input_length") or prompt
    key = "generator.max_input_length"
    longest = lambda want: writes(key)(max(want - turn.value, prompt.value))  # noqa: E731 what a turn begins with
    whole = Read(f"{most.key} {most.value} + {turn.key}", most.value + turn.value, most.given, longest)
    bounded = own is None and turns is not None and turns.value > 1
    common.lengths(draft, roles.trajectory(draft, turn, turns, whole if bounded else None, key), prompt)


def _roles(draft: Draft, together: Read[bool]) -> None:
    """A critic, a reference model's own GPUs, adapters, a judge. trainer.py, `has_critic`: a path makes one."""
    place, path = "trainer.placement", draft.maybe_text("trainer.critic.model.path")
    gpus = roles.nodes(draft, f"{place}.critic_num_nodes", f"{place}.critic_num_gpus_per_node")
    key = Read("trainer.critic.model.path", None, False)
    its_batch = {"trainer.critic_mini_batch_size": "${trainer.policy_mini_batch_size}"}
    with_it = one_of({True: {key.key: "${trainer.policy.model.path}", **its_batch}, False: {}})
    roles.critic(draft, path or key, path is not None, with_it, 0 if together.value else gpus)
    shared = draft.flag(f"{place}.colocate_policy_ref", default=True).value or together.value
    gpus = roles.nodes(draft, f"{place}.ref_num_nodes", f"{place}.ref_num_gpus_per_node")
    if _reference(draft) and gpus and not shared:
        roles.passed(draft, f"{place}.colocate_policy_ref = false: the reference model", gpus)
    model = draft.maybe_text("trainer.ref.model.path")
    if model is not None and model.value != draft.text("trainer.policy.model.path", default="").value:
        roles.passed(draft, f"{model}, not the policy's")
    roles.judges(draft, "environment.skyrl_gym.llm_as_a_judge.model")
    roles.adapters(draft, draft.count("trainer.policy.model.lora.rank", default=0, least=0))


def _batch(draft: Draft, n: Read[int], *, fully: bool) -> None:
    """A step's prompts. Fully asynchronous training takes mini-batches, and asks that both be equal."""
    batch = draft.count("trainer.train_batch_size", default=1024)
    mini = draft.count("trainer.policy_mini_batch_size", default=256)
    if not fully:
        draft.product("trainer.batch_samples", batch, n, why="prompts x responses")
        common.optimizer_steps(draft, batch, mini, mini.key)
        draft.divided("the number of updates", batch, mini)
        return
    if batch.value != mini.value:
        draft.refuse(batch.key, batch.value, f"must equal {mini} in fully asynchronous training", "make them equal")

    both = lambda want: None if want % n.value else dict.fromkeys((batch.key, mini.key), want // n.value)  # noqa: E731
    draft.put("trainer.batch_samples", mini.value * n.value, mini, n, why="prompts x responses", back=both)


def _gpus(draft: Draft, together: Read[bool]) -> None:
    place = "trainer.placement.policy_num"
    nodes, each = (draft.count(f"{place}_{word}", default=1) for word in ("nodes", "gpus_per_node"))
    gpus = on_nodes(nodes, each, exact=True)

    def with_reference(want: int) -> dict[str, Any]:
        policy = gpus.written(want) or {}  # the reference model sits on the same GPUs, and must have as many
        return {**policy, **{key.replace("policy", "ref"): value for key, value in policy.items()}}

    draft.put("trainer.gpus", gpus.value, gpus, back=with_reference)
    engines = draft.count(f"{ENGINE}.num_engines", default=1)
    engines = common.listed(draft, f"{ENGINE}.external_server_urls", "servers") or engines  # others', an engine each
    tp, pp, dp = put_rows(draft, "ranks", f"{ENGINE}.").values()
    apart = draft.flag(f"{ENGINE}.enable_pd", default=False)
    asked = draft.count(f"{ENGINE}.num_prefill", default=1) if apart.value else None
    pooled(draft, engines, asked, f"{ENGINE}.num_prefill", {apart.key: True})
    if asked is None:
        draft.product("fleet.instances", engines, *([] if dp.value == 1 else [dp]))
    draft.either("fleet.placement", together, "colocated", "disaggregated")
    used = times(engines, dp, tp, pp)
    if together.value and used.value != gpus.value:
        draft.refuse(engines.key, engines.value, f"{used} must be the policy's {gpus}, which it shares", "change one")


def _engine(draft: Draft) -> None:
    put_rows(draft, "engine", f"{ENGINE}.")
    # Megatron sends merged weights (skyrl/train/entrypoints/main_base.py)
    rank = draft.count("trainer.policy.model.lora.rank", default=0, least=0)
    megatron = draft.text("trainer.strategy", default="fsdp").value == "megatron"
    merges = "trainer.policy.megatron_config.lora_config.merge_lora"
    adapter(draft, rank, merged=draft.flag(merges, default=True) if megatron else None)
    if draft.values.get(f"{ADAPTERS}.rank") is None:  # with adapters it is turned off (skyrl/train/config/config.py)
        put_rows(draft, "graphs")
    trained = draft.flag("trainer.mtp.enabled", default=False)
    if trained.value and not draft.settings.has(f"{ENGINE}.speculative_config"):  # utils.py, _apply_mtp_config
        vllm_drafts(draft, "trainer.mtp.", trained, switch=trained, alone="mtp")
    else:
        vllm_drafts(draft, f"{ENGINE}.speculative_config.", trained)


def _fully_async(draft: Draft, n: Read[int]) -> None:
    section = "trainer.fully_async"
    staleness = put_rows(draft, "staleness")["admission.max_staleness"]
    workers = draft.count(f"{section}.num_parallel_generation_workers", default=768)
    mini = draft.count("trainer.policy_mini_batch_size", default=256)
    least, limit = mini.value, mini.value * (staleness.value + 1)
    if not least <= workers.value <= limit:
        rule = f"must be from {least} ({mini.key}) to {limit} (times {section}.max_staleness_steps + 1)"
        draft.refuse(workers.key, workers.value, rule, "change one of the three")

    def within(want: int | None) -> dict[str, int]:
        """As many as SkyRL allows that come next to what is wanted; no limit is as many as it allows."""
        return {workers.key: limit if want is None else min(max(want // n.value, least), limit)}

    most, why = workers.value * n.value, "a worker has a group"
    draft.put("fleet.max_in_flight_samples", most, workers, n, why=why, back=within)
    put_rows(draft, "fully async")


def _reference(draft: Draft) -> bool:
    """trainer.py: a penalty in the loss or in the reward needs a reference model."""
    loss = draft.flag("trainer.algorithm.use_kl_loss", default=True).value
    return loss or draft.flag("trainer.algorithm.use_kl_in_reward", default=False).value


def _own_pass(draft: Draft) -> Read[bool]:
    """trainer.py, _skip_policy_forward: the pass of the policy, and the loss that needs it or not."""
    section, own = "trainer.algorithm", "generator.sampling_params.logprobs"
    loss, anchor = (draft.text(f"{section}.{key}", default="") for key in ("policy_loss_type", "cispo.cispo_anchor"))
    without = loss.value in ("rollout_is", "dppo") or (loss.value == "cispo" and anchor.value == "rollout")
    corrected, every = f"{section}.off_policy_correction", "token_mask_is_threshold"
    marks = [f"{corrected}.{key}" for key in _CORRECTIONS]
    both = all(draft.settings.has(f"{corrected}.{every}_{end}") for end in ("low", "high"))
    read = both or draft.settings.has(*marks) or draft.flag(f"{section}.use_kl_in_reward", default=False).value
    read = read or (own in draft.settings.found and not draft.settings.has(own))
    draft.settings.see(corrected, own)
    back = never if read else switched(loss.key, "dual_clip", "rollout_is")
    return Read(loss.key, not without or read, True, back)


def _recipe(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """The update: PolicyConfig, FSDPConfig, MegatronConfig and OptimizerConfig of config.py."""
    loss = draft.flag("trainer.algorithm.use_kl_loss", default=True)
    common.hardware_and_times(draft, speed, _own_pass(draft), Read(loss.key, _reference(draft), True, loss.written))
    put_rows(draft, "trainer")
    megatron = draft.values.get("trainer.recipe.backend") == "megatron"
    for block in ("megatron" if megatron else "fsdp", "memory"):
        put_rows(draft, block, f"{POLICY}.megatron_config.")

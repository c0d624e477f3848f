"""Parts of verl's reader: GPUs and batch, models beside the actor, the update, drafts. Sources: `verl.py`."""

from __future__ import annotations

from fleetsim.frameworks import recipe, roles
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read, on_nodes, one_of, parts_of, times
from fleetsim.frameworks.roles import put_turns
from fleetsim.frameworks.sides import PATH, frozen, replicas, sglang_drafts, vllm_drafts

ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
ENGINE = f"{ROLLOUT}.engine_kwargs.vllm"
# A group of the trainer's defaults goes before the actor's own word.
_ENGINE_KEYS = ("model_engine", f"{ACTOR}.model_engine", f"{ACTOR}.strategy", f"{ACTOR}.fsdp_config.strategy")


def instance_gpus(draft: Draft) -> Read[int]:
    """GPUs of one instance."""
    tp = draft.count(f"{ROLLOUT}.tensor_model_parallel_size", default=2)
    both = replicas(draft, f"{ROLLOUT}.disaggregation", tp)
    if both is not None:
        return both
    draft.put("engine.tp", tp.value, tp)
    pp = draft.count(f"{ROLLOUT}.pipeline_model_parallel_size", default=1)
    dp = draft.count(f"{ROLLOUT}.data_parallel_size", default=1)
    if pp.value > 1:  # verl/workers/config/rollout.py, RolloutConfig
        draft.refuse(pp.key, pp.value, "verl's rollout has no pipeline stages", "use tensor parallelism")
    draft.could("engine.pp", 1, one_of({}), 1)
    draft.put("engine.dp", dp.value, dp, why="ranks of an engine, each an instance", unless=1)
    return tp


def trainer_gpus(draft: Draft) -> Read[int]:
    """GPUs of the trainer, which it puts."""
    nodes = draft.count("trainer.nnodes", default=1)
    per_node = draft.count("trainer.n_gpus_per_node", default=8)
    gpus = on_nodes(nodes, per_node)
    draft.put("trainer.gpus", gpus.value, gpus)
    return gpus


def rollout_batch(draft: Draft, n: Read[int]) -> Read[int]:
    """Prompts of a batch. It puts the batch, and the optimizer steps where they are mini-batches of it."""
    batch = draft.count("data.train_batch_size", default=1024)
    back = times(batch, n).written
    draft.put("trainer.batch_samples", batch.value * n.value, batch, n, why="prompts x responses", back=back)
    if "separate" not in draft.mode:
        mini = draft.count(f"{ACTOR}.ppo_mini_batch_size", default=256)
        recipe.optimizer_steps(draft, batch, mini, mini.key, "their updates count as one step")
    return batch


def put_instances(draft: Draft, gpus: Read[int], per_instance: Read[int]) -> None:
    """Instances that so many GPUs make."""
    value = draft.divided("the number of instances", gpus, per_instance)
    draft.put("fleet.instances", value, gpus, per_instance, back=parts_of(gpus, per_instance))


def rollout_gpus(draft: Draft, per_instance: Read[int], section: str) -> None:
    """Instances on GPUs of their own. section: where their nodes stand."""
    nodes = draft.count(f"{section}.nnodes", default=1)
    per_node = draft.maybe_count(f"{section}.n_gpus_per_node") or draft.count("trainer.n_gpus_per_node", default=8)
    gpus = on_nodes(nodes, per_node, per_node_key=f"{section}.n_gpus_per_node", part=per_instance.value)
    put_instances(draft, gpus, per_instance)
    draft.semantics("fleet.placement", "disaggregated", "rollout has GPUs of its own")


def put_roles(draft: Draft) -> None:
    """Models beside the actor: verl/trainer/config/distillation/distillation.yaml and reward/reward.yaml. Teachers
    answer from engines of their own, a reward model from the trainer's GPUs or a pool of its own."""
    settings = draft.settings
    if draft.flag("distillation.enabled", default=False).value:
        gpus = roles.nodes(draft, "distillation.nnodes", "distillation.n_gpus_per_node", 8)
        (roles.taught if gpus else roles.judged)(draft, "distillation.enabled: teachers", gpus)
    for reward in ("reward.reward_model", "reward_model"):
        if draft.flag(f"{reward}.enable", default=False).value:
            pool = draft.flag(f"{reward}.enable_resource_pool", default=False).value
            gpus = roles.nodes(draft, f"{reward}.nnodes", f"{reward}.n_gpus_per_node", 8) if pool else 0
            roles.judged(draft, f"{reward}.enable: a reward model", gpus)
    # reward.num_workers bounds no calls: each worker scores all its samples at once (verl/experimental/reward_loop).
    sandbox = "reward.sandbox_fusion"
    apart = settings.has(f"{sandbox}.url", "reward_model.sandbox_fusion.url")
    calls = draft.count(f"{sandbox}.max_concurrent", "reward_model.sandbox_fusion.max_concurrent", default=64)
    roles.workers(draft, "reward", [calls if apart else None], calls.key if apart else "")
    settings.see("distillation", "reward", "reward_model", "critic", "actor_rollout_ref.ref")
    section = f"{ROLLOUT}.multi_turn"
    on = draft.flag(f"{section}.enable", default=False)
    turns = draft.maybe_count(f"{section}.max_assistant_turns", f"{section}.max_user_turns") if on.value else None
    loop = draft.maybe_text(f"{ROLLOUT}.agent.agent_loop_config_path", f"{ROLLOUT}.agent.default_agent_loop")
    agent = str(on) if on.value else str(loop) if loop is not None and "single_turn" not in loop.value else ""
    put_turns(draft, turns, f"{section}.max_assistant_turns", agent)


def put_recipe(draft: Draft) -> None:
    """The update: verl/workers/config/engine.py, FSDPEngineConfig and McoreEngineConfig."""
    recipe.words(
        draft,
        "backend",
        {"dp": "fsdp", "megatron": "megatron", "fsdp": "fsdp", "fsdp2": "fsdp"},
        *_ENGINE_KEYS,
        else_="fsdp",
    )
    named = draft.maybe_text("config_name")  # ppo_megatron_trainer.yaml says its strategy itself
    if "trainer.recipe.backend" not in draft.values and named is not None and "megatron" in named.value:
        draft.put("trainer.recipe.backend", "megatron", named)
    megatron = draft.values.get("trainer.recipe.backend") == "megatron"
    read = draft.maybe_text(*_ENGINE_KEYS)
    named_ = "" if read is None else read.value
    own = named_ if named_ in ("veomni", "torchtitan", "automodel") else "fsdp_config"
    engine = f"{ACTOR}.{'megatron' if megatron else own}"
    recipe.counts(draft, {"epochs": f"{ACTOR}.ppo_epochs"})
    if megatron:
        recipe.megatron(draft, f"{engine}.")
    else:
        turbo = f"{engine}.turbo_config.distributed"
        recipe.counts(
            draft,
            {
                "cp": (
                    f"{engine}.ulysses_sequence_parallel_size",
                    f"{ACTOR}.ulysses_sequence_parallel_size",
                    f"{engine}.ulysses_parallel_size",
                    f"{engine}.context_parallel_size",
                    f"{turbo}.ulysses_parallel_size",
                ),
                "ep": (f"{engine}.expert_parallel_size", f"{turbo}.expert_parallel_size"),
            },
        )
        if own in ("torchtitan", "automodel"):
            words = {"tp": "tensor", "pp": "pipeline"}
            recipe.counts(draft, {k: f"{engine}.{word}_parallel_size" for k, word in words.items()})
    host = (f"{ACTOR}.optim.override_optimizer_config.optimizer_cpu_offload", f"{engine}.offload_policy")
    if any(draft.flag(key, default=False).value for key in host):
        recipe.words(draft, "offload", {"true": "adam"}, *host)
    else:
        recipe.words(draft, "offload", {"true": "states"}, f"{engine}.optimizer_offload")
    recipe.flags(
        draft,
        {
            "recompute": ("actor_rollout_ref.model.enable_gradient_checkpointing", True),
            "packing": ("actor_rollout_ref.model.use_remove_padding", True),
        },
    )
    # verl/trainer/ppo/utils.py, need_critic
    estimator = draft.text("algorithm.adv_estimator", default="gae")
    enabled = draft.flag("critic.enable", default=estimator.value == "gae")
    back = one_of({True: {estimator.key: "gae"}, False: {estimator.key: "grpo"}})
    path = "trainer.recipe.critic"
    if enabled.value:
        draft.put(path, True, enabled if enabled.given else estimator, back=back)
    else:
        draft.could(path, False, back)


def put_drafts(draft: Draft, *, sglang: bool) -> None:
    """Speculative decoding: the model's MTP layer (verl/workers/config/model.py, `MtpConfig`), a draft model that only
    the rollout has, or what is handed to vLLM."""
    model_mtp, own_mtp = "actor_rollout_ref.model.mtp", f"{ROLLOUT}.mtp"
    mtp = own_mtp if draft.settings.has(own_mtp) and not draft.settings.has(model_mtp) else model_mtp
    loaded, used = (draft.flag(f"{mtp}.{key}", default=False) for key in ("enable", "enable_rollout"))
    if loaded.value and used.value:
        if sglang:
            sglang_drafts(draft, f"{mtp}.", defaults=("EAGLE", 3, 4))
        else:
            vllm_drafts(draft, f"{mtp}.", switch=used, alone="mtp")
        trained = draft.flag(f"{mtp}.enable_train", default=False)
        if not trained.value:
            frozen(draft, str(trained))
        return
    draft.could(f"{PATH}.method", None, one_of({"mtp": {loaded.key: True, used.key: True}}), None)
    own = draft.flag(f"{ROLLOUT}.speculative_decoding.enable", default=False)
    if own.value and vllm_drafts(draft, f"{ROLLOUT}.speculative_decoding.", switch=own, alone="eagle3"):
        frozen(draft, str(own))
    elif not sglang and vllm_drafts(draft, f"{ENGINE}.speculative_config.", written=f"+{ENGINE}.speculative_config."):
        frozen(draft, f"{ENGINE}.speculative_config")

"""verl's GPUs and batch: of an instance, of the rollout, of the trainer. Sources: `verl.py`."""

from __future__ import annotations

from fleetsim.frameworks import recipe
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read, on_nodes, one_of, parts_of, times
from fleetsim.frameworks.sides import replicas

ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
ENGINE = f"{ROLLOUT}.engine_kwargs.vllm"


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

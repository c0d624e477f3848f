#!/usr/bin/env bash
set -euo pipefail

MODEL_PATH=${MODEL_PATH:-"${HOME}/models/Qwen2.5-Math-7B"}
TRAIN_NODES=${TRAIN_NODES:-1}
ROLLOUT_NODES=${ROLLOUT_NODES:-2}
max_response_length=$((1024 * 8))
n_resp=16   # responses per prompt
async_args=(
    async_training.staleness_threshold=0.5
    async_training.trigger_parameter_sync_step=4
    # async_training.require_batches=2
    async_training.require_batches=1
    async_training.partial_rollout=True
)

python3 -m verl.experimental.fully_async_policy.fully_async_main \
    --config-name=fully_async_ppo_trainer \
    data.train_batch_size=0 \
    data.max_prompt_length=$((1024 * 2)) \
    data.max_response_length="${max_response_length}" \
    actor_rollout_ref.model.path="${MODEL_PATH}" \
    actor_rollout_ref.actor.ppo_mini_batch_size=32 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=${n_resp} \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    +actor_rollout_ref.model.override_config.max_position_embeddings=32768 \
    trainer.nnodes="${TRAIN_NODES}" \
    trainer.n_gpus_per_node=8 \
    rollout.nnodes="${ROLLOUT_NODES}" \
    rollout.n_gpus_per_node=8 \
    "${async_args[@]}" "$@"

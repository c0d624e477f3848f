#!/bin/bash
NVLINK=$(nvidia-smi topo -m | grep -c NV)
NUM_GPUS=${NUM_GPUS:-}
if [ -z "$NUM_GPUS" ]; then
    NUM_GPUS=8
fi
source "models/qwen3-4B.sh"
CKPT_ARGS=(
   --hf-checkpoint /root/Qwen3-4B
   #--hf-checkpoint /root/Qwen3-4B-FP8
)
ROLLOUT_ARGS=(
   --rollout-batch-size 32
   --n-samples-per-prompt 8
   --rollout-max-response-len 8192
   --over-sampling-batch-size 48
   --dynamic-sampling-filter-path slime.filters.nonzero_std
   --partial-rollout
   --global-batch-size 256
)
SGLANG_ARGS=( --rollout-num-gpus-per-engine 2 --sglang-mem-fraction-static 0.7 --sglang-chunked-prefill-size 8192 )
ray job submit --runtime-env-json="{\"env_vars\": {\"X\": \"${NVLINK}\"}}" -- python3 train.py \
   --actor-num-nodes 1 --actor-num-gpus-per-node ${NUM_GPUS} --colocate \
   ${MODEL_ARGS[@]} ${CKPT_ARGS[@]} ${ROLLOUT_ARGS[@]} --use-kl-loss "${SGLANG_ARGS[@]}"

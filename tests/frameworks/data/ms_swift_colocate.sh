#!/usr/bin/env bash
# GRPO with engines on the trainer's GPUs, one process a GPU.
export NPROC_PER_NODE=${GPUS:-8}

MODEL=${MODEL:-Qwen/Qwen2.5-7B-Instruct}
swift rlhf \
    --rlhf_type grpo \
    --model "$MODEL" \
    --tuner_type full \
    --use_vllm true \
    --vllm_mode colocate \
    --vllm_gpu_memory_utilization 0.5 \
    --vllm_tensor_parallel_size 2 \
    --vllm_max_num_seqs 256 \
    --sleep_level 1 \
    --max_length 4096 \
    --max_completion_length 2048 \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 4 \
    --num_generations 8 \
    --dynamic_sample true \
    --deepspeed zero3_offload \
    --beta 0.001 \
    --reward_funcs accuracy format \
    --dataset my/dataset

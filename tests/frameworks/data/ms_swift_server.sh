#!/usr/bin/env bash
# A server on two GPUs of its own; Megatron trains on six, four updates on a generation.
CUDA_VISIBLE_DEVICES=6,7 swift rollout \
    --model Qwen/Qwen2.5-7B-Instruct \
    --vllm_data_parallel_size 2 \
    --multi_turn_scheduler my_scheduler \
    --max_turns 3 &

CUDA_VISIBLE_DEVICES=0,1,2,3,4,5 NPROC_PER_NODE=6 megatron rlhf \
    --rlhf_type grpo \
    --model Qwen/Qwen2.5-7B-Instruct \
    --use_vllm true \
    --vllm_mode server \
    --vllm_server_host 127.0.0.1 \
    --tensor_model_parallel_size 2 \
    --global_batch_size 96 \
    --micro_batch_size 4 \
    --steps_per_generation 4 \
    --num_generations 8 \
    --max_completion_length 2048 \
    --beta 0

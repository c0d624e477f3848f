CUDA_VISIBLE_DEVICES=4,5 trl vllm-serve --model Qwen/Qwen2.5-1.5B --tensor_parallel_size 1 --data_parallel_size 2 &
accelerate launch --num_processes 4 train_async_grpo.py \
    --model_name_or_path Qwen/Qwen2.5-1.5B --per_device_train_batch_size 8 --gradient_accumulation_steps 4 \
    --num_generations 8 --max_completion_length 3000 --max_staleness 4 --weight_sync_steps 2 \
    --queue_maxsize 512 --max_inflight_tasks 128

pip install "trl[vllm]==1.10.0"
CUDA_VISIBLE_DEVICES=4,5,6,7 trl vllm-serve --model Qwen/Qwen2.5-7B --tensor_parallel_size 2 --data_parallel_size 2 &
CUDA_VISIBLE_DEVICES=0,1,2,3 accelerate launch --num_processes 4 train_grpo.py --model_name_or_path Qwen/Qwen2.5-7B \
    --use_vllm True --vllm_mode server --num_generations 8 --max_completion_length 1024

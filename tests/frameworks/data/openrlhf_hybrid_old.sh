python3 -m openrlhf.cli.train_ppo_ray --pretrain meta-llama/Llama-3.1-8B --colocate_all_models \
  --actor_num_nodes 1 --actor_num_gpus_per_node 8 --vllm_num_engines 4 --vllm_tensor_parallel_size 2 \
  --vllm_gpu_memory_utilization 0.5 --rollout_batch_size 1024 --n_samples_per_prompt 1 --prompt_max_len 1024 \
  --generate_max_len 1024 --micro_rollout_batch_size 16 --train_batch_size 128 --init_kl_coef 0.01

python3 -m verl.experimental.one_step_off_policy.main_ppo \
    data.train_batch_size=512 data.max_prompt_length=512 data.max_response_length=2048 \
    actor_rollout_ref.model.path=Qwen/Qwen2.5-3B actor_rollout_ref.rollout.n=4 \
    actor_rollout_ref.rollout.name=sglang actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
    trainer.nnodes=1 trainer.n_gpus_per_node=2 rollout.nnodes=1 rollout.n_gpus_per_node=6

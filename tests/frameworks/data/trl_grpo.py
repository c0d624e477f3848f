# ruff: noqa

from trl import GRPOConfig, GRPOTrainer

GENERATIONS = 16

args = GRPOConfig(
    output_dir="out",
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2 * 2,
    num_generations=GENERATIONS,
    max_completion_length=1024,
    use_vllm=True,
    vllm_mode="colocate",
    vllm_tensor_parallel_size=2,
    vllm_gpu_memory_utilization=0.4,
    beta=0.04,
    run_name=make_name(),
)
trainer = GRPOTrainer(model="Qwen/Qwen2.5-1.5B-Instruct", args=args, train_dataset=load())

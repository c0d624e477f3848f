#!/usr/bin/env bash
# The cookbook's agent on terminal tasks, two steps off policy, trained in two parts.
uv run python -m tinker_cookbook.recipes.harbor_rl.train \
  model_name=Qwen/Qwen3.5-9B group_size=8 groups_per_batch=16 max_tokens=4096 max_turns=6 \
  max_trajectory_tokens=16384 max_steps_off_policy=2 stream_minibatch_config.num_minibatches=2 \
  learning_rate=1e-5 log_path=/tmp/tinker/harbor

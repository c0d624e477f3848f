python3 train_async.py --hf-checkpoint Qwen/Qwen2.5-0.5B --actor-num-nodes 1 --actor-num-gpus-per-node 2 \
  --rollout-num-gpus 6 --rollout-num-gpus-per-engine 1 --rollout-batch-size 16 --n-samples-per-prompt 4 \
  --rollout-max-response-len 1024 --rollout-max-prompt-len 512 --update-weights-interval 2 \
  --sglang-server-concurrency 32 --update-weight-transport disk \
  --rollout-function-path slime.rollout.fully_async_rollout.generate_rollout_fully_async

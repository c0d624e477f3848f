"""Frameworks that print a step as a dictionary on one line.

ROLL (alibaba/ROLL 8eb27cc2, roll/pipeline/rlvr/rlvr_pipeline.py, roll/utils/logging.py): JSON of every metric, behind
the logger's head; names keep their reducer (`@sum`). `time/step_total` is the step before's, and a step begins with the
weights of the one before. OpenRLHF (3c3be623, openrlhf/trainer/ppo_trainer.py, ppo_trainer_async.py,
utils/logging_utils.py): Python's dict behind "Global step N". Asynchronously, `timing/generation` overlaps with
training, and `timing/broadcast` waits for the lock that the generation holds. slime (THUDM/slime 624b824a,
slime/observability/*.py, slime/train.py, train_async.py): three dicts a step, from two actors; `train_wait` holds the
generation, and the weights of the step before. TRL (huggingface/trl f2cd5771, trl/trainer/grpo_trainer.py,
trl/experimental/async_grpo/*.py) prints through transformers' ProgressCallback: numbers in version 4, texts of four
digits in 5 (transformers/trainer_callback.py), between tqdm's bars, and no step number.
"""

import json
import random
import statistics
from collections.abc import Iterator

from tests.outside.logs.lived import Step
from tests.outside.logs.scene import Scene, bar, clock, ray


def roll(scene: Scene, step: Step, random: random.Random) -> Iterator[str]:
    """ROLL's rlvr pipeline."""
    before = scene.steps[step.number - 1] if step.number else None
    setting = scene.lived.setting
    lengths, samples = step.lengths, len(step.lengths)

    def head(line: int, after: float, text: str) -> str:
        return f"[{clock(after)}] [rlvr_pipeline.py ({line})] [INFO] [DRIVER 0 / 1][PID 4242] {text}"

    # the weights of a step are carried over at the beginning of the next
    total = before.wait_s + before.train_s + (_synced(scene, before.number) if before else 0.0) if before else 0
    metrics: dict[str, object] = {
        "time/step_total": total,
        "time/step_stop_server": 0.002,
        "actor_infer/model_update/bucket_count": 12,
        "time/step_model_update": _synced(scene, step.number),
        "math_rule/time/get_batch_cost_gqm": 0.4,
        "scheduler/math_rule/time/generate/count": samples,
        "scheduler/math_rule/time/generate/mean": 0.01 * step.mean,
        "scheduler/math_rule/time/generate/max": 0.01 * max(lengths),
        "time/step_generate": step.wait_s,
        "time/ref_log_probs_values": 0.1 * step.train_s,
        "time/old_log_probs": 0.1 * step.train_s,
        "math_rule/time/get_token_reward": 0.01,
        "math_rule/time/compute_advantage": 0.02,
        "mask/final_mask_sum_eq_0": 0,
        "system/global_step": step.number,
        "system/batch_size": samples,
        "system/samples": (step.number + 1) * samples,
        "token/prompt_length/mean": float(step.prompt),
        "token/prompt_length/max": float(step.prompt),
        "token/prompt_length/min": float(step.prompt),
        "token/response_length/mean": step.mean,
        "token/response_length/max": float(max(lengths)),
        "token/response_length/min": float(min(lengths)),
        "token/response_length/diff": float(max(lengths) - min(lengths)),
        "token/total_length/mean": step.mean + step.prompt,
        "token/total_response_length/clip": sum(length >= setting.cap for length in lengths),
        "critic/score/mean": random.random(),
        "actor/pg_loss@sum": random.gauss(0, 0.01),
        "actor/lr": 1e-06,
        "time/step_train": 0.8 * step.train_s,
    }
    metrics |= {f"math_rule/{key}": value for key, value in metrics.items() if key.startswith("token/")}
    begin = step.begin
    yield head(487, begin, f"pipeline step {step.number} start...")
    yield head(495, begin, f"pre_step_total_time: {total}")
    yield head(837, step.end, json.dumps([{"prompt": "If x = {3: 4}, time/step_train: 2?", "response": "..."}]))
    yield head(838, step.end, json.dumps(metrics, ensure_ascii=False))
    yield head(840, step.end, f"pipeline step {step.number} finished")


def _synced(scene: Scene, number: int) -> float:
    """Seconds for which the weights before a step were carried over."""
    return scene.steps[number - 1].sync_s if number else scene.lived.setting.pause_s


def openrlhf(scene: Scene, step: Step, random: random.Random) -> Iterator[str]:
    """The synchronous trainer."""
    yield from _openrlhf(scene, step, random, "PPOTrainer", "ppo_trainer.py:547", "✨ Global", step.wait_s)


def openrlhf_async(scene: Scene, step: Step, random: random.Random) -> Iterator[str]:
    """The asynchronous one, with and without its lock."""
    yield from _openrlhf(scene, step, random, "TrainingActor", "ppo_trainer_async.py:244", "Global", step.made_s)


def _openrlhf(
    scene: Scene, step: Step, random: random.Random, actor: str, place: str, word: str, made_s: float
) -> Iterator[str]:
    status = {
        "policy_loss": random.gauss(0, 0.01),
        "actor_lr": 1e-06,
        "ppo_clip_ratio": 0.0012,
        "act_grad_norm": random.uniform(0.1, 0.4),
        "reward": random.random(),
        "return": random.random(),
        "response_length": step.mean,
        "total_length": step.mean + step.prompt,
        "truncated": step.capped / len(step.lengths),
        "timing/make_experience": 0.2 * step.train_s,
        "timing/ppo_train": 0.8 * step.train_s,
        "timing/broadcast": step.held_s + step.sync_s,
        "rollout/reward_mean": random.random(),
        "rollout/reward_std": 0.47,
        "rollout/response_length_mean": step.mean,
        "rollout/truncated_rate": step.capped / len(step.lengths),
        "rollout/num_samples": float(len(step.lengths)),
        "timing/generation": made_s,
        "timing/step_total": step.step_s,
    }
    bars = len(step.lengths) // step.group
    epoch = bar(bars, bars, 0.8 * step.train_s, "Train epoch [1/1]")
    yield ray("PolicyModelActor", f"{epoch}, act_loss=0.0021, reward=0.51")
    head = f"INFO {clock(step.end, '%m-%d %H:%M:%S')} {place}]"
    yield ray(actor, f"{head} {word} step {step.number + 1}: {status}", "10.0.0.7")
    if step.number % 9 == 8:
        evaluation = {"eval_gsm8k_pass1": 0.71, "eval_response_length_mean": 900.0, "eval_num_samples": 1319.0}
        yield ray(actor, f"{head} Eval at step {step.number + 1}: {evaluation}")


def slime(scene: Scene, step: Step, random: random.Random) -> Iterator[str]:
    """train.py, and train_async.py."""
    number, lengths = step.number, step.lengths

    def head(actor: str, after: float, place: str, text: str) -> str:
        return ray(actor, f"[{clock(after)}] {place} - {text}", "10.0.0.3" if number % 2 else "")

    made = {
        "rollout/response_len/mean": step.mean,
        "rollout/response_len/median": float(statistics.median(lengths)),
        "rollout/response_len/max": max(lengths),
        "rollout/response_len/min": min(lengths),
        "rollout/zero_std/count_0.0": 3,
        "rollout/prefix_cache_hit_rate": 0.71,
        "rollout/avg_cached_tokens_per_sample": 311.0,
        "rollout/repetition_frac": 0.0,
        "rollout/truncated_ratio": step.capped / len(lengths),
        "perf/rollout_time": step.made_s,
        "perf/longest_sample_tokens_per_sec": max(lengths) / max(step.made_s, 1e-9),
    }
    yield head("RolloutManager", step.begin + step.wait_s, "rollout_metrics.py:268", f"perf {number}: {made}")
    seen = {
        "rollout/raw_reward": random.random(),
        "rollout/response_lengths": step.mean,
        "rollout/total_lengths": step.mean + step.prompt,
        "rollout/log_probs": -0.31,
        "rollout/truncated": step.capped / len(lengths),
    }
    actor = "MegatronTrainRayActor"
    place = "train_metric_utils.py:135"
    yield head(actor, step.begin + step.wait_s, place, f"rollout {number}: {seen}")
    losses = {"train/loss": random.gauss(0, 0.01), "train/pg_loss": 0.0, "train/grad_norm": 0.2, "train/lr-pg_0": 1e-06}
    losses |= {"train/global_batch_size": len(lengths), "train/step": number}
    yield head(actor, step.end, "model.py:918", f"step {number}: {losses}")
    yield head(actor, step.end, "timer.py:32", f"Timer actor_train end (elapsed: {0.8 * step.train_s:.1f}s)")
    before = scene.steps[number - 1] if number else None
    waited = step.wait_s + (before.held_s + before.sync_s if before else scene.lived.setting.pause_s)
    spent = {
        "perf/update_weights_time": _synced(scene, number),
        "perf/data_preprocess_time": 0.1,
        "perf/train_wait_time": waited,
        "perf/ref_log_probs_time": 0.1 * step.train_s,
        "perf/log_probs_time": 0.1 * step.train_s,
        "perf/actor_train_time": 0.8 * step.train_s,
        "perf/train_time": step.train_s,
        "perf/actor_train_tflops": 211.0,
        "perf/actor_train_tok_per_s": sum(lengths) / (0.8 * step.train_s),
        "perf/step_time": waited + step.train_s,
        "perf/wait_time_ratio": waited / (waited + step.train_s),
    }
    yield head(actor, step.end, "train_metric_utils.py:401", f"perf {number}: {spent}")
    if number % 20 == 19:
        scores = {"eval/aime": 0.31, "eval/aime/response_len/mean": 9000.0, "eval/aime-truncated_ratio": 0.2}
        yield head("RolloutManager", step.end, "rollout_metrics.py:247", f"eval {number}: {scores}")


def trl(scene: Scene, step: Step, random: random.Random) -> Iterator[str]:
    """GRPOTrainer: `step_time` is generation, training and the weights in between."""
    finished = [length for length in step.lengths if length < scene.lived.setting.cap]
    logs = {
        "loss": random.gauss(0, 0.01),
        "grad_norm": random.uniform(0.1, 0.4),
        "learning_rate": 9.9e-07,
        "num_tokens": float(sum(sum(s.lengths) + s.prompt * len(s.lengths) for s in scene.steps[: step.number + 1])),
        "completions/mean_length": step.mean,
        "completions/min_length": float(min(step.lengths)),
        "completions/max_length": float(max(step.lengths)),
        "completions/clipped_ratio": step.capped / len(step.lengths),
        "completions/mean_terminated_length": statistics.fmean(finished),
        "completions/min_terminated_length": float(min(finished)),
        "completions/max_terminated_length": float(max(finished)),
        "rewards/accuracy_reward/mean": random.random(),
        "rewards/accuracy_reward/std": 0.41,
        "reward": random.random(),
        "reward_std": 0.31,
        "frac_reward_zero_std": 0.25,
        "kl": 0.0004,
        "entropy": 0.31,
        "clip_ratio/low_mean": 0.0,
        "clip_ratio/region_mean": 0.0,
        "step_time": step.step_s,
    }
    yield from _progress(scene, step, logs)


def trl_async(scene: Scene, step: Step, random: random.Random) -> Iterator[str]:
    """AsyncGRPOTrainer: seconds per sample, and no seconds of a step but tqdm's."""
    samples = len(step.lengths)
    for _ in range(2):
        yield "Rollout metrics: reward_mean=0.4375, reward_std=0.4961"
        yield f"[score] scored {step.group} samples in 0.03s, buffer_qsize={step.queued * step.group}"
    logs = {
        "loss": random.gauss(0, 0.01),
        "grad_norm": random.uniform(0.1, 0.4),
        "learning_rate": 9.9e-07,
        "ratio": 1.0,
        "kl": 0.0004,
        "entropy": 0.31,
        "clip_ratio/low_mean": 0.0,
        "reward": random.random(),
        "reward_std": 0.31,
        "rewards/accuracy_reward": random.random(),
        "generation_tok_per_s": sum(step.lengths) / step.step_s,
        "scoring_time_ms": 31.0,
        "wait_scoring_ms": 4.0,
        "buffer_qsize": float(step.queued * step.group),
        "queue_wait_time_s": step.wait_s / samples,
        "completions/mean_length": step.mean,
        "training_tok/s": sum(step.lengths) / step.train_s,
        "forward_time_s": 0.3 * step.train_s / 8,
        "train_seq_len": 8192.0,
        "weight_sync_time_s": step.sync_s,
    }
    yield "Weight sync: pausing vLLM..."
    yield f"Weight sync: done. Total {step.sync_s:.1f}s"
    yield from _progress(scene, step, logs)


def _progress(scene: Scene, step: Step, logs: dict[str, float]) -> Iterator[str]:
    """tqdm.write between two bars; every second job is of transformers 5."""
    told: dict[str, object] = {**logs, "epoch": round((step.number + 1) / 500, 2)}
    if scene.seed % 2:
        told = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in told.items()}
    yield bar(step.number + 1, 500, step.end)
    yield "\r" + " " * 100 + "\r" + str(told)
    yield bar(step.number + 1, 500, step.end)

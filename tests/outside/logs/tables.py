"""Frameworks that print a step over several lines.

open-instruct (allenai/open-instruct e6c3044a, open_instruct/grpo_fast.py, model_utils.py): a panel of rich with a row
per prefix, wrapped at the console's width, two decimals. `time/training` begins with the wait for data, and the weights
of the step before are carried over at its beginning. AReaL (inclusionAI/AReaL 4aef98d8, areal/utils/stats_logger.py,
printing.py, logging.py, areal/trainer/rl_trainer.py): tabulate's grid of four names and values a row, four decimals.
NeMo-RL (NVIDIA-NeMo/RL 7ea279ab, nemo_rl/algorithms/grpo.py, utils.py): headings and bullets, seconds with their share
of the step. SkyRL (NovaSky-AI/SkyRL a9564572, skyrl/train/trainer.py, fully_async_trainer.py, utils/tracking.py,
utils/utils.py): pprint of a dict of texts, through loguru and Ray; asynchronously in two parts. prime-rl
(PrimeIntellect-ai/prime-rl 559b4477, src/prime_rl/trainer/rl/train.py, orchestrator/orchestrator.py, utils/logger.py):
one line of named values between bars, of the trainer at level DEBUG also the seconds of waiting; what the user sees is
the orchestrator's console.
"""

import io
import pprint
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator

from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from tests.outside.logs.lived import Step
from tests.outside.logs.scene import GREEN, RESET, Scene, clock, ray


def open_instruct(scene: Scene, step: Step, random: random.Random) -> Iterator[str]:
    """grpo_fast.py's panel; every second job's console is 200 columns wide."""
    lengths, samples = step.lengths, len(step.lengths)
    before = scene.steps[step.number - 1] if step.number else None
    synced = before.sync_s if before else scene.lived.setting.pause_s
    # a step begins when the training of the one before has ended: the weights are carried over meanwhile
    total = synced + step.wait_s + step.train_s
    tokens = sum(lengths) + samples * step.prompt
    metrics: dict[str, float | int] = {
        "episode": (step.number + 1) * samples,
        "global_step": (step.number + 1) * samples,
        "training_step": step.number + 1,
        "val/num_total_tokens": tokens * (step.number + 1),
        "val/num_step_tokens": tokens,
        "epoch": (step.number + 1) / 500,
        "learner_tokens_per_second_overall": tokens / total,
        "learner_tokens_per_second_step": tokens / total,
        "time/total": total,
        "time/training": total - 0.01,
        "time/saving": 0,
        "time/weight_sync": synced,
        "time/weight_sync_mean": 0.9 * synced,
        "time/weight_sync_min": 0.8 * synced,
        "time/weight_sync_max": synced,
        "time/weight_sync_median": 0.9 * synced,
        "time/health_check": 0.000001,
        "loss/policy_avg": random.gauss(0, 0.01),
        "loss/total_avg": random.gauss(0, 0.01),
        "policy/clipfrac_avg": 0.0012,
        "val/ratio": 1.0,
        "optim/grad_norm": 0.21,
        "time/trainer_waiting_for_data": step.wait_s,
        "time/generation_waiting_for_trainer": max(step.train_s - step.made_s, 0.0),
        "scores": 4.2,
        "real_batch_size_ratio": 0.91,
        "unsolved_batch_size_ratio": 0.33,
        "packed_ratio": 0.21,
        "val/total_reward_groups": samples / step.group,
        "val/sequence_lengths": step.mean,
        "val/sequence_lengths_min": min(lengths),
        "val/sequence_lengths_max": max(lengths),
        "val/stop_rate": 1 - step.capped / samples,
        "val/actor_tokens_per_second": tokens / max(step.made_s, 1e-9),
        "time/group_generation_mean": 0.6 * step.made_s,
        "time/group_generation_max": step.made_s,
        "time/group_generation_min": 0.2 * step.made_s,
        "actor_mfu": 11.2,
        "learner_mfu": 31.2,
    }
    yield f"{clock(step.end)} - INFO - grpo_fast.py:1968 - [Main Thread] didn't get train generation metrics"
    groups: dict[str, list[str]] = defaultdict(list)
    for key, value in metrics.items():
        head, _, rest = key.partition("/")
        number = f"{value:.2e}" if isinstance(value, float) and abs(value) < 1e-5 else f"{value:.2f}"
        groups[head if rest else "other"].append(f"{rest or key}: {number if isinstance(value, float) else value}")
    table = Table(show_header=False, box=None)
    table.add_column("Category", style="cyan")
    table.add_column("Values", style="magenta")
    for name in sorted(groups):
        table.add_row(name, " | ".join(groups[name]))
    out = io.StringIO()
    width = 200 if scene.seed % 2 else 80
    Console(file=out, width=width).print(Panel(table, title="Metrics", expand=False, border_style="bold green"))
    yield from out.getvalue().splitlines()


def areal(scene: Scene, step: Step, random: random.Random) -> Iterator[str]:
    """The asynchronous trainer of AReaL."""
    lengths, samples = step.lengths, len(step.lengths)
    stats: dict[str, float] = {
        "ppo_actor/n_seqs": samples,
        "ppo_actor/n_valid_tokens": sum(lengths),
        "ppo_actor/advantages/avg": random.gauss(0, 0.01),
        "ppo_actor/no_eos_ratios/avg": step.capped / samples,
        "ppo_actor/no_eos_ratios/max": float(step.capped > 0),
        "ppo_actor/task_reward/avg": random.random(),
        "ppo_actor/prompt_len/avg": step.prompt,
        "ppo_actor/prompt_len/max": step.prompt,
        "ppo_actor/prompt_len/min": step.prompt,
        "ppo_actor/seq_len/avg": step.mean + step.prompt,
        "ppo_actor/seq_len/max": max(lengths) + step.prompt,
        "ppo_actor/seq_len/min": min(lengths) + step.prompt,
        "ppo_actor/update/actor_loss/avg": random.gauss(0, 0.01),
        "ppo_actor/update/sample_staleness_proximal_avg": statistics.fmean(step.ages),
        "ppo_actor/update/sample_staleness_proximal_max": max(step.ages),
        "ppo_actor/update/grad_norm": 0.2,
        "timeperf/rollout": step.wait_s,
        "timeperf/recompute_logp": 0.1 * step.train_s,
        "timeperf/ref_logp": 0.1 * step.train_s,
        "timeperf/compute_advantage": 0.03,
        "timeperf/train_step": 0.8 * step.train_s,
        "timeperf/update_weights": step.sync_s,
        "timeperf/save": 0.001,
        "timeperf/checkpoint_for_recover": 0.001,
        "timeperf/clear_batches": 0.01,
        "rollout/reward": random.random(),
        "rollout/n_valid_generated_tokens": sum(lengths),
    }
    names = list(stats)
    rows = -(-len(names) // 4)
    cells = [[text for column in range(4) for text in _cell(names, stats, row + column * rows)] for row in range(rows)]

    def head(text: str) -> str:
        at = clock(step.end, "%Y%m%d-%H:%M:%S")
        return f"\x1b[92m\x1b[1;38;2;180;140;80m(AReaL)\x1b[0m \x1b[92m{at}.482 StatsLogger INFO: {text}"

    yield f"{head('Submit rollout.')} enqueued: 3, running: {samples}, accepted: {step.number}, rejected: 0.{RESET}"
    yield head(f"Epoch 1/10 Step {step.number + 1}/500 Train step {step.number + 1}/5000 done.") + RESET
    yield head("Stats (1/1):") + RESET
    yield head("")
    yield from _grid(cells)
    yield RESET


def _cell(names: list[str], stats: dict[str, float], place: int) -> tuple[str, str]:
    return (names[place], f"{stats[names[place]]:.4e}") if place < len(names) else ("", "")


def _grid(cells: list[list[str]]) -> Iterator[str]:
    """tabulate's fancy_grid: names to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in cells) + 2 for column in range(8)]
    rule = ["═" * width for width in widths]
    yield f"╒{'╤'.join(rule)}╕"
    for number, row in enumerate(cells):
        if number:
            yield f"├{'┼'.join('─' * width for width in widths)}┤"
        texts = [
            f" {text:>{width - 2}} " if column % 2 else f" {text:<{width - 2}} "
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"│{'│'.join(texts)}│"
    yield f"╘{'╧'.join(rule)}╛"


def nemo(scene: Scene, step: Step, random: random.Random) -> Iterator[str]:
    """grpo_train: one after the other."""
    sync = scene.steps[step.number - 1].sync_s if step.number else scene.lived.setting.pause_s
    times = {
        "prepare_for_generation/total": sync,
        "prepare_for_generation/transfer_and_update_weights": 0.9 * sync,
        "generation": step.wait_s,
        "policy_and_reference_logprobs": 0.2 * step.train_s,
        "policy_training": 0.78 * step.train_s,
        "data_processing": 0.02,
    }
    total = sync + step.wait_s + step.train_s
    yield from ("▶ Preparing batch...", f"▶ Generating responses for batch of size {len(step.lengths)}...")
    results = [f"  • Mean Generation Length: {step.mean:.4f}"]
    yield from _nemo(step, random, times, total, results, "500")


def nemo_async(scene: Scene, step: Step, random: random.Random) -> Iterator[str]:
    """async_grpo_train: the buffer is asked each half second."""
    times = {
        "exposed_generation": step.wait_s,
        "policy_and_reference_logprobs": 0.2 * step.train_s,
        "policy_training": 0.78 * step.train_s,
        "weight_sync": step.sync_s,
        "data_processing": 0.02,
    }
    yield "📦 Sampling from replay buffer..."
    yield f"📊 Step coordination: training_step={step.number}, max_age=3, buffer_size={step.queued}"
    results = [f"  • Buffer Size: {step.queued}", f"  • Avg Trajectory Age: {statistics.fmean(step.ages):.2f} steps"]
    yield from _nemo(step, random, times, step.step_s, results, "1000")


def _nemo(
    step: Step, random: random.Random, times: dict[str, float], total: float, results: list[str], of: str
) -> Iterator[str]:
    yield from ("", f"{'=' * 25} Step {step.number + 1}/{of} {'=' * 25}")
    yield from ("▶ Computing logprobs...", "▶ Training policy...", "", "📊 Training Results:")
    yield f"  • Loss: {random.gauss(0, 0.01):.4f}"
    yield "  • Generation KL Error: 0.0021"
    yield f"  • Avg Reward: {random.random():.4f}"
    yield from results
    yield from ("", "⏱️  Timing:", f"  • Total step time: {total:.2f}s")
    for name, seconds in sorted(times.items(), key=lambda item: -item[1]):
        yield f"  • {name}: {seconds:.2f}s ({100 * seconds / total:.1f}%)"
    tokens = sum(step.lengths) + len(step.lengths) * step.prompt
    yield from ("", "🔍 Performance Metrics:", f"  • Mean Total Tokens per Sample: {step.mean + step.prompt:.2f}")
    yield from ("  • Throughputs (per GPU):", f"    - E2E (Samples/sec/gpu): {len(step.lengths) / total / 8:.2f}")
    yield f"    - E2E (Tokens/sec/gpu): {tokens / total / 8:.2f}"
    yield from ("  • Throughputs (per Group):", f"    - E2E (Samples/sec): {len(step.lengths) / total:.2f}")
    if step.number % 10 == 9:
        yield from ("", "📊 Validation Results:", "    • Accuracy: 0.6100")
        yield "    • Average response length: 2100.0 tokens"
        yield from ("", "  ⏱️  Validation Timing:", "    • Total validation time: 61.20s")


def skyrl(scene: Scene, step: Step, random: random.Random) -> Iterator[str]:
    """trainer.py: one dict a step."""
    metrics = _skyrl_metrics(step, random)
    timings = {
        "timing/generate": step.wait_s,
        "timing/postprocess_generator_output": 0.01,
        "timing/convert_to_training_input": 0.1,
        "timing/fwd_logprobs_values_reward": 0.2 * step.train_s,
        "timing/compute_advantages_and_returns": 0.02,
        "timing/policy_train": 0.78 * step.train_s,
        "timing/train_critic_and_policy": 0.79 * step.train_s,
        "timing/sync_weights": step.sync_s,
        "timing/step": step.step_s,
    }
    yield from _skyrl_timers(step, timings)
    yield from _skyrl_print(step, metrics | timings)


def skyrl_async(scene: Scene, step: Step, random: random.Random) -> Iterator[str]:
    """fully_async_trainer.py: what was measured, then the seconds, under the same number."""
    metrics = {"async/gen_buffer_qsize_at_wait_start": step.queued} | _skyrl_metrics(step, random)
    metrics |= {
        "async/staleness_mean": statistics.fmean(step.ages),
        "async/staleness_max": max(step.ages),
        "async/staleness_min": min(step.ages),
    }
    timings = {
        "timing/wait_for_generation_buffer": step.wait_s,
        "timing/convert_to_training_input": 0.1,
        "timing/fwd_logprobs_values_reward": 0.2 * step.train_s,
        "timing/policy_train": 0.78 * step.train_s,
        "timing/train_critic_and_policy": 0.79 * step.train_s,
        "timing/run_training": step.train_s,
        "timing/sync_weights": step.sync_s,
        "timing/step": step.step_s,
    }
    yield from _skyrl_timers(step, timings)
    yield from _skyrl_print(step, metrics)
    yield from _skyrl_print(step, timings)


def _skyrl_metrics(step: Step, random: random.Random) -> dict[str, object]:
    return {
        "generate/avg_num_tokens": step.mean,
        "generate/max_num_tokens": max(step.lengths),
        "generate/min_num_tokens": min(step.lengths),
        "generate/std_num_tokens": statistics.pstdev(step.lengths),
        "generate/batch_num_seq": len(step.lengths),
        "generate/batch_padded_seq_len": max(step.lengths) + step.prompt,
        "loss/avg_final_rewards": random.random(),
        "policy/policy_loss": random.gauss(0, 0.01),
        "reward/avg_raw_reward": random.random(),
        "trainer/epoch": 0,
        "trainer/global_step": step.number + 1,
    }


def _skyrl_head(step: Step, place: str, text: str) -> str:
    at = clock(step.end)
    head = f"{GREEN}{at}.512{RESET} | \x1b[1m\x1b[32mINFO    {RESET} | \x1b[36m{place}{RESET} - "
    return ray("skyrl_entrypoint", f"{head}\x1b[1m\x1b[32m{text}{RESET}")


def _skyrl_timers(step: Step, timings: dict[str, float]) -> Iterator[str]:
    for name, seconds in timings.items():
        short = name.removeprefix("timing/")
        place = "skyrl.train.trainer:train:529"
        yield _skyrl_head(step, place, f"Started: '{short}'")
        yield _skyrl_head(step, place, f"Finished: '{short}', time cost: {seconds:.2f}s")
    yield _skyrl_head(step, "skyrl.train.trainer:train:497", "{'policy_loss': 0.0012, 'policy_entropy': 0.31}")


def _skyrl_print(step: Step, data: dict[str, object]) -> Iterator[str]:
    texts = {key: f"{value:.4f}" if isinstance(value, float) else value for key, value in data.items()}
    lines = pprint.pformat(texts).splitlines()
    yield _skyrl_head(step, "skyrl.train.utils.tracking:log:179", f"Step {step.number + 1}: ")
    for line in lines[:-1]:
        yield ray("skyrl_entrypoint", f"\x1b[1m\x1b[32m{line}")
    yield ray("skyrl_entrypoint", f"{lines[-1]}{RESET}")


def prime(scene: Scene, step: Step, random: random.Random) -> Iterator[str]:
    """trainer.log; every second job runs at level DEBUG."""
    at = step.end
    seconds = step.train_s
    tokens = sum(step.lengths) + len(step.lengths) * step.prompt
    if scene.seed % 2:
        yield _prime(step.begin, "DEBUG", f"Starting training step {step.number + 1}")
        yield _prime(step.begin, "DEBUG", "Waiting for training batch to arrive")
        yield _prime(at, "DEBUG", f"Waited for batch to arrive for {step.wait_s:.2f} seconds")
        yield _prime(at, "DEBUG", "Loaded batch in 0.01 seconds")
        yield _prime(at, "DEBUG", f"Micro Step 3/{len(step.lengths) // 8} | Loss 0.0021 | Entropy 0.3112")
    text = (
        f"Step {step.number + 1} | {_lasts(step.step_s):>7} | Loss {random.gauss(0, 0.01):.4f} | Entropy 0.3112 | "
        f"Mismatch KL 0.0007 | Grad. Norm 0.2134 | LR 1.00e-06 | Throughput {tokens / seconds:.0f} tokens/s | "
        f"MFU 31.2% | Peak Mem. 61.3 GiB"
    )
    yield _prime(at, "SUCCESS", text)


def prime_orchestrator(scene: Scene, step: Step, random: random.Random) -> Iterator[str]:
    """orchestrator.log, with its view of the pipeline each so often; of a step it says when its batch was there."""
    samples = len(step.lengths)
    before = scene.steps[step.number - 1] if step.number else None
    there = step.begin + step.wait_s
    passed = there - (before.begin + before.wait_s) if before else 0.0
    yield _prime(
        there, "INFO", f"Train batch 97/{samples} (37.9%) (+12 buffered); 214 inflight episodes (train=214, eval=0)"
    )
    text = (
        f"Step {step.number + 1} | {_lasts(passed):>7} | Reward {random.random():.4f} | "
        f"Trainable {samples - 3}/{samples} ({1 - 3 / samples:.1%}) | Turns 1.0 | Branches 1.0 | "
        f"Max Off-Policy {max(step.ages)} | Error 0.4% | Cancelled 0.0% | Truncation {step.capped / samples:.1%}"
    )
    yield _prime(there, "SUCCESS", text)
    if step.number % 20 == 19:
        evaluated = (
            f"Evaluated aime (Step {step.number + 1}) | Policy v{step.number} |   1m 20s | Reward 0.3100 | Turns 1.0"
        )
        yield _prime(there, "SUCCESS", evaluated)


def _prime(at: float, level: str, text: str) -> str:
    color = {"SUCCESS": "\x1b[32m\x1b[1m", "DEBUG": "\x1b[34m\x1b[1m", "INFO": "\x1b[1m"}[level]
    where = " [train.py::284]" if level == "DEBUG" else ""
    return f"\x1b[2m{clock(at, '%H:%M:%S')}{RESET} {color}{level:>7}{RESET} {color}\x1b[22m{text}{RESET}{RESET}{where}"


def _lasts(seconds: float) -> str:
    """Seconds as prime-rl writes them: 1m 20s, 20s, 300ms."""
    if seconds >= 3600:
        return f"{seconds // 3600:.0f}h" + (f" {seconds % 3600 // 60:.0f}m" if seconds % 3600 >= 60 else "")
    if seconds >= 60:
        return f"{seconds // 60:.0f}m" + (f" {seconds % 60:.0f}s" if seconds % 60 >= 1 else "")
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.0f}s"

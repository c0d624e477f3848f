"""Step logs of every framework in the table: what each column becomes, and what is said of the rest."""

from __future__ import annotations

import io
import json
import math
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from fleetsim.errors import InputError
from fleetsim.history.history import History, StepLog
from fleetsim.history.run_log import read_run_log
from fleetsim.history.step_logs.frameworks import BY_NAME, COLUMNS, FRAMEWORKS
from fleetsim.history.step_logs.packed import last_kept

VERL = {
    "timing_s/step": 60.0, "timing_s/gen": 30.0, "timing_s/old_log_prob": 4.0, "timing_s/ref": 3.0,
    "timing_s/update_actor": 18.0, "timing_s/update_weights": 2.0, "timing_s/reward": 1.0, "timing_s/adv": 0.5,
    "perf/total_num_tokens": 51200, "prompt_length/mean": 100.0, "response_length/mean": 300.0,
    "response_length/max": 900.0, "response_length/clip_ratio": 0.05, "perf/mfu/actor": 0.4,
}  # fmt: skip
LOGS: Mapping[str, tuple[Mapping[str, float], Mapping[str, float], str]] = {
    "verl": (
        {"training/global_step": 1, **VERL},
        {"step_s": 60, "wait_s": 30, "generate_s": 30, "train_s": 25.5, "sync_s": 2, "reward_s": 1, "samples": 128,
         "output_tokens": 38400, "total_tokens": 51200, "length_mean": 300, "length_max": 900, "clip_share": 0.05},
        "the whole generation counts",
    ),
    "verl fully async": (
        {"training/global_step": 1, **{k: v for k, v in VERL.items() if k != "timing_s/update_weights"},
         "timing_s/timing_s/param_sync": 5.0, "fully_async/trainer/idle_ratio": 0.5,
         "fully_async/rollouter/idle_ratio": 0.1},
        {"wait_s": 30, "sync_s": 5, "trainer_idle": 0.5, "rollout_idle": 0.1},
        "wait for its queue",
    ),
    "verl one step off": (
        {"training/global_step": 1, **VERL, "timing_s/generate_async": 50.0, "timing_s/sync_rollout_weights": 4.0},
        {"wait_s": 30, "generate_s": 50, "sync_s": 2},
        "begun a step before",
    ),
    # docs/advance/one_step_off.md, FSDP2: step = wait_prev_gen + old_log_prob + update_actor, and what has no timer
    "verl one step off of 2025": (
        {"step": 1, "timing_s/step": 520.0, "timing_s/wait_prev_gen": 45.0, "timing_s/generate_sequences": 458.0,
         "timing_s/old_log_prob": 108.0, "timing_s/update_actor": 337.0, "timing_s/sync_rollout_weights": 4.0},
        {"step_s": 520, "wait_s": 45, "generate_s": 458, "train_s": 445, "sync_s": 4, "rest_s": 26},
        "begun a step",
    ),
    # hiyouga/EasyR1 b44b311, experiment_log.jsonl
    "verl as EasyR1": (
        {"step": 1, "timing_s": {"step": 90.0, "gen": 40.0, "reward": 1.0, "old": 6.0, "ref": 5.0, "adv": 0.5,
                                 "update_actor": 22.0, "validation": 12.0, "save_checkpoint": 3.0},
         "response_length": {"mean": 700.0, "max": 2048.0, "min": 9.0, "clip_ratio": 0.02}},
        {"step_s": 90, "wait_s": 40, "train_s": 33.5, "reward_s": 1, "eval_s": 12, "checkpoint_s": 3,
         "length_mean": 700},
        "the whole generation counts",
    ),
    "verl separate async": (
        {"training/global_step": 1, **VERL, "timing_s/switch_wait": 6.0,
         "training/off_policy/trajectory_staleness/mean": 1.2},
        {"wait_s": 36, "sync_s": 2, "staleness_steps": 1.2},
        "waits for the replay buffer",
    ),
    "trl": (
        {"train/global_step": 1, "train/step_time": 40.0, "train/completions/mean_length": 200.0,
         "train/completions/clipped_ratio": 0.1, "profiling/Time taken: GRPOTrainer.vLLM.generate": 25.0,
         "profiling/Time taken: GRPOTrainer.sync_weights": 1.5},
        {"step_s": 40, "wait_s": 25, "generate_s": 25, "sync_s": 1.5, "length_mean": 200, "clip_share": 0.1},
        "the whole generation counts",
    ),
    "trl async": (
        {"step": 1, "perf/step_s": 20.0, "perf/rollout_wait_s": 6.0, "perf/fwd_bwd_s": 11.0, "perf/optimizer_s": 1.0,
         "perf/weight_sync_s": 2.0, "batch/samples_per_step": 64, "batch/trained_tokens_per_step": 6400,
         "completions/mean_length": 100.0, "sample/rollout_queue_size": 7.0, "sample/staleness_mean": 1.5},
        {"step_s": 20, "wait_s": 6, "train_s": 12, "sync_s": 2, "samples": 64, "output_tokens": 6400,
         "queue_samples": 7, "staleness_steps": 1.5},
        "wait for the rollout queue",
    ),
    "open-instruct": (
        {"training_step": 1, "time/total": 50.0, "time/training": 45.0, "time/trainer_waiting_for_data": 15.0,
         "time/weight_sync": 3.0, "time/saving": 0.0, "val/sequence_lengths": 500.0, "val/stop_rate": 0.9,
         "val/num_step_tokens": 70000},
        {"step_s": 50, "wait_s": 15, "train_s": 32, "sync_s": 3, "checkpoint_s": 0, "clip_share": 0.1,
         "length_mean": 500, "total_tokens": 70000},
        "taken off",
    ),
    # allenai/open-instruct of October 2025: open_instruct/grpo_fast.py
    "open-instruct of 2025": (
        {"training_step": 1, "time/total": 100.0, "time/training": 60.0, "time/trainer_idling": 30.0,
         "time/saving": 0.0, "val/sequence_lengths": 900.0},
        {"step_s": 100, "wait_s": 30, "train_s": 70},
        "leave of time/total",
    ),
    "openrlhf": (
        {"train/global_step": 1, "train/timing/generation": 30.0, "train/timing/make_experience": 8.0,
         "train/timing/ppo_train": 20.0, "train/timing/broadcast": 2.0, "train/timing/step_total": 60.0,
         "train/rollout/num_samples": 128.0, "train/rollout/response_length_mean": 300.0},
        {"step_s": 60, "wait_s": 30, "generate_s": 30, "train_s": 28, "sync_s": 2, "samples": 128,
         "output_tokens": 38400},
        "the whole generation counts",
    ),
    "openrlhf async": (
        {"global_step": 1, "timing/generation": 30.0, "timing/make_experience": 8.0, "timing/ppo_train": 20.0,
         "timing/broadcast": 2.0, "timing/step_total": 37.0},
        {"step_s": 37, "wait_s": 7, "rollout_active_s": 30, "train_s": 28, "sync_s": 2},
        "beyond experience",
    ),
    "nemo-rl": (
        {"_step": 1, "timing/train/total_step_time": 70.0, "timing/train/generation": 40.0,
         "timing/train/policy_training": 15.0, "timing/train/policy_and_reference_logprobs": 6.0,
         "timing/train/prepare_for_generation/total": 3.0, "train/global_valid_seqs": 512,
         "train/global_valid_toks": 102400, "train/mean_gen_tokens_per_sample": 200.0, "train/truncation_rate": 0.02},
        {"step_s": 70, "wait_s": 40, "generate_s": 40, "train_s": 21, "sync_s": 3, "samples": 512,
         "output_tokens": 102400, "length_mean": 200, "clip_share": 0.02},
        "the whole generation counts",
    ),
    "nemo-rl async": (
        {"_step": 1, "timing/train/total_step_time": 30.0, "timing/train/exposed_generation": 9.0,
         "timing/train/policy_training": 15.0, "timing/train/weight_sync": 2.0, "train/avg_trajectory_age": 0.8},
        {"step_s": 30, "wait_s": 9, "train_s": 15, "sync_s": 2, "staleness_steps": 0.8},
        "wait for its replay buffer",
    ),
    "roll": (
        {"system/step": 1, "time/step_total": 33.0, "time/step_rollout": 20.0, "time/step_train": 8.0,
         "time/step_old_log_probs_values": 2.0, "time/step_model_update": 1.0, "tokens/response_length/mean": 99.0},
        {"step_s": 33, "wait_s": 20, "train_s": 10, "sync_s": 1, "length_mean": 99},
        "wait for the batch",
    ),
    # roll/pipeline/rlvr/rlvr_pipeline.py: what each domain counts and times, one after the other
    "roll rlvr, two domains": (
        {"step": 1, "time/step_generate": 40.0, "time/step_train": 20.0, "system/batch_size": 512.0,
         "math_rule/scheduler/collect_query_count": 48.0, "math_rule/time/get_token_reward": 2.0,
         "code_sandbox/scheduler/collect_query_count": 16.0, "code_sandbox/time/get_token_reward": 5.0,
         "math_rule/time/compute_advantage": 0.5},
        {"wait_s": 40, "update_s": 20, "reward_s": 7, "advantage_s": 0.5, "groups": 64, "group_size": 8},
        "wait for the batch",
    ),
    # alibaba/ROLL of October 2025: roll/pipeline/agentic/agentic_pipeline.py
    "roll of 2025": (
        {"system/step": 1, "time/rollout": 20.0, "time/ref_log_probs_values_reward": 3.0, "time/adv": 0.5,
         "time/old_log_probs_values": 2.0, "tokens/response_length/mean": 99.0},
        {"wait_s": 20, "ref_s": 3, "logp_s": 2, "advantage_s": 0.5, "length_mean": 99},
        "wait for the batch",
    ),
    "areal": (
        {"_step": 1, "timeperf/rollout": 12.0, "timeperf/train_step": 20.0, "timeperf/recompute_logp": 3.0,
         "timeperf/update_weights": 2.0, "timeperf/save": 1.0, "ppo_actor/n_seqs": 128,
         "ppo_actor/n_valid_tokens": 9e4},
        {"step_s": 38, "wait_s": 12, "train_s": 23, "sync_s": 2, "checkpoint_s": 1, "samples": 128,
         "output_tokens": 9e4},
        "sum of its parts",
    ),
    "slime": (
        {"rollout/step": 1, "perf/step_time": 50.0, "perf/train_wait_time": 20.0, "perf/train_time": 30.0,
         "perf/update_weights_time": 4.0, "perf/actor_train_time": 22.0, "rollout/response_len/mean": 400.0},
        {"step_s": 50, "wait_s": 16, "train_s": 30, "sync_s": 4, "length_mean": 400},
        "are taken off",
    ),
    "prime-rl": (
        {"step": 1, "time": 1.7e9, "time/step": 25.0, "time/wait_for_batch": 5.0, "time/forward_backward": 18.0,
         "time/broadcast_weights": 1.0},
        {"step_s": 25, "wait_s": 5, "train_s": 18, "sync_s": 1, "time_s": 1.7e9},
        "orchestrator's batch",
    ),
    "skyrl": (
        {"trainer/global_step": 1, "timing/step": 40.0, "timing/generate": 25.0, "timing/train_critic_and_policy": 9.0,
         "timing/fwd_logprobs_values_reward": 3.0, "timing/sync_weights": 2.0, "generate/avg_num_tokens": 700.0,
         "generate/batch_num_seq": 256},
        {"step_s": 40, "wait_s": 25, "generate_s": 25, "train_s": 12, "sync_s": 2, "samples": 256, "rest_s": 1},
        "the whole generation counts",
    ),
    "skyrl async": (
        {"_step": 1, "timing/step": 20.0, "timing/wait_for_generation_buffer": 6.0, "timing/run_training": 12.0,
         "timing/fwd_logprobs_values_reward": 3.0, "timing/sync_weights": 1.0, "async/staleness_mean": 1.5,
         "async/staleness_ratio": 0.7, "async/gen_buffer_qsize_at_wait_start": 3.0, "generate/avg_num_tokens": 700.0},
        {"step_s": 20, "wait_s": 6, "train_s": 12, "sync_s": 1, "queue_groups": 3, "stale_share": 0.7, "rest_s": 1},
        "wait for groups",
    ),
    "tinker": (
        {"step": 1, "time/total": 50.0, "time/run_evaluations_parallel": 4.0, "time/sampling": 30.0,
         "time/train_step": 9.0, "time/save_checkpoint": 3.0, "env/all/total_episodes": 64,
         "env/all/total_ac_tokens": 6400},
        {"step_s": 46, "wait_s": 30, "generate_s": 30, "train_s": 9, "sync_s": 3, "samples": 64, "rest_s": 4},
        "the whole generation counts",
    ),
    "tinker async": (
        {"training_client/step": 5, "time/train_step": 9.0, "sampling_client/step_mean": 0.0,
         "sampling_client/step_min": 0.0, "time/sampling_time_mean": 80.0},
        {"train_s": 9, "group_s_mean": 80},
        "stand nowhere",
    ),
    "verifiers": (
        {"train/global_step": 1, "train/wall_clock/generate_s": 40.0, "train/tokens/completion": 700.0,
         "train/tokens/masked_fraction": 0.1},
        {"generate_s": 40, "length_mean": 700},
        "the time between two rows",
    ),
    "ms-swift": (
        {"train/global_step": 1, "profiling/Time taken: GRPOTrainer.generate": 30.0,
         "profiling/Time taken: GRPOTrainer._move_model_to_vllm": 2.0,
         "profiling/Time taken: GRPOTrainer._compute_rewards_per_func": 1.0,
         "profiling/Time taken: GRPOTrainer._score_completions": 1.5,
         "profiling/Time taken: GRPOTrainer._prepare_batch_inputs": 4.0, "train/completions/mean_length": 300.0,
         "train/completions/clipped_ratio": 0.1, "train/num_turns": 2.0},
        {"wait_s": 30, "generate_s": 30, "sync_s": 2, "reward_s": 1, "length_mean": 300, "clip_share": 0.1,
         "turns_mean": 2},
        "in its trackers alone",
    ),
    "rllm": (
        {"training/global_step": 1, "timing_s/step": 60.0, "timing_s/old_log_probs": 5.0, "timing_s/update_actor": 20.0,
         "timing_s/update_weights": 4.0, "timing_s/save_checkpoint": 6.0, "groups/num_trajs_after_filter": 64,
         "groups/avg_group_size": 8.0, "batch/solve_none": 0.1},
        {"step_s": 70, "wait_s": 35, "generate_s": 35, "train_s": 25, "sync_s": 4, "checkpoint_s": 6, "samples": 64},
        "times no generation",
    ),
    "rllm of 2025": (
        {"step": 1, "timing_s/step": 60.0, "timing_s/collect_trajectory": 30.0, "timing_s/old_log_prob": 5.0,
         "timing_s/update_actor": 20.0, "timing_s/gen": 1.0, "perf/time_per_step": 60.0, "batch/solve_none": 0.1,
         "batch/solve_all": 0.1, "batch/solve_partial": 0.8, "traj/llm_time_mean": 9.0, "traj/env_time_mean": 2.0},
        {"step_s": 60, "wait_s": 30, "generate_s": 30, "train_s": 25, "sample_s_mean": 9, "tool_s_mean": 2},
        "the whole generation counts",
    ),
    "rllm async": (
        {"training/global_step": 1, "time/step": 50.0, "time/buffer_wait": 10.0, "time/weight_sync": 7.0,
         "timing_s/step": 50.0, "timing_s/weight_sync": 2.0, "timing_s/update_actor": 30.0, "async/staleness_mean": 1.0,
         "async/buffer_qsize": 3, "async/in_flight_groups": 9, "async/max_rollout_quota": 16},
        {"step_s": 50, "wait_s": 15, "train_s": 30, "sync_s": 2, "queue_groups": 3, "in_flight_groups": 9,
         "window_cap_groups": 16, "staleness_steps": 1},
        "waits for what is in flight",
    ),
    "rllm streamed": (
        {"progress/batch": 1, "time/step": 50.0, "time/buffer_wait": 10.0, "time/weight_sync": 7.0,
         "time/forward_backward": 30.0, "time/optim_step": 1.0, "async/buffer_qsize": 3,
         "episode/response_tokens": 90.0},
        {"step_s": 50, "wait_s": 10, "train_s": 31, "sync_s": 7, "length_mean": 90},
        "wait for groups",
    ),
    "rlinf": (
        {"_step": 1, "time/step": 60.0, "time/rollout": 30.0, "time/actor/training": 20.0, "time/actor/inference": 4.0,
         "time/reward": 1.0, "time/sync_weights": 3.0, "rollout/total_num_sequence": 512.0,
         "rollout/response_length": 700.0, "rollout/fraction_of_samples_properly_ended": 0.9},
        {"step_s": 60, "wait_s": 30, "generate_s": 30, "train_s": 24, "logps_s": 4, "reward_s": 1, "sync_s": 3,
         "samples": 512, "length_mean": 700, "clip_share": 0.1, "rest_s": 2},
        "the whole generation counts",
    ),
    # a pipeline works on parts of a batch, and its workers wait for each other in their timers
    "rlinf pipeline": (
        {"_step": 1, "time/step": 60.0, "time/rollout": 45.0, "time/training": 55.0, "time/inference": 30.0,
         "time/reward": 46.0, "time/sync_weights": 3.0},
        {"step_s": 60, "wait_s": 45, "train_s": 12, "sync_s": 3},
        "counts as training",
    ),
    "rlinf async": (
        {"_step": 1, "time/step": 60.0, "time/construct_rollout_batch": 15.0, "time/cal_adv_and_returns": 1.0,
         "time/actor_training": 40.0, "time/update_rollout_weights": 3.0},
        {"step_s": 60, "wait_s": 15, "train_s": 41, "sync_s": 3},
        "wait for its batch",
    ),
    "plain": (
        {"step": 1, "step_s": 10.0, "wait_s": 2.0, "train_s": 7.0, "sync_s": 1.0, "samples": 64},
        {"step_s": 10, "wait_s": 2, "train_s": 7, "sync_s": 1, "samples": 64},
        "",
    ),
}  # fmt: skip


def _write(tmp_path: Path, rows: Sequence[Mapping[str, Any]], name: str = "log.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _log(path: Path, framework: str | None = None, **mapping: str) -> StepLog:
    steps = read_run_log(path, framework, mapping).steps
    assert steps is not None
    return steps


def _notes(history: History) -> str:
    return "\n".join(n.text for n in history.notes)


def _rows(row: Mapping[str, float], n: int = 3) -> list[dict[str, float]]:
    """The row, as n steps 60 s apart."""
    counter = next(iter(row))
    return [{**row, counter: k + 1, "_timestamp": 1.7e9 + 60 * k} for k in range(n)]


@pytest.mark.parametrize("case", LOGS)
def test_every_framework_is_told_and_read(tmp_path: Path, case: str) -> None:
    row, expected, says = LOGS[case]
    path = _write(tmp_path, _rows(row))
    history = read_run_log(path)
    assert history.steps is not None
    assert history.steps.framework == case.split(" ")[0]
    assert history.instances == ()
    for column, value in expected.items():
        if column != "time_s":
            assert history.steps.columns[column].tolist() == pytest.approx([value] * 3), column
    assert set(history.steps.columns) <= set(COLUMNS)
    assert history.steps.columns["time_s"].tolist() == [1.7e9, 1.7e9 + 60, 1.7e9 + 120]
    assert history.end_s == 1.7e9 + 120
    assert history.start_s == pytest.approx(1.7e9 - expected["step_s"] if "step_s" in expected else 1.7e9, abs=61)
    assert says in _notes(history)


def test_every_framework_has_a_case() -> None:
    assert {case.split(" ")[0] for case in LOGS} == set(BY_NAME)


def test_every_entry_speaks_of_a_column() -> None:
    for framework in FRAMEWORKS:
        assert {e.column for e in framework.entries} <= set(COLUMNS) - {"step", "time_s"}


def test_rlvr_total_is_moved_to_its_step(tmp_path: Path) -> None:
    rows = [{"system/step": k, "time/step_total": 10.0 * (k - 1), "time/step_generate": 4.0} for k in (1, 2, 3)]
    assert _log(_write(tmp_path, rows)).columns["step_s"].tolist()[:2] == [10, 20]


def test_running_totals_become_growth(tmp_path: Path) -> None:
    rows = [{**LOGS["open-instruct"][0], "training_step": k, "episode": 256 * k} for k in (1, 2, 3)]
    samples = _log(_write(tmp_path, rows)).columns["samples"]
    assert math.isnan(samples[0])
    assert samples[1:].tolist() == [256, 256]


def test_profiling_rows_add_up_until_their_step(tmp_path: Path) -> None:
    generate = {"profiling/Time taken: GRPOTrainer.vLLM.generate": 10.0}
    rows: list[dict[str, float]] = []
    for k in (1, 2):
        rows += [
            generate,
            generate,
            {"train/global_step": k, "train/step_time": 30.0, "train/completions/mean_length": 5},
        ]
    assert _log(_write(tmp_path, rows)).columns["wait_s"].tolist() == [20, 20]


def test_verl_files_nested_and_console(tmp_path: Path) -> None:
    nested = _write(tmp_path, [{"step": k, "data": VERL} for k in (1, 2)], "nested.jsonl")
    text = "".join(
        f"(TaskRunner pid=7) step:{k} - "
        + " - ".join(f"{n}:np.float64({v})" for n, v in VERL.items())
        + "\nother text\n"
        for k in (1, 2)
    )
    console = tmp_path / "console.log"
    console.write_text(text)
    for path in (nested, console):
        got = _log(path)
        assert got.columns["step"].tolist() == [1, 2]
        assert got.columns["wait_s"].tolist() == [30, 30]


def test_a_console_of_verls_form_may_be_rllms(tmp_path: Path) -> None:
    row = {name: value for name, value in LOGS["rllm of 2025"][0].items() if name != "step"}
    console = tmp_path / "console.log"
    console.write_text("".join(f"step:{k} - " + " - ".join(f"{n}:{v}" for n, v in row.items()) + "\n" for k in (1, 2)))
    got = _log(console)
    assert got.framework == "rllm"
    assert got.columns["wait_s"].tolist() == [30, 30]


def test_rllms_table_folds_long_names(tmp_path: Path) -> None:
    """rich at a width of 80, as where the output is a file."""
    row = {"time/step": 60.0, "batch/solve_none_of_a_name_that_is_too_long_for_the_eighty_columns_of_a_file": 0.5,
           "time/forward_backward": 20.0, "time/save_checkpoint": 3.0, "groups/num_groups": 8}  # fmt: skip
    text = io.StringIO()
    console = Console(file=text, width=80)
    for k in (1, 2):
        table = Table(title=f"Step {k}", show_header=True)
        table.add_column("Metric", no_wrap=False)
        table.add_column("Value", justify="right")
        for name, value in row.items():
            table.add_row(name, f"{value:.6f}")
        console.print(table)
    path = tmp_path / "console.log"
    path.write_text(text.getvalue())
    got = _log(path)
    assert got.columns["step"].tolist() == [1, 2]
    assert got.columns["step_s"].tolist() == [63, 63]
    assert got.columns["wait_s"].tolist() == [40, 40]


@pytest.mark.parametrize("end", ["\r", ""], ids=["returns", "lost returns"])
def test_rlinfs_bar_and_panel(tmp_path: Path, end: str) -> None:
    bar, panel = tmp_path / "bar.log", tmp_path / "panel.log"
    numbers = "step_time=60, rollout_time=30, actor/training_time=20, sync_weights_time=3, total_num_sequence=1.02e+3"
    bars = (f"Global Step:   {k}%|▏  | {k}/100 [01:0{k}<10:00, 60.00s/it, {numbers}]" for k in (1, 2))
    bar.write_text(end + end.join(bars))
    got = _log(bar)
    assert got.columns["step"].tolist() == [1, 2]
    assert got.columns["rest_s"].tolist() == [7, 7]
    assert got.columns["samples"].tolist() == [1020, 1020]
    lines = [f"╭{'─' * 30}╮", "├── Metric Table ──┤"]
    for k in (1, 2):
        lines += [f"│ Global Step: {k:4d}/500 │ Progress: █░ │   1.0%  │", "│ Elapsed: 01:00 │ Step Time: 9.000s │"]
        lines += ["├── Time ──┤", "│    │", "│actor_training=20.000   │generate_rollouts=30.000│step=60.000 │"]
        lines += ["│sync_weights=3.000 │  │  │", "├── Environment ──┤", "│step=4.000 │ │ │", f"╰{'─' * 30}╯"]
    panel.write_text("\n".join(lines))
    got = _log(panel)
    assert got.columns["step_s"].tolist() == [60, 60]
    assert got.columns["wait_s"].tolist() == [30, 30]


@pytest.mark.parametrize("start", ["[shim] PID 7: ready (suspend=1)\n", "{7} workers up\n", "[2026-11-22 12:00] go\n"])
def test_a_console_that_begins_with_a_bracket_is_no_json(tmp_path: Path, start: str) -> None:
    path = tmp_path / "console.log"
    steps = "".join(f"step:{k} - timing_s/step:60.0 - timing_s/gen:np.float64(30.0)\n" for k in (1, 2))
    path.write_text(start + "text, and more\n" * 6000 + steps)
    assert _log(path).columns["wait_s"].tolist() == [30, 30]


def test_a_wandb_export(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text(
        '"Step","a - run - timing_s/step","a - run - timing_s/step__MIN","a - run - timing_s/step__MAX",'
        '"a - run - timing_s/gen"\n'
        '"1","60","59","61","30"\n"2","","","",""\n"3","62","1","99","NaN"\n'
    )
    got = _log(path)
    assert got.columns["step"].tolist() == [1, 3]
    assert got.columns["step_s"].tolist() == [60, 62]
    assert got.columns["wait_s"][0] == 30
    assert math.isnan(got.columns["wait_s"][1])


def test_two_runs_in_one_export_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text('"Step","a - timing_s/step","b - timing_s/step"\n"1","60","61"\n')
    with pytest.raises(InputError, match="holds 2 runs"):
        read_run_log(path)


def test_a_trainer_state_of_transformers(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    log = [{"step": k, "step_time": 9.0, "completions/mean_length": 50.0, "loss": 0.1} for k in (1, 2, 3)]
    path.write_text(json.dumps({"best_metric": None, "log_history": [*log, {"step": 3, "eval_loss": 1.0}]}))
    assert _log(path).columns["step_s"].tolist() == [9, 9, 9]


def test_a_resumed_run_counts_the_last_of_each_step(tmp_path: Path) -> None:
    rows = [{"step": k, "timing_s/step": 10.0, "timing_s/gen": 1.0} for k in (1, 2, 3, 4)]
    rows += [{"step": k, "timing_s/step": 20.0, "timing_s/gen": 2.0} for k in (3, 4, 5)]
    history = read_run_log(_write(tmp_path, rows))
    assert history.steps is not None
    assert history.steps.columns["step"].tolist() == [1, 2, 3, 4, 5]
    assert history.steps.columns["step_s"].tolist() == [10, 10, 20, 20, 20]
    assert "resumed" in _notes(history)


def test_the_hours_between_a_crash_and_its_restart_are_no_step(tmp_path: Path) -> None:
    """ms-swift's file has no seconds of a step but those between its rows; the run went back to its checkpoint."""
    rows = [(k, 40 * k) for k in range(1, 21)] + [(k, 40 * k + 7200) for k in range(16, 41)]
    lines = [
        {
            "global_step/max_steps": f"{k}/99",
            "elapsed_time": f"{at // 60}m {at % 60}s",
            "completions/mean_length": 500.0,
        }
        for k, at in rows
    ]
    path = tmp_path / "logging.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    log = read_run_log(path).steps
    assert log is not None
    assert np.isnan(log.columns["step_s"][list(log.columns["step"]).index(16)])
    assert log.mean("step_s") == pytest.approx(40.0)


def test_logging_intervals_and_lost_steps_are_said(tmp_path: Path) -> None:
    row = {"timing_s/step": 10.0}
    assert "stands for 5 steps" in _notes(read_run_log(_write(tmp_path, [{"step": k, **row} for k in (5, 10, 15)])))
    assert "2 step numbers are missing" in _notes(
        read_run_log(_write(tmp_path, [{"step": k, **row} for k in (1, 2, 3, 6, 7)]))
    )


def test_a_log_without_clock_or_step_time(tmp_path: Path) -> None:
    history = read_run_log(_write(tmp_path, [{"step": k, "timing_s/step": 10.0} for k in (1, 2, 3)]))
    assert (history.start_s, history.end_s) == (0, 30)
    assert "no clock" in _notes(history)
    assert "does not say wait_s" in _notes(history)
    rows = [{"step": k, "timing_s/gen": 4.0, "_timestamp": 1.7e9 + 12 * k} for k in (1, 2, 4)]
    got = _log(_write(tmp_path, rows))
    assert got.columns["step_s"][1:].tolist() == [12, 12]


def test_texts_lists_and_nulls_are_no_numbers(tmp_path: Path) -> None:
    row = {"timing_s/step": "12.5", "timing_s/gen": None, "timing_s/adv": "soon", "timing_s/ref": [1], "x": True}
    got = _log(_write(tmp_path, [{"step": 1, **row}]))
    assert got.columns["step_s"].tolist() == [12.5]
    assert set(got.columns) == {"step", "step_s"}


def test_a_mapping_reads_any_log(tmp_path: Path) -> None:
    path = _write(tmp_path, [{"iter": k, "secs": 7.0, "stall": 3.0} for k in range(3)])
    got = _log(path, step_s="secs", **{"trainer.wait_s": "stall"})
    assert got.columns["step_s"].tolist() == [7, 7, 7]
    assert got.columns["wait_s"].tolist() == [3, 3, 3]


def test_a_metric_a_line_is_a_step_log(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    lines = [
        f"a1,timing_s/{k},{v},{n},{1790000000000 + n}" for n in (1, 2, 3) for k, v in (("step", 9.0), ("gen", 4.0))
    ]
    path.write_text("\n".join(["run_id,key,value,step,timestamp", *lines]))
    got = _log(path)
    assert got.columns["step_s"].tolist() == [9, 9, 9]
    assert got.columns["wait_s"].tolist() == [4, 4, 4]
    path.write_text(path.read_text() + "\na2,timing_s/gen,4.0,4,1790000000004")
    with pytest.raises(InputError, match="holds 2 runs"):
        read_run_log(path)


def test_a_mapped_column_is_read_in_its_unit(tmp_path: Path) -> None:
    row = {"loop_ms": 7000.0, "stall": 3000.0, "opt (minutes)": 0.05, "clock_ms": 2.0}
    path = _write(tmp_path, [{"iter": k, **row} for k in range(3)])
    got = _log(path, step_s="loop_ms", wait_s="stall:ms", train_s="opt (minutes)", sync_s="clock_ms:s")
    assert [got.columns[name][0] for name in ("step_s", "wait_s", "train_s", "sync_s")] == [7.0, 3.0, 3.0, 2.0]


def test_a_cut_line_is_left_out_with_a_note(tmp_path: Path) -> None:
    path = _write(tmp_path, [{"step": k, "timing_s/step": 10.0} for k in (1, 2)])
    path.write_text(path.read_text() + '{"step": 3, "timing_s')
    history = read_run_log(path)
    assert history.steps is not None
    assert len(history.steps) == 2
    assert "cut short" in _notes(history)


@pytest.mark.parametrize(
    ("text", "framework", "mapping", "says"),
    [
        ('{"loss": 1}\n', None, {}, "no step log that fleetsim knows"),
        ('{"timing_s/step": 1, "time/step_train": 2}\n', None, {}, "could be verl or roll.*--framework verl"),
        ('{"timing_s/step": 1}\n', "vrl", {}, r'did you mean "verl"\?'),
        ('{"timing_s/step": 1}\n', "slime", {}, "none of the columns"),
        ('{"timing_s/step": 1}\n', None, {"stepp_s": "x"}, r'did you mean "step_s"\?'),
        ('{"timing_s/step": 1}\n', None, {"step_s": "timing_s/stepp"}, r"did you mean timing_s/step\?"),
        ('{"timing_s/step": 1}\nnot json\n{"timing_s/step": 2}\n', None, {}, "log.jsonl:2.*is one object"),
        ('{"step": 1, "timing_s/step": NaN}\n', "verl", {}, "no row says anything"),
        ("[1, 2]", None, {}, "no step log that fleetsim knows"),
        ("only one line\n", None, {}, "a header and rows"),
    ],
)
def test_what_cannot_be_read_says_why(
    tmp_path: Path, text: str, framework: str | None, mapping: dict[str, str], says: str
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=says) as error:
        read_run_log(path, framework, mapping)
    assert all(p.remedy for p in error.value.problems)


@settings(max_examples=100, deadline=None)
@example(
    rows=[{"step": 1, "perf/total_num_tokens": 9e307, "response_length/mean": 1e-300, "prompt_length/mean": 1e-300}]
)
@example(rows=[{"step": 1, "timing_s/step": 9e307, "timing_s/gen": 9e307}])
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {"step": st.integers(-3, 9)},
            optional={
                name: st.floats() | st.integers() | st.none() | st.text(max_size=5)
                for name in ("timing_s/step", "timing_s/gen", "perf/total_num_tokens", "response_length/mean",
                             "prompt_length/mean", "_timestamp")
            },
        ),
        max_size=8,
    )
)  # fmt: skip
def test_any_rows_are_read_or_refused(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "log.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
        try:
            history = read_run_log(path, "verl")
        except InputError as error:
            assert all(p.remedy for p in error.problems)
            return
    log = history.steps
    assert log is not None
    assert (np.diff(log.columns["step"]) > 0).all()
    assert {len(v) for v in log.columns.values()} == {len(log)}
    assert np.isfinite(history.times).all()
    assert history.end_s > history.start_s


def test_what_is_said_of_metrics_comes_in_their_order(tmp_path: Path) -> None:
    wild = [
        "timing_s/ref",
        "prompt_length/mean",
        "timing_s/adv",
        "response_length/max",
        "timing_s/gen",
        "perf/mfu/actor",
    ]
    rows = [{"step": k, "timing_s/step": 9.0, **dict.fromkeys(wild, 1e40)} for k in (1, 2, 3)]
    said = [note.text for note in read_run_log(_write(tmp_path, rows)).notes if "cannot be" in note.text]
    assert [next(name for name in wild if name in text) for text in said] == wild


@pytest.mark.parametrize(
    ("at", "last"),
    [
        ([1, 2, 3, 4], math.inf),
        ([1, 2, 3, 4, 5, 3], 3),  # resumed
        ([1, 2, 3, 4, 5, 3, 4], 4),
        ([1, 2, 3, 4, 5, 3, 4, 5, 6], math.inf),  # and past where it was
        ([4, 3, 2, 1], math.inf),  # a table that is sorted the other way
        ([], math.inf),
    ],
)
def test_the_newest_row_says_where_the_run_is(at: list[int], last: float) -> None:
    assert last_kept(np.array(at, dtype=float)) == last


TUNIX = {"perf/global_step_time": 40.0, "perf/weight_sync_time": 2.0, "perf/sum/rollout_time": 25.0}
TUNIX |= {"perf/mean/rollout_time": 5.0, "perf/sum/actor_train_time": 12.0, "perf/rollout_idle_time": 1.0}
TORCHTUNE = {"train_worker_performance/total_step_time (s)": 40.0, "train_worker_performance/time_weight_sync (s)": 2.0}
TORCHTUNE |= {"train_worker_performance/pct_time_waiting_buffer (%)": 62.5, "queues/train_replay_buffer_size": 3.0}
TORCHTUNE |= {"train_worker_performance/time_waiting_buffer (s)": 25.0}


@pytest.mark.parametrize("row", [TUNIX, TORCHTUNE])
def test_a_log_that_nobody_has_read_is_refused_with_the_flags_that_read_it(
    tmp_path: Path, row: dict[str, float]
) -> None:
    """google/tunix: perf/export.py; meta-pytorch/torchtune: dev/rl/workers/trainers/training.py."""
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps({"step": k, **row}) + "\n" for k in range(1, 5)))
    with pytest.raises(InputError, match="of no step log that fleetsim knows") as refused:
        read_run_log(path)
    words = iter(shlex.split(refused.value.problems[0].remedy))
    mapping = dict(next(words).split("=", 1) for word in words if word == "--map")
    columns = read_run_log(path, mapping=mapping).steps
    assert columns is not None
    assert {name: columns.columns[name][0] for name in mapping} == {
        "step_s": 40.0,
        "wait_s": 25.0,
        "sync_s": 2.0,
        **({"train_s": 12.0} if row is TUNIX else {}),
    }

"""Logs in the forms of other terminals, other releases and other services, as their sources and users have them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fleetsim.history.files import read_file
from fleetsim.history.history import StepLog
from fleetsim.history.read import read_prometheus
from fleetsim.replay.observe.observe import observe
from tests.history.fake_prometheus import Series, serving

STEPS = 30


def _steps(path: Path, text: str) -> StepLog:
    path.write_text(text)
    found = read_file(path).steps
    assert found is not None
    return found


def _trl(k: int) -> dict[str, float]:
    return {
        "loss": 0.01,
        "completions/mean_length": 500.0 + k,
        "num_tokens": 1e5 * k,
        "step_time": 20.0 + k,
        "epoch": 0.1,
    }


@pytest.mark.parametrize("between", ["\r", "", "   ", "\n"])
def test_trl_behind_its_bar(tmp_path: Path, between: str) -> None:
    """tqdm.write clears the bar and goes to the line's beginning; where that is lost, all stands in one line. Bars that
    were drawn again stand there as well."""
    lines = []
    for k in range(1, STEPS + 1):
        old, bar = (f"{n}%|##        | {n}/500 [00:{n:02d}<1:00:00, 20.1s/it]" for n in (k - 1, k))
        lines.append(f"  {old}{between if between != chr(10) else ''}  {bar}{between}{_trl(k)}")
    log = _steps(tmp_path / "train.log", "\n".join(["Loading checkpoint shards: 100%|##| 4/4 [00:03<00:00]", *lines]))
    assert list(log.columns["step"]) == list(range(1, STEPS + 1))
    assert list(log.columns["step_s"]) == [20.0 + k for k in range(1, STEPS + 1)]


def _swift(k: int) -> dict[str, object]:
    """As ms-swift's callback adds its progress to what the trainer logs: two of its values are texts."""
    passed = 24 * k + 3600
    shown = f"{passed // 3600}h {passed % 3600 // 60}m {passed % 60}s"
    trained = {"loss": 0.0123, "grad_norm": 0.21, "learning_rate": 1e-06, "completions/mean_length": 500.0 + k}
    more = {"completions/min_length": 80.0, "completions/max_length": 2048.0, "completions/clipped_ratio": 0.06}
    rewards = {"reward": 0.5, "reward_std": 0.2, "frac_reward_zero_std": 0.1, "kl": 2e-05, "epoch": 0.01 * k}
    done = {"global_step/max_steps": f"{k}/200", "elapsed_time": shown, "remaining_time": "1h 2m 3s"}
    return {**trained, **more, **rewards, **done, "memory(GiB)": 61.5, "train_speed(s/it)": 24.0}


@pytest.mark.parametrize("numbered", [True, False])
def test_evaluations_of_transformers_stand_beside_the_steps(tmp_path: Path, numbered: bool) -> None:
    """transformers/trainer_utils.py: speed_metrics. They come in rows of their own, after that of their step."""
    rows: list[dict[str, float]] = []
    for k in range(1, STEPS + 1):
        rows.append({"step_time": 60.0, "completions/mean_length": 500.0, "step": k})
        if k % 2 == 0:
            rows.append({"eval_loss": 0.1, "eval_runtime": 200.0, "step": k})
    if not numbered:
        rows = [{name: value for name, value in row.items() if name != "step"} for row in rows]
    log = _steps(tmp_path / "trainer_state.json", json.dumps({"log_history": rows}))
    assert list(log.columns["step"]) == list(range(1, STEPS + 1))
    assert [k for k, s in zip(log.columns["step"], log.columns["eval_s"], strict=True) if s == 200.0] == [
        *range(3, STEPS + 1, 2)
    ]


@pytest.mark.parametrize("form", ["file", "console", "behind its bar"])
def test_ms_swift(tmp_path: Path, form: str) -> None:
    """modelscope/ms-swift 3602360: swift/trainers/patcher.py writes logging.jsonl and prints the same."""
    rows = [_swift(k) for k in range(1, STEPS + 1)]
    ends = {"train_runtime": 812.5, "train_loss": 0.01, "global_step/max_steps": f"{STEPS}/{STEPS}"}
    if form == "file":
        text = "\n".join(map(json.dumps, [*rows, ends]))
    else:
        bar = "Train:  12%|#2        | 24/200 [09:36<1:10:24, 24.0s/it]" if form == "behind its bar" else ""
        text = "\n".join(["[INFO:swift] Setting args.lazy_tokenize: True", *(f"{bar}{row}" for row in [*rows, ends])])
    log = _steps(tmp_path / "logging.jsonl", text)
    assert log.framework == "ms-swift"
    assert list(log.columns["step"]) == list(range(1, STEPS + 1))
    assert list(log.columns["step_s"][1:]) == [24.0] * (STEPS - 1)
    assert log.columns["length_mean"][4] == 505.0
    assert log.columns["clip_share"][4] == 0.06
    assert "wait_s" not in log.columns


def test_ms_swift_in_its_tracker_says_what_the_rest_of_a_step_was(tmp_path: Path) -> None:
    timer = "profiling/Time taken: GRPOTrainer."
    seconds = {"generate": 10.0, "_move_model_to_vllm": 2.0, "_compute_rewards_per_func": 1.0}
    others = {"_score_completions": 1.5, "_prepare_batch_inputs": 3.0}
    rows = []
    for k in range(1, STEPS + 1):
        timed = {f"{timer}{name}": value for name, value in {**seconds, **others}.items()}
        rows.append({f"{timer}generate": 5.0, "_runtime": 40.0 * k - 20})  # once more, for samples of other prompts
        rows.append({"train/global_step": k, "_runtime": 40.0 * k, "train/completions/mean_length": 500.0, **timed})
    log = _steps(tmp_path / "run.jsonl", "\n".join(map(json.dumps, rows)))
    assert log.framework == "ms-swift"
    assert log.columns["step_s"][4] == 40.0
    assert log.columns["logps_s"][4] == 3.0
    assert log.columns["update_s"][4] == pytest.approx(40.0 - log.columns["wait_s"][4] - 2.0 - 1.0 - 3.0)


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        # areal/trainer/rl_trainer.py: roles change places between its timers, not in them
        (
            {
                "timeperf/rollout": 30.0,
                "timeperf/train_step": 20.0,
                "timeperf/update_weights": 2.0,
                "timeperf/rollout_offload": 5.0,
                "timeperf/rollout_onload": 6.0,
                "timeperf/actor_onload": 4.0,
            },
            {"step_s": 67.0, "handover_s": 15.0, "wait_s": 30.0},
        ),
        # roll/pipeline/base_worker.py: the trainer's checkpoint, beside the step's own timers
        (
            {
                "time/step_rollout": 30.0,
                "time/step_train": 20.0,
                "time/step_total": 90.0,
                "time/actor_train/do_checkpoint/total": 38.0,
            },
            {"checkpoint_s": 38.0},
        ),
        # skyrl/train/fully_async_trainer.py: saving comes after the step's clock has stopped
        (
            {
                "timing/step": 60.0,
                "timing/wait_for_generation_buffer": 10.0,
                "timing/run_training": 45.0,
                "timing/save_checkpoints": 40.0,
            },
            {"step_s": 100.0, "checkpoint_s": 40.0},
        ),
        # open_instruct/data_loader.py: batches are prepared ahead, and wait for the trainer
        (
            {
                "time/total": 200.0,
                "time/training": 198.0,
                "time/trainer_waiting_for_data": 0.0,
                "time/generation_waiting_for_trainer": 150.0,
                "time/weight_sync": 1.0,
                "val/sequence_lengths": 5.0,
            },
            {"rollout_active_s": 50.0, "rollout_window_s": 200.0},
        ),
    ],
    ids=["areal", "roll", "skyrl", "open-instruct"],
)
def test_seconds_beside_the_step_s_own_timers(tmp_path: Path, row: dict[str, float], columns: dict[str, float]) -> None:
    log = _steps(tmp_path / "run.jsonl", "\n".join(json.dumps({"step": k, **row}) for k in range(STEPS)))
    assert {name: log.columns[name][4] for name in columns} == pytest.approx(columns)


def _verl(k: int, begin: str) -> str:
    parts = {"gen": 40.0 + k % 3, "ref": 8.0, "adv": 1.0, "update_actor": 30.0}
    told = " - ".join(f"{begin}/{name}:{value:.3f}" for name, value in parts.items())
    return f"step:{k} - {told} - response_length/mean:500.0 - prompt_length/mean:100.0"


def test_verl_of_2024_has_other_names_and_no_total(tmp_path: Path) -> None:
    log = _steps(tmp_path / "old.log", "\n".join(_verl(k, "timing") for k in range(STEPS)))
    new = _steps(tmp_path / "new.log", "\n".join(_verl(k, "timing_s") for k in range(STEPS)))
    assert log.framework == "verl"
    assert set(log.columns) == set(new.columns)
    assert all(np.array_equal(log.columns[name], new.columns[name], equal_nan=True) for name in new.columns)
    assert log.columns["step_s"][3] == pytest.approx(40 + 8 + 1 + 30)
    assert log.columns["wait_s"][3] == 40.0


def test_verl_after_a_million_other_lines(tmp_path: Path) -> None:
    other = "(WorkerDict pid=12) INFO 08-20 08:53:40 [engine.py:1] something else is said, and said again\n" * 1_000_000
    log = _steps(tmp_path / "long.log", other + "\n".join(_verl(k, "timing_s") for k in range(STEPS)))
    assert len(log) == STEPS


def test_bytes_that_are_no_text_spoil_their_own_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    lines = [f"step:{k} - timing_s/step:30.0 - timing_s/gen:20.0".encode() for k in range(1, 9)]
    path.write_bytes(b"\n".join([*lines[:4], b"\xff\xfe \x00 torn", *lines[4:]]))
    log = read_file(path).steps
    assert log is not None
    assert list(log.columns["step"]) == list(range(1, 9))


def test_prime_rl_until_june_2026(tmp_path: Path) -> None:
    """Its step's seconds behind a word, with a point in them."""
    lines = [
        f"12:00:00 SUCCESS Step {k} | Time: {20 + k / 4:.2f}s | Loss: 0.01 | Throughput: 900 tokens/s | MFU: 31.5%"
        for k in range(STEPS)
    ]
    log = _steps(tmp_path / "trainer.log", "\n".join(lines))
    assert log.framework == "prime-rl"
    assert list(log.columns["step_s"]) == [20 + k / 4 for k in range(STEPS)]
    assert log.columns["mfu"][0] == pytest.approx(0.315)
    lines = [
        f"SUCCESS Step {k} | Time: 31.75s | Reward: 0.5 | Seq. Length: 900.0 tokens/sample | Max. Off-Policy Level: 3"
        for k in range(STEPS)
    ]
    log = _steps(tmp_path / "orchestrator.log", "\n".join(lines))
    assert set(log.columns["step_s"]) == {31.75}
    assert set(log.columns["staleness_max_steps"]) == {3.0}


def test_a_prefix_stands_before_every_name(tmp_path: Path) -> None:
    rows = [{"step": k, **{f"node0/grpo/{name}": value for name, value in _trl(k).items()}} for k in range(1, STEPS)]
    log = _steps(tmp_path / "run.jsonl", "\n".join(map(json.dumps, rows)))
    assert log.columns["step_s"][4] == 25.0
    assert log.columns["length_mean"][4] == 505.0


def test_several_turns_have_the_tools_answers_in_their_length(tmp_path: Path) -> None:
    def notes(turns: float) -> list[str]:
        path = tmp_path / "run.log"
        path.write_text("\n".join(f"{_verl(k, 'timing_s')} - num_turns/mean:{turns}" for k in range(STEPS)))
        return [note.text for note in read_file(path).notes if "tools' answers" in note.text]

    assert len(notes(6.3)) == 1
    assert not notes(2.0)


def test_the_trainer_of_verls_own_monitor() -> None:
    """RL-Insight: gauges of the last step, "/" written as "_"."""
    times = np.arange(0.0, 3600.0 + 1, 15.0)
    step = np.floor(times / 60.0)
    told = {
        "training_global_step": step,
        "timing_s_step": np.full(len(times), 60.0),
        "timing_s_gen": np.full(len(times), 24.0),
        "timing_s_old_log_prob": np.full(len(times), 10.0),
        "timing_s_ref": np.full(len(times), 6.0),
        "timing_s_update_actor": np.full(len(times), 15.0),
        "timing_s_update_weights": np.full(len(times), 3.0),
        "timing_s_reward": np.full(len(times), 2.0),
    }
    labels = {"project": "verl", "experiment_name": "run", "job": "trainer_metrics", "instance": "10.0.0.1:9092"}
    series = [
        Series({"__name__": f"rl_insight_monitor_{name}", **labels}, times, values) for name, values in told.items()
    ]
    with serving(series) as fake:
        from fleetsim.history.prometheus import Prometheus

        history = read_prometheus(Prometheus(fake.url), 0.0, 3600.0, now_s=3600.0)
    observed = observe(history)
    trainer, account = observed.trainer, observed.account
    assert account is not None
    assert {p.column: p.seconds for p in account.phases} == pytest.approx(
        {"wait_s": 24.0, "update_s": 15.0, "logp_s": 10.0, "ref_s": 6.0, "sync_s": 3.0, "reward_s": 2.0}, rel=0.02
    )
    assert trainer.step_s is not None
    assert trainer.step_s.value == pytest.approx(60.0, rel=0.02)
    assert trainer.wait_s is not None
    assert trainer.wait_s.value == pytest.approx(24.0, rel=0.02)
    assert trainer.train_s is not None
    assert trainer.train_s.value == pytest.approx(31.0, rel=0.02)
    assert trainer.sync_s is not None
    assert trainer.sync_s.value == pytest.approx(3.0, rel=0.02)


ROWS = [{"step": k, "timing_s/step": 10.0 + k, "timing_s/gen": 4.0, "response_length/mean": 900.0} for k in (1, 2, 3)]
NAMES = list(ROWS[0])


def _table(mark: str, header: list[str]) -> str:
    return "\n".join(mark.join(map(str, cells)) for cells in (header, *(row.values() for row in ROWS)))


@pytest.mark.parametrize(
    "raw",
    [
        _table("\t", NAMES),
        _table(";", NAMES),
        # SwanLab's page: each metric behind the run's name, with a clock of its own
        "\n".join(
            ",".join(cells)
            for cells in (
                ["step", *(f"my-run-{name}{end}" for name in NAMES[1:] for end in ("", "_timestamp"))],
                *([str(row["step"]), *(f"{row[name]},1.7e9" for name in NAMES[1:])] for row in ROWS),
            )
        ),
        "step,name,value\n" + "".join(f"{row['step']},{n},{row[n]}\n" for row in ROWS for n in NAMES[1:]),
        json.dumps({name: [row[name] for row in ROWS] for name in NAMES}),
        json.dumps({name: {str(k): row[name] for k, row in enumerate(ROWS)} for name in NAMES}, indent=1),
    ],
)
def test_tables_of_other_tools(tmp_path: Path, raw: str) -> None:
    log = _steps(tmp_path / "run", raw)
    assert log.framework == "verl"
    assert log.columns["step_s"].tolist() == [11.0, 12.0, 13.0]
    assert log.columns["wait_s"].tolist() == [4.0] * 3

"""The calls: every command on good and on bad input, in its forms, at several widths."""

from __future__ import annotations

from collections.abc import Sequence

from tests.golden.call import Call, say
from tests.golden.scripts import SCRIPTS

_QUICK = "--replications 1 --set run.steps=12"
_SMALL_JOB = f"--batch 64 --len 300 {_QUICK}"
_NOBODY = "http://127.0.0.1:1"

_SIZE = (
    say("size_answer", f"size {_SMALL_JOB}"),
    say("size_answer-60", f"size {_SMALL_JOB}", columns=60),
    say("size_answer-120", f"size {_SMALL_JOB}", columns=120),
    say("size_explained", f"size {_SMALL_JOB} --explain"),
    say("size_json", f"size {_SMALL_JOB} --json"),
    say("size_two-replications", "size --scenario rich.yaml --replications 2 --target-idle 0.3", "rich.yaml"),
    say("size_rate", f"size {_SMALL_JOB} --instance-tok-s 900 --trainer-step-s 5 --headroom 0.7 --max-staleness 2"),
    say("size_page", "size --scenario job.yaml --replications 2 --html size.html", "job.yaml"),
    say("size_saved", f"size --scenario job.yaml {_QUICK} --save sized.yaml --trainer-gpus 4 --seed 3", "job.yaml"),
    say("size_preset", f"size --preset verl-fully-async {_SMALL_JOB} --model Qwen/Qwen3-4B --gpu H200 --tp 2"),
    say("size_profile", f"size {_SMALL_JOB} --profile mine.profile.json --strict", "mine.profile.json"),
    say("size_strict", f"size {_SMALL_JOB} --strict"),
    say("size_tripped", f"size {_SMALL_JOB} --fail-if 'step_s>3' --fail-if 'instances>100' --json"),
    say("size_infeasible", f"size {_SMALL_JOB} --target-idle 0.0001 --sync-pause-s 9 --max-staleness 0"),
    say("size_colocated", f"size --preset verl-sync {_SMALL_JOB}"),
    say("size_variable", f"size {_SMALL_JOB}", variables=(("FLEETSIM_TRAINER__FIXED_S", "7.5"),)),
    say("size_bad", "size --batch 0 --len -3 --gpu H1000 --tp 3 --target-idle 7 --set nothing.here=1 --set x"),
    say("size_wrong-type", "size --batch many --len 300"),
    say("size_wrong-flag", "size --bach 64"),
    say("size_both", "size --preset trl-grpo --scenario job.yaml", "job.yaml"),
    say("size_missing", "size --scenario nowhere.yaml"),
    say("size_condition", f"size {_SMALL_JOB} --fail-if 'stepp_s>3' --fail-if 'step_s'"),
)

_SIMULATE = (
    say("simulate_answer", "simulate job.yaml", "job.yaml"),
    say("simulate_answer-60", "simulate job.yaml", "job.yaml", columns=60),
    say("simulate_answer-120", "simulate job.yaml", "job.yaml", columns=120),
    say("simulate_explained", "simulate job.yaml --explain", "job.yaml"),
    say("simulate_json", "simulate job.yaml --json", "job.yaml"),
    say("simulate_rich", "simulate rich.yaml", "rich.yaml"),
    say("simulate_rich-json", "simulate rich.yaml --json", "rich.yaml"),
    say("simulate_barrier", "simulate tiny.yaml", "tiny.yaml"),
    say("simulate_page", "simulate job.yaml --html run.html", "job.yaml"),
    say("simulate_rich-page", "simulate rich.yaml --html run.html --replications 1", "rich.yaml"),
    say("simulate_records", "simulate rich.yaml --replications 1 --parquet records", "rich.yaml"),
    say("simulate_history", "simulate tiny.yaml --replications 1 --openmetrics h.om --openmetrics-end 1790000000",
        "tiny.yaml"),
    say("simulate_trace", "simulate rich.yaml --replications 1 --perfetto trace.json --perfetto-steps 4:9",
        "rich.yaml"),
    say("simulate_hours", "simulate job.yaml --hours 0.1 --replications 1 --seed 5", "job.yaml"),
    say("simulate_trl", f"simulate --preset trl-async-grpo {_QUICK} --set trainer.batch_samples=32"
        " --set workload.output_tokens.mean=200 --set workload.group_size=4"),
    say("simulate_sync", "simulate sync-colocated --steps 6 --replications 1 --set trainer.batch_samples=64"
        " --set workload.output_tokens.mean=200"),
    say("simulate_shipped", "simulate trl-asyncgrpo-lora-run1 --steps 8 --replications 1"),
    say("simulate_sglang", "simulate job.yaml --set engine.name=sglang --replications 1", "job.yaml"),
    say("simulate_trtllm", "simulate job.yaml --set engine.name=tensorrt-llm --replications 1", "job.yaml"),
    say("simulate_profile", "simulate job.yaml --profile tiny.profile.json", "job.yaml", "tiny.profile.json"),
    say("simulate_tripped", "simulate job.yaml --fail-if 'step_s>0.01' --json", "job.yaml"),
    say("simulate_strict", "simulate job.yaml --strict --replications 1", "job.yaml"),
    say("simulate_stuck", "simulate job.yaml --set fleet.max_in_flight_samples=4 --set buffer.capacity_samples=4",
        "job.yaml"),
    say("simulate_short", "simulate job.yaml --steps 2 --replications 1", "job.yaml"),
    say("simulate_bad", "simulate bad.yaml", "bad.yaml"),
    say("simulate_broken", "simulate broken.yaml", "broken.yaml"),
    say("simulate_newer", "simulate newer.yaml", "newer.yaml"),
    say("simulate_picture", "simulate picture.bin", "picture.bin"),
    say("simulate_nothing", "simulate"),
    say("simulate_unknown", "simulate verl-fuly-async"),
    say("simulate_unknown-preset", "simulate --preset verl-fuly-async"),
    say("simulate_bad-flags", "simulate job.yaml --steps 0 --replications 0 --scrape-interval 5 --perfetto-steps 4",
        "job.yaml"),
    say("simulate_exists", "simulate job.yaml --html job.yaml", "job.yaml"),
)  # fmt: skip

_SPLIT = (
    say("split_answer", f"split --gpus 8 {_SMALL_JOB}"),
    say("split_answer-60", f"split --gpus 8 {_SMALL_JOB}", columns=60),
    say("split_answer-120", f"split --gpus 8 {_SMALL_JOB}", columns=120),
    say("split_explained", f"split --gpus 8 --max-staleness 4 {_SMALL_JOB} --explain"),
    say("split_json", f"split --gpus 8 --max-staleness 4 {_SMALL_JOB} --json"),
    say("split_points", f"split --gpus 12 --scenario job.yaml {_QUICK} --trainer-point 4:40 --trainer-point 8:22"
        " --trainer-unit 2 --by cost_per_step --save way.yaml --model Qwen/Qwen3-1.7B", "job.yaml"),
    say("split_page", f"split --gpus 8 --max-staleness 4 {_SMALL_JOB} --html split.html"),
    say("split_tripped", f"split --gpus 8 --max-staleness 4 {_SMALL_JOB} --fail-if 'step_s>1' --json"),
    say("split_strict", f"split --gpus 8 {_SMALL_JOB} --strict"),
    say("split_no-room", f"split --gpus 1 {_SMALL_JOB} --model Qwen/Qwen2.5-72B"),
    say("split_bad", "split --gpus 8 --by speed --trainer-point 4 --parallel-share 3"),
    say("split_nothing", "split"),
)  # fmt: skip

_PLAN = (
    say("plan_answer", f"plan --gpus 8 {_SMALL_JOB}"),
    say("plan_explained", f"plan --gpus 4 --allow fp8 {_SMALL_JOB} --explain"),
    say("plan_json", f"plan --gpus 4 --max-staleness 1 {_SMALL_JOB} --json"),
    say("plan_missed", f"plan --gpus 4 --step-s 0.01 {_SMALL_JOB}"),
    say("plan_page", f"plan --gpus 4 {_SMALL_JOB} --html plan.html"),
    say("plan_bad", "plan --objective speed --allow fp9 --gpu-types H1000"),
)

_RUN = f"--steps 300 --schedule len=0:200,300:900 --instances 2 {_SMALL_JOB}"
_FORECAST = (
    say("forecast_answer", f"forecast {_RUN} --resize --trainer-step-s 2 --set evaluation.every_steps=50"),
    say("forecast_explained", f"forecast {_RUN} --resize --rule up_after=1,cool_down=0 --explain"),
    say("forecast_json", f"forecast {_RUN} --resize --set trainer.failures.mtbf_s=40000 --json"),
    say("forecast_tripped", f"forecast {_RUN} --fail-if 'hours>0.1' --json"),
    say("forecast_backtest", "forecast --run verl.jsonl --steps 300 --backtest 0.3 --replications 1"
        " --set engine.gpu=H100", "verl.jsonl"),
    say("forecast_page", f"forecast {_RUN} --resize --html run.html"),
    say("forecast_bad", "forecast tiny.yaml --steps 0 --schedule lens=0:3 --rule up=1", "tiny.yaml"),
)  # fmt: skip

_PACK = (
    say("pack_answer", "pack tiny.yaml job.yaml --gpus 8 --switch-s 2", "tiny.yaml", "job.yaml"),
    say("pack_explained", "pack tiny.yaml job.yaml --gpus 8 --priority small:1 --explain", "tiny.yaml", "job.yaml"),
    say("pack_json", "pack tiny.yaml job.yaml --gpus 8 --fair --json", "tiny.yaml", "job.yaml"),
    say(
        "pack_protected", "pack tiny.yaml job.yaml --gpus 8 --protect small:1 --protect tiny:1", "tiny.yaml", "job.yaml"
    ),
    say("pack_bad", "pack tiny.yaml --gpus 0 --switch-s -1", "tiny.yaml"),
)  # fmt: skip

_SWEEP = (
    say("sweep_answer", "sweep tiny.yaml --grid fleet.instances=1:4 --grid trainer.fixed_s=10,20 --workers 1",
        "tiny.yaml"),
    say("sweep_answer-60", "sweep tiny.yaml --grid fleet.instances=1:4 --workers 1", "tiny.yaml", columns=60),
    say("sweep_answer-120", "sweep tiny.yaml --grid fleet.instances=1:4 --workers 1", "tiny.yaml", columns=120),
    say("sweep_json", "sweep tiny.yaml --grid fleet.instances=1:3 --objective goodput --workers 1 --json", "tiny.yaml"),
    say("sweep_files", "sweep tiny.yaml --grid fleet.instances=1:3 --out sweep.parquet --html sweep.html --workers 1",
        "tiny.yaml"),
    say("sweep_csv", "sweep tiny.yaml --grid fleet.instances=0:2 --grid admission.law=barrier,version_window"
        " --out sweep.csv --workers 1", "tiny.yaml"),
    say("sweep_tripped", "sweep tiny.yaml --grid fleet.instances=1:2 --fail-if 'step_s>3' --workers 1 --json",
        "tiny.yaml"),
    say("sweep_bad", "sweep tiny.yaml --grid fleet.instanzes=1:3 --grid trainer.fixed_s=9:3 --objective speed"
        " --out sweep.xls", "tiny.yaml"),
    say("sweep_no-grid", "sweep tiny.yaml", "tiny.yaml"),
)  # fmt: skip

_COMPARE = (
    say("compare_scenarios", "compare tiny.yaml --set-b fleet.instances=3 --replications 3", "tiny.yaml"),
    say("compare_scenarios-60", "compare tiny.yaml --set-b fleet.instances=3 --replications 3", "tiny.yaml",
        columns=60),
    say("compare_scenarios-120", "compare tiny.yaml --set-b fleet.instances=3 --replications 3", "tiny.yaml",
        columns=120),
    say("compare_json", "compare tiny.yaml rich.yaml --replications 2 --json", "tiny.yaml", "rich.yaml"),
    say("compare_same", "compare tiny.yaml tiny.yaml --replications 2", "tiny.yaml"),
    say("compare_results", "compare a.json b.json --html changes.html", "a.json", "b.json"),
    say("compare_results-mixed", "compare a.json tiny.yaml --set-b fleet.instances=3", "a.json", "tiny.yaml"),
    say("compare_windows", "compare a.om b.om", "a.om", "b.om"),
    say("compare_windows-json", "compare a.om b.om --metric step_s --metric generated_tok_s --json", "a.om", "b.om"),
    say("compare_spans", "compare lost.om --a ..-12m --b -12m..now", "lost.om"),
    say("compare_server", "compare --prometheus URL --a -11m..-6m --b -6m..now --metric step_s --metric running",
        served="capped.om"),
    say("compare_regression", "compare b.json a.json --fail-if regression --fail-if 'ratio.step_s>1.05'", "a.json",
        "b.json"),
    say("compare_no-regression", "compare a.json b.json --fail-if regression.step_s --metric step_s", "a.json",
        "b.json"),
    say("compare_bad", "compare a.json words.txt --metric steps_s --min-change 3 --fail-if x", "a.json", "words.txt"),
    say("compare_nothing", "compare"),
    say("compare_unreachable", f"compare --prometheus {_NOBODY} --a -6h..-3h --b -3h..now --timeout 1"),
)  # fmt: skip

_REPLAY = (
    say("replay_answer", "replay --from capped.om --scenario capped.yaml", "capped.om", "capped.yaml"),
    say("replay_answer-60", "replay --from lost.om --no-backtest", "lost.om", columns=60),
    say("replay_answer-120", "replay --from lost.om --no-backtest", "lost.om", columns=120),
    say("replay_lost", "replay --from lost.om --scenario async-one-step --set trainer.fixed_s=15", "lost.om"),
    say("replay_json", "replay --from capped.om --scenario capped.yaml --json", "capped.om", "capped.yaml"),
    say("replay_what-if", "replay --from capped.om --scenario capped.yaml --no-backtest --set"
        " fleet.max_in_flight_samples=96 --sweep fleet.instances=2:4:2 --given engine.tp=2 --json", "capped.om",
        "capped.yaml"),
    say("replay_page", "replay --from capped.om --scenario capped.yaml --html day.html --set"
        " fleet.max_in_flight_samples=96", "capped.om", "capped.yaml"),
    say("replay_plan", "replay --from capped.om --scenario capped.yaml --set fleet.max_in_flight_samples=192 --set"
        " fleet.instances=7 --plan-out plan.json --patch patch.yaml --deployment rollout@rl", "capped.om",
        "capped.yaml"),
    say("replay_recommend", "replay --from a.om --scenario tiny.yaml --recommend", "a.om", "tiny.yaml"),
    say("replay_verify", "replay --from capped.om --verify change.json", "capped.om", "change.json"),
    say("replay_server", "replay --prometheus URL --start -9m --no-backtest", served="capped.om"),
    say("replay_saved", "replay --from a.om --no-backtest --save kept.json", "a.om"),
    say("replay_saved-table", "replay --from a.om --no-backtest --save kept.parquet --start -6m --step 30s --json",
        "a.om"),
    say("replay_log", "replay --from verl.jsonl", "verl.jsonl"),
    say("replay_log-json", "replay --from verl.jsonl --framework verl --json", "verl.jsonl"),
    say("replay_log-table", "replay --from plain.csv --given fleet.instances=4 --given trainer.gpus=8", "plain.csv"),
    say("replay_tripped", "replay --from a.om --no-backtest --fail-if 'trainer_idle_fraction>0.01'", "a.om"),
    say("replay_bad", "replay --from a.om --start soon --step 0s --given engine.tp --sweep x --fail-if y --map z",
        "a.om"),
    say("replay_words", "replay --from words.txt", "words.txt"),
    say("replay_missing", "replay --from nowhere.om"),
    say("replay_nothing", "replay"),
    say("replay_both", f"replay --from a.om --prometheus {_NOBODY}", "a.om"),
    say("replay_page-of-metrics", "replay --from page", "page"),
    say("replay_unreachable", f"replay --prometheus {_NOBODY} --timeout 1 --no-backtest"),
)  # fmt: skip

_ALERTS = (
    say("alerts_rules", "alerts plan.yaml --hours 1 -o rules.yaml --tests tests.yaml --selector 'job=\"rollout\"'",
        "plan.yaml"),
    say("alerts_json", "alerts --plan sized.json --hours 1 --json --engine sglang --budget 0.3 --engines-only"
        " --name mine", "sized.json"),
    say("alerts_bad", "alerts plan.yaml --budget 0 --tests t.yaml --selector job=rollout --map nonsense --engine tgi",
        "plan.yaml"),
    say("alerts_nothing", "alerts"),
)  # fmt: skip

_DASHBOARD = (
    say("dashboard_checked", "dashboard plan.yaml --hours 1 -o dashboard.json --check-against page", "plan.yaml",
        "page"),
    say("dashboard_bad", "dashboard plan.yaml --selector '{job=\"x\"}' --hours -1", "plan.yaml"),
)  # fmt: skip

_WATCH = (
    say("watch_once", "watch --prometheus URL --once --scenario capped.yaml --window 10m", "capped.yaml",
        served="capped.om"),
    say("watch_once-json", "watch --prometheus URL --once --json --window 10m --scenario capped.yaml", "capped.yaml",
        served="capped.om"),
    say("watch_once-other", "watch --prometheus URL --once --selector 'job=\"other\"'", served="a.om"),
    say("watch_unreachable", f"watch --prometheus {_NOBODY} --once --timeout 1"),
    say("watch_bad", f"watch --prometheus {_NOBODY} --every 0s --up-after 0 --down-share 2 --listen nowhere"),
    say("watch_nothing", "watch"),
)  # fmt: skip

_VALIDATE = (
    say("validate_case", "validate --case C01 --case C08"),
    say("validate_case-60", "validate --case C01", columns=60),
    say("validate_json", "validate --case C01 --json --strict"),
    say("validate_files", "validate --case C01 --html validation.html"),
    say("validate_bad", "validate --case C99"),
)

_CALIBRATE = (
    say("calibrate_table", "calibrate --from table.csv --gpu H100 --model Qwen/Qwen2.5-7B --kv-blocks 40000"
        " --block-size 16 --max-num-seqs 256 -o mine.profile.json", "table.csv"),
    say("calibrate_raw", "calibrate --from cpu-tiny.raw.jsonl.gz -o tiny.profile.json --name tiny --json",
        "cpu-tiny.raw.jsonl.gz"),
    say("calibrate_guidellm", "calibrate --from guidellm.json --gpu H100 -o g.profile.json", "guidellm.json"),
    say("calibrate_short", "calibrate --from short.csv -o s.profile.json", "short.csv"),
    say("calibrate_wrong", "calibrate --from wrong.csv --from words.txt -o s.profile.json", "wrong.csv", "words.txt"),
    say("calibrate_contradiction", "calibrate --from table.csv --url http://127.0.0.1:1 --model x", "table.csv"),
    say("calibrate_nothing", "calibrate"),
    say("calibrate_unreachable", f"calibrate --url {_NOBODY} --quick"),
)  # fmt: skip

_PROFILE = (
    say("profile_ls", "profile ls", "mine.profile.json", "words.txt"),
    say("profile_ls-json", "profile ls --json", "mine.profile.json"),
    say("profile_show", "profile show tiny.profile.json", "tiny.profile.json"),
    say("profile_show-60", "profile show tiny.profile.json", "tiny.profile.json", columns=60),
    say("profile_show-120", "profile show mine.profile.json", "mine.profile.json", columns=120),
    say("profile_show-json", "profile show mine.profile.json --json", "mine.profile.json"),
    say("profile_show-page", "profile show tiny.profile.json --html p.html", "tiny.profile.json"),
    say("profile_show-estimate", "profile show roofline.profile.json", "roofline.profile.json"),
    say("profile_show-wrong", "profile show sized.json", "sized.json"),
    say("profile_show-missing", "profile show h1000-7b"),
    say("profile_check", "profile check tiny.profile.json --raw cpu-tiny.raw.jsonl.gz --limit 0.5", "tiny.profile.json",
        "cpu-tiny.raw.jsonl.gz"),
    say("profile_check-failed", "profile check tiny.profile.json --raw cpu-tiny.raw.jsonl.gz --limit 0.0001 --json",
        "tiny.profile.json", "cpu-tiny.raw.jsonl.gz"),
    say("profile_check-nothing", "profile check mine.profile.json", "mine.profile.json"),
    say("profile_estimate", "profile estimate --gpu H200 --model Qwen/Qwen2.5-32B --tp 2 -o e.profile.json"),
    say("profile_estimate-json", "profile estimate --gpu A100 --model Qwen/Qwen3-30B-A3B --json"),
    say("profile_trainer", "profile trainer --batch 512 --len 1536"),
    say("profile_trainer-mixture", "profile trainer --model Qwen/Qwen3-30B-A3B --gpu H200 --trainer-gpus 16 --set"
        " trainer.recipe.framework=verl", columns=120),
    say("profile_trainer-json", "profile trainer --model Qwen/Qwen3-4B --set trainer.recipe.tune=lora --json"),
    say("profile_trainer-small", "profile trainer --model Qwen/Qwen3-32B --trainer-gpus 4"),
    say("profile_estimate-bad", "profile estimate --gpu H1000 --model nobody/nothing --tp 3 --dtype int1"),
)  # fmt: skip

_SCENARIO = (
    say("scenario_init", "scenario init"),
    say("scenario_init-preset", "scenario init verl-fully-async -o job.yaml"),
    say("scenario_init-exists", "scenario init areal -o job.yaml", "job.yaml"),
    say("scenario_init-unknown", "scenario init aral"),
    say("scenario_ls", "scenario ls"),
    say("scenario_ls-60", "scenario ls", columns=60),
    say("scenario_ls-json", "scenario ls --json"),
    say("scenario_schema", "scenario schema"),
    say("scenario_check", "scenario check job.yaml rich.yaml verl-sync", "job.yaml", "rich.yaml"),
    say("scenario_check-bad", "scenario check bad.yaml broken.yaml empty.yaml newer.yaml picture.bin nowhere.yaml"
        " job.yaml", "bad.yaml", "broken.yaml", "empty.yaml", "newer.yaml", "picture.bin", "job.yaml"),
    say("scenario_check-json", "scenario check bad.yaml job.yaml --json", "bad.yaml", "job.yaml"),
    say("scenario_from-verl", "scenario from verl verl_sync.yaml", "verl_sync.yaml"),
    say("scenario_from-verl-script", "scenario from verl verl_fully_async.sh --verbose", "verl_fully_async.sh"),
    say("scenario_from-verl-json", "scenario from verl verl_separate_async.yaml --json --set run.steps=9 --"
        " trainer.nnodes=4", "verl_separate_async.yaml", columns=120),
    say("scenario_from-roll", "scenario from roll roll_rlvr_async.yaml -o job.yaml", "roll_rlvr_async.yaml"),
    say("scenario_from-openrlhf", "scenario from openrlhf openrlhf_async.sh", "openrlhf_async.sh", columns=60),
    say("scenario_from-open-instruct", "scenario from open-instruct open_instruct.sh", "open_instruct.sh"),
    say("scenario_from-trl", "scenario from trl trl_grpo.py", "trl_grpo.py"),
    say("scenario_from-areal", "scenario from areal areal.yaml", "areal.yaml"),
    say("scenario_from-nemo-rl", "scenario from nemo-rl nemo_rl_async.yaml", "nemo_rl_async.yaml", "nemo_rl_base.yaml"),
    say("scenario_from-slime", "scenario from slime slime_sync.sh", "slime_sync.sh"),
    say("scenario_from-prime-rl", "scenario from prime-rl prime_rl.toml", "prime_rl.toml"),
    say("scenario_to-verl", "scenario to verl areal"),
    say("scenario_to-prime-rl", "scenario to prime-rl prime-rl --set fleet.instances=4 -o rl.toml"),
    say("scenario_to-json", "scenario to nemo-rl nemo-rl-async-grpo --json"),
    say("scenario_from-wrong", "scenario from verl prime_rl.toml", "prime_rl.toml"),
    say("scenario_from-unknown", "scenario from verl2 words.txt", "words.txt"),
)  # fmt: skip

_COMMANDS = (
    "size", "split", "plan", "simulate", "compare", "sweep", "replay", "alerts", "dashboard", "watch", "validate",
    "forecast", "pack", "serve", "examples", "calibrate", "doctor",
    "profile", "profile ls", "profile show", "profile check", "profile estimate", "profile trainer",
    "scenario",
    "scenario from", "scenario to", "scenario init", "scenario check", "scenario schema", "scenario ls",
)  # fmt: skip
_HELP = (
    say("help_fleetsim", "--help"),
    say("help_fleetsim-120", "--help", columns=120),
    say("help_version", "--version"),
    say("help_unknown", "sise"),
    *(say(f"help_{words.replace(' ', '-')}", f"{words} --help") for words in _COMMANDS),
    say("help_size-60", "size --help", columns=60),
    say("help_replay-120", "replay --help", columns=120),
)

CALLS: tuple[Call, ...] = (
    *_HELP, *_SIZE, *_SIMULATE, *_SPLIT, *_PLAN, *_FORECAST, *_PACK, *_SWEEP, *_COMPARE, *_REPLAY, *_ALERTS,
    *_DASHBOARD, *_WATCH, *_VALIDATE, *_CALIBRATE, *_PROFILE, *_SCENARIO, *SCRIPTS,
)  # fmt: skip
# The commands that calls belong to, each once.
COMMANDS = tuple(dict.fromkeys(call.command for call in CALLS))


def chosen(names: Sequence[str]) -> tuple[Call, ...]:
    """The calls of these names, or of these commands; all if there are none. Raises SystemExit for another name."""
    unknown = sorted(set(names) - set(COMMANDS) - {call.name for call in CALLS})
    if unknown:
        raise SystemExit(f"no call and no command: {', '.join(unknown)}; commands: {', '.join(COMMANDS)}")
    return tuple(call for call in CALLS if not names or call.name in names or call.command in names)

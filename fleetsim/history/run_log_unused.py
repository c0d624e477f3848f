"""Metrics that frameworks log and fleetsim does not use, with the reason: patterns of names.

`tests/history/test_log_keys.py` holds every key that a framework's code writes against the tables
(`run_log_maps.py`) and this list; docs/run_logs.md shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

_POLICY = "of the policy, its losses or its rewards: says nothing of time, samples or lengths"
_OTHERS = "of the evaluation, which is no part of a step"
_PART = "a part of another timer, or of another number, which is read"
_COUNT = "a running number, or one that others of the log give"
_ONE = "of a part of the samples, of one of them, or of one domain: the law of all of them counts"
_SPLIT = "how samples are packed onto the trainer's ranks"
_RATE = "a rate whose parts are read themselves"
_ROUTING = "of the routing of experts"
_TEXT = "no number"

EVERY: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        _POLICY,
        (
            "*kl*",
            "*loss*",
            "*entropy*",
            "*reward*",
            "*score*",
            "*advantage*",
            "*returns*",
            "*grad_norm*",
            "*clipfrac*",
            "*clip_ratio/*",
            "*lr",
            "*lr-pg*",
            "*log_prob*",
            "*logp*",
            "*ratio_max*",
            "*ratio_mean*",
            "*ratio_min*",
            "*ratio_var",
            "*imp_weight*",
            "*importance_weight*",
            "*critic/*",
            "*pass@*",
            "*pass_at_*",
            "*_pass1",
            "*_pass{}",
            "*best@*",
            "*maj@*",
            "*worst@*",
            "*avg@*",
            "*approxkl*",
            "*variance_proxy/*",
            "*rho_*",
            "*gdpo/*",
            "*rollout_corr/*",
            "policy/*",
        ),
    ),
    (_OTHERS, ("eval/*", "eval_*", "val-aux/*", "val-core/*", "val_*", "*/val_*", "eval")),
    (_ROUTING, ("*routed_expert*", "*max_vio*", "*min_vio*", "*avg_vio*", "*routing_confidence*")),
    (_SPLIT, ("*balanced_max", "*balanced_min", "*minmax_diff", "*_seqlen/*", "*padded_seq_len")),
    (_COUNT, ("*epoch", "*/global_step", "*training/global_step", "*train/step", "*policy_version", "*param_version")),
)

UNUSED: Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "verl": (
        (_POLICY, ("actor/*", "critic/*")),
        (
            _PART,
            (
                "*agent_loop/compute_score/*",
                "*agent_loop/*/min",
                "*agent_loop/*/max",
                "*processing_time/min",
                "fully_async/total_wait_time",
                "timing_s/compute_score",
                "timing_s/param_sync",
                "timing_s/stop_profile",
                "dynamic_resource/*utilization",
                "dynamic_resource/train_*_time_s",
                "*/num_turns/m*",
                "num_turns/m*",
                "tool_call_counts/m*",
                "training/off_policy/trajectory_spans/*",
                "*_staleness*/m*",
                "*partial_num",
                "*max_partial_span",
                "*evicted_samples_staleness/*",
                "*processing_time/*",
                "agent_loop/*",
                "prompt_length/*",
            ),
        ),
        (_ONE, ("*agent_loop/slowest/*", "response_length_non_aborted/*")),
        ("what is fed to the rollouter and not begun, by a queue of its own", ("*pending_queue_size",)),
        (
            "groups that a filter or a failed rollout took out, which are refilled",
            ("{}/filter_groups/evicted_samples", "{}/rollout_failure/evicted_samples"),
        ),
        (
            "how verl decides to lend GPUs, of which the seconds are read (switch_wait, switch_to_*)",
            ("separate_async/*", "hybrid/*"),
        ),
        ("of the setting, not of what happened", ("*staleness_threshold",)),
        ("of speculative decoding, which no column holds yet", ("rollout/spec_*",)),
        (_RATE, ("perf/throughput", "perf/mfu/actor_infer", "perf/mfu/critic")),
        (_SPLIT, ("{}/max", "{}/mean", "{}/min")),
    ),
    "roll": (
        (
            _POLICY,
            (
                "actor/*",
                "critic/*",
                "*/right_response/*",
                "*/error_response/*",
                "mask/*",
                "*_groups_ratio",
                "*correct_ratio*",
                "{}/correct/mean",
                "{}/values/*",
                "val_correct/*",
            ),
        ),
        (
            _ONE,
            (
                "{}/*length*",
                "rollout/*length*",
                "env/*",
                "latency/*",
                "efficiency/*",
                "scheduler/{}/*",
                "tokens/non_prompt_length/*",
                "tokens/prompt_length/min",
            ),
        ),
        (_PART, ("time/get_*", "time/reward_postprocess", "time/compute_advantage", "time/{}*", "system/time/*")),
        (_RATE, ("system/*tps*", "throughput/*")),
        (
            _COUNT,
            (
                "system/samples",
                "system/batch_*",
                "scheduler/query_use_count",
                "scheduler/group_filter_count",
                "system/state_batch_size/*",
                "{}/max",
                "{}/mean",
                "{}/min",
            ),
        ),
        ("of a web server's settings", ("nginx*",)),
    ),
    "openrlhf": ((_TEXT, ("*generated_samples",)), (_POLICY, ("values", "dynamic_filtering_pass_rate"))),
    "trl": (
        (
            _POLICY,
            ("*clip_ratio*", "entropy_coef", "ratio", "reward*", "vespo/*", "sampling/*", "frac_reward_zero_std"),
        ),
        (_ONE, ("completions/*_terminated_length", "tools/failure_frequency")),
        (_PART, ("forward_time_s", "scoring_time_ms", "wait_scoring_ms", "train_seq_len")),
        (_RATE, ("training_tok/s", "generation_tok_per_s")),
        ("the key of a mode, not a metric", ("train", "eval")),
    ),
    "open-instruct": (
        (_POLICY, ("debug/*", "val/ratio*", "val/solve_rate_hist", "objective/*", "loss/*")),
        (_ONE, ("val/sequence_lengths_*solved*", "batch/*lengths", "time/group_generation_min")),
        (_PART, ("time/weight_sync_*", "time/health_check")),
        (
            "the hand-over's wait for the trainer to take a batch, not the engines'",
            ("time/generation_waiting_for_trainer",),
        ),
        (_RATE, ("*actor_tokens_per_second",)),
        (_COUNT, ("val/num_total_tokens",)),
    ),
    "areal": (
        (
            _POLICY,
            (
                "*logits",
                "*value",
                "*gate*",
                "clip*",
                "dual_clip*",
                "*behave*",
                "{}/*error*",
                "{}/behave*",
                "rs_filtered_fraction",
            ),
        ),
        (_ONE, ("*correct_seq_len",)),
        (
            _PART,
            (
                "timeperf/rollout_*",
                "timeperf/clear_batches",
                "timeperf/{}_*",
                "sample_staleness_proximal_*",
                "sample_staleness_theta_min",
                "unclipped*",
                "n_valid_generated_tokens",
            ),
        ),
        (_COUNT, ("v_theta", "v_proximal", "accepted", "rejected")),
    ),
    "nemo-rl": (
        (
            _PART,
            (
                "timing/train/idle/*",
                "timing/train/mask_sample_filter",
                "timing/train/overlong_filter",
                "timing/train/recompute_kv_scales",
                "timing/train/{}/*",
                "train/teacher_logprob_time",
                "timing/train/prepare_for_generation/transfer_and_update_weights",
            ),
        ),
        (_RATE, ("timing/train/valid_tokens_per_sec_per_gpu",)),
        (
            _ONE,
            (
                "*max_gen_tokens_per_turn/*",
                "*turns_per_sample*",
                "train/mean_env_tokens_per_sample",
                "train/mean_length_*",
                "train/median_length_*",
                "*histogram/*",
                "train/max_turns_reached_rate",
                "train/natural_termination_rate",
                "train/trajectory_duration_s",
            ),
        ),
        (_POLICY, ("train/invalid_*", "train/malformed_*", "train/num_*")),
        (
            _COUNT,
            (
                "train/total_num_tokens",
                "train/total_turns",
                "train/mean_total_tokens_per_sample",
                "train/dynamic_sampling_num_gen_batches",
            ),
        ),
        (
            "counts of each worker, and the engines' own metrics, as tables",
            ("train/per_worker_token_counts", "train/generation_logger_metrics"),
        ),
        (_TEXT, ("{}/full_result",)),
    ),
    "slime": (
        (
            _ONE,
            (
                "longest_*",
                "raw_response_length/*",
                "wo_obs_response_length/*",
                "correct_length/*",
                "repetition_frac",
                "multi_turn_metric/round_number_m*",
            ),
        ),
        (
            _PART,
            (
                "perf/{}log_probs_time",
                "perf/*log_probs_time",
                "perf/actor_train_time",
                "perf/data_preprocess_time",
                "perf/ref_model_update_time",
                "perf/*_time",
            ),
        ),
        (_RATE, ("*tflops", "*tok_per_s", "*tokens_per_gpu_per_sec", "perf/wait_time_ratio")),
        ("how much of the weights a sparse update sent", ("perf/update_weights_*",)),
    ),
    "skyrl": (
        (_POLICY, ("environment/*", "async/keep_rate")),
        (
            _ONE,
            (
                "generate/*assistant_tokens",
                "generate/avg_tokens_*",
                "generate/tokens_per_turn_*",
                "generate/intra_group_*",
                "generate/trajectory_time_*",
            ),
        ),
        (
            _PART,
            (
                "timing/policy_train",
                "timing/critic_train",
                "timing/dump_data_batch",
                "timing/log_train_results",
                "timing/cleanup_old_checkpoints",
                "async/staleness_min",
            ),
        ),
        (
            "once, before the first step",
            ("timing/init_weight_sync_state", "timing/load_checkpoints", "timing/sync_weights_to_inference_engines"),
        ),
        (_COUNT, ("generate/num_seq_*", "async/staleness_violation_count")),
        (_RATE, ("trainer/tokens_per_second_per_gpu",)),
    ),
    "prime-rl": (
        (_PART, ("off_policy/in_*", "dispatcher/off_policy/*", "watcher/*", "time/wait_for_policy")),
        (_OTHERS, ("dispatcher/*/eval",)),
        (
            "the event loop's own delay, and how the dispatcher and the curriculum choose",
            ("event_loop_lag/*", "dispatcher/*", "concurrency/*", "curriculum/*", "pool/*", "batch/*"),
        ),
        (
            "the engines' other metrics and single engines: read them from the engines, with --prometheus",
            ("inference/*",),
        ),
        (_ONE, ("{}/*",)),
        (_RATE, ("perf/throughput*",)),
        (_COUNT, ("progress/total_*", "progress/input_tokens")),
        (_TEXT, ("agent/*",)),
    ),
}


def why_unused(framework: str, key: str) -> str | None:
    """The reason, None where there is none: then the key is forgotten."""
    groups: Collection[tuple[str, tuple[str, ...]]] = (*UNUSED.get(framework, ()), *EVERY)
    return next((why for why, patterns in groups if any(fnmatchcase(key, p) for p in patterns)), None)


def markdown() -> str:
    """Every list, for docs/run_logs.md."""
    lines = ["| framework | not used | why |", "| --- | --- | --- |"]
    for framework, groups in (("all", EVERY), *UNUSED.items()):
        for why, patterns in groups:
            lines.append(f"| {framework} | {', '.join(f'`{p}`' for p in patterns)} | {why} |")
    return "\n".join(lines) + "\n"

"""What a step log can say: the columns of `StepLog`, how a framework's metrics become them, and under which names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from fleetsim.history.history import Floats

CLOCKS = ("_timestamp", "timestamp", "time", "time_s", "Wall Time", "wall_time")
RUNNING = ("_runtime", "Relative Time (Process)", "Relative Time (Wall)")

How = Literal["first", "sum", "growth", "rest", "next", "percent"]
FORMS: Mapping[How, str] = {
    "growth": "growth of {}",
    "rest": "1 - {}",
    "percent": "{} / 100",
    "next": "{} of the next row",
}
"""How a column is made of one metric, in words."""

COLUMNS: Mapping[str, str] = {
    "step": "number of the optimizer step",
    "time_s": "unix seconds at the step's end",
    "step_s": "seconds of the step, all of it",
    "wait_s": "of them, the trainer waiting for samples",
    "train_s": "of them, the trainer computing: the sum of its parts, where the log has them apart",
    "update_s": "of train_s, the policy's forward and backward passes and its optimizer",
    "logp_s": "of train_s, the policy's log-probs anew, forward only",
    "ref_s": "of train_s, the reference model's (or a teacher's) log-probs",
    "logps_s": "of train_s, log-probs of policy and reference, timed together",
    "experience_s": "of train_s, log-probs, values and rewards, timed together",
    "values_s": "of train_s, the critic",
    "advantage_s": "of train_s, advantages and penalties",
    "sync_s": "of them, weight sync",
    "handover_s": "of them, GPUs that change hands: sleep, wake, offload",
    "reward_s": "of them, reward computation in the trainer's loop",
    "checkpoint_s": "of them, saving",
    "other_s": "of them, in other timers of the trainer's loop",
    "rest_s": "of them, in no named timer",
    "generate_s": "seconds of generation, where the log has them",
    "eval_s": "seconds of evaluation beside the step",
    "samples": "samples trained on",
    "groups": "prompts trained on, each with its samples",
    "group_size": "samples per prompt",
    "pull_groups": "groups that the trainer takes at once",
    "pulls": "times that it takes them per row of the log",
    "output_tokens": "output tokens trained on",
    "total_tokens": "prompt and output tokens trained on",
    "length_mean": "mean output length, tokens",
    "length_min": "shortest output, tokens",
    "length_std": "standard deviation of the output length, tokens",
    "length_p50": "median output length, tokens",
    "length_p90": "output length that a tenth exceeds, tokens",
    "length_p95": "output length that one in twenty exceeds, tokens",
    "length_p99": "output length that one in a hundred exceeds, tokens",
    "length_max": "longest output, tokens",
    "clip_share": "share of outputs that were cut by the length cap",
    "aborted_share": "share of outputs that were aborted",
    "prompt_mean": "mean prompt length, tokens",
    "prompt_max": "longest prompt, tokens",
    "turns_mean": "mean turns of a sample",
    "tool_calls_mean": "mean tool calls of a sample",
    "tool_s_mean": "mean seconds of a sample in its tools",
    "queue_samples": "finished samples that wait for the trainer",
    "queue_groups": "finished groups that wait for the trainer",
    "queue_cap_groups": "groups that the queue holds at most",
    "staleness_steps": "mean weight versions between a sample's weights and the trainer's",
    "staleness_max_steps": "the most of them",
    "stale_samples": "samples trained on that are older than the trainer's weights",
    "stale_share": "share of the samples trained on that are older than the trainer's weights",
    "partial_share": "share of the samples that more than one version of the weights made",
    "dropped_samples": "samples thrown away",
    "dropped_groups": "groups thrown away",
    "in_flight_samples": "samples in generation",
    "in_flight_groups": "groups in generation",
    "in_flight_cap_samples": "samples that the client keeps in generation at most",
    "in_flight_cap_groups": "groups that the client keeps in generation at most",
    "window_groups": "groups begun since the last weight sync, with those that wait",
    "window_cap_groups": "groups that the staleness bound lets begin between two weight syncs",
    "generated_groups": "groups generated",
    "generated_samples": "samples generated",
    "sample_s_mean": "mean seconds of a sample's generation; with its tools', where no tool_s_mean stands beside it",
    "sample_s_p50": "its median",
    "sample_s_p90": "what a tenth exceed",
    "sample_s_p95": "what one in twenty exceed",
    "sample_s_p99": "what one in a hundred exceed",
    "sample_s_max": "the longest",
    "group_s_mean": "mean seconds from a group's begin to the end of its last sample",
    "group_s_p50": "its median",
    "group_s_p90": "what a tenth of the groups exceed",
    "group_s_p95": "what one in twenty exceed",
    "group_s_p99": "what one in a hundred exceed",
    "group_s_max": "the longest",
    "trainer_idle": "share of the step, as the framework computes it",
    "rollout_idle": "share of the time, as the framework computes it",
    "rollout_active_s": "seconds between two weight syncs in which samples were in generation",
    "rollout_window_s": "seconds between two weight syncs",
    "rollout_tok_s": "output tokens generated per second, by all instances",
    "prefix_hit": "share of the prompt tokens found in the engines' prefix cache",
    "running": "requests that an instance runs, on average",
    "waiting": "requests that wait in an instance, on average",
    "kv_use": "KV cache of an instance in use, 0 to 1",
    "preemptions": "times that a sample was thrown out of an engine's batch, on average",
    "mfu": "model FLOPs utilization of the trainer, 0 to 1",
    "memory_gb": "GPU memory that the trainer allocated at most, GB",
    "memory_reserved_gb": "GPU memory that the trainer reserved at most, GB",
    "host_memory_gb": "host memory in use, GB",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One column and the metrics that it comes from.

    how: first = the first of the metrics that the log has; sum = all that it has; growth = increase of a running total
    from the step before; rest = one minus the metric; percent = a hundredth of it; next = the metric of the following
    row (it tells of the step before). minus: metrics taken off (counted 0 where absent, the result at least 0).
    modes: only in these; () = all.
    """

    column: str
    metrics: tuple[str, ...]
    how: How = "first"
    minus: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = (" + " if self.how == "sum" else ", else ").join(f"`{m}`" for m in self.metrics)
        text = FORMS.get(self.how, "{}").replace("{}", text)
        return text + "".join(f" - `{m}`" for m in self.minus)


def _only(names: Collection[str], values: Mapping[str, Floats]) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class FrameworkLog:
    """A framework's step log.

    source: where the names are written. marks: a log that has one of them is this framework's. step: metrics with the
    step's number, best first. added: metrics logged in rows of their own, which add up until the step's row. mode:
    names and values -> mode; notes: per mode, what its columns mean. overlaps: modes in which parts run side by side,
    or in which the step is no more than their sum. rests: mode -> the part of a step that no metric says alone: what
    wait and compute leave of it. older: how names begin -> how they began in earlier releases. tools_in_length: its
    output lengths count what tools answered as well.
    """

    name: str
    source: str
    marks: tuple[str, ...]
    step: tuple[str, ...]
    entries: tuple[Entry, ...]
    added: tuple[str, ...] = ()
    mode: Callable[[Collection[str], Mapping[str, Floats]], str] = _only
    notes: Mapping[str, str] | None = None
    overlaps: tuple[str, ...] = ()
    rests: Mapping[str, str] = field(default_factory=dict)
    older: Mapping[str, str] = field(default_factory=dict)
    tools_in_length: bool = False

    def serial(self, mode: str) -> bool:
        """Whether the parts of a step come one after the other, beside a total that a clock took: then what is missing
        between them is time in no named timer."""
        return mode not in self.overlaps

    def metrics(self) -> frozenset[str]:
        """Every name that the table speaks of, and their older ones."""
        now = {m for e in self.entries for m in (*e.metrics, *e.minus)} | {*self.step, *self.marks}
        return frozenset(now | set(map(self.before, now)))

    def before(self, metric: str) -> str:
        """What a metric was called in earlier releases; itself where it was no other."""
        found = next((begin for begin in self.older if metric.startswith(begin)), None)
        return metric if found is None else self.older[found] + metric.removeprefix(found)


# What a tracker's or a trainer's wrapper puts before every name, also before one without a "/".
_WRAPPED = ("train/",)
# Measured on other samples than the step's.
_OTHERS = ("eval", "val", "test", "valid", "validation")


def resolved(names: Iterable[str], known: Collection[str]) -> Mapping[str, str]:
    """Known metric -> the name that the log has for it.

    A name matches itself; behind `train/`; or, if it has a "/" in it, behind any other prefix but an evaluation's
    (`rank0/timing_s/step` is `timing_s/step`). A prefix that was found so stands before names without a "/" as well
    (`rank0/step_time`). Of several the shortest prefix counts.
    """
    found: dict[str, str] = {}
    bare: list[tuple[str, str]] = []
    for name in names:
        metric = known_as(name, known)
        if metric is None:
            prefix, _, last = name.rpartition("/")
            bare += [(prefix, last)] if last in known else []
        elif metric not in found or len(name) < len(found[metric]):
            found[metric] = name
    prefixes = {name.removesuffix(metric)[:-1] for metric, name in found.items() if name != metric}
    for prefix, last in bare:
        if prefix in prefixes:
            found.setdefault(last, f"{prefix}/{last}")
    return found


def known_as(name: str, known: Collection[str]) -> str | None:
    """The known metric that a name of a log stands for; None where it is none."""
    if name in known:
        return name
    for prefix in _WRAPPED:
        if name.removeprefix(prefix) in known:
            return name.removeprefix(prefix)
    first, slash, rest = name.partition("/")
    while slash and first.lower() not in _OTHERS:
        if "/" in rest and rest in known:
            return rest
        first, slash, rest = rest.partition("/")
    return None

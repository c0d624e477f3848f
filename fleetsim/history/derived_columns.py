"""Columns of a step log that follow from others: samples, groups, tokens, and the time in no named timer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fleetsim.history.history import Floats, Note
from fleetsim.history.run_log_columns import RUNNING

# What a step is made of, where its parts come one after the other.
PARTS = ("wait_s", "train_s", "sync_s", "reward_s", "checkpoint_s", "other_s")
# Of a group's size: how far from a whole number the quotient of samples and groups may be.
_WHOLE = 0.05
# Counted in groups by some frameworks, in samples by others and by fleetsim.
_COUNTED = ("queue", "dropped", "in_flight", "in_flight_cap", "generated")


def derive(
    columns: dict[str, Floats], values: Mapping[str, Floats], serial: bool, rest: str | None = None
) -> list[Note]:
    """Adds the columns that follow from others, and returns a note on each. serial: whether a step's parts come one
    after the other, beside a total of its own. rest: the part that is what the others leave of a step."""
    if rest is not None and {"step_s", "wait_s", "train_s"} <= set(columns):
        columns[rest] = np.maximum(columns["step_s"] - columns["wait_s"] - columns["train_s"], 0.0)
    return [
        *_step_seconds(columns, values),
        *_samples(columns),
        *_groups(columns),
        *_tokens(columns),
        *(_rest(columns) if serial else []),
    ]


def _step_seconds(columns: dict[str, Floats], values: Mapping[str, Floats]) -> list[Note]:
    clock = columns.get("time_s", next((values[r] for r in RUNNING if r in values), None))
    if "step_s" in columns or clock is None or len(clock) < 2:
        return []
    apart = np.diff(clock) / np.maximum(np.diff(columns["step"]), 1)
    columns["step_s"] = np.r_[np.nan, np.where(apart > 0, apart, np.nan)]
    return [Note("other", "The log has no step time: it is taken from the times between rows.")]


def _samples(columns: dict[str, Floats]) -> list[Note]:
    if "samples" in columns:
        return []
    if {"total_tokens", "length_mean", "prompt_mean"} <= set(columns):
        length = columns["length_mean"] + columns["prompt_mean"]
        columns["samples"] = np.round(columns["total_tokens"] / np.where(length > 0, length, np.nan))
        return [Note("other", "Samples per step: all tokens / (mean prompt + mean output length).")]
    if {"groups", "group_size"} <= set(columns):
        columns["samples"] = columns["groups"] * columns["group_size"]
    return []


def _groups(columns: dict[str, Floats]) -> list[Note]:
    """Groups per step, the size of a group, and in samples what the framework counts in groups."""
    if "groups" not in columns and "pull_groups" in columns:
        pulls = columns.get("pulls", np.ones(len(columns["step"])))
        usual = float(np.nanmedian(pulls)) if np.isfinite(pulls).any() else 1.0
        columns["groups"] = columns["pull_groups"] * np.where(np.isfinite(pulls), pulls, usual)
    size = _group_size(columns)
    if size is None:
        counted = [c for c in _COUNTED if f"{c}_groups" in columns and f"{c}_samples" not in columns]
        if not counted:
            return []
        text = f"counted in groups, and the log does not say of how many samples: {', '.join(counted)}"
        return [Note("missing", text)]
    columns.setdefault("group_size", np.full(len(columns["step"]), size))
    for name in _COUNTED:
        if f"{name}_groups" in columns and f"{name}_samples" not in columns:
            columns[f"{name}_samples"] = columns[f"{name}_groups"] * size
    if "groups" in columns:
        return [Note("other", f"A group has {size:g} samples: samples per step / groups per step.")]
    return []


def _group_size(columns: Mapping[str, Floats]) -> float | None:
    """Of the log, or samples / groups where that is a whole number in most steps."""
    if "group_size" in columns:
        found = columns["group_size"]
        return float(np.nanmedian(found)) if np.isfinite(found).any() else None
    if not {"samples", "groups"} <= set(columns):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        each = columns["samples"] / columns["groups"]
    each = each[np.isfinite(each)]
    size = float(np.median(each)) if each.size else 0.0
    return float(round(size)) if size >= 1 - _WHOLE and abs(size - round(size)) <= _WHOLE * size else None


def _tokens(columns: dict[str, Floats]) -> list[Note]:
    if {"output_tokens", "samples"} <= set(columns) and "length_mean" not in columns:
        samples = np.where(columns["samples"] > 0, columns["samples"], np.nan)
        columns["length_mean"] = columns["output_tokens"] / samples
        return [Note("other", "Mean output length: output tokens / samples.")]
    if "output_tokens" in columns or not {"samples", "length_mean"} <= set(columns):
        return []
    columns["output_tokens"] = columns["samples"] * columns["length_mean"]
    return [Note("other", "Output tokens per step: samples x mean output length.")]


def _rest(columns: dict[str, Floats]) -> list[Note]:
    """Time of a step in no named timer: known where wait and compute are."""
    if not {"step_s", "wait_s", "train_s"} <= set(columns):
        return []
    named = sum((np.nan_to_num(columns[part]) for part in PARTS if part in columns), np.zeros(len(columns["step"])))
    known = np.isfinite(columns["step_s"]) & np.isfinite(columns["wait_s"]) & np.isfinite(columns["train_s"])
    columns["rest_s"] = np.where(known, np.maximum(columns["step_s"] - named, 0.0), np.nan)
    return []

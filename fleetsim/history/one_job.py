"""Whether what was read is one job: engines of several models or jobs at once are not."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history.history import History, InstanceId
from fleetsim.history.option_names import SELECTOR

# What a job has one of, the most telling first; the model goes by vLLM's and SGLang's label.
JOB_LABELS = ("model_name", "namespace", "job", "cluster", "application", "deployment", "app")
# Of the times: two values side by side for less are an old fleet that leaves while a new one comes.
TOGETHER = 0.1
_NAMED = 3


def one_job(history: History, selector: str = "") -> History:
    """The history, if it can be of one job. selector: the matchers with which it was read; a label that they name was
    chosen, whatever values it has. Raises InputError for engines of several jobs, and for addresses whose counters jump
    back and forth."""
    problems = _several(history, selector)
    if problems:
        raise InputError(problems)
    return history


def _several(history: History, selector: str) -> list[Problem]:
    main = history.values.get("generation_tokens", history.values.get("running"))
    if main is None or len(history.instances) < 2:
        return []
    there = np.isfinite(main)
    groups = {label: _groups(history, there, label) for label in JOB_LABELS if not _names(selector, label)}
    differing = {label: names for label, names in groups.items() if len(names) > 1}
    if not differing:
        return []
    label, names = next(iter(differing.items()))
    shown = "; ".join(f'{label}="{value}" ({_few(who)})' for value, who in list(names.items())[:5])
    also = f"; they differ in {', '.join(differing)}" if len(differing) > 1 else ""
    pick = next((x for x in differing if x in ("job", "namespace")), label)
    largest = max(groups[pick], key=lambda value: len(groups[pick][value]))
    every = "|".join(re.escape(value) for value in groups[pick])
    remedy = text(
        """choose one, {} '{}="{}"', or say that all are of one job: '{}=~"{}"'""", SELECTOR, pick, largest, pick, every
    )
    rule = f"engines of several jobs at once: {shown}{also}"
    return [Problem(SELECTOR, selector or "none", rule, remedy)]


def _groups(history: History, there: NDArray[np.bool_], label: str) -> dict[str, list[str]]:
    """Value of a label -> who bears it; only values that are there beside another for long enough."""
    rows: dict[str, list[int]] = {}
    for row, instance in enumerate(history.instances):
        value = _value(instance, label)
        if value:
            rows.setdefault(value, []).append(row)
    if len(rows) < 2:
        return {}
    seen = {value: there[mine].any(axis=0) for value, mine in rows.items()}
    several = np.sum(list(seen.values()), axis=0) > 1
    times = max(int(there.any(axis=0).sum()), 1)
    kept = {value: mine for value, mine in rows.items() if (seen[value] & several).sum() >= TOGETHER * times}
    return {value: [str(history.instances[row]) for row in mine] for value, mine in kept.items()}


def _value(instance: InstanceId, label: str) -> str:
    return instance.model if label == "model_name" else instance.labels.get(label, "")


def _names(selector: str, label: str) -> bool:
    return re.search(rf"(?<![\w]){label}\s*(=~|=)", selector) is not None


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more

"""What the step logs of RL frameworks mean: metric name -> column of `StepLog`, a file of `step_logs` per framework.

wait_s: the seconds of a step in which the trainer waits for samples. In a synchronous step on shared GPUs that is the
whole generation; the GPUs work meanwhile, as generators, and generate_s says the same number. All times are seconds and
all lengths tokens in every framework, so that no entry has a factor.

`tests/history/test_log_keys.py` holds every key that a framework's code writes against its file.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from fleetsim.history.run_log_columns import COLUMNS, Framework
from fleetsim.history.step_logs.areal import AREAL
from fleetsim.history.step_logs.nemo_rl import NEMO_RL
from fleetsim.history.step_logs.open_instruct import OPEN_INSTRUCT
from fleetsim.history.step_logs.openrlhf import OPENRLHF
from fleetsim.history.step_logs.plain import PLAIN
from fleetsim.history.step_logs.prime_rl import PRIME_RL
from fleetsim.history.step_logs.roll import ROLL
from fleetsim.history.step_logs.shared import EVERY
from fleetsim.history.step_logs.skyrl import SKYRL
from fleetsim.history.step_logs.slime import SLIME
from fleetsim.history.step_logs.trl import TRL
from fleetsim.history.step_logs.verl import VERL

FRAMEWORKS: tuple[Framework, ...] = (
    VERL,
    TRL,
    OPEN_INSTRUCT,
    OPENRLHF,
    NEMO_RL,
    ROLL,
    AREAL,
    SLIME,
    PRIME_RL,
    SKYRL,
    PLAIN,
)

BY_NAME = {framework.name: framework for framework in FRAMEWORKS}


def markdown() -> str:
    """The tables, for docs/run_logs.md."""
    lines = ["| column | meaning |", "| --- | --- |", *(f"| `{c}` | {doc} |" for c, doc in COLUMNS.items()), ""]
    for one in FRAMEWORKS:
        lines += [f"### {one.name}", "", f"Source: {one.source}.", ""]
        lines += ["| column | from | when |", "| --- | --- | --- |"]
        lines.append(f"| `step` | {', else '.join(f'`{s}`' for s in one.step)} | |")
        lines += [f"| `{e.column}` | {e} | {', '.join(e.modes)} |" for e in one.entries if one.name != "plain"]
        if one.name == "plain":
            lines.append("| any other | the column of the same name | |")
        lines += ["", *(f"- {text}" for text in (one.notes or {}).values()), ""]
    return "\n".join(lines).rstrip() + "\n"


def why_unused(framework: str, key: str) -> str | None:
    """Why nothing reads a metric, None where there is no reason: then it is forgotten."""
    groups = (*BY_NAME[framework].unused, *EVERY)
    return next((why for why, patterns in groups if any(fnmatchcase(key, p) for p in patterns.split())), None)


def unused_markdown() -> str:
    """What is not used, for docs/run_logs.md."""
    lines = ["| framework | not used | why |", "| --- | --- | --- |"]
    for name, groups in (("all", EVERY), *((one.name, one.unused) for one in FRAMEWORKS)):
        for why, patterns in groups:
            lines.append(f"| {name} | {', '.join(f'`{p}`' for p in patterns.split())} | {why} |")
    return "\n".join(lines) + "\n"

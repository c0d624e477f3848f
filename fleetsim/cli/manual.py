"""What stands at the end of a command's `--help`: its exit codes, the variables and files it reads, where to go on.

A row a command; `tests/cli/test_manual.py` holds that there is one for each, and that what it names exists.
"""

from __future__ import annotations

from collections.abc import Mapping

import typer

from fleetsim.cli.help import Documented
from fleetsim.dataclass import dataclass

# An exit code in two or three words; errors.EXIT_CODES says more of each.
CODES: Mapping[int, str] = {
    0: "ok",
    1: "internal error",
    2: "bad input",
    3: "outside world",
    10: "condition or check failed",
    11: "no feasible fleet",
    12: "outside the measured range",
    130: "interrupted",
}
_ANY = (0, 1, 2, 130)  # of every command
SCENARIO, CACHE = "FLEETSIM_<SECTION>__<FIELD>", "FLEETSIM_CACHE_DIR"
PROMETHEUS = ("FLEETSIM_PROMETHEUS_TOKEN", "FLEETSIM_PROMETHEUS_USER", "FLEETSIM_PROMETHEUS_PASSWORD")
_JOB = (SCENARIO, CACHE, *PROMETHEUS)  # of a job that --run may read from Prometheus
_KERNEL = "~/.cache/fleetsim holds the kernel's machine code"


# The environment variables that fleetsim reads.
VARIABLES: Mapping[str, str] = {
    "FLEETSIM_<SECTION>__<FIELD>": "a value of the scenario, as `--set` would give it: FLEETSIM_FLEET__INSTANCES=12 is "
    "fleet.instances=12. Flags win over it, it wins over the file",
    "FLEETSIM_CACHE_DIR": "folder of the kernel's machine code; default XDG_CACHE_HOME/fleetsim or ~/.cache/fleetsim. "
    "Code is run from a folder that is yours alone, nobody else may write to it",
    "FLEETSIM_DEBUG": "anything: an internal error prints its traceback",
    "FLEETSIM_KERNEL": "checked: the kernel's build that checks every index of its tables, some times slower; to look "
    "for faults in fleetsim. Any other word is an error",
    "FLEETSIM_PROMETHEUS_TOKEN": "bearer token for Prometheus, where no file names one",
    "FLEETSIM_PROMETHEUS_USER": "user name for Prometheus, with FLEETSIM_PROMETHEUS_PASSWORD",
    "FLEETSIM_PROMETHEUS_PASSWORD": "password for Prometheus",
    "FLEETSIM_API_KEY": "bearer token of the server that `calibrate --url` measures",
    "OPENAI_API_KEY": "the same, only for a server that asks for a key when FLEETSIM_API_KEY is not set",
    "XDG_CACHE_HOME": "where FLEETSIM_CACHE_DIR is by default",
}


@dataclass(frozen=True, slots=True)
class Manual:
    """codes: exit codes beside those of every command. variables: names of VARIABLES. files: a sentence.
    see: pages of docs/, and commands without their first word."""

    codes: tuple[int, ...] = ()
    variables: tuple[str, ...] = ()
    files: str = ""
    see: tuple[str, ...] = ()

    def text(self) -> str:
        """The paragraphs, as typer takes them."""
        codes = ", ".join(f"{code} {CODES[code]}" for code in sorted({*_ANY, *self.codes}))
        parts = [f"Exit codes: {codes}."]
        if self.variables:
            parts.append(f"Environment: {', '.join(self.variables)}.")
        if self.files:
            parts.append(f"Files: {self.files}.")
        shown = [word if word.startswith("docs/") else f"fleetsim {word}" for word in self.see]
        return "\n\n".join([*parts, f"See also: {', '.join(shown)}."])


MANUALS: Mapping[str, Manual] = {
    "size": Manual((3, 10, 11, 12), _JOB, _KERNEL, ("docs/model.md", "split", "simulate", "alerts")),
    "split": Manual((3, 10, 12), _JOB, _KERNEL, ("docs/model.md", "size", "compare")),
    "plan": Manual((3, 10, 11, 12), _JOB, _KERNEL, ("docs/plan.md", "size", "split")),
    "simulate": Manual((3, 10, 12), _JOB, _KERNEL, ("docs/metrics.md", "docs/presets.md", "scenario")),
    "compare": Manual((3, 10), (SCENARIO, CACHE, *PROMETHEUS), _KERNEL, ("docs/metrics.md", "simulate", "replay")),
    "sweep": Manual((3, 10, 11), _JOB, _KERNEL, ("docs/metrics.md", "compare", "size")),
    "replay": Manual((3, 10), (SCENARIO, CACHE, *PROMETHEUS), _KERNEL, ("docs/replay.md", "docs/run_logs.md", "watch")),
    "alerts": Manual((3, 10), (SCENARIO, CACHE), _KERNEL, ("docs/alerts.md", "dashboard", "watch")),
    "dashboard": Manual((3, 10), (SCENARIO, CACHE, *PROMETHEUS), _KERNEL, ("docs/alerts.md", "alerts")),
    "watch": Manual((3,), (SCENARIO, CACHE, *PROMETHEUS), _KERNEL, ("docs/watch.md", "replay", "alerts")),
    "validate": Manual((3, 10), (CACHE,), _KERNEL, ("docs/validation.md", "docs/accuracy.md")),
    "calibrate": Manual(
        (3,),
        ("FLEETSIM_API_KEY", "OPENAI_API_KEY"),
        "beside NAME.profile.json, NAME.raw.jsonl.gz keeps every measurement",
        ("docs/calibrate.md", "profile"),
    ),
    "doctor": Manual((3,), (CACHE, *PROMETHEUS), _KERNEL, ("docs/calibrate.md", "validate")),
    "profile ls": Manual(files="*.profile.json in this folder", see=("docs/calibrate.md", "profile show")),
    "profile show": Manual((3,), see=("docs/calibrate.md", "profile check")),
    "profile check": Manual((3, 10), (CACHE,), see=("docs/calibrate.md", "profile show")),
    "profile estimate": Manual((3,), see=("docs/accuracy.md", "calibrate")),
    "profile trainer": Manual((3,), (SCENARIO, *PROMETHEUS), see=("docs/accuracy.md", "size", "split")),
    "scenario from": Manual((3,), PROMETHEUS, see=("docs/frameworks.md", "docs/next_run.md", "scenario to")),
    "scenario to": Manual((3,), see=("docs/frameworks.md", "scenario from")),
    "scenario init": Manual((3,), see=("docs/model.md", "size", "scenario schema")),
    "scenario check": Manual((), (SCENARIO,), see=("docs/model.md", "scenario schema")),
    "scenario schema": Manual(see=("docs/model.md", "scenario check")),
    "scenario ls": Manual(see=("docs/presets.md", "scenario init")),
}


def attach(app: typer.Typer, prefix: str = "") -> None:
    """Gives every command its manual, and the one form of help."""
    for command in app.registered_commands:
        manual = MANUALS.get(f"{prefix}{command.name}")
        command.cls = Documented
        if manual is not None:
            command.epilog = manual.text()
    for group in app.registered_groups:
        if group.typer_instance is not None:
            attach(group.typer_instance, f"{prefix}{group.name} ")

"""How a command's help reads: what it is for, examples that can be pasted, then the options panel by panel.

In the docstring the examples stand below "Examples:", each a line that begins with "fleetsim"; here each becomes one
line, or several that end in backslashes where the terminal is narrower.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import typer
from msgspec import Struct
from typer.core import TyperCommand

from fleetsim.cli.terminal import say

_MARGIN = 4
# A longer line is hard to read.
_WIDEST = 100
# Frame, paddings and the column of short forms of a panel of options.
_COLUMN_GAPS = 16


class Documented(TyperCommand):
    """A command with its examples laid out for the terminal at hand, which says what of an option counts that is given
    several times and takes one value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the words behind the command's name."""
        # a shell that completes a line is told nothing
        order = () if ctx.resilient_parsing else self.make_parser(ctx).parse_args(list(args))[2]
        for option, times in Counter(order).items():
            if times > 1 and not option.multiple and not getattr(option, "is_flag", False):
                say(f"warning: {option.opts[0]} is given {times} times: the last one counts", err=True)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Prints the help."""
        from typer import rich_utils

        from fleetsim.tell.console import console

        written, drawn = self.help, rich_utils._print_options_panel
        self.help = arranged(written or "", (rich_utils.MAX_WIDTH or console().width) - _MARGIN)
        rich_utils._print_options_panel = _options_panel(drawn)
        try:
            super().format_help(ctx, formatter)
        finally:
            self.help, rich_utils._print_options_panel = written, drawn


def arranged(text: str, width: int) -> str:
    """A docstring with its examples as one block of lines, none wider than `width` where that can be."""
    from rich.markup import escape

    from fleetsim.tell.next_lines import broken

    purpose, *rest = inspect.cleandoc(text).split("\n\n")
    found = [example for part in rest for example in examples_in(part)]
    others = [part if part.startswith("\b") else " ".join(part.split()) for part in rest if not examples_in(part)]
    if not found:
        return "\n\n".join([purpose, *others])
    lines = [line for example in found for line in broken(example, width, indent=4)]
    block = "\n".join(["\b", "Examples:", *(f"[bold]  {escape(line)}[/bold]" for line in lines)])
    return "\n\n".join([purpose, block, *others])


def listed(text: str, width: int) -> str:
    """A docstring that fits `width`: its list of commands, each with two blanks or more before what it does, and its
    paragraphs, which typer would break at hyphens."""
    from fleetsim.cli.terminal import beside, wrapped

    parts = []
    for part in inspect.cleandoc(text).split("\n\n"):
        lines = part.splitlines()
        if lines[0] == "\b":
            rows = [tuple(re.split(r" {2,}", line, maxsplit=1)) for line in lines[1:]]
            lines = ["\b", *beside([(row[0], row[-1]) for row in rows], width)]
        else:
            lines = ["\b", *wrapped(" ".join(lines), min(width, _WIDEST))]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _options_panel(ordinary: Callable[..., None]) -> Callable[..., None]:
    """A panel of options as typer draws it, or, where a word of its columns would be cut, each over what it does."""
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text
    from typer import rich_utils
    from typer.core import TyperArgument

    def panel(*, name: str, params: list[Any], ctx: Any, markup_mode: Any, console: Any) -> None:
        rows = []
        for param in params:
            flags = [*param.opts, *param.secondary_opts]
            named = param.display_name_raw if isinstance(param, TyperArgument) else ", ".join(flags)
            kind = param.display_type_rich(ctx=ctx) or ""
            told = rich_utils._get_parameter_help(param=param, ctx=ctx, markup_mode=markup_mode)
            rows.append((named, str(kind), told))
        named_ch = max((len(n) for n, _, _ in rows), default=0)
        kind_ch = max((len(k) for _, k, _ in rows), default=0)
        told_ch = max((len(word) for param in params for word in (param.help or "").split()), default=0)
        # rich takes from the widest column first, so that a name is cut once it is that.
        if max(named_ch, kind_ch, told_ch) <= console.width - _COLUMN_GAPS - named_ch - kind_ch:
            ordinary(name=name, params=params, ctx=ctx, markup_mode=markup_mode, console=console)
            return
        grid = Table.grid(expand=True)
        for named, kind, told in rows:
            grid.add_row(Text.assemble((named, "bold cyan"), "  ", (kind, "yellow")))
            grid.add_row(Padding(told, (0, 0, 0, 4)))
        console.print(Panel(grid, title=name, title_align="left", border_style="dim"))

    return panel


def examples_in(paragraph: str) -> list[str]:
    """The examples of a paragraph, if it is one of examples: one line each."""
    lines = [line.strip() for line in paragraph.splitlines() if line.strip() != "\b"]
    return lines[1:] if lines[:1] == ["Examples:"] else []


# --- What stands at the end of a command's `--help`: its exit codes, the variables and files it reads, where to go on.
# A row a command; `tests/cli/test_manual.py` holds that there is one for each, and that what it names exists.

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
SCENARIO = "FLEETSIM_<SECTION>__<FIELD>"
PROMETHEUS = ("FLEETSIM_PROMETHEUS_TOKEN", "FLEETSIM_PROMETHEUS_USER", "FLEETSIM_PROMETHEUS_PASSWORD")
_JOB = (SCENARIO, *PROMETHEUS)  # of a job that --run may read from Prometheus


# The environment variables that fleetsim reads.
VARIABLES: Mapping[str, str] = {
    "FLEETSIM_<SECTION>__<FIELD>": "a value of the scenario, as `--set` would give it: FLEETSIM_FLEET__INSTANCES=12 is "
    "fleet.instances=12. Flags win over it, it wins over the file",
    "FLEETSIM_DEBUG": "anything: an internal error prints its traceback",
    "FLEETSIM_KERNEL": "checked: the build that checks every index, some times slower; to look for faults in fleetsim. "
    "fresh: compiled by numba in every process",
    "FLEETSIM_PROCESSES": "processes of a search, at most 8; default: one a core",
    "FLEETSIM_TARGET": "while a wheel is built: the system that its kernel is for, as darwin-arm64",
    "FLEETSIM_PROMETHEUS_TOKEN": "bearer token for Prometheus, where no file names one",
    "FLEETSIM_PROMETHEUS_USER": "user name for Prometheus, with FLEETSIM_PROMETHEUS_PASSWORD",
    "FLEETSIM_PROMETHEUS_PASSWORD": "password for Prometheus",
    "FLEETSIM_API_KEY": "bearer token of the server that `calibrate --url` measures",
    "OPENAI_API_KEY": "the same, only for a server that asks for a key when FLEETSIM_API_KEY is not set",
}


class Manual(Struct, frozen=True):
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
    "size": Manual((3, 10, 11, 12), _JOB, see=("docs/model.md", "profile estimate", "split", "simulate", "alerts")),
    "split": Manual((3, 10, 12), _JOB, see=("docs/model.md", "size", "compare")),
    "plan": Manual((3, 10, 11, 12), _JOB, see=("docs/plan.md", "size", "split")),
    "pack": Manual((10, 11), see=("split", "plan")),
    "simulate": Manual((3, 10, 12), _JOB, see=("docs/metrics.md", "docs/presets.md", "scenario")),
    "forecast": Manual((3, 10, 12), _JOB, see=("docs/howto/whole_run.md", "simulate", "size")),
    "compare": Manual((3, 10), _JOB, see=("docs/metrics.md", "simulate", "replay")),
    "sweep": Manual((3, 10, 11), _JOB, see=("docs/metrics.md", "compare", "size")),
    "replay": Manual((3, 10), _JOB, see=("docs/replay.md", "docs/run_logs.md", "watch")),
    "alerts": Manual((3, 10), _JOB, see=("docs/alerts.md", "dashboard", "watch")),
    "dashboard": Manual((3, 10), _JOB, see=("docs/alerts.md", "alerts")),
    "watch": Manual((3,), _JOB, see=("docs/watch.md", "replay", "alerts")),
    "serve": Manual((3,), (SCENARIO,), see=("docs/watch.md", "size")),
    "validate": Manual((3, 10), see=("docs/validation.md", "docs/accuracy.md")),
    "calibrate": Manual(
        (3,),
        ("FLEETSIM_API_KEY", "OPENAI_API_KEY"),
        "beside NAME.profile.json, NAME.raw.jsonl.gz keeps every measurement",
        ("docs/calibrate.md", "profile"),
    ),
    "examples": Manual((3,), see=("docs/tutorial.md", "scenario ls")),
    "doctor": Manual((3,), PROMETHEUS, see=("docs/calibrate.md", "validate")),
    "profile ls": Manual(files="*.profile.json in this folder", see=("docs/calibrate.md", "profile show")),
    "profile show": Manual((3,), see=("docs/calibrate.md", "profile check")),
    "profile check": Manual((3, 10), see=("docs/calibrate.md", "profile show")),
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

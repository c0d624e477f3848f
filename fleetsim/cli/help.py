"""How a command's help reads: what it is for, examples that can be pasted, then the options panel by panel.

In the docstring an example is a line that begins with "fleetsim" under "Examples:"; here each becomes one line, or
several that end in backslashes where the terminal is narrower.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from typer.core import TyperCommand

_BOLD = re.compile(r"\[/?bold\]")
_MARGIN = 4
# A longer line is hard to read.
_WIDEST = 100
# Frame, paddings and the column of short forms of a panel of options.
_COLUMN_GAPS = 16


class Documented(TyperCommand):
    """A command with its examples laid out for the terminal at hand."""

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
    others = [
        part if part.startswith("\b") else " ".join(part.split())
        for part in rest
        if not examples_in(part) and part.strip() not in ("Example:", "Examples:")
    ]
    if not found:
        return "\n\n".join([purpose, *others])
    lines = [line for example in found for line in broken(example, width, indent=4)]
    block = "\n".join(["\b", "Examples:", *(f"[bold]  {escape(line)}[/bold]" for line in lines)])
    return "\n\n".join([purpose, block, *others])


def listed(text: str, width: int) -> str:
    """A docstring that fits `width`: its list of commands, each with two blanks or more before what it does, and its
    paragraphs, which typer would break at hyphens."""
    from fleetsim.cli.line_wrap import beside, wrapped

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
    """The examples of a paragraph, if that is what it is made of: one line each, without marks."""
    lines = [_BOLD.sub("", line).strip() for line in paragraph.splitlines() if line.strip() != "\b"]
    return lines if lines and all(line.startswith("fleetsim ") for line in lines) else []

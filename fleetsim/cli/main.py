"""`fleetsim`: the app, and what becomes of an error.

Nothing but typer is imported before a command is asked for, so that `fleetsim --help` answers at once.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections import UserDict
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

import fleetsim
from fleetsim.cli.help import listed
from fleetsim.cli.interrupts import INTERRUPTED, starting, working
from fleetsim.cli.terminal import columns, say
from fleetsim.errors import FleetsimError, InputError, OutsideError, StuckError
from fleetsim.visible import visible

# --- The commands, by name: each is imported when it is asked for.

# A shell that asks for completions sets it.
COMPLETING = "_FLEETSIM_COMPLETE"

# Command -> the first paragraph of its help, for the list of all. It is the function of this name in the module of
# this name, or that `_FILES` says; a group is the module's `app`.
LINES = {
    "size": "The smallest rollout fleet that keeps the trainer busy.",
    "split": "Share these GPUs between rollout and trainer, or split them, and how: every way simulated and ranked.",
    "plan": "Which GPUs, engines and split for a budget: every choice together, the few plans that are worth a look.",
    "pack": "Which way should several jobs share one set of GPUs: apart, by phase, in turn, or together?",
    "simulate": "Simulate a scenario: where each second of an optimizer step goes.",
    "forecast": "What the whole run takes: hours, GPU-hours, dollars and tokens to its last step, with ranges.",
    "compare": "What changed between A and B, by how much, and is it more than luck? Scenarios, results or windows of "
    "history.",
    "sweep": "Simulate every combination of some values, and say which are worth a look.",
    "replay": "What did the fleet do, which side starves, and what would another fleet have done? From its own "
    "metrics.",
    "alerts": "Prometheus rules for a plan: thresholds and `for:` from simulated runs of it, with and without faults.",
    "dashboard": "Grafana dashboard of a plan: every standing signal, with what the plan predicts and where its alert "
    "begins.",
    "watch": "Looks at the fleet again and again, and exports what it should be.",
    "serve": "A page to type into: the job as a form, the answer and its curve while a slider moves.",
    "validate": "How far is the simulation from what real projects published? One scalar fitted, everything else "
    "predicted.",
    "calibrate": "Measure an engine under RL-like load and write a profile that size and simulate use.",
    "examples": "The files that README and documentation use: a job, results, a history, a log, a configuration.",
    "doctor": "Look at this installation: versions, extras, kernel, GPU, and a Prometheus if one is named.",
    "profile": "Profiles of engines: list them, look at one, check it, estimate one.",
    "scenario": "Scenario files: start one, check it, see what may stand in it.",
}


_GROUPS = ("profile", "scenario")
# The files of commands that stand with others, and of groups: the standard library has a module called profile.
_FILES = {
    **dict.fromkeys(("alerts", "dashboard", "watch"), "standing"),
    **dict.fromkeys(("calibrate", "profile"), "profiles"),
    "scenario": "scenarios",
}


class Commands(UserDict[str, Any]):
    """Name -> typer's command. Names are known at once, a command is built when its value is first read."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(LINES))

    def __getitem__(self, key: str) -> Any:
        if self.data[key] is None:
            self.data[key] = _built(key, COMPLETING in os.environ)
        return self.data[key]


def lines(width: int) -> list[tuple[str, str]]:
    """Every command with what it does, cut to `width` as typer cuts it."""
    left = width - 6 - max(map(len, LINES))
    return [(name, TyperCommand(name, help=line).get_short_help_str(left)) for name, line in LINES.items()]


@cache
def _built(name: str, completing: bool) -> Any:
    """A command, or a group with its commands: with manual, and while a shell completes with what it may offer. Built
    once for all calls of a process: reading the types of its options takes longer than many an answer."""
    from fleetsim.cli import help as manual
    from fleetsim.cli.flags import command

    module = import_module(f"fleetsim.cli.{_FILES.get(name, name)}")
    group: typer.Typer | None = module.app if name in _GROUPS else None
    app = typer.Typer(add_completion=False, rich_markup_mode="rich") if group is None else group
    prefix = "" if group is None else f"{name} "
    if group is None:
        app.command(name)(command(getattr(module, name)))
    manual.attach(app, prefix)
    if completing:
        from fleetsim.cli import complete

        complete.attach(app, prefix)
    built: Any = typer.main.get_command(app) if group is None else typer.main.get_group(app)
    built.name = name
    return built


# Commands that import for a second before they know anything: Ctrl-C is theirs to take over (`working`).
_START_SLOWLY = frozenset({"size", "split", "simulate", "compare", "sweep", "validate"})
# Commands that make dozens of runs or more.
_SEARCHING = frozenset({"size", "split", "plan", "pack", "compare", "forecast", "validate"})
_MARGIN = 2  # what typer begins a line of its help with
# The base of typer's usage errors, which older releases of typer do not export: BadParameter, UsageError, this.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
_NUMBERS = {"int_parsing": "must be a whole number", "float_parsing": "must be a number"}


# No room on the disk or in the quota; the disk fails; the file would be too long.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


class ErrorsToExitCodes(TyperGroup):
    """Turns what a command raises into text on stderr and an exit code: 2, 3 or 11 by kind, 130, 1 for a bug."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes | {"commands": Commands()})
        # Plain help and plain usage errors: rich would cost a third of the time that `--help` may take.
        self.rich_markup_mode = None

    def make_context(self, *given: Any, **more: Any) -> Any:
        """Reads the options that stand before the command's name."""
        try:
            return super().make_context(*given, **more)
        except USAGE_ERROR as error:
            raise _written_out(error) from None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Prints the help, its list of commands as wide as the terminal."""
        written = self.help
        self.help = listed(written or "", columns() - _MARGIN)
        try:
            super().format_help(ctx, formatter)
        finally:
            self.help = written

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands, of which none is built for it."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Prints every command with what it does."""
        with formatter.section("Commands"):
            formatter.write_dl(lines(formatter.width))

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except FleetsimError as error:
            say(error_text(error), err=True)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt as interrupt:
            say(": ".join(["interrupted", *map(str, interrupt.args)]), err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # a reader that has seen enough: what is left goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit from None
        except OSError as error:
            if error.errno in _FULL:
                raise  # `main` has a word for it
            raise _ours(error) from None
        except (typer.Exit, typer.Abort):
            raise  # typer's own
        except USAGE_ERROR as error:
            raise _written_out(error) from None
        except MemoryError as error:
            # numpy's own words end with the type of the table, a paragraph for one of many columns
            what = str(error).partition(" for an array")[0] or "the machine has no more to give"
            say(f"error: out of memory: {what}", err=True)
            say("simulate fewer steps, samples or replications, or on a larger machine", err=True)
            raise typer.Exit(OutsideError.exit_code) from None
        except Exception as error:  # noqa: BLE001 - the last line of defence: no traceback reaches a user
            raise _ours(error) from None


def _written_out(error: Any) -> Exception:
    """A usage error of typer's, with what was typed: where typer leaves numbers to pydantic, the error has it only."""
    for wrong in error.__cause__.errors()[:1] if hasattr(error.__cause__, "errors") else ():
        known = _NUMBERS.get(wrong["type"])
        error.message = f"{wrong['input']!r}: {known}" if known else wrong["msg"].removeprefix("Value error, ")
    if (
        "unexpected extra" in error.message
        and error.ctx
        and any("--scenario" in o.opts for o in error.ctx.command.params)
    ):
        error.message += "; a scenario file goes behind --scenario"
    error.message = visible(error.message)
    return error  # type: ignore[no-any-return]


def _ours(error: Exception) -> typer.Exit:
    """An error that no user should see: short, unless FLEETSIM_DEBUG asks for all of it."""
    if os.environ.get("FLEETSIM_DEBUG"):
        import traceback

        traceback.print_exception(error)
    say(f"internal error: {type(error).__name__}: {error}", err=True)
    say("this is a bug in fleetsim; FLEETSIM_DEBUG=1 shows where it happened", err=True)
    return typer.Exit(1)


def error_text(error: FleetsimError) -> str:
    """All problems of an error, one a line, under one word for what it is."""
    lines = str(error).splitlines() or [type(error).__name__]
    if isinstance(error, InputError):
        return "\n".join(f"error: {line}" for line in lines)
    if isinstance(error, StuckError):
        return "\n".join([f"error: {lines[0]}", *(f"  {line}" for line in lines[1:])])
    return "\n".join([f"error: {lines[0]}", *lines[1:]])


app = typer.Typer(
    cls=ErrorsToExitCodes,
    name="fleetsim",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(asked: bool) -> None:
    if asked:
        say(f"fleetsim {fleetsim.__version__}")
        raise typer.Exit


@app.callback()
def fleetsim_command(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """How many rollout instances does this RL post-training job need, and why does its trainer idle?

    \b
    fleetsim size --batch 512 --len 1536    the smallest fleet that keeps the trainer busy
    fleetsim split --gpus 16                share these GPUs, or split them, and how
    fleetsim scenario init -o job.yaml      write the job down, change what differs
    fleetsim simulate job.yaml              where each second of an optimizer step goes
    fleetsim compare A B                    what changed, by how much, and is it more than luck
    fleetsim sweep job.yaml --grid KEY=A:B  every combination of some values, and which are worth a look
    fleetsim replay --prometheus URL        diagnose a fleet that runs, from its metrics
    fleetsim alerts job.yaml -o rules.yaml  Prometheus alerts that tell when the plan has gone stale
    fleetsim watch --prometheus URL         export how many instances to run, for KEDA or an HPA
    fleetsim calibrate --model NAME         measure your engine on your GPU
    fleetsim profile ls                     which engines were measured, and how well
    fleetsim validate                       published runs, predicted: how far off are the answers
    fleetsim doctor                         what is installed here, and does it work

    Answers come from a simulation of rollout engines, trainer, weight sync and staleness queue. No GPU is needed.

    Exit codes: 0 ok, 1 internal error, 2 bad input, 3 outside world, 10 --fail-if or a check failed,
    11 no feasible fleet, 12 outside the calibrated range under --strict, 130 interrupted.
    """
    if context.invoked_subcommand in _SEARCHING and not {"--help", "-h"}.intersection(sys.argv):
        from fleetsim.sim.processes import begin, forks

        if not forks():
            begin()  # they import while this process does
    if context.invoked_subcommand in _START_SLOWLY:
        # They multiply no matrices: numpy need not start a thread a core for that.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    else:
        working()


def main() -> None:
    """The command line."""
    starting()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows "?" instead of a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if COMPLETING in os.environ:
        from fleetsim.cli.complete import answering

        with answering(os.environ):
            app(prog_name="fleetsim")
        return
    try:
        app(prog_name="fleetsim")
    except OSError as error:
        if error.errno not in _FULL:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor can what is left be written
        say(f"error: the output cannot be written: {error.strerror}; make room there, or write elsewhere", err=True)
        sys.exit(OutsideError.exit_code)
    finally:
        # The process ends here: a last collection over numba's object graph would take a third of a second.
        gc.freeze()

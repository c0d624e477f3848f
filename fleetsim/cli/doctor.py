"""`fleetsim doctor`: what is installed, what works, and what to do about the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fleetsim import units
from fleetsim.cli.line_wrap import columns, wrapped
from fleetsim.cli.lines import say
from fleetsim.dataclass import dataclass
from fleetsim.job.question import Option
from fleetsim.job.settings import RUN
from fleetsim.replay.history_fields import AccessFields

if TYPE_CHECKING:
    from fleetsim.cli.doctor_checks.check import Check

BROKEN = 3
ASKED = "What is looked at"
_MARKS = {"ok": "ok", "info": "-", "warning": "warning", "fault": "FAULT"}


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """What is looked at."""

    prometheus: Annotated[str | None, Option("Is this server there, and useful?", ASKED, metavar="URL")] = None
    compile_: Annotated[bool, Option("Compile the kernel if it is not yet (seconds).", ASKED)] = False
    json_: Annotated[bool, Option("One JSON document.", RUN)] = False


@dataclass(frozen=True)
class DoctorAccess(AccessFields):
    """The way in, with little patience."""

    timeout: float = 10.0


def doctor(asked: Doctor, access: DoctorAccess) -> None:
    """Look at this installation: versions, extras, kernel, caches, GPU, and a Prometheus if one is named.

    Examples:

    [bold]fleetsim doctor[/bold]

    [bold]fleetsim doctor --prometheus http://localhost:9090[/bold]

    [bold]fleetsim doctor --json > doctor.json[/bold]

    Secrets are not shown. Attach its --json to a report of a bug.
    """
    checks = examined(asked.prometheus, access, asked.compile_)
    faults = [check for check in checks if check.state == "fault"]
    if asked.json_:
        import fleetsim
        from fleetsim.cli.output import show_json

        show_json(
            {
                "schema_version": 1,
                "command": "doctor",
                "fleetsim_version": fleetsim.__version__,
                "ok": not faults,
                "checks": [asdict(check) for check in checks],
            }
        )
    else:
        say("\n".join(lines(checks, columns())))
    for check in faults:
        say(f"error: {check.name}: {check.text}", err=True)
    if faults:
        raise typer.Exit(BROKEN)


def examined(prometheus: str | None, access: AccessFields, compile_now: bool) -> list[Check]:
    """All checks, none of which raises: what every command needs comes first, and is a fault where it fails."""
    from fleetsim.cli.doctor_checks import kernel, machine, packages, surroundings
    from fleetsim.cli.doctor_checks.check import Check, guarded

    checks = [
        guarded("fleetsim", machine.installed),
        guarded("python", machine.python),
        guarded("machine", machine.cores),
        guarded("packages", packages.required, "fault"),
        guarded("kernel", lambda: kernel.kernel(compile_now), "fault"),
        guarded("cache", kernel.cache),
    ]
    try:
        checks += packages.extras()
    except Exception as error:  # noqa: BLE001 - as in `guarded`
        checks.append(Check("extras", "warning", f"could not be looked at: {error}"))
    checks += [
        guarded("gpu", machine.gpu),
        guarded("profiles", surroundings.profiles),
        guarded("environment", surroundings.environment),
    ]
    if prometheus is not None:
        checks.append(guarded("prometheus", lambda: surroundings.prometheus(prometheus, access), "fault"))
    return checks


def lines(checks: Sequence[Check], width: int = 80) -> list[str]:
    """The plain text: each check on as many lines as `width` takes, its remedy below, and a last line that sums up."""
    widest = max(len(check.name) for check in checks)
    below = 9 + widest + 2
    if below > width // 3:  # beside the name there is little room
        below = 9
    result = []
    for check in checks:
        begin = f"{_MARKS[check.state]:<8} {check.name:<{widest}}"
        told = [f"{' ' * below}{line}" for line in wrapped(check.text, width - below)]
        if below > len(begin):
            told[0] = f"{begin}  {told[0][below:]}"
        else:
            result.append(begin.rstrip())
        result += told
        if check.remedy is not None and check.state != "ok":
            result += [f"{' ' * below}{line}" for line in wrapped(f"-> {check.remedy}", width - below, 3)]
    counts = [sum(check.state == state for check in checks) for state in ("fault", "warning")]
    words = [units.plural(n, word) for n, word in zip(counts, ("fault", "warning"), strict=True) if n]
    return [*result, "", "everything that every command needs works" if not words else ", ".join(words)]

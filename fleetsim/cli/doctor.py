"""`fleetsim doctor`: what is installed, what works, and what to do about the rest."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

import fleetsim
from fleetsim import units
from fleetsim.cli import installation as here
from fleetsim.cli.flags import Formed
from fleetsim.cli.help import VARIABLES
from fleetsim.cli.installation import Check, guarded
from fleetsim.cli.output import show_listed
from fleetsim.cli.terminal import columns, say, wrapped
from fleetsim.errors import FleetsimError, InputError
from fleetsim.job.settings import Option
from fleetsim.records import as_dict, replace
from fleetsim.replay.history_fields import AccessFields

# --- What lies outside: a Prometheus, profiles, environment variables.

# A name that only the engine exports, and how the engine is called.
_ENGINES = {"vLLM": "vllm:num_requests_running", "SGLang": "sglang:num_running_reqs"}
PATIENCE_S = 10.0

# Variables of the program itself; those of a scenario's fields have a double underscore.
KNOWN = frozenset(name for name in VARIABLES if name.startswith("FLEETSIM_") and "<" not in name)
# Of the tests and the tools in the repository.
_OF_TESTS = ("FLEETSIM_REQUIRE_", "FLEETSIM_TESTS_ONCE", "FLEETSIM_SCREENSHOTS", "_FLEETSIM_COMPLETE")
_SECRET = re.compile(r"TOKEN|PASSWORD|SECRET|KEY", re.IGNORECASE)
_CREDENTIALS = re.compile(r"//[^/@\s]*@")


def prometheus(url: str, flags: AccessFields) -> Check:
    """Whether a Prometheus answers, what it is, and whether it knows rollout engines."""
    from fleetsim.history.prometheus import Prometheus

    shown = _CREDENTIALS.sub("//", url)
    try:
        server = Prometheus(url, flags.access())
    except InputError as error:
        return Check("prometheus", "fault", str(error), error.problems[0].remedy, {"url": shown})
    except FleetsimError as error:
        return Check("prometheus", "fault", str(error), "pip install 'fleetsim[prometheus]'", {"url": shown})
    patience = min(flags.timeout, PATIENCE_S)
    server.access = replace(server.access, tries=1, timeout_s=patience, deadline_s=patience)
    try:
        now = time.time()
        up = server.query("count(up)", now)
        engines = {name: _count(server.query(f"count({metric})", now)) for name, metric in _ENGINES.items()}
        about, ahead = server.about(), server.clock_ahead_s
    except FleetsimError as error:
        said = str(error).removeprefix("--prometheus: ")
        return Check("prometheus", "fault", said, "fleetsim doctor --help lists the ways in", {"url": shown})
    finally:
        server.close()
    facts = {"url": server.url, "targets": _count(up), "engines": engines, "clock_ahead_s": ahead, **about}
    version = f"version {about['version']}" if "version" in about else "version not told"
    kept = f"keeps {about['retention']}" if "retention" in about else "retention not told"
    seen = ", ".join(f"{units.plural(count, 'instance')} of {name}" for name, count in engines.items() if count)
    text = f"{server.url} answers: {version}, {kept}, {facts['targets']} targets"
    if not seen:
        remedy = "let it scrape the engines' /metrics; --selector and --map tell replay of other names"
        return Check("prometheus", "warning", f"{text}; no vLLM or SGLang metrics in the last 5 minutes", remedy, facts)
    return Check("prometheus", "ok", f"{text}, {seen}", None, facts)


def _count(answer: list) -> int:  # type: ignore[type-arg]  # numpy stays unimported until a server answers
    return int(answer[0].values[-1]) if answer else 0


def profiles() -> Check:
    """The profiles that `--profile NAME` finds here."""
    from fleetsim.config.engine_profile import load_profile, shipped_profiles

    shipped = shipped_profiles()
    here = sorted(str(path) for path in Path().glob("*.profile.json"))
    wrong = []
    for path in (*map(str, shipped.values()), *here):
        try:
            load_profile(path)
        except InputError as error:
            wrong.append(f"{path}: {error.problems[0].rule}")
    facts = {"shipped": sorted(shipped), "here": here, "unreadable": wrong}
    text = f"{len(shipped)} shipped, {len(here)} in this folder"
    if wrong:
        return Check("profiles", "warning", f"{text}; cannot be used: {'; '.join(wrong)}", "fleetsim profile ls", facts)
    return Check("profiles", "info", text, "fleetsim profile ls lists them", facts)


def environment(environ: Mapping[str, str] = os.environ) -> Check:
    """FLEETSIM_* variables that are set; what is secret is told to be set and no more."""
    from fleetsim.config.load import env_overrides

    ours = {name: value for name, value in environ.items() if name.upper().startswith("FLEETSIM_")}
    shown = {
        name: "(set, not shown)" if _SECRET.search(name) else _CREDENTIALS.sub("//...@", ours[name])
        for name in sorted(ours)
    }
    strange = [name for name in shown if "__" not in name and name not in KNOWN and not name.startswith(_OF_TESTS)]
    text = ", ".join(f"{name}={value}" for name, value in shown.items()) or "no FLEETSIM_* variable is set"
    facts = {"set": shown, "unknown": strange}
    try:
        env_overrides(ours)
    except InputError as error:
        bad = "; ".join(f"{p.path} {p.rule}" for p in error.problems)
        return Check("environment", "fault", f"{text}; every command refuses: {bad}", "unset it", facts)
    if strange:
        remedy = "is the name right? A field of a scenario is FLEETSIM_SECTION__FIELD"
        return Check("environment", "warning", f"{text}; nothing reads {', '.join(strange)}", remedy, facts)
    return Check("environment", "ok", text, None, facts)


BROKEN = 3
ASKED = "What is looked at"
_MARKS = {"ok": "ok", "info": "-", "warning": "warning", "fault": "FAULT"}


@dataclass(frozen=True, kw_only=True)
class Doctor(Formed):
    """What is looked at."""

    prometheus: Annotated[str | None, Option("Is this server there, and useful?", ASKED, metavar="URL")] = None
    compile_: Annotated[bool, Option("Compile the kernel if it is not yet (seconds).", ASKED)] = False


@dataclass(frozen=True)
class DoctorAccess(AccessFields):
    """The way in, with little patience."""

    timeout: float = 10.0


def doctor(asked: Doctor, access: DoctorAccess) -> None:
    """Look at this installation: versions, extras, kernel, GPU, and a Prometheus if one is named.

    Examples:
    fleetsim doctor
    fleetsim doctor --prometheus http://localhost:9090
    fleetsim doctor --json > doctor.json

    Secrets are not shown. Attach its --json to a report of a bug.
    """
    checks = examined(asked.prometheus, access, asked.compile_)
    faults = [check for check in checks if check.state == "fault"]
    data = {
        "schema_version": 1,
        "command": "doctor",
        "fleetsim_version": fleetsim.__version__,
        "ok": not faults,
        "checks": [as_dict(check) for check in checks],
    }
    show_listed(asked.form, data, "checks", lambda: lines(checks, columns()))
    for check in faults:
        say(f"error: {check.name}: {check.text}", err=True)
    if faults:
        raise typer.Exit(BROKEN)


def examined(url: str | None, access: AccessFields, compile_now: bool) -> list[Check]:
    """All checks, none of which raises: what every command needs comes first, and is a fault where it fails."""
    checks = [
        guarded("fleetsim", here.installed),
        guarded("python", here.python),
        guarded("machine", here.cores),
        guarded("packages", here.required, "fault"),
        guarded("kernel", lambda: here.kernel(compile_now), "fault"),
    ]
    try:
        checks += here.extras()
    except Exception as error:  # noqa: BLE001 - as in `guarded`
        checks.append(Check("extras", "warning", f"could not be looked at: {error}"))
    checks += [guarded("gpu", here.gpu), guarded("profiles", profiles), guarded("environment", environment)]
    if url is not None:
        checks.append(guarded("prometheus", lambda: prometheus(url, access), "fault"))
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

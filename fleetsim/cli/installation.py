"""What `fleetsim doctor` looks at here: the kernel, the packages, the machine. Looking never raises."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

import fleetsim

# --- One thing that was looked at, and what became of it. Looking never raises: the machine may be broken anywhere.

State = Literal["ok", "info", "warning", "fault"]


class Check(Struct, frozen=True):
    """name: what was looked at. state: fault = something that was asked for does not work; warning = it works, but not
    as it should; info = neither. text: what was found. remedy: what to do. facts: the same for programs."""

    name: str
    state: State
    text: str
    remedy: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def guarded(name: str, look: Callable[[], Check], on_error: State = "warning") -> Check:
    """The check, or why it could not be made."""
    try:
        return look()
    except Exception as error:  # noqa: BLE001 - whatever is broken here is what was to be found
        what = str(error).strip().splitlines()
        said = f"{type(error).__name__}: {what[0]}" if what else type(error).__name__
        return Check(name, on_error, f"could not be looked at: {said}", facts={"error": said})


# --- The simulation kernel: is its library there, and does it compute what arithmetic says?

# On policy with all lengths equal, a step is its three parts one after the other.
TOKENS, RATE_TOK_S, TRAIN_S, SYNC_S = 1000, 2000.0, 3.0, 1.0
_TEST = {
    "workload": {"prompt_tokens": 1, "output_tokens": TOKENS, "group_size": 4},
    "engine": {"kind": "constant", "instance_tok_s": RATE_TOK_S},
    "fleet": {"instances": 2},
    "trainer": {"batch_samples": 16, "fixed_s": TRAIN_S, "gpus": 1},
    "sync": {"pause_s": 0.0, "trainer_block_s": SYNC_S},
    "admission": {"law": "barrier"},
    "run": {"steps": 6, "warmup_steps": 2},
}


def kernel(compile_now: bool) -> Check:
    """A tiny simulation against its closed form. Where the kernel has to be compiled first, which takes seconds, only
    if that was asked for."""
    from fleetsim.engine.compiled import is_compiled

    if not is_compiled() and not compile_now:
        text = "no library for this machine and these sources; the first simulation builds it, which takes some seconds"
        return Check("kernel", "info", text, "fleetsim doctor --compile does it now", {"ran": False})
    from fleetsim.config.load import scenario_from_mapping
    from fleetsim.sim.metrics import metrics_of
    from fleetsim.sim.run import simulate

    began = time.perf_counter()
    found = float(metrics_of(simulate(scenario_from_mapping(_TEST)))["step_s"])
    took = time.perf_counter() - began
    return judged(found, took)


def judged(step_s: float, took_s: float) -> Check:
    """The check of a step that should last closed_form_s()."""
    wanted = closed_form_s()
    facts = {"ran": True, "step_s": step_s, "closed_form_s": wanted, "seconds": took_s}
    if not abs(step_s - wanted) <= 1e-9 * wanted:
        text = f"computes {step_s:.9g} s for a step that takes {wanted:.9g} s"
        return Check("kernel", "fault", text, "install fleetsim again; if it stays wrong, report it", facts)
    return Check("kernel", "ok", f"agrees with the closed form of a tiny fleet ({wanted:g} s a step)", None, facts)


def closed_form_s() -> float:
    """Seconds of the tiny fleet's step: eight samples share an instance; the first token comes with the free prompt."""
    each = RATE_TOK_S / 8
    return (TOKENS - 1) / each + TRAIN_S + SYNC_S


# --- Which packages are installed, whether in a version that fleetsim works with, and what each extra enables.

# What an extra is for, as a user would ask for it; those for developers are not listed.
ENABLES: Mapping[str, str] = {
    "kernel": "a changed kernel, or one for a machine that there is no wheel for: compiled by numba",
    "prometheus": "replay --prometheus, watch, dashboard --check-against URL, history tables",
    "gpu": "calibrate --model (on a GPU)",
    "server": "calibrate --url, watch's export",
    "report": "pages: --html of size, simulate, split, replay, compare, validate, profile show",
    "aiconfigurator": "calibrate --from aiconfigurator:SYSTEM",
    "parquet": "simulate --parquet, sweep --out FILE.parquet, .parquet histories",
    "pandas": "to_pandas() in Python",
    "notebook": "docs/notebook.ipynb",
    "ray": "sweep --ray",
    "wandb": "replay --from wandb:ENTITY/PROJECT/RUN",
}
FOR_DEVELOPERS = frozenset({"test", "dev", "docs"})
_NEED = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")
_BOUND = re.compile(r"(>=|<=|==|<|>|!=|~=)\s*([\w.]+)")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


class Need(Struct, frozen=True):
    """A package that fleetsim needs. extra: for what, None = always. bounds: (sign, version) pairs."""

    package: str
    bounds: tuple[tuple[str, str], ...]
    extra: str | None

    def allows(self, version: str) -> bool:
        """Whether a release is within the bounds; signs other than >= and < are not looked at."""
        found = _numbers(version)
        return all(
            found >= _numbers(limit) if sign == ">=" else found < _numbers(limit) if sign == "<" else True
            for sign, limit in self.bounds
        )

    def __str__(self) -> str:
        return ",".join(sign + limit for sign, limit in self.bounds)


def needs() -> tuple[Need, ...]:
    """Of the installed distribution; of a checkout that is not installed, its pyproject.toml."""
    project = Path(fleetsim.__file__).parents[1] / "pyproject.toml"
    if project.is_file():
        table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        of_extras = table.get("optional-dependencies", {})
        return (*parsed(table["dependencies"], None), *(n for e, t in of_extras.items() for n in parsed(t, e)))
    return tuple(parsed(metadata.requires("fleetsim") or (), None))


def parsed(texts: Iterable[str], extra: str | None) -> list[Need]:
    """Requirements as they stand in metadata; those on fleetsim itself (its own extras) are left out."""
    found = []
    for text in texts:
        match = _NEED.match(text)
        if match is None or match[1] == "fleetsim":
            continue
        named = _EXTRA.search(match[3] or "")
        bounds = tuple((m[1], m[2]) for m in _BOUND.finditer(match[2]))
        found.append(Need(match[1], bounds, extra if named is None else named[1]))
    return found


def version_of(package: str) -> str | None:
    """The installed version, None where there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def required() -> Check:
    """The packages that every command needs."""
    facts, missing, wrong = _found([need for need in needs() if need.extra is None])
    if missing or wrong:
        text = "; ".join([*wrong, *(f"{name} is missing" for name in missing)])
        return Check("packages", "fault", text, "pip install --upgrade --force-reinstall fleetsim", facts)
    return Check("packages", "ok", ", ".join(f"{name} {version}" for name, version in facts.items()), None, facts)


def _found(wanted: list[Need]) -> tuple[dict[str, str | None], list[str], list[str]]:
    """The version of each package, None = not installed; those that are missing, and in words those that do not do."""
    found = {need: version_of(need.package) for need in wanted}
    missing = [need.package for need, version in found.items() if version is None]
    wrong = [f"{n.package} {v}, needs {n}" for n, v in found.items() if v is not None and not n.allows(v)]
    return {need.package: version for need, version in found.items()}, missing, wrong


def extras() -> list[Check]:
    """An entry for each extra that users have a use for."""
    by_extra: dict[str, list[Need]] = {}
    for need in needs():
        if need.extra is not None and need.extra not in FOR_DEVELOPERS:
            by_extra.setdefault(need.extra, []).append(need)
    checks = []
    for name, wanted in by_extra.items():
        use, (packages, missing, wrong), pip = ENABLES.get(name, ""), _found(wanted), f"pip install 'fleetsim[{name}]'"
        there = ", ".join(f"{package} {version}" for package, version in packages.items())
        told: tuple[State, str, str | None] = "ok", f"{use}: {there}", None
        if wrong:
            told = "warning", f"{'; '.join(wrong)} (for {use})", f"{pip} --upgrade"
        elif missing:
            told = "info", f"not installed: {', '.join(missing)} (for {use})", pip
        checks.append(Check(f"extra {name}", *told, {"enables": use, "packages": packages}))
    return checks


def _numbers(version: str) -> tuple[int, ...]:
    """ "0.61.2rc1" -> (0, 61, 2): enough for bounds that are whole releases; zeros at the end do not count."""
    numbers = [int(m[0]) if (m := re.match(r"\d+", part)) else 0 for part in version.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


# --- The machine: where fleetsim is from, Python, cores and memory, GPU.

_SMI = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
_SMI_S = 3.0


def installed() -> Check:
    """fleetsim's own version, and whether it is a wheel, an editable install or a bare checkout."""
    folder = Path(fleetsim.__file__).parent
    kind, said = "checkout that is not installed", None
    try:
        distribution = metadata.distribution("fleetsim")
        said = distribution.version
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        if origin.get("url") == folder.parent.as_uri() and origin.get("dir_info", {}).get("editable", False):
            kind = "checkout, installed with pip -e"
        elif (folder / "_data").is_dir():
            kind = "wheel"
    except (metadata.PackageNotFoundError, ValueError):
        pass
    facts = {"version": fleetsim.__version__, "kind": kind, "folder": str(folder), "metadata_version": said}
    text = f"{fleetsim.__version__}, {kind}, {folder}"
    if said is not None and said != fleetsim.__version__:
        return Check("fleetsim", "warning", f"{text}; pip says {said}", "install it again: pip install -e .", facts)
    return Check("fleetsim", "ok", text, None, facts)


def python() -> Check:
    """The interpreter and the system it runs on."""
    facts = {
        "version": platform.python_version(),
        "executable": sys.executable,
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
    }
    text = f"{facts['version']} ({facts['executable']}) on {facts['system']}, {facts['machine']}"
    return Check("python", "ok", text, None, facts)


def cores() -> Check:
    """Cores that this process may use, and memory."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    facts = {"cores": usable, "memory_bytes": memory}
    return Check("machine", "ok", f"{usable} cores, {memory / 2**30:.1f} GiB of memory", None, facts)


def gpu() -> Check:
    """NVIDIA GPUs as their driver lists them, and the engine beside them."""
    engine = {name: version_of(name) for name in ("vllm", "torch")}
    beside = ", ".join(f"{name} {version or 'not installed'}" for name, version in engine.items())
    program = shutil.which(_SMI[0])
    if program is None:
        text = f"none (no nvidia-smi); only calibrate --model needs one; {beside}"
        return Check("gpu", "info", text, None, {"gpus": [], **engine})
    try:
        done = subprocess.run([program, *_SMI[1:]], capture_output=True, text=True, timeout=_SMI_S, check=False)
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        problem = None if done.returncode == 0 and lines else (done.stderr or done.stdout).strip() or "no GPU listed"
    except subprocess.TimeoutExpired:
        lines, problem = [], f"nvidia-smi did not answer within {_SMI_S:g} s"
    if problem is not None:
        said = problem.splitlines()[0]
        remedy = "see what nvidia-smi says; only calibrate --model needs a GPU"
        return Check("gpu", "warning", f"{said}; {beside}", remedy, {"gpus": [], "error": said, **engine})
    shown = "; ".join(f"{lines.count(line)} x {line}" for line in dict.fromkeys(lines))
    return Check("gpu", "ok", f"{shown}; {beside}", None, {"gpus": lines, **engine})

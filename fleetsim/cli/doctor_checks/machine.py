"""The machine: where fleetsim is from, Python, cores and memory, GPU."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import fleetsim
from fleetsim.cli.doctor_checks.check import Check
from fleetsim.cli.doctor_checks.packages import version_of

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

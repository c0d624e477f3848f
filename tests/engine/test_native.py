"""The kernel's library: of these sources, and in need of nothing; and nothing else that is read is run."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fleetsim.engine import compiled, native
from tests.packaging.built import built_once

ROOT = Path(__file__).parents[2]


def test_the_wheel_carries_a_library_of_these_sources_and_is_of_one_system() -> None:
    wheel = next(built_once().glob("*.whl"))
    name = f"fleetsim/engine/built/{compiled.library().name}"
    assert name in zipfile.ZipFile(wheel).namelist()
    assert "-py3-none-" in wheel.name, "no release of Python in particular"
    assert not wheel.name.endswith("-any.whl")


@pytest.mark.skipif(sys.platform != "linux", reason="reads an ELF file")
def test_the_library_needs_no_other(tmp_path: Path) -> None:
    """Not even libc: so it suits every Linux. A process that has nothing but ctypes loads it."""
    code = f"import ctypes; print(ctypes.CDLL({str(compiled.library())!r}).fleetsim_advance is not None)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    assert b".so" not in compiled.library().read_bytes().replace(b"/", b"")


def test_another_kernel_is_another_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = compiled.library().name
    assert compiled.library("darwin", "ARM64").name == name.replace("linux", "darwin").replace("x86_64", "arm64")
    monkeypatch.setattr(compiled, "KERNEL", tmp_path)
    (tmp_path / "fleet.py").write_text("# changed")
    compiled._digest.cache_clear()
    try:
        assert compiled.library().name != name
        assert not compiled.is_compiled()
    finally:
        compiled._digest.cache_clear()


def test_without_library_and_numba_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "is_compiled", lambda: False)
    monkeypatch.setitem(sys.modules, "fleetsim.engine.kernel.build", None)
    with pytest.raises(native.OutsideError, match=r"pip install 'fleetsim\[kernel\]'"):
        native._load()


def test_a_library_of_another_machine_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "kernel.so").write_bytes(b"no machine can run this")
    with pytest.raises(native.OutsideError, match="install fleetsim again for this machine"):
        native.from_library(str(tmp_path / "kernel.so"))


# Modules and functions that turn bytes of a file into running code.
LOADERS = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "jsonpickle", "copyreg"}
LOADING = {"read_pickle", "from_pickle", "unpickle", "unsafe_load", "full_load", "load_module", "exec_module"}
TRUSTED = {"yaml": {"load"}, "joblib": {"load", "Memory", "dump"}, "torch": {"load"}, "np": {"load"}, "numpy": {"load"}}
# A process and those that it began speak to each other by pickle, through pipes that nobody else holds.
OURSELVES = {"sim/processes.py"}
# A text without any of these needs no closer look.
SUSPECT = re.compile("|".join([*LOADERS, *LOADING, "allow_pickle", *(rf"{m}\b.*\b(?:load|Memory)" for m in TRUSTED)]))


def test_nothing_that_is_read_is_run() -> None:
    """No pickle, no joblib file, no object array: what a user points at is text, JSON, YAML, CSV or Parquet."""
    found = []
    for path in sorted((ROOT / "fleetsim").rglob("*.py")):
        text = path.read_text()
        if not SUSPECT.search(text) or path.relative_to(ROOT / "fleetsim").as_posix() in OURSELVES:
            continue
        for node in ast.walk(ast.parse(text)):
            names: set[str] = set()
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names} & LOADERS
            elif isinstance(node, ast.ImportFrom):
                module = (node.module or "").split(".")[0]
                names = ({module} & LOADERS) | ({a.name for a in node.names} & (LOADING | TRUSTED.get(module, set())))
            elif isinstance(node, ast.Attribute):
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                names = {node.attr} & (LOADING | TRUSTED.get(owner, set()))
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                names = {node.arg}
            found += [f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {name}" for name in names]
    assert found == []


def test_the_kernel_asks_numba_for_no_cache() -> None:
    """numba keeps its own cache as pickles, in folders that an environment variable names."""
    from fleetsim.engine.kernel.jit import _OPTIONS

    assert "cache" not in _OPTIONS

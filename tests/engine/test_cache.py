"""Machine code is run only from where nobody but the user can have put it, whole, and made of these sources."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fleetsim.engine import compiled, native

ROOT = Path(__file__).parents[2]
SOMEBODY = 12345


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the user's own, with machine code in it; temporary folders are elsewhere, and empty."""
    chosen, temporary = tmp_path / "cache", tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("FLEETSIM_CACHE_DIR", str(chosen))
    monkeypatch.setenv(compiled.TOLD, "")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    native._write(compiled.cache_folder() / compiled.CODE, b"machine\ncode")
    return chosen


def given_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file or folder belongs to somebody else; only root can do that, others become somebody else themselves."""
    if os.geteuid() == 0:
        os.chown(path, SOMEBODY, -1)
    else:
        name = compiled._folder_name()
        monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
        monkeypatch.setattr(compiled, "_folder_name", lambda: name)


def test_a_folder_of_the_users_own_is_used(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = compiled.cache_folder()
    assert folder.parent == root
    assert (folder.stat().st_mode & 0o777, (folder / compiled.CODE).stat().st_mode & 0o777) == (0o700, 0o600)
    assert native._read(folder / compiled.CODE) == b"machine\ncode"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, None])
def test_a_folder_that_others_own_or_may_write_to_is_left_alone(
    mode: int | None, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = compiled.cache_folder()
    given_away(folder, monkeypatch) if mode is None else folder.chmod(mode)
    assert native._read(folder / compiled.CODE) is None, "even if it is asked for by its path"
    monkeypatch.setenv(compiled.TOLD, "")
    capsys.readouterr()
    other = compiled.cache_folder()
    assert other.parent == Path(tempfile.gettempdir()) / f"fleetsim-{os.geteuid()}"
    told = capsys.readouterr().err
    assert told.startswith(f"warning: {str(root)!r} ")
    assert ("belongs to user" if mode is None else f"mode {mode:o}") in told
    assert "FLEETSIM_CACHE_DIR" in told, "what to do"
    assert compiled.cache_folder() == other
    assert capsys.readouterr().err == "", "once"
    native._write(other / compiled.CODE, b"anew")
    assert native._read(other / compiled.CODE) == b"anew"
    assert (folder / compiled.CODE).exists(), "it is not ours to mend"


@pytest.mark.parametrize("how", ["mode", "owner", "link", "pipe"])
def test_a_file_that_others_own_or_may_write_to_is_not_run(
    how: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = compiled.cache_folder() / compiled.CODE
    if how == "mode":
        path.chmod(0o666)
    elif how == "owner":
        given_away(path, monkeypatch)
    else:
        path.rename(path.with_name("real"))
        path.symlink_to("real") if how == "link" else os.mkfifo(path, 0o600)
    assert native._read(path) is None
    assert ("warning" in capsys.readouterr().err) == (how in ("mode", "owner"))
    native._write(path, b"anew")
    if how != "owner" or os.geteuid() == 0:
        assert native._read(path) == b"anew", "what is written takes its place"


def test_a_root_that_everybody_may_write_to_is_left_alone_but_for_sticky_ones(root: Path) -> None:
    root.chmod(0o777)
    assert compiled.cache_root() != root
    root.chmod(0o1777)
    assert compiled.cache_root() == root
    folder = compiled.cache_folder()
    folder.rename(root / "elsewhere")
    folder.symlink_to(root / "elsewhere")
    assert compiled.cache_root() != root, "a link may be turned"


def test_a_temporary_folder_that_somebody_prepared_is_left_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/tmp/fleetsim-UID can be made by anyone, before the user ever needs it."""
    root.chmod(0o777)
    trap = Path(tempfile.gettempdir()) / f"fleetsim-{os.geteuid()}"
    trap.mkdir()
    trap.chmod(0o777)
    own = compiled.cache_root()
    assert own not in (root, trap)
    assert own.stat().st_mode & 0o777 == 0o700
    assert os.environ["FLEETSIM_CACHE_DIR"] == str(own), "what this process starts finds the same code there"
    shutil.rmtree(own)


def test_code_of_other_sources_is_not_run_whatever_its_folder_is_called(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = compiled.cache_folder() / compiled.CODE
    monkeypatch.setattr(native, "identity", lambda: "other sources")
    assert native._read(path) is None
    native._write(path, b"of the others")
    monkeypatch.undo()
    assert native._read(path) is None


def test_a_writer_that_is_killed_leaves_the_code_whole(root: Path) -> None:
    path = compiled.cache_folder() / compiled.CODE
    script = (
        "import os, sys; from pathlib import Path; from fleetsim.engine import native\n"
        "os.replace = lambda *_: os._exit(9)\n"
        "native._write(Path(sys.argv[1]), b'x' * 1_000_000)"
    )
    with_own_kernel = {**os.environ, "PYTHONPATH": str(ROOT)}
    with_own_kernel.pop("FLEETSIM_CACHE_DIR")
    done = subprocess.run([sys.executable, "-c", script, str(path)], env=with_own_kernel, check=False)
    assert done.returncode == 9
    assert native._read(path) == b"machine\ncode"
    native._write(path, b"anew")
    assert native._read(path) == b"anew"


def test_processes_that_write_at_once_leave_one_whole_code(root: Path) -> None:
    path = compiled.cache_folder() / compiled.CODE
    script = (
        "import sys; from pathlib import Path; from fleetsim.engine import native\n"
        "for k in range(40): native._write(Path(sys.argv[1]), sys.argv[2].encode() * 200_000)"
    )
    with_own_kernel = {**os.environ, "PYTHONPATH": str(ROOT)}
    with_own_kernel.pop("FLEETSIM_CACHE_DIR")
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(path), letter], env=with_own_kernel) for letter in "ab"
    ]
    seen = set()
    while any(w.poll() is None for w in writers):
        code = native._read(path)
        assert code is not None, "there is whole code at every moment"
        seen.add(code[:1])
        assert code == b"machine\ncode" or code == code[:1] * 200_000
    assert all(w.returncode == 0 for w in writers)
    assert seen & {b"a", b"b"}
    assert [p.name for p in path.parent.iterdir()] == [compiled.CODE], "nothing is left beside it"


def test_a_planted_kernel_is_not_loaded(tmp_path: Path) -> None:
    """The whole way, in a process of its own: code with the right digests in a folder that others may write to."""
    here = compiled.cache_folder() / compiled.CODE
    assert here.is_file(), "this process has run the kernel"
    temporary, planted = tmp_path / "tmp", tmp_path / "cache" / here.parent.name
    planted.mkdir(parents=True)
    native._write(planted / compiled.CODE, b"no machine can run this")
    planted.chmod(0o777)
    spare = temporary / f"fleetsim-{os.geteuid()}" / here.parent.name
    spare.mkdir(parents=True, mode=0o700)
    shutil.copy(here, spare)  # what would else take seconds to compile
    environment = {
        **{k: v for k, v in os.environ.items() if k != compiled.TOLD},
        "FLEETSIM_CACHE_DIR": str(planted.parent),
        "TMPDIR": str(temporary),
        "PYTHONPATH": str(ROOT),
    }
    script = "from fleetsim.engine import native, compiled; print(compiled.is_compiled(), compiled.cache_root())"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, f"True {spare.parent}\n"), done.stderr
    assert done.stderr.count("warning: ") == 1


# Modules and functions that turn bytes of a file into running code.
LOADERS = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "jsonpickle", "copyreg"}
LOADING = {"read_pickle", "from_pickle", "unpickle", "unsafe_load", "full_load", "load_module", "exec_module"}
TRUSTED = {"yaml": {"load"}, "joblib": {"load", "Memory", "dump"}, "torch": {"load"}, "np": {"load"}, "numpy": {"load"}}
# A text without any of these needs no closer look.
SUSPECT = re.compile("|".join([*LOADERS, *LOADING, "allow_pickle", *(rf"{m}\b.*\b(?:load|Memory)" for m in TRUSTED)]))


def test_nothing_that_is_read_is_run() -> None:
    """No pickle, no joblib file, no object array: what a user points at is text, JSON, YAML, CSV or Parquet."""
    found = []
    for path in sorted((ROOT / "fleetsim").rglob("*.py")):
        text = path.read_text()
        if not SUSPECT.search(text):
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

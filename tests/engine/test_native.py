"""How the kernel gets onto a machine: code that any machine can take, a cache that never serves what it should not."""

from __future__ import annotations

import re
import stat
import zipfile
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from fleetsim.engine import compiled, native
from fleetsim.engine.kernel import build
from tests.packaging.built import built_once


@pytest.fixture(scope="module")
def code() -> str:
    """The kernel of the wheel, as it was compiled for it."""
    return zipfile.ZipFile(next(built_once().glob("*.whl"))).read("fleetsim/_data/kernel.ll").decode()


def test_kernel_code_needs_nothing_but_the_maths_library(code: str) -> None:
    """A symbol of numba's runtime would be missing in a process that never imports numba."""
    declared = set(re.findall(r"^declare [^@\n]*@([\w.]+)\(", code, flags=re.MULTILINE))
    assert {name for name in declared if not name.startswith("llvm.")} <= {"sqrt"}
    assert not re.search(r"llvm\.(x86|aarch64|arm)\.", code), "for no processor in particular"
    assert "target triple" not in code


def test_kernel_code_is_of_these_sources(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = tmp_path / "kernel.ll"
    shipped.write_text(code)
    monkeypatch.setattr(compiled, "SHIPPED", shipped)
    assert compiled.shipped_code() == code
    shipped.write_text(code.replace(compiled.sources_digest(), "0" * 32, 1))
    assert compiled.shipped_code() is None
    shipped.write_text(code + "; one line more\n")
    assert compiled.shipped_code() is None, "not as it was made"


def test_shipped_code_becomes_machine_code_with_both_entries(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "shipped_code", lambda: code)
    monkeypatch.setattr(build, "kernel_code", lambda: pytest.fail("compiled although the code was shipped"))
    machine = native._machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(native._compile(machine)))
    engine.finalize_object()
    assert all(engine.get_function_address(name) for name in native._ENTRIES)


def test_code_that_this_llvm_cannot_read_is_compiled_anew(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "shipped_code", lambda: "; fleetsim kernel\ndefine i32 @x() from_the_future { }\n")
    monkeypatch.setattr(build, "kernel_code", lambda: code)
    assert len(native._compile(native._machine())) > 10_000


def test_code_is_compiled_once_and_again_where_what_was_kept_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETSIM_CACHE_DIR", str(tmp_path))
    compiled_now: list[str] = []
    monkeypatch.setattr(build, "kernel_code", lambda: compiled_now.append("code") or "code")
    assert [native.llvm_code(), native.llvm_code(), len(compiled_now)] == ["code", "code", 1]
    kept = compiled.cache_folder() / compiled.LLVM_CODE
    kept.write_bytes(kept.read_bytes() + b"; one line more")
    assert native.llvm_code() == "code"
    assert len(compiled_now) == 2


@pytest.mark.parametrize("damage", ["checksum", "host", "truncated", "empty"])
def test_damaged_or_foreign_machine_code_is_not_run(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "kernel.o"
    native._write(path, b"machine\ncode")
    assert native._read(path) == b"machine\ncode"
    head, host, body = path.read_bytes().split(b"\n", 2)
    damaged = {
        "checksum": [b"0" * 64, host, body],
        "host": [head, b"another processor", body],
        "truncated": [head, host, body[:-1]],
        "empty": [],
    }[damage]
    path.write_bytes(b"\n".join(damaged))
    assert native._read(path) is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = tmp_path / "file"
    taken.write_text("not a folder")
    native._write(taken / "kernel.o", b"code")
    monkeypatch.setenv("FLEETSIM_CACHE_DIR", str(taken / "sub"))
    root = compiled.cache_root()
    assert root != taken / "sub"
    assert taken.read_text() == "not a folder"
    assert stat.S_ISREG(taken.stat().st_mode)

"""`import fleetsim` costs nothing, lists what there is, and its types stand where editors look."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fleetsim as fs
import fleetsim.api
import fleetsim.replay.run  # binds the package over the function, as any of our commands does

ALONE = """
import sys
before = set(sys.modules)
import fleetsim
ours = sorted(m for m in set(sys.modules) - before if m.partition(".")[0] not in sys.stdlib_module_names)
print(*ours)
fleetsim.load()
assert not {"pandas", "numba", "typer", "rich"} & set(sys.modules), "a job needs none of them"
"""


def test_importing_it_imports_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["fleetsim"]


def test_the_list_the_stub_and_the_interface_are_the_same() -> None:
    stub = ast.parse(Path(fs.__file__).with_name("__init__.pyi").read_text())
    typed = {a.asname for node in stub.body if isinstance(node, ast.ImportFrom) for a in node.names}
    assert typed | {"__version__"} == set(fs.__all__)
    assert {"__version__", *vars(fleetsim.api)} >= set(fs.__all__)
    assert {name for name in dir(fs) if not name.startswith("__")} == set(fs.__all__) - {"__version__"}
    for name in fs.__all__:
        assert getattr(fs, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        fs.lod  # noqa: B018


def test_a_package_that_is_a_function_too_is_both() -> None:
    assert fs.replay.run.replay is fleetsim.replay.run.replay
    with pytest.raises(fs.InputError, match="no such file"):
        fs.replay("there-is-no-such-file")

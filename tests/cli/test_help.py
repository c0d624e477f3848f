"""--help answers at once and shows an example first; the process has no heavy imports it does not need."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import fleetsim
from fleetsim.cli.main import LINES, app

LOADED = """
import sys
from fleetsim.cli.main import app
try:
    app({arguments!r})
except SystemExit as end:
    code = end.code
heavy = [m for m in ("numba", "scipy", "pandas", "numpy", "pydantic", "simpy", "rich") if m in sys.modules]
print("LOADED", code, *heavy)
"""


def loaded_by(*arguments: str) -> list[str]:
    program = LOADED.format(arguments=list(arguments))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return next(line.split()[1:] for line in done.stdout.splitlines() if line.startswith("LOADED"))


def test_help_and_version_import_nothing_heavy() -> None:
    assert loaded_by("--help") == ["0"]
    assert loaded_by("--version") == ["0"]


def test_the_list_of_commands_builds_none_of_them() -> None:
    program = (
        "import sys; from typer.testing import CliRunner; from fleetsim.cli.main import LINES, app; "
        "CliRunner().invoke(app, ['--help']); print(*{f'fleetsim.cli.{n}' for n in LINES} & "
        "set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("name", LINES)
def test_the_list_says_of_a_command_what_its_own_help_says(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    assert inspect.cleandoc(command.help).split("\n\n")[0].replace("\n", " ") == LINES[name]


def test_checking_a_scenario_needs_neither_numpy_nor_numba() -> None:
    assert not {"numba", "numpy", "scipy", "simpy"} & set(loaded_by("scenario", "schema"))


def test_size_imports_its_own_room_and_what_it_simulates_with() -> None:
    program = (
        "import sys\n"
        "from fleetsim.__main__ import main\n"
        "sys.argv = ['fleetsim', 'size', '--batch', '16', '--len', '100', '--steps', '3', '--replications', '2']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('LOADED', *{name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names))\n"
        "print('ROOMS', *{name.split('.')[1] for name in sys.modules if name.startswith('fleetsim.')})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    words = {line.split()[0]: set(line.split()[1:]) for line in done.stdout.splitlines() if line[:1].isupper()}
    heavy = {"numba", "scipy", "pandas", "pyarrow", "yaml", "jinja2", "requests", "matplotlib", "torch", "ray"}
    assert not heavy & words["LOADED"]
    features = {path.name for path in Path(fleetsim.__file__).parent.iterdir() if (path / "ask.py").exists()}
    assert features & words["ROOMS"] == {"size"}


@pytest.mark.parametrize(
    "command",
    [
        ("size",), ("split",), ("plan",), ("simulate",), ("compare",), ("replay",), ("alerts",), ("dashboard",),
        ("watch",),
        ("scenario", "init"), ("scenario", "check"), ("scenario", "ls"),
        ("profile", "ls"), ("profile", "show"), ("profile", "check"), ("profile", "estimate"),
    ],
)  # fmt: skip
def test_examples_come_before_options(command: tuple[str, ...]) -> None:
    text = CliRunner().invoke(app, [*command, "--help"]).stdout
    assert 0 < text.index("Example") < text.index("fleetsim " + " ".join(command), text.index("Example"))
    assert text.index("Example") < text.index("Options")


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"fleetsim {fleetsim.__version__}\n")


def test_a_wrong_command_is_a_usage_error_with_a_suggestion() -> None:
    result = CliRunner().invoke(app, ["siz"])
    assert result.exit_code == 2
    assert "size" in result.stderr
    assert result.stdout == ""

"""docs/check_examples.py tells right from wrong: pages of one example each, and what it says of them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

SCRIPT = Path(__file__).parents[2] / "docs" / "check_examples.py"


def _loaded() -> ModuleType:
    pytest.importorskip("markdown_it", reason="EXAMPLES NOT CHECKED: pip install 'fleetsim[docs]'")
    spec = importlib.util.spec_from_file_location("check_examples", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


examples = _loaded()


def problems(folder: Path, page: str, *, write: bool = False) -> tuple[list[str], str]:
    """What is wrong with a page, and the page afterwards."""
    path = folder / "page.md"
    path.write_text(page, encoding="utf-8")
    shared = folder / "shared"
    shared.mkdir(exist_ok=True)
    return examples.run_page(path, shared, write=write)[1], path.read_text(encoding="utf-8")


def console(text: str, before: str = "") -> str:
    return f"# Page\n\n{before}\n\n```console\n{text}```\n\nAfter.\n"


def test_what_is_printed_passes_and_what_is_not_is_told(tmp_path: Path) -> None:
    assert problems(tmp_path, console("$ echo one two\none two\n"))[0] == []
    (told,), _ = problems(tmp_path, console("$ echo one two\none three\n"))
    assert "one three" in told
    assert "one two" in told


def test_figures_may_differ_a_little_and_lines_may_break_elsewhere(tmp_path: Path) -> None:
    assert problems(tmp_path, console("$ echo 'a step takes 100.0 s ±3.1'\na step takes\n101.0 s ±9.9\n"))[0] == []
    assert problems(tmp_path, console("$ echo 'a step takes 100.0 s'\na step takes 110.0 s\n"))[0] != []


def test_commands_share_a_folder_and_the_checkout_is_on_the_path(tmp_path: Path) -> None:
    page = console("$ fleetsim --version > version\n$ cut -d' ' -f1 version\nfleetsim\n")
    assert problems(tmp_path, page)[0] == []


def test_a_failure_must_be_announced(tmp_path: Path) -> None:
    (told,), _ = problems(tmp_path, console("$ echo gone >&2; exit 3\ngone\n"))
    assert "exits with 3" in told
    assert problems(tmp_path, console("$ echo gone >&2; exit 3\ngone\n$ echo $?\n3\n"))[0] == []
    assert problems(tmp_path, console("$ echo gone >&2; exit 3\ngone\n$ echo $?\n4\n"))[0] != []


def test_an_announced_failure_that_does_not_come_is_told(tmp_path: Path) -> None:
    assert problems(tmp_path, console("$ true\n$ echo $?\n3\n"))[0] != []


def test_parts_of_an_output(tmp_path: Path) -> None:
    printed = "printf 'head\\nbegin\\nmiddle\\nend\\n\\nlast\\n'"
    shown = "$ " + printed + "\n...\nbegin\nmiddle\n...\n"
    assert problems(tmp_path, console(shown, "<!-- show: begin..middle -->"))[0] == []
    (told,), _ = problems(tmp_path, console(shown, "<!-- show: nowhere.. -->"))
    assert "no line has 'nowhere'" in told


def test_written_pages_pass_and_keep_everything_else(tmp_path: Path) -> None:
    page = console("$ printf 'a\\nb\\n'\n$ echo c \\\n    d\nold\n") + console("$ echo e\n")
    found, written = problems(tmp_path, page, write=True)
    assert found == []
    assert written == console("$ printf 'a\\nb\\n'\na\nb\n$ echo c \\\n    d\nc d\n") + console("$ echo e\ne\n")
    assert problems(tmp_path, written)[0] == []


def test_a_shell_block_runs_and_shows_nothing(tmp_path: Path) -> None:
    page = "```sh\n# a remark\necho made \\\n  > file\ntest -s file && fleetsim --version   # prints\n```\n"
    assert problems(tmp_path, page)[0] == []
    (told,) = problems(tmp_path, page + "\n    fleetsim simulate nowhere.yaml\n")[0]
    assert "exits with 2" in told


def test_a_gate_may_say_no_and_an_error_may_not(tmp_path: Path) -> None:
    assert problems(tmp_path, "```sh\nexit 10  # --fail-if\n```\n")[0] == []
    assert problems(tmp_path, "```sh\nexit 10\n```\n")[0] != []


def test_what_needs_more_than_this_machine_is_named(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("```sh\nfleetsim calibrate --model Qwen/Qwen2.5-7B\n```\n")
    blocks, wrong, left_out = examples.run_page(tmp_path / "page.md", tmp_path)
    assert (blocks, wrong) == (1, [])
    assert "a GPU" in left_out[0]


def test_python_sessions(tmp_path: Path) -> None:
    good = "```python\n>>> 1 + 1\n2\n\n```\n"
    assert examples.python_problems(good, "page", tmp_path) == []
    assert examples.python_problems(good.replace("2", "3"), "page", tmp_path) != []
    assert examples.python_problems("```python\nassert 1 + 1 == 2\n```\n", "page", tmp_path) == []
    assert examples.python_problems("```python\nassert 1 + 1 == 3\n```\n", "page", tmp_path) != []


lines = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="`\\$"), max_size=20)


@given(st.lists(st.tuples(lines, st.lists(lines, max_size=3)), min_size=1, max_size=3))
def test_a_block_is_read_as_it_is_written(commands: list[tuple[str, list[str]]]) -> None:
    text = "".join(f"$ {command}\n" + "".join(f"{line}\n" for line in shown) for command, shown in commands)
    (block,) = examples.blocks_of(console(text))
    assert block.text == text
    assert [c.text for c in block.commands] == [command for command, _ in commands]

"""What docs/architecture.md promises of the house: no circle, no import against the floors, short commands."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))
import house

ROOT = Path(__file__).resolve().parents[2]
Found = dict[str, house.Source]


def tree_of(folder: Path, texts: dict[str, str]) -> Found:
    """The files of a small package: path below it without ".py" -> text."""
    for name, text in texts.items():
        file = folder / "fleetsim" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return house.sources(folder)


@pytest.fixture(scope="module")
def found() -> Found:
    """Every file of the package; five seconds of reading, so only where a test asks for it."""
    return house.sources(ROOT)


def test_no_files_import_each_other(found: Found) -> None:
    assert house.circles(found) == []


@pytest.mark.parametrize("folder", ["benchmarks", "calibration", "docs"])
def test_no_scripts_import_each_other(folder: str) -> None:
    assert house.circles(house.scripts(ROOT / folder)) == []


def test_a_circle_of_scripts_is_found(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("def late():\n    from y import Y\n")
    (tmp_path / "y.py").write_text("import x\nimport json\n")
    assert house.circles(house.scripts(tmp_path)) == [("x", "y")]


def of_the_library(found: Found) -> list[str]:
    """Files and rooms that are called like a module of the standard library."""
    return sorted(s.name for s in found.values() if sys.stdlib_module_names & set(s.name.split(".")))


def test_no_file_is_called_like_a_module_of_the_standard_library(found: Found) -> None:
    assert of_the_library(found) == []


def test_a_file_that_is_called_like_a_module_of_the_standard_library_is_found(tmp_path: Path) -> None:
    assert of_the_library(tree_of(tmp_path, {"a/queue": "", "json/x": "", "a/queues": ""})) == ["a.queue", "json.x"]


def test_no_two_classes_have_one_name(found: Found) -> None:
    assert house.classes_of_one_name(found) == {}


def test_two_classes_of_one_name_are_found(tmp_path: Path) -> None:
    texts = {
        "a": "class Row:\n    class Inner: ...\nclass Own: ...\n",
        "b/rows": "try:\n    import json\nexcept ImportError:\n    class Row: ...\n",
        "b/inner": "class Other:\n    class Inner: ...\ndef late():\n    class Own: ...\n",
    }
    assert house.classes_of_one_name(tree_of(tmp_path, texts)) == {"Row": ["a", "b.rows"]}


def test_no_import_goes_up_a_floor(found: Found) -> None:
    assert house.upward(found, house.layers(ROOT)) == []


def test_every_room_stands_on_a_floor(found: Found) -> None:
    floors = {room for floor in house.layers(ROOT) for room in floor}
    assert {s.room for s in found.values() if s.name and s.name != "__main__"} == floors


def test_commands_are_short(found: Found) -> None:
    long = {f"{s.name}.{f}": n for s, f, n in house.functions(found) if s.room == "cli" and n > house.LONG_COMMAND}
    assert long == {}


def test_a_circle_and_an_arrow_upward_are_found(tmp_path: Path) -> None:
    found = tree_of(tmp_path, {"a/x": "from fleetsim.b.y import Y", "b/y": "import fleetsim.a.x", "c": ""})
    assert house.circles(found) == [("a.x", "b.y")]
    assert house.upward(found, [["a"], ["b"]]) == [("b.y", "a.x")]
    assert house.upward(found, [["a", "b"]]) == [("a.x", "b.y"), ("b.y", "a.x")]


def test_every_file_that_the_map_names_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = {n for n in re.findall(r"`([\w/]+/\w+\.py)`", page) if "NAME" not in n and "FEATURE" not in n}
    assert len(named) > 40
    assert [n for n in sorted(named) if not any((below / n).exists() for below in (ROOT / "fleetsim", ROOT))] == []


def test_every_answer_that_the_index_names_is_there() -> None:
    page = (ROOT / "docs" / "where.md").read_text(encoding="utf-8")
    answers = [line.split(" | ")[1] for line in page.splitlines() if " | " in line]
    named = re.findall(r"`([\w/.-]+)`(?: \(`(\w+)`\))?", "\n".join(answers))
    assert len(named) > 80
    for path, name in named:
        found = [below / path for below in (ROOT / "fleetsim", ROOT) if (below / path).exists()]
        assert found, path
        if name:
            assert re.search(rf"^(?:def |class )?{name}\b", found[0].read_text(encoding="utf-8"), re.MULTILINE), name


GUIDED = ("calibrate", "calibrate/vllm", "cli", "config", "engine", "frameworks", "history", "job", "replay", "sim")


@pytest.mark.parametrize("room", GUIDED)
def test_the_guide_of_a_room_names_files_that_are_there(room: str) -> None:
    folder = ROOT / "fleetsim" / room
    guide = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    named = re.findall(r"`([a-z_]+)(?:\.py)?`", guide)
    assert named
    assert [n for n in named if not (folder / f"{n}.py").exists() and not (folder / n).is_dir()] == []

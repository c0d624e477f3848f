"""A result is one table of facts: no face says what another does not."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import fleetsim as fs
from fleetsim.quantities import BY_NAME
from fleetsim.tell.facts import Fact, Facts, NextLines
from fleetsim.tell.next_lines import parted

SMALL: dict[str, Any] = {"batch": 64, "len": 300, "model": "Qwen/Qwen2.5-1.5B", "replications": 2}


def replayed() -> Any:
    """The history of a simulated run, written by the simulator's exporter and read again."""
    with tempfile.TemporaryDirectory() as folder:
        run = fs.load(**SMALL, steps=24).simulate(scrape_interval_s=5)
        path = Path(folder) / "history.om"
        run.to_openmetrics(path)
        return fs.replay(path)


ASKED: dict[str, Callable[[], Any]] = {
    "simulate": lambda: fs.load(**SMALL).simulate(),
    "size": lambda: fs.load(**SMALL).size(),
    "split": lambda: fs.load(**SMALL).split(gpus=4),
    "plan": lambda: fs.plan(gpus=4, **SMALL),
    "compare": lambda: fs.compare(fs.load(**SMALL), fs.load(**SMALL, instances=3)),
    "sweep": lambda: fs.sweep(fs.load(**SMALL), {"fleet.instances": [1, 2]}, workers=1),
    "replay": replayed,
}
RESULTS = sorted(ASKED)


@cache
def result_of(command: str) -> Any:
    return ASKED[command]()


def table(command: str) -> Facts:
    found: Facts = result_of(command).told().facts
    return found


class _Text(HTMLParser):
    """The words of a page, without its programs and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._skips = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._skips += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._skips -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._skips:
            self.words.append(data)


def flat(text: str) -> str:
    return re.sub(r"[\s\\\u00a0]+", " ", text)


@cache
def page_of(command: str) -> str:
    parser = _Text()
    parser.feed(result_of(command).page())
    return flat(" ".join(parser.words))


def words_of(fact: Fact) -> str:
    return flat(f"{fact.said.lead} {fact.said.text}" if isinstance(fact.said, NextLines) else str(fact.said)).strip()


@pytest.mark.parametrize("command", RESULTS)
def test_a_terminal_and_a_page_say_every_word(command: str) -> None:
    told, page = flat(result_of(command).explained), page_of(command)
    assert flat(table(command).answer) in told
    assert flat(table(command).answer) in page
    for fact in table(command).rows:
        assert words_of(fact) in told, fact.name
        assert words_of(fact) in page, fact.name


@pytest.mark.parametrize("command", RESULTS)
def test_json_has_every_fact_by_name(command: str) -> None:
    document, rows = result_of(command).to_dict(), table(command).rows
    found = {fact["name"]: fact for fact in document["facts"]}
    assert list(found) == sorted(fact.name for fact in rows)  # each once
    for fact in rows:
        assert found[fact.name].get("said", "") == str(fact.said)
        if fact.value is not None:
            assert found[fact.name]["value"] == pytest.approx(fact.value)
            assert found[fact.name].get("low") == fact.low
            assert found[fact.name].get("high") == fact.high


@pytest.mark.parametrize("command", RESULTS)
def test_a_value_is_written_as_it_is_said(command: str) -> None:
    """A figure and its range stand in the words of its fact, or on its tile, and in no other form."""
    for fact in (fact for fact in table(command).rows if fact.unit is not None and fact.name in BY_NAME):
        if fact.of == "inputs" and fact.said:
            low, high = fact.beside.removeprefix("likely ").split(" to ")
            assert f"{fact.figure} ({low} to {high})" in str(fact.said)
        assert fact.low is None or fact.high is None or fact.low <= fact.high
    tiles = table(command).tiles
    for tile in tiles:
        assert flat(f"{tile.figure} {tile.beside}").strip() in page_of(command)
    assert not any(tile.of == "inputs" for tile in tiles) or not any("of seeds" in tile.beside for tile in tiles)


@pytest.mark.parametrize("command", RESULTS)
def test_the_lines_of_the_brief_are_the_facts_in_their_order(command: str) -> None:
    shown = flat(str(result_of(command)))
    at = 0
    for label, said in table(command).lines:
        first = " ".join(filter(None, parted(said.text))) if isinstance(said, NextLines) else said
        text = flat(f"{label} {first}")
        assert text in shown[at:], label
        at = shown.index(text, at)

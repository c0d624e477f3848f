"""The commands that an answer prints: read from the text of a terminal, from a JSON document and from a page.

A command begins its line, stands in backticks or in brackets, or follows "next: ". A line that ends with a backslash
goes on. A word in capitals (LOG, URL) stands for something of the reader's.
"""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator
from typing import Any

Words = tuple[str, ...]

_LINE = re.compile(r"^\s*(?:[a-z ]+: )?(fleetsim [a-z].*)$")
_AFTER = re.compile(r"next: (fleetsim [a-z].*)$")
_QUOTED = re.compile(r"`(fleetsim [^`]+)`|\((fleetsim [^()]+)\)")
_SETS = re.compile(r"(?:--set (?:'[^']+'|[a-z_.]+=[^\s,;)]+)\s?)+")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
_CODE = re.compile(r"<code>(.*?)</code>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")


def in_text(text: str) -> Iterator[Words]:
    """Of what a terminal shows."""
    for line in _whole(text):
        found = _LINE.match(line) or _AFTER.search(line)
        if found and "..." not in found[1].split("  ")[0].partition(" --")[0]:
            yield tuple(shlex.split(found[1]))
    for quoted, inside in _QUOTED.findall(" ".join(text.split())):
        yield tuple(shlex.split(quoted or inside))


def _whole(text: str) -> list[str]:
    """Its lines, those of a command that is broken over several in one."""
    whole: list[str] = []
    for line in text.splitlines():
        if whole and whole[-1].endswith("\\"):
            whole[-1] = f"{whole[-1][:-1].rstrip()} {line.strip()}"
        else:
            whole.append(line)
    return whole


def in_page(page: str) -> Iterator[Words]:
    """Of an HTML page."""
    for code in _CODE.findall(page):
        yield from in_text(html.unescape(_TAG.sub("", code)))


def in_document(value: Any) -> Iterator[Words]:
    """Of a JSON document: lists of words, and texts with commands on lines of their own."""
    if isinstance(value, dict):
        for one in value.values():
            yield from in_document(one)
    elif isinstance(value, list):
        if value and value[0] == "fleetsim":
            yield tuple(value)
        else:
            for one in value:
                yield from in_document(one)
    elif isinstance(value, str):
        yield from in_text(value)


def settings_in(text: str) -> set[Words]:
    """Each run of `--set KEY=VALUE` that a text proposes, outside of whole commands; VALUE and the like stand for
    something of the reader's."""
    said = "\n".join(line for line in _whole(text) if not _LINE.match(line))
    found = (tuple(shlex.split(one)) for one in _SETS.findall(" ".join(said.split())))
    found = [tuple(word.removesuffix(".") for word in words) for words in found]
    return {words for words in found if not any(word.partition("=")[2].isupper() for word in words)}


def flags_in(text: str) -> set[str]:
    """Every flag that a text names."""
    return set(_FLAG.findall(text))

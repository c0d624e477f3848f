"""Blocks of a Document as each face draws them: commands that can be pasted, questions with answers, narrow tables."""

from __future__ import annotations

import pytest

from fleetsim.tell.console import as_text
from fleetsim.tell.document import (
    Block,
    Document,
    Judged,
    Judgement,
    NextLines,
    Section,
    Table,
    Verbatim,
    Words,
    followed,
)
from fleetsim.tell.facts import facts
from fleetsim.tell.page import document_page
from fleetsim.tell.terminal import draw
from tests.report.test_profile_html import Page

YAML = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: rollout, namespace: training}, spec: {replicas: 12}}"
COMMAND = "kubectl -n training patch deployment rollout --type strategic --patch-file rollout-12-instances.yaml"
QUESTIONS = Judged(
    (
        Judgement("FAULT", "rollout", "too few", "$210 a day", ("it waits", "engines are full"), COMMAND, strong=True),
        Judgement("ok", "weight sync", "no stall", grounds=("0.0 % held", "500 ms")),
    ),
    ("FAULT", "ok", "?"),
)
FIGURES = Table("", ("", "step, s", "rollout idle"), (("rollout-engines-0", "12,345,678", "38.5 %"),), note="of a day")


def document(*blocks: Block) -> Document:
    return Document("fleetsim test", facts("title"), (Section("Section", blocks),))


def lines_of(*blocks: Block, width: int = 60) -> list[str]:
    return as_text(draw(document(*blocks)), width).splitlines()[3:]


def page_of(*blocks: Block) -> str:
    pytest.importorskip("jinja2", reason='the pages need pip install "fleetsim[report]"')
    return document_page(document(*blocks))


def test_what_is_to_be_pasted_is_neither_cut_nor_broken_where_a_shell_could_not_read_it() -> None:
    patch, lead, *command = lines_of(Verbatim(YAML), NextLines("apply: ", COMMAND))
    assert patch.strip() == YAML
    assert lead == "  apply:"
    assert max(map(len, command)) <= 60
    assert " ".join(line.removesuffix("\\").strip() for line in command) == COMMAND


def test_words_of_a_next_line_stand_behind_its_lead() -> None:
    assert lines_of(NextLines("rollback: ", "set them back")) == ["  rollback: set them back"]


def test_a_fault_has_its_grounds_one_by_one_and_what_is_ruled_out_in_a_line() -> None:
    fault, size, *others, ruled_out, why = lines_of(QUESTIONS)
    assert fault == "  FAULT  rollout      too few"
    assert size.strip() == "$210 a day"
    assert [line.strip() for line in others[:3]] == ["- it waits", "- engines are full", "next:"]
    assert " ".join(line.removesuffix("\\").strip() for line in others[3:]) == COMMAND
    assert ruled_out == "  ok     weight sync  no stall"
    assert why.strip() == "0.0 % held; 500 ms"


def test_columns_of_questions_stand_alike_without_a_fault() -> None:
    alone = Judged(QUESTIONS.items[1:], QUESTIONS.marks)
    assert lines_of(alone)[0] == "  ok     weight sync  no stall"


def test_a_page_has_the_same_words() -> None:
    text = page_of(QUESTIONS, NextLines("apply: ", f"then\n{COMMAND}", strong=True), Verbatim(YAML))
    page = Page(text)
    words = " ".join(" ".join(page.words).replace("\u00a0", " ").replace("\\", "").split())
    for told in ("FAULT rollout too few", "$210 a day", "Next: kubectl", "Apply: then", COMMAND, YAML, "weight sync"):
        assert told in words
    assert text.count('class="judgement strong"') == 1
    assert page.wrong == []
    assert page.open == []


def test_columns_are_left_out_one_by_one_and_named() -> None:
    table = FIGURES.narrowing("rollout idle", "step, s")
    assert lines_of(table, width=70) == lines_of(FIGURES, width=70)
    stacked = lines_of(table, width=42)
    assert "idle" in stacked[1]
    assert "38.5 %" in stacked[2]
    fewer = lines_of(table, width=35)
    assert fewer[1].split() == ["rollout-engines-0", "12,345,678"]
    assert " ".join(fewer[2:]).split()[-5:] == ["rollout", "idle.", "of", "a", "day"]
    assert "step, s." in " ".join(lines_of(table, width=24))


def test_lines_below_a_table_are_sentences_of_its_note_on_a_page() -> None:
    table, lines = Table("figures", ("", ""), (("a", "1"),), left=2), ("* far", Words(tail="note: near."))
    assert lines_of(*followed(table, *lines)) == ["  a  1", "  * far", "  note: near."]
    assert "* far. note: near." in page_of(*followed(table, *lines))

"""What survives a kill: the journal, torn, of another sweep, locked; and a sweep that goes on from it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.errors import InputError, Interrupted, OutsideError
from fleetsim.quantities import METRICS
from fleetsim.sweep import run
from fleetsim.sweep.cell import Design, Journal, SweepRow, digest_of, journal_path, open_journal
from fleetsim.sweep.run import sweep
from tests.sweep.jobs import SMALL, job

FLOATS = st.floats(allow_nan=False)
CELL = SweepRow(7, "ok", "", "sync", ((1.0,),))
ROWS = st.lists(
    st.builds(
        SweepRow,
        cell=st.integers(0, 99),
        status=st.sampled_from(["ok", "invalid", "stuck"]),
        reason=st.text(max_size=30),
        binding=st.text(max_size=10),
        values=st.lists(st.lists(FLOATS, min_size=3, max_size=3).map(tuple), max_size=3).map(tuple),
    ),
    max_size=8,
)


def written(folder: Path, rows: list[SweepRow]) -> Path:
    output = folder / "t.csv"
    journal_path(output).unlink(missing_ok=True)
    journal = open_journal(output, "digest", 100)
    for row in rows:
        journal.add(row)
    journal.close()
    return output


@given(ROWS, st.data())
@settings(max_examples=40)
def test_whatever_is_cut_off_the_whole_lines_come_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[SweepRow], data: st.DataObject
) -> None:
    rows = [CELL, *rows]
    output = written(tmp_path_factory.mktemp("journal"), rows)
    path = journal_path(output)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept = rows[: max(0, whole[:cut].count(b"\n") - 1)]
    journal = open_journal(output, "digest", 100)
    assert journal.rows == {row.cell: row for row in kept}
    # It goes on where the last whole line ends.
    for row in rows[len(kept) :]:
        journal.add(row)
    journal.close()
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "line", [b"[1, 2]", b"{}", b"\xff\xfe", b'[100, "ok", "", "", []]', b'["1", "ok", "", "", []]']
)
def test_a_line_that_is_no_cell_ends_the_journal(tmp_path: Path, line: bytes) -> None:
    rows = [SweepRow(0, "ok", "", "sync", ((1.0,),)), SweepRow(1, "stuck", "why")]
    output = written(tmp_path, rows)
    first, second, third = journal_path(output).read_bytes().splitlines(keepends=True)
    journal_path(output).write_bytes(first + second + line + b"\n" + third)
    journal = open_journal(output, "digest", 100)
    assert list(journal.rows) == [0]
    journal.close()
    assert journal_path(output).read_bytes() == first + second


@pytest.mark.parametrize("content", [b"", b'{"jour'])
def test_a_journal_that_was_hardly_begun_is_begun_again(tmp_path: Path, content: bytes) -> None:
    output = tmp_path / "t.csv"
    journal_path(output).write_bytes(content)
    journal = open_journal(output, "digest", 100)
    assert journal.rows == {}
    assert json.loads(journal_path(output).read_text()) == {"journal": 1, "sweep": "digest"}
    journal.close()


def test_a_journal_without_a_cell_is_nobodys(tmp_path: Path) -> None:
    """What a sweep leaves that ended before its first cell must not stand in the way of another."""
    output = tmp_path / "t.csv"
    open_journal(output, "digest", 100).close()
    assert not journal_path(output).exists()
    journal_path(output).write_bytes(b'{"journal": 1, "sweep": "another"}\n')
    journal = open_journal(output, "digest", 100)
    journal.add(CELL)
    journal.close()
    assert b"digest" in journal_path(output).read_bytes()


@pytest.mark.parametrize("content", [b"hello\n", b'{"journal": 1, "sweep": "another"}\n[1', b"x"])
def test_a_journal_of_something_else_is_left_alone_unless_told(tmp_path: Path, content: bytes) -> None:
    output = tmp_path / "t.csv"
    journal_path(output).write_bytes(content)
    with pytest.raises(InputError, match=r"another sweep.*--restart"):
        open_journal(output, "digest", 100)
    assert journal_path(output).read_bytes() == content
    journal = open_journal(output, "digest", 100, restart=True)
    assert b"digest" in journal_path(output).read_bytes()
    journal.close()


def test_two_sweeps_onto_one_output_are_refused(tmp_path: Path) -> None:
    first = open_journal(tmp_path / "t.csv", "digest", 100)
    with pytest.raises(InputError, match="another sweep is writing"):
        open_journal(tmp_path / "t.csv", "digest", 100)
    first.close()
    second = open_journal(tmp_path / "t.csv", "digest", 100)
    second.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "t.csv.journal.jsonl").mkdir()
    with pytest.raises(OutsideError, match="cannot be written"):
        open_journal(tmp_path / "t.csv", "digest", 100)


def test_an_interrupted_sweep_runs_what_is_missing_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    run_cell = run.run_cell

    def counted(design: Design, cell: int):  # type: ignore[no-untyped-def]
        if len(ran) == 4:
            raise KeyboardInterrupt
        ran.append(cell)
        return run_cell(design, cell)

    opened: list[Journal] = []

    def journal(design: Design) -> Journal:
        opened.append(open_journal(tmp_path / "t.csv", digest_of(design), len(design.grid)))
        return opened[-1]

    monkeypatch.setattr(run, "run_cell", counted)
    with pytest.raises(Interrupted) as cut:
        sweep(job(), SMALL, workers=1, journal=journal)
    assert [row.cell for row in cut.value.known.rows] == [0, 1, 2, 3]
    assert not cut.value.known.complete
    assert len(cut.value.known.rows[0].values[0]) == len(METRICS)
    monkeypatch.undo()
    opened[0].close()
    later: list[int] = []
    monkeypatch.setattr(run, "run_cell", lambda d, c: later.append(c) or run_cell(d, c))
    result = sweep(job(), SMALL, workers=1, journal=journal)
    assert later == [4, 5]
    assert result.rows == sweep(job(), SMALL).rows
    opened[1].discard()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("before", [True, False])
def test_what_is_told_as_finished_is_what_the_journal_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """Ctrl-C arrives while a cell is written down: then, too, neither has a cell that the other lacks."""
    add = Journal.add

    def broken(self: Journal, row: SweepRow) -> None:
        if before:
            os.kill(os.getpid(), signal.SIGINT)
        add(self, row)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Journal, "add", broken)
    journal = open_journal(tmp_path / "t.csv", "digest", 6)
    with pytest.raises(Interrupted) as cut:
        sweep(job(), SMALL, workers=1, journal=lambda design: journal)
    journal.close()
    written = (tmp_path / "t.csv.journal.jsonl").read_text().splitlines()[1:]
    assert [json.loads(line)[0] for line in written] == [row.cell for row in cut.value.known.rows] == [0]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

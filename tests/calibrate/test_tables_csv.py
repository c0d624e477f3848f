"""CSV of (batch, context, tokens/s), whoever wrote it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fleetsim.calibrate.sources import read_source
from fleetsim.errors import InputError
from tests.calibrate.bench import TRUTH, off, write

GRID = [(b, c) for b in (1, 8, 64) for c in (256, 4096)]


def seconds(b: int, c: int) -> float:
    return TRUTH.seconds(b, kv_tokens=b * c)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("batch,context,tok_s", lambda b, c: b / seconds(b, c)),
        ("Batch Size,Context Length,Tokens/s", lambda b, c: b / seconds(b, c)),
        ("concurrency;kv;output_throughput", lambda b, c: b / seconds(b, c)),
        ("decodes\tseq_len\ttpot_ms", lambda b, c: 1e3 * seconds(b, c)),
        ("bs,ctx,Step (us)", lambda b, c: 1e6 * seconds(b, c)),
        ("num_seqs,prompt_tokens,Iteration [s]", lambda b, c: seconds(b, c)),
    ],
)
def test_headers_are_matched_leniently(tmp_path: Path, header: str, value: object) -> None:
    mark = max(",;\t", key=header.count)
    rows = [mark.join(map(repr, (b, c, value(b, c)))) for b, c in GRID]  # type: ignore[operator]
    source = read_source(write(tmp_path / "a.csv", "\n".join([header, *rows])))
    assert source.single
    assert np.abs(off(source)).max() < 1e-12
    assert source.run.tolist() == list(range(len(GRID)))


def test_all_tokens_of_the_cache_may_be_given(tmp_path: Path) -> None:
    o = read_source(write(tmp_path / "a.csv", "batch,kv_tokens,step_ms\n8,4096,9\n")).observations
    assert (o.decodes[0], o.kv_tokens[0], o.seconds[0]) == (8, 4096, pytest.approx(9e-3))


def test_rows_with_prefill_are_prompts_and_mixtures(tmp_path: Path) -> None:
    def row(b: int, c: int, p: int) -> str:
        return f"{b},{c},{p},{1e3 * TRUTH.seconds(b, p, b * c, p * (p + 1) / 2)!r}"

    rows = [row(0, 0, 512), row(0, 0, 4096), row(16, 1000, 256), row(16, 1000, 0)]
    source = read_source(write(tmp_path / "a.csv", "\n".join(["batch,context,prefill,step_ms", *rows])))
    assert np.abs(off(source)).max() < 1e-12
    assert source.observations.prefill_tokens.tolist() == [512, 4096, 256, 0]


def test_prefill_rates_count_prompt_tokens(tmp_path: Path) -> None:
    o = read_source(write(tmp_path / "a.csv", "batch,context,prefill,tok_s\n0,0,1000,50000\n")).observations
    assert o.seconds.tolist() == [0.02]


def test_rows_of_whole_runs(tmp_path: Path) -> None:
    text = "concurrency,input_len,output_len,tpot_ms,ttft_ms\n1,512,200,6,20\n32,512,200,9,60\n"
    source = read_source(write(tmp_path / "a.csv", text))
    o = source.observations
    assert not source.single
    assert source.run.tolist() == [0, 0, 1]
    assert o.overheads.tolist() == [0.0, 1.0, 0.0]
    assert np.bincount(o.of, o.prefill_tokens)[2] / np.bincount(o.of)[2] == pytest.approx(512 * 31 / 199)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch,context\n1,2\n", "looked for a batch column.*tok_s"),
        ("context,tok_s\n1,2\n", "looked for a batch column"),
        ("batch,tok_s\n1,2\n", "context column"),
        ("batch,concurrency,context,tok_s\n1,1,1,2\n", "says the same as 'batch'"),
        ("batch,context,tok_s\n", "no row"),
        ("batch,context,tok_s\n-1,5,3\n", "row 2: batch.*>= 0"),
        ("batch,context,tok_s\n1,5,0\n", "row 2: rate.*> 0"),
        ("batch,context,tok_s\n1,5,fast\n", "'fast'"),
        ("batch,context,tok_s\n0,5,3\n", "decodes or prefill"),
        ("batch,context,tok_s\n1,5\n", "rate is not there"),
        ('batch,context,tok_s\n"1,5,3\n', "no valid CSV"),
        ("batch,context,tok_s\n1,5,nan\n", "finite"),
    ],
)
def test_bad_tables_say_what_and_where(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_source(write(tmp_path / "a.csv", text))


def test_every_bad_row_is_named(tmp_path: Path) -> None:
    rows = ["batch,context,tok_s", "1,5,x", "1,5,10", "y,5,10", "1,z,10"]
    with pytest.raises(InputError) as caught:
        read_source(write(tmp_path / "a.csv", "\n".join(rows)))
    assert [p.path.rsplit(": ", 2)[1] for p in caught.value.problems] == ["row 2", "row 4", "row 5"]


@settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.text(max_size=200) | st.lists(st.text("batch,context_ms/\n0123456789.eE+-\"';", max_size=40)).map("\n".join))
@example("batch,context,tok_s\n1e400,1,1")
@example("batch,context,tok_s\n1,1,1e-400")
@example("batch,context,tok_s\n1,1,1,1,1")
@example('{"duration": 1e999}')
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode("utf-8", "replace"))
    try:
        source = read_source(str(path))
    except InputError as error:
        assert all(p.rule and p.remedy for p in error.problems)
    else:
        assert np.all(np.isfinite(source.observations.seconds))
        assert np.all(source.observations.seconds > 0)


@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 1024), st.integers(1, 32768), st.floats(1e-4, 10.0)), min_size=1, max_size=30))
def test_what_is_written_is_read(tmp_path: Path, rows: list[tuple[int, int, float]]) -> None:
    text = "\n".join(["batch,context,step_s", *(f"{b},{c},{s!r}" for b, c, s in rows)])
    o = read_source(write(tmp_path / "a.csv", text)).observations
    found = zip(o.decodes, o.kv_tokens, o.seconds, strict=True)
    assert [tuple(map(float, r)) for r in found] == [(b, b * c, s) for b, c, s in rows]

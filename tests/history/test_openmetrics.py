"""OpenMetrics text onto the grid, and the line parser against prometheus_client's."""

from __future__ import annotations

import gzip
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.errors import InputError
from fleetsim.history.history import History
from fleetsim.history.openmetrics import LineError, parse_series, read_openmetrics

parser = pytest.importorskip("prometheus_client.openmetrics.parser")

POD = '{engine="0",instance="rollout-0:8000",model_name="m",pod="rollout-0"}'


def _file(tmp_path: Path, *lines: str, end: str = "# EOF\n") -> Path:
    path = tmp_path / "run.om"
    path.write_text("".join(f"{line}\n" for line in lines) + end)
    return path


def _counter(values: list[float], start: float = 1.7e9, step: float = 15.0, labels: str = POD) -> list[str]:
    return [f"vllm:generation_tokens_total{labels} {v} {start + step * k:.3f}" for k, v in enumerate(values)]


def test_a_run_as_text(tmp_path: Path) -> None:
    bucket = 'vllm:request_generation_tokens_bucket{engine="0",le="%s",pod="rollout-0"} %d %d'
    path = _file(
        tmp_path,
        "# TYPE vllm:generation_tokens counter",
        *_counter([0, 100, 200, 300, 400, 500]),
        *[f'vllm:request_success_total{{finished_reason="{r}",pod="rollout-0"}} {k} {1.7e9 + 15 * k}'
          for k in range(6) for r in ("stop", "length")],
        *[bucket % (le, n * k, 1.7e9 + 15 * k) for k in range(6) for le, n in (("1", 1), ("+Inf", 2))],
        f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="100",pod="rollout-0"}} 1 {1.7e9:.0f}',
        *[f"rl_trainer_steps_total {k} {1.7e9 + 15 * k}" for k in range(6)],
    )  # fmt: skip
    got = read_openmetrics(path)
    assert got.step_s == 15
    assert got.times.tolist() == [1.7e9 + 15 * k for k in range(6)]
    assert [str(i) for i in got.instances] == ["rollout-0"]
    assert got.values["generation_tokens"].tolist() == [[0, 100, 200, 300, 400, 500]]
    assert got.values["finished"].tolist() == [[0, 2, 4, 6, 8, 10]]
    assert got.values["finished_length"].tolist() == [[0, 1, 2, 3, 4, 5]]
    assert "running" not in got.values
    assert got.fleet["trainer.steps"].tolist() == [0, 1, 2, 3, 4, 5]
    assert got.histograms["output_tokens"].counts[0, -1].tolist() == [5, 10]
    assert got.configs[0]["num_gpu_blocks"] == "100"


def test_a_missed_scrape_is_a_gap_and_jitter_is_none(tmp_path: Path) -> None:
    stamps = [0, 15.2, 29.9, 45.1, 90.0, 105.0]
    lines = [f"vllm:num_requests_running{POD} {k} {1.7e9 + s}" for k, s in enumerate(stamps)]
    got = read_openmetrics(_file(tmp_path, *lines)).values["running"][0]
    assert np.isnan(got[5])  # at 75 s the last sample is 30 s old
    assert got[[0, 1, 2, 3, 4, 6, 7]].tolist() == [0, 1, 2, 3, 3, 4, 5]  # each scrape once: the grid lies behind them


def test_targets_scraped_one_after_the_other_are_read_in_the_same_interval(tmp_path: Path) -> None:
    """At the first sample's moment the others' last ones are a whole interval old: they would seem to lag behind."""
    late = {"a": 0.3, "b": 0.1, "c": 0.9}
    lines = [
        f'vllm:num_requests_running{{pod="{pod}"}} {k} {1.7e9 + 15 * k + s}'
        for pod, s in late.items()
        for k in range(6)
    ]
    got = read_openmetrics(_file(tmp_path, *lines)).values["running"]
    assert got.tolist() == [[0, 1, 2, 3, 4, 5]] * 3


def test_milliseconds_and_a_dump_of_the_database(tmp_path: Path) -> None:
    lines = [
        f'{{__name__="vllm:num_requests_running", instance="h:1", job="x"}} {k} {1_700_000_000_000 + 15_000 * k}'
        for k in range(4)
    ]
    got = read_openmetrics(_file(tmp_path, *lines, end=""))
    assert got.times.tolist() == [1.7e9 + 15 * k for k in range(4)]
    assert [str(i) for i in got.instances] == ["h:1"]


def test_a_page_of_one_engine_is_named_after_its_file(tmp_path: Path) -> None:
    lines = [f"vllm:num_requests_running {k} {1.7e9 + 15 * k}" for k in range(3)]
    path = tmp_path / "gpu-7.txt.gz"
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    assert [str(i) for i in read_openmetrics(path).instances] == ["gpu-7"]


def test_exemplars_and_names_in_quotes(tmp_path: Path) -> None:
    lines = [f'{{"vllm:num_requests_running", pod="a # {{b}}"}} {k} {1.7e9 + 15 * k} # {{t="1"}} 0.5' for k in range(3)]
    assert read_openmetrics(_file(tmp_path, *lines)).instances[0].name == "a # {b}"


def test_a_cut_file_loses_its_last_line_and_says_so(tmp_path: Path) -> None:
    path = _file(tmp_path, *_counter([1, 2, 3]), end="vllm:generation_tokens_total" + POD + " 4 17000")
    got = read_openmetrics(path)
    assert len(got.times) == 3
    assert [n.kind for n in got.notes] == ["truncated"]


def test_a_given_step_and_a_mapping(tmp_path: Path) -> None:
    lines = [f'my_tokens{{pod="a"}} {k} {1.7e9 + 10 * k}' for k in range(7)]
    got = read_openmetrics(_file(tmp_path, *lines), 30, {"generation_tokens": "my_tokens"})
    assert got.values["generation_tokens"].tolist() == [[0, 3, 6]]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["vllm:num_requests_running 3"], "without a timestamp .a /metrics page"),
        (["vllm:num_requests_running 3"] * 4, "4 /metrics pages"),
        (["vllm:num_requests_running 3", "vllm:num_requests_running 3 1700000000"], "others have none"),
        (["up 1 1700000000"], "--map generation_tokens"),
        (["vllm:num_requests_running three 1700000000"], "run.om:1.*value and timestamp are numbers"),
        (['vllm:num_requests_running{pod=a} 3 1700000000'], 'a label is name="value"'),
        (["vllm:num_requests_running 3 1700000000 4"], "after the labels come a value"),
        (["vllm:num_requests_running 3 1_700_000_000"], "after the labels come a value"),
        (["vllm:num_requests_running 3 1e300"], "no time"),
        (["hello world, how are you"] * 9, "4 *: more lines are no samples"),
        ([f"vllm:num_requests_running 3 {t}" for t in (0, 15, 30, 1.7e9)], "stamp in another unit"),
        ([], "no samples"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_why(tmp_path: Path, lines: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        read_openmetrics(_file(tmp_path, *lines))
    assert all(p.remedy for p in error.value.problems)


_text = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=8
)
_label = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,6}", fullmatch=True).filter(lambda x: not x.startswith("__"))


@settings(max_examples=150, deadline=None)
@given(
    name=st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,10}", fullmatch=True),
    labels=st.dictionaries(_label, _text, max_size=4),
    value=st.floats(),
    stamp=st.integers(0, 2_000_000_000),
)
def test_lines_read_as_prometheus_client_reads_them(
    name: str, labels: dict[str, str], value: float, stamp: int
) -> None:
    escaped = {k: v.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for k, v in labels.items()}
    inside = ",".join(f'{k}="{v}"' for k, v in escaped.items())
    number = (
        "NaN" if math.isnan(value) else "+Inf" if value == math.inf else "-Inf" if value == -math.inf else repr(value)
    )
    line = f"{name}{{{inside}}} {number} {stamp}"
    theirs = next(iter(parser.text_string_to_metric_families(f"# TYPE {name} unknown\n{line}\n# EOF\n"))).samples[0]
    got_name, got_labels, at = parse_series(line)
    assert (got_name, got_labels) == (theirs.name, theirs.labels)
    ours = float(line[at:].split()[0])
    assert ours == theirs.value or (math.isnan(ours) and math.isnan(theirs.value))


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.sampled_from('ab{}"=,\\ #:_1n\n\t'), max_size=30))
def test_any_line_is_a_series_or_an_error(text: str) -> None:
    try:
        name, _, at = parse_series(text)
    except LineError:
        return
    assert name
    assert 0 < at <= len(text)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_mutated_file_is_read_or_refused(data: st.DataObject) -> None:
    good = "\n".join([*_counter([1, 2, 3, 2, 5]), f"vllm:num_requests_running{POD} 3 {1.7e9}", "# EOF", ""]).encode()
    raw = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=5))
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "x.om"
        path.write_bytes(bytes(raw))
        try:
            assert isinstance(read_openmetrics(path), History)
        except InputError as error:
            assert all(p.remedy for p in error.problems)

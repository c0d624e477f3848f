"""Results of others become observations: what a run held is what an engine with known times was given."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from fleetsim.calibrate.ask import Calibrate
from fleetsim.calibrate.raw import RawWriter
from fleetsim.calibrate.sources import is_raw, read_source
from fleetsim.calibrate.sources.benchmark_run import batch_iterations, seen_decodes
from fleetsim.calibrate.sources.source import Duration, iteration, joined, observations_from
from fleetsim.engine import EngineLimits, run_requests
from fleetsim.errors import InputError
from tests.calibrate.bench import TRUTH, Request, guidellm_benchmark, off, play, serve_result, write

DATA = Path(__file__).parent / "data"


def lengths(n: int, seed: int = 0) -> list[tuple[int, int]]:
    rng = np.random.default_rng(seed)
    prompt = np.maximum(8, rng.lognormal(np.log(512), 0.5, n)).astype(int)
    output = np.clip(rng.lognormal(np.log(200), 0.7, n), 2, 1200).astype(int)
    return list(zip(prompt.tolist(), output.tolist(), strict=True))


@pytest.fixture(scope="module")
def runs() -> dict[int, list[Request]]:
    return {c: play(TRUTH, c, lengths(10 * c)) for c in (4, 16, 64)}


def test_the_clients_engine_is_the_simulators() -> None:
    requests = play(TRUTH, 16, lengths(60))
    result = run_requests(
        TRUTH, EngineLimits(16, 8192, 10**6), [r.prompt for r in requests], [r.output for r in requests]
    )
    assert np.allclose(result.finish_s, [r.tokens[-1] for r in requests], rtol=1e-9)


def test_serve_results_lie_on_the_model(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    for concurrency, requests in runs.items():
        path = write(tmp_path / f"{concurrency}.json", serve_result(requests, concurrency))
        source = read_source(path)
        assert source.what == "vllm bench serve"
        assert source.facts == {"model": "Qwen/Qwen2.5-7B", "engine": "vllm", "date": "2026-11-20"}
        assert np.abs(off(source)).max() < 0.05


def test_without_a_cap_littles_law_counts_the_requests(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    source = read_source(write(tmp_path / "a.json", serve_result(runs[16], None)))
    mean = sum(r.tokens[-1] - r.tokens[0] for r in runs[16]) / max(r.tokens[-1] for r in runs[16])
    assert source.observations.decodes == pytest.approx(mean, rel=1e-9)


def test_detailed_results_give_windows_on_the_model(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    for concurrency, requests in runs.items():
        source = read_source(write(tmp_path / "a.json", serve_result(requests, concurrency, detailed=True)))
        assert len(source.observations) >= 20
        assert np.median(np.abs(off(source))) < 0.01
        assert np.abs(off(source)).max() < 0.05
        assert not np.any(source.run)


def test_a_request_alone_gives_its_first_token_and_its_pace(tmp_path: Path) -> None:
    requests = play(TRUTH, 1, [(512, 100)] * 4)
    source = read_source(write(tmp_path / "a.json", serve_result(requests, 1)))
    o = source.observations
    assert o.overheads.tolist() == [0.0, 1.0]
    assert o.prefill_tokens.tolist() == [0.0, 512.0]
    assert np.abs(off(source)).max() < 1e-9


def test_results_of_one_token_have_no_decodes(tmp_path: Path) -> None:
    requests = play(TRUTH, 1, [(2048, 1)] * 4)
    o = read_source(write(tmp_path / "a.json", serve_result(requests, 1))).observations
    assert o.seconds.tolist() == pytest.approx([TRUTH.seconds(0, 2048, 0, 2048 * 2049 / 2)])


def test_a_run_in_which_nothing_was_timed_is_no_measurement(tmp_path: Path) -> None:
    result = serve_result(play(TRUTH, 1, [(64, 1)] * 2), 1)
    untimed = {k: v for k, v in result.items() if not k.endswith("ttft_ms")}
    with pytest.raises(InputError, match="no usable duration"):
        read_source(write(tmp_path / "a.json", untimed))


def test_requests_that_failed_are_left_out(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    result = serve_result(runs[16], 16, detailed=True)
    whole = read_source(write(tmp_path / "a.json", result))
    for key, value in (("input_lens", 512), ("start_times", 1e5), ("ttfts", 0.0), ("itls", [])):
        result[key].append(value)
    assert np.array_equal(
        read_source(write(tmp_path / "a.json", result)).observations.seconds, whole.observations.seconds
    )


def test_appended_results_are_runs(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    lines = "\n".join(json.dumps(serve_result(r, c)) for c, r in runs.items())
    source = read_source(write(tmp_path / "a.json", lines))
    assert source.run.tolist() == [0, 1, 2]


def test_a_sweep_is_read_from_its_folder_and_from_its_csv(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    rows = []
    for i, (c, r) in enumerate(runs.items()):
        folder = tmp_path / "sweep" / f"BENCH--max_concurrency={c}"
        folder.mkdir(parents=True)
        rows.append({**serve_result(r, c), "run_number": 0, "max_num_seqs": 128})
        write(folder / "run=0.json", rows[i])
        write(folder / "summary.json", [rows[i]])
    with (tmp_path / "summary.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["", *rows[0]])
        table.writeheader()
        table.writerows({"": str(i), **row} for i, row in enumerate(rows))
    folder_source, csv_source = read_source(str(tmp_path / "sweep")), read_source(str(tmp_path / "summary.csv"))
    assert folder_source.facts["max_num_seqs"] == 128
    assert sorted(folder_source.observations.seconds) == pytest.approx(sorted(csv_source.observations.seconds))
    assert folder_source.what == csv_source.what == "vllm bench sweep"


def test_swept_engine_limits_that_differ_are_nobodys(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    results = [{**serve_result(runs[4], 4), "max_num_seqs": n} for n in (64, 128)]
    assert "max_num_seqs" not in read_source(write(tmp_path / "a.json", results)).facts


@pytest.mark.parametrize("slots", [8, 64])
def test_a_closed_batch_takes_the_iterations_of_the_engine(slots: int) -> None:
    requests = play(TRUTH, slots, [(100, 30)] * 40, budget=512)
    rows = batch_iterations(40, 100, 30, slots, 512)
    seconds = sum(TRUTH.seconds(b, p, kv, a) for b, kv, p, a in rows.tolist())
    assert seconds == pytest.approx(max(r.tokens[-1] for r in requests), rel=1e-12)


def test_offline_results_need_their_lengths(tmp_path: Path) -> None:
    requests = play(TRUTH, 8, [(64, 32)] * 8)
    result = {"model_id": "m", "avg_latency": requests[0].tokens[-1], "latencies": [1.0], "percentiles": {}}
    path = write(tmp_path / "latency.json", result)
    with pytest.raises(InputError, match=r"vLLM does not write batch_size, input_len, output_len.*PYTORCH"):
        read_source(path)
    args = {"batch_size": 8, "input_len": 64, "output_len": 32, "max_num_seqs": 256, "other": object.__name__}
    write(tmp_path / "latency.pytorch.json", [{"benchmark": {"extra_info": {"args": args}}}])
    source = read_source(path)
    assert np.abs(off(source)).max() < 1e-9
    assert source.facts["max_num_seqs"] == 256


def test_throughput_results_need_the_slots(tmp_path: Path) -> None:
    result = {"elapsed_time": 2.0, "num_requests": 20, "total_num_tokens": 20 * 96, "input_len": 64, "output_len": 32}
    path = write(tmp_path / "throughput.json", result)
    with pytest.raises(InputError, match="--max-num-seqs"):
        read_source(path)
    o = read_source(path, Calibrate(max_num_seqs=8)).observations
    assert o.decodes.max() == 8
    assert o.prefill_tokens.sum() == 20 * 64


def test_guidellm_reports_lie_on_the_model(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    report = {"benchmarks": [guidellm_benchmark(r, c) for c, r in runs.items()]}
    source = read_source(write(tmp_path / "benchmarks.json", report))
    assert source.what == "guidellm"
    assert source.run.tolist() == [0, 1, 2]
    assert np.abs(off(source)).max() < 0.06


@pytest.mark.parametrize(("name", "points", "date"), [("0.3", [0, 0, 1], "2025-07-31"), ("0.8", [0], "2026-09-10")])
def test_guidellm_layouts_old_and_new(name: str, points: list[int], date: str) -> None:
    source = read_source(str(DATA / f"guidellm-{name}.json"))
    assert source.run.tolist() == points
    assert source.facts == {"model": "Qwen/Qwen2.5-7B", "date": date}
    assert (source.observations.overheads > 0).sum() == len(points) // 2


def test_guidellm_without_streaming_is_refused(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    benchmark = guidellm_benchmark(runs[4], 4)
    benchmark["metrics"]["inter_token_latency_ms"]["successful"]["mean"] = 0.0
    with pytest.raises(InputError, match="with streaming"):
        read_source(write(tmp_path / "a.json", {"benchmarks": [benchmark]}))


def test_the_batch_that_tokens_saw() -> None:
    assert seen_decodes(10.0, None) == 10.0
    assert seen_decodes(3.0, 10.0) == 3.0
    full = np.concatenate([np.full(6000, 10.0), np.linspace(10.0, 0.0, 4000)])
    assert seen_decodes(float(full.mean()), 10.0) == pytest.approx((full**2).mean() / full.mean(), rel=1e-3)


def test_sources_are_joined_and_parted(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    sources = [read_source(write(tmp_path / f"{c}.json", serve_result(r, c))) for c, r in runs.items()]
    o, run = joined(sources)
    assert run.tolist() == [0, 1, 2]
    assert len(set(o.segment.tolist())) == len(o)
    middle = o.where(run == 1)
    assert middle.seconds.tolist() == sources[1].observations.seconds.tolist()
    assert np.array_equal(middle.decodes, sources[1].observations.decodes)
    assert np.array_equal(middle.of, sources[1].observations.of)


BROKEN = {
    "text": ("hello world, this is no table", "has a header but no row"),
    "half": ('{"duration": 1.0, "compl', "is no valid JSON.*vllm bench serve.*guidellm.*CSV"),
    "number": ("[1, 2]", "holds no JSON object"),
    "other": ('{"a": 1}', "keys a; looked for"),
    "empty": ("[]", "holds no JSON object"),
    "no-runs": ('{"benchmarks": []}', "holds no benchmark"),
    "nothing": ("", "is empty"),
    "deep": ("[" * 100_000, "nested too deep|no valid JSON"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_result_is_refused(tmp_path: Path, name: str) -> None:
    text, said = BROKEN[name]
    with pytest.raises(InputError, match=said):
        read_source(write(tmp_path / "a.json", text))


def test_all_problems_of_all_results_at_once(tmp_path: Path, runs: dict[int, list[Request]]) -> None:
    a, b, c = (serve_result(runs[4], 4) for _ in range(3))
    a["duration"] = -1.0
    b["mean_itl_ms"] = float("nan")
    c["completed"] = 0
    with pytest.raises(InputError) as caught:
        read_source(write(tmp_path / "a.json", [a, b, c]))
    assert [p.path.rsplit(": ", 1)[-1] for p in caught.value.problems] == ["duration", "mean_itl_ms", "completed"]


def test_folders_and_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_source(str(tmp_path / "none.json"))
    with pytest.raises(InputError, match="folder without a result"):
        read_source(str(tmp_path))


def test_raw_measurements_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "a.raw.jsonl"
    RawWriter(path).put("meta", date="2026-11-21")
    assert is_raw(str(path))
    assert not is_raw(write(tmp_path / "b.json", {"benchmarks": []}))
    assert not is_raw(str(tmp_path / "none"))
    assert not any(is_raw(write(tmp_path / "c.json", {"t": kind})) for kind in ([], {}, None, 3))
    with pytest.raises(InputError, match="raw measurements"):
        read_source(str(path))


@pytest.mark.parametrize(("seconds", "tokens", "said"), [(1.0, 2e10, "2e+10 tokens"), (1e10, 8.0, "1e+10 seconds")])
def test_what_no_engine_can_do_is_refused_with_its_number(seconds: float, tokens: float, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)) as refused:
        observations_from([Duration(seconds, iteration(tokens, tokens))], "results.json")
    assert "unit" in refused.value.problems[0].remedy

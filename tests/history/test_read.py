"""A window read from a Prometheus: every signal in its place, and every fault stated."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fleetsim.errors import InputError
from fleetsim.history.access import Access, PrometheusError
from fleetsim.history.counters import growth, increments
from fleetsim.history.history import History
from fleetsim.history.prometheus import Prometheus
from fleetsim.history.read import read_prometheus
from fleetsim.history.selection import bare, parse_map, wrong
from fleetsim.history.window import parse_time
from fleetsim.records import replace
from tests.history.fake_prometheus import FakePrometheus, Fault, Series, serving

START = 1_795_000_005.0  # a multiple of 15
COUNT = 481  # two hours at 15 s
END = START + (COUNT - 1) * 15
TIMES = START + 15.0 * np.arange(COUNT)
RATE = 4000.0


def line(name: str, values: np.ndarray | float, times: np.ndarray = TIMES, **labels: str) -> Series:
    return Series({"__name__": name, **labels}, times, np.broadcast_to(np.asarray(values, float), times.shape))


def engine(pod: str, times: np.ndarray = TIMES, **more: str) -> list[Series]:
    labels = {"job": "rollout", "pod": pod, "instance": f"{pod}:8000", "engine": "0", "model_name": "m", **more}
    total = (times - START) * RATE
    lengths = [
        line(f"vllm:request_generation_tokens_{part}", (times - START) * share, times, **labels, **le)
        for part, share, le in [
            ("bucket", 1.0, {"le": "100.0"}),
            ("bucket", 3.0, {"le": "1000.0"}),
            ("bucket", 4.0, {"le": "+Inf"}),
            ("sum", 4000.0, {}),
            ("count", 4.0, {}),
        ]
    ]
    return [
        line("vllm:generation_tokens_total", total, times, **labels),
        line("vllm:num_requests_running", 40.0, times, **labels),
        line("vllm:kv_cache_usage_perc", 0.5, times, **labels),
        line("vllm:request_success_total", total / 1000, times, **labels, finished_reason="stop"),
        line("vllm:request_success_total", total / 4000, times, **labels, finished_reason="length"),
        line("vllm:cache_config_info", 1.0, times, **labels, block_size="16", num_gpu_blocks="20000"),
        *lengths,
    ]


def trainer(job: str = "trainer", **more: str) -> list[Series]:
    steps = np.floor((TIMES - START) / 60)
    return [line("rl_trainer_steps_total", steps, job=job, instance="t:9200", **more)]


def read(fake: FakePrometheus, start: float = START, end: float = END, **options: object) -> History:
    step = options.pop("step_s", None)
    client = Prometheus(fake.url, Access(timeout_s=60.0), sleep=lambda s: None)
    return read_prometheus(client, start, end, step, **{"now_s": END + 9999, **options})  # type: ignore[arg-type]


def kinds(history: History) -> list[str]:
    return [note.kind for note in history.notes]


def test_a_fleet_and_its_trainer() -> None:
    seen: list[tuple[int, int, str]] = []
    with serving([*engine("b"), *engine("a"), *trainer()]) as fake:
        history = read(fake, progress=lambda *at: seen.append(at))
    assert history.step_s == 15.0
    assert history.times.tolist() == TIMES.tolist()
    assert [str(i) for i in history.instances] == ["a", "b"]
    assert history.instances[0].model == "m"
    assert np.array_equal(history.values["generation_tokens"], np.stack([(TIMES - START) * RATE] * 2))
    assert np.array_equal(history.values["finished"][0], (TIMES - START) * RATE * 1.25 / 1000)
    assert np.array_equal(history.values["finished_length"][0], (TIMES - START) * RATE / 4000)
    assert history.fleet["trainer.steps"][-1] == 120
    lengths = history.histograms["output_tokens"]
    assert lengths.le.tolist() == [100, 1000, np.inf]
    assert lengths.times[-1] == END
    assert np.diff(lengths.times).tolist() == [300.0] * (len(lengths.times) - 1)
    assert lengths.counts[1, -1].tolist() == [7200, 21600, 28800]
    assert lengths.sums[1, -1] == 4000 * 7200
    assert history.configs[0]["num_gpu_blocks"] == "20000"
    assert history.notes == ()
    assert "waiting" not in history.values  # nobody exports it: absent, not zero
    done, of, _ = zip(*seen, strict=True)
    assert list(done) == list(range(len(seen)))
    assert set(of) == {len(seen) - 1}


def test_a_selector_picks_the_engines_and_the_only_trainer_is_found_without_it() -> None:
    with serving([*engine("a"), *engine("x", job="other"), *trainer()]) as fake:
        history = read(fake, selector='{job="rollout"}')
    assert [i.name for i in history.instances] == ["a"]
    assert history.fleet["trainer.steps"][-1] == 120
    assert any('only trainer there is (job="trainer")' in note.text for note in history.notes)
    with serving([*engine("a"), *trainer(), *trainer("other")]) as fake:
        history = read(fake, selector='job="rollout"')
    assert history.fleet == {}
    assert kinds(history) == ["missing"]


def test_missing_scrapes_are_gaps_and_totals_stay_right() -> None:
    rng = np.random.default_rng(3)
    series = []
    for one in (*engine("a"), *engine("b")):
        keep = rng.random(COUNT) >= 0.1
        keep[[0, -1]] = True
        series.append(Series(one.labels, one.times[keep], one.values[keep]))
    with serving(series) as fake:
        history = read(fake)
    tokens = history.values["generation_tokens"]
    assert 0.05 < np.isnan(tokens).mean() < 0.15
    assert growth(tokens) == pytest.approx([RATE * (END - START)] * 2)
    assert np.allclose(increments(tokens, 15.0), RATE * 15)  # an even rate: spread evenly is exactly right
    (note,) = history.notes
    assert note.kind == "gap"
    assert note.share == pytest.approx(np.isnan(tokens).mean(), rel=0.05)


def test_an_hour_without_scrapes_is_a_gap_with_its_length() -> None:
    keep = (TIMES < START + 1800) | (TIMES > START + 5400)
    with serving([Series(s.labels, s.times[keep], s.values[keep]) for s in engine("a")]) as fake:
        history = read(fake)
    assert np.isnan(increments(history.values["generation_tokens"], 15.0)).sum() == 242
    assert kinds(history) == ["gap"]
    assert "1 h 00 min" in history.notes[0].text
    assert "longer ones, of 1 instance, count as gaps" in history.notes[0].text


def test_copies_of_an_ha_pair_are_one_and_fill_each_other() -> None:
    series = []
    for replica in ("prom-0", "prom-1"):
        shift = 0.0 if replica == "prom-0" else 5.0  # each scrapes at moments of its own
        down = slice(100, 130) if replica == "prom-0" else slice(300, 360)
        keep = np.ones(COUNT, bool)
        keep[down] = False
        seen = engine("a", TIMES + shift, prometheus_replica=replica)
        series += [Series(one.labels, one.times[keep], one.values[keep]) for one in seen]
    with serving(series) as fake:
        history = read(fake)
    assert [str(i) for i in history.instances] == ["a"]
    tokens = history.values["generation_tokens"]
    assert not np.isnan(tokens).any()
    assert (np.diff(tokens[0]) >= 0).all()
    # once, not twice; where one stands in for the other, by what grew in the 5 s between their scrapes
    assert growth(tokens)[0] == pytest.approx(RATE * (history.end_s - history.start_s), rel=1e-3)
    assert kinds(history) == ["duplicate"]


def test_a_restart_is_counted_across() -> None:
    half = COUNT // 2
    series = engine("a")
    tokens = series[0].values.copy()
    tokens[half:] -= tokens[half] - 10
    series[0] = replace(series[0], values=tokens)
    with serving(series) as fake:
        history = read(fake)
    assert growth(history.values["generation_tokens"])[0] == RATE * (END - START - 15) + 10
    assert kinds(history) == ["reset"]


def test_a_renamed_metric_is_one_signal() -> None:
    half = COUNT // 2
    old = engine("a", TIMES[:half])
    for one in old:
        if one.labels["__name__"] == "vllm:kv_cache_usage_perc":
            one.labels["__name__"] = "vllm:gpu_cache_usage_perc"
    with serving([*old, *engine("a", TIMES[half:])]) as fake:
        history = read(fake)
    assert (history.values["kv_use"] == 0.5).all()
    (note,) = [n for n in history.notes if n.kind == "rename"]
    assert "vllm:gpu_cache_usage_perc" in note.text
    assert "vllm:kv_cache_usage_perc" in note.text


def test_a_pod_that_comes_back_under_another_name_is_another_instance() -> None:
    half = COUNT // 2
    with serving([*engine("a-x1", TIMES[:half]), *engine("a-y2", TIMES[half:])]) as fake:
        history = read(fake)
    assert [i.name for i in history.instances] == ["a-x1", "a-y2"]
    there = np.isfinite(history.values["generation_tokens"])
    assert there.sum(axis=0).tolist() == [1] * COUNT
    assert history.notes == ()  # a change of pods is no gap


def test_partial_answers_are_noted() -> None:
    with serving(engine("a")) as fake:
        fake.always = lambda params: Fault(extra={"warnings": ["store b: context deadline exceeded"]})
        history = read(fake)
    assert kinds(history) == ["partial"]
    assert "store b" in history.notes[0].text


def test_targets_scraped_at_phases_of_their_own_and_with_jitter_leave_no_false_gaps() -> None:
    rng = np.random.default_rng(5)
    series: list[Series] = []
    for i in range(12):
        jitter = rng.normal(0, 0.02, COUNT)
        series += engine(f"p{i:02}", TIMES + rng.uniform(0, 15) + jitter)
    with serving(series) as fake:
        history = read(fake, END - 3600, END)
    assert history.step_s == 15.0
    assert not np.isnan(history.values["generation_tokens"][:, 1:-1]).any()
    assert increments(history.values["generation_tokens"], 15.0) == pytest.approx(RATE * 15, rel=0.02)


@pytest.mark.parametrize("interval", [5.0, 30.0, 60.0])
def test_the_step_is_the_scrape_interval(interval: float) -> None:
    times = np.arange(START, END + 1, interval)
    with serving(engine("a", times)) as fake:
        assert read(fake).step_s == interval
        assert read(fake, step_s=120.0).step_s == 120.0


def test_a_finer_step_than_the_scrapes_makes_no_gaps() -> None:
    with serving(engine("a")) as fake:
        history = read(fake, step_s=5.0)
    assert not np.isnan(history.values["generation_tokens"]).any()
    assert kinds(history) == []


def test_a_long_window_is_read_coarser_and_says_so() -> None:
    times = START + 60.0 * np.arange(30 * 1440)
    with serving([s for s in engine("a", times) if "bucket" not in s.labels["__name__"]]) as fake:
        history = read(fake, START, float(times[-1]), now_s=float(times[-1]))
        with pytest.raises(InputError, match="more than 20,000 times"):
            read(fake, START, float(times[-1]), step_s=60.0)
    assert history.step_s == 180.0
    assert kinds(history) == ["truncated"]
    assert growth(history.values["generation_tokens"])[0] == pytest.approx(RATE * (times[-1] - START), rel=1e-3)


@pytest.mark.parametrize(
    "selector",
    [
        '{job="rollout"}',
        'job=~"roll.*",pod!="z"',
        ' job = "rollout" , ',
        "job='rollout'",
        'job!="a\\"b"',
        "job=`rollout`",
    ],
)
def test_selectors_as_promql_has_them(selector: str) -> None:
    assert wrong(bare(selector)) == []


def test_a_value_without_quotes_is_shown_with_them() -> None:
    (problem,) = wrong("job=rollout")
    assert problem.remedy == """write 'job="rollout"'"""


# ------------------------------------------------------------------------------------------------------------- --map


def test_mapped_expressions() -> None:
    mine = line("my_step_seconds", 42.0, job="t", rank="0")
    other = line("my_step_seconds", 41.0, job="t", rank="1")
    tokens = line("tok", (TIMES - START) * 7, instance="h:1")
    with serving([*engine("a"), mine, other, tokens]) as fake:
        history = read(
            fake, mapping={"trainer.step_s": "max(my_step_seconds)", "queue.samples": 'my_step_seconds{rank="1"}'}
        )
        assert set(history.fleet) == {"trainer.step_s", "queue.samples"}
        assert (history.fleet["trainer.step_s"] == 42).all()
        assert (history.fleet["queue.samples"] == 41).all()
        history = read(fake, mapping={"generation_tokens": "tok"}, selector='job="none"')
        assert [i.name for i in history.instances] == ["h:1"]
        assert growth(history.values["generation_tokens"])[0] == 7 * (END - START)
        with pytest.raises(InputError) as caught:
            read(fake, mapping={"trainer.step_s": "my_step_seconds", "trainer.mfu": "none", "running": "max(tok)"})
    several, absent, whose = sorted(
        caught.value.problems, key=lambda p: ("step_s", "mfu", "running").index(p.path[6:].removeprefix("trainer."))
    )
    assert "max(my_step_seconds)" in several.remedy
    assert 'rank="0"' in several.rule
    assert "no series" in absent.rule
    assert "sum by (instance)" in whose.remedy


def test_a_map_is_parsed_and_its_names_are_known() -> None:
    assert parse_map(['trainer.step_s=max(x{a="b"})']) == {"trainer.step_s": 'max(x{a="b"})'}
    with pytest.raises(InputError) as caught:
        parse_map(["trainer.step=x", "nothing", "trainer.mfu=a", "trainer.mfu=b"])
    assert len(caught.value.problems) == 3
    assert any('did you mean "trainer.step' in p.remedy for p in caught.value.problems)


def test_a_rate_that_is_mapped_as_a_counter_is_refused() -> None:
    rate = 0.02 * (1 + 0.1 * np.sin(0.7 * np.arange(COUNT)))
    with serving([*engine("a"), line("job:steps:rate5m", rate, job="t")]) as fake:
        with pytest.raises(
            InputError, match=r"trainer\.steps: falls in \d+ of its 480 changes; .*; map the counter itself"
        ):
            read(fake, mapping={"trainer.steps": "job:steps:rate5m"})
        assert "trainer.step_s" in read(fake, mapping={"trainer.step_s": "job:steps:rate5m"}).fleet  # a gauge may


def test_a_mapped_expression_that_does_not_parse_shows_prometheuss_own_words() -> None:
    with serving(engine("a")) as fake, pytest.raises(PrometheusError, match="parse error"):
        read(fake, mapping={"trainer.mfu": "max(("})


# ------------------------------------------------------------------------------------------------------ other engines


def test_sglang_ranks_are_one_instance() -> None:
    labels = {"job": "s", "instance": "h:30000", "model_name": "m", "engine_type": "unified"}
    series = [
        line("sglang:generation_tokens_total", np.floor((TIMES - START) / 600) * 6e5, **labels),
        line("sglang:cache_config_info", 1.0, job="s", instance="h:30000", page_size="64", num_pages="900"),
    ]
    for dp, tp in (("0", "0"), ("1", "2")):
        ranks = {**labels, "dp_rank": dp, "tp_rank": tp, "pp_rank": "0"}
        series += [
            line("sglang:num_running_reqs", 10.0 + int(dp), **ranks),
            line("sglang:token_usage", 0.25 + 0.5 * int(dp), **ranks),
            line("sglang:realtime_tokens_total", (TIMES - START) * 500, **ranks, mode="decode"),
            line("sglang:realtime_tokens_total", (TIMES - START) * 900, **ranks, mode="prefill_compute"),
        ]
    with serving(series) as fake:
        history = read(fake)
    assert [str(i) for i in history.instances] == ["h:30000"]
    assert (history.values["running"] == 21).all()
    assert (history.values["kv_use"] == 0.5).all()
    assert (increments(history.values["generation_tokens"], 15.0) == 15_000).all()  # while decoding, not at the end
    assert history.configs[0]["block_size"] == "64"
    assert history.configs[0]["num_gpu_blocks"] == "900"
    assert kinds(history) == ["other"]


def test_an_sglang_of_2026_is_read() -> None:
    """Pages of the KV cache in two gauges; cached tokens by their source; and, with priorities, counts of each beside
    the whole (016d8605, srt/observability/metrics_collector.py)."""
    server = {"job": "s", "instance": "h:30000", "model_name": "m", "engine_type": "unified"}
    series = [
        line("sglang:cached_tokens_total", (TIMES - START) * 100, **server, cache_source="device"),
        line("sglang:cached_tokens_total", (TIMES - START) * 30, **server, cache_source="host"),
    ]
    for rank in ("0", "1"):
        ranks = {**server, "dp_rank": rank, "tp_rank": rank, "pp_rank": "0", "moe_ep_rank": "0"}
        series += [
            line("sglang:realtime_tokens_total", (TIMES - START) * 500, **ranks, mode="decode"),
            line("sglang:num_running_reqs", 3.0, **ranks, priority="1"),
            line("sglang:num_running_reqs", 7.0, **ranks, priority="0"),
            line("sglang:num_running_reqs", 10.0, **ranks),
            line("sglang:page_size", 64.0, **ranks),
            line("sglang:num_pages", 900.0, **ranks),
        ]
    with serving(series) as fake:
        history = read(fake)
    assert [str(i) for i in history.instances] == ["h:30000"]
    assert (history.values["running"] == 20).all()
    assert (increments(history.values["prefix_hits"], 15.0) == 15.0 * 130).all()
    assert (history.configs[0]["block_size"], history.configs[0]["num_gpu_blocks"]) == ("64", "1800")


@pytest.mark.parametrize(
    ("ranks", "later"),
    [({}, False), ({"engine_type": "unified", "tp_rank": "0", "pp_rank": "0"}, True)],
    ids=["0.4.1", "0.4.10"],
)
def test_an_sglang_of_2025_is_read(ranks: dict[str, str], later: bool) -> None:
    """With the names and labels of its collector: tokens counted when a request ends, no count of requests but that of
    a histogram before 0.4.6, nothing about retractions before 0.4.10."""
    server = {"job": "s", "instance": "h:30000", "model_name": "m"}
    ended = np.floor((TIMES - START) / 600)
    series = [
        line("sglang:prompt_tokens_total", ended * 1e5, **server),
        line("sglang:generation_tokens_total", ended * 6e5, **server),
        line("sglang:e2e_request_latency_seconds_bucket", ended * 400, **server, le="+Inf"),
        line("sglang:e2e_request_latency_seconds_sum", ended * 9e3, **server),
        line("sglang:e2e_request_latency_seconds_count", ended * 400, **server),
        line("sglang:num_running_reqs", 90.0, **server, **ranks),
        line("sglang:num_queue_reqs", 3.0, **server, **ranks),
        line("sglang:token_usage", 0.5, **server, **ranks),
    ]
    if later:
        series += [
            line("sglang:num_requests_total", ended * 400, **server),
            line("sglang:total_retracted_reqs", ended * 2, **server, **ranks),
        ]
    with serving(series) as fake:
        history = read(fake)
    assert [str(i) for i in history.instances] == ["h:30000"]
    grown = {name: growth(history.values[name]).sum() for name in ("generation_tokens", "finished")}
    assert grown["generation_tokens"] == 1500 * grown["finished"] > 0
    assert (history.values["running"] == 90).all()
    assert (history.values["waiting"] == 3).all()
    assert (history.values["kv_use"] == 0.5).all()
    assert ("preemptions" in history.values) == later
    assert not later or growth(history.values["preemptions"]).sum() == grown["finished"] / 200


def test_sglang_ranks_with_gpus_of_their_own_are_instances() -> None:
    """Both ranks begin at tp_rank 0; what the tokenizer counts for both is divided by the output tokens."""
    labels = {"job": "s", "instance": "h:30000", "model_name": "m"}
    ended = np.floor((TIMES - START) / 600)
    series = [
        line("sglang:prompt_tokens_total", ended * 8e5, **labels),
        line("sglang:cache_config_info", 1.0, **labels, page_size="64", num_pages="900"),
    ]
    for dp, rate in (("0", 300), ("1", 100)):
        ranks = {**labels, "engine_type": "unified", "dp_rank": dp, "tp_rank": "0", "pp_rank": "0"}
        series += [
            line("sglang:num_running_reqs", 10.0 + int(dp), **ranks),
            line("sglang:realtime_tokens_total", (TIMES - START) * rate, **ranks, mode="decode"),
        ]
    with serving(series) as fake:
        history = read(fake)
    assert [str(i) for i in history.instances] == ["h:30000", "h:30000/1"]
    assert history.values["running"][:, 0].tolist() == [10, 11]
    assert increments(history.values["generation_tokens"], 15.0)[:, 0].tolist() == [4500, 1500]
    assert history.values["prompt_tokens"][:, -1] == pytest.approx([0.75 * ended[-1] * 8e5, 0.25 * ended[-1] * 8e5])
    assert [config["block_size"] for config in history.configs] == ["64", "64"]
    assert kinds(history) == ["other"]


def test_prime_rls_trainer() -> None:
    series = [line("trainer_step", np.floor((TIMES - START) / 60), job="t"), line("trainer_mfu_percent", 41.0, job="t")]
    with serving([*engine("a"), *series]) as fake:
        history = read(fake)
    assert history.fleet["trainer.steps"][-1] == 120
    assert history.fleet["trainer.mfu"] == pytest.approx(0.41)


# ------------------------------------------------------------------------------------------------- nothing, and faults


def test_an_empty_window_says_what_there_is_instead() -> None:
    with serving(engine("a")) as fake:
        with pytest.raises(InputError) as caught:
            read(fake, selector='job="rolout"')
        assert 'job="rollout"' in caught.value.problems[0].rule
        with pytest.raises(InputError) as caught:
            read(fake, END + 86_400, END + 90_000)
        found = re.search(r"have them from (.*) UTC to (.*) UTC", caught.value.problems[0].rule)
        assert found is not None
        first, last = (parse_time(text + "Z", 0.0) for text in found.groups())
        assert first == pytest.approx(START, abs=300)
        assert last == pytest.approx(END, abs=300)
    up = [line("up", 1.0, job="rollout", instance="a")]
    with serving(up) as fake, pytest.raises(InputError, match="1 scrape targets were there"):
        read(fake)
    with serving([]) as fake, pytest.raises(InputError, match="no scrape target matches"):
        read(fake)


def test_a_selector_that_matches_nothing_is_an_error_though_a_trainer_is_there() -> None:
    with serving([*engine("a"), *trainer()]) as fake, pytest.raises(InputError, match="matches no metric"):
        read(fake, selector='job="rolout"')


def test_a_trainer_without_engines_is_a_history_without_instances() -> None:
    with serving(trainer()) as fake:
        history = read(fake)
    assert history.instances == ()
    assert history.fleet["trainer.steps"][-1] == 120
    assert kinds(history) == ["missing"]


@pytest.mark.parametrize(
    ("start", "end", "options", "path"),
    [
        (END, START, {}, "--start"),
        (START, START + 1, {}, "--start"),
        (START, START + 10, {}, "--start"),
        (START, END, {"step_s": 0.5}, "--step"),
        (START, END, {"step_s": 1e6}, "--step"),
        (START, END, {"step_s": float("nan")}, "--step"),
        (START, END, {"mapping": {"trainer.stp_s": "x"}}, "--map"),
        (START, END, {"selector": "job=rollout"}, "--selector"),
        (START, END, {"selector": 'job="a" or vector(1)'}, "--selector"),
        (START, END, {"selector": 'vllm:x{job="a"}'}, "--selector"),
    ],
)
def test_what_cannot_be_read_is_an_input_error(start: float, end: float, options: dict[str, object], path: str) -> None:
    with serving(engine("a")) as fake, pytest.raises(InputError) as caught:
        read(fake, start, end, **options)
    assert [p.path for p in caught.value.problems] == [path]


def test_data_of_the_future_and_data_that_stopped_are_noted() -> None:
    up = line("up", 1.0, np.arange(END - 600, END + 7200, 15.0), job="rollout", pod="a")
    with serving([*engine("a"), up]) as fake:
        assert "skew" not in kinds(read(fake, now_s=END + 20))
        behind = read(fake, START, END, now_s=END - 900)
        assert any("in the future" in note.text for note in behind.notes if note.kind == "skew")
        ahead = read(fake, START, END + 1200, now_s=END + 1200)
        assert any("20 min 00 s old, though its targets are up" in note.text for note in ahead.notes)


@pytest.mark.parametrize(("ahead_s", "says"), [(500.0, "8 min 20 s ahead of"), (-60.0, "1 min 00 s behind"), (4.0, "")])
def test_a_server_whose_clock_differs_is_noted(ahead_s: float, says: str) -> None:
    with serving(engine("a")) as fake:
        fake.clock_ahead_s = ahead_s
        notes = [note.text for note in read(fake).notes if note.kind == "skew"]
    assert len(notes) == (1 if says else 0)
    assert all(re.search(r"\d (min|s)", text) and says.split()[-1] in text for text in notes)


FAULTS = [
    Fault(429, b"", {"Retry-After": "1"}),
    Fault(503, b"restarting"),
    Fault(after=30),
    Fault(after=0),
    Fault(body=b'{"status":"success","data"'),
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", [0, 1, 2, 5, 9])
def test_a_fault_in_the_middle_ends_in_the_right_answer(fault: Fault, at: int) -> None:
    with serving([*engine("a"), *trainer()]) as fake:
        right = read(fake, END - 900)
        fake.faults.extend([*[None] * at, fault])
        again = read(fake, END - 900)
        assert not fake.faults
    assert same(right, again)


@pytest.mark.parametrize("fault", [*FAULTS, Fault(401, b""), Fault(400, b""), Fault(500, b"")])
@pytest.mark.parametrize("at", [0, 1, 2, 5, 9])
def test_a_fault_that_stays_ends_in_a_typed_error_wherever_it_begins(fault: Fault, at: int) -> None:
    with serving([*engine("a"), *trainer()]) as fake:
        left = [at]

        def then(params: dict[str, str]) -> Fault | None:
            left[0] -= 1
            return None if left[0] >= 0 else fault

        fake.always = then
        with pytest.raises(PrometheusError) as caught:
            read(fake, END - 900)
    assert caught.value.exit_code == 3
    assert re.search(r"http://127\.0\.0\.1", str(caught.value))


def same(one: History, other: History) -> bool:
    """Equal in all that was read."""
    return (
        one.times.tolist() == other.times.tolist()
        and one.instances == other.instances
        and one.configs == other.configs
        and one.notes == other.notes
        and all(np.array_equal(v, other.values[k], equal_nan=True) for k, v in one.values.items())
        and all(np.array_equal(v, other.fleet[k], equal_nan=True) for k, v in one.fleet.items())
        and all(np.array_equal(v.counts, other.histograms[k].counts) for k, v in one.histograms.items())
    )

"""Simulated history: what is in the file is what happened in the run, and those who read such files can read it."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as page_text

from fleetsim.config import default_scenario, with_changes
from fleetsim.engine.kernel import tables as t
from fleetsim.export.openmetrics import Written, write_openmetrics
from fleetsim.export.series import one_two_five
from fleetsim.history.signals import SIGNALS
from fleetsim.replay.backtest import RunTotals
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from tests.scrape_pages import Pages

END = 1_700_000_000.0
EVERY = 5.0
SMALL: dict[str, Any] = {
    "workload.output_tokens": {"mean": 300.0, "cv": 1.0, "max": 800.0},
    "workload.prompt_tokens": 200,
    "workload.group_size": 4,
    "trainer.batch_samples": 64,
    "trainer.fixed_s": 3.0,
    "fleet.instances": 3,
    "run.steps": 30,
    "run.warmup_steps": 0,
}
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, float]]]
LINE = re.compile(r"^([a-z_:0-9]+)\{(.*)\} (\S+) (\S+)$")


def run(**changes: Any) -> Records:
    scenario = with_changes(default_scenario(), SMALL | {k.replace("__", "."): v for k, v in changes.items()})
    return simulate(scenario, scrape_every_s=EVERY)


def text_of(records: Records, **kwargs: Any) -> tuple[str, Written]:
    file = io.StringIO()
    written = write_openmetrics(records, file, end_s=END, **kwargs)
    return file.getvalue(), written


def samples_of(text: str) -> Samples:
    """(name, labels) -> [(unix seconds, value)], in the order of the file."""
    out: Samples = defaultdict(list)
    for line in text.splitlines():
        if not line.startswith("#"):
            match = LINE.match(line)
            assert match is not None, line
            name, labels, value, stamp = match.groups()
            key = tuple(re.findall(r'([a-z_]+)="([^"]*)"', labels))
            out[name, key].append((float(stamp), float(value)))
    return out


def series(samples: Samples, name: str, **labels: str) -> list[tuple[float, float]]:
    """The one series of that name with these labels among its own."""
    (found,) = [v for (n, key), v in samples.items() if n == name and labels.items() <= dict(key).items()]
    return found


@pytest.fixture(scope="module")
def healthy() -> Records:
    return run()


@pytest.fixture(scope="module")
def failing() -> Records:
    return run(fleet__failures__mtbf_s=60.0, fleet__failures__restart_s=12.0, run__steps=40)


def test_every_sample_has_its_time(healthy: Records) -> None:
    text, written = text_of(healthy)
    samples = samples_of(text)
    assert sum(map(len, samples.values())) == written.samples
    last = healthy.queue_scrapes["time_s"][-1]
    assert (written.start_s, written.end_s) == (END - last, END)
    for values in samples.values():
        times = [at for at, _ in values]
        assert times[-1] <= END
        assert np.all(np.diff(times) > 0)
    running = series(samples, "vllm:num_requests_running", pod="rollout-1")
    assert [at for at, _ in running] == pytest.approx(END - last + healthy.queue_scrapes["time_s"])


def test_values_are_the_scrapes(healthy: Records) -> None:
    samples = samples_of(text_of(healthy)[0])
    table = healthy.scrapes.reshape(-1, 3)
    for i in range(3):
        for name, column in (
            ("vllm:generation_tokens_total", table["generated"][:, i]),
            ("vllm:num_requests_running", table["running"][:, i]),
            ("vllm:num_requests_waiting", table["waiting"][:, i]),
            ("vllm:kv_cache_usage_perc", table["kv_use"][:, i]),
            ("vllm:num_preemptions_total", table["preemptions"][:, i]),
            ("vllm:prefix_cache_queries_total", table["prefilled"][:, i] + table["hit_tokens"][:, i]),
            ("vllm:prefix_cache_hits_total", table["hit_tokens"][:, i]),
        ):
            of_it = series(samples, name, pod=f"rollout-{i}", instance=f"rollout-{i}:8000", job="rollout")
            assert [value for _, value in of_it] == column.tolist()
    queue = healthy.queue_scrapes
    assert [v for _, v in series(samples, "rl_rollout_queue_samples")] == queue["samples"].tolist()


def test_the_queue_is_no_larger_than_its_cap_whatever_stands_before_it() -> None:
    run_ = run(buffer__capacity_samples=64, admission__max_staleness=4.0)
    assert run_.queue_scrapes["blocked"].max() > 0
    held = [value for _, value in series(samples_of(text_of(run_)[0]), "rl_rollout_queue_samples")]
    assert max(held) == 64.0
    # and the back-test holds a queue of that size against the same
    exported, simulated = sum(held) / len(held), RunTotals.of(run_).between(0.0, None)["queue"]
    assert simulated == pytest.approx(exported, abs=4.0)
    assert simulated <= 64.0


def test_histograms_count_what_ended(healthy: Records) -> None:
    samples = samples_of(text_of(healthy)[0])
    made = healthy.samples
    first = END - healthy.queue_scrapes["time_s"][-1]
    for i in range(3):
        counts = series(samples, "vllm:request_generation_tokens_count", pod=f"rollout-{i}")
        assert len(counts) > 1
        for stamp, count in counts:
            ended = made[(made["finish_s"] >= 0) & (made["finish_s"] <= stamp - first) & (made["instance"] == i)]
            assert count == len(ended)
            for le in (1.0, 100.0, 500.0, np.inf):
                label = "+Inf" if le == np.inf else repr(le)
                bucket = dict(series(samples, "vllm:request_generation_tokens_bucket", pod=f"rollout-{i}", le=label))
                assert bucket[stamp] == np.count_nonzero(ended["target"] <= le)
            sums = dict(series(samples, "vllm:request_generation_tokens_sum", pod=f"rollout-{i}"))
            assert sums[stamp] == ended["target"].sum()
            parents = dict(series(samples, "vllm:request_params_n_count", pod=f"rollout-{i}"))
            of_n = dict(series(samples, "vllm:request_params_n_sum", pod=f"rollout-{i}"))
            assert of_n[stamp] == 4 * parents[stamp], "requests of four samples each"
            assert 4 * parents[stamp] <= count


def test_reasons_and_latencies(healthy: Records) -> None:
    samples = samples_of(text_of(healthy)[0])
    last = healthy.queue_scrapes["time_s"][-1]
    made = healthy.samples[(healthy.samples["finish_s"] >= 0) & (healthy.samples["finish_s"] <= last)]

    def final(name: str, **labels: str) -> float:
        return sum(series(samples, name, pod=f"rollout-{i}", **labels)[-1][1] for i in range(3))

    assert final("vllm:request_success_total", finished_reason="length") == np.count_nonzero(made["target"] == 800) > 0
    assert final("vllm:request_success_total", finished_reason="stop") == np.count_nonzero(made["target"] < 800)
    assert final("vllm:request_success_total", finished_reason="abort") == 0
    until = last - last % 120.0 if last >= 120.0 else 0.0
    early = made[made["finish_s"] <= until]
    e2e = early["finish_s"] - healthy.groups["submit_s"][early["group"]]
    assert final("vllm:e2e_request_latency_seconds_sum") == pytest.approx(e2e.sum())


def test_aborts_are_counted_when_they_happen() -> None:
    records = run(sync__in_flight="abort_discard", sync__pause_s=1.0, run__steps=12)
    samples = samples_of(text_of(records)[0])
    gone = records.samples[(records.samples["status"] == t.GONE) & (records.samples["finish_s"] < 0)]
    assert len(gone) > 0
    counted = [
        series(samples, "vllm:request_success_total", pod=f"rollout-{i}", finished_reason="abort") for i in range(3)
    ]
    total = np.sum([[v for _, v in one] for one in counted], axis=0)
    assert np.all(np.diff(total) >= 0)
    assert 0 < total[-1] <= len(gone)
    times = records.queue_scrapes["time_s"]
    grew = np.flatnonzero(np.diff(total) > 0)
    for k in grew:  # only between two scrapes with a sync in between
        starts = records.syncs["pause_start_s"]
        assert np.any((starts > times[k] - 1e-9) & (starts <= times[k + 1] + 1e-9))


def test_the_trainer_counts_at_the_end_of_each_phase(healthy: Records) -> None:
    samples = samples_of(text_of(healthy)[0])
    first = END - healthy.queue_scrapes["time_s"][-1]
    steps = healthy.steps
    for name, at, amounts in (
        ("steps", "end_s", np.ones(len(steps))),
        ("sample_wait_seconds", "ready_s", steps["wait_s"]),
        ("train_seconds", "train_end_s", steps["train_s"]),
        ("weight_sync_seconds", "end_s", steps["sync_block_s"]),
        ("trained_samples", "end_s", steps["samples"]),
        ("trained_tokens", "end_s", steps["output_tokens"]),
    ):
        for stamp, value in series(samples, f"rl_trainer_{name}_total", job="trainer"):
            assert value == pytest.approx(amounts[steps[at] < stamp - first - 1e-9].sum(), abs=1e-6)


def test_what_was_thrown_away_is_counted() -> None:
    records = run(workload__filter__zero_variance_share=0.4)
    samples = samples_of(text_of(records)[0])
    dropped = series(samples, "rl_trainer_dropped_samples_total")[-1][1]
    filtered = records.groups[records.groups["status"] == t.G_FILTERED]
    assert dropped == 4 * np.count_nonzero(filtered["ready_s"] < records.queue_scrapes["time_s"][-1]) > 0


def test_a_failed_instance_is_silent_and_begins_at_zero(failing: Records) -> None:
    samples = samples_of(text_of(failing)[0])
    first = END - failing.queue_scrapes["time_s"][-1]
    assert len(failing.failures) > 2
    resets = 0
    for i in range(3):
        tokens = series(samples, "vllm:generation_tokens_total", pod=f"rollout-{i}")
        ended = dict(series(samples, "vllm:request_success_total", pod=f"rollout-{i}", finished_reason="stop"))
        resets += int(np.count_nonzero(np.diff([v for _, v in tokens]) < 0))
        for failure in failing.failures[failing.failures["instance"] == i]:
            down, up = failure["down_s"] + 0.5, failure["up_s"]
            assert not any(first + down < at < first + up for at, _ in tokens)
            after = [(at, v) for at, v in tokens if at >= first + up][:1]
            for at, _ in after:
                since = failing.samples[(failing.samples["instance"] == i) & (failing.samples["finish_s"] > up)]
                assert ended[at] <= np.count_nonzero(since["finish_s"] <= at - first)
    assert resets >= len(failing.failures) - 3


def test_prometheus_client_reads_it(failing: Records) -> None:
    text, _ = text_of(failing)
    plain, histogram = [], []
    for block in re.split(r"(?m)^(?=# TYPE )", text.removesuffix("# EOF\n")):
        (histogram if block.partition("\n")[0].endswith(" histogram") else plain).append(block)
    found = {family.name: family for family in openmetrics("".join(plain) + "# EOF\n")}
    assert len(found["vllm:generation_tokens"].samples) == np.count_nonzero(failing.scrapes["up"])
    assert found["rl_trainer_train_seconds"].unit == "seconds"
    # Its check of histograms takes the second time of one for a duplicate of the first: each time by itself.
    for block in histogram:
        head = [line for line in block.splitlines() if line.startswith("#")]
        by_time = defaultdict(list)
        for line in block.splitlines():
            if not line.startswith("#"):
                by_time[line.rpartition(" ")[2]].append(line)
        for lines in by_time.values():
            (family,) = openmetrics("\n".join([*head, *lines, "# EOF\n"]))
            assert family.type == "histogram"


def promtool() -> str:
    path = shutil.which("promtool")
    if path is None:
        if os.environ.get("FLEETSIM_REQUIRE_PROMETHEUS"):
            pytest.fail("promtool is not on PATH")
        pytest.skip("promtool is not on PATH")
    return path


def test_promtool_loads_it(failing: Records, tmp_path: Path) -> None:
    tool = promtool()
    text, written = text_of(failing)
    file = tmp_path / "history.om"
    file.write_text(text)
    load = [tool, "tsdb", "create-blocks-from", "openmetrics", str(file), str(tmp_path / "data")]
    subprocess.run(load, check=True, capture_output=True)
    (tmp_path / "data" / "wal").mkdir(exist_ok=True)  # the dump asks for one
    dump = subprocess.run([tool, "tsdb", "dump", str(tmp_path / "data")], check=True, capture_output=True, text=True)
    lines = dump.stdout.splitlines()
    assert len(lines) == written.samples
    one = [line for line in lines if "vllm:generation_tokens_total" in line and 'pod="rollout-0"' in line]
    told = [int(line.split()[-2]) for line in one]
    column = failing.scrapes.reshape(-1, 3)[:, 0]
    assert told == column["generated"][column["up"]].tolist()


def test_history_ends_where_it_is_told(healthy: Records) -> None:
    text, written = text_of(healthy, until_s=60.0)
    assert (written.start_s, written.end_s) == (END - 60.0, END)
    samples = samples_of(text)
    assert sum(map(len, samples.values())) == written.samples
    assert [v for _, v in series(samples, "rl_trainer_steps_total")] == [
        np.count_nonzero(healthy.steps["end_s"] < at) for at in np.arange(0.0, 60.1, EVERY)
    ]


def test_engines_sleep_while_the_trainer_has_their_gpus() -> None:
    records = run(fleet__placement="colocated", admission__law="barrier", fleet__switch_s=1.0, trainer__fixed_s=20.0)
    samples = samples_of(text_of(records)[0])
    asleep = series(samples, "vllm:engine_sleep_state", pod="rollout-0", sleep_state="weights_offloaded")
    share = np.mean([v for _, v in asleep])
    steps = records.steps
    trained = (steps["train_s"] + 2 * 1.0).sum() / steps["end_s"][-1]
    assert share == pytest.approx(trained, abs=0.05)


def test_names_are_those_that_are_read(healthy: Records) -> None:
    read = {name for signal in SIGNALS for name in signal.metrics}
    written = {name for name, _ in samples_of(text_of(healthy)[0])}
    assert {name if name in read else re.sub("_(bucket|count|sum)$", "", name) for name in written} <= read


def test_pages_say_the_same_as_the_file(failing: Records) -> None:
    pages = Pages(failing)
    table = failing.scrapes.reshape(-1, 3)
    k = int(np.flatnonzero(~table["up"][:, 0])[0])
    assert pages.page(0, k) is None, "who is down does not answer"
    page = pages.page(0, k - 1)
    assert page is not None
    families = {family.name: family for family in page_text(page)}
    assert families["vllm:generation_tokens"].samples[0].value == table["generated"][k - 1, 0]
    assert families["vllm:generation_tokens"].type == "counter"
    assert families["vllm:request_generation_tokens"].type == "histogram"
    labels = {name for family in families.values() for sample in family.samples for name in sample.labels}
    assert labels.isdisjoint({"job", "instance", "pod"}), "those are the scraper's to give"
    trainer = pages.page(None, pages.scrapes - 1)
    assert trainer is not None
    assert {family.name for family in page_text(trainer)} >= {"rl_trainer_steps", "rl_rollout_queue_samples"}


def test_labels_are_escaped() -> None:
    records = run(run__steps=1, engine__kind="constant", engine__instance_tok_s=2000.0, engine__model='a"b\\c%d')
    text, _ = text_of(records)
    assert 'model_name="a\\"b\\\\c%d"' in text
    (family,) = list(openmetrics(text.partition("# TYPE vllm:prompt_tokens")[0] + "# EOF\n"))
    assert family.samples[0].labels["model_name"] == 'a"b\\c%d'


def test_buckets() -> None:
    assert one_two_five(1000) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    assert one_two_five(999)[-1] == 500
    assert one_two_five(0) == ()


def test_a_run_without_scrapes_is_refused() -> None:
    with pytest.raises(ValueError, match="not scraped"):
        write_openmetrics(simulate(with_changes(default_scenario(), SMALL)), io.StringIO(), end_s=END)

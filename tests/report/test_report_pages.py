"""The pages of size, simulate and split: their pictures against the records, their words, their safety."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markupsafe import escape

from fleetsim.config import load_scenario, with_changes
from fleetsim.config.data_files import find_preset
from fleetsim.engine.kernel.tables import DONE, G_TRAINED
from fleetsim.job.result import Later
from fleetsim.records import replace
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of
from fleetsim.simulate.facts import document as simulate_document
from fleetsim.simulate.pictures import (
    HELD,
    IDLE,
    KINDS,
    WORK,
    gantt_words,
    lengths_chart,
    queue_chart,
    seconds_chart,
    shown_of,
    staleness_chart,
    waste_chart,
)
from fleetsim.size.facts import Pictured
from fleetsim.size.facts import document as size_document
from fleetsim.size.headroom import Headroom
from fleetsim.size.pictures import headroom_chart
from fleetsim.size.spread import counts_around
from fleetsim.split.facts import document as split_document
from fleetsim.tell.charts.chart import Chart, Plot
from fleetsim.tell.charts.draw import chart_html
from fleetsim.tell.document import Document
from fleetsim.tell.page import document_page
from tests.report.small_pages import NAME, job, simulated_run, sized, split
from tests.report.test_profile_html import Page, asks, charts_in, marks_of, named, series_of

pytest.importorskip("jinja2", reason='the pages need pip install "fleetsim[report]"')


@cache
def pages() -> dict[str, str]:
    return {name: document_page(story) for name, story in stories().items()}


@cache
def stories() -> dict[str, Document]:
    plan, run, advice = sized(), simulated_run(), split()
    return {
        "size": size_document(plan.result, Pictured(plan.around, plan.run)),
        "simulate": simulate_document(run.view, ("one <warning>",), run.run),
        "split": split_document(advice.result, advice.runs),
    }


def charts(page: str) -> dict[str, Chart]:
    return charts_in(stories()[page])


# ------------------------------------------------------------------------------------------- pictures and records


@pytest.mark.slow
def test_instances_of_the_gantt_work_as_long_as_the_records_say() -> None:
    run = sized().run
    shown = shown_of(run)
    assert len(shown.instances) == shown.of == sized().result.instances
    before = run.steps[shown.first - 1]
    for kind, column in ((WORK, "busy_s"), (IDLE, "idle_s"), (HELD, "paused_s")):
        drawn = sum(s.end - s.start for row in shown.rows for s in row if s.kind == kind)
        assert drawn == pytest.approx(float(run.steps[column][shown.last] - before[column]), abs=1e-6)


@pytest.mark.parametrize("of", ["size", "simulate"])
def test_the_trainer_of_the_gantt_spends_its_seconds_as_the_steps_say(of: str) -> None:
    run = sized().run if of == "size" else simulated_run().run
    shown = shown_of(run)
    steps = run.steps[shown.first : shown.last + 1]
    for kind, column in ((WORK, "train_s"), (IDLE, "wait_s"), (HELD, "sync_block_s")):
        drawn = sum(s.end - s.start for s in shown.trainer if s.kind == kind)
        assert drawn == pytest.approx(float(steps[column].sum()), abs=1e-6)
    assert shown.first == window_of(run).first
    assert f"Steps {shown.first} to {shown.last}" in gantt_words(shown)


def test_a_fleet_of_a_thousand_shows_some_and_says_which() -> None:
    run = simulate(job(**{"fleet.instances": 1000, "trainer.batch_samples": 2048, "run.steps": 4}), activity=True)
    shown = shown_of(run)
    assert len(shown.rows) == len(shown.instances) == 24
    assert "24 of 1,000 instances, spread evenly over the fleet (0, 43, 87, ... 999)" in gantt_words(shown)


def test_seconds_are_those_of_the_steps() -> None:
    run = simulated_run().run
    chart = seconds_chart(run)
    for name, column in (("train", "train_s"), ("wait for samples", "wait_s"), ("held by weight sync", "sync_block_s")):
        assert named(chart, name).y == pytest.approx(run.steps[column].tolist(), abs=1e-4)
    total = np.sum([one.y for one in series_of(chart)], axis=0)
    assert total == pytest.approx(run.steps["end_s"] - run.steps["start_s"], abs=1e-3)


def test_the_queue_holds_what_was_ready_and_not_yet_taken() -> None:
    run = simulated_run().run
    (drawn,) = series_of(queue_chart(run))
    groups = run.groups
    for at, depth in list(zip(drawn.x, drawn.y, strict=True))[::7]:
        # Just after that time: rounded times may lie a half millisecond before it.
        t = at + 6e-4
        inside = (groups["ready_s"] >= 0) & (groups["ready_s"] <= t) & (groups["status"] != 5)
        inside &= (groups["left_s"] < 0) | (groups["left_s"] > t)
        later = (np.abs(groups["ready_s"] - t) < 2e-3) | (np.abs(groups["left_s"] - t) < 2e-3)
        if not later[groups["ready_s"] > at].any() and at < run.steps["end_s"][-1]:
            assert depth == pytest.approx(float(groups["need"][inside].sum()))


def test_staleness_is_that_of_each_batch() -> None:
    made = simulated_run()
    oldest, mean = series_of(staleness_chart(made.run, made.view.metrics))
    groups = made.run.groups[made.run.groups["status"] == G_TRAINED]
    age = groups["trained_step"] - made.run.updates[groups["version"]]
    for step in range(len(made.run.steps)):
        mine = age[groups["trained_step"] == step]
        assert oldest.y[step] == mine.max()
        assert mean.y[step] == pytest.approx(mine.mean(), abs=1e-4)


def test_waste_is_the_metric_by_cause() -> None:
    metrics = simulated_run().view.metrics
    chart = waste_chart(metrics)
    assert chart is not None
    wasted = sorted((100 * metrics[f"waste.{c}"].mean for c in ("stale", "filtered", "lost")), reverse=True)
    assert [mark.value for mark in marks_of(chart)] == pytest.approx(wasted)
    names = chart_html(chart)
    assert all(name in names for name in ("too old", "filtered", "lost to failures"))


def test_lengths_are_those_of_the_samples() -> None:
    run = simulated_run().run
    window = window_of(run)
    chart = lengths_chart(run)
    assert chart is not None
    trained = (run.groups["status"] == G_TRAINED) & (run.groups["trained_step"] >= window.first)
    tokens = run.samples["target"][(run.samples["status"] == DONE) & trained[run.samples["group"]]]
    shares = 100 * np.histogram(tokens, named(chart, "trained").x)[0] / len(tokens)
    assert named(chart, "trained").y[:-1] == pytest.approx(shares.tolist(), abs=1e-3)
    assert ">cap 1,024</text>" in chart_html(chart)


def test_curves_are_the_estimates_of_every_count() -> None:
    plan = sized()
    found = charts("size")
    assert set(counts_around(plan.result.instances)) <= {t.instances for t in plan.around}
    curves = (("idle", "trainer_idle_fraction", 100), ("step", "step_s", 1), ("cost", "cost_per_step", 1))
    for id_, metric, scale in curves:
        line, dots, star = series_of(found[id_])
        assert (line.x, line.y, line.low) == (dots.x, dots.y, dots.low)
        assert line.x == [t.instances for t in plan.around]
        for i, t in enumerate(plan.around):
            e = t.estimates[metric]
            assert line.y[i] == pytest.approx(scale * e.mean)
            assert line.high[i] == pytest.approx(scale * e.ci_high)
            assert line.low[i] == pytest.approx(scale * e.ci_low)
        assert star.x == [plan.result.instances]
    by_count = {t.instances: t for t in plan.around}
    for candidate in plan.result.candidates:
        assert by_count[candidate.instances] == candidate


@given(st.integers(1, 2000), st.lists(st.integers(1, 4000), max_size=4))
def test_counts_lie_around_the_answer(instances: int, also: list[int]) -> None:
    counts = counts_around(instances, also)
    assert instances in counts
    assert list(counts) == sorted(set(counts))
    assert len(counts) <= 9 + len(also)
    assert counts[0] >= max(1, instances // 2)
    assert counts[-1] <= 2 * instances


def falls(chart: Chart) -> list[tuple[float, float]]:
    return [tuple(sorted((m.base or 0.0, m.value))) for m in marks_of(chart)]


def test_the_waterfall_leads_from_the_nameplate_to_what_is_consumed() -> None:
    headroom = sized().result.headroom
    chart = charts("size")["headroom"]
    bars = falls(chart)
    assert bars[0] == (0.0, 100.0)
    assert bars[-1][1] == pytest.approx(100 * headroom.computed, abs=0.05 * len(headroom.parts))
    lengths = sorted(b - a for a, b in bars[1:-1])
    # The trainer waits for this fleet and takes what it gets, so all that is made is consumed.
    assert 0.0 < headroom.computed <= 1.0
    assert lengths == pytest.approx(sorted(100 * p for p in headroom.parts.values() if p >= 0.0005))


def test_the_waterfall_of_a_fleet_that_suffices_ends_at_what_is_consumed() -> None:
    parts = {"long_tail": 0.15, "sync_pauses": 0.1, "interaction": 0.0, "slack": 0.05}
    chart = headroom_chart(replace(sized().result, headroom_later=Later(lambda: Headroom(0.7, 3000.0, 4000.0, parts))))
    assert falls(chart) == [pytest.approx(b) for b in ((0, 100), (85, 100), (75, 85), (70, 75), (0, 70))]
    assert "the trainer consumes 70.0 %" in chart.words


def test_levers_and_ways_are_the_paired_ratios() -> None:
    plan, advice = sized(), split()
    levers = charts("size")["levers"]
    ranked = sorted(plan.result.alternatives.tried, key=lambda a: -a.gain_s)
    changes = [[100 * (getattr(a, ratio).mean - 1) for a in ranked] for ratio in ("step_ratio", "cost_ratio")]
    assert [m.value for m in marks_of(levers, "optimizer step")] == pytest.approx(changes[0])
    assert [m.value for m in marks_of(levers, "cost per step")] == pytest.approx(changes[1])
    assert [m.value for m in marks_of(charts("split")["ratio"])] == pytest.approx(
        [100 * (o.ratio.mean - 1) for o in advice.result.outcomes]
    )
    splits = sorted((o for o in advice.result.outcomes if o.arrangement.kind == "split"),
                    key=lambda o: o.arrangement.rollout_gpus)  # fmt: skip
    line = series_of(charts("split")["step-s"])[0]
    assert line.x == [o.arrangement.rollout_gpus for o in splits]
    assert line.y == pytest.approx([o.mean("step_s") for o in splits])


# ------------------------------------------------------------------------------------------------- words and safety


@pytest.mark.parametrize("name", ["size", "simulate", "split"])
def test_a_page_is_one_small_file_that_asks_nobody(name: str) -> None:
    assert len(pages()[name]) < 150_000
    assert asks(pages()[name]) == []
    made = Page(pages()[name])
    assert (made.wrong, made.open) == ([], [])
    assert {a["id"] for tag, a in made.tags if tag == "figure"} == charts(name).keys()
    for tag, attributes in made.tags:
        assert not {"src", "href", "srcset", "action", "onclick"} & attributes.keys(), tag


def test_the_answer_comes_before_the_pictures() -> None:
    order = {
        "size": ("rollout instances", "What binds", "More or fewer instances", "Where the headroom goes", "Next"),
        "simulate": (
            "optimizer step",
            "What binds",
            "one <warning>",
            "The run",
            "Every metric",
            "computed as",
            "What this rests on",
        ),
        "split": ("GPUs", "optimizer step", "What binds", "Every way to use these GPUs", "The trainer's seconds"),
    }
    for name, told in order.items():
        words = " ".join(" ".join(Page(pages()[name]).words).split())
        at = [words.index(text) for text in told]
        assert at == sorted(at), (name, told)


@pytest.mark.parametrize("name", ["size", "simulate", "split"])
def test_every_chart_has_its_words(name: str) -> None:
    page = Page(pages()[name])
    described = {a["id"]: a["aria-label"] for _, a in page.tags if a.get("role") == "group"}
    words = " ".join(page.words).replace("\u00a0", " ")
    for id_, chart in charts(name).items():
        assert described[f"{id_}-chart"] == chart.title
        assert chart.words in words
        assert len(chart.words) > 40


def test_the_same_plan_gives_the_same_bytes() -> None:
    plan = sized()
    assert document_page(size_document(plan.result, Pictured(plan.around, plan.run))) == pages()["size"]


def test_nothing_is_told_by_colour_alone() -> None:
    for name in ("size", "simulate", "split"):
        for chart in charts(name).values():
            if isinstance(chart.points, Plot):
                drawn = {s.name: (s.kind, s.look.pattern, s.look.dash, s.look.symbol) for s in series_of(chart)}
            else:
                looks = chart.points.looks.values()
                drawn = {name: (look.symbol, look.pattern, look.lanes) for name, look in looks}
            assert len(set(drawn.values())) == len(drawn), chart.id
    assert len({look.lanes for _, look in KINDS.values()}) == len(KINDS)


def palettes() -> tuple[dict[str, str], dict[str, str]]:
    style = pages()["size"]
    light, dark = style.split("prefers-color-scheme: dark", 1)
    colours = [dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]+);", part.split("* {")[0])) for part in (light, dark)]
    return colours[0], colours[1]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_every_colour_is_there_in_both_lights_and_stands_out() -> None:
    text = "".join(pages().values())
    used = set(re.findall(r"var\(--([a-z0-9-]+)\)", text)) | set(re.findall(r'class="[^"]*\bc-([a-z0-9-]+)', text))
    used -= {"c", "all", "half"}
    assert {"accent", "second", "quiet"} <= used
    for palette in palettes():
        assert used <= palette.keys()
        for name in ("ink", "quiet"):  # words: WCAG AA
            assert contrast(palette[name], palette["paper"]) >= 4.5, name
        for name in ("accent", "second", "third", "bad"):  # marks
            assert contrast(palette[name], palette["paper"]) >= 3.0, name


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60)


@given(NAMES)
@example("</script><script>alert(1)</script>")
@example('"><img src=x onerror=alert(1)>')
@example("{{ 7 * 7 }}{% raw %}")
@settings(max_examples=15)
def test_a_scenario_s_name_stays_a_name(name: str) -> None:
    made = simulated_run()
    plain = [tag for tag, _ in Page(pages()["simulate"]).tags]
    view = replace(made.view, scenario=with_changes(made.view.scenario, {"name": name}))
    page = Page(document_page(simulate_document(view, ("one <warning>",), made.run)))
    assert [tag for tag, _ in page.tags] == plain
    assert " ".join(name.split()) in " ".join(" ".join(page.words).split())


def test_markup_in_a_name_is_shown_as_it_is_written() -> None:
    for text in pages().values():
        assert str(escape(NAME)) in text
        assert "<script>alert" not in text


@pytest.mark.parametrize(
    ("preset", "kinds", "told"),
    [
        ("verl-sync", {"lent", "switch"}, "held by weight sync"),
        ("laminar", {"publish"}, "waits for samples"),
        ("verl-v1-separate-async-switch", {"switch"}, "its GPUs are not the fleet's"),
    ],
)
def test_every_placement_has_its_own_gantt(preset: str, kinds: set[str], told: str) -> None:
    run = simulate(with_changes(load_scenario(find_preset(preset)), {"run.steps": 8}), activity=True)
    shown = shown_of(run)
    drawn = {span.kind for row in (*shown.rows, shown.trainer, shown.sync) for span in row}
    assert kinds <= drawn
    assert told in gantt_words(shown)
    # Instances that rest while their GPUs train, or sync one after the other, are not held by the sync all that time.
    if preset != "verl-v1-separate-async-switch":
        assert not any(span.kind == HELD for row in (shown.rows if "lent" in kinds else (shown.sync,)) for span in row)

"""The dashboard: Grafana's fields, metrics that exist, PromQL that Prometheus reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetsim.alerts.dashboard import (
    LATER,
    dashboard,
    exposed,
    exposed_names,
    expressions,
    metrics_of,
    missing_metrics,
    unknown_metrics,
)
from fleetsim.alerts.rules import Writing
from fleetsim.alerts.signals import STANDING, MetricNames, checked
from fleetsim.errors import InputError
from fleetsim.history.selection import wrong
from fleetsim.history.signals import SIGNALS
from tests.standing.plans import chosen, promtool, written

# Every metric that fleetsim knows to exist.
CATALOGUE = LATER | {name for signal in SIGNALS for family in exposed(signal) for name in family}


def made(engine: str = "vllm", **mapping: str) -> dict[str, object]:
    names = MetricNames(engine, 'namespace="rl"', "", mapping)
    return dashboard(chosen(), Writing(names, "small"))


@pytest.mark.parametrize("engine", ["vllm", "vllm-ray", "sglang"])
def test_every_metric_exists_and_every_expression_is_promql(tmp_path: Path, engine: str) -> None:
    document = made(engine)
    assert unknown_metrics(expressions(document), CATALOGUE) == []
    rules = [{"record": f"panel:{k}", "expr": expr} for k, expr in enumerate(expressions(document))]
    promtool("check", "rules", written(tmp_path, "r.yaml", {"groups": [{"name": "dashboard", "rules": rules}]}))


def test_a_metric_that_does_not_exist_is_found() -> None:
    assert unknown_metrics(["sum(rate(vllm:no_such_total[5m]))"], CATALOGUE) == ["vllm:no_such_total"]
    assert metrics_of('sum by (pod) (a{b="c(d)"}) / on (x) max(b offset 5m)') >= {"a", "b"}
    assert exposed_names('# TYPE a counter\na_total{x="y"} 1\nb 2\n') == {"a_total", "b"}


def test_the_users_metric_takes_the_place_of_ours() -> None:
    text = json.dumps(made(**{"queue.samples": "my_queue"}))
    assert "my_queue" in text
    assert "rl_rollout_queue_samples" not in text


def test_panels_do_not_overlap_and_have_what_grafana_asks_for() -> None:
    document = dashboard(chosen(), Writing(MetricNames(), "small"))
    cells: set[tuple[int, int]] = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not covered & cells
        assert place["x"] + place["w"] <= 24
        cells |= covered
        for target in panel.get("targets", ()):
            assert target["datasource"]["type"] == "prometheus"
            assert target["expr"]
    ids = [panel["id"] for panel in document["panels"]]
    assert len(set(ids)) == len(ids)
    assert {v["name"] for v in document["templating"]["list"]} == {"datasource", "job", "instance", "trainer_job"}
    titles = {panel["title"] for panel in document["panels"]}
    assert titles >= {signal.title for signal in STANDING}
    legends = [t["legendFormat"] for p in document["panels"] for t in p.get("targets", ())]
    assert legends.count("predicted") == legends.count("alert") == len(chosen().rules)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ('job="rollout"', True),
        ('job=~"a|b", pod!="x"', True),
        ("job=rollout", False),
        ('job="a"} or up{x="y"', False),
        ('job="a",', False),
    ],
)
def test_matchers(text: str, good: bool) -> None:
    assert (not wrong(text)) == good


def test_all_problems_of_the_names_at_once() -> None:
    with pytest.raises(InputError) as error:
        checked(MetricNames("tgi", "job=x", "also wrong", {"no.signal": "a", "running": "not a metric"}))
    assert len(error.value.problems) == 5


def test_of_a_renamed_metric_one_name_is_enough() -> None:
    read = ["rate(vllm:prefix_cache_hits_total[5m]) or rate(vllm:gpu_prefix_cache_hits_total[5m])", "ALERTS", "mine"]
    assert missing_metrics(read, {"vllm:gpu_prefix_cache_hits_total"}) == ["mine"]
    assert missing_metrics(read, {"mine"}) == ["vllm:gpu_prefix_cache_hits_total", "vllm:prefix_cache_hits_total"]
    lengths = "vllm:request_generation_tokens"
    assert missing_metrics([f"rate({lengths}_sum[5m])"], {f"{lengths}_bucket"}) == [f"{lengths}_sum"]

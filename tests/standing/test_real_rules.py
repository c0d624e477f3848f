"""promtool, with Prometheus's own engine, evaluates the rules over simulated runs: it must see what the traces saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetsim.alerts import promtool_tests
from fleetsim.alerts.alert_rule import Tracer, alarms
from fleetsim.alerts.faults import BY_FAULT, Onset, cut, run_with_event, scraped_run
from fleetsim.alerts.rules import Writing, only, record_name, rules_document
from fleetsim.alerts.signal_values import Scraped
from fleetsim.alerts.signals import MetricNames
from fleetsim.config.load import with_changes
from fleetsim.sim.engines import engine_of
from tests.standing.plans import chosen, counts_window_start, promtool, rehearsed, written

WRITING = Writing(MetricNames("vllm", 'job="rollout"', 'job="trainer"'), "small")
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'
EVENTS = {
    "instance_lost": "RolloutInstanceLost",
    "trainer_slow": "RolloutTrainerSlow",
    "sync_slow": "RolloutSyncOverrun",
    "lengths_drift": "RolloutLengthsDrift",
}
# Runs that no threshold was made from.
UNSEEN = 77


def input_series(scraped: Scraped) -> list[dict[str, str]]:
    """Samples as promtool writes them down."""

    def text(values: Any) -> str:
        return " ".join("_" if np.isnan(v) else repr(float(v)) for v in values)

    out = []
    for signal, rows in scraped.engines.items():
        name, suffix = signal, ""
        if signal.startswith("output_tokens_"):
            name, suffix = "output_tokens", signal.removeprefix("output_tokens")
        metric = WRITING.names.metrics(name)[0]
        for i, row in enumerate(rows):
            labels = f'job="rollout", instance="rollout-{i}:8000", engine="0"'
            out.append({"series": f"{metric}{suffix}{{{labels}}}", "values": text(row)})
    for signal, row in scraped.trainer.items():
        metric = WRITING.names.metrics(signal)[0]
        out.append({"series": f'{metric}{{job="trainer", instance="trainer:9090"}}', "values": text(row)})
    return out


def tracer(scraped: Scraped) -> Tracer:
    """Evaluations as promtool makes them: from the first sample on, at its times."""
    return Tracer(rehearsed(), from_zero(scraped), 0.0, left_open=not counts_window_start())


def from_zero(scraped: Scraped) -> Scraped:
    return Scraped(scraped.times - scraped.times[0], scraped.engines, scraped.trainer)


def run_promtool(folder: Path, scraped: Scraped, checks: list[dict[str, Any]]) -> None:
    rules = written(folder, "rules.yaml", rules_document(chosen(), WRITING))
    test = {"interval": "15s", "input_series": input_series(scraped), "promql_expr_test": checks}
    promtool(
        "test",
        "rules",
        written(folder, "tests.yaml", {"rule_files": [rules], "evaluation_interval": "30s", "tests": [test]}),
    )


def expected_firing(t: Tracer, every: int) -> list[dict[str, Any]]:
    """What fires at every so manieth evaluation, by our own arithmetic."""
    fires = alarms(chosen(), t)
    return [
        {
            "expr": FIRING,
            "eval_time": f"{t.at[k]:.0f}s",
            "exp_samples": [
                {"labels": f'{{alertname="{alert}"}}', "value": 1} for alert, firing in fires.items() if firing[k]
            ],
        }
        for k in range(0, len(t.at), every)
    ]


def fault_run(name: str) -> Onset:
    made = rehearsed()
    before = 20 + int(1.2 * made.windows_s[-1] / made.step_s)
    steps = before + int(1800.0 / made.step_s)
    scenario = with_changes(made.scenario, {"run.steps": steps})
    return run_with_event(scenario, BY_FAULT[name], UNSEEN, made.scrape_s, before, engine_of(scenario))


def test_rules_and_their_own_tests_pass(tmp_path: Path) -> None:
    rules = written(tmp_path, "rules.yaml", rules_document(chosen(), WRITING))
    assert "SUCCESS" in promtool("check", "rules", rules)
    promtool("test", "rules", written(tmp_path, "t.yaml", promtool_tests.tests_document(chosen(), WRITING, rules)))


@pytest.mark.parametrize(("engine", "engines_only"), [("vllm-ray", True), ("sglang", False)])
def test_other_engines_and_selectors_pass_too(tmp_path: Path, engine: str, engines_only: bool) -> None:
    """Ray renames the metrics of vLLM's engines; SGLang's are other ones."""
    names = MetricNames(engine, 'job=~"a|b", pod!~"x.*"', "", {"trainer.steps": "my_steps_total"})
    writing, standing = (
        Writing(names, 'a "plan"\\', "https://example.org/book"),
        only(chosen(), engines_only=engines_only),
    )
    rules = written(tmp_path, "rules.yaml", rules_document(standing, writing))
    promtool("check", "rules", rules)
    promtool("test", "rules", written(tmp_path, "t.yaml", promtool_tests.tests_document(standing, writing, rules)))


def test_every_signal_has_the_value_that_prometheus_computes(tmp_path: Path) -> None:
    onset = fault_run("instance_lost")  # counters that end, and others with more load
    scraped = cut(onset.scraped, onset.onset_s - rehearsed().windows_s[-1] - 600.0, onset.onset_s + 900.0)
    t = tracer(scraped)
    checks = []
    for rule in chosen().rules:
        values = t(rule.signal, rule.window_s) * (1.0 if rule.signal.alerts_when == "above" else -1.0)
        series = f'{record_name(rule)}{{plan="small"}}'
        for k in range(0, len(t.at), 7):
            near = f"abs({series} - {float(values[k])!r}) <= bool {float(1e-6 * abs(values[k]) + 1e-9)!r}"
            checks.append(
                {
                    "expr": near,
                    "eval_time": f"{t.at[k]:.0f}s",
                    "exp_samples": [{"labels": '{plan="small"}', "value": 1}],
                }
            )
    run_promtool(tmp_path, scraped, checks)


@pytest.mark.parametrize("fault", EVENTS)
def test_the_right_alert_fires_in_time_and_alone_in_a_run_that_no_threshold_has_seen(
    tmp_path: Path, fault: str
) -> None:
    onset = fault_run(fault)
    scraped = cut(onset.scraped, onset.onset_s - rehearsed().windows_s[-1] - 600.0, np.inf)
    t = tracer(scraped)
    began = onset.onset_s - float(scraped.times[0])
    fires = alarms(chosen(), t)
    rule = next(r for r in chosen().rules if r.signal.alert == EVENTS[fault])
    assert {alert for alert, firing in fires.items() if firing.any()} == {rule.signal.alert}
    assert rule.delay_p95_s is not None
    delay = t.at[np.argmax(fires[rule.signal.alert])] - began
    assert 0 < delay <= rule.delay_p95_s + rehearsed().interval_s + rehearsed().scrape_s
    run_promtool(tmp_path, scraped, expected_firing(t, 2))


def test_nothing_fires_in_healthy_hours_that_no_threshold_has_seen(tmp_path: Path) -> None:
    made = rehearsed()
    scenario = with_changes(made.scenario, {"run.steps": int(3600 * 8 / made.step_s)})
    scraped = scraped_run(scenario, UNSEEN, made.scrape_s, 600.0)
    t = tracer(scraped)
    assert not any(firing.any() for firing in alarms(chosen(), t).values())
    part = cut(scraped, float(scraped.times[-1]) - 2.0 * 3600.0, np.inf)
    run_promtool(tmp_path, part, expected_firing(tracer(part), 4))

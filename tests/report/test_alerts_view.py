"""The table of `fleetsim alerts`: numbers with their units, none with an exponent."""

from __future__ import annotations

import re

import pytest

from fleetsim.alerts.alert_rule import per_month, short
from fleetsim.alerts.facts import document
from fleetsim.alerts.signals import BY_STANDING_NAME
from fleetsim.records import replace
from fleetsim.tell.console import as_text
from fleetsim.tell.terminal import draw
from tests.standing.plans import chosen


def test_the_table_is_readable() -> None:
    rules = tuple(
        replace(rule, false_upper=77.0 if k else 9.7, false_per_month=0.1 * k) for k, rule in enumerate(chosen().rules)
    )
    text = as_text(draw(document(replace(chosen(), rules=rules), "rules.yaml", None)), 80)
    assert not re.search(r"\de[-+]\d", text)
    assert re.search(r"TrainerIdle .* % +> [\d.]+ % ", text)
    assert re.search(r"InstanceLost +4 +< 4 ", text)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(("count", "says"), [(8.9e-5, "fewer than 0.001"), (0.25, "0.25"), (9.97, "10"), (77.4, "77")])
def test_false_alarms_a_month(count: float, says: str) -> None:
    assert per_month(count) == says


def test_a_share_is_in_percent() -> None:
    assert short(BY_STANDING_NAME["trainer_idle"], 0.05) == "5 %"
    assert short(BY_STANDING_NAME["queue_depth"], 2300.0) == "2,300"


def test_a_narrow_terminal_shows_whole_names_without_the_bounds() -> None:
    text = as_text(draw(document(chosen(), "rules.yaml", None)), 60)
    thresholds = text.partition("their faults")[0]
    assert max(map(len, text.splitlines())) <= 60
    assert "PrefixHitsDropped " in thresholds
    assert "at most" not in thresholds
    assert "bounds of false alarms are in the rule file" in " ".join(thresholds.split())

"""What `fleetsim alerts -o` says: what stands watch, how often it will be wrong, how soon it will be right."""

from __future__ import annotations

from dataclasses import replace

from fleetsim import units
from fleetsim.alerts.alert_rule import Standing
from fleetsim.alerts.faults import BY_FAULT
from fleetsim.alerts.signal_text import FEWEST, duration, per_month, short
from fleetsim.alerts.signals import BY_STANDING_NAME
from fleetsim.tell.document import Document, Listed, Section, Table, Words
from fleetsim.tell.facts import explained, facts


def document(standing: Standing, rule_file: str, test_file: str | None) -> Document:
    """The rules that were written. test_file: None where none was asked for."""
    made = standing.rehearsal
    alerts, instances = units.plural(len(standing.rules), "alert"), units.plural(made.expected.instances, "instance")
    commands = [f"promtool check rules {rule_file}"] + ([f"promtool test rules {test_file}"] if test_file else [])
    return Document(
        "fleetsim alerts",
        facts(f"{rule_file}: {alerts} for {made.scenario.name}, {instances}", explained("behind", _behind(standing))),
        (
            Section("alerts", (_thresholds(standing),)),
            Section("their faults", (_delays(standing),)),
            Section("what else these faults fire", (_also(standing),) if any(r.also for r in standing.rules) else ()),
            Section(
                "not seen in this plan",
                tuple(f"{r.signal.alert}: {r.why_not}" for r in standing.rules if r.why_not is not None),
            ),
            Section(
                "left out", tuple(f"{BY_STANDING_NAME[name].alert}: {why}" for name, why in standing.left_out.items())
            ),
            Section("next", tuple(Words(command, strong=True) for command in commands)),
        ),
    )


def _behind(standing: Standing) -> str:
    made = standing.rehearsal
    hours = units.plural(round(made.hours), "simulated healthy hour")
    runs = units.plural(sum(map(len, made.onsets.values())), "run")
    total = per_month(sum(rule.false_per_month for rule in standing.rules))
    return (
        f"from {hours} and {runs} with a fault; {total} false alarms a month predicted "
        f"(budget {standing.budget_per_month:g})"
    )


def _thresholds(standing: Standing) -> Table:
    """Threshold, window, `for:` and false alarms."""
    rows = tuple(
        (
            _short(rule.signal.alert),
            short(rule.signal, rule.healthy),
            f"{'>' if rule.signal.alerts_when == 'above' else '<'} {short(rule.signal, rule.threshold)}",
            duration(rule.window_s),
            duration(rule.for_s),
            _few(rule.false_per_month),
            _few(rule.false_upper),
        )
        for rule in standing.rules
    )
    table = Table("", ("", "healthy", "alerts", "over", "for", "false a month", "at most"), rows)
    return replace(
        table, narrower=(table.without("at most", note="The 95 % bounds of false alarms are in the rule file."),)
    )


def _delays(standing: Standing) -> Table:
    """How soon each alert finds its fault."""
    rows = tuple(
        (
            _short(rule.signal.alert),
            BY_FAULT[rule.signal.fault].title,
            _delay(rule.delay_s),
            _delay(rule.delay_p95_s),
        )
        for rule in standing.rules
    )
    return Table("", ("", "fault", "median", "95 %"), rows, left=2, wordy=True)


def _also(standing: Standing) -> Listed:
    """The alerts that fire beside the one whose fault it is."""
    rules = [rule for rule in standing.rules if rule.also]
    return Listed(tuple((_short(rule.signal.alert), ", ".join(map(_short, rule.also))) for rule in rules))


def _short(alert: str) -> str:
    return alert.removeprefix("Rollout")


def _few(count: float) -> str:
    if count < FEWEST:
        return f"< {FEWEST:g}"
    return f"{count:.1g}" if count < 9.5 else f"{count:,.0f}"


def _delay(seconds: float | None) -> str:
    return "not seen" if seconds is None else duration(seconds)

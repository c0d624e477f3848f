"""The terminal view of `fleetsim alerts`: what stands watch, how often it will be wrong, how soon it will be right."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fleetsim.alerts.alert_rule import AlertRule, Standing
from fleetsim.alerts.faults import BY_FAULT
from fleetsim.alerts.signal_text import FEWEST, per_month, short
from fleetsim.alerts.signals import BY_STANDING_NAME, duration
from fleetsim.tell.terminal import grid, section


def alerts_report(standing: Standing, rule_file: str, test_file: str | None) -> Group:
    """Everything that `fleetsim alerts -o` prints on stdout."""
    made = standing.rehearsal
    total = sum(rule.false_per_month for rule in standing.rules)
    head = f"{rule_file}: {len(standing.rules)} alerts for {made.scenario.name}, {made.expected.instances} instances"
    behind = (
        f"from {made.hours:,.0f} simulated healthy hours and {sum(map(len, made.onsets.values()))} runs with a fault; "
        f"{per_month(total)} false alarms a month predicted (budget {standing.budget_per_month:g})"
    )
    blocks: list[RenderableType] = [
        Text(head, style="bold"),
        Text(behind),
        section("alerts", thresholds(standing)),
        section("their faults", delays(standing)),
    ]
    unseen = [Text(f"{r.signal.alert}: {r.why_not}") for r in standing.rules if r.why_not is not None]
    if unseen:
        blocks.append(section("not seen in this plan", *unseen))
    if standing.left_out:
        left = [Text(f"{BY_STANDING_NAME[name].alert}: {why}") for name, why in standing.left_out.items()]
        blocks.append(section("left out", *left))
    commands = [Text(f"promtool check rules {rule_file}", style="bold")]
    if test_file is not None:
        commands.append(Text(f"promtool test rules {test_file}", style="bold"))
    blocks.append(section("next", *commands))
    return Group(*blocks)


def thresholds(standing: Standing) -> Table:
    """Threshold, window, `for:` and false alarms."""
    table = grid("", "healthy", "alerts", "over", "for", "false/month", "at most", align=("left", *["right"] * 6))
    for rule in standing.rules:
        table.add_row(
            rule.signal.alert.removeprefix("Rollout"),
            short(rule.signal, rule.healthy),
            f"{'>' if rule.signal.alerts_when == 'above' else '<'} {short(rule.signal, rule.threshold)}",
            duration(rule.window_s),
            duration(rule.for_s),
            _few(rule.false_per_month),
            _few(rule.false_upper),
        )
    return table


def delays(standing: Standing) -> Table:
    """How soon each alert finds its fault, and what else that fault fires."""
    table = grid("", "fault", "median", "95 %", "also fires", align=("left", "left", "right", "right", "left"))
    for rule in standing.rules:
        table.add_row(
            rule.signal.alert.removeprefix("Rollout"),
            BY_FAULT[rule.signal.fault].title,
            _delay(rule, rule.delay_s),
            _delay(rule, rule.delay_p95_s),
            ", ".join(a.removeprefix("Rollout") for a in rule.also) or "-",
        )
    return table


def _few(count: float) -> str:
    if count < FEWEST:
        return f"< {FEWEST:g}"
    return f"{count:.1g}" if count < 9.5 else f"{count:,.0f}"


def _delay(rule: AlertRule, seconds: float | None) -> str:
    return "not seen" if seconds is None else duration(seconds)

"""Jobs that share GPUs, told: the way, each job's step and cost beside those alone, and the other ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fleetsim import units
from fleetsim.pack.ways import JobShare, Way
from fleetsim.tell.data import plain, told
from fleetsim.tell.document import Document, Section, Table
from fleetsim.tell.facts import Fact, Facts, explained, facts

if TYPE_CHECKING:
    from fleetsim.pack.ways import Packing

_HOW = {
    "apart": "each job on GPUs of its own",
    "by_phase": "by phase: while one job trains, another generates",
    "in_turn": "in turn: every job has all GPUs for a step",
    "together": "together, the adapters of all jobs on the same engines",
}
_SHOWN = 12


def pack_facts(result: Packing) -> Facts:
    """What one must know, as a table."""
    best = result.best
    names = units.listed([job.scenario.name for job in result.jobs])
    rule = "worst" if result.fair else "mean"
    if best is None:
        kept = units.listed([f"{_name(result, i)} within {units.share(x - 1, 0)}" for i, x in result.protected.items()])
        nearest = result.ways[0]
        return facts(
            f"No way to share {result.gpus:,} GPUs keeps {kept} of its step alone.",
            Fact("nearest", f"{_HOW[nearest.kind]} ({nearest.label})"),
            *_jobs(result, nearest),
            tone="bad",
        )
    return facts(
        f"{names} on {result.gpus:,} GPUs: {_HOW[best.kind]} ({best.label}).",
        *_jobs(result, best),
        Fact("duty", f"{units.share(best.duty, 0)} of the GPUs' time generates or trains"
                     + (f", {units.share(best.switching, 0)} goes to switches" if best.switching else ""),
             value=best.duty, unit="share", title="GPUs at work"),
        Fact("slower", f"{best.mean:.2f} times as long as alone on average, {best.worst:.2f} at the most",
             value=getattr(best, rule), unit="number", title=f"{rule} slow-down"),
        Fact("beside", _beside(result, best)),
        Fact("assumed", _switches(result) if best.switching else ""),
        explained("rule", f"The way with the least {rule} slow-down; alone, a job has all {result.gpus:,} GPUs"),
        explained("alone", "Alone: " + units.listed([
            f"{job.scenario.name} {units.seconds(s)}" for job, s in zip(result.jobs, result.alone_s, strict=True)])),
        explained("simulated", "Apart each job is simulated as by `fleetsim split`. On shared GPUs each is simulated "
                               "batch by batch on as many GPUs, and its phases take turns with those of the others"),
        explained("classes", _classes(result)),
        explained("together", _together(result)),
    )  # fmt: skip


def _name(result: Packing, job: int) -> str:
    return result.jobs[job].scenario.name


def _jobs(result: Packing, way: Way) -> Iterator[Fact]:
    for job, share in enumerate(way.shares):
        yield Fact(_name(result, job), _job(way, share), value=share.step_s, unit="seconds", title=_name(result, job))


def _job(way: Way, share: JobShare) -> str:
    where = f"{share.gpus:,} GPUs ({share.way})" if way.kind == "apart" else share.way
    return (
        f"a step of {units.seconds(share.step_s)}, {share.slower:.2f} times as long as alone, for "
        f"{units.money(share.usd)}; {where}"
    )


def _classes(result: Packing) -> str:
    """What a job of a higher class may do."""
    if not any(result.classes.values()):
        return ""
    ranked = sorted(range(len(result.jobs)), key=lambda job: -result.classes.get(job, 0))
    names = ", ".join(_name(result, job) for job in ranked)
    return (
        f"On shared GPUs goes first, of those that ask: {names}. A rollout of a lower class gives way at once "
        "and goes on later; training is never interrupted; a way in which a class would get no turn is left out"
    )


def _together(result: Packing) -> str:
    """How jobs on the same engines are predicted, or why they are not."""
    if any(way.kind == "together" for way in result.ways):
        return (
            "Together each job is simulated on engines that the requests of the others slow down and fill in the mean; "
            "bursts of two jobs that meet are left out"
        )
    return (
        "Jobs have the same engines at the same time only where their engines differ in nothing but LoRA adapters "
        "(engine.lora) and the GPUs are enough for a trainer each"
    )


def _beside(result: Packing, best: Way) -> str:
    """The best of the other kinds."""
    found: dict[str, Way] = {}
    for way in result.ways:
        if way.kind != best.kind:
            found.setdefault(way.kind, way)
    return "; ".join(f"{_HOW[w.kind].split(':')[0]} ({w.label}) {w.mean:.2f} times" for w in found.values())


def _switches(result: Packing) -> str:
    least, most = min(result.switch_s), max(result.switch_s)
    each = units.seconds(least) if least == most else f"{units.seconds(least)} to {units.seconds(most)}"
    return f"{each} until GPUs that another job had serve the next one (--switch-s)"


def document(result: Packing) -> Document:
    """What `pack` says."""
    return Document(
        "fleetsim pack", pack_facts(result), (Section("All ways", (_table(result),), short="ways"),), result.warnings
    )


def _table(result: Packing) -> Table:
    names = [job.scenario.name for job in result.jobs]
    rows = tuple(
        (
            way.kind.replace("_", " "),
            way.label,
            *(units.seconds(share.step_s) for share in way.shares),
            f"{way.mean:.2f}",
            f"{way.worst:.2f}",
            units.share(way.duty, 0),
            units.money(way.usd_per_round),
        )
        for way in result.ways[:_SHOWN]
    )
    headings = ("way", "GPUs", *(f"{name}, a step" for name in names), "mean", "worst", "at work", "cost")
    left = len(result.ways) - len(rows)
    note = "Mean and worst: steps / those alone. Cost: of a step of every job."
    return Table("every way", headings, rows, left=2, note=f"{note} {left} more are left out." if left else note)


def pack_document(result: Packing) -> dict[str, Any]:
    """The document of `fleetsim pack --json`."""
    from fleetsim.search.advice import Advised, advice_data
    from fleetsim.tell.data import head

    best = result.best
    advice = []
    for job, outcome in zip(result.jobs, best.outcomes if best else (), strict=False):
        advice += advice_data(job, [Advised(f"{job.scenario.name}: {outcome.arrangement.label}",
                                            outcome.arrangement.scenario, outcome.estimates)])  # fmt: skip
    return {
        **head("pack", result.jobs[0].scenario),
        **told(pack_facts(result)),
        "scenario": None,
        "jobs": [{"name": job.scenario.name, "alone_step_s": s}
                 for job, s in zip(result.jobs, result.alone_s, strict=True)],
        "gpus": result.gpus,
        "rule": "least worst slow-down" if result.fair else "least mean slow-down",
        "protected": {_name(result, i): most for i, most in result.protected.items()},
        "classes": {_name(result, i): rank for i, rank in result.classes.items()},
        "best": None if best is None else _way(best),
        "ways": [_way(way) for way in result.ways],
        "advice": advice,
        "warnings": list(result.warnings),
    }  # fmt: skip


def _way(way: Way) -> dict[str, Any]:
    names = ("kind", "label", "duty", "switching", "mean", "worst", "usd_per_round")
    return {**{name: getattr(way, name) for name in names}, "shares": plain(list(way.shares))}

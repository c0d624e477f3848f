"""Published runs and their predictions, told: the gates, what misses them and why, then every arm of every case.

In Markdown a line a case stands for its arms: the terminal and the page of --html show each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from operator import itemgetter
from statistics import median
from typing import Any

from fleetsim import units
from fleetsim.config.data_files import data_folder, read_text
from fleetsim.config.yaml_text import MAX_BYTES, from_yaml
from fleetsim.engine.slowdown import RUNS, slowdown_of
from fleetsim.records import replace
from fleetsim.tell.document import (
    Block,
    Bullets,
    Document,
    Only,
    Section,
    Table,
    Words,
    page_only,
    present,
    terminal_only,
)
from fleetsim.tell.facts import explained, facts
from fleetsim.units import number, plural
from fleetsim.validate.arms import factors_of
from fleetsim.validate.case import STATED
from fleetsim.validate.groups import Row, groups_of, groups_table, held_share, summed
from fleetsim.validate.pictures import arms, error_chart, figures_chart
from fleetsim.validate.run import RangedArm
from fleetsim.validate.verdict import BEYOND, HELD, CaseResult, Summary, gate_rows, gates, gates_written

# A sealed arm that is told within this of its first prediction is told the same.
SAME_AS_FIRST = 0.01
# Of those that are not, so many are named.
MOST_MOVED = 3
SCALARS = {
    "decode_slowdown": "decode slowdown",
    "mean_tokens": "mean output tokens",
    "trainer_seconds": "trainer's seconds, as a multiple of the stated ones",
    "both": "factor on the step that iterations and trainer share",
}
# What the page says beside its figures, by name.
PROSE = "published/page.yaml"
FIGURES = {
    "step_s": "seconds of a step",
    "tok_s": "trained tokens per second",
    "wait_s": "seconds that the trainer waits in a step",
    "gen_s": "seconds of generation in a step",
    "wait_share": "share of a step that the trainer waits",
}


def document(
    results: Sequence[CaseResult], of: int, arms: Sequence[RangedArm] = (), rows: Sequence[Row] = ()
) -> Document:
    """What `validate` says. of: cases that there are, some of which may not have been asked for. arms: with ranges.
    rows: of every arm, for the groups."""
    total, prose = summed(results, rows), prose_of()
    groups = (prose["groups"], groups_table(groups_of(rows)), *_moved(rows)) if rows else ()
    misses = tuple(_misses(results))
    pictures = error_chart(results), figures_chart(results)
    missed = f"Arms that miss: {', '.join(total.missed)}." if total.missed else None
    unknown = tuple(_unpublished(results))
    return Document(
        "fleetsim validate",
        facts(
            f"{plural(total.cases, 'published case')}, {plural(total.arms, 'arm')}; one scalar fitted per case at "
            "most, the rest predicted",
            (explained(f"opening_{i}", said) for i, said in enumerate(_lede(total, of))),
        ),
        (
            Section("Where this is from", (prose["written"],), on=("markdown",)),
            Section("How to read it", (prose["how_to_read"],), on=("markdown",)),
            Section("What engines lose inside a job", (prose["in_a_job"], in_a_job()), on=("markdown", "page")),
            Section(
                "The gates",
                (
                    Only(("terminal", "page"), (gates(total),)),
                    Only(("markdown",), present(gates_written(total), missed, _far_blind(total), pictures[0])),
                ),
                short="gates",
            ),
            Section("Four groups", groups, short="groups"),
            Section(
                "Not predictable from what is published",
                (
                    Only(("markdown",), present(_without_gate(unknown, prose["unknown"]))),
                    page_only(
                        *((prose["unknown"], Bullets(unknown)) if unknown else ()),
                        prose["no_case_head"],
                        Bullets(tuple(prose["no_case"])),
                    ),
                ),
                on=("markdown", "page"),
            ),
            Section(
                "What misses, and why",
                (Bullets(misses) if misses else "No arm that has a gate misses it.",),
                on=("page",),
            ),
            Section("Every arm", present(*pictures), on=("page",)),
            Section("Do ranges hold?", _ranges(arms) if arms else (), short="ranges"),
            *map(_case, results),
            Section("missed", (", ".join(total.missed),) if total.missed else (), on=("terminal",)),
            Section("Assumed in every case", (Bullets(STATED),), on=("page",)),
        ),
    )


@cache
def prose_of() -> dict[str, Any]:
    """Texts of the page; `no_case` is a list."""
    prose: dict[str, Any] = from_yaml(read_text(data_folder("scenarios") / PROSE, "PAGE", MAX_BYTES), PROSE)
    return prose


def _moved(rows: Sequence[Row]) -> Iterator[str]:
    """How far off sealed arms were at first, and which ones today's model tells otherwise, the most changed before."""
    known = [(row, row.predicted / row.first) for row in rows if row.first and row.role != "fitted"]
    if not known:
        return
    errors = [abs((1 + row.error) / by - 1) for row, by in known if row.error is not None]
    beyond = sum(error > BEYOND for error in errors)
    yield (
        f"At first sealed arms were off by {units.share(median(errors))} in the median, {beyond} beyond "
        f"{units.share(BEYOND, 0)}."
    )
    moved = sorted(((abs(math.log(by)), row) for row, by in known if abs(by - 1) > SAME_AS_FIRST), key=itemgetter(0))
    most = [row for _, row in reversed(moved[-MOST_MOVED:])]
    said = [f"{r.case} {r.arm} {number(r.first or 0.0)} then, {number(r.predicted)} now" for r in most]
    if said:
        yield f"Today {plural(len(moved), 'arm')} differ, most of all {'; '.join(said)}."


def _lede(total: Summary, of: int) -> Iterator[str]:
    yield (
        f"Real RL post-training runs that others published, simulated: {plural(total.cases, 'case')}, "
        f"{plural(total.arms, 'arm')}. One scalar is fitted per case at most, on its baseline arm alone; everything "
        "else is predicted."
    )
    broken = [gate for gate, _, _, holds in gate_rows(total) if not holds]
    yield f"Not held: {', '.join(broken)}." if broken else "Every gate holds."
    if total.missed:
        yield f"{plural(len(total.missed), 'arm')} far off, or with another bottleneck, each with its reason."
    if total.cases < of:
        yield f"Only {total.cases} of {of} cases were asked for: the gates are those of these cases."


def _ranges(arms: Sequence[RangedArm]) -> tuple[Block, ...]:
    """Whether ranges hold what was published; which ones do not, a terminal and a page say case by case."""
    share, plain = held_share(arms), sum(a.held for a in arms) / len(arms)
    all_of = f"{sum(a.held for a in arms)} of {len(arms)}"
    wanted = f"wanted {units.share(HELD[0], 0)} to {units.share(HELD[1], 0)}"
    said = f"{units.share(plain, 0)} of all arms, {units.share(share, 0)} where every case counts alike; {wanted}"
    table = ranges(arms)
    table = replace(table, rows=(*table.rows, ("all", all_of, said)))
    return (
        prose_of()["ranges"],
        Only(("terminal", "page"), (table,)),
        Only(("markdown",), (f"Held: {all_of}, {said}.",)),
    )


def ranges(arms: Sequence[RangedArm]) -> Table:
    """By case, how many arms' ranges hold what was published."""
    cases = {name: [a for a in arms if a.case == name] for name in dict.fromkeys(a.case for a in arms)}
    rows = [
        (
            name,
            f"{sum(a.held for a in own)} of {len(own)}",
            ", ".join(f"{a.arm} ({_off(a)})" for a in own if not a.held) or "-",
        )
        for name, own in cases.items()
    ]
    return Table("", ("case", "held", "not held (published, range)"), tuple(rows), left=3)


def _off(arm: RangedArm) -> str:
    return f"{number(arm.published)}, {number(arm.predicted.low)} to {number(arm.predicted.high)}"


def in_a_job() -> Table:
    """What published runs lost inside their jobs, by framework and release, and what is taken for each framework."""
    rows = [
        (
            row.framework,
            row.release,
            number(row.central),
            f"{number(row.low)} to {number(row.high)}",
            str(len(row.ratios)),
            number(slowdown_of(row.framework)),
            f"{row.source} ({', '.join(row.ratios)})",
        )
        for row in RUNS
    ]
    rows.append(("any other", "", "-", "-", str(sum(len(row.ratios) for row in RUNS)), number(slowdown_of(None)), "-"))
    columns = ("framework", "release", "median", "range", "runs", "taken", "source (cases)")
    return Table("", columns, tuple(rows), left=2, words_last=1)


def _misses(results: Sequence[CaseResult]) -> Iterator[Words]:
    """Every arm that misses a gate, and every wrong order, with the reason."""
    for result in results:
        for arm in result.misses:
            yield _why(f"{result.case.id} {arm.arm.name}.", arm.arm.reading or "its case gives no reason")
        for a, b in result.wrong_order:
            yield _why(f"{result.case.id} order of {a} and {b}.", "the simulation has them the other way round")


def _far_blind(total: Summary) -> str | None:
    """Cases whose arms are far off where nothing but their configuration is known."""
    if total.blind is None or not total.blind.far:
        return None
    cases = ", ".join(dict.fromkeys(name.split()[0] for name in total.blind.far))
    beyond = f"Blind, more than {units.share(BEYOND, 0)} off"
    return f"{beyond}: {plural(len(total.blind.far), 'arm')} of {cases}. `--html` gives each its cause."


def _unpublished(results: Sequence[CaseResult]) -> Iterator[Words]:
    """What decides arms and nobody published; why other arms have no gate. Arms of one reason are told together."""
    for result in results:
        reasons: dict[str, list[str]] = {}
        for arm, error in ((r.arm, r.gated_error) for r in result.arms):
            why = arm.unpublished or ("" if arm.gated else arm.reading)
            off = "" if error is None else f" ({units.change(error)})"
            reasons.setdefault(_plain(why), []).append(f"{arm.name}{off}")
        reasons.pop("", None)
        for why, names in reasons.items():
            yield _why(f"{result.case.id} {', '.join(names)}.", why)


def _without_gate(unknown: Sequence[Words], why: str) -> str | None:
    """The names alone of arms that something decides which nobody published."""
    names = "; ".join(words.text.rstrip(".") for words in unknown)
    return f"{why} They are: {names}. `fleetsim validate --html FILE` says of each what is missing." if names else None


def _case(result: CaseResult) -> Section:
    """One case: what was fitted, its arms, what the authors' figures mean, what it assumes, where it is from."""
    case = result.case
    note = f" The figure is {_plain(case.measure_note)}." if case.measure_note else ""
    wrong = "; ".join(f"{a} and {b}" for a, b in result.wrong_order)
    trust = "read in the source" if case.trust == "primary" else "excerpts of issues and pull requests"
    return Section(
        f"{case.id}: {case.title}",
        present(
            terminal_only(fit_words(result)),
            page_only(fit_words(result) + note),
            arms(result),
            terminal_only(f"wrong order: {wrong}" if wrong else None),
            page_only(f"Wrong order: {wrong}." if wrong else None, _plain(case.reading)),
            page_only(
                # those that miss have had their reasons above
                _bullets(_why(f"{a.arm.name}.", a.arm.reading) for a in result.arms if a not in result.misses),
                _bullets(_why(f"{a.arm.name}, blind.", a.arm.blind) for a in result.arms),
            ),
            page_only(*_assumed(result)),
            page_only(f"Sources ({trust}): {'; '.join(_plain(s) for s in case.sources)}."),
        ),
        short=f"{case.id}  {case.title}",
        on=("terminal", "page"),
    )


def _why(of: str, why: str) -> Words:
    return Words(of, f" {_plain(why)}".rstrip(), strong=True)


def _bullets(found: Iterable[Words]) -> Bullets | None:
    """What there is a reason of."""
    told = tuple(words for words in found if words.tail)
    return Bullets(told) if told else None


def _assumed(result: CaseResult) -> tuple[Block, ...]:
    if not result.case.assumed:
        return ()
    return "Assumed here, beside what is assumed in every case:", Bullets(tuple(map(_plain, result.case.assumed)))


def _plain(text: str) -> str:
    return " ".join(text.split())


def fit_words(result: CaseResult) -> str:
    """One sentence: what was fitted, on which arm, against which figure, and what it came to."""
    task, fitted = result.case.fit, result.fitted
    if task is None or fitted is None:
        return "Nothing is fitted: everything that the simulation needs is published or a stated assumption."
    of = f" over those of {task.against}" if task.against else ""
    what = f"{SCALARS[task.scalar]} = {number(fitted.value)}"
    if task.scalar == "both":
        slowdown, times = factors_of(result.case, result.case.arm(task.arm), fitted.value)
        what += f" (a slowdown of {number(slowdown)}, {number(times)} times the trainer's stated seconds)"
    met = "" if fitted.met else f", met to {units.share(abs(fitted.figure / task.value - 1))}"
    if task.against:
        return f"Fitted: {what}, so that the {FIGURES[task.figure]} of {task.arm}{of} come to {task.value:.3g}{met}."
    return (
        f"Fitted: {what}, on {task.arm} alone, so that its {FIGURES[task.figure]} come to {number(task.value)} as "
        f"published{met}.{_put_words(result)}"
    )


def _put_words(result: CaseResult) -> str:
    """How the arms depend on where the one figure is put."""
    ends = []
    for one in result.put:
        where = "engines" if one.case.fit and one.case.fit.scalar == "decode_slowdown" else "trainer"
        arms = ", ".join(f"{a.arm.name} {number(a.predicted)}" for a in one.arms if not a.fitted)
        ends.append(f" Put on the {where} alone: {arms}.")
    return "".join(ends)

"""A plan, told: the answer and why, what depends on the count, what else would help, the fleet at work.

The same document makes the picture in the README (`docs/make_picture.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetsim import units
from fleetsim.dataclass import dataclass
from fleetsim.job import words as job_words
from fleetsim.job.brief import fate_of_samples
from fleetsim.job.grounds import assumed_section, observed_section, rests_on
from fleetsim.job.trainer_scaling import gpus_each, takes_turns
from fleetsim.job.trials import Trial
from fleetsim.search.targets import RULE
from fleetsim.sim.records import Records
from fleetsim.simulate.pictures import over_time
from fleetsim.size import words
from fleetsim.size.brief import brief_of
from fleetsim.size.neighbours import Around
from fleetsim.size.pictures import curves, headroom_chart, levers, why
from fleetsim.size.size import Sizing
from fleetsim.size.tables import counts_table, headroom_table, how_sure, rate_table, trials_table
from fleetsim.tell.document import (
    Block,
    Document,
    Listed,
    Section,
    Tile,
    figure,
    page_only,
    present,
    terminal_only,
)  # fmt: skip

_TILES = ("trainer_idle_fraction", "step_s", "cost_per_step", "staleness_steps.p99")


@dataclass(frozen=True, slots=True)
class Pictured:
    """What only a page shows. around: fleets around the answer. run: the recommended fleet's, with its activity
    recorded."""

    around: Around
    run: Records


def document(result: Sizing, pictured: Pictured | None = None, call: Sequence[str] = ("fleetsim", "size")) -> Document:
    """What `size` says. pictured: None without a page. call: the words that ask the same again. Raises ValueError for a
    run whose activity was not recorded."""
    verdict, queue, headroom = words.verdict(result), words.queue(result), words.headroom(result)
    return Document(
        kind=job_words.kind_of("size", result.scenario),
        title=words.headline(result),
        brief=brief_of(result),
        lede=present(
            terminal_only(verdict),
            page_only(units.sentence(verdict), *fate_of_samples(result.recommended.estimates, result.scenario)),
            words.likely(result),
            words.reach(result),
            terminal_only(result.explanation),
            words.surplus(result),
            None if result.drafts is None else result.drafts.text,
            None if result.sides is None else result.sides.text,
        ),
        tiles=_tiles(result),
        warnings=result.warnings,
        sections=(
            Section("Why", _why(result) if pictured else (), on=("page",)),
            Section(
                "More or fewer GPUs" if takes_turns(result.scenario) else "More or fewer instances",
                (
                    terminal_only(trials_table(result.candidates, result.instances, gpus_each(result.scenario))),
                    page_only(*(_counts(result, pictured.around) if pictured else ())),
                ),
                short="candidates (> recommended; mean ± half of the 95 % interval)",
            ),
            Section("What else would help", present(*levers(result.alternatives)) if pictured else (), on=("page",)),
            Section("rate matching, on paper", _on_paper(result), on=("terminal",)),
            Section(
                "Where the headroom goes",
                (
                    terminal_only(headroom, headroom_table(result)),
                    page_only(*(_headroom(result) if pictured else ())),
                ),
                short="where the headroom goes",
            ),
            Section(
                "How long the queue may be",
                (terminal_only(queue), page_only(units.sentence(queue))),
                short="queue",
            ),
            *((_at_work(result, pictured.run),) if pictured else ()),
            *((how_sure(result.spread),) if result.spread else ()),
            observed_section(result.scenario),
            assumed_section(result.assumptions),
            rests_on(result.profile, result.assumptions, "Nothing was assumed: every value that matters was given."),
            Section("Next", (Listed(words.next_commands(result, call), code=True),), short="next"),
        ),
    )


def tried(trials: Sequence[Trial]) -> Document:
    """What a terminal shows of fleets that were tried before one could be recommended."""
    title = "fleets that were tried (mean ± half of the 95 % interval)"
    return Document("fleetsim size", "", (), (), (), (Section(title, (trials_table(trials),)),))


def _why(result: Sizing) -> tuple[Block, ...]:
    return present(why(result.binding, result.alternatives, result.recommended.estimates), targets_words(result))


def _counts(result: Sizing, around: Around) -> tuple[Block | None, ...]:
    return *curves(result, around), counts_table(around.trials, result.instances)


def _on_paper(result: Sizing) -> tuple[Block, ...]:
    """The arithmetic, with its two rates where an instance has the same rate whatever it does."""
    constant = result.scenario.engine.kind == "constant"
    return present(words.arithmetic(result), rate_table(result) if constant else None)


def _headroom(result: Sizing) -> tuple[Block, ...]:
    on_paper = f"On paper: {words.arithmetic(result)}."
    return units.sentence(words.headroom(result)), headroom_chart(result), on_paper


def _at_work(result: Sizing, run: Records) -> Section:
    """The recommended fleet's run in pictures."""
    return over_time(
        run,
        result.recommended.estimates,
        f"The recommended fleet at work: {units.plural(result.instances, 'instance')}",
        "One of its simulated runs, the first replication, without a cap on the queue beyond the scenario's.",
        result.queue_cap.samples,
    )


def targets_words(result: Sizing) -> str:
    """Which targets hold and which do not, with the figure that decides."""
    held, missed = [], []
    for target in result.targets:
        found = result.recommended.estimates[target.metric]
        text = job_words.target(target.name, target.limit)
        if target in result.missed:
            missed.append(f"{text}: it is {job_words.target_value(target.name, found.mean)}")
        else:
            held.append(f"{text}")
    parts = [f"Missed: {'; '.join(missed)}." if missed else "", f"Held: {'; '.join(held)}." if held else ""]
    return " ".join(part for part in (*parts, units.sentence(RULE)) if part)


def _tiles(result: Sizing) -> tuple[Tile, ...]:
    of = result.recommended.estimates
    s = result.scenario
    return (
        Tile("rollout instances", f"{result.instances:,}", job_words.instance_words(s)),
        *(figure(name, of[name], result.spans) for name in _TILES),
        Tile("queue cap, samples", f"{result.queue_cap.samples:,}", f"{_batches(result.queue_cap.steps)}"),
    )


def _batches(steps: float) -> str:
    return "one batch" if steps == 1 else units.plural(steps, "batch")

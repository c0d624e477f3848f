"""What no job can do, so that what was read is not one: trained more than generated, a step that outlasts itself."""

from __future__ import annotations

from dataclasses import replace

from fleetsim import units
from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history.history import History, Note
from fleetsim.history.option_names import SELECTOR, mapped
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.rates import total

# Of the tokens trained: a queue that is worked off, and scrapes at different times, explain less than this.
MISSING = 0.2
# Steps below which a queue that is worked off may be all that was trained.
FEWEST_STEPS = 10
# Of a step: phases are counted at its ends, and a window cuts two steps.
OVER = 0.1


def possible(observed: Observed, history: History) -> Observed:
    """The window as it is, or without the tokens per trained token where the trainer counts prompts as well, and a note
    of that. Raises InputError for what no job can do."""
    t, ratio = observed.trainer, observed.queue.generated_per_trained
    problems = []
    if t.steps is None or t.steps.value < FEWEST_STEPS or observed.fleet is None:
        return observed
    phases = sum(q.value for q in (t.wait_s, t.train_s, t.sync_s) if q is not None and q.source == "exported")
    if t.step_s is not None and t.step_s.source == "exported" and phases > (1.0 + OVER) * t.step_s.value:
        said = f"{units.share(phases / t.step_s.value)} of a step"
        rule = "waiting, computing and sync together outlast the step: seconds of two trainers, or phases that overlap"
        remedy = text(
            "choose one trainer with {}, or map phases that follow one another ({})",
            SELECTOR,
            mapped("trainer.wait_s", "..."),
        )
        problems.append(Problem("trainer", said, rule, remedy))
    if ratio is None or ratio >= 1.0 - MISSING:
        if problems:
            raise InputError(problems)
        return observed
    prompts = (total(history, "prompt_tokens") or 0.0) / max(total(history, "generation_tokens") or 0.0, 1.0)
    if not problems and ratio * (1.0 + prompts) >= 1.0 - MISSING:
        said = (
            f"{ratio:.2f} output tokens are generated per token trained, and {prompts:.2f} prompt tokens per "
            "output token read: the trainer counts prompts as well, so its tokens are not compared with the engines'"
        )
        return replace(observed.without_trained_tokens(), notes=(*observed.notes, Note("other", said)))
    rule = (
        "no trainer trains on more than is generated: engines of this job are missing, or the trainer is another job's"
    )
    remedy = text("widen or mend {}, so that it matches all engines of the job and its own trainer", SELECTOR)
    problems.append(Problem("history", f"{ratio:.2f} tokens generated per token trained", rule, remedy))
    raise InputError(problems)

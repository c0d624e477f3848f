"""Was enough read to judge?"""

from __future__ import annotations

from fleetsim import units
from fleetsim.history.window import shown
from fleetsim.replay.diagnose.checks.case import Case, Earlier, Reply
from fleetsim.replay.observe.interruptions import Hole

# Beyond this share of instance-time without values, rates are those of an unknown part of the window.
GAPS = 0.2
# Fewer optimizer steps than this say little about a share of a step; the runbook verifies over several hundred.
FEW_STEPS, MANY_STEPS = 10, 200


def check(case: Case, earlier: Earlier) -> Reply:
    """fault: too many gaps. unknown: nothing of the engines or of the trainer was read, or too few steps."""
    o = case.observed
    n, span = len(o.instances), units.seconds(o.span_s)
    evidence = [
        f"{units.plural(n, 'instance')} over {span}, a value every {units.seconds(o.step_s)}"
        if n
        else f"no engine metrics over {span}: {_instead(case)}"
    ]
    if o.gap_share > 0:
        evidence.append(f"{units.share(o.gap_share)} of the instances' time has no values")
    evidence += [_hole_words(hole) for hole in o.holes[:_NAMED]]
    if len(o.holes) > _NAMED:
        evidence.append(f"and {len(o.holes) - _NAMED} more such holes, left out as well")
    steps = o.trainer.steps
    if steps is None:
        evidence.append("optimizer steps are neither exported nor to be inferred")
    else:
        inferred = " (inferred)" if steps.source == "inferred" else ""
        short = "" if steps.value >= MANY_STEPS else "; several hundred make a representative window"
        evidence.append(f"{units.count(round(steps.value))} optimizer steps{inferred}{short}")
    if o.gap_share > GAPS:
        return Reply(
            "data",
            "fault",
            "too many gaps to judge by",
            tuple(evidence),
            _SCRAPES,
            {},
            "too much of the window was not read",
        )
    if not o.instances and steps is None:
        return Reply("data", "unknown", "nothing to judge by", tuple(evidence), _NAMES, missing=_ENGINES)
    if steps is not None and steps.value < FEW_STEPS:
        only = f"only {steps.value:.0f} optimizer steps"
        return Reply("data", "unknown", only, tuple(evidence), _longer(case), missing="a longer window")
    if o.logged is not None and o.logged.idle_share is not None:
        return Reply("data", "ok", "a run log that tells of both sides", tuple(evidence))
    if not o.instances:
        only = "a run log alone: the trainer's side only"
        return Reply("data", "unknown", only, tuple(evidence), _NAMES, missing=_ENGINES)
    return Reply("data", "ok", "enough was read to judge", tuple(evidence))


_NAMED = 3


def _instead(case: Case) -> str:
    """What is known of the instances without them."""
    logged = case.observed.logged
    return "what the instances do is unknown" if logged is None else "of the instances only what the run log says"


def _hole_words(hole: Hole) -> str:
    what = "nothing was read" if hole.of == "engines" else "no step of the trainer was read"
    return f"{what} for {units.seconds(hole.seconds)} from {shown(hole.start_s)} on: left out of every elapsed time"


_SCRAPES = "look at Prometheus's targets page: which scrapes fail; or choose a window without the gap"
_ENGINES = "the engines' own metrics"
_NAMES = (
    "read the engines' own metrics: --prometheus URL, with --selector 'job=\"rollout\"' where others are scraped too"
)


def _longer(case: Case) -> str:
    """A longer window: of a server there is one, of a file perhaps not."""
    if "://" in case.observed.source:
        return "a longer window:\nfleetsim replay ... --start -24h"
    return "replay a longer window: these are too few steps to judge by"

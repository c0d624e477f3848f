"""What is wrong with a question of `compare`: numbers out of range, sides that do not go together, idle options."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fleetsim.compare.inputs import GivenSide, What
from fleetsim.compare.question import Compare
from fleetsim.errors import Problem
from fleetsim.faces import Text, flag

FIRST = "give two: fleetsim compare A B, or one and what to change in it: fleetsim compare A --set-b fleet.instances=8"
OTHER = Text(FIRST, 'for example job.with_({"fleet.instances": 8}); fleetsim.load() is the job of all defaults')
WHICH = Text("for example --a -6h..-3h --b -3h..now", 'say which: windows=("-6h..-3h", "-3h..now")')
REPLAY = Text(
    "hold a window against a scenario with fleetsim replay --from WINDOW --scenario FILE",
    "hold a history against a job: fleetsim.replay(history, job)",
)
_RUN = {"run.steps": "--steps", "run.replications": "--replications"}


def numbers(asked: Compare) -> Iterator[Problem]:
    """Numbers out of their range."""
    if not (math.isfinite(asked.min_change) and 0.0 <= asked.min_change <= 10.0):
        yield Problem(flag("min_change"), asked.min_change, "must be a fraction of at least 0", "0.01 is 1 %")
    if asked.replications is not None and asked.replications < 2:
        rule, remedy = "one run of each has no interval", "take at least 2, better 10"
        yield Problem(flag("replications"), asked.replications, rule, remedy)
    yield from asked.job.wrong()


def misplaced(asked: Compare, kinds: frozenset[What], given: Sequence[GivenSide], all_known: bool) -> Iterator[Problem]:
    """What does not go together: sides with each other, options with the sides. all_known: what A and B are."""
    if asked.prometheus is not None:
        for one in given:
            yield Problem("--prometheus", asked.prometheus, f"{one.where} {one.text} is given as well", "give one")
    if not all_known:
        return
    yield from _one_sided(asked, kinds, given)
    if "history" in kinds and len(kinds) > 1:
        rule = "one is a window of history and the other is not"
        yield Problem("A, B", " and ".join(one.text for one in given), rule, REPLAY)
    elif kinds and "history" not in kinds:
        yield from _of_history(asked)
    if kinds:
        yield from _of_scenarios(asked, kinds, given)


def _one_sided(asked: Compare, kinds: frozenset[What], given: Sequence[GivenSide]) -> Iterator[Problem]:
    """What is missing to have two sides."""
    if asked.prometheus is not None or (len(given) == 1 and "history" in kinds):
        if asked.window_a is None or (asked.window_b is None and asked.selector_a == asked.selector_b):
            which = asked.window_a or asked.window_b or asked.prometheus or given[0].text
            yield Problem(Text("--a, --b", "windows"), which, "does not say which two windows", WHICH)
    elif not given:
        yield Problem("A, B", "fleetsim compare", "nothing to compare", FIRST)
    elif len(given) == 1 and not (asked.set_a or asked.set_b):
        value = None if asked.a is None else f"fleetsim compare {asked.a}"
        yield Problem(Text("B", "b"), value, "nothing to compare it with", OTHER)


def _of_history(asked: Compare) -> Iterator[Problem]:
    """Options that mean something for windows only."""
    options: tuple[tuple[str, str | None], ...] = (
        (Text("--a", "windows A"), asked.window_a),
        (Text("--b", "windows B"), asked.window_b),
        ("--selector", asked.selector),
        ("--selector-a", asked.selector_a),
        ("--selector-b", asked.selector_b),
        ("--map", ", ".join(asked.map_ or ())),
        ("--framework", asked.framework),
        ("--step", None if asked.step == "auto" else asked.step),
    )
    remedy = Text("drop it, or give --prometheus or files of history", "leave it out")
    for name, given in options:
        if given:
            yield Problem(name, given, "means something for windows of history only", remedy)


def _of_scenarios(asked: Compare, kinds: frozenset[What], given: Sequence[GivenSide]) -> Iterator[Problem]:
    """Options that mean something for what is simulated only, and --set of what must stay as it is."""
    sets = {"--set": asked.set_ or (), "--set-a": asked.set_a or (), "--set-b": asked.set_b or ()}
    flags = {str(flag(name)): [value] for name, value in asked.job.flags().items() if value is not None}
    for option, texts in (sets | flags).items():
        if texts and "scenario" not in kinds:
            rule = "changes what is simulated: there is no scenario among A and B"
            yield Problem(option, texts[0], rule, "drop it, or give a scenario")
    for one in given if "scenario" in kinds else ():
        option = f"--set-{one.where.lower()}"
        if one.what == "result" and sets[option]:
            yield Problem(option, f"{one.where} {one.text}", "a result stays what it is", "drop it")
    for name in ("steps", "seed", "replications"):
        value = getattr(asked, name)
        if value is not None and kinds != {"scenario"}:
            rule = "a result was run already" if "result" in kinds else "nothing is simulated"
            yield Problem(flag(name), value, f"{rule}: it means something for two scenarios only", "drop it")
    for option, texts in sets.items():
        for text in texts:
            path = text.partition("=")[0].strip()
            if path in _RUN:
                yield Problem(option, text, "must be the same on both sides", f"give {_RUN[path]} N for both")


def unknown(metrics: Sequence[str], there: Sequence[str]) -> Iterator[Problem]:
    """Metrics that there are not."""
    from fleetsim.config.tree import did_you_mean

    for name in metrics:
        if name not in there:
            yield Problem(Text("--metric", "metrics"), name, "unknown metric", did_you_mean(name, there))

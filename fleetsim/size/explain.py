"""A plan in one paragraph of plain words: what binds, what one more instance buys, what else would, which is cheapest.

Every sentence follows from the numbers of the simulated alternatives; what buys nothing is said to buy nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.estimates import Estimate
from fleetsim.job.words import binding_words, lost_words
from fleetsim.search.alternative import Alternative, Alternatives, Anew
from fleetsim.search.bound import Bounds
from fleetsim.search.levers import CADENCE, CAP, LENGTH, MORE_OF, NO_CAP, ONE_MORE, RESUMED, STALENESS

# Steps that differ by less than this share are alike.
_ALIKE = 0.05
# A lever that shortens the step by more on average, and not beyond chance, is not known to buy nothing.
_DOUBTFUL = 0.01
# The levers that move what a verdict names.
_LEVERS_OF = {
    "rollout": (ONE_MORE,),
    "judge": tuple(MORE_OF.values()),
    "in_flight_cap": (CAP, NO_CAP),
    "staleness_window": (STALENESS,),
    "sync": (CADENCE,),
    "longest_response": (LENGTH, RESUMED),
}


# A resource whose bound is so much of a step is what binds: nothing else makes the step shorter by more than the rest.
_ALL = 0.97
# The bounds that say so, and the verdicts that agree with each, what is told first.
_RESOURCES = {"trainer": ("trainer", "sync"), "rewards": ("environment",), "tools": ("environment",)}


def bound_by(binding: str, alternatives: Alternatives, scenario: Scenario, step_s: float) -> str:
    """What binds, by a verdict that neither the operational bounds nor the simulated levers contradict.

    scenario, step_s: what is advised, and what a step of it takes. Where one resource (`Bounds`) takes nearly all of
    them, it binds. Where every lever of the verdict was tried and none makes the step shorter, the lever that shortens
    it most says what binds; long runs are made of those alone that do so in a look. Where no lever does, the trainer
    binds: no lever moves it. A lever that shortens the step by luck or by more, which few runs cannot tell, contradicts
    nothing.
    """
    if binding == "time_limit":
        return binding  # of whole rollouts, of which neither bounds nor levers tell
    for resource, seconds in Bounds(steady=True).by_resource(scenario).items():
        if resource in _RESOURCES and seconds > _ALL * step_s:
            return binding if binding in _RESOURCES[resource] else _RESOURCES[resource][0]

    def tried(names: Sequence[str]) -> list[Alternative]:
        return [found for name in names if (found := alternatives.named(name)) is not None]

    own = tried(_LEVERS_OF.get(binding, ()))
    if not own or any(a.shortens or a.step_ratio.mean < 1.0 - _DOUBTFUL for a in own):
        return binding
    others = [
        (found.gain_s, name)
        for name, levers in _LEVERS_OF.items()
        for found in tried([lever for lever in levers if alternatives.looked(lever) < 1.0])
        if found.shortens
    ]
    return max(others)[1] if others else "trainer"


def explanation(binding: str, alternatives: Alternatives, of: Mapping[str, Estimate]) -> str:
    """The paragraph. of: the metrics of the answer, by dotted name."""
    lost, longest_lost = (of[f"samples_lost.{which}"] for which in ("all", "longest_tenth"))
    words = binding_words(binding, idle=of["trainer_idle_fraction"].mean)
    sentences = [f"What binds: {words.name}." + (f" {units.capital(words.meaning)}." if words.meaning else "")]
    more = alternatives.named(ONE_MORE)
    if more is not None:
        sentences.append(_sentence(more))
    sentences += _others(alternatives)
    sentences.append(_cheapest(alternatives))
    sentences += _anew(alternatives)
    sentences.append(lost_words(lost, longest_lost))
    sentences.append(_losing(alternatives))
    return " ".join(sentence for sentence in sentences if sentence)


def _losing(alternatives: Alternatives) -> str:
    """Which levers would throw more samples away than now; "" where none does."""
    losing = [a for a in alternatives.tried if a.loses_more]
    if not losing:
        return ""
    each = [
        f"{a.text}, {units.share(a.long_samples_lost)} of the longest tenth and {units.share(a.samples_lost)} of all"
        for a in losing
    ]
    return f"More of them would be lost with {'; with '.join(each)}."


def _others(alternatives: Alternatives) -> list[str]:
    """Every lever but one more instance: those that shorten the step in one sentence, the others in another."""
    found: list[str] = []
    others = [a for a in alternatives.tried if a.name != ONE_MORE]
    helpful = sorted((a for a in others if a.shortens), key=lambda a: -a.gain_s)
    if helpful:
        found.append(f"What else would shorten it: {'; '.join(_change(a) for a in helpful)}.")
    idle = [a for a in others if not a.shortens and not a.lengthens]
    if idle:
        saving = (a.anew.instead_of.instances for a in idle if a.anew is not None and a.anew.saves)
        here = next((f" with {units.plural(n, 'instance')}" for n in saving), "")
        found.append(f"{units.capital(units.listed([a.text for a in idle]))} would buy nothing measurable{here}.")
    worse = [_change(a) for a in others if a.lengthens]
    if worse:
        found.append(f"What would lengthen it: {'; '.join(worse)}.")
    stuck = [alternatives.texts[name] for name in alternatives.stuck]
    if stuck:
        found.append(f"{units.capital(units.listed(stuck))} would block the run.")
    return found


def _anew(alternatives: Alternatives) -> list[str]:
    """What levers save with the count that is best for each, the largest saving first; only those that save some."""
    saving = [(a, a.anew) for a in alternatives.moves() if a.anew is not None]
    said = "; ".join(f"{a.text}, {_fleet(found)}{_risk(a)}" for a, found in saving)
    return [f"With a count of its own: {said}."] if said else []


def _fleet(found: Anew) -> str:
    """The fleet of a changed job and what it saves."""
    n, now = found.instances, found.instead_of.instances
    fleet = f"{n:,} {'instance' if n == 1 else 'instances'}"
    if n < now and abs(found.step_ratio - 1.0) < _ALIKE:
        does = f"{fleet} {'does' if n == 1 else 'do'} what {now:,} do now"
    else:
        does = f"{fleet} would be best"
    return f"{does} (step {units.seconds(found.trial.whole('step_s'))}, {cost_words(found)})"


def cost_words(found: Anew) -> str:
    """ "$0.33 per step, $0.10 less than now"."""
    change = f"{units.money(abs(found.saves_usd))} {'less' if found.saves_usd >= 0 else 'more'} than now"
    return f"{units.money(found.trial.whole('cost_per_step'))} per step, {change}"


def _change(a: Alternative) -> str:
    """A lever and what it does to the step, with what it asks of the algorithm."""
    return f"{a.text}, by {_by(a)}{_risk(a)}"


def _by(a: Alternative) -> str:
    """ "14.0 % ±1.0 of seeds"."""
    return " ".join(filter(None, units.changed_by(a.step_ratio, a.replications)))


def _risk(a: Alternative) -> str:
    return f" ({a.risk})" if a.risk is not None else ""


def _sentence(more: Alternative) -> str:
    """What one more instance buys, and what it costs."""
    if not more.shortens:
        what = "lengthens the step" if more.lengthens else "buys nothing measurable"
        return f"{units.capital(more.text)} {what}."
    cost = more.cost_ratio.mean - 1.0
    price = (
        "at the same cost per step"
        if abs(cost) < 0.0005
        else f"and {'raises' if cost > 0 else 'lowers'} the cost per step by {units.share(abs(cost))}"
    )
    return f"{units.capital(more.text)} shortens the step by {_by(more)} {price}{_risk(more)}."


def _cheapest(alternatives: Alternatives) -> str:
    """The lever with the cheapest second and its risk; where it has one, also the cheapest lever without any."""
    best = alternatives.named(alternatives.cheapest or "")
    if best is None:
        losing = any(a.shortens for a in alternatives.tried)
        return f"None of these makes a step measurably shorter{' without losing more samples' if losing else ''}."
    text = f"Cheapest: {best.text}, {units.seconds(best.gain_s)} off each step {_price(best)}"
    safe = alternatives.named(alternatives.cheapest_without_risk or "")
    if safe is not None and safe is not best:
        text += f"; without touching the algorithm {safe.text}, {units.seconds(safe.gain_s)} {_price(safe)}"
    return text + "."


def _price(a: Alternative) -> str:
    if a.free or a.price_usd_per_s is None:
        return "for no money" if a.cost_change > -1e-12 else f"and {units.money(-a.cost_change)} less per step"
    return f"for {units.money(a.cost_change)} more per step"

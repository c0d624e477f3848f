"""What a split advice took for granted, and what one should know before acting on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given
from fleetsim.job.assumptions import Assumption, assumptions_of
from fleetsim.job.caveats import error_warnings, range_warnings
from fleetsim.job.engine_source import EngineSource
from fleetsim.job.nameplate import mean_step_s
from fleetsim.job.trainer_scaling import course_of, time_factor
from fleetsim.search.arrangements import Arrangement, Rules
from fleetsim.search.permissions import Allowed

# A trainer of so many times more or fewer GPUs than its seconds are known for rests on the law alone.
_FAR = 2.0
_NOT_OF_A_SPLIT = ("targets.", "trainer.gpus", "trainer.fixed_s", "fleet.placement", "fleet.switch_s")


def assumed(job: Scenario, asked: Rules, rules: Rules, given: frozenset[str]) -> tuple[Assumption, ...]:
    """The defaults of a plan without its targets, and those that only a split has. asked: the rules before theirs."""
    own = tuple(_own(job, rules.trainer_least if asked.trainer_least is None else None, given))
    whole = any(a.path == "trainer.fixed_s" for a in own)  # all seconds of a step in one line
    not_here = (*_NOT_OF_A_SPLIT, "trainer.per_token_s", "trainer.phases") if whole else _NOT_OF_A_SPLIT
    return (*(a for a in assumptions_of(job, given) if not a.path.startswith(not_here)), *own)


def _own(job: Scenario, least: int | None, given: frozenset[str]) -> Iterator[Assumption]:
    trainer, share = job.trainer, "trainer.scaling.parallel_share"
    seconds = ("trainer.fixed_s", "trainer.per_token_s", "trainer.phases", "trainer.scaling.points")
    if not any(is_given(path, given) for path in seconds) or not is_given("trainer.gpus", given | _gpus_of(job)):
        text = f"{mean_step_s(job):.3g} s of compute per step on {units.plural(trainer.gpus, 'GPU')}"
        yield Assumption("trainer.fixed_s", trainer.fixed_s, "--trainer-step-s --trainer-gpus", text)
    if not trainer.scaling.points and not is_given(share, given):
        text = "the law by which they scale (above)"
        yield Assumption(share, trainer.scaling.parallel_share, "--trainer-point --parallel-share", text)
    if not is_given("fleet.switch_s", given):
        text = f"colocated: the trainer offloads its states, {job.fleet.switch_s:g} s to hand the GPUs over, each way"
        yield Assumption("fleet.switch_s", job.fleet.switch_s, "--switch-s", text)
    if least is not None and least > 1:
        holds = "weights, gradients, Adam states"
        text = f"a split's trainer has at least {units.plural(least, 'GPU')} ({holds})"
        yield Assumption("trainer.gpus", least, "--trainer-min-gpus", text)


def _gpus_of(job: Scenario) -> frozenset[str]:
    """Points say at how many GPUs they were measured."""
    return frozenset({"trainer.gpus"}) if job.trainer.scaling.points else frozenset()


def _slower_on_more(job: Scenario) -> Iterator[str]:
    """Points at which more GPUs take longer: rarely so, and the ranking rests on them."""
    rising = [(a, b) for a, b in pairwise(job.trainer.scaling.points) if b[1] > a[1]]
    if rising:
        each = " and ".join(f"{b[1]:g} s on {units.plural(b[0], 'GPU')} but {a[1]:g} s on {a[0]}" for a, b in rising)
        yield (
            f"the trainer's points are slower on more GPUs ({each}), and the ranking follows them: check that "
            "--trainer-point is GPUS:SECONDS of a whole step, the same batch at every count"
        )


def unused_names(allowed: Allowed) -> Iterator[str]:
    """Permissions of things that a split does not choose."""
    if allowed.names:
        names = units.listed(sorted(allowed.names))
        yield f"--allow {names} changes nothing here: split keeps the engines as they are, fleetsim plan chooses them"


def age_warnings(age: float, oldest: float | None) -> Iterator[str]:
    """Samples that are older than is permitted, because no way is fresher. age: of the advised way."""
    if oldest is not None and age > oldest:
        limit = "on-policy" if oldest == 0 else f"at most {units.plural(oldest, 'step')} old"
        yield (
            f"99 % of the trained samples are to be {limit}, and no way that runs keeps that: of the advised one they "
            f"are up to {units.plural(age, 'step')} old"
        )


def warnings_of(
    job: Scenario, chosen: Arrangement, stuck: Sequence[tuple[str, str]], profile: EngineSource
) -> tuple[str, ...]:
    """In the order of their weight."""
    found = [*_slower_on_more(job), *range_warnings(profile), *error_warnings(profile)]
    trainer, gpus = job.trainer, chosen.trainer_gpus
    counts = [count for count, _ in trainer.scaling.points] or [trainer.gpus]
    if gpus > _FAR * max(counts) or gpus < min(counts) / _FAR:
        known = mean_step_s(job)
        there = known * time_factor(trainer, gpus, course_of(job))
        found.append(
            f"the trainer's {known:.3g} s on {units.plural(trainer.gpus, 'GPU')} are taken to be "
            f"{there:.3g} s on {gpus}, by the law alone: measure a step there "
            f"(--trainer-point {gpus}:SECONDS) before moving GPUs"
        )
    reasons: dict[str, list[str]] = {}
    for label, reason in stuck:
        reasons.setdefault(reason, []).append(label)
    found += [f"{units.listed(labels)} cannot run: {reason}" for reason, labels in reasons.items()]
    return tuple(found)

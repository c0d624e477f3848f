"""The admission laws: which group may start, one record for each.

`lets_in` gives groups that may be outstanding, open or started. Credits (groups that the kernel may still send) are
topped up to it whenever something changes (`sim/admission.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from fleetsim import units
from fleetsim.errors import Problem
from fleetsim.policies import oldest
from fleetsim.policies.law import PLENTY, Ahead, Cap, EachStep, Exchange, Law, Looser, UpTo
from fleetsim.policies.law_inputs import LawName, Progress, Settings, Sizes
from fleetsim.policies.tables import complete, listed

# The setting that a version window reads, and the flag --max-staleness sets.
MAX_STALENESS = "admission.max_staleness"


def sync_window(a: Settings, sizes: Sizes) -> int:
    """Groups that may start in one sync window, those in flight and queued at its begin included (verl)."""
    return math.floor(sizes.version * (1 + a.staleness_threshold) + 1e-9)


def _round(a: Settings, sizes: Sizes, progress: Progress) -> int:
    """One batch, started when the trainer is done with the last one and has published."""
    if not progress.generating:
        return 0
    whole = sizes.round if progress.round_groups is None else progress.round_groups
    return whole - progress.taken_of_round


def _batches_ahead(a: Settings, sizes: Sizes, progress: Progress) -> int:
    """k batches beyond the one being trained (OpenRLHF's semaphore, one-step-off for k = 1)."""
    return a.batches_ahead * sizes.round


def _version_window(a: Settings, sizes: Sizes, progress: Progress) -> int:
    """(eta + v + 1) * B - accepted (AReaL), B the groups trained per published version."""
    return math.floor((a.max_staleness + progress.version + 1) * sizes.version + 1e-9) - progress.taken_groups


def _plenty(a: Settings, sizes: Sizes, progress: Progress) -> int:
    """Whatever the engines can hold."""
    return PLENTY


def _a_batch_and_more_at_first(a: Settings, sizes: Sizes, first: bool) -> int:
    """B groups with every step, alpha * B more with the first one (ROLL)."""
    return sizes.step + (math.ceil(a.async_ratio * sizes.step - 1e-9) if first else 0)


def _batches_in_flight(most: Callable[[Settings], float]) -> Callable[[Settings, Sizes], float]:
    return lambda a, sizes: sizes.batch * max(1.0, most(a))


def _too_few_outstanding(
    limit: Callable[[Settings, Sizes, Progress], int], setting: str
) -> Callable[[Settings, Sizes, Progress], Problem | None]:
    """Less than a batch may be outstanding. setting: the path that the problem is told of."""

    def starves(a: Settings, sizes: Sizes, progress: Progress) -> Problem | None:
        allowed = limit(a, sizes, progress)
        if allowed >= sizes.step:
            return None
        return Problem(
            setting,
            getattr(a, setting.rpartition(".")[2]),
            f"admission allows {allowed * sizes.group} outstanding samples at weight version {progress.version}, "
            f"a batch needs {sizes.batch}",
            "raise the staleness budget, sync every step (sync.every_steps: 1), or lower trainer.batch_samples",
        )

    return starves


def _window_used_up(a: Settings, sizes: Sizes, progress: Progress) -> Problem:
    return Problem(
        "admission.staleness_threshold",
        a.staleness_threshold,
        f"a sync window starts {sync_window(a, sizes) * sizes.group} samples, those that were filtered or dropped "
        "included: too few are left for its batches",
        "raise staleness_threshold, or lower workload.filter.zero_variance_share",
    )


def _pool_below_a_group(a: Settings, sizes: Sizes, progress: Progress) -> Problem | None:
    pool, group = a.pool_samples or 0, sizes.group
    if pool >= group:
        return None
    return Problem("admission.pool_samples", pool, f"at least one group ({group})", f"raise it to {group}")


def _never(a: Settings, sizes: Sizes, progress: Progress) -> None:
    """The law lets a batch start, whatever happens."""


LAWS: Mapping[LawName, Law] = complete(
    LawName,
    {
        "barrier": Law(
            says=lambda a: "a batch, then the trainer",
            rule="ceil(oversampling x B') from when the trainer wants a batch until it has one, else 0",
            lets_in=UpTo(counts="outstanding", limit=_round),
            ahead=Ahead(unit="batches", most=lambda a: 0.0, and_current=1.0, promised=True),
            in_flight=lambda a, sizes: float(sizes.batch),
            oldest=oldest.barrier,
            parameter=None,
            also_reads=(),
            looser=Exchange(
                changes={"admission.law": "batches_ahead", "admission.batches_ahead": 1},
                says="one batch ahead instead of a barrier",
            ),
            cap=None,
            starves=_too_few_outstanding(_round, "admission.law"),
            rounds="one_by_one",
            budget=None,
            reserves_steps=False,
            fills_queue=False,
            engines_limit=False,
            follows_kv=False,
        ),
        "batches_ahead": Law(
            says=lambda a: f"{a.batches_ahead} {'batch' if a.batches_ahead == 1 else 'batches'} ahead",
            rule="k x ceil(oversampling x B') beyond the batch in training",
            lets_in=UpTo(counts="outstanding", limit=_batches_ahead),
            ahead=Ahead(unit="batches", most=lambda a: float(a.batches_ahead), and_current=0.0, promised=True),
            in_flight=lambda a, sizes: float(sizes.batch * a.batches_ahead),
            oldest=oldest.batches,
            parameter="admission.batches_ahead",
            also_reads=(),
            looser=Looser(more=1, says="{} batches ahead", lift="more admission.batches_ahead"),
            cap=None,
            starves=_too_few_outstanding(_batches_ahead, "admission.law"),
            rounds="overlapping",
            budget="batches",
            reserves_steps=False,
            fills_queue=False,
            engines_limit=False,
            follows_kv=False,
        ),
        "version_window": Law(
            says=lambda a: f"{a.max_staleness:g} version{'s' * (a.max_staleness != 1)} ahead",
            rule="floor((eta + v + 1) x W) - groups taken by the trainer so far; eta may be fractional",
            lets_in=UpTo(counts="outstanding", limit=_version_window),
            ahead=Ahead(unit="versions", most=lambda a: a.max_staleness, and_current=1.0, promised=True),
            in_flight=_batches_in_flight(lambda a: a.max_staleness),
            oldest=oldest.window,
            parameter=MAX_STALENESS,
            also_reads=(),
            looser=Looser(more=1.0, says="a staleness budget of {}", lift="a larger --max-staleness"),
            cap=None,
            starves=_too_few_outstanding(_version_window, MAX_STALENESS),
            rounds=None,
            budget="versions",
            reserves_steps=False,
            fills_queue=False,
            engines_limit=False,
            follows_kv=False,
        ),
        "fixed_pool": Law(
            says=lambda a: f"pool of {a.pool_samples or 0:,}",
            rule="`pool_samples` / G groups in generation; finished ones do not count",
            lets_in=UpTo(counts="open", limit=lambda a, sizes, progress: (a.pool_samples or 0) // sizes.group),
            ahead=None,
            in_flight=lambda a, sizes: float(a.pool_samples or sizes.batch),
            oldest=oldest.unbounded,
            parameter="admission.pool_samples",
            also_reads=(),
            looser=None,
            cap=Cap(setting="admission.pool_samples", samples=lambda a: a.pool_samples, frees="groups"),
            starves=_pool_below_a_group,
            rounds=None,
            budget=None,
            reserves_steps=False,
            fills_queue=False,
            engines_limit=False,
            follows_kv=False,
        ),
        "unbounded": Law(
            says=lambda a: "no admission limit",
            rule="any number; an instance then holds at most `max_num_seqs` samples",
            lets_in=UpTo(counts="outstanding", limit=_plenty),
            ahead=None,
            # nothing holds an unbounded client back: the engines are as full as they can be
            in_flight=lambda a, sizes: math.inf,
            oldest=oldest.unbounded,
            parameter=None,
            also_reads=(),
            looser=None,
            cap=None,
            starves=_never,
            rounds=None,
            budget=None,
            reserves_steps=False,
            fills_queue=False,
            engines_limit=True,
            follows_kv=False,
        ),
        "per_sync_window": Law(
            says=lambda a: f"sync window + {units.share(a.staleness_threshold, 0)}",
            rule=(
                "per sync window at most floor(W x (1 + `staleness_threshold`)) groups may be *started*; at a "
                "publication the count restarts at what was started and the new version does not contain (verl fully "
                "async). What is filtered or dropped is not replaced before"
            ),
            lets_in=UpTo(
                counts="started", limit=lambda a, sizes, progress: progress.window_start + sync_window(a, sizes)
            ),
            ahead=Ahead(unit="versions", most=lambda a: 1.0 + a.staleness_threshold, and_current=0.0, promised=False),
            # a window's samples less those of the step in training
            in_flight=lambda a, sizes: max(sizes.batch, sync_window(a, sizes) * sizes.group - sizes.batch),
            oldest=oldest.unbounded,
            parameter="admission.staleness_threshold",
            also_reads=(),
            looser=Looser(more=0.5, says="a staleness threshold of {}", lift="a larger admission.staleness_threshold"),
            cap=None,
            starves=_window_used_up,
            rounds=None,
            budget=None,
            reserves_steps=False,
            fills_queue=True,
            engines_limit=False,
            follows_kv=False,
        ),
        "cumulative_ratio": Law(
            says=lambda a: f"ratio {a.async_ratio:g}, cumulative",
            rule=(
                "B' groups start with every step and ceil(`async_ratio` x B') more with the first (ROLL). Beyond that "
                "a group still starts while fewer than `extra_groups` are unfinished. Finished groups that are dropped "
                "are not replaced, aborted ones are"
            ),
            lets_in=EachStep(groups=_a_batch_and_more_at_first, kept_running=lambda a: a.extra_groups),
            ahead=Ahead(unit="batches", most=lambda a: a.async_ratio, and_current=1.0, promised=True),
            in_flight=_batches_in_flight(lambda a: a.async_ratio),
            oldest=oldest.ratio,
            parameter="admission.async_ratio",
            also_reads=("admission.extra_groups",),
            looser=Looser(more=1.0, says="an async ratio of {}", lift="a larger admission.async_ratio"),
            cap=None,
            starves=_never,
            rounds=None,
            budget=None,
            reserves_steps=False,
            fills_queue=False,
            engines_limit=False,
            follows_kv=False,
        ),
        "target_step": Law(
            says=lambda a: f"target steps, {a.max_staleness:g} ahead",
            rule=(
                "as `version_window`; and every group is reserved for an optimizer step when it starts, B' per step in "
                "order. What replaces a lost group takes its step. With `batch_rule: exact_target_step` a step trains "
                "its own groups and no others (NeMo-RL)"
            ),
            lets_in=UpTo(counts="outstanding", limit=_version_window),
            ahead=Ahead(unit="versions", most=lambda a: a.max_staleness, and_current=1.0, promised=True),
            in_flight=_batches_in_flight(lambda a: a.max_staleness),
            oldest=oldest.target,
            parameter=MAX_STALENESS,
            also_reads=(),
            looser=Looser(more=1.0, says="a staleness budget of {}", lift="a larger --max-staleness"),
            cap=None,
            starves=_too_few_outstanding(_version_window, MAX_STALENESS),
            rounds=None,
            budget="versions",
            reserves_steps=True,
            fills_queue=True,
            engines_limit=False,
            follows_kv=False,
        ),
        "adaptive": Law(
            says=lambda a: f"by KV use, at most {a.adaptive.most_samples:,}",
            rule=(
                "the in-flight cap itself moves (prime-rl): every `interval_s`, with u = the KV use of the fullest "
                "engine, it grows by `grow` if u < `grow_below_kv`, at most once per turnover and only if it was "
                "reached; above `trim_above_kv` it becomes in flight x `target_kv` / u, and above `cancel_above_kv` "
                "the youngest groups are cancelled until it holds"
            ),
            lets_in=UpTo(counts="outstanding", limit=_plenty),
            ahead=None,
            in_flight=lambda a, sizes: float(a.adaptive.most_samples),
            oldest=oldest.unbounded,
            parameter=None,
            also_reads=("admission.adaptive",),
            looser=None,
            cap=Cap(
                setting="admission.adaptive.most_samples", samples=lambda a: a.adaptive.most_samples, frees="samples"
            ),
            starves=_never,
            rounds=None,
            budget=None,
            reserves_steps=False,
            fills_queue=False,
            engines_limit=False,
            follows_kv=True,
        ),
    },
)


def readers() -> dict[str, list[str]]:
    """Path of each setting that a law reads -> the names of the laws that read it."""
    return _by_path(lambda law: law.reads)


def laws_by_parameter() -> dict[str, list[str]]:
    """Path of each law's parameter -> the laws with it: whoever gives it says which of them it is."""
    return _by_path(lambda law: () if law.parameter is None else (law.parameter,))


def _by_path(paths_of: Callable[[Law], Iterable[str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, law in LAWS.items():
        for path in paths_of(law):
            found.setdefault(path, []).append(name)
    return found


def names_of(holds: Callable[[Law], bool]) -> str:
    """The names of the laws for which something holds, for a sentence: "a or b"."""
    return listed([name for name, law in LAWS.items() if holds(law)])

"""The admission laws: which group may start, one record for each.

`lets_in` gives groups that may be outstanding, open or started. Credits (groups that the kernel may still send) are
topped up to it whenever something changes (`sim/admission.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from fleetsim import units
from fleetsim.policies.law import Ahead, Cap, EachStep, Exchange, Law, LawName, Looser, UpTo
from fleetsim.policies.limits import (
    a_batch_and_more_at_first,
    a_round,
    batches_ahead,
    batches_in_flight,
    never,
    oldest_by_barrier,
    oldest_by_batches,
    oldest_by_ratio,
    oldest_by_target,
    oldest_by_unbounded,
    oldest_by_window,
    plenty,
    pool_below_a_group,
    sync_window,
    too_few_outstanding,
    version_window,
    window_used_up,
)
from fleetsim.policies.samples import complete, listed

# The setting that a version window reads, and the flag --max-staleness sets; and the one of batches.
MAX_STALENESS, BATCHES_AHEAD = "admission.max_staleness", "admission.batches_ahead"


LAWS: Mapping[LawName, Law] = complete(
    LawName,
    {
        "barrier": Law(
            says=lambda a: "a batch, then the trainer",
            rule="ceil(oversampling x B') from when the trainer wants a batch until it has one, else 0",
            lets_in=UpTo(counts="outstanding", limit=a_round),
            ahead=Ahead(unit="batches", most=lambda a: 0.0, and_current=1.0, promised=True),
            in_flight=lambda a, sizes: float(sizes.batch),
            oldest=oldest_by_barrier,
            parameter=None,
            also_reads=(),
            looser=Exchange(
                changes={"admission.law": "batches_ahead", BATCHES_AHEAD: 1},
                says="one batch ahead instead of a barrier",
            ),
            cap=None,
            starves=too_few_outstanding(a_round, "admission.law"),
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
            lets_in=UpTo(counts="outstanding", limit=batches_ahead),
            ahead=Ahead(unit="batches", most=lambda a: float(a.batches_ahead), and_current=0.0, promised=True),
            in_flight=lambda a, sizes: float(sizes.batch * a.batches_ahead),
            oldest=oldest_by_batches,
            parameter=BATCHES_AHEAD,
            also_reads=(),
            looser=Looser(more=1, says="{} batches ahead", lift="more admission.batches_ahead"),
            cap=None,
            starves=too_few_outstanding(batches_ahead, "admission.law"),
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
            lets_in=UpTo(counts="outstanding", limit=version_window),
            ahead=Ahead(unit="versions", most=lambda a: a.max_staleness, and_current=1.0, promised=True),
            in_flight=batches_in_flight(lambda a: a.max_staleness),
            oldest=oldest_by_window,
            parameter=MAX_STALENESS,
            also_reads=(),
            looser=Looser(more=1.0, says="a staleness budget of {}", lift="a larger --max-staleness"),
            cap=None,
            starves=too_few_outstanding(version_window, MAX_STALENESS),
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
            oldest=oldest_by_unbounded,
            parameter="admission.pool_samples",
            also_reads=(),
            looser=None,
            cap=Cap(setting="admission.pool_samples", samples=lambda a: a.pool_samples, frees="groups"),
            starves=pool_below_a_group,
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
            lets_in=UpTo(counts="outstanding", limit=plenty),
            ahead=None,
            # nothing holds an unbounded client back: the engines are as full as they can be
            in_flight=lambda a, sizes: math.inf,
            oldest=oldest_by_unbounded,
            parameter=None,
            also_reads=(),
            looser=None,
            cap=None,
            starves=never,
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
            oldest=oldest_by_unbounded,
            parameter="admission.staleness_threshold",
            also_reads=(),
            looser=Looser(more=0.5, says="a staleness threshold of {}", lift="a larger admission.staleness_threshold"),
            cap=None,
            starves=window_used_up,
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
            lets_in=EachStep(groups=a_batch_and_more_at_first, kept_running=lambda a: a.extra_groups),
            ahead=Ahead(unit="batches", most=lambda a: a.async_ratio, and_current=1.0, promised=True),
            in_flight=batches_in_flight(lambda a: a.async_ratio),
            oldest=oldest_by_ratio,
            parameter="admission.async_ratio",
            also_reads=("admission.extra_groups",),
            looser=Looser(more=1.0, says="an async ratio of {}", lift="a larger admission.async_ratio"),
            cap=None,
            starves=never,
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
            lets_in=UpTo(counts="outstanding", limit=version_window),
            ahead=Ahead(unit="versions", most=lambda a: a.max_staleness, and_current=1.0, promised=True),
            in_flight=batches_in_flight(lambda a: a.max_staleness),
            oldest=oldest_by_target,
            parameter=MAX_STALENESS,
            also_reads=(),
            looser=Looser(more=1.0, says="a staleness budget of {}", lift="a larger --max-staleness"),
            cap=None,
            starves=too_few_outstanding(version_window, MAX_STALENESS),
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
            lets_in=UpTo(counts="outstanding", limit=plenty),
            ahead=None,
            in_flight=lambda a, sizes: float(a.adaptive.most_samples),
            oldest=oldest_by_unbounded,
            parameter=None,
            also_reads=("admission.adaptive",),
            looser=None,
            cap=Cap(
                setting="admission.adaptive.most_samples", samples=lambda a: a.adaptive.most_samples, frees="samples"
            ),
            starves=never,
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

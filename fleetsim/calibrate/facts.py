"""What a profile says, of itself, in a list of profiles, and when its kept-out batches are predicted anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from fleetsim import units
from fleetsim.calibrate.known_profiles import Drift, ListedProfile, Rechecked, drift_of
from fleetsim.calibrate.one_load import ClientView, clients_table
from fleetsim.calibrate.points import PointRow, batch_words, by_context, charts, opening, rows_of
from fleetsim.config.engine_profile import BatchCheck, Profile
from fleetsim.config.speculation import METHODS
from fleetsim.tell.document import Document, Section, Table, Under, Words, bar
from fleetsim.tell.facts import explained, facts

# --- A profile in tables, as both the terminal and the page show them.

# f has at most this many rows; knots in between are left out, first and last never.
_MOST_KNOTS = 12

T = TypeVar("T")


def sheets_of(profile: Profile) -> tuple[Table, ...]:
    """All tables of a profile that have something to say, in reading order."""
    made = (
        _step_time(profile),
        *_iterations(profile),
        _ranges(profile),
        _prefix_cache(profile),
        _drafts(profile),
        _sync(profile),
        _provenance(profile),
        Table("assumed: nothing measured says so", ("",), tuple((text,) for text in profile.provenance.assumed)),
    )
    return tuple(sheet for sheet in made if sheet.rows)


def checks(profile: Profile) -> Table:
    """The batches that were kept out of the fit: a terminal draws them as bars instead."""
    rows = tuple(
        (c.name, f"{c.samples:,}", f"{c.makespan_s:,.1f}", f"{c.predicted_s:,.1f}", units.change(c.makespan_error),
         units.share(c.finish_error_median), units.share(c.finish_error_p90))
        for c in profile.checks
    )  # fmt: skip
    headings = ("batch", "samples", "measured s", "predicted s", "error", "finish, median", "finish, p90")
    return Table("batches kept out of the fit", headings, rows)


def _named(title: str, rows: Iterable[tuple[str, str | None]], note: str = "") -> Table:
    """Names and what is said of them, those left out of which nothing is."""
    return Table(title, ("", ""), tuple((name, said) for name, said in rows if said), left=2, note=note)


def _plain(x: float) -> str:
    """A count, with a decimal only where it has one (means of a window may be fractions)."""
    return f"{x:,.0f}" if x >= 100 or abs(x - round(x)) < 0.05 else f"{x:,.1f}"


def _thinned(items: Sequence[T], most: int, what: str) -> tuple[Sequence[T], str]:
    """At most `most` items, evenly spaced, the first and the last among them; a note where some are left out."""
    if len(items) <= most:
        return items, ""
    shown = [items[i * (len(items) - 1) // (most - 1)] for i in range(most)]
    return shown, f"{most} of {len(items)} {what}; --json has all of them"


def _step_time(profile: Profile) -> Table:
    c, fit = profile.coefficients, profile.fit
    shown, note = _thinned(list(zip(c.knots_tokens, c.knots_s, strict=True)), _MOST_KNOTS, "knots of f")
    linear = (
        ("per decoding sequence", c.per_seq_s),
        ("per prefill token", c.per_prefill_token_s),
        ("per KV token read", c.per_kv_token_s),
        ("per query-key pair of prefill", c.per_attn_pair_s),
    )
    named = [(f"f at {units.plural(round(n), 'token')}", s) for n, s in shown]
    named += [(name, e) for name, e in linear if e.value > 0 or e.ci_high]
    rows: list[tuple[str, ...]] = [(name, *units.coefficient(e.value, e.ci_low, e.ci_high)) for name, e in named]
    notes = [note]
    if fit is not None:
        notes.append(
            f"fitted to {units.plural(fit.observations, 'duration')}, "
            f"{units.plural(fit.left_out, 'outlier')} left out; each load predicted by a "
            f"fit without it: median {units.share(fit.median)}, p90 {units.share(fit.p90)}"
        )
        if fit.overhead_s > 0:
            notes.append(f"a client's {units.seconds(fit.overhead_s)} per request are not part of it")
    headings: tuple[str, ...] = ("", "", "95 % interval")
    if not any(interval for *_, interval in rows):
        headings, rows = headings[:2], [row[:2] for row in rows]
    title = "an iteration takes f(tokens) + the sum of"
    return Table(title, headings, tuple(rows), note="; ".join(n for n in notes if n))


def _iterations(profile: Profile) -> Iterator[Table]:
    """What single iterations took: decodes, prompts, both at once."""
    times = ("measured ms", "predicted ms", "error")

    def measured(r: PointRow) -> tuple[str, str, str]:
        return f"{1e3 * r.point.seconds:,.2f}", f"{1e3 * r.predicted_s:,.2f}", units.change(r.error)

    decodes = [
        (f"{context:,.0f}", _plain(r.point.decodes), *measured(r), f"{r.tok_s:,.0f}")
        for context, rows in by_context(rows_of(profile, "decode"))
        for r in rows
    ]
    prompts = [
        (_plain(r.point.prefill_tokens), units.tokens(r.point.attn_pairs), *measured(r), f"{r.tok_s:,.0f}")
        for r in sorted(rows_of(profile, "prefill"), key=lambda r: (r.point.prefill_tokens, r.point.attn_pairs))
    ]
    both = [
        (_plain(r.point.decodes), f"{r.context:,.0f}", _plain(r.point.prefill_tokens), *measured(r))
        for r in rows_of(profile, "mixed")
    ]
    for title, headings, cells, most in (
        ("decoding: an iteration of so many sequences", ("context", "sequences", *times, "tok/s"), decodes, 64),
        ("computing prompts: an iteration", ("prefill tokens", "pairs", *times, "tok/s"), prompts, 24),
        ("both at once: an iteration", ("sequences", "context", "prefill tokens", *times), both, 24),
    ):
        kept, note = _thinned(cells, most, "points")
        if cells is decodes:  # a context stands in its first row
            before = ["", *(context for context, *_ in kept)]
            kept = [("" if row[0] == last else row[0], *row[1:]) for last, row in zip(before, kept, strict=False)]
        yield Table(title, headings, tuple(kept), left=0, note=note)


def _ranges(profile: Profile) -> Table:
    measured, limits = profile.ranges, profile.limits
    spans = {
        "decoding sequences": measured.decodes,
        "KV tokens they read": measured.kv_tokens,
        "prefill tokens of an iteration": measured.prefill_tokens,
    }
    rows = [(name, f"{_plain(b[0])} to {_plain(b[1])}") for name, b in spans.items() if b is not None]
    note = "" if rows else "no measured ranges are on record: nothing says where it holds"
    tokens = units.tokens(limits.kv_blocks * limits.block_size)
    rows += [
        ("max_num_seqs", f"{limits.max_num_seqs:,}"),
        ("max_num_batched_tokens", f"{limits.max_num_batched_tokens:,}"),
        ("KV blocks", f"{limits.kv_blocks:,} of {limits.block_size} tokens: {tokens} tokens"),
    ]
    return _named("what was measured, and the engine's limits", rows, note)


def _prefix_cache(profile: Profile) -> Table:
    cache, rows = profile.prefix_cache, list[tuple[str, str | None]]()
    if cache is not None:
        share = cache.hit_tokens / cache.expected_tokens if cache.expected_tokens else None
        found = "none expected" if share is None else f"{units.share(share)} of what was expected"
        found = "as expected" if share is not None and abs(share - 1) < 0.005 else found
        counted = f"{cache.hit_tokens:,} ({found})" if cache.expected_tokens or cache.hit_tokens else None
        rows = [("prefix caching", "on" if cache.enabled else "off"), ("prompt tokens found", counted)]
    return _named("prefix cache on groups of siblings", rows)


def _drafts(profile: Profile) -> Table:
    found = profile.speculation
    if found is None:
        return _named("speculative decoding", ())
    method = METHODS[found.method] if found.method is not None else "the engine does not say with what"
    at = ", ".join(units.share(share) for share in found.acceptance)
    rows = (
        ("drafted", f"up to {units.plural(found.num_speculative_tokens, 'token')}: {method}"),
        ("drafted on average", f"{found.drafted_tokens:.3g} tokens of a sequence in an iteration"),
        ("kept, by position", f"{at} of the iterations"),
        ("an iteration brings", f"{1.0 + sum(found.acceptance):.3g} tokens of a sequence"),
    )
    note = f"{found.iterations:,} iterations of a sequence: {found.measured_on}"
    return Table("speculative decoding", ("", ""), rows, note=note, words_last=1)


def _rate(bytes_s: float) -> str:
    return f"{bytes_s / 1e9:,.1f} GB/s"


_SYNC: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("pausing, requests kept", "pause_s", units.seconds),
    ("resuming until the next tokens", "resume_s", units.seconds),
    ("loading the weights, from the device", "load_s", units.seconds),
    ("loading the weights, from the host", "load_from_host_s", units.seconds),
    ("weights", "model_bytes", units.gib),
    ("host to device", "host_bytes_s", _rate),
    ("between two GPUs", "broadcast_bytes_s", _rate),
    ("iterations during an update", "slowdown", "{:.2f} times as long".format),
)


def _sync(profile: Profile) -> Table:
    found = ((name, getattr(profile.sync, field, None), written) for name, field, written in _SYNC)
    return _named("weight sync", ((name, None if x is None else written(x)) for name, x, written in found))


def _provenance(profile: Profile) -> Table:
    p = profile.provenance
    built = (p.driver, p.cuda, p.torch)
    count = f"{p.gpu_count} in the host" if p.gpu_count else ""
    rows = (
        ("GPU", ", ".join(t for t in (p.device, f"TP{p.tp}" if p.tp else "", count) if t)),
        ("model", f"{p.model} {p.dtype}".strip()),
        ("engine", f"{p.engine} {p.engine_version}".strip()),
        ("flags", ", ".join(p.flags)),
        ("driver, CUDA, PyTorch", ", ".join(t or "not known" for t in built) if any(built) else None),
        ("source", p.source),
        ("date", p.date),
        ("fleetsim", p.fleetsim_version),
        ("raw measurements", profile.raw),
    )
    return _named("where it comes from", rows)


MEASURED, PREDICTED = "█", "▒"
_BAR_WIDTH = 40


def document(profile: Profile, give: str, seen: Sequence[ClientView] = ()) -> Document:
    """What `fleetsim profile show` says. give: how the user names the profile. seen: by clients of its server."""
    first, *others = sheets_of(profile)
    others = [*([clients_table(seen)] if seen else ()), *others]
    kept_out = (checks(profile),) if profile.checks else ()
    after = [f"size --batch 512 --len 1536 --profile {give}", f"profile show {give} --html profile.html"]
    after[1:1] = [f"profile check {give}"] if profile.checks and profile.raw is not None else []
    told = [Section(sheet.title, (sheet,), on=("terminal",)) for sheet in (first, *others)]
    if profile.checks:
        title = f"batches kept out of the fit ({MEASURED} measured, {PREDICTED} predicted)"
        told.insert(1, Section(title, tuple(_bars(profile.checks)), on=("terminal",)))
    return Document(
        "fleetsim profile show",
        facts(profile.name, (explained(f"opening_{i}", said) for i, said in enumerate(opening(profile)))),
        (
            Section("Measured and predicted", charts(profile), on=("page",)),
            Section("In numbers", (first, *kept_out, *others), on=("page",)),
            *told,
            Section("next", tuple(Words(f"fleetsim {c}", strong=True) for c in after), on=("terminal",)),
        ),
    )


def _bars(kept_out: Sequence[BatchCheck]) -> Iterator[Under]:
    """Each kept-out batch: its makespan measured and predicted as bars, its errors in words."""
    longest = max(max(c.makespan_s, c.predicted_s) for c in kept_out) or 1.0
    for check in kept_out:
        both = (("measured", check.makespan_s, MEASURED), ("predicted", check.predicted_s, PREDICTED))
        rows = tuple(
            (name, f"{seconds:,.1f} s", bar([(1.0, character)], round(_BAR_WIDTH * seconds / longest)))
            for name, seconds, character in both
        )
        yield Under(check.name, (Table("", ("", "", ""), rows, words_last=1), Words(tail=batch_words(check))))


def checked_document(profile: Profile, checked: Sequence[Rechecked], limit: float) -> Document:
    """What `fleetsim profile check` says."""
    batches, above = units.plural(len(checked), "kept-out batch"), [i for i, c in enumerate(checked) if not c.passed]
    held = f"{len(checked) - len(above) if above else 'all'} of {batches}"
    rows = tuple(
        (one.now.name, f"{one.now.makespan_s:,.1f} s", f"{one.now.predicted_s:,.1f} s",
         units.change(one.now.makespan_error), "" if one.stored is None else units.change(one.stored.makespan_error),
         units.share(one.now.finish_error_median), "ok" if one.passed else "above")
        for one in checked
    )  # fmt: skip
    headings = ("batch", "measured", "predicted", "makespan", "stored", "finish", "")
    table = Table("", headings, rows, words_last=1, marked=frozenset(above))
    return Document(
        "fleetsim profile check",
        facts(
            f"{profile.name}: {held} predicted within {units.share(limit)}",
            explained("drift", drift_words(drift_of(checked))),
        ),
        (Section("errors: of the makespan, as stored, of the finish times (median)", (table,)),),
    )


def drift_words(drift: Drift | None) -> str:
    """What the comparison with the stored errors says."""
    if drift is None:
        return "The profile stores no errors of these batches to compare with."
    if not drift.changed:
        return "The simulator predicts what it predicted when the profile was written."
    return (
        "The simulator has changed since the profile was written, or these are other measurements: errors differ from "
        f"the stored ones by up to {100 * drift.makespan:.2g} points (makespan) and {100 * drift.finish:.2g} "
        "points (finish times). fleetsim calibrate --from RAW writes the profile anew."
    )


def listed_words(one: ListedProfile) -> str:
    """What a profile is of, when, and how far it is off."""
    p, error = one.profile.provenance, one.profile.error.median
    engine = f"{p.engine} {p.engine_version}".strip()
    derived = f"derived from {p.source or engine or '?'}"
    said = (
        f"{p.model.rstrip('/').rpartition('/')[2] or '?'} on {p.gpu.removeprefix('NVIDIA ') or '?'} x {p.tp or '?'}",
        engine or "?",
        p.date,
        "error not known" if error is None else f"off by {units.share(error)} in the median",
        "" if one.profile.kind == "measured" else derived,
    )
    return ", ".join(filter(None, said))

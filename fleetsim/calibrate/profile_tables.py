"""A profile in tables, as both the terminal and the page show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from fleetsim import units
from fleetsim.calibrate.points import PointRow, by_context, rows_of
from fleetsim.config.coefficients import EstimateFields
from fleetsim.config.engine_profile import Profile
from fleetsim.config.speculation import METHODS
from fleetsim.tell.document import Table

# f has at most this many rows; knots in between are left out, first and last never.
_MOST_KNOTS = 12
_MOST_DECODE_ROWS, _MOST_OTHER_ROWS = 64, 24

T = TypeVar("T")


def sheets_of(profile: Profile) -> tuple[Table, ...]:
    """All tables of a profile that have something to say, in reading order."""
    made = (
        _step_time(profile),
        _decodes(profile),
        _prompts(profile),
        _mixed(profile),
        _ranges(profile),
        _prefix_cache(profile),
        _drafts(profile),
        _sync(profile),
        _provenance(profile),
        _assumed(profile),
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


def _coefficient(e: EstimateFields) -> tuple[str, str]:
    return units.coefficient(e.value, e.ci_low, e.ci_high)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.2f}"


def _plain(x: float) -> str:
    """A count, with a decimal only where it has one (means of a window may be fractions)."""
    return f"{x:,.0f}" if x >= 100 or abs(x - round(x)) < 0.05 else f"{x:,.1f}"


def _thinned(items: Iterable[T], most: int) -> tuple[T, ...]:
    """At most `most` items, evenly spaced; the first and the last are among them."""
    items = tuple(items)
    if len(items) <= most:
        return items
    return tuple(items[i * (len(items) - 1) // (most - 1)] for i in range(most))


def _left_out(shown: int, there: int, what: str) -> str:
    return "" if shown == there else f"{shown} of {there} {what}; --json has all of them"


def _step_time(profile: Profile) -> Table:
    c = profile.coefficients
    knots = list(zip(c.knots_tokens, c.knots_s, strict=True))
    shown = _thinned(knots, _MOST_KNOTS)
    rows: list[tuple[str, ...]] = [(f"f at {units.plural(round(n), 'token')}", *_coefficient(s)) for n, s in shown]
    for name, estimate in (
        ("per decoding sequence", c.per_seq_s),
        ("per prefill token", c.per_prefill_token_s),
        ("per KV token read", c.per_kv_token_s),
        ("per query-key pair of prefill", c.per_attn_pair_s),
    ):
        if estimate.value > 0 or estimate.ci_high:
            rows.append((name, *_coefficient(estimate)))
    fit = profile.fit
    notes = [_left_out(len(shown), len(knots), "knots of f")]
    if fit is not None:
        notes.append(
            f"fitted to {fit.observations:,} durations, {fit.left_out:,} outliers left out; each load predicted by a "
            f"fit without it: median {units.share(fit.median)}, p90 {units.share(fit.p90)}"
        )
        if fit.overhead_s > 0:
            notes.append(f"a client's {units.seconds(fit.overhead_s)} per request are not part of it")
    headings: tuple[str, ...] = ("", "", "95 % interval")
    if not any(interval for *_, interval in rows):
        headings, rows = headings[:2], [row[:2] for row in rows]
    title = "an iteration takes f(tokens) + the sum of"
    return Table(title, headings, tuple(rows), note="; ".join(n for n in notes if n))


def _measured(row: PointRow) -> tuple[str, str, str]:
    return _ms(row.point.seconds), _ms(row.predicted_s), units.change(row.error)


def _decodes(profile: Profile) -> Table:
    every = [(context, row) for context, rows in by_context(rows_of(profile, "decode")) for row in rows]
    shown = _thinned(every, _MOST_DECODE_ROWS)
    rows, last = [], None
    for context, row in shown:
        told = "" if context == last else f"{context:,.0f}"
        last = context
        rows.append((told, _plain(row.point.decodes), *_measured(row), f"{row.tok_s:,.0f}"))
    return Table(
        "decoding: an iteration of so many sequences",
        ("context", "sequences", "measured ms", "predicted ms", "error", "tok/s"),
        tuple(rows),
        left=0,
        note=_left_out(len(shown), len(every), "points"),
    )


def _prompts(profile: Profile) -> Table:
    every = sorted(rows_of(profile, "prefill"), key=lambda r: (r.point.prefill_tokens, r.point.attn_pairs))
    shown = _thinned(every, _MOST_OTHER_ROWS)
    rows = tuple(
        (_plain(r.point.prefill_tokens), units.tokens(r.point.attn_pairs), *_measured(r), f"{r.tok_s:,.0f}")
        for r in shown
    )
    headings = ("prefill tokens", "pairs", "measured ms", "predicted ms", "error", "tok/s")
    note = _left_out(len(shown), len(every), "points")
    return Table("computing prompts: an iteration", headings, rows, left=0, note=note)


def _mixed(profile: Profile) -> Table:
    every = rows_of(profile, "mixed")
    shown = _thinned(every, _MOST_OTHER_ROWS)
    rows = tuple(
        (_plain(r.point.decodes), f"{r.context:,.0f}", _plain(r.point.prefill_tokens), *_measured(r)) for r in shown
    )
    headings = ("sequences", "context", "prefill tokens", "measured ms", "predicted ms", "error")
    note = _left_out(len(shown), len(every), "points")
    return Table("both at once: an iteration", headings, rows, left=0, note=note)


def _ranges(profile: Profile) -> Table:
    measured, limits = profile.ranges, profile.limits
    rows = [
        (name, f"{_plain(bounds[0])} to {_plain(bounds[1])}")
        for name, bounds in (
            ("decoding sequences", measured.decodes),
            ("KV tokens they read", measured.kv_tokens),
            ("prefill tokens of an iteration", measured.prefill_tokens),
        )
        if bounds is not None
    ]
    note = "" if rows else "no measured ranges are on record: nothing says where it holds"
    rows += [
        ("max_num_seqs", f"{limits.max_num_seqs:,}"),
        ("max_num_batched_tokens", f"{limits.max_num_batched_tokens:,}"),
        (
            "KV blocks",
            f"{limits.kv_blocks:,} of {limits.block_size} tokens: "
            f"{units.tokens(limits.kv_blocks * limits.block_size)} tokens",
        ),
    ]
    return Table("what was measured, and the engine's limits", ("", ""), tuple(rows), left=2, note=note)


def _prefix_cache(profile: Profile) -> Table:
    cache = profile.prefix_cache
    if cache is None:
        return Table("prefix cache", ("", ""), ())
    rows = [("prefix caching", "on" if cache.enabled else "off")]
    if cache.expected_tokens:
        share = cache.hit_tokens / cache.expected_tokens
        as_expected = "as expected" if abs(share - 1) < 0.005 else f"{units.share(share)} of what was expected"
        rows.append(("prompt tokens found", f"{cache.hit_tokens:,} ({as_expected})"))
    elif cache.hit_tokens:
        rows.append(("prompt tokens found", f"{cache.hit_tokens:,} (none expected)"))
    return Table("prefix cache on groups of siblings", ("", ""), tuple(rows), left=2)


def _drafts(profile: Profile) -> Table:
    found = profile.speculation
    if found is None:
        return Table("", ("",), ())
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


def _sync(profile: Profile) -> Table:
    s = profile.sync
    if s is None:
        return Table("weight sync", ("", ""), ())

    def rows() -> Iterator[tuple[str, str]]:
        for name, seconds in (
            ("pausing, requests kept", s.pause_s),
            ("resuming until the next tokens", s.resume_s),
            ("loading the weights, from the device", s.load_s),
            ("loading the weights, from the host", s.load_from_host_s),
        ):
            if seconds is not None:
                yield name, units.seconds(seconds)
        if s.model_bytes is not None:
            yield "weights", units.gib(s.model_bytes)
        for name, rate in (("host to device", s.host_bytes_s), ("between two GPUs", s.broadcast_bytes_s)):
            if rate is not None:
                yield name, f"{rate / 1e9:,.1f} GB/s"
        if s.slowdown is not None:
            yield "iterations during an update", f"{s.slowdown:.2f} times as long"

    return Table("weight sync", ("", ""), tuple(rows()), left=2)


def _provenance(profile: Profile) -> Table:
    p = profile.provenance
    count = f"{p.gpu_count} in the host" if p.gpu_count else ""
    rows = (
        ("GPU", ", ".join(t for t in (p.device, f"TP{p.tp}" if p.tp else "", count) if t)),
        ("model", " ".join(t for t in (p.model, p.dtype) if t)),
        ("engine", " ".join(t for t in (p.engine, p.engine_version) if t)),
        ("flags", ", ".join(p.flags)),
        ("driver, CUDA, PyTorch", ", ".join(t or "not known" for t in (p.driver, p.cuda, p.torch))),
        ("source", p.source),
        ("date", p.date),
        ("fleetsim", p.fleetsim_version),
        ("raw measurements", profile.raw or ""),
    )
    blank = "not known, not known, not known"
    return Table("where it comes from", ("", ""), tuple(r for r in rows if r[1] and r[1] != blank), left=2)


def _assumed(profile: Profile) -> Table:
    return Table("assumed: nothing measured says so", ("",), tuple((text,) for text in profile.provenance.assumed))

"""What a profile says, of itself, in a list of profiles, and when its kept-out batches are predicted anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetsim import units
from fleetsim.calibrate.known_profiles import ClientView, Drift, ListedProfile, Rechecked, clients_table, drift_of
from fleetsim.calibrate.pictures import charts
from fleetsim.calibrate.points import batch_words, opening
from fleetsim.calibrate.profile_tables import checks, sheets_of
from fleetsim.config.engine_profile import BatchCheck, Profile
from fleetsim.tell.characters import bar
from fleetsim.tell.document import Document, Section, Table, Under, Words

MEASURED, PREDICTED = "█", "▒"
_BAR_WIDTH = 40


def document(profile: Profile, give: str, seen: Sequence[ClientView] = ()) -> Document:
    """What `fleetsim profile show` says. give: how the user names the profile. seen: by clients of its server."""
    first, *others = sheets_of(profile)
    others = [*([clients_table(seen)] if seen else ()), *others]
    kept_out = (checks(profile),) if profile.checks else ()
    told = [Section(sheet.title, (sheet,), on=("terminal",)) for sheet in (first, *others)]
    if profile.checks:
        title = f"batches kept out of the fit ({MEASURED} measured, {PREDICTED} predicted)"
        told.insert(1, Section(title, tuple(_bars(profile.checks)), on=("terminal",)))
    return Document(
        kind="fleetsim profile show",
        title=profile.name,
        lede=opening(profile),
        tiles=(),
        warnings=(),
        sections=(
            Section("Measured and predicted", charts(profile), on=("page",)),
            Section("In numbers", (first, *kept_out, *others), on=("page",)),
            *told,
            Section("next", tuple(Words(c, strong=True) for c in _next(profile, give)), on=("terminal",)),
        ),
    )


def _bars(kept_out: Sequence[BatchCheck]) -> Iterator[Under]:
    """Each kept-out batch: its makespan measured and predicted as bars, its errors in words."""
    longest = max(max(c.makespan_s, c.predicted_s) for c in kept_out)
    for check in kept_out:
        rows = tuple(
            (name, f"{seconds:,.1f} s", bar([(1.0, character)], round(_BAR_WIDTH * seconds / (longest or 1.0))))
            for name, seconds, character in (
                ("measured", check.makespan_s, MEASURED),
                ("predicted", check.predicted_s, PREDICTED),
            )
        )
        table = Table("", ("", "", ""), rows, words_last=1)
        yield Under(check.name, (table, Words(tail=batch_words(check))))


def _next(profile: Profile, give: str) -> Iterator[str]:
    yield f"fleetsim size --batch 512 --len 1536 --profile {give}"
    if profile.checks and profile.raw is not None:
        yield f"fleetsim profile check {give}"
    yield f"fleetsim profile show {give} --html profile.html"


def checked_document(profile: Profile, checked: Sequence[Rechecked], limit: float) -> Document:
    """What `fleetsim profile check` says."""
    failed = sum(not one.passed for one in checked)
    batches = units.plural(len(checked), "kept-out batch")
    held = f"all of {batches}" if not failed else f"{len(checked) - failed} of {batches}"
    rows = tuple(
        (
            one.now.name,
            f"{one.now.makespan_s:,.1f} s",
            f"{one.now.predicted_s:,.1f} s",
            units.change(one.now.makespan_error),
            "" if one.stored is None else units.change(one.stored.makespan_error),
            units.share(one.now.finish_error_median),
            "ok" if one.passed else "above",
        )
        for one in checked
    )
    table = Table(
        "",
        ("batch", "measured", "predicted", "makespan", "stored", "finish", ""),
        rows,
        words_last=1,
        marked=frozenset(i for i, one in enumerate(checked) if not one.passed),
    )
    return Document(
        kind="fleetsim profile check",
        title=f"{profile.name}: {held} predicted within {units.share(limit)}",
        lede=(drift_words(drift_of(checked)),),
        tiles=(),
        warnings=(),
        sections=(Section("errors: of the makespan, as stored, of the finish times (median)", (table,)),),
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


def list_lines(listed: Sequence[ListedProfile]) -> list[str]:
    """A line for every profile, never broken: what --profile takes, and what it is."""
    rows = [("profile", "GPU", "model", "TP", "engine", "date", "error"), *map(_summary, listed)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def _summary(one: ListedProfile) -> tuple[str, ...]:
    p, error = one.profile.provenance, one.profile.error.median
    engine = f"{p.engine} {p.engine_version}".strip()
    return (
        one.give,
        p.gpu.removeprefix("NVIDIA ") or "?",
        p.model.rstrip("/").rpartition("/")[2] or "?",
        str(p.tp or "?"),
        engine if one.profile.kind == "measured" else f"derived from {p.source or engine or '?'}",
        p.date,
        "?" if error is None else units.share(error),
    )

from __future__ import annotations

import importlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from fleetsim.calibrate.facts import document
from fleetsim.config.engine_profile import Profile
from fleetsim.errors import OutsideError
from fleetsim.tell.charts.axes import log_axis
from fleetsim.tell.charts.chart import SHADES, Chart, ChartSeries, Plot, RowMark, Rows, shade
from fleetsim.tell.document import Document, charts_of
from fleetsim.tell.page import document_page
from tests import profiles

pytest.importorskip("jinja2", reason='the pages need pip install "fleetsim[report]"')

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """A page without its scripts: tags in balance, what it refers to, its words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.words.append(data)


def written(profile: Profile) -> str:
    return document_page(document(profile, "mine.profile.json"))


def page(profile: Profile) -> Page:
    return Page(written(profile))


def charts_in(document: Document) -> dict[str, Chart]:
    """The charts of a document's page, by id."""
    return {c.id: c for _, blocks in document.shown("page") for c in charts_of(blocks)}


def series_of(chart: Chart) -> list[ChartSeries]:
    """Of all its panels."""
    assert isinstance(chart.points, Plot)
    return [one for panel in chart.points.panels for one in panel.series]


def named(chart: Chart, name: str) -> ChartSeries:
    """The first series of a name."""
    return next(one for one in series_of(chart) if one.name == name)


def marks_of(chart: Chart, key: str = "") -> list[RowMark]:
    """Of all its rows, of one key if one is given."""
    assert isinstance(chart.points, Rows)
    return [mark for row in chart.points.rows for mark in row.marks if key in ("", mark.key)]


def asks(page: str) -> list[str]:
    """What a page would ask of others. A pattern of its own drawing is not."""
    own = page.replace('"http://www.w3.org/2000/svg"', "")
    return re.findall(r"https?://|@import|url\((?!#)|fetch\(|XMLHttpRequest", own)


def test_it_is_one_file_that_asks_nobody() -> None:
    text = written(profiles.profile())
    made = Page(text)
    assert made.wrong == []
    assert made.open == []
    for tag, attributes in made.tags:
        assert not {"src", "href", "srcset", "action"} & attributes.keys(), tag
    policy = next(a["content"] for t, a in made.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert len(text) < 120_000
    assert asks(text) == []


def test_words_come_first_and_say_how_good_it_is() -> None:
    words = " ".join(" ".join(page(profiles.profile()).words).split())
    start = words.index("Measured on 2026-11-20")
    assert start < words.index("makespan off by 1.7 %") < words.index("Batches kept out of the fit")
    for told in ("36 of 36 lie within 5 %", "Up to 54,", "pausing, requests kept", "95 % interval"):
        assert told in words


def test_the_same_profile_gives_the_same_bytes() -> None:
    assert written(profiles.profile()) == written(profiles.profile())


def test_pictures_hold_the_numbers_of_the_profile() -> None:
    profile = profiles.profile()
    found = charts_in(document(profile, "mine.profile.json"))
    assert found.keys() == {"batches", "decodes", "prompts", "errors"}
    assert [m.value for m in marks_of(found["batches"], "measured")] == [c.makespan_s for c in profile.checks]
    assert [m.value for m in marks_of(found["batches"], "predicted")] == [c.predicted_s for c in profile.checks]
    points = [one for one in series_of(found["decodes"]) if one.kind == "dots"]
    assert [p.name.split()[0] for p in points] == ["128", "1,024", "4,096", "16,384", "32,768"]
    ms = sorted(y for one in points for y in one.y)
    assert ms == pytest.approx(sorted(1e3 * p.seconds for p in profile.points if p.kind == "decode"))
    assert sum(len(one.y) for one in series_of(found["errors"])) == len(profile.points)


def test_nothing_is_told_by_colour_alone() -> None:
    found = charts_in(document(profiles.profile(), "mine.profile.json"))
    for name in ("decodes", "prompts", "errors"):
        symbols = [one.look.symbol for one in series_of(found[name]) if one.kind == "dots"]
        assert len(set(symbols)) == len(symbols)
    assert isinstance(found["batches"].points, Rows)
    assert len({look.pattern for _, look in found["batches"].points.looks.values()}) == 2


def test_every_colour_has_a_name_in_both_lights() -> None:
    text = written(profiles.profile())
    used = set(re.findall(r'class="[^"]*\bc-([a-z0-9-]+)', text))
    light, dark = text.split("prefers-color-scheme: dark", 1)
    for name in used | {f"shade-{i}" for i in range(1, SHADES + 1)}:
        assert f"--{name}: #" in light
        assert f"--{name}: #" in dark.split("</style>")[0]
        assert f".c-{name} " in text


def test_hostile_names_stay_words() -> None:
    bad = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'
    hostile = profiles.profile(
        name=bad,
        provenance=profiles.provenance(gpu=bad, model=bad, flags=[bad], assumed=[bad]),
        checks=[profiles.check(bad, 49.0, -0.017, 0.011)],
    )
    made = page(hostile)
    assert made.wrong == []
    assert not any(tag == "img" for tag, _ in made.tags)
    assert sum(tag == "script" for tag, _ in made.tags) == 1
    assert bad in made.words


@pytest.mark.parametrize(
    "changes",
    [
        profiles.estimate(),
        {"points": None, "checks": None},
        {"points": [{"kind": "decode", "decodes": 4, "kv_tokens": 400, "seconds": 0.01}]},
        {"points": [{"kind": "prefill", "decodes": 0, "prefill_tokens": 512, "seconds": 0.01}]},
        {"points": [{"kind": "decode", "decodes": 0, "seconds": 0.0}]},
        {"checks": [profiles.check("same", 1e-4, 0.0, 0.0), profiles.check("same", 1e4, 2.0, 9.0)]},
    ],
)
def test_a_profile_that_has_less_shows_less(changes: dict[str, Any]) -> None:
    profile = profiles.profile(**changes)
    made = page(profile)
    assert made.wrong == []
    charts = {a["id"] for t, a in made.tags if t == "figure"}
    assert charts == charts_in(document(profile, "mine.profile.json")).keys()


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name == "jinja2":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(OutsideError, match=r"needs jinja2; install it: pip install 'fleetsim\[report\]'"):
        written(profiles.profile())


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (1.0, 1024.0), (5.5, 33.0), (1e-3, 1e5), (128.0, 16384.0)])
def test_a_logarithmic_axis_has_ticks_inside_its_range(low: float, high: float) -> None:
    made = log_axis("x", low, high)
    assert made.low < low <= high < made.high
    inside = made.marks()
    assert 1 <= len(inside) <= 12
    assert high == low or len(inside) >= 3
    assert all(0 <= share <= 1 for share, _ in inside)


def test_shades_go_from_the_palest_to_the_strongest() -> None:
    assert [shade(i, 3) for i in range(3)] == ["shade-1", "shade-3", "shade-6"]
    assert shade(0, 1) == f"shade-{SHADES}"

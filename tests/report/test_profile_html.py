from __future__ import annotations

import importlib
import json
import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from fleetsim.calibrate.told import document
from fleetsim.config.engine_profile import Profile
from fleetsim.errors import OutsideError
from fleetsim.tell.charts.chart import SHADES, log_axis, shade
from fleetsim.tell.page import document_page
from tests import profiles

pytest.importorskip("jinja2", reason='the pages need pip install "fleetsim[report]"')
pytest.importorskip("plotly", reason='the pages need pip install "fleetsim[report]"')

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """A page without its scripts: tags in balance, what it refers to, its words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.data: dict[str, Any] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            if self.tags[-1][1].get("id") == "figures":
                self.data = json.loads(data)
        elif not self.open or self.open[-1] != "style":
            self.words.append(data)


def written(profile: Profile) -> str:
    return document_page(document(profile, "mine.profile.json"))


def page(profile: Profile) -> Page:
    return Page(written(profile))


def without_plotly(text: str) -> str:
    return re.sub(r"<script>/\*\*.*?</script>", "", text, flags=re.DOTALL)


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
    own = without_plotly(text)
    assert len(own) < 200_000
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest", own)


def test_words_come_first_and_say_how_good_it_is() -> None:
    words = " ".join(" ".join(page(profiles.profile()).words).split())
    start = words.index("Measured on 2026-11-20")
    assert start < words.index("makespan off by 1.7 %") < words.index("Batches kept out of the fit")
    for told in ("36 of 36 lie within 5 %", "Up to 54,", "pausing, requests kept", "95 % interval"):
        assert told in words


def test_the_same_profile_gives_the_same_bytes() -> None:
    assert written(profiles.profile()) == written(profiles.profile())


def test_figures_are_what_plotly_understands() -> None:
    graph_objects = importlib.import_module("plotly.graph_objects")
    figures = page(profiles.profile()).data
    assert figures.keys() == {"batches", "decodes", "prompts", "errors"}
    for figure in figures.values():
        graph_objects.Figure(figure)  # raises on unknown keys and values


def test_pictures_hold_the_numbers_of_the_profile() -> None:
    profile = profiles.profile()
    figures = page(profile).data
    measured, predicted = figures["batches"]["data"]
    assert measured["x"] == [c.makespan_s for c in profile.checks]
    assert predicted["x"] == [c.predicted_s for c in profile.checks]
    points = [t for t in figures["decodes"]["data"] if t["mode"] == "markers"]
    assert [t["name"] for t in points] == ["128", "1,024", "4,096", "16,384", "32,768"]
    ms = sorted(y for t in points for y in t["y"])
    assert ms == pytest.approx(sorted(1e3 * p.seconds for p in profile.points if p.kind == "decode"))
    errors = [y for t in figures["errors"]["data"] for y in t["y"]]
    assert len(errors) == len(profile.points)


def test_nothing_is_told_by_colour_alone() -> None:
    figures = page(profiles.profile()).data
    decodes = [t for t in figures["decodes"]["data"] if t["mode"] == "markers"]
    assert len({t["marker"]["symbol"] for t in decodes}) == len(decodes)
    patterns = {t["marker"]["pattern"]["shape"] for t in figures["batches"]["data"]}
    assert len(patterns) == 2
    for name in ("prompts", "errors"):
        symbols = [t["marker"]["symbol"] for t in figures[name]["data"]]
        assert len(set(symbols)) == len(symbols)


def test_every_colour_has_a_name_in_both_lights() -> None:
    text = without_plotly(written(profiles.profile()))
    figures = Page(text).data
    used = {t["meta"]["colour"] for figure in figures.values() for t in figure["data"]}
    used |= set(re.findall(r'colour\("([a-z]+)"\)', text))
    light, dark = text.split("prefers-color-scheme: dark", 1)
    for name in used | {f"shade-{i}" for i in range(1, SHADES + 1)}:
        assert f"--{name}: #" in light
        assert f"--{name}: #" in dark.split("</style>")[0]


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
    assert sum(tag == "script" for tag, _ in made.tags) == 3
    names = made.data["batches"]["layout"]["annotations"][0]["text"]
    assert "<script" not in names
    assert "<img" not in names


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
    graph_objects = importlib.import_module("plotly.graph_objects")
    made = page(profiles.profile(**changes))
    assert made.wrong == []
    for figure in made.data.values():
        graph_objects.Figure(figure)
    charts = {a["id"] for t, a in made.tags if t == "figure"}
    assert charts == made.data.keys()


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name.startswith("plotly"):
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(OutsideError, match=r"needs plotly; install it: pip install 'fleetsim\[report\]'"):
        written(profiles.profile())


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (1.0, 1024.0), (5.5, 33.0), (1e-3, 1e5), (128.0, 16384.0)])
def test_a_logarithmic_axis_has_ticks_inside_its_range(low: float, high: float) -> None:
    made = log_axis("x", low, high)
    assert made["range"][0] < made["range"][1]
    inside = [t for t in made["tickvals"] if made["range"][0] <= math.log10(t) <= made["range"][1]]
    assert 1 <= len(inside) <= 14
    assert high == low or len(inside) >= 3
    assert len(made["ticktext"]) == len(made["tickvals"])


def test_shades_go_from_the_palest_to_the_strongest() -> None:
    assert [shade(i, 3) for i in range(3)] == ["shade-1", "shade-3", "shade-6"]
    assert shade(0, 1) == f"shade-{SHADES}"

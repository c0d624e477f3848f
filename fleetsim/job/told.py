"""A job in a notebook: its name, what somebody said of it, and what is assumed because nobody did."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from fleetsim.config.paths import value_at
from fleetsim.config.scenario import Scenario
from fleetsim.faces import in_python
from fleetsim.job.assumptions import assumptions_of, short
from fleetsim.job.grounds import assumption_list
from fleetsim.job.observations import observed_section
from fleetsim.job.scenario_words import pool_words
from fleetsim.job.words import THEMES
from fleetsim.tell.document import Document, Listed, Section

_TITLE = ("schema_version", "name", "description", "assumed", "observed")


def document(scenario: Scenario, given: Collection[str], notes: Sequence[str]) -> Document:
    """given: dotted paths. notes: what is odd about them."""
    s = scenario
    assumed = [
        replace(a, text=in_python(a.text), flag=a.flag if a.flag.startswith("--set") else in_python(a.flag))
        for a in assumptions_of(s, given)
    ]
    said = tuple(_said(s, given))
    sections = (
        Section("given", (Listed(said),) if said else ()),
        observed_section(s),
        Section("assumed (and the keywords that change it)", (assumption_list(assumed, THEMES),) if assumed else ()),
        Section("notes", tuple(notes)),
    )
    lede = (s.description.strip(),) if s.description else ()
    return Document("fleetsim", f"{s.name}: {pool_words(s)}", lede, (), (), sections)


def _said(scenario: Scenario, given: Collection[str]) -> Iterator[tuple[str, str]]:
    """Paths and values, without those of a section that another choice has taken away."""
    for path in sorted(path for path in given if path.partition(".")[0] not in _TITLE):
        try:
            yield path, short(value_at(scenario, path))
        except AttributeError:
            continue

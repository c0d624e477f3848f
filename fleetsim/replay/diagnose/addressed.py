"""What to do next, with every command as one that repeats the call at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleetsim.replay.diagnose.finding import Verdict
from fleetsim.tell.next_lines import resolved


def addressed(verdict: Verdict, call: Sequence[str]) -> Verdict:
    """The verdict with every next command as one that repeats this call: `fleetsim replay` and its own words."""
    findings = (f if f.next is None else replace(f, next=resolved(f.next, call)) for f in verdict.findings)
    return replace(verdict, findings=tuple(findings))

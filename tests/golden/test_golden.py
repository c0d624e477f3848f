"""Every command says what its goldens say: words exactly, figures to a millionth or the last digit shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetsim.alerts import rehearsal
from tests.golden.calls import CALLS, COMMANDS, chosen
from tests.golden.run import Workshop
from tests.golden.said import alike, differs, golden, told, unkept
from tests.once import rehearse_once, simulated_once

HOW = """
python -m tests.golden.check {0}    compares again, to the last digit
python -m tests.golden.write {0}    if it is meant: writes the goldens anew; say so in the commit"""


@pytest.mark.parts
@pytest.mark.parametrize("command", COMMANDS)
def test_says_what_it_said(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "rehearse", rehearse_once)
    workshop, found, names = Workshop(tmp_path), [], []
    with simulated_once():
        for call in chosen([command]):
            now, kept = told(call, workshop), golden(call.name)
            if not kept.exists() or not alike(kept.read_text(encoding="utf-8"), now):
                found.append(differs(call.name, now))
                names.append(call.name)
    if found:
        pytest.fail("\n\n".join([*found, HOW.format(" ".join(names))]), pytrace=False)


def test_each_golden_has_its_call() -> None:
    assert unkept() == []
    assert len({call.name for call in CALLS}) == len(CALLS)


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ("step 12.5 s", "step 12.6 s", True),
        ("step 12.5 s", "step 12.7 s", False),
        ("12.5 steps", "12.5 step", False),
        ("1,234 tokens", "1,235 tokens", False),
        ("sum 1234567.25", "sum 1234567.2500001", True),
        ("sum 1.25e-07", "sum 1.27e-07", False),
        ("v1 of 3", "v2 of 3", False),
        ("instances: 3", "instances: 4", False),
    ],
)
def test_what_counts_as_the_same(before: str, now: str, same: bool) -> None:
    assert alike(before, now) is same

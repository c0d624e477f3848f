"""The script of a user runs; what the types refuse in it is refused when it runs, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fleetsim as fs
from tests.api.user_script import MISTAKES, decide


@pytest.mark.slow
def test_it_runs_from_end_to_end(tmp_path: Path) -> None:
    assert decide(tmp_path)["fleet.instances"] == 7
    assert {"steps.parquet", "samples.parquet", "history.om", "job.yaml"} <= {p.name for p in tmp_path.iterdir()}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_the_types_refuse_is_refused_with_a_remedy(mistake: Callable[[], object]) -> None:
    with pytest.raises(fs.InputError) as caught:
        mistake()
    assert all(p.rule and p.remedy for p in caught.value.problems)

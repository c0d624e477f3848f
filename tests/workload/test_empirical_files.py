"""Measured lengths from files."""

from __future__ import annotations

import builtins
import importlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetsim.config.workload import Empirical
from fleetsim.errors import InputError, OutsideError
from fleetsim.workload.empirical import measured_values
from fleetsim.workload.lengths import mean_length, quantile_length, sample_lengths

VALUES = [5, 1, 9, 100, 7]


def written(folder: Path, ending: str, values: list[Any] | None = None) -> Empirical:
    values = VALUES if values is None else values
    path = folder / f"lengths{ending}"
    if ending == ".csv":
        path.write_text("id,tokens\n" + "".join(f"{i},{v}\n" for i, v in enumerate(values)))
    elif ending == ".jsonl":
        path.write_text("\n".join(json.dumps({"id": i, "tokens": v}) for i, v in enumerate(values)) + "\n\n")
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"id": list(range(len(values))), "tokens": values}), path)
    return Empirical(file=str(path), column="tokens")


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_values_are_read_and_drawn_again(tmp_path: Path, ending: str) -> None:
    law = written(tmp_path, ending)
    assert measured_values(law).tolist() == sorted(VALUES)
    x = sample_lengths(law, np.random.default_rng(1), 50_000)
    assert set(x.tolist()) == set(VALUES)
    for value in VALUES:
        assert np.mean(x == value) == pytest.approx(0.2, abs=4 * (0.2 * 0.8 / 50_000) ** 0.5)
    assert mean_length(law) == pytest.approx(24.4)
    capped = law.model_copy(update={"max": 10.0})
    assert mean_length(capped) == pytest.approx(6.4)
    assert sample_lengths(capped, np.random.default_rng(1), 1000).max() == 10
    assert quantile_length(law, 0.5) == 7
    assert (quantile_length(law, 0.0), quantile_length(law, 1.0)) == (1, 100)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_a_missing_column_names_a_near_one(tmp_path: Path, ending: str) -> None:
    law = written(tmp_path, ending).model_copy(update={"column": "token"})
    with pytest.raises(InputError, match=r"did you mean .tokens."):
        measured_values(law)


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
@pytest.mark.parametrize("wrong", ["x", "", "nan", "inf", -1, "1_000", True, 10**400], ids=str)
def test_wrong_values_are_refused_with_their_row(tmp_path: Path, ending: str, wrong: object) -> None:
    with pytest.raises(InputError) as caught:
        measured_values(written(tmp_path, ending, [3, wrong, wrong, 4]))
    assert len(caught.value.problems) == 2
    assert caught.value.problems[0].path.endswith(":3" if ending == ".csv" else ":2")


def test_wrong_parquet_values(tmp_path: Path) -> None:
    for values in ([1.0, None], [1.0, float("nan")], ["a", "b"], [True, False], [-1, 2]):
        with pytest.raises(InputError):
            measured_values(written(tmp_path, ".parquet", values))


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_no_values(tmp_path: Path, ending: str) -> None:
    with pytest.raises(InputError, match="no values"):
        measured_values(written(tmp_path, ending, []))


def test_short_and_broken_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,tokens\n1\n2,3\n")
    with pytest.raises(InputError, match=r"a.csv:2"):
        measured_values(Empirical(file=str(tmp_path / "a.csv"), column="tokens"))
    for line in ("[1]", "{", "[" * 100_000, '{"tokens": NaN}', '{"id": 3}'):
        (tmp_path / "a.jsonl").write_text('{"tokens": 1}\n' + line)
        with pytest.raises(InputError):
            measured_values(Empirical(file=str(tmp_path / "a.jsonl"), column="tokens"))


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_what_is_no_such_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    law = Empirical(file=str(path), column="tokens")
    with pytest.raises(InputError, match="No such file"):
        measured_values(law)
    path.mkdir()
    with pytest.raises(InputError, match="no regular file"):
        measured_values(law)
    path.rmdir()
    path.write_bytes(b"\x80\x00\xff" * 100)
    with pytest.raises(InputError):
        measured_values(law)
    os.truncate(path, 2**30)
    with pytest.raises(InputError, match="too big"):
        measured_values(law)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    assert len(measured_values(written(tmp_path, ".csv"))) == 5
    assert measured_values(written(tmp_path, ".csv", [1, 2])).tolist() == [1, 2]


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")

    def missing(name: str, package: str | None = None) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(OutsideError, match=r"fleetsim\[parquet\]"):
        measured_values(Empirical(file=str(tmp_path / "a.parquet"), column="x"))


@given(content=st.binary(max_size=200), ending=st.sampled_from([".csv", ".jsonl", ".parquet"]))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_content_gives_values_or_an_input_error(tmp_path: Path, content: bytes, ending: str) -> None:
    path = tmp_path / f"fuzz{ending}"
    path.write_bytes(b"tokens\n" + content if ending == ".csv" else content)
    try:
        assert len(measured_values(Empirical(file=str(path), column="tokens"))) > 0
    except InputError as error:
        assert error.problems


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    law = written(tmp_path, ".csv")

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(builtins, "open", refuse)  # chmod does not stop root
    with pytest.raises(InputError, match="Permission denied"):
        measured_values(law)

"""Loading scenario files: every way in which a file can be wrong, and the way back to text."""

from __future__ import annotations

import os
import re
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetsim.config import Scenario, default_scenario, dump_scenario, load_scenario, scenario_from_mapping
from fleetsim.config.data_files import shipped_scenarios
from fleetsim.config.load import dump_short
from fleetsim.config.yaml_text import from_yaml
from fleetsim.errors import InputError


def refusal(path: Path | str) -> str:
    with pytest.raises(InputError) as caught:
        load_scenario(path)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_file_loads(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("\ufefffleet: {instances: 3}  # three\nrun:\n  # steps: 5\n", encoding="utf-8")
    s = load_scenario(tmp_path / "s.yaml", ["fleet.instances=4", "fleet.instances=5", "trainer.fixed_s=1e1"])
    assert (s.fleet.instances, s.trainer.fixed_s) == (5, 10.0)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"# only a comment\n", "no YAML document"),
        (b"\x89PNG\r\n\x1a\n\0\0", "not UTF-8"),
        (b"name: a\0b", "binary"),
        (b"- 1\n- 2\n", "mapping of sections"),
        (b"hello", "mapping of sections"),
        (b"null", "mapping of sections"),
        ("name: ä".encode("utf-16"), "not UTF-8"),
    ],
)
def test_wrong_content(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "s.yaml").write_bytes(content)
    assert text in refusal(tmp_path / "s.yaml")


def test_a_gigabyte_is_refused_without_reading_it(tmp_path: Path) -> None:
    big = tmp_path / "big.yaml"
    big.touch()
    os.truncate(big, 2**30)
    tracemalloc.start()
    assert "too big" in refusal(big)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10e6


@pytest.mark.parametrize(
    "content",
    [
        "".join(f"k{i}: 1\n" for i in range(24_000)),
        "a: 1\n" * 24_000,
        "fleet: {speed_factors: [" + "x," * 24_000 + "]}",
        "fleet: {routing: " + "round" * 700_000 + "}",
        "a: " + "1" * 4_000_000,
    ],
    ids=["unknown keys", "duplicates", "wrong items", "long word", "long number"],
)
def test_files_of_another_kind_are_refused_briefly(tmp_path: Path, content: str) -> None:
    (tmp_path / "s.yaml").write_text(content)
    start = time.process_time()
    assert len(refusal(tmp_path / "s.yaml").splitlines()) <= 101
    assert time.process_time() - start < 20.0  # 1 s where it was written; minutes without the limits


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"fleetsim_version": "0.1.0", "command": "size", "scenario": {}}', "is the result of `fleetsim size`, not a"),
        ("groups: []\nrules_x: x\n", "is not a scenario: none of its keys (groups, rules_x) belongs"),
    ],
)
def test_another_document_is_one_problem(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "other.yaml").write_text(content)
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        load_scenario(tmp_path / "other.yaml")
    assert len(caught.value.problems) == 1


def test_a_misspelt_section_is_still_named(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("workloads: {group_size: 8}\n")
    with pytest.raises(InputError, match='did you mean "workload"'):
        load_scenario(tmp_path / "job.yaml")


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "is a directory" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "missing.yaml")
    assert "no such file" in refusal("")
    assert "no such file" in refusal("a\0b")
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in refusal(tmp_path / "pipe")
    (tmp_path / "dangling.yaml").symlink_to(tmp_path / "nowhere")
    assert "no such file" in refusal(tmp_path / "dangling.yaml")


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.yaml").write_text("name: x")

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    # chmod does not stop root, under which containers run the tests
    monkeypatch.setattr(Path, "open", refuse)
    assert "Permission denied" in refusal(tmp_path / "s.yaml")


def test_file_and_override_problems_come_together(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("fleet: {instances: -1}\n")
    with pytest.raises(InputError) as caught:
        load_scenario(tmp_path / "s.yaml", ["fleet.instance=3", "nonsense", "trainer.fixed_s=[1"])
    assert len(caught.value.problems) == 4


lengths = st.one_of(
    st.integers(1, 10_000),
    st.builds(lambda m, c: {"kind": "lognormal", "mean": m, "cv": c}, st.floats(1, 1e4), st.floats(0.1, 3)),
    st.builds(
        lambda m, f, c: {"kind": "lognormal", "median": m, "p99": m * f, "max": c},
        st.floats(1, 1e4), st.floats(1.1, 50), st.floats(1, 1e5),
    ),
    st.builds(lambda m, c: {"kind": "gamma", "mean": m, "cv": c, "max": 1e5}, st.floats(1, 1e4), st.floats(0.1, 3)),
    st.builds(
        lambda w, c: {"le": [sum(w[: i + 1]) for i in range(len(w))], "count": c[: len(w)]},
        st.lists(st.integers(1, 99), min_size=1, max_size=5),
        st.lists(st.integers(1, 99), min_size=5, max_size=5),
    ),
)  # fmt: skip
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
scenarios = st.builds(
    lambda name, note, out, group, k, share, cap, kind, phases, events, published: {
        "name": name,
        "description": note,
        "workload": {"output_tokens": out, "group_size": group, "filter": {"zero_variance_share": share}},
        "trainer": {
            "batch_samples": group * k,
            "phases": [{"name": f"p{i}", "fixed_s": s} for i, s in enumerate(phases)],
        },
        "fleet": {"max_in_flight_samples": cap, "instances": k},
        "sync": {"in_flight": kind},
        "run": {"events": [{"step": s, "instances": 1 + s} for s in sorted(events)]},
        "published": published,
    },
    text, text, lengths, st.integers(1, 64), st.integers(1, 64), st.floats(0, 0.9), st.none() | st.integers(1, 999),
    st.sampled_from(["drain", "abort_discard", "abort_resume", "keep", "keep_recompute", "finish_on_old_weights"]),
    st.lists(st.floats(0, 100), max_size=3), st.lists(st.integers(0, 99), max_size=3),
    st.none() | st.builds(lambda s, n: {"step_s": s, "note": n}, st.floats(0.1, 1e4), text),
)  # fmt: skip


@given(scenarios)
@settings(max_examples=60, deadline=None)
def test_a_dumped_scenario_loads_back_equal(mapping: dict[str, object]) -> None:
    s = scenario_from_mapping(mapping)
    again = scenario_from_mapping(from_yaml(dump_scenario(s), "dump"))
    assert again == s
    assert dump_scenario(again) == dump_scenario(s)


def paths_of(value: object) -> list[list[object]]:
    below: list[tuple[object, object]] = []
    if isinstance(value, dict):
        below = list(value.items())
    elif isinstance(value, list):
        below = list(enumerate(value))
    return [[], *([key, *rest] for key, inner in below for rest in paths_of(inner))]


junk: st.SearchStrategy[object] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.builds(list), st.builds(dict),
    st.lists(st.integers() | st.text(max_size=3), max_size=3), st.just(10**400),
    st.builds(lambda: {"kind": "lognormal"}),
    st.dictionaries(
        st.sampled_from(["kind", "mean", "value", "file", "column", "le", "step"]), st.integers(-1, 3), max_size=3
    ),
)  # fmt: skip


@given(scenarios, st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_mutation_gives_a_scenario_or_an_input_error(mapping: dict[str, object], data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        *above, last = data.draw(st.sampled_from([p for p in paths_of(mapping) if p]))
        here: Any = mapping
        for key in above:
            here = here[key]
        if isinstance(here, dict) and data.draw(st.booleans()):
            here[data.draw(st.text(max_size=4) | st.sampled_from(["kind", "mean", "instances"]))] = data.draw(junk)
        else:
            here[last] = data.draw(junk)
    try:
        assert isinstance(scenario_from_mapping(mapping), Scenario)
    except InputError as error:
        assert error.problems
        assert all(p.path and p.rule and p.remedy for p in error.problems), error


@given(st.recursive(junk, lambda b: st.lists(b, max_size=3) | st.dictionaries(
    st.sampled_from(["workload", "fleet", "run", "events", "turns", "prompt_tokens", "published", "x"]), b, max_size=4
), max_leaves=10))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_any_nesting_gives_a_scenario_or_an_input_error(value: object) -> None:
    try:
        scenario_from_mapping(value)  # type: ignore[arg-type]
    except InputError as error:
        assert str(error)


def test_the_default_dump_is_readable() -> None:
    dumped = dump_scenario(default_scenario())
    assert "prompt_tokens: 512\n" in dumped
    assert "output_tokens: {kind: lognormal, mean: 1536.0, cv: 1.0, max: 8192.0}\n" in dumped


def test_a_short_file_has_what_differs_and_what_was_said() -> None:
    scenario = scenario_from_mapping({"fleet": {"instances": 12}, "engine": {"tp": 2}, "trainer": {"fixed_s": 20.0}})
    short = dump_short(scenario, ("trainer.fixed_s", "workload.turns"))
    kept = from_yaml(short, "short")
    assert kept["fleet"] == {"instances": 12}
    assert kept["trainer"] == {"fixed_s": 20.0}
    assert kept["workload"].keys() == {"turns"}
    assert "sync" not in kept
    assert scenario_from_mapping(kept) == scenario


@pytest.mark.parametrize("name", sorted(shipped_scenarios()))
def test_every_short_file_loads_to_an_equal_scenario(name: str) -> None:
    scenario = load_scenario(name)
    short = dump_short(scenario)
    assert scenario_from_mapping(from_yaml(short, name)) == scenario
    assert len(short) < len(dump_scenario(scenario))


@pytest.mark.parametrize("written", ["../ckpt/", "./../ckpt", "../ckpt/config.json"])
def test_a_checkpoint_is_looked_for_from_the_folder_of_the_scenario(written: str, tmp_path: Path) -> None:
    checkpoint, jobs = tmp_path / "ckpt", tmp_path / "jobs"
    for folder in (checkpoint, jobs):
        folder.mkdir()
    (checkpoint / "config.json").write_text("{}")
    (jobs / "job.yaml").write_text(f"engine: {{model: {written}}}\n")
    found = Path(load_scenario(jobs / "job.yaml").engine.model)
    assert found.is_absolute()
    assert (found if found.is_dir() else found.parent) == checkpoint

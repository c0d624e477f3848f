"""What `calibrate` is asked for, and where its files lie: wrong requests end before anything is measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleetsim.calibrate.ask import Calibrate, places_of, prepare, slug
from fleetsim.calibrate.raw import compress
from fleetsim.errors import InputError


def ask(**given: Any) -> Calibrate:
    return Calibrate(**{"model": "Qwen/Qwen2.5-7B", **given}).ready()


def test_the_defaults() -> None:
    r = ask()
    assert (r.source, r.seconds, r.places.profile.name) == ("vllm", 600.0, "qwen2.5-7b.profile.json")
    assert r.places.raw.name == "qwen2.5-7b.raw.jsonl"
    assert ask(quick=True).seconds == 120.0
    assert ask(tp=2).places.profile.name == "qwen2.5-7b-tp2.profile.json"
    assert ask(model=None, url="http://h:8000/v1").places.profile.name == "h-8000.profile.json"
    assert ask(model=None, from_=["x/bench-1.json"]).places.profile.name == "bench-1.profile.json"


def test_engine_arguments_are_json_or_text() -> None:
    args = ask(engine_arg=["enforce_eager=true", "--kv-cache-dtype=fp8", "n=3", "x=a=b", "y=None"]).engine_args
    assert args == {"enforce_eager": True, "kv_cache_dtype": "fp8", "n": 3, "x": "a=b", "y": None}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": None}, "one of --model"),
        ({"url": "http://a", "from_": ["b"]}, "one of --url and --from"),
        ({"engine": "sglang"}, "only vllm runs in process"),
        ({"gpu": "H100"}, "is for --url and --from"),
        ({"url": "http://a", "engine_arg": ["a=1"]}, "engine in process"),
        ({"from_": ["a"], "resume": True}, "nothing is measured"),
        ({"engine_arg": ["novalue"]}, "key=value"),
        ({"budget_s": 1.0}, "10 to 86400"),
        ({"budget_s": float("nan")}, "10 to 86400"),
        ({"tp": 0}, "integer >= 1"),
        ({"model": "./nowhere"}, "no such folder"),
        ({"gpu_memory_utilization": 1.5}, "share in"),
        ({"output": "x.yaml"}, "no name for a profile"),
        ({"output": "nowhere/x.json"}, "folder does not exist"),
    ],
)
def test_wrong_requests(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ask(**given)


def test_all_problems_at_once() -> None:
    with pytest.raises(InputError) as caught:
        ask(model=None, tp=-1, budget_s=0.0, engine_arg=["x"], output="y")
    assert {p.path for p in caught.value.problems} == {"--model", "--tp", "--budget-s", "--engine-arg", "--output"}


def test_what_is_there_is_never_lost_by_accident(tmp_path: Path) -> None:
    places = places_of(str(tmp_path / "a.profile.json"))
    assert prepare(places, resume=False, force=False) == frozenset()
    with pytest.raises(InputError, match="no measurements to go on with"):
        prepare(places, resume=True, force=False)
    places.raw.write_text(json.dumps({"t": "seg", "ph": "decode", "lab": {"B": 1}, "cut": False}) + "\n")
    with pytest.raises(InputError, match="--resume"):
        prepare(places, resume=False, force=False)
    assert len(prepare(places, resume=True, force=False)) == 1
    compress(places.raw)
    assert len(prepare(places, resume=True, force=False)) == 1  # unpacked again
    assert places.raw.exists()
    assert prepare(places, resume=False, force=True) == frozenset()
    assert not places.raw.exists()
    assert not places.packed.exists()
    places.profile.write_text("{}")
    with pytest.raises(InputError, match="exists already"):
        prepare(places, resume=False, force=False)


@pytest.mark.parametrize(
    ("text", "name"),
    [("Qwen/Qwen2.5-7B", "qwen2.5-7b"), ("/a/b/", "b"), ("", "engine"), ("...", "engine"), ("H100 x2", "h100-x2")],
)
def test_slugs(text: str, name: str) -> None:
    assert slug(text) == name

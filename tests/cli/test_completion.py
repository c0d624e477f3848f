"""TAB in a real bash offers names and keys; in any shell, nothing that goes wrong is ever printed."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
import typing
from pathlib import Path

import pytest

from fleetsim.cli import complete
from fleetsim.cli.complete import rejoin
from fleetsim.config.data_files import presets, shipped_scenarios
from fleetsim.config.exchange import AdmissionConfig
from fleetsim.config.load import parse_override
from fleetsim.config.scenario import Scenario
from fleetsim.quantities import METRICS

ROOT = Path(__file__).parents[2]


def completed(*words: str, shell: str = "bash") -> list[str]:
    """What a shell is answered when the last word is being completed."""
    asked = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_ARGS": " ".join(words)}
    asked |= {"_FLEETSIM_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subprocess.run(
        [sys.executable, "-m", "fleetsim"],
        env=os.environ | asked | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def test_names_in_their_places() -> None:
    assert "verl-fully-async" in completed("fleetsim", "simulate", "--preset", "ver")
    assert set(completed("fleetsim", "size", "--fail-if", "staleness")) == {m for m in METRICS if "staleness" in m[:9]}


def test_a_key_alone_is_offered_with_its_values() -> None:
    laws = completed("fleetsim", "split", "--set", "admission.law")
    assert "admission.law=" in laws
    assert "admission.law=version_window" in laws


@pytest.mark.parametrize(
    ("words", "joined", "said"),
    [
        (("--set", "admission.law", "=", "ver"), ("--set", "admission.law=ver"), "admission.law="),
        (("--set", "admission.law", "="), ("--set", "admission.law="), "admission.law="),
        (("--set", "=", "admission.law", "=", "ver"), ("--set=admission.law=ver",), "admission.law="),
        (("--set", "=", "admis"), ("--set=admis",), ""),
        (("--objective", "max", ":", "goodp"), ("--objective", "max:goodp"), "max:"),
        (("--set", "a.b", "=", "1", "--preset", "ver"), ("--set", "a.b=1", "--preset", "ver"), ""),
        (("--grid", "a.b", "=", "4", ":", "32", ":", "2"), ("--grid", "a.b=4:32:2"), "a.b=4:32:"),
        (("--set", ""), ("--set", ""), ""),
    ],
)
def test_what_bash_cuts_at_a_sign_is_put_together(words: tuple[str, ...], joined: tuple[str, ...], said: str) -> None:
    environ = {"_FLEETSIM_COMPLETE": "complete_bash", "COMP_CWORD": str(1 + len(words))}
    environ["COMP_WORDS"] = "\n".join(("fleetsim", "sweep", *words, "later"))
    assert rejoin(environ) == said
    assert environ["COMP_WORDS"].split("\n") == ["fleetsim", "sweep", *joined]
    assert environ["COMP_CWORD"] == str(1 + len(joined))


def test_the_answer_goes_behind_the_sign() -> None:
    assert completed("fleetsim", "sweep", "--set", "admission.law", "=", "ver") == ["version_window"]
    assert completed("fleetsim", "sweep", "--objective", "max", ":", "goodp") == ["goodput"]


def test_a_list_of_values() -> None:
    assert complete.listed("admission.law=version_window,ba") == [
        "admission.law=version_window,barrier",
        "admission.law=version_window,batches_ahead",
    ]
    assert complete.listed("engine.prefix_caching=true,") == ["engine.prefix_caching=true,false"]
    assert complete.listed("admission.law=ver") == ["admission.law=version_window"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_hand_over_the_word(shell: str) -> None:
    answer = "\n".join(completed("fleetsim", "sweep", "--grid", "admission.law=ver", shell=shell))
    assert "admission.law=version_window" in answer


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells(shell: str) -> None:
    assert "fleet.instances=" in "\n".join(completed("fleetsim", "size", "--set", "fleet.inst", shell=shell))


@pytest.mark.parametrize("words", [("fleetsim", "size", "--set", "'fle"), ("fleetsim", "no-such", ""), ("fleetsim",)])
def test_nonsense_offers_nothing_and_prints_no_error(words: tuple[str, ...]) -> None:
    assert not [line for line in completed(*words) if "rror" in line or "Traceback" in line]


def test_every_key_that_is_offered_is_one_and_every_key_is_offered() -> None:
    offered = complete.keys("")
    for word in offered:
        parse_override(f"{word}null")
    flat = {path for path in _leaves(Scenario().model_dump()) if not path.startswith("workload.")}
    known = {word[:-1] for word in offered}
    missing = {p for p in flat if not any(p == k or p.startswith(f"{k}.") or k.startswith(f"{p}.") for k in known)}
    assert missing == set()
    laws = [word.partition("=")[2] for word in complete.keys("admission.law") if not word.endswith("=")]
    assert set(laws) == set(typing.get_args(AdmissionConfig.model_fields["law"].annotation))


def _leaves(value: dict[str, object], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for key, below in value.items():
        found |= _leaves(below, f"{prefix}{key}.") if isinstance(below, dict) else {f"{prefix}{key}"}
    return found


def test_scenarios_are_names_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("")
    (tmp_path / "h200.profile.json").write_text("")
    scenarios, profiles = complete.values_of("simulate", "scenario"), complete.values_of("size", "profile")
    assert scenarios is not None
    assert profiles is not None
    assert {"mine.yaml", *presets(), *shipped_scenarios()} == set(scenarios(""))
    assert profiles("h2") == ["h200.profile.json"]


def test_a_gate_of_a_comparison() -> None:
    values = complete.values_of("compare", "fail_if")
    assert values is not None
    assert values("regression.step") == ["regression.step_s"]


def test_what_breaks_offers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[str]:
        raise RuntimeError

    assert complete.safe(broken)("x") == []
    monkeypatch.setattr(complete, "_paths", broken)
    assert complete.keys("x") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="BASH IS NOT INSTALLED: its completion was not tested")
def test_tab_in_a_real_bash(tmp_path: Path) -> None:
    command = tmp_path / "fleetsim"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m fleetsim "$@"\n')
    command.chmod(0o755)
    environ = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "TERM": "dumb",
        "PS1": "> ",
        "HOME": str(tmp_path),
    }
    script = subprocess.run(
        [command], env=environ | {"_FLEETSIM_COMPLETE": "source_bash"}, capture_output=True, text=True, check=True
    )
    (tmp_path / "complete.sh").write_text(script.stdout)
    shell, master = pty.fork()
    if shell == 0:
        os.chdir(tmp_path)
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environ)
    try:
        os.write(master, b"source complete.sh; bind 'set bell-style none'; echo rea''dy\n")
        seen = _until(master, r"ready\r")
        # The rest of the word comes back, and no blank after "=".
        os.write(master, b"fleetsim size --set fleet.max_in_flight_samples_p\t")
        seen = _until(master, r"er_instance=", seen)
        os.write(master, b"12")
        seen = _until(master, r"er_instance=12", seen)
        os.write(master, b"\x15fleetsim sweep --grid admission.law=version_w\t")
        seen = _until(master, r"version_window ", seen)
        os.write(master, b"\x15fleetsim sweep --objective max:goodp\t")
        seen = _until(master, r"max:goodput ", seen)
        os.write(master, b"\x15fleetsim simulate --preset verl-fu\t")
        _until(master, r"verl-fully-async ", seen)
    finally:
        os.write(master, b"\x15exit\n")
        os.waitpid(shell, 0)
        os.close(master)


def _until(master: int, wanted: str, seen: str = "", patience_s: float = 60.0) -> str:
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if select.select([master], [], [], 0.2)[0]:
            seen += os.read(master, 4096).decode(errors="replace")
        if re.search(wanted, seen):
            return seen
    raise AssertionError(f"{wanted!r} did not come; bash said {seen!r}")

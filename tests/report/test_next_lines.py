"""Next commands: what is shown can be pasted, whatever the width and whatever the call's words."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleetsim.replay.diagnose.checks
from fleetsim.replay.diagnose.cures import Cure, Verify, for_call
from fleetsim.replay.diagnose.finding import Finding, Verdict, addressed
from fleetsim.tell.console import as_text
from fleetsim.tell.document import NextLines
from fleetsim.tell.next_lines import CALL, broken, is_command, resolved
from fleetsim.tell.terminal import drawn

WORDS = st.lists(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=30), max_size=8)


@given(WORDS, st.integers(20, 120))
def test_a_broken_command_is_still_the_same_command(words: list[str], width: int) -> None:
    command = shlex.join(["fleetsim", "replay", *words])
    lines = broken(command, width)
    assert shlex.split("".join(line.removesuffix("\\") for line in lines)) == ["fleetsim", "replay", *words]
    for line in lines:
        longest = max(map(len, map(shlex.quote, words)), default=0)
        assert len(line) <= max(width, 2 * longest + len("   \\ "))


def test_a_shell_reads_what_is_shown() -> None:
    call = ("--prometheus", "http://prometheus.monitoring.svc.cluster.local:9090/prometheus", "--selector", 'job="a b"')
    text = resolved(f"if it may be:\n{CALL} --set a.b=1 --recommend", call)
    first, *command = as_text(drawn(NextLines("next: ", text)), 60).splitlines()
    assert first.strip() == "next: if it may be:"
    assert len(command) > 2
    script = 'fleetsim() { printf "%s\\n" "$@"; }\n' + "\n".join(command)
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == ["replay", *call, "--set", "a.b=1", "--recommend"]


def test_a_word_wider_than_the_view_is_left_whole() -> None:
    path = "/data/" + "x" * 200 + ".om"
    assert path in as_text(drawn(NextLines("next: ", resolved(CALL, ("--from", path)))), 80)


def test_the_window_of_a_next_command_is_its_own() -> None:
    call = ("--prometheus", "http://p", "--start", "-1h", "--step", "30s")
    assert resolved(f"{CALL} --step 1s", call) == "fleetsim replay --prometheus http://p --start -1h --step 1s"
    assert resolved(f"{CALL} --start -24h", call) == "fleetsim replay --prometheus http://p --step 30s --start -24h"


def test_a_command_on_a_log_names_the_log() -> None:
    call = ("--from", "my run.jsonl", "--framework", "verl")
    assert resolved("fleetsim size --run LOG --set a.b=1", call) == "fleetsim size --run 'my run.jsonl' --set a.b=1"
    assert resolved("what a LOG says", call) == "what a LOG says"
    assert resolved("fleetsim size --run LOG", ("--prometheus", "http://p")) == "fleetsim size --run LOG"


def test_every_finding_is_addressed_and_words_stay() -> None:
    texts = (f"words:\n{CALL} --recommend", "drain rollout-5 ... soon", None)
    verdict = Verdict("trainer", "", tuple(Finding("rollout", "fault", "", (), next=t) for t in texts), None)
    assert [f.next for f in addressed(verdict, ("--from", "a b.om")).findings] == [
        "words:\nfleetsim replay --from 'a b.om' --recommend", "drain rollout-5 ... soon", None,
    ]  # fmt: skip


def test_what_a_cure_tells_to_do_is_addressed_too() -> None:
    cure = Cure(
        "straggler", "", 2.0, 0.0, 2.0, None, "", ("drain it:", f"{CALL} --recommend"), Verify("", 0, 1, 10), ()
    )
    (found,) = for_call((cure,), ("--from", "a b.om"))
    assert found.do == ("drain it:", "fleetsim replay --from 'a b.om' --recommend")


@pytest.mark.parametrize(
    "file", sorted(Path(fleetsim.replay.diagnose.checks.__file__).parent.glob("*.py")), ids=lambda p: p.stem
)
def test_checks_name_commands_on_lines_of_their_own(file: Path) -> None:
    """A command begins its line and has nothing behind it that a shell would not take."""
    for line in file.read_text().splitlines():
        for part in line.split(CALL)[:-1]:
            assert part.endswith(('"', "\\n")), line
        if CALL in line:
            rest = re.sub(r"\{.*?\}(?=[ \"])", "", line.rpartition(CALL)[2]).partition('"')[0]
            assert not any(c in rest for c in "(),;"), line


def test_what_is_a_command() -> None:
    assert is_command("fleetsim split --gpus 8")
    assert is_command("kubectl scale deployment rollout --replicas 8")
    assert not is_command("drain rollout-5")

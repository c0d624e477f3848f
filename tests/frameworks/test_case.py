"""The branch of a `case` that a launch script takes: bash itself says which."""

from __future__ import annotations

import random
import subprocess

import pytest

from fleetsim.frameworks.shell import expanded

PATTERNS = ("smoke", "pilot", "full", "f*", "*", "a|full", "s?oke", "[sp]*", '"full"', "x|y|z")
WORDS = ('S="${1:-full}"', "S=smoke", 'S="${S:-pilot}"', "S=other")
NESTED = ('case "$S" in', "full) V=90 ;;", "*)", "V=91", ";;", "esac")


def drawn(seed: int) -> str:
    """A script whose variable V depends on the branches that are taken, and that prints it."""
    draw = random.Random(seed)
    lines = [draw.choice(WORDS), draw.choice(["V=0", "unset V"]), 'case "$S" in']
    for branch in range(draw.randint(1, 5)):
        if draw.random() < 0.4:
            lines.append(f"  {draw.choice(PATTERNS)}) V={branch} ;;")
            continue
        lines += [f"  {draw.choice(PATTERNS)})", f"V={branch}"]
        lines += ["if [ 1 = 1 ]; then", "W=1", "fi"] if draw.random() < 0.4 else []
        lines += NESTED if draw.random() < 0.4 else ()
        lines.append("  ;;")
    return "\n".join([*lines, "esac", "tell ${V:-none}", ""])


def test_the_branch_that_bash_takes_is_taken() -> None:
    for seed in range(80):
        script = drawn(seed)
        tell = 'tell() { echo "$@"; }\n'
        done = subprocess.run(["bash", "-c", tell + script], capture_output=True, text=True, check=False)
        (found,) = [words for words, _ in expanded(script).commands if words[0][0] == "tell"]
        assert " ".join(text for text, _ in found[1:]) == done.stdout.strip(), script


@pytest.mark.parametrize("word", ["$(hostname)", "$UNSET"])
def test_where_the_word_is_not_known_every_branch_counts(word: str) -> None:
    script = (
        f'B=64\nC=2\ncase "{word}" in\n  small)\n    B=8\n    N=2\n    C=1\n    ;;\n  *) C=1 ;;\nesac\n'
        "python train.py --batch $B --n $N --c $C\n"
    )
    read = expanded(script)
    (found,) = [words for words, _ in read.commands if words[0][0] == "python"]
    assert [text for text, _ in found] == ["python", "train.py", "--batch", "", "--n", "", "--c", "1"]
    assert [known for _, known in found] == [True, True, True, False, True, False, True, True]
    assert any("B depends on a condition" in remark for remark in read.remarks)

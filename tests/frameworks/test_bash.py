"""What is read from a launch script is what bash starts: of scripts by hand, and of drawn combinations of idioms."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetsim.frameworks.settings import Setting
from fleetsim.frameworks.shell import expanded
from fleetsim.frameworks.source import parsed_source, read_source
from tests.frameworks.bash import agrees, all_started, started_as_read, started_by_bash, there_is_bash

DATA = Path(__file__).parent / "launch"

pytestmark = pytest.mark.skipif(not there_is_bash(), reason="NOT COMPARED WITH BASH: there is no bash 5 here")


def scripts_of(file: str) -> dict[str, str]:
    """Scripts in the manner of those that the frameworks ship, by name."""
    parts = (part.partition("\n") for part in (DATA / file).read_text().split("=== ")[1:])
    return {name: script for name, _, script in parts}


KNOWN, PARTLY = scripts_of("known.txt"), scripts_of("partly.txt")


def compared(script: str, folder: Path) -> tuple[list[list[tuple[str, bool]]], list[list[str]]]:
    return started_as_read(expanded(script, folder)), started_by_bash(script, folder)


@pytest.mark.parametrize("name", KNOWN)
def test_all_that_can_be_known_is_known(name: str, tmp_path: Path) -> None:
    read, ran = compared(KNOWN[name], tmp_path)
    assert [[text for text, _ in words] for words in read] == ran
    assert all(known for words in read for _, known in words)


@pytest.mark.parametrize("name", PARTLY)
def test_nothing_is_read_that_bash_does_not_start(name: str, tmp_path: Path) -> None:
    read, ran = compared(PARTLY[name], tmp_path)
    assert any(not known for words in read for _, known in words)
    for words in ran:
        assert any(agrees(found, words) for found in read), (words, read)


SCRIPTS = sorted((Path(__file__).parent / "data").glob("*.sh"))


@pytest.mark.parametrize("name", [path.name for path in SCRIPTS])
def test_a_script_reads_as_the_words_that_bash_starts(name: str, tmp_path: Path) -> None:
    """All settings, with those of the launcher and of a server beside it; a home that is not known is none."""
    script = (DATA.parent / "data" / name).read_text(encoding="utf-8")
    started = all_started(script, tmp_path, home="")
    ran = parsed_source("\n".join(map(shlex.join, started)), "ran.sh").found
    read = parsed_source(script, name).found
    assert len(ran) > 3
    differ = {key for key in {**ran, **read} if value_of(ran, key) != value_of(read, key)}
    assert {key: (value_of(ran, key), value_of(read, key)) for key in differ} == {}


def value_of(found: Mapping[str, Setting], key: str) -> object:
    """What a setting holds; nothing where it is not there."""
    return found[key].value if key in found else None


NAMES, NUMBERS, ARRAYS = ("A", "B", "C"), ("I", "J"), ("P", "Q")
VALUES = ("", "x", "8", "a b", "--n 3", "'q r'", '"s t"', "$A", '"$B c"', "${C:-z}", "$((I + 2))", "a/b.c", "k=$I")
# What is printed in a shell of its own.
VALUES += (
    "$(echo v$I $B)",
    '$([ "$B" = x ] && echo 1 || echo "0 $C")',
    "$(if [ $I -gt 2 ]; then echo $J; fi; echo w)",
    "$(echo a/$I | sed s/a/b/)",
    '"$(cd /usr/.. && pwd)"',
    '$(IFS=,; (echo u); echo "${P[*]}" > f; echo v)',
)
ABSENT = ("$(nproc)", "$ENV", '"$ENV/m"', "${ENV:-e}", "x$(date)", "$1", '"$HOME"')


def script_of(partly: bool) -> st.SearchStrategy[str]:
    """Scripts of a few statements that end in a command with all of their variables.

    partly: with what the environment and other commands would say.
    """
    name, number, array = (st.sampled_from(names) for names in (NAMES, NUMBERS, ARRAYS))
    value = st.sampled_from((*VALUES, *ABSENT) if partly else VALUES)
    sign = st.sampled_from((":-", "-", ":=", "=", ":+", "+"))
    expansion = st.one_of(
        st.builds('"${{{}{}{}}}"'.format, name, sign, st.sampled_from(("", "d", "$B", "u v", "${C-w}"))),
        st.builds("${{{}{}{}}}".format, name, sign, st.sampled_from(("", "d", "$I", "u v", "--f 1"))),
        st.builds("${{{}{}}}".format, name, st.sampled_from(("#a", "%b", "##*/", "%.*", "/a/z", ":1", "^", "//"))),
        st.builds('"${{{}[@]}}"'.format, array),
        st.builds('p"${{{}[@]:1}}"'.format, array),
        st.builds("${{#{}}}".format, st.one_of(name, array.map("{}[@]".format))),
        st.builds("$(({} {} {}))".format, number, st.sampled_from("+-*<"), number),
        st.builds("${}".format, st.one_of(name, number)),
    )
    word = st.one_of(value, expansion)
    known = st.one_of(
        st.builds('[ -{} "${}" ]'.format, st.sampled_from("zn"), name),
        st.builds(
            "[[ ${} {} {} ]]".format, name, st.sampled_from(("==", "!=")), st.sampled_from(("x", "a*", '"a*"', "$B"))
        ),
        st.builds('[ "${{{}:-x}}" = {} ]'.format, name, st.sampled_from(("x", "8", "'a b'"))),
        st.builds("(( {} {} {} ))".format, number, st.sampled_from((">", "==", "<=")), st.sampled_from("0258")),
        st.builds("[ ${} -{} {} ]".format, number, st.sampled_from(("gt", "eq", "le")), st.sampled_from("0258")),
        st.sampled_from(("true", "false", "test a = b", '! [ "$A" ]', "[[ -n $A && -z $B ]]", '[ -n "$A" -o x = y ]')),
    )
    test = st.one_of(known, st.sampled_from(("nvidia-smi", "[ -f x ]", '[ "$ENV" = y ]'))) if partly else known
    simple = st.one_of(
        st.builds("{}={}".format, name, st.one_of(value, expansion)),
        st.builds("{}+={}".format, name, value),
        st.builds("export {}={}".format, name, st.sampled_from(("y", '"$A"', "1"))),
        st.builds("{}=$(({} * 2 + {}))".format, number, number, st.sampled_from("0123")),
        st.builds("{}=({} {})".format, array, word, word),
        st.builds("{}+=({})".format, array, word),
        st.builds(": {}".format, expansion),
        st.builds("unset {}".format, name),
        st.builds("(({}++))".format, number),
        st.builds("python s.py {} --m {}".format, word, word),
        st.builds("set -- {} {}".format, word, word),
        st.builds("give {} {}".format, word, word),
        st.builds("A=6 torchrun r.py {}".format, word),
    )

    def within(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        some = st.lists(inner, min_size=1, max_size=3).map("\n".join)
        return st.one_of(
            st.builds("if {}; then\n{}\nelse\n{}\nfi".format, test, some, some),
            st.builds("if {}; then {}\nelif {}; then {}\nfi".format, test, some, test, some),
            st.builds("{} {} {{\n{}\n}}".format, test, st.sampled_from(("&&", "||")), some),
            st.builds("for {} in {} {}; do\n{}\ndone".format, name, word, word, some),
            st.builds(
                "for x in 1 2 3; do\n{}\n{} && {}\ndone".format, some, test, st.sampled_from(("break", "continue"))
            ),
            st.builds('case "${}" in x|a*)\n{} ;;\n"") {} ;;\n*)\n{} ;;\nesac'.format, name, some, some, some),
            st.builds("(\n{}\n)".format, some),
        )

    given = "" if partly else "set --\n"
    lines = st.lists(st.recursive(simple, within, max_leaves=5), min_size=2, max_size=7)
    give = 'give() {\n  local B=$1\n  C="$2" J=$#\n  [ "$B" ] || return\n  Q+=("$B")\n}\n'
    start = f'A= B=x\nC="a b"\nI=2 J=5\nP=() Q=(1 "2 3")\n{give}'
    last = 'python last.py "$A" $B "${C-none}" $I $J "${P[@]}" ${Q[@]} "${Q[*]}" $#\n'
    return lines.map(lambda lines: "\n".join([given + start, *lines, last]))


DRAWN = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@DRAWN
@given(script_of(partly=False))
def test_of_drawn_scripts_all_is_known(script: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        read, ran = compared(script, Path(folder))
    assert [[text for text, _ in words] for words in read] == ran
    assert all(known for words in read for _, known in words)


@DRAWN
@given(script_of(partly=True))
def test_of_drawn_scripts_nothing_is_read_that_bash_does_not_start(script: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        read, ran = compared(script, Path(folder))
    for words in ran:
        assert any(agrees(found, words) for found in read), (words, read)


def test_what_a_script_sources_is_read_where_it_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "base.sh").write_text("MODEL_ARGS=(--layers 36 --name base)\n")
    (tmp_path / "models" / "own.sh").write_text('source "$(dirname "${BASH_SOURCE[0]}")/base.sh"\nMODEL_ARGS[3]=own\n')
    script = (
        'D="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)"\nsource "$D/models/own.sh"\n'
        'python t.py "${MODEL_ARGS[@]}"\n'
    )
    read, ran = compared(script, tmp_path)
    assert [[text for text, _ in words] for words in read] == ran
    assert ran == [["python", "t.py", "--layers", "36", "--name", "own"]]
    (tmp_path / "other.sh").write_text(script.replace("own.sh", "gone.sh"))
    notes = read_source(str(tmp_path / "other.sh")).not_understood
    assert notes == [
        f"line 2: source {tmp_path}/models/gone.sh: not read",
        "line 3: MODEL_ARGS is not set in this script: its flags are missing",
    ]


def test_a_script_finds_its_configuration_by_its_own_name(tmp_path: Path) -> None:
    """As NeMo-RL's test scripts do: a file of the same name, in another folder of the repository."""
    suites = tmp_path / "suites"
    suites.mkdir()
    (suites / "common.env").write_text(
        'HERE=$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" &> /dev/null && pwd)\nROOT=$(realpath $HERE/..)\n'
        "NAME=${NAME:-$(basename $0 .sh)}\nCONFIG=$(echo $HERE/$NAME.yaml | sed 's#suites#recipes#')\n"
        "count() {\n  DONE=$(ls $HERE/done || echo 0)\n  if [[ $DONE -ge $STEPS ]]; then exit 0; fi\n}\n"
    )
    script = (
        "source $(dirname $0)/common.env\nSTEPS=40\ncount\ncd $ROOT\nA=(1 2)\n"
        'python run.py --config $CONFIG --steps $STEPS --join $(IFS=,; echo "${A[*]}") 2>&1 | tee x.log\n'
    )
    ran = started_by_bash(script, suites)
    assert ran == [["python", "run.py", "--config", f"{tmp_path}/recipes/run.yaml", "--steps", "40", "--join", "1,2"]]
    assert started_as_read(expanded(script, suites, "run.sh")) == [[(word, True) for word in words] for words in ran]
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "run.yaml").write_text("nodes: 3\n")
    read = read_source(str(suites / "run.sh")).found
    assert (read["nodes"].value, read["steps"].value) == (3, 40)


def test_a_wrapper_starts_the_script_that_its_name_says(tmp_path: Path) -> None:
    base = tmp_path / "base_run.sh"
    base.write_text('#!/usr/bin/env bash\npython t.py --name $NAME --n 4 "$@"\n')
    base.chmod(0o755)
    script = (
        'HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\nexport NAME=$(basename "$0" .sh)-fast_b\n'
        "BASE=$(echo \"$NAME\" | sed -E 's/-fast_(a|b)$//')\n"
        'if [[ ! "$BASE" =~ ^(run|walk) ]]; then exit 1; fi\nbash "$HERE/base_$BASE.sh" --tp 2\n'
    )
    (ran,) = started_by_bash(script, tmp_path)
    assert ran == ["python", "t.py", "--name", "run-fast_b", "--n", "4", "--tp", "2"]
    for how in ("bash ", "exec ", ""):
        (tmp_path / "run.sh").write_text(script.replace('bash "$HERE', f'{how}"$HERE'))
        read = read_source(str(tmp_path / "run.sh")).found
        assert {key: read[key].value for key in ("name", "n", "tp")} == {"name": "run-fast_b", "n": 4, "tp": 2}


def test_the_command_with_the_most_settings_is_the_training() -> None:
    read = parsed_source(
        "python t.py --n 4 --tp 2\npython check.py log.json 'a < 1' 'b < 2' 'c < 3' 'd > 4'\n", "run.sh"
    )
    assert {key: setting.value for key, setting in read.found.items()} == {"n": 4, "tp": 2}


def test_a_script_that_another_starts_is_read_with_what_is_exported(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "base.sh").write_text('python t.py --n ${N:-1} --m ${M:-2} --own ${OWN:-3} "$@"\n')
    script = "export N=4\nM=5\nOWN=6 bash runs/base.sh --tp 2\npython u.py ${OWN:-7}\n"
    read, ran = compared(script, tmp_path)
    assert [[text for text, _ in words] for words in read[:1]] == ran[:1]
    assert ran[0] == ["python", "t.py", "--n", "4", "--m", "2", "--own", "6", "--tp", "2"]
    (tmp_path / "runs" / "of_base.sh").write_text("bash runs/base.sh --tp 8\n")
    assert read_source(str(tmp_path / "runs" / "of_base.sh")).found["tp"].value == 8


@pytest.mark.parametrize(
    ("script", "known", "said"),
    [
        ("N=64\nif nvidia-smi; then N=128; fi\npython t.py --gpus $N --tp 2", {"tp": 2}, ["--gpus = ...: holds"]),
        ("A=(--gpus 64 --x $(nproc))\npython t.py ${A[@]} --tp 2", {"gpus": 64, "tp": 2}, ["--x = ...: holds"]),
        ('A="\n --cap 8192\n --x $(nproc)"\npython t.py $A', {"cap": 8192}, ["--x = ...: holds"]),
        ("python t.py --n 8 $MORE --tp 2", {"n": 8, "tp": 2}, []),
        ("A=()\nif x; then A+=(--n 4); fi\npython t.py --n 8 ${A[@]} --tp 2", {"tp": 2}, ["--n = ...: holds"]),
        ("if x; then python t.py --n 8 --tp 2; else python t.py --n 4 --tp 2; fi", {"tp": 2}, ["--n = ...: holds"]),
        ('train() {\n  python t.py --n ${2:-4} --tp 2\n}\n"$1"', {"n": 4, "tp": 2}, []),
        ('if [ -z "$1" ]; then echo "usage"; exit 1; fi\npython t.py --tp 2', {"tp": 2}, []),
        ("python t.py --tp 2 \\\n  # one\n  --n 4", {"tp": 2}, ["--n 4: is no part of the command above it"]),
        ("python t.py a.tp=2 \\\n\n  a.n=4 b=1", {"a.tp": 2}, ["a.n=4 b=1: is no part of the command above it"]),
    ],
)
def test_what_is_not_known_is_said_and_nothing_else_is_lost(
    script: str, known: dict[str, int], said: list[str]
) -> None:
    read = parsed_source(script, "run.sh")
    assert {key: setting.value for key, setting in read.found.items()} == known
    assert len(read.not_understood) == len(said)
    assert all(part in note for part, note in zip(said, read.not_understood, strict=True))


def test_the_parser_is_imported_for_a_script_only() -> None:
    code = (
        "import sys\nfrom fleetsim.frameworks.source import parsed_source\nparsed_source('a: 1', 'c.yaml')\n"
        "assert not any('tree_sitter' in name for name in sys.modules)\nparsed_source('python t.py --a 1', 'run.sh')\n"
        "assert 'tree_sitter_bash' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

"""The forms that a configuration comes in: shell scripts, flags, YAML, TOML, JSON, Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleetsim.errors import InputError
from fleetsim.frameworks.roll import gpu_list
from fleetsim.frameworks.settings import RunSettings, whole_number
from fleetsim.frameworks.source import parsed_source, read_source, settings_of_words


def value(settings: RunSettings, key: str) -> Any:
    found = settings.get(key)
    return None if found is None else found[1]


def script(text: str) -> RunSettings:
    return parsed_source(text, "run.sh")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1024 * 8", 8192),
        ("(2 + 3) * 4 - 1", 19),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("7 % 4", 3),
        ("2 ** 80", None),
        ("1 / 0", None),
        ("9" * 30, None),
        ("__import__('os')", None),
        ("1.5 * 2", None),
        ("True + 1", None),
        ("(" * 150, None),
        ("1" + "+1" * 150, None),
    ],
)
def test_arithmetic(text: str, expected: int | None) -> None:
    assert whole_number(text) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python t.py --a.b 3", 3),
        ("python t.py --a.b=3", 3),
        ("python t.py a.b=3", 3),
        ("python t.py +a.b=3 other=1", 3),
        ("python t.py ++a.b=3", 3),
        ("python t.py --a-b 3 # not --a-b 4", None),
        ("python t.py --a.b 'x y'", "x y"),
        ('python t.py --a.b "x y"', "x y"),
        ("python t.py --a.b -1 --c", -1),
        ("python t.py --a.b 8 4 --c", [8, 4]),
        ("python t.py --c --a.b", True),
        ("python t.py a.b=[1,2]", [1, 2]),
        ("python t.py a.b=null", None),
        ("python t.py a.b=3 ~a.b", None),
        ("python t.py a.b=3 a.b=4", 4),
        ("N=3; python t.py a.b=$N", 3),
        ("N=3\npython t.py a.b=${N}", 3),
        ("export N=3\npython t.py a.b=$N", 3),
        ("N=3 M=4 python t.py a.b=$M", None),
        ("M=3\nM=4 python t.py a.b=$M", 3),
        ("python t.py a.b=${N:-5}", 5),
        ("N=3\npython t.py a.b=${N:-5}", 3),
        ("python t.py a.b=${N:-${M:-6}}", 6),
        ("K=2\npython t.py a.b=${N:-$((K * 4))}", 8),
        (': "${N:=7}"\npython t.py a.b=$N', 7),
        ('N=3\n: "${N:=7}"\npython t.py a.b=$N', 3),
        ("N=3\necho ${N:-7} ${M:=4}\npython t.py a.b=$((N + M))", 7),
        ("K=2\npython t.py a.b=$((K*(1024 + $K)))", 2052),
        ("python t.py a.b='$N'", "$N"),
        ("python t.py a.b=$(nproc)", None),
        ("python t.py a.b=`nproc`", None),
        ("python t.py a.b=$1", None),
        ("A=(--a.b 3)\npython t.py ${A[@]}", 3),
        ('A=(\n  --a.b 3 # three\n  # --a.b 4\n)\npython t.py "${A[@]}"', 3),
        ("A=(--c)\nA+=(--a.b 3)\npython t.py ${A[*]}", 3),
        ('python t.py --c "${NONE[@]}" --a.b "${NONE[@]}"', True),
        ('A=(3)\npython t.py --a.b "${A[@]}"', 3),
        ('read -ra MODEL_ARGS <<< "$(python3 args.py)"\npython t.py --a.b ${MODEL_ARGS[@]} --c', True),
        ('read -ra NUMBERS <<< "$(python3 args.py)"\npython t.py --a.b ${NUMBERS[@]} --c', None),
        ("ARGS='--a.b 3 --c'\npython t.py $ARGS", 3),
        ("python t.py \\\n  --c 1 \\\n  --a.b 3 > log 2>&1", 3),
        ("python t.py --a.b 4 \\\n  # --c \\\n  --a.b 3", 4),
        ("python t.py a.b=3 | tee log", 3),
        ("cat <<EOF > x\npython t.py a.b=9\nEOF\npython t.py --c a.b=3 d=1", 3),
        ("if [ -z $N ]; then\n  N=3\nfi\npython t.py a.b=$N", 3),
        ("N=3\nif [ -z $N ]; then\n  N=4\nfi\npython t.py a.b=$N", 3),
        ("N=$(python3 -c 'import torch_npu' 2> x && echo 4 || echo 3)\npython t.py a.b=$N", 3),
        ("if npu-smi info; then N=4; else N=3; fi\npython t.py a.b=$N", 3),
        ("N=$(nproc)\nif [ $N -lt 1 ]; then N=4; fi\npython t.py a.b=$N", None),
        ("if x; then N=$(nproc); else N=0; fi\npython t.py a.b=$N", None),
        ("ray job submit --a.b 9 -- python3 -m pkg.train --a.b 3", 3),
        ("torchrun --nproc_per_node 8 --a.b 9 t.py --a.b 3", 3),
        ("launch --c -- source x.sh \\&\\& python t.py --a.b 3", 3),
        ('srun bash -c "cd x; python3 -m pkg.train --c 1 --a.b 3" >> log', 3),
        ("--a.b 3\n--c 4", 3),
    ],
)
def test_shell(line: str, expected: Any) -> None:
    assert value(script(line), "a.b") == expected


def test_a_text_of_flags_needs_no_program() -> None:
    settings = parsed_source("--rollout-batch-size 32 \\\n--colocate", "flags.txt")
    assert (value(settings, "rollout_batch_size"), value(settings, "--colocate")) == (32, True)
    assert value(parsed_source("data.n=4 x.y=2", "stdin"), "data.n") == 4


def test_what_a_script_does_not_say_is_told() -> None:
    settings = script(
        "source models.sh\npython t.py --n $(nproc) --path $HOME/models/Qwen3-4B --m ${COUNT} ${MODEL_ARGS[@]} --b 1"
    )
    assert [note.split(":")[0] for note in settings.not_understood] == ["--n = ...", "--m = ...", "line 1", "line 2"]
    assert "MODEL_ARGS" in settings.not_understood[-1]
    assert value(settings, "path") == "/models/Qwen3-4B"
    assert value(settings, "b") == 1
    assert any("HOME" in remark for remark in settings.remarks)


def test_the_launcher_tells_the_processes() -> None:
    settings = script("accelerate launch --config_file a.yaml --num_processes 4 grpo.py --config g.cfg")
    assert value(settings, "launcher.num_processes") == 4
    assert value(settings, "num_processes") is None
    assert settings.programs == ["grpo.py"]


@pytest.mark.parametrize(
    ("lines", "words", "expected"),
    [
        ("#SBATCH --nodes=4\n#SBATCH --gres=gpu:8", "$SLURM_JOB_NUM_NODES $SLURM_GPUS_ON_NODE", [4, 8]),
        (
            "#SBATCH -N 2   # two\n\n#SBATCH --gres=gpu:h100:8,nvme:1",
            "${SLURM_NNODES:-1} ${SLURM_GPUS_ON_NODE:-1}",
            [2, 8],
        ),
        ("#SBATCH --gpus-per-node=h100:4", "$SLURM_GPUS_PER_NODE ${SLURM_NNODES:-1}", [4, 1]),
        ("#SBATCH --nodes=2-4\nx\n#SBATCH --gres=gpu:8", "${SLURM_NNODES:-1} ${SLURM_GPUS_ON_NODE:-3}", [1, 3]),
    ],
)
def test_slurm_tells_a_job_what_its_lines_ask_for(lines: str, words: str, expected: list[int]) -> None:
    assert value(script(f"#!/bin/bash\n{lines}\npython t.py --n {words}"), "n") == expected


def test_the_longest_training_command_counts() -> None:
    settings = script("python convert.py --n 1\npython -m x.train --n 2 --m 3\npython clean.py")
    assert (value(settings, "n"), settings.programs) == (2, ["x.train"])


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("${a.one}", 1),
        ("${.near}", 5),
        ("${..a.one}", 1),
        ("n${a.one}", "n1"),
        ("${oc.select:a.one,7}", 1),
        ("${oc.select:a.none,7}", 7),
        ("${oc.env:HOME,8}", 8),
        ("${mul:${a.one}, 6}", 6),
        ("${a.none}", None),
        ("${b.here}", None),
        ("${b.loop}", None),
        ("${unknown:1}", None),
    ],
)
def test_pointers(pointer: str, expected: Any) -> None:
    text = f"a: {{one: 1}}\nb: {{near: 5, here: '{pointer}', loop: '${{b.here}}'}}"
    settings = parsed_source(text, "c.yaml")
    assert value(settings, "b.here") == expected
    assert bool(settings.not_understood) == (expected is None)


def test_pointers_that_double_do_not_take_forever() -> None:
    keys = "\n".join(f"k{i}: '${{mul:${{k{i + 1}}},${{k{i + 1}}}}}'" for i in range(60))
    assert value(parsed_source(f"{keys}\nk60: 1", "c.yaml"), "k0") is None


def test_yaml_is_as_wide_as_the_frameworks_write_it() -> None:
    text = "base: &b {n: 1, m: 2}\nother:\n  <<: *b\n  m: 3\ntagged: !!python/tuple [1, 2]\nagain: *b\n---\nn: 9\n"
    settings = parsed_source(text, "c.yaml")
    assert [value(settings, k) for k in ("other.n", "other.m", "again.m", "tagged", "n")] == [1, 3, 2, [1, 2], None]


def test_aliases_that_multiply_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(InputError, match="more than"):
        parsed_source("\n".join(lines), "c.yaml")


@pytest.mark.parametrize("text", ["[" * 200, '{"a":' * 200, "a = " + "[" * 200, "a:\n" + " -" * 200 + " x"])
@pytest.mark.parametrize("name", ["c.yaml", "c.json", "c.toml", "c.py", "stdin"])
def test_depth_is_refused(text: str, name: str) -> None:
    try:
        parsed_source(text, name)
    except InputError as error:
        assert error.problems


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x", "[model]\nname = 'q'\n"),
        ("x", "# comment\nmodel.name = 'q'\n"),
        ("x", "model: {name: q}\n"),
        ("x", '{"model": {"name": "q"}}'),
        ("x", "python t.py --model.name q"),
        ("x", "model.name=q other=1"),
        ("x.toml", "model.name = 'q'"),
        ("x.json", '{"model": {"name": "q"}}'),
        ("x.yml", "model:\n  name: q"),
    ],
)
def test_the_form_is_told_by_name_or_content(name: str, text: str) -> None:
    assert value(parsed_source(text, name), "model.name") == "q"


def test_python_keywords() -> None:
    text = (
        "import trl\nN = 4\nc = trl.GRPOConfig(num_generations=N, beta=-0.5, x=f(), **more)\nOther(num_generations=9)"
    )
    settings = parsed_source(text, "train.py")
    assert (value(settings, "num_generations"), value(settings, "beta"), value(settings, "x")) == (4, -0.5, None)
    assert settings.programs == ["GRPOConfig", "train.py"]
    assert settings.not_understood == ["x = ...: line 3, computed"]


def test_keywords_of_a_mapping_that_is_made_before() -> None:
    """examples/scripts/openreward/seta.py of TRL: what a condition puts into it is not known."""
    made = "k: dict = dict(num_generations=2, beta=f())\nif x:\n    k['vllm_mode'] = 'server'\n"
    settings = parsed_source(f"{made}GRPOConfig(**k)", "train.py")
    assert (value(settings, "num_generations"), value(settings, "vllm_mode")) == (2, None)
    assert settings.not_understood == ["beta = ...: line 1, computed", "vllm_mode = ...: line 3, computed"]


def test_files_that_a_configuration_names(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("n: 1\nm: 2\n")
    (tmp_path / "middle.yaml").write_text("defaults: [base, _self_, {group: choice}]\nm: 3\n")
    (tmp_path / "run.sh").write_text("python t.py --config middle.yaml --k 5 --n 7\n")
    settings = read_source(str(tmp_path / "run.sh"), ["--k", "6"])
    assert [value(settings, k) for k in "nmk"] == [7, 3, 6]
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "mine.yaml").write_text("n: 8\nm: 9\n")
    (tmp_path / "named.sh").write_text("python t.py --config-name mine m=4\n")
    assert [value(read_source(str(tmp_path / "named.sh")), k) for k in "nm"] == [8, 4]
    (tmp_path / "loop.yaml").write_text("defaults: loop.yaml\nn: 1\n")
    assert value(read_source(str(tmp_path / "loop.yaml")), "n") == 1
    (tmp_path / "lost.yaml").write_text("defaults: gone.yaml\nn: 1\n")
    assert read_source(str(tmp_path / "lost.yaml")).parents == ["gone.yaml"]
    assert json.dumps(read_source(str(tmp_path / "lost.yaml")).programs) == "[]"


def test_the_file_of_a_launcher_says_its_processes(tmp_path: Path) -> None:
    (tmp_path / "zero3.yaml").write_text("num_machines: 2\nnum_processes: 16\n")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "run.sh").write_text("accelerate launch --config_file zero3.yaml t.py --n 7\n")
    settings = read_source(str(tmp_path / "below" / "run.sh"))
    assert [value(settings, k) for k in ("launcher.num_processes", "n", "config_file")] == [16, 7, None]


def test_words_after_the_file_win() -> None:
    settings = parsed_source("a: {b: 1, c: 2}", "c.yaml", ["a.b=5", "--a.c", "6", "--flag"])
    assert [value(settings, k) for k in ("a.b", "a.c", "flag")] == [5, 6, True]
    assert value(settings_of_words(["python", "x.py", "--n", "3"]), "n") == 3


@pytest.mark.parametrize(
    ("text", "gpus"),
    [("list(range(0,8))", 8), ("range(4)", 4), ("list([0, 1, 8])", 3), ("[3]", 1), ("list(range(0,4)) + [9]", 5)],
)
def test_device_mappings(text: str, gpus: int) -> None:
    assert len(gpu_list(text) or ()) == gpus

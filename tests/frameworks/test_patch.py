"""`scenario to --config`: of the user's own file only what must change does, and the rest is as it was, to the byte."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.config import Scenario, load_scenario
from fleetsim.config.load import with_changes
from fleetsim.config.tree import field_at, put
from fleetsim.errors import InputError
from fleetsim.frameworks.convert import FRAMEWORKS, scenario_from
from fleetsim.frameworks.edits import Unchangeable, in_python, in_toml, in_yaml
from fleetsim.frameworks.patch import ConfigPatch, patch_of
from fleetsim.frameworks.source import read_source
from fleetsim.job.nameplate import limits_of

HERE = Path(__file__).parent
FILES = sorted((HERE / "data").iterdir())
# ROLL's and NeMo-RL's files name each other, so all of them lie in one folder.
COUNTS = ("trainer.batch_samples", "workload.output_tokens.max", "workload.group_size", "trainer.gpus")


def framework_of(path: Path) -> str:
    name = path.name.replace("_", "-")
    return max((f for f in FRAMEWORKS if name.startswith(f)), key=len)


def read(path: Path, words: list[str] | None = None) -> Scenario:
    found = read_source(str(path), words or [])
    return scenario_from(framework_of(path), found, path.name, speed=lambda model, gpu, gpus: (1e-6, 1e-6)).scenario


def patched(path: Path, scenario: Scenario) -> ConfigPatch:
    return patch_of(framework_of(path), scenario, limits_of, str(path))


def read_again(path: Path, patch: ConfigPatch) -> Scenario:
    """The scenario of the changed file, or of the script with the words behind its command."""
    if patch.text == patch.before:
        return read(path, [word for text in patch.words.get("", ()) for word in shlex.split(text)])
    path.write_text(patch.text, encoding="utf-8")
    return read(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(HERE / "data", tmp_path / "data"))


@pytest.mark.parametrize("name", [path.name for path in FILES])
def test_a_file_that_says_it_already_stays(folder: Path, name: str) -> None:
    patch = patched(folder / name, read(folder / name))
    assert patch.text == patch.before == (folder / name).read_text(encoding="utf-8")
    assert (patch.changes, patch.words, patch.removed, patch.left_out, patch.diff) == ((), {}, (), (), "")


@pytest.mark.parametrize("factor", [2, 4])
@pytest.mark.parametrize("name", [path.name for path in FILES])
def test_what_changes_is_what_was_asked_for(folder: Path, name: str, factor: int) -> None:
    """Batch and cap come out, and every line that a changed key does not stand on is there as it was."""
    before = read(folder / name)
    cap = field_at(before, "workload.output_tokens.max")
    batch = before.trainer.batch_samples
    scenario = with_changes(
        before, {"trainer.batch_samples": batch * factor, "workload.output_tokens.max": cap * factor}
    )
    patch = patched(folder / name, scenario)
    assert {left.path for left in patch.left_out}.isdisjoint(COUNTS)
    gone = [line for line in patch.diff.splitlines()[2:] if line.startswith("-")]
    assert len(gone) <= len(patch.changes)
    again = read_again(folder / name, patch)
    assert {path: field_at(again, path) for path in COUNTS} == {path: field_at(scenario, path) for path in COUNTS}


@pytest.mark.parametrize("name", [path.name for path in FILES])
def test_more_instances(folder: Path, name: str) -> None:
    """What the file reads as afterwards is the scenario, but for what is listed."""
    before = read(folder / name)
    more: dict[str, Any] = {"fleet.instances": before.fleet.instances * 2}
    if before.fleet.placement != "disaggregated":
        more["trainer.gpus"] = before.trainer.gpus * 2
    scenario = with_changes(before, more)
    patch = patched(folder / name, scenario)
    if set(patch.words) - {""}:
        return  # those words belong to another command
    again, listed = read_again(folder / name, patch), {left.path for left in patch.left_out}
    assert {path for path in more if field_at(again, path) != more[path]} <= listed
    untold = name.startswith(("prime_rl", "tinker"))  # 14 GPUs, of which a node of it has 8; a service's own
    assert ("fleet.instances" in listed) == untold


@pytest.mark.parametrize("name", [path.name for path in FILES])
def test_every_key_is_the_frameworks_own(folder: Path, name: str) -> None:
    before = read(folder / name)
    scenario = with_changes(
        before, {"trainer.batch_samples": before.trainer.batch_samples * 2, "engine.max_num_seqs": 77}
    )
    changed = {change.key.lstrip("+").replace("-", "_") for change in patched(folder / name, scenario).changes}
    known = (HERE / "config_keys" / f"{framework_of(folder / name)}.tsv").read_text(encoding="utf-8").split("\n")
    declared = [key.replace("-", "_") for key in known]
    old = {"rollout_batch_size", "train_batch_size"}  # flags of an older OpenRLHF, in a file that has them
    assert {key for key in changed - old if not any(fnmatchcase(key, pattern) for pattern in declared)} == set()


# -------------------------------------------------------------------------------------------------------- single edits

YAML = """\
# a head
grpo:  # of a section
    prompts:   32   # thirty-two
    "n": '8'

    deep: {a: 1, b: {c: 2}}   # in braces
policy:
    model: null
    list:
      - 1
      - 2  # two
# an end
"""


@pytest.mark.parametrize(
    ("key", "value", "line", "into"),
    [
        ("grpo.prompts", 64, "    prompts:   32   # thirty-two", "    prompts:   64   # thirty-two"),
        ("grpo.n", "16", "    \"n\": '8'", "    \"n\": '16'"),
        ("grpo.deep.b.c", 3, "b: {c: 2}}   # in", "b: {c: 3}}   # in"),
        ("grpo.deep.b.d", 3, "b: {c: 2}}   # in", 'b: {c: 2, "d": 3}}   # in'),
        ("policy.model.path", "a/b", "    model: null", '    model: {"path": "a/b"}'),
        ("policy.list", [3], "list:\n      - 1\n      - 2  # two", "list: [3]  # two"),
        ("policy.more.x", True, "      - 2  # two\n", "      - 2  # two\n    more:\n      x: true\n"),
        ("new", 1, "      - 2  # two\n", "      - 2  # two\nnew: 1\n"),
    ],
)
def test_one_key_of_yaml(key: str, value: Any, line: str, into: str) -> None:
    assert YAML.count(line) == 1
    assert in_yaml(YAML, key, value) == YAML.replace(line, into)


@pytest.mark.parametrize("text", ["a: &x 1\nb: *x\n", "a: &x {c: 1}\nb: *x\n", "b: ${a}\na: {c: 1}\n"])
def test_what_another_key_shares_is_not_changed(text: str) -> None:
    with pytest.raises(Unchangeable):
        in_yaml(text, "b" if "c" not in text else "b.c", 2)


NAMES = st.sampled_from(["a", "b", "lr", "n_x"])
TREES = st.recursive(
    st.one_of(st.integers(), st.booleans(), st.sampled_from(["x", "a b", "1", "", "é: #", "null"]), st.none()),
    lambda below: st.one_of(st.dictionaries(NAMES, below, min_size=1, max_size=3), st.lists(below, max_size=3)),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(
    tree=st.dictionaries(NAMES, TREES, min_size=1, max_size=4),
    flow=st.sampled_from([False, None, True]),
    key=st.lists(NAMES, min_size=1, max_size=3),
    value=st.one_of(st.integers(), st.booleans(), st.sampled_from(["x", "a, b", "list(range(0,8))", "2", "'"])),
    line=st.sampled_from(["\n", "\r\n"]),
)
def test_yaml_with_one_key_changed_is_the_tree_with_it(
    tree: dict[str, Any], flow: bool | None, key: list[str], value: Any, line: str
) -> None:
    """Whatever the text: what the parser reads afterwards is the tree with that one value."""
    text = yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=True).replace("\n", line)
    try:
        after = in_yaml(text, ".".join(key), value)
    except Unchangeable:
        return
    wanted = yaml.safe_load(text)
    here = wanted
    for name in key[:-1]:  # null makes way for a section
        here[name] = here.get(name) or {}
        here = here[name]
    put(wanted, ".".join(key), value)
    assert yaml.safe_load(after) == wanted


def test_one_key_of_toml_and_of_python() -> None:
    toml = "# head\nseq_len = 8   # cap\n[orchestrator]\nbatch_size=4\n[[env]]\nid = 'x'\n"
    assert in_toml(toml, "seq_len", 16) == toml.replace("= 8 ", "= 16 ")
    assert in_toml(toml, "orchestrator.batch_size", 5) == toml.replace("batch_size=4", "batch_size=5")
    assert tomllib.loads(in_toml(toml, "model.name", "q"))["model"] == {"name": "q"}
    apart = "[a]  # a's\nx = 1\n\n# of b\n[b]\n\n# of c\n[c]\n"
    assert in_toml(apart, "a.y", 2) == apart.replace("x = 1\n", "x = 1\ny = 2\n")
    assert in_toml(apart, "b.y", 2) == apart.replace("[b]\n", "[b]\ny = 2\n")
    assert in_toml(apart, "b.d.y", 2) == apart.replace("[b]\n", "[b]\n\n[b.d]\ny = 2\n")
    assert in_toml(apart, "c.y", 2) == f"{apart}y = 2\n"
    code = "from trl import GRPOConfig\n# é\nargs = GRPOConfig(\n    beta=0.1,  # é\n    num_generations=2 * 4,\n)\n"
    assert in_python(code, "num_generations", 16) == code.replace("2 * 4", "16")
    assert in_python(code, "use_vllm", True) == code.replace("2 * 4,", "2 * 4,\n    use_vllm=True,")


# ------------------------------------------------------------------------------------------------------------ the file


def test_bytes_before_the_text_and_line_ends_stay(folder: Path) -> None:
    file = folder / "verl_sync.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    scenario = read(file)
    assert patched(file, scenario).text.encode() == file.read_bytes()
    more = patched(file, with_changes(scenario, {"trainer.batch_samples": scenario.trainer.batch_samples * 2}))
    assert more.text.encode().replace(b"1024\r\n", b"512\r\n", 1) != more.text.encode()
    assert more.text.count("\r\n") == more.text.count("\n") > 10


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("--rollout.max_new_tokens 7168 --data.max_len 8192", "--rollout.max_new_tokens 14336 --data.max_len 15360"),
        ("--rollout.max_new_tokens 7168", "--rollout.max_new_tokens 14336 --data.max_len 14848"),
        ("--prompt_max_len 1024 --generate_max_len 7168", "--generate_max_len 14336"),
        ("--prompt_max_len 512 --generate_max_len 7168 --max_len 9000", "--generate_max_len 14336 --max_len 14848"),
    ],
)
def test_longer_answers_of_openrlhf_have_room_beside_the_prompt(tmp_path: Path, written: str, words: str) -> None:
    """data.max_len is vLLM's max_model_len: answers end there, whatever max_new_tokens says."""
    file = tmp_path / "openrlhf_run.sh"
    model = "--actor.model_name_or_path Qwen/Qwen3-4B --vllm.num_engines 4"
    file.write_text(f"python3 -m openrlhf.cli.train_ppo_ray {model} {written}\n")
    patch = patched(file, with_changes(read(file), {"workload.output_tokens.max": 14336.0}))
    assert " ".join(patch.words[""]) == words
    assert field_at(read_again(file, patch), "workload.output_tokens.max") == 14336


def test_a_model_path_stays_where_the_model_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "verl_run.yaml"
    file.write_text((HERE / "data" / "verl_sync.yaml").read_text().replace("Qwen/Qwen2.5-7B", "/m/Qwen2.5-7B"))
    assert patched(file, with_changes(read(file), {"engine.model": "Qwen/Qwen2.5-7B-Instruct"})).changes == ()
    (other,) = patched(file, with_changes(read(file), {"engine.model": "Qwen/Qwen3-8B"})).changes
    assert (other.key, other.new) == ("actor_rollout_ref.model.path", "Qwen/Qwen3-8B")


def test_a_switch_that_is_off_must_go(tmp_path: Path) -> None:
    file = tmp_path / "slime_run.sh"
    text = (HERE / "data" / "slime_sync.sh").read_text().replace("train.py", "train.py --recompute-granularity full")
    file.write_text(text if "--colocate" in text else text.replace("train.py", "train.py --colocate"))
    apart = with_changes(read(file), {"fleet.placement": "disaggregated", "sync.transport": "collective_broadcast"})
    patch = patched(file, apart)
    assert patch.removed == ("--colocate",)
    assert any(line.startswith("take out of slime_run.sh: --colocate") for line in patch.lines())


def test_a_flag_of_a_python_script_goes_to_its_command(tmp_path: Path) -> None:
    file = tmp_path / "trl_run.py"
    file.write_text(
        '"""\naccelerate launch --num_processes 2 r.py --model_name_or_path q/Qwen3-8B --max_completion_length 9\n"""\n'
        "from trl import GRPOConfig, GRPOTrainer\nargs = parser.parse_args()\n"
        "GRPOTrainer(args=GRPOConfig(num_generations=4, per_device_train_batch_size=2))\n"
    )
    asked = {"workload.output_tokens.max": 18, "workload.group_size": 2}
    patch = patched(file, with_changes(read(file), asked))
    assert patch.words == {"": ("--max_completion_length 18",)}
    assert patch.text == patch.before.replace("num_generations=4", "num_generations=2")
    half = {"engine.gpu_memory_utilization": 0.5}
    patch = patched(file, with_changes(read(file), half))  # a flag that it does not have would stop it
    assert (patch.words, patch.text.count(", vllm_gpu_memory_utilization=0.5)")) == ({}, 1)
    file.write_text(file.read_text().replace("= parser.", "= TrlParser(GRPOConfig)."))
    assert patched(file, with_changes(read(file), half)).words == {"": ("--vllm_gpu_memory_utilization 0.5",)}


def test_a_section_that_is_empty_takes_a_key(tmp_path: Path) -> None:
    file = tmp_path / "prime_rl_run.toml"
    file.write_text('[model]\nname = "Qwen/Qwen3-8B"\n\n[inference]\n\n# of it\n[orchestrator]\nbatch_size = 64\n')
    patch = patched(file, with_changes(read(file), {"engine.max_num_seqs": 96}))
    assert patch.text == patch.before.replace("[inference]\n", "[inference]\n\n[inference.vllm]\nmax_num_seqs = 96\n")


def test_what_cannot_be_changed_or_is_not_this_frameworks(tmp_path: Path) -> None:
    text = (HERE / "data" / "verl_sync.yaml").read_text().replace("train_batch_size: 512", "train_batch_size: &b 512")
    file = tmp_path / "verl_run.yaml"
    file.write_text(f"{text}other: *b\n")
    more = with_changes(read(file), {"trainer.batch_samples": read(file).trainer.batch_samples * 2})
    with pytest.raises(InputError, match="told by an alias or a pointer"):
        patched(file, more)
    with pytest.raises(InputError, match="looks like a configuration of verl"):
        patch_of("areal", more, limits_of, str(file))
    script = tmp_path / "roll.sh"
    script.write_text("python examples/start_rlvr_pipeline.py --config_path . --config_name rlvr\n")
    with pytest.raises(InputError, match="takes no settings on its command line"):
        patch_of("roll", more, limits_of, str(script))


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fleetsim", *words], capture_output=True, text=True)


def test_the_diff_is_one_that_patch_takes(folder: Path, tmp_path: Path) -> None:
    file, job, new = folder / "verl_sync.yaml", tmp_path / "job.yaml", tmp_path / "new.yaml"
    assert run("scenario", "from", "verl", str(file), "-o", str(job)).returncode == 0
    asked = ("scenario", "to", "verl", str(job), "--set", "trainer.batch_samples=8192", "--config", str(file))
    shown = run(*asked)
    assert "data.train_batch_size: 512 -> " in shown.stderr
    assert run(*asked, "-o", str(new)).returncode == 0
    if shutil.which("patch"):
        subprocess.run(["patch", str(file)], input=shown.stdout, text=True, check=True, capture_output=True)
        assert file.read_bytes() == new.read_bytes()


def test_size_says_it_to_the_framework(folder: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    run("scenario", "from", "verl", str(folder / "verl_sync.yaml"), "-o", str(job))
    words = ("--scenario", str(job), "--replications", "2", "--to", "verl")
    told = run("size", *words, "--config", str(folder / "verl_sync.yaml"))
    assert told.returncode == 0
    assert "verl, trainer_mode sync: " in told.stdout
    alone = run("size", *words)
    assert alone.returncode == 2
    assert "needs the other" in alone.stderr


def test_python_says_it_to_the_users_own_file(folder: Path) -> None:
    import fleetsim as fs

    path = folder / "areal.yaml"
    job = fs.load(scenario_from("areal", read_source(str(path)), path.name).scenario)
    patch = job.with_({"workload.group_size": 2 * job["workload.group_size"]}).to("areal", config=path)
    assert [change.key for change in patch.changes if "group_size" in "".join(change.paths)] == ["gconfig.n_samples"]


SKYRL = """\
python -m skyrl.train.entrypoints.main_base trainer.policy.model.path=Qwen/Qwen3-8B \\
  trainer.algorithm.use_kl_loss=false trainer.train_batch_size=128 trainer.policy_mini_batch_size=128 \\
  generator.n_samples_per_prompt=16
"""
MEGATRON = """\
python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B trainer.n_gpus_per_node=8 \\
  algorithm.adv_estimator=grpo model_engine=megatron \\
  actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4
"""


def test_one_update_a_step_stays_one(tmp_path: Path) -> None:
    """A recipe of nothing but usual values is wanted, too."""
    path = tmp_path / "skyrl.sh"
    path.write_text(SKYRL)
    wanted = with_changes(read(path), {"workload.group_size": 4})
    again = read_again(path, patched(path, wanted))
    assert (again.workload.group_size, again.trainer.batch_samples) == (4, 128 * 16)
    assert again.trainer.recipe.optimizer_steps == wanted.trainer.recipe.optimizer_steps == 1


NEMO = """\
policy:
  model_name: Qwen/Qwen2.5-1.5B
  max_total_sequence_length: 512
  generation:
    max_new_tokens: ${policy.max_total_sequence_length}
    vllm_cfg: {tensor_parallel_size: 1}
    colocated: {enabled: false, resources: {gpus_per_node: 1, num_nodes: null}}
data: {max_input_seq_length: 512}
grpo: {num_prompts_per_step: 8, num_generations_per_prompt: 4}
cluster: {gpus_per_node: 2, num_nodes: 1}
"""


def test_engines_that_grow_get_their_gpus_on_the_node(tmp_path: Path) -> None:
    """tests/functional/grpo_automodel_lora_async.sh: the engine had one GPU of two, and needs two; a pointer stays."""
    path = tmp_path / "nemo_rl.yaml"
    path.write_text(NEMO)
    patch = patched(path, with_changes(read(path), {"engine.tp": 2}))
    assert patch.text == (
        NEMO.replace("tensor_parallel_size: 1", "tensor_parallel_size: 2")
        .replace("{gpus_per_node: 1", "{gpus_per_node: 2")
        .replace("cluster: {gpus_per_node: 2", "cluster: {gpus_per_node: 3")
    )


def test_a_layout_that_is_left_open_is_the_users(tmp_path: Path) -> None:
    path = tmp_path / "verl.sh"
    path.write_text(MEGATRON)
    patch = patched(path, load_scenario("presets/verl-sync"))
    assert not [left.path for left in patch.left_out if left.path.startswith("trainer.recipe")]
    assert not any("megatron" in change.key and "parallel" in change.key for change in patch.changes)


@pytest.mark.parametrize("mode", ["sglang.d4p1t1+d4p1t1", "sglang:d2p1t2+d2p1t1c2", "vllm:d4p1t1+fsdp:d4p1t1"])
def test_both_halves_of_an_allocation_grow(tmp_path: Path, mode: str) -> None:
    """AReaL's older string for all GPUs: only its numbers change."""
    path = tmp_path / "areal.yaml"
    text = f"allocation_mode: {mode}  # mine\nactor: {{path: Qwen/Qwen3-8B}}\ntrain_dataset: {{batch_size: 8}}\n"
    path.write_text(text)
    own = read(path)
    wanted = {"fleet.instances": 8, "trainer.gpus": 2 * own.trainer.gpus}
    patch = patched(path, with_changes(own, wanted))
    again = read_again(path, patch)
    assert (again.fleet.instances, again.trainer.gpus, again.engine.tp) == (8, 2 * own.trainer.gpus, own.engine.tp)
    assert re.sub(r'[\d"]+', "", patch.text) == re.sub(r"\d+", "", text)

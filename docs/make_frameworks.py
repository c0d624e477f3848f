"""What `fleetsim scenario from` reads: writes docs/frameworks.md from the mappings themselves.

python docs/make_frameworks.py            write the page
python docs/make_frameworks.py --check    exit 1 if the page would change
python docs/make_frameworks.py --keys     print every key of every framework that is read, and what it becomes

The tables of keys are what the importers did with the configurations under tests/frameworks/data, which name every
parameter that is read; what is recognised and not modelled is each importer's own list.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from fleetsim.config.load import load_scenario
from fleetsim.frameworks.convert import FRAMEWORKS, Imported, scenario_from
from fleetsim.frameworks.export import scenario_to
from fleetsim.frameworks.source import read_source
from fleetsim.frameworks.unread_keys import NOTES
from fleetsim.job.derived_values import training_step_s
from fleetsim.job.nameplate import generated_mean, limits_of

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "frameworks.md"
DATA = ROOT / "tests" / "frameworks" / "data"
FORMS = {
    "verl": "Hydra YAML, scripts, `key=value` overrides; EasyR1's, Search-R1's, RAGEN's, rLLM's; Agent Lightning's "
    "tables",
    "roll": "pipeline YAML, `key=value` overrides",
    "openrlhf": "launch scripts and flags of either spelling",
    "open-instruct": "launch scripts (mason included) and flags",
    "trl": "`GRPOConfig(...)` in a Python script or notebook, Unsloth's too, YAML, Axolotl's too, scripts and flags",
    "areal": "YAML, `key=value` overrides; `backend` strings and the older `allocation_mode`",
    "nemo-rl": "YAML with `defaults:` parents, scripts, `key=value` overrides",
    "slime": "launch scripts, also in Python, and flags",
    "skyrl": "launch scripts, `key=value` overrides, YAML",
    "prime-rl": "`rl.toml`, flags; files from before 2026-05, and verifiers' of hosted trainings",
    "ms-swift": "launch scripts of `swift rlhf` and `megatron rlhf` with `NPROC_PER_NODE`, YAML (Ray's), flags",
    "rlinf": "YAML of reasoning and agents, `key=value` overrides",
    "tinker": "commands of its recipes, a run's `config.json`; the service has the GPUs",
}
WRITTEN = {
    "yaml": "YAML",
    "toml": "TOML",
    "overrides": "a script with `key=value` words",
    **dict.fromkeys(("flags", "dashes", "values"), "a script with flags"),
}
SHOWN = "verl", "verl-fully-async"
HEAD = """\
# A framework's own configuration as a scenario

fleetsim reads the configuration, launch script or flags that start a job, and writes a scenario with the framework's
key behind each value; and a scenario back as a configuration.

    fleetsim examples
    fleetsim scenario from verl run.sh -o own.yaml
    fleetsim scenario from verl run.sh -- trainer.nnodes=2 actor_rollout_ref.rollout.n=16
    fleetsim scenario from openrlhf -- --rollout.batch_size 128 --rollout.n_samples_per_prompt 8 ...
    cat rl.toml | fleetsim scenario from prime-rl - ... --json

On stderr stand:

- what was **taken**, with the framework's key;
- what was **assumed**, with the flag that says it;
- what is **not modelled**, but bears on speed or staleness.

`--verbose` also lists keys without a bearing; `--json` is one document.

Nothing is run. A shell script is read as bash reads it, with files that lie beside it. What a program prints, and what
only the environment or `$1` could set, is not known and is named. Of a test that is not decided, only what all branches
agree on is taken. A variable that the script does not set is unset where it asks for that (`${{NAME:-default}}`). Flags
behind `--` are the framework's and win over the file; `--set` changes the scenario. A framework's default is assumed.

## What no framework says

| what | assumption | say it with |
| --- | --- | --- |
| output lengths | lognormal, mean 33 % of the cap (published runs: 27 to 39 %), cv 1.0 | \
`--set workload.output_tokens.mean=TOKENS` |
| prompt length | 25 % of the cap, 512 without one | `--set workload.prompt_tokens=TOKENS` |
| GPU type | H100-SXM | `--set engine.gpu=H200` |
| trainer seconds | [the trainer's model](trainer.md); several updates on one batch are one step | \
`--set trainer.fixed_s=SECONDS`, `trainer.per_token_s=0`, `trainer.phases=[]` |
| sync seconds | [the transport](transports.md) | `--set sync.pause_s=SECONDS`, `trainer_block_s` |
| hand-over of shared GPUs | 5 s each way | `--set fleet.switch_s=SECONDS` |
| share of filtered groups | 0 | `--set workload.filter.zero_variance_share=SHARE` |

A trajectory takes all the turns that its cap allows, each within the cap of a turn. Where an agent or an environment
shows several turns and no setting says how many, `workload.turns.count` is assumed. Judges, reward models and teachers
on GPUs of their own become `stations` of engines like the policy's; of others, the GPUs are counted. A setting that is
not read, and whose name speaks of GPUs, nodes, a model, a precision, turns or a pass, is assumed, and `size` says so.
A file that trains without a rollout is refused by its name.

[What a run showed](next_run.md) replaces these: `fleetsim scenario from verl run.sh --run train.log`.

## Frameworks

| framework | reads | writes | modes |
| --- | --- | --- | --- |
{rows}

Each file under `fleetsim/frameworks` begins with the commit and files that it was read from.
`python docs/make_frameworks.py --keys` prints every key that is read, and what it becomes.

Scripts are held against bash: `python -m tests.frameworks.stubbed CHECKOUT` runs a checkout's in a jail, with stubs
for programs. Of 1,995 that start a training, 1,077 start the words that are read, 861 the same but for what the
host says (home, environment, arguments, GPUs, date, what a program prints), 55 stop before, 2 differ. The same, and but
for the host: verl 8, 165; slime 10, 36; SkyRL 21, 136; ROLL 43, 1; AReaL 3, 1; OpenRLHF 12, 1; NeMo-RL 346, 17;
open-instruct 90, 67; ms-swift 393, 7; RLinf 16, 38; miles 3, 41; six projects on verl 132, 351.

## The way back

    fleetsim size --preset verl-fully-async --batch 1024 --save plan.yaml
    fleetsim scenario to verl plan.yaml -o new.sh

This writes the scenario in the framework's form, in the mode that can say most of it. At the head of the file, on
stderr and in `--json` stand: what cannot be told, with what the framework has instead; what the plan rests on and no
configuration says; what a run needs besides (data, rewards, learning rates). In Python:
`fs.load("job.yaml").to("verl").text`.

`scenario from` reads that as the same scenario, but for what is listed. Engine limits that are open are written as
simulated, a prompt's cap as four times its mean.

### Your own configuration, changed

    fleetsim scenario to verl job.yaml --config run.yaml | patch run.yaml
    fleetsim plan --gpus 64 --scenario job.yaml --to verl --config run.sh

Only the settings that say something else than the scenario change; every other byte of the file stays. A YAML, TOML or
Python file is shown as a diff, and `-o FILE` writes it whole; a script stays as it is, and the words for its command's
end are shown. `size`, `split`, `plan` and `replay` take `--to` and `--config` for their fleet. A value that
another key shares by a YAML alias is refused.

- Prefill engines (`engine.disaggregation`) can be told to verl, slime and SkyRL. slime and SkyRL have one pool, so
  sides with a common divisor come back as more, smaller ones.
- An adapter in the engine (`engine.lora.rank`, rounded up to a rank that vLLM has) can be told to verl and SkyRL.

The framework's own parser takes what is written: in the tests for verl, OpenRLHF, TRL, AReaL and SkyRL
(`tests/frameworks/parsers`), by hand for prime-rl, open-instruct, ROLL and NeMo-RL; slime's and ms-swift's not at all.

`fleetsim scenario to {framework} {preset}` writes

```bash
{shown}```
"""


def main() -> int:
    """Write the page, or check that it is current."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="do not write; exit 1 if the page would change")
    parser.add_argument("--keys", action="store_true", help="print every key that is read, write nothing")
    given = parser.parse_args()
    if given.keys:
        print(keys())
        return 0
    text = page()
    if given.check:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        print("docs/frameworks.md is current" if current else "docs/frameworks.md is not current: run without --check")
        return 0 if current else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


def page() -> str:
    """The text of the page."""
    framework, preset = SHOWN
    scenario = load_scenario(f"presets/{preset}")
    made = scenario_to(framework, scenario, limits_of, preset, generated_mean(scenario), training_step_s(scenario))
    rows = (
        f"| {name} | {FORMS[name]} | {WRITTEN[known.form]} | {'; '.join(mode.name for mode in known.modes)} |"
        for name, known in FRAMEWORKS.items()
    )
    return HEAD.format(rows="\n".join(rows), framework=framework, preset=preset, shown=made.text)


def keys() -> str:
    """Every key that is read, and what is recognised and not modelled, framework by framework."""
    shared = (
        "In no framework modelled, though recognised by the words of its settings:\n",
        *map("- {}".format, NOTES.values()),
    )
    return "\n".join((*shared, "", *(line for framework in FRAMEWORKS for line in _framework(framework)))) + "\n"


def _framework(framework: str) -> Iterator[str]:
    module = import_module(f"fleetsim.frameworks.{framework.replace('-', '_')}")
    results = list(_imported(framework))
    yield f"## {framework}\n"
    yield f"{' '.join((module.__doc__ or '').split())}\n"
    modes = dict.fromkeys((r.mode, r.preset) for r in results)
    yield f"Modes shown here: {'; '.join(f'{mode} (`{preset}`)' for mode, preset in modes)}.\n"
    yield "| setting | scenario |"
    yield "|---|---|"
    rows: dict[str, dict[str, None]] = {}
    for taken in (t for r in results for t in r.taken if t.settings != (r.mode,)):
        for setting in taken.settings:
            rows.setdefault(_key(setting), {})[taken.path] = None
    for setting, paths in rows.items():
        yield f"| {setting} | {', '.join(f'`{p}`' for p in paths)} |"
    reasons: dict[str, list[str]] = {}
    for key, why in FRAMEWORKS[framework].left_out.items():
        reasons.setdefault(why, []).append(f"`{key}`")
    yield "\nRecognised, and not modelled:\n" if reasons else ""
    for why, keys in reasons.items():
        yield f"- {', '.join(keys)}: {why}"
    yield ""


def _imported(framework: str) -> Iterator[Imported]:
    for file in sorted(p for p in DATA.iterdir() if p.is_file()):
        owner = max((f for f in FRAMEWORKS if file.name.replace("_", "-").startswith(f)), key=len)
        if owner == framework:
            yield scenario_from(framework, read_source(str(file)), file.name)


def _key(setting: str) -> str:
    """The keys of `a 2 x b 8 = 16` and `a = 2`, without their values."""
    keys = re.sub(r" = .*$", "", setting).split(" x ")
    names = [re.sub(r" [\d.]+$", "", key) for key in keys]
    return " x ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.exit(main())

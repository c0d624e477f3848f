"""What `fleetsim scenario from` reads: writes docs/frameworks.md from the mappings themselves.

python docs/make_frameworks.py            write the page
python docs/make_frameworks.py --check    exit 1 if the page would change

The tables are what the importers did with the configurations under tests/frameworks/data, which name every parameter
that is read; what is recognised and not modelled is each importer's own list.
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
from fleetsim.frameworks.trl import CLASSES
from fleetsim.job.engine_limits import generated_mean, limits_of, training_step_s

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "frameworks.md"
DATA = ROOT / "tests" / "frameworks" / "data"
FORMS = {
    "verl": "Hydra YAML (also the resolved one beside a run), launch scripts, `key=value` overrides",
    "roll": "pipeline YAML, `key=value` overrides",
    "openrlhf": "launch scripts and flags, `--rollout.batch_size` as well as `--rollout_batch_size`",
    "open-instruct": "launch scripts (mason included) and flags",
    "trl": "`GRPOConfig(...)` in a Python script, YAML, launch scripts and flags",
    "areal": "YAML, `key=value` overrides; `backend` strings and the older `allocation_mode`",
    "nemo-rl": "YAML with its `defaults:` parents, `key=value` overrides",
    "slime": "launch scripts and flags",
    "skyrl": "launch scripts, `key=value` overrides, YAML",
    "prime-rl": "`rl.toml`, flags; files from before 2026-05 too",
}
WRITTEN = {
    "yaml": "YAML",
    "toml": "TOML",
    "overrides": "a script with `key=value` words",
    **dict.fromkeys(("flags", "dashes", "values"), "a script with flags"),
}
SHOWN = {"verl": "verl-fully-async", "prime-rl": "prime-rl"}
WAY_BACK = """\
## The way back: a scenario as a framework's configuration

    fleetsim size --preset verl-fully-async --batch 1024 --save job.yaml
    fleetsim scenario to verl job.yaml -o run.sh

writes the scenario in the framework's own form, ready to paste: engine arguments, batch, GPUs of both pools,
staleness, weight sync, and how it is trained. Behind each setting stands what it says of the scenario. Of the
framework's modes, the one that can say most of it is taken. What cannot be told to the framework is listed on stderr,
at the head of the file and in `--json`, each with what the framework has instead; so is what the plan rests on and no
configuration says (the GPU type, mean lengths, seconds of the trainer), and what a run needs besides (data, rewards,
learning rates). In Python: `fs.load("job.yaml").to("verl").text`.

The same mapping is used in both directions: `scenario from` reads what `scenario to` wrote as the same scenario, but
for what is listed. Engine limits that the scenario leaves open are written as they were simulated, since another
framework may start the engine with others. A prompt's cap is four times its mean, as `scenario from` assumes it.

Prefill engines (`engine.disaggregation`) are told to verl (`rollout.disaggregation`), slime
(`--prefill-num-servers`) and SkyRL (`enable_pd`, `num_prefill`). The latter two have one pool of engines; it is read as
so many alike instances as both numbers allow, and sides with a common divisor come back as more instances of smaller
ones. An adapter in the engine (`engine.lora.rank`, rounded up to a rank that vLLM has) is told to verl
(`model.lora_rank`, unless `lora.merge`) and SkyRL (`policy.model.lora.rank`; Megatron merges it unless
`merge_lora=false`). For the others both are listed.

### Read by the frameworks' own parsers

What is written goes through the framework's own parser, and all settings that it then has, its defaults \
included, are read
by `scenario from` as the same scenario. Five have a package, and the tests run its parser \
(`tests/frameworks/parsers`:
its own presets, some of the others, ranks, offload, critics, speculation, prefill engines, adapters, and \
scenarios drawn
by hypothesis). The others have none on a registry (PyPI's `slime` and `nemo-rl` are empty placeholders, `roll` is
something else), so they were read by hand, once, 2026-11-23, at the commits named below: every preset, and \
those of the
framework with six changes.

| framework | parser | checked | refused at first, mended |
|---|---|---|---|
| verl 0.9.1 | Hydra over its `config`, `validate_config`, the workers' dataclasses | tests | batches below \
the default mini-batch of 256; pipeline stages; FSDP keys beside Megatron's |
| OpenRLHF 0.11.2 | `train_ppo_ray`, to where it begins | tests | fewer samples than ranks |
| TRL 1.16.0 | `trl grpo`, `trl vllm-serve`, `AsyncGRPOConfig` | tests | `--beta` and `--num_iterations` of \
the asynchronous trainer; drafts of the server; groups of one |
| AReaL 1.0.4 | Hydra, `GRPOConfig`, `ModelAllocation` | tests | nothing refused; `consumer_batch_size` stayed at 1 |
| SkyRL 0.3.0 | `SkyRLTrainConfig`, `validate_cfg` | tests | every configuration: GPUs of the reference model, \
mini-batches |
| prime-rl at 559b4477 | `RLConfig` (pydantic) | by hand: 41 of 41 | files without a `[trainer]` section |
| open-instruct at e6c3044a | `HfArgumentParser` over its four dataclasses | by hand: 41 of 41 | `pack_length` \
below prompt and response; `beta` without a reference; ZeRO-3 of sequence parallelism |
| ROLL at 8eb27cc2 | `RLVRConfig`, `AgenticConfig` by dacite | by hand: 56 accepted | \
`enable_reference=false`, which a penalty above 0 turns on again |
| NeMo-RL at 7ea279ab | `load_config`, `MasterConfig` (pydantic) | by hand: 66 of 66 | nothing |
| slime at 624b824a | argparse over Megatron's | not run: it needs Megatron and SGLang | |
"""
HEAD = """\
# A framework's own configuration as a scenario

    fleetsim scenario from verl run_dapo.sh -o job.yaml
    fleetsim scenario from verl config.yaml -- trainer.nnodes=2 actor_rollout_ref.rollout.n=16
    fleetsim scenario from openrlhf -- --rollout.batch_size 128 --rollout.n_samples_per_prompt 8 ...
    cat rl.toml | fleetsim scenario from prime-rl - --set workload.output_tokens.mean=2100 --json

reads the real file, launch script or flags and writes a scenario with the framework's own key behind each value. On
stderr stand three lists: what was **taken**; what was **assumed**, because a configuration does not say it, with the
flag that says it; and what is **not modelled** though it bears on speed or staleness. Keys without a bearing are
counted (`--verbose` lists them). `--json` gives all of it as one document.

Nothing is run. A shell script is read as bash would read it: variables, arrays, `${NAME:-default}`, arithmetic, tests,
`case`, loops, functions, and files that it sources, where they lie beside it. What a `$(command)` prints, and what only
the environment or `$1` could set, is not known: the report says which settings are missing for that. Where a test
cannot be decided, every branch counts, and only what they agree on is taken. A variable that the script does not set
counts as unset where the script asks for that itself (`${NAME:-default}`, `[ -z "$NAME" ]`). Flags behind
`--` are the framework's own and win over the file; `--set` changes the scenario.

Assumed for every framework, since none of them says it:

| what | assumption | say it with |
|---|---|---|
| output lengths | lognormal, mean 33 % of the cap, cv 1.0 | `--set workload.output_tokens.mean=TOKENS` |
| prompt length | 25 % of the cap, 512 without one | `--set workload.prompt_tokens=TOKENS` |
| GPU type | H100-SXM | `--set engine.gpu=H200` |
| trainer seconds | from FLOPs, below | `--set trainer.fixed_s=SECONDS`, `trainer.per_token_s=0`, `trainer.phases=[]` |
| sync seconds | from the transport ([transports](transports.md)) | `--set sync.pause_s=SECONDS`, `trainer_block_s` |
| hand-over of shared GPUs | 5 s each way | `--set fleet.switch_s=SECONDS` |
| share of filtered groups | 0 | `--set workload.filter.zero_variance_share=SHARE` |

The mean is a third of the cap because published runs have 0.27 to 0.39 of it. The trainer's update and its log-prob
passes are estimated by its model ([trainer](trainer-accuracy.md)). Several updates on one rollout batch
count as one optimizer step, whose seconds are their sum. Defaults of the framework stand in where the file is silent,
and count as assumed. Written by `docs/make_frameworks.py`.
"""


def main() -> int:
    """Write the page, or check that it is current."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="do not write; exit 1 if the page would change")
    check = parser.parse_args().check
    text = page()
    if check:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        print("docs/frameworks.md is current" if current else "docs/frameworks.md is not current: run without --check")
        return 0 if current else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


def page() -> str:
    """The text of the page."""
    sections = (line for framework in FRAMEWORKS for line in _framework(framework))
    return "\n".join([HEAD, *_way_back(), *sections]) + "\n"


def _way_back() -> Iterator[str]:
    """What `scenario to` writes of two shipped presets, and the modes that it chooses from."""
    yield WAY_BACK
    for framework, name in SHOWN.items():
        scenario = load_scenario(f"presets/{name}")
        made = scenario_to(framework, scenario, limits_of, name, generated_mean(scenario), training_step_s(scenario))
        yield f"`fleetsim scenario to {framework} {name}` writes\n"
        yield f"```{'toml' if FRAMEWORKS[framework].form == 'toml' else 'sh'}\n{made.text}```\n"
    yield "| framework | written as | modes |\n|---|---|---|"
    for name, known in FRAMEWORKS.items():
        yield f"| {name} | {WRITTEN[known.form]} | {', '.join(mode.name for mode in known.modes)} |"
    yield ""


def _framework(framework: str) -> Iterator[str]:
    module = import_module(f"fleetsim.frameworks.{framework.replace('-', '_')}")
    results = list(_imported(framework))
    yield f"## {framework}\n"
    yield f"Reads {FORMS[framework]}.\n"
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
    for key, why in module.NOT_MODELLED.items():
        reasons.setdefault(why, []).append(f"`{key}`")
    yield "\nRecognised, and not modelled:\n"
    for why, keys in reasons.items():
        yield f"- {', '.join(keys)}: {why}"
    yield ""


def _imported(framework: str) -> Iterator[Imported]:
    for file in sorted(p for p in DATA.iterdir() if p.is_file()):
        owner = max((f for f in FRAMEWORKS if file.name.replace("_", "-").startswith(f)), key=len)
        if owner == framework:
            yield scenario_from(framework, read_source(str(file), (), CLASSES), file.name)


def _key(setting: str) -> str:
    """The keys of `a 2 x b 8 = 16` and `a = 2`, without their values."""
    keys = re.sub(r" = .*$", "", setting).split(" x ")
    names = [re.sub(r" [\d.]+$", "", key) for key in keys]
    return " x ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.exit(main())

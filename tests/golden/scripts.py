"""The Python face: what results print, hold and show in a notebook, what is refused, and every public signature."""

from __future__ import annotations

from tests.golden.call import script

_START = """
import html
import json
import re

import fleetsim as fs


def seen(result):
    print(repr(result))
    print("--- text")
    print(result)
    print("--- notebook")
    shown = result._repr_html_()
    print(html.unescape(re.sub("<[^>]+>", "", shown)))
    print(sorted(set(re.findall("<[a-z]+", shown))))
"""

_WRITES = "to_dict to_html to_json to_pandas _repr_html_"
# What users of each class reach for. What is added is no loss, and left out; what is gone shows.
_MEMBERS = {
    "CompareResult": f"{_WRITES} __getitem__ comparison headline significant",
    "Estimate": "ci_high ci_low mean",
    "FleetsimError": "exit_code",
    "InfeasibleError": "exit_code",
    "InputError": "exit_code",
    "Job": "__getitem__ _repr_html_ given notes replay save scenario simulate size split sweep with_",
    "Metrics": "__getitem__ get items keys mean to_pandas values",
    "OutsideError": "exit_code",
    "PlanResult": f"{_WRITES} asked feasible found headline job mean metrics profile scenario warnings",
    "ReplayResult": f"{_WRITES} answers backtest history metrics observed recommendation replayed scenario verdict"
    " warnings",
    "SimulateResult": f"{_WRITES} binding job mean metrics profile runs scenario table to_openmetrics to_parquet"
    " to_perfetto warnings",
    "SizeResult": f"{_WRITES} asked binding explanation feasible instances job mean metrics plan queue_cap warnings",
    "SplitResult": f"{_WRITES} advice asked job mean metrics verdict warnings way",
    "StuckError": "exit_code",
    "SweepResult": f"{_WRITES} best job swept warnings",
}

_SIGNATURES = f"""
import inspect

import fleetsim as fs


def has(what, part):
    return hasattr(what, part) or any(part in vars(base).get("__annotations__", ()) for base in what.__mro__)


def told(name, what):
    try:
        print(f"{{name}}{{inspect.signature(what)}}" if callable(what) else name)
    except (TypeError, ValueError):
        print(f"{{name}}: no signature")


for name in fs.__all__:
    what = getattr(fs, name)
    if not inspect.isclass(what):
        told(name, what)
        continue
    print(f"{{name}}: class, also a {{[base.__name__ for base in what.__mro__[1:] if base.__name__ in fs.__all__]}}")
    for part in {_MEMBERS!r}.get(name, "").split():
        told(f"  {{name}}.{{part}}", getattr(what, part, None)) if has(what, part) else print(f"  {{part}} IS GONE")
import fleetsim.api as api
told("api.replay", api.replay)
told("api.sweep", api.sweep)
"""

SCRIPTS = (
    script("python_signatures", _SIGNATURES),
    script("python_job", _START + """
job = fs.load("job.yaml", {"fleet.instances": 4}, batch=64)
seen(job)
print(job["fleet.instances"], job.save("kept.yaml"))
print(fs.scenarios())
print(fs.profiles())
""", "job.yaml"),
    script("python_simulate", _START + """
run = fs.load("job.yaml").simulate()
seen(run)
print(run.metrics)
print(run.to_json())
print(run.to_pandas().to_string())
print(run.table("steps").head(3).to_string())
print(run.to_html("run.html"))
""", "job.yaml"),
    script("python_size", _START + """
sized = fs.load(batch=64, len=300, replications=1, steps=12).size(target_idle=0.1)
seen(sized)
print(sized.instances, sized.mean["step_s"])
print(sized.to_json())
print(sized.to_pandas().to_string())
"""),
    script("python_split", _START + """
split = fs.load(batch=64, len=300, max_staleness=4, replications=1, steps=12).split(6)
seen(split)
print(split.way)
print(split.to_json())
print(split.to_pandas().to_string())
"""),
    script("python_compare", _START + """
job = fs.load("tiny.yaml")
found = fs.compare(job, job.with_({"fleet.instances": 3}), replications=2)
seen(found)
print(found.headline)
print(found.to_json())
print(found.to_pandas().to_string())
print(fs.compare(job.simulate(), job.simulate(seed=1)).headline)
""", "tiny.yaml"),
    script("python_sweep", _START + """
swept = fs.sweep("tiny.yaml", {"fleet.instances": [1, 2, 3]}, workers=1)
seen(swept)
print(repr(swept.best))
print(swept.to_json())
print(swept.to_pandas().to_string())
""", "tiny.yaml"),
    script("python_replay", _START + """
found = fs.replay("capped.om", "capped.yaml", changes={"fleet.max_in_flight_samples": 96})
seen(found)
print(found.to_json())
print(found.to_pandas().to_string())
print(found.metrics)
""", "capped.om", "capped.yaml"),
    script("python_profile", """
import fleetsim as fs

profile = fs.profile("tiny.profile.json")
print(type(profile).__name__, profile.name, profile.kind)
print(repr(profile))
""", "tiny.profile.json"),
    script("python_refused", """
import fleetsim as fs

job = fs.load("job.yaml")
for ask in (
    lambda: fs.load("nowhere.yaml"),
    lambda: fs.load("bad.yaml"),
    lambda: fs.load(bach=3),
    lambda: fs.load(batch="many"),
    lambda: fs.load(batch=0, len=-2, gpu="H1000"),
    lambda: job.with_({"fleet.instanzes": 3}),
    lambda: job["fleet.instanzes"],
    lambda: job.split(8, by="speed"),
    lambda: job.size(target_idle=3),
    lambda: job.simulate(steps=0),
    lambda: fs.compare(job, job, metrics=["steps_s"], min_change=20, replications=1),
    lambda: fs.sweep(job, {"fleet.instanzes": [1]}),
    lambda: fs.replay("words.txt"),
    lambda: fs.profile("nowhere"),
    lambda: fs.nothing,
):
    try:
        print(ask())
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        for problem in getattr(error, "problems", ()):
            print(f"  {problem!r}")
""", "job.yaml", "bad.yaml", "words.txt"),
)  # fmt: skip

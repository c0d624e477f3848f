"""What a user asks `fleetsim calibrate` for, checked before anything is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetsim.calibrate.output_paths import SUFFIX, Places, places_of, slug
from fleetsim.errors import InputError, Problem
from fleetsim.json_text import from_json

FULL_S, QUICK_S = 600.0, 120.0
LEAST_S = 10.0


@dataclass(frozen=True, slots=True)
class Request:
    """One calibration. source: vllm, server or files. Null limits mean: as the engine says, or its default.

    engine_args: further engine arguments by name. budget_s: seconds for everything.
    """

    source: str
    model: str | None
    url: str | None
    files: tuple[str, ...]
    gpu: str | None
    tp: int | None
    dtype: str | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    max_model_len: int | None
    gpu_memory_utilization: float | None
    quantization: str | None
    load_format: str
    engine_args: dict[str, Any]
    kv_blocks: int | None
    block_size: int | None
    api_key: str | None
    yes: bool
    quick: bool
    budget_s: float
    measure_sync: bool
    resume: bool
    measure_only: bool
    seed: int
    places: Places
    name: str | None
    force: bool


def request_from(given: Mapping[str, Any]) -> Request:
    """The request in the parameters of the command. Raises InputError with all problems."""
    given = {key.rstrip("_"): value for key, value in given.items()}
    files = (*(given.get("from") or ()), *(given.get("more") or ()))
    problems = _contradictions(given, files)
    source = "files" if files else "server" if given.get("url") else "vllm"
    args, found = _engine_args(given.get("engine_arg") or ())
    problems += found
    quick = bool(given.get("quick"))
    budget_s = given.get("budget_s")
    if budget_s is None:
        budget_s = QUICK_S if quick else FULL_S
    elif not LEAST_S <= budget_s <= 86_400:
        problems.append(Problem("--budget-s", budget_s, f"{LEAST_S:g} to 86400 seconds", "600 is the default"))
    problems += [
        Problem(f"--{name.replace('_', '-')}", given[name], "an integer >= 1", "give a positive number")
        for name in ("tp", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "kv_blocks", "block_size")
        if given.get(name) is not None and given[name] < 1
    ]
    share = given.get("gpu_memory_utilization")
    if share is not None and not 0 < share <= 1:
        problems.append(Problem("--gpu-memory-utilization", share, "a share in (0, 1]", "vLLM's default is 0.92"))
    model = given.get("model")
    if source == "vllm" and model and model.startswith(("/", "./", "../")) and not os.path.isdir(model):
        problems.append(
            Problem("--model", model, "no such folder", "give one with a config.json, or a Hugging Face id")
        )
    places = None
    try:
        places = places_of(given.get("output") or f"{_stem(given, files)}{SUFFIX}")
    except InputError as error:
        problems += error.problems
    if problems or places is None:
        raise InputError(problems)
    same = Request.__dataclass_fields__.keys() & given.keys()
    return Request(
        **{
            **{key: given[key] for key in same},
            "source": source,
            "files": files,
            "engine_args": args,
            "budget_s": float(budget_s),
            "places": places,
        }
    )


def _contradictions(given: Mapping[str, Any], files: tuple[str, ...]) -> list[Problem]:
    problems = []
    sources = [flag for flag, value in (("--url", given.get("url")), ("--from", files)) if value]
    if len(sources) > 1:
        problems.append(Problem("--url", given["url"], "one of --url and --from", "leave one of them out"))
    if not sources and not given.get("model"):
        rule = "one of --model (in process), --url (a server) and --from (files) is needed"
        problems.append(Problem("--model", None, rule, "for example --model Qwen/Qwen2.5-7B"))
    if given.get("engine", "vllm") != "vllm":
        rule = "only vllm runs in process"
        problems.append(Problem("--engine", given["engine"], rule, "start a server of that engine and give its --url"))
    if not sources:
        problems += [
            Problem(f"--{name.replace('_', '-')}", given[name], "is for --url and --from", "the engine says it itself")
            for name in ("gpu", "kv_blocks", "block_size")
            if given.get(name) is not None
        ]
    elif given.get("engine_arg"):
        problems.append(Problem("--engine-arg", given["engine_arg"], "is for an engine in process", "leave it out"))
    if files and (given.get("resume") or given.get("measure_only")):
        flag = "--resume" if given.get("resume") else "--measure-only"
        problems.append(Problem(flag, True, "nothing is measured with --from", "leave it out"))
    return problems


def _engine_args(texts: tuple[str, ...] | list[str]) -> tuple[dict[str, Any], list[Problem]]:
    found: dict[str, Any] = {}
    problems = []
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip().lstrip("-").replace("-", "_")
        if not equals or not key.isidentifier():
            problems.append(
                Problem("--engine-arg", text, "key=value, the key as the engine names it", "enforce_eager=true")
            )
            continue
        try:
            found[key] = from_json(value)
        except ValueError:
            found[key] = {"True": True, "False": False, "None": None}.get(value, value)
    return found, problems


def _stem(given: Mapping[str, Any], files: tuple[str, ...]) -> str:
    """The name of the files where the user gives none: the model, else the server, else the first file."""
    if given.get("model"):
        stem = slug(str(given["model"]))
        tp = given.get("tp") or 1
        return stem if tp == 1 else f"{stem}-tp{tp}"
    if given.get("url"):
        return slug(str(given["url"]).split("//", 1)[-1].split("/", 1)[0])
    first = slug(files[0]) if files else "engine"
    for ending in (".gz", ".jsonl", ".raw", ".json", ".csv"):
        first = first.removesuffix(ending)
    return first

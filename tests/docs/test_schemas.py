"""The schemas of results: what is shipped is what the kept documents have, and documents that nobody kept fit, too."""

from __future__ import annotations

import importlib.util
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError
from typer.testing import CliRunner

from fleetsim.cli.main import app
from fleetsim.tell import data

SHIPPED = Path(data.__file__).parent / "schemas"
SMALL = "--replications 2 --set run.steps=12"
COMMANDS = (
    f"size --batch 32 --len 150 --preset trl-async-grpo {SMALL}",
    f"simulate verl-sync {SMALL}",
    f"simulate async-judge {SMALL}",
    f"simulate roll-agentic {SMALL}",
    "compare async-one-step sync-colocated --replications 2 --steps 12",
    f"sweep async-one-step --grid fleet.instances=2,3 --workers 1 {SMALL}",
    f"split --gpus 4 --batch 32 --len 150 --model Qwen/Qwen2.5-1.5B {SMALL}",
    "scenario ls",
    "scenario check verl-sync",
    "profile estimate --gpu H100 --model Qwen/Qwen2.5-7B",
)


def printed(words: str) -> Any:
    done = CliRunner().invoke(app, shlex.split(words))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_what_is_shipped_is_what_tests_keep() -> None:
    place = Path(__file__).parents[2] / "docs" / "reference_schemas.py"
    spec = importlib.util.spec_from_file_location("reference_schemas", place)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    shipped = {place.name: place.read_text(encoding="utf-8") for place in SHIPPED.glob("*.json")}
    assert shipped == made.schemas(), "python docs/make_reference.py writes them"
    assert len({json.loads(text)["$id"] for text in shipped.values()}) == len(shipped)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("words", COMMANDS)
def test_a_document_that_nobody_kept_fits(words: str) -> None:
    document = printed(f"{words} --json")
    schema = printed(f"scenario schema --result '{document['command']}'")
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(document)
    for key in schema["required"]:
        with pytest.raises(ValidationError, match=key):
            Draft202012Validator(schema).validate({k: v for k, v in document.items() if k != key})

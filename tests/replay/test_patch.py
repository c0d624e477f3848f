"""Deployment patches: valid YAML, the right number, and the way back."""

from __future__ import annotations

import json
import shlex

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.errors import InputError
from fleetsim.records import replace
from fleetsim.replay.change.patch import Deployment, parse_deployment, patch_of, rollback_command


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_replicas_of_a_workload(kind: str) -> None:
    patch = patch_of(parse_deployment(f"{kind.lower()}/rollout@rl"), 12)
    body = yaml.safe_load(patch.yaml)
    assert body == {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "rollout", "namespace": "rl"},
        "spec": {"replicas": 12},
    }
    assert patch.command == f"kubectl -n rl patch {kind.lower()} rollout --type strategic --patch-file FILE"
    assert rollback_command(parse_deployment(f"{kind.lower()}/rollout@rl"), 8) == (
        f"kubectl -n rl scale {kind.lower()} rollout --replicas 8"
    )


def test_a_bare_name_is_a_deployment() -> None:
    assert parse_deployment("rollout") == Deployment("rollout")
    assert "namespace" not in yaml.safe_load(patch_of(Deployment("rollout"), 1).yaml)["metadata"]


def test_a_worker_group_is_tested_by_name_before_it_is_changed() -> None:
    target = parse_deployment("raycluster/verl:rollout:1")
    body = yaml.safe_load(patch_of(target, 6).yaml)
    assert body[0] == {"op": "test", "path": "/spec/workerGroupSpecs/1/groupName", "value": "rollout"}
    assert {op["path"].rpartition("/")[2]: op["value"] for op in body[1:]} == {
        "replicas": 6,
        "minReplicas": 6,
        "maxReplicas": 6,
    }
    back = shlex.split(rollback_command(target, 4))
    assert back[:4] == ["kubectl", "patch", "raycluster", "verl"]
    assert json.loads(back[-1])[1]["value"] == 4


def test_ranks_of_one_pod() -> None:
    target = replace(parse_deployment("rollout"), instances_per_replica=8)
    assert patch_of(target, 24).replicas == 3
    assert rollback_command(target, 16).endswith("--replicas 2")
    with pytest.raises(InputError, match="deploy 24 instead"):
        patch_of(target, 20)


@pytest.mark.parametrize(
    "text",
    ["", "Rollout", "job/rollout", "rollout@", "raycluster/verl", "rollout:group", "raycluster/v:g:x", "a b", "-a"],
)
def test_names_that_kubernetes_refuses(text: str) -> None:
    with pytest.raises(InputError):
        parse_deployment(text)


@given(st.text(max_size=40))
def test_any_text_is_a_target_or_an_error(text: str) -> None:
    try:
        target = parse_deployment(text)
    except InputError:
        return
    patch = patch_of(target, 3)
    assert yaml.safe_load(patch.yaml)
    words = shlex.split(rollback_command(target, 3))
    assert words[0] == "kubectl"
    assert target.name in words

"""The rebalance as a Kubernetes patch: the replicas of what runs the rollout engines, and the way back.

A Deployment and a StatefulSet hold `spec.replicas` and take a strategic merge patch. A RayCluster (KubeRay,
`ray-operator/apis/ray/v1`) is a custom resource, which takes none: its worker groups are a list, patched by index
with a JSON patch that first tests the group's name. The trainer gang stays as it is.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, Literal

from msgspec import Struct

from fleetsim.config.yaml_text import to_yaml
from fleetsim.errors import InputError, Problem

Kind = Literal["Deployment", "StatefulSet", "RayCluster"]
KINDS: tuple[Kind, ...] = ("Deployment", "StatefulSet", "RayCluster")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_API = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "RayCluster": "ray.io/v1"}


class Deployment(Struct, frozen=True):
    """What is resized. name, namespace: its own in the cluster. instances_per_replica: engines in one pod (data-
    parallel ranks). group: of a RayCluster, the worker group's name, and group_index its place in the list."""

    name: str
    namespace: str | None = None
    kind: Kind = "Deployment"
    instances_per_replica: int = 1
    group: str | None = None
    group_index: int = 0


class Patch(Struct, frozen=True):
    """yaml: the file's text. command: applies it, with FILE for the file's name. replicas: pods, which `--json` has."""

    yaml: str
    command: str
    replicas: int


def parse_deployment(text: str) -> Deployment:
    """`[KIND/]NAME[@NAMESPACE]`, a Deployment where no kind is said; `raycluster/NAME:GROUP[:INDEX]` for Ray.

    Raises InputError.
    """
    path, _, namespace = text.partition("@")
    kind_text, slash, name = path.rpartition("/")
    kinds = {k.lower(): k for k in KINDS} | {"deploy": "Deployment", "sts": "StatefulSet"}
    kind = kinds.get(kind_text.lower() if slash else "deployment")
    name, _, group = name.partition(":")
    group, _, index = group.partition(":")
    problems = []
    if kind is None:
        rule = f"kind must be one of {', '.join(KINDS)}"
        problems.append(Problem("--deployment", text, rule, "write deployment/NAME"))
    for word, what in ((name, "name"), *(((namespace, "namespace"),) if "@" in text else ())):
        if not _NAME.fullmatch(word):
            problems.append(Problem("--deployment", text, f"no Kubernetes {what}: {word!r}", "write NAME[@NAMESPACE]"))
    if kind == "RayCluster" and not _NAME.fullmatch(group):
        problems.append(Problem("--deployment", text, "names no worker group", "write raycluster/NAME:GROUP"))
    if group and kind not in (None, "RayCluster"):
        rule, remedy = "only a RayCluster has groups", "leave out the colon and the rest"
        problems.append(Problem("--deployment", text, rule, remedy))
    if index and not (index.isascii() and index.isdigit() and len(index) < 6):
        problems.append(Problem("--deployment", text, "the group's index is no number", "write NAME:GROUP:0"))
    if problems or kind is None:
        raise InputError(problems)
    chosen: Kind = next(k for k in KINDS if k == kind)
    return Deployment(name, namespace or None, chosen, group=group or None, group_index=int(index or 0))


def patch_of(deployment: Deployment, instances: int) -> Patch:
    """The patch to so many instances.

    Raises InputError where they do not fill whole replicas.
    """
    per = deployment.instances_per_replica
    if instances % per:
        rule = f"does not fill replicas of {per} instances"
        raise InputError([Problem("fleet.instances", instances, rule, f"deploy {-(-instances // per) * per} instead")])
    replicas = instances // per
    if deployment.kind == "RayCluster":
        text = to_yaml(_ray_patch(deployment, replicas))
        return Patch(text, f"{_kubectl(deployment, 'patch')} --type json --patch-file FILE", replicas)
    body: dict[str, Any] = {
        "apiVersion": _API[deployment.kind],
        "kind": deployment.kind,
        "metadata": {"name": deployment.name},
        "spec": {"replicas": replicas},
    }
    if deployment.namespace:
        body["metadata"]["namespace"] = deployment.namespace
    return Patch(to_yaml(body), f"{_kubectl(deployment, 'patch')} --type strategic --patch-file FILE", replicas)


def _kubectl(deployment: Deployment, verb: str) -> str:
    """The command up to its target."""
    where = f" -n {shlex.quote(deployment.namespace)}" if deployment.namespace else ""
    return f"kubectl{where} {verb} {deployment.kind.lower()} {shlex.quote(deployment.name)}"


def rollback_command(deployment: Deployment, instances: int) -> str:
    """Restores the recorded fleet with one command, no file needed."""
    replicas = max(0, round(instances / deployment.instances_per_replica))
    if deployment.kind == "RayCluster":
        body = json.dumps(_ray_patch(deployment, replicas), separators=(",", ":"))
        return f"{_kubectl(deployment, 'patch')} --type json --patch {shlex.quote(body)}"
    return f"{_kubectl(deployment, 'scale')} --replicas {replicas}"


def _ray_patch(deployment: Deployment, replicas: int) -> list[dict[str, Any]]:
    """Replicas of one worker group; the autoscaler's bounds follow, or they would undo it."""
    place = f"/spec/workerGroupSpecs/{deployment.group_index}"
    return [
        {"op": "test", "path": f"{place}/groupName", "value": deployment.group},
        *({"op": "add", "path": f"{place}/{name}", "value": replicas} for name in ("replicas", "minReplicas")),
        {"op": "add", "path": f"{place}/maxReplicas", "value": replicas},
    ]

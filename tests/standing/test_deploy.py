"""What is shipped for a cluster: manifests by Kubernetes' own schemas, their words by fleetsim, the action by bash.

Not executed here: an image is not built, a cluster not asked, the action not run by its host.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from fleetsim.cli.main import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs" / "deploy"
# Kinds that Kubernetes itself does not know: their schemas come with what reads them.
OF_OTHERS = {"ServiceMonitor": {"selector", "endpoints"}, "ScaledObject": {"scaleTargetRef", "triggers"}}
MANIFESTS = sorted(
    place for place in DEPLOY.rglob("*.yaml") if place.name not in ("kustomization.yaml", "job.yaml")
)  # fmt: skip


def manifest(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text())
    return found


@pytest.mark.parametrize("place", MANIFESTS, ids=lambda place: place.name)
@pytest.mark.parametrize("version", ["1.28", "1.33"])
def test_every_manifest_is_one(place: Path, version: str) -> None:
    document = yaml.safe_load(place.read_text())
    if document["kind"] in OF_OTHERS:
        assert set(document["spec"]) >= OF_OTHERS[document["kind"]]
        return
    if document["kind"] == "HorizontalPodAutoscaler" and version == "1.28":
        document["spec"]["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 0}}  # the tolerance is of 1.33
    kubernetes_validate.validate(document, version, strict=True)


def test_the_watcher_s_words_are_its_own(tmp_path: Path) -> None:
    container = manifest("kustomize/deployment.yaml")["spec"]["template"]["spec"]["containers"][0]
    words = [
        word.replace("/job/job.yaml", str(DEPLOY / "kustomize" / "job.yaml")).replace(
            "prometheus-operated", "127.0.0.1"
        )
        for word in container["args"]
        if not word.startswith("--listen")
    ]
    done = CliRunner().invoke(app, [*words, "--once", "--timeout", "1"])
    assert done.exit_code == 3, done.stderr  # the words are right, and no Prometheus is there
    assert "cannot be reached" in done.stderr


def test_ports_and_names_agree() -> None:
    pod = manifest("kustomize/deployment.yaml")["spec"]["template"]
    container, service = pod["spec"]["containers"][0], manifest("kustomize/service.yaml")
    policy, kustomization = manifest("kustomize/networkpolicy.yaml"), manifest("kustomize/kustomization.yaml")
    port = container["ports"][0]
    assert f"--listen=0.0.0.0:{port['containerPort']}" in container["args"]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    assert (
        service["spec"]["ports"][0]["port"] == port["containerPort"] == policy["spec"]["ingress"][0]["ports"][0]["port"]
    )
    labels = pod["metadata"]["labels"]
    assert service["spec"]["selector"] == labels == policy["spec"]["podSelector"]["matchLabels"]
    monitor = manifest("kustomize/servicemonitor.yaml")["spec"]
    assert monitor["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    assert {probe["httpGet"]["path"] for probe in (container["readinessProbe"], container["livenessProbe"])} == {
        "/healthz"
    }
    assert pod["spec"]["volumes"][0]["configMap"]["name"] == kustomization["configMapGenerator"][0]["name"]
    assert all((DEPLOY / "kustomize" / name).exists() for name in kustomization["resources"])


def test_the_page_shows_the_files() -> None:
    page = (ROOT / "docs" / "watch.md").read_text()
    for name in ("keda", "hpa"):
        assert f"deploy/scaling/{name}.yaml" in page


@pytest.mark.parametrize(
    ("condition", "code"), [("ratio.cost_per_step>1.5", 0), ("step_s>1000,ratio.cost_per_step>0.1", 10)]
)
def test_the_action_s_script_is_a_gate(condition: str, code: int, tmp_path: Path) -> None:
    script = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][0]["run"]
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "pip").write_text("#!/bin/sh\nexit 0\n")
    (binaries / "fleetsim").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m fleetsim "$@" --replications 3 --steps 6\n'
    )
    for place in binaries.iterdir():
        place.chmod(0o755)
    summary = tmp_path / "summary.md"
    environment = {
        **os.environ,
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "BEFORE": "async-one-step",
        "AFTER": "async-one-step",
        "FAIL_IF": condition,
        "PACKAGE": "fleetsim",
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    done = subprocess.run(["bash", "-e", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert summary.read_text().startswith("```text\n")


def test_the_job_script_is_bash() -> None:
    subprocess.run(["bash", "-n", DEPLOY / "slurm.sh"], check=True)

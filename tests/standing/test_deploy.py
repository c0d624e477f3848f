"""What is shipped for a cluster: manifests by Kubernetes' own schemas, their words by fleetsim, the action by bash.

Not executed here: an image is not built, a cluster not asked, the action not run by its host.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from fleetsim.alerts.ask import AlertsResult, DashboardResult
from fleetsim.alerts.dashboard import dashboard
from fleetsim.alerts.rules import Writing, object_name
from fleetsim.alerts.signals import MetricNames
from fleetsim.cli.main import app
from tests.standing.plans import chosen, promtool, written

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs" / "deploy"
# Kinds that Kubernetes itself does not know: their schemas come with what reads them.
OF_OTHERS = {"ServiceMonitor": {"selector", "endpoints"}, "ScaledObject": {"scaleTargetRef", "triggers"}}
MANIFESTS = sorted(
    place
    for place in DEPLOY.rglob("*.yaml")
    if place.name not in ("kustomization.yaml", "job.yaml") and "chart" not in place.parts
)
CHART = DEPLOY / "chart"
_LINE = re.compile(r"^( *)\{\{-? ?(if|with|end|toYaml)(?: (\S+))?(?: \| nindent (\d+))? \}\}\n", re.MULTILINE)


def of_chart(**values: Any) -> list[dict[str, Any]]:
    """The chart's objects, by the few forms of Helm's templates that it uses; another form fails. Helm is not run.

    values: instead of those of values.yaml.
    """
    known: dict[str, Any] = {**yaml.safe_load((CHART / "values.yaml").read_text()), **values}
    lines: list[str] = []
    shown: list[Any] = []
    for line in (CHART / "templates" / "watch.yaml").read_text().splitlines(keepends=True):
        if found := _LINE.fullmatch(line):
            _, word, name, deep = found.groups()
            value = shown[-1] if name == "." else known[name.removeprefix(".Values.")] if name else None
            if word == "end":
                shown.pop()
            elif word in ("if", "with"):
                shown.append(value)
            elif all(shown):
                lines.append(indent(yaml.safe_dump(value), " " * int(deep)))
        elif all(shown):
            lines.append(re.sub(r"\{\{ (.*?) \}\}", lambda m: _word(m[1], known), line))
    assert not shown
    return list(yaml.safe_load_all("".join(lines)))


def _word(words: str, known: Any) -> str:
    if words == ".Release.Name":
        return "release"
    if words == "toYaml .Values.job | sha256sum":
        return "0" * 64
    assert words.startswith(".Values."), f"another form of template: {words}"
    for key in words.removeprefix(".Values.").split("."):
        known = known[key]
    return str(known)


def manifest(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text())
    return found


@pytest.mark.parametrize("place", MANIFESTS, ids=lambda place: place.name)
@pytest.mark.parametrize("version", ["1.28", "1.33"])
def test_every_manifest_is_one(place: Path, version: str) -> None:
    held(yaml.safe_load(place.read_text()), version)


@pytest.mark.parametrize("version", ["1.28", "1.33"])
def test_every_object_of_the_chart_is_one(version: str) -> None:
    objects = of_chart(arguments=["--selector", 'job="rollout"'])
    for document in objects:
        held(document, version)
    kinds = [document["kind"] for document in objects]
    assert kinds == ["ConfigMap", "Deployment", "Service", "NetworkPolicy", "ServiceMonitor"]
    assert [document["kind"] for document in of_chart(serviceMonitor=False)] == kinds[:-1]
    assert len({document["metadata"]["name"] for document in objects}) == 2  # the job's, and the release's


def test_the_chart_is_the_kustomization() -> None:
    """The same pod, policy and service; of the job's name and labels each has its own."""

    def same(document: Any) -> Any:
        if isinstance(document, dict):
            left_out = ("labels", "matchLabels", "name", "annotations", "volumes")
            return {key: same(value) for key, value in document.items() if key not in left_out}
        return [same(one) for one in document] if isinstance(document, list) else document

    chart = {document["kind"]: document["spec"] for document in of_chart() if "spec" in document}
    for kind, spec in chart.items():
        ours = manifest(f"kustomize/{kind.lower()}.yaml")["spec"]
        if kind == "Deployment":
            ours["template"]["spec"]["containers"][0]["image"] += ":0.1.0"  # kustomize adds it from images
        if kind == "Service":
            ours["selector"] = spec["selector"]
        assert same(spec) == same(ours)
    (job,) = (yaml.safe_load(d["data"]["job.yaml"]) for d in of_chart() if d["kind"] == "ConfigMap")
    assert job == manifest("kustomize/job.yaml")


def test_rules_and_dashboard_are_objects(tmp_path: Path) -> None:
    result = AlertsResult(chosen(), Writing(MetricNames("vllm", "", ""), "My job: ü, 70B"), ())
    rule = yaml.safe_load(result.kubernetes())
    assert rule["kind"] == "PrometheusRule"
    assert promtool("check", "rules", written(tmp_path, "rules.yaml", rule["spec"]))
    panels = DashboardResult(dashboard(chosen(), result.writing), (), result.writing.plan)
    config = yaml.safe_load(panels.kubernetes())
    kubernetes_validate.validate(config, "1.33", strict=True)
    (text,) = config["data"].values()
    assert json.loads(text) == json.loads(panels.text())
    names = [document["metadata"]["name"] for document in (rule, config)]
    assert names == ["fleetsim-my-job-70b-rules", "fleetsim-my-job-70b-dashboard"]
    assert len(object_name("x" * 400, "rules")) == 253


def held(document: dict[str, Any], version: str) -> None:
    """Whether Kubernetes of this version takes it."""
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
            "prometheus-operated:9090", "127.0.0.1:1"
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
    (binaries / "pip").write_text(f'#!/bin/sh\ntest "$*" = "install --quiet {ROOT}"\n')
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
        "PACKAGE": "",
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    done = subprocess.run(["bash", "-e", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert summary.read_text().startswith("```text\n")


def test_the_job_script_is_bash() -> None:
    subprocess.run(["bash", "-n", DEPLOY / "slurm.sh"], check=True)

"""Rules and dashboard as objects of a cluster: a PrometheusRule of the Prometheus operator, and a ConfigMap that
Grafana's sidecar looks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Of an object's name: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ (RFC 1123).
_MOST = 253


def object_name(plan: str, what: str) -> str:
    """ "fleetsim-PLAN-WHAT" in the letters that a name may have."""
    plain = re.sub(r"[^a-z0-9]+", "-", plan.lower()).strip("-")
    room = _MOST - len(f"fleetsim--{what}")
    return "-".join(part for part in ("fleetsim", plain[:room].strip("-"), what) if part)


def prometheus_rule(rules: Mapping[str, Any], plan: str) -> dict[str, Any]:
    """The rules of a file as one object: https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.PrometheusRule."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": object_name(plan, "rules"), "labels": {"app.kubernetes.io/name": "fleetsim"}},
        "spec": dict(rules),
    }


def dashboard_map(dashboard: str, plan: str) -> dict[str, Any]:
    """The text of a dashboard in a ConfigMap, with the label that Grafana's charts look for by default."""
    name = object_name(plan, "dashboard")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "fleetsim", "grafana_dashboard": "1"}},
        "data": {f"{name}.json": dashboard},
    }

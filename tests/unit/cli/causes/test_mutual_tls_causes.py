"""A Pod without the mutual TLS that labels ask for: doing what its faults lead on to ends them."""

from __future__ import annotations

import copy
import shlex
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import MTLS, STRICT
from minik8s_modules.api.pods.sidecars import DISABLED, ENABLED, INJECT, injection, with_sidecar
from minik8s_modules.cli.causes.checks import Verdict
from tests.unit.cli.causes.logged_api import verdict_on

APP: JsonObject = {"containers": [{"name": "app", "image": "a"}]}
PODS: dict[str, tuple[JsonObject, dict[str, str]]] = {
    "made before": (APP, {}),
    "with a sidecar from before": (with_sidecar(APP), {}),
    "with a sidecar by hand, and no injection": (with_sidecar(APP), {INJECT: DISABLED}),
    "without injection": (APP, {INJECT: DISABLED}),
    "without injection, strict by a label of its own": (APP, {INJECT: DISABLED, MTLS: STRICT}),
    "on its node's network": ({**APP, "hostNetwork": True}, {}),
}


class Cluster:
    """A Pod and its Namespace."""

    def __init__(self, spec: JsonObject, labels: dict[str, str], space: dict[str, str]) -> None:
        self._space, self._labels, self._spec = dict(space), dict(labels), spec

    def verdict(self) -> Verdict:
        """Return the verdict on the Pod."""
        meta = {"name": "web", "namespace": "shop", "labels": self._labels}
        pod = {"kind": "Pod", "metadata": meta, "spec": self._spec, "status": {"phase": "Running"}}
        space = {"kind": "Namespace", "metadata": {"name": "shop", "labels": self._space}}
        pilot = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "minik8s-pilot", "namespace": "kube-system"},
        }
        return verdict_on(*copy.deepcopy([pod, space, pilot]))

    def do(self, command: str) -> None:
        """Do what a fault leads on to; who made the Pod makes it again, and the API server injects."""
        words = [word for word in shlex.split(command) if word != "--overwrite"]
        match words:
            case ["kubectl", "-n", "shop", "delete", "pod", "web"]:
                spec: JsonObject = {**self._spec, "initContainers": []}
                again: dict[str, Any] = {"metadata": {"labels": self._labels}, "spec": spec}
                self._spec = injection(again, self._space).spec or spec
            case ["kubectl", "-n", "shop", "label", "pod", "web", label]:
                self._labels |= dict([label.split("=")])
            case ["kubectl", "label", "namespace", "shop", label]:
                self._space |= dict([label.split("=")])
            case _:
                raise AssertionError(command)


@pytest.mark.parametrize("space", [{INJECT: ENABLED, MTLS: STRICT}, {MTLS: STRICT}, {INJECT: ENABLED}, {}])
@pytest.mark.parametrize("pod", PODS)
def test_doing_what_faults_lead_on_to_ends_them(pod: str, space: dict[str, str]):
    cluster, done = Cluster(*PODS[pod], space), list[str]()
    while faults := cluster.verdict().faults:
        assert faults[0].next not in done, faults[0]
        done.append(faults[0].next)
        cluster.do(done[-1])


def test_a_pod_whose_namespace_may_not_be_read_is_not_judged():
    meta = {"name": "web", "namespace": "shop", "labels": {MTLS: STRICT}}
    pod: JsonObject = {"kind": "Pod", "metadata": meta, "spec": APP, "status": {"phase": "Running"}}
    assert verdict_on(pod).faults == ()

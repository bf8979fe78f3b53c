"""kr8s: finds kinds by discovery, scales, watches.

Arguments: kubeconfig, namespace; with a pod: exec and logs of it.
"""

from __future__ import annotations

import sys

import kr8s
from kr8s.objects import ConfigMap, Deployment, Pod

KUBECONFIG, NAMESPACE, *PODS = sys.argv[1:]
TEMPLATE = {"metadata": {"labels": {"app": "k"}}, "spec": {"containers": [{"name": "c", "image": "minik8s/busybox:1"}]}}
SPEC = {"replicas": 1, "selector": {"matchLabels": {"app": "k"}}, "template": TEMPLATE}


def objects(api) -> None:
    assert api.version()["major"] == "1"
    assert api.whoami() == "minik8s-admin"
    found = ConfigMap({"metadata": {"name": "kr", "namespace": NAMESPACE}, "data": {"a": "b"}}, api=api)
    found.create()
    found.label({"x": "y"})
    found.annotate({"n": "o"})
    found.patch({"data": {"c": "d"}})
    found.patch([{"op": "replace", "path": "/data/c", "value": "e"}], type="json")
    assert (dict(found.data), dict(found.labels)) == ({"a": "b", "c": "e"}, {"x": "y"})
    assert [one.name for one in api.get("cm", namespace=NAMESPACE, label_selector={"x": "y"})] == ["kr"]
    for kind in ("replicasets", "jobs.batch", "hpa", "ing", "deployments.apps"):
        assert list(api.get(kind, namespace=NAMESPACE)) == [], kind
    deployment = Deployment({"metadata": {"name": "k", "namespace": NAMESPACE}, "spec": SPEC}, api=api)
    deployment.create()
    deployment.scale(0)
    assert deployment.replicas == 0
    event, first = next(iter(api.watch("configmaps", namespace=NAMESPACE)))
    assert (event, first.name) == ("ADDED", "kr")
    found.delete()
    assert not found.exists()
    deployment.delete()


def streams(api, name: str) -> None:
    pod = Pod.get(name, namespace=NAMESPACE, api=api)
    assert pod.ready()
    assert pod.exec(["echo", "a b"]).stdout == b"a b\n"
    assert next(iter(pod.logs(tail_lines=1))).startswith("tick")


API = kr8s.api(kubeconfig=KUBECONFIG)
if PODS:
    streams(API, PODS[0])
else:
    objects(API)

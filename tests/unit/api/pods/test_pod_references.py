"""Every way a pod can name another object is found."""

from __future__ import annotations

from minik8s_modules.api.pods.pod_references import references


def test_all_references_are_found():
    env = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}},
        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c1", "key": "k"}}},
        {"name": "C", "value": "x"},
    ]
    volumes = [
        {"name": "a", "secret": {"secretName": "s2"}},
        {"name": "b", "configMap": {"name": "c2"}},
        {"name": "c", "projected": {"sources": [{"secret": {"name": "s3"}}, {"configMap": {"name": "c3"}}]}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "p1"}},
        {"name": "e", "emptyDir": {}},
    ]
    pod = {
        "spec": {
            "serviceAccountName": "robot",
            "imagePullSecrets": [{"name": "s4"}],
            "volumes": volumes,
            "initContainers": [{"name": "i", "env": env}],
            "containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "s5"}}, {"configMapRef": {"name": "c4"}}]}],
        }
    }
    names = {f"{plural[0]}:{name}" for plural, name in references(pod)}
    wanted = {f"s:s{number}" for number in range(1, 6)} | {f"c:c{number}" for number in range(1, 5)}
    assert names == wanted | {"s:robot", "p:p1"}
    assert references({"spec": {"containers": []}}) == frozenset()

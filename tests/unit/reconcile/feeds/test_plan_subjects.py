"""What the rows of a plan are about."""

from __future__ import annotations

import pytest

from minik8s_modules.api.kinds import DNS, INGRESS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.feeds.plan_subjects import EVERYTHING, Subjects

POD = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
    "spec": {
        "containers": [
            {"name": "app", "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}]},
            {"name": "plain"},
        ],
        "volumes": [{"name": "v", "secret": {"secretName": "hidden"}}, {"name": "empty", "emptyDir": {}}],
    },
}
CLAIMING = {
    "metadata": {"name": "db", "namespace": "shop", "uid": "u2"},
    "spec": {
        "containers": [{"name": "disk"}, {"name": "net"}, {"name": "own"}, {"name": "gone"}],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "host", "hostPath": {"path": "/etc"}},
        ],
    },
}


def mounting(volume: str, host_path: str) -> JsonObject:
    """Return a container's entry."""
    return {"mounts": [{"volume": volume, "host_path": host_path}]}


CONTAINERS = {
    "u2/disk": mounting("data", "/srv/disk"), "u2/net": mounting("data", ""), "u2/own": mounting("host", "/etc"),
}  # fmt: skip
HOSTS = {"a.test": [(DNS, {"metadata": {"name": "d", "namespace": "shop"}}), (INGRESS, {"metadata": {"name": "i"}})]}


@pytest.mark.parametrize(
    ("section", "key", "said"),
    [
        ("network", "pod-network", ["Node/n1"]),
        ("sandboxes", "u1", ["Pod/shop/web"]),
        ("sandboxes", "gone", ["Pod"]),
        ("containers", "u1/app", ["Pod/shop/web", "ConfigMap/shop/settings"]),
        ("containers", "u1/plain", ["Pod/shop/web"]),
        ("containers", "u1/unknown", ["Pod/shop/web", "ConfigMap/shop/settings", "Secret/shop/hidden"]),
        ("containers", "gone/app", ["Pod", "ConfigMap", "Secret", "PersistentVolume"]),
        ("ingress", "_health/shop/web", ["Service/shop/web", "Endpoints/shop/web"]),
        ("volumes", "u1/v", ["Pod/shop/web", "Secret/shop/hidden"]),
        ("volumes", "u1/empty", ["Pod/shop/web"]),
        ("volumes", "u2/data", ["Pod/shop/db", "PersistentVolumeClaim/shop/c", "PersistentVolume"]),
        ("volumes", "u2/scratch", ["Pod/shop/db", "PersistentVolumeClaim/shop/db-scratch", "PersistentVolume"]),
        ("volumes", "u2/host", ["Pod/shop/db"]),
        ("containers", "u2/disk", ["Pod/shop/db", "PersistentVolume"]),
        ("containers", "u2/net", ["Pod/shop/db"]),
        ("containers", "u2/own", ["Pod/shop/db"]),
        ("containers", "u2/gone", ["Pod/shop/db", "PersistentVolume"]),
        ("secrets", "shop/hidden", ["Secret/shop/hidden"]),
        ("secrets", "shop/u1_app", ["Pod/shop/web", "ConfigMap/shop/settings", "Secret/shop/hidden"]),
        ("secrets", "shop/gone__v", ["Pod", "ConfigMap", "Secret", "PersistentVolume"]),
        ("services", "dataplane", ["Node/n1"]),
        ("services", "shop/web:80", ["Service/shop/web", "Endpoints/shop/web"]),
        ("services", "10.0.0.1:80", ["Service", "Endpoints"]),
        ("services", "and 3 more", ["Service", "Endpoints"]),
        ("dns", "server", ["Node/n1"]),
        ("dns", "service/shop/web", ["Service/shop/web", "Endpoints/shop/web"]),
        ("dns", "host/a.test", ["DNS/shop/d", "Ingress//i", "Endpoints/shop", "Endpoints"]),
        ("dns", "other", ["*"]),
        ("ingress", "_server", ["Node/n1"]),
        ("ingress", "a.test", ["DNS/shop/d", "Ingress//i", "Endpoints/shop", "Endpoints"]),
        ("ingress", "b.test", ["DNS", "Ingress", "Endpoints"]),
        ("new", "k", ["*"]),
    ],
)
def test_what_a_key_is_about(section: str, key: str, said: list[str]):
    pods = {"u1": POD, "u2": CLAIMING}
    found = Subjects("n1", pods, lambda host: HOSTS.get(host, ()), CONTAINERS).of(section, key)
    place = [f"{one.kind}/{one.namespace}/{one.name}".rstrip("/") for one in found]
    assert [each.replace("Node//", "Node/") for each in place] == said
    assert (found == EVERYTHING) == (said == ["*"])

"""Which cluster the command speaks to: a named kubeconfig, one's own, a pod's account, the administrator's."""

from __future__ import annotations

import argparse
from functools import partial

import pytest
import yaml

from minik8s_modules.cli import connection
from minik8s_modules.client import bearer
from minik8s_modules.client.api import ApiClient


@pytest.fixture
def pod(tmp_path, monkeypatch):
    """Be in a pod: what a pod has below /var/run stands in a directory of the test."""
    for name, content in (("token", "t"), ("ca.crt", ""), ("namespace", "jobs")):
        (tmp_path / name).write_text(content)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(connection, "in_cluster", partial(bearer.in_cluster, folder=tmp_path))
    monkeypatch.setattr(connection, "own_namespace", partial(bearer.own_namespace, tmp_path))
    return tmp_path


def options(**given):
    return argparse.Namespace(**{"kubeconfig": "", "context": "", "namespace": None, **given})


def test_in_a_pod_it_is_the_pods_account_and_namespace(pod):
    asked = options()
    client = connection.connect(asked)
    assert isinstance(client, ApiClient)
    assert asked.namespace == "jobs"
    client.close()
    named = options(namespace="other")
    connection.connect(named).close()
    assert named.namespace == "other"


def test_a_kubeconfig_goes_before_the_pods_account(pod):
    path = pod / "config"
    context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "of-the-file"}}
    clusters = [{"name": "c", "cluster": {"server": "https://192.0.2.2:6443"}}]
    users = [{"name": "u", "user": {"token": "other"}}]
    config = {"current-context": "c", "contexts": [context], "clusters": clusters, "users": users}
    path.write_text(yaml.safe_dump(config))
    asked = options(kubeconfig=str(path))
    connection.connect(asked).close()
    assert asked.namespace == "of-the-file"

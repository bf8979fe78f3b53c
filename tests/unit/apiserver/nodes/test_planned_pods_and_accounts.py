"""ServiceAccounts that controllers make stand for the Pods of a plan that name them; nothing else is taken on trust."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import SERVICE_ACCOUNT
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.nodes import planned_pods
from tests.support.workloads import SPACE
from tests.unit.apiserver.nodes.test_planned_pods import ACCOUNT, named, prepare


def account(name: str, *secrets: str, **meta: Any) -> JsonObject:
    told = {"name": name, "namespace": SPACE, **meta}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": told, "imagePullSecrets": named_each(secrets)}


def named_each(names: Iterable[str]) -> list[JsonObject]:
    return [{"name": each} for each in names]


@pytest.mark.parametrize(
    ("stands", "around", "secrets"),
    [
        ((), [account("app", "theirs")], ["theirs"]),
        ((ACCOUNT,), [account("app", "theirs")], ["key"]),
        ((), [account("other", "theirs")], None),
        ((), [{**account("app", "theirs"), "kind": "Secret"}], None),
        ((), [account("app", "theirs", namespace="elsewhere")], None),
        ((), [account("app", "theirs", labels={"not a label": ""})], None),
    ],
)
def test_accounts_that_controllers_make_stand_for_the_pods_that_name_them_where_nothing_does(
    backend: Backend,
    options: Options,
    stands: tuple[JsonObject, ...],
    around: list[JsonObject],
    secrets: list[str] | None,
):
    prepare(backend, options, *stands)
    spec = {"serviceAccountName": "app", "containers": [{"name": "c", "image": "x"}]}
    pod = {"metadata": {"name": "a", "namespace": SPACE}, "spec": spec}
    admit = planned_pods.PlannedPods(backend, named(backend, options, "somebody"))
    found = admit({"k": pod}, around, time.monotonic() + 60)["pods"]["k"]
    if secrets is None:
        assert 'serviceaccount "app" not found' in found["refused"]
    else:
        assert found["pod"]["spec"]["imagePullSecrets"] == named_each(secrets)
    assert {item.object["metadata"]["name"] for item in backend.cache.list(SERVICE_ACCOUNT.key(SPACE, "")).items} == {
        objects.name(each) for each in stands
    }


@pytest.mark.parametrize("spec", [[], "app", {"serviceAccountName": ["app"]}, {"serviceAccountName": {"app": "app"}}])
def test_a_pod_that_cannot_be_read_is_refused(backend: Backend, options: Options, spec: object):
    prepare(backend, options)
    pod = {"metadata": {"name": "a", "namespace": SPACE}, "spec": spec}
    found = planned_pods.PlannedPods(backend, options)({"k": pod}, [account("app")], time.monotonic() + 60)
    assert "refused" in found["pods"]["k"]

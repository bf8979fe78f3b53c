"""One copy a kind for all controllers, with indexes by namespace, owner and label."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.api.objects import name
from minik8s_modules.api.selectors import parse_label_selector
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.runtime import informers as informers_module
from minik8s_modules.runtime.informers import Informers, owned_and_orphans, selected, sharing_parts, wait_synced
from tests.support.waiting import until


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def informers(api: FakeApi) -> Iterator[Informers]:
    informers = Informers(api)
    yield informers
    informers.stop()


def pod(name: str, namespace: str = "shop", owner: str = "", **labels: str) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "namespace": namespace, "labels": labels, "managedFields": [{}]}
    if owner:
        meta["ownerReferences"] = [{"kind": "ReplicaSet", "name": "rs", "uid": owner, "controller": True}]
    return {"metadata": meta}


def names(found: Any) -> list[str]:
    return sorted(name(obj) for obj in found)


def test_a_kind_has_one_informer(informers: Informers):
    assert informers.of(POD) is informers.of(POD, "controller")
    assert informers.of(POD) is not informers.of(NODE)


def test_owned_and_orphans_are_found_by_the_owners_uid(api: FakeApi, informers: Informers):
    for each in (pod("a", owner="u1"), pod("b", owner="u2"), pod("c"), pod("d", "other")):
        api.create(POD, each)
    pods = informers.of(POD, "controller")
    informers.start()
    assert wait_synced([pods], threading.Event())
    owner = {"metadata": {"name": "rs", "namespace": "shop", "uid": "u1"}}
    assert names(owned_and_orphans(pods, owner)) == ["a", "c"]
    api.patch(POD, "c", "shop", {"metadata": {"ownerReferences": pod("x", owner="u1")["metadata"]["ownerReferences"]}})
    until(lambda: names(pods.by_index("controller", "u1")) == ["a", "c"])
    assert pods.by_index("controller", "shop/") == []


def test_an_index_may_come_late_and_an_object_may_have_several_values(api: FakeApi, informers: Informers):
    for each in (pod("a", app="web", tier="front"), pod("b", app="web"), pod("c", "other", app="web")):
        api.create(POD, each)
    pods = informers.of(POD)
    informers.start()
    assert wait_synced([pods], threading.Event())
    informers.of(POD, "label", "namespace")
    assert names(selected(pods, "shop", parse_label_selector("app=web"))) == ["a", "b"]
    assert names(selected(pods, "shop", parse_label_selector("app=web,tier!=front"))) == ["b"]
    assert names(selected(pods, "shop", parse_label_selector("!tier"))) == ["b"]
    api.delete(POD, "a", "shop")
    until(lambda: names(selected(pods, "shop", parse_label_selector("app=web"))) == ["b"])


def test_bookkeeping_is_not_kept(api: FakeApi, informers: Informers):
    api.create(POD, pod("a"))
    pods = informers.of(POD)
    informers.start()
    assert wait_synced([pods], threading.Event())
    assert "managedFields" not in (pods.get("shop", "a") or {})["metadata"]


def test_waiting_for_the_first_list_ends_when_told(informers: Informers):
    stop = threading.Event()
    stop.set()
    assert not wait_synced([informers.of(POD)], stop)


def pods_of_a_template() -> list[dict[str, Any]]:
    projected = {"sources": [{"serviceAccountToken": {"path": "token"}}]}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
            "spec": {
                "nodeName": name,
                "containers": [{"name": "c", "resources": {"limits": {}}, "volumeMounts": [{"name": f"token-{name}"}]}],
                "volumes": [{"name": f"token-{name}", "projected": copy.deepcopy(projected)}],
                "tolerations": [{"operator": "Exists"}],
            },
            "status": {"phase": "Running"},
        }
        for name in "ab"
    ]


def test_pods_of_a_template_share_what_they_say_also_where_each_has_a_volume_of_its_own_name():
    pods = pods_of_a_template()
    before = copy.deepcopy(pods)
    one, other = (sharing_parts(pod) for pod in pods)
    assert [one, other] == before
    assert one["metadata"]["labels"] is other["metadata"]["labels"]
    assert one["spec"]["tolerations"] is other["spec"]["tolerations"]
    assert one["spec"]["containers"][0]["resources"] is other["spec"]["containers"][0]["resources"]
    assert one["spec"]["volumes"][0]["projected"] is other["spec"]["volumes"][0]["projected"]


def test_the_copies_of_pods_that_controllers_look_at_share_their_parts(informers: Informers, api: FakeApi):
    for pod in pods_of_a_template():
        api.create(POD, pod)
    copies = informers.of(POD)
    informers.start()
    assert copies.wait_synced(60)
    one, other = copies.list()
    assert one["spec"]["volumes"][0]["projected"] is other["spec"]["volumes"][0]["projected"]


def test_what_is_large_is_not_kept_for_others():
    large = {"slurm.minik8s.io/sources": "x" * 5000}
    pod = {"metadata": {"name": "a", "annotations": large}, "spec": {"nodeName": "a"}}
    before = informers_module._shared.cache_info().currsize
    assert sharing_parts(pod)["metadata"]["annotations"] is large
    assert informers_module._shared.cache_info().currsize == before, "it stays as long as its Pod"

"""lightkube: server-side apply, patches, Scales, an asynchronous watch. Arguments: kubeconfig, namespace."""

from __future__ import annotations

import asyncio
import sys

from lightkube import AsyncClient, Client, KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.types import PatchType

CONFIG, NAMESPACE = KubeConfig.from_file(sys.argv[1]), sys.argv[2]
TEMPLATE = {"metadata": {"labels": {"app": "l"}}, "spec": {"containers": [{"name": "c", "image": "minik8s/busybox:1"}]}}
SPEC = {"replicas": 1, "selector": {"matchLabels": {"app": "l"}}, "template": TEMPLATE}


def config_map(**data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name="light"), data=data)


def plain() -> None:
    ours = Client(CONFIG, namespace=NAMESPACE, field_manager="ours")
    theirs = Client(CONFIG, namespace=NAMESPACE, field_manager="theirs")
    assert ours.apply(config_map(a="b")).metadata.managedFields[0].manager == "ours"
    try:
        theirs.apply(config_map(a="c"))
    except ApiError as error:
        result = error
    else:
        raise AssertionError("no conflict")
    assert result.status.reason == "Conflict"
    assert 'conflict with "ours": .data.a' in str(result)
    assert theirs.apply(config_map(a="c"), force=True).data == {"a": "c"}
    assert ours.patch(ConfigMap, "light", {"data": {"x": "y"}}, patch_type=PatchType.MERGE).data["x"] == "y"
    removal = [{"op": "remove", "path": "/data/x"}]
    assert ours.patch(ConfigMap, "light", removal, patch_type=PatchType.JSON).data == {"a": "c"}
    ours.create(Deployment.from_dict({"metadata": {"name": "l"}, "spec": SPEC}))
    scale = ours.get(Deployment.Scale, "l")
    scale.spec.replicas = 0
    assert ours.replace(scale, "l").spec.replicas == 0
    assert ours.patch(Deployment.Scale, "l", {"spec": {"replicas": 2}}).spec.replicas == 2
    assert ours.get(Deployment.Status, "l").spec.replicas == 2
    assert list(ours.list(Pod, namespace="*", fields={"status.phase": "Succeeded"})) == []
    ours.delete(Deployment, "l")
    ours.deletecollection(ConfigMap)


async def asynchronous() -> None:
    client, seen = AsyncClient(CONFIG, namespace=NAMESPACE), []

    async def follow() -> None:
        async for operation, found in client.watch(ConfigMap, labels={"set": "w"}):
            seen.append((operation, found.metadata.name))
            if operation == "DELETED":
                return

    await client.create(ConfigMap(metadata=ObjectMeta(name="w", labels={"set": "w"})))
    task = asyncio.create_task(follow())
    while not seen:
        await asyncio.sleep(0.05)
    await client.patch(ConfigMap, "w", {"data": {"a": "b"}})
    await client.delete(ConfigMap, "w")
    await asyncio.wait_for(task, 30)
    assert seen == [("ADDED", "w"), ("MODIFIED", "w"), ("DELETED", "w")], seen
    await client.close()


plain()
asyncio.run(asynchronous())

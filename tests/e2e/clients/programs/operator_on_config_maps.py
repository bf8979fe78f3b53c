"""A kopf operator: ConfigMaps labelled ``op=yes`` are annotated, told of in Events, attended, and missed."""

from __future__ import annotations

import kopf

MINE = {"labels": {"op": "yes"}}


@kopf.on.startup()
def configure(settings, **_) -> None:
    settings.persistence.finalizer = "example.com/operator"
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="example.com")
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="example.com")


@kopf.on.create("", "v1", "configmaps", **MINE)
def created(body, patch, retry, **_) -> None:
    if retry == 0:
        raise kopf.TemporaryError("once more", delay=0.1)
    patch.metadata.annotations["seen"] = "created"
    kopf.event(body, type="Normal", reason="Seen", message="a ConfigMap was made")


@kopf.on.update("", "v1", "configmaps", field="data", **MINE)
def updated(patch, new, **_) -> None:
    patch.metadata.annotations["seen"] = f"updated to {new['a']}"


@kopf.on.delete("", "v1", "configmaps", **MINE)
async def deleted(name, memo, **_) -> None:
    print(f"deleted {name}", flush=True)


@kopf.daemon("", "v1", "configmaps", **MINE)
async def attend(stopped, name, **_) -> None:
    print(f"attending {name}", flush=True)
    await stopped.wait()
    print(f"attended {name}", flush=True)

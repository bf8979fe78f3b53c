"""A kopf operator with a kind of its own: a Widget's status says how large it was made, and it is missed."""

from __future__ import annotations

import kopf


@kopf.on.startup()
def configure(settings, **_) -> None:
    settings.persistence.finalizer = "example.com/operator"


@kopf.on.create("example.com", "v1", "widgets")
@kopf.on.update("example.com", "v1", "widgets", field="spec")
def made(spec, patch, **_) -> None:
    patch.status["size"] = spec["size"]


@kopf.on.delete("example.com", "v1", "widgets")
def deleted(name, **_) -> None:
    print(f"deleted {name}", flush=True)

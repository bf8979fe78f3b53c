"""Which container of a Pod is its sidecar: one of an image that nodes know as one. Pure."""

from __future__ import annotations

from minik8s_modules.api.objects import JsonObject, all_containers

REPOSITORIES = frozenset({"minik8s/envoy", "sjtuzc/envoy"})
"""Images of sidecars, of whatever tag: ours, and the original's, whose name nodes give to ours."""


def sidecar_of(spec: JsonObject) -> str:
    """Return the name of the sidecar in a Pod's spec, "" for none: a container of such an image.

    One with a command of its own, such as the one that wrote the rules before nodes did, is none.
    """
    found = (
        str(each.get("name"))
        for _field, _number, each in all_containers({"spec": spec})
        if repository(str(each.get("image"))) in REPOSITORIES and not each.get("command")
    )
    return next(found, "")


def has_sidecar(spec: JsonObject) -> bool:
    """Return whether a Pod's spec has one."""
    return bool(sidecar_of(spec))


def has_envoy(spec: JsonObject) -> bool:
    """Return whether a container in a Pod's spec is of such an image, whatever its command."""
    return any(repository(str(each.get("image"))) in REPOSITORIES for _, _, each in all_containers({"spec": spec}))


def repository(image: str) -> str:
    """Return an image's name without tag and digest."""
    head, slash, last = image.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}".removeprefix("docker.io/")

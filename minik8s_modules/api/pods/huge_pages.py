"""Huge pages: the names of their resources and of emptyDir's media, and the sizes of pages in them.

Source: kubernetes ``pkg/apis/core/helper/helpers.go``, ``pkg/volume/emptydir/empty_dir.go``
(``getPageSizeMountOption``).
"""

from __future__ import annotations

from collections.abc import Iterable

from minik8s_modules.api import quantities
from minik8s_modules.api.objects import JsonObject, dig
from minik8s_modules.api.pods.pod_templates import template_of

PREFIX, MEDIUM = "hugepages-", "HugePages"
MEDIA = (MEDIUM, "HugePages-1Gi", "HugePages-2Mi")
"""What an emptyDir may lie on; the first takes the size that the pod's containers request."""


def is_resource(name: str) -> bool:
    """Return whether a resource is huge pages of some size."""
    return name.startswith(PREFIX)


def is_medium(medium: str) -> bool:
    """Return whether an emptyDir lies on huge pages."""
    return medium in MEDIA


def page_bytes(name: str) -> int:
    """Return the size of the pages of ``hugepages-2Mi`` or ``HugePages-2Mi``, 0 where there is none in it."""
    _, _, size = name.partition("-")
    return max(0, quantities.to_bytes(size)) if quantities.is_quantity(size) else 0


def is_whole(name: str, amount: str) -> bool:
    """Return whether so much of a resource is a whole number of its pages."""
    size = page_bytes(name)
    return bool(size) and quantities.parse(amount) % size == 0


def page_of(medium: str, requested: Iterable[str]) -> int:
    """Return the size of the pages of an emptyDir's medium in a pod that requests these resources.

    Raises:
        ValueError: the pod requests no such pages, or the medium leaves open which of several.
    """
    sizes = {page_bytes(name) for name in requested if is_resource(name)}
    if medium != MEDIUM:
        sizes &= {page_bytes(medium)}
    if not sizes:
        raise ValueError(
            f"medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
        )
    if len(sizes) > 1:
        raise ValueError(f"medium: {medium} can't be used if container requests multiple huge page sizes")
    return sizes.pop()


def warnings(kind: tuple[str, str], obj: JsonObject) -> list[str]:
    """Return what the author of a pod, or of a template, is told whose containers do not get a limit each."""
    spec = (obj if kind == ("", "Pod") else template_of(kind, obj)).get("spec") or {}
    beside = [one for one in spec.get("initContainers") or [] if one.get("restartPolicy") == "Always"]
    together = [*(spec.get("containers") or []), *beside]
    if len(together) == 1:
        return []
    sizes = {name for one in together for name in dig(one, "resources", "limits") or {} if is_resource(name)}
    return [
        f"{name}: the containers of the Pod have its pages in common: none has a limit of its own"
        for name in sorted(sizes)
    ]

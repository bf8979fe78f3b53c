"""What an update of a pod through a subresource changes: its ephemeral containers, or resources of its containers."""

from __future__ import annotations

from minik8s_modules.api.objects import JsonObject, all_containers, metadata, spec


def keep_all_but_ephemeral(new: JsonObject, old: JsonObject) -> None:
    """Let only ``spec.ephemeralContainers`` through (``podEphemeralContainersStrategy.PrepareForUpdate``)."""
    added = spec(new).get("ephemeralContainers")
    _keep_metadata_and_spec(new, old)
    if added:
        new["spec"]["ephemeralContainers"] = added


def keep_all_but_resources(new: JsonObject, old: JsonObject) -> None:
    """Let only resources and resizePolicy of containers through (``podResizeStrategy.PrepareForUpdate``)."""
    wanted = {one.get("name"): one for _, _, one in all_containers(new)}
    _keep_metadata_and_spec(new, old)
    for field in ("containers", "initContainers"):
        if spec(old).get(field):
            new["spec"][field] = [_resized(one, wanted.get(one["name"], one)) for one in spec(old)[field]]


def _resized(container: JsonObject, wanted: JsonObject) -> JsonObject:
    kept = dict(container)
    for field in ("resources", "resizePolicy"):
        kept.pop(field, None)
        if field in wanted:
            kept[field] = wanted[field]
    return kept


def _keep_metadata_and_spec(new: JsonObject, old: JsonObject) -> None:
    fields = ("uid", "resourceVersion", "managedFields")
    given = {field: value for field in fields if (value := metadata(new).get(field))}
    new["metadata"] = {**metadata(old), **given}
    new["spec"] = dict(spec(old))

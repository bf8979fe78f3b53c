"""Validation of volumes whose claim is made for the pod. Source: kubernetes ``validateEphemeralVolumeSource``."""

from __future__ import annotations

from minik8s_modules.api import cause, objects, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.pod_claims import claim_of
from minik8s_modules.api.validation import storage
from minik8s_modules.api.validation.meta import validate_annotations, validate_labels


def ephemeral_source(at: str, source: JsonObject) -> list[Cause]:
    """Return why no claim can be made by the template."""
    template = source.get("volumeClaimTemplate")
    here = f"{at}.volumeClaimTemplate"
    if template is None:
        return [cause.required(here)]
    meta = template.get("metadata") or {}
    others = sorted(meta.keys() - {"labels", "annotations", "creationTimestamp"})
    causes = [cause.forbidden(f"{here}.metadata.{field}", "cannot be set") for field in others if meta[field]]
    causes += validate_labels(f"{here}.metadata.labels", meta.get("labels"))
    causes += validate_annotations(f"{here}.metadata.annotations", meta.get("annotations") or {})
    return causes + storage.CLAIM(f"{here}.spec", objects.spec(template))


def made_claims(field: str, pod: JsonObject) -> list[Cause]:
    """Return which claims that would be made cannot have their names, and which volumes name such a claim."""
    volumes = objects.spec(pod).get("volumes") or []
    made = {claim_of(pod, each) for each in volumes if each.get("ephemeral") is not None}
    causes: list[Cause] = []
    for index, volume in enumerate(volumes):
        name = claim_of(pod, volume)
        if volume.get("ephemeral") is not None and objects.name(pod) and volume.get("name"):
            wrong = [f'PVC name "{name}": {message}' for message in syntax.dns1123_subdomain(name)]
            causes += cause.all_invalid(f"{field}[{index}].name", volume["name"], wrong)
        elif volume.get("ephemeral") is None and name in made:
            at = f"{field}[{index}].persistentVolumeClaim.claimName"
            causes.append(cause.invalid(at, name, "must not reference a PVC that gets created for an ephemeral volume"))
    return causes

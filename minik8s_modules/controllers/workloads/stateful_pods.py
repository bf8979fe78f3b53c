"""What the pods and claims of a StatefulSet look like: names, identities, claims that outlive pods. Pure.

Source: kubernetes ``pkg/controller/statefulset/stateful_set_utils.go``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.core.steps import (
    Create,
    Patch,
    Step,
    Words,
    controller_reference,
    pod_from_template,
    with_owner,
    without_owner,
)
from minik8s_modules.controllers.workloads import history

NAME_LABEL = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL = "apps.kubernetes.io/pod-index"
_NAME = re.compile(r"(.*)-([0-9]+)", re.DOTALL | re.ASCII)
_LONGEST_NUMBER = 10

Claims = Mapping[str, JsonObject]
"""The claims of a namespace by their names."""


def ordinal_of(stateful_set: JsonObject, pod: JsonObject) -> int | None:
    """Return the pod's ordinal; None where its name is not one that the set gives."""
    found = _NAME.fullmatch(objects.name(pod))
    if found is None or found[1] != objects.name(stateful_set) or len(found[2]) > _LONGEST_NUMBER:
        return None
    return int(found[2])


def first_ordinal(stateful_set: JsonObject) -> int:
    """Return the ordinal of the set's first pod."""
    return int((objects.spec(stateful_set).get("ordinals") or {}).get("start") or 0)


def pod_name(stateful_set: JsonObject, ordinal: int) -> str:
    """Return the name of the pod with that ordinal."""
    return f"{objects.name(stateful_set)}-{ordinal}"


def new_pod(stateful_set: JsonObject, revision: JsonObject, ordinal: int) -> Create:
    """Return the creation of the pod with that ordinal, by the template of ``revision``."""
    name = pod_name(stateful_set, ordinal)
    pod = pod_from_template(history.template_of(revision), STATEFUL_SET, stateful_set)
    meta = {key: value for key, value in pod["metadata"].items() if key != "generateName"}
    own = {NAME_LABEL: name, INDEX_LABEL: str(ordinal), history.HASH_LABEL: objects.name(revision)}
    identity = {"hostname": name, "subdomain": str(objects.spec(stateful_set).get("serviceName") or "")}
    spec = {**pod["spec"], **{key: value for key, value in identity.items() if value}}
    if volumes := _volumes(stateful_set, spec, ordinal):
        spec["volumes"] = volumes
    dressed = {**meta, "name": name, "labels": {**(meta.get("labels") or {}), **own}}
    failed = f"create Pod {name} in StatefulSet {objects.name(stateful_set)} failed error: "
    return Create(POD, {**pod, "metadata": dressed, "spec": spec}, Words("", "", "FailedCreate", failed))


def revision_of(pod: JsonObject) -> str:
    """Return the name of the revision whose template the pod has."""
    return objects.labels(pod).get(history.HASH_LABEL, "")


def lacks_identity(stateful_set: JsonObject, pod: JsonObject, ordinal: int) -> JsonObject | None:
    """Return the labels that the pod lacks of its identity (an adopted one may); None where nothing is missing."""
    wanted = {NAME_LABEL: pod_name(stateful_set, ordinal), INDEX_LABEL: str(ordinal)}
    known = objects.labels(pod)
    return {key: value for key, value in wanted.items() if known.get(key) != value} or None


# --- claims ---------------------------------------------------------------------------------------


def claim_name(stateful_set: JsonObject, template: JsonObject, ordinal: int) -> str:
    """Return the name of the claim that a template makes for an ordinal."""
    return f"{objects.name(template)}-{pod_name(stateful_set, ordinal)}"


def _templates(stateful_set: JsonObject) -> Sequence[JsonObject]:
    return objects.spec(stateful_set).get("volumeClaimTemplates") or ()


def _volumes(stateful_set: JsonObject, spec: JsonObject, ordinal: int) -> list[JsonObject]:
    """Return the pod's volumes: a claim takes the place of a volume with its template's name."""
    claims = {
        objects.name(each): {
            "name": objects.name(each),
            "persistentVolumeClaim": {"claimName": claim_name(stateful_set, each, ordinal), "readOnly": False},
        }
        for each in _templates(stateful_set)
    }
    others = [each for each in spec.get("volumes") or [] if each.get("name") not in claims]
    return [*claims.values(), *others]


def missing_claims(stateful_set: JsonObject, ordinal: int, known: Claims) -> list[Step]:
    """Return the creation of the claims that a pod needs and that are not there."""
    steps: list[Step] = []
    labels = objects.dig(stateful_set, "spec", "selector", "matchLabels") or {}
    for template in _templates(stateful_set):
        name = claim_name(stateful_set, template, ordinal)
        if name in known:
            continue
        owners = [_owner(stateful_set)] if retention(stateful_set, "whenDeleted") == "Delete" else []
        meta = {
            "name": name,
            "namespace": objects.namespace(stateful_set),
            "labels": {**objects.labels(template), **labels},
            "annotations": objects.annotations(template),
            **({"ownerReferences": owners} if owners else {}),
        }
        pod = pod_name(stateful_set, ordinal)
        about = f"create Claim {name} Pod {pod} in StatefulSet {objects.name(stateful_set)} failed error: "
        claim = {
            "apiVersion": PERSISTENT_VOLUME_CLAIM.api_version,
            "kind": PERSISTENT_VOLUME_CLAIM.kind,
            "metadata": meta,
            "spec": objects.spec(template),
        }
        steps.append(Create(PERSISTENT_VOLUME_CLAIM, claim, Words("", "", "FailedCreate", about)))
    return steps


def retention(stateful_set: JsonObject, when: str) -> str:
    """Return what becomes of claims ``whenDeleted`` or ``whenScaled``: Retain or Delete."""
    policy = objects.spec(stateful_set).get("persistentVolumeClaimRetentionPolicy") or {}
    return str(policy.get(when) or "Retain")


def _owner(stateful_set: JsonObject) -> JsonObject:
    # no controller: claims are found by their names, and none is adopted
    reference = controller_reference(STATEFUL_SET, stateful_set)
    return {key: value for key, value in reference.items() if key not in {"controller", "blockOwnerDeletion"}}


def retained(stateful_set: JsonObject, pod: JsonObject, ordinal: int, known: Claims, *, condemned: bool) -> list[Step]:
    """Return what makes the owners of a pod's claims follow the retention policy (``claimOwnerMatchesSetAndPod``).

    With ``whenDeleted: Delete`` the set owns them; with ``whenScaled: Delete`` the pod owns those of a scale-down, so
    that they go with it.
    """
    found = [known.get(claim_name(stateful_set, each, ordinal)) for each in _templates(stateful_set)]
    deletes = {when: retention(stateful_set, when) == "Delete" for when in ("whenDeleted", "whenScaled")}
    by_pod = condemned and deletes["whenScaled"]
    steps: list[Step] = []
    for claim in found:
        if claim is None:
            continue
        wanted = objects.owner_references(claim)
        wanted = _with(wanted, claim, _owner(stateful_set), there=deletes["whenDeleted"] and not by_pod)
        wanted = _with(wanted, claim, _pod_owner(pod), there=by_pod)
        if wanted != objects.owner_references(claim):
            body = {"metadata": {"ownerReferences": wanted or None}}
            steps.append(Patch(PERSISTENT_VOLUME_CLAIM, claim, body))
    return steps


def _pod_owner(pod: JsonObject) -> JsonObject:
    return {"apiVersion": POD.api_version, "kind": POD.kind, "name": objects.name(pod), "uid": objects.uid(pod)}


def _with(owners: list[JsonObject], claim: JsonObject, owner: JsonObject, *, there: bool) -> list[JsonObject]:
    known = any(each.get("uid") == owner["uid"] for each in owners)
    if known == there:
        return owners
    held = {**claim, "metadata": {**claim["metadata"], "ownerReferences": owners}}
    return with_owner(held, owner) if there else without_owner(held, owner["uid"])

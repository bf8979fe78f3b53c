"""Where the kinds that make pods have the pod's template: whoever writes one writes pods."""

from __future__ import annotations

from collections.abc import Mapping

from minik8s_modules.api.objects import JsonObject, dig, metadata, name

TEMPLATES: Mapping[tuple[str, str], str] = {
    ("apps", "Deployment"): "spec.template",
    ("apps", "ReplicaSet"): "spec.template",
    ("", "ReplicationController"): "spec.template",
    ("", "PodTemplate"): "template",
    ("apps", "DaemonSet"): "spec.template",
    ("apps", "StatefulSet"): "spec.template",
    ("batch", "Job"): "spec.template",
    ("batch", "CronJob"): "spec.jobTemplate.spec.template",
}
"""(group, kind): the field."""


def template_of(kind: tuple[str, str], obj: JsonObject) -> JsonObject:
    """Return the template of the pods that an object of ``kind`` makes; {} when it makes none."""
    if kind == ("", "RollingUpdate"):  # it gives its pods another spec, and leaves their metadata alone
        return {"spec": dig(obj, "spec", "newPodSpec") or {}}
    path = TEMPLATES.get(kind)
    return (dig(obj, *path.split(".")) or {}) if path else {}


def nameless(message: str, pod: JsonObject) -> str:
    """Return what is said of a pod without its name where that is made with it, as Kubernetes words it before."""
    base = metadata(pod).get("generateName")
    return message.replace(f'"{name(pod)}"', f'"{base}"') if base else message

"""What becomes of drift: the annotation ``minik8s.io/drift`` of a Pod, or of a Node for its sections.

A Pod's value is a policy, a Node's is ``SECTION=POLICY,…``; a Pod's own goes before its Node's. ``heal``, the default,
puts right what somebody changed, ``report`` only tells of it, ``ignore`` does neither. What can be held back is what a
node has of one Pod apart from all others, folders of volumes, and the network under them. Secrets, rules, names and
hosts stand together in tables and files, which are written whole when any of them changes: a policy for those would be
broken without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from minik8s_modules.api import cause, objects
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.pod_templates import TEMPLATES, template_of

DRIFT = "minik8s.io/drift"
Policy = Literal["heal", "report", "ignore"]
POLICIES: tuple[Policy, ...] = ("heal", "report", "ignore")
OF_PODS = ("volumes", "sandboxes", "sidecars", "containers")
"""The sections that an annotation of a Pod is about."""
HELD = ("network", "folders", *OF_PODS)
"""The sections whose drift can be left as it is."""
_WHOLE = ("policies", "secrets", "services", "dns", "ingress")
_POD, _NODE = ("", "Pod"), ("", "Node")


def of_pod(pod: JsonObject) -> Policy | None:
    """Return the Pod's own policy, None where it has none."""
    return _policy(objects.annotations(pod).get(DRIFT))


def of_node(node: JsonObject) -> dict[str, Policy]:
    """Return the policies of the Node's sections; those that are not named are healed."""
    found = ((section, _policy(value)) for section, value in _rows(objects.annotations(node).get(DRIFT, "")))
    return {section: policy for section, policy in found if policy is not None and section in HELD}


def causes(kind: tuple[str, str], obj: JsonObject) -> Iterator[Cause]:
    """Yield what is wrong with the annotation on an object of ``kind``, or on the template of its Pods."""
    yield from _wrong(kind, f"metadata.annotations[{DRIFT}]", objects.annotations(obj).get(DRIFT))
    if kind in TEMPLATES:
        value = objects.annotations(template_of(kind, obj)).get(DRIFT)
        yield from _wrong(_POD, f"{TEMPLATES[kind]}.metadata.annotations[{DRIFT}]", value)


def _wrong(kind: tuple[str, str], field: str, value: str | None) -> Iterator[Cause]:
    if value is None:
        return
    if kind == _POD:
        if _policy(value) is None:
            yield cause.not_supported(field, value, POLICIES)
    elif kind == _NODE:
        yield from (cause.invalid(field, value, why) for row in _rows(value) if (why := _why_not(*row)))
    elif kind in TEMPLATES:
        yield cause.invalid(field, value, f"it is for Pods: set it in {TEMPLATES[kind]}.metadata.annotations")
    else:
        yield cause.invalid(
            field, value, f"only Pods and Nodes have a policy for drift; a {kind[1]}'s is always healed"
        )


def _why_not(section: str, value: str) -> str:
    if section in _WHOLE:
        message = (
            "is always healed: what its objects have on a node stands together, and is written whole when one changes"
        )
        return f"the section {section} {message}; sections with a policy: {', '.join(HELD)}"
    if section not in HELD:
        return f"there is no section {section!r}; write SECTION=POLICY,… with sections of {', '.join(HELD)}"
    if _policy(value) is None:
        return f"{section}={value}: a policy is one of {', '.join(POLICIES)}"
    return ""


def _rows(text: str) -> Iterator[tuple[str, str]]:
    for row in text.split(","):
        section, _, value = row.partition("=")
        yield section.strip(), value.strip()


def _policy(value: str | None) -> Policy | None:
    return next((policy for policy in POLICIES if policy == value), None)

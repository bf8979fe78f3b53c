"""Admission of pods, and of what makes pods: accounts, limits, priority, Pod Security. Decisions are pure, in api/."""

from __future__ import annotations

from minik8s_modules.api import syntax
from minik8s_modules.api.defaulting.conversion import stored_kind
from minik8s_modules.api.errors import Forbidden, Invalid
from minik8s_modules.api.kinds import LIMIT_RANGE, NAMESPACE, POD, PRIORITY_CLASS, SERVICE, SERVICE_ACCOUNT
from minik8s_modules.api.lifecycle.service_strategy import HEALTH_PORT, needs_health_port
from minik8s_modules.api.network.load_balancers import NODE_PORTS
from minik8s_modules.api.objects import JsonObject, labels, lasting_containers, metadata, name, spec
from minik8s_modules.api.pods import account_volumes, limits, resources, security_standards
from minik8s_modules.api.pods.mirror_pods import is_mirror
from minik8s_modules.api.pods.pod_templates import template_of
from minik8s_modules.api.pods.priority_classes import SYSTEM_CLASSES
from minik8s_modules.apiserver.http.write import Write
from minik8s_modules.store import readable

# of a namespace whose level rises, so many pods are named in warnings
_NAMED_PODS = 10
_DNS_PORT = 53
_TOLERATION_S = 300  # --default-not-ready-toleration-seconds


def _forbid(write: Write, why: str) -> Forbidden:
    return Forbidden(write.target.kind, write.target.name or name(write.new), why)


# --- ServiceAccount -------------------------------------------------------------------------------


def account(write: Write) -> None:
    """Refuse a pod of an account that does not exist; give it the account's token and imagePullSecrets.

    The account ``default`` may be missing: a controller makes it, some time after the namespace. A mirror pod speaks of
    what its node runs already, and gets nothing.
    """
    pod, space = write.new, write.target.namespace
    if is_mirror(pod):
        return
    called = spec(pod).get("serviceAccountName") or "default"
    found = write.backend.cache.get(SERVICE_ACCOUNT.key(space, called))
    if found is None:
        if called != "default":
            why = f'error looking up service account {space}/{called}: serviceaccount "{called}" not found'
            raise _forbid(write, why)
        if account_volumes.wants_token(pod, {}):
            account_volumes.add(pod, write.backend.new_suffix())
        return
    declared = readable.object_of(SERVICE_ACCOUNT, found)
    if account_volumes.wants_token(pod, declared):
        account_volumes.add(pod, write.backend.new_suffix())
    secrets = declared.get("imagePullSecrets") or []
    if secrets and not spec(pod).get("imagePullSecrets"):
        pod["spec"]["imagePullSecrets"] = [dict(each) for each in secrets]


# --- HostPorts ------------------------------------------------------------------------------------


def keep_name_server(write: Write) -> None:
    """Refuse a pod that asks for the name server's own port, which leads to no pod (names/dns_guard.py)."""
    server = write.backend.name_server
    for container in lasting_containers(write.new):
        for port in container.get("ports") or []:
            if server and port.get("hostPort") == _DNS_PORT and syntax.shortest_ip(port.get("hostIP") or "") == server:
                why = f"hostIP {server} of port {_DNS_PORT} is the address of the cluster's DNS"
                raise _forbid(write, f"{why} (minik8s_dns_address), which leads to no pod")


def tell_health_checks(write: Write) -> None:
    """Warn of a host port that is a Service's ``healthCheckNodePort``: rules of host ports come before nginx.

    It is not refused, as Services are given such ports by chance, and everybody may name one.
    """
    ports = (port for container in lasting_containers(write.new) for port in container.get("ports") or [])
    asked = {port.get("hostPort") for port in ports if port.get("protocol") in {None, "TCP"}}.intersection(NODE_PORTS)
    found = readable.objects_of(SERVICE, write.backend.cache.list(SERVICE.prefix).items) if asked else []
    for number in sorted(spec(each).get(HEALTH_PORT) or 0 for each in found if needs_health_port(spec(each))):
        if number in asked:
            text = f"hostPort {number} is the healthCheckNodePort of a Service: on this Pod's node, load balancers that"
            write.options.warn(f"{text} ask whether Pods of that Service are there are answered by this Pod")


# --- LimitRanger ----------------------------------------------------------------------------------


def _limit_ranges(write: Write) -> list[JsonObject]:
    found = write.backend.cache.list(LIMIT_RANGE.key(write.target.namespace, "")).items
    return readable.objects_of(LIMIT_RANGE, found)


def fill_limits(write: Write) -> None:
    """Give a new pod's containers the defaults of the namespace's LimitRanges."""
    ranges = _limit_ranges(write)
    if ranges:
        limits.fill(write.new, ranges)
        write.new["status"]["qosClass"] = resources.qos_class(write.new)


def check_limits(write: Write) -> None:
    """Refuse a new pod or claim that the namespace's LimitRanges do not allow."""
    ranges = _limit_ranges(write)
    if not ranges:
        return
    check = limits.pod_violations if write.target.kind is POD else limits.claim_violations
    found = check(write.new, ranges)
    if found:
        raise _forbid(write, found[0] if len(found) == 1 else f"[{', '.join(found)}]")


# --- DefaultTolerationSeconds ---------------------------------------------------------------------


def tolerate_for_a_while(write: Write) -> None:
    """Let a pod that says nothing of it stay for five minutes on a node that is not ready, or unreachable.

    On an update, too: a replacement from a manifest lacks what was added when the pod was made.
    """
    tolerations = spec(write.new).setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        said = [each for each in tolerations if each.get("effect") in {None, "", "NoExecute"}]
        if not any(each.get("key") in {None, "", key} for each in said):
            added = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_S}
            tolerations.append(added)


# --- Priority -------------------------------------------------------------------------------------


def priority(write: Write) -> None:
    """Compute a new pod's priority from its class; an update keeps it."""
    asked = spec(write.new)
    if write.old is not None:
        for field in ("priority", "preemptionPolicy"):
            if field in spec(write.old):
                asked.setdefault(field, spec(write.old)[field])
        return
    chosen = _class_of(write, asked.get("priorityClassName") or "")
    value = int(chosen.get("value") or 0)
    if asked.get("priority") not in {None, value}:
        raise _forbid(
            write,
            f"the integer value of priority ({asked['priority']}) must not be provided in pod spec; priority admission "
            f"controller computed {value} from the given PriorityClass name",
        )
    if chosen:
        asked["priorityClassName"], asked["priority"] = name(chosen), value
        if chosen.get("preemptionPolicy"):
            asked.setdefault("preemptionPolicy", chosen["preemptionPolicy"])


def _class_of(write: Write, called: str) -> JsonObject:
    """Return the PriorityClass of that name; without a name the default one, {} when there is none."""
    if called:
        found = write.backend.cache.get(PRIORITY_CLASS.key("", called))
        if found is not None:
            return readable.object_of(PRIORITY_CLASS, found)
        if called in SYSTEM_CLASSES:  # this server has not made it yet
            return {"metadata": {"name": called}, **SYSTEM_CLASSES[called]}
        raise _forbid(write, f"no PriorityClass with name {called} was found")
    defaults = readable.objects_of(PRIORITY_CLASS, write.backend.cache.list(PRIORITY_CLASS.prefix).items)
    chosen = [each for each in defaults if each.get("globalDefault")]
    return min(chosen, key=lambda each: int(each.get("value") or 0), default={})


# --- PodSecurity ----------------------------------------------------------------------------------


def pod_security(write: Write) -> None:
    """Hold a pod to its namespace's level: refuse it (enforce), tell the client (warn), tell the audit log (audit)."""
    if write.old is not None and spec(write.old) == spec(write.new):
        return
    asked = _namespace_labels(write)
    enforced = security_standards.policy_of(asked, "enforce")
    found = security_standards.violations(enforced, write.new)
    if found:
        raise _forbid(write, f'violates PodSecurity "{enforced}": {", ".join(found)}')
    _tell(write, asked, write.new)


def template_security(write: Write) -> None:
    """Tell about a template whose pods the namespace's level would not let in; it is kept all the same."""
    template = template_of(stored_kind(write.target.kind).id, write.new)
    if template:
        _tell(write, _namespace_labels(write), template)


def _namespace_labels(write: Write) -> dict[str, str]:
    found = write.backend.cache.get(NAMESPACE.key("", write.target.namespace))
    return labels(found.object) if found else {}


def _tell(write: Write, asked: dict[str, str], pod: JsonObject) -> None:
    for mode in ("warn", "audit"):
        policy = security_standards.policy_of(asked, mode)
        found = security_standards.violations(policy, pod)
        if not found:
            continue
        text = f'would violate PodSecurity "{policy}": {", ".join(found)}'
        if mode == "warn":
            write.options.warn(text)
        else:
            write.requester.notes[f"{security_standards.PREFIX}audit-violations"] = text


def namespace_security(write: Write) -> None:
    """Refuse a namespace whose Pod Security labels cannot be read; warn of pods below a level it rises to."""
    causes = security_standards.label_causes(labels(write.new))
    if causes:
        raise Invalid(NAMESPACE, name(write.new), causes)
    policy = security_standards.policy_of(labels(write.new), "enforce")
    if write.old is None or policy == security_standards.policy_of(labels(write.old), "enforce"):
        return
    space = name(write.new)
    pods = [item.peek() for item in write.backend.cache.list(f"{POD.prefix}{space}/").items]
    bad = {metadata(pod)["name"]: found for pod in pods if (found := security_standards.violations(policy, pod))}
    if bad:
        write.options.warn(f'existing pods in namespace "{space}" violate the new PodSecurity enforce level "{policy}"')
    for called, found in list(bad.items())[:_NAMED_PODS]:
        write.options.warn(f"{called}: {', '.join(each.partition(' (')[0] for each in found)}")

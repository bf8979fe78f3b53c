"""The columns and cells that ``kubectl get`` shows: meta.k8s.io Tables, kind by kind.

``table_columns`` and ``table_row`` look up by ``(group, kind)``; a kind without an entry shows its name and age.
Priority 0 is always shown, 1 with ``-o wide``. Pods, which have a logic of their own, are in ``pods``; columns
and ages in ``cells``. Source: kubernetes ``pkg/printers/internalversion/printers.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from minik8s_modules.api import selectors
from minik8s_modules.api.defaulting import conversion
from minik8s_modules.api.kind import PrinterColumn
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject, dig, labels, name, spec, status
from minik8s_modules.api.tables import csi, extensions, originals, pods, workloads
from minik8s_modules.api.tables.cells import AGE, NAME, NONE, UNKNOWN, Column, age, columns, human_duration, since
from minik8s_modules.base.places import place

_SHOWN = 3  # endpoints and ports before "+ n more..."
__all__ = ["Column", "age", "human_duration", "since", "table_columns", "table_row"]
_ROLE = "node-role.kubernetes.io/"
_MORE = (workloads.TABLES, extensions.TABLES, csi.TABLES, originals.TABLES)


class _Table(NamedTuple):
    columns: Sequence[Column]
    cells: Callable[[JsonObject, datetime], list[Any]]


def table_columns(kind: Kind) -> list[Column]:
    """Return the columns of the kind's table."""
    return list(_table(kind).columns)


def table_row(kind: Kind, obj: JsonObject, now: datetime) -> list[Any]:
    """Return the cells of one object, one for each of ``table_columns``; ``now`` decides ages."""
    return _table(kind).cells(obj, now)


def _table(kind: Kind) -> _Table:
    if kind.custom is not None:
        return _custom(kind.custom.columns)
    if kind.id == ("", "Pod"):
        return _Table(pods.COLUMNS, pods.cells)
    more = next((found for each in _MORE if (found := each.get(kind.id))), None)
    if more is not None:
        return _Table(*more)
    return _TABLES.get(kind.id, _DEFAULT)


@lru_cache(maxsize=1024)
def _custom(declared: tuple[PrinterColumn, ...]) -> _Table:
    """Return the table a definition declares; one that declares none shows the age."""
    if not declared:
        return _DEFAULT
    shown = [Column(one.name, one.type, one.format, one.description, one.priority) for one in declared]

    def cells(obj: JsonObject, now: datetime) -> list[Any]:
        return [name(obj), *(_custom_cell(one, obj, now) for one in declared)]

    return _Table([NAME, *shown], cells)


def _custom_cell(column: PrinterColumn, obj: JsonObject, now: datetime) -> Any:
    value = column.read(obj)
    return since(value, now) if column.type == "date" and value is not None else value


# --- kinds ----------------------------------------------------------------------------------------


def _node(node: JsonObject, now: datetime) -> list[Any]:
    info = status(node).get("nodeInfo") or {}
    return [
        name(node), _node_status(node), _node_roles(node), age(node, now), info.get("kubeletVersion", ""),
        _address(node, "InternalIP"), _address(node, "ExternalIP"), info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN, info.get("containerRuntimeVersion") or UNKNOWN,
    ]  # fmt: skip


def _node_status(node: JsonObject) -> str:
    ready = [c for c in status(node).get("conditions") or [] if c.get("type") == "Ready"]
    words = [("" if ready[0].get("status") == "True" else "Not") + "Ready"] if ready else ["Unknown"]
    if spec(node).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: JsonObject) -> str:
    roles = {key.removeprefix(_ROLE) for key in labels(node) if key.startswith(_ROLE) and key != _ROLE}
    if labels(node).get("kubernetes.io/role"):
        roles.add(labels(node)["kubernetes.io/role"])
    return ",".join(sorted(roles)) or NONE


def _address(node: JsonObject, kind: str) -> str:
    found = [a.get("address", "") for a in status(node).get("addresses") or [] if a.get("type") == kind]
    return found[0] if found else NONE


def _namespace(namespace: JsonObject, now: datetime) -> list[Any]:
    return [name(namespace), status(namespace).get("phase", ""), age(namespace, now)]


def _service(service: JsonObject, now: datetime) -> list[Any]:
    declared = spec(service)
    return [
        name(service), declared.get("type", ""), declared.get("clusterIP") or NONE, _external(service),
        ",".join(map(_service_port, declared.get("ports") or [])) or NONE, age(service, now),
        selectors.describe(declared.get("selector")),
    ]  # fmt: skip


def _external(service: JsonObject) -> str:
    declared = spec(service)
    if declared.get("type") == "ExternalName":
        return str(declared.get("externalName") or "")
    ingress = dig(service, "status", "loadBalancer", "ingress") or []
    found = [entry.get("ip") or entry.get("hostname") or "" for entry in ingress] + (declared.get("externalIPs") or [])
    return ",".join(filter(None, found)) or ("<pending>" if declared.get("type") == "LoadBalancer" else NONE)


def _service_port(port: JsonObject) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node_port}/{port.get('protocol')}"


def _first(items: Iterable[str], nothing: str) -> str:
    found = list(items)
    if not found:
        return nothing
    more = f" + {len(found) - _SHOWN} more..." if len(found) > _SHOWN else ""
    return ",".join(found[:_SHOWN]) + more


def _endpoints(endpoints: JsonObject, now: datetime) -> list[Any]:
    found = [
        place(str(address.get("ip")), str(port.get("port"))) if port else str(address.get("ip"))
        for subset in endpoints.get("subsets") or []
        for port in subset.get("ports") or [None]
        for address in subset.get("addresses") or []
    ]
    return [name(endpoints), _first(found, NONE), age(endpoints, now)]


def _endpoint_slice(endpoint_slice: JsonObject, now: datetime) -> list[Any]:
    ports = [str(port["port"]) if port.get("port") else "*" for port in endpoint_slice.get("ports") or []]
    addresses = [a for e in endpoint_slice.get("endpoints") or [] for a in e.get("addresses") or []]
    return [
        name(endpoint_slice), endpoint_slice.get("addressType", ""), _first(ports, "<unset>"),
        _first(addresses, "<unset>"), age(endpoint_slice, now),
    ]  # fmt: skip


def _config_map(config_map: JsonObject, now: datetime) -> list[Any]:
    count = len(config_map.get("data") or {}) + len(config_map.get("binaryData") or {})
    return [name(config_map), str(count), age(config_map, now)]


def _secret(secret: JsonObject, now: datetime) -> list[Any]:
    return [name(secret), secret.get("type", ""), str(len(secret.get("data") or {})), age(secret, now)]


def _service_account(account: JsonObject, now: datetime) -> list[Any]:
    return [name(account), str(len(account.get("secrets") or [])), age(account, now)]


def _event(event: JsonObject, now: datetime) -> list[Any]:
    first_time = event.get("firstTimestamp") or event.get("eventTime")
    series = event.get("series") or {}
    last_time = series.get("lastObservedTime") or event.get("lastTimestamp") or first_time
    involved, source = event.get("involvedObject") or {}, event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return [
        since(last_time, now), event.get("type", ""), event.get("reason", ""),
        f"{involved.get('kind', '').lower()}/{involved.get('name', '')}", involved.get("fieldPath", ""),
        f"{component}, {host}" if host else component, str(event.get("message", "")).strip(),
        since(first_time, now), str(series.get("count") or event.get("count") or 1), name(event),
    ]  # fmt: skip


def _new_event(event: JsonObject, now: datetime) -> list[Any]:
    return _event(conversion.to_storage_event(event), now)


def _lease(lease: JsonObject, now: datetime) -> list[Any]:
    return [name(lease), spec(lease).get("holderIdentity") or "", age(lease, now)]


def _pod_address(address: JsonObject, now: datetime) -> list[Any]:
    holder = spec(address)
    pod = f"{holder.get('podNamespace', '')}/{holder.get('podName', '')}"
    return [name(address), pod, holder.get("nodeName", ""), age(address, now), holder.get("podUID", "")]


def _host_grant(grant: JsonObject, now: datetime) -> list[Any]:
    declared = spec(grant)
    shown = [",".join(declared.get(field) or []) or NONE for field in ("namespaces", "hosts")]
    return [name(grant), *shown, bool(declared.get("shortNames")), age(grant, now)]


def _pod_cidr(claim: JsonObject, now: datetime) -> list[Any]:
    state = status(claim)
    cells = [name(claim), spec(claim).get("cidr", ""), spec(claim).get("nodeName", ""), state.get("phase", "")]
    return [*cells, age(claim, now), state.get("message", "")]


_EVENT_COLUMNS = columns(
    "Last Seen", "Type", "Reason", "Object", "Subobject+", "Source+", "Message", "First Seen+", "Count+"
)  # fmt: skip
_EVENT_TABLE_COLUMNS = [*_EVENT_COLUMNS, NAME._replace(priority=1)]
_NODE_WIDE = columns("Internal-IP+", "External-IP+", "OS-Image+", "Kernel-Version+", "Container-Runtime+")

_DEFAULT = _Table([NAME, AGE], lambda obj, now: [name(obj), age(obj, now)])
_CREATED_COLUMNS = [NAME, Column("Created At")]
_BINDING_COLUMNS = [
    NAME, Column("Role"), AGE, Column("Users", priority=1), Column("Groups", priority=1),
    Column("ServiceAccounts", priority=1),
]  # fmt: skip


def _created(obj: JsonObject, _now: datetime) -> list[Any]:
    """Return the cells of a Role, a ClusterRole or a CustomResourceDefinition."""
    return [name(obj), (obj.get("metadata") or {}).get("creationTimestamp") or "<unknown>"]


def _binding(obj: JsonObject, now: datetime) -> list[Any]:
    """Return the cells of a RoleBinding or ClusterRoleBinding."""
    ref = obj.get("roleRef") or {}
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or []:
        space, called = subject.get("namespace"), subject.get("name", "")
        subjects.setdefault(subject.get("kind", ""), []).append(f"{space}/{called}" if space else called)
    joined = [", ".join(subjects[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [name(obj), f"{ref.get('kind')}/{ref.get('name')}", age(obj, now), *joined]


_TABLES: dict[tuple[str, str], _Table] = {
    ("", "Node"): _Table([NAME, *columns("Status", "Roles"), AGE, Column("Version"), *_NODE_WIDE], _node),
    ("", "Namespace"): _Table([NAME, Column("Status"), AGE], _namespace),
    ("", "Service"): _Table(
        [NAME, *columns("Type", "Cluster-IP", "External-IP", "Port(s)"), AGE, *columns("Selector+")], _service
    ),
    ("", "Endpoints"): _Table([NAME, Column("Endpoints"), AGE], _endpoints),
    ("", "ConfigMap"): _Table([NAME, Column("Data"), AGE], _config_map),
    ("", "Secret"): _Table([NAME, *columns("Type", "Data"), AGE], _secret),
    ("", "ServiceAccount"): _Table([NAME, Column("Secrets"), AGE], _service_account),
    ("", "Event"): _Table(_EVENT_TABLE_COLUMNS, _event),
    ("events.k8s.io", "Event"): _Table(_EVENT_TABLE_COLUMNS, _new_event),
    ("coordination.k8s.io", "Lease"): _Table([NAME, Column("Holder"), AGE], _lease),
    ("discovery.k8s.io", "EndpointSlice"): _Table(
        [NAME, *columns("AddressType", "Ports", "Endpoints"), AGE], _endpoint_slice
    ),
    **{("rbac.authorization.k8s.io", kind): _Table(_CREATED_COLUMNS, _created) for kind in ("Role", "ClusterRole")},
    **{
        ("rbac.authorization.k8s.io", kind): _Table(_BINDING_COLUMNS, _binding)
        for kind in ("RoleBinding", "ClusterRoleBinding")
    },
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _Table(_CREATED_COLUMNS, _created),
    ("minik8s.io", "PodAddress"): _Table([NAME, *columns("Pod", "Node"), AGE, *columns("UID+")], _pod_address),
    ("minik8s.io", "HostGrant"): _Table(
        [NAME, *columns("Namespaces", "Hosts"), Column("Short Names", "boolean"), AGE], _host_grant
    ),
    ("minik8s.io", "PodCIDR"): _Table([NAME, *columns("CIDR", "Node", "Phase"), AGE, *columns("Message+")], _pod_cidr),
}

"""``mesh status`` and ``mesh routes``: what the sidecars of Pods have, beside what they are to have.

What they are to have is decided here as pilots decide it, from the same objects; what they have, they say themselves.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.tables.cells import human_duration
from minik8s_modules.base.clock import parse_rfc3339
from minik8s_modules.cli import output
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.mesh.sidecars import (
    DUMP,
    PILOT,
    Ask,
    Configuration,
    Expected,
    Unanswered,
    ask_all,
    asking,
    container_of,
    has_pilot,
    read_configuration,
    with_sidecars,
)
from minik8s_modules.cli.options import Subparsers, add, add_namespace
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.interface import Lister
from minik8s_modules.mesh.wording import leading, matching, plain

_HEADER = ("POD", "VERSION", "STATUS", "UPDATED", "MTLS", "CERTIFICATE", "MESSAGE")
_MUTUAL = slice(4, 6)


def declare(commands: Subparsers) -> None:
    """Declare mesh status and mesh routes."""
    parser = add(
        commands, "mesh", lambda *_: 0, "show the configuration of the service mesh's sidecars",
        usage="mesh (status | routes) ...",
    )  # fmt: skip
    inner = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", prog="minik8s mesh")
    shown = add(
        inner, "status", status, "print whether each sidecar has its latest configuration, and since when",
        usage="mesh status [options]",
    )  # fmt: skip
    add_namespace(shown)
    shown.add_argument("-A", "--all-namespaces", action="store_true", help="in all namespaces")
    routed = add(
        inner, "routes", routes, "print where the sidecar of a Pod sends requests",
        usage="mesh routes [options] POD",
    )  # fmt: skip
    routed.add_argument("pod", metavar="POD")
    add_namespace(routed)


def status(client: ApiClient, given: argparse.Namespace) -> int:
    """Print the table; return 1 where a sidecar has not what it is to have."""
    pods = with_sidecars(client, "" if given.all_namespaces else given.namespace)
    if not pods:
        where = "" if given.all_namespaces else f" in namespace {given.namespace}"
        sys.stderr.write(f"no Pod with a sidecar runs{where}\n")
        return 0
    from minik8s_modules.cli.mesh.expecting import expected  # noqa: PLC0415 - the mesh's decisions, for this alone

    ask = asking(given)
    namespaces = {objects.namespace(pod): expected(client, objects.namespace(pod)) for pod in pods}
    found = list(rows(ask, pods, namespaces, datetime.now(UTC)))
    header, lines = table(found, with_namespaces=given.all_namespaces)
    print(output.aligned(header, lines, output.Paint()))
    return int(any(row[2] != "synced" for _namespace, row in found))


def table(
    found: Sequence[tuple[str, tuple[str, ...]]], *, with_namespaces: bool
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows; what is about mutual TLS only where somebody has it."""
    left_out = _MUTUAL if not any(any(row[_MUTUAL]) for _namespace, row in found) else slice(0, 0)

    def shown(namespace: str, row: tuple[str, ...]) -> tuple[str, ...]:
        kept = row[: left_out.start] + row[left_out.stop :]
        return (namespace, *kept) if with_namespaces else kept

    return shown("NAMESPACE", _HEADER), [shown(*each) for each in found]


def rows(
    ask: Ask, pods: list[JsonObject], namespaces: Mapping[str, Expected], now: datetime
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield namespace and row of each Pod."""
    connected = {objects.key(pod): has_pilot(answer) for pod, answer in ask_all(ask, pods, PILOT)}
    for pod, dump in ask_all(ask, pods, DUMP):
        key = objects.key(pod)
        try:
            if isinstance(dump, Unanswered):
                raise dump
            found = read_configuration(dump)
        except Unanswered as unanswered:
            yield key.namespace, (key.name, "", "unknown", "", "", "", plain(str(unanswered)))
            continue
        wanted = namespaces[key.namespace]
        word, message = judge(found, wanted, is_connected=connected[key])
        if word == "synced" and (mode := wanted.modes.get(key.name, found.mutual)) != found.mutual:
            word, message = "behind", f"mutual TLS is to be {mode}"
        certified = _age(found.certified, now) if found.certified else ""
        row = (found.version, word, _age(found.updated, now), found.mutual, certified, plain(message))
        yield key.namespace, (key.name, *row)


def judge(found: Configuration, wanted: Expected, *, is_connected: bool) -> tuple[str, str]:
    """Return in a word how a sidecar stands, and what there is to say of it."""
    if found.crowds and wanted.sharing is not None:
        wanted = wanted.sharing(frozenset(found.crowds))
    lacking = differences(found, wanted)
    if found.refused:
        return "refused", found.refused
    if not is_connected:
        return "no pilot", f"it keeps its configuration; {len(lacking)} resources have changed since" if lacking else ""
    return ("behind", ", ".join(lacking[:3])) if lacking else ("synced", "")


def differences(found: Configuration, wanted: Expected) -> list[str]:
    """Return the resources that a sidecar is to have and has not, or not so, and listeners that it is not to have."""
    unasked = {name for name in wanted.on_demand if ("cluster", name) not in found.versions}
    names = {key for key in {*found.versions, *wanted.versions} if found.versions.get(key) != wanted.versions.get(key)}
    # what is left over does no harm: where no listener leads to it, it goes when connections have ended
    left = {key for key in found.versions if key[0] != "listener" and key not in wanted.versions}
    names -= left | {("cluster", name) for name in unasked}
    others = {
        name
        for name, weights in wanted.endpoints.items()
        if found.endpoints.get(name, {}) != weights and name not in unasked
    }
    return sorted({f"{kind} {name}" for kind, name in names} | {f"endpoints {name}" for name in others})


def _age(text: str, now: datetime) -> str:
    try:
        return human_duration((now - parse_rfc3339(text)).total_seconds())
    except ValueError:
        return "never"


def routes(client: ApiClient, given: argparse.Namespace) -> int:
    """Print the table of a Pod's sidecar."""
    found = configuration_of(client, asking(given), given.namespace, given.pod)
    pods = names_by_address(client, given.namespace)
    print(output.aligned(("PORT", "ADDRESS", "REQUESTS", "GO TO"), table_rows(found, pods), output.Paint()))
    return 0


def table_rows(found: Configuration, pods: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the rows of what a sidecar has; ``pods`` are names by address."""
    lines = [row for one in sorted(found.listeners) for row in _rows_of(one.name, str(one.address), found, pods)]
    return [*lines, *_unasked(found)]


def _unasked(found: Configuration) -> Iterator[tuple[str, ...]]:
    """Yield a row for each port number with Services that the sidecar has had no request to yet."""
    known = {str(each.address) for each in found.listeners}
    for number, addresses in sorted(found.crowds.items()):
        left = [each for each in addresses if f"{each}:{number}" not in known]
        if left:
            yield f"*:{number}", f"{len(left)} more", "all", "Pods that it asks the pilot for at the first request"


def configuration_of(client: ApiClient, ask: Ask, namespace: str, name: str) -> Configuration:
    """Return what a Pod's sidecar has.

    Raises:
        UsageError: the Pod has no sidecar, or it does not answer.
        StatusError: as the API does.
    """
    pod = client.get(POD, name, namespace)
    if not container_of(pod):
        raise UsageError(f"Pod {name} has no sidecar (docs: Give a Pod a sidecar)")
    return read_configuration(ask(pod, DUMP))


def names_by_address(client: Lister, namespace: str) -> dict[str, str]:
    """Return the names of a namespace's Pods by their addresses; raises as the API does."""
    found = ((objects.status(pod).get("podIP"), objects.name(pod)) for pod in client.list(POD, namespace).items)
    return {str(ip): name for ip, name in found if ip}


def _rows_of(name: str, address: str, found: Configuration, pods: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    shown = (plain(name), address)
    for route in found.routes.get(name, ()):
        yield (*shown, plain(matching(route)), plain("; ".join(leading(route, found.endpoints, pods))))
        shown = ("", "")

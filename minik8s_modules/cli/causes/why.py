"""``why``: what keeps objects from being as they should be; the same above what kubectl's ``describe`` prints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import HORIZONTAL_POD_AUTOSCALER, NAMESPACE, POD, SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.cli import kubectl, output
from minik8s_modules.cli.causes.autoscalers import decisions
from minik8s_modules.cli.causes.checks import Verdict, judge, scope_of
from minik8s_modules.cli.causes.control_plane import Server, asked
from minik8s_modules.cli.causes.custom import unavailable
from minik8s_modules.cli.causes.faults import resource
from minik8s_modules.cli.causes.membership import lock_faults
from minik8s_modules.cli.causes.placing import placing
from minik8s_modules.cli.causes.pods import pod_cause
from minik8s_modules.cli.causes.service_endpoints import absentees, behind
from minik8s_modules.cli.causes.surroundings import Around
from minik8s_modules.cli.connection import client_for
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.original import translating
from minik8s_modules.client.api import ApiClient

_APART = frozenset({"-", "-h", "--help"})
"""Where nothing is told above: standard input is kubectl's to read, and help is no description."""
_ONE_SCREEN = 10


def why(client: ApiClient, options: argparse.Namespace) -> int:
    """Print the cause of each named object that is not as it should be; returns 1 when one was not found.

    Raises:
        UsageError: no object is named.
    """
    if options.words[:1] == ["connect"]:
        from minik8s_modules.cli.causes.connecting import connect  # noqa: PLC0415 - 10 ms, for this alone

        return connect(client, options)
    if not (options.words or options.filename or options.kustomize):
        raise UsageError("name an object, as in `why pod/web`, or ask for all faults of a type: `why pods -A --faults`")
    with ThreadPoolExecutor(1) as aside:
        answer = aside.submit(asked, client)  # while kubectl, which takes most of the time, reads the objects
        found, complete, said = kubectl.read(translating.as_get(options.argv))
        server = answer.result()
    if server.silence is not None and not found:
        print(f"{'Cause:':<8}{server.silence.cause}\n{'Next:':<8}{server.silence.next}")
        return 1
    sys.stderr.write(said)
    _warn(server)
    around = Around(client, scope_of(found), server.now)
    if not complete:
        _warn_of_extensions(around)
    judged = [(obj, judge(obj, around)) for obj in found]
    shown = [(obj, verdict) for obj, verdict in judged if verdict.faults or not options.faults]
    if shown:
        rows = [[objects.namespace(obj), _named(obj), verdict.cause or verdict.otherwise] for obj, verdict in shown]
        print(output.aligned(["NAMESPACE", "OBJECT", "CAUSE"], rows, output.Paint()))
        if not options.one_line:
            _replay(shown, around)
            _lead_on([verdict for _, verdict in shown])
    elif complete:
        print(_nothing(judged, around, options))
    return int(not complete)


def _warn(server: Server) -> None:
    """Say what concerns all objects alike."""
    if server.silence is not None:
        output.warn(f"{server.silence.cause}; what follows may be old. Next: {server.silence.next}")
    for remark in (*server.remarks, *lock_faults()):
        output.warn(f"{remark.cause}. Next: {remark.next}")


def _warn_of_extensions(around: Around) -> None:
    """Say which groups could not be read, whatever was asked about."""
    for extension, fault in unavailable(around):
        who = f"{resource(extension)} ({objects.dig(extension, 'spec', 'group')})"
        output.warn(f"nothing of {who} can be read: {fault.cause}. Next: {fault.next}")


def _replay(shown: Sequence[tuple[JsonObject, Verdict]], around: Around) -> None:
    """Print how an autoscaler decided last, and what nodes come to for a pod, where one alone is asked about."""
    replayed = {HORIZONTAL_POD_AUTOSCALER.kind: decisions, POD.kind: placing}.get(shown[0][0].get("kind", ""))
    if len(shown) == 1 and replayed is not None:
        for place, line in enumerate(replayed(shown[0][0], around)):
            print(f"{'' if place else chr(10)}{line}")


def _lead_on(verdicts: Sequence[Verdict]) -> None:
    """Print the commands to run next, each once and no more than a screen holds."""
    leads = list(dict.fromkeys(fault.next for verdict in verdicts for fault in verdict.faults if fault.next))
    if leads:
        print()
    for lead in leads[:_ONE_SCREEN]:
        print(f"Next: {lead}")
    if leads[_ONE_SCREEN:]:
        print(f"… and {len(leads) - _ONE_SCREEN} more: name one object, or a type and a namespace")


def _nothing(judged: Sequence[tuple[JsonObject, Verdict]], around: Around, options: argparse.Namespace) -> str:
    """Return what to say where no object is shown."""
    namespace = "" if options.all_namespaces else options.namespace or ""
    if not judged and namespace and around.lacks(NAMESPACE, namespace):
        return f"there is no such object: namespace {namespace} does not exist"
    if not judged:
        return f"there is no such object{f' in namespace {namespace}' if namespace else ''}"
    unknown = sorted({verdict.otherwise for _, verdict in judged if not verdict.certain})
    return "; ".join(unknown) or "nothing is wrong"


def tell_causes(argv: Sequence[str]) -> None:
    """Print what is wrong with the objects of a ``describe``; kubectl, which comes next, says what cannot be read."""
    if not translating.own_connection(argv) or _APART & set(argv):
        return
    try:
        client = client_for(argv)
        with ThreadPoolExecutor(1) as aside:
            answer = aside.submit(asked, client)
            found, _, _ = kubectl.read(translating.as_get(argv))
            server = answer.result()
        if found:
            _warn(server)
        around = Around(client, scope_of(found), server.now)
        lines = [line for obj in found for line in causes_of(around, obj, named=len(found) > 1)]
    except (StatusError, Minik8sError):
        return
    if lines:
        print("\n".join(lines))


def _named(obj: JsonObject) -> str:
    return f"{str(obj['kind']).lower()}/{objects.name(obj)}"


def causes_of(around: Around, obj: JsonObject, *, named: bool = False) -> Iterator[str]:
    """Yield the lines that stand above the description of an object: its causes, and the pods that are no endpoints."""
    who = f"{_named(obj)}: " if named else ""
    yield from (f"{'Cause:':<18}{who}{fault.cause}" for fault in judge(obj, around).faults)
    if (obj.get("apiVersion"), obj.get("kind")) == (SERVICE.api_version, SERVICE.kind):
        for pod, absence in absentees(obj, behind(around, obj), lambda pod: pod_cause(pod, around)):
            yield f"{'No endpoint:':<18}{who}pod {pod}: {absence}"

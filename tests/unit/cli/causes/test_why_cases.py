"""Faults as the cluster shows them: each file of tests/cases/why is one, with its cause and the command to run next."""

from __future__ import annotations

import base64
import copy
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema import coverage
from minik8s_modules.cli.causes.checks import CHECKS, DATA, FINE, judge
from minik8s_modules.cli.causes.control_plane import asked
from minik8s_modules.cli.main import parse
from minik8s_modules.client.api import ApiClient
from tests.unit.cli.causes.logged_api import SPACE, LoggedApi, put, verdict_on

CASES = sorted((Path(__file__).parents[3] / "cases" / "why").glob("*.yml"))
OF_OBJECTS = [path for path in CASES if "of" in yaml.safe_load(path.read_text())]


def case(path: Path) -> dict[str, Any]:
    """Return a case, its object first."""
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    if "certificate" in found:
        found["objects"].append(certificate(**found["certificate"]))
    if "of" in found:
        kind, name = found["of"].split("/")
        own = [one for one in found["objects"] if one["kind"].lower() == kind and one["metadata"]["name"] == name]
        found["objects"] = own + [one for one in found["objects"] if one is not own[0]]
    return found


def certificate(secret: str, **times: str) -> JsonObject:
    """Return a Secret with a certificate that is valid from one time ``until`` another."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "shop.test")])
    since, until = (datetime.fromisoformat(times[one]) for one in ("from", "until"))
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, since, until)
    signed = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    data = {"tls.crt": base64.b64encode(signed).decode(), "tls.key": base64.b64encode(private).decode()}
    return {"kind": "Secret", "metadata": {"name": secret}, "type": "kubernetes.io/tls", "data": data}


@pytest.mark.parametrize("many", [False, True], ids=["alone", "among many"])
@pytest.mark.parametrize("path", OF_OBJECTS, ids=lambda path: path.stem)
def test_the_cause_and_the_next_command_are_told(path: Path, many: bool):  # noqa: FBT001 - a case
    found = case(path)
    verdict = verdict_on(*found["objects"], many=many, logs=found.get("logs"))
    assert found["cause"] in verdict.cause
    assert verdict.faults[0].next == found["next"]


@pytest.mark.parametrize("path", [path for path in CASES if path not in OF_OBJECTS], ids=lambda path: path.stem)
def test_a_server_that_answers_nobody_or_slowly_says_why(path: Path):
    found = case(path)
    api = LoggedApi(readyz=found.get("readyz", ""), unreachable=found.get("unreachable", ""))
    server = asked(cast(ApiClient, api))
    fault = server.remarks[0] if found.get("remark") else server.silence
    assert fault is not None
    assert (fault.cause, fault.next) == (found["cause"], found["next"])
    assert not (server.silence and server.remarks)


def test_a_server_that_is_well_says_nothing():
    assert asked(cast(ApiClient, LoggedApi(readyz="[+]ping ok\n[+]etcd ok\n"))) == ((None, (), None))


@pytest.mark.parametrize(("off_s", "direction"), [(-120, "ahead of"), (0, ""), (8, ""), (120, "behind")])
def test_a_clock_of_this_machine_that_is_off_is_told_and_not_judged_by(off_s: int, direction: str):
    theirs = datetime.now(UTC) + timedelta(seconds=off_s)
    server = asked(cast(ApiClient, LoggedApi(date=format_datetime(theirs, usegmt=True))))
    assert server.now == theirs.replace(microsecond=0)
    causes = [remark.cause for remark in server.remarks]
    assert causes == ([causes[0]] if direction else [])
    if direction:
        assert re.fullmatch(rf"this machine's clock is 1[12]\d s {direction} the API server's", causes[0])


@pytest.mark.parametrize("path", OF_OBJECTS, ids=lambda path: path.stem)
def test_a_cause_is_found_with_few_requests(path: Path):
    found, api = case(path), LoggedApi()
    first = put(api, *found["objects"])[0]
    api.calls.clear()
    judge(first, api.around())
    assert len(api.calls) <= 10


def test_many_objects_cost_no_more_requests_than_a_few():
    def calls(number: int) -> int:
        api = LoggedApi()
        pods = put(api, *(running(f"web-{index}") for index in range(number)))
        api.calls.clear()
        around = api.around(SPACE)
        assert {judge(pod, around).otherwise for pod in pods if pod["kind"] == "Pod"} == {FINE}
        return len(api.calls)

    assert calls(40) == calls(2)


def running(name: str) -> JsonObject:
    """Return a pod that runs."""
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    spec = {"nodeName": "n1", "containers": [{"name": "app", "image": "web:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": name}, "spec": spec, "status": status}


def test_our_own_commands_that_it_leads_on_to_are_known():
    leads = {case(path)["next"] for path in CASES}
    own = [lead.split()[1:] for lead in leads if lead.startswith("minik8s ")]
    assert {parse(words).command.__name__ for words in own} == {"why", "drift", "trace"}


def test_thirty_faults_are_told():
    assert len(CASES) >= 30


# --- every kind that is served


@pytest.mark.parametrize("kind", KINDS.all(), ids=lambda kind: f"{kind.group or 'core'}.{kind.plural}")
def test_every_kind_served_has_a_check_or_is_said_not_to_be_known(kind: Kind):
    obj: JsonObject = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x", "namespace": SPACE}}
    verdict = judge(obj, LoggedApi().around())
    if kind in CHECKS or kind in DATA:
        assert not verdict.otherwise.startswith("not known")
    else:
        assert verdict.otherwise == f"not known: nothing checks a {kind.kind}"
        assert not verdict.certain
    assert not (kind in CHECKS and kind in DATA)


def stored_and_not_acted_on() -> list[Kind]:
    """Return the kinds whose spec nobody acts on."""
    return [
        kind for kind in KINDS.all()
        if (rule := coverage.rules_of(kind.definition).get("spec")) is not None and rule.treatment == "warned"
    ]  # fmt: skip


@pytest.mark.parametrize("kind", stored_and_not_acted_on(), ids=lambda kind: kind.plural)
def test_what_nobody_acts_on_is_not_as_it_should_be(kind: Kind):
    obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x"}, "spec": {"a": 1}}
    reason = coverage.rules_of(kind.definition)["spec"].reason
    assert verdict_on(obj).cause == f"spec is not acted on: {reason}"


def test_a_field_that_nobody_acts_on_is_told_of_an_object_that_is_fine():
    pod = running("web")
    pod["spec"]["containers"][0]["securityContext"] = {"seLinuxOptions": {"level": "s0"}}
    verdict = verdict_on(pod)
    assert verdict.faults == ()
    assert verdict.otherwise.startswith(
        "as it should be, but spec.containers[0].securityContext.seLinuxOptions is not acted on: "
    )


def test_annotations_of_ingress_nginx_that_change_nothing_are_told_of_an_ingress_that_is_fine():
    api = LoggedApi()
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    ingress = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": "web",
            "namespace": SPACE,
            "annotations": {"nginx.ingress.kubernetes.io/auth-type": "basic"},
        },
        "spec": {"rules": [{"host": "a.test", "http": {"paths": [{"path": "/", "backend": backend}]}}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
    }
    service = {
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"clusterIP": "100.0.0.9", "ports": [{"port": 80}]},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"port": 80}],
        "endpoints": [{"addresses": ["10.244.0.9"], "conditions": {"ready": True}}],
    }
    verdict = judge(put(api, ingress, service, endpoints)[0], api.around())
    assert verdict.faults == ()
    assert verdict.otherwise.startswith(
        "as it should be, but metadata.annotations[nginx.ingress.kubernetes.io/auth-type] is not acted on: "
    )


def test_an_object_of_a_kind_that_is_not_served_is_not_known():
    verdict = judge(
        {"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "x"}},
        LoggedApi().around(),
    )
    assert (verdict.faults, verdict.otherwise) == ((), "not known: nothing checks a Shop")


def test_what_may_not_be_read_is_said_and_not_taken_for_fine():
    api = LoggedApi()
    pod = put(api, running("web"))[0]
    assert judge(pod, api.around()).otherwise == FINE
    api.fail(Forbidden(None, "", "no"))
    verdict = judge(pod, api.around())
    assert (verdict.faults, verdict.certain) == ((), False)
    assert verdict.otherwise == "nothing was found, but not all could be read: nodes"


@pytest.mark.parametrize("recovered", [False, True])
def test_what_a_node_has_put_right_since_is_no_fault(recovered: bool):  # noqa: FBT001 - a case
    found = case(next(path for path in CASES if path.stem.startswith("a_port_of_the_node_that_a_program")))
    event = next(one for one in found["objects"] if one["kind"] == "Event")
    if recovered:
        over = copy.deepcopy(event)
        over["metadata"]["name"], over["reason"] = "later", "ServiceRulesUpdated"
        over["lastTimestamp"] = "2025-12-31T23:59:30Z"
        found["objects"].append(over)
    assert bool(verdict_on(*found["objects"]).faults) is not recovered


def test_drift_that_was_not_put_right_is_no_fault_for_ever():
    found = case(next(path for path in CASES if path.stem.startswith("a_difference_on_the_node")))
    found["objects"][1]["lastTimestamp"] = "2025-12-31T23:40:00Z"
    assert verdict_on(*found["objects"]).cause == ""


def test_a_last_line_holds_no_control_characters_and_is_not_long():
    found = case(next(path for path in CASES if path.stem == "a_crash_with_its_last_line"))
    cause = verdict_on(*found["objects"], logs={"web/app": "\x1b[31m" + "x" * 5000 + "\n"}).cause
    assert "\x1b" not in cause
    assert len(cause) < 500


def test_an_api_service_of_the_server_itself_is_as_it_should_be():
    own = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.apps"}}
    assert verdict_on({**own, "spec": {"group": "apps", "version": "v1"}}).otherwise == FINE

"""Numbers that Python cannot read, or that only look like some, wherever text is read as a number."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from tests.integration.fuzz.conftest import Client, refusal_faults
from tests.support.apiserver import ApiServerProcess

LONG = "9" * 5_000  # beyond Python's limit of 4,300 digits
PLACE = "/api/v1/namespaces/default"
SELECTOR = {"matchLabels": {"a": "b"}}
CONTAINERS = {"containers": [{"name": "c", "image": "i"}]}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": CONTAINERS}
JOB = {"spec": {"template": {"spec": {**CONTAINERS, "restartPolicy": "Never"}}}}
MATCH = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture(scope="module")
def client(server: ApiServerProcess):
    """A connection to a server that has a ConfigMap and a Pod."""
    opened = Client(server)
    opened.request("POST", f"{PLACE}/configmaps", {"metadata": {"name": "a"}})
    opened.request("POST", f"{PLACE}/pods", {"metadata": {"name": "p"}, "spec": CONTAINERS})
    yield opened
    opened.close()


def pods(**container):
    return f"{PLACE}/pods", {
        "metadata": {"name": "q"},
        "spec": {"containers": [{"name": "c", "image": "i", **container}]},
    }


def bodies(text: str):
    """Yield (path, object) with ``text`` in every place that is read as a number."""
    for number in (text, f"1e{text}", f"1E-{text}"):
        yield pods(resources={"limits": {"cpu": number}})
    strategy = {"rollingUpdate": {"maxSurge": f"{text}%"}}
    deployment = {"selector": SELECTOR, "template": TEMPLATE, "strategy": strategy}
    yield "/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": "d"}, "spec": deployment}
    cron = {"schedule": f"{text} */{text} {text}-{text} 1/{text} 1", "jobTemplate": JOB}
    yield "/apis/batch/v1/namespaces/default/cronjobs", {"metadata": {"name": "d"}, "spec": cron}
    label = {"pod-security.kubernetes.io/enforce-version": f"v1.{text}"}
    yield "/api/v1/namespaces", {"metadata": {"name": "d", "labels": label}}
    service = {"clusterIP": f"10.0.0.{text}", "ports": [{"port": 80}]}
    yield f"{PLACE}/services", {"metadata": {"name": "p"}, "spec": service}
    peers = [{"ipBlock": {"cidr": f"10.0.0.0/{text}"}}]
    policy = {"podSelector": {}, "ingress": [{"from": peers}]}
    yield "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", {"metadata": {"name": "p"}, "spec": policy}
    term = {"matchExpressions": [{"key": "a", "operator": "Gt", "values": [text]}]}
    path, pod = pods()
    yield path, {**pod, "spec": {**pod["spec"], "affinity": {"nodeAffinity": {MATCH: {"nodeSelectorTerms": [term]}}}}}
    involved = {"namespace": "default"}
    event = {"metadata": {"name": "e"}, "involvedObject": involved, "firstTimestamp": f"2026-01-01T00:00:00.{text}Z"}
    yield f"{PLACE}/events", event
    yield f"{PLACE}/sidecarmappings", {"metadata": {"name": "s"}, "spec": {f"10.0.0.1:{text}": []}}


@pytest.mark.parametrize("text", [LONG, "9" * 20, "²", "٣", "-0", "+1"], ids=len)
def test_numbers_of_odd_length_or_script_are_answered(client: Client, text: str):
    answers = [(path, client.request("POST", f"{path}?dryRun=All", obj)) for path, obj in bodies(text)]
    meta = {"name": "a", "resourceVersion": text}
    precondition = {"preconditions": {"resourceVersion": text}}
    merge = {"Content-Type": "application/merge-patch+json"}
    answers += [
        ("PUT", client.request("PUT", f"{PLACE}/configmaps/a", {"metadata": meta})),
        ("PATCH", client.request("PATCH", f"{PLACE}/configmaps/a", {"metadata": meta}, merge)),
        ("DELETE", client.request("DELETE", f"{PLACE}/configmaps/a", precondition)),
    ]
    for argument in ("resourceVersion", "limit", "continue", "timeoutSeconds", "gracePeriodSeconds", "labelSelector"):
        for method, name in (("GET", ""), ("GET", "/a"), ("DELETE", "/none")):
            path = f"{PLACE}/configmaps{name}?{argument}={quote(text)[:4000]}"
            answers.append((path, client.request(method, path)))
    for path, answer in answers:
        assert answer.code < 500, (path, answer.body)
        assert answer.code < 400 or not refusal_faults(answer.code, answer.json), (path, answer.body)


@pytest.mark.parametrize("text", [LONG, "²", "-1", "01"], ids=len)
def test_an_index_of_a_json_patch_that_is_none_is_told(client: Client, text: str):
    patch = [{"op": "remove", "path": f"/spec/containers/{text}"}]
    answer = client.request("PATCH", f"{PLACE}/pods/p", patch, {"Content-Type": "application/json-patch+json"})
    assert (answer.code, answer.json["reason"]) == (422, "Invalid")
    assert f"/spec/containers/{text}" in answer.json["message"]


@pytest.mark.parametrize("media", ["application/json", "application/yaml"])
@pytest.mark.parametrize("number", [LONG, "1e400", "-" + "9" * 30, "0x" + "f" * 40, ".inf"], ids=len)
def test_numbers_too_large_for_their_field_are_refused(client: Client, media: str, number: str):
    body = json.dumps(pods()[1]).replace('"spec": {', f'"spec": {{"terminationGracePeriodSeconds": {number}, ')
    answer = client.request("POST", f"{PLACE}/pods?dryRun=All", body.encode(), {"Content-Type": media})
    assert answer.code in {400, 422}, answer.body
    assert not refusal_faults(answer.code, answer.json)

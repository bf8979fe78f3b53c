"""Protobuf bodies, put together here by hand, become the JSON kubectl meant."""

from __future__ import annotations

import pytest

from minik8s_modules.api import kinds
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.kinds import Kind
from minik8s_modules.apiserver.protobuf.decode import decode


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def text(number: int, value: str | bytes) -> bytes:
    """A length-delimited field."""
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def number(field: int, value: int) -> bytes:
    """A varint field."""
    return _varint(field << 3) + _varint(value)


def body(version: str, kind: str, raw: bytes) -> bytes:
    """A whole request body."""
    return b"k8s\x00" + text(1, text(1, version) + text(2, kind)) + text(2, raw) + text(3, "") + text(4, "")


META = text(1, text(1, "x") + text(3, "") + text(8, b""))


def test_a_config_map():
    data = text(2, text(1, "a") + text(2, "b"))
    assert decode(body("v1", "ConfigMap", META + data)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x"},
        "data": {"a": "b"},
    }


def test_a_webhook_configuration():
    """controller-runtime sends kinds of client-go so: cert-manager's cainjector writes what a webhook is trusted by."""
    hook = text(1, "h.example.com") + text(2, text(2, b"PEM")) + text(4, "Fail") + number(7, 5)
    found = decode(body("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", META + text(2, hook)))
    assert found["webhooks"] == [
        {"name": "h.example.com", "clientConfig": {"caBundle": "UEVN"}, "failurePolicy": "Fail", "timeoutSeconds": 5}
    ]


@pytest.mark.parametrize(
    "kind",
    [one for one in vars(kinds).values() if isinstance(one, Kind) and one.definition.startswith("io.k8s.api.")],
    ids=str,
)
def test_every_kind_of_client_go_is_known(kind: Kind):
    assert decode(body(kind.api_version, kind.kind, META))["metadata"] == {"name": "x"}


def test_no_time_at_all_is_none():
    never = number(1, -62135596800) + number(2, 0)
    assert (
        "creationTimestamp" not in decode(body("v1", "ConfigMap", text(1, text(1, "x") + text(8, never))))["metadata"]
    )
    found = decode(body("events.k8s.io/v1", "Event", META + text(2, never)))
    assert found.get("eventTime") is None


def test_a_runtime_class():
    overhead = text(3, text(1, text(1, "cpu") + text(2, text(1, "250m"))))
    scheduling = text(4, text(1, text(1, "disk") + text(2, "ssd")) + text(2, text(1, "k") + text(2, "Exists")))
    found = decode(body("node.k8s.io/v1", "RuntimeClass", META + text(2, "runsc") + overhead + scheduling))
    assert found["handler"] == "runsc"
    assert found["overhead"] == {"podFixed": {"cpu": "250m"}}
    assert found["scheduling"] == {
        "nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "k", "operator": "Exists"}]
    }  # fmt: skip


def test_secret_values_become_base64():
    found = decode(body("v1", "Secret", META + text(2, text(1, "k") + text(2, b"\x00\xff")) + text(3, "Opaque")))
    assert found["data"] == {"k": "AP8="}
    assert found["type"] == "Opaque"


def test_a_pointer_to_zero_stays_and_a_plain_zero_goes():
    spec = number(1, 0) + number(5, 0)  # replicas is a pointer, minReadySeconds is not
    assert decode(body("apps/v1", "Deployment", META + text(2, spec)))["spec"] == {"replicas": 0}


def test_inlined_structs_quantities_and_int_or_string():
    volume = text(1, "v") + text(2, text(2, b""))  # name, inlined source: emptyDir {}
    limits = text(1, text(1, "memory") + text(2, text(1, "1Gi")))
    probe = text(1, text(2, text(2, number(1, 1) + text(3, "http"))))  # handler.httpGet.port = "http"
    container = text(1, "c") + text(8, limits) + text(10, probe)
    spec = text(1, volume) + text(2, container) + number(4, 0)
    found = decode(body("v1", "Pod", META + text(2, spec)))["spec"]
    assert found["volumes"] == [{"name": "v", "emptyDir": {}}]
    assert found["containers"][0]["resources"] == {"limits": {"memory": "1Gi"}}
    assert found["containers"][0]["livenessProbe"]["httpGet"]["port"] == "http"
    assert found["terminationGracePeriodSeconds"] == 0


def test_negative_numbers_and_times():
    event = META + text(6, number(1, 1_767_225_600)) + number(8, -5)
    found = decode(body("v1", "Event", event))
    assert (found["firstTimestamp"], found["count"]) == ("2026-01-01T00:00:00Z", -5)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"k8s",
        b"k8s\x00",
        b"k8s\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"k8s\x00\x0a\x7f",
        b"k8s\x00\x0b",
        body("v1", "Unicorn", b""),
        body("v1", "ConfigMap", b"\x0a\x05abc"),
        body("v1", "ConfigMap", number(1, 5)),
        body("v1", "Pod", META + text(2, text(4, "soon"))),
        body("v1", "ConfigMap", text(1, text(1, b"\xff\xfe"))),
    ],
)
def test_what_is_no_protobuf_is_a_bad_request(data: bytes):
    with pytest.raises(BadRequest):
        decode(data)

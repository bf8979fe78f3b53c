"""Which form an Accept header asks for."""

from __future__ import annotations

import pytest

from minik8s_modules.api.errors import BadRequest, NotAcceptable
from minik8s_modules.apiserver.http.negotiation import discovery_version, form

KUBECTL_GET = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)


@pytest.mark.parametrize(
    ("accept", "name"),
    [
        ("", "object"),
        ("*/*", "object"),
        ("application/json", "object"),
        ("application/json;stream=watch", "object"),
        ("application/vnd.kubernetes.protobuf,application/json", "object"),
        (KUBECTL_GET, "table"),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", "object"),
        ("application/json; as=PartialObjectMetadataList; v=v1; g=meta.k8s.io", "metadata"),
    ],
)
def test_forms(accept: str, name: str):
    assert form(accept).name == name


@pytest.mark.parametrize("accept", ["text/html", "application/vnd.kubernetes.protobuf", "application/json;as=Chart"])
def test_what_is_not_served_is_not_acceptable(accept: str):
    with pytest.raises(NotAcceptable):
        form(accept)


def test_what_is_only_created_has_no_table():
    assert form(KUBECTL_GET, tables=False).name == "object"
    with pytest.raises(NotAcceptable):
        form("application/json;as=Table;v=v1;g=meta.k8s.io", tables=False)


def test_an_unknown_include_policy_is_refused():
    assert form(KUBECTL_GET, "None").include == "None"
    with pytest.raises(BadRequest):
        form(KUBECTL_GET, "Some")


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        ("application/json", ""),
        ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", "v2"),
        ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json", "v2beta1"),
        ("application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json", ""),
    ],
)
def test_aggregated_discovery(accept: str, version: str):
    assert discovery_version(accept) == version

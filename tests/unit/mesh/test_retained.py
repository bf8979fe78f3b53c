"""Clusters that are decided on no more: where they lead as Pods come and go."""

from __future__ import annotations

import pytest

from minik8s_modules.mesh.mapping import Declared
from minik8s_modules.mesh.messages import endpoints_in, message_of
from minik8s_modules.mesh.retained import Services, Weights, kept_resource
from tests.unit.mesh.namespaces import IPS, declared


def case(pods: str) -> Services:
    """Return a namespace with Services reviews, of these Pods, and ratings, of Pod c."""
    services = [{"name": "reviews", "ports": [80]}, {"name": "ratings", "ports": [80]}]
    of = {"reviews": [*pods], "ratings": ["c"]}
    return Services([declared({"services": services, "pods": of, "subsets": {"v1": ["a"]}})])


def at(**weights: int) -> dict[tuple[str, int], int]:
    return {(IPS[pod], 8080): weight for pod, weight in weights.items()}


@pytest.mark.parametrize(
    ("name", "pods", "kept", "found"),
    [
        ("reviews.shop:80", "ab", at(a=3, b=1), at(a=3, b=1)),
        ("reviews.shop:80", "ab", at(a=3), at(a=3)),
        ("reviews.shop:80", "b", at(a=3, b=2), at(b=2)),
        ("reviews.shop:80", "b", at(a=3), at(b=1)),
        ("reviews.shop:80", "", at(a=3), {}),
        ("reviews.shop:80", "ab", at(c=1), at(a=1, b=1)),  # its address is that of another Service's Pod by now
        ("100.0.0.1:80", "b", at(a=3, b=2), at(b=2)),
        ("100.0.0.9:80", "b", at(a=3, b=2), {}),
        ("reviews.shop:80/*", "ab", at(a=1), at(a=1, b=1)),
        ("reviews.shop:80/v1", "ab", at(b=1), at(a=1)),
        ("reviews.shop:80/v1", "b", at(a=1), {}),
        ("reviews.shop:80/gone", "ab", at(a=1), {}),
        ("gone.shop:80", "ab", at(a=1), {}),
        ("reviews.elsewhere:80", "ab", at(a=1), {}),
        ("reviews.shop:81", "ab", at(a=1), {}),
    ],
)
def test_a_cluster_that_is_kept_leads_to_pods_of_its_service_that_are_there(
    name: str, pods: str, kept: Weights, found: Weights
):
    weights = case(pods).weights(name, kept)
    assert weights == found
    assert endpoints_in(message_of(kept_resource(name, weights))) == found


def test_services_of_one_name_in_several_namespaces_are_told_apart_and_need_no_address():
    shop, elsewhere = (declared({"services": [{"name": "web", "ports": [80]}], "pods": {"web": [pod]}}) for pod in "ab")
    for each in (*elsewhere.services, *elsewhere.slices):
        each["metadata"]["namespace"] = "elsewhere"
    elsewhere.services[0]["spec"] |= {"clusterIP": "None", "sessionAffinity": "ClientIP"}
    of_all = Declared([*shop.services, *elsewhere.services], [*shop.slices, *elsewhere.slices])
    for found in (Services([of_all]), Services([shop, elsewhere])):
        assert found.weights("web.shop:80", {}) == at(a=1)
        assert found.weights("web.elsewhere:80", {}) == at(b=1)

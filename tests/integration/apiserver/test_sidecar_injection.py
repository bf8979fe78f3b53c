"""Sidecars by label: of a Pod or its Namespace, as ``minik8s inject`` makes them; who can have none hears why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.kinds import POD
from minik8s_modules.api.pods.mutual_tls import MTLS, can_speak
from minik8s_modules.api.pods.sidecars import INJECT, SIDECAR
from minik8s_modules.cli.main import main
from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.apiserver import Answer, ApiServerProcess, own_server

ENABLED, DISABLED = {INJECT: "enabled"}, {INJECT: "disabled"}


@pytest.fixture(scope="module")
def meshed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    with own_server(tmp_path_factory.mktemp("mesh"), mesh=True) as made:
        yield made


@pytest.fixture
def shop(meshed: ApiServerProcess, request: pytest.FixtureRequest) -> Namespace:
    """A namespace that asks for sidecars."""
    name = f"shop-{abs(hash(request.node.name)) % 10**8}"
    made = {"metadata": {"name": name, "labels": ENABLED}}
    assert meshed.request("POST", "/api/v1/namespaces", made).code == 201
    return Namespace(meshed, name)


def create(space: Namespace, name: str, labels: dict[str, str] | None = None, query: str = "", **spec: Any) -> Answer:
    body = pod(name, **spec)
    body["metadata"]["labels"] = labels or {}
    return space.server.request("POST", space.path("pods") + query, body)


def inits(answer: Answer) -> list[str]:
    assert answer.code == 201, answer.body
    return [each["name"] for each in answer.json["spec"].get("initContainers") or []]


def test_the_namespaces_label_counts_and_the_pods_own_goes_before(shop: Namespace):
    assert inits(create(shop, "a")) == ["envoy"]
    assert inits(create(shop, "b", DISABLED)) == []
    assert inits(create(shop, "c", initContainers=[{"name": "first", "image": "x"}])) == ["envoy", "first"]
    assert (
        shop.server.request(
            "PATCH",
            f"/api/v1/namespaces/{shop.name}",
            {"metadata": {"labels": DISABLED}},
            headers={"Content-Type": "application/merge-patch+json"},
        ).code
        == 200
    )
    shop.server.wait_for(shop.path("pods", "a"))
    assert inits(create(shop, "d")) == []
    assert inits(create(shop, "e", ENABLED)) == ["envoy"]


def test_the_sidecar_has_defaults_and_the_accounts_token_and_is_not_added_twice(shop: Namespace):
    made = create(shop, "a").json
    (sidecar,) = made["spec"]["initContainers"]
    assert sidecar["securityContext"] == SIDECAR["securityContext"]
    assert sidecar["imagePullPolicy"] == "IfNotPresent"
    assert sidecar["startupProbe"]["timeoutSeconds"] == 1
    assert [each["mountPath"] for each in sidecar["volumeMounts"]] == ["/var/run/secrets/kubernetes.io/serviceaccount"]
    again = {"metadata": {"name": "again", "labels": ENABLED}, "spec": {**made["spec"]}}
    assert inits(shop.server.request("POST", shop.path("pods"), again)) == ["envoy"]


def test_a_dry_run_shows_it_and_stores_nothing(shop: Namespace):
    assert inits(create(shop, "a", query="?dryRun=All")) == ["envoy"]
    assert shop.get("a", "pods").code == 404


def test_the_strictest_pod_security_accepts_it(shop: Namespace):
    level = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    merge = {"Content-Type": "application/merge-patch+json"}
    assert shop.server.request("PATCH", f"/api/v1/namespaces/{shop.name}", level, headers=merge).code == 200
    own = {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert inits(create(shop, "a", containers=[{"name": "c", "image": "x", "securityContext": own}])) == ["envoy"]


OBSTACLES = [
    ({"hostNetwork": True}, "hostNetwork"),
    ({"automountServiceAccountToken": False}, "no token"),
    ({"securityContext": {"runAsUser": 1337}}, "runs as user 1337"),
    ({"initContainers": [{"name": "envoy", "image": "x"}]}, "is called envoy"),
]


@pytest.mark.parametrize(("spec", "why"), OBSTACLES)
def test_who_asks_and_can_have_none_is_refused_and_who_only_lives_there_is_let_in(
    shop: Namespace, spec: dict[str, Any], why: str
):
    refused = create(shop, "asks", ENABLED, **spec)
    assert refused.code == 403, refused.body
    assert why in refused.json["message"]
    let_in = create(shop, "lives", **spec)
    assert let_in.code == 201
    assert "minik8s/envoy" not in json.dumps(let_in.json["spec"])
    assert "gets no sidecar" in let_in.headers["warning"]
    assert why in let_in.headers["warning"]


def test_an_account_that_gives_no_token_is_an_obstacle(shop: Namespace):
    account = {"metadata": {"name": "quiet"}, "automountServiceAccountToken": False}
    assert shop.server.request("POST", shop.path("serviceaccounts"), account).code == 201
    refused = create(shop, "a", ENABLED, serviceAccountName="quiet")
    assert (refused.code, "its service account quiet gives Pods no token" in refused.json["message"]) == (403, True)


def test_a_value_that_is_none_is_refused_also_in_templates(shop: Namespace):
    assert "supported values" in create(shop, "a", {INJECT: "yes"}).json["message"]
    wrong = {"metadata": {"name": f"{shop.name}-x", "labels": {INJECT: "true"}}}
    assert shop.server.request("POST", "/api/v1/namespaces", wrong).code == 422
    template = {
        "metadata": {"labels": {"app": "a", INJECT: "on"}},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    path = f"/apis/apps/v1/namespaces/{shop.name}/deployments"
    refused = shop.server.request("POST", path, {"metadata": {"name": "a"}, "spec": spec})
    assert (refused.code, "spec.template.metadata.labels" in refused.json["message"]) == (422, True)


def test_a_cluster_without_a_mesh_adds_nothing_and_says_so(namespace: Namespace):
    answer = create(namespace, "a", ENABLED)
    assert inits(answer) == []
    assert "this cluster has no mesh (minik8s_mesh)" in answer.headers["warning"]


def test_inject_makes_the_same(shop: Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "pod.yml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": POD.kind, **pod("a")}), encoding="utf-8")
    assert main(["inject", "-f", str(file)]) == 0
    written = yaml.safe_load(capsys.readouterr().out)
    by_hand = shop.server.request("POST", shop.path("pods"), written)
    by_label = create(shop, "b")
    assert inits(by_hand) == inits(by_label) == ["envoy"]
    both = [each.json["spec"]["initContainers"][0] for each in (by_hand, by_label)]
    for each in both:
        del each["volumeMounts"]  # the volume's name is random
    assert both[0] == both[1]


def test_a_namespace_with_mutual_tls_gets_sidecars_that_can_and_who_has_none_hears_of_it(shop: Namespace):
    headers = {"Content-Type": "application/merge-patch+json"}

    def label(**labels: str | None) -> int:
        body = {"metadata": {"labels": {MTLS: labels["mode"]}}}
        return shop.server.request("PATCH", f"/api/v1/namespaces/{shop.name}", body, headers=headers).code

    in_vain = create(shop, "early", {MTLS: "strict"})
    assert "Namespace does not have it" in in_vain.headers["warning"]
    assert label(mode="odd") == 422
    assert label(mode="disabled") == 422
    assert label(mode="strict") == 200
    made = create(shop, "can")
    assert can_speak(made.json["spec"])
    assert "warning" not in made.headers
    for name, labels in (("disabled", {MTLS: "disabled"}), ("stranger", DISABLED)):
        assert not can_speak(create(shop, name, labels).json["spec"])
    by_hand = create(shop, "by-hand", initContainers=[SIDECAR])
    assert "takes connections of anybody" in by_hand.headers["warning"]
    assert create(shop, "odd", {MTLS: "odd"}).code == 422

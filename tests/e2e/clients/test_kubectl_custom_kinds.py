"""kubectl 1.32 on kinds of a user's own: what people type on operators' objects, every day."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.apiserver import ApiServerProcess

PORT = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "number": {"type": "integer", "description": "Where it listens."}},
}
PORTS = {"type": "array", "items": PORT, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
SPEC = {
    "type": "object",
    "required": ["image"],
    "description": "What is wished for.",
    "properties": {
        "image": {"type": "string"},
        "replicas": {"type": "integer", "default": 1},
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "ports": PORTS,
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    },
    "x-kubernetes-validations": [{"rule": "self.replicas < 10", "message": "ten are too many"}],
}
STATUS = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
VERSION = {
    "name": "v1",
    "served": True,
    "storage": True,
    "subresources": {
        "status": {},
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
    },
    "selectableFields": [{"jsonPath": ".spec.colour"}],
    "additionalPrinterColumns": [
        {"name": "Image", "type": "string", "jsonPath": ".spec.image"},
        {"name": "Ports", "type": "string", "jsonPath": ".spec.ports[*].name", "priority": 1},
    ],
    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}},
}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "shops.example.org"},
    "spec": {
        "group": "example.org",
        "scope": "Namespaced",
        "names": {"plural": "shops", "singular": "shop", "kind": "Shop", "shortNames": ["sh"], "categories": ["all"]},
        "versions": [VERSION],
    },
}
Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def defined(server: ApiServerProcess) -> Iterator[None]:
    """The kind; kubectl waits for it from before it is there."""
    argv = ("wait", "--for=create", "crd/shops.example.org", "--timeout=30s")
    waits = subprocess.Popen(server.kubectl_argv(*argv), stdout=subprocess.PIPE, text=True)
    server.kubectl("create", "-f", "-", stdin=json.dumps(DEFINITION))
    result, _ = waits.communicate(timeout=60)
    assert "condition met" in result
    server.kubectl("wait", "--for=condition=Established", "crd/shops.example.org", "--timeout=30s")
    yield
    server.kubectl("delete", "crd", "shops.example.org")
    server.kubectl("wait", "--for=delete", "crd/shops.example.org", "--timeout=30s")


@pytest.fixture
def kubectl(server: ApiServerProcess, namespace: str, defined: None) -> Kubectl:
    """Runs kubectl in a namespace of the test's own; returns what it prints, or its error with ``fails``."""

    def run(*arguments: str, stdin: Any = None, fails: bool = False) -> str:
        text = stdin if isinstance(stdin, str) else json.dumps(stdin)
        done = server.kubectl("-n", namespace, *arguments, stdin=text, check=not fails)
        assert bool(done.returncode) is fails, (arguments, done.stdout, done.stderr)
        return done.stderr if fails else done.stdout

    return run


def shop(name: str = "a", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "example.org/v1", "kind": "Shop", "metadata": metadata, "spec": {"image": "x", **spec}}


def port(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "number": number}


def test_they_are_found_and_explained(kubectl: Kubectl):
    listed = kubectl("api-resources", "--api-group=example.org", "--no-headers").split()
    assert listed == ["shops", "sh", "example.org/v1", "true", "Shop"]
    done = kubectl("explain", "sh")
    assert "KIND:       Shop" in done
    assert "What is wished for." in done
    assert "Where it listens." in kubectl("explain", "shop.spec.ports.number")
    tree = kubectl("explain", "shop.spec", "--recursive")
    assert "  image\t<string> -required-" in tree
    assert "  ports\t<[]Object>" in tree
    assert "enum: red, blue" in tree
    assert "exist" in kubectl("explain", "shop.spec.nothing", fails=True)


def test_they_are_shown_as_asked(kubectl: Kubectl):
    for name, number in (("b", 2), ("a", 1)):
        kubectl("create", "-f", "-", stdin=shop(name, {"n": name}, ports=[port("web", number)], colour="red"))
    columns = "custom-columns=NAME:.metadata.name,PORT:.spec.ports[0].number,NONE:.spec.none"
    assert kubectl("get", "shops", "-o", columns).split() == [
        "NAME",
        "PORT",
        "NONE",
        "a",
        "1",
        "<none>",
        "b",
        "2",
        "<none>",
    ]
    assert kubectl("get", "sh", "-o", "name", "--sort-by={.spec.ports[0].number}") == "\n".join(
        ["shop.example.org/a", "shop.example.org/b", ""]
    )
    assert kubectl("get", "shops.v1.example.org", "-o", "jsonpath={.items[*].spec.ports[?(@.name=='web')].number}") == (
        "1 2"
    )
    assert kubectl("get", "sh", "-l", "n=b", "-o", "name").split() == ["shop.example.org/b"]
    assert kubectl("get", "sh", "--field-selector=spec.colour=blue", "-o", "name") == ""
    assert kubectl("get", "sh", "--field-selector=spec.colour=red,metadata.name=a", "-o", "name").split() == [
        "shop.example.org/a"
    ]
    assert kubectl("get", "sh", "-o", "wide").split()[:7] == ["NAME", "IMAGE", "PORTS", "a", "x", "web", "b"]
    assert kubectl("get", "all", "-o", "name").split() == ["shop.example.org/a", "shop.example.org/b"]
    assert kubectl("get", "sh", "-L", "n", "--show-kind", "--no-headers").split() == (
        ["shop.example.org/a", "x", "a", "shop.example.org/b", "x", "b"]
    )
    assert "Colour:" in kubectl("describe", "shop", "a")


def test_apply_on_the_client_and_diff(kubectl: Kubectl):
    kubectl("apply", "-f", "-", stdin=shop(ports=[port("web", 1), port("other", 2)], colour="red"))
    changed = shop(ports=[port("web", 3)])
    assert kubectl("diff", "-f", "-", stdin=changed, fails=True) == ""
    assert kubectl("apply", "-f", "-", stdin=changed) == "shop.example.org/a configured\n"
    spec = json.loads(kubectl("get", "shop", "a", "-o", "json"))["spec"]
    assert spec == {"image": "x", "replicas": 1, "ports": [port("web", 3)]}
    assert kubectl("apply", "-f", "-", stdin=changed) == "shop.example.org/a unchanged\n"


def test_apply_on_the_server_merges_lists_by_their_keys(kubectl: Kubectl):
    def apply(manager: str, wished: dict[str, Any], *options: str, fails: bool = False) -> str:
        command = ("apply", "--server-side", f"--field-manager={manager}", *options, "-f", "-")
        return kubectl(*command, stdin=wished, fails=fails)

    def spec() -> Any:
        return json.loads(kubectl("get", "shop", "a", "-o", "json"))["spec"]

    assert apply("one", shop(ports=[port("web", 1)], tags=["x"])) == "shop.example.org/a serverside-applied\n"
    apply("two", shop(ports=[port("more", 2)], tags=["y"]))
    assert spec()["ports"] == [port("web", 1), port("more", 2)]
    assert spec()["tags"] == ["x", "y"]
    result = apply("two", shop(ports=[port("more", 2), port("web", 9)]), fails=True)
    assert 'conflict with "one"' in result
    assert '.spec.ports[name="web"].number' in result
    apply("two", shop(ports=[port("more", 2), port("web", 9)]), "--force-conflicts")
    apply("one", shop(ports=[]))
    assert sorted(one["name"] for one in spec()["ports"]) == ["more", "web"]
    assert not spec().get("tags")


def test_changes_of_every_kind(kubectl: Kubectl):
    kubectl("create", "-f", "-", stdin=shop())
    kubectl("patch", "shop", "a", "--type=merge", "-p", '{"spec":{"colour":"blue"}}')
    operations = [{"op": "test", "path": "/spec/colour", "value": "blue"}, {"op": "remove", "path": "/spec/colour"}]
    kubectl("patch", "shop", "a", "--type=json", "-p", json.dumps(operations))
    done = kubectl("patch", "shop", "a", "-p", '{"spec":{"colour":"red"}}', fails=True)
    assert "application/strategic-merge-patch+json is not supported by example.org/v1, Kind=Shop" in done
    kubectl("scale", "shop/a", "--replicas=3")
    assert "ten are too many" in kubectl("scale", "shop/a", "--replicas=10", fails=True)
    kubectl("label", "shop", "a", "x=y")
    kubectl("annotate", "shop", "a", "note=here")
    kubectl("patch", "shop", "a", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Open"}}')
    kubectl("wait", "--for=jsonpath={.status.phase}=Open", "shop/a", "--timeout=30s")
    kept = json.loads(kubectl("get", "shop", "a", "-o", "json"))
    assert kept["metadata"]["generation"] == 4
    assert kept["spec"]["replicas"] == 3
    kept["spec"]["replicas"] = 4
    kubectl("replace", "-f", "-", stdin=kept)
    conflict = kubectl("replace", "-f", "-", stdin=kept, fails=True)
    assert "the object has been modified" in conflict
    kubectl("delete", "shop", "a", "--timeout=30s")
    assert "NotFound" in kubectl("get", "shop", "a", fails=True)


def test_what_is_wrong_is_told(kubectl: Kubectl):
    done = kubectl("create", "-f", "-", stdin=shop(color="red"), fails=True)
    assert 'unknown field "spec.color"' in done
    assert "created" in kubectl("create", "--validate=warn", "-f", "-", stdin=shop(color="red"))
    done = kubectl("create", "-f", "-", stdin=shop("b", colour="green"), fails=True)
    assert 'spec.colour: Unsupported value: "green": supported values: "red", "blue"' in done
    assert "created (server dry run)" in kubectl("create", "--dry-run=server", "-f", "-", stdin=shop("c"))
    assert kubectl("auth", "can-i", "delete", "shops.example.org").strip() == "yes"

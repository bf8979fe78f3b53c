"""A machine with the nine Pods of upstream's matrix, its sections, and policies for them."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api.network.network_policies import parse_policy, pod_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.network.policies import PolicyBook
from tests.integration.services.machines import Machine
from tests.support.policies import SPACES, pods

EVERYBODY = pods()
ADDRESSES = {f"{pod['metadata']['namespace']}-{pod['metadata']['name']}": pod["status"]["podIP"] for pod in EVERYBODY}
PORTS = (8080, 9090)
FILTER: Any = {"table": "minik8s_policies", "bridge": "mk8s-br0", "driver": "bridge"}


class Policed(Machine):
    """A machine with the nine Pods."""

    digest = ""

    def policies(self, policies: list[JsonObject], **options: Any) -> JsonObject:
        """Converge on these policies, which must succeed."""
        return self.converge(entries=entries(policies), **options)

    def converge(self, **options: Any) -> JsonObject:
        """Run a pass of the section, which must succeed."""
        result = self.pass_(section="policies", **options)
        assert result["errors"] == {}, result
        self.digest = result["digest"]
        return result

    def reached(self, protocol: str = "TCP") -> dict[tuple[str, str, int], bool]:
        """Return from which Pod which one is reached at which port."""
        asked = {"pods": [*ADDRESSES], "targets": ADDRESSES, "ports": PORTS, "protocol": protocol}
        answers = self.call("matrix", **asked)
        ways = ((*each.split(" "), answer) for each, answer in answers.items())
        return {(source, target, int(port)): answer == target for source, target, port, answer in ways}

    def rules(self) -> str:
        """Return the table, "" for none."""
        return "\n".join(self.lines("sh", "-c", "nft list table ip minik8s_policies 2>/dev/null || true"))


def entries(policies: list[JsonObject], everybody: list[JsonObject] = EVERYBODY) -> JsonObject:
    """Return the section of a node that has all nine Pods."""
    book = PolicyBook()
    for name, labels in SPACES.items():
        book.put_namespace(name, labels)
    for pod in everybody:
        found = pod_of(pod, pod["status"]["podIP"])
        assert found is not None
        book.put_pod(found.key, found)
    for policy in policies:
        parsed = parse_policy(policy)
        book.put_policy(parsed.key, parsed)
    return dict(book.entries("n1", FILTER))


def policy(space: str, name: str = "policy", select: JsonObject | None = None, **spec: Any) -> JsonObject:
    """Return a policy; its types are those it has rules for unless they are given."""
    types = [way for way in ("Ingress", "Egress") if way.lower() in spec]
    body = {"podSelector": select or {}, "policyTypes": types, **spec}
    return {"metadata": {"namespace": space, "name": name}, "spec": body}


def labelled(**labels: str) -> JsonObject:
    """Return a selector."""
    return {"matchLabels": labels}


A, X_A = labelled(pod="a"), {"namespaceSelector": labelled(ns="x"), "podSelector": labelled(pod="a")}
NAMED = [{"ports": [{"protocol": "TCP", "port": "serve-81"}]}]

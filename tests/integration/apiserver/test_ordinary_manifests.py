"""The manifests that the how-to shows are taken as Kubernetes takes them."""

from __future__ import annotations

import json
from pathlib import Path

from minik8s_modules.api.network.balancing import Balancing
from minik8s_modules.api.network.load_balancers import decide_addresses
from minik8s_modules.api.network.surroundings import Machine, World
from tests.integration.apiserver.conftest import Namespace

PAGE = Path(__file__).parents[3] / "docs/how-to/manifests.md"


def shown() -> str:
    """Return the page's YAML."""
    return PAGE.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]


def kubectl(namespace: Namespace, *arguments: str, stdin: str = "") -> str:
    return namespace.server.kubectl("-n", namespace.name, *arguments, stdin=stdin).stdout


def test_the_page_applies_twice_and_another_port_would_get_an_address(namespace: Namespace):
    made = kubectl(namespace, "apply", "-f", "-", stdin=shown()).splitlines()
    assert [line.split()[-1] for line in made] == ["created"] * 3
    again = kubectl(namespace, "apply", "-f", "-", stdin=shown()).splitlines()
    assert [line.split()[-1] for line in again] == ["unchanged"] * 3
    row = kubectl(namespace, "get", "service", "guestbook", "--no-headers").split()
    assert row[1:4:2] == ["LoadBalancer", "<pending>"]
    service = json.loads(kubectl(namespace, "get", "service", "guestbook", "-o", "json"))
    assert service["status"] == {"loadBalancer": {}}
    assert 30000 <= service["spec"]["ports"][0]["nodePort"] <= 32767
    world = World((Machine("node1", "192.0.2.2", ready=True, silent=False),), frozenset())
    balancing = Balancing("nodes", kept_ports=frozenset({80, 443}))  # as the installation says it
    given = decide_addresses([service], world, lambda _: frozenset(), balancing)[f"{namespace.name}/guestbook"]
    assert (given.reason, given.addresses) == ("PortKept", [])
    service["spec"]["ports"][0]["port"] = 8080
    given = decide_addresses([service], world, lambda _: frozenset(), balancing)[f"{namespace.name}/guestbook"]
    assert given.addresses == ["192.0.2.2"]
    controller = json.loads(kubectl(namespace, "get", "rc", "guestbook", "-o", "json"))
    assert controller["spec"]["selector"] == {"app": "guestbook"}
    assert kubectl(namespace, "get", "ingressclass", "nginx", "--no-headers").split()[1] == "minik8s.io/ingress"


def test_an_account_of_a_binding_is_of_its_namespace(namespace: Namespace):
    kubectl(namespace, "create", "serviceaccount", "robot")
    kubectl(namespace, "create", "role", "reader", "--resource=pods", "--verb=get")
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "reader"},
        "roleRef": role,
        "subjects": [{"kind": "ServiceAccount", "name": "robot"}],
    }
    kubectl(namespace, "create", "-f", "-", stdin=json.dumps(binding))
    robot = f"--as=system:serviceaccount:{namespace.name}:robot"
    assert kubectl(namespace, "auth", "can-i", "get", "pods", robot) == "yes\n"
    elsewhere = namespace.server.kubectl("auth", "can-i", "get", "pods", "-n", "default", robot, check=False)
    assert elsewhere.stdout.startswith("no")

r"""A node's lists and watches show the objects it has rights to, whatever its selector's text looks like.

The attack: a field selector with an escaped comma, ``metadata.name!=x\,metadata.name=mounted``. Whoever splits the text
at commas reads a request for the one Secret ``mounted``, which the node may have; whoever honours the backslash reads
"every Secret that is not called ``x,metadata.name=mounted``", and answers with all of them. Pods of other nodes came
the same way, by ``spec.nodeName``.
"""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.api_watch import ApiWatch
from tests.support.apiserver import Answer
from tests.support.pki import Certificate

MINE = ["mounted"]
# a text that seems to ask for one name, and is about all others; ``{0}`` is the field, ``{1}`` the value the node holds
DISGUISES = (
    r"{0}!=x\,{0}={1}",
    r"{0}!=x\,{0}=={1}",
    r"{0}!=x\,{0}\={1}",
    r"{0}!=\\\,{0}={1}",
    "{0}!=x,{0}!={1}x",
    "{0}!=={1}",
    "{0}!={1}",
    " {0}={1}",
    "{0}= {1}",
    "{0}={1}\\",
)


class Node:
    """A node with one pod that mounts the Secret ``mounted``; ``foreign`` Secret and pod belong to another node."""

    def __init__(self, namespace: Namespace) -> None:
        self.server, self.path = namespace.server, namespace.path
        self.name, self.stranger = f"n1-{namespace.name}", f"n2-{namespace.name}"
        self.certificate: Certificate = self.server.identity(f"system:node:{self.name}", "system:nodes")
        for name, node in (("mounted", self.name), ("foreign", self.stranger)):
            self.server.request("POST", self.path("secrets"), {"metadata": {"name": name}})
            volumes = [{"name": "s", "secret": {"secretName": name}}]
            made = self.server.request("POST", self.path("pods"), pod(name, nodeName=node, volumes=volumes))
            assert made.code == 201, made.body

    def get(self, path: str, selector: str) -> Answer:
        """List as the node."""
        return self.server.request("GET", f"{path}?fieldSelector={quote(selector)}", client=self.certificate)


@pytest.fixture
def node(namespace: Namespace) -> Node:
    return Node(namespace)


def shown(answer: Answer) -> list[str]:
    """The names an answer shows, [] of a refusal."""
    return [each["metadata"]["name"] for each in answer.json.get("items", [])]


@pytest.mark.parametrize("disguise", DISGUISES)
def test_secrets_that_its_pods_do_not_mount_stay_hidden(node: Node, disguise: str):
    answer = node.get(node.path("secrets"), disguise.format("metadata.name", "mounted"))
    assert (answer.code in {400, 403}, shown(answer)) == (True, []), answer.body


@pytest.mark.parametrize("disguise", DISGUISES)
def test_pods_of_other_nodes_stay_hidden(node: Node, disguise: str):
    selector = disguise.format("spec.nodeName", node.name)
    for path in ("/api/v1/pods", node.path("pods")):
        answer = node.get(path, selector)
        assert (answer.code in {400, 403}, shown(answer)) == (True, []), answer.body


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_watch_is_told_no_more_than_a_list(node: Node, disguise: str):
    for plural, selector in (
        ("secrets", disguise.format("metadata.name", "mounted")),
        ("pods", disguise.format("spec.nodeName", node.name)),
    ):
        query = f"?watch=1&timeoutSeconds=1&fieldSelector={quote(selector)}"
        answer = node.server.request("GET", node.path(plural) + query, client=node.certificate)
        assert answer.code in {400, 403}, answer.body


def test_requirements_that_contradict_each_other_select_nothing(node: Node):
    both = node.get(node.path("secrets"), "metadata.name=mounted,metadata.name=foreign")
    assert (both.code, shown(both)) == (200, [])
    turned = node.get(node.path("secrets"), "metadata.name=foreign,metadata.name=mounted")
    assert shown(turned) == []
    pods = node.get("/api/v1/pods", f"spec.nodeName={node.stranger},spec.nodeName={node.name}")
    assert (pods.code, shown(pods)) == (200, [])


def test_the_same_secret_in_another_namespace_is_another_secret(node: Node):
    assert node.get("/api/v1/secrets", "metadata.name=mounted").code == 403
    assert node.get("/api/v1/namespaces/default/secrets", "metadata.name=mounted").code == 403


def test_what_is_its_own_is_shown_however_it_is_written(node: Node):
    for selector in ("metadata.name=mounted", "metadata.name==mounted", ",metadata.name=mounted,type!=x"):
        assert shown(node.get(node.path("secrets"), selector)) == MINE
    for selector in (f"spec.nodeName={node.name}", f"status.phase!=x,spec.nodeName=={node.name}"):
        assert shown(node.get("/api/v1/pods", selector)) == MINE
    with_name = f"{node.path('secrets')}?fieldSelector=metadata.name=mounted"
    watch = ApiWatch(node.server, with_name, client=node.certificate)
    assert watch.names(1) == [("ADDED", "mounted")]
    watch.close()

r"""Who may watch one object by its name sees that object and no other, whatever selector he adds.

The attack: ``…/secrets/mounted?watch=1&fieldSelector=metadata.name!=x\`` by somebody whose role names ``mounted``. The
name in the path was put behind the selector as text, ``metadata.name!=x\,metadata.name=mounted``: the backslash took
the comma away, and what was left was a watch of every Secret.
"""

from __future__ import annotations

import itertools
from urllib.parse import quote

import pytest

from tests.integration.apiserver.conftest import Namespace
from tests.support.api_watch import ApiWatch
from tests.support.apiserver import Answer
from tests.support.pki import Certificate

ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces"
SELECTORS = (
    "metadata.name!=x\\",
    "metadata.name!=x\\\\",
    "metadata.name!=x,",
    "metadata.name!=mounted",
    "metadata.name=foreign",
    "metadata.name!=x\\,",
    "metadata.name=mounted",
    "type!=x",
    "",
)
EXCLUDING = frozenset({"metadata.name!=mounted", "metadata.name=foreign"})
_users = itertools.count()


@pytest.fixture
def reader(namespace: Namespace) -> Certificate:
    """A user who may get, list, watch and deletecollection the Secret ``mounted`` by its name."""
    name = f"reader-{next(_users)}"
    for secret in ("mounted", "foreign"):
        assert namespace.server.request("POST", namespace.path("secrets"), {"metadata": {"name": secret}}).code == 201
    rule = {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": ["mounted"],
        "verbs": ["get", "list", "watch", "deletecollection"],
    }
    base = f"{ROLES}/{namespace.name}"
    role = {"metadata": {"name": name}, "rules": [rule]}
    binding = {
        "metadata": {"name": name},
        "subjects": [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "Role", "name": name, "apiGroup": "rbac.authorization.k8s.io"},
    }
    assert namespace.server.request("POST", f"{base}/roles", role).code == 201
    assert namespace.server.request("POST", f"{base}/rolebindings", binding).code == 201
    return namespace.server.identity(name)


def watched_names(namespace: Namespace, path: str, client: Certificate) -> tuple[int, set[str]]:
    """Open a watch, change both Secrets; return the status and the names in what came."""
    watch = ApiWatch(namespace.server, path, client=client)
    if watch.response.status != 200:
        watch.close()
        return watch.response.status, set()
    for secret in ("foreign", "mounted"):
        headers = {"Content-Type": "application/merge-patch+json"}
        patch = {"metadata": {"annotations": {"turn": path}}}
        namespace.server.request("PATCH", namespace.path("secrets", secret), patch, headers=headers)
    seen: set[str] = set()
    while line := watch.response.readline():  # until timeoutSeconds
        seen.add(line.decode())
    watch.close()
    return 200, {name for name in ("mounted", "foreign") if any(f'"name":"{name}"' in each for each in seen)}


@pytest.mark.parametrize("selector", SELECTORS)
def test_a_name_in_the_path_is_a_requirement_of_its_own(namespace: Namespace, reader: Certificate, selector: str):
    query = f"?timeoutSeconds=1&fieldSelector={quote(selector)}"
    code, seen = watched_names(namespace, namespace.path("secrets", "mounted") + query, reader)
    assert code in {200, 400}
    assert "foreign" not in seen
    assert code == 400 or ("mounted" in seen) == (selector not in EXCLUDING)


def _list(namespace: Namespace, client: Certificate, selector: str) -> Answer:
    return namespace.server.request(
        "GET", f"{namespace.path('secrets')}?fieldSelector={quote(selector)}", client=client
    )


def test_a_selected_name_is_as_good_as_one_in_the_path(namespace: Namespace, reader: Certificate):
    code, seen = watched_names(
        namespace, f"{namespace.path('secrets')}?timeoutSeconds=1&fieldSelector=metadata.name=mounted", reader
    )
    assert (code, seen) == (200, {"mounted"})
    named = _list(namespace, reader, "metadata.name=mounted,type!=x")
    assert [each["metadata"]["name"] for each in named.json["items"]] == ["mounted"]
    both = _list(namespace, reader, "metadata.name=mounted,metadata.name=foreign")
    assert both.json["items"] == []


@pytest.mark.parametrize(
    "selector",
    ["", "metadata.name=foreign", "metadata.name!=mounted", "type!=x", r"metadata.name!=x\,metadata.name=mounted"],
)
def test_without_that_name_there_is_nothing(namespace: Namespace, reader: Certificate, selector: str):
    assert _list(namespace, reader, selector).code in {400, 403}


def test_a_selected_name_deletes_nothing(namespace: Namespace, reader: Certificate):
    """As in Kubernetes: a rule's names do not restrict deletecollection, so it gives no right to it."""
    for selector in ("metadata.name=mounted", r"metadata.name!=x\,metadata.name=mounted", ""):
        path = f"{namespace.path('secrets')}?fieldSelector={quote(selector)}"
        assert namespace.server.request("DELETE", path, client=reader).code in {400, 403}


def test_watches_that_differ_in_a_backslash_share_no_stream(namespace: Namespace, reader: Certificate):
    """The administrator's watch of all is in the same hub as the reader's watch of one."""
    path = namespace.path("secrets")
    others = quote(r"metadata.name!=x\,metadata.name\=mounted")
    everything = ApiWatch(namespace.server, f"{path}?fieldSelector={others}")
    assert {name for _, name in everything.names(2)} == {"mounted", "foreign"}
    query = f"?timeoutSeconds=1&fieldSelector={quote('metadata.name!=x,metadata.name=mounted')}"
    assert watched_names(namespace, path + query, reader) == (200, {"mounted"})
    everything.close()

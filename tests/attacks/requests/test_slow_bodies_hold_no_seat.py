"""A request takes a seat when all of it is there, so slowness costs nobody but the slow.

The attack: 17 requests that everybody may send (SelfSubjectAccessReviews), whose bodies do not come. They held all the
seats that writes have, and other people's writes were told 429.
"""

from __future__ import annotations

import json

import pytest

from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import ApiServerProcess
from tests.support.load.raw_clients import Crowd, read_answer

SLOW = 60
PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
BODY = json.dumps({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}).encode()
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
SENT = {
    "with a length": (f"Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY[:10], BODY[10:]),
    "in chunks": (
        b"Transfer-Encoding: chunked\r\n\r\na\r\n" + BODY[:10] + b"\r\n",
        b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY) - 10, BODY[10:]),
    ),
}


@pytest.mark.parametrize("how", SENT)
def test_others_write_while_bodies_do_not_come(server: ApiServerProcess, namespace: Namespace, how: str):
    server.kubectl(
        "create", "rolebinding", "writer", "--clusterrole=edit", "--user=writer", f"--namespace={namespace.name}"
    )
    writer, nobody = server.identity("writer"), server.identity("nobody")
    begun, rest = SENT[how]
    with Crowd(server, nobody) as crowd:
        crowd.speaking(SLOW, HEAD.encode() + begun)
        for number in range(10):
            body = {"metadata": {"name": f"w-{number}"}}
            answer = server.request("POST", namespace.path("configmaps"), body, client=writer)
            assert answer.code == 201, answer.body
        assert crowd.still_open() == SLOW, "the writes waited until the server had given the slow ones up"
        for sock in crowd.socks:
            sock.sendall(rest)
        answers = [read_answer(sock) for sock in crowd.socks]
        assert {code for code, _, _ in answers} <= {201, 429}
        assert answers[0][0] == 201, answers[0]
        assert json.loads(answers[0][2])["status"]["allowed"] is False

"""gRPC through a real Envoy that enforces AuthorizationPolicies: unary calls and streams, by rules of paths.

Client and server are gRPC's own. A caller's sidecar is played by a relay that speaks the mesh's TLS.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import grpc
import pytest

from minik8s_modules.api.objects import JsonObject
from tests.support.authorization import policy
from tests.support.guarded import GRPC, Pod, guarded
from tests.support.waiting import until

CLIENT, OTHER, NOBODY = "shop/client", "shop/other", ""
PATIENCE_S, LARGE = 60.0, 3 << 20
SERVER = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import grpc
def fetched(asked, context):
    if asked == b"absent":
        context.abort(grpc.StatusCode.NOT_FOUND, "there is none")
    return asked + b" from shop"
def listed(asked, context):
    yield from (asked + b" %d" % number for number in range(3))
def chatted(asked, context):
    yield from (b"you said " + each for each in asked)
handlers = {
    "Get": grpc.unary_unary_rpc_method_handler(fetched),
    "List": grpc.unary_stream_rpc_method_handler(listed),
    "Chat": grpc.stream_stream_rpc_method_handler(chatted),
}
server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", -1)])
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop.Catalog", handlers),))
assert server.add_insecure_port("0.0.0.0:" + sys.argv[1])
server.start()
server.wait_for_termination()
"""


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    with guarded(tmp_path_factory.mktemp("guarded")) as made:
        server = subprocess.Popen([*made.inside, sys.executable, "-c", SERVER, str(GRPC)])
        try:
            until(lambda: f":{GRPC} " in subprocess.check_output([*made.inside, "ss", "-Hltn"], text=True), PATIENCE_S)
            yield made
        finally:
            server.kill()
            server.wait()


@contextmanager
def called(pod: Pod, caller: str) -> Iterator[grpc.Channel]:
    """Yield a channel of a caller's, through a relay that has its certificate."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_relay, args=(listener, pod, caller), daemon=True).start()
        options = [("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(f"127.0.0.1:{listener.getsockname()[1]}", options) as channel:
            yield channel


def _relay(listener: socket.socket, pod: Pod, caller: str) -> None:
    with suppress(OSError):
        while True:
            near, _ = listener.accept()
            threading.Thread(target=_both_ways, args=(near, pod, caller), daemon=True).start()


def _both_ways(near: socket.socket, pod: Pod, caller: str) -> None:
    with near, suppress(OSError), pod.connected(caller, GRPC) as far:
        far.settimeout(None)
        back = threading.Thread(target=_pass_on, args=(far, near), daemon=True)
        back.start()
        _pass_on(near, far)
        back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def allowing(*methods: str, action: str = "ALLOW", account: str = "client") -> JsonObject:
    """Return a policy of methods of the service."""
    source = {"from": [{"source": {"principals": [f"cluster.local/ns/shop/sa/{account}"]}}]}
    operation = {"operation": {"paths": [f"/shop.Catalog/{each}" for each in methods], "methods": ["POST"]}}
    return policy(f"{action}-{account}".lower(), {**source, "to": [operation]}, action=action)


def get(channel: grpc.Channel, asked: bytes = b"shoes") -> bytes:
    found: bytes = channel.unary_unary("/shop.Catalog/Get")(asked, timeout=PATIENCE_S)
    return found


def listed(channel: grpc.Channel) -> list[bytes]:
    return [*channel.unary_stream("/shop.Catalog/List")(b"shoes", timeout=PATIENCE_S)]


def refusal(call: object, *words: object) -> grpc.StatusCode:
    """Return the code with which a call fails."""
    with pytest.raises(grpc.RpcError) as failed:
        call(*words)  # type: ignore[operator]
    code: grpc.StatusCode = failed.value.code()
    return code


def test_a_caller_may_make_the_calls_that_rules_name_and_no_others(pod: Pod):
    with pod.enforcing(allowing("Get", "Chat")), called(pod, CLIENT) as channel:
        assert get(channel) == b"shoes from shop"
        assert refusal(listed, channel) == grpc.StatusCode.PERMISSION_DENIED
        assert get(channel, b"x" * LARGE) == b"x" * LARGE + b" from shop"  # the connection goes on after a refusal
        assert refusal(get, channel, b"absent") == grpc.StatusCode.NOT_FOUND  # the server's own words
        told = channel.stream_stream("/shop.Catalog/Chat")(iter([b"one", b"two"]), timeout=PATIENCE_S)
        assert [*told] == [b"you said one", b"you said two"]
        with ThreadPoolExecutor(16) as pool:  # streams of one connection, some of which are refused
            answers = [pool.submit(get, channel) for _ in range(100)]
            refused = [pool.submit(refusal, listed, channel) for _ in range(100)]
        assert {each.result() for each in answers} == {b"shoes from shop"}
        assert {each.result() for each in refused} == {grpc.StatusCode.PERMISSION_DENIED}


@pytest.mark.parametrize("caller", [OTHER, NOBODY])
def test_who_is_not_named_may_make_none(pod: Pod, caller: str):
    with pod.enforcing(allowing("Get")), called(pod, caller) as channel:
        assert refusal(get, channel) == grpc.StatusCode.PERMISSION_DENIED


def test_a_stream_is_told_while_it_goes_on(pod: Pod):
    asked = threading.Semaphore(0)

    def slowly() -> Iterator[bytes]:
        for each in (b"one", b"two"):
            yield each
            assert asked.acquire(timeout=PATIENCE_S)  # the next comes once the first is answered

    with pod.enforcing(allowing("Chat")), called(pod, CLIENT) as channel:
        for number, answer in enumerate(channel.stream_stream("/shop.Catalog/Chat")(slowly(), timeout=PATIENCE_S)):
            assert answer == (b"you said one", b"you said two")[number]
            asked.release()


def test_a_rule_that_denies_a_service_s_calls_leaves_the_others(pod: Pod):
    with pod.enforcing(allowing("Li*", action="DENY")), called(pod, CLIENT) as channel:
        assert get(channel) == b"shoes from shop"
        assert refusal(listed, channel) == grpc.StatusCode.PERMISSION_DENIED
    with pod.enforcing(allowing("Li*", action="DENY")), called(pod, OTHER) as channel:
        assert listed(channel) == [b"shoes 0", b"shoes 1", b"shoes 2"]

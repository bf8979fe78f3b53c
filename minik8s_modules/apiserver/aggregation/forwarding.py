"""From an authorized request to the extension that answers it: the connection goes over, the thread to another."""

from __future__ import annotations

import io
import socket
from collections.abc import Callable
from typing import Any

from flask import Request, Response

from minik8s_modules.api.access.api_services import Remote
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.apiserver.aggregation import heads
from minik8s_modules.apiserver.aggregation.directory import Directory
from minik8s_modules.apiserver.aggregation.exchanges import Body, Exchange, Outcome
from minik8s_modules.apiserver.aggregation.extensions import Extensions
from minik8s_modules.apiserver.aggregation.keeping import Keeping
from minik8s_modules.apiserver.aggregation.offers import Offer
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.apiserver.http import bodies
from minik8s_modules.apiserver.intake.limits import Holder
from minik8s_modules.apiserver.nodes import proxying
from minik8s_modules.apiserver.nodes.tunnels import Tunnels
from minik8s_modules.apiserver.reads.watchers import take_socket

_BODIES, _BODILESS = frozenset({"POST", "PUT", "PATCH"}), frozenset({"GET", "HEAD"})


class Aggregation:
    """What is needed to pass requests on."""

    def __init__(self, directory: Directory, keeping: Keeping, extensions: Extensions, tunnels: Tunnels) -> None:
        self.directory, self._keeping, self._extensions, self._tunnels = directory, keeping, extensions, tunnels

    def offers(self) -> list[Offer]:
        """Return what others offer, as it was last heard."""
        return self._keeping.offers() if self.directory.remotes else []

    def answer(
        self, remote: Remote, request: Request, user: User, holder: Holder, audit_id: str, *, endless: bool
    ) -> Response:
        """Return the answer to a request that somebody else answers; ``endless``: which may take any time.

        Raises:
            ServiceUnavailable: the APIService is not available.
            TooManyRequests: too many requests are under way.
            BadRequest: it has a body that belongs to no such request.
        """
        self._extensions.admit(remote)
        body = bodies.read(request)
        request.environ.pop(bodies.BODY, None)  # nobody here knows what is secret in it, so the audit log has it not
        request.environ["wsgi.input"] = io.BytesIO()  # the body is held, and charged, once
        if body and request.method in _BODILESS:
            raise BadRequest(f"extension API servers get no body with {request.method}")
        self._tunnels.admit(holder, len(body))
        headers = {**dict(request.headers), "Audit-Id": audit_id}
        length = len(body) if body or request.method in _BODIES else None
        head = heads.request(headers, user, remote, holder.address, length)
        target = heads.target(request.path, request.args.items(multi=True))
        version = str(request.environ["SERVER_PROTOCOL"]).removeprefix("HTTP/")
        upgrade = proxying.is_upgrade(headers)
        charged = len(body)
        held = Body(body, lambda: self._tunnels.charge(holder, -charged))
        outcome = Outcome(lambda code: carried.on_end(code))  # noqa: PLW0108 - made below, and told to whom later still
        exchange = Exchange(remote, request.method, target, head, held, outcome, version, endless, upgrade)
        carried = Carried(self._tunnels, holder, lambda client: self._extensions.carry(exchange, client), charged)
        return carried


class Carried(Response):
    """The answer of an extension; ``told`` is called with its code, 0 for none, in the thread of extensions."""

    def __init__(self, tunnels: Tunnels, holder: Holder, carry: Callable[[socket.socket], None], charged: int) -> None:
        super().__init__()
        self._tunnels, self._holder, self._carry, self._charged = tunnels, holder, carry, charged
        self.on_end: Callable[[int], None] = lambda _: None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:  # noqa: ARG002 - WSGI
        """Hand over; StopIteration is how the server is told that there is nothing left to answer."""
        try:
            self._hand_over(environ)
        except Exception:
            self.on_end(0)
            raise
        raise StopIteration

    def _hand_over(self, environ: dict[str, Any]) -> None:
        client, ahead = take_socket(environ)
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._tunnels.join(client, ours, self._holder, ahead)
        self._tunnels.charge(self._holder, self._charged)  # until it is sent
        self._carry(theirs)

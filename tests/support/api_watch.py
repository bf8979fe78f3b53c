"""A watch on a real API server, read line by line over its own connection."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

from tests.support.apiserver import ApiServerProcess
from tests.support.pki import Certificate


class ApiWatch:
    """An open watch of ``client``, else of the administrator; ``next`` returns (type, object)."""

    def __init__(
        self,
        server: ApiServerProcess,
        path: str,
        headers: dict[str, str] | None = None,
        *,
        client: Certificate | None = None,
    ) -> None:
        self._connection = server.connection(client, timeout_s=10.0)
        joiner = "&" if "?" in path else "?"
        began = time.monotonic()
        self._connection.request("GET", f"{path}{joiner}watch=true", headers=headers or {})
        self.response: http.client.HTTPResponse = self._connection.getresponse()
        self.head_s = time.monotonic() - began

    def next(self) -> tuple[str, Any]:
        """Return the next event; raises TimeoutError when none comes within 10 s."""
        line = self.response.readline()
        if not line:
            raise EOFError("the watch has ended")
        event = json.loads(line)
        return event["type"], event["object"]

    def names(self, count: int) -> list[tuple[str, str]]:
        """Return type and name of the next ``count`` events."""
        found = [self.next() for _ in range(count)]
        return [(kind, obj["metadata"]["name"]) for kind, obj in found]

    def ended(self) -> bool:
        """Wait for the end and return whether it was a clean one."""
        return self.response.readline() == b""

    def close(self) -> None:
        """Close the connection."""
        self.response.close()
        self._connection.close()

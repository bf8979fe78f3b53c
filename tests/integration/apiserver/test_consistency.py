"""Many writers, many watchers that come late and leave early: everybody ends with the same objects."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from typing import Any
from urllib.parse import quote

from tests.integration.apiserver.conftest import Namespace
from tests.support.api_watch import ApiWatch

WRITERS, WATCHERS, NAMES, OPERATIONS = 6, 6, 12, 60


def _write(namespace: Namespace, seed: int) -> None:
    dice = random.Random(seed)
    connection = namespace.server.connection()
    for number in range(OPERATIONS):
        name = f"c{dice.randrange(NAMES)}"
        path, method = namespace.path("configmaps", name), dice.choice(["POST", "PATCH", "PATCH", "DELETE"])
        body: object = {"data": {"writer": f"{seed}-{number}"}, "metadata": {"labels": {"odd": str(number % 2)}}}
        if method == "POST":
            path, body = namespace.path("configmaps"), {"metadata": {"name": name}}
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if method == "DELETE" else json.dumps(body)
        assert _ask(connection, method, path, data, media) in {200, 201, 404, 409}
    connection.close()


def _ask(connection: http.client.HTTPSConnection, method: str, path: str, data: str | None, media: str) -> int:
    connection.request(method, path, data, {"Content-Type": media})
    response = connection.getresponse()
    response.read()
    return response.status


class Follower:
    """Keeps a copy by list and watch, and starts a new watch from its last revision now and then."""

    def __init__(self, namespace: Namespace, query: str, seed: int) -> None:
        self.copy: dict[str, str] = {}
        self.problems: list[str] = []
        self._namespace = namespace
        self._query = query
        self._dice = random.Random(seed)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        """Wait until the object called ``last`` has been seen."""
        self._thread.join(timeout=30)
        assert not self._thread.is_alive(), "the last object was not seen"

    def _run(self) -> None:
        time.sleep(self._dice.random() / 2)
        path = self._namespace.path("configmaps") + self._query
        listed = self._namespace.server.request("GET", path).json
        self.copy = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed["items"]}
        revision = int(listed["metadata"]["resourceVersion"])
        while "last" not in self.copy:
            watch = ApiWatch(self._namespace.server, f"{path}resourceVersion={revision}")
            for _ in range(self._dice.randrange(5, 40)):
                revision = self._apply(*watch.next(), revision)
                if "last" in self.copy:
                    break
            watch.close()

    def _apply(self, kind: str, obj: dict[str, Any], revision: int) -> int:
        name, seen = obj["metadata"]["name"], int(obj["metadata"]["resourceVersion"])
        if seen <= revision:
            self.problems.append(f"{kind} {name} at {seen} after {revision}")
        if (kind == "ADDED") == (name in self.copy):
            self.problems.append(f"{kind} {name} at {seen} with the copy {sorted(self.copy)}")
        if kind == "DELETED":
            self.copy.pop(name, None)
        else:
            self.copy[name] = obj["metadata"]["resourceVersion"]
        return seen


def test_every_watcher_ends_with_what_a_list_shows(namespace: Namespace):
    queries = ["?", f"?labelSelector={quote('odd!=1')}&"]
    followers = [Follower(namespace, queries[number % 2], number) for number in range(WATCHERS)]
    writers = [threading.Thread(target=_write, args=(namespace, seed)) for seed in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert namespace.create("last").code == 201
    for number, follower in enumerate(followers):
        follower.join()
        assert follower.problems == []
        query = queries[number % 2]
        listed = namespace.server.request("GET", namespace.path("configmaps") + query).json["items"]
        assert follower.copy == {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed}

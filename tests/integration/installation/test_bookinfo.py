"""The four services of examples/bookinfo.yml answer as their namesakes, each a script that busybox's nc runs."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.etcd import free_port
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[3]
OBJECTS = list(yaml.safe_load_all((ROOT / "examples/bookinfo.yml").read_text()))


class Shop:
    """The Deployments, each on a port of this machine; ``reviews`` leads to the version that was named last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (script,) = (each["data"]["answer"] for each in OBJECTS if each["kind"] == "ConfigMap")
        assert "http://$1:9080" in script
        (folder / "answer").write_text(script.replace("http://$1:9080", f'http://127.0.0.1:$(cat "{folder}/$1")'))
        self.ports: dict[str, int] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, deployment: dict[str, Any]) -> None:
        """Run one."""
        name = deployment["metadata"]["name"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        port = self.ports[name] = free_port()
        replaced = {"9080": str(port), "/bookinfo/answer": str(self._folder / "answer")}
        words = [replaced.get(word, word) for word in container["command"]]
        told = {each["name"]: each["value"] for each in container["env"]}
        environment = {"PATH": os.environ["PATH"], **told, "HOSTNAME": f"{name}-x"}
        self._running[name] = subprocess.Popen(["busybox", *words], env=environment)
        until(lambda: get(port, "/health")[0] == 200)
        self.leads(name)

    def leads(self, name: str) -> None:
        """Have a Service lead to a version."""
        (self._folder / name.partition("-")[0]).write_text(str(self.ports[name]))

    def stop(self, name: str) -> None:
        """End one."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def close(self) -> None:
        """End all."""
        for name in [*self._running]:
            self.stop(name)


def get(port: int, path: str) -> tuple[int, str]:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path, headers={"end-user": "jason"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    for each in OBJECTS:
        if each["kind"] == "Deployment":
            made.start(each)
    yield made
    made.close()


def stars(shop: Shop) -> list[Any]:
    code, body = get(shop.ports["productpage-v1"], "/api/v1/products/0/reviews")
    assert code == 200
    return [each.get("rating") for each in json.loads(body)["reviews"]]


def test_a_page_is_made_of_details_and_reviews_and_these_of_ratings(shop: Shop):
    page = shop.ports["productpage-v1"]
    assert stars(shop) == [{"stars": 5, "color": "red"}, {"stars": 4, "color": "red"}]
    shop.leads("reviews-v2")
    assert stars(shop) == [{"stars": 5, "color": "black"}, {"stars": 4, "color": "black"}]
    code, body = get(page, "/productpage?u=test")
    assert code == 200
    assert "William Shakespeare" in body
    assert '"color": "black"' in body
    shop.stop("ratings-v1")
    assert stars(shop) == [{"stars": None, "color": "black"}] * 2
    shop.leads("reviews-v1")
    assert stars(shop) == [None, None]
    shop.stop("details-v1")
    assert json.loads(get(page, "/api/v1/products/0")[1]) == {"error": "details is not available"}
    assert get(page, "/reviews/0")[0] == 404

"""Custom metrics: paths become PromQL in which nothing of the question is code, samples become MetricValueLists."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest

from minik8s_modules.api.errors import BadRequest, NotFound
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.monitoring.adapter.adapter import Adapter
from minik8s_modules.monitoring.adapter.answers import Sample, resources, values
from minik8s_modules.monitoring.adapter.prometheus import Prometheus, PrometheusUnavailable
from minik8s_modules.monitoring.adapter.questions import asked, expression
from minik8s_modules.runtime.informers import Informers

VECTOR = {"resultType": "vector", "result": [{"metric": {"pod": "a"}, "value": [60.5, "42"]}]}
ASKED: list[dict[str, list[str]]] = []


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers as Prometheus 2.42 does: names of metrics to a GET, a vector to a form."""

    def do_GET(self) -> None:
        ASKED.append(parse_qs(urlsplit(self.path).query))
        self._send({"status": "success", "data": ["hits_total", "queue_length"]})

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        ASKED.append(parse_qs(form))
        self._send({"status": "success", "data": VECTOR})

    def _send(self, body: Any) -> None:
        data = orjson.dumps(body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def answering() -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    ASKED.clear()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_prometheus_is_asked_for_values_and_for_names(answering: http.server.ThreadingHTTPServer):
    prometheus = Prometheus(f"http://127.0.0.1:{answering.server_port}/")
    assert prometheus.query("sum(x)") == [Sample({"pod": "a"}, 60.5, 42.0)]
    assert prometheus.names('{pod!=""}') == ["hits_total", "queue_length"]
    assert ASKED == [
        {"query": ["sum(x)"], "timeout": ["10s"]},
        {"match[]": ['{pod!=""}']},
    ]


def test_the_api_is_there_while_prometheus_is_not(answering: http.server.ThreadingHTTPServer):
    path = "/apis/custom.metrics.k8s.io/v1beta2"
    result = Adapter(Informers(FakeApi()), Prometheus(f"http://127.0.0.1:{answering.server_port}")).answer(path)
    assert [each["name"] for each in result["resources"]] == ["pods/hits", "pods/queue_length"]
    without = Adapter(Informers(FakeApi()), Prometheus("http://127.0.0.1:9"))
    assert without.answer(path)["resources"] == []
    with pytest.raises(PrometheusUnavailable):
        without.answer(f"{path}/namespaces/shop/services/web/hits")


def ask(path: str, selector: str = "", of_series: str = ""):
    return asked(path.split("/"), selector, of_series)


def test_pods_are_asked_for_by_name():
    question = ask("namespaces/shop/pods/*/queue_length", "app=a", "queue=jobs,shard in (1,2),!old")
    inside = '{namespace="shop",pod=~"a|b\\\\.c",queue=~"jobs",shard=~"1|2",old=""}'
    assert expression(question, ["a", "b.c"]) == (
        f"sum by (pod) (queue_length{inside}) or sum by (pod) (rate(queue_length_total{inside}[120s]))"
    )


def test_an_object_is_named_by_its_label_and_a_namespace_by_its_own():
    assert expression(ask("namespaces/shop/services/web/hits"), ["web"]).startswith(
        'sum by (service) (hits{namespace="shop",service=~"web"})'
    )
    assert expression(ask("namespaces/shop/metrics/hits"), ["shop"]).startswith('sum (hits{namespace="shop"})')
    assert expression(ask("nodes/n1/heat"), ["n1"]).startswith('sum by (node) (heat{node=~"n1"})')


@pytest.mark.parametrize("metric", ["up}) or vector(1", "a b", "", "1a", "a-b"])
def test_what_is_no_metrics_name_is_refused(metric: str):
    with pytest.raises(BadRequest):
        asked(["namespaces", "shop", "pods", "*", metric], "", "")


@pytest.mark.parametrize("name", ['"', "\\", ".*", "a|b", "\n", '"}) or vector(1) #'])
def test_a_name_in_the_path_is_text(name: str):
    made = expression(asked(["namespaces", name, "services", name, "hits"], "", ""), [name])
    outside = made.replace("\\\\", "").replace('\\"', "")
    assert outside.count('"') == 8  # two matchers, twice, each with its two quotes
    assert "\n" not in made


@pytest.mark.parametrize("selector", ["a.b/c=x", "a>1"])
def test_series_are_selected_by_labels_that_prometheus_has(selector: str):
    with pytest.raises(BadRequest):
        expression(ask("namespaces/shop/pods/*/hits", "", selector), ["a"])


@pytest.mark.parametrize("path", ["", "namespaces/shop", "namespaces/shop/widgets.io/w/hits", "a/b/c/d/e/f"])
def test_other_paths_are_not_there(path: str):
    with pytest.raises(NotFound):
        ask(path)


def test_samples_are_told_in_both_versions():
    question = ask("namespaces/shop/pods/*/hits")
    samples = [Sample({"pod": "a"}, 60.5, 1.2345), Sample({"pod": "b"}, 60.0, float("inf"))]
    (item,) = values("v1beta2", question, samples)["items"]
    assert item["describedObject"] == {"kind": "Pod", "namespace": "shop", "name": "a", "apiVersion": "v1"}
    assert (item["metric"], item["value"], item["timestamp"]) == ({"name": "hits"}, "1234m", "1970-01-01T00:01:00Z")
    assert values("v1beta1", question, samples)["items"][0]["metricName"] == "hits"
    assert resources("v1beta2", ["hits"])["resources"][0]["name"] == "pods/hits"

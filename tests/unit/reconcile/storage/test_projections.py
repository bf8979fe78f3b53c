"""Texts that files and variables of pods hold, as kubelet writes them."""

from __future__ import annotations

import pytest

from minik8s_modules.reconcile.feeds.references import Reference, references
from minik8s_modules.reconcile.storage.projections import lines, quoted, token_needs
from minik8s_modules.reconcile.values.environment import environment, service_variables
from minik8s_modules.reconcile.values.values import TokenNeed
from tests.unit.reconcile.worlds import SETTINGS, inputs, pod


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("plain", '"plain"'),
        ('a"b\\c', r'"a\"b\\c"'),
        ("\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        ("\0\x1b\x7f", r'"\x00\x1b\x7f"'),
        ("größe 漢", '"größe 漢"'),
        ("\u200b\U000e0001", r'"\u200b\U000e0001"'),
    ],
)
def test_values_are_quoted_as_go_quotes_them(text: str, wanted: str):
    assert quoted(text) == wanted


def test_labels_are_lines_in_order():
    assert lines({"b": "2", "a": "1"}) == 'a="1"\nb="2"'
    assert lines({}) == ""


def test_programs_find_the_api_server_where_the_installation_says():
    found = service_variables("192.0.2.1:6443")
    assert found["KUBERNETES_SERVICE_HOST"] == "192.0.2.1"
    assert found["KUBERNETES_SERVICE_PORT_HTTPS"] == "6443"
    assert found["KUBERNETES_PORT_6443_TCP"] == "tcp://192.0.2.1:6443"
    assert service_variables("") == {}


def test_what_a_pod_says_itself_goes_before_the_services_variables():
    container = {
        "name": "app",
        "image": "i",
        "env": [
            {"name": "KUBERNETES_SERVICE_HOST", "value": "mine"},
            {"name": "URL", "value": "https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)"},
        ],
    }
    asked = inputs({})._replace(settings=SETTINGS._replace(api_address="192.0.2.1:6443"))
    plain = dict(environment(pod({"containers": [container]}), container, asked).plain)
    assert plain["KUBERNETES_SERVICE_HOST"] == "mine"
    assert plain["URL"] == "https://mine:6443"


def test_sources_of_projected_volumes_are_followed():
    sources = [
        {"configMap": {"name": "c"}},
        {"secret": {"name": "s"}},
        {"serviceAccountToken": {"path": "t", "audience": "vault"}},
    ]
    made = pod({"volumes": [{"name": "v", "projected": {"sources": sources}}]})
    assert references(made) == {Reference("ConfigMap", "default", "c"), Reference("Secret", "default", "s")}
    assert token_needs(made) == {TokenNeed("vault", 3600)}

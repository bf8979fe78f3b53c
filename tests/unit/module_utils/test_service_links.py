"""Variables that tell Services: their names, and that a container that is made anew keeps them."""

from __future__ import annotations

import pytest

from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.pods.service_links import is_link, with_links_of
from minik8s_modules.reconcile.pods.service_links import link_variables

WEB = {
    "metadata": {"name": "my-web", "namespace": "shop"},
    "spec": {
        "clusterIP": "100.0.0.7",
        "ports": [{"name": "http", "port": 80}, {"name": "dns-udp", "port": 53, "protocol": "UDP"}],
    },
}


def test_variables_are_kubelets():
    # as envvars_test.go has them
    assert link_variables([WEB]) == {
        "MY_WEB_SERVICE_HOST": "100.0.0.7",
        "MY_WEB_SERVICE_PORT": "80",
        "MY_WEB_SERVICE_PORT_HTTP": "80",
        "MY_WEB_SERVICE_PORT_DNS_UDP": "53",
        "MY_WEB_PORT": "tcp://100.0.0.7:80",
        "MY_WEB_PORT_80_TCP": "tcp://100.0.0.7:80",
        "MY_WEB_PORT_80_TCP_PROTO": "tcp",
        "MY_WEB_PORT_80_TCP_PORT": "80",
        "MY_WEB_PORT_80_TCP_ADDR": "100.0.0.7",
        "MY_WEB_PORT_53_UDP": "udp://100.0.0.7:53",
        "MY_WEB_PORT_53_UDP_PROTO": "udp",
        "MY_WEB_PORT_53_UDP_PORT": "53",
        "MY_WEB_PORT_53_UDP_ADDR": "100.0.0.7",
    }


def test_services_without_an_address_are_not_told():
    headless = {"metadata": {"name": "h", "namespace": "shop"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}}
    named = {"metadata": {"name": "e", "namespace": "shop"}, "spec": {"type": "ExternalName"}}
    assert link_variables([headless, named]) == {}


def test_every_variable_is_recognized_by_its_name():
    assert all(is_link(name) for name in link_variables([WEB]))


@pytest.mark.parametrize("name", ["PORT", "SERVICE_HOST", "PATH", "web_PORT", "WEB_PORTAL", "WEB_PORT_80", "_PORT"])
def test_other_variables_are_not_taken_for_links(name: str):
    assert not is_link(name)


def test_a_container_made_anew_keeps_the_links_of_the_one_before():
    entry = {"env": [["A", "b"]]}
    config = {"Labels": {labels.SERVICE_LINKS: "true"}, "Env": ["A=c", "WEB_PORT=tcp://100.0.0.7:80", "PATH=/bin"]}
    assert with_links_of(entry, config)["links"] == [["WEB_PORT", "tcp://100.0.0.7:80"]]
    assert with_links_of(entry, {**config, "Labels": {}}) == entry

"""Attack: an HTTPRoute with a text that Envoys refuse, with all that is told beside it, of other namespaces, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.mesh.gateways.meshing import Routes, decide_led
from minik8s_modules.mesh.gateways.rules import unsupported
from tests.unit.mesh.gateways.declared import route
from tests.unit.mesh.gateways.test_meshing import TO_WEB, objects_of, within


def modified(kind: str, modifier: JsonObject) -> JsonObject:
    return {"type": f"{kind}HeaderModifier", f"{kind.lower()}HeaderModifier": modifier}


def bad_filters() -> Iterator[tuple[JsonObject, str]]:
    """Yield filters, and what is said of them."""
    for kind in ("Request", "Response"):
        for name in ("", ":path", "a b", "a:", "a\n"):
            yield modified(kind, {"remove": [name]}), repr(name)
        for field in ("set", "add"):
            for header in ({"name": ":path", "value": "/"}, {"name": "", "value": "a"}):
                yield modified(kind, {field: [header]}), f"{header['name']!r} is not a valid header name"
            for value in ("a\nb", "\r", "\0", "\ud800"):
                yield modified(kind, {field: [{"name": "x", "value": value}]}), repr(value)
    for kind, at in (("URLRewrite", "urlRewrite"), ("RequestRedirect", "requestRedirect")):
        yield {"type": kind, at: {"hostname": "a\n"}}, r"'a\n'"
        for how, field in (("ReplaceFullPath", "replaceFullPath"), ("ReplacePrefixMatch", "replacePrefixMatch")):
            yield {"type": kind, at: {"path": {"type": how, field: "/\0"}}}, r"'/\x00'"


def bad_rules() -> Iterator[tuple[JsonObject, str]]:
    """Yield rules, and what is said of them."""
    for filtered, said in bad_filters():
        yield {**TO_WEB[0], "filters": [filtered]}, said
    header = modified("Request", {"add": [{"name": "x", "value": "\n"}]})
    yield {"backendRefs": [{"name": "web", "port": 80, "filters": [header]}]}, r"'\n'"
    for field in ("headers", "queryParams"):
        yield {**TO_WEB[0], "matches": [{field: [{"name": "x\n", "value": "a"}]}]}, r"'x\n'"
    yield {**TO_WEB[0], "matches": [{"path": {"type": "PathPrefix", "value": "/a?b"}}]}, "'/a?b'"


@pytest.mark.parametrize(("rule", "said"), [*bad_rules()])
def test_it_is_refused_by_name_and_told_to_nobody(rule: JsonObject, said: str):
    one = within(rules=[rule])
    why = unsupported(one)
    assert why is not None
    assert why[0] == "UnsupportedValue"
    assert said in why[1]
    for client in ("shop", "elsewhere"):
        assert decide_led(Routes([one]), client, [objects_of("shop")]) == []


def test_a_hostname_with_a_lines_end_is_refused():
    why = unsupported(route(hostnames=["a.example\n"]))
    assert why == ("UnsupportedValue", r"hostnames: 'a.example\n' has a control character, such as a line's end")
    assert unsupported(route(hostnames=["a.example"])) is None


def test_what_envoys_take_is_not_refused():
    headers: list[dict[str, Any]] = [{"name": "X-Say", "value": "100 %\tüé"}]
    filters = [
        modified("Request", {"set": headers, "add": headers, "remove": ["x-old", "_a!#$%&'*+.^`|~"]}),
        {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/a?b"}}},
    ]
    assert unsupported(route(rules=[{**TO_WEB[0], "filters": filters}])) is None

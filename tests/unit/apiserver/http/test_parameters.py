"""The query of a request for a resource."""

from __future__ import annotations

import pytest
from werkzeug.datastructures import ImmutableMultiDict
from werkzeug.exceptions import BadRequestKeyError
from werkzeug.test import EnvironBuilder

from minik8s_modules.apiserver.http.parameters import ResourceRequest
from minik8s_modules.apiserver.http.responses import raw


def request(query: str) -> ResourceRequest:
    return ResourceRequest(EnvironBuilder("/api/v1/pods", query_string=query).get_environ(), populate_request=False)


@pytest.mark.parametrize("query", ["", "a", "a=", "a=1", "a=1&a=2&b=%C3%A4+c", "b=x&limit=7"])
def test_parameters_read_as_werkzeug_reads_them(query: str):
    ours = request(query).args
    theirs = ImmutableMultiDict(ours.items(multi=True))
    for name in ("a", "b", "limit", "none"):
        assert ours.get(name) == theirs.get(name)
        assert ours.get(name, "else") == theirs.get(name, "else")
        assert ours.get(name, 3, int) == theirs.get(name, 3, int)
        assert ours.getlist(name) == theirs.getlist(name)


def test_what_is_not_there_costs_no_exception(monkeypatch: pytest.MonkeyPatch):
    def raised(*_: object) -> None:
        raise AssertionError("an exception was made for a parameter that is not there")

    requests = [request(query) for query in ("", "limit=1")]
    monkeypatch.setattr(BadRequestKeyError, "__init__", raised)
    assert [each.args.get("watch") for each in requests] == [None, None]


def test_the_parameters_of_a_request_without_any_cannot_be_changed():
    with pytest.raises(TypeError):
        request("").args["watch"] = "true"  # it is shared by all of them


def test_an_answer_tells_its_length_once():
    response = raw(b"{}", 201, ["careful"])
    assert response.status == "201 Created"
    assert list(response.headers) == [
        ("Content-Type", "application/json"),
        ("Content-Length", "2"),
        ("Cache-Control", "no-cache, private"),
        ("Warning", '299 - "careful"'),
    ]
    assert response.get_data() == b"{}"

"""Modules that stand for others until somebody asks for something in them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from minik8s_modules.base.seldom import is_daemon

USES = {
    "a function of a module": "import inspect; print(inspect.signature(lambda a: a))",
    "a function that is imported from a module": "from calendar import timegm; print(timegm((1970, 1, 2, 0, 0, 0)))",
    "a module that another one imports": "import subprocess as s; print(s.check_output(['echo', '1'], text=True))",
    "a name that is imported from it": "from inspect import signature; print(signature(lambda a: a))",
    "its class": "import calendar; print(calendar.Calendar(0).firstweekday)",
    "a package's function": "from importlib.metadata import version; print(version('orjson') > '')",
    "a package": "import importlib.metadata as found; print(found.distribution('orjson').metadata['Name'])",
    "a module of a package": "from importlib.metadata import _text; print(_text.FoldedCase('A') == 'a')",
    "a whole package": "from prometheus_client import CollectorRegistry as C, generate_latest as g; print(g(C()))",
    "modules of another package": "import html.parser, html.entities; print(html.parser.HTMLParser)",
    "modules as attributes": "import prometheus_client; print(prometheus_client.registry.CollectorRegistry)",
    "where it would come from": """
from importlib.util import find_spec
print([find_spec(each).origin for each in ("html", "inspect", "prometheus_client", "importlib.metadata")])""",
    "its names": "import html; print(dir(html))",
    "its file": "import inspect; print(inspect.__file__)",
    "two threads at once": """
import inspect, threading
found = []
ask = lambda: found.append(inspect.Signature)
threads = [threading.Thread(target=ask) for _ in range(8)]
[each.start() for each in threads]
[each.join() for each in threads]
import inspect as again
print(len(found), set(found) == {again.Signature})""",
}


LATER = "from minik8s_modules.base import seldom; seldom.come_later(); "


@pytest.mark.parametrize("use", sorted(USES))
def test_who_asks_for_something_has_what_the_module_itself_gives(use: str) -> None:
    told = [
        subprocess.run([sys.executable, "-c", first + USES[use]], capture_output=True, text=True, check=True).stdout
        for first in ("", LATER)
    ]
    assert told[0] == told[1] != ""


BELOW = {
    "flask.cli": "import flask.cli; print(issubclass(flask.cli.FlaskGroup, flask.cli.AppGroup))",
    "flask.templating": "import flask.templating; print(issubclass(int, flask.templating.Environment))",
    "google.protobuf.internal.python_message": """
import google.protobuf.internal.python_message
from google.protobuf.internal import python_message as found
print(google.protobuf.internal.python_message.GeneratedProtocolMessageType is found.GeneratedProtocolMessageType)""",
    "importlib.metadata": "import importlib.metadata; print(importlib.metadata.version('orjson') > '')",
    "jinja2": """
import jinja2.loaders, jinja2
class Own(jinja2.BaseLoader): pass
print(isinstance(Own(), jinja2.loaders.BaseLoader), issubclass(Own, jinja2.BaseLoader))
print(jinja2.Template("a").render())""",
    "jwt.jwks_client": """
import jwt.jwks_client
print(isinstance(jwt.jwks_client.PyJWKClient("https://x"), jwt.PyJWKClient))""",
    "packaging.specifiers": """
from packaging.specifiers import SpecifierSet as Set
import packaging.specifiers, packaging.requirements
found = packaging.specifiers.SpecifierSet(">1")
print(isinstance(found, Set), isinstance(1, Set), isinstance(packaging.requirements.Requirement("a>1").specifier, Set))
class Own(Set): pass
print(issubclass(Own, Set), isinstance(Own(">1"), packaging.specifiers.SpecifierSet), Own.__mro__[1].__name__)""",
    "prometheus_client": "import prometheus_client.core, prometheus_client; print(prometheus_client.Counter('a', 'b'))",
    "prometheus_client.decorator": """
import prometheus_client.decorator
import prometheus_client; prometheus_client.CollectorRegistry
print(prometheus_client.decorator.decorate(lambda: 1, lambda *_: 2)())""",
    "werkzeug.serving": "import werkzeug, werkzeug.serving; print(werkzeug.serving.BaseWSGIServer.multithread)",
    "xml.dom.minidom": "import xml.dom.minidom; print(xml.dom.minidom.parseString('<a/>').documentElement.tagName)",
    "xml.etree.ElementTree": """
import xml.etree.ElementTree
import xml.etree.ElementTree as found
print(found.fromstring("<a/>").tag, xml.etree.ElementTree.Element is found.Element)""",
}
"""By a module that another stands for: what finds it through the packages that it is in."""
ALL = """
from minik8s_modules.base import seldom
from minik8s_modules.plugins.live.program import SELDOM
seldom.come_later(); seldom.have_no_templates(); seldom.have_no_commands()
for each in SELDOM: seldom.stand_for(each, SELDOM[each])
"""


@pytest.mark.parametrize("module", sorted(BELOW))
def test_one_in_a_package_is_found_through_it_whoever_asked_before(module: str) -> None:
    parent, _, last = module.rpartition(".")
    another = f"{f'from {parent} ' if parent else ''}import {last} as found\n"
    firsts = {
        "as it is": "",
        "nobody": ALL,
        "somebody who uses nothing": f"{ALL}{another}assert type(found).__name__ == 'Seldom'\ndel found\n",
        "somebody who uses it": f"{ALL}{another}found.real()\ndel found\n",
    }
    told = {
        who: subprocess.run([sys.executable, "-c", first + BELOW[module]], capture_output=True, text=True, check=True)
        for who, first in firsts.items()
    }
    found = {who: (done.stdout, done.stderr) for who, done in told.items()}
    assert found == dict.fromkeys(firsts, found["as it is"])
    assert found["as it is"][0]


def test_what_is_there_already_stays() -> None:
    text = f"import inspect; {LATER} import sys; print(type(sys.modules['inspect']).__name__)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "module\n"


def test_one_that_is_not_there_is_told_as_usual() -> None:
    text = f"{LATER} import inspect; print(hasattr(inspect, 'no_such_thing'))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


DAEMONS = {
    "a program of ours": ["/opt/minik8s/venv/bin/minik8s-gateway", "--config", "x"],
    "a module of ours": ["-m", "--config", "x"],
    "the command line": ["/opt/minik8s/venv/bin/minik8s", "get", "pods"],
    "somebody else's": ["/usr/bin/ansible-playbook", "minik8s_modules.gateway.main"],
}


@pytest.mark.parametrize(("who", "found"), [*zip(DAEMONS, (True, True, False, False), strict=True)])
def test_only_our_daemons_have_other_modules_than_they_ask_for(who: str, found: bool, monkeypatch) -> None:  # noqa: FBT001
    monkeypatch.setattr(sys, "argv", DAEMONS[who])
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "minik8s_modules.gateway.main"])
    assert is_daemon() is found


def test_flask_renders_a_template_where_jinja_has_not_come_yet() -> None:
    text = """
import sys
from minik8s_modules.base.seldom import Seldom, have_no_templates
have_no_templates()
import flask
app = flask.Flask("x")
print("jinja2.environment" in sys.modules)
with app.test_request_context("/a"):
    print(flask.render_template_string("{{ 1 + 1 }} {{ request.path }}"))
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n2 /a\n"


def test_flask_has_commands_and_a_client_once_somebody_asks_for_them() -> None:
    text = """
import sys
from minik8s_modules.base.seldom import have_no_commands
have_no_commands()
import flask, jwt, werkzeug
app = flask.Flask("x")
print("click.core" in sys.modules, "http.server" in sys.modules, "urllib.request" in sys.modules)
@app.cli.command("say")
def say():
    print("said")
print(app.cli.name, [*app.cli.commands], "click.core" in sys.modules)
app.test_cli_runner().invoke(say)
print(werkzeug.Client(app).get("/").status_code, app.test_client().get("/").status_code)
print(jwt.PyJWKClient("https://x").uri)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "False False False\nx ['say'] True\n404 404\nhttps://x\n"

"""The parts of the documentation that are made from code while the site is built (``docs/conf.py``), never committed.

Each function of ``PAGES`` returns what is added to the page of that name. Facts are read where the code declares them
(argument parsers, argument specs, module documentation, kinds, metrics, docstrings), so no page can go stale.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from minik8s_modules.api.kinds import KINDS
from minik8s_modules.api.schema.coverage import rules
from minik8s_modules.cli.commands import build_parser
from minik8s_modules.store.main import build_parser as build_store_parser

REPOSITORY = Path(__file__).parents[3]
PACKAGE = REPOSITORY / "minik8s_modules"
# what ansible-doc is asked for: (type of plugin, folder)
PLUGINS = (
    ("module", "library"),
    ("callback", "minik8s_modules/plugins/callback"),
    ("connection", "minik8s_modules/plugins/connection"),
    ("inventory", "minik8s_modules/plugins/inventory"),
    ("strategy", "minik8s_modules/plugins/strategy"),
)
# the files whose docstring is the contract of a format that two programs speak, by the page's heading
PROTOCOLS = {
    "Store": "minik8s_modules/store/interface.py",
    "Gateway socket": "minik8s_modules/gateway/messages.py",
    "Pause program": "roles/images/files/pause.c",
    "Streams": "minik8s_modules/streams/requests.py",
    "Streams socket": "minik8s_modules/streams/passing.py",
    "Items of the live run": "minik8s_modules/plugins/live/items.py",
    "Plans": "minik8s_modules/reconcile/planning/planserver.py",
    "Membership lock": "minik8s_modules/module_utils/minik8s/install/membership_lock.py",
}
_MARKUP = re.compile(r"\b[BCIEMOPRV]+\(([^()]*)\)")


def cli() -> str:
    """Return every command of ``minik8s`` and ``minik8s-store`` with its help."""
    parts: list[str] = []
    with mock.patch.dict(os.environ, COLUMNS="110"):
        for parser in (build_parser(), build_store_parser()):
            parts += [f"## {name}\n\n```\n{text.rstrip()}\n```\n" for name, text in _helps(parser, parser.prog)]
    return "\n".join(parts)


def _helps(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, str]]:
    yield name, parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield from _helps(inner, f"{name} {word}")


def variables() -> str:
    """Return the variables of all roles, from their argument specs."""
    parts: list[str] = []
    for file in sorted(REPOSITORY.glob("roles/*/meta/argument_specs.yml")):
        specs = yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"]
        parts.append(f"## {file.parts[-3]}\n\n{_prose(specs['main'].get('short_description', ''))}.\n")
        options = {name: option for spec in specs.values() for name, option in spec.get("options", {}).items()}
        parts.append(_options(options) if options else "It has no variables.\n")
    return "\n".join(parts)


def modules() -> str:
    """Return options, results and examples of our Ansible content, as ``ansible-doc`` knows them."""
    parts: list[str] = []
    for kind, folder in PLUGINS:
        for name, found in _ansible_doc(kind, folder).items():
            doc = found["doc"]
            parts.append(f"## {name}\n\n*{kind}*: {_prose(doc['short_description'])}.\n")
            parts.append(_paragraphs(doc.get("description", [])))
            parts += ["### Options\n", _options(doc["options"])] if doc.get("options") else []
            parts += ["### Results\n", _options(found["return"])] if found.get("return") else []
            if found.get("examples"):
                parts.append(f"### Examples\n\n```yaml\n{found['examples'].strip()}\n```\n")
    return "\n".join(parts)


def _ansible_doc(kind: str, folder: str) -> dict[str, Any]:
    names = sorted(file.stem for file in (REPOSITORY / folder).glob("*.py") if file.stem != "__init__")
    command = [str(Path(sys.executable).with_name("ansible-doc")), "--json", "--type", kind, *names]
    environment = os.environ | {"ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=REPOSITORY)
    return dict(json.loads(done.stdout))


def kinds() -> str:
    """Return the served kinds, and the fields that are refused or only stored, with the reason."""
    served = "\n".join(
        f"| {kind.kind} | {kind.api_version} | {kind.plural} | {' '.join(kind.short_names)} "
        f"| {'namespace' if kind.namespaced else 'cluster'} | {' '.join(kind.subresources)} |"
        for kind in sorted(KINDS.all(), key=lambda kind: (kind.group, kind.kind))
    )
    idle = "\n".join(
        f"| {definition} | {field} | {rule.treatment} | {_cell(rule.reason)} |"
        for definition, fields in rules().items()
        for field, rule in fields.items()
        if rule.treatment in {"refused", "warned"}
    )
    return f"""\
| kind | API version | resource | short | scope | subresources |
|---|---|---|---|---|---|
{served}

## Fields that are not acted on

All other fields are implemented. A *refused* field makes a write fail (422); a *warned* one is stored, and the client
is told that nothing acts on it.

| definition | field | treatment | why |
|---|---|---|---|
{idle}
"""


def metrics() -> str:
    """Return every metric that the code declares, with its type, labels and help."""
    rows = sorted({row for file in PACKAGE.rglob("*.py") for row in _metrics(file)})
    return "| metric | type | labels | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _metrics(file: Path) -> Iterator[str]:
    room = file.relative_to(PACKAGE).parts[0]
    tree = ast.parse(file.read_text(encoding="utf-8"))
    known = dict(pair for node in ast.walk(tree) if isinstance(node, ast.Assign) for pair in _assigned(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > 1:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            kind = called.lower()
            name, help_ = _text(node.args[0], known), _text(node.args[1], known)
            if kind in {"counter", "gauge", "histogram"} and name and help_:
                labels = _names(node.args[2], known) if len(node.args) > 2 else ""
                yield f"| `{name}` | {kind} | {labels} | {_cell(help_)} ({room}) |"


def _assigned(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Name):
            yield target.id, node.value
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from (
                (each.id, value)
                for each, value in zip(target.elts, node.value.elts, strict=True)
                if isinstance(each, ast.Name)
            )


def _text(node: ast.expr, known: Mapping[str, ast.expr]) -> str:
    """Return the text of a literal, or of an f-string over names that stand for literals; "" for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name) and node.id in known:
        return _text(known[node.id], {})
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _text(part.value if isinstance(part, ast.FormattedValue) else part, known) for part in node.values
        )
    return ""


def _names(node: ast.expr, known: Mapping[str, ast.expr]) -> str:
    value = known.get(node.id, node) if isinstance(node, ast.Name) else node
    return ", ".join(_text(each, known) for each in value.elts) if isinstance(value, (ast.Tuple, ast.List)) else ""


def protocols() -> str:
    """Return the formats between the programs, as the docstrings of those who speak them tell."""
    parts: list[str] = []
    for heading, path in PROTOCOLS.items():
        parts.append(f"## {heading}\n\n`{path}`\n\n```text\n{docstring(REPOSITORY / path)}\n```\n")
    return "\n".join(parts)


def docstring(file: Path) -> str:
    """Return the text that opens a file: a module's docstring, or the first comment of a C program."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        return ast.get_docstring(ast.parse(text)) or ""
    comment = text[text.index("/*") + 2 : text.index("*/")]
    return "\n".join(line.removeprefix(" *").removeprefix(" ") for line in comment.splitlines()).strip()


def _options(options: Mapping[str, Any], prefix: str = "") -> str:
    rows = "\n".join(_rows(options, prefix))
    return f"| name | type | default | meaning |\n|---|---|---|---|\n{rows}\n"


def _rows(options: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, option in options.items():
        default = option.get("default")
        shown = "required" if option.get("required") else "" if default is None else f"`{_cell(json.dumps(default))}`"
        kind = option.get("type", "str")
        kind += f" of {option['elements']}" if option.get("elements") else ""
        text = _prose(option.get("description", ""))
        if option.get("choices"):
            text += f" One of {', '.join(f'`{choice}`' for choice in option['choices'])}."
        yield f"| `{prefix}{name}` | {kind} | {shown} | {_cell(text)} |"
        yield from _rows(
            option.get("options") or option.get("suboptions") or option.get("contains") or {}, f"{prefix}{name}."
        )


def _paragraphs(description: str | list[str]) -> str:
    texts = [description] if isinstance(description, str) else description
    return "\n\n".join(_prose(each) for each in texts) + "\n"


def _prose(text: str | list[str]) -> str:
    """Return Ansible's documentation text as Markdown: C(x), O(x), V(x) … become `x`."""
    joined = text if isinstance(text, str) else " ".join(text)
    parts = re.split(r"(`[^`]*`)", _MARKUP.sub(r"`\1`", joined))
    return "".join(each if each.startswith("`") else each.replace("<", "&lt;") for each in parts).strip()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES: dict[str, Callable[[], str]] = {
    "reference/cli": cli,
    "reference/variables": variables,
    "reference/modules": modules,
    "reference/kinds": kinds,
    "reference/metrics": metrics,
    "reference/protocols": protocols,
}


def add_generated(_app: object, page: str, source: list[str]) -> None:
    """Add the generated part to a page (Sphinx' event ``source-read``): ``source`` is a list of its text alone."""
    if page in PAGES:
        source[0] += "\n" + PAGES[page]()

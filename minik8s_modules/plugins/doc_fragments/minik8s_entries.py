"""The options ``entries`` and ``upsert`` of each section's module, with every field of an entry and its meaning.

They are made of ``module_utils/minik8s/entries``: types and defaults from the TypedDicts, meanings from the text below
each field. A suboption of ``entries`` is a key of the section, or in angle brackets a form of keys. Argument specs have
no words for that, since names of suboptions are fixed there: the section itself checks its entries.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml

from minik8s_modules.module_utils.minik8s.core.schema import Field, schema_of
from minik8s_modules.module_utils.minik8s.entries.containers import ContainerEntry
from minik8s_modules.module_utils.minik8s.entries.dns import DnsEntry, DnsServerEntry
from minik8s_modules.module_utils.minik8s.entries.folders import FolderEntry
from minik8s_modules.module_utils.minik8s.entries.ingress import (
    IngressEntry,
    IngressHealthEntry,
    IngressServerEntry,
)
from minik8s_modules.module_utils.minik8s.entries.network import NetworkEntry
from minik8s_modules.module_utils.minik8s.entries.policies import FilterEntry, PolicyEntry, PolicyPodEntry
from minik8s_modules.module_utils.minik8s.entries.sandboxes import SandboxEntry
from minik8s_modules.module_utils.minik8s.entries.secrets import SecretEntry
from minik8s_modules.module_utils.minik8s.entries.services import DataplaneEntry, ServiceEntry
from minik8s_modules.module_utils.minik8s.entries.sidecars import SidecarEntry
from minik8s_modules.module_utils.minik8s.entries.slurm_jobs import SlurmJobEntry
from minik8s_modules.module_utils.minik8s.entries.units import UnitEntry
from minik8s_modules.module_utils.minik8s.entries.volumes import VolumeEntry

_Option = dict[str, Any]


@functools.cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _meanings(classes: dict[str, ast.ClassDef], name: str) -> dict[str, str]:
    """Return the text below each field of a class and of those it is derived from; a field without one is left out."""
    declared, found = classes[name], {}
    for base in declared.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            found.update(_meanings(classes, base.id))
    for field, text in zip(declared.body, declared.body[1:], strict=False):
        if isinstance(text, ast.Expr) and isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            found[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


def _fields(entry: type) -> dict[str, _Option]:
    """Return the fields of a TypedDict as options."""
    meanings = _meanings(_classes(entry.__module__), entry.__name__)
    for name in schema_of(entry).keys() - meanings.keys():
        raise LookupError(f"{entry.__module__}.{entry.__name__}.{name} needs a text below it that says what it means")
    return {
        name: {"description": [meanings[name]], **_type(entry.__annotations__[name]), **_presence(field)}
        for name, field in schema_of(entry).items()
    }


def _presence(field: Field) -> _Option:
    if field.required:
        return {"required": True}
    default = list(field.default) if isinstance(field.default, tuple) else field.default
    return {} if default is None else {"default": default}


def _type(kind: Any) -> _Option:
    """Return how options say a type: of a TypedDict, also within a list or a dict, the fields are suboptions."""
    while get_origin(kind) is Annotated:
        kind = kind.__origin__
    of = get_args(kind)
    if get_origin(kind) is Union:
        return functools.reduce(_either, (_type(one) for one in of if one is not type(None)))
    if get_origin(kind) is Literal:
        return {"type": "str", "choices": list(of)}
    if get_origin(kind) is list:
        item = _type(of[0])
        return {**item, "type": "list", "elements": item["type"]}
    if get_origin(kind) is dict:
        return {"type": "dict", "suboptions": {"<key>": {"description": ["Each of them."], **_type(of[1])}}}
    if kind is Any:
        return {"type": "raw"}
    return {"type": "dict", "suboptions": _fields(kind)} if issubclass(kind, dict) else {"type": kind.__name__}


def _either(one: _Option, other: _Option) -> _Option:
    """Return two forms of an option as one: a suboption is required where both have it and require it."""
    merged = {**one, **other}
    for key in ("description", "choices"):
        if key in merged:
            merged[key] = list(dict.fromkeys([*one.get(key, []), *other.get(key, [])]))
    if not one.get("required"):
        merged.pop("required", None)
    if "suboptions" in merged:
        fields, others = one["suboptions"], other["suboptions"]
        merged["suboptions"] = {
            name: _either(fields[name], others[name]) if name in fields and name in others else _left_out(found)
            for name, found in {**fields, **others}.items()
        }
    return merged


def _left_out(option: _Option) -> _Option:
    return {key: said for key, said in option.items() if key != "required"}


def _fragment(entries: dict[str, Any]) -> str:
    """Return the options of a section whose keys have these types."""
    keys = {}
    for key, kind in entries.items():
        description = [inspect.getdoc(one) for one in get_args(kind) or (kind,)]
        keys[key] = {"description": description, **_type(kind)}
    whole = ["The whole declared set, by key. Required with O(mode=full)."]
    part = ["Entries that a delta adds or replaces, by key, as in O(entries)."]
    options = {
        "entries": {"description": whole, "type": "dict", "suboptions": keys},
        "upsert": {"description": part, "type": "dict"},
    }
    return yaml.safe_dump({"options": options})


class ModuleDocFragment:
    """Ansible looks for this name; an attribute is a fragment."""

    NETWORK = _fragment({"pod-network": NetworkEntry})
    POLICIES = _fragment(
        {"filter": FilterEntry, "policy/<namespace>/<name>": PolicyEntry, "pod/<namespace>/<name>": PolicyPodEntry}
    )
    SECRETS = _fragment({"<namespace>/<name>": SecretEntry})
    FOLDERS = _fragment({"<PersistentVolume>": FolderEntry})
    VOLUMES = _fragment({"<pod uid>/<volume>": VolumeEntry})
    SANDBOXES = _fragment({"<pod uid>": SandboxEntry})
    SIDECARS = _fragment({"<pod uid>": SidecarEntry})
    CONTAINERS = _fragment({"<pod uid>/<container>": ContainerEntry})
    SERVICES = _fragment({"dataplane": DataplaneEntry, "<namespace>/<service>:<port>": ServiceEntry})
    DNS = _fragment({"server": DnsServerEntry, "service/<namespace>/<name>": DnsEntry, "host/<host>": DnsEntry})
    INGRESS = _fragment(
        {"_server": IngressServerEntry, "<host>": IngressEntry, "_health/<namespace>/<name>": IngressHealthEntry}
    )
    SLURM_JOBS = _fragment({"<uid>": SlurmJobEntry})
    UNITS = _fragment({"<uid>": UnitEntry})

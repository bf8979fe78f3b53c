"""Makes ``types.json`` from Kubernetes' Go types; run by hand when the served Kubernetes version changes.

The published .proto files do not say which scalar fields are pointers, and only that tells "replicas: 0"
from "not given": gogo writes a plain field always and a pointer only when it is set. The Go sources say it,
with field numbers and JSON names in their tags. They are Debian's golang-k8s-api-dev and
golang-k8s-apimachinery-dev (Apache-2.0); unpack both and run ``python -m
minik8s_modules.apiserver.protobuf.generate DIR/usr/share/gocode/src/k8s.io``.

``types.json`` maps ``package.Type`` (``core/v1.Pod``) to ``{field number: [JSON name, type, shape]}``. The
JSON name is "" for an inlined struct. Shape: "" plain, "p" pointer, "r" repeated, "m" map with string keys.
Type: a scalar (string, bytes, int, bool, double), one of the special types of decode.py, or another
``package.Type``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import orjson

PACKAGES = {
    **{f"{group}/v1": f"api/{group}/v1" for group in (
        "admissionregistration", "apps", "authentication", "authorization", "autoscaling", "batch", "certificates",
        "coordination", "core",
        "discovery", "events", "networking", "node", "policy", "rbac", "scheduling", "storage",
    )},
    "autoscaling/v2": "api/autoscaling/v2",
    "meta/v1": "apimachinery/pkg/apis/meta/v1",
}  # fmt: skip
SPECIAL = {
    "meta/v1.Time": "time",
    "meta/v1.MicroTime": "microtime",
    "meta/v1.Duration": "duration",
    "meta/v1.FieldsV1": "json",
    "runtime.RawExtension": "json",
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "intstr",
    "types.UID": "string",
    "types.NodeName": "string",
}
# how the packages import each other
_IMPORTED = {"metav1": "meta/v1", "v1": "core/v1", "corev1": "core/v1", "apiv1": "core/v1"}
_SCALARS = {
    "string": "string", "bool": "bool", "[]byte": "bytes", "int": "int", "int8": "int", "int32": "int", "int64": "int",
    "uint8": "int", "uint32": "int", "uint64": "int", "rune": "int", "float64": "double",
}  # fmt: skip
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^type (\w+) ([\w.\[\]*]+)$", re.MULTILINE)
_FIELD = re.compile(r"^\t(?:(\w+) )?\s*([\w.\[\]*]+)\s+`(.*)`", re.MULTILINE)
_TAG = re.compile(r'(\w+):"([^"]*)"')


class Field(NamedTuple):
    """One struct field as its source line says it."""

    go_type: str
    json_name: str
    number: str


class Sources:
    """The structs and named types of all packages."""

    def __init__(self, root: Path) -> None:
        self.structs: dict[str, list[Field]] = {}
        self.named: dict[str, str] = {}
        for package, folder in PACKAGES.items():
            for file in sorted((root / folder).glob("*.go")):
                if not file.name.startswith(("zz_", "generated")) and not file.name.endswith("_test.go"):
                    self._read(package, file.read_text(encoding="utf-8"))

    def _read(self, package: str, text: str) -> None:
        for name, go_type in _NAMED.findall(text):
            self.named[f"{package}.{name}"] = go_type
        for name, body in _STRUCT.findall(text):
            self.structs[f"{package}.{name}"] = list(_fields(body))

    def resolve(self, package: str, go_type: str) -> tuple[str, str]:
        """Return (type, shape) of a Go type seen in ``package``."""
        if go_type in _SCALARS:
            return _SCALARS[go_type], ""
        for prefix, shape in (("*", "p"), ("[]", "r"), ("map[", "m")):
            if go_type.startswith(prefix):
                inner = go_type.split("]", 1)[1] if shape == "m" else go_type.removeprefix(prefix)
                return self.resolve(package, inner)[0], shape
        return self._resolve_named(_qualified(package, go_type))

    def _resolve_named(self, full: str) -> tuple[str, str]:
        if full in SPECIAL:
            return SPECIAL[full], ""
        if full in self.structs:
            return full, ""
        inner = self.named[full]
        if inner.startswith("[]") and inner not in _SCALARS:
            return "strings", ""  # a named list is a message with one repeated field
        return self.resolve(full.rsplit(".", 1)[0], inner)


def _fields(body: str) -> Iterator[Field]:
    for _, go_type, tags in _FIELD.findall(body):
        found = dict(_TAG.findall(tags))
        if "protobuf" in found and found.get("json", "-") != "-":
            name, *options = found["json"].split(",")
            yield Field(go_type, "" if "inline" in options else name, found["protobuf"].split(",")[1])


def _qualified(package: str, go_type: str) -> str:
    if "." not in go_type:
        return f"{package}.{go_type}"
    alias, name = go_type.split(".")
    return f"{_IMPORTED.get(alias, alias)}.{name}"


def reachable(sources: Sources) -> dict[str, Mapping[str, list[str]]]:
    """Return the table for all top-level kinds and what they hold."""
    roots = [name for name, fields in sources.structs.items() if any(f.json_name == "metadata" for f in fields)]
    todo = [*roots, "meta/v1.DeleteOptions", "meta/v1.TypeMeta"]
    table: dict[str, Mapping[str, list[str]]] = {}
    while todo:
        name = todo.pop()
        if name in table or name not in sources.structs or name.endswith("List"):
            continue
        rows = {}
        for field in sources.structs[name]:
            kind, shape = sources.resolve(name.rsplit(".", 1)[0], field.go_type)
            rows[field.number] = [field.json_name, kind, shape]
            todo.append(kind)
        table[name] = rows
    return dict(sorted(table.items()))


def main() -> int:
    """Write ``types.json`` beside this file."""
    table = reachable(Sources(Path(sys.argv[1])))
    lines = [f"{orjson.dumps(name).decode()}: {orjson.dumps(rows).decode()}" for name, rows in table.items()]
    target = Path(__file__).with_name("types.json")
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    sys.stderr.write(f"{len(table)} types\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

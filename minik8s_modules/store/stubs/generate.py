"""Regenerate the etcd stubs: ``python -m minik8s_modules.store.stubs.generate SOURCE``.

SOURCE is the directory that holds etcd's Go sources. On Debian::

    apt-get download golang-etcd-server-dev && dpkg -x golang-etcd-server-dev_*.deb unpacked
    python -m minik8s_modules.store.stubs.generate unpacked/usr/share/gocode/src/go.etcd.io/etcd

Each .proto file is cleaned of what Python needs no definition of (gogoproto, the HTTP gateway's annotations), its imports
are turned to this package, and it is written beside this file with a note of its licence; then protoc makes the modules.
etcd 3.4's definitions are used on purpose: etcd's API only grows, and 3.4 is the oldest server we run on.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from grpc_tools import protoc

PACKAGE = "minik8s_modules/store/stubs"
SOURCES = ("etcdserver/etcdserverpb/rpc.proto", "mvcc/mvccpb/kv.proto", "auth/authpb/auth.proto")
LICENCE = """\
// From etcd (https://github.com/etcd-io/etcd, {source}), Copyright 2014-2022 The etcd Authors.
// Licensed under the Apache License, Version 2.0; http://www.apache.org/licenses/LICENSE-2.0
// Changed by minik8s: options and imports of gogoproto and of the HTTP gateway removed (see generate.py).
"""
REMOVED = (
    r'import "(gogoproto|google/api)[^\n]*\n',
    r"option \(gogoproto[^\n]*\n",
    r"option \(google\.api\.http\) = \{[^}]*(additional_bindings \{[^}]*\}[^}]*)?\};",
    r"\s*\[\(gogoproto[^\]]*\]",
)


def clean(text: str) -> str:
    """Return a .proto file's text without foreign options, importing from this package."""
    for pattern in REMOVED:
        text = re.sub(pattern, "", text)
    return re.sub(r'import "etcd/(?:\w+/)+(\w+\.proto)"', rf'import "{PACKAGE}/\1"', text)


def main(source: Path, root: Path) -> int:
    """Write the cleaned sources and the generated modules below ``root``; return protoc's exit status."""
    names = []
    for path in SOURCES:
        name = f"{PACKAGE}/{Path(path).name}"
        text = LICENCE.format(source=path) + clean((source / path).read_text(encoding="utf-8"))
        (root / name).write_text(text, encoding="utf-8")
        names.append(name)
    outputs = [f"--{kind}_out={root}" for kind in ("python", "pyi")]
    return int(protoc.main(["protoc", f"-I{root}", *outputs, *names]))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(__file__).resolve().parents[3]))

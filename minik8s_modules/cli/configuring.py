"""``config``: the kubeconfig's contexts; no server is asked. The file is replaced at once, with its mode and owner."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from minik8s_modules.cli import output
from minik8s_modules.cli.connection import named, read_config
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.client.kubeconfig import find_kubeconfig

_SECRETS = {"client-key-data": "DATA+OMITTED", "client-certificate-data": "DATA+OMITTED", "token": "REDACTED",
            "password": "REDACTED", "certificate-authority-data": "DATA+OMITTED"}  # fmt: skip


def view(options: argparse.Namespace) -> int:
    """Print the kubeconfig, with keys and certificates left out unless --raw."""
    config: Any = read_config(find_kubeconfig(options.kubeconfig))
    if options.minify:
        config = minified(config, options.context)
    config = config if options.raw else redacted(config)
    print(output.as_json(config) if options.output == "json" else output.as_yaml(config))
    return 0


def redacted(value: Any) -> Any:
    """Return a kubeconfig without what is secret, or too long to be read."""
    if isinstance(value, dict):
        return {key: _SECRETS[key] if key in _SECRETS and inner else redacted(inner) for key, inner in value.items()}
    return [redacted(inner) for inner in value] if isinstance(value, list) else value


def minified(config: Mapping[str, Any], context: str) -> dict[str, Any]:
    """Return what ``context``, else the current one, needs of a kubeconfig."""
    name = context or str(config.get("current-context") or "")
    entry = _context(config, name)
    used = entry.get("context") or {}
    kept = {"contexts": name, "clusters": used.get("cluster"), "users": used.get("user")}
    parts = {group: [e for e in config.get(group) or [] if e.get("name") == kept[group]] for group in kept}
    return {**config, **parts, "current-context": name}


def _context(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    entry = named(config, "contexts", name)
    if entry is None:
        known = ", ".join(sorted(e.get("name", "") for e in config.get("contexts") or [])) or "none"
        raise UsageError(f'no context exists with the name "{name}"; there is {known}')
    return entry


def current_context(options: argparse.Namespace) -> int:
    """Print the name of the current context."""
    name = read_config(find_kubeconfig(options.kubeconfig)).get("current-context")
    if not name:
        raise UsageError("current-context is not set")
    print(name)
    return 0


def get_contexts(options: argparse.Namespace) -> int:
    """Print the contexts; the current one has a star."""
    config = read_config(find_kubeconfig(options.kubeconfig))
    current, names = config.get("current-context"), options.names
    entries = [_context(config, name) for name in names] if names else config.get("contexts") or []
    if options.output == "name":
        print("\n".join(entry["name"] for entry in entries))
        return 0
    rows = []
    for entry in entries:
        used = entry.get("context") or {}
        star = "*" if entry["name"] == current else ""
        rows.append([star, entry["name"], used.get("cluster", ""), used.get("user", ""), used.get("namespace", "")])
    header = [] if options.no_headers else ["CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE"]
    print(output.aligned(header, rows, output.Paint()))
    return 0


def use_context(options: argparse.Namespace) -> int:
    """Make a context the current one."""
    path = find_kubeconfig(options.kubeconfig)
    config = read_config(path)
    _context(config, options.name)
    _write(path, {**config, "current-context": options.name})
    print(f'Switched to context "{options.name}".')
    return 0


def set_context(options: argparse.Namespace) -> int:
    """Change cluster, user or namespace of a context, or make it."""
    path = find_kubeconfig(options.kubeconfig)
    config = read_config(path)
    name = str(config.get("current-context") or "") if options.current else options.name
    if not name or (options.current and options.name):
        raise UsageError("name the context, or give --current")
    asked = {"cluster": options.cluster, "user": options.user, "namespace": options.namespace}
    changes = {field: value for field, value in asked.items() if value is not None}
    for field in ("cluster", "user"):
        if field in changes and named(config, f"{field}s", changes[field]) is None:
            raise UsageError(f'the kubeconfig has no {field} "{changes[field]}"')
    entry = named(config, "contexts", name)
    if entry is None:
        config["contexts"] = [*(config.get("contexts") or []), {"name": name, "context": changes}]
    else:
        entry["context"] = {**(entry.get("context") or {}), **changes}
    _write(path, config)
    print(f'Context "{name}" {"created" if entry is None else "modified"}.')
    return 0


def delete_context(options: argparse.Namespace) -> int:
    """Remove a context; its cluster and user stay."""
    path = find_kubeconfig(options.kubeconfig)
    config = read_config(path)
    entry = _context(config, options.name)
    config["contexts"] = [each for each in config["contexts"] if each is not entry]
    if config.get("current-context") == options.name:
        output.warn("this was the current context; choose another with `minik8s config use-context`")
    _write(path, config)
    print(f"deleted context {options.name} from {path}")
    return 0


def _write(path: Path, config: Mapping[str, Any]) -> None:
    """Replace the file, never leaving half of it; it is written through links."""
    real = path.resolve()
    before = real.stat()
    handle, partial = tempfile.mkstemp(dir=real.parent, prefix=".kubeconfig-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            yaml.safe_dump(dict(config), file, sort_keys=False)
            os.fchmod(file.fileno(), before.st_mode & 0o777)
            os.fchown(file.fileno(), before.st_uid, before.st_gid)
        Path(partial).replace(real)
    except OSError as error:
        Path(partial).unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror}") from error

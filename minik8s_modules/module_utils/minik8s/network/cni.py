"""The Container Network Interface as its runtime: which network a node has, and how its plugins are called.

The first valid file of the configuration folder, by name, is the network (``.conf``, ``.conflist``, ``.json``). A
plugin is a program: environment and one JSON object on its standard input say what to do, its standard output is the
result. The plugins of a list are called one after the other, each with the result of the one before; for DEL in the
opposite order. Nothing here knows pods or Docker: pod_plugins.py does, and keeps the record of what was attached.
Source: CNI specification 1.0.0, sections 1 to 5; Kubernetes' dockershim for the choice of the file.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from ..core.faults import KeyFault
from ..core.files import read_bytes
from . import network_programs
from .network_programs import SHOWN, Done, printed

ENDINGS = (".conf", ".conflist", ".json")
VERSIONS = frozenset({"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"})
WITHOUT_CHECK = frozenset({"0.1.0", "0.2.0", "0.3.0", "0.3.1"})
"""CHECK, and the result that DEL is told, came with 0.4.0."""
TIMEOUT_S = 20.0  # an address by DHCP takes some seconds; who hangs must not hold the node for ever
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")  # of networks and plugins (section 1)


class Network(NamedTuple):
    """A network configuration list: where it was found, and its plugins in their order."""

    file: str
    name: str
    version: str
    plugins: tuple[Mapping[str, Any], ...]
    check: bool

    @property
    def maps_ports(self) -> bool:
        """Whether a plugin leads ports of the node to the pod."""
        return any((plugin.get("capabilities") or {}).get("portMappings") for plugin in self.plugins)


class Call(NamedTuple):
    """Whom a call is about; ``netns`` "" is one that exists no more. ``runtime`` are values of capabilities."""

    container: str
    netns: str
    interface: str
    arguments: Mapping[str, str]
    runtime: Mapping[str, Any] = {}


def find_network(folder: str) -> Network:
    """Return the network of the first valid file.

    Raises:
        KeyFault: NetworkNotReady, there is none; the message tells what is wrong with each file.
    """
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(ENDINGS))
    except OSError as error:
        raise KeyFault("NetworkNotReady", f"No valid networks found in {folder}: {error.strerror}") from None
    wrong = []
    for name in names:
        try:
            return parse_network(name, (read_bytes(os.path.join(folder, name)) or b"").decode("utf-8", "replace"))
        except ValueError as error:
            wrong.append(f"{name}: {error}")
    message = "; ".join(wrong) or f"no file name ends in {', '.join(ENDINGS)}"
    raise KeyFault("NetworkNotReady", f"No valid networks found in {folder}: {message}")


def parse_network(file: str, text: str) -> Network:
    """Return the network a file describes; one plugin by itself is a list of one.

    Raises:
        ValueError: it describes none; the message says why.
    """
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004  (text that is not right, as of json.loads)
    plugins = found.get("plugins") if file.endswith(".conflist") else [found]
    if not isinstance(plugins, list) or not plugins or not all(isinstance(one, dict) for one in plugins):
        raise ValueError("plugins must be a list of at least one object")
    for at, one in enumerate(plugins):
        if not isinstance(one.get("type"), str) or not _NAME.fullmatch(one["type"]):
            raise ValueError(f"plugin {at} has no type that names a program (is it a list? that ends in .conflist)")
        if not isinstance(one.get("capabilities") or {}, dict):
            raise ValueError(f"capabilities of plugin {at} must be an object")  # noqa: TRY004  (as above)
    name, version = found.get("name"), found.get("cniVersion") or "0.2.0"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"its name is {name!r}; it starts with a letter or digit, then also has _ . -")
    if version not in VERSIONS:
        raise ValueError(f"its cniVersion is {version!r}; known are {', '.join(sorted(VERSIONS))}")
    check = version not in WITHOUT_CHECK and str(found.get("disableCheck", False)).lower() != "true"
    return Network(file, name, version, tuple(plugins), check)


def as_json(network: Network) -> dict[str, Any]:
    """Return what a record keeps of a network."""
    return network._asdict() | {"plugins": list(network.plugins)}


def from_json(kept: Mapping[str, Any]) -> Network:
    """Return the network of a record."""
    return Network(kept["file"], kept["name"], kept["version"], tuple(kept["plugins"]), kept["check"])


def programs(network: Network, folders: Sequence[str]) -> dict[str, str]:
    """Return the program of each plugin by its type.

    Raises:
        KeyFault: NetworkNotReady, one is in none of ``folders``.
    """
    found = {}
    for plugin in network.plugins:
        kind = plugin["type"]
        paths = [os.path.join(folder, kind) for folder in folders]
        path = next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)
        if path is None:
            where = ", ".join(folders)
            raise KeyFault("NetworkNotReady", f"failed to find plugin {kind!r} of network {network.name!r} in {where}")
        found[kind] = path
    return found


def add(network: Network, folders: Sequence[str], call: Call) -> dict[str, Any]:
    """Attach; return the result of the last plugin.

    Raises:
        KeyFault: NetworkNotReady, a plugin is missing or fails. What others did stands: ``delete`` it.
    """
    paths, result = programs(network, folders), None
    for plugin in network.plugins:
        answer = _run("ADD", paths[plugin["type"]], folders, call, _input(network, plugin, call, result))
        result = answer or result
    if not isinstance(result, dict):
        raise KeyFault("NetworkNotReady", f"network {network.name!r} returned no result")
    return result


def delete(network: Network, folders: Sequence[str], call: Call, result: Mapping[str, Any] | None) -> None:
    """Detach; what is detached already is fine.

    Raises:
        KeyFault: NetworkNotReady, a plugin is missing or fails.
    """
    paths = programs(network, folders)
    previous = None if network.version in WITHOUT_CHECK else result
    for plugin in reversed(network.plugins):
        _run("DEL", paths[plugin["type"]], folders, call, _input(network, plugin, call, previous))


def check(
    network: Network, folders: Sequence[str], call: Call, result: Mapping[str, Any], asked: Container[str]
) -> None:
    """Ask those plugins whose type is in ``asked`` whether the attachment is as they made it.

    Raises:
        KeyFault: NetworkNotReady, it is not; the message is the plugin's.
    """
    paths = programs(network, folders)
    for plugin in network.plugins:
        if plugin["type"] in asked:
            _run("CHECK", paths[plugin["type"]], folders, call, _input(network, plugin, call, result))


def checkable(network: Network, folders: Sequence[str], call: Call, result: Mapping[str, Any]) -> list[str]:
    """Return the types whose CHECK can be believed: it finds nothing wrong with what was attached just now.

    portmap 1.1.1 (Debian 12) for one looks for rules of IPv6 in a pod that has none.
    """
    good = []
    for plugin in network.plugins if network.check else ():
        with contextlib.suppress(KeyFault):
            check(network, folders, call, result, [plugin["type"]])
            good.append(plugin["type"])
    return good


def address_of(network: Network, result: Mapping[str, Any]) -> str:
    """Return the IPv4 address of a result with its prefix length.

    Raises:
        KeyFault: NetworkNotReady, it has none.
    """
    rows = [one.get("address") for one in result.get("ips") or () if isinstance(one, dict)]
    rows.append((result.get("ip4") or {}).get("ip"))  # before 0.3.0
    for text in rows:
        try:
            return str(ipaddress.IPv4Interface(text or ""))
        except ValueError:
            continue
    raise KeyFault("NetworkNotReady", f"network {network.name!r} gave no IPv4 address: {json.dumps(result)[:SHOWN]}")


def of_network(result: Mapping[str, Any] | None, netns: str) -> dict[str, Any] | None:
    """Return a result that was told of a network by another path, as told by this one; plugins compare them."""
    if result is None or not netns or not isinstance(result.get("interfaces"), list):
        return None if result is None else dict(result)
    ends = [{**end, "sandbox": netns} if end.get("sandbox") else end for end in result["interfaces"]]
    return {**result, "interfaces": ends}


def _input(
    network: Network, plugin: Mapping[str, Any], call: Call, previous: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return what a plugin reads (section 4, "Deriving execution configuration")."""
    given = {key: value for key, value in plugin.items() if key != "capabilities"}
    given |= {"name": network.name, "cniVersion": network.version}
    wanted = {name for name, on in (plugin.get("capabilities") or {}).items() if on}
    if runtime := {name: value for name, value in call.runtime.items() if name in wanted}:
        given["runtimeConfig"] = runtime
    if previous is not None:
        given["prevResult"] = previous
    return given


def _run(command: str, path: str, folders: Sequence[str], call: Call, given: Mapping[str, Any]) -> Any:
    environment = {
        "PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": call.container,
        "CNI_NETNS": call.netns,
        "CNI_IFNAME": call.interface,
        "CNI_ARGS": ";".join(f"{name}={value}" for name, value in call.arguments.items()),
        "CNI_PATH": ":".join(folders),
    }
    message = f"plugin {os.path.basename(path)} of network {given['name']!r}: {command}"
    text = network_programs.call(message, [path], environment, TIMEOUT_S, json.dumps(given), _cause)
    try:
        return json.loads(text) if text.strip() else None
    except ValueError:
        raise KeyFault("NetworkNotReady", f"{message} did not answer JSON: {text[:SHOWN]}") from None


def _cause(done: Done) -> str:
    """Return the error a plugin told (section 5, "Error"), else what it printed."""
    try:
        found = json.loads(done.stdout)
        words = ": ".join(str(found[name]) for name in ("msg", "details") if found.get(name))
    except (ValueError, AttributeError, KeyError):
        words = ""
    return words or printed(done)

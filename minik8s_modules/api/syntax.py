"""Syntaxes of names, addresses and ports: each returns the messages of what is wrong.

Source: k8s.io/apimachinery ``util/validation``.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS1123_LABEL = re.compile(_LABEL)
_DNS1123_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_DNS1035_LABEL = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_QUALIFIED_NAME = re.compile(_QUALIFIED)
_LABEL_VALUE = re.compile(f"({_QUALIFIED})?")
_ENV_NAME = re.compile("[ -<>-~]+")
_CONFIG_KEY = re.compile("[-._a-zA-Z0-9]+")
_PORT_NAME = re.compile("[-a-z0-9]+")
_LARGEST_PORT = 65535
_IPV4 = re.compile(r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}", re.ASCII)
_SPECIAL = (
    (ipaddress.IPv4Network("127.0.0.0/8"), "loopback range (127.0.0.0/8, ::1/128)"),
    (ipaddress.IPv4Network("169.254.0.0/16"), "link-local range (169.254.0.0/16, fe80::/10)"),
    (ipaddress.IPv4Network("224.0.0.0/24"), "link-local multicast range (224.0.0.0/24, ff02::/10)"),
)
_CIDR = "must be a valid IPv4 CIDR block, (e.g. 10.9.8.0/24)"
_CIDR_NAME = "must be a range with a - for the /, such as 10.244.1.0-24 or fd00:10:244:1::-64"
LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
DNS1035_MESSAGE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_MESSAGE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_ENV_MESSAGE = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_CONFIG_KEY_MESSAGE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def _syntax(pattern: re.Pattern[str], message: str, limit: int, value: str) -> list[str]:
    found = []
    if len(value) > limit:
        found.append(f"must be no more than {limit} bytes")
    if not pattern.fullmatch(value):
        found.append(message)
    return found


def dns1123_label(value: str) -> list[str]:
    """Return what keeps ``value`` from being an RFC 1123 label (63 characters)."""
    return _syntax(_DNS1123_LABEL, LABEL_MESSAGE, 63, value)


def dns1123_subdomain(value: str) -> list[str]:
    """Return what keeps ``value`` from being an RFC 1123 subdomain (253 characters)."""
    return _syntax(_DNS1123_SUBDOMAIN, SUBDOMAIN_MESSAGE, 253, value)


def path_segment(value: str) -> list[str]:
    """Return what keeps ``value`` from being one segment of a path, as names of roles are."""
    if value in {".", ".."}:
        return [f"may not be '{value}'"]
    found = [f"may not contain '{each}'" for each in ("/", "%") if each in value]
    return found if value.isprintable() else [*found, "may not contain control characters"]


def dns1035_label(value: str) -> list[str]:
    """Return what keeps ``value`` from being a DNS-1035 label (63 characters)."""
    return _syntax(_DNS1035_LABEL, DNS1035_MESSAGE, 63, value)


def qualified_name(value: str) -> list[str]:
    """Return what keeps ``value`` from being ``[prefix/]name``, as label and annotation keys are."""
    prefix, slash, name = value.rpartition("/")
    found = []
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif slash and "/" in prefix:
        optional = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a qualified name {_QUALIFIED_MESSAGE} {optional}"]
    elif slash:
        found += [f"prefix part {message}" for message in dns1123_subdomain(prefix)]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > 63:  # noqa: PLR2004 - limit of the syntax
        found.append("name part must be no more than 63 bytes")
    if not _QUALIFIED_NAME.fullmatch(name):
        found.append(f"name part {_QUALIFIED_MESSAGE}")
    return found


def label_value(value: str) -> list[str]:
    """Return what keeps ``value`` from being a label's value."""
    return _syntax(_LABEL_VALUE, _LABEL_VALUE_MESSAGE, 63, value)


def env_name(value: str) -> list[str]:
    """Return what keeps ``value`` from being the name of an environment variable."""
    return [] if _ENV_NAME.fullmatch(value) else [_ENV_MESSAGE]


def config_key(value: str) -> list[str]:
    """Return what keeps ``value`` from being a key of a ConfigMap or Secret, and so the name of a file."""
    if len(value) > 253:  # noqa: PLR2004 - limit of the syntax
        return ["must be no more than 253 bytes"]
    if not _CONFIG_KEY.fullmatch(value):
        return [_CONFIG_KEY_MESSAGE]
    if value == ".":
        return ["must not be '.'"]
    if value == "..":
        return ["must not be '..'"]
    return ["must not start with '..'"] if value.startswith("..") else []


def port_name(value: str) -> list[str]:
    """Return what keeps ``value`` from being an IANA service name (RFC 6335), as names of ports are."""
    found = []
    if len(value) > 15:  # noqa: PLR2004 - RFC 6335
        found.append("must be no more than 15 characters")
    if not _PORT_NAME.fullmatch(value):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", value):
        found.append("must contain at least one letter (a-z)")
    if "--" in value:
        found.append("must not contain consecutive hyphens")
    if value.startswith("-") or value.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return found


def port_number(value: Any) -> list[str]:
    """Return what keeps ``value`` from being a port."""
    in_range = isinstance(value, int) and 1 <= value <= _LARGEST_PORT
    return [] if in_range else [f"must be between 1 and {_LARGEST_PORT}, inclusive"]


def ipv4(value: str) -> list[str]:
    """Return what keeps ``value`` from being a dotted IPv4 address without leading zeros."""
    return [] if _IPV4.fullmatch(value) else ["must be a valid IPv4 address"]


def ip(value: str) -> list[str]:
    """Return what keeps ``value`` from being an address of either family."""
    try:
        good = "%" not in value and ipaddress.IPv6Address(value).ipv4_mapped is None
    except ValueError:
        good = _IPV4.fullmatch(value) is not None
    return [] if good else ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]


def ipv6(value: str) -> list[str]:
    """Return what keeps ``value`` from being an IPv6 address."""
    return ip(value) if ":" in value else ["must be a valid IPv6 address"]


def non_special_ipv4(value: str) -> list[str]:
    """Return what keeps ``value`` from being an IPv4 address of one other machine or pod (``ValidateNonSpecialIP``)."""
    if found := ipv4(value):
        return found
    address = ipaddress.IPv4Address(value)
    if address.is_unspecified:
        return [f"may not be unspecified ({value})"]
    return [f"may not be in the {what}" for network, what in _SPECIAL if address in network]


def non_special_ipv6(value: str) -> list[str]:
    """Return what keeps ``value`` from being an IPv6 address of one other machine or pod (``ValidateNonSpecialIP``)."""
    if found := ipv6(value):
        return found
    address = ipaddress.IPv6Address(value)
    special = {
        f"may not be unspecified ({value})": address.is_unspecified,
        "may not be in the loopback range (127.0.0.0/8, ::1/128)": address.is_loopback,
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)": address.is_link_local,
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)": address.is_multicast,
    }
    return [text for text, is_so in special.items() if is_so]


def non_special_ip(value: str) -> list[str]:
    """Return what keeps ``value`` from being an address of either family of one other machine or pod."""
    return ip(value) or (non_special_ipv6 if ":" in value else non_special_ipv4)(value)


def shortest_ip(value: str) -> str:
    """Return an address of either family in its shortest form, however somebody wrote it; what is none stays."""
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        return value


def canonical_ip(value: str) -> list[str]:
    """Return what keeps ``value`` from being an address of either family as we write it: one has one name."""
    found = ip(value)
    if not found and ":" in value and str(ipaddress.IPv6Address(value)) != value:
        return [f"must be in canonical form ({ipaddress.IPv6Address(value)})"]
    return found


def ip_address(value: str) -> list[str]:
    """Return what keeps ``value`` from being an address of either family; one of a device (``%eth0``) is none."""
    try:
        ipaddress.ip_address(value.replace("%", " "))
    except ValueError:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    return []


def ipv4_cidr(value: str) -> list[str]:
    """Return what keeps ``value`` from being an IPv4 range."""
    try:
        ipaddress.IPv4Network(value.strip(), strict=False)
    except ValueError:
        return [_CIDR]
    return [] if "/" in value else [_CIDR]


def ip_cidr(value: str) -> list[str]:
    """Return what keeps ``value`` from being a range of either family."""
    message = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
    try:
        ipaddress.ip_network(value.strip(), strict=False)
    except ValueError:
        return [message]
    return [] if "/" in value and "%" not in value else [message]


def cidr_name(value: str) -> list[str]:
    """Return what keeps ``value`` from naming a range as ours do: ``10.244.1.0-24``, ``fd00:10:244:1::-64``."""
    address, dash, length = value.partition("-")
    try:
        if "%" in value or not dash or str(ipaddress.ip_network(f"{address}/{length}")) != f"{address}/{length}":
            return [_CIDR_NAME]
    except ValueError:
        return [_CIDR_NAME]
    return []

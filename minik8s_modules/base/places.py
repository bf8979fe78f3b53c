"""HOST:PORT, where the host may be an IPv6 address, which stands in brackets (RFC 3986, 3.2.2)."""

from __future__ import annotations


def bracketed(host: str) -> str:
    """Return a host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def place(host: str, port: int | str) -> str:
    """Return a place as URLs and configurations have it."""
    return f"{bracketed(host)}:{port}"


def parse_place(text: str) -> tuple[str, str]:
    """Return host and port as they were written, without brackets; the host is "" where there is none."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], port
    return ("" if ":" in host else host), port

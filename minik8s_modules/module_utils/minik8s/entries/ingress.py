"""Entries of the section ``ingress``: ``_server``, and one for each host."""

from typing import TypedDict


class IngressServerEntry(TypedDict):
    """Where the node's nginx listens."""

    http_port: int
    """Port of plain HTTP."""
    https_port: int
    """Port of HTTPS."""


class IngressEntry(TypedDict):
    """A host; the key C(_) is for all requests that name no other one."""

    config: str
    """Server blocks of nginx, as C(templates/ingress_host.conf.j2) makes them."""
    secrets: dict[str, str]
    """HMACs of the Secrets with the host's certificates, by C(<namespace>/<name>), so that a new certificate is a
    changed entry."""

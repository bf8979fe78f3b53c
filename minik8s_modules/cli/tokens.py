"""``token``: bootstrap tokens, with which machines join as nodes (``minik8s reconciler``), as kubeadm has them."""

from __future__ import annotations

import argparse
import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from minik8s_modules.api import objects
from minik8s_modules.api.access import bootstrap_tokens
from minik8s_modules.api.access.bootstrap_tokens import (
    NAMESPACE,
    PREFIX,
    SECRET_TYPE,
    USED_BY,
    BootstrapToken,
    parse_token,
    text_of,
    token_of,
)
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.field_selectors import exactly
from minik8s_modules.api.kinds import CONFIG_MAP, ENDPOINTS, SECRET
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.account_volumes import ROOT_CA
from minik8s_modules.cli import output
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.options import Subparsers, add, seconds_of
from minik8s_modules.client.api import ApiClient


def declare(commands: Subparsers) -> None:
    """Declare token create, list and delete."""
    parser = add(
        commands, "token", lambda *_: 0, "make, list and delete the tokens with which machines join as nodes",
        usage="token (create | list | delete) ...",
    )  # fmt: skip
    inner = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", prog="minik8s token")
    made = add(
        inner, "create", create, "make a token, good for one machine, and print it",
        usage="token create [options] [ID.SECRET]",
        examples="""
        minik8s token create --print-join-command             what to run on the machine that is to join
        minik8s token create --ttl 10m --description rack-7   a token alone""",
    )  # fmt: skip
    made.add_argument("token", nargs="?", default="", metavar="ID.SECRET", help="default: a random one")
    made.add_argument(
        "--ttl", default="1h", metavar="TIME", help="lifetime, such as 30m or 1h30m; 0 for no end; default: %(default)s"
    )
    made.add_argument("--description", default="", metavar="TEXT", help="a note for people")
    made.add_argument("--print-join-command", action="store_true", help="print the whole command of the machine")
    listed = add(inner, "list", listing, "print the tokens, without their secrets", usage="token list [options]")
    listed.add_argument("--no-headers", action="store_true", help="no header row, for scripts")
    gone = add(inner, "delete", delete, "revoke tokens", usage="token delete ID ...")
    gone.add_argument("tokens", nargs="+", metavar="ID", help="the part of a token before its dot, or all of it")


def create(client: ApiClient, options: argparse.Namespace) -> int:
    """Make a token and print it, or the command that joins with it."""
    lifetime = parse_lifetime(options.ttl)
    token = _given(options.token) if options.token else bootstrap_tokens.new_token(secrets.choice)
    expires = datetime.now(UTC) + lifetime if lifetime else None
    client.create(SECRET, bootstrap_tokens.secret_of(token, expires, options.description))
    print(join_command(client, token) if options.print_join_command else token)
    return 0


def _given(text: str) -> BootstrapToken:
    try:
        return parse_token(text)
    except ValueError as error:
        raise UsageError(str(error)) from error


def parse_lifetime(text: str) -> timedelta | None:
    """Return the time that ``text`` says (30m, 1h30m), None for 0: without end.

    Raises:
        UsageError: it says none.
    """
    if text == "0":
        return None
    seconds = seconds_of(text)
    if seconds is None or seconds > 10 * 365 * 24 * 3600:
        raise UsageError(f"--ttl {text}: write a time as 30m, 1h or 1h30m (at most ten years), or 0 for no end")
    return timedelta(seconds=seconds)


def join_command(client: ApiClient, token: BootstrapToken) -> str:
    """Return what to run on the machine that is to join.

    Raises:
        UsageError: the cluster does not tell its address and authorities yet.
    """
    from minik8s_modules.api.access import authority_pins  # noqa: PLC0415 - 20 ms, of every command else

    try:
        authorities = (client.get(CONFIG_MAP, ROOT_CA, "default").get("data") or {}).get("ca.crt") or ""
        server = bootstrap_tokens.server_of(client.get(ENDPOINTS, "kubernetes", "default"))
        hashes = authority_pins.key_hashes(authorities.encode())
    except (NotFound, ValueError) as error:
        message = f"token {token.id} was made, but the cluster does not publish how to reach it: {error}"
        raise UsageError(f"{message}; are the controllers running?") from error
    pins = " ".join(f"--discovery-token-ca-cert-hash {each}" for each in hashes)
    return f"minik8s reconciler --node NAME -j {server or 'https://HOST:6443'} --token {token} {pins} -c node.yml"


def listing(client: ApiClient, options: argparse.Namespace) -> int:
    """Print the tokens."""
    found = client.list(SECRET, NAMESPACE, field_selector=exactly(type=SECRET_TYPE)).items
    header = [] if options.no_headers else ["TOKEN", "TTL", "EXPIRES", "USED", "DESCRIPTION"]
    print(output.aligned(header, list(rows(found, datetime.now(UTC))), output.Paint()))
    return 0


def rows(found: list[JsonObject], now: datetime) -> Iterator[list[str]]:
    """Yield one row a token, by its id; the secret part is not shown."""
    for secret in sorted(found, key=objects.name):
        token, expires = token_of(secret), text_of(secret, "expiration")
        name = token.id if token else f"{objects.name(secret).removeprefix(PREFIX)} (malformed)"
        used = "yes" if text_of(secret, USED_BY) else "no"
        yield [name, _left(secret, now), expires or "<never>", used, text_of(secret, "description") or "<none>"]


def _left(secret: JsonObject, now: datetime) -> str:
    try:
        end = bootstrap_tokens.end_of(secret)
    except ValueError:
        return "<invalid>"
    if end is None:
        return "<forever>"
    seconds = int((end - now).total_seconds())
    if seconds <= 0:
        return "<expired>"
    return f"{seconds // 3600}h" if seconds >= 2 * 3600 else f"{seconds // 60}m" if seconds >= 120 else f"{seconds}s"  # noqa: PLR2004


def delete(client: ApiClient, options: argparse.Namespace) -> int:
    """Delete tokens by their ids."""
    for text in options.tokens:
        identifier = text.partition(".")[0]
        if re.fullmatch("[a-z0-9]{6}", identifier) is None:
            raise UsageError("a token's id is 6 characters of a-z and 0-9: the part before its dot")
        client.delete(SECRET, f"{PREFIX}{identifier}", NAMESPACE)
        print(f"token {identifier} deleted")
    return 0

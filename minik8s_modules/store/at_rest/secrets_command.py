"""``minik8s-store secrets ...``: the key ring of encryption at rest, and writing all secrets with its first key."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from minik8s_modules.base import config
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.store.at_rest import keyring
from minik8s_modules.store.at_rest.encryption import EncryptedStore
from minik8s_modules.store.at_rest.keyring import KeyRing
from minik8s_modules.store.etcd import EtcdStore
from minik8s_modules.store.wire.connection import Tls


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], configuration: Path) -> None:
    """Add the command to ``minik8s-store``."""
    parser = commands.add_parser("secrets", help="keys of secrets at rest", description=keyring.__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    rewrite = verbs.add_parser("rewrite", help="encrypt every secret with the first key; API servers may run")
    rewrite.add_argument("--config", type=Path, default=configuration, help="API server's file (%(default)s)")
    rewrite.set_defaults(act=_rewrite)
    add = verbs.add_parser("add-key", help="add a new key at the front of RING: it encrypts from now on")
    add.add_argument("ring", type=Path, metavar="RING")
    add.add_argument("--last", action="store_true", help="add it at the end: it only decrypts, until `promote`")
    add.set_defaults(act=_add_key)
    promote = verbs.add_parser("promote", help="move the last key of RING to the front")
    promote.add_argument("ring", type=Path, metavar="RING")
    promote.set_defaults(act=_promote)
    drop = verbs.add_parser("drop-keys", help="keep only the first key of RING; run `rewrite` before")
    drop.add_argument("ring", type=Path, metavar="RING")
    drop.set_defaults(act=_drop_keys)


def _rewrite(options: argparse.Namespace) -> None:
    settings = config.load(options.config)
    if not settings.has("encryption.key_ring"):
        raise ConfigurationError(f"{options.config} names no encryption.key_ring, so secrets are stored plain")
    ring = KeyRing(Path(settings.text("encryption.key_ring")))
    tls = None
    if settings.has("etcd.ca"):
        tls = Tls(*(Path(settings.text(f"etcd.{name}")) for name in Tls._fields))
    store = EncryptedStore(EtcdStore(settings.texts("etcd.endpoints"), tls), ring)
    try:
        count = store.rewrite()
    finally:
        store.close()
    _say(f"{count} secrets written with key {ring.keys()[0].id}, the others had it already")


def _keys(path: Path) -> tuple[keyring.Key, ...]:
    return KeyRing(path).keys()


def _add_key(options: argparse.Namespace) -> None:
    keys, fresh = _keys(options.ring), keyring.new_key()
    keyring.replace(options.ring, (*keys, fresh) if options.last else (fresh, *keys))
    _say(f"{options.ring}: added key {fresh.id}, {'last' if options.last else 'first'} of {len(keys) + 1}")


def _promote(options: argparse.Namespace) -> None:
    keys = _keys(options.ring)
    keyring.replace(options.ring, (keys[-1], *keys[:-1]))
    _say(f"{options.ring}: key {keys[-1].id} writes now")


def _drop_keys(options: argparse.Namespace) -> None:
    keys = _keys(options.ring)
    keyring.replace(options.ring, keys[:1])
    _say(f"{options.ring}: kept key {keys[0].id}, dropped {len(keys) - 1}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")

"""etcd's maintenance calls, by etcd3: those that operators ask for, and no request waits for.

etcd3 0.12.0 ships stubs that current protobuf refuses, so it is given our own. What the API server asks of etcd goes
over connections of its own (``connection.py``), and neither etcd3 nor grpcio is loaded there.
"""

from __future__ import annotations

import sys
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import grpc

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.places import bracketed
from minik8s_modules.store.errors import StoreUnavailable
from minik8s_modules.store.stubs import etcdrpc
from minik8s_modules.store.wire.connection import Tls

sys.modules["etcd3.etcdrpc"] = etcdrpc

import etcd3  # noqa: E402 - the stubs must be registered before

TIMEOUT_S = 900.0  # etcd's largest advised database, 8 GB, at 10 MB/s
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 10_000),  # a member that is silent for so long is given up; etcd allows one per 5 s
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_http_proxy", 0),
)


def snapshot(endpoint: str, tls: Tls | None, file: BinaryIO) -> None:
    """Write the database of the member at ``endpoint`` to ``file``, and etcd's hash of it, as etcdctl does.

    Raises:
        ConfigurationError: a certificate cannot be read.
        StoreUnavailable: the member does not answer, or stopped in the middle.
    """
    client = _client(endpoint, tls)
    try:
        client.snapshot(file)
    except (etcd3.Etcd3Exception, grpc.RpcError) as error:
        said = error if isinstance(error, grpc.RpcError) else error.__context__
        raise StoreUnavailable(f"etcd gives no snapshot: {said.details() if said else error!r}") from error
    finally:
        client.close()


def _client(endpoint: str, tls: Tls | None) -> Any:
    parts = urlsplit(endpoint)
    named = parts.hostname or ""
    host, port = ("unix", parts.path) if parts.scheme == "unix" else (bracketed(named), parts.port or 2379)
    # without it gRPC sends the path as authority, which etcd's HTTP server refuses
    authority = (("grpc.default_authority", "localhost"),) if host == "unix" else ()
    try:
        return etcd3.Etcd3Client(
            host,
            port,
            ca_cert=tls and str(tls.ca),
            cert_cert=tls and str(tls.cert),
            cert_key=tls and str(tls.key),
            timeout=TIMEOUT_S,
            grpc_options=_OPTIONS + authority,
        )
    except OSError as error:
        raise ConfigurationError(f"cannot read etcd's certificate {error.filename}: {error.strerror}") from error

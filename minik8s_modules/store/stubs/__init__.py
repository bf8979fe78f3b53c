"""etcd's protobuf messages and gRPC stubs, made by ``generate.py``; never edited by hand.

etcd3 0.12.0 ships stubs that current protobuf refuses. Importing ``etcd3`` through this package gives it these instead::

    from minik8s_modules.store.stubs import etcd3, rpc
"""

import sys

from minik8s_modules.store.stubs import etcdrpc as rpc

sys.modules["etcd3.etcdrpc"] = rpc

import etcd3  # noqa: E402 - the stubs must be registered before

__all__ = ["etcd3", "rpc"]

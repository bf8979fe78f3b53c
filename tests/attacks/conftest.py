"""Attacks on real servers: one file a promise, and its name is the promise.

Each test does what somebody did who should have been stopped, and fails before the mend. Here is what most of them
share: one API server on one etcd, and namespaces in it. What needs Docker's containers lies in ``containers/``.
"""

from tests.integration.apiserver.conftest import etcd, namespace, server

__all__ = ["etcd", "namespace", "server"]

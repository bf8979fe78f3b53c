"""etcd's protobuf messages, made by ``generate.py``; never edited by hand."""

from minik8s_modules.store.stubs import rpc_pb2 as rpc

__all__ = ["rpc"]

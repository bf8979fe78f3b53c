"""What ``etcd3.etcdrpc`` offers, from the regenerated modules: every message, enum value and stub in one namespace."""

from minik8s_modules.store.stubs.rpc_pb2 import *  # noqa: F403
from minik8s_modules.store.stubs.rpc_pb2_grpc import *  # noqa: F403

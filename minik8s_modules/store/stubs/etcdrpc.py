"""What ``etcd3.etcdrpc`` offers: etcd's messages, and a stub for each service, made from the services' descriptors."""

from __future__ import annotations

from typing import Any

from google.protobuf.message_factory import GetMessageClass

from minik8s_modules.store.stubs import rpc_pb2
from minik8s_modules.store.stubs.rpc_pb2 import *  # noqa: F403


def _stub(service: Any) -> type:
    def init(self: Any, channel: Any) -> None:
        for method in service.methods:
            kinds = ("stream" if many else "unary" for many in (method.client_streaming, method.server_streaming))
            call = getattr(channel, "_".join(kinds))(
                f"/{service.full_name}/{method.name}",
                request_serializer=GetMessageClass(method.input_type).SerializeToString,
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )
            setattr(self, method.name, call)

    return type(f"{service.name}Stub", (), {"__init__": init})


globals().update({f"{name}Stub": _stub(one) for name, one in rpc_pb2.DESCRIPTOR.services_by_name.items()})

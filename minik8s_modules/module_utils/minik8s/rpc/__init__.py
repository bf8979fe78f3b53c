"""gRPC, by the standard library alone: ``http2`` makes calls over headers of ``hpack``, ``protobuf`` packs messages.

etcd's client (``store/wire``) and what calls CSI drivers on nodes (``volumes/csi_calls``) share it.
"""

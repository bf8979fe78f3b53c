"""gRPC to etcd: ``connection`` chooses a member and calls it, over ``http2`` with the headers of ``hpack``."""

"""gRPC to etcd: ``connection`` chooses a member and calls it (module_utils/minik8s/rpc has the protocol)."""

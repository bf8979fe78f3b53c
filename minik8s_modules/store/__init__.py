"""The only code that touches etcd, and its watch cache."""

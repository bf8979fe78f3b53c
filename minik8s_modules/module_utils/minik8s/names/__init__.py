"""Names and paths on a node: the sections ``dns`` (CoreDNS's files, the node's resolver) and ``ingress`` (nginx)."""

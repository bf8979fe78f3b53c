"""The sections ``network``, ``services``, ``dns`` and ``ingress`` of a node's document. Pure."""

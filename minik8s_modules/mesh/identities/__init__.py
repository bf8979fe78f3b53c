"""Mutual TLS between sidecars: who speaks it, and with what certificate.

Namespaces, Pods ─▶ peers ─▶ Peers (a value) ─▶ securing (pure): clusters, endpoints, the listener of what comes in
                                             └▶ mesh.identity: how one sidecar takes connections
turns ─▶ holding ─▶ issuing: a key and a signing request for the service account that a sidecar's token proves;
secrets of one stream
"""

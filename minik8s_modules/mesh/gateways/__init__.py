"""Gateway API (https://gateway-api.sigs.k8s.io): requests from outside, led by HTTPRoutes through Gateways.

    GatewayClass, Gateway ─▶ listeners ─┐
    HTTPRoute, ReferenceGrant ─▶ references ─▶ attaching ─▶ rules ─▶ resources ─▶ the catalogue, as sidecars have it
    Secret ─▶ certificates ─┘                       └─▶ statuses: conditions in upstream's words

All but ``controller`` is pure. What a Gateway runs as is made by the controllers (controllers/network/gateways.py).
"""

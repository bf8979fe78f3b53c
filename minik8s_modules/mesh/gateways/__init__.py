"""Gateway API (https://gateway-api.sigs.k8s.io): HTTPRoutes lead requests through Gateways, and those within the mesh.

    GatewayClass, Gateway ─▶ listeners ─┐
    HTTPRoute, ReferenceGrant ─▶ references ─▶ attaching ─▶ rules ─▶ resources ─▶ the catalogue, as sidecars have it
         │  Secret ─▶ certificates ─┘                       └─▶ statuses: conditions in upstream's words
         └─ following ─▶ parents (whose requests) ─▶ meshing: what the sidecars of a namespace are told

All but ``controller`` and ``following`` is pure. What a Gateway runs as is made by the controllers
(controllers/network/gateways.py).
"""

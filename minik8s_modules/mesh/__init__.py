"""The service mesh: what Services, EndpointSlices, VirtualServices and Subsets declare, told to Envoys beside Pods.

    objects ─▶ mapping (pure) ─▶ resources (pure) ─▶ messages ─▶ xds: one stream a sidecar
                  │                                       ▲
                  ▼                                       └─ subscriptions (pure): what a sidecar has, and has not
    statuses: SidecarMapping, conditions of VirtualServices      identity: whose sidecar it is, by its token
    acknowledgements: whose sidecars have taken that a RollingUpdate withholds Pods

``main`` is the daemon ``minik8s-pilot``. Several of it serve; one of them, which holds the Lease, writes.
"""
